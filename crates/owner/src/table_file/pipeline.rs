//! Reading, transforming and writing at the same time, a few batches ahead of each other.

use std::sync::mpsc::sync_channel;
use std::thread;

use arrow::record_batch::RecordBatch;

use super::{Progress, TableReader, TableWriter, Watch, report};
use crate::OwnerError;

/// Batches that may wait between two stages.
const AHEAD: usize = 2;

/// Sends every batch of `reader` through `step`, which also learns how many rows came before, to `writer`, and completes the
/// file. Returns the number of rows.
pub(crate) fn transform(
    mut reader: TableReader,
    mut writer: TableWriter,
    mut step: impl FnMut(RecordBatch, usize) -> Result<RecordBatch, OwnerError>,
    watch: Watch<'_>,
) -> Result<u64, OwnerError> {
    thread::scope(|scope| {
        let (read, to_transform) = sync_channel(AHEAD);
        let (transformed, to_write) = sync_channel::<RecordBatch>(AHEAD);
        scope.spawn(move || {
            while let Some(batch) = reader.next() {
                // A closed channel means that a later stage failed and says why.
                if read.send((batch, reader.per_mille())).is_err() {
                    break;
                }
            }
        });
        let writing = scope.spawn(move || {
            for batch in to_write {
                writer.write(&batch)?;
            }
            Ok(writer)
        });
        let mut rows = 0;
        let transform_all = || {
            for (batch, per_mille) in to_transform {
                let batch: RecordBatch = batch?;
                let count = batch.num_rows();
                // Likewise: joining the writer will tell.
                if transformed.send(step(batch, rows)?).is_err() {
                    break;
                }
                rows += count;
                report(watch, Progress { rows: rows as u64, per_mille })?;
            }
            Ok::<_, OwnerError>(())
        };
        let outcome = transform_all();
        drop(transformed);
        let written: Result<TableWriter, OwnerError> =
            writing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        // An unfinished writer drops its temporary file.
        outcome?;
        written?.finish()?;
        Ok(rows as u64)
    })
}
