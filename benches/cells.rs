//! Cells on one core: encryption, decryption and arithmetic, and tfhe's own calls for comparison.

mod workloads;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use veilfusion::cells::POLYNOMIAL_SIZE;
use workloads::{Cells, TfheChunk, VALUES};

fn cells(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cells");
    group.sample_size(10).throughput(Throughput::Elements(VALUES as u64));
    let mut cells = Cells::new(false);
    group.bench_function("encrypt, one lane", |bencher| bencher.iter(|| black_box(cells.encrypt())));
    group.bench_function("decrypt, one lane", |bencher| bencher.iter(|| black_box(cells.decrypt())));
    group.bench_function("add constant", |bencher| bencher.iter(|| black_box(cells.add_constant())));
    group.finish();
}

fn tfhe(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tfhe core_crypto");
    group.throughput(Throughput::Elements(POLYNOMIAL_SIZE as u64));
    let mut chunk = TfheChunk::new();
    group.bench_function("encrypt_seeded_glwe_ciphertext", |bencher| bencher.iter(|| black_box(chunk.encrypt())));
    group.bench_function("decrypt_glwe_ciphertext", |bencher| bencher.iter(|| black_box(chunk.decrypt())));
    group.finish();
}

criterion_group!(benches, cells, tfhe);
criterion_main!(benches);
