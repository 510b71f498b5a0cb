//! The commands in groups, as the help and the manual list them, and the program with its help.
//!
//! Each command that a person sees stands in exactly one group; the first group is for every day.
//! A new command gets its place in [`GROUPS`], and nowhere else. Short help (`-h`) explains the
//! commands of every day and names the others; long help (`--help`) explains all of them.

use clap::CommandFactory;

use super::command_tree::Arguments;
use super::commands::undo::is_subcommand;
use super::examples::with_examples;

/// Commands that are listed together.
#[derive(Debug)]
pub(super) struct Group {
    /// Their heading.
    pub(super) title: &'static str,
    /// Their names behind `nono`, the likeliest first. A build without one of them omits it.
    pub(super) commands: &'static [&'static str],
}

/// All groups, in the order of the help.
pub(super) const GROUPS: &[Group] = &[
    Group {
        title: "Every day",
        commands: &["run", "status", "diff", "undo", "redo", "restore", "steps", "mount"],
    },
    Group {
        title: "Look",
        commands: &[
            "ui", "list", "show", "log", "blame", "grep", "find", "cat", "difftool", "umount",
        ],
    },
    Group { title: "Take back", commands: &["review", "resume"] },
    Group { title: "Record", commands: &["snapshot", "watch", "events", "pin", "unpin"] },
    Group { title: "Agents", commands: &["agent", "mcp", "hook"] },
    Group { title: "Forks", commands: &["fork", "forks", "try", "bisect"] },
    Group { title: "Clean", commands: &["cleanup", "usage", "verify"] },
    Group { title: "Remotes", commands: &["push", "pull", "remote", "archive", "import"] },
    Group { title: "Containers", commands: &["container"] },
    Group { title: "Set up", commands: &["config", "profile", "doctor", "completions", "man"] },
];

/// The older words for commands, which the help of the program mentions and does not list.
const OLDER_WORDS: &str = "rollback";

/// The program: commands in groups, with examples.
pub(super) fn program() -> clap::Command {
    let listed = |command: clap::Command| match command.get_name() {
        OLDER_WORDS => command.hide(true),
        "undo" => command.mut_subcommands(|inner| {
            let is_older = is_subcommand(inner.get_name());
            inner.hide(is_older)
        }),
        _ => command,
    };
    let program = with_examples(Arguments::command().mut_subcommands(listed), "");
    let header = *program.get_styles().get_header();
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{{before-help}}\
         {header}Options:{header:#}\n{{options}}{{after-help}}"
    );
    let (short, long) = (short_list(&program), long_list(&program));
    let examples = program.get_after_help().cloned().unwrap_or_default();
    let more = "`nono COMMAND -h` explains a command, and `nono --help` each of them in a line. \
                `nono man COMMAND` shows a page of the manual, `nono help` lists the pages of \
                the documentation.";
    let older = "`nono COMMAND --help` explains a command, `nono man COMMAND` shows its page of \
                 the manual.\nEach command of `nono rollback` works without that word: `nono diff` \
                 is `nono rollback diff`.";
    program
        .help_template(template)
        .before_help(short)
        .before_long_help(long)
        .after_help(more)
        .after_long_help(format!("{examples}\n\n{older}"))
}

/// The commands of a group that this build has, with what they do.
pub(super) fn commands_of<'a>(
    program: &'a clap::Command,
    group: &Group,
) -> impl Iterator<Item = &'a clap::Command> {
    group.commands.iter().filter_map(|name| program.find_subcommand(name))
}

/// Other commands of the same group, for the end of a page of the manual.
pub(super) fn beside<'a>(program: &'a clap::Command, name: &str) -> Vec<&'a clap::Command> {
    let group = GROUPS.iter().find(|group| group.commands.contains(&name));
    let all = group.into_iter().flat_map(|group| commands_of(program, group));
    all.filter(|command| command.get_name() != name).collect()
}

