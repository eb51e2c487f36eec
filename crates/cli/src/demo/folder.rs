//! The demo's folder: made anew, and replaced only if a demo made it.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
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

/// A folder that is being made inside the one that was asked for. What stands there already stays until [`put`](Self::put), and
/// for good if that never comes.
pub(super) struct Begun {
    folder: PathBuf,
    is_new: bool,
    /// Nothing once it has been put.
    draft: Option<TempDir>,
}

impl Begun {
    /// Makes the draft with the folders of the parties in it, if the folder may be replaced.
    pub(super) fn new(folder: &Path, force: bool) -> Result<Self, Failure> {
        let io = |source| OwnerError::Io { file: folder.to_owned(), source };
        let is_new = !folder.exists();
        if !is_new && fs::read_dir(folder).map_err(io)?.next().is_some() {
            if !force {
                return Err(OwnerError::Exists(folder.to_owned()).into());
            }
            let about = fs::read_to_string(folder.join(ABOUT)).unwrap_or_default();
            if about.lines().next() != Some(FIRST_LINE) {
                let folder = folder.display();
                return Err(format!(
                    "{folder} was not made by this demo: remove it yourself, or choose another with -o"
                )
                .into());
            }
        }
        let mut folders = fs::DirBuilder::new();
        folders.recursive(true);
        // Clear data is in it.
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut folders, 0o700);
        folders.create(folder).map_err(io)?;
        // From here on a mistake takes with it what was made.
        let mut begun = Self { folder: folder.to_owned(), is_new, draft: None };
        let draft = tempfile::Builder::new().prefix(".veil-").tempdir_in(folder).map_err(io)?;
        begun.draft = Some(draft);
        for party in PARTIES {
            folders.create(begun.path().join(party)).map_err(io)?;
        }
        fs::write(begun.path().join(ABOUT), format!("{FIRST_LINE}\n{TEXT}")).map_err(io)?;
        Ok(begun)
    }

    /// Where to put what shall be in the folder.
    pub(super) fn path(&self) -> &Path {
        self.draft.as_ref().map_or(&self.folder, TempDir::path)
    }

    /// Puts all that was made in the place of what was there.
    pub(super) fn put(mut self) -> Result<PathBuf, Failure> {
        let io = |source| OwnerError::Io { file: self.folder.clone(), source };
        if let Some(draft) = &self.draft {
            for old in
                entries(&self.folder).map_err(io)?.into_iter().filter(|old| old.file_name() != draft.path().file_name())
            {
                if old.is_dir() && !old.is_symlink() { fs::remove_dir_all(old) } else { fs::remove_file(old) }
                    .map_err(io)?;
            }
            for new in entries(draft.path()).map_err(io)? {
                let name = new.file_name().unwrap_or_default().to_owned();
                fs::rename(&new, self.folder.join(name)).map_err(io)?;
            }
        }
        self.draft = None;
        self.is_new = false;
        Ok(self.folder.clone())
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.draft = None;
        if self.is_new {
            // It is empty, or somebody has put something there.
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

fn entries(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

/// All files below a folder.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)))?;
        match kind.is_dir() {
            true => found.extend(files(&path)?),
            false => found.push(path),
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare(folder: &Path, force: bool) -> Result<PathBuf, Failure> {
        Begun::new(folder, force)?.put()
    }

    #[test]
    fn only_what_a_demo_made_is_replaced() {
        let place = tempfile::tempdir().unwrap();
        let (mine, theirs) = (place.path().join("new/demo"), place.path().join("precious"));
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

    #[test]
    fn what_is_not_put_leaves_all_as_it_was() {
        let place = tempfile::tempdir().unwrap();
        let (old, new) = (place.path().join("old"), place.path().join("new"));
        prepare(&old, false).unwrap();
        fs::write(old.join("p1/kept"), "x").unwrap();
        for folder in [&old, &new] {
            let begun = Begun::new(folder, true).unwrap();
            fs::write(begun.path().join("half.csv"), "x").unwrap();
        }
        assert!(old.join("p1/kept").exists() && !old.join("half.csv").exists());
        assert_eq!(files(&old).unwrap().len(), 2);
        assert!(!new.exists());
    }
}
