//! The commands that are offered after a run.

use crate::cli::offer::NONO;
use nono_engine::session::{Catalog, Place, Purpose};
use nono_engine::snapshot::SessionDir;

/// How to look at a session and how to undo it, from here.
pub(in crate::cli) struct Ways {
    pub(in crate::cli) see: String,
    pub(in crate::cli) undo: String,
}

/// The short commands where they mean this session, and else those with its id.
pub(in crate::cli) fn ways(catalog: &Catalog, session: &SessionDir) -> Ways {
    let id = session.id();
    if is_meant_here(&id, catalog) {
        return Ways { see: format!("{NONO} diff"), undo: format!("{NONO} undo") };
    }
    Ways { see: format!("{NONO} diff {id}"), undo: format!("{NONO} undo {id}") }
}

/// Whether a command without an id means this session, in the current directory.
pub(in crate::cli) fn is_meant_here(id: &str, catalog: &Catalog) -> bool {
    let here = Place::current(Purpose::Restoring).ok();
    let meant = here.and_then(|here| catalog.find_here(&here).ok());
    meant.is_some_and(|meant| meant.id() == id)
}
