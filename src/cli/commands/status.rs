//! `nono status`: the last session here, what is different since, and what goes on.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::{Timestamp, Zoned};
use serde::Serialize;

use super::log::write_unrecorded;
use super::watch::{watchers_of, write_troubles};
use crate::agent::Mishap;
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::args::{named_project, surroundings};
use crate::cli::context::{BOLD, Context, YELLOW};
use crate::cli::error::{CliError, moved_hint};
use crate::cli::offer::NONO;
use crate::cli::render::{Palette, relative_time, session_changes, summary_line};
use crate::cli::repositories::{Repositories, repository_line};
use crate::cli::restoring::{command, made_by, write_preview};
use crate::cli::run_later::{self, RunLater};
use crate::cli::unrecorded_changes::told;
use crate::config::{FlagSettings, Settings};
use nono_engine::diff::{self, Change, ChangeSummary, Lost};
use nono_engine::path_text::{Shown, serde_path};
use nono_engine::session::{
    Catalog, Moved, NotHere, Place, Purpose, SessionStatus, SessionSummary,
};
use nono_engine::session::{newest, sessions_here};
use nono_engine::snapshot::{NotCapturedSet, SessionDir, SnapshotKind, SnapshotManager};
use nono_engine::sys;
use nono_engine::watch::WatchFacts;

/// Maximum number of named paths that cannot be restored.
const NAMED_LOST: usize = 10;

/// Arguments of `nono status`.
#[derive(Debug, Args)]
pub(in crate::cli) struct StatusArgs {
    /// Only what is different in this directory or file [default: the project here]
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    /// Where the question was asked.
    #[serde(with = "serde_path")]
    directory: PathBuf,
    /// The last session here that may have changed something.
    session: Option<SessionSummary>,
    /// Its work in repositories, in a few words.
    #[serde(skip)]
    git: Option<String>,
    /// Later sessions here of agents that changed only what is not recorded.
    unrecorded: Vec<SessionSummary>,
    /// The present differences from its last snapshot.
    since: Option<Since>,
    /// Without a session: the recorded project that was moved here, and its newest session.
    moved: Option<MovedProject>,
    /// Projects below the directory, if the sessions of several are there.
    below: Vec<String>,
    /// Sessions whose command is running, here or elsewhere.
    running: Vec<Running>,
    /// Watchers of this directory, or of one above it.
    watchers: Vec<WatchFacts>,
    #[cfg(feature = "mount")]
    mounts: Vec<super::mount::Status>,
    interrupted: Interrupted,
    /// Failures in hooks of agents in the last day.
    mishaps: Vec<Mishap>,
    /// Pushes after a run that failed, of sessions here that no later one sent.
    #[cfg(feature = "archive")]
    failed_pushes: Vec<nono_archive::remote::PushFailure>,
    /// Sessions that cannot be read.
    unreadable: Vec<String>,
}

#[derive(Serialize)]
struct MovedProject {
    #[serde(flatten)]
    moved: Moved,
    session_id: String,
}

#[derive(Serialize)]
struct Since {
    /// The number of the snapshot.
    snapshot: u64,
    summary: ChangeSummary,
    changes: Vec<Change>,
    /// The work in repositories, in words; git's own writes are none.
    #[serde(skip)]
    git: Vec<String>,
    /// Left-out paths of the session's first snapshot that are gone or different: no restore brings
    /// them back.
    lost: Vec<Lost>,
    /// Files and settings that the session changed and programs run by themselves later.
    #[serde(skip_serializing_if = "RunLater::is_empty")]
    run_later: RunLater,
}

#[derive(Serialize)]
struct Running {
    /// Whether it works on files of this directory.
    here: bool,
    #[serde(flatten)]
    session: SessionSummary,
}

#[derive(Serialize)]
struct Interrupted {
    /// Sessions with a restore that has to be finished or taken back.
    restores: Vec<String>,
    /// Sessions here whose end was not recorded.
    runs: Vec<String>,
    /// Sessions that were killed before their first snapshot: nothing of them can be undone.
    unbegun: Vec<String>,
    /// Restores of containers that have to be finished or taken back.
    #[cfg(feature = "container")]
    container_restores: Vec<nono_container::restore::Interrupted>,
}

