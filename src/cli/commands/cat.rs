//! `nono rollback cat`: one file of a snapshot, as it was.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::restoring::resolve;
use nono_engine::session::{Purpose, SnapshotId};
use nono_engine::snapshot::SnapshotManager;
use nono_engine::sys::IoContext;

const CHUNK_BYTES: usize = 256 * 1024;

/// Arguments of `nono rollback cat`.
#[derive(Debug, Args)]
pub(in crate::cli) struct CatArgs {
    /// A snapshot; without /N it is the baseline
    #[arg(value_name = "ID[/N]")]
    id: SnapshotId,
    /// A file in it
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

pub(in crate::cli) fn run(args: &CatArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let (session, number) = store.catalog()?.find_snapshot_from(&args.id, Purpose::Looking)?;
    let number = number.unwrap_or(0);
    let manager = SnapshotManager::open(session.path())?;
    let roots = manager.roots().iter().map(|root| root.path.clone()).collect::<Vec<_>>();
    // Every byte is checked before the first is shown.
    let object = manager.open_file_of(number, &resolve(&args.path, &roots)?)?;
    let mut out = context.out_bytes();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < object.size() {
        let count = object.read_at(&mut buffer, at).at("read", object.path())?;
        if count == 0 {
            break;
        }
        out.write_all(&buffer[..count])?;
        at += count as u64;
    }
    out.flush()?;
    Ok(0)
}
