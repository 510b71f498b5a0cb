//! Damaged archives that `nono remote verify --remove-damaged` removes.

use std::collections::BTreeMap;
use std::path::Path;

use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::progress::Bar;
use nono_archive::remote::{
    CheckReport, Inventory, Place, RemoteError, StayingArchive, remove_damaged, replaceable,
};
use nono_archive::{ArchiveName, Identities};
use nono_engine::counted::counted;
use nono_engine::progress::Progress;

/// Damaged archives of a remote, sorted by whether a push can replace them.
pub(super) struct Damage {
    /// By session.
    going: BTreeMap<String, Vec<ArchiveName>>,
    pub(super) staying: Vec<StayingArchive>,
}

impl Damage {
    /// `checks` are those of the sessions, by id.
    pub(super) fn sort(
        place: &Place,
        inventory: &Inventory,
        checks: &BTreeMap<String, CheckReport>,
        is_asked: impl Fn(&str) -> bool,
        root: &Path,
        identities: &Identities,
        progress: &dyn Progress,
    ) -> Result<Self, RemoteError> {
        let mut damage = Self { going: BTreeMap::new(), staying: Vec::new() };
        for id in inventory.session_ids().into_iter().filter(|id| is_asked(id)) {
            // A session of which everything was cut off was not read.
            let unread = CheckReport::default();
            let checked = checks.get(id).unwrap_or(&unread);
            let report = replaceable(place, inventory, id, checked, root, identities, progress)?;
            damage.staying.extend(report.staying);
            if !report.going.is_empty() {
                damage.going.insert(id.to_owned(), report.going);
            }
        }
        Ok(damage)
    }

    /// Removes those that a push can replace, after a question, and returns their names.
    pub(super) fn remove(
        &self,
        place: &Place,
        identities: &Identities,
        is_sure: bool,
        context: &Context,
    ) -> Result<Vec<String>, CliError> {
        let mut removed = Vec::new();
        if self.going.is_empty() || !(is_sure || self.confirm(context)?) {
            return Ok(removed);
        }
        let bar = Bar::new(context, "removing damaged archives");
        for (id, going) in &self.going {
            let mut each = |name: &ArchiveName| removed.push(name.to_string());
            let done = remove_damaged(place, id, going, identities, &*bar, &mut each);
            done.map_err(|error| {
                let state =
                    format!("{} removed", counted(removed.len() as u64, "archive", "archives"));
                CliError::from(error).leaving(&state)
            })?;
        }
        bar.finish();
        Ok(removed)
    }

    fn confirm(&self, context: &Context) -> Result<bool, CliError> {
        let count = self.going.values().map(Vec::len).sum::<usize>() as u64;
        let archives = counted(count, "damaged archive", "damaged archives");
        if !context.stdin_is_terminal {
            let message = format!(
                "nothing was removed: --remove-damaged asks first whether {archives} may go, and \
                 this is no terminal"
            );
            return Err(CliError::usage(message).with_hint("--yes removes without asking"));
        }
        for name in self.going.values().flatten() {
            context.say(format_args!("  {name}"));
        }
        context.confirm(&format!("remove {archives} for good?"))
    }
}
