//! What a call is given, checked.

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{ScalarValue, plan_datafusion_err, plan_err};
use datafusion::error::Result;
use veil_cells::{CellType, Kind};
use veil_privacy::Epsilon;

use crate::encrypted::not_encrypted;
use crate::{EncryptedField, VeilOptions};

/// The arguments of a call: their fields, and the values of those that are constants.
#[derive(Clone, Debug)]
pub struct Arguments<'a> {
    function: &'a str,
    fields: &'a [FieldRef],
    scalars: Vec<Option<&'a ScalarValue>>,
    options: &'a VeilOptions,
}

impl<'a> Arguments<'a> {
    /// Of a call to a function.
    pub fn new(
        function: &'a str,
        fields: &'a [FieldRef],
        scalars: Vec<Option<&'a ScalarValue>>,
        options: &'a VeilOptions,
    ) -> Self {
        Self { function, fields, scalars, options }
    }

    /// The function's name, for messages.
    pub fn function(&self) -> &'a str {
        self.function
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The session's settings.
    pub fn options(&self) -> &'a VeilOptions {
        self.options
    }

    /// Whether a binary argument has no type: an expression on the way dropped it.
    pub fn lost_its_type(&self) -> bool {
        self.fields.iter().any(|field| is_binary(field) && matches!(EncryptedField::of(field), Ok(None)))
    }

    /// Whether an argument is encrypted.
    pub fn is_encrypted(&self, at: usize) -> bool {
        self.fields.get(at).is_some_and(is_binary)
    }

    /// An encrypted column.
    pub fn encrypted(&self, at: usize) -> Result<EncryptedField> {
        let Some(field) = self.fields.get(at) else {
            return plan_err!("{} needs another encrypted column", self.function);
        };
        EncryptedField::of(field)?.ok_or_else(|| not_encrypted(self.function, field.name()))
    }

    /// A constant, or what to write instead.
    fn constant(&self, at: usize, what: &str) -> Result<&'a ScalarValue> {
        match self.scalars.get(at) {
            Some(Some(value)) if !value.is_null() => Ok(value),
            _ => plan_err!("{}: {what} must be a constant, such as a number or text in the query", self.function),
        }
    }

    /// A constant text.
    pub fn text(&self, at: usize, what: &str) -> Result<&'a str> {
        match self.constant(at, what)?.try_as_str() {
            Some(Some(text)) => Ok(text),
            _ => plan_err!("{}: {what} must be a text in quotes", self.function),
        }
    }

    /// The privacy budget of a call.
    pub fn epsilon(&self, at: usize) -> Result<Epsilon> {
        let text = self.decimal(at, "epsilon")?;
        text.parse().map_err(|error| plan_datafusion_err!("{}: {error}", self.function))
    }

    /// A number between zero and one.
    pub fn fraction(&self, at: usize, what: &str) -> Result<f64> {
        let text = self.decimal(at, what)?;
        match text.parse::<f64>() {
            Ok(fraction) if fraction > 0.0 && fraction < 1.0 => Ok(fraction),
            _ => plan_err!("{}: {what} is {text}, and must lie between 0 and 1, such as 0.1", self.function),
        }
    }

    /// A whole number.
    pub fn integer(&self, at: usize, what: &str) -> Result<i64> {
        let text = self.decimal(at, what)?;
        text.parse()
            .map_err(|_| plan_datafusion_err!("{}: {what} is {text}, and must be a whole number", self.function))
    }

    /// A value of an encrypted column in steps of its unit, as its lane holds it.
    pub fn value(&self, at: usize, of: &CellType, what: &str) -> Result<i64> {
        let constant = self.constant(at, what)?;
        let refused = |why: String| plan_datafusion_err!("{}: {what} {why}", self.function);
        let steps = match (of.kind, constant) {
            (Kind::Boolean | Kind::Binary, ScalarValue::Boolean(Some(truth))) => Ok(i64::from(*truth)),
            (Kind::Date, ScalarValue::Date32(Some(days))) => Ok(i64::from(*days)),
            (Kind::Date, other) if other.data_type().is_string() => date(other),
            (Kind::Timestamp, other) if other.data_type().is_string() || other.data_type().is_temporal() => {
                timestamp(other, of)
            }
            _ => return self.amount(at, of, what),
        };
        steps.map_err(refused)
    }

    /// A distance between values of an encrypted column in steps of its unit, as its lane holds it.
    pub fn amount(&self, at: usize, of: &CellType, what: &str) -> Result<i64> {
        let text = self.decimal(at, what)?;
        let scale = if of.kind == Kind::Decimal { of.scale } else { 0 };
        let steps =
            steps_of_decimal(&text, scale).map_err(|why| plan_datafusion_err!("{}: {what} {why}", self.function))?;
        steps
            .checked_mul(1 << of.fraction_bits)
            .filter(|steps| steps.unsigned_abs() < 1 << 47)
            .ok_or_else(|| plan_datafusion_err!("{}: {what} {text} exceeds 48 bits: use a smaller one", self.function))
    }

    /// A constant number as it is written.
    fn decimal(&self, at: usize, what: &str) -> Result<String> {
        let constant = self.constant(at, what)?;
        match (constant, constant.data_type()) {
            // Rust writes floats with all their digits, and without an exponent.
            (ScalarValue::Float64(Some(number)), _) => Ok(number.to_string()),
            (ScalarValue::Float32(Some(number)), _) => Ok(number.to_string()),
            (_, kind) if kind.is_numeric() => match constant.cast_to(&DataType::Utf8)?.try_as_str() {
                Some(Some(text)) => Ok(text.to_owned()),
                _ => plan_err!("{}: {what} must be a number", self.function),
            },
            _ => plan_err!("{}: {what} must be a number", self.function),
        }
    }
}

