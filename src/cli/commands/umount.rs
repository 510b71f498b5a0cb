//! `nono umount`: the end of a mount.

use std::path::PathBuf;

use clap::Args;
use nono_mount::{MountError, Unmounted};

use super::mount::{default_directory, explain};
use crate::cli::Outcome;
use crate::cli::context::Context;
use nono_engine::path_text::Shown;

/// Arguments of `nono umount`.
#[derive(Debug, Args)]
pub(in crate::cli) struct UmountArgs {
    /// Where it is mounted [default: ~/snapshots]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub(in crate::cli) fn run(args: &UmountArgs, context: &Context) -> Outcome {
    let directory = match &args.directory {
        Some(directory) => directory.clone(),
        None => default_directory()?,
    };
    let unmounted = nono_mount::unmount(&directory).map_err(|error| {
        explain(match error {
            // Nothing was to be mounted, so it is no question of where that could be.
            MountError::NotFound { path } | MountError::NotADirectory { path } => {
                MountError::NotMounted { path }
            }
            other => other,
        })
    })?;
    if unmounted == Unmounted::Busy {
        context.say(format_args!(
            "{} was in use: it is gone from there, and ends when its last user leaves it",
            Shown::path(&directory)
        ));
    }
    Ok(0)
}
