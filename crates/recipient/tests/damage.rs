//! Releases that are not what they should be.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::compute::concat_batches;
use arrow::datatypes::UInt32Type;
use rand::SeedableRng;
use rand::rngs::StdRng;
use support::{House, Plan, Row, table};
use veil_keys::{OwnerKeys, RecipientKey};
use veil_recipient::{Opener, RecipientError};
use veil_release::{
    HiddenRows, MANIFEST_CONTEXT, OwnerPublic, Party, ReleaseError, ReleaseId, SEAL_INFO, SeenValues, SignedManifest,
    associated, seal_to,
};

const ID: ReleaseId = ReleaseId([9; 16]);

fn rows(sealed: &RecordBatch) -> Vec<Row> {
    let bytes = |column: usize, row: usize| {
        let column = sealed.column(column);
        column.is_valid(row).then(|| column.as_binary::<i64>().value(row).to_vec())
    };
    let manifest = sealed.column(3).as_string::<i32>();
    let row = |row: usize| {
        let text = manifest.is_valid(row).then(|| manifest.value(row).to_owned());
        (sealed.column(0).as_primitive::<UInt32Type>().value(row), bytes(1, row), bytes(2, row), text)
    };
    (0..sealed.num_rows()).map(row).collect()
}

fn outcome(opener: Opener, rows: Vec<Row>) -> Result<usize, RecipientError> {
    let mut opener = opener;
    let opened = opener.open(&[table(ID, rows)])?;
    opener.finish()?;
    Ok(opened.len())
}

/// Two parcels of two columns.
async fn example() -> (House, Vec<Row>) {
    let house = House::new("");
    let batch = house.encrypted("id,region\n1,a\n2,b\n3,c\n");
    let sealed = house.release(Plan { parcel_rows: 2, ..Plan::new(&batch) }).await.unwrap();
    let rows = rows(&sealed);
    assert_eq!(rows.len(), 4);
    (house, rows)
}

#[tokio::test]
async fn another_key_is_told_so() {
    let (house, rows) = example().await;
    let mut rng = StdRng::seed_from_u64(1);
    let bob = RecipientKey::generate("alice", &mut rng).unwrap();
    let error = outcome(Opener::new(bob), rows.clone()).unwrap_err().to_string();
    assert!(error.starts_with("this release is not for this key"), "{error}");
    let other = Opener::new(house.alice.clone()).of_release(ReleaseId([1; 16]));
    let error = outcome(other, rows.clone()).unwrap_err().to_string();
    assert!(error.contains("its rows are of another release"), "{error}");
    assert_eq!(outcome(Opener::new(house.alice.clone()).of_release(ID), rows).unwrap(), 2);
}

#[tokio::test]
async fn the_release_can_be_named_where_the_schema_does_not() {
    let (house, rows) = example().await;
    let named = table(ID, rows);
    let bare = RecordBatch::try_from_iter(
        ["number", "from_p2", "from_p1", "manifest"].into_iter().zip(named.columns().iter().cloned()),
    )
    .unwrap();
    let error = Opener::new(house.alice.clone()).open(std::slice::from_ref(&bare)).unwrap_err().to_string();
    assert!(error.contains("nothing says which release it is"), "{error}");
    let mut opener = Opener::new(house.alice.clone()).of_release(ID);
    assert_eq!(concat_batches(&opener.open(&[bare]).unwrap()[0].schema(), &[]).unwrap().num_columns(), 2);
    opener.finish().unwrap();
}

#[tokio::test]
async fn every_byte_counts() {
    let (house, rows) = example().await;
    let damaged = |row: usize, party: Party, at: usize| {
        let mut rows = rows.clone();
        let part = match party {
            Party::P1 => &mut rows[row].2,
            Party::P2 => &mut rows[row].1,
        };
        part.as_mut().unwrap()[at] ^= 0x10;
        outcome(Opener::new(house.alice.clone()), rows).unwrap_err()
    };
    for at in 0..rows[0].1.as_ref().unwrap().len() {
        let error = damaged(0, Party::P2, at);
        assert!(matches!(error, RecipientError::OtherKey(_)), "byte {at} of the header: {error}");
    }
    for at in 0..rows[2].1.as_ref().unwrap().len() {
        let error = damaged(2, Party::P2, at);
        assert!(matches!(error, RecipientError::Corrupt { number: 2, party: Party::P2 }), "byte {at}: {error}");
    }
    for at in 0..rows[1].2.as_ref().unwrap().len() {
        let error = damaged(1, Party::P1, at);
        assert!(matches!(error, RecipientError::Corrupt { number: 1, party: Party::P1 }), "byte {at}: {error}");
    }
}

