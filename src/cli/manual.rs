//! The manual: a page for each command, from the one definition of the arguments.
//!
//! `clap_mangen` writes what clap knows: name, synopsis, description, options. This module adds
//! EXIT STATUS, ENVIRONMENT, FILES, EXAMPLES and SEE ALSO, and lists commands in groups. A page is
//! the same at every time and on every machine, so a package can hold it.

use std::io;

use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use super::examples::examples_of;
use super::groups::{GROUPS, beside, commands_of};

/// Section of the manual: programs.
const SECTION: &str = "1";
/// Name of the program, and of its page.
const NONO: &str = "nono";
/// Commands before whose subcommands the word can be left out: these have pages without the word.
const OLDER_WORDS: [&str; 2] = ["rollback", "undo"];
/// Commands whose output a pager shows.
const PAGED: [&str; 6] = ["log", "diff", "find", "list", "show", "steps"];

/// A page of the manual.
#[derive(Debug)]
pub(super) struct Page {
    /// Name without the section: `nono-diff`.
    pub(super) name: String,
    /// Its source.
    pub(super) text: Vec<u8>,
}

/// All pages, from a program that is built.
///
/// # Errors
/// When a page cannot be rendered.
pub(super) fn pages(program: &clap::Command) -> io::Result<Vec<Page>> {
    let mut pages = Vec::new();
    add(program, program, &[], &mut pages)?;
    Ok(pages)
}

fn add(
    program: &clap::Command,
    command: &clap::Command,
    words: &[&str],
    pages: &mut Vec<Page>,
) -> io::Result<()> {
    pages.push(Page { name: page_name(words), text: render(program, command, words)? });
    if words.first().is_some_and(|word| OLDER_WORDS.contains(word)) {
        return Ok(());
    }
    for inner in command.get_subcommands().filter(|inner| has_page(inner)) {
        add(program, inner, &[words, &[inner.get_name()]].concat(), pages)?;
    }
    Ok(())
}

fn has_page(command: &clap::Command) -> bool {
    let name = command.get_name();
    name != "help" && !name.starts_with("__")
}

/// Name of the page of a command by its words behind `nono`.
pub(super) fn page_name(words: &[&str]) -> String {
    let plain = match words {
        [older, inner @ ..] if OLDER_WORDS.contains(older) && !inner.is_empty() => inner,
        words => words,
    };
    [&[NONO], plain].concat().join("-")
}

fn render(program: &clap::Command, command: &clap::Command, words: &[&str]) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let version = program.get_version().unwrap_or_default();
    let titled = command.clone().bin_name([&[NONO], words].concat().join(" "));
    let man = Man::new(titled)
        .title(page_name(words).to_uppercase())
        // No date, in a form that keeps its place.
        .date("\"\"")
        .source(format!("{NONO} {version}"))
        .manual("Manual of nono");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    let mut roff = Roff::new();
    synopsis(&mut roff, command, words);
    roff.to_writer(&mut page)?;
    man.render_description_section(&mut page)?;
    let mut roff = Roff::new();
    commands(&mut roff, program, command, words);
    roff.to_writer(&mut page)?;
    man.render_options_section(&mut page)?;
    let mut roff = Roff::new();
    section(&mut roff, "EXIT STATUS", exit_status(words));
    section(&mut roff, "ENVIRONMENT", environment(command, words));
    section(&mut roff, "FILES", files(words));
    section(&mut roff, "EXAMPLES", examples(command, words));
    see_also(&mut roff, program, command, words);
    roff.to_writer(&mut page)?;
    Ok(page)
}

