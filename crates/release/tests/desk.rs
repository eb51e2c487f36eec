//! The key holder's desk, asked as the protocols ask it: questions under a census and within a budget, and releases of the rows that were counted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use ed25519_dalek::{Signer, SigningKey};
use rand::CryptoRng;
use veil_cells::{ColumnId, FileId, KeyId, Seed};
use veil_protocols::ProtocolError;
use veil_protocols::anchors::{Anchors, FileRows};
use veil_protocols::census::{Counted, Question};
use veil_protocols::open::Purpose;
use veil_protocols::release::{Asked, ClassSizes, Desk, OpenedParcel};
use veil_release::{
    Application, AskedColumn, Attestation, Content, DeskKeys, Digest, Ledger, MANIFEST_VERSION, Manifest,
    ManifestColumn, NoiseBy, ParcelDigests, Policy, ReleaseDesk, ReleaseError, ReleaseId, Signature, Unsigned,
    VerifyingKey, signed_bytes,
};
use veil_slots::{Inbound, KeyHolder, Sample, SeededSlots};
use zeroize::Zeroizing;

const KEY: KeyId = KeyId([7; 8]);
const SESSION: [u8; 16] = [4; 16];

/// 2026-09-21, in seconds.
const NOW: u64 = 1_790_000_000;

/// Keys that are not secret.
#[derive(Clone, Copy)]
struct Keys(u8);

impl DeskKeys for Keys {
    fn secret(&self, purpose: &str, data: &[u8]) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(Digest::of(&[&[self.0][..], purpose.as_bytes(), &[0], data].concat()).0)
    }

    fn open_note(&self, _: ColumnId, _: &str) -> Result<Zeroizing<Vec<u8>>, ReleaseError> {
        Ok(Zeroizing::default())
    }

    fn attest(&self, context: &str, message: &[u8]) -> Attestation {
        let key = SigningKey::from_bytes(&[self.0; 32]);
        let sign = |bytes: &[u8]| Signature::from_bytes(&key.sign(bytes).to_bytes());
        Attestation {
            key: VerifyingKey::from_bytes(key.verifying_key().as_bytes()).unwrap(),
            certificate: sign(b""),
            signature: sign(&signed_bytes(context, message)),
        }
    }
}

/// Nothing is decrypted here.
struct Holder;

impl KeyHolder for Holder {
    fn key_id(&self) -> KeyId {
        KEY
    }

    fn open(&self, _: Inbound) -> Zeroizing<Vec<u64>> {
        unreachable!()
    }

    fn seal(&self, _: &[u64], _: &mut dyn CryptoRng) -> SeededSlots {
        unreachable!()
    }

    fn open_samples(&self, _: &[Sample]) -> Zeroizing<Vec<u64>> {
        unreachable!()
    }

    fn open_dense(&self, _: &[u64], _: &[u64]) -> Zeroizing<Vec<u64>> {
        unreachable!()
    }

    fn seal_samples(&self, _: &[u64], _: &mut dyn CryptoRng) -> (Seed, Vec<u64>) {
        unreachable!()
    }
}

type Desks = ReleaseDesk<Keys>;

fn desk(policy: Option<&str>) -> Desks {
    let policy = policy.map(|text| Policy::parse(text).unwrap());
    ReleaseDesk::new(policy, Ledger::in_memory(), Keys(1)).with_clock(|| NOW)
}

fn file(number: u8) -> FileId {
    FileId([number; 9])
}

/// Rows of a file, by a number for its name.
type Rows = (u8, std::ops::Range<u32>);

fn anchors(files: &[Rows]) -> Anchors {
    let rows = |(number, rows): &Rows| {
        (file(*number), FileRows { rows: rows.clone().collect(), occurrences: rows.len() as u64 })
    };
    Anchors(files.iter().map(rows).collect())
}

fn counted(question: Question, files: &[Rows]) -> Counted {
    let anchors = anchors(files);
    let (columns, permit) = (vec![ColumnId::of(KEY, "patients", "sex")], Vec::new());
    Counted { question, columns, rows: anchors.rows(), constants: 0, anchors, least: 1, least_sum: None, permit }
}

fn receipt(desk: &Desks, question: Question, files: &[Rows]) -> Vec<u8> {
    desk.census(SESSION, &[], counted(question, files), &mut rand::rng()).unwrap().receipt
}

fn open(desk: &Desks, receipt: &[u8], purpose: Purpose, count: u32, digest: u8) -> Result<(), ProtocolError> {
    desk.opens(Asked { session: SESSION, receipt, opened: &[(purpose, count)], digest: [digest; 16] })
}

