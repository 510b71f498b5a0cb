//! `nono try`: a command in a fork of its own, which is kept, discarded, or left as it is.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::emulate_default_handler;

use super::facts::Facts;
use super::merge::Merged;
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::commands::diff::show_diff;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::forking::{CommandArgs, CopyArgs, Entered, RightsArgs};
use crate::cli::offer::NONO;
use crate::cli::questions::{Letter, Question};
use crate::cli::render::Palette;
use crate::cli::restoring::answers;
use crate::cli::signals::{self, Taken};
use crate::cli::supervise::Ended;
use crate::cli::timeline::{self, Decision, Subject};
use nono_engine::diff::{ChangeSummary, Comparison};
use nono_engine::fork::{Fork, ForkState};
use nono_engine::sys;

/// Arguments of `nono try`.
#[derive(Debug, Args)]
pub(in crate::cli) struct TryArgs {
    /// At the end, merge all that the command changed into the project, without a question, if the
    /// command succeeded
    #[arg(long, group = "end")]
    keep: bool,
    /// At the end, discard all that the command changed, without a question
    #[arg(long, group = "end")]
    discard: bool,
    /// At the end, leave the fork, without a question
    #[arg(long, group = "end")]
    leave: bool,
    /// Print a report as one line of JSON, last on stderr. Without --keep or --discard, the fork is
    /// left
    #[arg(long)]
    json: bool,
    /// The command and its arguments, behind all flags of nono
    #[arg(trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
    #[command(flatten)]
    rights: RightsArgs,
}

/// A trial that has ended, for a program.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    fork: Facts,
    /// The exit code of the command.
    exit_code: u8,
    /// The changes in the fork.
    changes: ChangeSummary,
    end: EndWord,
    /// Whether the fork is there.
    is_left: bool,
    /// The report of the merge, as `nono fork merge --json` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    merge: Option<serde_json::Value>,
}

/// The fate of the changes, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum EndWord {
    Kept,
    /// A part of them.
    KeptInPart,
    Discarded,
    Left,
}

/// The fate of the fork.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Keep,
    /// These paths come into the project, and the fork stays with the rest.
    KeepSome(Vec<PathBuf>),
    Discard,
    Leave,
}

pub(in crate::cli) fn run(args: &TryArgs, store: &StoreArgs, context: &Context) -> Outcome {
    if args.command.is_empty() {
        return Err(CliError::usage("there is no command to try")
            .with_hint(format!("{NONO} try -- CMD; {NONO} fork NAME makes a fork that stays")));
    }
    let name = format!("try-{}", hex::encode(&sys::random_bytes()?[..4]));
    let inside = CommandArgs { command: args.command.clone(), rights: args.rights.clone() };
    let fork = super::born(&name, None, CopyArgs::default(), &inside, store, context)?;
    super::say_what_it_lacks(&fork, context)?;
    let ended = Entered::new(&fork).and_then(|entered| entered.run(&inside, store, context));
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            // It did not start, so there is nothing to look at. The error names the reason.
            if let Err(left) = super::discard::discard(&fork) {
                context.error(&left);
            }
            return Err(error);
        }
    };
    let leaving = |error: CliError| error.leaving(&format!("it is left as fork {name}"));
    let facts = Facts::of(&fork);
    let (end, changes) = args.end(&fork, &ended, store, context).map_err(leaving)?;
    // A process that goes on has work which a merge would not see.
    if matches!(end, End::Keep | End::KeepSome(_)) {
        super::discard::refuse_in_use(&fork).map_err(leaving)?;
    }
    let is_all = end == End::Keep;
    let (end, is_left, merge, code) = match end {
        End::Keep | End::KeepSome(_) => {
            let paths = if let End::KeepSome(paths) = end { paths } else { Vec::new() };
            let merged = super::merge::merge(&name, paths, args.json, store, context);
            let merged = merged.map_err(leaving)?;
            let is_left = settle(&fork, &merged, is_all, context)?;
            let is_whole = is_all && merged.code == 0;
            let end = if is_whole { EndWord::Kept } else { EndWord::KeptInPart };
            let code = if merged.code == 0 { ended.code } else { merged.code };
            (end, is_left, merged.report, code)
        }
        End::Discard => {
            super::discard::discard(&fork)?;
            (EndWord::Discarded, false, None, ended.code)
        }
        End::Leave => {
            say_left(&fork, context);
            (EndWord::Left, true, None, ended.code)
        }
    };
    if args.json {
        let exit_code = ended.code;
        context.json_line(&Report { fork: facts, exit_code, changes, end, is_left, merge })?;
    }
    Ok(code)
}

/// Removes a fork whose work is merged, or says why it stays. Returns whether it does.
fn settle(fork: &Fork, merged: &Merged, is_all: bool, context: &Context) -> Result<bool, CliError> {
    let name = fork.name();
    if !is_all {
        context.say(format_args!("the rest is left in fork {name}"));
        say_how_to_go_on(fork, context);
    } else if merged.code != 0 {
        context.say(format_args!("the rest is left in fork {name}"));
    } else if merged.has_more {
        context.say(format_args!("  it stays as fork {name}: {NONO} fork discard {name}"));
    } else {
        super::discard::discard(fork)?;
        return Ok(false);
    }
    Ok(true)
}

