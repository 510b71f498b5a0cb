//! `nono watch install`: a watcher begins with the session of its user.
//!
//! The unit is written and not started: `systemctl` is the user's. Where there is no systemd, a
//! line for `cron` does the same.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::watched_paths;
use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, home_dir};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::shell_word::command_line;
use crate::watch::{unit_name, unit_text};
use nono_engine::path_text::{Shown, serde_path};
use nono_engine::sys::{self, Dir};

/// Arguments of `nono watch install`.
#[derive(Debug, Args)]
pub(super) struct InstallArgs {
    /// Directories to watch [default: as for `nono watch`]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Print the unit, and write nothing
    #[arg(long)]
    print: bool,
    /// Print the report as JSON
    #[arg(long, conflicts_with = "print")]
    json: bool,
}

/// A unit that was written.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(with = "serde_path")]
    unit: PathBuf,
    /// The commands that start it, now and with each session.
    enable: Vec<String>,
    /// The line for `cron` where there is no systemd.
    cron: String,
}

pub(super) fn run(args: &InstallArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let paths = watched_paths(&args.paths)?;
    let root = sys::plain_absolute(store.catalog()?.root(), &sys::current_dir()?);
    let program = std::env::current_exe()
        .map_err(|error| CliError::failed(format!("cannot find this program: {error}")))?;
    let watched: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let text = unit_text(&program, &root, &watched).ok_or_else(|| {
        CliError::failed("a unit of systemd cannot name these paths: they are no text")
    })?;
    if args.print {
        let mut out = context.out_bytes();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        return Ok(0);
    }
    let directory = units_directory()?;
    let first = watched.first().copied().unwrap_or(Path::new("/"));
    let name = unit_name(first);
    sys::create_private_dir(&directory)?;
    Dir::open(&directory)?.replace_file(name.as_bytes(), text.as_bytes(), 0o644, true)?;
    let words = |path: &Path| path.to_string_lossy().into_owned();
    let mut cron = vec![words(&program), "--root".into(), words(&root), "watch".into()];
    cron.push("--detach".into());
    cron.extend(watched.iter().map(|path| words(path)));
    let report = Report {
        unit: directory.join(&name),
        enable: vec![
            "systemctl --user daemon-reload".to_owned(),
            format!("systemctl --user enable --now {name}"),
        ],
        // A percent sign is a line break there.
        cron: format!("@reboot {}", command_line(&cron).replace('%', "\\%")),
    };
    if args.json {
        context.json(&report)?;
        return Ok(0);
    }
    context.say(format_args!("wrote {}", Shown::path(&report.unit)));
    context.say("start it, now and with each of your sessions:");
    for line in &report.enable {
        context.say(format_args!("  {line}"));
    }
    context.say("without systemd, add this line by `crontab -e`:");
    context.say(format_args!("  {}", Shown::bytes(report.cron.as_bytes())));
    Ok(0)
}

/// Where the units of a user are.
fn units_directory() -> Result<PathBuf, CliError> {
    let given = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = match given.filter(|path| path.is_absolute()) {
        Some(config) => config,
        None => home_dir()?.join(".config"),
    };
    Ok(config.join("systemd/user"))
}
