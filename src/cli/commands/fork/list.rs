//! `nono forks`: all forks, what they changed, and where they collide.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Zoned;
use serde::Serialize;

use super::facts::Facts;
use super::{ForkChanges, MAX_NAMED};
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::forking::{forks_of, mark_of};
use crate::cli::offer::NONO;
use crate::cli::processes::{is_ending, that_see, words};
use crate::cli::render::{Palette, byte_size, relative_time};
use nono_engine::diff::{ChangeSummary, EntryState, Lookup, relative_to_roots};
use nono_engine::fork::{Fork, ForkState};
use nono_engine::history::text_now;
use nono_engine::object::{ContentHash, Node};
use nono_engine::path_text::{Shown, encode};
use nono_engine::store::read_root_tree;
use nono_engine::sys::{self, FileKind, Stat};

/// Longer files of the project are not read, in bytes.
const MAX_READ_BYTES: u64 = 8 << 20;

/// Arguments of `nono forks`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ForksArgs {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

/// A fork in the list.
#[derive(Debug, Serialize)]
struct Listed {
    #[serde(flatten)]
    fork: Facts,
    changes: ChangeSummary,
    /// The changes in a line, for a person.
    #[serde(skip)]
    summary: String,
    /// Paths that this fork changed, and who else did.
    collisions: Vec<Collision>,
    /// Bytes of its layers on the disk.
    bytes: u64,
    /// Processes in it.
    processes: Vec<i32>,
}

/// A path that a fork changed, and that is not as it was elsewhere.
#[derive(Debug, Clone, Serialize)]
struct Collision {
    path: String,
    /// The other forks that changed it.
    forks: Vec<String>,
    /// Whether the project has another state of it than the one below the fork and the fork's.
    project: bool,
}

/// The files that a fork changed.
struct Changed {
    fork: Fork,
    paths: BTreeSet<PathBuf>,
    /// The paths among them that are in the project neither as below the fork nor as in it.
    elsewhere: BTreeSet<PathBuf>,
    changes: ChangeSummary,
    /// The changes in a line, for a person.
    summary: String,
}

pub(in crate::cli) fn run(args: &ForksArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let mut is_complete = true;
    let mut found = Vec::new();
    for fork in forks_of(store)?.list()? {
        match fork.map_err(CliError::from).and_then(|fork| changed(fork, context)) {
            Ok(changed) => found.push(changed),
            Err(error) => {
                is_complete = false;
                context.warn(&error);
            }
        }
    }
    let collisions = collisions(&found);
    let mut listed = Vec::new();
    for (Changed { fork, changes, summary, .. }, collisions) in found.iter().zip(collisions) {
        listed.push(Listed {
            fork: Facts::of(fork),
            changes: *changes,
            summary: summary.clone(),
            collisions,
            bytes: fork.disk_bytes()?,
            processes: processes_in(fork),
        });
    }
    if args.json {
        context.json(&listed)?;
    } else if listed.is_empty() && is_complete {
        context.say(format_args!("no forks; make one: {NONO} fork NAME"));
    } else {
        print(&listed, context)?;
    }
    Ok(u8::from(!is_complete))
}

fn print(listed: &[Listed], context: &Context) -> Result<(), CliError> {
    let now = Zoned::now();
    let mut out = context.out();
    for fork in listed {
        let Listed { fork: Facts { name, from, created, tracked_paths, .. }, .. } = fork;
        let Listed { bytes, processes, .. } = fork;
        let project = crate::cli::args::named_project(tracked_paths);
        writeln!(out, "{name}  {project}  from {from}, {}", relative_time(*created, &now))?;
        let changed = &fork.summary;
        let inside = match processes.len() {
            0 => String::new(),
            1 => ", 1 process in it".to_owned(),
            count => format!(", {count} processes in it"),
        };
        writeln!(out, "  {changed}, {}{inside}", byte_size(*bytes))?;
        for collision in fork.collisions.iter().take(context.at_most(MAX_NAMED)) {
            let Collision { path, forks, project } = collision;
            let project = project.then_some("the project");
            let others: Vec<&str> = forks.iter().map(String::as_str).chain(project).collect();
            let path = Shown::bytes(relative_to_roots(path.as_bytes(), tracked_paths));
            writeln!(out, "  also changed in {}: {path}", others.join(", "))?;
        }
        if let more @ 1.. = fork.collisions.len().saturating_sub(context.at_most(MAX_NAMED)) {
            writeln!(out, "  and {more} more paths that others changed (-v names them)")?;
        }
    }
    Ok(out.flush()?)
}

