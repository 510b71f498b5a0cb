//! The state of an agent: the files that make it what it is, such as memory, settings and skills.
//!
//! A profile names them one by one (`state_paths`), so a file that nobody thought of, maybe with a
//! credential, is never in it. Always true: no `state_exclude` place is recorded as a path of its
//! own, and a pattern of it applies below each recorded directory.

use std::path::{Path, PathBuf};

use super::{ConfigError, Profile, Surroundings, expand};
use crate::path_text::to_path;
use crate::sys::{self, Dir, FileKind};

/// The parts of an agent's state that exist.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AgentState {
    /// Files and directories, symlinks resolved: sorted, no path twice.
    pub paths: Vec<PathBuf>,
    /// Patterns of names below them that are left out.
    pub exclude_patterns: Vec<String>,
    /// Existing places that are left out: credentials, caches, histories.
    pub left_out: Vec<PathBuf>,
}

impl AgentState {
    /// Looks for the state that a profile names.
    ///
    /// # Errors
    /// A path that can never mean anything.
    pub fn of(profile: &Profile, surroundings: &Surroundings<'_>) -> Result<Self, ConfigError> {
        let is_place = |text: &&String| text.starts_with(['~', '$', '/']);
        let mut state = Self::default();
        for text in profile.state_exclude.iter().filter(is_place) {
            let place = expand(text, surroundings)?;
            state.left_out.extend(place.filter(|place| sys::real_path(place).is_ok()));
        }
        state.left_out.sort();
        state.left_out.dedup();
        state.exclude_patterns =
            profile.state_exclude.iter().filter(|text| !is_place(text)).cloned().collect();
        for text in &profile.state_paths {
            let Some(place) = expand(text, surroundings)? else { continue };
            // A symlink, as managers of dotfiles make them, stands for its target.
            let real = matching(&place).into_iter().filter_map(|path| sys::real_path(&path).ok());
            state.paths.extend(real.filter(|path| !state.left_out.contains(path)));
        }
        state.paths.sort();
        state.paths.dedup();
        Ok(state)
    }

    /// Whether there is anything of it.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }
}

/// The paths that a place means: a component `*` means each directory there.
fn matching(place: &Path) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for component in place.components() {
        if component.as_os_str() != "*" {
            found.iter_mut().for_each(|path| path.push(component));
            continue;
        }
        found = found.iter().flat_map(|dir| directories_in(dir)).collect();
    }
    found
}

fn directories_in(path: &Path) -> Vec<PathBuf> {
    let Ok(dir) = Dir::open(path) else { return Vec::new() };
    let is_dir = |name: &[u8]| {
        dir.try_stat(name).ok().flatten().is_some_and(|stat| stat.kind == FileKind::Directory)
    };
    let names = dir.names().unwrap_or_default();
    let shown = names.iter().filter(|listed| is_dir(&listed.name));
    shown.map(|listed| path.join(to_path(&listed.name))).collect()
}
