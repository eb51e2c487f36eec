//! The order of a release: a header, parcels one after another, the manifest, and nothing more.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, SchemaRef};
use rayon::prelude::*;
use veil_keys::RecipientKey;
use veil_release::{
    Digest, HEADER_NUMBER, Header, OwnerPublic, Party, ReleaseId, SEAL_INFO, SignedManifest, associated,
};

use crate::RecipientError;
use crate::columns::Columns;
use crate::papers::Came;
use crate::parcel::{self, Opened, Sealed};
use crate::sealed_file::SealedWriter;
use crate::sealed_table::{SealedPart, SealedRow, release_of, rows_of};

/// Opens one release. Feed it all sealed batches, in their order, and then finish it: only then is it known that all came, and
/// came from the servers.
#[derive(Debug)]
pub struct Opener {
    key: Arc<RecipientKey>,
    owner: Option<OwnerPublic>,
    release: Option<ReleaseId>,
    columns: Option<Arc<Columns>>,
    /// All columns, flags included.
    all: Option<SchemaRef>,
    next: u32,
    came: Came,
    given: u64,
    manifest: Option<SignedManifest>,
    kept: Option<SealedWriter>,
}

/// What a release was, once all of it has come.
#[derive(Clone, Debug)]
pub struct Received {
    /// The manifest, which agrees with what came.
    pub manifest: SignedManifest,
    /// The columns that the recipient got.
    pub schema: SchemaRef,
    /// Rows that the recipient got.
    pub rows: u64,
    /// Rows that came as noise, since they are suppressed.
    pub suppressed: u64,
    /// Whether the owner's key was given, and not taken from the manifest itself.
    pub owner_known: bool,
}

impl Opener {
    /// With the recipient's key.
    pub fn new(key: RecipientKey) -> Self {
        Self {
            key: Arc::new(key),
            owner: None,
            release: None,
            columns: None,
            all: None,
            next: HEADER_NUMBER,
            came: Came::default(),
            given: 0,
            manifest: None,
            kept: None,
        }
    }

    /// Checks signatures with the owner's key, and believes no other.
    pub fn with_owner(mut self, owner: OwnerPublic) -> Self {
        self.owner = Some(owner);
        self
    }

    /// Opens this release and no other; else it is the one that the sealed rows name.
    pub fn of_release(mut self, release: ReleaseId) -> Self {
        self.release = Some(release);
        self
    }

    /// Keeps all sealed batches in a file, as they come.
    pub fn keeping(mut self, kept: SealedWriter) -> Self {
        self.kept = Some(kept);
        self
    }

    /// The columns that the recipient gets, once they are known: after the header or, if some are clear, after the first parcel.
    pub fn schema(&self) -> Result<Option<SchemaRef>, RecipientError> {
        match (&self.columns, &self.all) {
            (Some(columns), Some(all)) => columns.kept(all).map(Some),
            _ => Ok(None),
        }
    }

    /// Opens sealed batches: one clear batch for every parcel in them.
    pub fn open(&mut self, batches: &[RecordBatch]) -> Result<Vec<RecordBatch>, RecipientError> {
        let parcels = batches.iter().map(|batch| self.take(batch)).collect::<Result<Vec<_>, _>>()?;
        let parcels: Vec<Sealed> = parcels.into_iter().flatten().collect();
        let opened = parcels.par_iter().map(parcel::open).collect::<Result<Vec<Opened>, _>>()?;
        let clear = opened.into_iter().map(|opened| self.put(opened)).collect();
        self.types_of_nothing()?;
        clear
    }

    /// Takes a sealed batch in its turn. The parcels in it can be opened in any order, and are put in theirs.
    pub(crate) fn take(&mut self, batch: &RecordBatch) -> Result<Vec<Sealed>, RecipientError> {
        if let Some(kept) = &mut self.kept {
            kept.write(std::slice::from_ref(batch))?;
        }
        if let Some(named) = release_of(batch)? {
            match *self.release.get_or_insert(named) == named {
                true => {}
                false => return Err(RecipientError::NoRelease("its rows are of another release".to_owned())),
            }
        }
        let mut parcels = Vec::new();
        for row in rows_of(batch)? {
            self.take_row(row, &mut parcels)?;
        }
        Ok(parcels)
    }