pub(in crate::cli) fn run(args: &StatusArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    let place = match &args.path {
        None => Place::current(Purpose::Looking)?,
        Some(path) => {
            let path = sys::plain_absolute(path, &sys::current_dir()?);
            Place { directory: sys::real_or_future_path(&path), purpose: Purpose::Looking }
        }
    };
    let inside = args.path.as_ref().map(|_| place.directory.clone());
    let listed = catalog.listed()?;
    let (here, below) = match sessions_here(&listed.sessions, &place, Timestamp::now()) {
        Ok(here) => (here, Vec::new()),
        Err(NotHere::Nowhere) => (Vec::new(), Vec::new()),
        Err(NotHere::SeveralBelow(projects)) => (Vec::new(), projects),
    };
    let session = newest(&here);
    let since = session.map(|session| since(&catalog, session, inside.as_deref()));
    let since = since.transpose();
    let since = since.unwrap_or_else(|error| {
        context.warn(format_args!("what is different now is not known: {error}"));
        None
    });
    let is_running = |session: &&SessionSummary| session.status == SessionStatus::Running;
    let is_interrupted = |session: &&&SessionSummary| {
        session.status == SessionStatus::Interrupted && !session.undone
    };
    let moved = match (session, below.is_empty()) {
        (None, true) => catalog.moved_here(&place.directory, &listed.sessions, Timestamp::now()),
        _ => None,
    };
    let with_git = session.filter(|session| session.has_changes_in_git());
    let git = with_git.and_then(|session| {
        let directory = catalog.find(&session.session_id).ok()?;
        Repositories::of_session(&directory).ok()?.brief()
    });
    let is_later = |other: &&&SessionSummary| {
        session.is_none_or(|session| {
            other.session_id != session.session_id && other.started >= session.started
        })
    };
    let is_told = |other: &&&SessionSummary| !other.unrecorded.is_empty();
    let report = Report {
        git,
        unrecorded: here.iter().filter(is_later).filter(is_told).map(|&it| it.clone()).collect(),
        moved: moved.map(|(session, moved)| {
            let session_id = session.session_id.clone();
            MovedProject { moved, session_id }
        }),
        session: session.cloned().map(|mut session| {
            if session.agent.is_some()
                && let Ok(directory) = catalog.find(&session.session_id)
            {
                session.count_own_changes(&directory);
            }
            session
        }),
        since: since.flatten(),
        below,
        running: listed
            .sessions
            .iter()
            .filter(is_running)
            .map(|session| Running {
                here: session.concerns(&place.directory),
                session: session.clone(),
            })
            .collect(),
        watchers: watchers_of(catalog.root(), &place.directory, context),
        #[cfg(feature = "mount")]
        mounts: super::mount::mounted_from(catalog.roots())?,
        interrupted: Interrupted {
            restores: catalog.interrupted_restores()?.sessions.iter().map(SessionDir::id).collect(),
            unbegun: unbegun(&listed.unbegun, context),
            runs: here.iter().filter(is_interrupted).map(|s| s.session_id.clone()).collect(),
            #[cfg(feature = "container")]
            container_restores: container_restores(&catalog, context)?,
        },
        mishaps: super::agent::mishaps(store)?,
        #[cfg(feature = "archive")]
        failed_pushes: failed_pushes(&catalog, &listed.sessions, &place),
        unreadable: listed.unreadable.iter().map(|session| session.id()).collect(),
        directory: place.directory,
    };
    if args.json {
        context.json(&report)?;
    } else {
        print(&report, context)?;
    }
    Ok(0)
}

/// The unbegun sessions. One that cannot be looked at is told.
fn unbegun(sessions: &[SessionDir], context: &Context) -> Vec<String> {
    let mut unbegun = Vec::new();
    for session in sessions {
        match session.is_unbegun() {
            Ok(true) => unbegun.push(session.id()),
            Ok(false) => {}
            Err(error) => context.warn(error),
        }
    }
    unbegun
}

/// The failed pushes of sessions here.
#[cfg(feature = "archive")]
fn failed_pushes(
    catalog: &Catalog,
    sessions: &[SessionSummary],
    place: &Place,
) -> Vec<nono_archive::remote::PushFailure> {
    let mut failures = crate::cli::after_run::failures();
    failures.retain(|failure| {
        let is_it = |session: &&SessionSummary| session.session_id == failure.session_id;
        let session = sessions.iter().find(is_it);
        catalog.roots().contains(&failure.root)
            && session.is_some_and(|session| session.concerns(&place.directory))
    });
    failures
}

