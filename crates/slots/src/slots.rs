//! Ciphertexts and what P1 may do with them.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::encoding::{Factor, Offset, scaled_up_constant};
use crate::ring::{Points, Residues};
use crate::{L0, L1, Level, Noise, Raise, Stays};

/// 8192 encrypted numbers at level `L`. Cloning is cheap: copies share memory until one is changed.
///
/// Two multiplications are possible, a third is not:
/// ```
/// # use veil_slots::{Factor, L0, L2, Slots};
/// fn twice(slots: &Slots<L0>, factor: &Factor) -> Slots<L2> {
///     slots.times(factor).times(factor)
/// }
/// ```
/// ```compile_fail,E0599
/// # use veil_slots::{Factor, L2, Slots};
/// fn a_third_time(slots: &Slots<L2>, factor: &Factor) {
///     slots.times(factor); // no method named `times` found
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Slots<L: Level> {
    /// `c0 + c1 s = (q/t) m + noise`.
    components: [Arc<Residues<Points>>; 2],
    noise: Noise,
    level: PhantomData<L>,
}

/// A reply of P2: its noise is independent of every other reply's.
#[derive(Debug)]
pub struct Fresh(Slots<L0>);

impl Fresh {
    pub(crate) fn new(components: [Residues<Points>; 2]) -> Self {
        Self(Slots::from_parts(components, Noise::fresh()))
    }
}

impl From<Fresh> for Slots<L0> {
    fn from(fresh: Fresh) -> Self {
        fresh.0
    }
}

impl std::ops::Deref for Fresh {
    type Target = Slots<L0>;

    fn deref(&self) -> &Slots<L0> {
        &self.0
    }
}

impl<L: Level> Slots<L> {
    pub(crate) fn from_parts(components: [Residues<Points>; 2], noise: Noise) -> Self {
        Self { components: components.map(Arc::new), noise, level: PhantomData }
    }

    /// Both components, for whoever holds a key.
    pub fn components(&self) -> [&Residues<Points>; 2] {
        let [c0, c1] = &self.components;
        [c0, c1]
    }

    /// The noise that its history can have left.
    pub fn noise(&self) -> Noise {
        self.noise
    }

    fn each(&mut self, noise: Noise, operation: impl Fn(&mut Residues<Points>, usize)) {
        for (index, component) in self.components.iter_mut().enumerate() {
            operation(Arc::make_mut(component), index);
        }
        self.noise = noise;
    }

    /// Adds slot by slot.
    pub fn add(&mut self, other: &Self) {
        self.each(self.noise.plus(other.noise), |component, index| component.add(&other.components[index]));
    }

    /// Subtracts slot by slot.
    pub fn sub(&mut self, other: &Self) {
        self.each(self.noise.plus(other.noise), |component, index| component.sub(&other.components[index]));
    }

    /// Multiplies every slot by a small number.
    pub fn scale(&mut self, factor: i32) {
        self.each(self.noise.scaled(factor.into()), |component, _| component.scale(factor.into()));
    }

    /// Adds a clear vector.
    pub fn add_clear(&mut self, offset: &Offset) {
        Arc::make_mut(&mut self.components[0]).add(&offset.0);
        self.noise = self.noise.plus_rounding();
    }

    /// Subtracts a clear vector.
    pub fn sub_clear(&mut self, offset: &Offset) {
        Arc::make_mut(&mut self.components[0]).sub(&offset.0);
        self.noise = self.noise.plus_rounding();
    }

    /// Adds a clear number to every slot.
    pub fn add_constant(&mut self, value: u64) {
        Arc::make_mut(&mut self.components[0]).add_constant(scaled_up_constant(value));
        self.noise = self.noise.plus_rounding();
    }
}

impl<L: Stays> Slots<L> {
    /// A clear vector as a ciphertext without noise or secrecy: a starting point for sums.
    pub fn clear(values: &[u64]) -> Self {
        let mut zero = Self::from_parts([Residues::zero(), Residues::zero()], Noise::fresh().scaled(0));
        zero.add_clear(&Offset::new(values));
        zero
    }
}

impl<L: Raise> Slots<L> {
    /// Multiplies by a clear vector, slot by slot.
    pub fn times(&self, factor: &Factor) -> Slots<L::Next> {
        let mut product = self.raised();
        product.each(self.noise.times_clear::<L>(), |component, _| component.mul(&factor.0));
        product
    }

    /// The same ciphertext, counted at the next level, so that it can be added there.
    pub fn raised(&self) -> Slots<L::Next> {
        Slots { components: self.components.clone(), noise: self.noise, level: PhantomData }
    }
}

impl Slots<L1> {
    /// `sum_i replies_i * factors_i`, for different replies of P2: their noises are independent and add up in squares. `None` if
    /// there is nothing to add.
    pub fn dot<'a>(terms: impl IntoIterator<Item = (&'a Fresh, &'a Factor)>) -> Option<Self> {
        let terms: Vec<(&Slots<L0>, &Factor)> = terms.into_iter().map(|(fresh, factor)| (&**fresh, factor)).collect();
        Self::dot_with(&terms, Noise::plus_independent)
    }

    /// The same for any vectors of level 0: their noises may depend on each other, so they add up.
    pub fn dot_any<'a>(terms: impl IntoIterator<Item = (&'a Slots<L0>, &'a Factor)>) -> Option<Self> {
        let terms: Vec<(&Slots<L0>, &Factor)> = terms.into_iter().collect();
        Self::dot_with(&terms, Noise::plus)
    }

    fn dot_with(terms: &[(&Slots<L0>, &Factor)], plus: impl Fn(Noise, Noise) -> Noise) -> Option<Self> {
        let noise = terms.iter().map(|(slots, _)| slots.noise.times_clear::<L0>()).reduce(plus)?;
        let component = |index: usize| {
            let terms: Vec<_> = terms.iter().map(|(slots, factor)| (slots.components()[index], &factor.0)).collect();
            Residues::dot(&terms)
        };
        Some(Self::from_parts([component(0), component(1)], noise))
    }
}
