//! `nono snapshot`: the current state, in a new session or in one that is there. [`agent`] has the
//! state of an agent.

mod agent;

use std::collections::HashSet;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::slice;

use clap::Args;

use crate::cli::Outcome;
use crate::cli::args::{CaptureArgs, StoreArgs, ThreadArgs, surroundings};
use crate::cli::checkpoints::{self, SOCKET_VARIABLE};
use crate::cli::context::{BOLD, Context};
use crate::cli::error::CliError;
use crate::cli::inside;
use crate::cli::offer::NONO;
use crate::cli::preflight;
use crate::cli::progress::Bar;
use crate::cli::render::{Palette, byte_size, summary_line};
use crate::cli::snapshot_report::{NAMED_UNSTABLE, SnapshotReport};
use crate::cli::worktrees::recorded_with;
use crate::config::{Settings, expand_patterns};
use crate::sandbox::is_inside;
use nono_engine::byte_path;
use nono_engine::counted::counted;
use nono_engine::diff::{ChangeSummary, Comparison};
use nono_engine::path_text::Shown;
use nono_engine::session::{Catalog, Purpose, RecordRequest, Recording};
use nono_engine::snapshot::{
    NotCaptured, NotCapturedReason, SessionDir, SessionOrigin, SnapshotManager, SnapshotManifest,
    SnapshotRequest, Taken,
};
use nono_engine::sys;
use nono_engine::walk::{ExclusionConfig, Filter, Verdict};

/// Arguments of `nono snapshot`.
#[derive(Debug, Args)]
pub(in crate::cli) struct SnapshotArgs {
    /// Add the snapshot to this session (`latest`: the newest one here), with the paths and filters
    /// of its last snapshot
    #[arg(
        long,
        value_name = "ID",
        conflicts_with_all = ["path", "rollback_exclude", "rollback_include", "rollback_all"],
    )]
    session: Option<String>,
    /// Call the snapshot this: an id can be given as its name later
    #[arg(long, short, value_name = "TEXT", value_parser = super::label)]
    message: Option<String>,
    /// Record the memory, settings and skills of an agent (`claude-code`, `codex`, `gemini`,
    /// `opencode`, or a profile of yours), without a NAME of each agent on this machine
    #[arg(
        long, value_name = "NAME", num_args = 0..=1, default_missing_value = "",
        conflicts_with_all = ["session", "path", "rollback_all"],
    )]
    agent: Option<String>,
    /// With --session: take none where no path changed since the last one
    #[arg(long, requires = "session")]
    if_changed: bool,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Directories or files to record [default: the current directory]
    #[arg(value_name = "PATH")]
    path: Vec<PathBuf>,
    #[command(flatten)]
    capture: CaptureArgs,
}

pub(in crate::cli) fn run(args: &SnapshotArgs, store: &StoreArgs, context: &Context) -> Outcome {
    if let Some(socket) = supervisor_of(args) {
        return print(&checkpoints::ask(&socket, args.message.as_deref())?, args.json, context);
    }
    let catalog = store.catalog()?;
    // A store in `/tmp` is not there at all for a command that has its own.
    if is_inside()
        && sys::Dir::open(catalog.root()).is_err_and(|error| error.is_gone())
        && std::env::var_os(SOCKET_VARIABLE).is_none()
        && args.means_the_run()
        && let Some(socket) = checkpoints::left_in(&sys::temporary_dir())
    {
        return print(&checkpoints::ask(&socket, args.message.as_deref())?, args.json, context);
    }
    if let Some(error) = inside::store_is_out_of_reach(&catalog) {
        let socket = supervisor_without_its_variable(args, &error)?;
        return print(&checkpoints::ask(&socket, args.message.as_deref())?, args.json, context);
    }
    if let Some(name) = &args.agent {
        return agent::run(args, name, &catalog, context);
    }
    let settings = Settings::load(&surroundings()?, &args.threads.flags(args.capture.flags()))?;
    let (session, (manifest, comparison)) = match &args.session {
        Some(id) => {
            let session = catalog.find_from(id, Purpose::Restoring)?;
            let bar = Bar::new(context, "recording");
            let manager = SnapshotManager::open(session.path())?
                .with_budget(settings.budget())
                .with_compression(settings.compression.value)
                .with_threads(settings.threads())
                .with_progress(bar.clone());
            let request = SnapshotRequest {
                label: args.message.clone(),
                if_changed: args.if_changed,
                ..SnapshotRequest::default()
            };
            let taken = manager.record_state(request);
            bar.finish();
            match taken? {
                Taken::Snapshot(manifest, comparison) => (session, (*manifest, comparison)),
                Taken::Unchanged(last) => return print_unchanged(&session, *last, args, context),
            }
        }
        None => {
            let tracked_paths = tracked_paths(&args.path, context)?;
            let request = RecordRequest {
                root: catalog.root().to_owned(),
                command: Vec::new(),
                tracked_paths,
                exclusion: args.capture.exclusion(&settings, None)?,
                budget: settings.budget(),
                compression: settings.compression.value,
                threads: settings.threads(),
                origin: SessionOrigin::Snapshot,
                label: args.message.clone(),
            };
            let announced = preflight::announce(&request, context);
            let guessed = request.clone();
            let bar = Bar::guessing(context, "recording", move || {
                announced.or_else(|| preflight::guess(&guessed))
            });
            let started = Recording::start(&request, bar.clone());
            bar.finish();
            let recording = started?;
            let baseline = recording.baseline().clone();
            (recording.manager().session().clone(), (baseline, Comparison::default()))
        }
    };
    report_left_out(&manifest, &session.id(), None, context);
    report_idle_patterns(&args.capture.rollback_exclude, &[&manifest], context);
    print(&SnapshotReport::of(&session, &manifest, comparison), args.json, context)
}

