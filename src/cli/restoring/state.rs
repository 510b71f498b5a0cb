//! A recorded state in words: what came before it or after it, and when.

use jiff::Zoned;

use super::at_work::command;
use crate::cli::commands::quoted;
use crate::cli::error::CliError;
use crate::cli::render::relative_time;
use nono_engine::path_text::Shown;
use nono_engine::session::{SessionSummary, steps_of};
use nono_engine::snapshot::{SessionDir, SnapshotKind};

/// The state of a snapshot: "the state before `make`, 5 minutes ago".
///
/// # Errors
/// When the session or the snapshot cannot be read.
pub(in crate::cli) fn state_in_words(
    session: &SessionDir,
    number: u64,
) -> Result<String, CliError> {
    let metadata = session.metadata()?;
    let manifest = session.manifest(number)?.manifest;
    let when = relative_time(manifest.timestamp, &Zoned::now());
    let step = steps_of(&metadata).into_iter().find(|step| step.number == number);
    let label = metadata.labels.iter().find(|label| label.number == number);
    let summary = SessionSummary::of(session)?;
    let is_first = number == session.first_number()?;
    let what = match (manifest.kind, step, label) {
        (SnapshotKind::Safety, ..) => "the state before a restore".to_owned(),
        (_, Some(step), _) => {
            let title = step.summary();
            format!("the state after step {number}, {}", Shown::bytes(title.as_bytes()))
        }
        (_, None, Some(label)) => format!("the snapshot{}", quoted(&label.label)),
        _ if !summary.command.is_empty() && is_first => {
            format!("the state before {}", command(&summary))
        }
        _ if !summary.command.is_empty() => format!("the state after {}", command(&summary)),
        _ if summary.agent.is_some() && is_first => "the state before the agent".to_owned(),
        _ => "a snapshot".to_owned(),
    };
    Ok(format!("{what}, {when}"))
}
