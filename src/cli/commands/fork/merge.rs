//! `nono fork merge`: what was done in a fork, merged into the project.
//!
//! The files merge three ways. The base is the state that the fork began with, with what earlier
//! merges of the fork took. The commits arrive as branches. Both are the work of a session of the merge, so `nono undo` takes them back.
//! With `--check`, the merged state is tried in a throw-away fork first.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::commits::{self, Branch};
use super::deciding::{self, Answer};
use super::stays::{self, Stays};
use super::trial::{self, Output, Trials};
use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, ThreadArgs, named_project};
use crate::cli::context::{Context, YELLOW};
use crate::cli::error::CliError;
use crate::cli::forking::{CommandArgs, forks_of, say_lost_writes};
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use crate::cli::render::{Palette, summary_line};
use crate::cli::repositories::Repositories;
use crate::cli::restoring::{answers, is_allowed, print_changes, resolve};
use nono_engine::diff::{ChangeSummary, relative_to_roots};
use nono_engine::fork::{Fork, NotTaken};
use nono_engine::job::refuse_half_way;
use nono_engine::path_text::Shown;
use nono_engine::restore::{
    ConflictSide, Decided, DecidedBy, Merge, MergeReport, RestoreError, RunsAtWork, Selection,
};
use nono_engine::session::{RecordRequest, Recording, running_on};
use nono_engine::snapshot::{
    Budget, MergeRecord, SessionOrigin, SnapshotManager, SnapshotManifest,
};
use nono_engine::sys;

/// Maximum number of merges of a project that keeps changing meanwhile.
const MAX_ATTEMPTS: usize = 3;

/// Arguments of `nono fork merge`.
#[derive(Debug, Args)]
pub(in crate::cli) struct MergeArgs {
    /// The fork
    #[arg(value_name = "NAME")]
    name: String,
    /// Files, directories or globs to merge [default: everything]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Run this command line in a copy of the merged state first: nothing is merged unless it
    /// succeeds
    #[arg(long, value_name = "CMD")]
    check: Option<OsString>,
    /// Only say what would be merged
    #[arg(long, conflicts_with = "check")]
    dry_run: bool,
    /// Merge files alone: commits of the fork stay there
    #[arg(long, conflicts_with = "commits_only")]
    no_commits: bool,
    /// Fetch commits alone: files stay as they are
    #[arg(long, conflicts_with_all = ["check", "paths"])]
    commits_only: bool,
    /// In conflicts, keep the side of the project: its hunks of texts, its version of the rest
    #[arg(long, conflicts_with = "theirs")]
    ours: bool,
    /// In conflicts, take the side of the fork: its hunks of texts, its version of the rest
    #[arg(long)]
    theirs: bool,
    /// Merge also while a run is at work in the project
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Whether the report is a part of that of another command, which prints it.
    #[arg(skip)]
    is_part: bool,
}

/// A merge that has ended.
#[derive(Debug)]
pub(super) struct Merged {
    /// The exit code.
    pub(super) code: u8,
    /// Whether the fork has work that no merge takes.
    pub(super) has_more: bool,
    /// The report, where another command prints it.
    pub(super) report: Option<serde_json::Value>,
}

/// The result of a merge.
#[derive(Debug, Serialize)]
struct Report<'a> {
    fork: &'a str,
    /// The session of the merge; none where nothing was merged.
    merge_session: Option<String>,
    /// The exit code of the check.
    #[serde(skip_serializing_if = "Option::is_none")]
    check: Option<u8>,
    branches: &'a [Branch],
    /// Entries of the fork that are no part of its state.
    not_taken: &'a [NotTaken],
    /// Work in the fork that no merge takes.
    stays: &'a [Stays],
    #[serde(flatten)]
    files: Option<&'a MergeReport>,
}

/// The sides of a merge.
struct Sides {
    fork: Fork,
    /// The manager of the fork's session.
    manager: SnapshotManager,
    base: SnapshotManifest,
    theirs: SnapshotManifest,
    not_taken: Vec<NotTaken>,
    stays: Vec<Stays>,
    roots: Vec<PathBuf>,
}