#[tokio::test]
async fn missing_doubled_and_exchanged_parcels_are_found() {
    let (house, rows) = example().await;
    let pick = |places: &[usize]| places.iter().map(|place| rows[*place].clone()).collect::<Vec<_>>();
    let out_of_order = [
        (vec![0, 2, 3], 2, 1),
        (vec![0, 1, 1, 2, 3], 1, 2),
        (vec![0, 2, 1, 3], 2, 1),
        (vec![1, 2, 3], 1, 0),
        (vec![0, 1, 3], 3, 2),
        (vec![0, 0, 1, 2, 3], 0, 1),
    ];
    for (places, is, should) in out_of_order {
        match outcome(Opener::new(house.alice.clone()), pick(&places)) {
            Err(RecipientError::OutOfOrder { found, expected }) => assert_eq!((found, expected), (is, should)),
            other => panic!("{places:?}: {other:?}"),
        }
    }
    let error = outcome(Opener::new(house.alice.clone()), pick(&[0, 1, 2])).unwrap_err().to_string();
    assert!(error.starts_with("the release ended after 2 parcels without its manifest"), "{error}");
    let error = outcome(Opener::new(house.alice.clone()), pick(&[0, 1, 2, 3, 3])).unwrap_err().to_string();
    assert!(error.contains("something after its manifest"), "{error}");
    assert!(outcome(Opener::new(house.alice.clone()), pick(&[])).unwrap_err().to_string().contains("it has no header"));
    // A parcel under another number does not open: its place is sealed in.
    let mut moved = pick(&[0, 2, 1, 3]);
    (moved[1].0, moved[2].0) = (1, 2);
    let error = outcome(Opener::new(house.alice.clone()), moved).unwrap_err();
    assert!(matches!(error, RecipientError::Corrupt { number: 1, .. }), "{error}");
    // Nor does it lack unnoticed at the end.
    let mut short = pick(&[0, 1, 3]);
    short[2].0 = 2;
    let error = outcome(Opener::new(house.alice.clone()), short).unwrap_err().to_string();
    assert!(error.starts_with("the manifest has another number of rows than what came"), "{error}");
}

#[tokio::test]
async fn a_manifest_must_be_signed_and_about_this() {
    let (house, rows) = example().await;
    let owner = house.owner.public();
    let signed = SignedManifest::parse(rows[3].3.as_ref().unwrap().as_bytes()).unwrap();
    let with = |signed: &SignedManifest, owner: Option<OwnerPublic>| {
        let mut rows = rows.clone();
        rows[3].3 = Some(signed.to_json().unwrap());
        let opener = Opener::new(house.alice.clone());
        outcome(owner.into_iter().fold(opener, Opener::with_owner), rows)
    };
    assert_eq!(with(&signed, Some(owner)).unwrap(), 2);
    let mut changed = signed.clone();
    changed.manifest.rows += 1;
    for owner in [None, Some(owner)] {
        let error = with(&changed, owner).unwrap_err();
        assert!(matches!(error, RecipientError::Release(ReleaseError::BadAttestation(Party::P1))), "{error}");
    }
    let stranger = OwnerKeys::generate(&mut StdRng::seed_from_u64(8)).public();
    let error = with(&signed, Some(stranger)).unwrap_err();
    assert!(matches!(error, RecipientError::Release(ReleaseError::WrongKeySet { .. })), "{error}");
    let error = with(&signed, Some(OwnerPublic { key_set: owner.key_set, ..stranger })).unwrap_err();
    assert!(matches!(error, RecipientError::Release(ReleaseError::OtherOwner)), "{error}");

    // Both servers sign something else.
    type Change = fn(&mut SignedManifest);
    let changes: [(&str, Change); 7] = [
        ("release", |signed| signed.manifest.release = ReleaseId([1; 16])),
        ("recipient", |signed| signed.manifest.recipient = "bob".to_owned()),
        ("list of columns", |signed| signed.manifest.columns[0].name = "cost".to_owned()),
        ("list of columns", |signed| signed.manifest.columns[1].encrypted = true),
        ("number of rows", |signed| signed.manifest.rows = 4),
        ("parcel 2", |signed| signed.manifest.digests.get_mut(&2).unwrap().p1.0[0] ^= 1),
        ("number of parcels", |signed| {
            let last = signed.manifest.digests[&2];
            signed.manifest.digests.insert(3, last);
        }),
    ];
    for (what, change) in changes {
        let mut forged = signed.clone();
        change(&mut forged);
        let bytes = forged.manifest.to_bytes().unwrap();
        forged.p1 = house.owner.p1().signer().attest(MANIFEST_CONTEXT, &bytes);
        forged.p2 = house.owner.p2().signer().attest(MANIFEST_CONTEXT, &bytes);
        let error = with(&forged, Some(owner)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("the manifest has another {what} than what came")), "{what}: {error}");
    }
}

/// Who can seal to alice cannot make her program take hidden rows without keys.
#[tokio::test]
async fn hidden_rows_need_their_keys() {
    let (house, mut rows) = example().await;
    let bound = associated(ID, Party::P1, 1);
    let part = rows[1].2.take().unwrap();
    let seen = SeenValues::parse(&house.alice.open(SEAL_INFO, &bound, &part).unwrap()).unwrap();
    let hidden = HiddenRows::seal(&seen.batch, &[[1, 2, 3], [4, 5, 6]]).unwrap();
    let forged = SeenValues { hidden: Some(hidden), ..seen }.to_bytes().unwrap();
    let mut rng = StdRng::seed_from_u64(2);
    rows[1].2 = Some(seal_to(&house.alice.public(), SEAL_INFO, &bound, &forged, &mut rng).unwrap());
    let error = outcome(Opener::new(house.alice.clone()), rows).unwrap_err().to_string();
    assert!(error.contains("parcel 1 has no keys for its rows"), "{error}");
}
