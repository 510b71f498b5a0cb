//! `nono run`: a command, recorded so that it can be undone.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use clap::Args;

use crate::cli::args::{CaptureArgs, StoreArgs, home_dir};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::progress::Bar;
use crate::cli::render::{Palette, summary_line};
use crate::cli::supervise::supervise;
use crate::cli::{Outcome, commands};
use crate::diff::ChangeSummary;
use crate::session::{RecordRequest, Recording};
use crate::snapshot::SessionOrigin;
use crate::sys;

/// Arguments of `nono run`.
#[derive(Debug, Args)]
pub(in crate::cli) struct RunArgs {
    /// Record the state before and after, so that the command can be undone
    #[arg(long)]
    rollback: bool,
    /// Directory (or file) that the command works in and that is recorded (repeatable)
    /// [default: the current directory, unless it is the home directory]
    #[arg(long, value_name = "DIR")]
    allow: Vec<PathBuf>,
    /// Path that the command only reads; not recorded (repeatable)
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,
    /// Do not ask about the changes afterwards
    #[arg(long, alias = "no-undo-prompt")]
    no_rollback_prompt: bool,
    #[command(flatten)]
    capture: CaptureArgs,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(in crate::cli) fn run(args: &RunArgs, store: &StoreArgs, context: &Context) -> Outcome {
    context.say("no sandbox yet: the command can write wherever you can");
    if !args.rollback {
        return start(args, None, context);
    }
    let request = RecordRequest {
        root: store.catalog()?.root().to_owned(),
        command: args.command.clone(),
        tracked_paths: tracked_paths(args)?,
        exclusion: args.capture.exclusion(),
        budget: args.capture.budget(),
        origin: SessionOrigin::Run,
    };
    let bar = Bar::new(context, "recording the state before", true);
    let started = Recording::start(&request, bar.clone());
    bar.finish();
    let recording = started?;
    let id = recording.session_id();
    commands::snapshot::report_left_out(recording.baseline(), &id, context);

    let ended = start(args, Some(&id), context);
    let code = match &ended {
        Ok(code) => *code,
        Err(error) => error.exit_code(),
    };
    let finished = recording.finish(Some(code.into())).map_err(|error| {
        let hint = format!("the state before is safe: nono rollback restore {id}");
        CliError::from(error).with_hint(hint).with_exit_code(code.max(1))
    });
    if let (Err(error), Err(_)) = (&ended, &finished) {
        context.error(error);
    }
    let (_, changes) = finished?;
    if changes.is_empty() {
        context.say(format_args!("session {id}: nothing changed"));
    } else {
        let summary = summary_line(&ChangeSummary::of(&changes), &Palette::coloured());
        context.say(format_args!("session {id}: {summary}"));
        context.say(format_args!("  see it:  nono rollback show --diff {id}"));
        context.say(format_args!("  undo it: nono rollback restore {id}"));
    }
    ended
}

fn start(args: &RunArgs, session_id: Option<&str>, context: &Context) -> Outcome {
    supervise(&args.command, session_id, context.stdin_is_terminal).map_err(|error| {
        let program = crate::path_text::Shown::path(args.command[0].as_ref());
        // As shells do it: 127 for what is not there, 126 for what cannot be run.
        let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
        CliError::failed(format!("cannot run {program}: {error}")).with_exit_code(code)
    })
}

fn tracked_paths(args: &RunArgs) -> Result<Vec<PathBuf>, CliError> {
    if !args.allow.is_empty() {
        return Ok(args.allow.clone());
    }
    let current = sys::current_dir()?;
    let home = home_dir().ok().and_then(|home| sys::real_path(&home).ok());
    if home.as_ref() == Some(&current) {
        let message = "nothing would be recorded: the current directory is the home directory";
        return Err(CliError::usage(message).with_hint(
            "go to the project, or name what to record: nono run --rollback --allow DIR -- CMD",
        ));
    }
    Ok(vec![current])
}
