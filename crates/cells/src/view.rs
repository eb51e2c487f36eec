//! A cell looked at where it lies, without copying: every check of the format is here.

use crate::cell::fits_chunk;
use crate::parameters::{MAX_MAGNITUDE, POLYNOMIAL_SIZE, checked_magnitude, phase_of_message};
use crate::wire::{
    CELL_VERSION, CHECKSUM, DENSE, HEADER, NULLS, OPAQUE, QUOTIENT, ROWS, TAG, TERM, VERSION_WITHOUT_ROWS, checksum_of,
};
use crate::{Anchor, CellError, KeyId, Lanes, MAX_TERMS, Noise, Origin, Pattern, Provenance, Seed, Term};

/// A valid cell in someone else's bytes.
#[derive(Clone, Copy)]
pub struct CellView<'a> {
    pub(crate) key_id: KeyId,
    pub(crate) lanes: Lanes,
    pub(crate) magnitude: Option<u64>,
    pub(crate) mask: MaskView<'a>,
    bodies: &'a [[u8; 8]],
    pub(crate) divisor: u32,
    pub(crate) rows: RowsView<'a>,
    /// All but the checksum.
    content: &'a [u8],
}

#[derive(Clone, Copy)]
pub(crate) enum MaskView<'a> {
    Affine(&'a [[u8; TERM]]),
    Dense { noise: Noise, words: &'a [[u8; 8]] },
}

/// What a cell tells of the rows that it is made of.
#[derive(Clone, Copy)]
pub(crate) enum RowsView<'a> {
    Unknown,
    Samples,
    Listed(&'a [u8]),
}

impl<'a> CellView<'a> {
    /// Checks bytes from outside.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, CellError> {
        let short = || malformed(format!("{} bytes are too few", bytes.len()));
        let (content, checksum) = bytes.split_last_chunk::<CHECKSUM>().ok_or_else(short)?;
        let (header, rest) = content.split_first_chunk::<HEADER>().ok_or_else(short)?;
        let [version, flags, lane_count, term_count, k0, k1, k2, k3, k4, k5, k6, k7, m0, m1, m2, m3, m4, m5] = *header;
        match version {
            VERSION_WITHOUT_ROWS | CELL_VERSION => {}
            0 => return Err(malformed("format version 0")),
            found => return Err(CellError::FromTheFuture { what: "the cell", found, supported: CELL_VERSION }),
        }
        if checksum_of(content) != *checksum {
            return Err(malformed("its checksum does not match"));
        }
        let has = |flag: u8| flags & flag != 0;
        if has(!(DENSE | NULLS | TAG | OPAQUE | QUOTIENT | ROWS)) {
            return Err(malformed(format!("unknown flags {flags:#04x}")));
        }
        let value = lane_count.checked_sub(u8::from(has(NULLS)) + u8::from(has(TAG))).filter(|value| *value > 0);
        let value = value.ok_or_else(|| malformed(format!("{lane_count} lanes are too few for its flags")))?;
        let lanes = Lanes { value, nulls: has(NULLS), tag: has(TAG) };
        let magnitude = u64::from_le_bytes([m0, m1, m2, m3, m4, m5, 0, 0]);
        if magnitude > MAX_MAGNITUDE || has(OPAQUE) && magnitude != 0 || !has(OPAQUE) && value != 1 {
            return Err(malformed("its magnitude does not fit its lanes"));
        }
        let (rows, rest) = rows_of(version, has(ROWS), has(DENSE), rest)?;
        let (rest, divisor) = match has(QUOTIENT) {
            true => quotient(rest, has(OPAQUE))?,
            false => (rest, 1),
        };
        let mask_bytes = rest.len().checked_sub(8 * lanes.total()).ok_or_else(short)?;
        let (mask, bodies) = rest.split_at(mask_bytes);
        let (mask, noise) = match has(DENSE) {
            true => dense_mask(mask, lanes, term_count)?,
            false => affine_mask(mask, lanes, term_count.into())?,
        };
        noise.checked().map_err(|_| malformed("its noise exceeds the budget"))?;
        Ok(Self {
            key_id: KeyId([k0, k1, k2, k3, k4, k5, k6, k7]),
            lanes,
            magnitude: (!has(OPAQUE)).then_some(magnitude),
            mask,
            bodies: bodies.as_chunks().0,
            divisor,
            rows,
            content,
        })
    }

    /// Checks the next cell of a column. Fresh neighbours of a chunk share everything up to the index with an earlier cell, which
    /// `known` remembers, so that little is left to check.
    #[inline]
    pub fn parse_next(known: &mut Option<Self>, bytes: &'a [u8]) -> Result<Self, CellError> {
        const SHARED: usize = HEADER + TERM - 2;
        if let Some(known) = known
            && let MaskView::Affine([_]) = known.mask
            && known.divisor == 1
            && !matches!(known.rows, RowsView::Listed(_))
            && let Some((content, checksum)) = bytes.split_last_chunk::<CHECKSUM>()
            && content.len() == known.content.len()
            && content[..SHARED] == known.content[..SHARED]
            && checksum_of(content) == *checksum
        {
            let (mask, bodies) = content[HEADER..].split_at(TERM);
            let terms = mask.as_chunks().0;
            if terms.first().is_some_and(|term| fits_chunk(term_of(term).index, known.lanes)) {
                return Ok(Self { mask: MaskView::Affine(terms), bodies: bodies.as_chunks().0, content, ..*known });
            }
        }
        let view = Self::parse(bytes)?;
        *known = Some(view);
        Ok(view)
    }

    /// Whether bytes that have been checked before are of a quotient.
    pub fn is_quotient(bytes: &[u8]) -> bool {
        bytes.get(1).is_some_and(|flags| flags & QUOTIENT != 0)
    }

    /// The key set that decrypts it.
    pub fn key_id(&self) -> KeyId {
        self.key_id
    }

    /// Its lanes.
    pub fn lanes(&self) -> Lanes {
        self.lanes
    }

    /// The number's largest possible absolute value; `None` for text and categories.
    pub fn magnitude(&self) -> Option<u64> {
        self.magnitude
    }

    /// The terms of an affine cell; a dense one has none.
    pub fn terms(&self) -> impl Iterator<Item = Term> + use<'a> {
        let terms = match self.mask {
            MaskView::Affine(terms) => terms,
            MaskView::Dense { .. } => &[],
        };
        terms.iter().map(term_of)
    }

    /// The only row that the value is made of, with which factors of which of its columns, and whether it was drawn for that row: `None`
    /// for all that is not so simple. Most cells are, and this looks nowhere but at their bytes.
    #[inline]
    pub fn only_row(&self) -> Option<(Anchor, Pattern, bool)> {
        match (self.rows, self.mask) {
            (RowsView::Samples, MaskView::Affine([term])) => {
                let term = term_of(term);
                match term.seed.origin() {
                    Origin::Rows(rows) => Some((rows.anchor(term.index), Pattern::of_sample(&rows, &term), false)),
                    Origin::Constant | Origin::Made => None,
                }
            }
            (RowsView::Listed(rows), MaskView::Affine([_, ..]) | MaskView::Dense { .. }) => Provenance::only_row(rows),
            _ => None,
        }
    }

    /// Of whose rows the value is made; `None` if nobody knows.
    pub fn provenance(&self) -> Result<Option<Provenance>, CellError> {
        Ok(match (self.rows, self.mask) {
            (RowsView::Unknown, _) => None,
            (_, MaskView::Affine([])) => Some(Provenance::default()),
            (RowsView::Listed(rows), _) => Some(Provenance::read(rows)?),
            (RowsView::Samples, _) => Some(Provenance::of_terms(self.terms())),
        })
    }

    /// What the number is yet to be divided by.
    pub fn divisor(&self) -> u32 {
        self.divisor
    }

    /// One body a lane.
    pub fn bodies(&self) -> impl Iterator<Item = u64> + use<'a> {
        self.bodies.iter().map(|body| u64::from_le_bytes(*body))
    }

    /// The LWE mask of one lane of a dense cell.
    pub fn dense_mask(&self, lane: usize) -> Option<impl Iterator<Item = u64> + use<'a>> {
        match self.mask {
            MaskView::Affine(_) => None,
            MaskView::Dense { words, .. } => {
                let words = words.chunks_exact(POLYNOMIAL_SIZE).nth(lane)?;
                Some(words.iter().map(|word| u64::from_le_bytes(*word)))
            }
        }
    }

    /// Appends this number plus a constant, as [`Cell::add_constant_within`](crate::Cell::add_constant_within) makes it, if it is
    /// affine: only flags, lanes, magnitude, the first body and the checksum differ from the bytes at hand.
    #[inline]
    pub(crate) fn write_plus(&self, constant: i64, bound: u64, out: &mut Vec<u8>) -> Result<bool, CellError> {
        let (MaskView::Affine(_), Some(magnitude), 1) = (self.mask, self.magnitude, self.divisor) else {
            return Ok(false);
        };
        let magnitude = checked_magnitude(magnitude.checked_add(bound))?;
        let kept = self.content.len() - 8 * usize::from(self.lanes.tag);
        let first_body = self.content.len() - 8 * self.lanes.total();
        let start = out.len();
        out.extend_from_slice(&self.content[..kept]);
        out.extend_from_slice(&[0; CHECKSUM]);
        let (cell, checksum) = out[start..].split_at_mut(kept);
        cell[1] &= !TAG;
        cell[2] -= u8::from(self.lanes.tag);
        cell[12..HEADER].copy_from_slice(&magnitude.to_le_bytes()[..6]);
        let body = self.bodies().next().unwrap_or_default().wrapping_add(phase_of_message(constant));
        cell[first_body..first_body + 8].copy_from_slice(&body.to_le_bytes());
        checksum.copy_from_slice(&checksum_of(cell));
        Ok(true)
    }
}

