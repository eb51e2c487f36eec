//! The key holder's desk: holds questions and applications against the policy, spends from the ledger, adds noise, seals, signs.
//!
//! It keeps nothing but the ledger. A permit says what was granted and found; P1 shows it with every parcel. Noise follows from release, parcel and column
//! through a secret of P2's, and a parcel number stands for one content for good: who asks again gets the same, and nothing to average noise out
//! with.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use rand::{CryptoRng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use veil_cells::{Cell, CellType, ColumnConstants, ColumnId, Kind, Mechanism, Role, message_of_phase};
use veil_privacy::{Epsilon, GeometricMechanism, LaplaceMechanism};
use veil_protocols::ProtocolError;
use veil_protocols::anchors::Anchors;
use veil_protocols::census::{Counted, Granted, Question};
use veil_protocols::release::{Admission, Asked, ClassSizes, Desk, OpenedColumn, OpenedParcel, SealedParcel};
use veil_slots::{KeyHolder, Sample};
use zeroize::Zeroizing;

use crate::anchor_hash::AnchorHash;
use crate::census_receipt::CensusReceipt;
use crate::ledger::Ask;
use crate::parcel::{HEADER_NUMBER, Header, HeaderColumn, MaskedValues, SEAL_INFO, associated};
use crate::permit::{Permit, PermittedColumn, Receipt, SealedRows};
use crate::{
    Application, AskRules, Attestation, ClassCheck, Content, Digest, Ledger, LedgerError, MANIFEST_CONTEXT, Manifest,
    MinK, Party, Policy, ROW_KEY_LANES, RecipientPublicKey, Refusal, ReleaseError, hides_rows, seal_to,
};

/// How long a permit is good for, and the receipt of a census.
const PERMIT_LIFE: Duration = Duration::from_secs(SECONDS_A_DAY);

const SECONDS_A_DAY: u64 = 24 * 60 * 60;

/// The keys that a desk works with; `veil-keys` has them.
pub trait DeskKeys: Send + Sync {
    /// A secret for a purpose.
    fn secret(&self, purpose: &str, data: &[u8]) -> Zeroizing<[u8; 32]>;

    /// The owner's note about a column.
    fn open_note(&self, column: ColumnId, sealed: &str) -> Result<Zeroizing<Vec<u8>>, ReleaseError>;

    /// Signs as P2.
    fn attest(&self, context: &str, message: &[u8]) -> Attestation;
}

/// The desk.
pub struct ReleaseDesk<K> {
    policy: Option<Policy>,
    ledger: Ledger,
    keys: K,
    now: fn() -> u64,
    releases: bool,
}

impl<K> std::fmt::Debug for ReleaseDesk<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.policy {
            Some(policy) => write!(f, "ReleaseDesk(key set {})", policy.key_set()),
            None => f.write_str("ReleaseDesk(no policy)"),
        }
    }
}

/// What P1 has to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// The key to seal to.
    pub recipient_key: RecipientPublicKey,
    /// How many rows must be alike, in which columns by their places.
    pub k: Option<(u32, Vec<usize>)>,
    /// Epsilon that the release spends by column, in millionths.
    pub spent: BTreeMap<String, u64>,
}

/// A manifest that P2 is to sign, with its receipts by parcel number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unsigned {
    /// What is to be signed.
    pub manifest: Manifest,
    /// P2's receipts.
    pub receipts: BTreeMap<u32, Digest>,
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(u64::MAX, |since| since.as_secs())
}

impl<K: DeskKeys> ReleaseDesk<K> {
    /// With the owner's policy, which has been verified, and the ledger. Without a policy nothing is released, and questions are held against
    /// [cautious rules](AskRules::default).
    pub fn new(policy: impl Into<Option<Policy>>, ledger: Ledger, keys: K) -> Self {
        Self { policy: policy.into(), ledger, keys, now: unix_now, releases: true }
    }

    /// For questions alone, whatever the policy says about recipients.
    #[must_use]
    pub fn without_releases(self) -> Self {
        Self { releases: false, ..self }
    }

    /// With another clock: seconds since 1970.
    #[must_use]
    pub fn with_clock(mut self, now: fn() -> u64) -> Self {
        self.now = now;
        self
    }

    fn permit_key(&self) -> Zeroizing<[u8; 32]> {
        self.keys.secret("permit", &[])
    }

