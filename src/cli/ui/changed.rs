//! The changes between two states of a session as a page shows them: the tree of
//! [`looking`](crate::cli::looking), remembered so that a long one can be loaded piece by piece.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::app::App;
use super::server::Failure;
use crate::cli::looking::{Node, Renames, Row, Subject, states_around, tree_of};
use nono_engine::diff::{Change, ChangeSummary};
use nono_engine::session::Catalog;
use nono_engine::snapshot::SessionDir;

/// Changes, and their tree.
pub(super) struct Changed {
    /// Numbers of both states.
    pub(super) numbers: (u64, u64),
    pub(super) roots: Vec<PathBuf>,
    pub(super) changes: Vec<Change>,
    pub(super) renames: Renames,
    pub(super) commits: Vec<String>,
    pub(super) summary: ChangeSummary,
    pub(super) rows: Vec<Row>,
    pub(super) nodes: Vec<Node>,
}

/// The part of a session that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it.
    Whole,
    /// The work of the steps from this one to that one.
    Steps(u64, u64),
    /// From the first state to this one.
    UpTo(u64),
}

impl Changed {
    /// Compares the states around a part of a session, or remembers that.
    pub(super) fn of(app: &App, session: &SessionDir, part: Part) -> Result<Arc<Self>, Failure> {
        let (old, new) = match part {
            Part::Whole => states_around(session, None)?,
            Part::Steps(first, last) => {
                for number in [first, last] {
                    is_recorded(session, number)?;
                }
                states_around(session, Some((first, last)))?
            }
            Part::UpTo(number) => {
                is_recorded(session, number)?;
                let first = session.manifest(session.first_number()?)?.manifest;
                (first, session.manifest(number)?.manifest)
            }
        };
        let key = (session.id(), old.number, new.number);
        if let Some(known) = app.compared.lock().get(&key) {
            return Ok(Arc::clone(known));
        }
        let store = Catalog::store_of(session)?;
        let subject = Subject { session, store: &store, old: &old, new: &new };
        let comparison = subject.compare()?;
        let summary = comparison.summary();
        let looked = subject.look(comparison)?;
        let roots = looked.states.roots().to_vec();
        let changes = looked.comparison.changes;
        let moved: std::collections::HashSet<usize> = looked.renames.values().copied().collect();
        let (rows, nodes) = tree_of(&changes, &roots, |index| moved.contains(&index));
        let changed = Arc::new(Self {
            numbers: (old.number, new.number),
            roots,
            changes,
            renames: looked.renames,
            commits: looked.commits,
            summary,
            rows,
            nodes,
        });
        app.compared.lock().put(key, Arc::clone(&changed));
        Ok(changed)
    }

    /// The change of a path.
    pub(super) fn change(&self, path: &Path) -> Option<usize> {
        self.changes.binary_search_by(|change| change.path.as_path().cmp(path)).ok()
    }

    /// The rows right below a row; without one, the outermost.
    pub(super) fn below(&self, row: Option<usize>) -> impl Iterator<Item = usize> {
        let (mut at, end) =
            row.map_or((0, self.nodes.len()), |row| (row + 1, self.nodes[row].next));
        std::iter::from_fn(move || {
            let row = (at < end).then_some(at)?;
            at = self.nodes[row].next;
            Some(row)
        })
    }

    /// How many rows stand below a row.
    pub(super) fn size(&self, row: usize) -> usize {
        self.nodes[row].next - row - 1
    }

    /// The name of a row, below the one above it.
    pub(super) fn name(&self, row: usize) -> String {
        crate::cli::render::shown(self.rows[row].name(&self.changes))
    }

    /// The changes in a range, counted.
    pub(super) fn counts(&self, range: Range<usize>) -> ChangeSummary {
        ChangeSummary::of(&self.changes[range])
    }

    /// A path below the tracked paths, as it is shown.
    pub(super) fn shown(&self, path: &Path) -> String {
        let bytes = path.as_os_str().as_encoded_bytes();
        crate::cli::render::shown(nono_engine::diff::relative_to_roots(bytes, &self.roots))
    }
}

/// Refuses a number that no snapshot of the session has.
fn is_recorded(session: &SessionDir, number: u64) -> Result<(), Failure> {
    if session.recorded_numbers()?.contains(&number) {
        return Ok(());
    }
    Err(Failure::not_found(format!("session {} has no state {number}", session.id())))
}