fn affine_mask(bytes: &[u8], lanes: Lanes, count: usize) -> Result<(MaskView<'_>, Noise), CellError> {
    let (terms, rest) = bytes.as_chunks::<TERM>();
    if count > MAX_TERMS || terms.len() != count || !rest.is_empty() {
        return Err(malformed(format!("{} bytes do not hold {count} terms", bytes.len())));
    }
    let mut positive = 0;
    let mut last = None;
    for term in terms.iter().map(term_of) {
        if term.coefficient == 0 || !fits_chunk(term.index, lanes) {
            return Err(malformed("a term is out of range"));
        }
        if last.is_some_and(|last| last >= term.place()) {
            return Err(malformed("its terms are out of order"));
        }
        last = Some(term.place());
        positive += usize::from(term.coefficient > 0);
    }
    if lanes.nulls && positive != 0 && positive != count {
        return Err(malformed("terms of both signs would cancel hidden NULLs"));
    }
    let noise = Noise::of_coefficients(terms.iter().map(|term| term_of(term).coefficient.into()));
    Ok((MaskView::Affine(terms), noise))
}

/// What stands behind the header of a cell that lists its rows. The mask of a long sum does not tell, so that has to.
fn rows_of(version: u8, listed: bool, dense: bool, rest: &[u8]) -> Result<(RowsView<'_>, &[u8]), CellError> {
    match (version, listed) {
        (CELL_VERSION, true) => {
            let split = Provenance::split(rest);
            let (rows, rest) = split.ok_or_else(|| malformed("the rows that it is of are cut"))?;
            // Whoever parses a cell can rely on all of it; the usual one needs no second look.
            if Provenance::only_row(rows).is_none() {
                Provenance::read(rows)?;
            }
            Ok((RowsView::Listed(rows), rest))
        }
        (CELL_VERSION, false) if !dense => Ok((RowsView::Samples, rest)),
        (VERSION_WITHOUT_ROWS, false) => Ok((RowsView::Unknown, rest)),
        _ => Err(malformed("it does not tell the rows that it is of as its version does")),
    }
}

