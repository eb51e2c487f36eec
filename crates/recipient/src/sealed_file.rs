//! The sealed rows of a release as a file. Neither server has seen a clear value, so neither could sign one: what they signed are the sealed parts, and
//! who keeps these can prove later that a clear file is what was released.
//!
//! An Arrow IPC file, rows as they came: header, parcels, manifest.

use std::fmt;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::ipc::reader::FileReader;
use arrow::ipc::writer::FileWriter;
use veil_cells::caught;
use veil_release::{Digest, ParcelDigests, SignedManifest};

use crate::RecipientError;
use crate::sealed_table::{SealedPart, release_of, rows_of};

/// Writes sealed batches to a file.
pub struct SealedWriter {
    state: State,
}

enum State {
    /// The columns are not known yet.
    New(File),
    Begun(Box<FileWriter<BufWriter<File>>>),
    Broken,
}

impl fmt::Debug for SealedWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealedWriter")
    }
}

fn not_kept(error: impl ToString) -> RecipientError {
    RecipientError::NotKept(error.to_string())
}

impl SealedWriter {
    /// To an empty file.
    pub fn new(file: File) -> Self {
        Self { state: State::New(file) }
    }

    pub(crate) fn write(&mut self, batches: &[RecordBatch]) -> Result<(), RecipientError> {
        for batch in batches {
            let mut writer = match std::mem::replace(&mut self.state, State::Broken) {
                State::New(file) => {
                    let writer = FileWriter::try_new(BufWriter::with_capacity(1 << 20, file), batch.schema_ref());
                    Box::new(writer.map_err(not_kept)?)
                }
                State::Begun(writer) => writer,
                State::Broken => return Err(not_kept("writing them failed before")),
            };
            writer.write(batch).map_err(not_kept)?;
            self.state = State::Begun(writer);
        }
        Ok(())
    }

    /// Completes the file, and has it on the disk.
    pub(crate) fn finish(self) -> Result<(), RecipientError> {
        let State::Begun(writer) = self.state else { return Err(not_kept("nothing came")) };
        let mut file = writer.into_inner().map_err(not_kept)?;
        file.flush().map_err(not_kept)?;
        file.get_ref().sync_all().map_err(not_kept)
    }
}

/// Reads sealed batches from a file.
pub struct SealedReader {
    path: PathBuf,
    batches: FileReader<BufReader<File>>,
}

impl fmt::Debug for SealedReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealedReader({})", self.path.display())
    }
}

impl SealedReader {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self, RecipientError> {
        let read = || FileReader::try_new(BufReader::new(File::open(path)?), None);
        Ok(Self { path: path.to_owned(), batches: guarded(path, read)? })
    }
}

impl Iterator for SealedReader {
    type Item = Result<RecordBatch, RecipientError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batches = &mut self.batches;
        guarded(&self.path, || batches.next().transpose()).transpose()
    }
}

/// Readers panic on some damaged files.
fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T, ArrowError>) -> Result<T, RecipientError> {
    let wrong = |why: String| RecipientError::NoSealedFile { file: path.to_owned(), why };
    caught(read).map_err(wrong)?.map_err(|error| match error {
        ArrowError::IoError(_, source) => wrong(source.to_string()),
        error => wrong(error.to_string()),
    })
}

/// Whether sealed batches are all the parts that a manifest lists, and no others. It takes no key, and does not look at signatures.
pub fn check_seals(
    batches: impl Iterator<Item = Result<RecordBatch, RecipientError>>,
    signed: &SignedManifest,
) -> Result<(), RecipientError> {
    let (manifest, mut next) = (&signed.manifest, 0);
    let differs = |what: &str| Err(RecipientError::OtherManifest(what.to_owned()));
    for batch in batches {
        let batch = batch?;
        if release_of(&batch)?.is_some_and(|release| release != manifest.release) {
            return differs("release");
        }
        for row in rows_of(&batch)? {
            if row.number != next {
                return Err(RecipientError::OutOfOrder { found: row.number, expected: next });
            }
            next += 1;
            match row.part {
                SealedPart::Header(sealed) if Digest::of(&sealed) != manifest.header => return differs("header"),
                SealedPart::Parcel { from_p2, from_p1 } => {
                    let digests = ParcelDigests { p1: Digest::of(&from_p1), p2: Digest::of(&from_p2) };
                    if manifest.digests.get(&row.number) != Some(&digests) {
                        return differs(&format!("parcel {}", row.number));
                    }
                }
                // After the header come all parcels: none is left out for a manifest in its place.
                SealedPart::Manifest(_) if row.number != manifest.parcels.saturating_add(1) => {
                    return differs("number of parcels");
                }
                SealedPart::Manifest(json) if SignedManifest::parse(json.as_bytes())? != *signed => {
                    return differs("manifest");
                }
                SealedPart::Header(_) | SealedPart::Manifest(_) => {}
            }
        }
    }
    // The header, the parcels, and the manifest.
    match next == manifest.parcels.saturating_add(2) {
        true => Ok(()),
        false => differs("number of parcels"),
    }
}