fn say_left(fork: &Fork, context: &Context) {
    let name = fork.name();
    context.say(format_args!("it is left as fork {name}; the project is as it was"));
    say_how_to_go_on(fork, context);
}

fn say_how_to_go_on(fork: &Fork, context: &Context) {
    let name = fork.name();
    context.say(format_args!("  see it:     {NONO} fork diff {name}"));
    context.say(format_args!("  enter it:   {NONO} fork enter {name}"));
    context.say(format_args!("  keep it:    {NONO} fork merge {name} [PATH…]"));
    context.say(format_args!("  discard it: {NONO} fork discard {name}"));
}

/// Asks. A signal at the question says that the fork is left, and has its usual effect then.
fn ask(question: &str, fork: &Fork, context: &Context) -> Result<Option<String>, CliError> {
    let mut queue = signals::queue().map_err(signals::refused)?;
    let _taken = Taken::queued(&[SIGINT, SIGTERM, SIGHUP], &queue).map_err(signals::refused)?;
    let asking = queue.handle();
    std::thread::scope(|scope| {
        let waiting = move || {
            if let Some(signal) = queue.forever().next() {
                // The question ended no line.
                let _ = writeln!(anstream::stderr());
                say_left(fork, context);
                let _ = emulate_default_handler(signal);
            }
        };
        sys::spawn_scoped(scope, "question", waiting).map_err(signals::refused)?;
        let answer = context.answer(question);
        asking.close();
        answer
    })
}

impl TryArgs {
    /// Says what changed, and finds out what becomes of it.
    fn end(
        &self,
        fork: &Fork,
        ended: &Ended,
        store: &StoreArgs,
        context: &Context,
    ) -> Result<(End, ChangeSummary), CliError> {
        let objects = super::objects(fork)?;
        let state = super::state(fork, &objects, context)?;
        let changes = super::ForkChanges::of(&state)?;
        let changed = changes.counted();
        super::name_not_taken(state.not_taken(), context);
        let is_live = super::live_changes(fork)?.next().is_some();
        if changed.total() == 0 && changed.in_git == 0 && state.not_taken().is_empty() && !is_live {
            context.say("nothing changed in the fork, and it is gone");
            return Ok((End::Discard, changed));
        }
        let summary = changes.summary(&Palette::plain());
        context.say(format_args!("in the fork: {summary}; the project is as it was"));
        if self.discard {
            context.say("all of that is discarded");
            return Ok((End::Discard, changed));
        }
        if self.keep && ended.code == 0 {
            return Ok((End::Keep, changed));
        }
        if ended.was_told_to_end || self.leave || self.keep || !answers(self.json, context) {
            return Ok((End::Leave, changed));
        }
        Ok((asked(fork, &state, &changes, store, context)?, changed))
    }
}

/// Asks what becomes of the fork.
fn asked(
    fork: &Fork,
    state: &ForkState<'_>,
    changes: &super::ForkChanges,
    store: &StoreArgs,
    context: &Context,
) -> Result<End, CliError> {
    let text = "keep it, keep some of it, leave it as a fork, or discard it?";
    let question = Question::new(text, Letter::Leave)
        .or(Letter::Keep, "keep all of it: it comes into the project")
        .or(Letter::Select, "select in the review what comes into the project")
        .or(Letter::Leave, "leave it as a fork, to decide later")
        .or(Letter::Discard, "discard all of it")
        .or(Letter::Difference, "show the difference, and ask again");
    loop {
        match question.ask_by(context, |prompt| ask(prompt, fork, context))? {
            Letter::Keep => return Ok(End::Keep),
            Letter::Select => {
                if let Some(end) = some(fork, state, changes, store, context)? {
                    return Ok(end);
                }
            }
            Letter::Discard => return Ok(End::Discard),
            Letter::Difference => {
                show_diff(state, state.base(), state, state.manifest(), context)?;
            }
            _ => return Ok(End::Leave),
        }
    }
}

/// Lets a person choose in the review what comes into the project; `None` where nothing is chosen.
fn some(
    fork: &Fork,
    state: &ForkState<'_>,
    changes: &super::ForkChanges,
    store: &StoreArgs,
    context: &Context,
) -> Result<Option<End>, CliError> {
    if !timeline::is_possible(context) {
        context.say(format_args!(
            "this terminal shows no list to choose from: {NONO} fork merge {} PATH…",
            fork.name()
        ));
        return Ok(None);
    }
    // Commits come with all of it.
    let outside = changes.repositories.outside(&changes.changes).into_iter().cloned().collect();
    let comparison = Comparison { changes: outside, touched: Vec::new() };
    let (session, catalog) = (&fork.session()?, &store.catalog()?);
    let subject = Subject { session, store: state, old: state.base(), new: state.manifest() };
    Ok(match timeline::choose_to_keep(&subject, comparison, catalog, context)? {
        Decision::KeepAll => None,
        Decision::RestoreAll => Some(End::Keep),
        Decision::Restore(paths) => Some(End::KeepSome(paths)),
    })
}
