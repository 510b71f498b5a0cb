//! `nono snapshot`: the current state, in a new session or in one that is there.

use std::collections::HashSet;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::byte_path;
use crate::cli::Outcome;
use crate::cli::args::{CaptureArgs, StoreArgs, ThreadArgs, surroundings};
use crate::cli::checkpoints::{self, SOCKET_VARIABLE};
use crate::cli::context::{BOLD, Context};
use crate::cli::error::CliError;
use crate::cli::preflight;
use crate::cli::progress::Bar;
use crate::cli::render::{Palette, byte_size, summary_line};
use crate::config::Settings;
use crate::diff::{Change, ChangeSummary};
use crate::object::ContentHash;
use crate::path_text::Shown;
use crate::session::{RecordRequest, Recording};
use crate::snapshot::{
    NotCaptured, NotCapturedReason, SessionOrigin, SnapshotManager, SnapshotManifest,
};
use crate::sys;
use crate::walk::{ExclusionConfig, Filter, Verdict};

/// Arguments of `nono snapshot`.
#[derive(Debug, Args)]
pub(in crate::cli) struct SnapshotArgs {
    /// Add the snapshot to this session, with the paths and filters of its last snapshot
    #[arg(long, value_name = "ID", conflicts_with_all = ["path", "rollback_exclude", "rollback_include", "rollback_all"])]
    session: Option<String>,
    #[command(flatten)]
    capture: CaptureArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Directories or files to record [default: the current directory]
    #[arg(value_name = "PATH")]
    path: Vec<PathBuf>,
}

/// What a snapshot holds, and what changed since the one before.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::cli) struct SnapshotReport {
    session_id: String,
    number: u64,
    merkle_root: ContentHash,
    file_count: u64,
    total_bytes: u64,
    not_captured: Vec<NotCaptured>,
    changes: Vec<Change>,
}

impl SnapshotReport {
    pub(in crate::cli) fn of(
        session_id: String,
        manifest: &SnapshotManifest,
        changes: Vec<Change>,
    ) -> Self {
        Self {
            session_id,
            number: manifest.number,
            merkle_root: manifest.merkle_root,
            file_count: manifest.totals.file_count,
            total_bytes: manifest.totals.total_bytes,
            not_captured: manifest.not_captured.clone(),
            changes,
        }
    }
}

pub(in crate::cli) fn run(args: &SnapshotArgs, store: &StoreArgs, context: &Context) -> Outcome {
    if let Some(socket) = supervisor_of(args) {
        return print(&checkpoints::ask(&socket)?, args.json, context);
    }
    let catalog = store.catalog()?;
    let settings = Settings::load(&surroundings()?, &args.threads.flags(args.capture.flags()))?;
    let taken = match &args.session {
        Some(id) => {
            let session = catalog.find(id)?;
            let bar = Bar::new(context, "recording");
            let manager = SnapshotManager::open(session.path())?
                .with_budget(settings.budget())
                .with_threads(settings.threads())
                .with_progress(bar.clone());
            let taken = manager.create_incremental();
            bar.finish();
            (session.id(), taken.map_err(CliError::from))
        }
        None => {
            let tracked_paths =
                if args.path.is_empty() { vec![sys::current_dir()?] } else { args.path.clone() };
            let request = RecordRequest {
                root: catalog.root().to_owned(),
                command: Vec::new(),
                tracked_paths,
                exclusion: args.capture.exclusion(&settings, None),
                budget: settings.budget(),
                threads: settings.threads(),
                origin: SessionOrigin::Snapshot,
            };
            let announced = preflight::announce(&request, context);
            let guessed = request.clone();
            let bar = Bar::guessing(context, "recording", move || {
                announced.or_else(|| preflight::guess(&guessed))
            });
            let started = Recording::start(&request, bar.clone());
            bar.finish();
            match started {
                Ok(recording) => {
                    let baseline = recording.baseline().clone();
                    (recording.session_id(), Ok((baseline, Vec::new())))
                }
                Err(error) => (String::new(), Err(error.into())),
            }
        }
    };
    let (session_id, (manifest, changes)) = (taken.0, taken.1?);
    report_left_out(&manifest, &session_id, context);
    report_idle_patterns(&args.capture.rollback_exclude, &[&manifest], context);
    print(&SnapshotReport::of(session_id, &manifest, changes), args.json, context)
}

