//! Names of forks: which one is meant here, and which are free.
//!
//! A name belongs to a project: the directories that a fork shows. A project inside of another one
//! is told by its git work tree, or by a fork of it. A removal is stricter than the
//! rest, because a project without a mark looks like a directory of the outer one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::ForkError;
use super::store::{Fork, Forks};
use crate::sys;

/// Longest name of a fork.
pub const MAX_NAME_BYTES: usize = 64;

impl Forks {
    /// The fork of a name, or of a session.
    ///
    /// # Errors
    /// There is none here, there are several, or it cannot be read.
    pub fn find(&self, name: &str) -> Result<Fork, ForkError> {
        if !is_name(name) {
            return Err(ForkError::Name { name: name.to_owned() });
        }
        let (mut named, mut unread) = (Vec::new(), None);
        for fork in self.list()? {
            match fork {
                Ok(fork) if fork.name() == name => named.push(fork),
                Ok(_) => {}
                Err(error) => unread = Some(error),
            }
        }
        if named.is_empty() {
            return match self.of_session(name) {
                // It may be the one whose document cannot be read.
                Err(ForkError::NotFound { .. }) if unread.is_some() => {
                    Err(unread.unwrap_or_else(|| ForkError::NotFound { name: name.to_owned() }))
                }
                found => found,
            };
        }
        self.meant(name, named)
    }

    /// As [`find`](Self::find), for what cannot be taken back. A fork of a directory above this one
    /// is meant only where that is the top of the git work tree here: else this directory may be a
    /// project of its own, whose fork of that name is gone.
    ///
    /// # Errors
    /// As for [`find`](Self::find), and [`ForkError::Above`].
    pub fn find_to_remove(&self, name: &str) -> Result<Fork, ForkError> {
        let fork = self.find(name)?;
        let Some(here) = &self.here else { return Ok(fork) };
        let above = fork.recorded_paths().find(|path| here.starts_with(path));
        match above {
            Some(project) if fork.name() == name && project != here => {
                let is_top = work_tree(here)?.as_ref() == Some(project);
                let project = project.clone();
                let above = || ForkError::Above { name: name.to_owned(), project };
                if is_top { Ok(fork) } else { Err(above()) }
            }
            _ => Ok(fork),
        }
    }

    /// The project around a directory, as far as its marks tell: the nearest top of a git work
    /// tree, or directory of a fork.
    fn project_around(&self, here: &Path) -> Result<Option<PathBuf>, ForkError> {
        let forks: Vec<Fork> = self.list()?.into_iter().flatten().collect();
        let is_forked = |path: &&Path| {
            forks.iter().any(|fork| fork.recorded_paths().any(|forked| forked == path))
        };
        let forked = here.ancestors().find(is_forked).map(Path::to_owned);
        // The longer of two paths above one directory is the nearer one.
        Ok(work_tree(here)?.into_iter().chain(forked).max_by_key(|path| path.as_os_str().len()))
    }

    /// The fork among those of one name that is meant here.
    fn meant(&self, name: &str, mut named: Vec<Fork>) -> Result<Fork, ForkError> {
        if let Some(here) = &self.here {
            let project = self.project_around(here)?;
            // A project further up is another one.
            let is_near = |path: &&PathBuf| project.as_ref().is_none_or(|it| path.starts_with(it));
            // The nearest one above, or else the ones below.
            let depth = |fork: &Fork| {
                let around = fork.recorded_paths().filter(|path| here.starts_with(path));
                around.filter(is_near).map(|path| path.components().count()).max()
            };
            if let Some(nearest) = named.iter().filter_map(depth).max() {
                named.retain(|fork| depth(fork) == Some(nearest));
            } else if named
                .iter()
                .any(|fork| fork.recorded_paths().any(|path| path.starts_with(here)))
            {
                named.retain(|fork| fork.recorded_paths().any(|path| path.starts_with(here)));
            } else {
                let projects = projects_of(&named);
                return Err(ForkError::Elsewhere { name: name.to_owned(), projects });
            }
        }
        match (named.pop(), named.is_empty()) {
            (Some(fork), true) => Ok(fork),
            (Some(fork), false) => {
                named.push(fork);
                let projects = projects_of(&named);
                Err(ForkError::Ambiguous { name: name.to_owned(), projects })
            }
            (None, _) => Err(ForkError::NotFound { name: name.to_owned() }),
        }
    }

    /// Refuses a name that no new fork of these directories can have.
    ///
    /// # Errors
    /// It is no name, or taken.
    pub fn check_new_name(&self, name: &str, paths: &[PathBuf]) -> Result<(), ForkError> {
        if !is_name(name) {
            return Err(ForkError::Name { name: name.to_owned() });
        }
        let paths: BTreeSet<&PathBuf> = paths.iter().collect();
        let is_same = |fork: &Fork| {
            fork.name() == name && fork.recorded_paths().collect::<BTreeSet<_>>() == paths
        };
        match self.list()?.iter().flatten().any(is_same) {
            true => Err(ForkError::Exists { name: name.to_owned() }),
            false => Ok(()),
        }
    }
}

/// The top of the git work tree around a directory.
fn work_tree(here: &Path) -> Result<Option<PathBuf>, ForkError> {
    for path in here.ancestors() {
        if sys::kind_of(&path.join(".git"))?.is_some() {
            return Ok(Some(path.to_owned()));
        }
    }
    Ok(None)
}

/// The directories of some forks, in words.
fn projects_of(forks: &[Fork]) -> Vec<PathBuf> {
    forks.iter().filter_map(|fork| fork.recorded_paths().next().cloned()).collect()
}

/// Whether a text is the name of a fork.
pub(super) fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.len() <= MAX_NAME_BYTES
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && name.bytes().all(is_plain)
}
