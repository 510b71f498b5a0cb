//! `nono restore`: the way back.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, ThreadArgs, named_project};
use crate::cli::argument::{Argument, Earlier};
use crate::cli::context::{BOLD, Context, YELLOW};
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use crate::cli::render::byte_size;
use crate::cli::restoring::{
    AnotherHome, ConflictArgs, PartArgs, Restoring, name_unstable, refuse_without_answers,
    state_in_words,
};
use crate::cli::state_at::{self, Meant};
use crate::cli::view_args::{ViewArgs, Viewed};
use crate::cli::when::{When, when};
use nono_engine::job::JobKind;
use nono_engine::layout::LATEST;
use nono_engine::path_text::Shown;
use nono_engine::restore::{
    CopyOptions, CopyReport, KeepBefore, OnConflict, OwnersLeft, RestoreError,
};
use nono_engine::session::{Catalog, Purpose};
use nono_engine::snapshot::SessionDir;
#[cfg(feature = "archive")]
use nono_engine::snapshot::SnapshotManager;
use nono_engine::sys::{self, FileKind};

/// Maximum number of snapshots that an error names.
const MAX_SHOWN: usize = 8;

/// Maximum number of paths that a question names.
const MAX_NAMED: usize = 3;

/// Maximum number of named paths that are not in a copy.
const NAMED_SKIPPED: usize = 20;

/// Maximum number of named owners that a copy does not have.
const NAMED_OWNERS: usize = 8;

/// Arguments of `nono restore`.
#[derive(Debug, Args)]
pub(in crate::cli) struct RestoreArgs {
    /// Id of a session, a prefix of it, `latest`, the newest one here, or `latest~N`, the one N
    /// places before it; ID/N is the same as --snapshot N. A path alone is brought back to
    /// the version that stood before what is there now. With --to, NAME:ID[/N] is one of a remote
    #[arg(value_name = "ID[/N] | PATH", default_value = "latest", allow_negative_numbers = true)]
    word: OsString,
    #[command(flatten)]
    part: PartArgs,
    /// Number of the snapshot to bring back [default: 0, the baseline]
    #[arg(long, value_name = "N")]
    snapshot: Option<u64>,
    /// The state at this time: 12:00, yesterday, "2h ago", "2026-11-20 18:30". Without an id, over
    /// all sessions here or of the PATH
    #[arg(long, value_name = "TIME", value_parser = when, conflicts_with = "snapshot")]
    at: Option<When>,
    /// Write a copy into this directory instead; the original paths are not touched. With --force
    /// it overwrites what exists there
    #[arg(long, value_name = "DIR", conflicts_with_all = ["dry_run", "keep_newer", "only"])]
    to: Option<PathBuf>,
    #[command(flatten)]
    conflicts: ConflictArgs,
    /// Keep nothing of what is overwritten or removed: for when the store has no space for it. What
    /// no snapshot holds is gone then
    #[arg(long, conflicts_with = "to")]
    no_safety_snapshot: bool,
    /// Also restore setuid, setgid and file capabilities of a session that an archive brought.
    /// The writer of the archive chose them
    #[arg(long)]
    with_privileges: bool,
    /// Do not ask. Later changes and runs at work are refused all the same
    #[arg(long, short)]
    yes: bool,
    /// Only say what would change
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print the report as JSON; needs --yes, --dry-run or --to
    #[arg(long)]
    json: bool,
    // A heading is that of all that follows.
    #[command(flatten)]
    view: ViewArgs,
}

impl RestoreArgs {
    /// Whether it adds to the session: a safety snapshot, and the journal.
    pub(in crate::cli) fn writes_store(&self) -> bool {
        !self.dry_run && self.to.is_none()
    }

