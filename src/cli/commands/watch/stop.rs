//! `nono watch stop`: a watcher takes a last step and ends.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::watched_paths;
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use nono_engine::path_text::Shown;
use nono_engine::watch::{Question, Reply, WatchPlace, ask};

/// Maximum time of the last step.
const PATIENCE: Duration = Duration::from_secs(600);

/// Arguments of `nono watch stop`.
#[derive(Debug, Args)]
pub(super) struct StopArgs {
    /// The watched directories [default: as for `nono watch`]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
}

pub(super) fn run(args: &StopArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    let mut code = 0;
    for path in watched_paths(&args.paths)? {
        let shown = Shown::path(&path);
        let Some(connection) = WatchPlace::of(catalog.root(), &path).connect()? else {
            context.warn(format_args!("{shown} is not watched"));
            code = 1;
            continue;
        };
        let Reply::Ending = ask(&connection, &Question::Stop, PATIENCE)? else {
            return Err(CliError::failed("the watcher answered something else"));
        };
        connection.wait_for_end()?;
        context.say(format_args!("{shown} is not watched any more"));
    }
    Ok(code)
}
