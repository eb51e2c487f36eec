//! The owner allows, P2 insists, and alice alone reads.

use std::fs;

use indicatif::HumanCount;
use veil_privacy::SpentEpsilon;
use veil_release::SignedManifest;

use super::chapter_6_k_anonymize::Anonymised;
use super::parties::{P2_COMMAND, Parties};
use super::table::Table;
use super::{Failure, Scene, broken, dataset, rules};

/// How many such releases the budget of epsilon is for.
const RELEASES: f64 = 3.0;

/// What alice got.
pub(super) struct Released {
    pub(super) rows: Table,
    /// The manifest of her file.
    pub(super) manifest: String,
    /// Her query.
    pub(super) sql: String,
    /// What she may still spend, if a column has noise.
    pub(super) left: Option<f64>,
}

pub(super) fn tell(scene: &mut Scene, parties: &mut Parties, anonymised: &Anonymised) -> Result<Released, Failure> {
    scene.story.chapter("The owner allows it, and it is released to alice")?;
    scene.story.say("alice makes her own key. The owner says who may receive what, and signs it:")?;
    scene.command(&["recipient", "keygen", "-o", "alice/"])?;
    let policy = policy(scene)?;
    rules::sign(scene, &policy)?;
    scene.story.pause()?;
    scene.story.say("P2 is stopped and started again with it; P1 finds it by itself:")?;
    scene.story.command("p2", &P2_COMMAND)?;
    parties.restart_p2()?;

    let data = &scene.data;
    let name = data.names.first().or(data.untouched.first()).cloned();
    // Rows that are alike as they are may leave as they are.
    let is_raw = anonymised.study.by(&data.quasi).values().any(|rows| rows.len() < scene.k);
    let raw = is_raw.then(|| format!("SELECT {} FROM study", dataset::listed(&data.quasi)));
    let forbidden = name.map(|name| format!("SELECT {} FROM study", dataset::quoted(&name)));
    let mark = parties.mark()?;
    scene.story.pause()?;
    let then = match forbidden.is_some() || raw.is_some() {
        true => {
            scene.story.say("alice tries to get more than she may:")?;
            "And what she may:"
        }
        false => "alice asks for what she may have:",
    };
    for sql in forbidden.iter().chain(&raw) {
        let refused = fetch(scene, parties, sql, "alice/more.csv")?;
        // Another failure would prove nothing.
        if refused.code == Some(0) || !refused.said.contains(" refuses: ") || scene.at("alice/more.csv").exists() {
            return Err(broken(&format!(
                "P2 did not refuse what the policy does not allow ({})",
                refused.said.trim_end()
            )));
        }
        scene.story.printed(&refused.said)?;
    }
    scene.story.pause()?;
    scene.story.say(then)?;
    let data = &scene.data;
    let columns = data.quasi.iter().map(|name| dataset::quoted(name)).chain(data.noise().map(|(call, _)| call));
    let sql = format!("SELECT {}\nFROM anon", dataset::in_lines(columns.chain(["suppressed".to_owned()])));
    let file = format!("alice/{}.csv", data.table);
    let ran = fetch(scene, parties, &sql, &file)?.succeeded()?;
    scene.story.printed(&ran.said)?;
    let cost = parties.since(&mark)?;

    let rows = Table::read(&scene.at(&file), usize::MAX)?.0;
    scene.story.table(&rows.head(&rows.names, 3))?;
    let manifest = format!("alice/{}.manifest.json", scene.data.table);
    verify(scene, &manifest)?;
    compare(scene, &rows, anonymised)?;
    scene.story.pause()?;
    scene.story.seen("P1 saw", "what was refused and granted, how many classes there are, the smallest of them, and how many rows are suppressed; no encrypted value")?;
    scene.story.seen(
        "P2 saw",
        "values behind masks, and classes of what it sealed, which it counted itself before it opened anything",
    )?;
    scene.story.seen(
        "alice got",
        &format!("{} rows, in classes of at least {}", HumanCount(rows.rows.len() as u64), scene.k),
    )?;
    scene.story.cost(&cost)?;
    let left = scene.data.noise().map(|(_, epsilon)| (RELEASES - 1.0) * epsilon);
    Ok(Released { rows, manifest, sql, left })
}

