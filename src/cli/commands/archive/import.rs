//! `nono archive import`: archives become sessions.
//!
//! Each archive is verified first, by the same reader as with `nono archive verify`. So nothing is
//! imported that the verification refuses.

use std::collections::BTreeMap;
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
use nono_archive::{Identities, KnownStates, ReceiveReport, Receiver, Role};
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

/// Verifies all archives, parents before their deltas.
fn verify(
    found: &BTreeMap<String, BTreeMap<u64, &Path>>,
    keys: &Identities,
    context: &Context,
) -> Result<(), CliError> {
    let bar = Bar::new(context, "verifying");
    let verified = found.values().try_for_each(|files| {
        let mut known = KnownStates::default();
        files.values().try_for_each(|file| {
            let verified = reader(file, keys)?.verify(&mut known, &*bar);
            verified.map(drop).map_err(|error| of_file(file, &error))
        })
    });
    bar.finish();
    verified
}

pub(in crate::cli) fn run(args: &ImportArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    let keys = identities(&args.keys, None)?;
    // Session → number → file: the contents say what a file is, whatever its name.
    let mut found: BTreeMap<String, BTreeMap<u64, &Path>> = BTreeMap::new();
    for file in &args.files {
        if file == Path::new("-") || !is_file(file)? {
            return Err(CliError::usage("an archive is read more than once: give a file"));
        }
        let id = reader(file, &keys)?.head().id.clone();
        found.entry(id.session().to_owned()).or_default().insert(id.number(), file);
    }
    verify(&found, &keys, context)?;
    let bar = Bar::new(context, "importing");
    let imported = (|| {
        let mut sessions = Vec::new();
        for (session, files) in &found {
            let mut receiver = Receiver::new(catalog.root(), session, &*bar)?;
            for file in files.values().rev() {
                let read = receiver.read(open(file)?, &keys, Role::Target);
                read.map_err(|error| of_file(file, &error))?;
            }
            sessions.push(receiver.finish()?);
        }
        Ok::<_, CliError>(sessions)
    })();
    bar.finish();
    let sessions = imported?;
    if args.json {
        context.json(&Report { sessions })?;
        return Ok(0);
    }
    for report in &sessions {
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
    Ok(0)
}
