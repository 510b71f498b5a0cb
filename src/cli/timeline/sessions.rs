//! The page of the past: sessions, the prompts and steps in them, newest first.
//!
//! The list is read once, a file for each session. Steps are read when a session is unfolded, or
//! when all of it is searched. A session that cannot be read is a row that says so.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use crossterm::event::KeyCode;
use jiff::{Timestamp, Zoned};

use super::desk::{Desk, Pressed};
use crate::cli::args::named_project;
use crate::cli::commands::{list, quoted};
use crate::cli::looking::Node;
use crate::cli::render::{Palette, relative_time, session_changes, shown, summary_with_git};
use nono_engine::counted::counted;
use nono_engine::session::{
    Catalog, CatalogError, Place, PromptSteps, SessionStatus, SessionSummary, by_prompt,
    sessions_here, steps,
};
use nono_engine::snapshot::{SessionDir, StepEntry};

/// Characters of a prompt or of a step in a row, and in what is said.
const MAX_SHOWN_CHARS: usize = 200;

/// Stands for changes in repositories: the difference names commits.
const GIT: &str = "git";

/// The kind of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Entry {
    /// A session, by its place.
    Session(usize),
    /// A prompt of a session, by the place of its steps.
    Prompt(usize, usize),
    /// A step of such a prompt.
    Step(usize, usize, usize),
    /// A session that cannot be read.
    Unreadable(usize),
}

/// Where sessions are listed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// This project.
    Here,
    /// All projects of the store.
    Everywhere,
}

/// The driver's action after a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Draws what may have changed.
    Nothing,
    /// Draws everything again.
    Redraw,
    /// Gives the terminal back to the shell for a while.
    Suspend,
    /// Reads the steps of a session and unfolds it.
    Unfold(usize),
    /// Reads the steps of all sessions, which are searched.
    LoadAll,
    /// Reads the list again, of this project or of all.
    Reload(Scope),
    /// Shows the changes of a row.
    Open(Entry),
    /// Takes a row back, with the question of `nono undo`.
    TakeBack(Entry),
    /// Offers to take the last undo back, with a question: the session is undone.
    Redo(Entry),
    /// Is done.
    Quit,
}

/// A session of the list.
#[derive(Debug)]
struct Session {
    directory: SessionDir,
    summary: SessionSummary,
    /// With the newest first; `None` where they are not read.
    prompts: Option<Vec<PromptSteps>>,
    is_unfolded: bool,
}

/// The state.
#[derive(Debug)]
pub(super) struct Sessions {
    pub(super) desk: Desk,
    title: String,
    scope: Scope,
    sessions: Vec<Session>,
    /// Ids of sessions that cannot be read, and why.
    unreadable: Vec<(String, String)>,
    entries: Vec<Entry>,
    now: Zoned,
}