    /// Puts a parcel in its place, after all before it.
    pub(crate) fn put(&mut self, opened: Opened) -> Result<RecordBatch, RecipientError> {
        let Opened { number, batch, rows, all, digests } = opened;
        if *self.all.get_or_insert_with(|| all.clone()) != all {
            return Err(RecipientError::NoRelease(format!("parcel {number} has columns of other types")));
        }
        self.came.digests.insert(number, digests);
        self.came.rows += rows;
        self.given += batch.num_rows() as u64;
        Ok(batch)
    }

    fn take_row(&mut self, row: SealedRow, parcels: &mut Vec<Sealed>) -> Result<(), RecipientError> {
        if self.manifest.is_some() {
            return Err(RecipientError::NoRelease("there is something after its manifest".to_owned()));
        }
        let number = row.number;
        if number != self.next {
            return Err(RecipientError::OutOfOrder { found: number, expected: self.next });
        }
        let following = self.next.checked_add(1);
        self.next = following.ok_or_else(|| RecipientError::NoRelease("it has too many parcels".to_owned()))?;
        match row.part {
            SealedPart::Header(sealed) => self.header(&sealed)?,
            SealedPart::Parcel { from_p2, from_p1 } => {
                let Some((columns, release)) = self.columns.clone().zip(self.release) else {
                    return Err(RecipientError::NoRelease("it has no header".to_owned()));
                };
                parcels.push(Sealed { number, from_p2, from_p1, release, key: self.key.clone(), columns });
            }
            SealedPart::Manifest(json) => self.manifest = Some(SignedManifest::parse(json.as_bytes())?),
        }
        Ok(())
    }

    fn header(&mut self, sealed: &[u8]) -> Result<(), RecipientError> {
        let Some(release) = self.release else {
            return Err(RecipientError::NoRelease("nothing says which release it is".to_owned()));
        };
        let other = |_| RecipientError::OtherKey(self.key.name().to_owned());
        let bound = associated(release, Party::P2, HEADER_NUMBER);
        let header = Header::parse(&self.key.open(SEAL_INFO, &bound, sealed).map_err(other)?)?;
        if header.release != release {
            return Err(RecipientError::NoRelease("its header is of another release".to_owned()));
        }
        if header.recipient != self.key.name() {
            return Err(RecipientError::OtherKey(self.key.name().to_owned()));
        }
        self.came.header = Some(Digest::of(sealed));
        let columns = Columns::new(header)?;
        self.all = columns.all(|_| None);
        self.columns = Some(Arc::new(columns));
        Ok(())
    }

    /// A release without rows tells the types of its clear columns in its manifest.
    fn types_of_nothing(&mut self) -> Result<(), RecipientError> {
        if let (None, Some(columns), Some(signed)) = (&self.all, &self.columns, &self.manifest) {
            let kind = |place: usize| signed.manifest.columns.get(place)?.kind.parse::<DataType>().ok();
            let unknown = || RecipientError::OtherManifest("list of types".to_owned());
            self.all = Some(columns.all(kind).ok_or_else(unknown)?);
        }
        Ok(())
    }

    /// Whether all came, and came from the servers.
    pub fn finish(mut self) -> Result<Received, RecipientError> {
        self.types_of_nothing()?;
        let schema = self.schema()?;
        let (Some(columns), Some(release)) = (&self.columns, self.release) else {
            return Err(RecipientError::NoRelease("it has no header".to_owned()));
        };
        let (Some(manifest), Some(schema)) = (self.manifest, schema) else {
            return Err(RecipientError::NoManifest { parcels: self.came.digests.len() as u32 });
        };
        self.came.compare(&manifest, release, self.key.name(), columns, self.owner.as_ref())?;
        self.kept.map_or(Ok(()), SealedWriter::finish)?;
        let suppressed = self.came.rows - self.given;
        Ok(Received { manifest, schema, rows: self.given, suppressed, owner_known: self.owner.is_some() })
    }
}