    fn census_key(&self) -> Zeroizing<[u8; 32]> {
        self.keys.secret("census", &[])
    }

    /// What no policy has instead of a digest.
    fn policy_digest(&self) -> Digest {
        self.policy.as_ref().map_or(Digest([0; 32]), Policy::digest)
    }

    fn policy(&self) -> Result<&Policy, ProtocolError> {
        let policy = self.policy.as_ref().filter(|_| self.releases);
        policy.ok_or_else(|| ProtocolError::Denied(NO_POLICY.to_owned()))
    }

    fn open_permit(&self, permit: &[u8]) -> Result<Permit, ProtocolError> {
        self.policy()?;
        Permit::open(permit, &self.permit_key(), self.policy_digest(), (self.now)())
    }

    /// Which rows of files a release, or a part of it, is of.
    fn hash(&self, permit: &Permit, anchors: &Anchors) -> AnchorHash {
        let release = permit.release;
        AnchorHash::of(anchors, |file| self.keys.secret("anchors", &[&release.0[..], &file.0].concat()))
    }

    /// Takes the rows of a release into its permit.
    fn count_release(&self, counted: &Counted, rng: &mut dyn CryptoRng) -> Result<Vec<u8>, ProtocolError> {
        let mut permit = self.open_permit(&counted.permit)?;
        permit.count(counted, self.hash(&permit, &counted.anchors))?;
        permit.seal(&self.permit_key(), rng)
    }

    /// A column of the header, and what is to be done to it.
    fn column(
        &self,
        name: &str,
        content: &Content,
        holder: &dyn KeyHolder,
    ) -> Result<(HeaderColumn, Option<PermittedColumn>), ProtocolError> {
        let Content::Encrypted { cell_type, sealed, constants, .. } = content else {
            return Ok((HeaderColumn { name: name.to_owned(), encrypted: None }, None));
        };
        if cell_type.fraction_bits > 0 {
            return Err(ProtocolError::Misuse(format!("{name} has places below its unit: round them away first")));
        }
        let note = match sealed {
            Some(sealed) => {
                let note = self.keys.open_note(cell_type.column, sealed).map_err(|error| malformed(&error))?;
                serde_json::from_slice(&note).map_err(|error| malformed(&error))?
            }
            None => serde_json::json!({}),
        };
        let added =
            |noise: &&veil_cells::JointNoise| matches!(noise.mechanism, Mechanism::Laplace | Mechanism::Geometric);
        let mut noise = Vec::new();
        for awaited in cell_type.awaits.iter().filter(added) {
            let diameter = diameter(name, cell_type, constants.as_deref(), holder)?;
            // Noise that cannot be drawn is refused before anything is spent.
            // The sentence has no numbers: bounds are nobody's business but P2's.
            noise_of(awaited, diameter).map_err(|_| ProtocolError::Misuse(format!("{name}: {NO_NOISE}")))?;
            noise.push((*awaited, diameter));
        }
        let is_drawn = matches!(cell_type.kind, Kind::Boolean | Kind::Binary | Kind::Category);
        if !is_drawn && cell_type.awaits.iter().any(|noise| !added(&noise)) {
            return Err(ProtocolError::Misuse(format!(
                "{name} is computed from values that await P2's noise, which is drawn value by value: release the values"
            )));
        }
        let lanes = cell_type.cell_lanes();
        let permitted = PermittedColumn { lanes: usize::from(lanes.value) + usize::from(lanes.nulls), noise };
        let complete = CellType { awaits: Vec::new(), tag: false, ..cell_type.clone() };
        Ok((HeaderColumn { name: name.to_owned(), encrypted: Some((complete, note)) }, Some(permitted)))
    }
}

/// Says that a column's noise cannot be drawn.
const NO_NOISE: &str = "noise for bounds so far apart, and so small an epsilon, is more than a cell holds: choose a larger epsilon, or have the owner declare a narrower range";

/// Says that nothing is released.
const NO_POLICY: &str =
    "P2 releases nothing: start it with --policy and --state, which the owner's `veil policy sign` is for";

