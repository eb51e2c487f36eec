//! The level rule, in types.
//!
//! Each multiplication by a clear vector raises noise by some sixty bits, and `q` has room for two and the flood. So what
//! stays with P1 is at level 0 (fresh from P2, plus or minus clear vectors) or level 1 (multiplied once); level 2 exists only on
//! its way to P2: it can be added up and sanitised, nothing else.

/// How often a ciphertext was multiplied by a clear vector.
pub trait Level: private::Sealed + Copy + Send + Sync + 'static {
    /// The number, for messages.
    const DEPTH: u8;
}

/// A level that P1 may keep.
pub trait Stays: Level {}

/// A level at which a ciphertext may still be multiplied.
pub trait Raise: Stays {
    /// The level after it.
    type Next: Level;
}

/// Fresh from P2.
#[derive(Clone, Copy, Debug)]
pub struct L0;

/// Multiplied once.
#[derive(Clone, Copy, Debug)]
pub struct L1;

/// Multiplied twice: on its way to P2.
#[derive(Clone, Copy, Debug)]
pub struct L2;

impl Level for L0 {
    const DEPTH: u8 = 0;
}
impl Level for L1 {
    const DEPTH: u8 = 1;
}
impl Level for L2 {
    const DEPTH: u8 = 2;
}
impl Stays for L0 {}
impl Stays for L1 {}
impl Raise for L0 {
    type Next = L1;
}
impl Raise for L1 {
    type Next = L2;
}

mod private {
    pub trait Sealed {}
    impl Sealed for super::L0 {}
    impl Sealed for super::L1 {}
    impl Sealed for super::L2 {}
}
