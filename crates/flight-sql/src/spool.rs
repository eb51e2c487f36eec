//! Results on disk: a run writes them once, and any number of downloads follow it, each at its own pace and from any row.
//!
//! The file is an Arrow IPC stream without a name in its folder, so that nothing is left of it once nobody has it open, however the
//! process ends. Memory holds a batch for each download; what has been written is announced by its number of batches.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use futures::{StreamExt, stream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::delivery::Log;
use crate::error::refuse;
use crate::{AnswerError, Kind, Rows, Run};

/// Where spools are, and how large one may be.
#[derive(Clone, Debug)]
pub(crate) struct SpoolPlace {
    pub(crate) folder: PathBuf,
    pub(crate) most_bytes: u64,
}

/// A run, and what it has written.
pub(crate) struct Spool {
    file: Arc<File>,
    progress: watch::Receiver<Progress>,
    task: AbortHandle,
}

/// How far a run is.
#[derive(Default)]
struct Progress {
    schema: Option<SchemaRef>,
    batches: u64,
    end: Option<Result<(), AnswerError>>,
}

impl Spool {
    /// Runs in the background. `held` is dropped when the run ends.
    pub(crate) fn start(
        run: Run,
        place: SpoolPlace,
        log: Log,
        held: impl Send + 'static,
    ) -> Result<Arc<Self>, AnswerError> {
        let file = tempfile::tempfile_in(&place.folder).map(Arc::new).map_err(|error| broken(&place, &error))?;
        let (announce, progress) = watch::channel(Progress::default());
        let written = file.clone();
        let task = tokio::spawn(async move {
            let end = write(run, written, &place, &announce, log).await;
            announce.send_modify(|progress| progress.end = Some(end));
            drop(held);
        });
        Ok(Arc::new(Self { file, progress, task: task.abort_handle() }))
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.task.is_finished()
    }

    /// Ends the run, and with it the downloads that wait for more of it.
    pub(crate) fn stop(&self) {
        self.task.abort();
    }

