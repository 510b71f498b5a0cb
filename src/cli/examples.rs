//! Two examples for each command, shown at the end of its help and on its page of the manual.

/// The title above them.
const TITLE: &str = "Examples:";

/// The examples of a command by its words behind `nono`: each a line, and what that does. A command
/// of `rollback`, and of its older name `undo`, has those of the command without that word.
pub(super) fn examples_of(words: &str) -> Option<&'static [(&'static str, &'static str); 2]> {
    let plain = words.strip_prefix("undo ").or_else(|| words.strip_prefix("rollback "));
    let plain = plain.unwrap_or(words);
    examples().find(|(of, _)| *of == plain).map(|(_, examples)| examples)
}

/// All examples.
fn examples() -> impl Iterator<Item = &'static (&'static str, [(&'static str, &'static str); 2])> {
    EXAMPLES.iter().chain(CONTAINER_EXAMPLES)
}

#[cfg(not(feature = "container"))]
const CONTAINER_EXAMPLES: &[(&str, [(&str, &str); 2])] = &[];

/// Examples of `nono container`.
#[cfg(feature = "container")]
const CONTAINER_EXAMPLES: &[(&str, [(&str, &str); 2])] = &[
    (
        "container snapshot",
        [
            (
                "nono container snapshot web --trigger run_start --run-id 42",
                "at the start of a run of an agent",
            ),
            ("nono container snapshot web --no-image", "its volumes and changed files alone"),
        ],
    ),
    (
        "container list",
        [
            ("nono container list", "all snapshots of containers"),
            ("nono container list web --json", "those of one container, for a program"),
        ],
    ),
    (
        "container show",
        [
            ("nono container show web", "the latest snapshot of the container web"),
            (
                "nono container show 20260214-143022-4711/3 --json",
                "the whole record of one snapshot",
            ),
        ],
    ),
    (
        "container diff",
        [
            ("nono container diff web/2", "from snapshot 2 to the latest one"),
            ("nono container diff web/2 web/5", "between two snapshots"),
        ],
    ),
    (
        "container delete",
        [
            ("nono container delete web/3", "one snapshot, with its image"),
            ("nono container delete web --all", "the whole history of the container"),
        ],
    ),
    (
        "container cleanup",
        [
            ("nono container cleanup --dry-run", "what is over a limit"),
            ("nono container cleanup --max-snapshots 20", "the newest 20 stay"),
        ],
    ),
    (
        "container stats",
        [
            ("nono container stats", "how much space the snapshots take"),
            ("nono container stats --json", "for a program"),
        ],
    ),
    (
        "container validate",
        [
            ("nono container validate", "whether all snapshots can be restored"),
            ("nono container validate web/3", "whether one can"),
        ],
    ),
];

