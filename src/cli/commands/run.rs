//! `nono run`: a command within its grants. [`recorded`] has the run that can be undone.

#[cfg(feature = "mount")]
mod in_fork;
mod recorded;

use std::ffi::OsString;
use std::io;
use std::process::Command;

use clap::Args;
use rustix::process::Pid;

use crate::cli::args::{CaptureArgs, LimitArgs, StoreArgs, ThreadArgs, surroundings};
use crate::cli::checkpoints::{Asked, SESSION_VARIABLE, Server};
use crate::cli::context::Context;
use crate::cli::denials;
use crate::cli::error::CliError;
use crate::cli::grants::{GrantArgs, Grants};
use crate::cli::inside::{fork_around, store_is_out_of_reach};
use crate::cli::keeper::NotStarted;
use crate::cli::launch::{Launch, NamespaceMode};
use crate::cli::offer::NONO;
use crate::cli::run_report::{ReportArgs, ReportFile, RunReport};
use crate::cli::scratch::LeftBehind;
use crate::cli::start_report::{has_failed, not_started, tell};
use crate::cli::supervise::{
    CommandSignals, Ended, Leftover, QUIET_TIMEOUT, supervise, wait_for_quiet,
};
use crate::cli::{Outcome, commands, signals};
use crate::config::{FoundProfile, Profile, ProfileLibrary, ProfileSource, Settings, apply_rules};
use nono_engine::counted::counted;
use nono_engine::path_text::Shown;
use nono_engine::session::{Catalog, Recording};

/// Maximum number of named processes that a command left running.
const MAX_NAMED: usize = 20;

/// Arguments of `nono run`.
#[derive(Debug, Args)]
pub(in crate::cli) struct RunArgs {
    /// Record the state before and after, so that the command can be undone, as it does anyway
    /// unless the setting `record` is false
    #[arg(long)]
    rollback: bool,
    /// Do not record
    #[arg(long, conflicts_with_all = ["rollback", "supervised"])]
    no_rollback: bool,
    /// Older name of --rollback
    #[arg(long, hide = true)]
    supervised: bool,
    /// Call the session this: an id can be given as its name later
    #[arg(long, short, value_name = "TEXT", value_parser = commands::label)]
    message: Option<String>,
    /// The grants of the command: the name of a profile (nono profile list), or a file
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Run the command in this fork (nono fork NAME makes one). The states before and after are
    /// recorded in the session of the fork, and the project stays as it is
    #[cfg(feature = "mount")]
    #[arg(long, value_name = "NAME", conflicts_with = "keep_running")]
    fork: Option<String>,
    /// Let the command go on if this program is killed
    #[arg(long)]
    keep_running: bool,
    /// Do not ask about the changes afterwards
    #[arg(long, alias = "no-undo-prompt")]
    no_rollback_prompt: bool,
    #[command(flatten)]
    threads: ThreadArgs,
    /// The command and its arguments, behind all flags of nono
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
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
    /// Whether the arguments ask for a record. Without a word about it, the settings decide.
    pub(in crate::cli) fn asks_for_record(&self) -> bool {
        self.rollback || self.supervised
    }

    /// The fork in which the command is to work.
    pub(in crate::cli) fn fork(&self) -> Option<&str> {
        #[cfg(feature = "mount")]
        return self.fork.as_deref();
        #[cfg(not(feature = "mount"))]
        None
    }

    /// Why nothing is recorded, if that is so.
    fn not_recorded(&self, settings: &Settings, catalog: &Catalog) -> Option<NotRecorded> {
        if self.asks_for_record() {
            None
        } else if self.no_rollback {
            Some(NotRecorded::Asked)
        } else if !settings.record.value {
            Some(NotRecorded::Setting)
        } else if fork_around().is_some() {
            Some(NotRecorded::Fork)
        } else {
            store_is_out_of_reach(catalog).map(|_| NotRecorded::Inside)
        }
    }
}

