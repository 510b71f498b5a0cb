//! The messages of a restore, for each command that asks for one.
//!
//! The first and the last line name the project: a user in the wrong directory sees it.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::conflicts::print_conflicts;
use super::preview::write_preview;
use crate::cli::args::named_project;
use crate::cli::context::{BOLD, Context, YELLOW};
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::render::{Palette, change_line};
use crate::cli::repositories::{Repositories, Told, repository_line};
use crate::cli::shell_word::shell_word;
use crate::cli::snapshot_report::NAMED_UNSTABLE;
use crate::cli::unrecorded_changes::{report_lost, say_rebuildable};
use nono_engine::counted::counted;
use nono_engine::diff::{Change, ChangeType};
use nono_engine::path_text::Shown;
use nono_engine::restore::{
    Conflict, KeepBefore, OnConflict, OverwrittenEdit, RestoreReport, Skipped,
};
use nono_engine::sys;

/// Maximum number of paths in an offered command.
pub(super) const NAMED_PATHS: usize = 8;

/// The command that asked for a restore: the offered way back uses its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum AskedBy {
    /// `restore`, or a review.
    Restore,
    /// `undo`.
    Undo {
        /// Whether `undo` without a name means the session.
        is_next: bool,
    },
    /// `redo` of an undo.
    Redo {
        /// Whether `undo` without a name means the session.
        is_next: bool,
    },
    /// `redo` of another restore.
    RedoOfRestore,
}

impl AskedBy {
    /// The command that reverts it. `is_here`: the current directory is one of the project.
    fn way_back(self, session: &str, safety: u64, is_here: bool) -> String {
        match self {
            Self::Restore | Self::Undo { .. } if is_here => format!("take this back: {NONO} redo"),
            Self::Redo { is_next } if is_here => {
                format!("undo it again: {}", undo_command(session, is_next))
            }
            _ => format!("undo this: {NONO} restore {session}/{safety}"),
        }
    }
}

/// The command that reverts the undo of steps.
pub(in crate::cli) fn way_back(session: &str, safety: u64, roots: &[PathBuf]) -> String {
    AskedBy::Restore.way_back(session, safety, is_here(roots))
}

/// The command that undoes a session. `is_next`: it needs no name.
fn undo_command(session: &str, is_next: bool) -> String {
    if is_next { format!("{NONO} undo") } else { format!("{NONO} undo {session}") }
}

/// Whether commands without an id mean this project in the current directory.
fn is_here(roots: &[PathBuf]) -> bool {
    let Ok(here) = sys::current_or_former_dir() else { return false };
    let is_file_here = |root: &Path| {
        root.parent() == Some(&*here)
            && !matches!(sys::kind_of(root), Ok(Some(sys::FileKind::Directory)))
    };
    roots.iter().any(|root| here.starts_with(root) || is_file_here(root))
}

/// Says what is about to be restored.
pub(super) fn announce(id: &str, number: u64, roots: &[PathBuf], context: &Context) {
    let project = named_project(roots);
    context.say(format_args!("restoring {project} to {BOLD}{id}/{number}{BOLD:#}"));
}

