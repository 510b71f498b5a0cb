//! The maker of a recorded state: a step of an agent, a command, nono itself, or nothing that was
//! recorded. Said to a person in words, and to a program as values.

use serde::Serialize;

use super::commands::list::command;
use super::context::DIM;
use super::past::Past;
use super::render::columns;
use super::shell_word::command_line;
use nono_engine::history::{Origin, Place, Version};
use nono_engine::path_text::Shown;
use nono_engine::session::SessionSummary;
use nono_engine::snapshot::{RestoreCommand, StepEntry, StepKind};

/// The maker of the state that a snapshot, or a restore of it, is the first to have.
#[derive(Clone, Copy)]
pub(super) struct Maker<'a> {
    place: &'a Place,
    origin: Origin,
    past: &'a Past,
}

/// A maker as a program is told of it.
#[derive(Debug, Serialize)]
pub(super) struct MakerReport<'a> {
    /// The snapshot; of a restore, the one that was restored.
    pub(super) snapshot: String,
    session_id: &'a str,
    number: u64,
    timestamp: jiff::Timestamp,
    /// `command`, `outside` of every session, `first` recorded, `restored`, or `received` in an
    /// archive.
    origin: &'static str,
    command: &'a [String],
    /// The step that made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<StepEntry>,
}

impl<'a> Maker<'a> {
    pub(super) fn new(place: &'a Place, origin: Origin, past: &'a Past) -> Self {
        Self { place, origin, past }
    }

    /// The maker of a version of a path.
    pub(super) fn of(version: &'a Version, past: &'a Past) -> Self {
        Self::new(version.first(), version.origin, past)
    }

    /// The session whose command the state goes with. A state that an archive added to a session
    /// is not of that session's command.
    fn session(&self) -> Option<&'a SessionSummary> {
        let summary = self.past.summary(&self.place.session_id)?;
        (self.origin != Origin::Received || summary.received).then_some(summary)
    }

    /// The words of its command.
    pub(super) fn command(&self) -> &'a [String] {
        self.session().map_or(&[], |session| session.command.as_slice())
    }

    /// The step, if it is one.
    pub(super) fn step(&self) -> Option<StepEntry> {
        self.past.step(self.place, self.origin)
    }

    /// The origin as a program reads it.
    pub(super) fn origin_word(&self) -> &'static str {
        match self.origin {
            Origin::First => "first",
            Origin::Session => "command",
            Origin::Outside => "outside",
            Origin::Restored => "restored",
            Origin::Received => "received",
        }
    }

    /// When the state was recorded, or restored.
    pub(super) fn timestamp(&self) -> jiff::Timestamp {
        self.place.timestamp
    }

    /// The snapshot; a step as steps are named.
    pub(super) fn id(&self) -> String {
        let Place { session_id, number, .. } = self.place;
        let mark = if self.step().is_some() { '#' } else { '/' };
        format!("{session_id}{mark}{number}")
    }

    /// The author as a program reads it: `agent`, `command`, `you` (or another program),
    /// `nono`, `archive`, or `before` the record.
    pub(super) fn by(&self) -> &'static str {
        match self.origin {
            Origin::First => "before",
            Origin::Outside => "you",
            Origin::Restored => "nono",
            Origin::Received => "archive",
            Origin::Session => match self.step().map(|step| step.kind) {
                Some(StepKind::UserEdits | StepKind::Watched | StepKind::Elsewhere) => "you",
                Some(StepKind::Undo) => "nono",
                Some(StepKind::Tool | StepKind::Late | StepKind::Checkpoint) => "agent",
                None if self.command().is_empty() => "you",
                None => "command",
            },
        }
    }

    /// The author in so many cells, harmless for a terminal; a step with the first words of its
    /// prompt, in so many cells more.
    pub(super) fn in_cells(&self, cells: usize, prompt_cells: usize) -> String {
        let cut =
            |text: &str, cells| columns::cut(&Shown::bytes(text.as_bytes()).to_string(), cells);
        match (self.by(), self.step()) {
            ("before", _) => "before the record".to_owned(),
            ("you", _) => "you or another program".to_owned(),
            ("archive", _) => "received in an archive".to_owned(),
            (by, Some(step)) => {
                let words = cut(&step.summary(), cells);
                let prompt = step.prompt.map(|prompt| prompt.text).unwrap_or_default();
                let first = prompt.lines().map(str::trim).find(|line| !line.is_empty());
                match first.filter(|_| by == "agent") {
                    Some(first) => format!("{words} “{}”", cut(first, prompt_cells)),
                    None => words,
                }
            }
            ("nono", None) => self.restoring_command().to_owned(),
            (_, None) => cut(&command_line(self.command()), cells),
        }
    }

    /// All of it for a program.
    pub(super) fn report(&self) -> MakerReport<'a> {
        MakerReport {
            snapshot: self.place.to_string(),
            session_id: &self.place.session_id,
            number: self.place.number,
            timestamp: self.place.timestamp,
            origin: self.origin_word(),
            command: self.command(),
            step: self.step(),
        }
    }

    /// In words, styled for a terminal and harmless there.
    pub(super) fn words(&self) -> String {
        match self.origin {
            Origin::First => format!("{DIM}first recorded{DIM:#}"),
            Origin::Outside => format!("{DIM}outside of a session{DIM:#}"),
            Origin::Restored => format!("{DIM}{}{DIM:#}", self.restoring_command()),
            Origin::Received => {
                let made = self.session();
                let made = made.filter(|made| self.place.number > 0 && !made.command.is_empty());
                let made = made.map_or(String::new(), |made| format!("{}  ", command(made)));
                format!("{made}{DIM}received in an archive{DIM:#}")
            }
            Origin::Session => match (self.step(), self.session()) {
                (Some(step), _) => step_words(&step),
                (None, Some(session)) if !session.command.is_empty() => command(session),
                _ => format!("{DIM}nono snapshot{DIM:#}"),
            },
        }
    }

    /// The command that restored the state.
    fn restoring_command(&self) -> &'static str {
        match self.place.restored {
            Some(RestoreCommand::Undo) => "nono undo",
            Some(RestoreCommand::Redo) => "nono redo",
            Some(RestoreCommand::Restore) | None => "nono restore",
        }
    }
}

/// A step as it is named to a person.
fn step_words(step: &StepEntry) -> String {
    let summary = step.summary();
    let shown = Shown::bytes(summary.as_bytes());
    format!("step {} · {shown}", step.number)
}
