//! The noise of a hundred thousand rows, through SQL and decrypted, against the exact probabilities.
//!
//! False alarms have probability 10^-6 a test. Randomness is fixed, for the engine and for P2, so that they do not come and go;
//! only the order in which batches reach P2 is not.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::LazyLock;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_privacy::statistics::{ChiSquare, chi_square, chi_square_two_samples, counts, worst_log_ratio_lower_bound};
use veil_privacy::{
    BinaryMechanism, DiscreteLaplace, Epsilon, ExponentialMechanism, GridLaplace, LaplaceMechanism, Losses,
    RandomizedResponse,
};

use super::world::World;

const ROWS: usize = 100_000;
const FALSE_ALARM: f64 = 1e-6;

/// Rows with even numbers have the low end, the others the high one.
const ENDS: [i64; 2] = [-3, 17];
const DIAMETER: u64 = 20;

/// Two inputs that no small modulus has in common, nor the grid's step of 4000 / 32.
const WIDE: [i64; 2] = [1000, 1007];
const WIDE_STEP: i64 = 125;

const LEAVES: [&str; 6] = ["Paris", "Lyon", "Rome", "Milan", "Oslo", "Bergen"];

const DECLARATION: &str = r#"
[table]
name = "many"
[column.id]
kind = "clear"
type = "Int64"
[column.narrow]
kind = "integer"
range = [-3, 17]
[column.open]
kind = "integer"
range = [-3, 17]
public_range = true
[column.wide]
kind = "integer"
range = [0, 4000]
[column.flag]
kind = "boolean"
[column.city]
kind = "category"
hierarchy = "city.csv"
"#;

/// The file, encrypted once for all tests, and the folder that holds it.
static MANY: LazyLock<(tempfile::TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("many.csv"), folder.path().join("many.veil.parquet"));
    let hierarchy = "Paris,France,*\nLyon,France,*\nRome,Italy,*\nMilan,Italy,*\nOslo,Norway,*\nBergen,Norway,*\n";
    std::fs::write(folder.path().join("city.csv"), hierarchy).unwrap();
    let rows = (0..ROWS).map(|id| {
        let (end, wide) = (ENDS[id % 2], WIDE[id % 2]);
        format!("{id},{end},{end},{wide},{},{}\n", id % 2 == 1, LEAVES[id % 6])
    });
    std::fs::write(&input, format!("id,narrow,open,wide,flag,city\n{}", rows.collect::<String>())).unwrap();
    let declaration = veil_owner::Declaration::parse(DECLARATION, &folder.path().join("many.toml")).unwrap();
    let owner = veil_keys::OwnerKeys::generate(&mut StdRng::seed_from_u64(KEYS));
    let to = veil_owner::Output { path: output.clone(), force: true };
    let mut rng = StdRng::seed_from_u64(1);
    veil_owner::encrypt_file(&input, &declaration, &owner, &to, &mut rng, &veil_owner::unwatched).unwrap();
    (folder, output)
});

/// The seed of the keys.
const KEYS: u64 = 30;

/// Decrypted numbers of a call, in the order of the rows.
async fn numbers(call: &str, seed: u64) -> Vec<i64> {
    let world = World::repeatable(KEYS).await;
    world.create("many", &MANY.1).await;
    world.run(&format!("SET veil.seed = {seed}")).await.unwrap();
    let batch = world.reveal(&format!("SELECT {call} AS x FROM many ORDER BY id")).await.unwrap();
    assert_eq!(batch.num_rows(), ROWS);
    if let DataType::Utf8 = batch.column(0).data_type() {
        let leaf = |text: Option<&str>| LEAVES.iter().position(|leaf| Some(*leaf) == text).unwrap() as i64;
        return batch.column(0).as_string::<i32>().iter().map(leaf).collect();
    }
    let numbers = cast(batch.column(0), &DataType::Int64).unwrap();
    numbers.as_primitive::<Int64Type>().iter().map(Option::unwrap).collect()
}

/// Every which-th number from a first one on.
fn every(numbers: &[i64], which: usize, first: usize) -> impl Iterator<Item = i64> {
    numbers.iter().copied().skip(first).step_by(which)
}

