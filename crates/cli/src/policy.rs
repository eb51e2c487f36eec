//! `veil policy`: the owner signs who may receive what, and anyone looks at it.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::util::pretty::pretty_format_batches;
use clap::{Args, Subcommand};
use veil_keys::{KeyError, KeyFile, OwnerKeys};
use veil_privacy::SpentEpsilon;
use veil_release::{AskRule, AskRules, POLICY_CONTEXT, Policy, Recipient, ReleaseError, Rule, SignedPolicy, last_day};

use crate::Outcome;
use crate::owner_public;
use crate::progress::say;

/// Say who may receive what, and sign it
#[derive(Args)]
#[command(after_help = "\
Examples:
  veil policy sign policy.toml --keys keys/owner.keys -o policy.signed
  veil policy show policy.signed --owner keys/owner.pub

A policy:
  [policy]
  key_set = \"789eae0deb93973d\"            # from owner.pub
  expires = \"2027-01-31\"                  # optional: the last day, in UTC
  [recipient.alice]
  key = \"x25519:..\"                       # from recipient.pub
  [[recipient.alice.allow]]
  table = \"patients\"
  columns = [\"born\", \"sex\", \"zip\", \"cost\"]
  min_k = 10                              # optional: only in classes of ten equal rows
  k_columns = [\"born\", \"sex\", \"zip\"]      # optional: equal in these columns
  epsilon = { cost = 2.0 }                # optional: only with noise, and at most so much of all releases together
  min_rows = 100                          # optional: the fewest people of a release
  [ask]                                   # optional: what the engine may ask about rows; these are the numbers without it
  min_rows = 100                          # the fewest rows of a question
  numbers = 10000                         # numbers that questions about a file may open a day
  [[ask.allow]]                           # optional: where there are any, nothing else may be asked about
  table = \"patients\"
  columns = [\"born\", \"sex\", \"zip\"]
  questions = [\"identifiers\", \"risk\"]     # optional: all
  min_rows = 50                           # optional, as numbers: instead of the general ones")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Sign(Sign),
    Show(Show),
}

/// Check a policy, show what it allows, and sign it with the owner's keys
#[derive(Args)]
#[command(after_help = "\
Example:
  veil policy sign policy.toml --keys keys/owner.keys -o policy.signed")]
struct Sign {
    /// The policy: .toml
    policy: PathBuf,
    /// The owner's keys
    #[arg(long, value_name = "FILE")]
    keys: PathBuf,
    /// The signed policy to write, for the key holder
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
    /// No table, no closing line
    #[arg(short, long)]
    quiet: bool,
}

/// Show what a signed policy allows
#[derive(Args)]
#[command(after_help = "\
Examples:
  veil policy show policy.signed --owner keys/owner.pub
  veil policy show policy.signed      without checking who signed it")]
struct Show {
    /// The signed policy
    policy: PathBuf,
    /// The owner's public key, to check the signature with
    #[arg(long, value_name = "FILE")]
    owner: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    match &arguments.command {
        Command::Sign(arguments) => sign(arguments),
        Command::Show(arguments) => show(arguments),
    }
}

fn sign(arguments: &Sign) -> Outcome {
    let Sign { policy: file, output, .. } = arguments;
    let bytes = read(file)?;
    let text = String::from_utf8(bytes).map_err(|_| format!("{} is not text", file.display()))?;
    let policy = Policy::parse(&text).map_err(in_file(file))?;
    let keys = OwnerKeys::load(&arguments.keys)?;
    if policy.key_set() != keys.key_id() {
        let (found, expected) = (policy.key_set(), keys.key_id());
        return Err(in_file(file)(ReleaseError::WrongKeySet { what: "the policy", found, expected }).into());
    }
    let signature = keys.signing().sign(POLICY_CONTEXT, text.as_bytes());
    write(output, &SignedPolicy::write(&text, &signature), arguments.force)?;
    if !arguments.quiet {
        writeln!(std::io::stdout(), "{}", describe(&policy)?)?;
        say(&format!("Signed for key set {}: give {} to the key holder", keys.key_id(), output.display()));
    }
    Ok(())
}

fn show(arguments: &Show) -> Outcome {
    let file = &arguments.policy;
    let signed = SignedPolicy::parse(&read(file)?).map_err(in_file(file))?;
    let policy = match &arguments.owner {
        Some(owner) => {
            let owner = owner_public::read(owner)?;
            let bytes = SignedPolicy::write(&signed.text, &signed.signature);
            SignedPolicy::open(&bytes, owner.key_set, &owner.key).map_err(in_file(file))?
        }
        None => Policy::parse(&signed.text).map_err(in_file(file))?,
    };
    writeln!(std::io::stdout(), "{}", describe(&policy)?)?;
    say(match arguments.owner {
        Some(_) => "The owner's signature holds",
        None => "warning: the signature was not checked; give the owner's key with --owner keys/owner.pub",
    });
    Ok(())
}

fn read(file: &Path) -> Result<Vec<u8>, KeyError> {
    std::fs::read(file).map_err(|source| KeyError::Io { path: file.to_owned(), source })
}

fn in_file(file: &Path) -> impl Fn(ReleaseError) -> String + '_ {
    move |error| format!("{}: {error}", file.display())
}

/// Writes a file. Without `force` an existing one is left alone.
fn write(file: &Path, bytes: &[u8], force: bool) -> Result<(), KeyError> {
    let mut open = OpenOptions::new();
    open.write(true).create(true).truncate(true).create_new(!force);
    match open.open(file).and_then(|mut opened| opened.write_all(bytes)) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Err(KeyError::Exists(file.to_owned())),
        Err(source) => Err(KeyError::Io { path: file.to_owned(), source }),
    }
}

/// What a table's column shows of a rule.
type Shown = fn(&str, &Recipient, &Rule) -> String;

/// The policy as a table.
fn describe(policy: &Policy) -> Result<String, arrow::error::ArrowError> {
    let columns: [(&str, Shown); 8] = [
        ("recipient", |name, _, _| name.to_owned()),
        ("table", |_, _, rule| rule.table.clone()),
        ("columns", |_, _, rule| rule.columns.keys().cloned().collect::<Vec<_>>().join(", ")),
        ("rows alike", |_, _, rule| rule.min_k.map_or_else(String::new, |k| format!("at least {k}"))),
        ("in", |_, _, rule| rule.k_columns.join(", ")),
        ("epsilon, in all", |_, _, rule| {
            let budget =
                |(name, epsilon): (&String, &u64)| format!("{name} {}", SpentEpsilon::from_millionths(*epsilon));
            rule.epsilon.iter().map(budget).collect::<Vec<_>>().join(", ")
        }),
        ("rows", |_, _, rule| if rule.min_rows > 0 { format!("at least {}", rule.min_rows) } else { String::new() }),
        ("until", |_, recipient, _| recipient.expires.map_or_else(String::new, last_day)),
    ];
    let rules = || {
        policy
            .recipients()
            .iter()
            .flat_map(|(name, recipient)| recipient.rules.iter().map(move |rule| (name, recipient, rule)))
    };
    let table = columns.map(|(title, shown)| {
        let values: StringArray = rules().map(|(name, recipient, rule)| Some(shown(name, recipient, rule))).collect();
        (title, Arc::new(values) as ArrayRef)
    });
    let until = policy.expires().map_or_else(|| "without end".to_owned(), |end| format!("until {}", last_day(end)));
    let mut text = format!("key set {}, {until}\n", policy.key_set());
    match rules().next() {
        Some(_) => text.push_str(&pretty_format_batches(&[RecordBatch::try_from_iter(table)?])?.to_string()),
        None => text.push_str("nobody may receive anything"),
    }
    for (name, recipient) in policy.recipients() {
        text.push_str(&format!("\n{name}: {}", recipient.key));
    }
    text.push_str(&describe_questions(policy.ask())?);
    Ok(text)
}

/// What a column shows of a rule for questions.
type ShownAsk = fn(&AskRule) -> String;

/// What may be asked, as a line and, where there are rules by tables, a table.
fn describe_questions(rules: &AskRules) -> Result<String, arrow::error::ArrowError> {
    let numbers = |rows: u64, numbers: u64| format!("{rows} rows and more, up to {numbers} numbers a file and day");
    if rules.allow.is_empty() {
        return Ok(format!("\nquestions about any table: of {}", numbers(rules.min_rows, rules.numbers)));
    }
    let columns: [(&str, ShownAsk); 5] = [
        ("questions about", |rule| rule.table.clone()),
        ("columns", |rule| rule.columns.keys().cloned().collect::<Vec<_>>().join(", ")),
        ("questions", |rule| rule.questions.iter().map(|question| question.name()).collect::<Vec<_>>().join(", ")),
        ("rows", |rule| format!("at least {}", rule.min_rows)),
        ("numbers a file and day", |rule| rule.numbers.to_string()),
    ];
    let table = columns.map(|(title, shown)| {
        let values: StringArray = rules.allow.iter().map(|rule| Some(shown(rule))).collect();
        (title, Arc::new(values) as ArrayRef)
    });
    Ok(format!("\n{}", pretty_format_batches(&[RecordBatch::try_from_iter(table)?])?))
}
