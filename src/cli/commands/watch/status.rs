//! `nono watch status`: the watchers of a store, as they say themselves.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use clap::Args;

use super::shown_paths;
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::{BOLD, Context, YELLOW};
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use nono_engine::path_text::Shown;
use nono_engine::watch::{
    Question, Reply, WatchError, WatchFacts, WatchPlace, ask, watched_places,
};

/// Maximum time until a watcher answers: it may read many events first.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same for `nono status`, which says more than this.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);

/// Arguments of `nono watch status`.
#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &StatusArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let mut all: Vec<WatchFacts> = Vec::new();
    for place in watched_places(store.catalog()?.root())? {
        if let Some(facts) = facts_of(&place, PATIENCE)?
            // A watcher of several paths answers at each of them.
            && all.iter().all(|known| known.pid != facts.pid)
        {
            all.push(facts);
        }
    }
    if args.json {
        context.json(&all)?;
        return Ok(0);
    }
    if all.is_empty() {
        context.say(format_args!("no watcher is at work; begin one: {NONO} watch --detach"));
        return Ok(0);
    }
    let mut out = context.out();
    for facts in &all {
        write(facts, &mut out)?;
    }
    out.flush()?;
    Ok(0)
}

/// The watchers of a directory, or of one above it. One that does not answer is told.
pub(in crate::cli::commands) fn watchers_of(
    root: &Path,
    directory: &Path,
    context: &Context,
) -> Vec<WatchFacts> {
    let mut found: Vec<WatchFacts> = Vec::new();
    for watched in directory.ancestors() {
        match facts_of(&WatchPlace::of(root, watched), SHORT_PATIENCE) {
            Ok(Some(facts)) if found.iter().all(|known| known.pid != facts.pid) => {
                found.push(facts);
            }
            Ok(_) => {}
            Err(error) => {
                context.warn(format_args!("{}: {error}", Shown::path(watched)));
            }
        }
    }
    found
}

/// The facts of the watcher at a place; none where no watcher is.
fn facts_of(place: &WatchPlace, patience: Duration) -> Result<Option<WatchFacts>, CliError> {
    let Some(connection) = place.connect()? else { return Ok(None) };
    match ask(&connection, &Question::Status, patience)? {
        Reply::Status(facts) => Ok(Some(*facts)),
        _ => Err(CliError::failed("a watcher answered something else")),
    }
}

fn write(facts: &WatchFacts, out: &mut impl Write) -> Result<(), CliError> {
    let WatchFacts { session_id, pid, directories, snapshots, last_snapshot, .. } = facts;
    writeln!(out, "{BOLD}{}{BOLD:#}", shown_paths(&facts.paths))?;
    let steps = if *snapshots == 1 { "step" } else { "steps" };
    writeln!(out, "  process {pid}, {directories} directories, {snapshots} {steps} so far")?;
    writeln!(out, "  last state: {session_id}/{last_snapshot}")?;
    if facts.names_programs {
        writeln!(out, "  programs that write files are named (fanotify)")?;
    }
    if *last_snapshot > 0 {
        writeln!(out, "  take the last change back: {NONO} undo --step {session_id}#last")?;
    }
    if let Some(why) = &facts.last_loss {
        let count = facts.losses;
        let times = if count == 1 { "once".to_owned() } else { format!("{count} times") };
        writeln!(out, "  everything was looked at again {times}, the last time because {why}")?;
    }
    if let Some(what) = &facts.waits_for {
        writeln!(out, "  waits for the end of {what}")?;
    } else if facts.is_pending {
        writeln!(out, "  something changed since, and will be recorded")?;
    }
    write_troubles(facts, out)
}

/// The faults that a user can mend.
pub(in crate::cli::commands) fn write_troubles(
    facts: &WatchFacts,
    out: &mut (impl Write + ?Sized),
) -> Result<(), CliError> {
    if let Some(gap) = &facts.gap {
        let gap = Shown::bytes(gap.as_bytes());
        writeln!(out, "  {YELLOW}{gap}: everything is looked at from time to time{YELLOW:#}")?;
    }
    if let Some(failure) = &facts.failure {
        let failure = Shown::bytes(failure.as_bytes());
        writeln!(out, "  {YELLOW}the last step failed: {failure}{YELLOW:#}")?;
    }
    Ok(())
}

impl From<WatchError> for CliError {
    fn from(error: WatchError) -> Self {
        Self::failed(error.to_string())
    }
}
