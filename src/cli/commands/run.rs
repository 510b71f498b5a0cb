//! `nono run`: a command, recorded so that it can be undone.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::cli::args::{CaptureArgs, LimitArgs, StoreArgs, ThreadArgs, surroundings};
use crate::cli::checkpoints::{SOCKET_VARIABLE, Server};
use crate::cli::commands::review::Reviewed;
use crate::cli::commands::sandbox_exec::cannot_run;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::grants::{GrantArgs, Grants};
use crate::cli::launch::prepare;
use crate::cli::preflight;
use crate::cli::progress::Bar;
use crate::cli::render::{Palette, summary_line};
use crate::cli::retention;
use crate::cli::scratch::Scratch;
use crate::cli::signals;
use crate::cli::supervise::{CommandSignals, Ended, Leftover, PATIENCE, supervise, wait_for_quiet};
use crate::cli::{Outcome, commands, review};
use crate::config::{Profile, ProfileLibrary, Settings, apply_rules};
use crate::diff::ChangeSummary;
use crate::path_text::Shown;
use crate::progress::Progress;
use crate::sandbox::{Network, Policy};
use crate::session::{Catalog, RecordError, RecordRequest, Recording};
use crate::snapshot::{SessionOrigin, SnapshotError};

/// Arguments of `nono run`.
#[derive(Debug, Args)]
pub(in crate::cli) struct RunArgs {
    /// Record the state before and after, so that the command can be undone
    #[arg(long)]
    rollback: bool,
    /// Older name of what --rollback needs, and always so: the command is supervised
    #[arg(long, hide = true)]
    supervised: bool,
    /// What the command needs: the name of a profile (nono profile list), or a file
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    #[command(flatten)]
    grants: GrantArgs,
    /// Do not ask about the changes afterwards
    #[arg(long, alias = "no-undo-prompt")]
    no_rollback_prompt: bool,
    #[command(flatten)]
    capture: CaptureArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(in crate::cli) fn run(args: &RunArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    let surroundings = surroundings()?;
    let profile = args.profile.as_deref();
    let profile = profile.map(|name| ProfileLibrary::new(&surroundings).find(name)).transpose()?;
    let grants = Grants::of(&args.grants, profile.as_ref(), &catalog, context)?;
    let profile = profile.map(|found| found.profile);
    if grants.policy.is_none() {
        context.say("no sandbox: the command can write wherever you can");
    }
    if !args.rollback {
        let mut passed_on = CommandSignals::take().map_err(signals::refused)?;
        return Ok(start(args, &grants, profile.as_ref(), None, &mut passed_on, context)?.code);
    }
    let flags = args.threads.flags(args.limits.flags(args.capture.flags()));
    let settings = Settings::load(&surroundings, &flags)?;
    let request = RecordRequest {
        root: catalog.root().to_owned(),
        command: args.command.clone(),
        tracked_paths: grants.tracked.clone(),
        exclusion: args.capture.exclusion(&settings, profile.as_ref()),
        budget: settings.budget(),
        threads: settings.threads(),
        origin: SessionOrigin::Run,
    };
    let announced = preflight::announce(&request, context);
    let guessed = request.clone();
    let bar = Bar::guessing(context, "recording the state before", move || {
        announced.or_else(|| preflight::guess(&guessed))
    });
    let started = Recording::begin(&request, bar.clone());
    bar.finish();
    let recording = started?;
    let id = recording.session_id();
    if bar.is_cancelled() {
        let message =
            "stopped before the command was started; the state before was recorded already";
        return Err(
            CliError::stopped(message).with_hint(format!("remove it: nono rollback cleanup {id}"))
        );
    }
    commands::snapshot::report_left_out(recording.baseline(), &id, context);

    let retention = retention::begin(catalog.root(), &settings, context);
    let mut passed_on = CommandSignals::take().map_err(signals::refused)?;
    let ended = start(args, &grants, profile.as_ref(), Some(&recording), &mut passed_on, context);
    let code = match &ended {
        Ok(ended) => ended.code,
        Err(error) => error.exit_code(),
    };
    let (session, baseline) = (recording.manager().session().clone(), recording.baseline().clone());
    let bar = Bar::after_command(context, "recording the state after");
    let finished = recording.with_progress(bar.clone()).finish(Some(code.into()));
    bar.finish();
    let finished = finished.map_err(|error| {
        let hint = match &error {
            RecordError::BaselineNotDurable { is_lost: true, .. } => {
                "this run cannot be undone".to_owned()
            }
            RecordError::BaselineNotDurable { is_lost: false, .. } => {
                format!(
                    "`nono rollback verify {id}` tries again, and says whether all of it is there"
                )
            }
            RecordError::Snapshot(SnapshotError::Store(error)) if error.is_damage() => {
                format!("mend what can be mended: nono rollback verify {id} --repair")
            }
            _ => format!("the state before is safe: nono rollback restore {id}"),
        };
        let error = CliError::from(error).with_hint(hint);
        if error.is_stopped() { error } else { error.with_exit_code(code.max(1)) }
    });
    if let (Err(error), Err(_)) = (&ended, &finished) {
        context.error(error);
    }
    if let (Ok(_), Ok((last, changes))) = (&ended, &finished) {
        commands::snapshot::report_missing(last, Some(&baseline), context);
        let patterns = &args.capture.rollback_exclude;
        commands::snapshot::report_idle_patterns(patterns, &[&baseline, last], context);
        let summary = match changes.as_slice() {
            [] => "nothing changed".to_owned(),
            changes => summary_line(&ChangeSummary::of(changes), &Palette::coloured()),
        };
        context.say(format_args!("session {id}: {summary}"));
    }
    // All is recorded and said: nobody has to wait for what follows.
    drop(passed_on);
    retention.finish(&settings, context);
    let (last, changes) = finished?;
    let ended = ended?;
    if !changes.is_empty() {
        let wants_review = !args.no_rollback_prompt && !ended.was_told_to_end;
        let is_settled = wants_review && review::is_possible(context) && {
            let (catalog, session, old, new) = (&catalog, &session, &baseline, &last);
            let reviewed = Catalog::store_of(session).map_err(CliError::from).and_then(|store| {
                let work = Reviewed { catalog, session, store: &store, old, new };
                work.review(changes, context)
            });
            // Whatever comes of it, the exit code is the command's.
            reviewed.unwrap_or_else(|error| {
                context.error(&error);
                false
            })
        };
        if !is_settled {
            context.say(format_args!("  see it:  nono rollback show --diff {id}"));
            context.say(format_args!("  undo it: nono rollback restore {id}"));
        }
    }
    Ok(ended.code)
}

/// Runs the command; with a recording, it can ask for checkpoints.
fn start(
    args: &RunArgs,
    grants: &Grants,
    profile: Option<&Profile>,
    recording: Option<&Recording>,
    signals: &mut CommandSignals,
    context: &Context,
) -> Result<Ended, CliError> {
    let scratch = Scratch::new()?;
    let mut command = prepare(&args.command, grants.policy.as_ref(), &scratch)?;
    if let Some(profile) = profile {
        apply_rules(&profile.env, std::env::vars_os().map(|(name, _)| name), &mut command)?;
    }
    let supervised = match recording {
        None => supervise(command, signals),
        Some(recording) => {
            command.env("NONO_SESSION", recording.session_id());
            supervise_recorded(command, &scratch, recording, signals, context)
        }
    };
    let ended = supervised.map_err(|error| cannot_run(&args.command[0], &error))?;
    if let Some(policy) = grants.policy.as_ref().filter(|_| ended.code != 0) {
        explain_failure(policy, context);
    }
    Ok(ended)
}

fn supervise_recorded(
    mut command: Command,
    scratch: &Scratch,
    recording: &Recording,
    signals: &mut CommandSignals,
    context: &Context,
) -> io::Result<Ended> {
    let refuse = |error: &io::Error| {
        context.warn(format_args!("`nono snapshot` will not work inside: {error}"));
    };
    let server = Server::bind(scratch.path()).inspect_err(refuse).ok();
    std::thread::scope(|scope| {
        let start = |server| Server::start(server, scope, recording).inspect_err(refuse).ok();
        // Ends the server however the command ends.
        let serving = server.as_ref().and_then(start);
        if let Some(serving) = &serving {
            command.env(SOCKET_VARIABLE, serving.path());
        }
        let ended = supervise(command, signals)?;
        wait_for_leftover(context);
        Ok(ended)
    })
}

/// The last state is the one at a moment at which nobody writes, if there is one.
fn wait_for_leftover(context: &Context) {
    let leftover = wait_for_quiet(|| {
        let seconds = PATIENCE.as_secs();
        context.say(format_args!(
            "waiting until what the command left running does not write ({seconds} s at most)"
        ));
    });
    if let Leftover::Writing(count) = leftover {
        context.warn(format_args!(
            "{count} processes that the command started keep writing; what they write from now on \
             is not recorded"
        ));
    }
}

/// The kernel tells its audit log alone which access it denied, so this says what was allowed.
fn explain_failure(policy: &Policy, context: &Context) {
    let list = |paths: &[PathBuf]| {
        let shown = paths.iter().map(|path| Shown::path(path).to_string());
        shown.collect::<Vec<_>>().join(", ")
    };
    let read = match policy.read.as_slice() {
        [] => "the system".to_owned(),
        paths => format!("the system, {}", list(paths)),
    };
    let network = match &policy.network {
        Network::Open => String::new(),
        Network::Closed => "; it had no network".to_owned(),
        Network::ConnectTo(ports) => format!("; it could connect to TCP ports {ports:?} only"),
    };
    context.say(format_args!(
        "if it was denied something: it could write {}, and read {read}{network}",
        list(&policy.write)
    ));
    context.say("  --allow DIR, --write PATH and --read PATH grant more; --no-sandbox grants all");
}
