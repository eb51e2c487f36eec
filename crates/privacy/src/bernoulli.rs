//! Exact coins and counts on machine integers.
//!
//! Algorithms 1 and 2 of Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020),
//! below CKS20. A float rounds, and Mironov (2012) broke Laplace noise by its rounding; here nothing rounds.
//!
//! All arguments are `u64`. Products of two are taken in `u128` or checked, so nothing overflows for any of them.
//! The time of a draw depends on what is drawn, never on a value that is being protected.

use rand::CryptoRng;

/// Uniform on 0, 1, .., bound - 1; zero for a bound of zero.
///
/// Lemire, "Fast Random Integer Generation in an Interval" (2019): the high half of word times bound, with the words
/// rejected that would give some numbers one chance more. One word nearly always, and a division rarely.
#[inline]
pub fn uniform_below<R: CryptoRng + ?Sized>(bound: u64, rng: &mut R) -> u64 {
    let mut product = u128::from(rng.next_u64()) * u128::from(bound);
    if (product as u64) < bound {
        let surplus = bound.wrapping_neg() % bound;
        while (product as u64) < surplus {
            product = u128::from(rng.next_u64()) * u128::from(bound);
        }
    }
    (product >> 64) as u64
}

/// True with probability numerator / denominator; ratios above one count as one.
#[inline]
pub fn bernoulli<R: CryptoRng + ?Sized>(numerator: u64, denominator: u64, rng: &mut R) -> bool {
    uniform_below(denominator, rng) < numerator
}

/// True with probability exp(-numerator / denominator), CKS20 Algorithm 1.
///
/// A denominator of zero makes the ratio infinite and the answer false.
#[inline]
pub fn bernoulli_exp<R: CryptoRng + ?Sized>(numerator: u64, denominator: u64, rng: &mut R) -> bool {
    let Some(whole) = numerator.checked_div(denominator) else { return false };
    // Fails early: about one and a half draws on average, however large the ratio is.
    (0..whole).all(|_| bernoulli_exp_1(rng)) && bernoulli_exp_fraction(numerator % denominator, denominator, rng)
}

/// The number n = 0, 1, .. with P(at least n) = exp(-n * denominator / numerator), CKS20 Algorithm 2.
///
/// Its mean is near numerator / denominator. A numerator of zero gives zero. Stops at the largest `u64`.
#[inline]
pub fn geometric_exp<R: CryptoRng + ?Sized>(numerator: u64, denominator: u64, rng: &mut R) -> u64 {
    if numerator == 0 {
        return 0;
    }
    // Whole multiples of the numerator and a remainder are independent, because exp(-a - b) = exp(-a) exp(-b).
    let remainder = loop {
        let candidate = uniform_below(numerator, rng);
        if bernoulli_exp_fraction(candidate, numerator, rng) {
            break candidate;
        }
    };
    let mut multiples = 0u64;
    while bernoulli_exp_1(rng) {
        multiples += 1;
    }
    let fine = u128::from(multiples) * u128::from(numerator) + u128::from(remainder);
    // The narrow division takes a fraction of the wide one's time, and nearly always suffices.
    match u64::try_from(fine) {
        Ok(fine) => fine.checked_div(denominator).unwrap_or(u64::MAX),
        Err(_) => {
            let count = fine.checked_div(u128::from(denominator)).unwrap_or(u128::MAX);
            u64::try_from(count).unwrap_or(u64::MAX)
        }
    }
}

/// True with probability 2/e, which is exp(-1) once the first of its coins, a fair one, has been won.
#[inline]
pub(crate) fn bernoulli_two_over_e<R: CryptoRng + ?Sized>(rng: &mut R) -> bool {
    stops_at_odd(uniform_below(SHARES[2], rng), rng)
}

/// True with probability exp(-1).
#[inline]
fn bernoulli_exp_1<R: CryptoRng + ?Sized>(rng: &mut R) -> bool {
    stops_at_odd(uniform_below(SHARES[1], rng), rng)
}

/// True with probability exp(-numerator / denominator), for ratios of at most one: coins of probability ratio / k
/// for k = 1, 2, .. until one is lost, and whether that k was odd.
#[inline]
fn bernoulli_exp_fraction<R: CryptoRng + ?Sized>(numerator: u64, denominator: u64, rng: &mut R) -> bool {
    let mut k = 1u64;
    loop {
        let won = match denominator.checked_mul(k) {
            Some(product) => bernoulli(numerator, product, rng),
            None => bernoulli(numerator, denominator, rng) && bernoulli(1, k, rng),
        };
        if !won {
            return k % 2 == 1;
        }
        k += 1;
    }
}

