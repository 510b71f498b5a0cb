//! The left-out entries of a directory, and the notes about them: jobs beside the capture count the
//! entries of a left-out directory.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rayon::Scope;

use super::directory::PendingDir;
use super::{Capturer, StateYet};
use crate::byte_path;
use crate::manifest::{LeftOutState, LeftOutTally, NotCapturedReason};
use crate::sys::{Dir, FileKind, Stat};
use crate::walk::{
    self, FoundEntry, Known, LeftOut, MadeAgain, Marked, Mode, Place, Recorded, Repository,
    WhyLeftOut,
};

/// The counters of the directories that are left out except for some entries, by their names.
pub(super) type Counted = HashMap<Box<[u8]>, Arc<LeftOutTally>>;

impl Capturer<'_> {
    /// How what is in a directory is judged: one that bears its maker's mark is left out, but for
    /// what is kept of it; or a part of it is.
    pub(super) fn mode_inside(
        &self,
        node: &PendingDir,
        dir: &Dir,
        listed: &mut walk::Names,
        repository: &Repository,
    ) -> (Mode, Option<Arc<MadeAgain>>) {
        let filter = &self.roots[node.root].filter;
        let store = self.request.store;
        let path = &node.relative;
        let recorded = || {
            let known = node.known.iter().map(|dir| dir.recorded_itself(store, path));
            known.max().unwrap_or(Recorded::No).max(self.recorded_before(node.root, path))
        };
        let lock_beside = || self.lock_beside(node);
        let mode = walk::mode_inside(dir, path, listed, node.mode, filter);
        let place = Place { dir, relative: path, mode, filter };
        let mark = match listed.marked(&place, node.made.as_ref(), recorded, lock_beside) {
            Marked::Nothing => return (mode, None),
            Marked::InPart(made) => {
                node.is_in_part.store(true, Relaxed);
                return (mode, Some(made));
            }
            Marked::Whole(mark) => mark,
        };
        node.is_rebuildable.store(true, Relaxed);
        let rule = walk::rule_of_mark(mark);
        let state = LeftOutState::of_rebuildable(&node.stat, Some(mark));
        let state = StateYet::Noted(Some(state));
        self.leave_out_as(node.root, path, NotCapturedReason::Excluded { rule }, state);
        let mode = Mode::made_again(path);
        let is_known = || node.known.iter().any(|dir| dir.itself(store, path) != Known::No);
        if !walk::keeps_below(filter, repository, path, mode) && !is_known() {
            listed.names.clear();
        }
        (mode, None)
    }

    /// The record of a path in the last snapshot of the tracked path, of whatever session. A mark
    /// that a command leaves in a recorded directory changes nothing for the next session.
    pub(super) fn recorded_before(&self, root: usize, path: &[u8]) -> Recorded {
        let cache = &self.caches[root];
        match path {
            path if cache.holds_plainly(path) => Recorded::Plainly,
            path if cache.holds_plainly_below(path) => Recorded::InPart,
            _ => Recorded::No,
        }
    }

    /// The lock that lies beside a `node_modules`. One that is not in every known snapshot may go
    /// with a restore, and the proof with it.
    fn lock_beside(&self, node: &PendingDir) -> Option<Vec<u8>> {
        let name = walk::LOCK_BESIDE.as_bytes();
        let parent = node.parent.as_ref()?;
        if !parent.known.iter().all(|dir| dir.has(self.request.store, name)) {
            return None;
        }
        let dir = self.roots[node.root].dir.as_ref()?.open_beneath(&parent.relative).ok()?;
        dir.read(name, walk::MAX_LOCK_BYTES).ok()
    }

    /// Counts what is below a directory that is left out.
    pub(super) fn count_below<'s>(
        &'s self,
        scope: &Scope<'s>,
        root: usize,
        path: Vec<u8>,
        tally: Arc<LeftOutTally>,
    ) {
        scope.spawn(move |scope| {
            let Some(top) = self.roots[root].dir.as_ref().filter(|_| !self.is_stopped()) else {
                return;
            };
            for (name, stat) in tally.look(top, &path) {
                if stat.kind == FileKind::Directory {
                    let below = byte_path::join(&path, &name);
                    self.count_below(scope, root, below, Arc::clone(&tally));
                }
            }
        });
    }

    /// Leaves an entry out. For a directory, returns the counter of its entries.
    pub(super) fn leave_out_entry(
        &self,
        root: usize,
        path: &[u8],
        reason: NotCapturedReason,
        stat: Option<&Stat>,
        is_recorded: bool,
    ) -> Option<Arc<LeftOutTally>> {
        let (state, tally) = match stat {
            Some(stat) if stat.kind == FileKind::Directory => {
                let tally = Arc::new(LeftOutTally::of(stat, !is_recorded));
                (StateYet::Counted(Arc::clone(&tally)), Some(tally))
            }
            stat => (StateYet::Noted(stat.and_then(LeftOutState::of_file)), None),
        };
        self.leave_out_as(root, path, reason, state);
        tally
    }

    /// Notes what of a directory is left out. `entries` are those of it that are recorded, maybe
    /// only for something in them.
    pub(super) fn leave_out_all<'s>(
        &'s self,
        scope: &Scope<'s>,
        node: &PendingDir,
        left_out: Vec<LeftOut>,
        entries: &[FoundEntry],
    ) -> Counted {
        let mut counted = Counted::new();
        for left in left_out {
            let path = byte_path::join(&node.relative, &left.name);
            let stat = left.stat.as_ref();
            let is_recorded = entries.binary_search_by(|e| e.name.cmp(&left.name)).is_ok();
            let reason = match left.why {
                WhyLeftOut::Excluded(rule) => NotCapturedReason::Excluded { rule },
                WhyLeftOut::Rebuildable { rule, mark } => {
                    // A file that is made again is worth no word, whatever becomes of it.
                    let directory = stat.filter(|stat| stat.kind == FileKind::Directory);
                    let state = directory.map(|stat| LeftOutState::of_rebuildable(stat, mark));
                    let reason = NotCapturedReason::Excluded { rule };
                    self.leave_out_as(node.root, &path, reason, StateYet::Noted(state));
                    continue;
                }
                // With a `stat`: what may name it could not be read, and it itself can.
                WhyLeftOut::Unreadable(error) => {
                    NotCapturedReason::Unreadable { error, is_denied: false }
                }
            };
            let tally = self.leave_out_entry(node.root, &path, reason, stat, is_recorded);
            match tally {
                Some(tally) if is_recorded => drop(counted.insert(left.name, tally)),
                Some(tally) => self.count_below(scope, node.root, path, tally),
                None => {}
            }
        }
        counted
    }

    /// Counts what is not recorded because the directory is not.
    pub(super) fn count_passed_over<'s>(
        &'s self,
        scope: &Scope<'s>,
        node: &PendingDir,
        passed_over: Vec<(Box<[u8]>, Stat)>,
    ) {
        if let Some(tally) = &node.passed_over {
            for (name, stat) in passed_over {
                tally.add(&stat);
                if stat.kind == FileKind::Directory {
                    let path = byte_path::join(&node.relative, &name);
                    self.count_below(scope, node.root, path, Arc::clone(tally));
                }
            }
        }
    }
}
