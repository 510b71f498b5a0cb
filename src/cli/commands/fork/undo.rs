//! `nono undo` of what a fork recorded: a step of an agent, or a run, taken back in the fork.
//!
//! ```text
//! outside   nono undo ID ────────────────────┐
//! inside    nono undo ── socket ── the supervisor of the command in the fork
//!                                            └── nono __fork-undo SESSION, in its mounts
//! ```
//!
//! The present state is read from the layer, as a snapshot of the fork reads it, and the paths are
//! changed where the fork shows them. So the plan, the safety snapshot and the journal are those of
//! every other undo, and the project is not touched. A command in a fork gets no more rights by it:
//! it may write the paths of the fork anyway, and it names a number alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::{Context, YELLOW};
use crate::cli::error::CliError;
use crate::cli::forking::{Entered, forks_of, join};
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use crate::cli::render::{Palette, summary_line};
use crate::cli::repositories::Repositories;
use crate::cli::restoring::{print_changes, refuse_without_answers};
use crate::config::Origin;
use crate::sandbox;
use nono_engine::diff::relative_to_roots;
use nono_engine::fork::{Fork, ForkError};
use nono_engine::job::{JobKind, RestoreJob};
use nono_engine::path_text::Shown;
use nono_engine::restore::{JobReport, OnConflict, Recovery, RestoreError, RunsAtWork};
use nono_engine::snapshot::{
    RestoreRecord, SessionDir, SnapshotKind, SnapshotManager, SnapshotManifest, StepKind,
};

/// The name of the hidden command.
pub(in crate::cli) const NAME: &str = "__fork-undo";

/// The changes that are taken back in a fork, and how.
#[derive(Debug, Clone, Default, Args, serde::Serialize, serde::Deserialize)]
pub(in crate::cli) struct TakeBackArgs {
    /// The snapshot whose changes are taken back [default: the newest of which something is left]
    #[arg(long)]
    pub(in crate::cli) number: Option<u64>,
    #[arg(long)]
    pub(in crate::cli) yes: bool,
    #[arg(long)]
    pub(in crate::cli) dry_run: bool,
    #[arg(long)]
    pub(in crate::cli) force: bool,
    #[arg(long)]
    pub(in crate::cli) json: bool,
    /// Take the last undo back that stands
    #[arg(long, conflicts_with = "number")]
    pub(in crate::cli) redo: bool,
    /// Only end an undo that was interrupted
    #[arg(long)]
    pub(in crate::cli) resume: bool,
    /// Take an undo that was interrupted back
    #[arg(long)]
    pub(in crate::cli) abort: bool,
}

impl TakeBackArgs {
    /// The words that mean the same, behind the name of the hidden command.
    pub(in crate::cli) fn words(&self, session: &str) -> Vec<String> {
        let mut words = vec![NAME.to_owned(), session.to_owned()];
        words.extend(self.number.map(|number| format!("--number={number}")));
        let flags = [
            (self.yes, "--yes"),
            (self.dry_run, "--dry-run"),
            (self.force, "--force"),
            (self.json, "--json"),
            (self.redo, "--redo"),
            (self.resume, "--resume"),
            (self.abort, "--abort"),
        ];
        words
            .extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| (*flag).to_owned()));
        words
    }
}

/// Arguments of the hidden command.
#[derive(Debug, Args)]
pub(in crate::cli) struct ForkUndoArgs {
    /// The session of the fork
    session: String,
    #[command(flatten)]
    what: TakeBackArgs,
}

/// Takes back outside of a fork, in a process of its own: this one may have threads.
pub(in crate::cli) fn outside(
    session: &SessionDir,
    what: &TakeBackArgs,
    store: &StoreArgs,
    context: &Context,
) -> Outcome {
    let fork = match forks_of(store)?.of_session(&session.id()) {
        Err(ForkError::NotFound { .. }) => {
            return Err(CliError::failed(format!(
                "the fork of session {} is gone, so nothing of it can be undone",
                session.id()
            )));
        }
        fork => fork?,
    };
    if !what.yes && !what.dry_run && !what.resume {
        refuse_without_answers("undo", what.json, context)?;
    }
    let _entered = Entered::new(&fork)?;
    let failed = |error| CliError::failed(format!("cannot start this program again: {error}"));
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    // The commands that it offers name the store as this one does.
    match store.origin() {
        Origin::Flag => command.arg("--root").arg(fork.root()),
        _ => command.env("NONO_ROOT", fork.root()),
    };
    let ended = command.args(what.words(&session.id())).status().map_err(failed)?;
    let code = ended.code().and_then(|code| u8::try_from(code).ok());
    code.ok_or_else(|| CliError::failed(format!("the undo was ended: {ended}")))
}

