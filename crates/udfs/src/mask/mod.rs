//! Masking (section 5.2 of the paper): values replaced or blurred, without noise that is accounted for.

mod mask_dictionary;
mod mask_noise;
mod mask_random;
mod mask_redact;
mod mask_shift;

pub(crate) use mask_dictionary::MaskDictionary;
pub use mask_dictionary::mask_dictionary;
pub(crate) use mask_noise::MaskNoise;
pub use mask_noise::mask_noise;
pub(crate) use mask_random::MaskRandom;
pub use mask_random::mask_random;
pub(crate) use mask_redact::MaskRedact;
pub use mask_redact::mask_redact;
pub(crate) use mask_shift::MaskShift;
pub use mask_shift::mask_shift;

/// The section of docs/sql.md.
pub(crate) const SECTION: &str = "Masking";
