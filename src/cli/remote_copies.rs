//! Where to get what is lost for good here: from a remote that has the snapshot.

use std::collections::BTreeSet;

use super::args::surroundings;
use super::error::CliError;
use super::sealing::Target;
use crate::config;
use nono_archive::remote::Inventory;
use nono_engine::progress::Progress;

/// Names of the remotes that have one of these snapshots of a session. A remote that does not
/// answer has none.
///
/// # Errors
/// When the settings cannot be read.
pub(super) fn remotes_with(
    session: &str,
    snapshots: &BTreeSet<u64>,
    progress: &dyn Progress,
) -> Result<Vec<String>, CliError> {
    let mut found = Vec::new();
    for remote in config::remotes(&surroundings()?)? {
        let name = remote.name;
        let listed =
            Target::find(Some(&name)).and_then(|target| target.open(false)).and_then(|place| {
                let sessions = BTreeSet::from([session.to_owned()]);
                Ok(Inventory::of_sessions(&place, &sessions, progress)?)
            });
        let has = match &listed {
            Ok(inventory) => {
                let available = inventory.archives.available(session).unwrap_or_default();
                available.iter().any(|(number, _)| snapshots.contains(number))
            }
            Err(error) => {
                tracing::debug!("remote {name}: {error}");
                false
            }
        };
        found.extend(has.then_some(name));
    }
    Ok(found)
}
