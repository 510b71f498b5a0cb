//! The state of an agent: the files that make it what it is, such as memory, settings and skills.
//!
//! A profile names them one by one (`state_paths`), so a file that no profile names, maybe with a
//! credential, is never in it. Always true: no `state_exclude` place is recorded as a path of its
//! own, and a pattern of it applies below each recorded directory.

use std::path::{Path, PathBuf};

use super::{ConfigError, Profile, Surroundings, expand};
use nono_engine::path_text::to_path;
use nono_engine::sys::{self, Dir, FileKind};
use nono_engine::walk::pattern_of_path;

/// The parts of an agent's state that exist.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AgentState {
    /// Files and directories, symlinks resolved: sorted, no path twice.
    pub paths: Vec<PathBuf>,
    /// Patterns of names below them that are left out.
    pub exclude_patterns: Vec<String>,
    /// Existing places that are left out: credentials, caches, histories.
    pub left_out: Vec<PathBuf>,
    /// Places that lead elsewhere through a symlink, with the path there. That one is recorded, and
    /// the link is not.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Named places that cannot be recorded, each with the reason.
    pub unusable: Vec<(PathBuf, &'static str)>,
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
            for path in matching(&place) {
                state.look_at(path, surroundings);
            }
        }
        state.paths.sort();
        state.paths.dedup();
        // A place in a recorded directory is left out there. One above it names other things.
        let places = state.left_out.iter().filter_map(|place| sys::canonical_parent(place).ok());
        let is_inside = |place: &PathBuf| {
            state.paths.iter().any(|path| place != path && place.starts_with(path))
        };
        let patterns = places.filter(is_inside).map(|place| pattern_of_path(&place));
        state.exclude_patterns.extend(patterns);
        Ok(state)
    }

    /// Adds a place if it can be recorded. A symlink, as managers of dotfiles make them, stands for
    /// its target.
    fn look_at(&mut self, path: PathBuf, surroundings: &Surroundings<'_>) {
        let Ok(real) = sys::real_path(&path) else {
            if matches!(sys::kind_of(&path), Ok(Some(FileKind::Symlink))) {
                self.unusable.push((path, "a symlink that leads nowhere"));
            }
            return;
        };
        if self.left_out.contains(&real) {
            return;
        }
        if !matches!(sys::kind_of(&real), Ok(Some(FileKind::Directory | FileKind::File))) {
            self.unusable.push((path, "neither a directory nor a regular file"));
            return;
        }
        let in_home = surroundings
            .home
            .as_deref()
            .and_then(|home| Some(sys::real_path(home).ok()?.join(path.strip_prefix(home).ok()?)));
        if in_home.as_ref().unwrap_or(&path) != &real {
            self.links.push((path, real.clone()));
        }
        self.paths.push(real);
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
