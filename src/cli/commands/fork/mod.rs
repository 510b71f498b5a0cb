//! `nono fork`: writable layers over recorded states, and commands in them.

pub(in crate::cli) mod attempt;
mod commits;
mod deciding;
mod diff;
pub(in crate::cli) mod discard;
mod enter;
mod facts;
pub(in crate::cli) mod killed;
pub(in crate::cli) mod list;
pub(in crate::cli) mod looking;
mod merge;
mod rename;
mod show;
mod snapshot;
mod stays;
pub(in crate::cli) mod trial;
pub(in crate::cli) mod undo;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde::Serialize;

use facts::Facts;

use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, ThreadArgs};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::forking::{CommandArgs, CopyArgs, Entered, Newborn, forks_of, say_lost_writes};
use crate::cli::offer::NONO;
use crate::cli::render::Palette;
use crate::cli::repositories::Repositories;
use nono_engine::diff::{Change, ChangeSummary, Comparison};
use nono_engine::fork::{Fork, ForkState, Lower, NotTaken};
use nono_engine::path_text::Shown;
use nono_engine::progress::NoProgress;
use nono_engine::session::Catalog;
use nono_engine::snapshot::{NotCaptured, SnapshotManifest};
use nono_engine::store::LocalStore;
use nono_engine::sys::{self, Dir};

/// More paths than this are not named one by one.
const MAX_NAMED: usize = 10;

/// Arguments of `nono fork`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(in crate::cli) struct ForkCommand {
    #[command(subcommand)]
    command: Option<ForkAction>,
    #[command(flatten)]
    new: NewArgs,
}

#[derive(Debug, Subcommand)]
enum ForkAction {
    /// Run a command, or a shell, in a fork
    Enter(enter::EnterArgs),
    /// Show what a fork changed, or how two forks differ
    Diff(diff::ForkDiffArgs),
    /// Show a fork: its state below, its changes, and what it lacks
    Show(show::ShowArgs),
    /// Merge what was done in a fork into the project: files three ways, commits as a branch
    Merge(merge::MergeArgs),
    /// Give a fork another name
    Rename(rename::RenameArgs),
    /// Remove forks with all that was changed in them
    Discard(discard::DiscardArgs),
    /// Record the state of a fork as a snapshot of its session
    Snapshot(snapshot::SnapshotArgs),
    /// List all forks, as `nono forks` does
    List(list::ForksArgs),
}

/// Names of subcommands, which no fork can have: they would mean these.
const TAKEN: [&str; 9] =
    ["enter", "diff", "show", "rename", "discard", "snapshot", "merge", "list", "help"];

/// Arguments of `nono fork NAME`.
#[derive(Debug, Args)]
struct NewArgs {
    /// The name of the new fork
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// The state from which it begins: `now` (the directories that --allow names, else the current
    /// one), or ID, ID/N, ID#STEP
    #[arg(long, value_name = "ID[/N]", default_value = "now")]
    from: String,
    /// Print the facts of the new fork as JSON
    #[arg(long, conflicts_with = "command")]
    json: bool,
    #[command(flatten)]
    copy: CopyArgs,
    #[command(flatten)]
    inside: CommandArgs,
}

/// The report of a new fork.
#[derive(Serialize)]
struct Made {
    #[serde(flatten)]
    fork: Facts,
    /// Paths that are in the project and not in the fork.
    not_in_fork: Vec<NotCaptured>,
}

pub(in crate::cli) fn run(args: &ForkCommand, store: &StoreArgs, context: &Context) -> Outcome {
    match &args.command {
        None => make(&args.new, store, context),
        Some(ForkAction::Enter(args)) => enter::run(args, store, context),
        Some(ForkAction::Diff(args)) => diff::run(args, store, context),
        Some(ForkAction::Show(args)) => show::run(args, store, context),
        Some(ForkAction::Merge(args)) => merge::run(args, store, context),
        Some(ForkAction::Rename(args)) => rename::run(args, store, context),
        Some(ForkAction::Discard(args)) => discard::run(args, store, context),
        Some(ForkAction::Snapshot(args)) => snapshot::run(args, store, context),
        Some(ForkAction::List(args)) => list::run(args, store, context),
    }
}

