//! What cannot be done is refused in a sentence, before the first round; and so is a P2 that opens nonsense.

use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, AsArray, BinaryArray, LargeBinaryArray, RecordBatch};
use arrow::buffer::NullBuffer;
use futures::StreamExt;
use veil_privacy::clusters::Reassignment;
use veil_protocols::k_anonymize::{Bounds, Comparison, MAX_CENTRES, MAX_POINTS, Quasi, Settings, Values, k_anonymize};
use veil_protocols::testing::AnyQuestion;
use veil_protocols::{Channel, Frame, Frames, InProcess, Limits, ProtocolError, Randomness, Responder, Session};
use veil_slots::{Sanitizer, plain};

use crate::case::Case;
use crate::column::Column;
use crate::{Parties, STRATEGIES, settings};

fn blinded(k: usize) -> Settings {
    settings(k, STRATEGIES[0], Comparison::Blinded)
}

fn seen(rows: usize) -> Quasi {
    Quasi { values: Values::Clear((0..rows as i64).collect::<Vec<_>>().into()), weight: 1 }
}

/// The sentence, and that P2 was not asked anything.
async fn refused(parties: &Parties, rows: usize, quasi: Vec<Quasi>, initial: &[usize], settings: Settings) -> String {
    let outcome = k_anonymize(&parties.session, rows, quasi, initial, &settings, &|_| {}).await;
    assert_eq!(parties.session.traffic().rounds(), 0);
    let error = outcome.err().unwrap();
    assert!(!matches!(error, ProtocolError::Malformed(_) | ProtocolError::Internal(_)), "{error:?}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_questions_are_refused() {
    let parties = Parties::new(490);
    let ask = async |rows: usize, initial: &[usize], settings: Settings| {
        refused(&parties, rows, vec![seen(rows)], initial, settings).await
    };
    let larger = "asks for classes larger than the table of";
    assert_eq!(ask(3, &[0], blinded(0)).await, format!("k = 0 {larger} 3 rows: ask for 1 to 3"));
    assert_eq!(ask(3, &[0], blinded(4)).await, format!("k = 4 {larger} 3 rows: ask for 1 to 3"));
    assert_eq!(ask(0, &[], blinded(1)).await, format!("k = 1 {larger} 0 rows: ask for 1 to 0"));
    assert_eq!(ask(3, &[], blinded(1)).await, "0 initial centres cannot be distinct rows of 3: give 1 to 3");
    assert_eq!(ask(3, &[3], blinded(1)).await, "initial centre 3 is not one of the 3 rows, which count from 0");
    assert_eq!(ask(3, &[1, 1], blinded(1)).await, "row 1 is named twice as an initial centre: name distinct rows");
    let mut wrong = blinded(1);
    wrong.clusters.rounds = 0;
    assert_eq!(ask(3, &[0], wrong).await, "0 rounds assign no row to a cluster: ask for at least 1");
    let mut wrong = blinded(1);
    wrong.clusters.suppress = 1_000_001;
    assert_eq!(
        ask(3, &[0], wrong).await,
        "1000001 millionths of the rows cannot be suppressed: a share is at most 1000000"
    );
    let many: Vec<usize> = (0..=MAX_CENTRES).collect();
    let text = "4097 centres are too many: at most 4096; ask for a larger k or fewer centres";
    assert_eq!(ask(5000, &many, blinded(1)).await, text);
    let rows = (1 << 20) + 1;
    assert_eq!(ask(rows, &[0], blinded(2)).await, "1048577 rows are too many to k-anonymise at once: at most 1048576");
    let rows = MAX_POINTS + 1;
    let text = ask(rows, &[0], settings(2, Reassignment::PointToPoint, Comparison::Blinded)).await;
    assert!(
        text.starts_with("point_to_point compares every row with every other, of up to 4096, and there are 4097"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_that_do_not_fit_are_refused() {
    let mut parties = Parties::new(491);
    let number = Column::Numbers { values: vec![1, 2, 3], bounds: (0, 9), public: true };
    let good = number.values(&mut parties);
    let Values::Numbers { cells, bits, .. } = good.clone() else { panic!() };
    let ask = async |values: Vec<Values>| {
        let quasi = values.into_iter().map(|values| Quasi { values, weight: 1 }).collect();
        refused(&parties, 3, quasi, &[0], blinded(1)).await
    };
    assert_eq!(ask(vec![]).await, "k-anonymity needs a quasi-identifier");
    let short = Values::Clear(vec![1, 2].into());
    assert_eq!(ask(vec![good.clone(), short]).await, "column 1: it has 2 rows, and the table 3");
    let with = |bits, bounds| Values::Numbers { cells: cells.clone(), bits, bounds };
    for (bits, bounds) in [(8, (9, 0)), (8, (-129, 0)), (8, (0, 128)), (32, (0, i64::MAX)), (32, (i64::MIN, i64::MAX))]
    {
        let text = format!("column 0: {} and {} are no bounds of numbers of {bits} bits", bounds.0, bounds.1);
        assert_eq!(ask(vec![with(bits, Bounds::Public(bounds.0, bounds.1))]).await, text);
    }
    for bits in [0, 33, u32::MAX] {
        let text = format!("column 0: numbers have 1 to 32 bits, and not {bits}");
        assert_eq!(ask(vec![with(bits, Bounds::Public(0, 9))]).await, text);
    }
    for levels in [0, 32, usize::MAX] {
        let values = Values::Categories { cells: cells.clone(), levels, bits: 16, generalised: false };
        assert_eq!(ask(vec![values]).await, format!("column 0: a category has 1 to 31 levels, and not {levels}"));
    }
    let many = Values::Categories { cells: cells.clone(), levels: 2, bits: 24, generalised: false };
    let text = "column 0: its hierarchy has more than 32768 leaves, too many for distances";
    assert_eq!(ask(vec![many]).await, text);
    let levels = |levels| Values::Categories { cells: cells.clone(), levels, bits: 16, generalised: false };
    let text = "columns and 66 levels of categories below their roots are too many: at most 64 of each";
    assert_eq!(ask(vec![levels(23), levels(23), levels(23)]).await, format!("3 {text}"));
    let wide = Values::Clear(vec![i64::MIN, 0, i64::MAX].into());
    let text = "numbers from -9223372036854775808 to 9223372036854775807 are wider than 32 bits";
    assert_eq!(ask(vec![wide]).await, format!("column 0: {text}"));

    // A category of more levels than its cells have lanes, cells of nothing, a NULL, and another key's cells.
    let values = Values::Categories { cells: cells.clone(), levels: 2, bits: 16, generalised: false };
    let mut other = Parties::new(492);
    let text = k_anonymize(&parties.session, 3, vec![Quasi { values, weight: 1 }], &[0], &blinded(1), &|_| {}).await;
    assert_eq!(text.err().unwrap().to_string(), "row 0 has no lane 1");
    let parties = Parties::new(491);
    let ask = async |cells: ArrayRef| {
        let values = Values::Numbers { cells, bits, bounds: Bounds::Public(0, 9) };
        refused(&parties, 3, vec![Quasi { values, weight: 1 }], &[0], blinded(1)).await
    };
    let (offsets, bytes, _) = cells.as_binary::<i32>().clone().into_parts();
    let nulls = BinaryArray::new(offsets, bytes, Some(NullBuffer::from(vec![true, false, true])));
    assert_eq!(ask(Arc::new(nulls)).await, "column 0: 1 rows are NULL: leave them out, or give them a value");
    let text = ask(Arc::new(BinaryArray::from(vec![b"".as_slice(), b"1", b"\xff\xff\xff"]))).await;
    assert!(text.starts_with("row 0: "), "{text}");
    let text = ask(Arc::new(arrow::array::Int64Array::from(vec![1, 2, 3]))).await;
    assert!(!text.is_empty(), "{text}");
    let Values::Numbers { cells, .. } = number.values(&mut other) else { panic!() };
    let text = ask(cells).await;
    assert!(text.starts_with("row 0: ") && text.contains("key"), "{text}");
    let Values::Numbers { cells, bits, bounds } =
        Column::Numbers { values: vec![1, 2, 3], bounds: (0, 9), public: false }.values(&mut other)
    else {
        panic!()
    };
    let values = vec![Quasi { values: Values::Numbers { cells, bits, bounds }, weight: 1 }];
    let text = refused(&parties, 3, values, &[0], blinded(1)).await;
    assert!(text.contains("key"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn weights_that_are_nothing_or_too_much_are_refused() {
    let parties = Parties::new(493);
    let ask = async |weights: &[u32], strategy, comparison| {
        let quasi = weights.iter().map(|weight| Quasi { weight: *weight, ..seen(9) }).collect();
        refused(&parties, 9, quasi, &[0], settings(2, strategy, comparison)).await
    };
    let text = "column 1: of weight 0 it counts for nothing: leave it out";
    assert_eq!(ask(&[1, 0], STRATEGIES[0], Comparison::Blinded).await, text);
    let text = "the columns weigh too much for blinded comparisons: use smaller weights, fewer columns, or exact ones";
    assert_eq!(ask(&[32, 32], STRATEGIES[0], Comparison::Blinded).await, text);
    // Rows that are put far away take room too.
    assert_eq!(ask(&[11, 11], STRATEGIES[2], Comparison::Blinded).await, text);
    let text = "the columns weigh too much: use smaller weights or fewer columns";
    assert_eq!(ask(&[1 << 15], STRATEGIES[1], Comparison::Exact).await, text);
    for strategy in STRATEGIES {
        assert_eq!(ask(&[u32::MAX; 64], strategy, Comparison::Exact).await, text);
    }
    let text = "65 columns and 0 levels of categories below their roots are too many: at most 64 of each";
    assert_eq!(ask(&[1; 65], STRATEGIES[0], Comparison::Exact).await, text);
}

/// What P2 does to the numbers of one opening, which is told by its number in the run.
type Lie = fn(usize, &mut [u64]);

/// A P2 that does not open what it should.
#[derive(Debug)]
struct Liar {
    channel: InProcess,
    lie: Lie,
    opened: Arc<Mutex<usize>>,
}

impl Channel for Liar {
    fn exchange(&self, requests: Frames) -> Frames {
        let (lie, opened) = (self.lie, self.opened.clone());
        let answers = self.channel.exchange(requests).map(move |answer| {
            let (header, batch) = answer?.open()?;
            if header.protocol != "open" {
                return Ok(Frame::new(&header, batch));
            }
            let mut number = opened.lock().unwrap();
            let tell = |values: Option<&[u8]>| {
                let mut values: Vec<u64> =
                    values.unwrap().as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
                lie(*number, &mut values);
                *number += 1;
                values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()
            };
            let told: Vec<Vec<u8>> = batch.column(0).as_binary::<i64>().iter().map(tell).collect();
            let column: ArrayRef = Arc::new(LargeBinaryArray::from_iter_values(told));
            Ok(Frame::new(&header, RecordBatch::try_new(batch.schema(), vec![column]).unwrap()))
        });
        answers.boxed()
    }

    fn limits(&self) -> Limits {
        self.channel.limits()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_p2_that_opens_nonsense_is_refused() {
    fn add(values: &mut [u64], number: i64) {
        values[0] = plain::add(values[0], plain::from_signed(number));
    }
    // Two clusters, of one row and of three; k is two. The stop bit comes first, then the sizes, then who receives.
    let lies: [(Lie, &str); 5] = [
        (
            |number, values| {
                if number == 0 {
                    add(values, 2)
                }
            },
            "P2 opened something else than a bit",
        ),
        (
            |number, values| {
                if number == 1 {
                    add(values, 5)
                }
            },
            "P2 opened a size that no small cluster has",
        ),
        (
            |number, values| {
                if number == 1 {
                    add(values, -3)
                }
            },
            "P2 opened a size that no small cluster has",
        ),
        (
            |number, values| {
                if number == 1 {
                    add(&mut values[1..], 1)
                }
            },
            "P2 opened sizes that do not add up to the rows",
        ),
        (
            |number, values| {
                if number == 2 {
                    add(values, 7)
                }
            },
            "the nearest cluster is none of those that are left",
        ),
    ];
    for (lie, sentence) in lies {
        let mut parties = Parties::new(494);
        let responder = Responder::new(Arc::new(parties.owner.p2()), Limits::default(), Randomness::fixed(1));
        let responder = responder.with_desk(Arc::new(AnyQuestion));
        let channel = Liar { channel: InProcess::new(Arc::new(responder)), lie, opened: Arc::default() };
        let sanitizer = Sanitizer::new(parties.owner.p1().public_key().clone());
        parties.session = Session::with(Arc::new(channel), parties.owner.key_id(), sanitizer, Randomness::fixed(2));
        let mut settings = blinded(2);
        settings.clusters.rounds = 2;
        let columns = vec![Column::Seen(vec![0, 90, 91, 92])];
        let case = Case { columns, weights: vec![1], initial: vec![0, 2], settings };
        let error = case.run(&mut parties, &Mutex::default()).await.err().unwrap();
        assert_eq!(error.to_string(), format!("malformed message: {sentence}"));
    }
}