/// Says what came of it. `is_whole`: everything was asked for, and not a part. `known` are
/// conflicts that a question named before. `session`: its directory, which is in the store.
pub(super) fn print_outcome(
    report: &RestoreReport,
    known: &[Conflict],
    is_whole: bool,
    asked_by: AskedBy,
    session: &Path,
    roots: &[PathBuf],
    context: &Context,
) {
    let palette = Palette::coloured();
    let project = named_project(roots);
    if report.is_refused() || !context.is_quiet() {
        // A path that was asked for and is gone: to bring it back costs nothing that came later.
        let is_free = |conflict: &&Conflict| {
            let is_gone = conflict.change_type == ChangeType::Deleted;
            is_gone && asked_by == AskedBy::Restore && report.on_conflict == OnConflict::Overwrite
        };
        let told: Vec<_> = report.conflicts.iter().filter(|it| !is_free(it)).cloned().collect();
        print_conflicts(&told, known, roots, context);
    }
    let id = format!("{BOLD}{}/{}{BOLD:#}", report.session_id, report.snapshot);
    let repositories = Repositories::restored(&report.repositories, roots);
    let mut summary = repositories.summary(&report.changes, &report.touched, &palette);
    if report.changes.is_empty() && report.directory_times > 0 {
        let directories = if report.directory_times == 1 { "directory" } else { "directories" };
        summary = format!("{summary}, {} {directories} touched", report.directory_times);
    }
    if report.is_refused() {
        let all = |is_so: fn(&Conflict) -> bool| report.conflicts.iter().all(is_so);
        let what = if all(|conflict| conflict.user_edit.is_some()) {
            "edits of yours"
        } else if all(|conflict| !conflict.beside.is_empty()) {
            "changes that another session may have made"
        } else {
            "later changes"
        };
        let refused = format!("nothing was changed in {project}: {what} would be undone as well");
        if context.is_quiet() {
            return context.fall_short(format_args!("{refused} (--force, --keep-newer)"));
        }
        context.say(refused);
        let kept = match report.keep_before {
            KeepBefore::Snapshot => {
                format!("a snapshot is taken first: {NONO} redo brings them back")
            }
            KeepBefore::Nothing => "they are not kept".to_owned(),
        };
        context.say(format_args!("  undo them too:        --force ({kept})"));
        context.say("  leave them, do the rest: --keep-newer");
        return;
    }
    let is_nothing =
        report.changes.is_empty() && report.touched.is_empty() && report.directory_times == 0;
    let is_done = !is_nothing && !report.dry_run;
    match (is_nothing, report.dry_run) {
        (true, _) if report.has_kept_newer() => {
            context
                .say(format_args!("nothing was restored in {project}: all that differs is newer"));
        }
        (true, _) if report.is_complete() => {
            let what = if is_whole { "everything" } else { "everything selected" };
            context.say(format_args!("{what} that is recorded is as in {id} already ({project})"));
        }
        (_, true) => {
            context.say(format_args!("restoring {id} would do this in {project}: {summary}"));
        }
        (true, false) => context.say(format_args!("nothing was changed in {project}")),
        (_, false) => context.say(format_args!("restored {id}: {summary}")),
    }
    let told = if report.dry_run { Told::Planned } else { Told::Restored };
    for line in repositories.said(told) {
        context.say(format_args!("  {line}"));
    }
    if report.has_kept_newer() {
        let what = match report.conflicts.len() {
            1 => "1 newer path was left as it is".to_owned(),
            count => format!("{count} newer paths were left as they are"),
        };
        let way = match asked_by {
            AskedBy::Undo { is_next } if is_done => {
                let undo = undo_command(&report.session_id, is_next);
                format!(" (to undo that too: {undo} --force)")
            }
            _ => String::new(),
        };
        context.say(format_args!("{what}{way}"));
    }
    say_merged(report, roots, context);
    say_spared(&report.spared, roots, context);
    say_overwritten(report, context);
    say_rebuildable(&report.rebuildable, context);
    report_lost(&report.lost, context);
    let lost = report.lost_for_good().count();
    if lost > 0 {
        let one = "path that is not recorded cannot come back";
        let what = counted(lost, one, "paths that are not recorded cannot come back");
        context.warn(format_args!("{what}, see above (--rollback-include keeps such a path)"));
    }
    for Skipped { path, reason } in report.blocked.iter().take(context.at_most(NAMED_PATHS)) {
        context.warn(format_args!("{} cannot be changed: {reason}", Shown::path(path)));
    }
    if !report.blocked.is_empty() {
        context.say("  restore the rest: --skip-blocked");
    }
    if !report.skipped.is_empty() {
        let count = report.skipped.len();
        let what = if count == 1 { "path is not as it was" } else { "paths are not as they were" };
        context.warn(format_args!("{count} {what} in {id}, see above"));
        offer_to_open(&report.skipped, context);
    }
    name_unstable(&report.unstable, context);
    if !report.not_kept.is_empty() {
        offer_the_rest(report, session, roots, context);
    }
    if is_done {
        say_if_directory_is_gone(context);
    }
    // Where nothing was changed, there is nothing to take back.
    if !is_done {
        return;
    }
    if let Some(safety) = report.safety_snapshot {
        let way_back = asked_by.way_back(&report.session_id, safety, is_here(roots));
        context.say(format_args!("in {project}, {way_back}"));
    } else {
        let why = match report.keep_before {
            KeepBefore::Snapshot => {
                "the store has no space for a safety snapshot: nothing was overwritten or removed \
                 but what other snapshots of the session hold"
            }
            KeepBefore::Nothing => "no safety snapshot was taken, as was asked for",
        };
        context.say(format_args!("{why} ({project})"));
    }
}

