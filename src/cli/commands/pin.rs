//! `nono pin` and `unpin`: sessions that retention leaves alone.

use clap::Args;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use nono_engine::layout::LATEST;
use nono_engine::session::Purpose;

/// Arguments of `nono pin` and `unpin`.
#[derive(Debug, Args)]
pub(in crate::cli) struct PinArgs {
    /// Sessions: ids, prefixes that only one has, names, or `latest` (the newest one here)
    #[arg(value_name = "ID", default_value = LATEST, allow_negative_numbers = true)]
    ids: Vec<String>,
}

/// Pins sessions, or takes their pins away. All are found before the first one is changed.
pub(in crate::cli) fn run(
    args: &PinArgs,
    pinned: bool,
    store: &StoreArgs,
    context: &Context,
) -> Outcome {
    let catalog = store.catalog()?;
    let found = args.ids.iter().map(|id| Ok(catalog.find_from(id, Purpose::Restoring)?));
    let sessions = found.collect::<Result<Vec<_>, CliError>>()?;
    for session in sessions {
        let id = session.id();
        let changed = session.set_pinned(pinned).map_err(|error| {
            let hint = format!("`{NONO} verify {id} --repair` says what can be mended");
            CliError::from(error).with_hint(hint)
        })?;
        context.say(match (pinned, changed) {
            (true, true) => {
                format!("session {id} is pinned: it stays until you unpin or remove it")
            }
            (true, false) => format!("session {id} was pinned already"),
            (false, true) => format!("session {id} is no longer pinned"),
            (false, false) => format!("session {id} was not pinned"),
        });
    }
    Ok(0)
}
