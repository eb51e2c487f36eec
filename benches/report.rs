//! Prints the table of BENCHMARKS.md: medians of one run on one core, beside tfhe's own calls in the same run.
//!
//! `cargo bench -p veilfusion --bench report`, and with `--features baseline-fheint` also tfhe's high-level integers.

#![expect(clippy::print_stdout, reason = "printing is its purpose")]

mod told;
mod workloads;

use std::hint::black_box;
use std::time::Instant;

use told::Told;
use veilfusion::cells::POLYNOMIAL_SIZE;
use workloads::{Cells, TfheChunk, VALUES};

/// Runs of which the median counts.
const RUNS: usize = 11;

fn main() {
    let mut cells = Cells::new(false);
    let encrypt = nanoseconds(VALUES, || cells.encrypt());
    let decrypt = nanoseconds(VALUES, || cells.decrypt());
    let add = nanoseconds(VALUES, || cells.add_constant());
    let mut chunk = TfheChunk::new();
    let tfhe_encrypt = nanoseconds(POLYNOMIAL_SIZE, || chunk.encrypt());
    let tfhe_decrypt = nanoseconds(POLYNOMIAL_SIZE, || chunk.decrypt());

    println!("| one core, per value | ns | million/s | against tfhe |");
    println!("|---|---|---|---|");
    row("encrypt, one lane", encrypt, Some(tfhe_encrypt));
    row("decrypt, one lane", decrypt, Some(tfhe_decrypt));
    row("add a constant", add, None);
    for (name, value, against, other, goal) in [
        ("cells: encrypt", encrypt, "tfhe `encrypt_seeded_glwe_ciphertext`", tfhe_encrypt, "333 ns"),
        ("cells: decrypt", decrypt, "tfhe `decrypt_glwe_ciphertext`", tfhe_decrypt, "125 ns"),
        ("cells: add a constant", add, "encrypting it", encrypt, "50 ns"),
    ] {
        Told { name, value, unit: "ns a value", against, ratio: value / other, goal }.tell();
    }
    row("tfhe `encrypt_seeded_glwe_ciphertext`", tfhe_encrypt, None);
    row("tfhe `decrypt_glwe_ciphertext`", tfhe_decrypt, None);
    fheint();

    let tagged = Cells::new(true);
    println!();
    println!("| bytes a value | Arrow | Parquet, zstd |");
    println!("|---|---|---|");
    for (name, cells) in [("number", &cells), ("number with tag", &tagged)] {
        println!("| {name} | {:.1} | {:.1} |", cells.arrow_bytes(), cells.parquet_bytes());
    }
}

fn row(name: &str, nanoseconds: f64, baseline: Option<f64>) {
    let ratio = baseline.map_or(String::new(), |baseline| format!("{:.1} x as fast", baseline / nanoseconds));
    println!("| {name} | {nanoseconds:.1} | {:.1} | {ratio} |", 1e3 / nanoseconds);
}

/// The median time of one value.
fn nanoseconds<T>(values: usize, mut run: impl FnMut() -> T) -> f64 {
    black_box(run());
    let mut times: Vec<f64> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            black_box(run());
            start.elapsed().as_secs_f64() * 1e9 / values as f64
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[RUNS / 2]
}

#[cfg(feature = "baseline-fheint")]
fn fheint() {
    use tfhe::prelude::*;
    use tfhe::{ClientKey, CompressedFheInt32, ConfigBuilder, FheInt32};
    let key = ClientKey::generate(ConfigBuilder::default());
    let encrypt = nanoseconds(1, || FheInt32::encrypt(39, &key));
    let value = FheInt32::encrypt(39, &key);
    let decrypt = nanoseconds(1, || -> i32 { value.decrypt(&key) });
    row("tfhe `FheInt32`, encrypt", encrypt, None);
    row("tfhe `FheInt32`, decrypt", decrypt, None);

    let mut serialized = Vec::new();
    let _ = tfhe::safe_serialization::safe_serialize(&value, &mut serialized, 1 << 30);
    let mut compressed = Vec::new();
    let _ = tfhe::safe_serialization::safe_serialize(&CompressedFheInt32::encrypt(39, &key), &mut compressed, 1 << 30);
    println!();
    println!("`FheInt32`: {} bytes a value, {} compressed.", serialized.len(), compressed.len());
}

#[cfg(not(feature = "baseline-fheint"))]
fn fheint() {}
