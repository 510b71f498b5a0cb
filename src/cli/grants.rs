//! What the arguments grant: checked, and turned into a policy.
//!
//! A grant must leave the record alone: one that contains the store or nono's configuration, or lies
//! in them, is refused with the reason. Landlock grants whole directories, nothing can be taken out
//! of one again.

use std::path::{Path, PathBuf};

use clap::Args;

use super::args::home_dir;
use super::error::CliError;
use crate::path_text::Shown;
use crate::sandbox::{Network, Policy, Support};
use crate::session::Catalog;
use crate::sys;

/// What the command may touch.
#[derive(Debug, Clone, Args)]
pub(super) struct GrantArgs {
    /// Directory (or file) that the command reads and writes, and that is recorded (repeatable)
    /// [default: the current directory, unless it is the home directory]
    #[arg(long, value_name = "DIR")]
    pub(super) allow: Vec<PathBuf>,
    /// The same for the current directory, next to other grants
    #[arg(long)]
    pub(super) allow_cwd: bool,
    /// Path that the command reads and writes, but that is not recorded (repeatable)
    #[arg(long, value_name = "PATH")]
    pub(super) write: Vec<PathBuf>,
    /// Path that the command only reads (repeatable)
    #[arg(long, value_name = "PATH")]
    pub(super) read: Vec<PathBuf>,
    /// Let the command make no IP sockets at all
    #[arg(long)]
    pub(super) block_net: bool,
    /// Let the command connect to no TCP port but this one (repeatable)
    #[arg(long, value_name = "PORT", conflicts_with = "block_net")]
    pub(super) allow_connect: Vec<u16>,
    /// Let the command do whatever you can do
    #[arg(long, conflicts_with_all = ["write", "read", "block_net", "allow_connect"])]
    pub(super) no_sandbox: bool,
}

/// What was granted.
#[derive(Debug)]
pub(super) struct Grants {
    /// What is recorded, as given.
    pub(super) tracked: Vec<PathBuf>,
    /// The walls, unless there are none.
    pub(super) policy: Option<Policy>,
}

impl Grants {
    /// Checks the arguments. `catalog` is the store that must be out of reach.
    pub(super) fn of(args: &GrantArgs, catalog: &Catalog) -> Result<Self, CliError> {
        let mut tracked = args.allow.clone();
        let nothing_named = tracked.is_empty() && args.write.is_empty();
        if args.allow_cwd || nothing_named {
            tracked.push(working_dir(args.allow_cwd)?);
        }
        if args.no_sandbox {
            return Ok(Self { tracked, policy: None });
        }
        let support = Support::of_kernel();
        if !matches!(support, Support::Full(_)) {
            let message = format!("the command cannot be kept within its grants: {support}");
            return Err(CliError::failed(message)
                .with_hint("--no-sandbox runs it with all the rights that you have"));
        }
        let protected = protected(catalog);
        let judge = |path: &PathBuf| judge(path, &protected);
        let write = tracked.iter().chain(&args.write).map(judge).collect::<Result<_, _>>()?;
        let read = args.read.iter().map(judge).collect::<Result<_, _>>()?;
        let network = match (args.block_net, args.allow_connect.is_empty()) {
            (true, _) => Network::Closed,
            (false, true) => Network::Open,
            (false, false) => Network::ConnectTo(args.allow_connect.clone()),
        };
        Ok(Self { tracked, policy: Some(Policy { read, write, network }) })
    }
}

fn working_dir(is_wanted: bool) -> Result<PathBuf, CliError> {
    let current = sys::current_dir()?;
    let home = home_dir().ok().and_then(|home| sys::real_path(&home).ok());
    if !is_wanted && home.as_ref() == Some(&current) {
        let message = "nothing is granted: the current directory is the home directory";
        return Err(CliError::usage(message).with_hint(
            "go to the project, or name what the command works on: nono run --allow DIR -- CMD",
        ));
    }
    Ok(current)
}

/// A place that no command may touch, and what it is.
struct Protected {
    path: PathBuf,
    what: &'static str,
}

fn protected(catalog: &Catalog) -> Vec<Protected> {
    let stores = catalog.roots().iter().map(|root| (root.clone(), "the store"));
    let config = config_dir().ok().map(|dir| (dir, "nono's configuration"));
    let current = sys::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    stores
        .chain(config)
        .map(|(path, what)| {
            let plain = sys::plain_absolute(&path, &current);
            Protected { path: sys::real_or_future_path(&plain), what }
        })
        .collect()
}

/// nono's configuration: `$XDG_CONFIG_HOME/nono` or `~/.config/nono`.
pub(super) fn config_dir() -> Result<PathBuf, CliError> {
    let config = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    match config.filter(|path| path.is_absolute()) {
        Some(config) => Ok(config.join("nono")),
        None => Ok(home_dir()?.join(".config/nono")),
    }
}

/// The place that a grant really names.
fn judge(path: &Path, protected: &[Protected]) -> Result<PathBuf, CliError> {
    let real = sys::real_path(path).map_err(|error| {
        CliError::failed(format!("cannot grant {}: {error}", Shown::path(path)))
    })?;
    for Protected { path: place, what } in protected {
        let how = if place.starts_with(&real) {
            "contains"
        } else if real.starts_with(place) {
            "lies in"
        } else {
            continue;
        };
        let (path, place) = (Shown::path(path), Shown::path(place));
        let message = format!("cannot grant {path}: it {how} {what} {place}");
        return Err(CliError::failed(message).with_hint(
            "a command must not be able to touch its own record: grant the project alone, \
             or keep the store elsewhere with --root DIR",
        ));
    }
    Ok(real)
}
