//! Whether anybody saw too much; what is left; and what to do next.

use std::fs;
use std::path::Path;

use arrow::ipc::writer::StreamWriter;
use indicatif::{HumanBytes, HumanCount};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

use super::canaries::{Canaries, SHORTEST};
use super::chapter_6_k_anonymize::Anonymised;
use super::chapter_8_release::Released;
use super::followed::follow;
use super::parties::Parties;
use super::story::seconds;
use super::table::Table;
use super::{Failure, Scene, broken, file_name, folder};
use crate::Outcome;

pub(super) fn tell(
    scene: &mut Scene,
    parties: Parties,
    anonymised: &Anonymised,
    released: &Released,
    report: &str,
) -> Outcome {
    scene.story.chapter("Did anybody see too much?")?;
    let canaries = Canaries::new(scene.data.canaries());
    let wires = [("between P1 and P2", parties.rounds.clone()), ("between callers and P1", parties.calls.clone())];
    // Their logs are complete, and nothing passes any more, once they have ended.
    drop(parties);
    let mut places = Vec::new();
    for (name, wire) in wires {
        places.push((name.to_owned(), wire.passed().iter().sum::<u64>(), wire.heard().into_iter().next()));
    }
    for (party, what) in [("p1", "P1's folder: data, tables it made, log"), ("p2", "P2's folder: ledger, log")] {
        let (bytes, found) = search(&scene.at(party), &canaries)?;
        places.push((what.to_owned(), bytes, found));
    }
    let own = format!("{}.csv", scene.data.table);
    let control = canaries.find(&fs::read(scene.at(&own))?).count();
    if canaries.len() == 0 {
        scene.story.say(&format!(
            "{own} has no names, texts or labels of {SHORTEST} letters or more that are secret: shorter ones stand everywhere by chance, so \
             that there is nothing to search for."
        ))?;
    } else {
        let words = HumanCount(canaries.len() as u64);
        scene.story.say(&format!(
            "{words} names, texts and labels stand in clear in the owner's {own}, {} times. They were searched for, byte by byte, \
             and tables once more as their readers unpack them, in",
            HumanCount(control as u64)
        ))?;
        let row = |(name, bytes, found): &(String, u64, Option<String>)| {
            let found = found.as_ref().map_or_else(|| "none".to_owned(), |word| format!("`{word}`"));
            vec![name.clone(), HumanBytes(*bytes).to_string(), found]
        };
        scene.story.table(&Table::new(&["where", "searched", "found"], places.iter().map(row).collect()))?;
        if let Some((name, _, Some(word))) = places.iter().find(|(.., found)| found.is_some()) {
            return Err(broken(&format!("`{word}` stands in clear {name}")));
        }
    }
    let back = ["decrypt", &scene.encrypted(), "--keys", "keys/owner.keys", "-o", "back.csv"];
    scene.command(&back)?;
    compare(scene, &own)?;
    scene.story.pause()?;
    summary(scene, anonymised, released)?;
    end(scene, released, report)
}

/// The first word that stands in a file of a folder, and how many bytes were looked at. Tables are compressed, so that words in
/// them are found in what a reader unpacks.
fn search(folder: &Path, canaries: &Canaries) -> Result<(u64, Option<String>), Failure> {
    let (mut bytes, mut found) = (0, None);
    for file in folder::files(folder)? {
        let mut look = |content: &[u8]| {
            bytes += content.len() as u64;
            let word = || canaries.find(content).next().map(|word| String::from_utf8_lossy(word).into_owned());
            found = found.take().or_else(|| Some(format!("{} in {}", word()?, file_name(&file))));
        };
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        look(&fs::read(&file).map_err(|error| named(&error))?);
        if file.extension().is_some_and(|extension| extension == "parquet") {
            unpack(&file, &mut look).map_err(|error| named(&error))?;
        }
    }
    Ok((bytes, found))
}

/// Shows all that is in a Parquet file, a piece after the other, as an Arrow stream without compression.
fn unpack(file: &Path, look: &mut impl FnMut(&[u8])) -> Outcome {
    let reader = ParquetRecordBatchReaderBuilder::try_new(fs::File::open(file)?)?;
    let schema = reader.schema().clone();
    for batch in reader.build()? {
        let mut stream = StreamWriter::try_new(Vec::new(), &schema)?;
        stream.write(&batch?)?;
        look(&stream.into_inner()?);
    }
    Ok(())
}

/// Only the owner's keys bring the true values back.
fn compare(scene: &mut Scene, own: &str) -> Outcome {
    let (clear, back) = (fs::read(scene.at(own))?, fs::read(scene.at("back.csv"))?);
    let rows = HumanCount(scene.data.rows() as u64);
    if clear == back {
        return scene
            .story
            .say(&format!("Only the owner's keys bring the true values back: {rows} rows came back to the byte."));
    }
    if scene.data.is_sample {
        return Err(broken("the decrypted table is not the original one"));
    }
    let back = Table::read(&scene.at("back.csv"), usize::MAX)?.0;
    let pairs = scene.data.clear.rows.iter().flatten().zip(back.rows.iter().flatten());
    let spelled = HumanCount(pairs.filter(|(before, after)| before != after).count() as u64);
    scene.story.say(&format!(
        "Only the owner's keys bring the true values back: {rows} rows came back, {spelled} values spelled otherwise."
    ))
}