/// Noise within plus or minus reach one a cell, the rest in a last one.
fn distance(noise: impl Iterator<Item = i64>, reach: i64, probability: impl Fn(i64) -> f64) -> ChiSquare {
    let cells = 2 * reach as usize + 1;
    let mut observed = vec![0; cells + 1];
    for noise in noise {
        observed[usize::try_from(noise + reach).map_or(cells, |cell| cell.min(cells))] += 1;
    }
    let total = observed.iter().sum::<u64>() as f64;
    let mut expected: Vec<f64> = (-reach..=reach).map(|noise| probability(noise) * total).collect();
    expected.push((total - expected.iter().sum::<f64>()).max(0.0));
    chi_square(&observed, &expected)
}

fn check_noise(name: &str, noise: impl Iterator<Item = i64>, probability: impl Fn(i64) -> f64) {
    let distance = distance(noise, 150, probability);
    assert!(distance.degrees > 10 && distance.is_plausible(FALSE_ALARM), "{name}: {distance:?}");
}

/// Outputs on two inputs: what an attacker proves of epsilon.
fn proven(one: impl Iterator<Item = i64>, other: impl Iterator<Item = i64>) -> f64 {
    worst_log_ratio_lower_bound(&counts(one), &counts(other), 1.0 - FALSE_ALARM)
}

fn epsilon(text: &str) -> Epsilon {
    text.parse().unwrap()
}

