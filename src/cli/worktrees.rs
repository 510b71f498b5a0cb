//! Repositories outside the paths of a command: the grants in them, and the recorded parts.
//!
//! In a linked work tree a commit adds objects, refs and logs to the repository that it belongs to.
//! The command may write these, and neither hooks nor settings, which count for everybody who works
//! there. So it may not write the directory that holds both, and git cannot lock `packed-refs` in
//! it. A snapshot has only what is of this work tree alone: its HEAD and index, and the branch that
//! is checked out; or the reftables, if the refs are in these.
//!
//! A git directory elsewhere that belongs to this work tree alone (a submodule's) is like one in
//! it: written and recorded. It has to name the work tree in its settings, because a command can
//! write the `.git` file that leads there. Below the top of a work tree, git can look at the
//! history and make no commit. What cannot be granted is named, with the flags that grant it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gix_config::file::{Metadata, init};

use super::args::home_dir;
use super::context::Context;
use super::error::CliError;
use super::shell_word::shell_word;
use crate::sandbox::is_readable_by_all;
use nono_engine::git::{LinkedWorktree, Repository};
use nono_engine::path_text::Shown;
use nono_engine::sys::{self, Dir, FileKind};

/// The git directory in a work tree, or the file that leads to one elsewhere.
const DOT_GIT: &str = ".git";
/// The directory of refs in reftables.
const REFTABLE: &str = "reftable";
/// Files with settings of a git directory.
const SETTINGS: [&[u8]; 2] = [b"config", b"config.worktree"];
/// Settings of this length are no settings.
const MAX_SETTINGS_BYTES: u64 = 1 << 20;

/// The places that belong to the work and lie elsewhere. No path has a symlink.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// Recorded as well.
    pub(super) tracked: Vec<PathBuf>,
    /// The command writes it.
    pub(super) write: Vec<PathBuf>,
    /// The command reads it.
    pub(super) read: Vec<PathBuf>,
    /// Objects that git reads, and nothing grants.
    borrowed: Vec<PathBuf>,
}

impl Elsewhere {
    /// Finds it and says what it is, in a line each. `refuse` says what must not be granted.
    pub(super) fn of(
        tracked: &[PathBuf],
        is_recorded: bool,
        has_walls: bool,
        refuse: impl Fn(&Path) -> Result<(), CliError>,
        context: &Context,
    ) -> Self {
        let mut found = Self::default();
        let work: Vec<PathBuf> =
            tracked.iter().filter_map(|path| sys::real_path(path).ok()).collect();
        let is_work = |path: &Path| work.iter().any(|work| path.starts_with(work));
        let finder = Finder { is_recorded, has_walls, context };
        for top in &work {
            let at_top = Repository::at(top);
            let above = if at_top.is_none() { Repository::above(top) } else { None };
            let Some(repository) = at_top.as_ref().or(above.as_ref().map(|(_, it)| it)) else {
                continue;
            };
            let git_dir = repository.git_dir();
            found.borrowed.extend(repository.borrowed_objects());
            if is_work(git_dir) {
                continue;
            }
            if let Some((above, repository)) = &above {
                if !is_home(above) && refuse(git_dir).is_ok() {
                    finder.above(&mut found, above, repository);
                }
                continue;
            }
            if let Err(error) = refuse(git_dir) {
                context.warn(format_args!("git cannot work here: {error}"));
                continue;
            }
            match repository {
                Repository::Linked(linked) => finder.linked(&mut found, top, linked),
                Repository::Separate(git_dir) => finder.separate(&mut found, top, git_dir),
                Repository::Here(_) => {}
            }
        }
        let is_found = |path: &PathBuf| {
            let mut places = work.iter().chain(&found.read).chain(&found.write);
            is_readable_by_all(path) || places.any(|place| path.starts_with(place))
        };
        found.borrowed.retain(|path| !is_found(path) && refuse(path).is_ok());
        found.borrowed.sort();
        found.borrowed.dedup();
        found
    }

    /// Names the borrowed objects that no grant covers. They are not granted unasked: the list of
    /// them is in the repository, where a command can write it, and no lender names the borrower.
    pub(super) fn name_borrowed(&self, read: &[PathBuf], write: &[PathBuf], context: &Context) {
        let is_granted =
            |path: &PathBuf| read.iter().chain(write).any(|granted| path.starts_with(granted));
        let missing: Vec<_> = self.borrowed.iter().filter(|path| !is_granted(path)).collect();
        let flags: Option<Vec<_>> =
            missing.iter().map(|path| Some(format!("--read {}", shell_word(path)?))).collect();
        if let (Some(first), Some(flags)) = (missing.first(), flags) {
            let more = match missing.len() {
                1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            context.say(format_args!(
                "git cannot work here: the repository borrows objects of {}{more} ({})",
                Shown::path(first),
                flags.join(" ")
            ));
        }
    }
}

/// The circumstances of a run.
struct Finder<'a> {
    is_recorded: bool,
    has_walls: bool,
    context: &'a Context,
}

