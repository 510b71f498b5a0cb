//! The terminal: the reader of the output, and the text that may be shown there.

use std::io::{self, BufRead, IsTerminal, Write};
use std::sync::OnceLock;

use anstream::{AutoStream, ColorChoice, StripStream};
use anstyle::{AnsiColor, Style};
use serde::Serialize;

use super::error::CliError;
use super::output::OutputArgs;
use super::pager::Pager;
use super::questions::{Letter, Question};
use nono_engine::path_text::moves_text;

/// Owns stdout and stderr.
#[derive(Debug)]
pub(super) struct Context {
    /// Whether a person sees stdout.
    pub(super) stdout_is_terminal: bool,
    /// Whether a person sees stderr.
    pub(super) stderr_is_terminal: bool,
    /// Whether a user can answer a question.
    pub(super) stdin_is_terminal: bool,
    /// Whether details are wanted that are otherwise summed up.
    pub(super) is_verbose: bool,
    /// Whether only errors are said.
    is_quiet: bool,
    /// Whether a person may be shown long output by a pager.
    may_page: bool,
    /// Columns of the terminal, if stdout is one.
    width: Option<u16>,
    /// The colours of stdout, also when a pager shows it.
    stdout_choice: ColorChoice,
    /// The pager, from the moment at which the output is long.
    pager: OnceLock<Pager>,
}

pub(super) const BOLD: Style = Style::new().bold();
pub(super) const DIM: Style = Style::new().dimmed();
pub(super) const CYAN: Style = AnsiColor::Cyan.on_default();
pub(super) const GREEN: Style = AnsiColor::Green.on_default();
pub(super) const YELLOW: Style = AnsiColor::Yellow.on_default();
pub(super) const RED: Style = AnsiColor::Red.on_default();