/// Why a command is not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NotRecorded {
    Asked,
    Setting,
    /// It is inside of another run, which keeps the store out of reach.
    Inside,
    /// It is inside of a fork, which keeps what is changed apart.
    Fork,
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
    let flags = args.threads.flags(args.limits.flags(args.capture.flags()));
    let settings = Settings::load(&surroundings, &flags)?;
    #[cfg(feature = "mount")]
    if let Some(name) = args.fork() {
        return in_fork::run(args, name, &settings, store, (report, file), context);
    }
    let not_recorded = args.not_recorded(&settings, &catalog);
    let is_recorded = not_recorded.is_none();
    let profile = args.profile.as_deref();
    let profile = profile.map(|name| ProfileLibrary::new(&surroundings).find(name)).transpose()?;
    let grants =
        Grants::of(&args.grants, is_recorded, profile.as_ref(), &catalog, &args.command, context)?;
    if let Some(FoundProfile { source: ProfileSource::File(path), profile, .. }) = &profile
        && !profile.hooks.is_empty()
    {
        // A recorded command may have written the file, and these commands run outside of the walls.
        return Err(CliError::usage(format!(
            "{} has hooks, which do not count there",
            Shown::path(path)
        ))
        .with_hint("put the profile into the directory of the configuration (nono profile list)"));
    }
    let profile = profile.map(|found| found.profile);
    let tracked = if is_recorded { grants.tracked.as_slice() } else { &[] };
    *file = args.report.open(tracked, catalog.root())?;
    match &grants.policy {
        Some(policy) => denials::name_what_is_outside(policy, &args.command, context),
        None => context.say("no sandbox: the command can write wherever you can"),
    }
    let profile = profile.as_ref();
    let job = Job { args, store, grants: &grants, profile, report, context };
    if is_recorded {
        return recorded::run(&job, &catalog, &settings);
    }
    if args.message.is_some() {
        return Err(CliError::usage("-m names a session, and this run is not recorded"));
    }
    match not_recorded {
        Some(NotRecorded::Setting) => {
            context.say("not recorded, so it cannot be undone: --rollback records");
        }
        Some(NotRecorded::Fork) => context.say("not recorded: the fork keeps what changes apart"),
        Some(NotRecorded::Inside) if std::env::var_os(SESSION_VARIABLE).is_some() => {
            context.say("the run around it records, in the directories that it was given");
        }
        Some(NotRecorded::Inside) => context.say(
            "not recorded, so it cannot be undone: this is inside of a run that records nothing",
        ),
        _ => {}
    }
    let mut signals = CommandSignals::take().map_err(signals::refused)?;
    Ok(job.start(None, &mut signals)?.code)
}

/// A command with its grants, and the receivers of its messages.
struct Job<'a> {
    args: &'a RunArgs,
    store: &'a StoreArgs,
    grants: &'a Grants,
    profile: Option<&'a Profile>,
    report: &'a RunReport,
    context: &'a Context,
}

/// The parts of a recorded command.
struct Recorder<'a> {
    recording: &'a Recording,
    /// Called as soon as the command has started.
    on_started: &'a dyn Fn(),
    /// Whether agents are told of an undo.
    tells_agents: bool,
}

impl Job<'_> {
    /// Runs the command; with a recording, it can ask for checkpoints.
    fn start(
        &self,
        recorder: Option<Recorder<'_>>,
        signals: &mut CommandSignals,
    ) -> Result<Ended, CliError> {
        let Self { args, grants, profile, report, context, .. } = *self;
        let policy = grants.policy.as_ref();
        let mut launch = Launch::new(&args.command, policy, args.namespaces, args.keep_running)?;
        let dress = |command: &mut Command| -> Result<(), CliError> {
            if let Some(profile) = profile {
                apply_rules(&profile.env, std::env::vars_os().map(|(name, _)| name), command)?;
            }
            if let Some(Recorder { recording, .. }) = &recorder {
                command.env(SESSION_VARIABLE, recording.session_id());
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
        if let (Some(policy), true) = (policy, supervised.as_ref().is_ok_and(has_failed)) {
            let surroundings = surroundings()?;
            denials::explain_failure(
                policy,
                &args.command,
                profile.is_some(),
                &surroundings,
                context,
            );
        }
        // A failing command names its own reason: the kernel reports a denial to it alone.
        supervised.map_err(|error| not_started(&args.command, &error))
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
    let Recorder { recording, on_started, tells_agents } = recorder;
    let refuse = |error: &io::Error| {
        context.warn(format_args!("`{NONO} snapshot` will not work inside: {error}"));
    };
    let server = Server::bind(launch.listening_dir()).inspect_err(refuse).ok();
    std::thread::scope(|scope| {
        let asked = Asked::of_run(recording, *tells_agents);
        let start = |server| Server::start(server, scope, asked).inspect_err(refuse).ok();
        // Ends the server however the command ends.
        let serving = server.as_ref().and_then(start);
        let start = || {
            let started = launch.start(dress, serving.is_some(), &|wall| tell(wall, context));
            started.inspect(|_| on_started())
        };
        let ended = supervise(start, signals)?;
        report_leftover(&ended, &[], report, context);
        Ok(ended)
    })
}

/// The last state is the one at a moment when no process writes, if there is one. A process that
/// the command left running may write later, and is named. `helpers`: processes of this program.
fn report_leftover(ended: &Ended, helpers: &[Pid], report: &RunReport, context: &Context) {
    let left = wait_for_quiet(ended.keeper, helpers, || {
        let seconds = QUIET_TIMEOUT.as_secs();
        context.say(format_args!(
            "waiting until what the command left running does not write ({seconds} s at most)"
        ));
    });
    report.left(&left);
    if left.is_empty() {
        return;
    }
    let one = "process that the command started is still running; what it writes";
    let many = "processes that the command started are still running; what they write";
    let what = counted(left.len(), one, many);
    context.warn(format_args!("{what} from now on is not recorded"));
    for Leftover { pid, command, is_writing } in left.iter().take(context.at_most(MAX_NAMED)) {
        let writes = if *is_writing { "  (writes at the moment)" } else { "" };
        context.say(format_args!("  {pid}  {}{writes}", Shown::bytes(command)));
    }
    if let more @ 1.. = left.len().saturating_sub(context.at_most(MAX_NAMED)) {
        context.say(format_args!("  and {more} more"));
    }
}
