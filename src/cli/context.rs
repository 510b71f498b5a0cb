//! The terminal: who reads the output, and what may be shown there.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

use anstream::{AutoStream, StripStream};
use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::error::CliError;
use super::shell_word::shell_word;
use crate::path_text::moves_text;

/// Owns stdout and stderr.
#[derive(Debug)]
pub(super) struct Context {
    /// Whether a person sees stdout.
    pub(super) stdout_is_terminal: bool,
    /// Whether a person sees stderr.
    pub(super) stderr_is_terminal: bool,
    /// Whether somebody can answer a question.
    pub(super) stdin_is_terminal: bool,
    /// What names the store in commands that are offered, if this one names it by a flag.
    store_flag: Option<String>,
}

/// How commands that need a store begin where they are offered.
const OFFERED: [&str; 4] = ["nono rollback ", "nono undo", "nono redo", "nono status"];

pub(super) const BOLD: Style = Style::new().bold();
pub(super) const DIM: Style = Style::new().dimmed();
pub(super) const GREEN: Style = AnsiColor::Green.on_default();
pub(super) const YELLOW: Style = AnsiColor::Yellow.on_default();
pub(super) const RED: Style = AnsiColor::Red.on_default();

impl Context {
    pub(super) fn new() -> Self {
        Self {
            stdout_is_terminal: io::stdout().is_terminal(),
            stderr_is_terminal: io::stderr().is_terminal(),
            stdin_is_terminal: io::stdin().is_terminal(),
            store_flag: None,
        }
    }

    /// Names a store in all commands that are offered: without its flag they would mean another
    /// one.
    pub(super) fn name_store(&mut self, root: &Path) {
        self.store_flag = shell_word(root).map(|root| format!("nono --root {root} "));
    }

    /// What is said, with commands as they have to be typed.
    fn offered(&self, text: impl std::fmt::Display) -> String {
        let text = text.to_string();
        match &self.store_flag {
            Some(flag) => OFFERED.iter().fold(text, |text, offered| {
                text.replace(offered, &offered.replacen("nono ", flag, 1))
            }),
            None => text,
        }
    }

    /// Data for the caller. Colours are removed unless a terminal shows them and NO_COLOR is unset.
    pub(super) fn out(&self) -> impl Write + use<> {
        AutoStream::auto(io::stdout().lock())
    }

    /// The same for what may be very long. It is complete when [`flush`](Write::flush) has succeeded.
    pub(super) fn out_long(&self) -> Box<dyn Write> {
        if self.colours() {
            return Box::new(self.out());
        }
        let buffered: Box<dyn Write> = Box::new(io::BufWriter::new(io::stdout().lock()));
        Box::new(StripStream::new(buffered))
    }

    /// Data that must arrive byte for byte, such as a patch.
    pub(super) fn out_bytes(&self) -> impl Write + use<> {
        io::BufWriter::new(io::stdout().lock())
    }

    /// Whether colours are wanted on stdout.
    pub(super) fn colours(&self) -> bool {
        AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
    }

    /// Whether colours are wanted on stderr.
    pub(super) fn colours_on_stderr(&self) -> bool {
        AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never
    }

    /// Columns of the terminal that shows stdout; `None` if none does.
    pub(super) fn columns(&self) -> Option<usize> {
        if !self.stdout_is_terminal {
            return None;
        }
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
        // A terminal that does not know says 0.
        Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
    }

    /// Says something that is not data.
    pub(super) fn say(&self, text: impl std::fmt::Display) {
        // Nobody is left to be told when stderr is closed.
        let _ = writeln!(anstream::stderr().lock(), "nono: {}", self.offered(text));
    }

    /// Says what may surprise.
    pub(super) fn warn(&self, text: impl std::fmt::Display) {
        let text = self.offered(text);
        let _ = writeln!(anstream::stderr().lock(), "nono: {YELLOW}warning:{YELLOW:#} {text}");
    }

    /// Says why a command failed, unless its reader has gone.
    pub(super) fn error(&self, error: &CliError) {
        if error.exit_code() == 0 {
            return;
        }
        let mut err = anstream::stderr().lock();
        let _ = writeln!(err, "nono: {RED}error:{RED:#} {error}");
        if let Some(hint) = error.hint() {
            let _ = writeln!(err, "nono: {GREEN}hint:{GREEN:#} {}", self.offered(hint));
        }
    }

    /// Writes a report as JSON that a terminal can be shown: what moves the cursor or reorders text is
    /// escaped, which is the same JSON.
    pub(super) fn json(&self, report: &impl Serialize) -> Result<(), CliError> {
        let text = serde_json::to_string_pretty(report)?;
        let mut out = io::BufWriter::new(io::stdout().lock());
        let mut rest = text.as_str();
        // Only strings hold such characters, and none of them needs two units of UTF-16.
        while let Some(at) = rest.find(|c| c > '~' && moves_text(c)) {
            let (before, found) = rest.split_at(at);
            let Some(c) = found.chars().next() else { break };
            write!(out, "{before}\\u{:04x}", u32::from(c))?;
            rest = &found[c.len_utf8()..];
        }
        writeln!(out, "{rest}")?;
        Ok(out.flush()?)
    }

    /// Asks a question that only a clear yes answers with yes.
    pub(super) fn confirm(&self, question: &str) -> Result<bool, CliError> {
        let answer = self.ask(&format!("{question} [y/N] "))?;
        Ok(matches!(answer.as_str(), "y" | "Y" | "yes"))
    }

    /// Asks a question and returns the answer, without spaces around it. Ctrl-C ends the program.
    pub(super) fn ask(&self, question: &str) -> Result<String, CliError> {
        write!(anstream::stderr().lock(), "nono: {question}")?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        Ok(answer.trim().to_owned())
    }
}
