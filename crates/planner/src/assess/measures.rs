//! The rows of the results.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::error::Result;
use veil_privacy::ClassSizes;
use veil_privacy::risk::{PopulationUniqueness, Risk};

use super::Question;

/// One number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measure {
    name: &'static str,
    column: Option<String>,
    value: Option<f64>,
}

/// What every measure means.
const MEANINGS: [(&str, &str); 30] = [
    ("rows", "rows that are published"),
    ("suppressed_rows", "rows that are held back"),
    ("classes", "groups of rows that look alike"),
    ("smallest_class", "rows of the smallest group"),
    ("average_class", "rows of an average group (AECS)"),
    ("average_class_by_k", "the same in units of the k that was asked for: 1 at best (C_AVG)"),
    ("prosecutor_max", "chance to find the easiest person, knowing that they are in the table"),
    ("prosecutor_average", "chance to find a person on average, knowing that they are in the table"),
    ("journalist_max", "chance to find the easiest person of the population"),
    ("journalist_average", "chance to find a person of the population on average"),
    ("marketer", "share of rows that are linked rightly if all are linked"),
    ("share_below_2", "share of rows that look like no other"),
    ("share_below_5", "share of rows that look like fewer than 4 others"),
    ("share_below_10", "share of rows that look like fewer than 9 others"),
    ("uniques_zayatz", "share of people who are unique in the population (Zayatz)"),
    ("uniques_chen", "share of people who are unique in the population (Chen, Keller-McNulty)"),
    ("uniques_hoshino", "share of people who are unique in the population (Hoshino, Pitman)"),
    ("uniques", "the estimate to believe (Dankar et al.)"),
    ("prosecutor_max_without", "prosecutor_max if this column were not published"),
    ("prosecutor_average_without", "prosecutor_average if this column were not published"),
    ("contribution", "how much of prosecutor_average this column is needed for"),
    ("discernibility", "how many rows each row cannot be told from, all together (DM)"),
    ("discernibility_star", "the same without suppressed rows (DM*)"),
    ("precision_loss", "how far up their hierarchy categories stand: 0 as they were, 1 at the root"),
    ("generalised_loss", "how many leaves published categories stand for: 0 one, 1 all (NCP)"),
    ("entropy_loss", "how much categories no longer tell: 0 nothing, 1 everything"),
    ("information_loss", "squared errors of numbers, in percent of their variation; suppressed rows at the mean"),
    ("information_loss_retained", "the same without suppressed rows"),
    ("range_loss", "how wide the classes of numbers are: 0 one value, 1 all of the column (NCP)"),
    ("certainty_penalty", "the loss of all quasi-identifiers together (GCP)"),
];

impl Measure {
    pub(super) fn of_table(name: &'static str, value: impl Into<Option<f64>>) -> Self {
        Self { name, column: None, value: value.into() }
    }

    pub(super) fn of_column(name: &'static str, column: &str, value: impl Into<Option<f64>>) -> Self {
        Self { name, column: Some(column.to_owned()), value: value.into() }
    }
}

/// Columns of a sweep, behind k.
const SWEPT: [&str; 17] = [
    "classes",
    "smallest_class",
    "average_class",
    "average_class_by_k",
    "suppressed_rows",
    "prosecutor_max",
    "prosecutor_average",
    "marketer",
    "share_below_5",
    "uniques",
    "discernibility",
    "precision_loss",
    "generalised_loss",
    "entropy_loss",
    "information_loss",
    "range_loss",
    "certainty_penalty",
];

/// The columns of a result.
pub(super) fn schema(question: &Question) -> SchemaRef {
    let fields = match question {
        Question::Risk { .. } | Question::Utility { .. } => vec![
            Field::new("measure", DataType::Utf8, false),
            Field::new("column_name", DataType::Utf8, true),
            Field::new("value", DataType::Float64, true),
            Field::new("meaning", DataType::Utf8, false),
        ],
        Question::ClassSizes => {
            vec![Field::new("size", DataType::Int64, false), Field::new("classes", DataType::Int64, false)]
        }
        Question::Sweep { .. } => {
            let measured = SWEPT.iter().map(|name| Field::new(*name, DataType::Float64, true));
            [Field::new("k", DataType::Int64, false)]
                .into_iter()
                .chain(measured)
                .chain([Field::new("seconds", DataType::Float64, false)])
                .collect()
        }
    };
    Arc::new(Schema::new(fields))
}