/// Takes back in the mounts of a fork, which this process enters.
pub(in crate::cli) fn run(args: &ForkUndoArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let fork = forks_of(store)?.of_session(&args.session)?;
    let _used = fork.enter()?;
    join(fork.path(), false)?;
    sandbox::relinquish()?;
    let manager = fork.manager()?;
    let session = fork.session()?;
    let name = fork.name();
    // One that was killed has to be whole before anything is compared.
    if session.has_restore_journal()? {
        let (way, end) = match args.what.abort {
            true => (Recovery::TakeBack, "taken back"),
            false => (Recovery::Finish, "finished"),
        };
        manager.recover_restore(way)?;
        context.say(format_args!("an undo in fork {name} was interrupted, and is {end}"));
    } else if args.what.resume {
        context.say(format_args!("no undo in fork {name} was interrupted"));
    }
    if args.what.resume {
        return Ok(0);
    }
    let numbers = match args.what.number {
        Some(0) => {
            return Err(CliError::usage(format!(
                "snapshot 0 is the state from which fork {} began",
                fork.name()
            )));
        }
        Some(number) => vec![number],
        None if args.what.redo => match Undos::of(&session)?.last_that_stands() {
            Some(number) => vec![number],
            None => {
                let message = format!("there is nothing to redo: nothing in fork {name} is undone");
                return Err(CliError::failed(message));
            }
        },
        None => newest_first(&session)?,
    };
    Work { fork: &fork, manager, what: &args.what, context }.take_back(&numbers)
}

