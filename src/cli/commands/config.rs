//! `nono config`: the settings, and where each value comes from.

use std::io::Write;
use std::path::Path;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::args::{CaptureArgs, LimitArgs, StoreArgs, ThreadArgs, surroundings};
use crate::cli::context::{Context, DIM};
use crate::config::{Origin, Setting, Settings};
use crate::path_text::{Shown, serde_path};

/// Commands of `nono config`.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ConfigCommand {
    /// Print each setting and where it comes from
    Show(ShowArgs),
}

/// Arguments of `nono config show`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ShowArgs {
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    capture: CaptureArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print the settings as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    /// The configuration file, whether it exists or not.
    #[serde(with = "serde_path")]
    file: &'a Path,
    settings: Vec<Setting>,
}

pub(in crate::cli) fn run(
    command: &ConfigCommand,
    store: &StoreArgs,
    context: &Context,
) -> Outcome {
    let ConfigCommand::Show(args) = command;
    let flags = args.threads.flags(args.limits.flags(args.capture.flags()));
    let settings = Settings::load(&surroundings()?, &flags)?;
    let mut list = vec![Setting {
        key: "root",
        value: Shown::path(store.catalog()?.root()).to_string().into(),
        origin: store.origin(),
        flag: "--root",
        variable: Some("NONO_ROOT"),
    }];
    list.extend(settings.list());
    let file = settings.file.as_deref().unwrap_or(Path::new(""));
    if args.json {
        context.json(&Report { file, settings: list })?;
        return Ok(0);
    }
    let mut out = context.out();
    writeln!(out, "{DIM}# {}{DIM:#}", Shown::path(file))?;
    for Setting { key, value, origin, flag, variable } in list {
        let origin = match (origin, variable) {
            (Origin::Flag, _) => flag.to_owned(),
            (Origin::Environment, Some(variable)) => variable.to_owned(),
            (origin, _) => origin.to_string(),
        };
        writeln!(out, "{key} = {value}  {DIM}({origin}){DIM:#}")?;
    }
    Ok(0)
}
