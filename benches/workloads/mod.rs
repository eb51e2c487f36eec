//! What the benchmarks measure, once for both of them. Everything here runs on one core.

#![allow(dead_code, missing_docs, reason = "each benchmark uses a part")]

use rand::SeedableRng;
use rand::rngs::StdRng;
use tfhe::core_crypto::prelude::*;
use veil_keys::{OwnerKeys, decrypt_column, encrypt_column};
use veilfusion::cells::{CellArray, CellType, Kind, POLYNOMIAL_SIZE, Width, add_constant};

/// Values of one measurement.
pub(crate) const VALUES: usize = 64 * POLYNOMIAL_SIZE;

/// A key set, a column and its ciphertext.
pub(crate) struct Cells {
    keys: OwnerKeys,
    cell_type: CellType,
    messages: Vec<i64>,
    encrypted: arrow::array::BinaryArray,
    rng: StdRng,
    core: rayon::ThreadPool,
}

impl Cells {
    /// A column of 24-bit integers, with an equality tag if asked.
    pub(crate) fn new(tag: bool) -> Self {
        let mut rng = StdRng::seed_from_u64(1);
        let keys = OwnerKeys::generate(&mut rng);
        let width = Width::of_range(0, 1_000_000).expect("one million fits 24 bits");
        let column = keys.column_id("bench", "value");
        let cell_type = CellType { tag, ..CellType::new(Kind::Integer, width, 1, keys.key_id(), column) };
        let lanes = cell_type.cell_lanes().total();
        let messages: Vec<i64> =
            (0..VALUES as i64).flat_map(|i| (0..lanes as i64).map(move |l| i * (l * 7919 + 1))).collect();
        let encrypted = encrypt_column(&keys, &cell_type, &messages, None, &mut rng).expect("encrypts");
        let core = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("one thread");
        Self { keys, cell_type, messages, encrypted, rng, core }
    }

    pub(crate) fn encrypt(&mut self) -> usize {
        let Self { keys, cell_type, messages, rng, core, .. } = self;
        core.install(|| encrypt_column(keys, cell_type, messages, None, rng).expect("encrypts").value_data().len())
    }

    pub(crate) fn decrypt(&self) -> i64 {
        let column = CellArray::Binary(&self.encrypted);
        self.core.install(|| {
            let decrypted = decrypt_column(self.keys.cell(), self.keys.key_id(), &self.cell_type, column);
            decrypted.expect("decrypts").messages[VALUES - 1]
        })
    }

    pub(crate) fn add_constant(&self) -> usize {
        add_constant(CellArray::Binary(&self.encrypted), 3).expect("adds").value_data().len()
    }

    /// Bytes of a value in Arrow, offsets included.
    pub(crate) fn arrow_bytes(&self) -> f64 {
        self.encrypted.value_data().len() as f64 / VALUES as f64 + 4.0
    }

    /// Bytes of a value in a Parquet file with zstd.
    pub(crate) fn parquet_bytes(&self) -> f64 {
        use arrow::array::{ArrayRef, RecordBatch};
        use parquet::basic::{Compression, Encoding, ZstdLevel};
        use parquet::file::properties::WriterProperties;
        let column = std::sync::Arc::new(self.encrypted.clone()) as ArrayRef;
        let batch = RecordBatch::try_from_iter([("value", column)]).expect("a batch");
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_dictionary_enabled(false)
            .set_encoding(Encoding::PLAIN)
            .build();
        let writer = parquet::arrow::ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties));
        let mut writer = writer.expect("a writer");
        writer.write(&batch).expect("writes");
        writer.into_inner().expect("closes").len() as f64 / VALUES as f64
    }
}

/// tfhe's own calls with the same parameters, one chunk at a time.
pub(crate) struct TfheChunk {
    key: GlweSecretKeyOwned<u64>,
    plaintexts: PlaintextListOwned<u64>,
    seeded: SeededGlweCiphertextOwned<u64>,
    ciphertext: GlweCiphertextOwned<u64>,
    seeder: Box<dyn Seeder>,
}

impl TfheChunk {
    pub(crate) fn new() -> Self {
        let mut seeder = new_seeder();
        let mut generator = SecretRandomGenerator::<DefaultRandomGenerator>::new(seeder.seed());
        let size = PolynomialSize(POLYNOMIAL_SIZE);
        let key = GlweSecretKey::generate_new_binary(GlweDimension(1), size, &mut generator);
        let modulus = CiphertextModulus::new_native();
        let plaintexts =
            PlaintextList::from_container((0..POLYNOMIAL_SIZE as u64).map(|i| i << 16).collect::<Vec<_>>());
        let seeded = SeededGlweCiphertext::new(0, GlweSize(2), size, seeder.seed().into(), modulus);
        let ciphertext = seeded.clone().decompress_into_glwe_ciphertext();
        Self { key, plaintexts, seeded, ciphertext, seeder }
    }

    pub(crate) fn encrypt(&mut self) -> u64 {
        let noise = DynamicDistribution::new_t_uniform(3);
        let Self { key, plaintexts, seeded, seeder, .. } = self;
        encrypt_seeded_glwe_ciphertext(key, seeded, plaintexts, noise, seeder.as_mut());
        seeded.as_ref()[0]
    }

    pub(crate) fn decrypt(&mut self) -> u64 {
        decrypt_glwe_ciphertext(&self.key, &self.ciphertext, &mut self.plaintexts);
        self.plaintexts.as_ref()[0]
    }
}