    /// The snapshot that is meant, with the paths.
    fn part(&self, word: &OsStr, catalog: &Catalog, context: &Context) -> Result<Part, CliError> {
        if let Some(at) = &self.at {
            return self.part_at(word, at, catalog, context);
        }
        let found = Argument::of(word, Purpose::Restoring, catalog)?;
        let (path, doubt) = match found {
            Argument::State { session, number, .. } => {
                let number = self.number(&session, number)?;
                let paths = self.part.clone();
                return Ok(Part { session, number, paths, overwrites: false });
            }
            Argument::Path { path, doubt } => (path, doubt),
        };
        if self.snapshot.is_some() {
            let misplaced =
                || CliError::usage("--snapshot is a number in a session: name that first");
            return Err(doubt.map_or_else(misplaced, CliError::from));
        }
        let mut meant: Option<Part> = None;
        let mut doubt = doubt;
        for path in std::iter::once(&path).chain(&self.part.paths) {
            let earlier = Earlier::require(path, doubt.take(), catalog)?;
            if !earlier.name_damaged(context) {
                let message = "a session that cannot be read may hold a newer version";
                return Err(CliError::failed(message)
                    .with_hint(format!("name the snapshot: {NONO} restore ID/N PATH")));
            }
            let (session, number) = (earlier.session()?.clone(), earlier.number());
            let overwrites =
                !self.no_safety_snapshot && !earlier.keeps_now && is_file_alone(path, &earlier);
            match &mut meant {
                Some(part) if part.session.id() != session.id() || part.number != number => {
                    let (first, second) = (Shown::path(&part.paths.paths[0]), Shown::path(path));
                    return Err(CliError::usage(format!(
                        "{first} and {second} were last different in two snapshots"
                    ))
                    .with_hint("restore one after the other: each is a restore of its own"));
                }
                Some(part) => {
                    part.overwrites &= overwrites;
                    part.paths.paths.push(path.clone());
                }
                None => {
                    let mut paths = self.part.clone();
                    paths.paths = vec![path.clone()];
                    meant = Some(Part { session, number, paths, overwrites });
                }
            }
        }
        meant.ok_or_else(|| CliError::usage("no path is named"))
    }

    /// The state at a time, with the paths.
    fn part_at(
        &self,
        word: &OsStr,
        at: &When,
        catalog: &Catalog,
        context: &Context,
    ) -> Result<Part, CliError> {
        if word == LATEST {
            let Meant { session, number } =
                state_at::here(at, Purpose::Restoring, catalog, context)?;
            return Ok(Part { session, number, paths: self.part.clone(), overwrites: false });
        }
        let path = match Argument::of(word, Purpose::Restoring, catalog)? {
            Argument::State { session, number: None, .. } => {
                let Meant { session, number } = state_at::in_session(&session, at, context)?;
                return Ok(Part { session, number, paths: self.part.clone(), overwrites: false });
            }
            Argument::State { .. } => {
                return Err(CliError::usage("--at names a state, and so does the first word"));
            }
            Argument::Path { path, .. } => path,
        };
        let mut paths = self.part.clone();
        paths.paths.insert(0, path);
        let Meant { session, number } = state_at::of_paths(&paths.paths, at, catalog, context)?;
        let is_file = |path: &PathBuf| {
            let place =
                sys::plain_absolute(path, &sys::current_or_former_dir().unwrap_or_default());
            let is_directory = matches!(sys::kind_of(&place), Ok(Some(FileKind::Directory)));
            !is_directory && !place.iter().any(|name| name == ".git")
        };
        let overwrites = !self.no_safety_snapshot && paths.paths.iter().all(is_file);
        Ok(Part { session, number, paths, overwrites })
    }

    /// The number that a session's id or the flag gives, or that of the baseline.
    fn number(&self, session: &SessionDir, named: Option<u64>) -> Result<u64, CliError> {
        match (self.snapshot, named) {
            (Some(a), Some(b)) if a != b => {
                Err(CliError::usage(format!("--snapshot {a} and /{b} are different snapshots")))
            }
            (Some(number), _) | (None, Some(number)) => Ok(number),
            (None, None) => baseline(session),
        }
    }
}

/// A snapshot, and what of it is restored.
struct Part {
    session: SessionDir,
    number: u64,
    paths: PartArgs,
    /// Whether later changes of the paths are no reason to refuse: they are files that were named
    /// without a snapshot, and their contents are kept; or they are gone.
    overwrites: bool,
}

