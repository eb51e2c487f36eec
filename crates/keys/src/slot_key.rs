//! The secret key of slots.
//!
//! BFV (Fan and Vercauteren 2012): `c1` is uniform, `c0 = round(q m / t) + e - c1 s`, so that `c0 + c1 s` is `q m / t` but for
//! noise. Opening rounds `t (c0 + c1 s) / q`.

use std::fmt;
use std::sync::LazyLock;

use fhe_math::zq::Modulus;
use rand::CryptoRng;
use veil_cells::Seed;
use veil_slots::{
    DEGREE, Inbound, Level, PLAIN_MODULUS, PRIMES, Prepared, PublicKey, Residues, SeededSlots, Slots,
    coefficients_of_slots, scaled_up, slots_of_coefficients, small_coefficients,
};
use zeroize::{Zeroize, Zeroizing};

/// Bytes of a key at rest: one coefficient each.
pub(crate) const SLOT_KEY_BYTES: usize = DEGREE;

/// The secret polynomial `s`. It never prints and is wiped when dropped.
#[derive(Clone)]
pub struct SlotKey {
    coefficients: Zeroizing<Vec<i64>>,
    prepared: Zeroizing<Prepared>,
}

impl fmt::Debug for SlotKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SlotKey(secret)")
    }
}

impl SlotKey {
    /// Draws a key.
    pub fn generate(rng: &mut impl CryptoRng) -> Self {
        Self::from_coefficients(small_coefficients(rng))
    }

    fn from_coefficients(coefficients: Zeroizing<Vec<i64>>) -> Self {
        let prepared = Zeroizing::new(Prepared::new(Residues::from_small(&coefficients).into_points()));
        Self { coefficients, prepared }
    }

    pub(crate) fn from_bytes(bytes: &[u8; SLOT_KEY_BYTES]) -> Self {
        let mut coefficients = Zeroizing::new(Vec::with_capacity(DEGREE));
        coefficients.extend(bytes.iter().map(|byte| i64::from(*byte as i8)));
        Self::from_coefficients(coefficients)
    }

    pub(crate) fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(self.coefficients.iter().map(|coefficient| *coefficient as i8 as u8).collect())
    }

    /// A public key that goes with it: an encryption of zero.
    pub fn public_key(&self, rng: &mut impl CryptoRng) -> PublicKey {
        let zero = self.seal(&[], rng);
        PublicKey::new(zero).expect("an encryption that was just made is well-formed")
    }

    /// Encrypts numbers below `t`; missing slots are zero.
    pub fn seal<R: CryptoRng + ?Sized>(&self, values: &[u64], rng: &mut R) -> SeededSlots {
        let mut seed = Seed([0; 16]);
        rng.fill_bytes(&mut seed.0);
        let mut message = scaled_up(coefficients_of_slots(values));
        message.add_small(&small_coefficients(rng));
        let mut c0 = Zeroizing::new(message.into_points());
        let mut mask = Residues::from_seed(seed);
        mask.mul_prepared(&self.prepared);
        c0.sub(&mask);
        mask.zeroize();
        SeededSlots::new(seed, &c0)
    }

    /// Decrypts what P1 sanitised.
    pub fn open(&self, ciphertext: Inbound) -> Zeroizing<Vec<u64>> {
        let [c0, mut phase] = ciphertext.into_components();
        phase.mul_prepared(&self.prepared);
        phase.add(&c0);
        let mut phase = phase.into_coefficients();
        let coefficients = round_phase([phase.limb(0), phase.limb(1)], &TWO_PRIMES);
        phase.zeroize();
        Zeroizing::new(slots_of_coefficients(coefficients))
    }

    /// Decrypts a ciphertext as P1 holds it. Nothing in production does; tests and diagnosis do.
    pub fn open_slots<L: Level>(&self, slots: &Slots<L>) -> Vec<u64> {
        let [c0, c1] = slots.components();
        let mut phase = c1.clone();
        phase.mul_prepared(&self.prepared);
        phase.add(c0);
        let phase = phase.into_coefficients();
        let limbs = [phase.limb(0), phase.limb(1), phase.limb(2), phase.limb(3)];
        slots_of_coefficients(round_phase(limbs, &FOUR_PRIMES))
    }
}