impl<K: DeskKeys> Desk for ReleaseDesk<K> {
    fn census(
        &self,
        session: [u8; 16],
        before: &[u8],
        counted: Counted,
        rng: &mut dyn CryptoRng,
    ) -> Result<Granted, ProtocolError> {
        let (now, cautious) = ((self.now)(), AskRules::default());
        // A release has a permit, which ends no later.
        let asks = counted.question != Question::Release;
        if let Some(ended) = self.policy.as_ref().and_then(Policy::expires).filter(|end| asks && now >= *end) {
            return Err(ProtocolError::Denied(Refusal::PolicyExpired { ended }.to_string()));
        }
        let rules = self.policy.as_ref().map_or(&cautious, Policy::ask);
        let Counted { question, rows, constants, .. } = counted;
        // The policy says by recipients what may be released. What a release opens besides is counted as all is.
        let (numbers, permit) = match question {
            Question::Release => (rules.numbers_of_release(&counted.columns), self.count_release(&counted, rng)?),
            _ => {
                let limits = rules.grant(question, &counted.columns, rows, constants);
                (limits.map_err(|refusal| ProtocolError::Denied(refusal.to_string()))?.numbers, Vec::new())
            }
        };
        let mut receipt = CensusReceipt {
            question,
            session,
            numbers,
            policy: self.policy_digest(),
            expires: self
                .policy
                .as_ref()
                .and_then(Policy::expires)
                .unwrap_or(u64::MAX)
                .min(now.saturating_add(PERMIT_LIFE.as_secs())),
            files: counted.anchors.0.keys().copied().collect(),
        };
        if !before.is_empty() {
            let before = CensusReceipt::open(before, &self.census_key(), session, self.policy_digest(), now)?;
            receipt = receipt.and(before)?;
        }
        Ok(Granted { receipt: receipt.seal(&self.census_key(), rng)?, permit })
    }

    fn opens(&self, asked: Asked<'_>) -> Result<(), ProtocolError> {
        let now = (self.now)();
        let Asked { session, receipt, opened, digest } = asked;
        let receipt = CensusReceipt::open(receipt, &self.census_key(), session, self.policy_digest(), now)?;
        if let Some((purpose, _)) = opened.iter().find(|(purpose, _)| !receipt.question.opens(*purpose)) {
            return Err(ProtocolError::Denied(format!(
                "numbers of the kind {} do not belong to {}, of which the rows were counted",
                purpose.name(),
                receipt.question.name()
            )));
        }
        if receipt.files.is_empty() {
            return Err(ProtocolError::Denied(
                "none of the rows that were counted is of an encrypted file, so that there is nothing to open"
                    .to_owned(),
            ));
        }
        let numbers = opened.iter().fold(0u64, |sum, (_, count)| sum.saturating_add((*count).into()));
        let ask = Ask { day: now / SECONDS_A_DAY, files: &receipt.files, numbers, limit: receipt.numbers, digest };
        self.ledger.ask(ask).map_err(|error| refused(&error))
    }

    fn apply(
        &self,
        application: &[u8],
        holder: &dyn KeyHolder,
        rng: &mut dyn CryptoRng,
    ) -> Result<Admission, ProtocolError> {
        let application = Application::parse(application).map_err(|error| malformed(&error))?;
        let now = (self.now)();
        // A retry has spent already what it is going to.
        let spent = |recipient: &str, column| self.ledger.spent_besides(application.release, recipient, column);
        let policy = self.policy()?;
        let grant = policy.grant(&application, now, &spent).map_err(|refusal| match refusal {
            Refusal::BudgetSpent { .. } => ProtocolError::Exhausted(refusal.to_string()),
            other => ProtocolError::Denied(other.to_string()),
        })?;
        refuse_lost_flag(&application)?;
        let (mut header, mut columns) = (Vec::new(), Vec::new());
        for column in &application.columns {
            let (shown, permitted) = self.column(&column.name, &column.content, holder)?;
            header.push(shown);
            columns.extend(permitted);
        }
        let types = application.columns.iter().filter_map(|column| match &column.content {
            Content::Encrypted { cell_type, .. } => Some(cell_type),
            Content::Clear { .. } => None,
        });
        if hides_rows(types) {
            // Keys of rows, which those of suppressed rows are not to reach the recipient.
            columns.push(PermittedColumn { lanes: ROW_KEY_LANES, noise: Vec::new() });
        }
        let header = Header::new(application.release, application.recipient.clone(), header);
        let header = Zeroizing::new(header.to_bytes().map_err(|error| malformed(&error))?);
        let bound = associated(application.release, Party::P2, HEADER_NUMBER);
        let header =
            seal_to(&grant.recipient_key, SEAL_INFO, &bound, &header, rng).map_err(|error| malformed(&error))?;
        let header_digest = Digest::of(&header);
        let names: Vec<String> = application.columns.iter().map(|column| column.name.clone()).collect();
        let of_places = |places: &[usize]| places.iter().filter_map(|place| names.get(*place).cloned()).collect();
        let spent = grant.spends.iter().map(|spend| (spend.name.clone(), spend.epsilon)).collect();
        let permit = Permit {
            release: application.release,
            recipient: application.recipient,
            key: grant.recipient_key,
            query: application.query,
            header: header_digest,
            columns,
            k: grant.min_k.as_ref().map(|MinK { k, columns }| (*k, of_places(columns))),
            names,
            classes: None,
            spends: grant.spends.into_iter().map(Into::into).collect(),
            min_rows: grant.min_rows,
            suppressed: None,
            census: None,
            policy: policy.digest(),
            expires: grant.expires.min(now.saturating_add(PERMIT_LIFE.as_secs())),
        };
        let k = grant.min_k.map(|min| (min.k, min.columns));
        let terms = Terms { recipient_key: grant.recipient_key, k, spent };
        let terms = serde_json::to_vec(&terms).map_err(|error| ProtocolError::Internal(error.to_string()))?;
        Ok(Admission { permit: permit.seal(&self.permit_key(), rng)?, header, terms })
    }