/// The snapshots that a person, a run or an agent made in a fork, the newest first, without those
/// that are undone.
fn newest_first(session: &SessionDir) -> Result<Vec<u64>, CliError> {
    let undone = Undos::of(session)?.undone();
    let mut numbers = Vec::new();
    for number in session.recorded_numbers()?.into_iter().rev().filter(|number| *number > 0) {
        let manifest = session.manifest(number)?.manifest;
        if manifest.kind == SnapshotKind::Ordinary
            && !is_undo(&manifest)
            && !undone.contains(&number)
        {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// Whether a snapshot is the state that an undo left.
fn is_undo(manifest: &SnapshotManifest) -> bool {
    manifest.step.as_ref().is_some_and(|step| step.kind == StepKind::Undo)
}

/// The undos in a fork, by the snapshots that they left: the snapshot that each is about, and
/// whether it undoes that one. The undo of an undo brings it back.
struct Undos(BTreeMap<u64, (u64, bool)>);

impl Undos {
    fn of(session: &SessionDir) -> Result<Self, CliError> {
        let mut left = Vec::new();
        for number in session.recorded_numbers()? {
            if is_undo(&session.manifest(number)?.manifest) {
                left.push(number);
            }
        }
        let mut found: BTreeMap<u64, (u64, bool)> = BTreeMap::new();
        // One that left something has more to do.
        let is_whole = |record: &&RestoreRecord| record.undoes_steps && !record.left_some;
        for record in session.metadata()?.restores.iter().filter(is_whole) {
            let Some(safety) = record.safety_snapshot else { continue };
            let Some(number) = left.iter().find(|number| **number > safety) else { continue };
            let about = match found.get(&record.snapshot) {
                Some((about, is_undone)) => (*about, !is_undone),
                None => (record.snapshot, true),
            };
            found.insert(*number, about);
        }
        Ok(Self(found))
    }

    /// The snapshots that are undone.
    fn undone(&self) -> BTreeSet<u64> {
        let mut undone = BTreeSet::new();
        for (about, is_undone) in self.0.values() {
            match is_undone {
                true => undone.insert(*about),
                false => undone.remove(about),
            };
        }
        undone
    }

    /// The snapshot that the last undo left of what is undone still.
    fn last_that_stands(&self) -> Option<u64> {
        let undone = self.undone();
        let stands =
            |(_, (about, is_undone)): &(&u64, &(u64, bool))| *is_undone && undone.contains(about);
        self.0.iter().rev().find(stands).map(|(number, _)| *number)
    }
}

/// An undo in the mounts of a fork.
struct Work<'a> {
    fork: &'a Fork,
    manager: SnapshotManager,
    what: &'a TakeBackArgs,
    context: &'a Context,
}

impl Work<'_> {
    /// Takes back the first of these snapshots of which something is left.
    fn take_back(&self, numbers: &[u64]) -> Outcome {
        let Self { fork, what, context, .. } = self;
        for &number in numbers {
            let mut job = RestoreJob::new(self.manager.clone(), JobKind::Steps(vec![number]))?;
            job.choose(|options| {
                options.runs_at_work = RunsAtWork::Ignore;
                if what.force {
                    options.on_conflict = OnConflict::Overwrite;
                }
            });
            let plan = self.with_bar("comparing", &mut job, RestoreJob::plan)?;
            let shown = &plan.report;
            if shown.is_nothing_but_commits() && (numbers.len() > 1 || shown.is_nothing()) {
                continue;
            }
            let id = format!("{}/{number}", fork.document().session);
            if what.dry_run {
                return self.print(shown);
            }
            context.say(format_args!("undo in fork {}: what led to {id}", fork.name()));
            if !what.yes {
                self.show_changes(shown)?;
                if !context.confirm(&format!("undo this in fork {}?", fork.name()))? {
                    context.say(format_args!("nothing was changed in fork {}", fork.name()));
                    return Ok(1);
                }
            }
            let done = self.with_bar("restoring", &mut job, |job| job.carry_out(&plan))?;
            return self.print(&done);
        }
        let id = &fork.document().session;
        Err(CliError::failed(format!(
            "nothing that is recorded in fork {} is left to undo",
            fork.name()
        ))
        .with_hint(format!("{NONO} show {id} lists its snapshots")))
    }

    fn with_bar<T>(
        &self,
        what: &'static str,
        job: &mut RestoreJob,
        work: impl FnOnce(&RestoreJob) -> Result<T, RestoreError>,
    ) -> Result<T, CliError> {
        let bar = Bar::new(self.context, what);
        job.tell(bar.clone());
        let done = work(job);
        bar.finish();
        Ok(done?)
    }

    fn roots(&self) -> Vec<PathBuf> {
        self.fork.recorded_paths().cloned().collect()
    }

    fn show_changes(&self, report: &JobReport) -> Result<(), CliError> {
        let restore = &report.restore;
        let none = Repositories::default();
        print_changes(&restore.changes, &[], &none, &self.roots(), restore.dry_run, self.context)
    }

    fn print(&self, report: &JobReport) -> Outcome {
        let Self { fork, what, context, .. } = self;
        let code = u8::from(!report.is_complete());
        if what.json {
            context.json(report)?;
            return Ok(code);
        }
        self.show_changes(report)?;
        let (restore, roots) = (&report.restore, self.roots());
        let inside = |path: &std::path::Path| {
            Shown::bytes(relative_to_roots(path.as_os_str().as_bytes(), &roots)).to_string()
        };
        let mut out = context.out_done(restore.dry_run);
        for path in &restore.merged {
            writeln!(out, "  merged with later changes: {}", inside(path))?;
        }
        let conflicts = report.step_conflicts.iter().map(|it| (&it.path, it.reason.clone()));
        let skipped = restore.skipped.iter().map(|it| (&it.path, it.reason.to_string()));
        for (path, reason) in conflicts.chain(skipped) {
            writeln!(out, "{YELLOW}! left{YELLOW:#}  {}: {reason}", inside(path))?;
        }
        out.flush()?;
        let done = if restore.dry_run { "would be undone" } else { "undone" };
        let summary = summary_line(&restore.summary(), &Palette::coloured());
        let name = fork.name();
        context.say(format_args!("{done} in fork {name}: {summary}; the project is as it was"));
        if !restore.dry_run
            && !restore.changes.is_empty()
            && let Some(last) = fork.session()?.recorded_numbers()?.pop()
        {
            let id = &fork.document().session;
            context.say(format_args!("take this back: {NONO} undo {id}/{last}"));
        }
        Ok(code)
    }
}
