//! The command line: arguments in, a report out.
//!
//! Only this module prints, asks, or decides an exit code: 0 done; 1 failed, found a problem, or
//! did only a part; 2 wrong usage; 130 stopped by Ctrl-C. Data goes to stdout, everything else to
//! stderr. Each subcommand is one file in `commands`, with its arguments and its function.

#[cfg(feature = "archive")]
mod after_run;
mod agent_grants;
mod args;
mod argument;
mod background;
mod book;
mod checkpoints;
mod command_tree;
mod commands;
mod commit_lines;
mod commits;
mod completing;
mod concurrent_runs;
mod context;
mod denials;
mod error;
mod examples;
#[cfg(feature = "mount")]
mod forking;
mod git_settings;
mod grants;
mod groups;
mod inner_commands;
mod inside;
#[cfg(any(feature = "ui", feature = "mount"))]
pub(crate) mod itself;
mod keeper;
mod launch;
pub(crate) mod looking;
mod maker;
mod manual;
mod meant;
mod metrics;
#[cfg(feature = "mount")]
mod mount_guard;
mod offer;
mod output;
mod pager;
mod past;
#[cfg(feature = "mcp")]
mod past_tools;
mod preflight;
mod processes;
mod progress;
mod questions;
#[cfg(feature = "archive")]
mod remote_copies;
#[cfg(feature = "archive")]
mod remote_view;
pub mod render;
mod repositories;
mod restoring;
mod retention;
mod run_later;
mod run_report;
mod scratch;
#[cfg(feature = "archive")]
mod sealing;
mod shell_word;
mod signals;
mod snapshot_hooks;
mod snapshot_report;
mod ssh_config;
mod start_report;
mod state_at;
mod state_before;
mod supervise;
mod surroundings;
mod timeline;
#[cfg(feature = "ui")]
mod ui;
mod unrecorded_changes;
mod view_args;
mod when;
mod worktrees;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::FromArgMatches;
use clap::error::ErrorKind;

use args::StoreArgs;
use command_tree::{Arguments, Command, Helper, Rollback};
use context::Context;

use crate::config::Origin;
pub use error::CliError;
use error::Outcome;
use nono_engine::path_text::Shown;
use nono_engine::sys;

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    run(std::env::args_os())
}

fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let given: Vec<OsString> = arguments.into_iter().collect();
    if completing::answer(&given) {
        return ExitCode::SUCCESS;
    }
    let parsed = match parse(&given) {
        // Without a command, on a terminal, the timeline is meant.
        Err(error) if commands::timeline::is_meant(&error) => {
            let timeline = OsString::from(commands::timeline::NAME);
            let words = given.iter().cloned().chain([timeline]).collect::<Vec<_>>();
            parse(&words).map_err(|_| error)
        }
        parsed => parsed,
    };
    let arguments = match parsed {
        Ok(arguments) => Arguments { command: arguments.command.plain(), ..arguments },
        Err(error) => {
            let is_help =
                matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            if commands::hook::is_hook(&given) {
                return ExitCode::SUCCESS;
            }
            // A closed stdout is no reason to complain.
            let error = meant::with_fitting_tip(error, &given, &groups::program());
            let _ = without_controls(error, &given).print();
            return ExitCode::from(if is_help { 0 } else { 2 });
        }
    };
    if let Command::Hook(args) = &arguments.command {
        // The agent must not notice any failure.
        std::panic::set_hook(Box::new(|_| {}));
        let _ = std::panic::catch_unwind(|| commands::hook::run(args, &arguments.store));
        return ExitCode::SUCCESS;
    }
    let output = arguments.output;
    let _survived = signals::survive_long_files();
    let mut context = Context::new(output);
    init_log(output, context.colours_on_stderr());
    if arguments.store.origin() == Origin::Flag
        && let Some(root) = &arguments.store.root
    {
        offer::name_store(root);
    }
    let outcome = dispatch(arguments, &context);
    // The rest of the output is for a reader that has closed it.
    let closed = context.close_pager();
    let is_fine = outcome.as_ref().map_or_else(CliError::exit_code, |code| *code) == 0;
    match closed.err().filter(|_| is_fine).map_or(outcome, Err) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            context.error(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

fn parse(given: &[OsString]) -> Result<Arguments, clap::Error> {
    let matches = groups::program().try_get_matches_from(given)?;
    Arguments::from_arg_matches(&matches)
}

/// The same error where an argument has control characters, which act on a terminal: without those,
/// and without colours, from which they cannot be told.
fn without_controls(error: clap::Error, given: &[OsString]) -> clap::Error {
    let is_harmless =
        |word: &OsString| word.as_os_str() == Shown::bytes(word.as_bytes()).to_string().as_str();
    if given.iter().all(is_harmless) {
        return error;
    }
    let text = error.render().to_string();
    let shown: String = text.split_inclusive('\n').map(shown_line).collect();
    // The prefix is put there again.
    clap::Error::raw(error.kind(), shown.strip_prefix("error: ").unwrap_or(&shown))
}

/// A line of a message as it can be shown, with its end.
fn shown_line(line: &str) -> String {
    let (text, end) = line.strip_suffix('\n').map_or((line, ""), |text| (text, "\n"));
    format!("{}{end}", Shown::bytes(text.as_bytes()))
}

fn dispatch(arguments: Arguments, context: &Context) -> Outcome {
    #[cfg(feature = "mount")]
    if let Some(outcome) = commands::fork::looking::look(&arguments.command, context) {
        return outcome;
    }
    inside::refuse(&arguments)?;
    let store = arguments.store;
    let finished = if is_silent(&arguments.command) {
        Vec::new()
    } else {
        commands::resume::remind(&store, context)
    };
    if !matches!(arguments.command, Command::Run(_) | Command::Helper(_)) {
        // Packs are open files, and each session that goes is locked until it is gone. A recorded
        // command has the limit that it would have without us.
        sys::raise_descriptor_limit();
    }
    match arguments.command {
        Command::Run(args) => commands::run::run(&args, &store, context),
        // Called by their one name by now.
        Command::Short(_) | Command::Hook(_) => Ok(0),
        Command::Agent { command } => commands::agent::run(&command, &store, context),
        Command::Helper(helper) => run_helper(&helper, &store, context),
        Command::Snapshot(args) => commands::snapshot::run(&args, &store, context),
        Command::Watch(args) => commands::watch::run(&args, &store, context),
        #[cfg(feature = "mount")]
        Command::Mount(args) => commands::mount::run(&args, &store, context),
        #[cfg(feature = "mount")]
        Command::Umount(args) => commands::umount::run(&args, context),
        #[cfg(feature = "mount")]
        Command::Fork(args) => commands::fork::run(&args, &store, context),
        #[cfg(feature = "mount")]
        Command::Forks(args) => commands::fork::list::run(&args, &store, context),
        #[cfg(feature = "mount")]
        Command::Try(args) => commands::fork::attempt::run(&args, &store, context),
        #[cfg(feature = "mount")]
        Command::Bisect(args) => commands::bisect::run(&args, &store, context),
        #[cfg(feature = "container")]
        Command::Container { command } => commands::container::run(&command, &store, context),
        Command::Log(args) => commands::log::run(&args, &store, context),
        Command::Blame(args) => commands::blame::run(&args, &store, context),
        Command::Grep(args) => commands::grep::run(&args, &store, context),
        Command::Difftool(args) => commands::difftool::run(&args, &store, context),
        Command::Events(args) => commands::events::run(&args, &store, context),
        Command::Import(args) => commands::import::run(&args, &store, context),
        #[cfg(feature = "archive")]
        Command::Push(args) => commands::push::run(&args, &store, context),
        #[cfg(feature = "archive")]
        Command::Pull(args) => commands::pull::run(&args, &store, context),
        #[cfg(feature = "archive")]
        Command::Remote { command } => commands::remote::run(&command, &store, context),
        #[cfg(feature = "archive")]
        Command::Archive { command } => commands::archive::run(&command, &store, context),
        Command::Profile { command } => commands::profile::run(&command, &store, context),
        Command::Config { command } => commands::config::run(&command, &store, context),
        Command::Doctor(args) => commands::doctor::run(&args, &store, context),
        #[cfg(feature = "mcp")]
        Command::Mcp(args) => commands::mcp::run(&args, &store),
        Command::Completions(args) => commands::completions::run(&args, context),
        Command::Man(args) => commands::man::run(&args, groups::program(), context),
        Command::Help(args) => commands::help::run(&args, &groups::program(), context),
        Command::Undo(args) => commands::undo::run(&args.undo, &finished, &store, context),
        Command::Redo(args) => commands::redo::run(&args, &finished, &store, context),
        Command::Steps(args) => commands::steps::run(&args, &store, context),
        Command::Status(args) => commands::status::run(&args, &store, context),
        Command::Timeline => commands::timeline::run(&store, groups::program(), context),
        #[cfg(feature = "ui")]
        Command::Ui(args) => commands::ui::run(&args, &store, context),
        Command::Rollback { command } => match command {
            Rollback::List(args) => commands::list::run(&args, &store, context),
            Rollback::Show(args) => commands::show::run(&args, &store, context),
            Rollback::Review(args) => commands::review::run(&args, &store, context),
            Rollback::Diff(args) => commands::diff::run(&args, &store, context),
            Rollback::Find(args) => commands::find::run(&args, &store, context),
            Rollback::Restore(args) => commands::restore::run(&args, &store, context),
            Rollback::Cat(args) => commands::cat::run(&args, &store, context),
            Rollback::Resume(args) => commands::resume::run(&args, &store, context),
            Rollback::Verify(args) => commands::verify::run(&args, &store, context),
            Rollback::Cleanup(args) => commands::cleanup::run(&args, &store, context),
            Rollback::Pin(args) => commands::pin::run(&args, true, &store, context),
            Rollback::Unpin(args) => commands::pin::run(&args, false, &store, context),
            Rollback::Usage(args) => commands::usage::run(&args, &store, context),
        },
    }
}

/// Whether a command must not be reminded of a restore that was interrupted: it finishes the
/// restore, or no user reads what it says.
fn is_silent(command: &Command) -> bool {
    match command {
        Command::Helper(_) | Command::Rollback { command: Rollback::Resume(_) } => true,
        #[cfg(feature = "mcp")]
        Command::Mcp(_) => true,
        _ => false,
    }
}

fn run_helper(helper: &Helper, store: &StoreArgs, context: &Context) -> Outcome {
    match helper {
        Helper::Keep(args) => keeper::run(args),
        Helper::SandboxExec(args) => commands::sandbox_exec::run(args),
        Helper::HookWorker(args) => commands::hook::work(args, store, context),
        #[cfg(feature = "mount")]
        Helper::MountGuard(args) => mount_guard::run(args),
        #[cfg(feature = "mount")]
        Helper::ForkHold(args) => forking::run(args, store),
        #[cfg(feature = "mount")]
        Helper::ForkUndo(args) => commands::fork::undo::run(args, store, context),
        #[cfg(feature = "container")]
        Helper::ContainerWatch(args) => commands::container::watch::run(args),
    }
}

/// Warnings of the library go to stderr; `NONO_LOG` or `--verbose` ask for more.
fn init_log(output: output::OutputArgs, colours: bool) {
    use tracing_subscriber::EnvFilter;
    let filter =
        EnvFilter::try_from_env("NONO_LOG").unwrap_or_else(|_| EnvFilter::new(output.log_filter()));
    // Only fails when a program that embeds this one has set a logger already.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .with_target(false)
        // Else an `eprintln!` says what could not be written to stderr, and panics.
        .log_internal_errors(false)
        .without_time()
        .try_init();
}