/// What the owner allows.
fn policy(scene: &Scene) -> Result<String, Failure> {
    let public = rules::read(scene, "alice/recipient.pub")?;
    let key = public.split_whitespace().find(|word| word.starts_with("x25519:")).unwrap_or_default();
    let data = &scene.data;
    let text = |name: &String| serde_json::Value::from(name.as_str()).to_string();
    let names = |names: &mut dyn Iterator<Item = &String>| dataset::in_lines(&mut names.map(text));
    let columns = names(&mut data.quasi.iter().chain(&data.noised));
    let mut policy = rules::about_questions(scene)?;
    policy += &format!(
        "[recipient.alice]\nkey = \"{key}\"\n[[recipient.alice.allow]]\ntable = {}\ncolumns = [{columns}]\n\
         min_k = {}\nk_columns = [{}]\n",
        text(&data.table),
        scene.k,
        names(&mut data.quasi.iter())
    );
    if let Some((noised, (_, epsilon))) = data.noised.as_ref().zip(data.noise()) {
        policy += &format!("epsilon = {{ {} = {:.1} }}\n", text(noised), RELEASES * epsilon);
    }
    Ok(policy)
}

/// `veil fetch`, as alice.
fn fetch(scene: &mut Scene, parties: &Parties, sql: &str, file: &str) -> Result<super::commands::Ran, Failure> {
    let from = parties.calls.url();
    let who = ["--key", "alice/recipient.key", "--owner", "keys/owner.pub", "--token-file", "alice/token"];
    let words = [&["fetch", "--from", &from, "--sql", sql][..], &who, &["-o", file]].concat();
    scene.story.command("", &words)?;
    scene.program.run(&words)
}

/// What both servers signed, with the epsilon that was spent.
fn verify(scene: &mut Scene, manifest: &str) -> Result<(), Failure> {
    let words = ["verify", manifest, "--owner", "keys/owner.pub"];
    scene.story.command("", &words)?;
    let ran = scene.program.run(&words)?.succeeded()?;
    let kept = ["recipient", "rows", "suppressed", "classes", "spent"];
    let lines = ran.out.lines().filter(|line| kept.iter().any(|start| line.starts_with(&format!("{start:<11} "))));
    scene.story.printed(&lines.collect::<Vec<_>>().join("\n"))?;
    scene.story.printed(&format!("[..]\n{}", ran.said))?;
    let signed = SignedManifest::parse(&fs::read(scene.at(manifest))?)?.manifest;
    let spent = scene.data.noised.as_ref().and_then(|name| signed.spent.get(name)).copied().unwrap_or(0);
    if let Some((name, (_, epsilon))) = scene.data.noised.clone().zip(scene.data.noise()) {
        if spent != (epsilon * 1e6) as u64 {
            return Err(broken(&format!(
                "{epsilon} of epsilon was to be spent on {name}, and the manifest has another"
            )));
        }
        let spent = SpentEpsilon::from_millionths(spent);
        scene.story.say(&format!(
            "Epsilon {spent} of {} is spent on {name}, whose values P1 changed now and then, and P2 again: neither knows which \
             are true. P2 keeps this in its ledger, and refuses what goes beyond.",
            RELEASES * epsilon
        ))?;
    }
    Ok(())
}

/// What alice reads against what the owner does, row by row in any order.
fn compare(scene: &mut Scene, rows: &Table, anonymised: &Anonymised) -> Result<(), Failure> {
    let sorted = |table: &Table| {
        let mut values: Vec<Vec<String>> = table.rows.iter().map(|row| table.values(row, &scene.data.quasi)).collect();
        values.sort();
        values
    };
    match sorted(rows) == sorted(&anonymised.rows) {
        true => scene.story.say("Her rows are those that the owner decrypts, all of them, and no others."),
        false => Err(broken("alice's rows are not those that the owner decrypts")),
    }
}
