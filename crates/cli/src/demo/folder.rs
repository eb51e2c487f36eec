//! The demo's folder: made anew, and replaced only if a demo made it.

use std::fs;
use std::path::{Path, PathBuf};

use veil_owner::OwnerError;

type Failure = Box<dyn std::error::Error>;

/// Says what the folder is, to people and to the next demo.
const ABOUT: &str = "about.txt";

const FIRST_LINE: &str = "Made by `veil demo`, and replaced by `veil demo --force`.";

const TEXT: &str = "
*.csv, *.toml    the owner's clear data and its declaration; *.csv also what the owner decrypted
keys/            the key set; owner.keys opens everything
*.veil.parquet   the encrypted table
p1/              all that P1, the engine, had: encrypted data, its key, tokens of callers, its log
p2/              all that P2, the key holder, had: its keys, the policy, its ledger, its log
alice/           the recipient's key, the rows that were released to her, and their manifest
policy.toml      what the owner allowed, and policy.signed under the owner's signature
report.html      risk and utility, before and after
";

/// The folders of the parties.
const PARTIES: [&str; 3] = ["p1", "p2", "alice"];

/// Refuses a file of the user's that would be removed with the folder.
pub(super) fn keep_out(folder: &Path, file: &Path) -> Result<(), Failure> {
    let shown = file.display();
    let canonical = file.canonicalize().map_err(|error| format!("{shown}: {error}"))?;
    if folder.canonicalize().is_ok_and(|folder| canonical.starts_with(folder)) {
        let folder = folder.display();
        return Err(format!("{shown} is in {folder}, which the demo replaces: choose another folder with -o").into());
    }
    Ok(())
}

/// Makes the folder and those of the parties in it.
pub(super) fn prepare(folder: &Path, force: bool) -> Result<PathBuf, Failure> {
    let io = |source| OwnerError::Io { file: folder.to_owned(), source };
    let is_empty = || fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    if folder.exists() && !is_empty() {
        if !force {
            return Err(OwnerError::Exists(folder.to_owned()).into());
        }
        let about = fs::read_to_string(folder.join(ABOUT)).unwrap_or_default();
        if about.lines().next() != Some(FIRST_LINE) {
            let folder = folder.display();
            return Err(
                format!("{folder} was not made by this demo: remove it yourself, or choose another with -o").into()
            );
        }
        fs::remove_dir_all(folder).map_err(io)?;
    }
    let mut folders = fs::DirBuilder::new();
    folders.recursive(true);
    // Clear data is in it.
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut folders, 0o700);
    for party in PARTIES {
        folders.create(folder.join(party)).map_err(io)?;
    }
    fs::write(folder.join(ABOUT), format!("{FIRST_LINE}\n{TEXT}")).map_err(io)?;
    Ok(folder.to_owned())
}

/// All files below a folder, with their sizes.
pub(super) fn files(folder: &Path) -> Result<Vec<(PathBuf, u64)>, Failure> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
        match kind.is_dir() {
            true => found.extend(files(&path)?),
            false => found.push((path, kind.len())),
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_demo_made_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let (mine, theirs) = (place.path().join("demo"), place.path().join("precious"));
        prepare(&mine, false).unwrap();
        fs::write(mine.join("p1/old"), "x").unwrap();
        #[cfg(unix)]
        {
            let mode = std::os::unix::fs::PermissionsExt::mode(&mine.metadata().unwrap().permissions());
            assert_eq!(mode & 0o777, 0o700);
        }
        assert!(prepare(&mine, false).unwrap_err().to_string().contains("exists already"));
        prepare(&mine, true).unwrap();
        assert!(!mine.join("p1/old").exists() && mine.join("alice").exists());
        fs::create_dir(&theirs).unwrap();
        prepare(&theirs, false).unwrap();
        fs::remove_file(theirs.join(ABOUT)).unwrap();
        assert!(prepare(&theirs, true).unwrap_err().to_string().contains("was not made by this demo"));
        assert!(theirs.join("p2").exists());
        assert_eq!(files(&mine).unwrap().len(), 1);
    }
}
