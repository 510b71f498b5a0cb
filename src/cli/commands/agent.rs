//! `nono agent`: our hooks and our server in the configuration of coding agents.

mod preview;

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use serde::Serialize;

use crate::agent::install::{
    Edit, Found, InstallError, Part, Place, Request, State, apply, has_program, look, plan_install,
    plan_uninstall,
};
use crate::agent::{Client, Journal, Mishap, project_of};
use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, home_dir};
use crate::cli::context::{BOLD, Context, DIM, YELLOW};
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use nono_engine::path_text::Shown;
use nono_engine::sys;

/// Hours of past failures that are told.
const TOLD_HOURS: i64 = 24;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum AgentCommand {
    /// Put hooks into the configuration of coding agents, so that each tool call becomes a step
    Install(InstallArgs),
    /// Take out of it what install put in: hooks, and the registration of `nono mcp`
    Uninstall(UninstallArgs),
    /// Say which agents have hooks, and what went wrong in them
    Status(AgentStatusArgs),
}

/// Which configurations are meant.
#[derive(Debug, Args)]
pub(in crate::cli) struct MeantArgs {
    /// Agents [default: those that are used here]
    #[arg(value_name = "AGENT", value_parser = client(), ignore_case = true)]
    clients: Vec<Client>,
    /// For the current project alone, as far as the agent can in files that are not committed
    #[arg(long, conflicts_with = "user")]
    project: bool,
    /// For all projects of this user, which is the default
    #[arg(long)]
    user: bool,
    /// Say what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Arguments of `nono agent install`.
#[derive(Debug, Args)]
pub(in crate::cli) struct InstallArgs {
    #[command(flatten)]
    meant: MeantArgs,
    /// Register `nono mcp` too: tools with which the agent looks at its own steps
    #[arg(long)]
    mcp: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `nono agent uninstall`.
#[derive(Debug, Args)]
pub(in crate::cli) struct UninstallArgs {
    #[command(flatten)]
    meant: MeantArgs,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `nono agent status`.
#[derive(Debug, Args)]
pub(in crate::cli) struct AgentStatusArgs {
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// An agent by its name, or by another name of it.
fn client() -> impl TypedValueParser<Value = Client> {
    let value = |client: Client| PossibleValue::new(client.name()).aliases(client.aliases());
    PossibleValuesParser::new(Client::ALL.map(value))
        .try_map(|name| Client::meant(&name).ok_or("no agent"))
}

pub(in crate::cli) fn run(command: &AgentCommand, store: &StoreArgs, context: &Context) -> Outcome {
    match command {
        AgentCommand::Install(args) => change(&args.meant, Some(args.mcp), args.json, context),
        AgentCommand::Uninstall(args) => change(&args.meant, None, args.json, context),
        AgentCommand::Status(args) => status(args, store, context),
    }
}

#[derive(Serialize)]
struct Report {
    dry_run: bool,
    files: Vec<Edit>,
}

/// `install`: whether the server is registered, too; `None` takes everything out.
fn change(args: &MeantArgs, install: Option<bool>, is_json: bool, context: &Context) -> Outcome {
    let installs = install.is_some();
    let home = home_dir()?;
    let clients = match args.clients.as_slice() {
        [] => Client::ALL
            .into_iter()
            .filter(|client| is_present(*client, &place_of_user(*client, &home)))
            .collect(),
        named => named.to_vec(),
    };
    if clients.is_empty() {
        return Err(CliError::failed("no coding agent was found here").with_hint(format!(
            "name one: nono agent install {}",
            Client::ALL.map(Client::name).join(" | ")
        )));
    }
    let project = match args.project {
        true => Some(project(&home)?.ok_or_else(|| {
            CliError::failed(
                "no hooks for this directory alone: it is your home directory, or holds it",
            )
            .with_hint("nono agent install (without --project) is for all projects")
        })?),
        false => None,
    };
    let mut planned = Vec::new();
    // All are understood before the first one is changed.
    for client in clients {
        let place = match &project {
            Some(project) => Place::of_project(client, project)?,
            None => place_of_user(client, &home)?,
        };
        let request =
            Request { client, place, program: this_program()?, with_server: install == Some(true) };
        let edits = match installs {
            true => plan_install(&request)?,
            false => plan_uninstall(&request)?,
        };
        planned.push((request, edits));
    }
    if !args.dry_run {
        for (request, edits) in &mut planned {
            apply(request, edits, installs)?;
        }
    }
    let has_codex = planned
        .iter()
        .any(|(it, edits)| it.client == Client::Codex && edits.iter().any(|edit| edit.is_change));
    let files: Vec<Edit> = planned.into_iter().flat_map(|(_, edits)| edits).collect();
    if is_json {
        context.json(&Report { dry_run: args.dry_run, files })?;
        return Ok(0);
    }
    let changed = files.iter().filter(|edit| edit.is_change).count();
    for edit in files.iter().filter(|edit| edit.is_change) {
        let client = edit.client;
        let path = Shown::path(&edit.path);
        let done = match (args.dry_run, installs, edit.is_whole) {
            (true, true, true) => "would be made",
            (true, _, false) => "would be changed",
            (true, false, true) => "would be removed",
            (false, true, true) => "made",
            (false, true, false) => "changed",
            (false, false, true) => "removed",
            (false, false, false) => "as it was before",
        };
        let before = edit.backup.as_ref().map(|backup| format!(" (before: {backup})"));
        context.say(format_args!("{client}: {path}: {done}{}", before.unwrap_or_default()));
    }
    if args.dry_run {
        preview::write_preview(&files, context)?;
    }
    match (changed, installs) {
        (0, true) => context.say("nothing to change: the hooks are there"),
        (0, false) => context.say("nothing to change: there is nothing of nono"),
        (_, true) if !args.dry_run => {
            context.say(format_args!("sessions that begin from now on are recorded: {NONO} steps"));
        }
        _ => {}
    }
    let in_git = project.filter(|top| installs && sys::identity(&top.join(".git")).is_some());
    if let Some(top) = in_git {
        let is_new = |edit: &&Edit| edit.is_change && edit.is_whole;
        for edit in files.iter().filter(is_new).filter(|it| !is_ignored(&top, &it.path)) {
            let path = Shown::path(edit.path.strip_prefix(&top).unwrap_or(&edit.path)).to_string();
            context.say(format_args!(
                "git does not ignore {path}: a line in .git/info/exclude keeps it out of commits"
            ));
        }
    }
    if installs && has_codex && !args.dry_run {
        context.say("codex runs new hooks only when you trust them: type /hooks in it once");
    }
    Ok(0)
}

/// The project around the current directory, as sessions record it.
fn project(home: &Path) -> Result<Option<PathBuf>, CliError> {
    Ok(project_of(&sys::current_dir()?, Some(home)))
}

/// Where a client looks for the configuration of this user.
fn place_of_user(client: Client, home: &Path) -> Result<Place, InstallError> {
    Place::of_user(client, home, &|name| std::env::var_os(name))
}

/// Whether a client is used here: it has a directory, or its program is found.
fn is_present(client: Client, place: &Result<Place, InstallError>) -> bool {
    place.as_ref().is_ok_and(Place::is_there) || has_program(client)
}

/// Whether git ignores a file of a work tree.
fn is_ignored(top: &Path, path: &Path) -> bool {
    let mut rules = GitignoreBuilder::new(top);
    for file in [".gitignore", ".git/info/exclude"] {
        // One that is not there ignores nothing.
        let _ = rules.add(top.join(file));
    }
    let is_in = |rules: &Gitignore| {
        path.starts_with(rules.path()) && rules.matched_path_or_any_parents(path, false).is_ignore()
    };
    let of_user = GitignoreBuilder::new(top).build_global().0;
    rules.build().is_ok_and(|rules| is_in(&rules)) || is_in(&of_user)
}

/// The program as it was called: where it is a symlink, an update does not change its path.
pub(super) fn this_program() -> Result<PathBuf, CliError> {
    let called = std::env::args_os().next().unwrap_or_default();
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found = sys::find_program(&called, &search).filter(|path| path.is_absolute());
    let current = std::env::current_exe()
        .map_err(|error| CliError::failed(format!("cannot find this program: {error}")))?;
    // Only if it is this very program.
    let is_this = |path: &PathBuf| {
        let identity = sys::identity(path);
        identity.is_some() && identity == sys::identity(&current)
    };
    Ok(found.filter(is_this).unwrap_or(current))
}

/// An agent, and what of ours it has.
#[derive(Debug, Serialize)]
pub(in crate::cli) struct AgentStatus {
    pub(in crate::cli) client: &'static str,
    /// Whether it is used here.
    present: bool,
    pub(in crate::cli) files: Vec<Found>,
}

impl AgentStatus {
    /// Hooks that do not do what they are for.
    pub(in crate::cli) fn broken(&self) -> impl Iterator<Item = &Found> {
        self.files.iter().filter(|file| file.problem.is_some() || file.state == State::Outdated)
    }

