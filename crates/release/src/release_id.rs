//! The name of a release.

use rand::CryptoRng;

use crate::text_form::hex_form;

/// Names a release, at random: 32 hexadecimal digits. A retry of a release keeps its name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReleaseId(pub [u8; 16]);

hex_form!(ReleaseId, 16, "a release id");

impl ReleaseId {
    /// Draws a name.
    pub fn generate(rng: &mut (impl CryptoRng + ?Sized)) -> Self {
        let mut id = [0; 16];
        rng.fill_bytes(&mut id);
        Self(id)
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn ids_read_what_they_print() {
        let mut rng = StdRng::seed_from_u64(1);
        let (id, other) = (ReleaseId::generate(&mut rng), ReleaseId::generate(&mut rng));
        assert_ne!(id, other);
        assert_eq!(id.to_string().parse::<ReleaseId>().unwrap(), id);
        assert_eq!(ReleaseId([0xab; 16]).to_string(), "ab".repeat(16));
        for text in ["", "ab", &"ab".repeat(17), &"AB".repeat(16), &"zz".repeat(16)] {
            assert!(text.parse::<ReleaseId>().is_err(), "{text}");
        }
    }
}