    fn classes(&self, permit: &[u8], sizes: &ClassSizes, rng: &mut dyn CryptoRng) -> Result<Vec<u8>, ProtocolError> {
        let mut permit = self.open_permit(permit)?;
        let Some((required, columns)) = permit.k.clone() else {
            return Err(ProtocolError::Denied("the policy does not ask about classes of this release".to_owned()));
        };
        let counted = permit.counted()?;
        if counted.rows != u64::from(sizes.rows) {
            return Err(ProtocolError::Denied(format!(
                "classes of {} rows are to be counted, and the release has {}: begin it again",
                sizes.rows, counted.rows
            )));
        }
        if sizes.classes > 0 && sizes.smallest < required {
            return Err(ProtocolError::Denied(format!(
                "some rows of the release share {} with fewer than {} others, and the policy wants classes of {required}: k_anonymize them with k => {required}",
                columns.join(", "),
                required - 1
            )));
        }
        let smallest = Some(u64::from(sizes.smallest));
        permit.classes = Some(ClassCheck { required, columns, passed: true, smallest });
        permit.suppressed = Some(sizes.suppressed.into());
        permit.enough(counted.rows.saturating_sub(permit.nobody()))?;
        permit.seal(&self.permit_key(), rng)
    }

    fn lanes(&self, permit: &[u8]) -> Result<Vec<usize>, ProtocolError> {
        let permit = self.open_permit(permit)?;
        permit.is_complete()?;
        Ok(permit.columns.iter().map(|column| column.lanes).collect())
    }

    fn seal(&self, parcel: OpenedParcel<'_>, rng: &mut dyn CryptoRng) -> Result<SealedParcel, ProtocolError> {
        let permit = self.open_permit(parcel.permit)?;
        let OpenedParcel { number, rows, anchors, mut columns, .. } = parcel;
        if number == HEADER_NUMBER {
            return Err(ProtocolError::Malformed("parcels are counted from one".to_owned()));
        }
        permit.is_complete()?;
        let is_noised = permit.columns.iter().any(|column| !column.noise.is_empty());
        if is_noised || !permit.spends.is_empty() {
            let spends: Vec<crate::Spend> = permit.spends.iter().map(Into::into).collect();
            self.ledger.spend(permit.release, &permit.recipient, &spends).map_err(|error| refused(&error))?;
            let content = content(rows, &columns, &permit.columns)?;
            self.ledger.bind(permit.release, number, content).map_err(|error| refused(&error))?;
        }
        for (place, (column, permitted)) in columns.iter_mut().zip(&permit.columns).enumerate() {
            for (turn, (noise, diameter)) in permitted.noise.iter().enumerate() {
                let of = [number, place as u32, turn as u32].map(u32::to_le_bytes).concat();
                let seed = self.keys.secret("noise", &[&permit.release.0[..], &of].concat());
                add_noise(column, permitted.lanes, noise, *diameter, &mut ChaCha20Rng::from_seed(*seed))?;
            }
        }
        let columns = columns.into_iter().map(|column| (column.modulus, column.words)).collect();
        let values = MaskedValues { rows, columns }.to_bytes();
        let bound = associated(permit.release, Party::P2, number);
        let sealed = seal_to(&permit.key, SEAL_INFO, &bound, &values, rng).map_err(|error| malformed(&error))?;
        let of = SealedRows { release: permit.release, number, sealed: &Digest::of(&sealed) };
        let receipt = Receipt::new(rows, self.hash(&permit, anchors), &of, &self.keys);
        Ok(SealedParcel { sealed, receipt: receipt.as_bytes().to_vec() })
    }