/// The histories that can be read; damage of the others is told.
#[cfg(feature = "container")]
fn container_restores(
    catalog: &Catalog,
    context: &Context,
) -> Result<Vec<nono_container::restore::Interrupted>, CliError> {
    let storage = nono_container::LocalStorage::new(catalog.root().to_owned());
    let (waiting, damaged): (Vec<_>, Vec<_>) =
        nono_container::restore::unfinished(&storage)?.into_iter().partition(Result::is_ok);
    damaged.into_iter().filter_map(Result::err).for_each(|error| context.warn(error));
    Ok(waiting.into_iter().flatten().collect())
}

/// Whether a file of settings that can be read does not switch it off.
fn is_named_later() -> bool {
    let load = |around| Settings::load(&around, &FlagSettings::default()).ok();
    surroundings().ok().and_then(load).is_none_or(|settings| settings.name_run_later.value)
}

/// The present differences from the last ordinary snapshot of a session; from its baseline if it is
/// undone. `inside`: of this path alone.
fn since(
    catalog: &Catalog,
    session: &SessionSummary,
    inside: Option<&Path>,
) -> Result<Option<Since>, CliError> {
    let dir = catalog.find(&session.session_id)?;
    let mut numbers = dir.recorded_numbers()?;
    if numbers.is_empty() {
        return Ok(None);
    }
    // An undo leaves the baseline behind.
    let first = numbers.first().copied().unwrap_or(0);
    let is_undone = session.undone || session.has_kept_some;
    numbers.retain(|number| !is_undone || *number == first);
    let manager = SnapshotManager::open(dir.path())?;
    let mut last = manager.load_manifest(first)?;
    let baseline = last.clone();
    let left_out = last.not_captured.clone();
    for number in numbers.into_iter().rev() {
        let manifest = manager.load_manifest(number)?;
        // A safety snapshot is not the state that the command left.
        if manifest.kind == SnapshotKind::Ordinary {
            last = manifest;
            break;
        }
    }
    let number = last.number;
    let now = manager.live_state(&last)?;
    let differences = diff::compare(&now, &last.merkle_root, &now.manifest().merkle_root)?;
    let (old, new) = (NotCapturedSet::new(&last), NotCapturedSet::new(now.manifest()));
    let is_meant = |path: &Path| inside.is_none_or(|inside| path.starts_with(inside));
    let mut changes = diff::changes(&differences, &old, &new);
    changes.retain(|change| is_meant(&change.path));
    let mut lost = diff::lost(&left_out, &now.manifest().not_captured);
    lost.retain(|lost| is_meant(&lost.path));
    let run_later = if is_named_later() && last.number > baseline.number {
        run_later::of_states(&now, &baseline, &last)?
    } else {
        RunLater::default()
    };
    let summary = ChangeSummary::of(&changes);
    let git = Repositories::of(&now, &last, now.manifest(), &changes)?.lines_of_work();
    Ok(Some(Since { snapshot: number, summary, changes, git, lost, run_later }))
}

/// Names what cannot be restored.
fn write_lost(out: &mut impl Write, lost: &[Lost], context: &Context) -> Result<(), CliError> {
    let for_good: Vec<_> = lost.iter().filter(|lost| !lost.is_rebuildable).collect();
    let named = for_good.len().min(context.at_most(NAMED_LOST));
    for lost in &for_good[..named] {
        writeln!(out, "{YELLOW}cannot be restored{YELLOW:#}: {}", told(lost))?;
    }
    if let more @ 1.. = for_good.len() - named {
        writeln!(out, "{YELLOW}cannot be restored{YELLOW:#}: {more} more (--json names all)")?;
    }
    Ok(())
}

