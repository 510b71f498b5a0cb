//! `nono show`: one session, its snapshots, and what changed.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use jiff::{Timestamp, Zoned};
use serde::Serialize;

use super::diff::{DiffStyle, StyleArgs, write_diff};
use super::log::show_version;
use super::quoted;
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::argument::{Argument, Earlier};
use crate::cli::context::{BOLD, Context, DIM, YELLOW};
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::past::compared;
use crate::cli::render::{Palette, absolute_time, byte_size, change_line, relative_time};
use crate::cli::repositories::{Repositories, Told, repository_line};
use crate::cli::snapshot_report::NAMED_UNSTABLE;
use crate::cli::unrecorded_changes::{Unrecorded, lines_of_step, told};
use nono_engine::counted::counted;
use nono_engine::diff::{self, Change, Comparison, Lost};
use nono_engine::object::ContentHash;
use nono_engine::path_text::{Shown, serde_paths};
use nono_engine::session::{Catalog, Purpose, SessionStatus, SessionSummary};
use nono_engine::snapshot::{
    NotCaptured, NotCapturedReason, NotCapturedSet, SessionDir, SnapshotKind, SnapshotManager,
    SnapshotManifest, Step,
};
use nono_engine::store::{LocalStore, ObjectSource};

/// Paths that were left out by one rule are counted; so many others are named.
const NAMED_PROBLEMS: usize = 10;

/// Arguments of `nono show`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ShowArgs {
    /// Id of a session, a prefix of it, `latest`, the newest one here, or `latest~N`, the one N
    /// places before it; ID#N is a step with its difference. A path means the version that
    /// stood before what is there now
    #[arg(value_name = "ID[/N] | PATH", default_value = "latest", allow_negative_numbers = true)]
    word: OsString,
    /// Show what changed as a patch that `git apply` and `patch -p1` accept
    #[arg(long, group = "style")]
    diff: bool,
    #[command(flatten)]
    style: StyleArgs,
    /// Print the report as JSON
    #[arg(long, conflicts_with = "style")]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    session: SessionSummary,
    snapshots: Vec<SnapshotReport>,
    /// The present differences of an interrupted session.
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<NowReport>,
}

#[derive(Serialize)]
struct NowReport {
    timestamp: Timestamp,
    changes: Vec<Change>,
    /// Paths whose time alone moved.
    #[serde(with = "serde_paths")]
    touched: Vec<PathBuf>,
    /// New paths that would not be recorded: a restore leaves them.
    unrecorded: Vec<NotCaptured>,
    /// Left-out paths that are gone or different: a restore cannot bring them back.
    lost: Vec<Lost>,
    #[serde(serialize_with = "Repositories::serialize")]
    repositories: Repositories,
}

#[derive(Serialize)]
struct SnapshotReport {
    number: u64,
    timestamp: Timestamp,
    parent: Option<u64>,
    kind: SnapshotKind,
    /// Whether an archive added it to the session.
    received: bool,
    label: Option<String>,
    /// The tool call that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<Step>,
    merkle_root: ContentHash,
    file_count: u64,
    total_bytes: u64,
    not_captured: Vec<NotCaptured>,
    /// Files that kept changing while they were read.
    #[serde(with = "serde_paths")]
    unstable: Vec<PathBuf>,
    changes: Vec<Change>,
    /// Paths whose time alone moved.
    #[serde(with = "serde_paths")]
    touched: Vec<PathBuf>,
    #[serde(serialize_with = "Repositories::serialize")]
    repositories: Repositories,
}

pub(in crate::cli) fn run(args: &ShowArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    let (session, snapshot, is_step) = match Argument::of(&args.word, Purpose::Looking, &catalog)? {
        Argument::State { session, number, is_step } => (session, number, is_step),
        Argument::Path { path, doubt } => {
            if args.style.chosen().is_some() {
                let message = "a version is shown with its difference, as a patch";
                return Err(CliError::usage(message)
                    .with_hint(format!("{NONO} diff PATH compares it in other ways")));
            }
            let earlier = Earlier::require(&path, doubt, &catalog)?;
            return show_version(&earlier, args.json, context);
        }
    };
    let objects = Catalog::store_of(&session)?;
    let patch = args.diff.then_some(DiffStyle::Patch);
    let interrupted = interrupted(&session, snapshot)?;
    let now = match &interrupted {
        Some(Interrupted { manager, baseline }) => Some((manager.live_state(baseline)?, baseline)),
        None => None,
    };
    if let Some(style) = patch.or(args.style.chosen()) {
        match &now {
            Some((now, baseline)) => {
                write_diff(&objects, baseline, now, now.manifest(), style, context)?;
            }
            None => {
                let (old, new) = compared(&session, snapshot)?;
                write_diff(&objects, &old, &objects, &new, style, context)?;
            }
        }
        return Ok(0);
    }
    let mut report = report(&session, &objects, snapshot)?;
    if let Some((now, baseline)) = &now {
        let Comparison { changes, touched } = compare(now, baseline, now.manifest())?;
        let since = Unrecorded::since(now, baseline, now.manifest())?;
        let ((unrecorded, lost), timestamp) = (since.into_left(), now.manifest().timestamp);
        let repositories = Repositories::of(now, baseline, now.manifest(), &changes)?;
        report.now =
            Some(NowReport { timestamp, changes, touched, unrecorded, lost, repositories });
    }
    if args.json {
        context.json(&report)?;
        return Ok(0);
    }
    print(&report, context)?;
    if is_step {
        let (old, new) = compared(&session, snapshot)?;
        writeln!(context.out_long())?;
        write_diff(&objects, &old, &objects, &new, DiffStyle::Patch, context)?;
    }
    Ok(0)
}

