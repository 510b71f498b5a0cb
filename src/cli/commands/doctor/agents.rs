//! Whether the hooks in coding agents do what they are for.

use super::Finding;
use crate::cli::args::StoreArgs;
use crate::cli::commands::agent;
use crate::cli::error::CliError;
use nono_engine::path_text::Shown;

pub(super) fn hooks(store: &StoreArgs) -> Result<Finding, CliError> {
    const WHAT: &str = "agents";
    let agents = agent::all()?;
    for status in &agents {
        if let Some(file) = status.broken().next() {
            let problem = file.problem.clone();
            let problem = problem.unwrap_or_else(|| "its hooks call another nono".to_owned());
            let found = format!("{}: {}: {problem}", status.client, Shown::path(&file.path));
            return Ok(Finding::wrong(
                WHAT,
                found,
                format!("nono agent install {}", status.client),
            ));
        }
    }
    if let Some(last) = agent::mishaps(store)?.last() {
        let what = Shown::bytes(last.what.as_bytes());
        let found = format!("a hook of {} failed: {what}", Shown::bytes(last.client.as_bytes()));
        return Ok(Finding::wrong(WHAT, found, "nono agent status names all of the last day"));
    }
    let with: Vec<_> = agents.iter().filter(|it| it.has_hooks()).map(|it| it.client).collect();
    Ok(Finding::fine(
        WHAT,
        match with.as_slice() {
            [] => "none has hooks of nono (nono agent install)".to_owned(),
            with => format!("{} with hooks", with.join(", ")),
        },
    ))
}