    fn attest(&self, permit: &[u8], manifest: &[u8]) -> Result<Vec<u8>, ProtocolError> {
        let permit = self.open_permit(permit)?;
        let Unsigned { manifest, receipts } = serde_json::from_slice(manifest).map_err(|error| malformed(&error))?;
        let differs = |what: &str| {
            Err(ProtocolError::Denied(format!("the manifest has another {what} than the release: it is not signed")))
        };
        let names: Vec<&String> = manifest.columns.iter().map(|column| &column.name).collect();
        let spent: BTreeMap<&String, u64> = permit.spends.iter().map(|spend| (&spend.name, spend.epsilon)).collect();
        let said: BTreeMap<&String, u64> = manifest.spent.iter().map(|(name, epsilon)| (name, *epsilon)).collect();
        if manifest.release != permit.release || manifest.key_set != self.policy()?.key_set() {
            return differs("release");
        }
        if manifest.recipient != permit.recipient || manifest.query != permit.query {
            return differs("recipient or query");
        }
        if names != permit.names.iter().collect::<Vec<_>>() {
            return differs("list of columns");
        }
        if manifest.header != permit.header {
            return differs("header");
        }
        // Nothing was spent on nothing.
        let spent = if manifest.parcels == 0 { BTreeMap::new() } else { spent };
        if spent != said || manifest.classes != permit.classes {
            return differs("epsilon or k");
        }
        let numbers = 1..=manifest.parcels;
        if !numbers.clone().eq(manifest.digests.keys().copied()) || !numbers.eq(receipts.keys().copied()) {
            return differs("number of parcels");
        }
        let (mut rows, mut anchors) = (0, AnchorHash::default());
        for ((number, digests), receipt) in manifest.digests.iter().zip(receipts.values()) {
            let of = SealedRows { release: permit.release, number: *number, sealed: &digests.p2 };
            let Some((of_parcel, hash)) = Receipt::open(receipt, &of, &self.keys) else { return differs("parcel") };
            rows += u64::from(of_parcel);
            anchors = anchors.and(hash);
        }
        // What was sealed is what was counted: no row is in two parcels, and none is there that was not told.
        let counted = permit.counted()?;
        if counted.anchors != anchors || counted.rows != rows {
            return Err(ProtocolError::Denied(
                "the parcels of the release are of other rows than were counted before it: it is not signed".to_owned(),
            ));
        }
        if manifest.rows != rows || manifest.suppressed != permit.suppressed {
            return differs("number of rows");
        }
        permit.enough(rows.saturating_sub(permit.nobody()))?;
        let bytes = manifest.to_bytes().map_err(|error| malformed(&error))?;
        let attestation = self.keys.attest(MANIFEST_CONTEXT, &bytes);
        serde_json::to_vec(&attestation).map_err(|error| ProtocolError::Internal(error.to_string()))
    }
}

fn malformed(why: &dyn ToString) -> ProtocolError {
    ProtocolError::Malformed(why.to_string())
}

fn refused(error: &LedgerError) -> ProtocolError {
    match error {
        LedgerError::OverBudget { .. } | LedgerError::NumbersSpent { .. } | LedgerError::ManyFiles(_) => {
            ProtocolError::Exhausted(error.to_string())
        }
        LedgerError::OtherRelease(_) | LedgerError::OtherParcel { .. } => ProtocolError::Denied(error.to_string()),
        // Paths of P2 are its own business.
        _ => ProtocolError::Internal("P2's ledger cannot be written; its log says more".to_owned()),
    }
}

