//! Numbers: integers, decimals, dates, timestamps, truth values. One message each, in steps of the column's unit.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Date32Array, Decimal128Array, Int64Array, TimestampSecondArray};
use arrow::buffer::NullBuffer;
use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use arrow::datatypes::{DataType, TimeUnit as ArrowTimeUnit};
use chrono::{DateTime, NaiveDate};
use veil_cells::{CellError, CellType, Kind, TimeUnit};

/// How a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberFormat(pub NumberKind);

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberKind {
    /// Ones.
    Integer,
    /// Powers of a tenth.
    Decimal(u8),
    /// Days since 1970-01-01.
    Date,
    /// Seconds, minutes or hours since 1970-01-01T00:00:00 UTC.
    Timestamp(TimeUnit),
    /// False is 0, true is 1.
    Boolean,
}

const DATE: &str = "%Y-%m-%d";
const NANOSECONDS: i64 = 1_000_000_000;

impl NumberFormat {
    /// The format of an encrypted column.
    pub(crate) fn of_type(cell_type: &CellType) -> Self {
        Self(match cell_type.kind {
            Kind::Decimal => NumberKind::Decimal(cell_type.scale),
            Kind::Date => NumberKind::Date,
            Kind::Timestamp => NumberKind::Timestamp(cell_type.unit),
            Kind::Boolean => NumberKind::Boolean,
            _ => NumberKind::Integer,
        })
    }

    pub(crate) fn kind(self) -> Kind {
        match self.0 {
            NumberKind::Integer => Kind::Integer,
            NumberKind::Decimal(_) => Kind::Decimal,
            NumberKind::Date => Kind::Date,
            NumberKind::Timestamp(_) => Kind::Timestamp,
            NumberKind::Boolean => Kind::Boolean,
        }
    }

    pub(crate) fn scale(self) -> u8 {
        if let NumberKind::Decimal(scale) = self.0 { scale } else { 0 }
    }

    pub(crate) fn unit(self) -> TimeUnit {
        if let NumberKind::Timestamp(unit) = self.0 { unit } else { TimeUnit::Second }
    }

    pub(crate) fn is_integer(self) -> bool {
        self.0 == NumberKind::Integer
    }

    /// Reads a number, exactly or not at all; the error completes the sentence "`value` ...".
    pub(crate) fn parse(self, text: &str) -> Result<i64, String> {
        let text = text.trim();
        match self.0 {
            NumberKind::Integer => text.parse().map_err(|_| "is not a whole number of 64 bits".to_owned()),
            NumberKind::Decimal(scale) => parse_decimal(text, scale),
            NumberKind::Date => match NaiveDate::parse_from_str(text, DATE) {
                Ok(date) => Ok(i64::from(date.to_epoch_days())),
                Err(_) => Err("is not a date like 2024-01-31".to_owned()),
            },
            NumberKind::Timestamp(unit) => {
                let nanos = string_to_timestamp_nanos(text)
                    .map_err(|_| "is not a timestamp like 2024-01-31T12:30:00 between 1678 and 2262".to_owned())?;
                let step = unit.seconds() * NANOSECONDS;
                match nanos % step {
                    0 => Ok(nanos / step),
                    _ => Err(format!("is not a whole {}; declare a finer `unit` or round it", unit_name(unit))),
                }
            }
            NumberKind::Boolean if text.eq_ignore_ascii_case("true") => Ok(1),
            NumberKind::Boolean if text.eq_ignore_ascii_case("false") => Ok(0),
            NumberKind::Boolean => {
                Err("is neither true nor false; for other labels use kind binary with `values`".to_owned())
            }
        }
    }

    /// Writes a number as [`parse`](Self::parse) reads it.
    pub(crate) fn print(self, number: i64) -> String {
        match self.0 {
            NumberKind::Integer | NumberKind::Decimal(0) => number.to_string(),
            NumberKind::Decimal(scale) => {
                let one = 10u64.pow(scale.into());
                let sign = if number < 0 { "-" } else { "" };
                let (whole, rest) = (number.unsigned_abs() / one, number.unsigned_abs() % one);
                format!("{sign}{whole}.{rest:0width$}", width = scale.into())
            }
            NumberKind::Date => i32::try_from(number)
                .ok()
                .and_then(NaiveDate::from_epoch_days)
                .map_or_else(|| format!("day {number}"), |date| date.format(DATE).to_string()),
            NumberKind::Timestamp(unit) => DateTime::from_timestamp(number.saturating_mul(unit.seconds()), 0)
                .map_or_else(|| number.to_string(), |time| time.format("%Y-%m-%dT%H:%M:%S").to_string()),
            NumberKind::Boolean => (number != 0).to_string(),
        }
    }