/// The same people with the owner, with P1 and with alice.
fn summary(scene: &mut Scene, anonymised: &Anonymised, released: &Released) -> Outcome {
    let (data, quasi) = (&scene.data, &scene.data.quasi);
    let people = follow(data, &anonymised.study, &anonymised.rows, quasi);
    if people.is_empty() {
        return Ok(());
    }
    let (name, classes) = (data.names.first().cloned().unwrap_or_else(|| "who".to_owned()), released.rows.by(quasi));
    let columns: Vec<String> = [name].into_iter().chain(quasi.iter().cloned()).collect();
    let mut rows = Vec::new();
    for person in people {
        let first = |who: &str| vec![who.to_owned()];
        rows.push([first("the owner"), anonymised.study.values(&person.before, &columns)].concat());
        rows.push([first("P1"), vec!["encrypted".to_owned(); columns.len()]].concat());
        let class = person.after.map(|row| anonymised.rows.values(&row, quasi));
        rows.push(match class.as_ref().and_then(|class| Some((class, classes.get(class)?.len()))) {
            Some((class, alike)) => [first("alice"), vec![format!("one of {alike}")], class.clone()].concat(),
            None => [first("alice"), vec!["suppressed".to_owned()]].concat(),
        });
    }
    let names = [String::new()].into_iter().chain(columns).collect();
    scene.story.say("What everybody has of the same people, in the end:")?;
    scene.story.table(&Table { names, rows })
}

/// Where everything is, and commands to go on with.
fn end(scene: &mut Scene, released: &Released, report: &str) -> Outcome {
    let took = seconds(scene.started.elapsed());
    scene.story.pause()?;
    scene.story.say(&format!("All of it took {took}. It is in {}; about.txt says what is what.", scene.shown("")))?;
    scene.story.say(&format!("The report: {report}"))?;
    scene.story.pause()?;
    scene.story.say("What to try next, from the folder that you are in:")?;
    let program = std::env::args().next().unwrap_or_else(|| "veil".to_owned());
    let at = |name: &str| scene.shown(name);
    let (encrypted, manifest, owner) = (at(&scene.encrypted()), at(&released.manifest), at("keys/owner.pub"));
    let (p1_keys, p2_keys, alice) = (at("keys/p1.keys"), at("keys/p2.keys"), at("alice/recipient.key"));
    let (policy, state) = (at("policy.signed"), at("p2/state"));
    let from = scene.data.named(&encrypted);
    let anon = format!("anon={}", at("p1/anon.veil.parquet"));
    let (p1, p2) = ("http://127.0.0.1:7711", "http://127.0.0.1:7722");
    let story = &mut scene.story;
    story.typed(&program, "", &["inspect", &encrypted])?;
    story.typed(&program, "", &["verify", &manifest, "--owner", &owner])?;
    story.say("The engine's shell, with both servers in one process:")?;
    story.typed(&program, "", &["sql", "--keys", &p1_keys, "--embedded-p2", &p2_keys, "--table", &from])?;
    let left = released.left.map(|left| format!("; of epsilon, alice has {left} left")).unwrap_or_default();
    story.say(&format!("The three parties in a terminal each{left}:"))?;
    story.typed(&program, "P2", &["p2", "--keys", &p2_keys, "--policy", &policy, "--state", &state])?;
    story.typed(&program, "P1", &["serve", "--keys", &p1_keys, "--p2", p2, "--table", &anon])?;
    let fetch = ["fetch", "--from", p1, "--key", &alice, "--owner", &owner, "-o", "mine.csv", "--sql", &released.sql];
    story.typed(&program, "alice", &fetch)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, RecordBatch, StringArray};
    use parquet::arrow::ArrowWriter;
    use parquet::basic::{Compression, ZstdLevel};
    use parquet::file::properties::WriterProperties;

    use super::*;

    /// A table that P1 would have written in clear, packed as its tables are.
    #[test]
    fn words_in_packed_tables_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..500).map(|at| format!("Patient {}", at * 7919 % 1000)).collect();
        let column: ArrayRef = Arc::new(StringArray::from(names.clone()));
        let batch = RecordBatch::try_from_iter([("name", column)]).unwrap();
        let packed = Compression::ZSTD(ZstdLevel::try_new(3).unwrap());
        let properties = WriterProperties::builder().set_compression(packed).set_dictionary_enabled(false).build();
        let file = folder.path().join("table.parquet");
        let mut writer =
            ArrowWriter::try_new(fs::File::create(&file).unwrap(), batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        let canaries = Canaries::new(names.into_iter().skip(1).step_by(50).collect());
        let packed = fs::read(&file).unwrap();
        assert!(canaries.find(&packed).count() < 5, "compression hides words");
        let (bytes, found) = search(folder.path(), &canaries).unwrap();
        assert!(bytes > packed.len() as u64);
        assert!(found.unwrap().ends_with(" in table.parquet"));
    }
}
