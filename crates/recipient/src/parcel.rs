//! Two sealed parts into one clear batch.
//!
//! P2's part has masked messages, P1's part the seed of the masks and what P1 sees. Rows that are suppressed hold noise: they are
//! emptied before anything is decoded, and left out after.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::{DataType, SchemaRef, UInt32Type};
use veil_cells::{CellError, Kind, caught};
use veil_keys::{DecryptedColumn, KeyError, RecipientKey, quotient};
use veil_owner::suppressed::without_suppressed;
use veil_protocols::release::masks::{Masks, Modulus};
use veil_release::{
    Digest, MaskedWords, PARCEL_ROWS, ParcelDigests, Party, ROW_KEY_LANES, ReleaseError, ReleaseId, RowKey, SEAL_INFO,
    SeenValues, WORD, associated, word_of,
};
use veil_slots::PLAIN_MODULUS;

use crate::RecipientError;
use crate::columns::Columns;

/// A parcel as it came, and all that it takes to open it.
pub(crate) struct Sealed {
    pub(crate) number: u32,
    pub(crate) from_p2: Buffer,
    pub(crate) from_p1: Buffer,
    pub(crate) release: ReleaseId,
    pub(crate) key: Arc<RecipientKey>,
    pub(crate) columns: Arc<Columns>,
}

/// A parcel that is open.
pub(crate) struct Opened {
    pub(crate) number: u32,
    /// What the recipient gets.
    pub(crate) batch: RecordBatch,
    /// Rows that came, suppressed ones included.
    pub(crate) rows: u64,
    /// The fields of all columns, flags included.
    pub(crate) all: SchemaRef,
    /// Of both parts as they came.
    pub(crate) digests: ParcelDigests,
}

/// Opens both parts and puts them together.
pub(crate) fn open(sealed: &Sealed) -> Result<Opened, RecipientError> {
    let Sealed { number, from_p2, from_p1, release, key, columns } = sealed;
    let (number, release) = (*number, *release);
    let unsealed = |party: Party, bytes: &[u8]| {
        let opened = key.open(SEAL_INFO, &associated(release, party, number), bytes);
        opened.map_err(|_| RecipientError::Corrupt { number, party })
    };
    let unreadable =
        |party: Party, why: &dyn ToString| RecipientError::Unreadable { number, party, why: why.to_string() };
    // Masked as they are, these need not be wiped, which would take as long as taking the masks off.
    let masked = std::mem::take(&mut *unsealed(Party::P2, from_p2)?);
    let values = MaskedWords::parse(&masked).map_err(|error| unreadable(Party::P2, &error))?;
    let seen = SeenValues::parse(&unsealed(Party::P1, from_p1)?);
    let seen = seen.map_err(|error| unreadable(Party::P1, &error))?;
    let rows = values.rows as usize;
    if rows > PARCEL_ROWS {
        return Err(unreadable(Party::P2, &format!("it has {rows} rows, and {PARCEL_ROWS} are the most")));
    }
    if seen.batch.num_rows() != rows {
        let why = format!("it has {} rows, and the part of P2 has {rows}", seen.batch.num_rows());
        return Err(unreadable(Party::P1, &why));
    }
    // Arrow's kernels panic on some values that nobody has.
    let decoded = caught(|| decode(columns, values, &seen, number));
    let (batch, all) = decoded.unwrap_or_else(|why| Err(unreadable(Party::P2, &format!("it is damaged: {why}"))))?;
    let digests = ParcelDigests { p1: Digest::of(from_p1), p2: Digest::of(from_p2) };
    Ok(Opened { number, batch, rows: rows as u64, all, digests })
}