/// The form of the command: its options with the names of their values, and its words. Options of
/// every command stand in OPTIONS alone.
fn synopsis(roff: &mut Roff, command: &clap::Command, words: &[&str]) {
    roff.control("SH", ["SYNOPSIS"]);
    let mut line = vec![bold([&[NONO], words].concat().join(" "))];
    let is_own = |arg: &&clap::Arg| {
        let is_help = matches!(arg.get_id().as_str(), "help" | "version");
        !arg.is_hide_set() && !arg.is_global_set() && !is_help
    };
    let options = command.get_arguments().filter(is_own).filter(|arg| !arg.is_positional());
    for arg in options {
        line.push(roman(if arg.is_required_set() { " " } else { " [" }));
        line.push(bold(match (arg.get_long(), arg.get_short()) {
            (Some(long), _) => format!("--{long}"),
            (None, short) => short.map(|short| format!("-{short}")).unwrap_or_default(),
        }));
        if arg.get_action().takes_values() {
            line.push(roman(" "));
            line.push(italic(value_name(arg)));
        }
        let end = if arg.is_required_set() { "" } else { "]" };
        line.push(roman(format!("{end}{}", dots(arg))));
    }
    if words.is_empty() {
        line.push(roman(" ["));
        line.push(italic("OPTIONS"));
        line.push(roman("]"));
    }
    for arg in command.get_positionals().filter(is_own) {
        let begin = if arg.is_last_set() { " -- " } else { " " };
        let (open, close) = if arg.is_required_set() { ("", "") } else { ("[", "]") };
        line.push(roman(format!("{begin}{open}")));
        line.push(italic(value_name(arg)));
        line.push(roman(format!("{close}{}", dots(arg))));
    }
    let mut inner = command.get_subcommands().filter(|inner| has_page(inner));
    if words != ["undo"] && inner.next().is_some() {
        line.push(roman(" "));
        line.push(italic("COMMAND"));
    }
    // A broken option is no option.
    roff.control("nh", []);
    roff.text(line);
    roff.control("hy", []);
}

/// The name of the value of an argument, as the help has it.
fn value_name(arg: &clap::Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    if names.is_empty() { arg.get_id().as_str().to_uppercase() } else { names.join(" ") }
}

/// Behind an argument that may come several times.
fn dots(arg: &clap::Arg) -> &'static str {
    let is_list = arg.get_num_args().is_some_and(|count| count.max_values() > 1);
    match arg.get_action() {
        clap::ArgAction::Append => "...",
        _ if is_list => "...",
        _ => "",
    }
}

/// A heading, and paragraphs with a tag each.
fn section<T: Into<String>>(
    roff: &mut Roff,
    title: &str,
    rows: impl IntoIterator<Item = (Inline, T)>,
) {
    let mut rows = rows.into_iter().peekable();
    if rows.peek().is_some() {
        roff.control("SH", [title]);
    }
    for (tag, text) in rows {
        roff.control("TP", []);
        roff.text([tag]);
        roff.text([roman(text)]);
    }
}

/// The list of the commands below a command; those of the program in their groups.
fn commands(roff: &mut Roff, program: &clap::Command, command: &clap::Command, words: &[&str]) {
    let row = |roff: &mut Roff, inner: &clap::Command| {
        let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
        let name = page_name(&[words, &[inner.get_name()]].concat());
        roff.control("TP", []);
        roff.text([bold(name), roman(format!("({SECTION})"))]);
        roff.text([roman(about)]);
    };
    if words.is_empty() {
        roff.control("SH", ["COMMANDS"]);
        for group in GROUPS {
            let mut commands = commands_of(program, group).peekable();
            if commands.peek().is_some() {
                roff.control("SS", [group.title]);
            }
            commands.for_each(|inner| row(roff, inner));
        }
        return;
    }
    let mut inner = command.get_subcommands().filter(|inner| has_page(inner)).peekable();
    if words != ["undo"] && inner.peek().is_some() {
        roff.control("SH", ["COMMANDS"]);
        inner.for_each(|inner| row(roff, inner));
    }
}

fn exit_status(words: &[&str]) -> Vec<(Inline, &'static str)> {
    let first = words.first().copied().unwrap_or_default();
    let (done, partly) = match first {
        "undo" | "redo" | "restore" | "resume" | "review" => (
            "The requested state is the state on the disk.",
            "Nothing was changed, or a path is not in the requested state. The output names it.",
        ),
        "verify" => ("Every checked byte is right.", "The check found a problem, or failed."),
        "doctor" => ("Nothing is wrong.", "Something is wrong. The output says what mends it."),
        "run" => (
            "The command ended with 0.",
            "The command ended with 1, or nono failed. The output says which of both.",
        ),
        _ => ("Done.", "The command failed, found a problem, or did only a part."),
    };
    if first == "hook" {
        return vec![(bold("0"), "Always: the agent must not notice a failure.")];
    }
    let mut rows = vec![
        (bold("0"), done),
        (bold("1"), partly),
        (bold("2"), "The usage is wrong, or there is no terminal for a question."),
    ];
    match first {
        "run" => {
            rows.push((italic("N"), "The exit code of the command."));
            rows.push((italic("128+N"), "Signal N ended the command."));
        }
        _ => rows.push((bold("130"), "Ctrl-C ended the work, and nothing was changed by halves.")),
    }
    rows
}