impl Sides {
    /// Records the state of a fork.
    fn of(args: &MergeArgs, store: &StoreArgs, context: &Context) -> Result<Self, CliError> {
        let fork = forks_of(store)?.find(&args.name)?;
        if let Some(lost) = fork.lost_writes()? {
            say_lost_writes(&fork, &lost, context);
        }
        let threads = args.threads.count(context)?;
        let manager = SnapshotManager::open(fork.session()?.path())?
            .with_threads(threads)
            .with_compression(args.threads.compression());
        let bar = Bar::new(context, "recording the fork");
        let taken = fork.snapshot(None, bar.clone(), threads);
        bar.finish();
        let taken = taken?;
        let base = fork.base()?;
        let roots = base.roots.iter().map(|root| root.path.clone()).collect();
        let (theirs, not_taken) = (taken.manifest, taken.not_taken);
        let stays = stays::stays(&fork, &manager, &base, &theirs)?;
        Ok(Self { fork, manager, base, theirs, not_taken, stays, roots })
    }

    fn merge(&self, args: &MergeArgs, runs_at_work: RunsAtWork) -> Result<Merge, CliError> {
        let paths = args.paths.iter().map(|path| resolve(path, &self.roots));
        let selection = Selection {
            paths: paths.collect::<Result<_, _>>()?,
            base: Some(sys::current_or_former_dir()?),
            ..Selection::default()
        };
        let side = match (args.ours, args.theirs) {
            (true, _) => ConflictSide::Ours,
            (_, true) => ConflictSide::Theirs,
            _ => ConflictSide::Open,
        };
        let merge = Merge::new(self.base.clone(), self.theirs.clone());
        let merge = merge.after(self.fork.past_merges()?).deciding(side, Vec::new());
        Ok(merge.of(selection).beside(runs_at_work))
    }

    fn ended(&self, code: u8, report: Option<serde_json::Value>) -> Merged {
        Merged { code, has_more: !self.stays.is_empty(), report }
    }

    fn branches(&self, args: &MergeArgs) -> Result<Vec<Branch>, CliError> {
        // Chosen paths are files.
        if args.no_commits || !args.paths.is_empty() {
            return Ok(Vec::new());
        }
        commits::branches(&self.manager, &self.base, &self.theirs, self.fork.name())
    }
}

pub(in crate::cli) fn run(args: &MergeArgs, store: &StoreArgs, context: &Context) -> Outcome {
    if let Some(line) = &args.check {
        let command = CommandArgs::of(trial::shell_command(line));
        if let Some(outcome) = trial::run_marked(&command, store, context) {
            return outcome;
        }
    }
    Ok(merged(args, store, context)?.code)
}

fn merged(args: &MergeArgs, store: &StoreArgs, context: &Context) -> Result<Merged, CliError> {
    let catalog = store.catalog()?;
    let sides = Sides::of(args, store, context)?;
    refuse_half_way(&catalog, &sides.roots)?;
    let branches = sides.branches(args)?;
    if args.dry_run {
        let merge = sides.merge(args, RunsAtWork::Ignore)?;
        let bar = Bar::new(context, "comparing");
        let planned = match args.commits_only {
            true => Ok(None),
            false => sides.manager.clone().with_progress(bar.clone()).plan_merge(&merge).map(Some),
        };
        bar.finish();
        return print(args, &sides, planned?.as_ref(), &branches, None, None, context);
    }
    let asks_nothing = args.json;
    let running = running_on(&catalog, &sides.roots, None)?;
    let Some(allowed) = is_allowed(running, args.force, asks_nothing, context)? else {
        return Ok(sides.ended(1, None));
    };
    let at_work = if args.force { RunsAtWork::Ignore } else { RunsAtWork::Allow(allowed) };
    let mut work = Work { args, sides: &sides, merge: sides.merge(args, at_work)?, store, context };
    for _ in 0..MAX_ATTEMPTS {
        match work.carry_out(branches.clone())? {
            Some(merged) => return Ok(merged),
            None => context.say("the project changed meanwhile: the merge begins anew"),
        }
    }
    Err(CliError::from(RestoreError::ChangedSinceCheck).leaving("nothing was merged"))
}

/// Merges a fork, or these paths of it: what `nono try` does with a fork that is kept.
pub(super) fn merge(
    name: &str,
    paths: Vec<PathBuf>,
    json: bool,
    store: &StoreArgs,
    context: &Context,
) -> Result<Merged, CliError> {
    let args = MergeArgs {
        name: name.to_owned(),
        paths,
        check: None,
        dry_run: false,
        no_commits: false,
        commits_only: false,
        ours: false,
        theirs: false,
        force: false,
        threads: ThreadArgs::default(),
        json,
        is_part: true,
    };
    merged(&args, store, context)
}

/// A merge that is carried out.
struct Work<'a> {
    args: &'a MergeArgs,
    sides: &'a Sides,
    merge: Merge,
    store: &'a StoreArgs,
    context: &'a Context,
}

