//! Room for rows that are open before anybody reads them.
//!
//! All releases of a gateway share it. Each has a place of its own besides, for one batch: a release that is read goes on, however
//! many others hold the room and wait.

use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The room.
#[derive(Clone, Debug)]
pub(crate) struct ReadAhead {
    bytes: u32,
    free: Arc<Semaphore>,
}

impl ReadAhead {
    /// Room for so many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Self { bytes, free: Arc::new(Semaphore::new(bytes as usize)) }
    }

    /// Bytes that are taken.
    pub(crate) fn held(&self) -> usize {
        (self.bytes as usize).saturating_sub(self.free.available_permits())
    }

    /// For another release.
    pub(crate) fn place(&self) -> Place {
        Place { shared: self.clone(), own: Arc::new(Semaphore::new(1)) }
    }
}

/// What one release may use.
#[derive(Debug)]
pub(crate) struct Place {
    shared: ReadAhead,
    own: Arc<Semaphore>,
}

/// Taken until it is dropped.
#[derive(Debug)]
pub(crate) struct Room(#[expect(dead_code, reason = "it is held, and not looked at")] Option<OwnedSemaphorePermit>);

impl Place {
    /// Waits until there is room for a batch. One that is larger than all of it takes all.
    pub(crate) async fn room_for(&self, batch: &RecordBatch) -> Room {
        let bytes = u32::try_from(bytes_of(batch)).unwrap_or(u32::MAX).clamp(1, self.shared.bytes.max(1));
        let room = tokio::select! {
            biased;
            own = self.own.clone().acquire_owned() => own,
            shared = self.shared.free.clone().acquire_many_owned(bytes) => shared,
        };
        // Nobody closes either.
        Room(room.ok())
    }
}

/// Bytes of its values; columns that came together share their memory, which would else be counted for each.
fn bytes_of(batch: &RecordBatch) -> usize {
    let column = |column: &Arc<dyn Array>| column.to_data().get_slice_memory_size();
    let bytes = batch.columns().iter().map(column).sum::<Result<usize, _>>();
    bytes.unwrap_or_else(|_| batch.get_array_memory_size())
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array};
    use futures::FutureExt;

    use super::*;

    fn batch(rows: usize) -> RecordBatch {
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows as i64));
        RecordBatch::try_from_iter([("a", column)]).unwrap()
    }

    #[test]
    fn releases_share_the_room_and_each_has_a_place() {
        let ahead = ReadAhead::new(1000);
        let (one, two) = (ahead.place(), ahead.place());
        let own = one.room_for(&batch(1_000_000)).now_or_never().unwrap();
        assert_eq!(ahead.held(), 0);
        let shared = one.room_for(&batch(100)).now_or_never().unwrap();
        assert_eq!(ahead.held(), 800);
        assert!(one.room_for(&batch(26)).now_or_never().is_none());
        // The other release has its place, and then what is left.
        let _theirs = two.room_for(&batch(26)).now_or_never().unwrap();
        let _rest = two.room_for(&batch(25)).now_or_never().unwrap();
        assert_eq!(ahead.held(), 1000);
        drop(own);
        let _own = one.room_for(&batch(26)).now_or_never().unwrap();
        drop(shared);
        assert_eq!(ahead.held(), 200);
    }

    #[test]
    fn without_room_there_is_the_place() {
        let place = ReadAhead::new(0).place();
        let own = place.room_for(&batch(1)).now_or_never().unwrap();
        assert!(place.room_for(&batch(1)).now_or_never().is_none());
        drop(own);
        assert!(place.room_for(&batch(1)).now_or_never().is_some());
        // What is larger than the room waits for all of it.
        let ahead = ReadAhead::new(10);
        let place = ahead.place();
        let (_own, _all) =
            (place.room_for(&batch(9)).now_or_never(), place.room_for(&batch(9)).now_or_never().unwrap());
        assert_eq!(ahead.held(), 10);
    }
}
