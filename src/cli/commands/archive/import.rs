//! `nono archive import`: archives become sessions.
//!
//! Each archive is verified first, by the same reader as with `nono archive verify`. So nothing is
//! imported that the verification refuses. An archive may depend on one of another session, so all
//! of them are verified and imported with their parents in mind.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::{of_file, open, reader};
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use crate::cli::sealing::{UnsealArgs, identities};
use nono_archive::{ArchiveId, Identities, KnownStates, ReceiveReport, Receiver, Role};
use nono_engine::progress::Progress;
use nono_engine::sys::{self, FileKind};

/// Arguments of `nono archive import`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ImportArgs {
    /// Archives; a delta needs those of its chain, unless their snapshots are here
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    // A heading is that of all that follows.
    #[command(flatten)]
    keys: UnsealArgs,
}

#[derive(Debug, Serialize)]
struct Report {
    sessions: Vec<ReceiveReport>,
}

/// Whether a second reading begins anew.
fn is_file(path: &Path) -> Result<bool, CliError> {
    let open = sys::open_named(path)?;
    Ok(sys::stat_open_file(&open, path)?.kind == FileKind::File)
}

/// An archive, and the snapshot that it needs.
struct Found<'a> {
    file: &'a Path,
    parent: Option<ArchiveId>,
}

/// The archives by their snapshots: the contents say what a file is, whatever its name.
fn find<'a>(
    files: &'a [PathBuf],
    keys: &Identities,
) -> Result<BTreeMap<ArchiveId, Found<'a>>, CliError> {
    let mut found = BTreeMap::new();
    for file in files {
        if file == Path::new("-") || !is_file(file)? {
            return Err(CliError::usage("an archive is read more than once: give a file"));
        }
        let open = reader(file, keys)?;
        let parent = open.head().parent.clone();
        found.insert(open.head().id.clone(), Found { file, parent });
    }
    Ok(found)
}

/// Verifies all archives, parents before their deltas.
fn verify(
    found: &BTreeMap<ArchiveId, Found<'_>>,
    keys: &Identities,
    context: &Context,
) -> Result<(), CliError> {
    let bar = Bar::new(context, "verifying");
    let (mut known, mut seen) = (KnownStates::default(), BTreeSet::new());
    let mut verify = |file: &Path| {
        let verified = reader(file, keys)?.verify(&mut known, &*bar);
        verified.map(drop).map_err(|error| of_file(file, &error))
    };
    let verified = found.keys().try_for_each(|first| {
        // Its parents among them, the farthest last.
        let mut chain = Vec::new();
        let mut next = Some(first);
        while let Some((id, one)) = next.and_then(|id| found.get_key_value(id)) {
            if !seen.insert(id) {
                break;
            }
            chain.push(one.file);
            next = one.parent.as_ref();
        }
        chain.into_iter().rev().try_for_each(&mut verify)
    });
    bar.finish();
    verified
}

/// Imports the archives of a session. Archives of others give what is missing in them.
fn import(
    root: &Path,
    session: &str,
    found: &BTreeMap<ArchiveId, Found<'_>>,
    keys: &Identities,
    progress: &dyn Progress,
) -> Result<ReceiveReport, CliError> {
    let mut receiver = Receiver::new(root, session, progress)?;
    let mut read = |id: &ArchiveId, role: Role| {
        let Some(Found { file, .. }) = found.get(id) else { return Ok(None) };
        let outcome = receiver.read(open(file)?, keys, role);
        Ok::<_, CliError>(outcome.map_err(|error| of_file(file, &error))?.needs)
    };
    let mut others = BTreeSet::new();
    for id in found.keys().rev().filter(|id| id.session() == session) {
        others.extend(read(id, Role::Target)?.filter(|needed| needed.session() != session));
    }
    let mut seen = BTreeSet::new();
    while let Some(id) = others.pop_last() {
        if seen.insert(id.clone()) {
            others.extend(read(&id, Role::Source)?.filter(|needed| needed.session() != session));
        }
    }
    Ok(receiver.finish()?)
}

/// Verifies archives, and makes sessions of them.
///
/// # Errors
/// An archive that is damaged or incomplete, or a session that is another one here. Nothing of its
/// session appears then.
pub(in crate::cli::commands) fn import_files(
    files: &[PathBuf],
    keys: &Identities,
    root: &Path,
    context: &Context,
) -> Result<Vec<ReceiveReport>, CliError> {
    let found = find(files, keys)?;
    verify(&found, keys, context)?;
    let bar = Bar::new(context, "importing");
    let sessions: BTreeSet<&str> = found.keys().map(ArchiveId::session).collect();
    let imported = sessions.into_iter().map(|session| import(root, session, &found, keys, &*bar));
    let imported = imported.collect::<Result<Vec<_>, _>>();
    bar.finish();
    imported
}

pub(in crate::cli) fn run(args: &ImportArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    let keys = identities(&args.keys, None)?;
    let sessions = import_files(&args.files, &keys, catalog.root(), context)?;
    if args.json {
        context.json(&Report { sessions })?;
    } else {
        tell_imported(&sessions, context);
    }
    Ok(0)
}

/// Says which snapshots are here now.
pub(in crate::cli::commands) fn tell_imported(sessions: &[ReceiveReport], context: &Context) {
    for report in sessions {
        let id = &report.session_id;
        for number in &report.already_here {
            context.say(format_args!("{id}/{number}: here already"));
        }
        for number in &report.snapshots {
            context.say(format_args!("{id}/{number}: imported"));
        }
    }
    if sessions.iter().any(|report| report.is_new_session) {
        context.say(format_args!("the limits leave new sessions alone until `{NONO} unpin ID`"));
    }
}
