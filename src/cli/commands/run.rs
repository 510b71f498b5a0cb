//! `nono run`: a command, recorded so that it can be undone.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Command;

use clap::Args;
use jiff::Timestamp;

use crate::cli::args::{CaptureArgs, LimitArgs, StoreArgs, ThreadArgs, surroundings};
use crate::cli::checkpoints::Server;
use crate::cli::commands::review::Reviewed;
use crate::cli::commands::sandbox_exec::cannot_run;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::grants::{GrantArgs, Grants};
use crate::cli::keeper::NotStarted;
use crate::cli::launch::{Launch, NamespaceMode, SecondWall};
use crate::cli::preflight;
use crate::cli::progress::Bar;
use crate::cli::render::{Palette, touched_part};
use crate::cli::repositories::{Repositories, Told};
use crate::cli::retention;
use crate::cli::run_report::{ReportArgs, ReportFile, RunReport};
use crate::cli::scratch::LeftBehind;
use crate::cli::signals;
use crate::cli::state_before;
use crate::cli::supervise::{CommandSignals, Ended, Leftover, PATIENCE, supervise, wait_for_quiet};
use crate::cli::together::Together;
use crate::cli::unrecorded::Unrecorded;
use crate::cli::{Outcome, commands, review};
use crate::config::{Profile, ProfileLibrary, Settings, apply_rules};
use crate::diff::{ChangeSummary, Comparison};
use crate::path_text::Shown;
use crate::progress::Progress;
use crate::session::{Catalog, RecordError, RecordRequest, Recorded, Recording, StoreModes};
use crate::snapshot::{SessionOrigin, SnapshotError};

/// So many processes that a command left running are named.
const MAX_NAMED: usize = 20;

/// Arguments of `nono run`.
#[derive(Debug, Args)]
pub(in crate::cli) struct RunArgs {
    /// Record the state before and after, so that the command can be undone
    #[arg(long)]
    rollback: bool,
    /// Older name of --rollback
    #[arg(long, hide = true)]
    supervised: bool,
    /// Call the session this: an id can be given as its name later
    #[arg(long, short, value_name = "TEXT", value_parser = commands::label)]
    message: Option<String>,
    /// The grants of the command: the name of a profile (nono profile list), or a file
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Let the command go on if this program is killed
    #[arg(long)]
    keep_running: bool,
    /// Do not ask about the changes afterwards
    #[arg(long, alias = "no-undo-prompt")]
    no_rollback_prompt: bool,
    #[command(flatten)]
    threads: ThreadArgs,
    /// The command and its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
    // A heading is that of all that follows, so groups come last.
    #[command(flatten)]
    grants: GrantArgs,
    /// Second wall: mounts and processes of the command's own, in which attributes of files outside
    /// the grants cannot be changed either
    #[arg(long, value_enum, value_name = "WHEN", default_value_t, env = "NONO_NAMESPACES")]
    namespaces: NamespaceMode,
    #[command(flatten)]
    capture: CaptureArgs,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    report: ReportArgs,
}

impl RunArgs {
    pub(in crate::cli) fn is_recorded(&self) -> bool {
        self.rollback || self.supervised
    }
}

pub(in crate::cli) fn run(args: &RunArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let (report, mut file) = (RunReport::default(), None);
    let outcome = run_reported(args, store, &report, &mut file, context);
    args.report.finish(&report, file.as_ref(), outcome, context)
}