/// The result for the files.
enum Files {
    Merged(MergeReport),
    /// The check of the merged state failed.
    Refused(MergeReport),
    /// A person wants nothing of it.
    Declined,
    /// The project is not as it was any more.
    Changed,
}

impl Work<'_> {
    /// Merges in a session of the merge, and prints the report. Where nothing comes of it, there is
    /// no session. `None`: the project changed meanwhile, and nothing was merged.
    fn carry_out(&mut self, mut branches: Vec<Branch>) -> Result<Option<Merged>, CliError> {
        let Self { args, sides, context, .. } = *self;
        let fork_session = sides.fork.document().session.clone();
        let mut record = MergeRecord::new(fork_session, sides.theirs.number);
        record.awaits_branches = !branches.is_empty();
        let bar = Bar::new(context, "recording the state before");
        let started = Recording::start_merge(&request(args, sides, context)?, record, bar.clone());
        bar.finish();
        let recording = started?;
        let mut check = None;
        let files = match args.commits_only {
            true => None,
            false => match self.merge_files(&recording, &mut check) {
                Ok(files) => Some(files),
                Err(error) => {
                    // An interrupted merge needs its session.
                    if !recording.manager().session().has_restore_journal()? {
                        recording.withdraw()?;
                    }
                    return Err(error);
                }
            },
        };
        let files = match files {
            None => None,
            Some(Files::Merged(report)) => Some(report),
            Some(Files::Refused(report)) => {
                recording.withdraw()?;
                let report = Some(&report);
                return print(args, sides, report, &branches, check, None, context).map(Some);
            }
            Some(Files::Declined) => {
                recording.withdraw()?;
                context.say("nothing was merged");
                return Ok(Some(sides.ended(1, None)));
            }
            Some(Files::Changed) => {
                recording.withdraw()?;
                return Ok(None);
            }
        };
        let (base, theirs) = (&sides.base, &sides.theirs);
        let made = commits::arrive(&mut branches, &sides.manager, base, theirs)?;
        let decides_nothing =
            files.as_ref().is_none_or(|it| it.restore.changes.is_empty() && it.decided.is_empty());
        let is_nothing = decides_nothing && branches.iter().all(|branch| branch.left.is_some());
        let session = match is_nothing {
            true => {
                recording.withdraw()?;
                None
            }
            false => {
                let id = recording.session_id();
                recording.manager().add_to_merge(&made)?;
                recording.end_merge()?;
                Some(id)
            }
        };
        print(args, sides, files.as_ref(), &branches, check, session, context).map(Some)
    }

    /// Merges the files, if the check of the merged state succeeds. `check` gets its exit code.
    fn merge_files(
        &mut self,
        recording: &Recording,
        check: &mut Option<u8>,
    ) -> Result<Files, CliError> {
        let Self { args, store, context, .. } = *self;
        let manager = recording.manager();
        if args.is_asked(context) {
            let foreseen = manager.foresee_merge(&self.merge)?;
            if foreseen.is_open {
                let conflicts = &foreseen.merge_conflicts;
                let merge = self.merge.clone();
                match deciding::ask(merge, conflicts, manager, recording.baseline(), context)? {
                    Answer::Merge(merge) => self.merge = *merge,
                    Answer::Nothing => return Ok(Files::Declined),
                }
            }
        }
        let state = manager.merged_state(&self.merge)?;
        if args.check.is_some() {
            let trials = Trials::new(store)?;
            let code = trials.run(&manager.load_manifest(state.number)?, Output::Shown)?;
            *check = Some(code);
            if code != 0 {
                return Ok(Files::Refused(state.report));
            }
        }
        let bar = Bar::new(context, "merging");
        let manager = manager.clone().with_progress(bar.clone());
        let merged = manager.merge(&self.merge, &state, args.check.is_some());
        bar.finish();
        match merged {
            Err(RestoreError::ChangedSinceCheck) => Ok(Files::Changed),
            merged => Ok(Files::Merged(merged?)),
        }
    }
}

impl MergeArgs {
    /// Whether a person is asked about conflicts.
    fn is_asked(&self, context: &Context) -> bool {
        !self.ours && !self.theirs && answers(self.json, context)
    }
}

fn request(args: &MergeArgs, sides: &Sides, context: &Context) -> Result<RecordRequest, CliError> {
    let mut command: Vec<OsString> = ["nono", "fork", "merge"].map(OsString::from).to_vec();
    command.push(args.name.clone().into());
    command.extend(args.paths.iter().map(|path| path.clone().into_os_string()));
    let exclusion = sides.base.roots.first().map(|root| root.exclusion.clone());
    Ok(RecordRequest {
        root: sides.fork.root().to_owned(),
        command,
        tracked_paths: sides.roots.clone(),
        exclusion: exclusion.unwrap_or_default(),
        budget: Budget::UNLIMITED,
        compression: args.threads.compression(),
        threads: args.threads.count(context)?,
        origin: SessionOrigin::Run,
        label: None,
    })
}

