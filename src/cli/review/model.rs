//! The state of a review: the shown, the marked and the question. Keys go in, actions come out.
//!
//! Marks keep to what a restore can do: a directory that was made goes only with everything in it,
//! so its mark is the mark of all that is below, and taking the mark off one of them takes it off
//! the directory.

use std::ops::Range;
use std::path::{Path, PathBuf};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use nono_engine::diff::{Change, ChangeType};
use nono_engine::path_text::Shown;

/// The decision about the changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Decision {
    /// They stay.
    KeepAll,
    /// All are taken back.
    RestoreAll,
    /// These paths are brought back, each by itself.
    Restore(Vec<PathBuf>),
}

/// The driver's action after a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Draws what may have changed.
    Nothing,
    /// Draws everything again, over whatever others have written.
    Redraw,
    /// Gives the terminal back to the shell for a while.
    Suspend,
    /// Shows how these changes look inside.
    ShowDifferences(Range<usize>),
    /// Is done.
    End(Decision),
}

/// The meaning of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Moving, marking, deciding.
    List,
    /// Typing what names must contain.
    Filter,
    /// Answering whether to restore: all, or what is marked.
    ConfirmRestore {
        /// All, marked or not.
        all: bool,
    },
    /// Answering whether to keep everything though something is marked.
    ConfirmKeep,
    /// Reading what the keys do.
    Help,
}

/// Changes of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KindSummary {
    pub(super) change_type: ChangeType,
    pub(super) count: usize,
    /// By how many bytes the contents grew in all.
    pub(super) size_delta: i64,
}

/// The state.
#[derive(Debug)]
pub(super) struct Model {
    title: String,
    changes: Vec<Change>,
    roots: Vec<PathBuf>,
    kinds: Vec<KindSummary>,
    marked: Vec<bool>,
    marked_count: usize,
    filter: String,
    /// The changes that the filter lets through, by index; all without one.
    visible: Option<Vec<usize>>,
    /// Position in what is visible.
    cursor: usize,
    /// Position of the first row on the screen.
    top: usize,
    /// Rows on the screen.
    rows: usize,
    mode: Mode,
    message: Option<String>,
    /// The step that changed the path at the cursor last, and which change that is.
    step: Option<(usize, String)>,
}

