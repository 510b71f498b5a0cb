//! `nono man`: a page of the manual, or all of them where `man` finds them.
//!
//! `man` looks beside each directory of `PATH`: for programs in `PREFIX/bin`, in
//! `PREFIX/share/man`. So pages beside this program are found as soon as the program is.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use clap::Args;
use signal_hook::consts::{SIGINT, SIGQUIT};

use super::agent::this_program;
use crate::cli::Outcome;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::manual::{Page, page_name, pages};
use crate::cli::signals::Taken;
use crate::cli::supervise;
use nono_engine::path_text::Shown;
use nono_engine::sys::{self, Dir};

/// Arguments of `nono man`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ManArgs {
    /// Words of a command whose page is shown [default: the page of nono]
    #[arg(value_name = "COMMAND")]
    words: Vec<String>,
    /// Install all pages, so that `man nono` finds them [default DIR: share/man/man1 beside the
    /// bin directory of this program]
    #[arg(long, value_name = "DIR", num_args = 0..=1, conflicts_with = "words")]
    install: Option<Option<PathBuf>>,
}

/// Makes the pages of the program, whose commands are in groups.
pub(in crate::cli) fn run(
    args: &ManArgs,
    mut program: clap::Command,
    context: &Context,
) -> Outcome {
    program.build();
    let pages = pages(&program)?;
    match &args.install {
        Some(directory) => install(directory.as_deref(), &pages, context),
        None => show(&args.words, &pages),
    }
}

fn install(directory: Option<&Path>, pages: &[Page], context: &Context) -> Outcome {
    let place = match directory {
        Some(directory) => sys::plain_absolute(directory, &sys::current_dir()?),
        None => beside_program()?,
    };
    sys::create_public_dir(&place)?;
    let dir = Dir::open(&place)?;
    for Page { name, text } in pages {
        dir.replace_file(format!("{name}.1").as_bytes(), text, 0o644, false)?;
    }
    context.say(format_args!("{} pages are in {}", pages.len(), Shown::path(&place)));
    if directory.is_none() {
        context.say("read them: man nono");
    }
    Ok(0)
}

/// Where `man` looks for the pages of this program.
fn beside_program() -> Result<PathBuf, CliError> {
    let program = this_program()?;
    let prefix = program.parent().filter(|bin| bin.ends_with("bin")).and_then(Path::parent);
    match prefix {
        Some(prefix) => Ok(prefix.join("share/man/man1")),
        None => Err(CliError::failed(format!(
            "{} is in no bin directory, so `man` finds no pages beside it",
            Shown::path(&program)
        ))
        .with_hint("nono man --install DIR writes them into a directory")),
    }
}

fn show(words: &[String], pages: &[Page]) -> Outcome {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let wanted = page_name(&words);
    let page = pages.iter().find(|page| page.name == wanted).ok_or_else(|| {
        let named = Shown::bytes(words.join(" ").as_bytes()).to_string();
        CliError::usage(format!("there is no command {named:?}"))
            .with_hint("nono --help lists the commands")
    })?;
    // Ctrl-C is for the pager of `man`.
    let _taken = Taken::raising(&[SIGINT, SIGQUIT], &Arc::default())?;
    let started = Command::new("man").args(["-l", "-"]).stdin(Stdio::piped()).spawn();
    let mut child = started.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CliError::failed("`man` is not installed")
            .with_hint("`nono COMMAND --help` says nearly the same without it"),
        _ => CliError::failed(format!("cannot start `man`: {error}")),
    })?;
    if let Some(mut input) = child.stdin.take() {
        match input.write_all(&page.text) {
            // The exit code says why `man` reads no further.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(error.into()),
            _ => drop(input),
        }
    }
    Ok(supervise::wait_in_foreground(&child)?)
}