/// Commands by their words behind `nono`; examples with what they do.
const EXAMPLES: &[(&str, [(&str, &str); 2])] = &[
    (
        "",
        [
            ("nono run claude", "an agent that can be undone"),
            ("nono undo", "take back what the last session here did"),
        ],
    ),
    (
        "run",
        [
            ("nono run --profile claude-code claude", "with what it needs"),
            ("nono run --allow src --block-net make", "one directory, no network"),
        ],
    ),
    (
        "snapshot",
        [
            ("nono snapshot", "the current directory, in a new session"),
            ("nono snapshot --session latest", "one more of the last session"),
        ],
    ),
    (
        "watch",
        [
            ("nono watch --detach", "the project around here, in the background"),
            ("nono watch ~/notes ~/shop", "two directories, until Ctrl-C"),
        ],
    ),
    (
        "watch status",
        [
            ("nono watch status", "all watchers, and what they do"),
            ("nono watch status --json", "for a program"),
        ],
    ),
    (
        "watch stop",
        [
            ("nono watch stop", "the watcher of the project around here"),
            ("nono watch stop ~/notes", "of another directory"),
        ],
    ),
    (
        "watch install",
        [
            ("nono watch install", "a unit of systemd for the project around here"),
            ("nono watch install ~/notes --print", "only show it"),
        ],
    ),
    (
        "steps",
        [
            ("nono steps", "what the agent did here, prompt by prompt"),
            ("nono steps latest --json", "for a program"),
        ],
    ),
    (
        "ui",
        [
            ("nono ui", "open the page in a browser"),
            (
                "nono ui latest --export report --hide '.env*'",
                "the last session here as a page for a ticket",
            ),
        ],
    ),
    (
        "hook",
        [
            ("nono hook claude-code", "what the configuration of Claude Code calls"),
            ("nono hook codex --deadline-ms 500", "waits less than usual"),
        ],
    ),
    (
        "fork",
        [
            ("nono fork idea -- claude", "an agent in a fork of the present state"),
            ("nono fork older --from latest/0", "from a recorded state"),
        ],
    ),
    (
        "fork enter",
        [
            ("nono fork enter idea", "a shell in it"),
            ("nono fork enter idea -- make test", "one command in it"),
        ],
    ),
    (
        "fork diff",
        [
            ("nono fork diff idea", "what it changed"),
            ("nono fork diff idea other --stat", "how two forks differ"),
        ],
    ),
    (
        "fork show",
        [
            ("nono fork show idea", "its changes, and what it lacks"),
            ("nono fork show idea --json", "for a program"),
        ],
    ),
    (
        "fork merge",
        [
            ("nono fork merge idea --check 'make test'", "if the merged state passes"),
            ("nono fork merge idea src --dry-run", "what would come of a part"),
        ],
    ),
    (
        "fork rename",
        [
            ("nono fork rename idea better", "another name"),
            ("nono fork rename try-1a2b3c4d idea", "a name for what `nono try` left"),
        ],
    ),
    (
        "fork discard",
        [
            ("nono fork discard idea", "one fork, with its changes"),
            ("nono fork discard a b c", "several"),
        ],
    ),
    (
        "fork snapshot",
        [
            ("nono fork snapshot idea", "a snapshot of its state"),
            ("nono fork snapshot idea -m works", "with a name"),
        ],
    ),
    (
        "fork list",
        [
            ("nono fork list", "all forks, as `nono forks`"),
            ("nono fork list --json", "for a program"),
        ],
    ),
    (
        "forks",
        [
            ("nono forks", "all forks, and where they collide"),
            ("nono forks --json", "for a program"),
        ],
    ),
    (
        "try",
        [
            ("nono try -- npm update", "look at what it does first"),
            ("nono try --discard -- make test", "leave nothing"),
        ],
    ),
    (
        "bisect",
        [
            ("nono bisect -- make test", "since when the tests fail"),
            ("nono bisect --good latest/0 --jobs 4 -- ./check", "four states at once"),
        ],
    ),
    (
        "agent install",
        [
            ("nono agent install", "hooks for all agents that are used here"),
            ("nono agent install codex --mcp --dry-run", "what would change for one"),
        ],
    ),
    (
        "agent uninstall",
        [
            ("nono agent uninstall", "as it was before"),
            ("nono agent uninstall claude-code --project", "of one agent in one project"),
        ],
    ),
    (
        "agent status",
        [
            ("nono agent status", "which agents have hooks"),
            ("nono agent status --json", "for a program"),
        ],
    ),
    (
        "mount",
        [
            ("nono mount", "all sessions at ~/snapshots"),
            ("nono mount /mnt/past --session latest", "one session elsewhere"),
        ],
    ),
    (
        "umount",
        [
            ("nono umount ~/snapshots", "take the usual mount away"),
            ("nono umount /mnt/past", "take another one away"),
        ],
    ),
    (
        "log",
        [
            ("nono log", "what the sessions here changed"),
            ("nono log -p src/main.rs", "each version of a file, with what it changed"),
        ],
    ),
    (
        "blame",
        [
            ("nono blame src/main.rs:10,20", "who wrote these lines"),
            ("nono blame src/main.rs --at yesterday", "the file as it was when yesterday ended"),
        ],
    ),
    (
        "grep",
        [
            ("nono grep -w TODO src", "every recorded line with this word, also of what is gone"),
            ("nono grep -l --all API_KEY", "the files that ever had it, in the whole store"),
        ],
    ),
    (
        "difftool",
        [
            ("nono difftool --tool meld", "what the last session changed, in meld"),
            ("nono difftool now src/main.rs", "a file since the last snapshot, in git's diff.tool"),
        ],
    ),
    (
        "events",
        [
            ("nono events", "all facts of the store"),
            ("nono events --follow", "the same, and each new one as it happens"),
        ],
    ),
    #[cfg(feature = "archive")]
    (
        "archive create",
        [
            ("nono archive create latest -o state.tar.zst.age -r age1...", "one file, encrypted"),
            (
                "nono archive create latest -o next.tar.zst --parent state.tar.zst",
                "what changed since",
            ),
        ],
    ),
    #[cfg(feature = "archive")]
    (
        "archive show",
        [
            ("nono archive show state.tar.zst.age -i key.txt", "what is in it"),
            ("nono archive show state.tar.zst --json", "for a program"),
        ],
    ),
    #[cfg(feature = "archive")]
    (
        "archive verify",
        [
            ("nono archive verify state.tar.zst.age -i key.txt", "every byte"),
            ("nono archive verify state.tar.zst --json", "for a program"),
        ],
    ),
    #[cfg(feature = "archive")]
    (
        "archive import",
        [
            ("nono archive import state.tar.zst", "a session of it"),
            ("nono archive import state.tar.zst next.tar.zst", "a full one, and what came later"),
        ],
    ),
    #[cfg(feature = "archive")]
    (
        "push",
        [
            ("nono push", "the last session here, to the only remote"),
            ("nono push backup --all", "all sessions, to one remote"),
        ],
    ),
    #[cfg(feature = "archive")]
    (
        "pull",
        [
            ("nono pull backup --all --identity key.txt", "everything, on a new machine"),
            ("nono pull backup 20260214-143022-12345/1", "one snapshot, and what it needs"),
        ],
    ),
    #[cfg(feature = "archive")]
    (
        "remote add",
        [
            ("nono remote add backup s3://bucket/nono --recipient age1...", "a bucket"),
            ("nono remote add usb /mnt/usb/nono --passphrase-file ~/.nono-pass", "a disk"),
        ],
    ),
    #[cfg(feature = "archive")]
    (
        "remote list",
        [
            ("nono remote list", "names, places, encryption"),
            ("nono remote list --json", "for a program"),
        ],
    ),
    #[cfg(feature = "archive")]
    (
        "remote show",
        [
            ("nono remote show backup", "sessions and snapshots there"),
            ("nono remote show s3://bucket/nono --json", "a place without a name"),
        ],
    ),
    #[cfg(feature = "archive")]
    (
        "remote remove",
        [
            ("nono remote remove backup", "forget the name; the archives stay"),
            ("nono remote remove usb --quiet", "say nothing"),
        ],
    ),
    #[cfg(feature = "archive")]
    (
        "remote verify",
        [
            ("nono remote verify backup --identity key.txt", "every archive"),
            ("nono remote verify backup --identity key.txt --remove-damaged", "mend the remote"),
        ],
    ),
    #[cfg(feature = "archive")]
    (
        "remote cleanup",
        [
            ("nono remote cleanup backup --keep 5", "the five newest snapshots of each session"),
            ("nono remote cleanup backup --keep-sessions 20 --dry-run", "what would go"),
        ],
    ),
    (
        "import",
        [
            ("nono import", "all sessions of the other nono, from where it keeps them"),
            ("nono import /backup/rollbacks/852ea2e914272a29", "one session"),
        ],
    ),
    #[cfg(feature = "container")]
    (
        "container restore",
        [
            ("nono container restore web", "the latest snapshot, in a new container"),
            ("nono container restore web/3 --replace", "in the place of the original"),
        ],
    ),
    #[cfg(feature = "container")]
    (
        "container resume",
        [
            ("nono container resume", "finish what was interrupted"),
            ("nono container resume web --abort", "bring the original back"),
        ],
    ),
    (
        "profile list",
        [("nono profile list", "all profiles"), ("nono profile list --json", "for a program")],
    ),
    (
        "profile show",
        [
            ("nono profile show claude-code", "what it grants"),
            ("nono profile show ./mine.toml", "of a file"),
        ],
    ),
    (
        "profile check",
        [
            ("nono profile check", "all profiles of yours"),
            ("nono profile check ./mine.toml", "one before it is put in its place"),
        ],
    ),
    (
        "config show",
        [
            ("nono config show", "each setting, and where it comes from"),
            ("nono config show --json", "for a program"),
        ],
    ),
    (
        "config get",
        [
            ("nono config get max_sessions", "the value alone"),
            ("nono config get max_sessions --json", "with its origin"),
        ],
    ),
    (
        "config unset",
        [
            ("nono config unset max_sessions", "the default holds again"),
            ("nono config unset containers.max_age_days", "of the table for containers"),
        ],
    ),
    (
        "config set",
        [
            ("nono config set max_sessions 30", "keep more of each project"),
            ("nono config set ignored all", "record all that git ignores"),
        ],
    ),
    (
        "config edit",
        [
            ("nono config edit", "in $VISUAL or $EDITOR"),
            ("nono config edit --color never", "without colours"),
        ],
    ),
    (
        "undo",
        [
            ("nono undo", "take back what the last session here did"),
            ("nono undo --yes src", "of one directory, without a question"),
        ],
    ),
    (
        "redo",
        [("nono redo", "take the last undo back"), ("nono redo --dry-run", "say what it would do")],
    ),
    (
        "status",
        [
            ("nono status", "the last session here, and what is different since"),
            ("nono status --json", "for a program"),
        ],
    ),
    (
        "pin",
        [
            ("nono pin latest", "keep the last session here"),
            ("nono pin 20260214-143022-12345", "keep another one"),
        ],
    ),
    (
        "unpin",
        [
            ("nono unpin latest", "let the last session here go"),
            ("nono unpin 20260214-143022-12345", "let another one go"),
        ],
    ),
    (
        "usage",
        [("nono usage", "bytes by project and session"), ("nono usage --json", "for a program")],
    ),
    (
        "doctor",
        [
            ("nono doctor", "what works here, and what mends the rest"),
            ("nono doctor --json", "for a program"),
        ],
    ),
    (
        "mcp",
        [
            ("nono mcp", "what an agent starts: tools to look at the past and to restore"),
            ("nono mcp --no-restore", "tools to look, and none to restore"),
        ],
    ),
    (
        "completions",
        [
            ("nono completions bash > ~/.local/share/bash-completion/completions/nono", "for bash"),
            ("nono completions fish > ~/.config/fish/completions/nono.fish", "for fish"),
        ],
    ),
    (
        "man",
        [
            ("nono man ~/.local/share/man/man1", "where `man nono` finds it"),
            ("nono man ./man1", "into this directory"),
        ],
    ),
    (
        "list",
        [
            ("nono list", "the newest sessions of each project"),
            ("nono list --path .", "those of this project"),
        ],
    ),
    (
        "show",
        [
            ("nono show latest", "what the last session changed"),
            ("nono show latest --diff", "the same, line by line"),
        ],
    ),
    (
        "review",
        [
            ("nono review", "the last session"),
            ("nono review latest/2", "what its snapshot 2 changed"),
        ],
    ),
    (
        "diff",
        [
            ("nono diff --stat", "the last session, file by file"),
            ("nono diff latest now -- src", "what is different in src since its baseline"),
        ],
    ),
    (
        "find",
        [
            ("nono find '*.sqlite'", "by name, in the sessions here"),
            ("nono find --all 'src/**/*.rs'", "by path, in the whole store"),
        ],
    ),
    (
        "restore",
        [
            ("nono restore latest --dry-run", "what would be undone"),
            ("nono restore latest/1 src/main.rs", "one file, as snapshot 1 has it"),
        ],
    ),
    (
        "cat",
        [
            ("nono cat latest src/main.rs", "as it was before the command"),
            ("nono cat latest/1 src/main.rs", "as it was after"),
        ],
    ),
    (
        "resume",
        [
            ("nono resume", "finish a restore that was interrupted"),
            ("nono resume --abort", "take it back"),
        ],
    ),
    (
        "verify",
        [
            ("nono verify latest", "every byte of the last session"),
            ("nono verify --all --repair", "mend what can be mended"),
        ],
    ),
    (
        "cleanup",
        [
            ("nono cleanup --dry-run", "what is over the limits"),
            ("nono cleanup --keep 3 --yes", "all but the newest three"),
        ],
    ),
];