/// Variables that stand for options, and those that the command reads besides.
fn environment(command: &clap::Command, words: &[&str]) -> Vec<(Inline, String)> {
    let mut rows = Vec::new();
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string);
        let help = help.unwrap_or_default();
        let written = help.split_once("[env: ").and_then(|(_, rest)| rest.split_once(']'));
        let named = arg.get_env().map(|name| name.to_string_lossy().into_owned());
        let name = named.or(written.map(|(name, _)| name.to_owned()));
        if let (Some(name), Some(option)) = (name, arg.get_long()) {
            rows.push((bold(name), format!("The value of --{option}, where that is not given.")));
        }
    }
    let first = words.first().copied().unwrap_or_default();
    let mut add = |name: &str, text: &str| rows.push((bold(name), text.to_owned()));
    if first == "run" {
        add("NONO_RECORD", "If false, the run records nothing without --rollback.");
    }
    if words.is_empty() || PAGED.contains(&first) {
        let text = "The pager, in this order. The value cat, or an empty one, is none.";
        add("NONO_PAGER, PAGER", text);
    }
    if words == ["config", "edit"] {
        add("VISUAL, EDITOR", "The editor, in this order.");
    }
    add("NO_COLOR", "If it is set, there are no colours without --color always.");
    add("NONO_LOG", "The level of the log, such as debug.");
    rows
}

fn files(words: &[&str]) -> Vec<(Inline, &'static str)> {
    let first = words.first().copied().unwrap_or_default();
    let mut rows = vec![
        (italic("~/.nono/rollbacks"), "The store: all sessions, without --root and NONO_ROOT."),
        (italic("~/.config/nono/config.toml"), "The settings. XDG_CONFIG_HOME moves them."),
    ];
    if words.is_empty() || ["run", "profile", "snapshot"].contains(&first) {
        rows.push((italic("~/.config/nono/profiles"), "Your own profiles, a file for each."));
    }
    if words.is_empty() || ["mount", "umount"].contains(&first) {
        rows.push((italic("~/snapshots"), "The usual place of a mount."));
    }
    if words.is_empty() || first == "man" {
        let text = "The installed pages; PREFIX is the directory above that of the program.";
        rows.push((italic("PREFIX/share/man/man1"), text));
    }
    rows
}

/// The examples of a command; of a group of commands, the first of each of them.
fn examples(command: &clap::Command, words: &[&str]) -> Vec<(Inline, &'static str)> {
    let own = examples_of(&words.join(" ")).into_iter().flatten().copied();
    let inner = command.get_subcommands().filter(|inner| has_page(inner));
    let first = |inner: &clap::Command| {
        let words = [words, &[inner.get_name()]].concat().join(" ");
        examples_of(&words).and_then(|examples| examples.first()).copied()
    };
    let mut rows: Vec<_> = own.collect();
    if rows.is_empty() {
        rows.extend(inner.filter_map(first));
    }
    rows.into_iter().map(|(line, what)| (bold(line), what)).collect()
}

/// The page above, and those of the same group.
fn see_also(roff: &mut Roff, program: &clap::Command, command: &clap::Command, words: &[&str]) {
    let names = match words {
        [] => return,
        [word] => {
            let beside = beside(program, word).into_iter().map(clap::Command::get_name);
            let inner = command.get_subcommands().filter(|inner| has_page(inner));
            let is_older = *word == OLDER_WORDS[0];
            let inner = inner.filter(|_| is_older).map(clap::Command::get_name);
            let mut names = vec![NONO.to_owned()];
            names.extend(beside.chain(inner).map(|name| page_name(&[name])));
            names
        }
        [above @ .., own] => {
            let parent = above.iter().try_fold(program, |at, word| at.find_subcommand(word));
            let beside = parent.into_iter().flat_map(clap::Command::get_subcommands);
            let beside = beside.filter(|inner| has_page(inner) && inner.get_name() != *own);
            let mut names = vec![NONO.to_owned(), page_name(above)];
            names.extend(beside.map(|inner| page_name(&[above, &[inner.get_name()]].concat())));
            names
        }
    };
    roff.control("SH", ["SEE ALSO"]);
    let mut line = Vec::new();
    for name in names {
        if !line.is_empty() {
            line.push(roman(", "));
        }
        line.extend([bold(name), roman(format!("({SECTION})"))]);
    }
    roff.text(line);
}