fn make(args: &NewArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let Some(name) = args.name.as_deref() else {
        return Err(CliError::usage("the new fork has no name")
            .with_hint(format!("{NONO} fork NAME; {NONO} forks lists those that are there")));
    };
    check_name(name)?;
    let fork = born(name, Some(&args.from), args.copy, &args.inside, store, context)?;
    if args.json {
        let not_in_fork = missing(&fork, &fork.base()?);
        context.json(&Made { fork: Facts::of(&fork), not_in_fork })?;
        return Ok(0);
    }
    context.say(format_args!(
        "fork {name} begins from {}: {}",
        fork.document().from,
        projects(&fork)
    ));
    say_what_it_lacks(&fork, context)?;
    if args.inside.command.is_empty() {
        context.say(format_args!("  enter it: {NONO} fork enter {name}"));
        return Ok(0);
    }
    let code = enter(&fork, &args.inside, store, context)?;
    say_changes(&fork, context);
    Ok(code)
}

/// Refuses a name that would mean a subcommand.
fn check_name(name: &str) -> Result<(), CliError> {
    if name.starts_with(trial::PREFIX) {
        let message = format!("names with {} are those of throw-away forks", trial::PREFIX);
        return Err(CliError::usage(message));
    }
    if TAKEN.contains(&name) {
        let message = format!("{name:?} is a command of `nono fork`, and no name for a fork");
        return Err(CliError::usage(message));
    }
    Ok(())
}

/// Makes a fork.
fn born(
    name: &str,
    from: Option<&str>,
    copy: CopyArgs,
    inside: &CommandArgs,
    store: &StoreArgs,
    context: &Context,
) -> Result<Fork, CliError> {
    let profile = inside.profile()?;
    let mut tracked = inside.rights.grants.allow.clone();
    if tracked.is_empty() || inside.rights.grants.allow_cwd {
        tracked.push(sys::current_dir()?);
    }
    let profile = profile.as_ref().map(|found| &found.profile);
    Newborn { name, from, tracked, profile, copy }.make(store, context)
}

/// Runs a command in a fork. The exit code is the command's.
fn enter(fork: &Fork, args: &CommandArgs, store: &StoreArgs, context: &Context) -> Outcome {
    Ok(Entered::new(fork)?.run(args, store, context)?.code)
}

/// The fork that an argument names.
fn found(name: &str, store: &StoreArgs) -> Result<Fork, CliError> {
    Ok(forks_of(store)?.find(name)?)
}

/// The objects of a fork.
fn objects(fork: &Fork) -> Result<LocalStore, CliError> {
    Ok(Catalog::store_of(&fork.session()?)?)
}

/// The present state of a fork.
fn state<'a>(
    fork: &Fork,
    objects: &'a LocalStore,
    context: &Context,
) -> Result<ForkState<'a>, CliError> {
    if let Some(lost) = fork.lost_writes()? {
        say_lost_writes(fork, &lost, context);
    }
    Ok(fork.state(objects, &NoProgress, ThreadArgs::default().count(context)?)?)
}

/// The paths at which a fork is seen, in one line.
fn projects(fork: &Fork) -> String {
    let paths: Vec<_> = fork.recorded_paths().cloned().collect();
    crate::cli::args::named_project(&paths)
}

/// Names what is in the project and not in the fork, and what is in it as it is on the disk.
fn say_what_it_lacks(fork: &Fork, context: &Context) -> Result<(), CliError> {
    let live: Vec<_> = fork.live_paths().collect();
    for path in live.iter().take(context.at_most(MAX_NAMED)) {
        let path = Shown::path(path);
        context.say(format_args!("  as it is on the disk, below a layer: {path}"));
    }
    let missing = missing(fork, &fork.base()?);
    for left in missing.iter().take(context.at_most(MAX_NAMED)) {
        let path = Shown::path(&left.path);
        context.say(format_args!("  not in the fork: {path} ({})", left.reason));
    }
    if let more @ 1.. = missing.len().saturating_sub(context.at_most(MAX_NAMED)) {
        context.say(format_args!("  and {more} more are not in the fork (-v names them)"));
    }
    Ok(())
}

