//! `nono import`: sessions of the other nono, taken over with their ids.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use crate::cli::render::byte_size;
use nono_engine::counted::counted;
use nono_engine::import::{
    ImportOutcome, ImportReport, find_sessions, import_session, usual_place,
};
use nono_engine::path_text::{Shown, serde_path, serde_paths};
use nono_engine::progress::Progress;
use nono_engine::sys;

/// Maximum number of named files of a session that could not be taken over.
const NAMED: usize = 20;

/// Arguments of `nono import`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ImportArgs {
    /// A session of the other nono, or a directory of them
    /// [default: $XDG_STATE_HOME/nono/rollbacks]
    #[arg(value_name = "DIR")]
    dir: Vec<PathBuf>,
    /// Let the limits (max_sessions, max_age_days) remove the imported sessions
    #[arg(long)]
    no_pin: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    sessions: Vec<ImportReport>,
    failed: Vec<Failed>,
    /// The rests of sessions whose manifests are gone.
    #[serde(with = "serde_paths")]
    without_manifest: Vec<PathBuf>,
}

/// A session that was not imported.
#[derive(Debug, Serialize)]
struct Failed {
    #[serde(with = "serde_path")]
    source: PathBuf,
    error: String,
}

pub(in crate::cli) fn run(args: &ImportArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    let dirs = match args.dir.as_slice() {
        [] => {
            let (state, home) = (std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"));
            let usual = usual_place(state, home).ok_or_else(|| {
                CliError::usage("neither XDG_STATE_HOME nor HOME is set: name the directory")
            })?;
            if matches!(sys::kind_of(&usual), Ok(None)) {
                let usual = Shown::path(&usual);
                return Err(CliError::failed(format!(
                    "there are no sessions of the other nono at {usual}"
                ))
                .with_hint(format!("{NONO} import DIR reads them elsewhere")));
            }
            vec![usual]
        }
        dirs => dirs.to_vec(),
    };
    let mut report = Report::default();
    let mut sources = Vec::new();
    for dir in &dirs {
        let found = find_sessions(dir)?;
        sources.extend(found.sessions);
        report.without_manifest.extend(found.without_manifest);
    }
    let bar = Bar::new(context, "importing");
    for source in sources {
        match import_session(catalog.root(), &source, !args.no_pin, &*bar) {
            Ok(session) => report.sessions.push(session),
            Err(error) if error.is_cancelled() => {
                bar.finish();
                return Err(CliError::stopped(
                    "stopped: the sessions before this one are imported",
                ));
            }
            Err(error) => report.failed.push(Failed { source, error: error.to_string() }),
        }
        if bar.is_cancelled() {
            break;
        }
    }
    bar.finish();
    for session in &report.sessions {
        tell(session, context);
    }
    for Failed { source, error } in &report.failed {
        context.warn(format_args!("{} is not imported: {error}", Shown::path(source)));
    }
    for path in &report.without_manifest {
        context.warn(format_args!(
            "{} is not imported: it has no manifest (session.json, snapshots/000.json)",
            Shown::path(path)
        ));
    }
    let is_complete = report.failed.is_empty()
        && report.without_manifest.is_empty()
        && report.sessions.iter().all(|one| one.problems.is_empty());
    let has_new = report.sessions.iter().any(|session| session.outcome == ImportOutcome::Imported);
    if has_new && !args.json {
        context.say(format_args!("see them: {NONO} list --all"));
        if !args.no_pin {
            context.say(format_args!("the limits leave them alone until `{NONO} unpin ID`"));
        }
    }
    if args.json {
        context.json(&report)?;
    }
    Ok(u8::from(!is_complete))
}

fn tell(session: &ImportReport, context: &Context) {
    let id = &session.session_id;
    if session.outcome == ImportOutcome::AlreadyHere {
        context.say(format_args!("{id}: imported before"));
        return;
    }
    context.say(format_args!(
        "{id}: {}, {} checked, {}",
        counted(session.snapshot_count, "snapshot", "snapshots"),
        counted(session.objects_checked, "object", "objects"),
        byte_size(session.bytes_checked)
    ));
    if session.lacks_session_document {
        context.say(
            "  it has no session.json: its command, its end and its tracked paths are not known",
        );
    }
    if let count @ 1.. = session.symlink_count {
        let symlinks = if count == 1 { "symlink" } else { "symlinks" };
        context.say(format_args!("  {count} {symlinks} named without a target: left out"));
    }
    for problem in session.problems.iter().take(context.at_most(NAMED)) {
        context.warn(format_args!(
            "{id}/{}: {} is left out: {}",
            problem.snapshot,
            Shown::path(&problem.path),
            problem.reason
        ));
    }
    if let more @ 1.. = session.problems.len().saturating_sub(context.at_most(NAMED)) {
        context.warn(format_args!("{id}: and {more} more files are left out"));
    }
    context.say(format_args!("  not recorded there: {}", session.not_known.join(", ")));
}