/// Refuses columns of a table of which rows are suppressed, without the column that tells which.
fn refuse_lost_flag(application: &Application) -> Result<(), ProtocolError> {
    let types = || {
        application.columns.iter().filter_map(|column| match &column.content {
            Content::Encrypted { cell_type, .. } => Some((column, cell_type)),
            Content::Clear { .. } => None,
        })
    };
    let is_told = |run: u64| types().any(|(_, other)| other.role == Role::Suppressed && other.withheld == run);
    match types().find(|(_, cell_type)| cell_type.withheld != 0 && !is_told(cell_type.withheld)) {
        None => Ok(()),
        Some((column, _)) => Err(ProtocolError::Denied(format!(
            "some rows of {} are suppressed, and the column that tells which is not among those of the release: add it (suppressed)",
            column.name
        ))),
    }
}

/// The distance of a column's bounds, for the scale of its noise.
fn diameter(
    name: &str,
    cell_type: &CellType,
    constants: Option<&str>,
    holder: &dyn KeyHolder,
) -> Result<u64, ProtocolError> {
    if let Some((low, high)) = cell_type.bounds {
        return Ok(high.abs_diff(low));
    }
    let Some(constants) = constants else {
        return Err(ProtocolError::Misuse(format!(
            "the bounds of {name} are not known any more, and with them the scale of P2's noise: add noise last"
        )));
    };
    let constants = ColumnConstants::from_metadata(constants).map_err(|error| malformed(&error))?;
    let [low, high] = [constants.lower, constants.upper].map(|cell| open_constant(&cell, holder));
    Ok(high?.abs_diff(low?))
}

/// A cell with one sample.
fn open_constant(cell: &Cell, holder: &dyn KeyHolder) -> Result<i64, ProtocolError> {
    let damaged = || ProtocolError::Malformed("the bounds of a column are damaged".to_owned());
    let ([term], [body]) = (cell.terms(), cell.bodies()) else { return Err(damaged()) };
    if term.coefficient != 1 || cell.key_id() != holder.key_id() {
        return Err(damaged());
    }
    let sample = Sample { seed: term.seed, index: term.index, body: *body };
    let opened = holder.open_samples(&[sample]);
    opened.first().map(|phase| message_of_phase(*phase)).ok_or_else(damaged)
}

/// What a parcel number stands for: masked words, and the noise that they get.
fn content(rows: u32, columns: &[OpenedColumn], permitted: &[PermittedColumn]) -> Result<[u8; 32], ProtocolError> {
    let mut hash = Sha256::new();
    let permitted = serde_json::to_vec(permitted).map_err(|error| ProtocolError::Internal(error.to_string()))?;
    hash.update((permitted.len() as u64).to_le_bytes());
    hash.update(&permitted);
    hash.update(rows.to_le_bytes());
    for column in columns {
        hash.update([column.modulus.to_byte()]);
        hash.update((column.words.len() as u64).to_le_bytes());
        column.words.iter().for_each(|word| hash.update(word.to_le_bytes()));
    }
    Ok(hash.finalize().into())
}

/// Noise that is added to values.
enum Added {
    Laplace(LaplaceMechanism),
    Geometric(GeometricMechanism),
}

fn noise_of(noise: &veil_cells::JointNoise, diameter: u64) -> Result<Added, String> {
    let epsilon = Epsilon::from_millionths(noise.epsilon).map_err(|error| error.to_string())?;
    match noise.mechanism {
        Mechanism::Laplace => LaplaceMechanism::new(diameter, epsilon).map(Added::Laplace),
        Mechanism::Geometric => GeometricMechanism::new(diameter, epsilon).map(Added::Geometric),
        other => return Err(format!("{other:?} is not added to values")),
    }
    .map_err(|error| error.to_string())
}

/// Adds noise to the first lane.
fn add_noise(
    column: &mut OpenedColumn,
    lanes: usize,
    noise: &veil_cells::JointNoise,
    diameter: u64,
    rng: &mut ChaCha20Rng,
) -> Result<(), ProtocolError> {
    let mut drawn = Zeroizing::new(vec![0i64; column.words.len() / lanes.max(1)]);
    match noise_of(noise, diameter).map_err(|_| ProtocolError::Misuse(NO_NOISE.to_owned()))? {
        Added::Laplace(mechanism) => mechanism.fill(&mut drawn, rng),
        Added::Geometric(mechanism) => mechanism.fill(&mut drawn, rng),
    }
    let modulus = column.modulus;
    column.words.iter_mut().zip(drawn.iter()).for_each(|(word, noise)| *word = modulus.add(*word, *noise));
    Ok(())
}