/// A divisor behind the bodies of a number.
fn quotient(rest: &[u8], opaque: bool) -> Result<(&[u8], u32), CellError> {
    let split = rest.split_last_chunk::<4>().map(|(rest, divisor)| (rest, u32::from_le_bytes(*divisor)));
    split.filter(|(_, divisor)| *divisor > 1 && !opaque).ok_or_else(|| malformed("its divisor is out of range"))
}

fn dense_mask(bytes: &[u8], lanes: Lanes, term_count: u8) -> Result<(MaskView<'_>, Noise), CellError> {
    let expected = POLYNOMIAL_SIZE * lanes.total();
    let wrong = || malformed(format!("a dense mask of {} bytes should have {}", bytes.len(), 16 + 8 * expected));
    let (absolute, rest) = bytes.split_first_chunk::<8>().ok_or_else(wrong)?;
    let (squares, rest) = rest.split_first_chunk::<8>().ok_or_else(wrong)?;
    let (words, rest) = rest.as_chunks::<8>();
    if words.len() != expected || !rest.is_empty() || term_count != 0 {
        return Err(wrong());
    }
    let noise = Noise { absolute: u64::from_le_bytes(*absolute), squares: u64::from_le_bytes(*squares) };
    Ok((MaskView::Dense { noise, words }, noise))
}

#[inline]
fn term_of(bytes: &[u8; TERM]) -> Term {
    let (seed, rest) = bytes.split_at(16);
    let mut term = Term { seed: Seed([0; 16]), coefficient: 0, index: 0 };
    term.seed.0.copy_from_slice(seed);
    if let [c0, c1, i0, i1] = *rest {
        (term.coefficient, term.index) = (i16::from_le_bytes([c0, c1]), u16::from_le_bytes([i0, i1]));
    }
    term
}

fn malformed(why: impl Into<String>) -> CellError {
    CellError::Malformed(why.into())
}