fn denied<T: std::fmt::Debug>(outcome: Result<T, ProtocolError>, says: &str) {
    let error = outcome.unwrap_err();
    assert!(matches!(error, ProtocolError::Denied(_)) && error.to_string().contains(says), "{error:?}");
}

#[test]
fn without_a_policy_questions_are_answered_cautiously_and_nothing_is_released() {
    let desk = desk(None);
    let few = desk.census(SESSION, &[], counted(Question::Risk, &[(1, 0..99)]), &mut rand::rng());
    denied(few, "risk is asked about 99 rows, and the owner's rules want at least 100; ask about more");
    let constants = Counted { rows: 1000, constants: 900, ..counted(Question::Risk, &[(1, 0..100)]) };
    denied(desk.census(SESSION, &[], constants, &mut rand::rng()), "900 rows of risk are constants and of no row");
    let receipt = receipt(&desk, Question::Identifiers, &[(1, 0..100)]);
    open(&desk, &receipt, Purpose::SmallClasses, 9999, 1).unwrap();
    open(&desk, &receipt, Purpose::SmallClasses, 9999, 1).unwrap();
    open(&desk, &receipt, Purpose::SmallClasses, 1, 2).unwrap();
    let spent = open(&desk, &receipt, Purpose::SmallClasses, 1, 3).unwrap_err();
    assert!(matches!(spent, ProtocolError::Exhausted(_)), "{spent}");
    assert!(spent.to_string().contains("10000 numbers a day by the owner's rules, 10000 are spent today"), "{spent}");
    denied(desk.apply(&application(), &Holder, &mut rand::rng()), "P2 releases nothing: start it with --policy");
    denied(desk.lanes(&[0; 90]), "P2 releases nothing");
    denied(desk.attest(&[0; 90], b"{}"), "P2 releases nothing");
}

#[test]
fn numbers_belong_to_their_question_run_and_key_holder() {
    let desk = desk(None);
    for question in Question::ALL.into_iter().filter(|question| *question != Question::Release) {
        let receipt = receipt(&desk, question, &[(1, 0..100)]);
        for (at, purpose) in Purpose::ALL.into_iter().enumerate() {
            let outcome = open(&desk, &receipt, purpose, 1, at as u8);
            assert_eq!(outcome.is_ok(), question.opens(purpose), "{question:?} {purpose:?}");
        }
    }
    let receipt = receipt(&desk, Question::Risk, &[(1, 0..100)]);
    let flags = open(&desk, &receipt, Purpose::ClusterFlags, 1, 1);
    denied(flags, "numbers of the kind cluster_flags do not belong to risk, of which the rows were counted");
    denied(open(&desk, &[], Purpose::Metric, 1, 1), "only after a census of them, and none was taken");
    let asked = Asked { session: [5; 16], receipt: &receipt, opened: &[(Purpose::Metric, 1)], digest: [1; 16] };
    denied(desk.opens(asked), "is of another run");
    let other = ReleaseDesk::new(None, Ledger::in_memory(), Keys(2)).with_clock(|| NOW);
    denied(open(&other, &receipt, Purpose::Metric, 1, 1), "is not one of this key holder");
    let policy = Policy::parse(&policy("")).unwrap();
    let changed = ReleaseDesk::new(policy, Ledger::in_memory(), Keys(1)).with_clock(|| NOW);
    denied(open(&changed, &receipt, Purpose::Metric, 1, 1), "the policy has changed");
    let later = ReleaseDesk::new(None, Ledger::in_memory(), Keys(1)).with_clock(|| NOW + 24 * 60 * 60);
    denied(open(&later, &receipt, Purpose::Metric, 1, 1), "were counted too long ago");
}

/// What is opened is charged to somebody, and not after the policy has ended.
#[test]
fn receipts_are_of_files_and_end_with_the_policy() {
    let desk = desk(None);
    // A release may have no row of a file, a question may not: what it opens would be charged to nobody.
    let nothing = Counted { rows: 100, ..counted(Question::Risk, &[]) };
    let receipt = desk.census(SESSION, &[], nothing, &mut rand::rng()).unwrap().receipt;
    denied(open(&desk, &receipt, Purpose::Metric, 1, 1), "none of the rows that were counted is of an encrypted file");

    // The second before the end of 2026-01-31, and the first after it.
    let ending = policy("").replacen("[recipient", "expires = \"2026-01-31\"\n[recipient", 1);
    let at = |now: fn() -> u64| {
        ReleaseDesk::new(Policy::parse(&ending).unwrap(), Ledger::in_memory(), Keys(1)).with_clock(now)
    };
    let (before, after) = (at(|| 1_769_903_999), at(|| 1_769_904_000));
    let receipt = receipt_of(&before);
    open(&before, &receipt, Purpose::Metric, 1, 1).unwrap();
    denied(open(&after, &receipt, Purpose::Metric, 1, 2), "were counted too long ago");
}

