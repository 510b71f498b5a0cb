//! `nono help`: the help of a command, or a page of the documentation.

use std::io::Write;

use clap::Args;
use clap::error::ErrorKind;

use crate::cli::Outcome;
use crate::cli::book::{PAGES, page};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::render::columns;
use crate::cli::render::markdown::write_page;
use nono_engine::path_text::Shown;

/// Cells of a line where stdout is no terminal.
const USUAL_CELLS: usize = 80;

/// Arguments of `nono help`.
#[derive(Debug, Args)]
pub(in crate::cli) struct HelpArgs {
    /// Words of a command, or a page: its name, or its path below docs
    #[arg(value_name = "TOPIC")]
    words: Vec<String>,
}

/// Answers from the program, whose commands are in groups.
pub(in crate::cli) fn run(args: &HelpArgs, program: &clap::Command, context: &Context) -> Outcome {
    if let Some(help) = help_of_command(program, &args.words) {
        // A closed stdout is no reason to complain.
        let _ = help.print();
        return match args.words.as_slice() {
            [] => list_pages(context),
            [word] if page(word).is_some() => {
                let mut out = context.out();
                writeln!(out, "\n`nono help {word}.md` prints the page about it.")?;
                Ok(0)
            }
            _ => Ok(0),
        };
    }
    let found = match args.words.as_slice() {
        [word] => page(word),
        _ => None,
    };
    let Some(found) = found else {
        let named = Shown::bytes(args.words.join(" ").as_bytes()).to_string();
        let error = CliError::usage(format!("there is no command and no page {named:?}"));
        return Err(error.with_hint("`nono help` lists the commands and the pages"));
    };
    context.page();
    let mut out = context.out_long();
    write_page(&mut out, found.text, context.columns().unwrap_or(USUAL_CELLS))?;
    out.flush()?;
    Ok(0)
}

/// The answer of clap to `--help` of a command; `None` if these words are no command.
fn help_of_command(program: &clap::Command, words: &[String]) -> Option<clap::Error> {
    let mut at = program;
    for word in words {
        at = at.find_subcommand(word)?;
    }
    let given = ["nono"].into_iter().chain(words.iter().map(String::as_str)).chain(["--help"]);
    let error = program.clone().try_get_matches_from(given).err()?;
    (error.kind() == ErrorKind::DisplayHelp).then_some(error)
}

fn list_pages(context: &Context) -> Outcome {
    let mut out = context.out_long();
    let width = PAGES.iter().map(|page| page.name().len()).max().unwrap_or(0);
    writeln!(out, "\nPages, for `nono help PAGE`:")?;
    for page in PAGES {
        writeln!(out, "  {}  {}", columns::pad(page.name(), width), page.title())?;
    }
    out.flush()?;
    Ok(0)
}
