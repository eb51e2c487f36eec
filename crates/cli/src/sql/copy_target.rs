//! COPY to a file: nothing is overwritten without `--force`, and a COPY that fails or is cancelled leaves nothing behind.
//!
//! DataFusion replaces what is there, and closes the file even when the rows end in an error, so that a short but readable table
//! would stand in the place of a good one.

use std::path::{Path, PathBuf};

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::LogicalPlan;
use tempfile::{TempDir, TempPath};
use veil_owner::OwnerError;

use super::tables::file_url;

/// The file that a COPY writes, and the one it writes to until it is complete.
pub(crate) struct CopyTarget {
    file: PathBuf,
    /// Goes before the folder that it is in.
    temporary: TempPath,
    /// Of its own, since DataFusion puts the parts of a large file beside it.
    folder: TempDir,
    force: bool,
}

impl CopyTarget {
    /// Sends a COPY to a file beside its target. Other plans stay as they are.
    pub(crate) fn divert(plan: LogicalPlan, force: bool) -> Result<(LogicalPlan, Option<Self>)> {
        if !force {
            refuse_overwriting(&plan)?;
        }
        let LogicalPlan::Copy(mut copy) = plan else { return Ok((plan, None)) };
        let file = local_file(&copy.output_url).filter(|_| copy.partition_by.is_empty());
        // Without an extension DataFusion writes a folder of files with names that are new.
        let Some((file, extension)) = file.and_then(|file| Some((file.clone(), extension(&file)?))) else {
            return Ok((LogicalPlan::Copy(copy), None));
        };
        let folder = match file.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let (folder, temporary) = std::fs::create_dir_all(folder)
            .and_then(|()| tempfile::Builder::new().prefix(".veil-").tempdir_in(folder))
            .and_then(|folder| {
                let path = folder.path().join(format!("copy{extension}"));
                Ok((folder, TempPath::try_from_path(path)?))
            })
            .map_err(|source| external(OwnerError::Io { file: file.clone(), source }))?;
        copy.output_url = file_url(&temporary).map_err(DataFusionError::Execution)?;
        Ok((LogicalPlan::Copy(copy), Some(Self { file, temporary, folder, force })))
    }

    /// Puts the complete file into its place.
    pub(crate) fn keep(self) -> Result<()> {
        let Self { file, temporary, folder, force } = self;
        let kept = if force { temporary.persist(&file) } else { temporary.persist_noclobber(&file) };
        drop(folder);
        kept.map_err(|error| {
            external(match error.error.kind() {
                std::io::ErrorKind::AlreadyExists => OwnerError::Exists(file),
                _ => OwnerError::Io { file, source: error.error },
            })
        })
    }
}

fn external(error: OwnerError) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// Also within EXPLAIN ANALYZE, which runs what it explains.
fn refuse_overwriting(plan: &LogicalPlan) -> Result<()> {
    if matches!(plan, LogicalPlan::Explain(_)) {
        return Ok(());
    }
    plan.apply(|node| match node {
        LogicalPlan::Copy(copy) => match local_file(&copy.output_url) {
            Some(file) if file.is_file() => Err(external(OwnerError::Exists(file))),
            _ => Ok(TreeNodeRecursion::Continue),
        },
        _ => Ok(TreeNodeRecursion::Continue),
    })?;
    Ok(())
}

/// The target of a COPY, if it is on this machine and no folder.
fn local_file(target: &str) -> Option<PathBuf> {
    let file = match target.contains("://") {
        false => PathBuf::from(target),
        true => {
            let url = ListingTableUrl::parse(target).ok().filter(|url| url.scheme() == "file")?;
            Path::new("/").join(url.prefix().as_ref())
        }
    };
    (!target.ends_with('/') && !file.is_dir()).then_some(file)
}

fn extension(file: &Path) -> Option<String> {
    Some(format!(".{}", file.extension()?.to_str()?))
}