/// The given paths, or the current directory, with the git directories elsewhere of each.
fn tracked_paths(given: &[PathBuf], context: &Context) -> Result<Vec<PathBuf>, CliError> {
    let given = if given.is_empty() { vec![sys::current_dir()?] } else { given.to_vec() };
    // A path that cannot be resolved is refused where it is recorded.
    let tops = given.iter().filter_map(|path| sys::real_path(path).ok());
    let elsewhere = tops.map(|top| recorded_with(&top)).filter_map(|found| {
        found
            .inspect_err(|error| context.warn(format_args!("commits are not recorded: {error}")))
            .ok()
    });
    let elsewhere: Vec<PathBuf> = elsewhere.flatten().collect();
    Ok([given, elsewhere].concat())
}

/// The socket of the supervisor, inside of a recorded command, unless the arguments mean something
/// else than its session.
fn supervisor_of(args: &SnapshotArgs) -> Option<PathBuf> {
    let socket = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty())?;
    let is_meant = match &args.session {
        Some(id) => std::env::var("NONO_SESSION").is_ok_and(|own| *id == own),
        None => args.means_the_run(),
    };
    is_meant.then(|| socket.into())
}

/// The socket where the store is out of reach and the environment does not lead to it: a program
/// with a clean environment still knows the directory of temporary files.
fn supervisor_without_its_variable(
    args: &SnapshotArgs,
    error: &sys::Error,
) -> Result<PathBuf, CliError> {
    if std::env::var_os(SOCKET_VARIABLE).is_some() || !args.means_the_run() {
        return Err(inside::not_its_own(error));
    }
    checkpoints::left_in(&sys::temporary_dir()).ok_or_else(|| inside::no_supervisor(error))
}

/// Says which snapshot holds what is there now.
fn print_unchanged(
    session: &SessionDir,
    last: SnapshotManifest,
    args: &SnapshotArgs,
    context: &Context,
) -> Outcome {
    let id = format!("{}/{}", session.id(), last.number);
    context.say(format_args!("no path changed since {id}: no snapshot was taken"));
    let report = SnapshotReport {
        taken: false,
        ..SnapshotReport::of(session, &last, Comparison::default())
    };
    match args.json {
        true => print(&report, true, context),
        false => Ok(0),
    }
}

impl SnapshotArgs {
    /// Whether the supervisor of the command around it is asked.
    pub(in crate::cli) fn asks_supervisor(&self) -> bool {
        supervisor_of(self).is_some()
    }

    /// Whether the arguments name nothing but what a run records anyway.
    fn means_the_run(&self) -> bool {
        let Self { session, path, capture, agent, .. } = self;
        session.is_none()
            && agent.is_none()
            && path.is_empty()
            && *capture == CaptureArgs::default()
    }
}

fn print(report: &SnapshotReport, json: bool, context: &Context) -> Outcome {
    // Exclusions by rule were asked for; an unreadable path makes the result a part.
    let code = u8::from(report.not_captured.iter().any(|left| left.reason.is_problem()));
    if json {
        context.json(report)?;
        return Ok(code);
    }
    if code != 0 && context.is_quiet() {
        let id = &report.session_id;
        context.fall_short(format_args!("some paths could not be recorded ({NONO} show {id})"));
    }
    let mut out = context.out_done(false);
    let SnapshotReport { session_id, number, file_count, total_bytes, changes, .. } = report;
    let files = counted(*file_count, "file", "files");
    write!(out, "{BOLD}{session_id}/{number}{BOLD:#}  {files}, ")?;
    write!(out, "{}", byte_size(*total_bytes))?;
    if *number > 0 {
        let summary = ChangeSummary::of(changes).with_touched(report.touched.len());
        write!(out, ", {}", summary_line(&summary, &Palette::coloured()))?;
    }
    writeln!(out)?;
    out.flush()?;
    Ok(code)
}

/// Says in a line or two what a snapshot does not hold; of a run, only what no earlier run in the
/// store `told`.
pub(in crate::cli) fn report_left_out(
    manifest: &SnapshotManifest,
    id: &str,
    told: Option<&Catalog>,
    context: &Context,
) {
    preflight::report(manifest, id, told, context);
    report_missing(manifest, None, |_| false, context);
    report_unstable(&[manifest], id, context);
    preflight::warn_if_empty(manifest, context);
}