/// The socket of the supervisor, inside of a recorded command, unless the arguments mean something
/// else than its session.
fn supervisor_of(args: &SnapshotArgs) -> Option<PathBuf> {
    let socket = std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty())?;
    let own = std::env::var("NONO_SESSION").ok()?;
    let is_meant = match &args.session {
        Some(id) => *id == own,
        None => args.path.is_empty() && args.capture == CaptureArgs::default(),
    };
    is_meant.then(|| socket.into())
}

fn print(report: &SnapshotReport, json: bool, context: &Context) -> Outcome {
    // What rules leave out was asked for; what could not be captured makes the result a part.
    let code = u8::from(report.not_captured.iter().any(|left| left.reason.is_problem()));
    if json {
        context.json(report)?;
        return Ok(code);
    }
    let mut out = context.out();
    let SnapshotReport { session_id, number, file_count, total_bytes, changes, .. } = report;
    write!(out, "{BOLD}{session_id}/{number}{BOLD:#}  {file_count} files, ")?;
    write!(out, "{}", byte_size(*total_bytes))?;
    if *number > 0 {
        let changes = summary_line(&ChangeSummary::of(changes), &Palette::coloured());
        write!(out, ", {changes}")?;
    }
    writeln!(out)?;
    Ok(code)
}

/// Says in a line or two what a snapshot does not hold.
pub(in crate::cli) fn report_left_out(manifest: &SnapshotManifest, id: &str, context: &Context) {
    let of = |wanted: fn(&NotCapturedReason) -> bool| {
        manifest.not_captured.iter().filter(move |left| wanted(&left.reason))
    };
    let habitual = preflight::report(manifest, context);
    let excluded = of(|reason| matches!(reason, NotCapturedReason::Excluded { .. })).count();
    let excluded = excluded - habitual;
    if excluded > 0 {
        let paths = if excluded == 1 { "path is" } else { "paths are" };
        context.say(format_args!(
            "{excluded} {paths} left out by rules (nono rollback show {id}; --rollback-all keeps all)"
        ));
    }
    report_missing(manifest, None, context);
    preflight::warn_if_empty(manifest, context);
}

/// Warns of patterns of the command line that left nothing out: a slip of the pen must not look like a rule.
pub(in crate::cli) fn report_idle_patterns(
    patterns: &[String],
    manifests: &[&SnapshotManifest],
    context: &Context,
) {
    for text in patterns {
        let config =
            ExclusionConfig { exclude_patterns: vec![text.clone()], ..ExclusionConfig::nothing() };
        // One that cannot be compiled was refused before.
        let Ok(filter) = Filter::new(&config) else { continue };
        let matches = |relative: &[u8]| {
            // What is left out is not told to be a directory or not.
            let judged = [true, false].map(|is_dir| filter.judge(relative, is_dir, None));
            judged.iter().any(|verdict| matches!(verdict, Verdict::Excluded(_)))
        };
        let leaves_out = |manifest: &&SnapshotManifest| {
            let roots = || manifest.roots.iter().map(|root| root.path.as_os_str().as_bytes());
            let excluded = manifest.not_captured.iter().filter(|left| {
                // Whoever was first to leave it out: another rule may say the same.
                matches!(left.reason, NotCapturedReason::Excluded { .. })
            });
            excluded.map(|left| left.path.as_os_str().as_bytes()).any(|path| {
                roots().filter_map(|root| byte_path::relative_to(path, root)).any(matches)
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

/// Says what a snapshot should hold and does not, or not for sure; what an earlier one lacked as well was
/// said then.
pub(in crate::cli) fn report_missing(
    manifest: &SnapshotManifest,
    earlier: Option<&SnapshotManifest>,
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
        .filter(|left| left.reason.is_problem() && !known.contains(left.path.as_path()))
        .collect();
    if let Some(first) = problems.first() {
        let path = Shown::path(&first.path);
        let others = match problems.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        context.warn(format_args!(
            "not captured: {path}{others} ({}); a restore will leave them as they are",
            first.reason
        ));
    }
    if let Some(first) = manifest.unstable.first() {
        let count = manifest.unstable.len();
        let path = Shown::path(first);
        context.warn(format_args!(
            "{count} files kept changing while they were read, {path} among them"
        ));
    }
}