/// Processes in a fork, without those that hold its mounts and those that keep its commands. A
/// process that the kernel is ending does nothing in it any more.
pub(super) fn processes_in(fork: &Fork) -> Vec<i32> {
    let is_inside = |pid: &i32| !has_word(*pid, &HELPERS) && !is_ending(*pid);
    that_see(&mark_of(fork)).into_iter().filter(is_inside).collect()
}

/// Processes in a fork, and those that keep its commands.
pub(super) fn commands_in(fork: &Fork) -> Vec<i32> {
    let is_command = |pid: &i32| !has_word(*pid, &HELPERS[..2]) && !is_ending(*pid);
    that_see(&mark_of(fork)).into_iter().filter(is_command).collect()
}

/// Hidden commands of this program in the mounts of a fork: those that hold them, and the keepers.
const HELPERS: [&[u8]; 3] = [b"__fork-hold", b"__mount-guard", b"__keep"];

/// Whether a word of a process's command line is one of these. A look at its flags has to follow
/// that: an ending process has no words.
fn has_word(pid: i32, names: &[&[u8]]) -> bool {
    words(pid).iter().any(|word| names.contains(&word.as_slice()))
}

fn changed(fork: Fork, context: &Context) -> Result<Changed, CliError> {
    let objects = super::objects(&fork)?;
    let state = super::state(&fork, &objects, context)?;
    let changes = ForkChanges::of(&state)?;
    // A merge takes nothing of a git directory but commits.
    let outside = changes.repositories.outside(&changes.changes).into_iter();
    let files = outside.filter(|change| !change.is_directory);
    let paths: BTreeSet<PathBuf> = files.map(|change| change.path.clone()).collect();
    let elsewhere = not_as_below(&state, &paths)?;
    let (counted, summary) = (changes.counted(), changes.summary(&Palette::coloured()));
    Ok(Changed { fork, paths, elsewhere, changes: counted, summary })
}

/// The paths that are in the project neither as they are below a fork nor as they are in it. A
/// merge leaves the latter. A file that has the size and the time of the recorded one counts as
/// that; a file of the same size alone is read.
fn not_as_below(
    state: &ForkState<'_>,
    paths: &BTreeSet<PathBuf>,
) -> Result<BTreeSet<PathBuf>, CliError> {
    use std::os::unix::ffi::OsStrExt;
    let roots = [&state.base().merkle_root, &state.manifest().merkle_root];
    let [below, inside] = roots.map(|root| read_root_tree(state, root));
    let (below, inside) = (below?, inside?);
    let (mut below, mut inside) = (Lookup::new(state, &below), Lookup::new(state, &inside));
    let mut found = BTreeSet::new();
    for path in paths {
        let there = sys::stat_of(path).unwrap_or_default();
        let bytes = path.as_os_str().as_bytes();
        let has = |recorded: Option<EntryState>| is_as(recorded.as_ref(), there.as_ref(), path);
        let is_known = has(below.find(bytes)?) || has(inside.find(bytes)?);
        if !is_known {
            found.insert(path.clone());
        }
    }
    Ok(found)
}

/// Whether a path has a recorded state. A file that cannot be read, or is long, has not.
fn is_as(recorded: Option<&EntryState>, there: Option<&Stat>, path: &Path) -> bool {
    match (recorded, there) {
        (None, None) => true,
        (Some(recorded), Some(there)) => match &recorded.node {
            Node::File { size, hash, .. } => {
                let has_contents = || {
                    let bytes = text_now(path, MAX_READ_BYTES).ok().flatten();
                    bytes.is_some_and(|bytes| ContentHash::of(&bytes) == *hash)
                };
                there.kind == FileKind::File
                    && there.size == *size
                    && (there.mtime == recorded.attributes.mtime || has_contents())
            }
            Node::Directory { .. } => there.kind == FileKind::Directory,
            _ => there.mtime == recorded.attributes.mtime,
        },
        _ => false,
    }
}

/// For each fork, its paths that others changed too.
fn collisions(found: &[Changed]) -> Vec<Vec<Collision>> {
    let mut changed_by: BTreeMap<&Path, Vec<&str>> = BTreeMap::new();
    for Changed { fork, paths, .. } in found {
        for path in paths {
            changed_by.entry(path).or_default().push(fork.name());
        }
    }
    let of_one = |Changed { fork, paths, elsewhere, .. }: &Changed| {
        let colliding = paths.iter().filter_map(|path| {
            let others = changed_by.get(path.as_path()).into_iter().flatten();
            let forks: Vec<String> = others
                .filter(|name| **name != fork.name())
                .map(|name| (*name).to_owned())
                .collect();
            let project = elsewhere.contains(path);
            let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
            let path = encode(bytes).into_owned();
            (project || !forks.is_empty()).then_some(Collision { path, forks, project })
        });
        colliding.collect()
    };
    found.iter().map(of_one).collect()
}