/// The rows that the recipient gets, and the fields of all columns.
fn decode(
    columns: &Columns,
    values: MaskedWords<'_>,
    seen: &SeenValues,
    number: u32,
) -> Result<(RecordBatch, SchemaRef), RecipientError> {
    let rows = values.rows as usize;
    let at = |place: usize, why: &str| {
        let column = columns.names.get(place).cloned().unwrap_or_default();
        RecipientError::Column { number, column, source: CellError::Malformed(why.to_owned()).into() }
    };
    let words = values.columns.iter().map(|(_, words)| words.len()).sum();
    let mut masks = Masks::for_many(*seen.seed, words);
    let mut masked = values.columns.into_iter();
    let mut messages: Vec<Option<DecryptedColumn>> = Vec::with_capacity(columns.codecs.len());
    for (place, codec) in columns.codecs.iter().enumerate() {
        let Some(codec) = codec else {
            messages.push(None);
            continue;
        };
        let (modulus, words) = masked.next().ok_or_else(|| at(place, "its values are missing"))?;
        let lanes = codec.cell_type().cell_lanes();
        let texts = if codec.cell_type().kind == Kind::Text { usize::from(lanes.value) } else { 0 };
        let lanes = usize::from(lanes.value) + usize::from(lanes.nulls);
        let present = seen_column(seen, "present", place);
        let present = present.map(|column| column.as_boolean_opt().cloned().ok_or(())).transpose();
        let present = present.map_err(|()| at(place, "its NULLs are not told as truth values"))?;
        let present = present.map(|present| truths(&present));
        let opened = unmasked(&mut masks, modulus, words, (rows, lanes, texts), present.as_ref());
        let mut opened = opened.ok_or_else(|| at(place, "it has another number of values than rows"))?;
        let divisors = seen_column(seen, "divisor", place);
        let divided = divide(&mut opened, codec.cell_type().places, divisors, rows);
        divided.map_err(|source| RecipientError::Column { number, column: name(columns, place), source })?;
        messages.push(Some(opened));
    }
    let keys = seen.hidden.as_ref().map(|hidden| {
        let (modulus, words) = masked.next()?;
        Some((hidden, row_keys(&mut masks, modulus, words, rows)?))
    });
    if masked.next().is_some() {
        return Err(RecipientError::NoRelease(format!("parcel {number} has more columns than the header")));
    }
    let kept = empty_suppressed(columns, &mut messages, rows);
    let hidden = match keys {
        None => None,
        Some(None) => return Err(RecipientError::NoRelease(format!("parcel {number} has no keys for its rows"))),
        Some(Some((hidden, keys))) => {
            let opened = hidden.open(&keys, |row| kept.as_ref().is_none_or(|kept| kept.is_valid(row)));
            let unreadable =
                |why: ReleaseError| RecipientError::Unreadable { number, party: Party::P1, why: why.to_string() };
            let opened = opened.map_err(unreadable)?;
            empty_nulls(&opened, &mut messages);
            Some(opened)
        }
    };

    let (mut arrays, mut types): (Vec<ArrayRef>, Vec<DataType>) = (Vec::new(), Vec::new());
    for (place, (codec, messages)) in columns.codecs.iter().zip(messages).enumerate() {
        let array = match (codec, messages) {
            (Some(codec), Some(messages)) => codec.decode(messages).map_err(|source| RecipientError::Column {
                number,
                column: name(columns, place),
                source,
            })?,
            _ => {
                let name = format!("clear.{place}");
                let hidden = hidden.as_ref().and_then(|hidden| hidden.column_by_name(&name));
                let clear = hidden.or_else(|| seen.batch.column_by_name(&name));
                clear.cloned().ok_or_else(|| at(place, "its values are missing"))?
            }
        };
        types.push(array.data_type().clone());
        arrays.push(array);
    }
    let all = columns.all(|place| types.get(place).cloned()).ok_or_else(|| at(0, "its type is missing"))?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    let whole = RecordBatch::try_new_with_options(all.clone(), arrays, &options)?;
    Ok((without_suppressed(whole, &columns.flags)?, all))
}

fn name(columns: &Columns, place: usize) -> String {
    columns.names.get(place).cloned().unwrap_or_default()
}

fn seen_column<'a>(seen: &'a SeenValues, what: &str, place: usize) -> Option<&'a ArrayRef> {
    seen.batch.column_by_name(&format!("{what}.{place}"))
}

/// A truth value that is NULL is false.
fn truths(array: &BooleanArray) -> NullBuffer {
    let values = array.values();
    NullBuffer::new(BooleanBuffer::collect_bool(array.len(), |row| array.is_valid(row) && values.value(row)))
}

/// Messages row by row, from words lane by lane, of which the first are of text; zeros where a row has none. Nothing if there are more words or fewer.
fn unmasked(
    masks: &mut Masks,
    modulus: Modulus,
    words: &[[u8; WORD]],
    (rows, lanes, texts): (usize, usize, usize),
    present: Option<&NullBuffer>,
) -> Option<DecryptedColumn> {
    let is_present = |row: usize| present.is_none_or(|present| present.is_valid(row));
    let has_word = |row: usize| modulus == Modulus::Slots || is_present(row);
    // What most columns are: a number for every row, straight from cells.
    if (modulus, lanes, words.len()) == (Modulus::Cells, 1, rows)
        && present.is_none()
        && let Some(masks) = masks.next_of_cells(rows)
    {
        let messages = words.iter().zip(masks).map(|(word, mask)| modulus.unmask(word_of(*word), mask)).collect();
        return Some(DecryptedColumn { messages, lanes, nulls: None });
    }
    let mut messages = vec![0; rows.checked_mul(lanes)?];
    let mut words = words.iter().map(|word| word_of(*word));
    for lane in 0..lanes {
        let places = messages.iter_mut().skip(lane).step_by(lanes).enumerate();
        for (row, message) in places.filter(|(row, _)| has_word(*row)) {
            let word = words.next().filter(|word| modulus.contains(*word))?;
            let opened = match lane < texts {
                true => modulus.unmask_text(word, masks.next(modulus)),
                false => modulus.unmask(word, masks.next(modulus)),
            };
            if is_present(row) {
                *message = opened;
            }
        }
    }
    let nulls = present.filter(|present| present.null_count() > 0).cloned();
    words.next().is_none().then_some(DecryptedColumn { messages, lanes, nulls })
}

