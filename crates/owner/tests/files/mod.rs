//! A folder of files with a key set, for the tests.

#![allow(dead_code, reason = "each test binary uses a part")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::ipc::reader::FileReader;
use arrow::ipc::writer::FileWriter;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_cells::{CellArray, CellType, SideTables};
use veil_keys::{KeyFile, OwnerKeys, decrypt_column, os_rng};
use veil_owner::{Declaration, DecryptSummary, EncryptSummary, Inspection, Output, OwnerError, unwatched};

pub(crate) struct Folder {
    folder: tempfile::TempDir,
    keys: OwnerKeys,
}

impl Folder {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let keys = OwnerKeys::generate(&mut os_rng());
        Self::with_keys(folder, keys, files)
    }

    fn with_keys(folder: tempfile::TempDir, keys: OwnerKeys, files: &[(&str, &str)]) -> Self {
        let folder = Self { folder, keys };
        files.iter().for_each(|(name, text)| folder.write(name, text));
        folder
    }

    /// With the same keys in every run.
    pub(crate) fn repeatable(files: &[(&str, &str)]) -> Self {
        Self::with_keys(tempfile::tempdir().unwrap(), OwnerKeys::generate(&mut StdRng::seed_from_u64(11)), files)
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.at(name), text).unwrap();
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(crate) fn keys(&self) -> OwnerKeys {
        // Through the file, as an owner would.
        let path = self.folder.path().join("owner.keys");
        self.keys.save(&path, true).unwrap();
        let keys = OwnerKeys::load(&path).unwrap();
        fs::remove_file(path).unwrap();
        keys
    }

    pub(crate) fn output(&self, name: &str) -> Output {
        Output { path: self.at(name), force: false }
    }

    pub(crate) fn encrypt(&self, input: &str, declaration: &str, output: &str) -> Result<EncryptSummary, OwnerError> {
        let declaration = Declaration::load(&self.at(declaration))?;
        let output = self.output(output);
        veil_owner::encrypt_file(&self.at(input), &declaration, &self.keys(), &output, &mut os_rng(), &unwatched)
    }

    /// The same bytes in every run.
    pub(crate) fn encrypt_repeatably(
        &self,
        input: &str,
        declaration: &str,
        output: &str,
    ) -> Result<EncryptSummary, OwnerError> {
        let declaration = Declaration::load(&self.at(declaration))?;
        let mut rng = StdRng::seed_from_u64(12);
        veil_owner::encrypt_file(
            &self.at(input),
            &declaration,
            &self.keys(),
            &self.output(output),
            &mut rng,
            &unwatched,
        )
    }

    pub(crate) fn decrypt(&self, input: &str, output: &str) -> Result<DecryptSummary, OwnerError> {
        veil_owner::decrypt_file(&self.at(input), &self.keys(), &self.output(output), &unwatched)
    }

    pub(crate) fn inspect(&self, input: &str) -> Inspection {
        veil_owner::inspect_file(&self.at(input), &unwatched).unwrap()
    }

    pub(crate) fn write_arrow(&self, name: &str, batch: &RecordBatch) {
        let mut writer = FileWriter::try_new(File::create(self.at(name)).unwrap(), &batch.schema()).unwrap();
        writer.write(batch).unwrap();
        writer.finish().unwrap();
    }

    pub(crate) fn write_parquet(&self, name: &str, batch: &RecordBatch) {
        // The compression that most writers use.
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let file = File::create(self.at(name)).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(batch).unwrap();
        writer.close().unwrap();
    }

    /// All rows of a file, read by Arrow's and Parquet's own readers.
    pub(crate) fn read(&self, name: &str) -> RecordBatch {
        let file = File::open(self.at(name)).unwrap();
        let (schema, batches): (_, Vec<RecordBatch>) = if name.ends_with(".parquet") {
            let builder = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
            (builder.schema().clone(), builder.build().unwrap().map(Result::unwrap).collect())
        } else {
            let reader = FileReader::try_new(file, None).unwrap();
            (reader.schema(), reader.map(Result::unwrap).collect())
        };
        concat_batches(&schema, &batches).unwrap()
    }

    /// The texts of an encrypted dictionary.
    pub(crate) fn decrypt_side_table(&self, name: &str, table: &str) -> Vec<String> {
        let mut file = File::open(self.at(name)).unwrap();
        let side = if name.ends_with(".parquet") {
            SideTables::read_parquet(&mut file).unwrap()
        } else {
            let reader = FileReader::try_new(file, None).unwrap();
            SideTables::from_ipc_metadata(&reader.custom_metadata()[SideTables::IPC_METADATA_KEY]).unwrap()
        };
        let table = side.get(table).unwrap();
        let cell_type = CellType::of_field(table.schema().field(0)).unwrap().unwrap();
        let cells = CellArray::try_new(table.column(0)).unwrap();
        let messages = decrypt_column(self.keys.cell(), self.keys.key_id(), &cell_type, cells).unwrap();
        let text = |lanes: &[i64]| {
            let bytes: Vec<u8> = lanes.iter().flat_map(|lane| lane.to_le_bytes()[..6].to_vec()).collect();
            String::from_utf8(bytes.into_iter().filter(|byte| *byte != 0xff).collect()).unwrap()
        };
        messages.messages.chunks(messages.lanes).map(text).collect()
    }
}

pub(crate) fn assert_same_file(expected: &Path, found: &Path) {
    let (expected, found) = (fs::read_to_string(expected).unwrap(), fs::read_to_string(found).unwrap());
    if expected != found {
        let difference = expected.lines().zip(found.lines()).enumerate().find(|(_, (one, other))| one != other);
        panic!("the files differ, first in {difference:?}; {} and {} bytes", expected.len(), found.len());
    }
}
