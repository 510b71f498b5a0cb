//! The grants of the arguments and a profile: checked, and turned into a policy.
//!
//! The two add up. A place that a profile names and that is not there is passed over: profiles name
//! what programs use where they are installed. `--allow` (or a profile's `allow`) says what the
//! work is; without it, that is the current directory, whatever else is granted.
//!
//! A grant must leave the record alone: one that contains the store or nono's configuration, or
//! lies in them, is refused with the reason. Landlock grants whole directories, nothing can be
//! taken out of one again.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::slice;

use clap::Args;

use super::agent_grants;
use super::args::{home_dir, real_home, surroundings};
use super::context::Context;
use super::error::CliError;
use super::git_settings::{self, GitSettings};
use super::shell_word::shell_word;
use super::worktrees::Elsewhere;
use crate::agent::is_of_system;
use crate::cli::offer::NONO;
use crate::config::{
    ConfigError, FoundProfile, NetworkGrant, Profile, ProfileSource, Surroundings, config_dir,
    expand, expand_patterns,
};
use crate::sandbox::{Network, Policy, Support};
use nono_engine::path_text::Shown;
use nono_engine::session::Catalog;
use nono_engine::sys;
use nono_engine::walk::{ABSOLUTE, ExclusionConfig};

/// The grant arguments.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "What the command may do")]
pub(super) struct GrantArgs {
    /// Directory (or file) that the command reads and writes, and that is recorded (repeatable)
    /// [default: the current directory, unless it is the home directory, also next to --write]
    #[arg(long, value_name = "DIR")]
    pub(super) allow: Vec<PathBuf>,
    /// The same for the current directory, next to --allow
    #[arg(long)]
    pub(super) allow_cwd: bool,
    /// Path that the command reads and writes as well, but that is not recorded (repeatable)
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

/// The checked grants.
#[derive(Debug)]
pub(super) struct Grants {
    /// The recorded paths, as given.
    pub(super) tracked: Vec<PathBuf>,
    /// The walls, unless there are none.
    pub(super) policy: Option<Policy>,
}

impl Grants {
    /// Checks the arguments and the profile, and makes the directories that the profile wants made.
    /// `catalog` is the store that must be out of reach. `is_recorded`: something has to be
    /// tracked.
    pub(super) fn of(
        args: &GrantArgs,
        is_recorded: bool,
        profile: Option<&FoundProfile>,
        catalog: &Catalog,
        command: &[OsString],
        context: &Context,
    ) -> Result<Self, CliError> {
        let surroundings = surroundings()?;
        let wanted = profile.map(|found| Wanted::of(&found.profile, &surroundings)).transpose()?;
        let wanted = wanted.unwrap_or_default();
        let mut tracked = args.allow.clone();
        let is_default = tracked.is_empty() && !wanted.names_what_is_tracked;
        tracked.extend(wanted.allow);
        if args.allow_cwd || is_default {
            let is_needed = is_recorded || args.write.is_empty();
            tracked.extend(working_dir(args.allow_cwd, is_needed)?);
        }
        if let Some(path) = tracked.iter().find(|path| is_recorded && is_of_system(path)) {
            let path = Shown::path(path);
            return Err(CliError::usage(format!("the system makes what is in {path}"))
                .with_hint("--no-rollback records nothing"));
        }
        let protected = protected(catalog, profile, &surroundings);
        let refuse = |path: &Path| refuse_protected(path, path, &protected);
        let has_walls = !args.no_sandbox;
        let elsewhere = Elsewhere::of(&tracked, is_recorded, has_walls, refuse, context);
        if args.no_sandbox {
            tracked.extend(elsewhere.tracked);
            return Ok(Self { tracked, policy: None });
        }
        let support = Support::of_kernel();
        if !matches!(support, Support::Full(_)) {
            let message = format!("the command cannot be kept within its grants: {support}");
            return Err(CliError::failed(message)
                .with_hint("--no-sandbox runs it with all the rights that you have"));
        }
        for path in &wanted.create {
            refuse_protected(path, &sys::real_or_future_path(path), &protected)?;
            if sys::kind_of(path)?.is_none() {
                sys::refuse_to_write_for_others(path)?;
            }
            sys::create_private_dir(path)?;
        }
        for (path, text) in &wanted.create_files {
            refuse_protected(path, &sys::real_or_future_path(path), &protected)?;
            if sys::kind_of(path)?.is_none() {
                sys::refuse_to_write_for_others(path)?;
            }
            sys::create_private_file(path, text.as_bytes())?;
        }
        let judge = |path: &PathBuf| judge(path, &protected);
        let files = wanted.create_files.iter().map(|(path, _)| path);
        let write = tracked.iter().chain(&args.write).chain(&wanted.write).chain(&wanted.create);
        let write = write.chain(files);
        let mut write = write.map(judge).collect::<Result<Vec<_>, _>>()?;
        write.extend(elsewhere.write.iter().cloned());
        let read = args.read.iter().chain(&wanted.read).map(judge);
        let mut read = read.collect::<Result<Vec<_>, _>>()?;
        read.extend(elsewhere.read.iter().cloned());
        if let Some(client) = profile.and_then(agent_grants::client_of) {
            // A path that contains the record is not granted, and the user did not ask for it.
            read.extend(agent_grants::reads(command).iter().filter_map(|path| judge(path).ok()));
            agent_grants::warn(client, command, context);
        }
        elsewhere.name_borrowed(&read, &write, context);
        tracked.extend(elsewhere.tracked);
        if profile.is_none() {
            add_git_settings(&mut read, &write, &protected, context);
        }
        let network = network(args, profile.map(|found| &found.profile.network));
        if let Some(FoundProfile { source: ProfileSource::File(path), files, .. }) = profile
            && files.iter().any(|file| write.iter().any(|granted| file.starts_with(granted)))
        {
            context.warn(format_args!(
                "the command can change its own profile {}: keep it where it cannot write",
                Shown::path(path)
            ));
        }
        let withheld = withheld(&protected);
        let policy = Policy { read, write, connect: Vec::new(), withheld, network };
        Ok(Self { tracked, policy: Some(policy) })
    }
}

/// The places that a profile lets commands write, as far as they are there or are made.
pub(super) fn write_grants_of(
    profile: &Profile,
    surroundings: &Surroundings<'_>,
) -> Result<Vec<PathBuf>, ConfigError> {
    let Wanted { allow, write, create, .. } = Wanted::of(profile, surroundings)?;
    Ok([allow, write, create].concat())
}

/// The places of a profile that there are.
#[derive(Debug, Default)]
struct Wanted {
    /// Whether the profile says what is recorded, even if none of it is there.
    names_what_is_tracked: bool,
    allow: Vec<PathBuf>,
    write: Vec<PathBuf>,
    create: Vec<PathBuf>,
    create_files: Vec<(PathBuf, String)>,
    read: Vec<PathBuf>,
}

impl Wanted {
    fn of(profile: &Profile, surroundings: &Surroundings<'_>) -> Result<Self, ConfigError> {
        let expanded = |texts: &[String]| -> Result<Vec<PathBuf>, ConfigError> {
            let mut places = Vec::new();
            for text in texts {
                match expand(text, surroundings)? {
                    Some(place) => places.push(place),
                    None => tracing::debug!("{text} is not granted: the variable is not set"),
                }
            }
            Ok(places)
        };
        let there = |texts: &[String]| -> Result<Vec<PathBuf>, ConfigError> {
            let mut places = expanded(texts)?;
            places.retain(|place| match sys::real_path(place) {
                Ok(_) => true,
                Err(error) => {
                    tracing::debug!("{} is not granted: {error}", Shown::path(place));
                    false
                }
            });
            Ok(places)
        };
        Ok(Self {
            names_what_is_tracked: !profile.allow.is_empty(),
            allow: there(&profile.allow)?,
            write: there(&profile.write)?,
            create: expanded(&profile.create)?,
            create_files: profile
                .create_files
                .iter()
                .filter_map(|(text, content)| {
                    let place = expand(text, surroundings).transpose()?;
                    Some(place.map(|place| (place, content.clone())))
                })
                .collect::<Result<_, _>>()?,
            read: there(&profile.read)?,
        })
    }
}

/// Ports of arguments and of a profile add up; `--block-net` closes all.
fn network(args: &GrantArgs, profile: Option<&NetworkGrant>) -> Network {
    let mut ports = args.allow_connect.clone();
    match (args.block_net, profile) {
        (true, _) => Network::Closed,
        (false, Some(NetworkGrant::Connect(more))) => {
            ports.extend(more);
            Network::ConnectTo(ports)
        }
        (false, _) if !ports.is_empty() => Network::ConnectTo(ports),
        (false, Some(NetworkGrant::Closed)) => Network::Closed,
        (false, Some(NetworkGrant::Open) | None) => Network::Open,
    }
}

/// Whether what a profile grants is safe, without granting anything. Gives the reasons why not.
pub(super) fn check_profile(
    found: &FoundProfile,
    catalog: &Catalog,
) -> Result<Vec<CliError>, CliError> {
    let surroundings = surroundings()?;
    let wanted = Wanted::of(&found.profile, &surroundings)?;
    let Wanted { allow, write, create, create_files, read, .. } = &wanted;
    let protected = protected(catalog, Some(found), &surroundings);
    let files = create_files.iter().map(|(path, _)| path);
    let places = allow.iter().chain(write).chain(create).chain(files).chain(read);
    let judged =
        places.map(|place| refuse_protected(place, &sys::real_or_future_path(place), &protected));
    let mut problems: Vec<CliError> = judged.filter_map(Result::err).collect();
    problems.extend(idle_patterns(&found.profile, &surroundings)?);
    Ok(problems)
}

/// Exclude patterns of a profile that can leave nothing out, because they name all of what it
/// records, or a place outside. Such a place may lie in a directory that a run adds, so it is in
/// doubt only where the profile names all that is recorded.
fn idle_patterns(
    profile: &Profile,
    surroundings: &Surroundings<'_>,
) -> Result<Vec<CliError>, ConfigError> {
    let mut recorded = Vec::new();
    for text in &profile.allow {
        recorded.extend(expand(text, surroundings)?.map(|path| sys::real_or_future_path(&path)));
    }
    let is_fixed = |text: &String| text.starts_with(['~', '$', '/']);
    let is_all_named = !profile.allow.is_empty() && profile.allow.iter().all(is_fixed);
    let mut problems = Vec::new();
    for text in &profile.rollback.exclude_patterns {
        let exclude_patterns = expand_patterns(slice::from_ref(text), surroundings)?;
        let is_place = exclude_patterns.iter().any(|pattern| pattern.starts_with(ABSOLUTE));
        let config = ExclusionConfig { exclude_patterns, ..ExclusionConfig::nothing() };
        let mut counts_somewhere = false;
        for root in &recorded {
            match config.tied(root, &recorded) {
                Ok(tied) => counts_somewhere |= !tied.exclude_patterns.is_empty(),
                Err(error) => {
                    problems.push(CliError::failed(error.to_string()));
                    counts_somewhere = true;
                }
            }
        }
        if is_place && is_all_named && !counts_somewhere {
            problems.push(CliError::failed(format!(
                "the exclude pattern {} leaves nothing out: the profile records nothing there",
                Shown::bytes(text.as_bytes())
            )));
        }
    }
    Ok(problems)
}

/// The current directory, unless it is the home directory and not named. That is an error
/// where a directory is needed.
fn working_dir(is_named: bool, is_needed: bool) -> Result<Option<PathBuf>, CliError> {
    let current = sys::current_dir()?;
    let home = home_dir().ok().and_then(|home| sys::real_path(&home).ok());
    if !is_named && home.as_ref() == Some(&current) {
        if !is_needed {
            return Ok(None);
        }
        let message = "no work is named: the current directory is the home directory";
        return Err(CliError::usage(message).with_hint(format!(
            "go to the project, or name what the command works on: {NONO} run --allow DIR -- CMD; \
             --no-rollback with --write PATH records nothing"
        )));
    }
    Ok(Some(current))
}

/// A place that no command may touch, and what it is.
struct Protected {
    path: PathBuf,
    /// Symlinks that lead there: a replaced link leads to another place.
    links: Vec<PathBuf>,
    what: &'static str,
}

impl Protected {
    /// How a grant would give the place away; with the path of the two that says so.
    fn exposed_by(&self, real: &Path) -> Option<(&'static str, &Path)> {
        if let Some(link) = self.links.iter().find(|link| link.starts_with(real)) {
            return Some(("contains the link to", link));
        }
        if self.path.starts_with(real) {
            return Some(("contains", &self.path));
        }
        if real.starts_with(&self.path) {
            return Some(("lies in", &self.path));
        }
        // The same directory may be mounted at another path as well.
        let is_above = |above: &Path, path: &Path| {
            let above = sys::identity(above);
            above.is_some() && path.ancestors().any(|path| sys::identity(path) == above)
        };
        if is_above(real, &self.path) {
            return Some(("contains, by another path,", &self.path));
        }
        is_above(&self.path, real).then_some(("lies, by another path, in", &self.path))
    }
}

fn protected(
    catalog: &Catalog,
    profile: Option<&FoundProfile>,
    surroundings: &Surroundings<'_>,
) -> Vec<Protected> {
    let stores = catalog.roots().iter().map(|root| (root.clone(), "the store"));
    let config = config_dir(surroundings);
    let settings = config.as_ref().map(|dir| dir.join("config.toml"));
    // Files that the directory only links to are configuration as well. One that was named by its
    // path lies where the user wanted it.
    let files = profile
        .map(|found| match found.source {
            ProfileSource::File(_) => found.files.get(1..).unwrap_or_default(),
            _ => &found.files,
        })
        .unwrap_or_default();
    let config = config.into_iter().chain(settings).chain(files.iter().cloned());
    stores
        .chain(config.map(|path| (path, "nono's configuration")))
        .map(|(path, what)| {
            let plain = sys::plain_absolute(&path, &surroundings.current_dir);
            let links = sys::links_on_the_way(&plain);
            Protected { path: sys::real_or_future_path(&plain), links, what }
        })
        .collect()
}

/// The places that no built-in grant covers either: the record, the configuration, and the home
/// directory.
fn withheld(protected: &[Protected]) -> Vec<PathBuf> {
    let home = home_dir().ok().and_then(|home| sys::real_path(&home).ok());
    // A home directory at the root of everything is no place of its own.
    let home = home.filter(|home| home.parent().is_some());
    let paths =
        protected.iter().flat_map(|protected| protected.links.iter().chain([&protected.path]));
    paths.cloned().chain(home).collect()
}

/// Adds git's settings of this user to what is read, and names included files that may be anything.
fn add_git_settings(
    read: &mut Vec<PathBuf>,
    write: &[PathBuf],
    protected: &[Protected],
    context: &Context,
) {
    let Some(home) = real_home() else { return };
    let GitSettings { readable, mut doubtful } = git_settings::find(&home);
    for place in readable {
        match refuse_protected(&place, &place, protected) {
            Ok(()) => read.push(place),
            Err(_) => doubtful.push(place),
        }
    }
    let is_granted =
        |place: &PathBuf| read.iter().chain(write).any(|granted| place.starts_with(granted));
    doubtful.retain(|place| !is_granted(place));
    let flags: Option<Vec<_>> =
        doubtful.iter().map(|place| Some(format!("--read {}", shell_word(place)?))).collect();
    if let (Some(first), Some(flags)) = (doubtful.first(), flags) {
        let more = match doubtful.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        context.say(format_args!(
            "git's settings include {}{more}, which the command cannot read, and git may fail ({})",
            Shown::path(first),
            flags.join(" ")
        ));
    }
}

/// The place that a grant really names.
fn judge(path: &Path, protected: &[Protected]) -> Result<PathBuf, CliError> {
    let real = sys::real_path(path).map_err(|error| {
        CliError::failed(format!("cannot grant {}: {error}", Shown::path(path)))
    })?;
    refuse_protected(path, &real, protected)?;
    Ok(real)
}

fn refuse_protected(path: &Path, real: &Path, protected: &[Protected]) -> Result<(), CliError> {
    for protected in protected {
        let what = protected.what;
        let Some((how, place)) = protected.exposed_by(real) else { continue };
        let (path, place) = (Shown::path(path), Shown::path(place));
        let message = format!("cannot grant {path}: it {how} {what} {place}");
        return Err(CliError::failed(message).with_hint(
            "a command must not be able to touch its own record: grant the project alone, \
             or keep the store elsewhere with --root DIR",
        ));
    }
    Ok(())
}