fn print(report: &Report, context: &Context) -> Result<(), CliError> {
    let palette = Palette::coloured();
    let now = Zoned::now();
    let mut out = context.out_long();
    let directory = Shown::path(&report.directory);
    match &report.session {
        None => {
            writeln!(out, "no session has recorded {directory}")?;
            if let Some(MovedProject { moved, session_id }) = &report.moved {
                writeln!(out, "  {}", moved_hint(moved, session_id))?;
            }
            for project in &report.below {
                writeln!(out, "  below: {}", Shown::bytes(project.as_bytes()))?;
            }
        }
        Some(session) => {
            let id = &session.session_id;
            let when = relative_time(session.started, &now);
            writeln!(out, "{BOLD}{}{BOLD:#}", named_project(&session.tracked_paths))?;
            let what = made_by(session);
            let status = session.status.word();
            writeln!(out, "last session: {BOLD}{id}{BOLD:#}  {what}  {status}, {when}")?;
            let changed = session_changes(session, report.git.as_deref(), &palette);
            let is_ended = session.status == SessionStatus::Completed;
            let undone = session.undone_word().map(|word| format!("  ({word})"));
            if is_ended || session.has_changes() || session.user_changes > 0 {
                writeln!(out, "  it changed: {changed}{}", undone.unwrap_or_default())?;
            } else if let Some(undone) = undone {
                writeln!(out, "{undone}")?;
            }
            if let Some(Since { snapshot, changes, git, lost, run_later, .. }) = &report.since {
                if let Some(line) = run_later.line() {
                    writeln!(out, "  {YELLOW}{line}{YELLOW:#}")?;
                }
                let files: Vec<Change> =
                    changes.iter().filter(|change| !change.is_in_git()).cloned().collect();
                let is_same = files.is_empty() && git.is_empty();
                let none = if is_same { " nothing" } else { "" };
                writeln!(out, "different now from snapshot {id}/{snapshot}:{none}")?;
                if !files.is_empty() {
                    let of_files = summary_line(&ChangeSummary::of(&files), &palette);
                    let sum: Vec<&str> =
                        std::iter::once(&of_files).chain(git).map(String::as_str).collect();
                    let sum = Some(sum.join(", ")).filter(|_| files.len() + git.len() > 1);
                    write_preview(&mut out, &files, sum.as_deref(), &session.tracked_paths)?;
                } else {
                    for line in git {
                        writeln!(out, "{}", repository_line(line, &palette))?;
                    }
                }
                write_lost(&mut out, lost, context)?;
            }
        }
    }
    for session in report.session.iter().chain(&report.unrecorded) {
        if !session.unrecorded.is_empty() {
            let (id, most) = (&session.session_id, context.at_most(NAMED_LOST));
            writeln!(out, "not recorded of what session {id} changed:")?;
            write_unrecorded(&mut *out, session, most)?;
        }
    }
    for Running { here, session } in &report.running {
        let place = if *here { "here" } else { "elsewhere" };
        let (id, command) = (&session.session_id, command(session));
        let project = named_project(&session.tracked_paths);
        writeln!(out, "{YELLOW}running {place}{YELLOW:#}: {id}  {command}  in {project}")?;
    }
    for facts in &report.watchers {
        let WatchFacts { session_id, last_snapshot, pid, .. } = facts;
        writeln!(out, "watched: {session_id}/{last_snapshot}  by process {pid}")?;
        write_troubles(facts, &mut *out)?;
        if *last_snapshot > 0 {
            let undo = format!("{NONO} undo --step {session_id}#last");
            writeln!(out, "  take back the last change of you or another program: {undo}")?;
        }
    }
    #[cfg(feature = "mount")]
    for mount in &report.mounts {
        writeln!(out, "mounted: {mount}")?;
    }
    let Interrupted { restores, runs, .. } = &report.interrupted;
    for id in restores {
        writeln!(out, "interrupted restore: {id}  (to finish it: {NONO} resume {id})")?;
    }
    #[cfg(feature = "container")]
    for waiting in &report.interrupted.container_restores {
        let (id, name) = (&waiting.session_id, Shown::bytes(waiting.name.as_bytes()));
        writeln!(
            out,
            "interrupted restore of container {name}: {id}  (to finish it: {NONO} container resume \
             {id})"
        )?;
    }
    for id in runs {
        writeln!(out, "interrupted run: {id}  (what it did: {NONO} show {id})")?;
    }
    for id in &report.interrupted.unbegun {
        writeln!(out, "killed before its first snapshot: {id}  ({NONO} cleanup {id})")?;
    }
    if let Some(Mishap { client, what, .. }) = report.mishaps.last() {
        let [client, what] = [client, what].map(|text| Shown::bytes(text.as_bytes()));
        writeln!(out, "{YELLOW}a hook of {client} failed{YELLOW:#}: {what}  (nono agent status)")?;
    }
    #[cfg(feature = "archive")]
    for (found, advice) in crate::cli::after_run::told(&report.failed_pushes) {
        writeln!(out, "{YELLOW}{found}{YELLOW:#}  ({advice})")?;
    }
    for id in &report.unreadable {
        writeln!(out, "cannot be read: {id}  ({NONO} verify {id})")?;
    }
    Ok(out.flush()?)
}