/// A session without a recorded last state: the changes of its command are among the present
/// differences.
pub(super) struct Interrupted {
    pub(super) manager: SnapshotManager,
    pub(super) baseline: SnapshotManifest,
}

/// Opens a session if it was interrupted and no snapshot of it is named.
pub(super) fn interrupted(
    session: &SessionDir,
    snapshot: Option<u64>,
) -> Result<Option<Interrupted>, CliError> {
    let is_interrupted =
        || Ok::<_, CliError>(SessionSummary::of(session)?.status == SessionStatus::Interrupted);
    if snapshot.is_some() || session.snapshot_numbers()?.is_empty() || !is_interrupted()? {
        return Ok(None);
    }
    let manager = SnapshotManager::open(session.path())?;
    let baseline = manager.load_manifest(session.first_number()?)?;
    Ok(Some(Interrupted { manager, baseline }))
}

fn report(
    session: &SessionDir,
    objects: &LocalStore,
    only: Option<u64>,
) -> Result<Report, CliError> {
    let mut snapshots: Vec<SnapshotReport> = Vec::new();
    let mut previous: Option<SnapshotManifest> = None;
    let metadata = session.metadata()?;
    for number in session.snapshot_numbers()? {
        let manifest = session.manifest(number)?.manifest;
        if only.is_none_or(|only| only == number) {
            let Comparison { changes, touched } = match &previous {
                Some(old) => compare(objects, old, &manifest)?,
                None => Comparison::default(),
            };
            let repositories = match &previous {
                Some(old) => Repositories::of(objects, old, &manifest, &changes)?,
                None => Repositories::default(),
            };
            snapshots.push(SnapshotReport {
                number,
                timestamp: manifest.timestamp,
                parent: manifest.parent,
                kind: manifest.kind,
                received: metadata.was_added(number),
                label: manifest.label.clone(),
                step: manifest.step.clone(),
                merkle_root: manifest.merkle_root,
                file_count: manifest.totals.file_count,
                total_bytes: manifest.totals.total_bytes,
                not_captured: manifest.not_captured.clone(),
                unstable: manifest.unstable.clone(),
                changes,
                touched,
                repositories,
            });
        }
        previous = Some(manifest);
    }
    let mut summary = SessionSummary::of(session)?;
    summary.count_own_changes(session);
    Ok(Report { session: summary, snapshots, now: None })
}

fn compare(
    objects: &dyn ObjectSource,
    old: &SnapshotManifest,
    new: &SnapshotManifest,
) -> Result<Comparison, CliError> {
    let differences = diff::compare(objects, &old.merkle_root, &new.merkle_root)?;
    Ok(Comparison::of(&differences, &NotCapturedSet::new(old), &NotCapturedSet::new(new)))
}