impl Sessions {
    /// Reads the sessions. In a place without any, it reads those of the whole store.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(super) fn load(
        catalog: &Catalog,
        place: &Place,
        scope: Scope,
    ) -> Result<Self, CatalogError> {
        let listed = catalog.listed()?;
        let now = Timestamp::now();
        let here = sessions_here(&listed.sessions, place, now).unwrap_or_default();
        let here: HashSet<String> = here.iter().map(|it| it.session_id.clone()).collect();
        let scope = if here.is_empty() { Scope::Everywhere } else { scope };
        let mut summaries: Vec<SessionSummary> = listed.sessions;
        summaries.retain(|summary| match scope {
            Scope::Here => here.contains(&summary.session_id),
            Scope::Everywhere => summary.has_begun && !summary.origin.is_apart(),
        });
        summaries.sort_by_cached_key(|summary| Reverse(summary.recency(now)));
        let found = catalog.sessions()?.into_iter().map(|session| (session.id(), session));
        let mut directories: HashMap<String, SessionDir> = found.collect();
        let mut sessions = Vec::with_capacity(summaries.len());
        for summary in summaries {
            // Removed since it was listed.
            let Some(directory) = directories.remove(&summary.session_id) else { continue };
            sessions.push(Session { directory, summary, prompts: None, is_unfolded: false });
        }
        let unreadable = listed.unreadable.iter().map(|it| (it.id(), it.error().to_string()));
        let unreadable = unreadable.collect();
        let project = match (scope, sessions.first()) {
            (Scope::Here, Some(session)) => named_project(&session.summary.tracked_paths),
            _ => "all projects".to_owned(),
        };
        let now = Zoned::now();
        let count = counted(sessions.len(), "session", "sessions");
        let title = format!("{count} · {project}");
        let desk = Desk::default();
        let entries = Vec::new();
        let mut page = Self { desk, title, scope, sessions, unreadable, entries, now };
        page.rebuild(None);
        Ok(page)
    }

    /// Whether there is nothing to show.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    pub(super) fn scope(&self) -> Scope {
        self.scope
    }

    /// Number of rows, shown or not.
    pub(super) fn entry_count(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn entry(&self, index: usize) -> Entry {
        self.entries[index]
    }

    /// The row at the cursor.
    pub(super) fn current(&self) -> Option<Entry> {
        self.desk.outline.current().map(|index| self.entries[index])
    }

    /// The session of a row.
    pub(super) fn session(&self, entry: Entry) -> Option<(&SessionDir, &SessionSummary)> {
        let session = match entry {
            Entry::Session(at) | Entry::Prompt(at, _) | Entry::Step(at, ..) => &self.sessions[at],
            Entry::Unreadable(_) => return None,
        };
        Some((&session.directory, &session.summary))
    }

    /// Why a row cannot be read.
    pub(super) fn failure(&self, entry: Entry) -> Option<&str> {
        let Entry::Unreadable(at) = entry else { return None };
        Some(&self.unreadable[at].1)
    }

    /// The steps of a prompt, or the step, in their order.
    pub(super) fn steps(&self, entry: Entry) -> &[StepEntry] {
        let of = |at: usize, prompt: usize| -> &[StepEntry] {
            let prompts = self.sessions[at].prompts.as_deref().unwrap_or_default();
            prompts.get(prompt).map_or(&[], |prompt| &prompt.steps)
        };
        match entry {
            Entry::Prompt(at, prompt) => of(at, prompt),
            Entry::Step(at, prompt, step) => &of(at, prompt)[step..=step],
            Entry::Session(_) | Entry::Unreadable(_) => &[],
        }
    }

    /// A row in more words than fit into the list.
    pub(super) fn title_of(&self, entry: Entry) -> String {
        let number = self.steps(entry).first().and_then(|step| step.prompt.as_ref());
        match (entry, number) {
            (Entry::Prompt(..), Some(prompt)) => format!("prompt {}", prompt.number),
            _ => self.words(entry).1,
        }
    }

    /// The text of the prompt of a row.
    pub(super) fn prompt(&self, entry: Entry) -> Option<&str> {
        let (Entry::Prompt(at, prompt) | Entry::Step(at, prompt, _)) = entry else { return None };
        let prompts = self.sessions[at].prompts.as_deref()?;
        let prompt = prompts.get(prompt)?.prompt.as_ref()?;
        Some(&prompt.text).filter(|text| !text.is_empty()).map(String::as_str)
    }

    /// The arguments of `nono undo` that take a row back; `None` for one that cannot be read.
    pub(super) fn undo_arguments(&self, entry: Entry) -> Option<Vec<String>> {
        let (_, summary) = self.session(entry)?;
        let id = &summary.session_id;
        Some(match entry {
            Entry::Prompt(..) => {
                let step = self.steps(entry).first()?;
                let number = step.prompt.as_ref()?.number;
                vec!["--prompt".to_owned(), format!("{id}#{number}")]
            }
            Entry::Step(..) => {
                vec!["--step".to_owned(), format!("{id}#{}", self.steps(entry).first()?.number)]
            }
            _ => vec![id.clone()],
        })
    }

    /// A row in words: when, what, and what is to be known of it.
    pub(super) fn words(&self, entry: Entry) -> (String, String, String) {
        match entry {
            Entry::Unreadable(at) => {
                let (id, _) = &self.unreadable[at];
                (String::new(), id.clone(), "cannot be read".to_owned())
            }
            Entry::Session(at) => {
                let summary = &self.sessions[at].summary;
                let time = relative_time(summary.started, &self.now);
                (time, self.session_title(summary), notes(summary))
            }
            Entry::Prompt(..) => {
                let text = self.prompt(entry).map(one_line);
                let text = text.unwrap_or_else(|| "before the first prompt".to_owned());
                let count = self.steps(entry).len();
                let plural = if count == 1 { "" } else { "s" };
                (String::new(), format!("❯ {text}"), format!("{count} step{plural}"))
            }
            Entry::Step(..) => {
                let Some(step) = self.steps(entry).first() else { return Default::default() };
                let plain = Palette::plain();
                let changes = step.changes.map(|it| summary_with_git(&it, Some(GIT), &plain));
                let failed = if step.failed { "failed, " } else { "" };
                let notes = format!("{failed}{}", changes.unwrap_or_default());
                (String::new(), format!("#{} {}", step.number, one_line(&step.summary())), notes)
            }
        }
    }

    /// Whether a session of the list is undone, in a word.
    pub(super) fn undone_word(&self, entry: Entry) -> Option<&'static str> {
        match entry {
            Entry::Session(at) => self.sessions[at].summary.undone_word(),
            _ => None,
        }
    }

    fn session_title(&self, summary: &SessionSummary) -> String {
        let agent = summary.agent.as_ref().map(|agent| shown(agent.client.as_bytes()));
        let what = match agent {
            Some(agent) if summary.command.is_empty() => agent,
            _ => list::command(summary),
        };
        let label = summary.label.as_deref().map(|label| quoted(label).trim().to_owned());
        let label = label.map(|label| format!("{label}  ")).unwrap_or_default();
        match self.scope {
            Scope::Here => format!("{label}{what}"),
            Scope::Everywhere => {
                format!("{label}{what}  {}", named_project(&summary.tracked_paths))
            }
        }
    }

    /// Takes what came of a key or of the mouse.
    pub(super) fn take(&mut self, pressed: Pressed) -> Action {
        match pressed {
            Pressed::Done => Action::Nothing,
            Pressed::Redraw => Action::Redraw,
            Pressed::Suspend => Action::Suspend,
            Pressed::Interrupt => Action::Quit,
            Pressed::Searched if self.is_loaded() => {
                self.search();
                Action::Nothing
            }
            Pressed::Searched => Action::LoadAll,
            Pressed::Unfolded(index) => match self.entries[index] {
                Entry::Session(at) => Action::Unfold(at),
                _ => Action::Nothing,
            },
            Pressed::Back => {
                self.desk.tell("q ends".to_owned());
                Action::Nothing
            }
            Pressed::Open => self.open(),
            Pressed::Key(key) => self.press(key),
        }
    }

    fn press(&mut self, key: KeyCode) -> Action {
        match key {
            KeyCode::Enter => self.open(),
            KeyCode::Char('u') => self.take_back(),
            KeyCode::Char('o') => Action::Reload(match self.scope {
                Scope::Here => Scope::Everywhere,
                Scope::Everywhere => Scope::Here,
            }),
            KeyCode::Char('q') => Action::Quit,
            KeyCode::Char(' ' | 'r' | 'R' | 'a' | 'd') => {
                self.desk.tell("Enter shows the files: there they are marked and restored".into());
                Action::Nothing
            }
            _ => Action::Nothing,
        }
    }

    fn open(&mut self) -> Action {
        match self.current() {
            Some(Entry::Unreadable(at)) => {
                let message = self.unreadable[at].1.clone();
                self.desk.tell(message);
                Action::Nothing
            }
            Some(entry) => Action::Open(entry),
            None => Action::Nothing,
        }
    }

    fn take_back(&mut self) -> Action {
        let Some(entry) = self.current() else { return Action::Nothing };
        if let Entry::Session(at) = entry
            && self.sessions[at].summary.undone
        {
            return Action::Redo(entry);
        }
        if self.undo_arguments(entry).is_some() {
            return Action::TakeBack(entry);
        }
        self.desk.tell("this cannot be taken back".to_owned());
        Action::Nothing
    }

    fn is_loaded(&self) -> bool {
        self.sessions
            .iter()
            .all(|session| session.prompts.is_some() || session.summary.step_count == 0)
    }

    /// Reads the steps of a session, and unfolds it.
    pub(super) fn unfold(&mut self, at: usize) {
        self.note_folds();
        self.read_steps(at);
        self.sessions[at].is_unfolded = true;
        self.rebuild(Some(Entry::Session(at)));
    }

    /// Reads the steps of all sessions, and searches in them.
    pub(super) fn load_all(&mut self) {
        self.note_folds();
        for at in 0..self.sessions.len() {
            self.read_steps(at);
        }
        let current = self.current();
        self.rebuild(current);
        self.search();
    }

    fn read_steps(&mut self, at: usize) {
        let session = &mut self.sessions[at];
        if session.prompts.is_some() || session.summary.step_count == 0 {
            return;
        }
        let read = steps(&session.directory).map(by_prompt);
        session.prompts = Some(read.unwrap_or_else(|error| {
            tracing::warn!("the steps cannot be read: {error}");
            Vec::new()
        }));
    }

    /// Unfolds the newest session, if an agent made it, and puts the cursor on a session that is
    /// named.
    pub(super) fn begin_at(&mut self, id: Option<&str>) {
        let at = id.and_then(|id| {
            self.sessions.iter().position(|session| session.summary.session_id == id)
        });
        let at = at.unwrap_or(0);
        if self.sessions.get(at).is_some_and(|session| session.summary.step_count > 0) {
            self.unfold(at);
        } else if !self.sessions.is_empty() {
            self.rebuild(Some(Entry::Session(at)));
        }
    }

    /// The row where the list was, in a list that was read again.
    pub(super) fn go_on_at(&mut self, before: &Self) {
        let Some(entry) = before.current() else { return };
        let is_unfolded = |index: &usize| {
            let outline = &before.desk.outline;
            outline.is_parent(*index) && !outline.node(*index).is_folded
        };
        let unfolded = (0..before.entries.len()).filter(is_unfolded);
        let unfolded = unfolded.filter_map(|index| before.session(before.entries[index]));
        let unfolded: HashSet<&str> =
            unfolded.map(|(_, summary)| summary.session_id.as_str()).collect();
        for at in 0..self.sessions.len() {
            if unfolded.contains(self.sessions[at].summary.session_id.as_str()) {
                self.read_steps(at);
                self.sessions[at].is_unfolded = true;
            }
        }
        let same = before.session(entry).and_then(|(_, summary)| {
            let id = &summary.session_id;
            self.sessions.iter().position(|session| session.summary.session_id == *id)
        });
        let same = same.map(|at| match entry {
            Entry::Prompt(_, prompt) => Entry::Prompt(at, prompt),
            Entry::Step(_, prompt, step) => Entry::Step(at, prompt, step),
            _ => Entry::Session(at),
        });
        self.rebuild(same);
    }

    /// Notes which sessions are unfolded, for rows that are made again.
    fn note_folds(&mut self) {
        for (index, entry) in self.entries.iter().enumerate() {
            if let Entry::Session(at) = entry {
                self.sessions[*at].is_unfolded = !self.desk.outline.node(index).is_folded;
            }
        }
    }

    /// Makes the rows; the cursor goes to one of them.
    fn rebuild(&mut self, current: Option<Entry>) {
        let mut entries = Vec::new();
        let mut nodes: Vec<Node> = Vec::new();
        let mut push = |entry, depth, is_folded, has_more| {
            entries.push(entry);
            nodes.push(Node { depth, next: nodes.len() + 1, is_folded, has_more });
            nodes.len() - 1
        };
        let mut ends = Vec::new();
        for (at, session) in self.sessions.iter().enumerate() {
            let has_more = session.summary.step_count > 0 && session.prompts.is_none();
            let node = push(Entry::Session(at), 0, !session.is_unfolded, has_more);
            let mut last = node;
            let prompts = session.prompts.as_deref().unwrap_or_default();
            for (prompt, steps) in prompts.iter().enumerate().rev() {
                let above = push(Entry::Prompt(at, prompt), 1, false, false);
                for step in (0..steps.steps.len()).rev() {
                    last = push(Entry::Step(at, prompt, step), 2, false, false);
                }
                ends.push((above, last + 1));
            }
            ends.push((node, last + 1));
        }
        for at in 0..self.unreadable.len() {
            push(Entry::Unreadable(at), 0, false, false);
        }
        for (node, end) in ends {
            nodes[node].next = end;
        }
        let at = current.and_then(|entry| entries.iter().position(|known| *known == entry));
        self.entries = entries;
        self.desk.outline.replace(nodes, at.unwrap_or(0));
    }

    /// Shows the rows that contain the text, whatever the case.
    fn search(&mut self) {
        let wanted = self.desk.search().to_lowercase();
        let matches = |entry: &Entry| {
            let (_, text, _) = self.words(*entry);
            let id = match entry {
                Entry::Session(at) => self.sessions[*at].summary.session_id.as_str(),
                _ => "",
            };
            text.to_lowercase().contains(&wanted) || id.contains(&wanted)
        };
        let matching = (!wanted.is_empty()).then(|| self.entries.iter().map(matches).collect());
        self.desk.outline.search(matching);
    }
}

/// The changes and the peculiarities of a session.
fn notes(summary: &SessionSummary) -> String {
    let changes = match summary.status {
        SessionStatus::Running if summary.snapshot_count < 2 => "at work".to_owned(),
        SessionStatus::Interrupted => "interrupted".to_owned(),
        _ => session_changes(summary, Some(GIT), &Palette::plain()),
    };
    let exit = summary.exit_code.filter(|code| *code != 0).map(|code| format!("exit {code}"));
    let words = [
        exit,
        (summary.status == SessionStatus::Running).then(|| "running".to_owned()),
        summary.pinned.then(|| "pinned".to_owned()),
        summary.received.then(|| "received".to_owned()),
    ];
    let words = words.into_iter().flatten();
    // In a narrow list the end of the line is cut, and this word matters most.
    let undone = summary.undone_word().map(str::to_owned);
    let words: Vec<String> = undone.into_iter().chain([changes]).chain(words).collect();
    words.join("  ")
}

/// The beginning of a text on one line, harmless for a terminal.
pub(super) fn one_line(text: &str) -> String {
    let begin: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    let line = begin.split_whitespace().collect::<Vec<_>>().join(" ");
    shown(line.as_bytes())
}