impl Finder<'_> {
    fn above(&self, found: &mut Elsewhere, top: &Path, repository: &Repository) {
        if let Repository::Separate(git_dir) = repository
            && !names(git_dir, top)
        {
            return;
        }
        let at = Shown::path(top);
        self.context.say(if self.has_walls {
            format!(
                "commits cannot be made from here: the top of the repository is above \
                 (--allow {at}); what lies there cannot be read, and git shows it as deleted"
            )
        } else {
            format!("commits are not recorded: the top of the repository is above (--allow {at})")
        });
        found.read.push(repository.git_dir().to_owned());
        let dot_git = top.join(DOT_GIT);
        if sys::kind_of(&dot_git).is_ok_and(|kind| kind == Some(FileKind::File)) {
            found.read.push(dot_git);
        }
    }

    fn linked(&self, found: &mut Elsewhere, top: &Path, linked: &LinkedWorktree) {
        if found.write.contains(&linked.own) {
            return;
        }
        let common = Shown::path(&linked.common);
        let has_tables = sys::leads_to_dir(&linked.common.join(REFTABLE));
        self.context.say(format_args!(
            "a git worktree: the command can write objects, refs and logs of its repository \
             {common}"
        ));
        if self.has_walls {
            let (locked, then) = if has_tables {
                ("config", "git prints an error when it deletes or renames a branch")
            } else {
                (
                    "packed-refs and config",
                    "git deletes and renames no branch or tag, and prints an error when it commits",
                )
            };
            self.context.say(format_args!(
                "{locked} of the repository cannot be written: {then} \
                 (--allow {} --allow {common})",
                Shown::path(top)
            ));
            if let Err(error) = linked.make_logs() {
                self.context.warn(format_args!("git cannot commit here: {error}"));
            }
        }
        found.read.push(linked.common.clone());
        // The grants for a commit. Hooks and settings would count for the next user of the
        // repository.
        let written = ["objects", "refs", "logs", REFTABLE].map(|name| linked.common.join(name));
        found.write.extend(written.into_iter().filter(|path| sys::leads_to_dir(path)));
        found.write.push(linked.own.clone());
        if !self.is_recorded {
            return;
        }
        found.tracked.extend(own_parts(linked));
        match linked.branch_file() {
            Ok(branch) => found.tracked.extend(branch),
            Err(error) => {
                self.context.warn(format_args!("the branch is not recorded: {error}"));
            }
        }
    }

    fn separate(&self, found: &mut Elsewhere, top: &Path, git_dir: &Path) {
        let (top_shown, shown) = (Shown::path(top), Shown::path(git_dir));
        if !names(git_dir, top) {
            let what =
                if self.has_walls { "git cannot work here" } else { "commits are not recorded" };
            self.context.say(format_args!(
                "{what}: the git directory {shown} does not name this work tree \
                 (--allow {top_shown} --allow {shown})"
            ));
            return;
        }
        let how = match (self.has_walls, self.is_recorded) {
            (true, true) => "can be written, and is recorded",
            (true, false) => "can be written",
            (false, _) => "is recorded",
        };
        self.context.say(format_args!("the git directory of this work tree, {shown}, {how}"));
        found.write.push(git_dir.to_owned());
        if self.is_recorded {
            found.tracked.push(git_dir.to_owned());
        }
    }
}

/// The paths elsewhere that a recording of a work tree without walls takes along: its git
/// directory, or of a linked one the parts that are its own. `top` has no symlink.
///
/// # Errors
/// When the branch of a linked work tree gets no file of its own: then its commits would come back
/// by half.
pub(super) fn recorded_with(top: &Path) -> sys::Result<Vec<PathBuf>> {
    let mut found = match Repository::at(top) {
        Some(Repository::Linked(linked)) => {
            own_parts(&linked).chain(linked.branch_file()?).collect()
        }
        Some(Repository::Separate(git_dir)) if names(&git_dir, top) => vec![git_dir],
        _ => Vec::new(),
    };
    found.retain(|path: &PathBuf| !path.starts_with(top));
    Ok(found)
}

/// The recorded parts of a linked work tree, but for its branch.
fn own_parts(linked: &LinkedWorktree) -> impl Iterator<Item = PathBuf> + use<> {
    // They hold the refs of all, in files that no work tree has for itself.
    let tables = Some(linked.common.join(REFTABLE)).filter(|path| sys::leads_to_dir(path));
    std::iter::once(linked.own.clone()).chain(tables)
}

/// Whether the settings of a git directory name a work tree as theirs (`core.worktree`).
fn names(git_dir: &Path, top: &Path) -> bool {
    let Ok(dir) = Dir::open_no_symlinks(git_dir) else { return false };
    let named = |name: &[u8]| -> Option<PathBuf> {
        let bytes = dir.read(name, MAX_SETTINGS_BYTES).ok()?;
        let options = init::Options::default();
        let file =
            gix_config::File::from_bytes_no_includes(&bytes, Metadata::api(), options).ok()?;
        let value = file.string("core.worktree")?;
        sys::real_path(&sys::plain_absolute(Path::new(OsStr::from_bytes(&value)), git_dir)).ok()
    };
    SETTINGS.into_iter().any(|name| named(name).is_some_and(|named| named == top))
}

/// A repository of settings in the home directory is not what a user works on below it.
fn is_home(path: &Path) -> bool {
    home_dir().is_ok_and(|home| sys::real_path(&home).is_ok_and(|home| home == path))
}