/// What rounding modulo the product `q` of some primes needs.
struct Rounding<const N: usize> {
    moduli: [Modulus; N],
    /// `(q / q_i)^-1` modulo `q_i`, and its Shoup quotient.
    inverses: [(u64, u64); N],
    /// `floor(2^64 t / q_i)`.
    shares: [u64; N],
}

static TWO_PRIMES: LazyLock<Rounding<2>> = LazyLock::new(Rounding::new);
static FOUR_PRIMES: LazyLock<Rounding<4>> = LazyLock::new(Rounding::new);

impl<const N: usize> Rounding<N> {
    fn new() -> Self {
        let moduli = std::array::from_fn(|i| Modulus::new(PRIMES[i]).expect("the primes have less than 62 bits"));
        let inverses = std::array::from_fn(|i| {
            let modulus: &Modulus = &moduli[i];
            let others = (0..N).filter(|j| *j != i).fold(1, |product, j| modulus.mul(product, PRIMES[j] % PRIMES[i]));
            let inverse = modulus.pow(others, PRIMES[i] - 2);
            (inverse, modulus.shoup(inverse))
        });
        let shares = std::array::from_fn(|i| ((u128::from(PLAIN_MODULUS) << 64) / u128::from(PRIMES[i])) as u64);
        Self { moduli, inverses, shares }
    }
}