/// Warns of patterns of the command line that left nothing out: a slip of the pen must not look
/// like a rule.
pub(in crate::cli) fn report_idle_patterns(
    patterns: &[String],
    manifests: &[&SnapshotManifest],
    context: &Context,
) {
    let Ok(surroundings) = surroundings() else { return };
    for text in patterns {
        // One that cannot be understood was refused before.
        let Ok(exclude_patterns) = expand_patterns(slice::from_ref(text), &surroundings) else {
            continue;
        };
        let config = ExclusionConfig { exclude_patterns, ..ExclusionConfig::nothing() };
        let leaves_out = |manifest: &&SnapshotManifest| {
            let roots: Vec<_> = manifest.roots.iter().map(|root| root.path.clone()).collect();
            roots.iter().any(|root| {
                let tied = config.tied(root, &roots);
                let filter = tied.and_then(|config| Filter::new(&config));
                filter.is_ok_and(|filter| leaves_out_below(&filter, root, manifest))
            })
        };
        if !manifests.iter().any(leaves_out) {
            context.warn(format_args!(
                "--rollback-exclude {} left nothing out",
                Shown::bytes(text.as_bytes())
            ));
        }
    }
}

/// Whether a filter matches something below a tracked path that is left out by a rule. The first
/// rule that leaves it out is the recorded one: another rule may do so too.
fn leaves_out_below(filter: &Filter, root: &Path, manifest: &SnapshotManifest) -> bool {
    let matches = |relative: &[u8]| {
        // A left-out path is not known to be a directory or not.
        let judged = [true, false].map(|is_dir| filter.judge(relative, is_dir, None));
        judged.iter().any(|verdict| matches!(verdict, Verdict::Excluded(_)))
    };
    let excluded = manifest
        .not_captured
        .iter()
        .filter(|left| matches!(left.reason, NotCapturedReason::Excluded { .. }));
    let paths = excluded.map(|left| left.path.as_os_str().as_bytes());
    paths.filter_map(|path| byte_path::relative_to(path, root.as_os_str().as_bytes())).any(matches)
}

/// Names the paths that a snapshot should hold and does not, or not for sure. Gaps of an earlier
/// snapshot were named then, and may be left to others.
pub(in crate::cli) fn report_missing(
    manifest: &SnapshotManifest,
    earlier: Option<&SnapshotManifest>,
    is_said: impl Fn(&Path) -> bool,
    context: &Context,
) {
    let known: HashSet<&Path> = earlier
        .iter()
        .flat_map(|earlier| &earlier.not_captured)
        .filter(|left| left.reason.is_problem())
        .map(|left| left.path.as_path())
        .collect();
    let problems: Vec<_> = manifest
        .not_captured
        .iter()
        .filter(|left| left.reason.is_problem())
        .filter(|left| !known.contains(left.path.as_path()) && !is_said(&left.path))
        .collect();
    if let Some(first) = problems.first() {
        let path = Shown::path(&first.path).to_string();
        // The answer of the system names it.
        let reason = first.reason.to_string();
        let first = match reason.contains(&path) {
            true => reason,
            false => format!("{path} ({reason})"),
        };
        let others = match problems.len() {
            1 => String::new(),
            count => format!(", and {} more", count - 1),
        };
        let is_unread =
            |left: &NotCaptured| matches!(left.reason, NotCapturedReason::Unreadable { .. });
        let so = match problems.len() {
            // A first state has no earlier record of the contents.
            _ if earlier.is_none() && problems.iter().any(|left| is_unread(left)) => {
                "a change there cannot be undone"
            }
            1 => "a restore will leave it as it is",
            _ => "a restore will leave them as they are",
        };
        context.warn(format_args!("not captured: {first}{others}; {so}"));
    }
}

/// Names the files whose recorded state may be one that they never had.
pub(in crate::cli) fn report_unstable(
    manifests: &[&SnapshotManifest],
    id: &str,
    context: &Context,
) {
    let files = manifests.iter().flat_map(|manifest| {
        manifest.unstable.iter().map(|path| (manifest.number, path.as_path()))
    });
    let files: Vec<_> = files.collect();
    match files.len() {
        0 => return,
        1 => {
            context.warn("a file kept changing while it was read, and is recorded as it was read:")
        }
        count => context.warn(format_args!(
            "{count} files kept changing while they were read, and are recorded as they were read:"
        )),
    }
    for (number, path) in files.iter().take(NAMED_UNSTABLE) {
        context.say(format_args!("  {} (snapshot {number})", Shown::path(path)));
    }
    if let Some(more) = files.len().checked_sub(NAMED_UNSTABLE).filter(|more| *more > 0) {
        context.say(format_args!("  and {more} more: {NONO} show --json {id}"));
    }
}