impl Part {
    /// The paths that are restored, as typed, where there are few.
    fn named(&self) -> Option<String> {
        let paths = &self.paths.paths;
        let shown: Vec<String> = paths.iter().map(|path| Shown::path(path).to_string()).collect();
        (1..=MAX_NAMED).contains(&shown.len()).then(|| shown.join(", "))
    }
}

/// Whether nothing but one file is concerned, outside of git directories; or nothing is there, so
/// that nothing is overwritten.
fn is_file_alone(path: &Path, earlier: &Earlier) -> bool {
    let place = sys::plain_absolute(path, &sys::current_or_former_dir().unwrap_or_default());
    if matches!(sys::kind_of(&place), Ok(None)) {
        return true;
    }
    let is_directory = matches!(sys::kind_of(&place), Ok(Some(FileKind::Directory)));
    let is_of_git = earlier.path.iter().any(|name| name == ".git");
    !is_directory && !earlier.is_directory() && !is_of_git
}

pub(in crate::cli) fn run(args: &RestoreArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let Viewed { catalog, words, is_remote } =
        args.view.view(std::slice::from_ref(&args.word), store, context)?;
    if is_remote && args.to.is_none() {
        return Err(CliError::usage("a state of a remote is copied: give --to DIR")
            .with_hint(format!("to restore in place: {NONO} pull, then {NONO} restore")));
    }
    let part = args.part(words.first().unwrap_or(&args.word), &catalog, context)?;
    restore(args, &part, &catalog, context)
}

fn restore(args: &RestoreArgs, part: &Part, catalog: &Catalog, context: &Context) -> Outcome {
    let Part { session, number, .. } = part;
    let kind = JobKind::Restore(*number);
    let mut work = Restoring::new(catalog, session, kind, &args.threads, context)?;
    let selection = part.paths.selection(&work.roots)?;
    if let Some(to) = &args.to {
        let to = sys::plain_absolute(to, &sys::current_dir()?);
        if args.conflicts.force {
            refuse_projects(&to, catalog)?;
        }
        let bar = Bar::new(context, "restoring");
        let manager = work.job.manager().clone().with_progress(bar.clone());
        let options = CopyOptions {
            selection,
            overwrite: args.conflicts.force,
            with_privileges: args.with_privileges,
            base: None,
            in_store: false,
        };
        let copied = manager.copy_out(*number, &to, &options);
        bar.finish();
        return print_copy(&copied?, args.json, context);
    }
    work.decide(&args.conflicts);
    work.job.choose(|options| {
        options.selection = selection;
        if part.overwrites && options.on_conflict == OnConflict::Refuse {
            options.on_conflict = OnConflict::Overwrite;
        }
        options.with_privileges = args.with_privileges;
        if args.no_safety_snapshot {
            options.keep_before = KeepBefore::Nothing;
        }
    });
    work.is_for_program = args.json;
    if let Some(homes) = AnotherHome::of(session)? {
        return homes.restore(&work, args.dry_run, args.threads.compression(), context);
    }
    if args.dry_run {
        return work.dry_run(context);
    }
    if args.yes {
        work.is_settled = true;
        return work.run(None, true, context);
    }
    refuse_without_answers("restore", args.json, context)?;
    let plan = work.plan(context)?;
    if plan.report.restore.changes.is_empty() {
        return work.run(Some(&plan), true, context);
    }
    let (id, project) = (session.id(), named_project(&work.roots));
    let state = state_in_words(session, *number)?;
    context.say(format_args!("restore in {project}: {BOLD}{id}/{number}{BOLD:#}, {state}"));
    let what = part.named().unwrap_or(project);
    work.run_asked(&plan, &format!("restore {what} to {state}?"), context)
}

/// Copies a whole state into a directory. Where it is that of one directory, its files lie directly
/// in there.
///
/// # Errors
/// When the directory is in use, or the state cannot be read.
#[cfg(feature = "archive")]
pub(in crate::cli::commands) fn copy_state(
    session: &SessionDir,
    number: u64,
    to: &Path,
    context: &Context,
) -> Result<CopyReport, CliError> {
    let to = sys::plain_absolute(to, &sys::current_dir()?);
    let bar = Bar::new(context, "restoring");
    let manager = SnapshotManager::open(session.path())?.with_progress(bar.clone());
    let copied = manager.copy_out(number, &to, &CopyOptions::default());
    bar.finish();
    Ok(copied?)
}