fn receipt_of(desk: &Desks) -> Vec<u8> {
    receipt(desk, Question::Risk, &[(1, 0..100)])
}

/// A joined question spends from both of its files.
#[test]
fn every_file_of_a_question_spends() {
    let desk = desk(None);
    let joined = Counted { rows: 100, ..counted(Question::Risk, &[(1, 0..100), (2, 0..100)]) };
    let joined = desk.census(SESSION, &[], joined, &mut rand::rng()).unwrap().receipt;
    let single = receipt(&desk, Question::Risk, &[(2, 0..500)]);
    let other = receipt(&desk, Question::Risk, &[(3, 0..500)]);
    open(&desk, &joined, Purpose::Metric, 6000, 1).unwrap();
    open(&desk, &single, Purpose::Metric, 4000, 2).unwrap();
    assert!(open(&desk, &single, Purpose::Metric, 1, 3).is_err());
    assert!(open(&desk, &joined, Purpose::Metric, 1, 4).is_err(), "one of its files has nothing left");
    open(&desk, &other, Purpose::Metric, 10_000, 5).unwrap();
}

#[test]
fn the_owners_rules_are_those_of_the_policy() {
    let rules = "[ask]\nmin_rows = 5\nnumbers = 7\n[[ask.allow]]\ntable = \"patients\"\ncolumns = [\"sex\"]\n\
        questions = [\"risk\"]\n";
    let desk = desk(Some(&policy(rules)));
    let receipt = receipt(&desk, Question::Risk, &[(1, 0..5)]);
    open(&desk, &receipt, Purpose::Metric, 7, 1).unwrap();
    assert!(open(&desk, &receipt, Purpose::Metric, 1, 2).is_err());
    let few = desk.census(SESSION, &[], counted(Question::Risk, &[(1, 0..4)]), &mut rand::rng());
    denied(few, "at least 5");
    let other = desk.census(SESSION, &[], counted(Question::Utility, &[(1, 0..50)]), &mut rand::rng());
    denied(other, "do not let anybody ask utility about column sex");
    let ended = policy("").replacen("[recipient", "expires = \"2026-01-01\"\n[recipient", 1);
    let ended =
        self::desk(Some(&ended)).census(SESSION, &[], counted(Question::Risk, &[(1, 0..500)]), &mut rand::rng());
    denied(ended, "the policy ended at 2026-01-02 00:00 UTC");
}

fn policy(rules: &str) -> String {
    format!(
        "[policy]\nkey_set = \"0707070707070707\"\n[recipient.alice]\n\
         key = \"x25519:QxDul9iMwfCIpVdsd6sM9cOseX89lROcbIS1QpxZZio\"\n\
         [[recipient.alice.allow]]\ntable = \"patients\"\ncolumns = [\"region\"]\nmin_rows = 20\n{rules}"
    )
}

fn application() -> Vec<u8> {
    let content = Content::Clear { data_type: "Utf8".to_owned() };
    let asked = Application {
        release: ReleaseId([3; 16]),
        key_set: KEY,
        recipient: "alice".to_owned(),
        query: "SELECT region FROM patients".to_owned(),
        software: "test".to_owned(),
        columns: vec![AskedColumn { name: "region".to_owned(), content }],
    };
    asked.to_json().unwrap()
}