    pub(in crate::cli) fn has_hooks(&self) -> bool {
        let is_hook = |file: &Found| file.part == Part::Hooks && file.state != State::Missing;
        self.files.iter().any(is_hook)
    }
}

/// All agents, and what of ours they have.
pub(in crate::cli) fn all() -> Result<Vec<AgentStatus>, CliError> {
    let home = home_dir()?;
    let program = this_program()?;
    let project = project(&home)?;
    let of = |client: Client| {
        let user = place_of_user(client, &home);
        let present = is_present(client, &user);
        let project = project.as_deref().map(|project| Place::of_project(client, project));
        let mut files = Vec::new();
        for place in [user].into_iter().chain(project) {
            match place {
                Ok(place) => {
                    let program = program.clone();
                    files.extend(look(&Request { client, place, program, with_server: true }));
                }
                // It matters to who uses the client.
                Err(error) if present => files.push(Found::nowhere(&home, &error)),
                Err(_) => {}
            }
        }
        AgentStatus { client: client.name(), present, files }
    };
    Ok(Client::ALL.into_iter().map(of).collect())
}

/// Recent failures in hooks.
pub(in crate::cli) fn mishaps(store: &StoreArgs) -> Result<Vec<Mishap>, CliError> {
    let mut mishaps = noted(store)?;
    mishaps.retain(|mishap| !mishap.by_design);
    Ok(mishaps)
}

/// All that hooks noted lately: failures, and events of places that are never recorded.
fn noted(store: &StoreArgs) -> Result<Vec<Mishap>, CliError> {
    Ok(Journal::of(store.catalog()?.root()).recent(TOLD_HOURS))
}

#[derive(Serialize)]
struct StatusReport {
    agents: Vec<AgentStatus>,
    /// Failures of the last day, and where nothing is ever recorded, oldest first.
    mishaps: Vec<Mishap>,
}

fn status(args: &AgentStatusArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let report = StatusReport { agents: all()?, mishaps: noted(store)? };
    let is_broken = report.agents.iter().any(|agent| agent.broken().next().is_some());
    if args.json {
        context.json(&report)?;
        return Ok(u8::from(is_broken));
    }
    let mut out = context.out();
    for agent in &report.agents {
        let client = agent.client;
        let absent = if agent.present { "" } else { "  not found here" };
        let has_hooks = agent.files.iter().any(|file| {
            file.part == Part::Hooks && (file.problem.is_some() || file.state != State::Missing)
        });
        let none = match agent.present && !has_hooks {
            true => format!("  no hooks (nono agent install {client})"),
            false => String::new(),
        };
        writeln!(out, "{BOLD}{client}{BOLD:#}{DIM}{absent}{none}{DIM:#}")?;
        for file in &agent.files {
            let part = match file.part {
                Part::Hooks => "hooks",
                Part::Server => "mcp",
            };
            let path = Shown::path(&file.path);
            match (&file.problem, file.state) {
                (Some(problem), _) => {
                    writeln!(out, "  {part}: {YELLOW}{path}: {problem}{YELLOW:#}")?;
                }
                (None, State::Installed) => writeln!(out, "  {part}: {path}")?,
                (None, State::Outdated) => writeln!(
                    out,
                    "  {part}: {YELLOW}of another nono, in {path}{YELLOW:#} (nono agent install \
                     {client})"
                )?,
                (None, State::Missing) => {}
            }
        }
    }
    for Mishap { at, client, what, by_design } in &report.mishaps {
        let [client, what] = [client, what].map(|text| Shown::bytes(text.as_bytes()));
        let colour = if *by_design { DIM } else { YELLOW };
        writeln!(out, "{colour}{at}{colour:#}  {client}: {what}")?;
    }
    Ok(u8::from(is_broken))
}

impl From<InstallError> for CliError {
    fn from(error: InstallError) -> Self {
        Self::failed(error.to_string())
    }
}