impl Context {
    pub(super) fn new(wanted: OutputArgs) -> Self {
        wanted.choose_colours();
        let stdout_is_terminal = io::stdout().is_terminal();
        let width = rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| size.ws_col);
        Self {
            stdout_is_terminal,
            stderr_is_terminal: io::stderr().is_terminal(),
            stdin_is_terminal: io::stdin().is_terminal(),
            is_verbose: wanted.verbose,
            is_quiet: wanted.quiet,
            may_page: stdout_is_terminal && !wanted.no_pager,
            width: width.filter(|width| *width > 0),
            stdout_choice: AutoStream::choice(&io::stdout()),
            pager: OnceLock::new(),
        }
    }

    /// From here on what is written is shown by a pager, if a user sits in front of a terminal
    /// and wants one.
    pub(super) fn page(&self) {
        if self.may_page
            && self.pager.get().is_none()
            && let Some(pager) = Pager::start()
        {
            let _ = self.pager.set(pager);
        }
    }

    /// Waits until the pager is closed, if there is one.
    ///
    /// # Errors
    /// When it could not be run after all.
    pub(super) fn close_pager(&mut self) -> Result<(), CliError> {
        self.pager.take().map_or(Ok(()), Pager::close)
    }

    /// Shows a text by a pager of its own, which is closed when this returns: a question goes on
    /// after it.
    ///
    /// # Errors
    /// As for the text, and a pager that could not be run.
    pub(super) fn show(
        &self,
        write: impl FnOnce(&mut dyn Write) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let pager = if self.may_page { Pager::start() } else { None };
        let Some(pager) = pager else {
            let mut out = self.out_bytes();
            write(&mut out)?;
            return Ok(out.flush()?);
        };
        let written = pager.input().map_err(CliError::from).and_then(|mut input| {
            write(&mut input)?;
            Ok(input.flush()?)
        });
        pager.close()?;
        match written {
            // A user who closes it early has seen enough.
            Err(error) if error.exit_code() == 0 => Ok(()),
            written => written,
        }
    }

    /// Columns of the terminal that stdout is; `None` when it is none.
    pub(super) fn width(&self) -> Option<u16> {
        self.width
    }

    /// Whether a line may tell how far the work is.
    pub(super) fn shows_progress(&self) -> bool {
        self.stderr_is_terminal && !self.is_quiet
    }

    /// The number of a list's items that are named one by one: all of them with `--verbose`.
    pub(super) fn at_most(&self, usual: usize) -> usize {
        if self.is_verbose { usize::MAX } else { usual }
    }

    fn stdout(&self) -> Box<dyn Write> {
        let paged = self.pager.get().and_then(|pager| pager.input().ok());
        paged.unwrap_or_else(|| Box::new(io::stdout().lock()))
    }

    /// Where everything else is said: where it is seen.
    fn stderr(&self) -> Box<dyn Write> {
        let paged = self.pager.get().filter(|_| self.stderr_is_terminal);
        let paged = paged.and_then(|pager| pager.input().ok());
        let choice = AutoStream::choice(&io::stderr());
        let raw = paged.unwrap_or_else(|| Box::new(io::stderr().lock()));
        Box::new(AutoStream::new(raw, choice))
    }

    /// Data for the caller. Colours are removed unless a terminal shows them and NO_COLOR is unset.
    pub(super) fn out(&self) -> impl Write + use<> {
        AutoStream::new(self.stdout(), self.stdout_choice)
    }

    /// The same for what may be very long. It is complete when [`flush`](Write::flush) has
    /// succeeded.
    pub(super) fn out_long(&self) -> Box<dyn Write> {
        if self.colours() {
            return Box::new(self.out());
        }
        let buffered: Box<dyn Write> = Box::new(io::BufWriter::new(self.stdout()));
        Box::new(StripStream::new(buffered))
    }

    /// The report of a command: nothing where only errors are wanted. `is_asked`: the text itself
    /// was asked for, as by `--dry-run`.
    pub(super) fn out_done(&self, is_asked: bool) -> Box<dyn Write> {
        if self.is_quiet && !is_asked { Box::new(io::sink()) } else { self.out_long() }
    }

    /// Data that must arrive byte for byte, such as a patch.
    pub(super) fn out_bytes(&self) -> impl Write + use<> {
        io::BufWriter::new(self.stdout())
    }

    /// Whether colours are wanted on stdout.
    pub(super) fn colours(&self) -> bool {
        self.stdout_choice != ColorChoice::Never
    }

    /// Whether colours are wanted on stderr.
    pub(super) fn colours_on_stderr(&self) -> bool {
        AutoStream::choice(&io::stderr()) != ColorChoice::Never
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
        if self.is_quiet {
            return;
        }
        // No reader is left when stderr is closed.
        let _ = writeln!(self.stderr(), "nono: {}", text);
    }

    /// As [`say`](Self::say), for threads that go on when the command is done.
    #[cfg(feature = "archive")]
    pub(super) fn sayer(&self) -> impl Fn(std::fmt::Arguments<'_>) + Send + Sync + use<> {
        let is_quiet = self.is_quiet;
        move |text| {
            if !is_quiet {
                let _ = writeln!(io::stderr().lock(), "nono: {text}");
            }
        }
    }

    /// Says what may surprise.
    pub(super) fn warn(&self, text: impl std::fmt::Display) {
        if self.is_quiet {
            return;
        }
        let _ = writeln!(self.stderr(), "nono: {YELLOW}warning:{YELLOW:#} {text}");
    }

    /// Says why a result is not all that was asked for: where nothing but errors is wanted, an
    /// error.
    pub(super) fn fall_short(&self, text: impl std::fmt::Display) {
        if !self.is_quiet {
            return self.warn(text);
        }
        let _ = writeln!(self.stderr(), "nono: {RED}error:{RED:#} {text}");
    }

    /// Whether nothing but errors is wanted.
    pub(super) fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// Says why a command failed, unless its reader has gone.
    pub(super) fn error(&self, error: &CliError) {
        if error.exit_code() == 0 {
            return;
        }
        let mut err = self.stderr();
        let _ = writeln!(err, "nono: {RED}error:{RED:#} {error}");
        if let Some(hint) = error.hint() {
            let _ = writeln!(err, "nono: {GREEN}hint:{GREEN:#} {}", hint);
        }
    }

    /// Writes a report as JSON that a terminal can be shown: characters that move the cursor or
    /// reorder text are escaped, which is the same JSON.
    pub(super) fn json(&self, report: &impl Serialize) -> Result<(), CliError> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        write_harmless(&mut out, &serde_json::to_string_pretty(report)?)?;
        Ok(out.flush()?)
    }

    /// The same as one line on stderr, for the report of a command whose own output is on stdout.
    pub(super) fn json_line(&self, report: &impl Serialize) -> Result<(), CliError> {
        let mut line = Vec::new();
        write_harmless(&mut line, &serde_json::to_string(report)?)?;
        // At once: others write there as well.
        Ok(io::stderr().lock().write_all(&line)?)
    }

    /// Asks a question that only a clear yes answers with yes.
    pub(super) fn confirm(&self, question: &str) -> Result<bool, CliError> {
        Ok(Question::yes_or_no(question).ask(self)? == Letter::Yes)
    }

    /// Prints a question and reads a line, without spaces around it; `None` at the end of the
    /// input. Ctrl-C ends the program.
    pub(super) fn answer(&self, question: &str) -> Result<Option<String>, CliError> {
        write!(anstream::stderr().lock(), "nono: {question}")?;
        let mut answer = String::new();
        let length = io::stdin().lock().read_line(&mut answer)?;
        Ok((length > 0).then(|| answer.trim().to_owned()))
    }
}

/// Writes one record of JSON as a line, as [`Context::json`] writes a report.
///
/// # Errors
/// When it cannot be written.
pub(super) fn write_json_line(
    out: &mut impl Write,
    record: &impl Serialize,
) -> Result<(), CliError> {
    Ok(write_harmless(out, &serde_json::to_string(record)?)?)
}

/// Writes JSON in which nothing moves the cursor or reorders text, as a line.
fn write_harmless(out: &mut impl Write, json: &str) -> io::Result<()> {
    let mut rest = json;
    // Only strings hold such characters, and none of them needs two units of UTF-16.
    while let Some(at) = rest.find(|c| c > '~' && moves_text(c)) {
        let (before, found) = rest.split_at(at);
        let Some(c) = found.chars().next() else { break };
        write!(out, "{before}\\u{:04x}", u32::from(c))?;
        rest = &found[c.len_utf8()..];
    }
    writeln!(out, "{rest}")
}
