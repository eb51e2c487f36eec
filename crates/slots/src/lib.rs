//! A value in a round.
//!
//! Cells are for SQL, slots are for rounds with P2: one BFV ciphertext holds 8192 numbers modulo a 48-bit prime, and adding,
//! or multiplying by a clear vector, acts on all of them at once. The arithmetic of the rings is `fhe-math`'s; the tests of
//! `veil-keys` open these ciphertexts with `fhe` and the other way round.
//!
//! This crate knows no secret key. What only a key can do is behind [`KeyHolder`], which `veil-keys` implements for P2.
//!
//! ```text
//!   P1                                                                    P2
//!   Slots<L0> -- times --> Slots<L1> -- times --> Slots<L2>
//!       \___________________\________________________\__ sanitize --> Outbound ==> Inbound -- KeyHolder::open --> numbers
//!   Fresh  <== SeededSlots <------------------------------------------------------- KeyHolder::seal <----------- numbers
//! ```
//!
//! ```text
//!  parameters      degree, primes, flooding
//!  plain           numbers modulo the plaintext prime
//!  ring            polynomials modulo the ciphertext primes
//!  buffers         their memory
//!  encoding        clear vectors as polynomials
//!  level           the level rule, in types
//!  noise           how far from corruption a ciphertext is
//!  slots           ciphertexts and what P1 may do with them
//!  public_key      encryptions of zero
//!  zero_pool       encryptions of zero, made ahead of time
//!  sanitize        the only way out to P2
//!  seeded          what comes back
//!  packing         54-bit residues on the wire
//!  key_holder      what P2 can do
//!  fingerprint     that both parties run the same scheme
//! ```

mod buffers;
mod encoding;
mod error;
mod fingerprint;
mod key_holder;
mod level;
mod noise;
mod packing;
mod parameters;
pub mod plain;
mod public_key;
mod ring;
mod sanitize;
mod seeded;
mod slots;
mod zero_pool;

pub use encoding::{Factor, Offset, coefficients_of_slots, scaled_up, slots_of_coefficients};
pub use error::SlotError;
pub use fingerprint::fingerprint;
pub use key_holder::{KeyHolder, Sample};
pub use level::{L0, L1, L2, Level, Raise, Stays};
pub use noise::Noise;
pub use parameters::{
    DEGREE, FLOOD_BITS, INBOUND_LIMBS, LIMBS, OUTBOUND_BYTES, PLAIN_MODULUS, PRIMES, SEEDED_BYTES, SLOT_VALUE_BITS,
};
pub use public_key::{PublicKey, small_coefficients};
pub use ring::{Coefficients, Form, Points, Prepared, Residues};
pub use sanitize::{Inbound, Outbound, Sanitizer};
pub use seeded::SeededSlots;
pub use slots::{Fresh, Slots};
pub use zero_pool::ZeroPool;
