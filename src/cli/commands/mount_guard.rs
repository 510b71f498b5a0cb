//! `nono __mount-guard`: what a mount starts beside itself, see [`nono_mount::stand_guard`].

use std::io;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use nono_mount::{Mount, Watched};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::cli::Outcome;
use crate::cli::background;
use crate::cli::error::CliError;
use crate::cli::signals::{self, Taken};

/// The name of the hidden command.
pub(in crate::cli) const NAME: &str = "__mount-guard";

/// Starts a guard, from a thread that lives as long as the mount.
///
/// # Errors
/// The mount has none then, and works as well.
pub(super) fn start(mount: &Mount) -> io::Result<()> {
    let mut guard = Command::new(std::env::current_exe()?);
    // It ends after this process, and must not keep a pipe open that somebody reads to its end.
    guard.arg(NAME).env_remove(background::MARK).stdout(Stdio::null());
    mount.start_guard(guard).map(drop)
}

/// Arguments of the hidden command. The connection is the standard input.
#[derive(Debug, Args)]
pub(in crate::cli) struct MountGuardArgs {
    /// Process and thread of the mount
    watched: Watched,
}

pub(in crate::cli) fn run(args: &MountGuardArgs) -> Outcome {
    // What ends the mount is not meant for the guard, which ends after it.
    let ignored = Arc::new(AtomicBool::new(false));
    let _taken = Taken::raising(&[SIGINT, SIGTERM, SIGHUP], &ignored).map_err(signals::refused)?;
    background::detach()?;
    let failed = |error: io::Error| CliError::failed(format!("cannot guard a mount: {error}"));
    let connection = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    nono_mount::stand_guard(args.watched, connection).map(|()| 0).map_err(failed)
}
