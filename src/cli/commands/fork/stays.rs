//! The work in a fork that no merge takes: it stays there, and is named.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::commits;
use crate::cli::commits::as_committed;
use crate::cli::error::CliError;
use nono_engine::diff::{self, Difference};
use nono_engine::fork::Fork;
use nono_engine::git::{self, GitState, Oid};
use nono_engine::path_text::{Shown, serde_path};
use nono_engine::snapshot::{SnapshotManager, SnapshotManifest};

const TAGS: &str = "refs/tags/";
const STASH: &str = "refs/stash";

/// A kind of work that stays in a fork.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(super) enum What {
    /// Stashed changes.
    Stash,
    /// A tag that is new or moved.
    Tag {
        /// Its name.
        name: String,
    },
    /// Staged contents.
    Index,
    /// The settings of a repository.
    Settings,
    /// Scripts that git runs.
    Hooks,
    /// A left-out directory.
    Directory,
}

/// Work that stays in a fork.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Stays {
    #[serde(flatten)]
    what: What,
    /// The git directory, or the left-out one.
    #[serde(with = "serde_path")]
    path: PathBuf,
}

impl Stays {
    /// As a line says it. `inside`: how a path is shown.
    pub(super) fn line(&self, inside: impl Fn(&Path) -> String) -> String {
        let path = inside(&self.path);
        match &self.what {
            What::Stash => format!("the stash of {path}"),
            What::Tag { name } => format!("tag {} of {path}", Shown::bytes(name.as_bytes())),
            What::Index => format!("the staged files of {path}"),
            What::Settings => format!("the settings of {path}"),
            What::Hooks => format!("the hooks of {path}"),
            What::Directory => format!("changes in {path}, which a program makes again"),
        }
    }
}

/// The work between two states of a fork, and in its layers over live directories, that no merge
/// takes.
///
/// # Errors
/// A state or a layer cannot be read.
pub(super) fn stays(
    fork: &Fork,
    manager: &SnapshotManager,
    base: &SnapshotManifest,
    theirs: &SnapshotManifest,
) -> Result<Vec<Stays>, CliError> {
    let source = manager.store();
    let (old, new) = (&base.merkle_root, &theirs.merkle_root);
    let mut changed = Vec::new();
    for difference in diff::compare(source, old, new)? {
        let is_change = difference.change_type().is_some();
        let Difference { path, .. } = difference;
        if is_change && path.split(|byte| *byte == b'/').any(|name| name == b".git") {
            changed.push(path);
        }
    }
    let mut found = BTreeSet::new();
    let repositories = git::repositories(source, old, new, &changed)?;
    for repository in repositories.into_iter().filter(|it| !it.is_new && !it.is_gone) {
        let path = repository.git_dir;
        let mut add = |what| found.insert(Stays { what, path: path.clone() });
        let refs = |root| -> Result<BTreeMap<String, Oid>, CliError> {
            let state = GitState::in_snapshot(source, root, &path)?;
            Ok(state.map(|state| state.refs.into_iter().collect()).unwrap_or_default())
        };
        let (then, now) = (refs(old)?, refs(new)?);
        for (name, oid) in now.iter().filter(|(name, oid)| then.get(*name) != Some(*oid)) {
            if name == STASH {
                add(What::Stash);
            } else if let Some(name) = name.strip_prefix(TAGS) {
                let (name, _) = (name.to_owned(), oid);
                add(What::Tag { name });
            }
        }
        for changed in &changed {
            let changed = Path::new(OsStr::from_bytes(changed));
            let Ok(inside) = changed.strip_prefix(&path) else { continue };
            match inside.iter().next().and_then(OsStr::to_str) {
                Some("index") => is_staged(manager, base, theirs, &path)? && add(What::Index),
                Some("config" | "info") => add(What::Settings),
                Some("hooks") => add(What::Hooks),
                _ => false,
            };
        }
    }
    for path in super::live_changes(fork)? {
        found.insert(Stays { what: What::Directory, path: path.clone() });
    }
    Ok(found.into_iter().collect())
}

/// Whether a file is staged that the commit of HEAD does not have like that. A commit moves the
/// index along, and that is no work.
fn is_staged(
    manager: &SnapshotManager,
    base: &SnapshotManifest,
    theirs: &SnapshotManifest,
    git_dir: &Path,
) -> Result<bool, CliError> {
    let source = manager.store();
    let roots = [&base.merkle_root, &theirs.merkle_root];
    let Some(staged) = git::staged_between(source, roots, git_dir)? else { return Ok(true) };
    let head = GitState::in_snapshot(source, &theirs.merkle_root, git_dir)?;
    let Some(head) = head.as_ref().and_then(GitState::commit).filter(|_| !staged.is_empty()) else {
        return Ok(!staged.is_empty());
    };
    let ask = |objects: &Path| as_committed(objects, head, &staged);
    let committed = commits::with_objects(manager, base, theirs, git_dir, ask)?;
    Ok(committed != Some(staged.len()))
}
