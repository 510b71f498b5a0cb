//! `nono events`: the facts of a store as lines of JSON.

use std::io::{Write, stdout};
use std::os::fd::AsFd;

use clap::Args;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use nono_engine::events::{Cursor, EventStream};
use nono_engine::path_text::Shown;
use nono_engine::sys::{Waited, kind_of};

/// Arguments of `nono events`.
#[derive(Debug, Args)]
pub(in crate::cli) struct EventsArgs {
    /// Go on with each new fact, until this is stopped
    #[arg(long)]
    follow: bool,
    /// Only the facts behind this place: the field `cursor` of an event
    #[arg(long, value_name = "CURSOR")]
    since: Option<String>,
}

pub(in crate::cli) fn run(args: &EventsArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    let root = catalog.root();
    let since = args.since.as_deref().map(str::parse::<Cursor>).transpose()?;
    let mut stream = if args.follow {
        EventStream::following(root, since)?
    } else if kind_of(root)?.is_none() && store.root.is_some() {
        return Err(CliError::failed(format!("there is no store at {}", Shown::path(root))));
    } else if kind_of(root)?.is_none() {
        context.say(format_args!("no sessions; record one: {NONO} run COMMAND"));
        return Ok(0);
    } else {
        EventStream::new(root, since)
    };
    let stdout = stdout();
    loop {
        let mut out = context.out_bytes();
        for event in stream.batch()? {
            serde_json::to_writer(&mut out, &event).map_err(std::io::Error::from)?;
            out.write_all(b"\n")?;
        }
        out.flush()?;
        // A reader that is gone ends the wait.
        if !args.follow || stream.wait(None, Some(stdout.as_fd()))? == Waited::Closed {
            return Ok(0);
        }
    }
}