impl Model {
    /// Nothing is marked, the first change is at the cursor.
    pub(super) fn new(title: String, changes: Vec<Change>, roots: Vec<PathBuf>) -> Self {
        let kinds = summarise(&changes);
        let marked = vec![false; changes.len()];
        Self {
            title,
            changes,
            roots,
            kinds,
            marked,
            marked_count: 0,
            filter: String::new(),
            visible: None,
            cursor: 0,
            top: 0,
            rows: 1,
            mode: Mode::List,
            message: None,
            step: None,
        }
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    pub(super) fn changes(&self) -> &[Change] {
        &self.changes
    }

    pub(super) fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    pub(super) fn kinds(&self) -> &[KindSummary] {
        &self.kinds
    }

    pub(super) fn mode(&self) -> Mode {
        self.mode
    }

    pub(super) fn filter(&self) -> &str {
        &self.filter
    }

    pub(super) fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    pub(super) fn marked_count(&self) -> usize {
        self.marked_count
    }

    pub(super) fn is_marked(&self, index: usize) -> bool {
        self.marked[index]
    }

    /// How many changes the filter lets through.
    pub(super) fn visible_count(&self) -> usize {
        self.visible.as_ref().map_or(self.changes.len(), Vec::len)
    }

    /// The position at the cursor, among those visible.
    pub(super) fn cursor(&self) -> usize {
        self.cursor
    }

    /// Says something until the next key.
    /// The path at the cursor.
    pub(super) fn current_path(&self) -> Option<&Path> {
        self.current().map(|index| self.changes[index].path.as_path())
    }

    /// Says which step changed the path at the cursor last; harmless for a terminal.
    pub(super) fn set_step(&mut self, step: Option<String>) {
        self.step = self.current().zip(step);
    }

    /// The step that changed the path at the cursor last, if that is known.
    pub(super) fn step(&self) -> Option<&str> {
        let (index, step) = self.step.as_ref()?;
        (self.current() == Some(*index)).then_some(step)
    }

    pub(super) fn tell(&mut self, message: String) {
        self.message = Some(message);
    }

    /// The positions and changes on a screen of so many rows; moved so that the cursor is on it.
    pub(super) fn window(&mut self, rows: usize) -> Vec<(usize, usize)> {
        self.rows = rows.max(1);
        let last_top = self.visible_count().saturating_sub(self.rows);
        let lowest = (self.cursor + 1).saturating_sub(self.rows);
        self.top = self.top.clamp(lowest, self.cursor.max(lowest)).min(last_top);
        let end = (self.top + rows).min(self.visible_count());
        (self.top..end).map(|position| (position, self.index(position))).collect()
    }

    /// Takes a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Action {
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c' | 'd') => Action::End(Decision::KeepAll),
                KeyCode::Char('z') => Action::Suspend,
                KeyCode::Char('l') => Action::Redraw,
                KeyCode::Char('u') if self.mode == Mode::Filter => self.set_filter(String::new()),
                KeyCode::Char('f') => self.scroll_to(self.cursor.saturating_add(self.rows)),
                KeyCode::Char('b') => self.scroll_to(self.cursor.saturating_sub(self.rows)),
                _ => Action::Nothing,
            };
        }
        match self.mode {
            Mode::List => self.press_in_list(key.code),
            Mode::Filter => self.press_in_filter(key.code),
            Mode::ConfirmRestore { all } => {
                self.mode = Mode::List;
                match key.code {
                    KeyCode::Char('y' | 'Y') => Action::End(self.restore(all)),
                    _ => Action::Nothing,
                }
            }
            Mode::ConfirmKeep => {
                self.mode = Mode::List;
                match key.code {
                    KeyCode::Enter | KeyCode::Char('y' | 'Y' | 'q') => {
                        Action::End(Decision::KeepAll)
                    }
                    KeyCode::Char('r') => self.ask_to_restore(false),
                    _ => Action::Nothing,
                }
            }
            Mode::Help => {
                self.mode = Mode::List;
                Action::Nothing
            }
        }
    }

    fn press_in_list(&mut self, key: KeyCode) -> Action {
        match key {
            KeyCode::Up | KeyCode::Char('k') => self.scroll_to(self.cursor.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.scroll_to(self.cursor + 1),
            KeyCode::PageUp => self.scroll_to(self.cursor.saturating_sub(self.rows)),
            KeyCode::PageDown => self.scroll_to(self.cursor.saturating_add(self.rows)),
            KeyCode::Home | KeyCode::Char('g') => self.scroll_to(0),
            KeyCode::End | KeyCode::Char('G') => self.scroll_to(usize::MAX),
            KeyCode::Char(' ') => self.toggle(),
            KeyCode::Char('a') => self.toggle_visible(),
            KeyCode::Char('d') | KeyCode::Right => self.show_differences(),
            KeyCode::Char('r') => self.ask_to_restore(false),
            KeyCode::Char('R') => self.ask_to_restore(true),
            KeyCode::Char('/') => {
                self.mode = Mode::Filter;
                Action::Nothing
            }
            KeyCode::Char('?' | 'h') => {
                self.mode = Mode::Help;
                Action::Nothing
            }
            KeyCode::Esc if !self.filter.is_empty() => self.set_filter(String::new()),
            KeyCode::Enter | KeyCode::Char('q') if self.marked_count > 0 => {
                self.mode = Mode::ConfirmKeep;
                Action::Nothing
            }
            KeyCode::Enter | KeyCode::Char('q') => Action::End(Decision::KeepAll),
            _ => Action::Nothing,
        }
    }

    fn press_in_filter(&mut self, key: KeyCode) -> Action {
        match key {
            KeyCode::Enter | KeyCode::Up | KeyCode::Down => {
                self.mode = Mode::List;
                Action::Nothing
            }
            KeyCode::Esc => {
                self.mode = Mode::List;
                self.set_filter(String::new())
            }
            KeyCode::Backspace => {
                let mut filter = self.filter.clone();
                filter.pop();
                self.set_filter(filter)
            }
            KeyCode::Char(c) => self.set_filter(format!("{}{c}", self.filter)),
            _ => Action::Nothing,
        }
    }

    fn index(&self, position: usize) -> usize {
        self.visible.as_ref().map_or(position, |visible| visible[position])
    }

    /// The change at the cursor.
    pub(super) fn current(&self) -> Option<usize> {
        (self.cursor < self.visible_count()).then(|| self.index(self.cursor))
    }

    fn scroll_to(&mut self, position: usize) -> Action {
        self.cursor = position.min(self.visible_count().saturating_sub(1));
        Action::Nothing
    }

    /// Shows only paths that contain this text, whatever the case; the cursor stays on its change
    /// if that is still shown.
    fn set_filter(&mut self, filter: String) -> Action {
        let current = self.current();
        let wanted = filter.to_lowercase();
        self.visible = (!filter.is_empty()).then(|| {
            let contains = |change: &Change| {
                let path = nono_engine::diff::relative_to_roots(
                    change.path.as_os_str().as_encoded_bytes(),
                    &self.roots,
                );
                Shown::bytes(path).to_string().to_lowercase().contains(&wanted)
            };
            let all = self.changes.iter().enumerate();
            all.filter(|(_, change)| contains(change)).map(|(index, _)| index).collect()
        });
        self.filter = filter;
        self.cursor = match (&self.visible, current) {
            (Some(visible), Some(current)) => visible.binary_search(&current).unwrap_or(0),
            (None, Some(current)) => current,
            (_, None) => 0,
        };
        Action::Nothing
    }

    fn toggle(&mut self) -> Action {
        if let Some(index) = self.current() {
            self.mark(index, !self.marked[index]);
        }
        self.scroll_to(self.cursor + 1)
    }

    /// Marks everything that is shown, or nothing of it if all was marked.
    fn toggle_visible(&mut self) -> Action {
        let shown: Vec<usize> = (0..self.visible_count()).map(|at| self.index(at)).collect();
        let mark = !shown.iter().all(|index| self.marked[*index]);
        for index in shown {
            if self.marked[index] != mark {
                self.mark(index, mark);
            }
        }
        Action::Nothing
    }

    fn mark(&mut self, index: usize, mark: bool) {
        for below in self.extent(index) {
            self.set(below, mark);
        }
        let change_type = self.changes[index].change_type;
        let above: Vec<usize> = self.above(&self.changes[index].path).collect();
        for dir in above {
            match (self.changes[dir].change_type, mark) {
                // It cannot go if something in it stays.
                (ChangeType::Created | ChangeType::Modified, false) => self.set(dir, false),
                // It has to become a directory again first.
                (ChangeType::Modified, true) if change_type == ChangeType::Deleted => {
                    self.set(dir, true);
                }
                _ => {}
            }
        }
    }

    fn set(&mut self, index: usize, mark: bool) {
        if std::mem::replace(&mut self.marked[index], mark) != mark {
            match mark {
                true => self.marked_count += 1,
                false => self.marked_count -= 1,
            }
        }
    }

    /// A change and what goes with it: a directory that came or went, with all that is in it.
    fn extent(&self, index: usize) -> Range<usize> {
        let change = &self.changes[index];
        let below = match change.change_type {
            ChangeType::PermissionsChanged => 0,
            _ => self.changes[index + 1..].partition_point(|c| c.path.starts_with(&change.path)),
        };
        index..index + 1 + below
    }

    /// Changes of the directories above a path.
    fn above(&self, path: &Path) -> impl Iterator<Item = usize> {
        let find = |dir: &Path| self.changes.binary_search_by(|c| c.path.as_path().cmp(dir)).ok();
        path.ancestors().skip(1).filter_map(find)
    }

    /// The change at the cursor with what goes with it.
    pub(super) fn extent_at_cursor(&self) -> Option<Range<usize>> {
        self.current().map(|index| self.extent(index))
    }

    fn show_differences(&self) -> Action {
        self.extent_at_cursor().map_or(Action::Nothing, Action::ShowDifferences)
    }

    fn ask_to_restore(&mut self, all: bool) -> Action {
        if all || self.marked_count > 0 {
            self.mode = Mode::ConfirmRestore { all };
        } else {
            self.tell("nothing is marked: space marks a path, a marks all, R restores all".into());
        }
        Action::Nothing
    }

    fn restore(&self, all: bool) -> Decision {
        if all || self.marked_count == self.changes.len() {
            return Decision::RestoreAll;
        }
        let marked = self.changes.iter().zip(&self.marked).filter(|(_, marked)| **marked);
        Decision::Restore(marked.map(|(change, _)| change.path.clone()).collect())
    }
}

fn summarise(changes: &[Change]) -> Vec<KindSummary> {
    use ChangeType::{Created, Deleted, Modified, PermissionsChanged};
    [Created, Modified, Deleted, PermissionsChanged]
        .into_iter()
        .map(|change_type| {
            let mut summary = KindSummary { change_type, count: 0, size_delta: 0 };
            for change in changes.iter().filter(|change| change.change_type == change_type) {
                summary.count += 1;
                let delta = change.size_delta.unwrap_or(0);
                summary.size_delta = summary.size_delta.saturating_add(delta);
            }
            summary
        })
        .filter(|summary| summary.count > 0)
        .collect()
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
