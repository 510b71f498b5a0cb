//! The commands that a command starts, as far as its words say: `env X=1 claude`, `timeout 60
//! claude`, `sh -c 'cd web && claude'`.
//!
//! Programs that only start another one are known by name, with their options. A script after `-c`
//! is split at the shell's operators; nothing in it is expanded, so a word with a variable names no
//! program. A miss costs a hint or the grant of one program's own file, never a wall.

use std::ffi::OsString;
use std::path::Path;

/// Maximum number of commands that are looked at.
const MAX_COMMANDS: usize = 64;
/// A longer script is not looked at.
const MAX_SCRIPT_BYTES: usize = 64 << 10;

const SHELLS: [&str; 8] = ["sh", "ash", "bash", "dash", "fish", "ksh", "mksh", "zsh"];
/// Words of a shell before a command.
const KEYWORDS: [&str; 10] =
    ["!", "{", "do", "elif", "else", "if", "then", "time", "until", "while"];

/// A program that starts another one.
struct Starter {
    name: &'static str,
    /// Options whose value is the next word.
    with_value: &'static [&'static str],
    /// Options with which it starts nothing.
    idle: &'static [&'static str],
    /// Words of its own before the command.
    own_words: usize,
    /// Whether `NAME=value` stands before the command.
    takes_variables: bool,
}

impl Starter {
    const fn new(name: &'static str, with_value: &'static [&'static str]) -> Self {
        Self { name, with_value, idle: &[], own_words: 0, takes_variables: false }
    }
}

const STARTERS: [Starter; 10] = [
    Starter {
        takes_variables: true,
        ..Starter::new("env", &["-u", "--unset", "-C", "--chdir", "-S", "--split-string"])
    },
    Starter { own_words: 1, ..Starter::new("timeout", &["-k", "--kill-after", "-s", "--signal"]) },
    Starter::new("nice", &["-n", "--adjustment"]),
    Starter::new("ionice", &["-c", "--class", "-n", "--classdata"]),
    Starter::new("nohup", &[]),
    Starter::new("setsid", &[]),
    Starter::new("stdbuf", &["-i", "--input", "-o", "--output", "-e", "--error"]),
    Starter::new("time", &["-f", "--format", "-o", "--output"]),
    Starter::new("exec", &["-a"]),
    Starter { idle: &["-v", "-V"], ..Starter::new("command", &[]) },
];

/// A command, and the commands that its words name, the outermost first.
pub(super) fn inner_commands(command: &[OsString]) -> Vec<Vec<OsString>> {
    let mut found: Vec<Vec<OsString>> = Vec::new();
    if !command.is_empty() {
        found.push(command.to_vec());
    }
    let mut next = 0;
    while next < found.len() && found.len() < MAX_COMMANDS {
        let inner = started_by(&found[next]);
        found.extend(inner);
        next += 1;
    }
    found.truncate(MAX_COMMANDS);
    found
}

/// The name of a command's program, without its directory.
pub(super) fn program_name(command: &[OsString]) -> Option<&str> {
    Path::new(command.first()?).file_name()?.to_str()
}

fn started_by(command: &[OsString]) -> Vec<Vec<OsString>> {
    let (Some(name), [_, words @ ..]) = (program_name(command), command) else { return Vec::new() };
    if SHELLS.contains(&name) {
        return script_of(words).map(script_commands).unwrap_or_default();
    }
    if name.starts_with("python") {
        let module = words.iter().position(|word| word == "-m").map(|at| words[at + 1..].to_vec());
        return module.filter(|module| !module.is_empty()).into_iter().collect();
    }
    let starter = STARTERS.iter().find(|starter| starter.name == name);
    let inner = starter.map(|starter| after_starter(starter, words)).unwrap_or_default();
    if inner.is_empty() { Vec::new() } else { vec![inner.to_vec()] }
}

/// The rest of a starter's words that is a command.
fn after_starter<'a>(starter: &Starter, mut words: &'a [OsString]) -> &'a [OsString] {
    let mut own_words = starter.own_words;
    let mut has_options = true;
    while let [word, rest @ ..] = words {
        let text = word.to_str().unwrap_or_default();
        if has_options && starter.idle.contains(&text) {
            return &[];
        }
        words = match text {
            "--" if has_options => {
                has_options = false;
                rest
            }
            _ if has_options && starter.with_value.contains(&text) => rest.get(1..).unwrap_or(&[]),
            _ if has_options && text.len() > 1 && text.starts_with('-') => rest,
            _ if starter.takes_variables && is_assignment(text) => rest,
            _ if own_words > 0 => {
                own_words -= 1;
                rest
            }
            _ => return words,
        };
    }
    &[]
}

/// The script of a shell's `-c`, also of `-lc`.
fn script_of(words: &[OsString]) -> Option<&str> {
    let mut is_script = false;
    let mut words = words.iter().map(|word| word.to_str().unwrap_or_default());
    while let Some(word) = words.next() {
        match word {
            "-o" | "+o" | "-O" | "+O" => {
                words.next();
            }
            _ if word.starts_with("--") => {}
            _ if word.len() > 1 && word.starts_with(['-', '+']) => is_script |= word.contains('c'),
            _ if is_script => return Some(word),
            // A script that is a file.
            _ => return None,
        }
    }
    None
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        !name.is_empty() && name.bytes().all(is_plain)
    })
}

