//! `nono __mount-guard`: what a mount starts beside itself, see [`nono_mount::stand_guard`].

use std::io;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use nono_mount::{Mount, MountError, Watched};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli::Outcome;
use crate::cli::background;
use crate::cli::error::CliError;
use crate::cli::signals::{self, Taken};

/// The name of the hidden command.
pub(in crate::cli) const NAME: &str = "__mount-guard";

/// Starts a guard. Without one, a mount works as well.
pub(in crate::cli) fn start(mount: &mut Mount) {
    let started = std::env::current_exe().map_err(|error| error.to_string()).and_then(|program| {
        let mut guard = Command::new(program);
        // It is none of the processes that announce themselves when they are ready.
        guard.arg(NAME).env_remove(background::MARK);
        match mount.start_guard(guard) {
            Err(MountError::Io { source, .. }) if source.kind() == io::ErrorKind::Unsupported => {
                tracing::debug!("guards of mounts need Linux 6.9");
                Ok(())
            }
            started => started.map_err(|error| error.to_string()),
        }
    });
    if let Err(error) = started {
        tracing::warn!(error, "the mount has no guard");
    }
}

/// Arguments of the hidden command. The connection is the standard input, and what tells when to
/// end the standard output.
#[derive(Debug, Args)]
pub(in crate::cli) struct MountGuardArgs {
    /// Process and thread of the mount
    watched: Watched,
}

pub(in crate::cli) fn run(args: &MountGuardArgs) -> Outcome {
    // A signal that ends the mount is not meant for the guard, which ends after it.
    let ignored = Arc::new(AtomicBool::new(false));
    let _taken = Taken::raising(&[SIGINT, SIGTERM, SIGHUP], &ignored).map_err(signals::refused)?;
    background::detach()?;
    let failed = |error: io::Error| CliError::failed(format!("cannot guard a mount: {error}"));
    let connection = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    nono_mount::stand_guard(args.watched, connection, io::stdout()).map(|()| 0).map_err(failed)
}
