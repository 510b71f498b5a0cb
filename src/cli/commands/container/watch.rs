//! `nono __container-watch`: what a snapshot starts before it pauses a container.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli::Outcome;
use crate::cli::error::CliError;
use crate::cli::signals::{self, Taken};
use nono_container::{LocalStorage, Watcher, watch};

/// The name of the hidden command.
pub(in crate::cli) const NAME: &str = "__container-watch";

/// Arguments of the hidden command. The pipe is the standard input.
#[derive(Debug, Args)]
pub(in crate::cli) struct WatchArgs {
    /// Root directory of the store
    root: PathBuf,
    /// The engine's id of the container
    container_id: String,
    /// The word of the journal
    token: String,
}

/// The program that watches: this one.
pub(super) fn watcher(storage: &LocalStorage) -> Result<Watcher, CliError> {
    let program = std::env::current_exe()
        .map_err(|error| CliError::failed(format!("cannot find this program: {error}")))?;
    Ok(Watcher { program, arguments: vec![NAME.into(), storage.root().into()] })
}

pub(in crate::cli) fn run(args: &WatchArgs) -> Outcome {
    // A signal that ends nono is not meant for the watcher, which ends after it.
    let ignored = Arc::new(AtomicBool::new(false));
    let _taken = Taken::raising(&[SIGINT, SIGTERM, SIGHUP], &ignored).map_err(signals::refused)?;
    let storage = LocalStorage::new(args.root.clone());
    watch(io::stdin().lock(), &storage, &args.container_id, &args.token)?;
    Ok(0)
}