fn is_binary(field: &FieldRef) -> bool {
    matches!(field.data_type(), DataType::Binary | DataType::LargeBinary | DataType::BinaryView)
}

fn date(value: &ScalarValue) -> Result<i64, String> {
    match value.cast_to(&DataType::Date32) {
        Ok(ScalarValue::Date32(Some(days))) => Ok(i64::from(days)),
        _ => Err(format!("{value} is not a date like '2024-01-31'")),
    }
}

fn timestamp(value: &ScalarValue, of: &CellType) -> Result<i64, String> {
    let seconds = DataType::Timestamp(datafusion::arrow::datatypes::TimeUnit::Second, None);
    match value.cast_to(&seconds) {
        Ok(ScalarValue::TimestampSecond(Some(seconds), _)) => Ok(seconds.div_euclid(of.unit.seconds())),
        _ => Err(format!("{value} is not a timestamp like '2024-01-31T12:30:00'")),
    }
}

/// A decimal number in steps of `10^-scale`, exactly or not at all.
fn steps_of_decimal(text: &str, scale: u8) -> Result<i64, String> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (whole, rest) = digits.split_once('.').unwrap_or((digits, ""));
    let (kept, beyond) = rest.split_at_checked(usize::from(scale).min(rest.len())).unwrap_or((rest, ""));
    if beyond.bytes().any(|digit| digit != b'0') {
        return Err(match scale {
            0 => format!("{text} must be a whole number, since the column's steps are whole"),
            _ => format!("{text} has more decimal places than the column's {scale}"),
        });
    }
    let digits = format!("{whole}{kept:0<width$}", width = scale.into());
    let steps: i64 = digits.parse().map_err(|_| format!("{text} is not a plain number"))?;
    Ok(if negative { -steps } else { steps })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_become_steps_exactly_or_not_at_all() {
        for (text, scale, steps) in
            [("3", 0, 3), ("-3", 2, -300), ("0.05", 2, 5), ("1.500", 1, 15), ("12.3", 2, 1230), ("-0.5", 1, -5)]
        {
            assert_eq!(steps_of_decimal(text, scale), Ok(steps), "{text}");
        }
        for (text, scale) in [("0.5", 0), ("1.234", 2), ("1e3", 0), ("NaN", 2), ("", 0), ("99999999999999999999", 0)] {
            assert!(steps_of_decimal(text, scale).is_err(), "{text}");
        }
    }
}