/// `round(t x / q) mod t`, coefficient by coefficient (Halevi, Polyakov, Shoup 2019, section 2.3): with
/// `y_i = x (q/q_i)^-1 mod q_i`, `x / q` is the sum of `y_i / q_i` modulo 1. Shares have 64 fractional bits, so four of them
/// are wrong by at most `2^-8`, and the flood leaves more room than that.
fn round_phase<const N: usize>(limbs: [&[u64]; N], rounding: &Rounding<N>) -> Vec<u64> {
    let mut coefficients = Vec::with_capacity(DEGREE);
    coefficients.extend((0..DEGREE).map(|at| {
        let sum = (0..N).fold(1u128 << 63, |sum, i| {
            let (inverse, shoup) = rounding.inverses[i];
            let y = rounding.moduli[i].mul_shoup(limbs[i][at], inverse, shoup);
            sum + u128::from(y) * u128::from(rounding.shares[i])
        });
        ((sum >> 64) as u64) % PLAIN_MODULUS
    }));
    coefficients
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fhe::bfv::{
        BfvParameters, BfvParametersBuilder, Ciphertext, Encoding, Plaintext, PublicKey as FhePublicKey, SecretKey,
    };
    use fhe_math::rq::traits::TryConvertFrom;
    use fhe_math::rq::{Poly, Representation};
    use fhe_traits::{DeserializeParametrized, FheDecoder, FheDecrypter, FheEncoder, FheEncrypter};
    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use veil_slots::{Factor, L0, LIMBS, Points, Sanitizer, plain};

    use super::*;

    fn parameters() -> Arc<BfvParameters> {
        let mut builder = BfvParametersBuilder::new();
        builder.set_degree(DEGREE).set_plaintext_modulus(PLAIN_MODULUS).set_moduli(&PRIMES);
        builder.build_arc().unwrap()
    }

    /// The key in `fhe`'s protobuf form: one packed field of zig-zag numbers, all below 64.
    fn fhe_key(key: &SlotKey, parameters: &Arc<BfvParameters>) -> SecretKey {
        let mut bytes = vec![0x0a, 0x80, 0x40];
        bytes.extend(key.coefficients.iter().map(|c| (c << 1 ^ c >> 63) as u8));
        SecretKey::from_bytes(&bytes, parameters).unwrap()
    }

    fn fhe_poly(residues: &Residues<Points>, parameters: &Arc<BfvParameters>) -> Poly {
        let words = (0..LIMBS).flat_map(|limb| residues.limb(limb).to_vec()).collect();
        let array = ndarray::Array2::from_shape_vec((LIMBS, DEGREE), words).unwrap();
        Poly::try_convert_from(array, parameters.context_at_level(0).unwrap(), false, Representation::Ntt).unwrap()
    }

    fn numbers() -> Vec<u64> {
        (0..DEGREE as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % PLAIN_MODULUS).collect()
    }

    #[test]
    fn fhe_opens_what_we_seal() {
        let (parameters, mut rng) = (parameters(), StdRng::seed_from_u64(1));
        let key = SlotKey::generate(&mut rng);
        let slots: Slots<L0> = key.seal(&numbers(), &mut rng).expand().unwrap().into();
        let polynomials = slots.components().map(|component| fhe_poly(component, &parameters));
        let ciphertext = Ciphertext::new(polynomials.into(), &parameters).unwrap();
        let opened: Plaintext = fhe_key(&key, &parameters).try_decrypt(&ciphertext).unwrap();
        let coefficients = Vec::<u64>::try_decode(&opened, Encoding::poly()).unwrap();
        assert_eq!(slots_of_coefficients(coefficients), numbers());
    }

    #[test]
    fn we_open_what_fhe_seals() {
        let (parameters, mut rng) = (parameters(), StdRng::seed_from_u64(2));
        let key = SlotKey::generate(&mut rng);
        let public = FhePublicKey::new(&fhe_key(&key, &parameters), &mut rng);
        let coefficients = coefficients_of_slots(&numbers());
        let plaintext = Plaintext::try_encode(&coefficients, Encoding::poly(), &parameters).unwrap();
        let sealed: Ciphertext = public.try_encrypt(&plaintext, &mut rng).unwrap();
        let limbs =
            |poly: &Poly| -> Vec<Vec<u64>> { poly.coefficients().outer_iter().map(|row| row.to_vec()).collect() };
        let ([c0, c1], s) = ([limbs(&sealed[0]), limbs(&sealed[1])], key.prepared.residues());
        let phase: Vec<Vec<u64>> = (0..LIMBS)
            .map(|limb| {
                let q = Modulus::new(PRIMES[limb]).unwrap();
                let mut product = c1[limb].clone();
                q.mul_vec(&mut product, s.limb(limb));
                q.add_vec(&mut product, &c0[limb]);
                fhe_math::ntt::NttOperator::new(&q, DEGREE).unwrap().backward(&mut product);
                product
            })
            .collect();
        let coefficients = round_phase([&phase[0], &phase[1], &phase[2], &phase[3]], &FOUR_PRIMES);
        assert_eq!(slots_of_coefficients(coefficients), numbers());
    }

    #[test]
    fn sanitised_slots_open_to_value_plus_blind() {
        let mut rng = StdRng::seed_from_u64(3);
        let key = SlotKey::generate(&mut rng);
        let sanitizer = Sanitizer::new(key.public_key(&mut rng));
        let slots: Slots<L0> = key.seal(&numbers(), &mut rng).expand().unwrap().into();
        assert_eq!(key.open_slots(&slots), numbers());
        let blind = plain::uniform_vec(DEGREE, &mut rng);
        let outbound = sanitizer.sanitize(&slots, &blind, &mut rng).unwrap();
        let opened = key.open(Inbound::parse(outbound.as_bytes()).unwrap());
        let expected: Vec<u64> = numbers().iter().zip(&blind).map(|(a, b)| plain::add(*a, *b)).collect();
        assert_eq!(*opened, expected);
    }

    #[test]
    fn we_open_what_the_public_key_encrypts() {
        let mut rng = StdRng::seed_from_u64(8);
        let key = SlotKey::generate(&mut rng);
        let public = key.public_key(&mut rng);
        let slots = public.encrypt(&numbers(), &mut rng);
        assert_eq!(key.open_slots(&slots), numbers());
        // Its noise is within what is tracked, and not far below it.
        let mut phase = slots.components()[1].clone();
        phase.mul_prepared(&key.prepared);
        phase.add(slots.components()[0]);
        phase.sub(&scaled_up(coefficients_of_slots(&numbers())).into_points());
        let noise = phase.into_coefficients();
        let largest = noise.limb(0).iter().map(|e| (*e).min(PRIMES[0] - e)).max().unwrap() as f64;
        assert!(largest < slots.noise().bound() && largest > slots.noise().bound() / 30.0, "noise {largest}");
        // Its noise leaves room for one multiplication on the way to P2, not for two.
        let (factor, sanitizer) = (Factor::new(&numbers()), Sanitizer::new(public));
        let outbound = sanitizer.sanitize(&slots.times(&factor), &[], &mut rng).unwrap();
        let expected: Vec<u64> = numbers().iter().map(|x| plain::mul(*x, *x)).collect();
        assert_eq!(*key.open(Inbound::parse(outbound.as_bytes()).unwrap()), expected);
        assert!(sanitizer.sanitize(&slots.times(&factor).times(&factor), &[], &mut rng).is_err());
    }

    #[test]
    fn keys_round_trip_and_do_not_print() {
        let key = SlotKey::generate(&mut StdRng::seed_from_u64(4));
        let bytes: [u8; SLOT_KEY_BYTES] = key.to_bytes().as_slice().try_into().unwrap();
        assert_eq!(SlotKey::from_bytes(&bytes).coefficients, key.coefficients);
        assert!(key.coefficients.iter().all(|c| c.abs() <= 20) && key.coefficients.iter().any(|c| *c < -5));
        assert_eq!(format!("{key:?}"), "SlotKey(secret)");
    }

    /// Sums of products, noise just below what flooding may hide, over a million slots: all decrypt.
    #[test]
    fn the_worst_permitted_path_decrypts() {
        let mut rng = StdRng::seed_from_u64(5);
        let key = SlotKey::generate(&mut rng);
        let sanitizer = Sanitizer::new(key.public_key(&mut rng));
        let (values, first, second) =
            (numbers(), plain::uniform_vec(DEGREE, &mut rng), plain::uniform_vec(DEGREE, &mut rng));
        let (first_factor, second_factor) = (Factor::new(&first), Factor::new(&second));
        let terms = 300;
        let product = |slot: usize| plain::mul(plain::mul(values[slot], first[slot]), plain::mul(second[slot], terms));
        let expected: Vec<u64> = (0..DEGREE).map(product).collect();
        for _ in 0..(1_000_000 / DEGREE + 1) {
            let fresh = key.seal(&values, &mut rng).expand().unwrap();
            // The same product over and over: noise adds up in full, not in squares.
            let mut sum = fresh.times(&first_factor).times(&second_factor);
            sum.scale(terms as i32);
            let blind = plain::uniform_vec(DEGREE, &mut rng);
            let outbound = sanitizer.sanitize(&sum, &blind, &mut rng).unwrap();
            let opened = key.open(Inbound::parse(outbound.as_bytes()).unwrap());
            let wrong = (0..DEGREE).filter(|slot| opened[*slot] != plain::add(expected[*slot], blind[*slot])).count();
            assert_eq!(wrong, 0);
        }
        let mut beyond = key.seal(&values, &mut rng).expand().unwrap().times(&first_factor).times(&second_factor);
        beyond.scale(400);
        let error = sanitizer.sanitize(&beyond, &[], &mut rng).unwrap_err();
        assert!(error.to_string().contains("add up fewer terms"), "{error}");
    }

    /// What P2 can try with a product of its own fresh ciphertext and a secret vector of P1.
    mod attacks {
        use super::*;

        fn pointwise_quotient(numerator: &[u64], denominator: &[u64], prime: u64) -> Vec<u64> {
            let q = Modulus::new(prime).unwrap();
            let pairs = numerator.iter().zip(denominator);
            pairs.map(|(n, d)| if *d == 0 { 0 } else { q.mul(*n, q.pow(*d, prime - 2)) }).collect()
        }

        /// The slots of a polynomial given by its points modulo the first prime, where its coefficients are small.
        fn slots_of_points(mut points: Vec<u64>) -> Vec<u64> {
            let q = Modulus::new(PRIMES[0]).unwrap();
            fhe_math::ntt::NttOperator::new(&q, DEGREE).unwrap().backward(&mut points);
            let centred = |c: u64| if c > PRIMES[0] / 2 { c as i64 - PRIMES[0] as i64 } else { c as i64 };
            slots_of_coefficients(points.into_iter().map(|c| plain::from_signed(centred(c))).collect())
        }

        fn right(guess: &[u64], secret: &[u64]) -> usize {
            guess.iter().zip(secret).filter(|(guess, secret)| guess == secret).count()
        }

        /// The noise of a ciphertext, as the key holder measures it: modulo the first prime.
        fn noise(key: &SlotKey, [c0, c1]: [&Residues<Points>; 2], message: &[u64]) -> Vec<u64> {
            let mut phase = c1.clone();
            phase.mul_prepared(&key.prepared);
            phase.add(c0);
            phase.sub(&scaled_up(coefficients_of_slots(message)).into_points());
            phase.limb(0).to_vec()
        }

        #[test]
        fn masks_and_noise_give_multipliers_away_unless_sanitised() {
            let mut rng = StdRng::seed_from_u64(6);
            let key = SlotKey::generate(&mut rng);
            let sanitizer = Sanitizer::new(key.public_key(&mut rng));
            let secret = plain::uniform_vec(DEGREE, &mut rng);
            let fresh = key.seal(&numbers(), &mut rng).expand().unwrap();
            let product = fresh.times(&Factor::new(&secret));
            let message: Vec<u64> = numbers().iter().zip(&secret).map(|(x, r)| plain::mul(*x, *r)).collect();

            // Without: c1' / c1 is the multiplier, in every slot.
            let quotient =
                pointwise_quotient(product.components()[1].limb(0), fresh.components()[1].limb(0), PRIMES[0]);
            assert_eq!(right(&slots_of_points(quotient), &secret), DEGREE, "the mask gives all away");

            // Without: e' / e is, but for the rounding of q m / t, which the key holder can compute.
            let (before, after) =
                (noise(&key, fresh.components(), &numbers()), noise(&key, product.components(), &message));
            let rounding = rounding_of_product(&numbers(), &secret, &message);
            let q = Modulus::new(PRIMES[0]).unwrap();
            let after: Vec<u64> = after.iter().zip(&rounding).map(|(e, r)| q.sub(*e, *r)).collect();
            let quotient = pointwise_quotient(&after, &before, PRIMES[0]);
            assert_eq!(right(&slots_of_points(quotient), &secret), DEGREE, "the noise gives all away");

            // With: the mask that arrives, scaled back up, is no multiple of the mask that P2 knows.
            let outbound = sanitizer.sanitize(&product, &[], &mut rng).unwrap();
            assert_eq!(*key.open(Inbound::parse(outbound.as_bytes()).unwrap()), message, "it is the same message");
            let [c0, c1] = Inbound::parse(outbound.as_bytes()).unwrap().into_components();
            let upscale = |mut component: Residues<Points>| {
                component.scale(PRIMES[2] as i64);
                component.scale(PRIMES[3] as i64);
                component
            };
            let (c0, c1) = (upscale(c0), upscale(c1));
            let quotient = pointwise_quotient(c1.limb(0), fresh.components()[1].limb(0), PRIMES[0]);
            assert!(right(&slots_of_points(quotient), &secret) < 3, "the mask tells nothing");

            // With: neither does the noise.
            let mut phase = c1;
            phase.mul_prepared(&key.prepared);
            phase.add(&c0);
            let scaled = scaled_up(coefficients_of_slots(&message)).into_points();
            let after: Vec<u64> = phase.limb(0).iter().zip(scaled.limb(0)).map(|(p, m)| q.sub(*p, *m)).collect();
            let quotient = pointwise_quotient(&after, &before, PRIMES[0]);
            assert!(right(&slots_of_points(quotient), &secret) < 3, "the noise tells nothing");
        }

        /// `round(q x / t) r - round(q x r / t)` modulo the first prime: what is left beside `e r`.
        fn rounding_of_product(x: &[u64], r: &[u64], product: &[u64]) -> Vec<u64> {
            let points = |values: &[u64]| scaled_up(coefficients_of_slots(values)).into_points();
            let q = Modulus::new(PRIMES[0]).unwrap();
            let mut scaled = points(x).limb(0).to_vec();
            let r = coefficients_of_slots(r).into_iter().map(plain::centred).collect::<Vec<_>>();
            q.mul_vec(&mut scaled, Residues::from_small(&r).into_points().limb(0));
            scaled.iter().zip(points(product).limb(0)).map(|(a, b)| q.sub(*a, *b)).collect()
        }
    }
}