/// A release of 30 rows, in parcels of these rows of files; what P2 says to its manifest.
fn release(
    desk: &Desks,
    census: impl FnOnce(Counted) -> Counted,
    parcels: &[&[Rows]],
) -> Result<Vec<u8>, ProtocolError> {
    let rng = &mut rand::rng();
    let admission = desk.apply(&application(), &Holder, rng)?;
    denied(desk.lanes(&admission.permit), "nobody has told which rows of which files this release is of");
    let permit = admission.permit.clone();
    let counted = census(Counted { permit, ..counted(Question::Release, &[(1, 0..20), (2, 5..15)]) });
    let permit = desk.census(SESSION, &[], counted, rng)?.permit;
    desk.lanes(&permit)?;
    let (mut digests, mut receipts, mut rows) = (BTreeMap::new(), BTreeMap::new(), 0);
    for (number, of) in (1u32..).zip(parcels) {
        let anchors = anchors(of);
        let of_parcel = anchors.rows() as u32;
        let parcel = OpenedParcel { permit: &permit, number, rows: of_parcel, anchors: &anchors, columns: vec![] };
        let sealed = desk.seal(parcel, rng)?;
        digests.insert(number, ParcelDigests { p1: Digest([0; 32]), p2: Digest::of(&sealed.sealed) });
        receipts.insert(number, Digest(sealed.receipt.try_into().unwrap()));
        rows += u64::from(of_parcel);
    }
    let column = ManifestColumn {
        name: "region".to_owned(),
        kind: "Utf8".to_owned(),
        encrypted: false,
        epsilon: 0,
        noise: NoiseBy::Nobody,
    };
    let manifest = Manifest {
        version: MANIFEST_VERSION,
        release: ReleaseId([3; 16]),
        key_set: KEY,
        owner: Keys(9).attest("", b"").key,
        recipient: "alice".to_owned(),
        query: "SELECT region FROM patients".to_owned(),
        created: String::new(),
        software: BTreeMap::new(),
        protocols: BTreeMap::new(),
        columns: vec![column],
        rows,
        parcels: parcels.len() as u32,
        classes: None,
        suppressed: None,
        spent: BTreeMap::new(),
        leakage: Vec::new(),
        header: Digest::of(&admission.header),
        digests,
    };
    let unsigned = serde_json::to_vec(&Unsigned { manifest, receipts }).unwrap();
    desk.attest(&permit, &unsigned)
}

/// What is signed is what was counted: every row in one parcel, and no other.
#[test]
fn a_manifest_stands_for_the_rows_that_were_counted() {
    let desk = desk(Some(&policy("")));
    let same = |counted: Counted| counted;
    release(&desk, same, &[&[(1, 0..20), (2, 5..15)]]).unwrap();
    release(&desk, same, &[&[(1, 0..7)], &[(2, 5..15), (1, 19..20)], &[(1, 7..19)]]).unwrap();
    let other_rows = "the parcels of the release are of other rows than were counted before it: it is not signed";
    let others: [&[&[Rows]]; 5] = [
        // One row too few, one too many, another one, one of another file; and one in two parcels, where another is in none.
        &[&[(1, 0..19), (2, 5..15)]],
        &[&[(1, 0..21), (2, 5..15)]],
        &[&[(1, 1..21), (2, 5..15)]],
        &[&[(1, 0..20), (2, 5..14), (3, 14..15)]],
        &[&[(1, 0..10)], &[(1, 9..19), (2, 5..15)]],
    ];
    for parcels in others {
        denied(release(&desk, same, parcels), other_rows);
    }
    denied(release(&desk, same, &[]), other_rows);
    let constants = |counted: Counted| Counted { rows: 30 + 1000, constants: 1011, ..counted };
    denied(release(&desk, constants, &[]), "19 rows are fewer than the 20 that the policy wants in a release");
    let sums = |counted: Counted| Counted { least_sum: Some(19), ..counted };
    denied(release(&desk, sums, &[]), "a sum or average of the release is of 19 rows");
}

/// The class check spends before it is made, under the receipt of the release, and is about as many rows as were counted.
#[test]
fn class_checks_spend_and_are_of_the_rows_that_were_counted() {
    let rules = "min_k = 2\n[ask]\nnumbers = 5\n";
    let desk = desk(Some(&policy(rules)));
    let rng = &mut rand::rng();
    let admission = desk.apply(&application(), &Holder, rng).unwrap();
    let granted = desk
        .census(SESSION, &[], Counted { permit: admission.permit, ..counted(Question::Release, &[(1, 0..30)]) }, rng)
        .unwrap();
    denied(open(&desk, &granted.receipt, Purpose::SmallClasses, 1, 1), "do not belong to release");
    open(&desk, &granted.receipt, Purpose::ClassCheck, 3, 1).unwrap();
    let spent = open(&desk, &granted.receipt, Purpose::ClassCheck, 3, 2).unwrap_err();
    assert!(matches!(spent, ProtocolError::Exhausted(_)), "{spent}");
    let sizes = |rows, suppressed| ClassSizes { rows, suppressed, classes: 4, smallest: 2 };
    denied(
        desk.classes(&granted.permit, &sizes(29, 0), rng),
        "classes of 29 rows are to be counted, and the release has 30",
    );
    denied(desk.classes(&granted.permit, &sizes(30, 11), rng), "19 rows are fewer than the 20");
    desk.classes(&granted.permit, &sizes(30, 10), rng).unwrap();
}