/// The commands of every day with what they do, and the names of the others.
fn short_list(program: &clap::Command) -> String {
    let Some((daily, others)) = GROUPS.split_first() else { return String::new() };
    let mut list = explained(program, daily);
    let width = others.iter().map(|group| group.title.len()).max().unwrap_or(0);
    let (header, literal) = (program.get_styles().get_header(), program.get_styles().get_literal());
    for group in others {
        let names: Vec<String> = commands_of(program, group)
            .map(|command| format!("{literal}{}{literal:#}", command.get_name()))
            .collect();
        if !names.is_empty() {
            let title = group.title;
            let space = " ".repeat(width - title.len());
            // The line break is within the style. At the end of a style, clap counts columns as
            // if there were no break.
            list.push_str(&format!("{header}\n{title}:{header:#}{space}  {}", names.join(", ")));
        }
    }
    list
}

/// All commands with what they do.
fn long_list(program: &clap::Command) -> String {
    let present = GROUPS.iter().filter(|group| commands_of(program, group).next().is_some());
    let lists: Vec<String> = present.map(|group| explained(program, group)).collect();
    lists.join("\n").trim_end().to_owned()
}

/// A heading, and a line for each command.
fn explained(program: &clap::Command, group: &Group) -> String {
    let (header, literal) = (program.get_styles().get_header(), program.get_styles().get_literal());
    let names = GROUPS.iter().flat_map(|group| group.commands);
    let width = names.map(|name| name.len()).max().unwrap_or(0);
    let mut list = format!("{header}{}:{header:#}\n", group.title);
    for command in commands_of(program, group) {
        let name = command.get_name();
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        list.push_str(&format!("  {literal}{name:width$}{literal:#}  {about}\n"));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Most columns of a line of the help of the program.
    const MAX_COLUMNS: usize = 80;

    fn seen(program: &clap::Command) -> Vec<String> {
        let seen = program.get_subcommands().filter(|command| !command.is_hide_set());
        seen.map(|command| command.get_name().to_owned()).filter(|name| name != "help").collect()
    }

    #[test]
    fn every_command_stands_in_exactly_one_group() {
        let mut program = program();
        program.build();
        let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for group in GROUPS {
            for command in group.commands {
                places.entry(command).or_default().push(group.title);
            }
        }
        for name in seen(&program) {
            let groups = places.remove(name.as_str()).unwrap_or_default();
            assert_eq!(groups.len(), 1, "`nono {name}` stands in {groups:?} of `GROUPS`");
        }
        if cfg!(all(
            feature = "mount",
            feature = "mcp",
            feature = "container",
            feature = "archive",
            feature = "ui"
        )) {
            assert!(places.is_empty(), "no commands: {places:?}");
        }
        assert_eq!(GROUPS[0].commands.len(), 8);
    }

    /// The names in a line: one with its explanation, or those behind the heading of a group.
    fn names(line: &str) -> Vec<String> {
        match line.strip_prefix("  ") {
            Some(row) => row.split(' ').take(1).map(str::to_owned).collect(),
            None => {
                let (_, names) = line.split_once(':').unwrap_or_default();
                let names = names.split(',').map(str::trim);
                names.filter(|name| !name.is_empty()).map(str::to_owned).collect()
            }
        }
    }

    #[test]
    fn both_helps_of_the_program_name_each_command_once_and_the_daily_ones_first() {
        let mut program = program().term_width(MAX_COLUMNS);
        let (short, long) =
            (program.render_help().to_string(), program.render_long_help().to_string());
        let lists = [&short, &long].map(|help| {
            let before = help.split("\nOptions:\n").next().unwrap();
            let lines = before.lines().skip_while(|line| !line.starts_with("Every day:"));
            lines.flat_map(names).collect::<Vec<_>>()
        });
        for (help, list) in [&short, &long].into_iter().zip(&lists) {
            for name in seen(&program) {
                let count = list.iter().filter(|word| **word == name).count();
                assert_eq!(count, 1, "{name} in:\n{help}");
            }
            let daily: Vec<&str> = list.iter().take(8).map(String::as_str).collect();
            assert_eq!(daily, GROUPS[0].commands, "{help}");
            let longest = help.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= MAX_COLUMNS, "{longest} columns:\n{help}");
        }
        let (lines, most) = (short.lines().count(), 40);
        assert!(lines <= most, "{lines} lines:\n{short}");
        assert!(lines < long.lines().count());
        assert!(long.contains("Examples:") && !short.contains("Examples:"), "{short}\n{long}");
    }
}
