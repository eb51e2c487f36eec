//! Multipliers with known powers: as powers of a generator, so that nothing has to be inverted or raised.

use std::sync::LazyLock;

use rand::CryptoRng;
use veil_slots::{PLAIN_MODULUS, plain};

use super::EXPONENT;

/// The primes that divide `t - 1 = 2^14 (2^17 + 1) (2^17 - 1)`.
const PRIME_DIVISORS: [u64; 4] = [2, 3, 43691, 131071];

/// Powers of one base: for each byte of an exponent below `2^48`, for each value of that byte.
struct Powers([[u64; 256]; 6]);

impl Powers {
    fn of(mut base: u64) -> Self {
        Self(std::array::from_fn(|_| {
            let mut power = 1;
            let window = std::array::from_fn(|_| {
                let next = plain::mul(power, base);
                std::mem::replace(&mut power, next)
            });
            // The base to the 256th, where the next byte begins.
            base = power;
            window
        }))
    }

    #[inline]
    fn at(&self, exponent: u64) -> u64 {
        let bytes = exponent.to_le_bytes();
        self.0.iter().zip(bytes).fold(1, |power, (window, byte)| plain::mul(power, window[usize::from(byte)]))
    }
}

/// Powers of a generator `g` of all numbers but zero, and of `g^-E`.
static POWERS: LazyLock<[Powers; 2]> = LazyLock::new(|| {
    let generator = generator();
    [Powers::of(generator), Powers::of(plain::inverse(plain::pow(generator, EXPONENT)))]
});

/// The smallest number whose powers are all numbers but zero.
fn generator() -> u64 {
    let order = PLAIN_MODULUS - 1;
    let generates = |g: &u64| PRIME_DIVISORS.iter().all(|prime| plain::pow(*g, order / prime) != 1);
    (2..PLAIN_MODULUS).find(generates).unwrap_or_default()
}

/// So many uniform multipliers `m`, none of them zero, and with each `m^-E`.
pub(super) fn draw(count: usize, rng: &mut impl CryptoRng) -> (Vec<u64>, Vec<u64>) {
    let [plain_powers, inverse_powers] = &*POWERS;
    let one = |_| {
        let exponent = plain::uniform_below(PLAIN_MODULUS - 1, rng);
        (plain_powers.at(exponent), inverse_powers.at(exponent))
    };
    (0..count).map(one).unzip()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn the_divisors_are_those_of_the_groups_order() {
        assert_eq!(2u64.pow(14) * 3 * 43691 * 131071, PLAIN_MODULUS - 1);
        for prime in PRIME_DIVISORS {
            assert!((2..prime).take_while(|divisor| divisor * divisor <= prime).all(|divisor| prime % divisor != 0));
            // So raising to the power E permutes the numbers.
            assert_ne!(EXPONENT % prime, 0);
        }
    }

    #[test]
    fn the_generator_generates_and_windows_are_powers() {
        let (g, order) = (generator(), PLAIN_MODULUS - 1);
        assert!(g > 1 && plain::pow(g, order) == 1);
        assert!(PRIME_DIVISORS.iter().all(|prime| plain::pow(g, order / prime) != 1));
        for exponent in [0, 1, 255, 256, 257, 0x0123_4567_89ab, order - 1] {
            assert_eq!(POWERS[0].at(exponent), plain::pow(g, exponent));
        }
    }

    #[test]
    fn blinds_come_with_their_inverse_powers() {
        let (m, inverse) = draw(1000, &mut StdRng::seed_from_u64(1));
        assert_eq!((m.len(), inverse.len()), (1000, 1000));
        let cancels = |(m, inverse): (&u64, &u64)| plain::mul(plain::pow(*m, EXPONENT), *inverse) == 1;
        assert!(m.iter().zip(&inverse).all(cancels));
        let different: std::collections::HashSet<u64> = m.iter().copied().collect();
        assert_eq!(different.len(), 1000);
    }
}
