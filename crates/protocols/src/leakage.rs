//! What a protocol tells each party beyond its result.

use crate::open::Purpose;

/// Declared beside every protocol, printed by `EXPLAIN`, tested on transcripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leakage {
    /// What P1 learns.
    pub p1: &'static str,
    /// What P2 learns.
    pub p2: &'static str,
}

impl Leakage {
    /// Neither party learns anything: P2 sees uniform numbers, P1 sees ciphertexts.
    pub const NOTHING: Self = Self { p1: "nothing", p2: "nothing" };
}

/// What a protocol shows P1 in clear. Each declares it, and P2 opens nothing for a purpose that is not declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opens(pub &'static [Purpose]);

impl Opens {
    /// Nothing that depends on data.
    pub const NOTHING: Self = Self(&[]);
}