fn print(
    args: &MergeArgs,
    sides: &Sides,
    files: Option<&MergeReport>,
    branches: &[Branch],
    check: Option<u8>,
    session: Option<String>,
    context: &Context,
) -> Result<Merged, CliError> {
    let Sides { fork, roots, not_taken, stays, .. } = sides;
    let is_done = check.is_none_or(|code| code == 0);
    let is_complete = is_done
        && files.is_none_or(MergeReport::is_complete)
        && not_taken.is_empty()
        && branches.iter().all(|branch| branch.left.is_none());
    let code = u8::from(!is_complete);
    if args.json {
        let (fork, merge_session) = (fork.name(), session);
        let report = Report { fork, merge_session, check, branches, not_taken, stays, files };
        let report = match args.is_part {
            true => Some(serde_json::to_value(&report)?),
            false => {
                context.json(&report)?;
                None
            }
        };
        return Ok(sides.ended(code, report));
    }
    let name = fork.name();
    if let Some(code) = check.filter(|_| !is_done) {
        context.fall_short(format_args!(
            "nothing was merged: the check of the merged state ended with exit code {code}"
        ));
        context.say(format_args!("fork {name} stays as it is: {NONO} fork enter {name}"));
        return Ok(sides.ended(1, None));
    }
    let inside = |path: &Path| {
        Shown::bytes(relative_to_roots(path.as_os_str().as_bytes(), roots)).to_string()
    };
    let left = |path: &str, reason: &dyn std::fmt::Display| -> Result<(), CliError> {
        if context.is_quiet() {
            context.fall_short(format_args!("{path} was left: {reason}"));
        }
        let mut out = context.out_done(args.dry_run);
        writeln!(out, "{YELLOW}! left{YELLOW:#}  {path}: {reason}")?;
        Ok(out.flush()?)
    };
    if let Some(files) = files {
        let restore = &files.restore;
        let none = Repositories::default();
        print_changes(&restore.changes, &[], &none, roots, args.dry_run, context)?;
        let mut out = context.out_done(args.dry_run);
        for path in &restore.merged {
            writeln!(out, "  merged with changes here: {}", inside(path))?;
        }
        for Decided { path, reason, by } in &files.decided {
            let end = match by {
                DecidedBy::Ours => "the side here stays",
                DecidedBy::Theirs => "the side of the fork comes",
                DecidedBy::Choice => "as chosen",
            };
            writeln!(out, "  decided, {end}: {}: {reason}", inside(path))?;
        }
        out.flush()?;
        for conflict in &files.merge_conflicts {
            left(&inside(&conflict.path), &conflict.reason)?;
        }
        for skipped in &restore.skipped {
            left(&inside(&skipped.path), &skipped.reason)?;
        }
    }
    for entry in not_taken {
        left(&inside(&entry.path), &entry.reason)?;
    }
    for branch in branches {
        match &branch.left {
            Some(reason) => left(&branch.branch, reason)?,
            None => {
                let what = if args.dry_run { "would become" } else { "became" };
                context.say(format_args!(
                    "commit {} {what} branch {}",
                    branch.commit.short(),
                    Shown::bytes(branch.branch.as_bytes())
                ));
            }
        }
    }
    for work in stays {
        context.say(format_args!("  stays in the fork: {}", work.line(inside)));
    }
    let project = named_project(roots);
    let changes = files.map(|files| &files.restore.changes[..]).unwrap_or_default();
    let done = if args.dry_run { "would be merged" } else { "merged" };
    match changes {
        [] => context.say(format_args!("no file of fork {name} {done} into {project}")),
        changes => {
            let summary = summary_line(&ChangeSummary::of(changes), &Palette::coloured());
            context.say(format_args!("fork {name} {done} into {project}: {summary}"));
        }
    }
    if files.is_some_and(|files| !files.merge_conflicts.is_empty()) {
        context.say(format_args!("the side of the fork of what was left: {NONO} fork diff {name}"));
        context.say("  take it: --theirs; keep the side here: --ours");
    }
    if let Some(session) = session {
        context.say(format_args!("take this back: {NONO} undo {session}"));
    }
    Ok(sides.ended(code, None))
}
