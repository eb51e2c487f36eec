//! P2: answers batches. Stateless between them, so that a round can be repeated and P2 can be restarted or multiplied.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{AsArray, RecordBatch};
use rand::SeedableRng;
use rand::rngs::StdRng;
use veil_cells::KeyId;
use veil_slots::KeyHolder;

use crate::counters::Counters;
use crate::randomness::Randomness;
use crate::release::Desk;
use crate::{Context, Header, Limits, ProtocolError, catalog};

/// A batch with its header.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The header's bytes.
    pub header: Vec<u8>,
    /// The rows.
    pub batch: RecordBatch,
}

impl Frame {
    /// Puts a header above rows.
    pub fn new(header: &Header, batch: RecordBatch) -> Self {
        Self { header: header.seal(&batch), batch }
    }

    /// Checks the header and hands out both.
    pub fn open(self) -> Result<(Header, RecordBatch), ProtocolError> {
        Ok((Header::open(&self.header, &self.batch)?, self.batch))
    }

    /// About how many bytes it takes.
    pub fn bytes(&self) -> usize {
        self.header.len()
            + self
                .batch
                .columns()
                .iter()
                .map(|column| column.to_data().get_slice_memory_size().unwrap_or(0))
                .sum::<usize>()
    }

    /// How many ciphertexts of this size it has. Other lists are of other lengths.
    pub fn ciphertexts(&self, size: usize) -> usize {
        let lists = self.batch.columns().iter().filter_map(|column| column.as_binary_opt::<i64>());
        let lengths = lists.flat_map(|list| list.offsets().lengths().collect::<Vec<_>>());
        lengths.filter(|length| length.is_multiple_of(size)).map(|length| length / size).sum()
    }
}

/// P2's side of all protocols.
pub struct Responder {
    holder: Arc<dyn KeyHolder>,
    desk: Option<Arc<dyn Desk>>,
    limits: Limits,
    randomness: Randomness,
    counters: Counters,
}

impl std::fmt::Debug for Responder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Responder(key {})", self.holder.key_id())
    }
}

impl Responder {
    /// Answers with these keys.
    pub fn new(holder: Arc<dyn KeyHolder>, limits: Limits, randomness: Randomness) -> Self {
        Self { holder, desk: None, limits, randomness, counters: Counters::default() }
    }

    /// With a desk that holds questions and releases against the owner's rules. Without one, nothing is released and nothing opened.
    #[must_use]
    pub fn with_desk(self, desk: Arc<dyn Desk>) -> Self {
        Self { desk: Some(desk), ..self }
    }

    /// The key set it answers for.
    pub fn key_id(&self) -> KeyId {
        self.holder.key_id()
    }

    /// What it does at once.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// What it has done.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Answers one batch. Runs on the threads of `rayon`; call it where blocking is allowed.
    pub fn answer(&self, request: Frame) -> Result<Frame, ProtocolError> {
        let started = Instant::now();
        let bytes_in = request.bytes();
        if bytes_in > self.limits.bytes {
            return Err(ProtocolError::TooLarge { what: "a batch", found: bytes_in, limit: self.limits.bytes });
        }
        if request.batch.num_rows() > self.limits.rows {
            let found = request.batch.num_rows();
            return Err(ProtocolError::TooLarge { what: "a number of rows", found, limit: self.limits.rows });
        }
        let Frame { header: header_bytes, batch } = request;
        let header = Header::open(&header_bytes, &batch)?;
        let entry = catalog::find(&header.protocol).ok_or_else(|| {
            ProtocolError::Unsupported(format!(
                "P2 knows no protocol `{}`; run the same version of veil on both sides",
                header.protocol.escape_default()
            ))
        })?;
        if header.version != entry.version {
            return Err(ProtocolError::Mismatch {
                what: "the protocol version",
                expected: format!("{} {}", entry.name, entry.version),
                found: header.version.to_string(),
                advice: "run the same version of veil on both sides",
            });
        }
        if header.key_id != self.holder.key_id() {
            return Err(ProtocolError::Mismatch {
                what: "the key set",
                expected: self.holder.key_id().to_string(),
                found: header.key_id.to_string(),
                advice: "start P2 with the keys that the data was encrypted with",
            });
        }
        let rngs = (0..batch.num_rows()).map(|_| StdRng::from_seed(self.randomness.seed())).collect();
        let context = Context {
            desk: self.desk.as_deref(),
            session: header.session,
            header: &header_bytes,
            receipt: &header.receipt,
        };
        let ran = (entry.run)(&batch, self.holder.as_ref(), &context, &self.limits, rngs)?;
        for (purpose, count) in &ran.opened {
            // What an auditor reads: P1 sees numbers through protocols that say so here, and no others.
            tracing::info!(purpose = purpose.name(), count, session = %short(&header.session), "opened to P1");
            self.counters.record_opened(*purpose, *count);
        }
        let reply = Frame::new(&header.answered(), ran.batch);
        self.counters.record(entry.name, batch.num_rows(), bytes_in, reply.bytes(), started.elapsed());
        Ok(reply)
    }
}

/// Enough of a session's name to tell sessions apart in a log.
fn short(session: &[u8; 16]) -> String {
    session.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}