    /// The rows from this one on, as far as they are and then as they come.
    pub(crate) async fn read(self: Arc<Self>, from: u64) -> Result<Rows, AnswerError> {
        let mut progress = self.progress.clone();
        let schema = loop {
            let (schema, end) = {
                let progress = progress.borrow_and_update();
                (progress.schema.clone(), progress.end.clone())
            };
            match (schema, end) {
                (Some(schema), _) => break schema,
                (None, Some(Err(error))) => return Err(error),
                (None, _) => progress.changed().await.map_err(|_| stopped())?,
            }
        };
        let reader = Follower { reader: None, batches: 0, skip: from, from, progress, spool: self };
        let batches =
            stream::try_unfold(reader, |mut reader| async { Ok(reader.next().await?.map(|batch| (batch, reader))) });
        Ok(Rows { schema, batches: batches.boxed() })
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Writes a run to its end.
async fn write(
    run: Run,
    file: Arc<File>,
    place: &SpoolPlace,
    announce: &watch::Sender<Progress>,
    mut log: Log,
) -> Result<(), AnswerError> {
    let outcome = write_logged(run, file, place, announce, &mut log).await;
    log.end(outcome.as_ref().err());
    outcome
}

async fn write_logged(
    run: Run,
    file: Arc<File>,
    place: &SpoolPlace,
    announce: &watch::Sender<Progress>,
    log: &mut Log,
) -> Result<(), AnswerError> {
    let Rows { schema, mut batches } = run.start().await?;
    let writer = StreamWriter::try_new_buffered(file.clone(), &schema).and_then(flushed);
    let mut writer = writer.map_err(|error| broken(place, &error))?;
    announce.send_modify(|progress| progress.schema = Some(schema));
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        if batch.num_rows() == 0 {
            continue;
        }
        log.note(&batch);
        let work = move || writer.write(&batch).and_then(|()| flushed(writer));
        let written = tokio::task::spawn_blocking(work).await;
        let written = written.map_err(|error| match error.is_cancelled() {
            true => AnswerError::new(Kind::Unavailable, "the server is stopping; ask again when it is back"),
            false => AnswerError::new(Kind::Internal, format!("the spool broke off: {error}")),
        })?;
        writer = written.map_err(|error| broken(place, &error))?;
        if file.metadata().map_err(|error| broken(place, &error))?.len() > place.most_bytes {
            let sentence =
                format!("the result is larger than the {} bytes that one may spool; ask for less", place.most_bytes);
            return refuse(Kind::Exhausted, sentence);
        }
        announce.send_modify(|progress| progress.batches += 1);
    }
    Ok(())
}

type Writer = StreamWriter<io::BufWriter<Arc<File>>>;

/// Once all that was written can be read.
fn flushed(mut writer: Writer) -> Result<Writer, ArrowError> {
    writer.flush()?;
    Ok(writer)
}

fn broken(place: &SpoolPlace, error: &dyn std::error::Error) -> AnswerError {
    let sentence =
        format!("the server cannot spool results in {}: {error}; its operator must make room", place.folder.display());
    AnswerError::new(Kind::Internal, sentence)
}

fn stopped() -> AnswerError {
    AnswerError::new(Kind::Cancelled, "the statement was ended before all its rows were there; ask for it again")
}

/// One download.
struct Follower {
    reader: Option<StreamReader<Cursor>>,
    /// Batches that were read.
    batches: u64,
    /// Rows that are still to be left out.
    skip: u64,
    from: u64,
    progress: watch::Receiver<Progress>,
    spool: Arc<Spool>,
}

impl Follower {
    async fn next(&mut self) -> Result<Option<RecordBatch>, AnswerError> {
        loop {
            let (there, end) = {
                let progress = self.progress.borrow_and_update();
                (progress.batches, progress.end.clone())
            };
            if self.batches < there {
                let batch = self.read().await?;
                self.batches += 1;
                let rows = batch.num_rows();
                let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(rows);
                self.skip -= skipped as u64;
                if skipped < rows {
                    return Ok(Some(batch.slice(skipped, rows - skipped)));
                }
                continue;
            }
            match end {
                Some(Ok(())) if self.skip > 0 => {
                    let (from, rows) = (self.from, self.from - self.skip);
                    let sentence = format!("there is no row {from} to go on from: the result has {rows} rows");
                    return refuse(Kind::Invalid, sentence);
                }
                Some(end) => return end.map(|()| None),
                None => self.progress.changed().await.map_err(|_| stopped())?,
            }
        }
    }

    /// The next batch, which is complete in the file.
    async fn read(&mut self) -> Result<RecordBatch, AnswerError> {
        let (reader, file) = (self.reader.take(), self.spool.file.clone());
        let work = move || -> Result<_, ArrowError> {
            let mut reader = match reader {
                Some(reader) => reader,
                None => StreamReader::try_new(Cursor { file, at: 0 }, None)?,
            };
            let batch = reader.next().unwrap_or_else(|| Err(ArrowError::IpcError("it is too short".to_owned())))?;
            Ok((reader, batch))
        };
        let failed = |error: &dyn std::fmt::Display| {
            AnswerError::new(Kind::Internal, format!("the server cannot read what it has spooled: {error}"))
        };
        let read = tokio::task::spawn_blocking(work).await.map_err(|error| failed(&error))?;
        let (reader, batch) = read.map_err(|error| failed(&error))?;
        self.reader = Some(reader);
        Ok(batch)
    }
}

/// A place in a file that others read and write at theirs.
struct Cursor {
    file: Arc<File>,
    at: u64,
}

impl Read for Cursor {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        #[cfg(unix)]
        let read = std::os::unix::fs::FileExt::read_at(self.file.as_ref(), buffer, self.at)?;
        #[cfg(windows)]
        let read = std::os::windows::fs::FileExt::seek_read(self.file.as_ref(), buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