fn run_reported(
    args: &RunArgs,
    store: &StoreArgs,
    report: &RunReport,
    file: &mut Option<ReportFile>,
    context: &Context,
) -> Outcome {
    let catalog = store.catalog()?;
    let surroundings = surroundings()?;
    let profile = args.profile.as_deref();
    let profile = profile.map(|name| ProfileLibrary::new(&surroundings).find(name)).transpose()?;
    let grants = Grants::of(&args.grants, args.is_recorded(), profile.as_ref(), &catalog, context)?;
    let profile = profile.map(|found| found.profile);
    let recorded = if args.is_recorded() { grants.tracked.as_slice() } else { &[] };
    *file = args.report.open(recorded, catalog.root())?;
    if grants.policy.is_none() {
        context.say("no sandbox: the command can write wherever you can");
    }
    if !args.is_recorded() {
        if args.message.is_some() {
            return Err(CliError::usage(
                "-m names a session, and without --rollback there is none",
            ));
        }
        let mut passed_on = CommandSignals::take().map_err(signals::refused)?;
        return Ok(
            start(args, &grants, profile.as_ref(), None, &mut passed_on, report, context)?.code
        );
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
        label: args.message.clone(),
    };
    let announced = preflight::announce(&request, context);
    let guessed = request.clone();
    let bar = Bar::guessing(context, "recording the state before", move || {
        announced.or_else(|| preflight::guess(&guessed))
    });
    let began = Timestamp::now();
    let started = Recording::begin(&request, bar.clone());
    bar.finish();
    let recording = started?;
    let id = recording.session_id();
    report.began(&id);
    if bar.is_cancelled() {
        let message =
            "stopped before the command was started; the state before was recorded already";
        return Err(
            CliError::stopped(message).with_hint(format!("remove it: nono rollback cleanup {id}"))
        );
    }
    commands::snapshot::report_left_out(recording.baseline(), &id, context);
    let together = Together::begin(&catalog, &recording, began, context);

    let retention = OnceCell::new();
    let on_started = || {
        retention.get_or_init(|| retention::begin(catalog.root(), &settings, context));
    };
    let mut passed_on = CommandSignals::take().map_err(signals::refused)?;
    let modes = StoreModes::note(catalog.root())?;
    let recorder = Recorder { recording: &recording, on_started: &on_started };
    let ended =
        start(args, &grants, profile.as_ref(), Some(recorder), &mut passed_on, report, context);
    let code = match &ended {
        Ok(ended) => ended.code,
        Err(error) => error.exit_code(),
    };
    // Behind the second wall, no command changes a mode of the store.
    if !matches!(ended, Ok(Ended { has_second_wall: true, .. })) {
        put_back(&modes, catalog.root(), context);
    }
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
                state_before::hint_when_not_durable(&session)
            }
            RecordError::Snapshot(SnapshotError::Store(error)) if error.is_damage() => {
                format!("mend what can be mended: nono rollback verify {id} --repair")
            }
            _ => state_before::hint(&session),
        };
        let error = CliError::from(error).with_hint(hint);
        if error.is_stopped() { error } else { error.with_exit_code(code.max(1)) }
    });
    if let (Err(error), Err(_)) = (&ended, &finished) {
        context.error(error);
    }
    if let (Ok(_), Ok(recorded)) = (&ended, &finished) {
        let Recorded { last, changes, touched, session_root } = recorded;
        let unrecorded = Catalog::store_of(&session)
            .map_err(CliError::from)
            .and_then(|store| Ok(Unrecorded::since(&store, &baseline, last)?))
            .unwrap_or_else(|error| {
                context.error(&error);
                Unrecorded::default()
            });
        let said = |path: &Path| unrecorded.names(path);
        commands::snapshot::report_missing(last, Some(&baseline), said, context);
        unrecorded.report(&id, context);
        report.recorded(recorded, unrecorded.left());
        commands::snapshot::report_unstable(&[&baseline, last], &id, context);
        let patterns = &args.capture.rollback_exclude;
        commands::snapshot::report_idle_patterns(patterns, &[&baseline, last], context);
        together.report(&catalog, &session, context);
        let counted = ChangeSummary::of(changes).with_touched(touched.len());
        let repositories = Catalog::store_of(&session)
            .map_err(CliError::from)
            .and_then(|store| Ok(Repositories::of(&store, &baseline, last, changes)?))
            .unwrap_or_else(|error| {
                context.error(&error);
                Repositories::default()
            });
        let summary = match changes.as_slice() {
            // Paths that rules left out were not looked at.
            [] if unrecorded.is_empty() && last.not_captured.is_empty() => {
                format!("nothing changed{}", touched_part(&counted))
            }
            [] => format!("nothing that is recorded changed{}", touched_part(&counted)),
            changes => repositories.summary(changes, touched, &Palette::coloured()),
        };
        context.say(format_args!("session {id}: {summary}"));
        for line in repositories.said(Told::Done) {
            context.say(format_args!("  {line}"));
        }
        context.say(format_args!("  root: {session_root}"));
    }
    // All is recorded and said: nobody has to wait for what follows.
    drop(passed_on);
    if let Some(retention) = retention.into_inner() {
        retention.finish(catalog.root(), &settings, has_worked(&ended, &finished), context);
    }
    let Recorded { last, changes, touched, .. } = finished?;
    let ended = ended?;
    if !changes.is_empty() {
        let wants_review = !args.no_rollback_prompt && !ended.was_told_to_end;
        let is_settled = wants_review && review::is_possible(context) && {
            let (catalog, session, old, new) = (&catalog, &session, &baseline, &last);
            let reviewed = Catalog::store_of(session).map_err(CliError::from).and_then(|store| {
                let work = Reviewed { catalog, session, store: &store, old, new };
                work.review(Comparison { changes, touched }, context)
            });
            // Whatever the outcome, the exit code is the command's. The decision has been reported.
            reviewed.map(|_| true).unwrap_or_else(|error| {
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

/// Whether the command had started and is recorded to its end. Within the walls, one that could not be
/// started ends with 126 or 127.
fn has_worked<E>(ended: &Result<Ended, CliError>, finished: &Result<Recorded, E>) -> bool {
    match (ended, finished) {
        (Ok(ended), Ok(recorded)) => {
            !matches!(ended.code, 126 | 127) || !recorded.changes.is_empty()
        }
        _ => false,
    }
}

fn put_back(modes: &StoreModes, root: &Path, context: &Context) {
    match modes.put_back(root) {
        Ok(0) => {}
        Ok(count) => context.warn(format_args!(
            "the modes of {count} files and directories of the store were changed meanwhile, and \
             are put back"
        )),
        Err(error) => context.warn(format_args!("the store may be out of reach: {error}")),
    }
}

/// The parts of a recorded command.
struct Recorder<'a> {
    recording: &'a Recording,
    /// Called as soon as the command has started.
    on_started: &'a dyn Fn(),
}

/// Runs the command; with a recording, it can ask for checkpoints.
fn start(
    args: &RunArgs,
    grants: &Grants,
    profile: Option<&Profile>,
    recorder: Option<Recorder<'_>>,
    signals: &mut CommandSignals,
    report: &RunReport,
    context: &Context,
) -> Result<Ended, CliError> {
    let policy = grants.policy.as_ref();
    let mut launch = Launch::new(&args.command, policy, args.namespaces, args.keep_running)?;
    let dress = |command: &mut Command| -> Result<(), CliError> {
        if let Some(profile) = profile {
            apply_rules(&profile.env, std::env::vars_os().map(|(name, _)| name), command)?;
        }
        if let Some(Recorder { recording, .. }) = &recorder {
            command.env("NONO_SESSION", recording.session_id());
        }
        Ok(())
    };
    let supervised = match &recorder {
        None => supervise(|| launch.start(&dress, false, &|wall| tell(wall, context)), signals),
        Some(recorder) => {
            supervise_recorded(&mut launch, &dress, recorder, signals, report, context)
        }
    };
    for LeftBehind { path, count } in launch.left_behind() {
        context.say(format_args!(
            "the command left {count} temporary {}, kept for a day: {}",
            if count == 1 { "entry" } else { "entries" },
            Shown::path(&path)
        ));
    }
    // A failing command names its own reason: the kernel reports a denial to nobody else.
    supervised.map_err(|error| not_started(&args.command[0], &error))
}

/// The gaps in the walls are named before the command starts.
fn tell(wall: &SecondWall, context: &Context) {
    if let SecondWall::Refused { reason, is_news: true } = wall {
        context.say(format_args!(
            "one wall only ({reason}): the command can change modes, owners and times of files \
             outside its grants (nono doctor)"
        ));
    }
}

fn not_started(name: &OsString, error: &NotStarted) -> CliError {
    match error {
        NotStarted::Failed(error) => cannot_run(name, error),
        NotStarted::Killed(signal) => {
            let code = u8::try_from(128 + signal).unwrap_or(u8::MAX);
            CliError::failed(format!("signal {signal} came before the command started"))
                .with_exit_code(code)
        }
        NotStarted::Refused(reason) => {
            CliError::failed(format!("the command gets no namespaces: {reason}"))
                .with_hint("--namespaces auto does without")
                .with_exit_code(126)
        }
    }
}

fn supervise_recorded(
    launch: &mut Launch<'_>,
    dress: &dyn Fn(&mut Command) -> Result<(), CliError>,
    recorder: &Recorder<'_>,
    signals: &mut CommandSignals,
    report: &RunReport,
    context: &Context,
) -> Result<Ended, NotStarted> {
    let Recorder { recording, on_started } = recorder;
    let refuse = |error: &io::Error| {
        context.warn(format_args!("`nono snapshot` will not work inside: {error}"));
    };
    let server = Server::bind(launch.listening_dir()).inspect_err(refuse).ok();
    std::thread::scope(|scope| {
        let start = |server| Server::start(server, scope, recording).inspect_err(refuse).ok();
        // Ends the server however the command ends.
        let serving = server.as_ref().and_then(start);
        let start = || {
            let started = launch.start(dress, serving.is_some(), &|wall| tell(wall, context));
            started.inspect(|_| on_started())
        };
        let ended = supervise(start, signals)?;
        report_leftover(&ended, report, context);
        Ok(ended)
    })
}

/// The last state is the one at a moment at which nobody writes, if there is one. A process that
/// the command left running may write later, and is named.
fn report_leftover(ended: &Ended, report: &RunReport, context: &Context) {
    let left = wait_for_quiet(ended.keeper, || {
        let seconds = PATIENCE.as_secs();
        context.say(format_args!(
            "waiting until what the command left running does not write ({seconds} s at most)"
        ));
    });
    report.left(&left);
    if left.is_empty() {
        return;
    }
    let what = match left.len() {
        1 => "1 process that the command started is still running; what it writes".to_owned(),
        count => {
            format!("{count} processes that the command started are still running; what they write")
        }
    };
    context.warn(format_args!("{what} from now on is not recorded"));
    for Leftover { pid, command, is_writing } in left.iter().take(context.at_most(MAX_NAMED)) {
        let writes = if *is_writing { "  (writes at the moment)" } else { "" };
        context.say(format_args!("  {pid}  {}{writes}", Shown::bytes(command)));
    }
    if let more @ 1.. = left.len().saturating_sub(context.at_most(MAX_NAMED)) {
        context.say(format_args!("  and {more} more"));
    }
}