/// Refuses a place in any recorded project, where a copy would overwrite what no snapshot holds.
fn refuse_projects(to: &Path, catalog: &Catalog) -> Result<(), CliError> {
    let real = sys::real_or_future_path(to);
    let sessions = catalog.listed()?.sessions;
    let mut tracked = sessions.iter().flat_map(|session| &session.tracked_paths);
    match tracked.find(|tracked| real.starts_with(tracked)) {
        None => Ok(()),
        Some(tracked) => {
            let (to, tracked) = (to.to_owned(), tracked.clone());
            Err(RestoreError::CopyOverProject { to, tracked }.into())
        }
    }
}

/// The number of the baseline. Where the session does not hold it, nothing takes its place unasked:
/// a later state is not the one from before the command.
fn baseline(session: &SessionDir) -> Result<u64, CliError> {
    const BASELINE: u64 = 0;
    let Err(missing) = session.refuse_removed(BASELINE) else { return Ok(BASELINE) };
    let held = session.snapshot_numbers()?;
    let id = session.id();
    let shown = held.iter().take(MAX_SHOWN).map(|number| format!("{id}/{number}"));
    let shown = shown.collect::<Vec<_>>().join(", ");
    let more = held.len().saturating_sub(MAX_SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Err(CliError::from(missing).with_hint(format!("these can be restored: {shown}{more}")))
}

/// Says what a copy holds, and what it lacks.
pub(in crate::cli::commands) fn print_copy(
    report: &CopyReport,
    json: bool,
    context: &Context,
) -> Outcome {
    if json {
        context.json(report)?;
    } else {
        let mut out = context.out_done(false);
        let named = context.at_most(NAMED_SKIPPED);
        for skipped in report.skipped.iter().take(named) {
            let path = Shown::path(&skipped.path);
            writeln!(out, "{YELLOW}! skipped{YELLOW:#}     {path}: {}", skipped.reason)?;
        }
        if let Some(more @ 1..) = report.skipped.len().checked_sub(named) {
            writeln!(out, "{YELLOW}! skipped{YELLOW:#}     {more} more (-v names all)")?;
        }
        out.flush()?;
        let CopyReport { session_id, snapshot, written_count, .. } = report;
        let size = byte_size(report.written_bytes);
        let to = Shown::path(&report.to);
        let files = if *written_count == 1 { "file" } else { "files" };
        context.say(format_args!(
            "copied {written_count} {files} of {session_id}/{snapshot} to {to}, {size}"
        ));
        match report.overwritten_count {
            0 => {}
            1 => context.say("1 of them took the place of another file, which is kept nowhere"),
            count => context.say(format_args!(
                "{count} of them took the place of other files, which are kept nowhere"
            )),
        }
        say_owners_left(&report.owners_left, context);
        if !report.skipped.is_empty() {
            let first = &report.skipped[0];
            // Some are there, and not with all that was recorded of them.
            let paths = match report.skipped.len() {
                1 => "1 path was".to_owned(),
                count => format!("{count} paths were"),
            };
            context.fall_short(format_args!(
                "{paths} not copied as recorded, the first is {}: {}",
                Shown::path(&first.path),
                first.reason
            ));
        }
        name_unstable(&report.unstable, context);
    }
    Ok(u8::from(!report.skipped.is_empty()))
}

/// Says how many paths of a copy belong to this user in place of their recorded owner.
fn say_owners_left(left: &OwnersLeft, context: &Context) {
    let paths = match left.path_count {
        0 => return,
        1 => "1 path is".to_owned(),
        count => format!("{count} paths are"),
    };
    let mut owners: Vec<String> = left.owners.iter().map(|it| it.to_string()).collect();
    if let Some(more @ 1..) = owners.len().checked_sub(NAMED_OWNERS) {
        owners.truncate(NAMED_OWNERS);
        owners.push(format!("and {more} more"));
    }
    let recorded = if left.owners.len() == 1 { "owner" } else { "owners" };
    let owners = owners.join(", ");
    context.say(format_args!("{paths} yours now (recorded {recorded} {owners})"));
}