/// A command with its examples, and all commands below it with theirs.
pub(super) fn with_examples(command: clap::Command, words: &str) -> clap::Command {
    let command = match examples_of(words) {
        Some(examples) => command.after_help(text(examples)),
        None => command,
    };
    command.mut_subcommands(|inner| {
        let words = format!("{words} {}", inner.get_name());
        with_examples(inner, words.trim_start())
    })
}

fn text(examples: &[(&str, &str); 2]) -> String {
    let mut text = TITLE.to_owned();
    for (line, what) in examples {
        text.push_str(&format!("\n  {line}\n      {what}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::groups::program;

    /// All commands that a person sees and can run, by their words.
    fn visible(command: &clap::Command, words: &str, found: &mut Vec<String>) {
        let inner = command.get_subcommands().filter(|inner| !inner.is_hide_set());
        let inner: Vec<_> = inner.filter(|inner| inner.get_name() != "help").collect();
        // Some commands with subcommands also work without one.
        let works_alone = !words.is_empty() && !command.is_subcommand_required_set();
        if inner.is_empty() || works_alone {
            found.push(words.to_owned());
        }
        for inner in inner {
            let words = format!("{words} {}", inner.get_name());
            visible(inner, words.trim_start(), found);
        }
    }

    #[test]
    fn every_command_has_examples_that_it_understands() {
        let mut commands = Vec::new();
        visible(&program(), "", &mut commands);
        for words in &commands {
            assert!(examples().any(|(of, _)| of == words), "no examples of {words:?}");
        }
        for (words, examples) in examples() {
            assert!(words.is_empty() || commands.iter().any(|of| of == words), "{words:?}");
            for (line, _) in examples {
                let typed = line.split('>').next().unwrap_or_default();
                let typed = typed.split_whitespace().map(|word| word.trim_matches('\''));
                let begins = format!("nono {words}");
                assert!(line.starts_with(begins.trim_end()), "{line}");
                program().try_get_matches_from(typed).unwrap_or_else(|e| panic!("{line}: {e}"));
            }
        }
    }

    #[test]
    fn global_options_come_last_and_the_store_at_their_end() {
        let mut program = program();
        program.build();
        let run = program.find_subcommand_mut("run").unwrap();
        let help = run.render_help().to_string();
        let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text:?} in\n{help}"));
        let order = [
            "Options:",
            "What the command may do:",
            "What is recorded:",
            "How much is kept:",
            "Report:",
            "Global options:",
            "--quiet",
            "--root",
            "Examples:",
        ];
        let threads = at("--threads");
        assert!(threads < at("What the command may do:"), "{help}");
        for pair in order.windows(2) {
            assert!(at(pair[0]) < at(pair[1]), "{pair:?} in\n{help}");
        }
        for limit in ["--max-sessions", "--max-storage-gb", "--max-age-days", "--max-entries"] {
            let text = &help[at(limit)..];
            let text = &text[..text.find("\n      --").unwrap_or(text.len())];
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains("0 is no limit"), "{text}");
        }
    }
}
