//! Where the page and the findings are written: over no file that the report is made from, and not over each other.

use std::io::Write;
use std::path::{Path, PathBuf};

use veil_owner::OwnerError;

use crate::Outcome;

/// Refuses what must not be written. Before the work, since it takes long; what is there by then is looked at again.
pub(super) fn check(outputs: &[&Path], inputs: &[&Path], force: bool) -> Outcome {
    for (at, output) in outputs.iter().enumerate() {
        if let Some(input) = inputs.iter().find(|input| is_same(output, input)) {
            let (output, input) = (output.display(), input.display());
            return Err(format!(
                "{output} would be written over {input}, which the report is made from: choose another name"
            )
            .into());
        }
        if outputs.iter().take(at).any(|other| is_same(output, other)) {
            return Err("the page and the findings cannot be one file: give -o and --json two names".into());
        }
        if output.exists() && !force {
            return Err(OwnerError::Exists(output.to_path_buf()).into());
        }
        if !folder_of(output).is_dir() {
            return Err(format!("{}: there is no folder {}", output.display(), folder_of(output).display()).into());
        }
    }
    Ok(())
}

/// Writes a file, whole or not at all.
pub(super) fn write(path: &Path, text: &str, force: bool) -> Outcome {
    let io = |source| OwnerError::Io { file: path.to_owned(), source };
    let mut file = tempfile::Builder::new().prefix(".veil-").tempfile_in(folder_of(path)).map_err(io)?;
    file.write_all(text.as_bytes()).map_err(io)?;
    file.as_file().sync_all().map_err(io)?;
    let put = if force { file.persist(path) } else { file.persist_noclobber(path) };
    put.map_err(|error| match error.error.kind() {
        std::io::ErrorKind::AlreadyExists => OwnerError::Exists(path.to_owned()),
        _ => io(error.error),
    })?;
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether two paths are one file, or one name in one folder: a file takes the place of the name that it is written to.
fn is_same(one: &Path, other: &Path) -> bool {
    let meet = |a: Option<PathBuf>, b: Option<PathBuf>| a.is_some() && a == b;
    meet(one.canonicalize().ok(), other.canonicalize().ok()) || meet(entry(one), entry(other))
}

/// A name in its folder, whether there is a file or not.
fn entry(path: &Path) -> Option<PathBuf> {
    Some(folder_of(path).canonicalize().ok()?.join(path.file_name()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(outputs: &[&Path], inputs: &[&Path]) -> String {
        check(outputs, inputs, true).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn paths_are_compared_by_what_they_lead_to() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("sub")).unwrap();
        std::fs::write(at("table.parquet"), "rows").unwrap();
        let (table, around) = (at("table.parquet"), at("sub/../table.parquet"));
        for path in [&table, &around, &at("./table.parquet")] {
            assert!(refusal(&[path], &[&table]).contains("which the report is made from"), "{}", path.display());
        }
        // Neither file is there yet.
        assert!(refusal(&[&at("r.html"), &at("sub/../r.html")], &[&table]).contains("two names"));
        assert_eq!(refusal(&[&at("r.html"), &at("sub/r.html")], &[&table]), "");
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("table.parquet"), "rows").unwrap();
        std::os::unix::fs::symlink(at("table.parquet"), at("link")).unwrap();
        assert!(refusal(&[&at("link")], &[&at("table.parquet")]).contains("made from"));
        assert!(refusal(&[&at("table.parquet")], &[&at("link")]).contains("made from"));
        assert!(refusal(&[&at("link")], &[&at("link")]).contains("made from"));
    }
}
