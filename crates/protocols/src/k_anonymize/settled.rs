//! Whether a round moved no centre: the only bit that an early end takes.
//!
//! ```text
//!  P1: r uniform                    s = sum r (new - old)              `slot_sum`
//!  [s = 0], and the bit is opened                                      `few`, `open`
//! ```
//! `s` is zero if no centre moved, and if one did with probability `1/t`. Nobody sees `s`.

use veil_slots::{DEGREE, Factor, L1, L2, Slots, plain};

use crate::few::zero_test_few;
use crate::open::{Aggregate, Purpose, open};
use crate::slot_sum::slot_sum;
use crate::{ProtocolError, Session};

/// Whether two lists of vectors are the same.
pub(super) async fn settled(session: &Session, old: &[Slots<L1>], new: &[Slots<L1>]) -> Result<bool, ProtocolError> {
    let mut rng = session.randomness().fork();
    let mut combined: Option<Slots<L2>> = None;
    for (old, new) in old.iter().zip(new) {
        let mut moved = new.clone();
        moved.sub(old);
        let moved = moved.times(&Factor::new(&plain::uniform_vec(DEGREE, &mut rng)));
        match &mut combined {
            Some(combined) => combined.add(&moved),
            None => combined = Some(moved),
        }
    }
    let sums = slot_sum(session, combined.into_iter().collect()).await?;
    let bits = zero_test_few(session, 1, sums.iter().map(Slots::raised).collect()).await?;
    let aggregate = |slots| Aggregate { slots, count: 1, purpose: Purpose::StopBit };
    let opened = open(session, bits.into_iter().map(aggregate).collect()).await?;
    match opened.concat().as_slice() {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(ProtocolError::Malformed("P2 opened something else than a bit".to_owned())),
    }
}