fn check_proven(name: &str, proven: f64, epsilon: f64) {
    assert!(proven <= epsilon, "{name}: {proven} is proven, more than {epsilon}");
    assert!(proven >= 0.5 * epsilon, "{name}: only {proven} of {epsilon} is proven, which says nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn laplace_noise_with_public_bounds() {
    let mechanism = LaplaceMechanism::new(DIAMETER, epsilon("1")).unwrap();
    for (function, seed) in [("dp_laplace", 1), ("dp_geometric", 2)] {
        let outputs = numbers(&format!("{function}(open, 1)"), seed).await;
        let noise = outputs.iter().enumerate().map(|(id, output)| output - ENDS[id % 2]);
        check_noise(function, noise, |noise| mechanism.probability(noise));
        check_proven(function, proven(every(&outputs, 2, 0), every(&outputs, 2, 1)), 1.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn laplace_noise_with_encrypted_bounds() {
    let mechanism = GridLaplace::new(epsilon("1"));
    for (function, seed) in [("dp_laplace", 3), ("dp_geometric", 4)] {
        let outputs = numbers(&format!("{function}(narrow, 1)"), seed).await;
        let noise = outputs.iter().enumerate().map(|(id, output)| output - ENDS[id % 2]);
        check_noise(function, noise, |noise| mechanism.probability(DIAMETER, noise));
        check_proven(function, proven(every(&outputs, 2, 0), every(&outputs, 2, 1)), 1.0);
    }
}

/// Noise of the grid alone would show a value modulo its step.
#[tokio::test(flavor = "multi_thread")]
async fn no_modulus_shows_the_input() {
    let outputs = numbers("dp_laplace(wide, 1)", 5).await;
    for modulus in (2..=16).chain([WIDE_STEP]) {
        let residues = |first: usize| {
            let mut residues = vec![0u64; modulus as usize];
            every(&outputs, 2, first).for_each(|output| residues[output.rem_euclid(modulus) as usize] += 1);
            residues
        };
        let distance = chi_square_two_samples(&residues(0), &residues(1));
        // Together the moduli raise one false alarm in a million.
        assert!(distance.is_plausible(FALSE_ALARM / 16.0), "modulo {modulus}: {distance:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn flips() {
    let expected = BinaryMechanism::new(epsilon("1.5")).flip_probability();
    for (function, seed) in [("dp_binary", 6), ("dp_randomized_response", 7)] {
        let outputs = numbers(&format!("{function}(flag, 1.5)"), seed).await;
        for truth in 0..2 {
            let total = (ROWS / 2) as f64;
            let flipped = every(&outputs, 2, truth).filter(|output| *output != truth as i64).count() as u64;
            let observed = [flipped, (ROWS / 2) as u64 - flipped];
            let distance = chi_square(&observed, &[expected * total, (1.0 - expected) * total]);
            assert!(distance.is_plausible(FALSE_ALARM), "{function}: {distance:?}");
        }
        check_proven(function, proven(every(&outputs, 2, 0), every(&outputs, 2, 1)), 1.5);
    }
}

/// Answers for every truth against their probabilities, and what any two truths prove.
async fn check_categories(call: &str, seed: u64, limit: f64, probability: impl Fn(usize, usize) -> f64) {
    let outputs = numbers(call, seed).await;
    for truth in 0..6 {
        let answers: BTreeMap<i64, u64> = counts(every(&outputs, 6, truth));
        let observed: Vec<u64> = (0..6).map(|answer| answers.get(&answer).copied().unwrap_or(0)).collect();
        let total = observed.iter().sum::<u64>() as f64;
        let expected: Vec<f64> = (0..6).map(|answer| probability(truth, answer) * total).collect();
        let distance = chi_square(&observed, &expected);
        assert!(distance.degrees == 5 && distance.is_plausible(FALSE_ALARM), "{call} of {truth}: {distance:?}");
    }
    for (one, other) in (0..6).flat_map(|one| (0..one).map(move |other| (one, other))) {
        let proven = proven(every(&outputs, 6, one), every(&outputs, 6, other));
        assert!(proven <= limit, "{call}: {proven} is proven of {one} and {other}, more than {limit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn categories_of_the_exponential_mechanism() {
    let codes: Vec<Vec<i64>> = (0..6).map(|leaf| vec![leaf, 10 + leaf / 2, 20]).collect();
    let utilities = [
        ("hierarchy", Losses::hierarchy(&codes).unwrap()),
        ("order", Losses::order(6).unwrap()),
        ("equality", Losses::equality(6).unwrap()),
    ];
    for (seed, (utility, losses)) in utilities.into_iter().enumerate() {
        let mechanism = ExponentialMechanism::new(losses, epsilon("2"));
        let call = format!("dp_exponential(city, 2, '{utility}')");
        check_categories(&call, 8 + seed as u64, 2.0, |truth, answer| mechanism.probability(truth, answer)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn categories_of_randomized_response() {
    let mechanism = RandomizedResponse::new(6, epsilon("2")).unwrap();
    let probability = |truth, answer| mechanism.probability(truth, answer);
    check_categories("dp_randomized_response(city, 2)", 11, 2.0, probability).await;
}

/// The same tests of as many samples convict noise of half the scale and noise on a coarse lattice.
#[test]
fn wrong_samplers_are_caught() {
    let mut rng = StdRng::seed_from_u64(12);
    let mut sampled = |noise: &DiscreteLaplace, step: i64| -> Vec<i64> {
        (0..ROWS).map(|id| ENDS[id % 2] + step * noise.sample(&mut rng)).collect()
    };
    let right = LaplaceMechanism::new(DIAMETER, epsilon("1")).unwrap();
    let half = sampled(&DiscreteLaplace::new(DIAMETER, 2).unwrap(), 1);
    let bound = proven(every(&half, 2, 0), every(&half, 2, 1));
    assert!(bound > 1.5, "{bound}");
    let noise = half.iter().enumerate().map(|(id, output)| output - ENDS[id % 2]);
    assert!(!distance(noise, 150, |noise| right.probability(noise)).is_plausible(FALSE_ALARM));
    // Steps of three: the ends of the range have different residues.
    let coarse = sampled(&DiscreteLaplace::new(DIAMETER, 3).unwrap(), 3);
    let bound = proven(every(&coarse, 2, 0), every(&coarse, 2, 1));
    assert!(bound > 3.0, "{bound}");
    let residues = |first: usize| {
        let mut residues = vec![0u64; 3];
        every(&coarse, 2, first).for_each(|output| residues[output.rem_euclid(3) as usize] += 1);
        residues
    };
    assert!(!chi_square_two_samples(&residues(0), &residues(1)).is_plausible(FALSE_ALARM));
}