/// 20!/k! for k = 0, 1, .., 20. All coins 1/k of the ratio one, up to k = 20, are one draw below 20!: the first k are
/// won by the draws below 20!/k!.
const SHARES: [u64; 21] = {
    let mut shares = [1u64; 21];
    let mut k = 20;
    while k > 0 {
        shares[k - 1] = shares[k] * k as u64;
        k -= 1;
    }
    shares
};

/// Whether the first k whose coin a draw loses is odd.
#[inline]
fn stops_at_odd<R: CryptoRng + ?Sized>(draw: u64, rng: &mut R) -> bool {
    for (k, share) in SHARES.iter().enumerate().skip(2) {
        if draw >= *share {
            return k % 2 == 1;
        }
    }
    // One draw in 20! wins all twenty coins and goes on with single ones.
    let mut k = 21u64;
    while bernoulli(1, k, rng) {
        k += 1;
    }
    k % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::rngs::StdRng;
    use rand::{RngCore, SeedableRng};

    /// Gives these words, then zeros.
    struct Words(Vec<u64>);

    impl RngCore for Words {
        fn next_u32(&mut self) -> u32 {
            self.next_u64() as u32
        }

        fn next_u64(&mut self) -> u64 {
            self.0.pop().unwrap_or(0)
        }

        fn fill_bytes(&mut self, bytes: &mut [u8]) {
            bytes.fill_with(|| self.next_u64() as u8);
        }
    }

    impl CryptoRng for Words {}

    #[test]
    fn words_that_would_favour_a_number_are_rejected() {
        // 2^64 = 3 * (2^64 / 3) + 1: exactly one word, zero, is too many.
        assert_eq!(uniform_below(3, &mut Words(vec![u64::MAX, 0])), 2);
        assert_eq!(uniform_below(3, &mut Words(vec![7, 1])), 0);
        // A power of two rejects nothing.
        assert_eq!(uniform_below(1 << 32, &mut Words(vec![7, 0])), 0);
    }

    #[test]
    fn certain_coins_are_certain() {
        let mut rng = StdRng::seed_from_u64(1);
        for _ in 0..100 {
            assert!(bernoulli(1, 1, &mut rng) && bernoulli(u64::MAX, 5, &mut rng) && !bernoulli(0, 5, &mut rng));
            assert!(bernoulli_exp(0, 1, &mut rng) && bernoulli_exp(0, u64::MAX, &mut rng));
            assert!(!bernoulli_exp(u64::MAX, 1, &mut rng) && !bernoulli_exp(1, 0, &mut rng));
            assert_eq!(geometric_exp(0, 1, &mut rng), 0);
            assert_eq!(geometric_exp(1, u64::MAX, &mut rng), 0);
        }
    }

    #[test]
    fn shares_are_factorials() {
        assert_eq!(SHARES[0], (1..=20).product::<u64>());
        assert_eq!((SHARES[1], SHARES[2], SHARES[20]), (SHARES[0], SHARES[0] / 2, 1));
    }

    #[test]
    fn the_rarest_draw_goes_on_with_single_coins() {
        // Zero wins coins 2 to 20; then zeros win coins 21 and 22, and the word of ones loses coin 23.
        assert!(stops_at_odd(0, &mut Words(vec![u64::MAX, 1, 1])));
        assert!(!stops_at_odd(0, &mut Words(vec![u64::MAX, 1])));
    }

    proptest! {
        #[test]
        fn draws_are_below_the_bound(bound in 1u64.., seed: u64) {
            let mut rng = StdRng::seed_from_u64(seed);
            for bound in [bound, bound >> (seed % 64) | 1] {
                prop_assert!(uniform_below(bound, &mut rng) < bound);
            }
            prop_assert_eq!(uniform_below(1, &mut rng), 0);
            prop_assert_eq!(uniform_below(0, &mut rng), 0);
        }

        #[test]
        fn no_ratio_overflows(numerator: u64, denominator: u64, seed: u64) {
            let mut rng = StdRng::seed_from_u64(seed);
            bernoulli_exp(numerator, denominator, &mut rng);
            geometric_exp(numerator, denominator, &mut rng);
            geometric_exp(numerator, denominator % 3, &mut rng);
        }
    }
}