/// One row a measure.
pub(super) fn listed(schema: SchemaRef, measures: &[Measure]) -> Result<RecordBatch> {
    let meaning =
        |measure: &Measure| MEANINGS.iter().find(|(name, _)| *name == measure.name).map_or("", |(_, text)| text);
    let columns: Vec<ArrayRef> = vec![
        Arc::new(measures.iter().map(|measure| Some(measure.name)).collect::<StringArray>()),
        Arc::new(measures.iter().map(|measure| measure.column.as_deref()).collect::<StringArray>()),
        Arc::new(measures.iter().map(|measure| measure.value).collect::<Float64Array>()),
        Arc::new(measures.iter().map(|measure| Some(meaning(measure))).collect::<StringArray>()),
    ];
    Ok(RecordBatch::try_new(schema, columns)?)
}

/// One row a size.
pub(super) fn histogram(schema: SchemaRef, sizes: &ClassSizes) -> Result<RecordBatch> {
    let (size, classes): (Vec<i64>, Vec<i64>) =
        sizes.counts().map(|(size, classes)| (size as i64, classes as i64)).unzip();
    Ok(RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(size)), Arc::new(Int64Array::from(classes))])?)
}

/// One row a k: the measures of a whole table, by their names.
pub(super) fn swept(schema: SchemaRef, rows: &[(u32, Vec<Measure>, f64)]) -> Result<RecordBatch> {
    let value = |measures: &[Measure], name: &str| {
        measures
            .iter()
            .find(|measure| measure.name == name && measure.column.is_none())
            .and_then(|measure| measure.value)
    };
    let mut columns: Vec<ArrayRef> = vec![Arc::new(rows.iter().map(|(k, ..)| i64::from(*k)).collect::<Int64Array>())];
    for name in SWEPT {
        columns.push(Arc::new(rows.iter().map(|(_, measures, _)| value(measures, name)).collect::<Float64Array>()));
    }
    columns.push(Arc::new(rows.iter().map(|(.., seconds)| Some(*seconds)).collect::<Float64Array>()));
    Ok(RecordBatch::try_new(schema, columns)?)
}

/// Risk of a whole table.
pub(super) fn of_risk(sizes: &ClassSizes, population: Option<u64>) -> Vec<Measure> {
    let risk = Risk::of(sizes, population);
    let mut measures = vec![
        ("rows", sizes.rows() as f64),
        ("suppressed_rows", sizes.suppressed() as f64),
        ("classes", sizes.classes() as f64),
        ("smallest_class", sizes.smallest() as f64),
        ("average_class", sizes.average()),
        ("prosecutor_max", risk.prosecutor_max),
        ("prosecutor_average", risk.prosecutor_average),
        ("journalist_max", risk.journalist_max),
        ("journalist_average", risk.journalist_average),
        ("marketer", risk.marketer),
        ("share_below_2", risk.share_below_2),
        ("share_below_5", risk.share_below_5),
        ("share_below_10", risk.share_below_10),
    ]
    .into_iter()
    .map(|(name, value)| Measure::of_table(name, value))
    .collect::<Vec<_>>();
    if let Some(population) = population {
        let uniques = PopulationUniqueness::of(sizes, population);
        measures.extend([
            Measure::of_table("uniques_zayatz", uniques.zayatz),
            Measure::of_table("uniques_chen", uniques.chen),
            Measure::of_table("uniques_hoshino", uniques.hoshino),
            Measure::of_table("uniques", uniques.best().map(|(_, share)| share)),
        ]);
    }
    measures
}

/// What the risk would be without a column.
pub(super) fn of_contribution(column: &str, all: &ClassSizes, without: &ClassSizes) -> [Measure; 3] {
    let (all, rest) = (Risk::of(all, None), Risk::of(without, None));
    let contribution = match all.prosecutor_average > 0.0 {
        true => 1.0 - rest.prosecutor_average / all.prosecutor_average,
        false => 0.0,
    };
    [
        Measure::of_column("prosecutor_max_without", column, rest.prosecutor_max),
        Measure::of_column("prosecutor_average_without", column, rest.prosecutor_average),
        Measure::of_column("contribution", column, contribution),
    ]
}

/// What class sizes tell about utility, for a k that was asked for.
pub(super) fn of_classes(sizes: &ClassSizes, k: Option<u32>) -> Vec<Measure> {
    let mut measures = vec![
        Measure::of_table("classes", sizes.classes() as f64),
        Measure::of_table("suppressed_rows", sizes.suppressed() as f64),
        Measure::of_table("average_class", sizes.average()),
    ];
    measures.extend(k.map(|k| Measure::of_table("average_class_by_k", sizes.average_by_k(k.into()))));
    measures.extend([
        Measure::of_table("discernibility", sizes.discernibility() as f64),
        Measure::of_table("discernibility_star", sizes.discernibility_star() as f64),
    ]);
    measures
}