/// Names what was left, where the output is not for a list.
pub(in crate::cli) fn warn_of_skipped(skipped: &[Skipped], context: &Context) {
    for Skipped { path, reason } in skipped {
        context.fall_short(format_args!("skipped {}: {reason}", Shown::path(path)));
    }
}

/// A shell goes on in a directory that is gone, where nothing works.
fn say_if_directory_is_gone(context: &Context) {
    let Ok(former) = sys::current_or_former_dir() else { return };
    if sys::current_dir().is_ok() {
        return;
    }
    let next = former.ancestors().find(|above| sys::leads_to_dir(above)).unwrap_or(Path::new("/"));
    let next = shell_word(next).unwrap_or_else(|| "/".to_owned());
    context.say(format_args!("the directory that you are in is gone with it: cd {next}"));
}

/// Names what the agent destroyed of the user's work, with the way to it.
pub(in crate::cli) fn say_overwritten(report: &RestoreReport, context: &Context) {
    const NAMED: usize = 3;
    for OverwrittenEdit { path, step } in report.overwritten.iter().take(NAMED) {
        let shown = Shown::path(path);
        context.warn(format_args!(
            "your edit of {shown} in step {step} was overwritten later, and does not come back"
        ));
        if let Some(path) = shell_word(path) {
            let id = &report.session_id;
            context.say(format_args!("  bring it back: {NONO} restore {id}/{step} {path}"));
        }
    }
    let more = report.overwritten.len().saturating_sub(NAMED);
    if more > 0 {
        let edits = if more == 1 { "edit of yours was" } else { "edits of yours were" };
        context.warn(format_args!("{more} more {edits} overwritten (--json)"));
    }
}

/// Says in which files later changes stay beside what is undone.
pub(super) fn say_merged(report: &RestoreReport, roots: &[PathBuf], context: &Context) {
    say_paths("merged, so that later changes stay:", &report.merged, roots, context);
}

/// Says what stays because the undone session, or its agent, did not change it.
fn say_spared(spared: &[PathBuf], roots: &[PathBuf], context: &Context) {
    const WHAT: &str = "changed by you or others, and not by the session, so it stays:";
    say_paths(WHAT, spared, roots, context);
}

/// Says which edits between the calls of an agent go with what it did.
pub(super) fn say_own_edits(edits: &[PathBuf], roots: &[PathBuf], context: &Context) {
    say_paths("changed by you or others, and goes too:", edits, roots, context);
}

