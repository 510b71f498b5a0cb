//! Repositories outside the paths of a command: the grants in them, and the recorded parts.
//!
//! In a linked work tree a commit adds objects, refs and logs to the repository that it belongs to.
//! The command may write these, and neither hooks nor settings, which count for everybody who works
//! there. A snapshot has only what is of this work tree alone: its HEAD and index, and the branch
//! that is checked out; or the reftables, if the refs are in these. Below the top of a repository,
//! git can look at its history and make no commit.

use std::path::{Path, PathBuf};

use super::args::home_dir;
use super::context::Context;
use super::error::CliError;
use nono_engine::git::{LinkedWorktree, repository_above};
use nono_engine::path_text::Shown;
use nono_engine::sys;

/// The directory of refs in reftables.
const REFTABLE: &str = "reftable";

/// The places that belong to the work and lie elsewhere. No path has a symlink.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// Recorded as well.
    pub(super) tracked: Vec<PathBuf>,
    /// The command writes it.
    pub(super) write: Vec<PathBuf>,
    /// The command reads it.
    pub(super) read: Vec<PathBuf>,
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
        for top in &work {
            if let Some(linked) = LinkedWorktree::at(top) {
                let common = &linked.common;
                if is_work(common) || found.read.contains(common) {
                    continue;
                }
                if let Err(error) = refuse(common) {
                    context.warn(format_args!("git cannot work here: {error}"));
                    continue;
                }
                found.linked(&linked, is_recorded, context);
            } else if let Some(above) = repository_above(top)
                && !is_work(&above.git_dir)
                && !is_home(&above.top)
                && refuse(&above.git_dir).is_ok()
            {
                let at = Shown::path(&above.top);
                context.say(match has_walls {
                    true => format!(
                        "commits cannot be made from here: the top of the repository is above \
                         (--allow {at}); what lies there cannot be read, and git shows it as deleted"
                    ),
                    false => format!(
                        "commits are not recorded: the top of the repository is above (--allow {at})"
                    ),
                });
                found.read.push(above.git_dir);
            }
        }
        found
    }

    fn linked(&mut self, linked: &LinkedWorktree, is_recorded: bool, context: &Context) {
        let common = Shown::path(&linked.common);
        context.say(format_args!(
            "a git worktree: the command can write objects, refs and logs of its repository {common}"
        ));
        self.read.push(linked.common.clone());
        // The grants for a commit. Hooks and settings would count for the next user of the
        // repository.
        let written = ["objects", "refs", "logs", REFTABLE].map(|name| linked.common.join(name));
        self.write.extend(written.into_iter().filter(|path| sys::leads_to_dir(path)));
        self.write.push(linked.own.clone());
        if !is_recorded {
            return;
        }
        self.tracked.push(linked.own.clone());
        let tables = linked.common.join(REFTABLE);
        if sys::leads_to_dir(&tables) {
            // They hold the refs of all, in files that no work tree has for itself.
            self.tracked.push(tables);
        }
        match linked.branch_file() {
            Ok(branch) => self.tracked.extend(branch),
            Err(error) => context.warn(format_args!("the branch is not recorded: {error}")),
        }
    }
}

/// A repository of settings in the home directory is not what anybody works on below it.
fn is_home(path: &Path) -> bool {
    home_dir().is_ok_and(|home| sys::real_path(&home).is_ok_and(|home| home == path))
}
