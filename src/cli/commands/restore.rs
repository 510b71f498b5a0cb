//! `nono rollback restore`: the way back.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::snapshot::NAMED_UNSTABLE;
use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, ThreadArgs};
use crate::cli::context::{BOLD, Context, YELLOW};
use crate::cli::error::CliError;
use crate::cli::progress::Bar;
use crate::cli::render::{Palette, byte_size, change_line, change_word};
use crate::cli::repositories::{Repositories, Told, conflict_text, repository_line};
use crate::cli::shell_word::shell_word;
use crate::cli::unrecorded::say_rebuildable;
use crate::diff::{Change, ChangeType};
use crate::path_text::Shown;
use crate::restore::{
    Conflict, CopyReport, KeepBefore, OnConflict, RestoreError, RestoreOptions, RestoreReport,
    Selection, Skipped,
};
use crate::session::{Catalog, SnapshotId, changed_since};
use crate::snapshot::{SessionDir, SnapshotManager};
use crate::sys;

/// So many conflicts are named one by one.
const NAMED_CONFLICTS: usize = 50;

/// So many paths stand in a command that is offered.
const NAMED_PATHS: usize = 8;

/// Arguments of `nono rollback restore`.
#[derive(Debug, Args)]
pub(in crate::cli) struct RestoreArgs {
    /// Id of a session, a prefix of it, or `latest`; ID/N is the same as --snapshot N
    #[arg(value_name = "ID[/N]")]
    id: SnapshotId,
    /// Files, directories or globs to restore [default: everything]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Number of the snapshot to bring back [default: 0, the baseline]
    #[arg(long, value_name = "N")]
    snapshot: Option<u64>,
    /// Leave out a file, a directory or a glob (repeatable)
    #[arg(long, value_name = "PATH")]
    exclude: Vec<PathBuf>,
    /// Undo only what was created, modified or deleted since the snapshot (repeatable)
    #[arg(long, value_name = "WHAT", conflicts_with = "to")]
    only: Vec<Only>,
    /// Write a copy into this directory instead; the original paths are not touched
    #[arg(long, value_name = "DIR", conflicts_with_all = ["dry_run", "keep_newer"])]
    to: Option<PathBuf>,
    /// Undo later changes as well; with --to, overwrite what exists
    #[arg(long, conflicts_with = "keep_newer")]
    force: bool,
    /// Leave paths alone that were changed after the session
    #[arg(long)]
    keep_newer: bool,
    /// Restore files alone: commits, branches and the index of git repositories stay as they are
    #[arg(long, conflicts_with = "to")]
    keep_commits: bool,
    /// Keep nothing of what is overwritten or removed: for when the store has no space for it. What
    /// no snapshot holds is gone then
    #[arg(long, conflicts_with = "to")]
    no_safety_snapshot: bool,
    /// Only say what would change
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Only {
    Created,
    Modified,
    Deleted,
}

impl RestoreArgs {
    /// Whether it adds to the session: a safety snapshot, and the journal.
    pub(in crate::cli) fn writes_store(&self) -> bool {
        !self.dry_run && self.to.is_none()
    }
}

pub(in crate::cli) fn run(args: &RestoreArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    let (session, named) = catalog.find_snapshot(&args.id)?;
    let number = match (args.snapshot, named) {
        (Some(a), Some(b)) if a != b => {
            return Err(CliError::usage(format!(
                "--snapshot {a} and /{b} are different snapshots"
            )));
        }
        (a, b) => a.or(b).unwrap_or(0),
    };
    let manager = SnapshotManager::open(session.path())?.with_threads(args.threads.count(context)?);
    let roots: Vec<_> =
        session.manifest(number).map_or_else(|_| manager.roots().to_vec(), |m| m.manifest.roots);
    let roots: Vec<PathBuf> = roots.into_iter().map(|root| root.path).collect();
    let meant = |paths: &[PathBuf]| -> Result<Vec<PathBuf>, CliError> {
        paths.iter().map(|path| resolve(path, &roots)).collect()
    };
    let selection = Selection {
        paths: meant(&args.paths)?,
        exclude: meant(&args.exclude)?,
        only: args.only.iter().map(|only| only.change_type()).collect(),
        ..Selection::default()
    };
    let is_whole = selection.is_everything();
    let bar = Bar::new(context, "restoring");
    let manager = manager.with_progress(bar.clone());
    if let Some(to) = &args.to {
        let to = sys::plain_absolute(to, &sys::current_dir()?);
        let copied = manager.copy_out(number, &to, &selection, args.force);
        bar.finish();
        return print_copy(&copied?, args.json, context);
    }
    let on_conflict = match (args.force, args.keep_newer) {
        (true, _) => OnConflict::Overwrite,
        (_, true) => OnConflict::KeepNewer,
        _ => OnConflict::Refuse,
    };
    let keep_before =
        if args.no_safety_snapshot { KeepBefore::Nothing } else { KeepBefore::Snapshot };
    let keep_commits = args.keep_commits;
    let options = RestoreOptions { on_conflict, selection, keep_before, keep_commits };
    let report = if args.dry_run {
        let planned = manager.plan_restore(number, &options);
        bar.finish();
        let mut report = planned?;
        name_sessions(&mut report.conflicts, &catalog, session.path());
        report
    } else {
        carry_out(&manager, &bar, &catalog, number, options, args.json, context)?
    };
    if args.json {
        context.json(&report)?;
    } else {
        let repositories = Repositories::restored(&report.repositories, &roots);
        print_changes(&report.changes, &report.skipped, &repositories, &roots, context)?;
        print_outcome(&report, is_whole, &roots, context);
    }
    Ok(u8::from(!report.is_complete()))
}

/// Restores what was picked in a review, and says what came of it. Asks about later changes.
pub(in crate::cli) fn restore_picked(
    catalog: &Catalog,
    session: &SessionDir,
    number: u64,
    selection: Selection,
    context: &Context,
) -> Outcome {
    let bar = Bar::new(context, "restoring");
    let manager = SnapshotManager::open(session.path())?
        .with_threads(ThreadArgs::default().count(context)?)
        .with_progress(bar.clone());
    let roots: Vec<PathBuf> = manager.roots().iter().map(|root| root.path.clone()).collect();
    let is_whole = selection.is_everything();
    let options = RestoreOptions { selection, ..RestoreOptions::default() };
    let report = carry_out(&manager, &bar, catalog, number, options, false, context)?;
    for skipped in &report.skipped {
        let path = Shown::path(&skipped.path);
        context.warn(format_args!("skipped {path}: {}", skipped.reason));
    }
    print_outcome(&report, is_whole, &roots, context);
    Ok(u8::from(!report.is_complete()))
}

/// Restores; where later changes would be undone as well, asks, unless nobody is there to answer.
fn carry_out(
    manager: &SnapshotManager,
    bar: &Bar,
    catalog: &Catalog,
    number: u64,
    mut options: RestoreOptions,
    is_for_program: bool,
    context: &Context,
) -> Result<RestoreReport, CliError> {
    let done = manager.restore_with(number, &options);
    bar.finish();
    let mut report = done.map_err(failed)?;
    name_sessions(&mut report.conflicts, catalog, manager.session().path());
    let somebody_answers =
        context.stdin_is_terminal && context.stderr_is_terminal && !is_for_program;
    if report.is_refused() && somebody_answers {
        let roots: Vec<PathBuf> = manager.roots().iter().map(|root| root.path.clone()).collect();
        print_conflicts(&report, &roots, context);
        if let Some(answer) = ask(context)? {
            options.on_conflict = answer;
            let conflicts = std::mem::take(&mut report.conflicts);
            let bar = Bar::new(context, "restoring");
            let done = manager.clone().with_progress(bar.clone()).restore_with(number, &options);
            bar.finish();
            report = done.map_err(failed)?;
            // What was asked about is what is shown; a conflict that came meanwhile is new.
            for conflict in &mut report.conflicts {
                if let Some(known) = conflicts.iter().find(|known| known.path == conflict.path) {
                    conflict.sessions.clone_from(&known.sessions);
                }
            }
        }
    }
    Ok(report)
}

fn failed(error: RestoreError) -> CliError {
    let is_untouched = error.is_before_any_change();
    let failed = CliError::from(error);
    if is_untouched { failed.leaving("nothing was changed") } else { failed }
}

impl Only {
    fn change_type(self) -> ChangeType {
        match self {
            Self::Created => ChangeType::Created,
            Self::Modified => ChangeType::Modified,
            Self::Deleted => ChangeType::Deleted,
        }
    }
}

/// A relative path is first of all one in the current directory, as everywhere; if that is in no
/// tracked path, it is looked for in each of them.
pub(in crate::cli) fn resolve(path: &Path, roots: &[PathBuf]) -> Result<PathBuf, CliError> {
    let is_name_glob =
        path.components().count() == 1 && path.to_string_lossy().contains(['*', '?', '[', '{']);
    if is_name_glob {
        return Ok(path.to_owned());
    }
    let here = sys::plain_absolute(path, &sys::current_dir()?);
    let is_tracked = roots.iter().any(|root| here.starts_with(root));
    Ok(if path.is_absolute() || is_tracked { here } else { path.to_owned() })
}

/// Adds to each conflict which other sessions are behind it.
fn name_sessions(conflicts: &mut [Conflict], catalog: &Catalog, session: &Path) {
    let named = crate::snapshot::SessionDir::open(session).ok().and_then(|session| {
        changed_since(catalog, &session, conflicts.iter().map(|c| c.path.as_path())).ok()
    });
    let mut named = named.unwrap_or_default();
    for conflict in conflicts {
        conflict.sessions = named.remove(&conflict.path).unwrap_or_default();
    }
}

fn print_conflicts(report: &RestoreReport, roots: &[PathBuf], context: &Context) {
    for conflict in report.conflicts.iter().take(NAMED_CONFLICTS) {
        let inside = roots.iter().find_map(|root| conflict.path.strip_prefix(root).ok());
        let inside = inside.filter(|path| !path.as_os_str().is_empty());
        let path = Shown::path(inside.unwrap_or(&conflict.path));
        if let Some(repository) = &conflict.repository {
            let text = conflict_text(&conflict.path, repository);
            context.warn(format_args!("{path}: {text}"));
            continue;
        }
        let who = match conflict.sessions.as_slice() {
            [] => String::new(),
            sessions => format!(", by session {}", sessions.join(", ")),
        };
        let what = change_word(conflict.change_type);
        context.warn(format_args!("{path} was changed after the session ({what}{who})"));
    }
    if let Some(more) = report.conflicts.len().checked_sub(NAMED_CONFLICTS).filter(|more| *more > 0)
    {
        context.warn(format_args!("{more} more were changed after the session (--json names all)"));
    }
}

fn ask(context: &Context) -> Result<Option<OnConflict>, CliError> {
    let answer = context.ask(
        "undo these later changes as well (o), keep them and restore the rest (k), or do nothing \
         (n)? [o/k/N] ",
    )?;
    Ok(match answer.as_str() {
        "o" | "O" => Some(OnConflict::Overwrite),
        "k" | "K" => Some(OnConflict::KeepNewer),
        _ => None,
    })
}

/// What a restore, or the recovery of one, changed and what it left.
pub(super) fn print_changes(
    changes: &[Change],
    skipped: &[Skipped],
    repositories: &Repositories,
    roots: &[PathBuf],
    context: &Context,
) -> Result<(), CliError> {
    let palette = Palette::coloured();
    let mut out = context.out_long();
    for change in repositories.outside(changes) {
        writeln!(out, "{}", change_line(change, roots, &palette))?;
    }
    for line in repositories.lines() {
        writeln!(out, "{}", repository_line(&line, &palette))?;
    }
    for skipped in skipped {
        let path = Shown::path(&skipped.path);
        writeln!(out, "{YELLOW}! skipped{YELLOW:#}     {path}: {}", skipped.reason)?;
    }
    Ok(out.flush()?)
}

/// `is_whole`: everything was asked for, and not a part.
fn print_outcome(report: &RestoreReport, is_whole: bool, roots: &[PathBuf], context: &Context) {
    let palette = Palette::coloured();
    print_conflicts(report, roots, context);
    let id = format!("{BOLD}{}/{}{BOLD:#}", report.session_id, report.snapshot);
    let repositories = Repositories::restored(&report.repositories, roots);
    let summary = repositories.summary(&report.changes, &palette);
    if report.is_refused() {
        context.say(format_args!("nothing was changed: later changes would be undone as well"));
        let kept = match report.keep_before {
            KeepBefore::Snapshot => "they are kept in a safety snapshot, or left as they are",
            KeepBefore::Nothing => "they are not kept",
        };
        context.say(format_args!("  undo them too:        --force ({kept})"));
        context.say("  leave them, do the rest: --keep-newer");
        return;
    }
    match (report.changes.is_empty(), report.dry_run) {
        (true, _) if report.is_complete() => {
            let what = if is_whole { "everything" } else { "everything selected" };
            context.say(format_args!("{what} that is recorded is as in {id} already"));
        }
        (_, true) => context.say(format_args!("restoring {id} would do this: {summary}")),
        (true, false) => context.say("nothing was changed"),
        (_, false) => context.say(format_args!("restored {id}: {summary}")),
    }
    let told = if report.dry_run { Told::Planned } else { Told::Restored };
    for line in repositories.said(told) {
        context.say(format_args!("  {line}"));
    }
    if report.on_conflict == OnConflict::KeepNewer && !report.conflicts.is_empty() {
        let count = report.conflicts.len();
        let what = if count == 1 { "path was" } else { "paths were" };
        context.say(format_args!("{count} newer {what} left as they are"));
    }
    say_rebuildable(&report.rebuildable, context);
    if !report.is_complete() {
        let count = report.skipped.len();
        let what = if count == 1 { "path is not as it was" } else { "paths are not as they were" };
        context.warn(format_args!("{count} {what} in {id}, see above"));
    }
    name_unstable(&report.unstable, context);
    if let Some(safety) = report.safety_snapshot {
        let session = &report.session_id;
        context.say(format_args!("undo this: nono rollback restore {session}/{safety}"));
    } else if !report.changes.is_empty() && !report.dry_run {
        context.say(match report.keep_before {
            KeepBefore::Snapshot => {
                "the store has no space for a safety snapshot: nothing was overwritten or removed but \
                 what other snapshots of the session hold"
            }
            KeepBefore::Nothing => "no safety snapshot was taken, as was asked for",
        });
    }
    if !report.not_kept.is_empty() {
        offer_the_rest(report, context);
    }
}

/// Names the ways to restore what the store has no space to keep.
fn offer_the_rest(report: &RestoreReport, context: &Context) {
    let RestoreReport { session_id, snapshot, not_kept, .. } = report;
    let what = match not_kept.len() {
        1 => "1 path stays as it is".to_owned(),
        count => format!("{count} paths stay as they are"),
    };
    context.say(format_args!("the store has no space to keep what is there now: {what}"));
    context.say("  to keep what is there: make space on the disk of the store, and restore again");
    let words: Option<Vec<_>> = not_kept.iter().map(|path| shell_word(path)).collect();
    let Some(words) = words.filter(|words| words.len() <= NAMED_PATHS) else {
        return context.say("  to lose it: the same command with --no-safety-snapshot");
    };
    let force = if report.on_conflict == OnConflict::Overwrite { " --force" } else { "" };
    context.say(format_args!(
        "  to lose it: nono rollback restore {session_id}/{snapshot} --no-safety-snapshot{force} {}",
        words.join(" ")
    ));
}

/// Names files of which the snapshot may have a state that they never had.
fn name_unstable(unstable: &[PathBuf], context: &Context) {
    let (named, more) = unstable.split_at(unstable.len().min(NAMED_UNSTABLE));
    if !named.is_empty() {
        context
            .warn("recorded while something wrote to them, so in a state they may never have had:");
    }
    for path in named {
        context.say(format_args!("  {}", Shown::path(path)));
    }
    if !more.is_empty() {
        context.say(format_args!("  and {} more (--json names all)", more.len()));
    }
}

fn print_copy(report: &CopyReport, json: bool, context: &Context) -> Outcome {
    if json {
        context.json(report)?;
    } else {
        let mut out = context.out();
        for skipped in &report.skipped {
            let path = Shown::path(&skipped.path);
            writeln!(out, "{YELLOW}! skipped{YELLOW:#}     {path}: {}", skipped.reason)?;
        }
        let CopyReport { session_id, snapshot, written_count, .. } = report;
        let size = byte_size(report.written_bytes);
        let to = Shown::path(&report.to);
        context.say(format_args!(
            "copied {written_count} files of {session_id}/{snapshot} to {to}, {size}"
        ));
        if !report.skipped.is_empty() {
            context.warn(format_args!("{} paths were not copied", report.skipped.len()));
        }
        name_unstable(&report.unstable, context);
    }
    Ok(u8::from(!report.skipped.is_empty()))
}
