//! `nono completions`: the script with which a shell asks for completions; and `nono man`: the
//! manual.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;
use clap_complete::env::Shells;

use crate::cli::Outcome;
use crate::cli::completing;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::examples;
use nono_engine::path_text::Shown;
use nono_engine::sys::{self, Dir};

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
    let (shell, mut script) = (args.shell.to_string(), Vec::new());
    let unknown = || CliError::usage(format!("nothing is known of the shell {shell}"));
    let completer = Shells::builtins().completer(&shell).map(|found| {
        // By its name: the installed program offers the words that it understands.
        found.write_registration(completing::VARIABLE, "nono", "nono", "nono", &mut script)
    });
    completer.ok_or_else(unknown)??;
    let mut out = context.out_bytes();
    out.write_all(&script)?;
    out.flush()?;
    Ok(0)
}

pub(in crate::cli) fn man(args: &ManArgs, context: &Context) -> Outcome {
    let place = sys::plain_absolute(&args.directory, &sys::current_dir()?);
    sys::create_private_dir(&place)?;
    let dir = Dir::open(&place)?;
    let mut program = examples::program();
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