/// Divides what is yet to be divided.
fn divide(column: &mut DecryptedColumn, places: u8, divisors: Option<&ArrayRef>, rows: usize) -> Result<(), KeyError> {
    let divisors = match divisors {
        None if places == 0 => return Ok(()),
        None => None,
        Some(array) => {
            let wrong = || CellError::Malformed("its divisors are no numbers".to_owned());
            Some(array.as_primitive_opt::<UInt32Type>().filter(|array| array.len() == rows).ok_or_else(wrong)?)
        }
    };
    for (row, message) in column.messages.iter_mut().step_by(column.lanes.max(1)).enumerate() {
        let divisor = divisors.filter(|divisors| divisors.is_valid(row)).map_or(1, |divisors| divisors.value(row));
        *message = quotient(*message, divisor, places).map_err(|source| KeyError::Row { row, source })?;
    }
    Ok(())
}

/// The keys of rows; those of suppressed rows are noise.
fn row_keys(masks: &mut Masks, modulus: Modulus, words: &[[u8; WORD]], rows: usize) -> Option<Vec<RowKey>> {
    let opened = unmasked(masks, modulus, words, (rows, ROW_KEY_LANES, 0), None)?;
    let number = |message: i64| message.rem_euclid(PLAIN_MODULUS as i64) as u64;
    Some(opened.messages.as_chunks::<ROW_KEY_LANES>().0.iter().map(|key| key.map(number)).collect())
}

/// NULLs that were hidden with their rows.
fn empty_nulls(hidden: &RecordBatch, messages: &mut [Option<DecryptedColumn>]) {
    for (place, column) in messages.iter_mut().enumerate() {
        let present = hidden.column_by_name(&format!("present.{place}")).and_then(|column| column.as_boolean_opt());
        let (Some(column), Some(present)) = (column, present) else { continue };
        let present = truths(present);
        for (row, lanes) in column.messages.chunks_exact_mut(column.lanes.max(1)).enumerate() {
            if present.is_null(row) {
                lanes.fill(0);
            }
        }
        column.nulls = NullBuffer::union(column.nulls.as_ref(), Some(&present)).filter(|nulls| nulls.null_count() > 0);
    }
}

/// Rows with a flag hold noise in all other columns, which no column could decode: they become NULL. Which rows are kept, if not all.
fn empty_suppressed(columns: &Columns, messages: &mut [Option<DecryptedColumn>], rows: usize) -> Option<NullBuffer> {
    if columns.flags.is_empty() {
        return None;
    }
    let mut keep = vec![true; rows];
    for place in &columns.flags {
        let Some(flag) = messages.get_mut(*place).and_then(Option::as_mut) else { continue };
        let (lanes, nulls) = (flag.lanes.max(1), flag.nulls.clone());
        for (row, (lane, keep)) in flag.messages.chunks_exact_mut(lanes).zip(&mut keep).enumerate() {
            let is_null = nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
            // Any lane: a hidden NULL does not say that the row may be published.
            *keep &= !is_null && lane.iter().all(|message| *message == 0);
            lane.iter_mut().for_each(|message| *message = i64::from(*message != 0));
        }
    }
    let kept = NullBuffer::from(keep);
    if kept.null_count() == 0 {
        return None;
    }
    for (place, column) in messages.iter_mut().enumerate() {
        let Some(column) = column.as_mut().filter(|_| !columns.flags.contains(&place)) else { continue };
        for (row, lanes) in column.messages.chunks_exact_mut(column.lanes.max(1)).enumerate() {
            if kept.is_null(row) {
                lanes.fill(0);
            }
        }
        column.nulls = NullBuffer::union(column.nulls.as_ref(), Some(&kept));
    }
    Some(kept)
}
