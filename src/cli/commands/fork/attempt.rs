//! `nono try`: a command in a fork of its own, which is kept, discarded, or left as it is.

use clap::Args;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::commands::diff::{DiffStyle, write_diff};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::forking::CommandArgs;
use crate::cli::offer::NONO;
use crate::cli::render::Palette;
use nono_engine::fork::Fork;
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
    #[command(flatten)]
    inside: CommandArgs,
}

/// The fate of the fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Keep,
    Discard,
    Leave,
}

pub(in crate::cli) fn run(args: &TryArgs, store: &StoreArgs, context: &Context) -> Outcome {
    if args.inside.command.is_empty() {
        return Err(CliError::usage("there is no command to try")
            .with_hint(format!("{NONO} try -- CMD; {NONO} fork NAME makes a fork that stays")));
    }
    let name = format!("try-{}", hex::encode(&sys::random_bytes()?[..4]));
    let fork = super::born(&name, None, &args.inside, store, context)?;
    super::say_what_it_lacks(&fork, context)?;
    let ended = super::enter(&fork, &args.inside, store, context);
    if ended.is_err() {
        // It did not start, so there is nothing to look at.
        super::discard::discard(&fork)?;
        return ended;
    }
    let succeeded = ended.as_ref().is_ok_and(|code| *code == 0);
    let end = args.end(&fork, succeeded, context);
    match end {
        Ok(End::Keep) => {
            let leaving = |error: CliError| error.leaving(&format!("it is left as fork {name}"));
            // A process that goes on has work which this merge would not see.
            super::discard::refuse_in_use(&fork).map_err(leaving)?;
            let code = super::merge::all_of(&name, store, context).map_err(leaving)?;
            if code != 0 {
                context.say(format_args!("the rest is left in fork {name}"));
                return Ok(code);
            }
            if super::has_more_than_merges_take(&fork, context)? {
                context.say(format_args!("  it stays as fork {name}: {NONO} fork discard {name}"));
            } else {
                super::discard::discard(&fork)?;
            }
        }
        Ok(End::Discard) => super::discard::discard(&fork)?,
        Ok(End::Leave) => {
            let name = fork.name();
            context.say(format_args!("it is left as fork {name}; the project is as it was"));
            context.say(format_args!("  see it:     {NONO} fork diff {name}"));
            context.say(format_args!("  enter it:   {NONO} fork enter {name}"));
            context.say(format_args!("  keep it:    {NONO} fork merge {name} [PATH…]"));
            context.say(format_args!("  discard it: {NONO} fork discard {name}"));
        }
        // Nothing of what the command did is lost for that.
        Err(error) => return Err(error.leaving(&format!("it is left as fork {name}"))),
    }
    ended
}

impl TryArgs {
    /// Says what changed, and finds out what becomes of it.
    fn end(&self, fork: &Fork, succeeded: bool, context: &Context) -> Result<End, CliError> {
        let objects = super::objects(fork)?;
        let state = super::state(fork, &objects, context)?;
        let changes = super::ForkChanges::of(&state)?;
        let changed = changes.counted();
        super::name_not_taken(state.not_taken(), context);
        let is_live = super::live_changes(fork)?.next().is_some();
        if changed.total() == 0 && changed.in_git == 0 && state.not_taken().is_empty() && !is_live {
            context.say("nothing changed in the fork, and it is gone");
            return Ok(End::Discard);
        }
        let changed = changes.summary(&Palette::plain());
        context.say(format_args!("in the fork: {changed}; the project is as it was"));
        if self.discard {
            context.say("all of that is discarded");
            return Ok(End::Discard);
        }
        if self.keep && succeeded {
            return Ok(End::Keep);
        }
        if self.leave || self.keep || !context.stdin_is_terminal || !context.stderr_is_terminal {
            return Ok(End::Leave);
        }
        loop {
            // `d` shows a difference in every question.
            let question = "keep it, leave it as a fork, or discard it? [k/L/x, d: difference] ";
            match &*context.ask(question)? {
                "k" | "keep" => return Ok(End::Keep),
                "x" | "discard" => return Ok(End::Discard),
                "" | "l" | "L" | "leave" => return Ok(End::Leave),
                "d" | "D" => {
                    let (old, new) = (state.base(), state.manifest());
                    write_diff(&state, old, &state, new, DiffStyle::Patch, context)?;
                }
                _ => context.say("k, l, x or d"),
            }
        }
    }
}
