//! The past of one project, as far as its agent may see it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use jiff::Timestamp;

use super::ToolError;
use super::states::LATEST;
use crate::agent::project_of;
use nono_engine::byte_path;
use nono_engine::history::PathGlob;
use nono_engine::path_text::{decode, encode, to_path};
use nono_engine::session::{Catalog, Place, Purpose, SessionSummary, newest, sessions_here};
use nono_engine::snapshot::{Budget, SessionDir};
use nono_engine::store::Compression;
use nono_engine::sys;
use nono_engine::walk::ExclusionConfig;

/// Longest path in bytes that is looked at.
const MAX_PATH_BYTES: usize = 4096;
/// Name of git's directories.
const GIT: &[u8] = b".git";

/// The rights that a person gives to agents.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Whether files may be restored.
    pub may_restore: bool,
    /// Names and paths whose contents are not shown, as globs.
    pub hidden: Vec<String>,
    /// How much a checkpoint may hold.
    pub budget: Budget,
    /// How objects are compressed.
    pub compression: Compression,
    /// Worker threads; 0 is one for each core.
    pub threads: usize,
    /// The rules for what a new session leaves out.
    pub exclusion: ExclusionConfig,
}

/// The past of one project.
#[derive(Debug)]
pub struct Workspace {
    pub(super) catalog: Catalog,
    /// Absolute, symlinks resolved: no tool reaches outside.
    pub(super) project: PathBuf,
    /// The one session that may be seen, where not all of the project may.
    only: Option<String>,
    pub(super) policy: Policy,
    hidden: GlobSet,
}

impl Workspace {
    /// The project around a directory, the one that hooks record there.
    ///
    /// # Errors
    /// A directory that is no project, such as the home directory, or a glob of the policy that is
    /// none.
    pub fn around(
        directory: &Path,
        home: Option<&Path>,
        catalog: Catalog,
        policy: Policy,
    ) -> Result<Self, ToolError> {
        let project = project_of(directory, home).ok_or_else(|| {
            let place = nono_engine::path_text::Shown::path(directory);
            ToolError::Refused(format!("{place} is no project of its own: nothing is shown of it"))
        })?;
        let mut hidden = GlobSetBuilder::new();
        for glob in &policy.hidden {
            let glob = GlobBuilder::new(glob).literal_separator(true).build();
            hidden.add(glob.map_err(|error| ToolError::arguments(error.to_string()))?);
        }
        let hidden = hidden.build().map_err(|error| ToolError::arguments(error.to_string()))?;
        Ok(Self { catalog, project, only: None, policy, hidden })
    }

    /// The same, of which one session may be seen alone.
    #[must_use]
    pub fn with_session_only(self, session_id: String) -> Self {
        Self { only: Some(session_id), ..self }
    }

    /// Sessions of the project, newest first, and the one that is meant without a name.
    pub(super) fn sessions(
        &self,
    ) -> Result<(Vec<SessionSummary>, Option<SessionSummary>), ToolError> {
        let mut all = self.catalog.listed()?.sessions;
        all.retain(|session| match &self.only {
            Some(only) => session.session_id == *only,
            None => session.concerns(&self.project),
        });
        let now = Timestamp::now();
        all.sort_by_cached_key(|session| std::cmp::Reverse(session.recency(now)));
        let place = Place { directory: self.project.clone(), purpose: Purpose::Looking };
        let meant = match &self.only {
            Some(_) => all.first().cloned(),
            None => sessions_here(&all, &place, now).ok().as_deref().and_then(newest).cloned(),
        };
        Ok((all, meant))
    }

    /// Whether the server shows this session alone.
    pub(super) fn is_asked_for(&self, session: &SessionSummary) -> bool {
        self.only.as_ref() == Some(&session.session_id)
    }

    /// The session of the project that an id or the beginning of one names; without one, the newest
    /// that changed something.
    pub(super) fn session(&self, id: Option<&str>) -> Result<SessionDir, ToolError> {
        let (all, meant) = self.sessions()?;
        let id = id.filter(|id| !id.is_empty() && *id != LATEST);
        let found = match id {
            None => meant.as_ref(),
            Some(id) => {
                let mut named = all.iter().filter(|one| one.session_id.starts_with(id));
                let first = named.next();
                match all.iter().find(|one| one.session_id == id) {
                    None if named.next().is_some() => None,
                    exact => exact.or(first),
                }
            }
        };
        let Some(found) = found else {
            let project = nono_engine::path_text::Shown::path(&self.project);
            return Err(ToolError::Arguments(match id {
                Some(id) => format!(
                    "{:?} is no session of {project}, or several; list_steps names them",
                    cut(id, 100)
                ),
                None => format!("no session has recorded {project}; `checkpoint` begins one"),
            }));
        };
        Ok(self.catalog.find(&found.session_id)?)
    }

    /// The absolute path in the project that an argument means. Symlinks are not looked at: paths
    /// are names in snapshots.
    ///
    /// # Errors
    /// A path outside of the project, or none at all.
    pub(super) fn path(&self, given: &str) -> Result<PathBuf, ToolError> {
        if given.is_empty() || given.len() > MAX_PATH_BYTES || given.contains('\0') {
            return Err(ToolError::arguments("path: empty, too long, or with a NUL in it"));
        }
        let bytes = decode(given);
        let path = sys::plain_absolute(to_path(&bytes), &self.project);
        // The project may be named through a symlink.
        let path = match path.strip_prefix(&self.project) {
            Ok(_) => path,
            Err(_) => match self.by_its_real_name(&path) {
                Some(path) => path,
                None => {
                    let project = self.project.clone();
                    return Err(ToolError::OutsideProject { path, project });
                }
            },
        };
        Ok(path)
    }

    /// A path above which the project's directory is named through a symlink.
    fn by_its_real_name(&self, path: &Path) -> Option<PathBuf> {
        let is_project = |above: &&Path| sys::real_path(above).is_ok_and(|at| at == self.project);
        let above = path.ancestors().find(is_project)?;
        Some(self.project.join(path.strip_prefix(above).ok()?))
    }

    /// Whether a path of a snapshot is in the project.
    pub(super) fn holds(&self, path: &[u8]) -> bool {
        byte_path::is_in(path, self.project.as_os_str().as_bytes())
    }

    /// Whether the contents of a file are not shown.
    pub(super) fn hides(&self, path: &[u8]) -> bool {
        let inside = byte_path::relative_to(path, self.project.as_os_str().as_bytes());
        let name = byte_path::split(path).1;
        self.hidden.is_match(to_path(name))
            || inside.is_some_and(|inside| self.hidden.is_match(to_path(inside)))
    }

    /// A path as an answer has it: in the project, and so that it can come back as an argument.
    pub(super) fn named(&self, path: &[u8]) -> String {
        let inside = byte_path::relative_to(path, self.project.as_os_str().as_bytes());
        match inside {
            Some(b"") => ".".to_owned(),
            Some(inside) => encode(inside).into_owned(),
            None => encode(path).into_owned(),
        }
    }

    /// A glob for paths of the project.
    pub(super) fn glob(&self, given: &str) -> Result<PathGlob, ToolError> {
        if given.is_empty() || given.len() > MAX_PATH_BYTES {
            return Err(ToolError::arguments("glob: empty or too long"));
        }
        Ok(PathGlob::new(given, &self.project)?)
    }
}

/// Whether a path is, or lies in, what git keeps.
pub(super) fn is_in_git(path: &[u8]) -> bool {
    byte_path::components(path).any(|name| name == GIT)
}

/// The beginning of an argument, for a message.
pub(super) fn cut(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}
