//! `nono completions`: what a shell needs to complete arguments; and `nono man`: the manual.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::Outcome;
use crate::cli::args::Arguments;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::path_text::Shown;
use crate::sys::{self, Dir};

/// Arguments of `nono completions`.
#[derive(Debug, Args)]
pub(in crate::cli) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Arguments of `nono man`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ManArgs {
    /// Directory that gets one page for each command, such as ~/.local/share/man/man1
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(in crate::cli) fn completions(args: &CompletionsArgs, context: &Context) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Arguments::command(), "nono", &mut script);
    let mut out = context.out_bytes();
    out.write_all(&script)?;
    out.flush()?;
    Ok(0)
}

pub(in crate::cli) fn man(args: &ManArgs, context: &Context) -> Outcome {
    let place = sys::plain_absolute(&args.directory, &sys::current_dir()?);
    sys::create_private_dir(&place)?;
    let dir = Dir::open(&place)?;
    let mut program = Arguments::command();
    program.build();
    let mut count = 0;
    write_pages(&program, "nono", &dir, &mut count)?;
    context.say(format_args!("{count} pages are in {}", Shown::path(&place)));
    Ok(0)
}

fn write_pages(
    command: &clap::Command,
    name: &str,
    dir: &Dir,
    count: &mut usize,
) -> Result<(), CliError> {
    let mut page = Vec::new();
    let titled: clap::Command = command.clone().bin_name(name.replace('-', " "));
    clap_mangen::Man::new(titled).render(&mut page)?;
    dir.replace_file(format!("{name}.1").as_bytes(), &page, 0o644, false)?;
    *count += 1;
    for inner in command.get_subcommands() {
        if !inner.is_hide_set() && inner.get_name() != "help" {
            write_pages(inner, &format!("{name}-{}", inner.get_name()), dir, count)?;
        }
    }
    Ok(())
}