    pub(crate) fn natural_type(self) -> DataType {
        match self.0 {
            NumberKind::Integer => DataType::Int64,
            NumberKind::Decimal(scale) => DataType::Decimal128(18, scale as i8),
            NumberKind::Date => DataType::Date32,
            NumberKind::Timestamp(_) => DataType::Timestamp(ArrowTimeUnit::Second, None),
            NumberKind::Boolean => DataType::Boolean,
        }
    }

    /// The numbers as an Arrow array, in the time zone of `source` if that has one.
    pub(crate) fn array(
        self,
        numbers: Vec<i64>,
        nulls: Option<NullBuffer>,
        source: Option<&DataType>,
    ) -> Result<ArrayRef, CellError> {
        Ok(match self.0 {
            NumberKind::Integer => Arc::new(Int64Array::try_new(numbers.into(), nulls)?),
            NumberKind::Decimal(scale) => {
                let numbers: Vec<i128> = numbers.into_iter().map(i128::from).collect();
                let decimals = Decimal128Array::try_new(numbers.into(), nulls)?;
                Arc::new(decimals.with_precision_and_scale(18, scale as i8)?)
            }
            NumberKind::Date => {
                if numbers.iter().any(|days| i32::try_from(*days).is_err()) {
                    return Err(CellError::Malformed("a date lies beyond the calendar".to_owned()));
                }
                let days: Vec<i32> = numbers.into_iter().map(|days| days as i32).collect();
                Arc::new(Date32Array::try_new(days.into(), nulls)?)
            }
            NumberKind::Timestamp(unit) => {
                let seconds: Vec<i64> = numbers.into_iter().map(|steps| steps.saturating_mul(unit.seconds())).collect();
                let zone = match source {
                    Some(DataType::Timestamp(_, zone)) => zone.clone(),
                    _ => None,
                };
                let times: ArrayRef =
                    Arc::new(TimestampSecondArray::try_new(seconds.into(), nulls)?.with_timezone_opt(zone.clone()));
                match source {
                    Some(source @ DataType::Timestamp(..)) => super::cast_back(&times, source)?,
                    _ => times,
                }
            }
            NumberKind::Boolean => {
                let truths = numbers.iter().map(|number| *number != 0).collect::<Vec<_>>();
                Arc::new(BooleanArray::new(truths.into(), nulls))
            }
        })
    }
}

fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "second",
        TimeUnit::Minute => "minute",
        TimeUnit::Hour => "hour",
    }
}

fn parse_decimal(text: &str, scale: u8) -> Result<i64, String> {
    let not_decimal = || "is not a decimal number of at most 18 digits".to_owned();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.len() + rest.len() == 0 || !is_digits(whole) || !is_digits(rest) {
        return Err(not_decimal());
    }
    let (kept, beyond) = rest.split_at(rest.len().min(scale.into()));
    if beyond.bytes().any(|byte| byte != b'0') {
        return Err(format!("has more than {scale} decimal places; raise `scale` or round it"));
    }
    let digits = format!("{whole}{kept:0<width$}", width = scale.into());
    let number: i64 = digits.parse().map_err(|_| not_decimal())?;
    Ok(if negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_what_they_print() {
        for (kind, text, number) in [
            (NumberKind::Integer, "-17", -17),
            (NumberKind::Decimal(2), "-0.05", -5),
            (NumberKind::Decimal(2), "12.30", 1230),
            (NumberKind::Decimal(0), "12", 12),
            (NumberKind::Date, "1969-12-31", -1),
            (NumberKind::Date, "2024-02-29", 19_782),
            (NumberKind::Timestamp(TimeUnit::Second), "1970-01-02T00:00:01", 86_401),
            (NumberKind::Timestamp(TimeUnit::Hour), "1969-12-31T22:00:00", -2),
            (NumberKind::Boolean, "true", 1),
        ] {
            let format = NumberFormat(kind);
            assert_eq!(format.parse(text), Ok(number), "{kind:?}");
            assert_eq!(format.print(number), text, "{kind:?}");
        }
    }

    #[test]
    fn other_spellings_are_read_exactly_or_refused() {
        let decimal = NumberFormat(NumberKind::Decimal(2));
        for (text, number) in [("1", 100), ("1.", 100), (".5", 50), ("+3.10", 310), ("1.500", 150), (" 2 ", 200)] {
            assert_eq!(decimal.parse(text), Ok(number), "{text}");
        }
        for text in ["", ".", "-", "1.234", "1e3", "1,5", "12345678901234567890"] {
            assert!(decimal.parse(text).is_err(), "{text}");
        }
        let minute = NumberFormat(NumberKind::Timestamp(TimeUnit::Minute));
        assert_eq!(minute.parse("1970-01-01 00:02:00"), Ok(2));
        assert!(minute.parse("1970-01-01T00:02:01").unwrap_err().contains("whole minute"));
        assert!(NumberFormat(NumberKind::Boolean).parse("yes").unwrap_err().contains("binary"));
        assert!(NumberFormat(NumberKind::Date).parse("2024-02-30").is_err());
    }
}