/// Names paths in a line, or each in its own for `-v`. They come sorted.
fn say_paths(what: &str, paths: &[PathBuf], roots: &[PathBuf], context: &Context) {
    const NAMED: usize = 3;
    if paths.is_empty() {
        return;
    }
    let shown = |path: &Path| {
        let inside = roots.iter().find_map(|root| path.strip_prefix(root).ok());
        Shown::path(inside.filter(|path| !path.as_os_str().is_empty()).unwrap_or(path)).to_string()
    };
    if context.is_verbose {
        context.say(what);
        paths.iter().for_each(|path| context.say(format_args!("  {}", shown(path))));
        return;
    }
    // A directory stands for all in it.
    let mut outermost: Vec<(&Path, usize)> = Vec::new();
    for path in paths {
        match outermost.last_mut() {
            Some((above, inside)) if path.starts_with(*above) => *inside += 1,
            _ => outermost.push((path, 0)),
        }
    }
    let named = outermost.iter().take(NAMED).map(|(path, inside)| match inside {
        0 => shown(path),
        count => format!("{} (with {} in it)", shown(path), counted(*count, "path", "paths")),
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let others = match outermost.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more (-v names all)"),
    };
    context.say(format_args!("{what} {named}{others}"));
}

/// The changes of a restore, and the paths that it left.
pub(in crate::cli) fn print_report(
    report: &RestoreReport,
    roots: &[PathBuf],
    context: &Context,
) -> Result<(), CliError> {
    let repositories = Repositories::restored(&report.repositories, roots);
    let is_asked = report.dry_run;
    print_changes(&report.changes, &report.skipped, &repositories, roots, is_asked, context)
}

/// The changes of a restore, or of the recovery of one, and the paths that it left. `is_asked`:
/// they are what the command is for.
pub(in crate::cli) fn print_changes(
    changes: &[Change],
    skipped: &[Skipped],
    repositories: &Repositories,
    roots: &[PathBuf],
    is_asked: bool,
    context: &Context,
) -> Result<(), CliError> {
    if context.is_quiet() && !is_asked {
        warn_of_skipped(skipped, context);
        return Ok(());
    }
    let palette = Palette::coloured();
    let mut out = context.out_done(is_asked);
    let outside = repositories.outside(changes);
    if is_asked || context.is_verbose {
        for change in outside {
            writeln!(out, "{}", change_line(change, roots, &palette))?;
        }
    } else {
        let outside: Vec<Change> = outside.into_iter().cloned().collect();
        write_preview(&mut out, &outside, None, roots)?;
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

/// Names the command that makes paths of this user readable again, which a restore cannot look at.
fn offer_to_open(skipped: &[Skipped], context: &Context) {
    let closed = skipped.iter().map(|skipped| &*skipped.path).filter(|path| is_closed(path));
    let words: Vec<_> = closed.filter_map(shell_word).collect();
    if !words.is_empty() && words.len() <= NAMED_PATHS {
        let words = words.join(" ");
        context.say(format_args!("  make them readable, then repeat this: chmod u+rwX {words}"));
    }
}

/// Whether a path is this user's, who may not read it.
fn is_closed(path: &Path) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return false };
    let stat = sys::Dir::open(above).and_then(|dir| dir.try_stat(name.as_bytes()));
    let Ok(Some(stat)) = stat else { return false };
    let needed = match stat.kind {
        sys::FileKind::Directory => 0o500,
        sys::FileKind::File => 0o400,
        _ => 0,
    };
    stat.uid == sys::effective_uid() && stat.mode & needed != needed
}

/// Names the ways to restore what the store has no space to keep.
fn offer_the_rest(report: &RestoreReport, session: &Path, roots: &[PathBuf], context: &Context) {
    let RestoreReport { session_id, snapshot, not_kept, .. } = report;
    let what = counted(not_kept.len(), "path stays as it is", "paths stay as they are");
    let disk = sys::mount_point(session);
    let is_shared = roots.iter().any(|root| sys::mount_point(root) == disk);
    let also = if is_shared { " (the project is on it, too)" } else { "" };
    context.say(format_args!(
        "the disk of the store, mounted at {}, has no space to keep what is there now: {what}",
        Shown::path(&disk)
    ));
    context.say(format_args!(
        "  to keep what is there: make space on that disk{also}, and restore again"
    ));
    let words: Option<Vec<_>> = not_kept.iter().map(|path| shell_word(path)).collect();
    let Some(words) = words.filter(|words| words.len() <= NAMED_PATHS) else {
        return context.say("  to lose it: the same command with --no-safety-snapshot");
    };
    let force = if report.on_conflict == OnConflict::Overwrite { " --force" } else { "" };
    context.say(format_args!(
        "  to lose it: {NONO} restore {session_id}/{snapshot} \
         --no-safety-snapshot{force} {}",
        words.join(" ")
    ));
}

/// Names files of which the snapshot may have a state that they never had.
pub(in crate::cli) fn name_unstable(unstable: &[PathBuf], context: &Context) {
    let (named, more) = unstable.split_at(unstable.len().min(context.at_most(NAMED_UNSTABLE)));
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