/// The simple commands of a script, with their words as they would be without expansion.
fn script_commands(script: &str) -> Vec<Vec<OsString>> {
    let mut reader = ScriptReader::default();
    if script.len() > MAX_SCRIPT_BYTES {
        return Vec::new();
    }
    let mut chars = script.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' => {
                let quoted = chars.by_ref().take_while(|c| *c != '\'').collect::<String>();
                reader.word().push_str(&quoted);
            }
            '"' => {
                reader.word();
                while let Some(c) = chars.next().filter(|c| *c != '"') {
                    let is_escape =
                        c == '\\' && matches!(chars.peek(), Some('"' | '\\' | '$' | '`'));
                    let c = if is_escape { chars.next() } else { Some(c) };
                    reader.word().extend(c);
                }
            }
            '\\' => match chars.next() {
                None | Some('\n') => {}
                Some(c) => reader.word().push(c),
            },
            '#' if reader.word.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            '<' | '>' => {
                reader.end_before_redirection();
                while chars.next_if(|c| "<>&|".contains(*c)).is_some() {}
            }
            ' ' | '\t' => reader.end_word(),
            ';' | '&' | '|' | '(' | ')' | '\n' => reader.end_command(),
            _ => reader.word().push(c),
        }
        if reader.commands.len() == MAX_COMMANDS {
            break;
        }
    }
    reader.end_command();
    reader.commands
}

#[derive(Default)]
struct ScriptReader {
    commands: Vec<Vec<OsString>>,
    words: Vec<OsString>,
    word: Option<String>,
    /// Whether the next word is the file of a redirection.
    is_redirected: bool,
}

impl ScriptReader {
    fn word(&mut self) -> &mut String {
        self.word.get_or_insert_default()
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        let is_before_command =
            self.words.is_empty() && (is_assignment(&word) || KEYWORDS.contains(&&*word));
        if !std::mem::take(&mut self.is_redirected) && !is_before_command {
            self.words.push(word.into());
        }
    }

    /// The digits before a redirection are no word.
    fn end_before_redirection(&mut self) {
        let is_number = |word: &String| word.bytes().all(|byte| byte.is_ascii_digit());
        self.word = self.word.take().filter(|word| !is_number(word));
        self.end_word();
        self.is_redirected = true;
    }

    fn end_command(&mut self) {
        self.end_word();
        self.is_redirected = false;
        if !self.words.is_empty() {
            self.commands.push(std::mem::take(&mut self.words));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    /// The innermost command.
    fn last(command: &[&str]) -> Vec<OsString> {
        inner_commands(&words(command)).pop().unwrap_or_default()
    }

    #[test]
    fn programs_that_start_another_one_are_looked_through() {
        let claude = words(&["claude", "-p", "x"]);
        for before in [
            &[][..],
            &["env"],
            &["env", "-i", "-u", "A", "X=1", "Y="],
            &["/usr/bin/env", "--", "X=1"],
            &["timeout", "60"],
            &["timeout", "-k", "5", "--signal=TERM", "60"],
            &["nice", "-n", "5", "env", "X=1", "timeout", "1m"],
            &["nohup"],
            &["stdbuf", "-oL", "setsid", "-w"],
        ] {
            assert_eq!(last(&[before, &["claude", "-p", "x"]].concat()), claude, "{before:?}");
        }
        assert_eq!(last(&["python3", "-m", "pip", "install"]), words(&["pip", "install"]));
        assert_eq!(inner_commands(&words(&["command", "-v", "claude"])).len(), 1);
        assert_eq!(inner_commands(&words(&["env"])).len(), 1);
        assert_eq!(inner_commands(&[]).len(), 0);
    }

    #[test]
    fn a_script_is_split_into_its_commands() {
        let all = |script: &str| -> Vec<Vec<OsString>> {
            inner_commands(&words(&["bash", "-lc", script])).split_off(1)
        };
        assert_eq!(all("claude"), [words(&["claude"])]);
        assert_eq!(
            all(
                "cd web && X=1 npm ci 2>&1 >log | tee 'a b' # claude\nif ! exec claude; then :; fi"
            ),
            [
                words(&["cd", "web"]),
                words(&["npm", "ci"]),
                words(&["tee", "a b"]),
                words(&["exec", "claude"]),
                words(&[":"]),
                words(&["fi"]),
                words(&["claude"]),
            ]
        );
        assert_eq!(all("sh -c \"env A=1 \\\"claude\\\"\"").pop(), Some(words(&["claude"])));
        assert_eq!(inner_commands(&words(&["sh", "claude"])).len(), 1, "a script in a file");
        assert_eq!(all(&"x;".repeat(1000)).len(), MAX_COMMANDS - 1);
        assert_eq!(all("'").len(), 1);
    }
}
