//! Paths and kinds of changes that a person selects.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::cli::error::CliError;
use nono_engine::diff::ChangeType;
use nono_engine::restore::Selection;
use nono_engine::sys;

/// The selected part of a snapshot.
#[derive(Debug, Clone, Default, Args)]
pub(in crate::cli) struct PartArgs {
    /// Files, directories or globs to restore [default: everything]
    #[arg(value_name = "PATH", allow_negative_numbers = true)]
    pub(in crate::cli) paths: Vec<PathBuf>,
    /// Leave out a file, a directory or a glob (repeatable)
    #[arg(long, value_name = "PATH")]
    exclude: Vec<PathBuf>,
    /// Undo only what was created, modified or deleted since the snapshot (repeatable)
    #[arg(long, value_name = "WHAT")]
    only: Vec<Only>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Only {
    Created,
    Modified,
    Deleted,
}

impl PartArgs {
    /// Whether nothing was selected, so that everything is meant.
    pub(in crate::cli) fn is_everything(&self) -> bool {
        self.paths.is_empty() && self.exclude.is_empty() && self.only.is_empty()
    }

    /// The same without the first word, which names a session.
    pub(in crate::cli) fn behind_first(&self) -> Self {
        let paths = self.paths.iter().skip(1).cloned().collect();
        Self { paths, ..self.clone() }
    }

    /// The selection in these tracked paths.
    pub(in crate::cli) fn selection(&self, roots: &[PathBuf]) -> Result<Selection, CliError> {
        let meant = self.paths.iter().map(|path| resolve_selected(path, roots));
        let exceptions = self.exclude.iter().map(|path| resolve_exception(path, roots));
        Ok(Selection {
            paths: meant.collect::<Result<_, _>>()?,
            base: Some(sys::current_or_former_dir()?),
            exclude: exceptions.collect::<Result<_, _>>()?,
            only: self.only.iter().map(|only| only.change_type()).collect(),
            ..Selection::default()
        })
    }
}

impl Only {
    fn change_type(self) -> ChangeType {
        match self {
            Self::Created => ChangeType::Created,
            Self::Modified => ChangeType::Modified,
            Self::Deleted => ChangeType::Deleted,
        }
    }
}

/// As [`resolve`]. Outside of the tracked paths, a glob without a slash is one at the top of each,
/// and not for names at any depth.
fn resolve_selected(path: &Path, roots: &[PathBuf]) -> Result<PathBuf, CliError> {
    let found = resolve(path, roots)?;
    if found.is_absolute() { Ok(found) } else { Ok(Path::new(".").join(found)) }
}

/// As [`resolve`], but a glob without a slash leaves out names anywhere, unless it is a path here.
fn resolve_exception(path: &Path, roots: &[PathBuf]) -> Result<PathBuf, CliError> {
    let is_name_glob =
        path.components().count() == 1 && path.to_string_lossy().contains(['*', '?', '[', '{']);
    let here = sys::plain_absolute(path, &sys::current_or_former_dir()?);
    if is_name_glob && !matches!(sys::kind_of(&here), Ok(Some(_))) {
        return Ok(path.to_owned());
    }
    resolve(path, roots)
}

/// A relative path is first of all one in the current directory, as everywhere; if that is in no
/// tracked path, it is looked for in each of them. Symlinks on the way to a tracked path are
/// followed. Symlinks within a tracked path are not: the user may want to undo the symlink itself.
/// A glob is one in the current directory, too, as in a shell.
pub(in crate::cli) fn resolve(path: &Path, roots: &[PathBuf]) -> Result<PathBuf, CliError> {
    let here = sys::plain_absolute(path, &sys::current_or_former_dir()?);
    let is_tracked = |path: &Path| roots.iter().any(|root| path.starts_with(root));
    if is_tracked(&here) {
        return Ok(here);
    }
    let real = match (here.parent(), here.file_name()) {
        (Some(parent), Some(name)) => sys::real_or_future_path(parent).join(name),
        _ => here.clone(),
    };
    // A link that itself leads to a tracked path, or into one, means what it leads to.
    let found = [real, sys::real_or_future_path(&here)].into_iter().find(|path| is_tracked(path));
    Ok(match found {
        Some(found) => found,
        None if path.is_absolute() => here,
        None => path.to_owned(),
    })
}
