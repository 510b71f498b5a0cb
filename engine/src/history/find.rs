//! Paths in snapshots that match a glob.
//!
//! A directory whose tree is the same in several snapshots is read once, and what was found in it
//! is known to be in all of them.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use super::error::{Damaged, HistoryError};
use super::matching::{Matching, Wanted};
use super::snapshots::{Place, each_snapshot};
use super::versions::is_same;
use crate::byte_path;
use crate::diff::EntryState;
use crate::path_text::to_path;
use crate::shell_glob::{Hidden, ShellGlob};
use crate::snapshot::SessionDir;
use crate::store::ObjectSource;

/// The pattern that paths have to match. A search leaves nothing out: hidden names match as others
/// do, and a path that is written exactly as the glob matches, too.
#[derive(Debug)]
pub struct PathGlob {
    /// Matched with the last name alone.
    name: Option<ShellGlob>,
    /// Matched with the path inside the tracked path.
    inside: Option<ShellGlob>,
    /// Matched with the whole path.
    whole: Option<ShellGlob>,
}

impl PathGlob {
    /// A glob without a `/` is for names. One with a `/` is for paths: whole ones, paths in the
    /// tracked path, or paths in `current_dir`.
    ///
    /// # Errors
    /// [`HistoryError::Glob`].
    pub fn new(glob: &str, current_dir: &Path) -> Result<Self, HistoryError> {
        let within = |fixed: &[u8], text: &str| {
            let built = ShellGlob::new(fixed, text.as_bytes(), Hidden::LikeOthers);
            let wrong = |reason| HistoryError::Glob { glob: glob.to_owned(), reason };
            Ok::<_, HistoryError>(built.map_err(wrong)?.or_exactly(fixed, text.as_bytes()))
        };
        let plain = glob.strip_suffix('/').unwrap_or(glob);
        if !plain.contains('/') {
            return Ok(Self { name: Some(within(b"", plain)?), inside: None, whole: None });
        }
        if plain.starts_with('/') {
            return Ok(Self { name: None, inside: None, whole: Some(within(b"", plain)?) });
        }
        let inside = if plain.starts_with("./") { None } else { Some(within(b"", plain)?) };
        let whole = within(current_dir.as_os_str().as_bytes(), plain)?;
        Ok(Self { name: None, inside, whole: Some(whole) })
    }

    /// Whether a path matches that lies in this tracked path.
    fn matches_path(&self, path: &[u8], root: &[u8]) -> bool {
        let is = |glob: &Option<ShellGlob>, text: &[u8]| {
            glob.as_ref().is_some_and(|glob| glob.is_match(text))
        };
        let inside = byte_path::relative_to(path, root).filter(|inside| !inside.is_empty());
        is(&self.name, byte_path::split(path).1)
            || is(&self.whole, path)
            || inside.is_some_and(|inside| is(&self.inside, inside))
    }
}

impl Wanted for &PathGlob {
    fn is_match(&self, path: &[u8], root: &[u8], _: &EntryState) -> bool {
        self.matches_path(path, root)
    }
}

/// A path that matches, in its newest version.
#[derive(Debug, Clone)]
pub struct Found {
    /// The path.
    pub path: Vec<u8>,
    /// Its newest version.
    pub state: Arc<EntryState>,
    /// The newest snapshot that has this version.
    pub newest: Place,
    /// The oldest snapshot that has it, with no other version between.
    pub oldest: Place,
    /// How many snapshots have it.
    pub count: usize,
}

/// Finds what matches in the snapshots of these sessions, whose objects are in `source`; sorted by
/// path.
pub fn find(
    glob: &PathGlob,
    sessions: &[SessionDir],
    source: &dyn ObjectSource,
) -> (Vec<Found>, Vec<Damaged>) {
    let mut damaged = Vec::new();
    let mut search = Matching::new(glob, source);
    let snapshots = each_snapshot(sessions, &mut damaged, |place, _| {
        Ok(Some(search.snapshot(&place.merkle_root)?))
    });
    // Newest first; a path is done when another version of it comes.
    let mut found: HashMap<Vec<u8>, (Found, bool)> = HashMap::new();
    for (place, matches) in snapshots.into_iter().rev() {
        for index in matches.iter() {
            let (path, state) = search.found(*index);
            let Some((known, is_done)) = found.get_mut(path) else {
                let (newest, oldest) = (place.clone(), place.clone());
                let (path, state) = (path.to_vec(), Arc::clone(state));
                let new = Found { path: path.clone(), state, newest, oldest, count: 1 };
                found.insert(path, (new, false));
                continue;
            };
            let (a, b) = (Some(Arc::clone(&known.state)), Some(Arc::clone(state)));
            *is_done = *is_done || !is_same(&a, &b, to_path(path), source);
            if !*is_done {
                known.oldest = place.clone();
                known.count += 1;
            }
        }
    }
    let mut found: Vec<Found> = found.into_values().map(|(found, _)| found).collect();
    found.sort_by(|a, b| byte_path::order(&a.path, &b.path));
    (found, damaged)
}