fn print(report: &Report, context: &Context) -> Result<(), CliError> {
    let session = &report.session;
    context.page();
    let mut out = context.out_long();
    let now = Zoned::now();
    let palette = Palette::coloured();
    let times =
        |time: Timestamp| format!("{} ({})", absolute_time(time, &now), relative_time(time, &now));
    let exit = session.exit_code.map_or(String::new(), |code| format!(", exit code {code}"));
    let label = session.label.as_deref().map(quoted).unwrap_or_default();
    let pinned = if session.pinned { ", pinned" } else { "" };
    let received = if session.received { ", received in an archive" } else { "" };
    writeln!(
        out,
        "{BOLD}{}{BOLD:#}{label}  {}{exit}{pinned}{received}",
        session.session_id,
        session.status.word()
    )?;
    writeln!(out, "started: {}", times(session.started))?;
    if let Some(ended) = session.ended {
        writeln!(out, "ended: {}", times(ended))?;
    }
    if !session.command.is_empty() {
        writeln!(out, "command: {}", super::list::whole_command(session))?;
    }
    for path in &session.tracked_paths {
        writeln!(out, "tracked: {}", Shown::path(path))?;
    }
    writeln!(out, "root: {}", session.session_root)?;
    for removed in &session.removed {
        writeln!(out, "{DIM}snapshot {}: {removed}{DIM:#}", removed.number)?;
    }
    for snapshot in &report.snapshots {
        let SnapshotReport { number, timestamp, file_count, total_bytes, .. } = snapshot;
        let SnapshotReport { changes, repositories, .. } = snapshot;
        let what = match (number, snapshot.kind) {
            _ if snapshot.received => " (received in an archive)",
            (_, SnapshotKind::Safety) => " (before a restore)",
            (0, _) => " (baseline)",
            _ => "",
        };
        let label = snapshot.label.as_deref().map(quoted).unwrap_or_default();
        let step = snapshot.step.as_ref().map(|step| format!(" · {}", shown_step(step)));
        let step = step.unwrap_or_default();
        writeln!(out)?;
        let time = absolute_time(*timestamp, &now);
        let (files, size) = (counted(*file_count, "file", "files"), byte_size(*total_bytes));
        writeln!(
            out,
            "{BOLD}snapshot {number}{BOLD:#}{what}{step}{label}  {time}, {files}, {size}"
        )?;
        writeln!(out, "  {DIM}root {}{DIM:#}", snapshot.merkle_root)?;
        if *number > 0 {
            let summary = repositories.summary(changes, &snapshot.touched, &palette);
            writeln!(out, "  {summary}")?;
        }
        write_changes(&mut out, changes, repositories, &session.tracked_paths, &palette)?;
        write_left_out(&mut out, &snapshot.not_captured, &session.tracked_paths)?;
        let unrecorded = session.unrecorded.iter().filter(|it| it.step == *number);
        for line in unrecorded.flat_map(|it| lines_of_step(it, &session.tracked_paths)) {
            writeln!(out, "  {line}")?;
        }
        write_unstable(&mut out, &snapshot.unstable, &session.tracked_paths)?;
    }
    if let Some(NowReport { changes, touched, unrecorded, lost, repositories, .. }) = &report.now {
        writeln!(out)?;
        writeln!(out, "{BOLD}now{BOLD:#}, since the baseline (not recorded)")?;
        writeln!(out, "  {}", repositories.summary(changes, touched, &palette))?;
        write_changes(&mut out, changes, repositories, &session.tracked_paths, &palette)?;
        write_left_out(&mut out, unrecorded, &session.tracked_paths)?;
        for lost in lost.iter().filter(|lost| !lost.is_rebuildable) {
            writeln!(out, "  {}", told(lost))?;
        }
    }
    Ok(out.flush()?)
}

/// A step as it is named to a person.
fn shown_step(step: &Step) -> String {
    Shown::bytes(step.summary().as_bytes()).to_string()
}

/// The changes: in repositories, the moves of their branches.
fn write_changes(
    out: &mut impl Write,
    changes: &[Change],
    repositories: &Repositories,
    roots: &[PathBuf],
    palette: &Palette,
) -> Result<(), CliError> {
    for line in repositories.said(Told::Done) {
        writeln!(out, "  {line}")?;
    }
    for change in repositories.outside(changes) {
        writeln!(out, "  {}", change_line(change, roots, palette))?;
    }
    for line in repositories.lines() {
        writeln!(out, "  {}", repository_line(&line, palette))?;
    }
    Ok(())
}

/// The files whose recorded state may be one that they never had.
fn write_unstable(
    out: &mut impl Write,
    unstable: &[PathBuf],
    roots: &[PathBuf],
) -> Result<(), CliError> {
    use std::os::unix::ffi::OsStrExt;
    let (named, more) = unstable.split_at(unstable.len().min(NAMED_UNSTABLE));
    for path in named {
        let path = Shown::bytes(diff::relative_to_roots(path.as_os_str().as_bytes(), roots));
        writeln!(out, "  {YELLOW}changed while it was read{YELLOW:#}: {path}")?;
    }
    if !more.is_empty() {
        let more = more.len();
        writeln!(
            out,
            "  {YELLOW}changed while they were read{YELLOW:#}: {more} more (--json names all)"
        )?;
    }
    Ok(())
}

/// The left-out paths of a snapshot: rules with a count and an example, and each problem.
fn write_left_out(
    out: &mut impl Write,
    not_captured: &[NotCaptured],
    roots: &[PathBuf],
) -> Result<(), CliError> {
    use std::os::unix::ffi::OsStrExt;
    let shown = |left: &NotCaptured| {
        let path = left.path.as_os_str().as_bytes();
        Shown::bytes(diff::relative_to_roots(path, roots)).to_string()
    };
    let mut rules: BTreeMap<&str, (usize, &NotCaptured)> = BTreeMap::new();
    let mut problems = Vec::new();
    for left in not_captured {
        match &left.reason {
            NotCapturedReason::Excluded { rule } => {
                rules.entry(rule).or_insert((0, left)).0 += 1;
            }
            _ => problems.push(left),
        }
    }
    for (rule, (count, example)) in rules {
        let more = if count == 1 { String::new() } else { format!(" and {} more", count - 1) };
        let rule = Shown::bytes(rule.as_bytes());
        writeln!(out, "  {DIM}left out ({rule}): {}{more}{DIM:#}", shown(example))?;
    }
    for left in problems.iter().take(NAMED_PROBLEMS) {
        writeln!(out, "  {DIM}not captured: {} ({}){DIM:#}", shown(left), left.reason)?;
    }
    if problems.len() > NAMED_PROBLEMS {
        let more = problems.len() - NAMED_PROBLEMS;
        writeln!(out, "  {DIM}not captured: {more} more (--json names all){DIM:#}")?;
    }
    Ok(())
}