/// The paths that are in the project and not in a fork that begins from a state.
fn missing(fork: &Fork, base: &SnapshotManifest) -> Vec<NotCaptured> {
    let is_missing = |left: &&NotCaptured| {
        !fork.live_paths().any(|live| left.path.starts_with(live))
            && matches!(sys::kind_of(&left.path), Ok(Some(_)))
    };
    base.not_captured.iter().filter(is_missing).cloned().collect()
}

/// Says what a fork has changed so far. The exit code of a command does not depend on it.
pub(in crate::cli) fn say_changes(fork: &Fork, context: &Context) {
    let name = fork.name();
    let said = objects(fork).and_then(|objects| {
        let state = state(fork, &objects, context)?;
        let changed = ForkChanges::of(&state)?;
        name_not_taken(state.not_taken(), context);
        Ok(changed.summary(&Palette::plain()))
    });
    match said {
        Ok(changed) => {
            context.say(format_args!("fork {name}: {changed}"));
            context.say(format_args!("  see it:     {NONO} fork diff {name}"));
            context.say(format_args!("  merge it:   {NONO} fork merge {name}"));
            context.say(format_args!("  discard it: {NONO} fork discard {name}"));
        }
        Err(error) => context.error(&error),
    }
}

/// The end of a command in a fork, for a program.
#[derive(Serialize)]
struct CommandEnd<'a> {
    #[serde(flatten)]
    fork: Facts,
    /// The exit code of the command.
    exit_code: u8,
    /// The changes of the fork so far.
    changes: ChangeSummary,
    /// Entries of the fork that are no part of its state.
    not_taken: &'a [NotTaken],
}

/// Reports the end of a command in a fork as one line of JSON, last on stderr.
fn report_end(fork: &Fork, exit_code: u8, context: &Context) -> Result<(), CliError> {
    let objects = objects(fork)?;
    let state = state(fork, &objects, context)?;
    let changes = ForkChanges::of(&state)?.counted();
    let (fork, not_taken) = (Facts::of(fork), state.not_taken());
    context.json_line(&CommandEnd { fork, exit_code, changes, not_taken })
}

/// The live directories in whose layers something lies.
fn live_changes(fork: &Fork) -> Result<impl Iterator<Item = &PathBuf>, CliError> {
    let mut changed = Vec::new();
    for (number, layer) in fork.document().layers.iter().enumerate() {
        if layer.lower == Lower::Live && !Dir::open(&fork.upper_path(number))?.names()?.is_empty() {
            changed.push(&layer.path);
        }
    }
    Ok(changed.into_iter())
}

/// The changes of a fork, with the moves of its branches.
struct ForkChanges {
    changes: Vec<Change>,
    touched: Vec<PathBuf>,
    repositories: Repositories,
}

impl ForkChanges {
    fn of(state: &ForkState<'_>) -> Result<Self, CliError> {
        let Comparison { changes, touched } = state.comparison()?;
        let repositories = Repositories::of(state, state.base(), state.manifest(), &changes)?;
        Ok(Self { changes, touched, repositories })
    }

    fn counted(&self) -> ChangeSummary {
        ChangeSummary::of(&self.changes).with_touched(self.touched.len())
    }

    fn summary(&self, palette: &Palette) -> String {
        self.repositories.summary(&self.changes, &self.touched, palette)
    }
}

/// Names the entries of a layer that are no part of its state.
fn name_not_taken(not_taken: &[NotTaken], context: &Context) {
    for NotTaken { path, reason } in not_taken.iter().take(context.at_most(MAX_NAMED)) {
        context.warn(format_args!("not taken from the fork: {}, {reason}", Shown::path(path)));
    }
    if let more @ 1.. = not_taken.len().saturating_sub(context.at_most(MAX_NAMED)) {
        context.warn(format_args!("and {more} more are not taken (-v names them)"));
    }
}
