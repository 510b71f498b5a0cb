//! The page of changes: a tree of changed paths, the marked ones, and the question. Keys go in,
//! actions come out.
//!
//! After a run the page asks what becomes of the changes ([`Purpose::Deciding`]): Enter keeps them.
//! In the timeline nothing is asked ([`Purpose::Looking`]), and Enter opens.
//!
//! Marks keep to what a restore can do: a directory that was made goes only with everything in it.
//! So its mark is the mark of all that is below, and taking the mark off one of them takes it off
//! the directory. A rename is marked as both of its paths.

use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crossterm::event::KeyCode;

use super::desk::{Desk, Focus, Mode, Pressed};
use super::outline::Outline;
use crate::cli::looking::{Renames, Row, tree_of};
use crate::cli::render::{GIT_CHANGED, counted_changes, shown};
use nono_engine::diff::{Change, ChangeSummary, ChangeType, relative_to_roots};

/// With more changes, directories with many are folded at first.
const MANY_CHANGES: usize = 1000;
/// Such a directory is folded from so many changes on.
const FOLDED_FROM: usize = 100;

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

/// Why the page is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// After a run: the changes are kept or taken back.
    Deciding,
    /// After a command in a fork: what is chosen is kept. A [`Decision`] then names what comes.
    Choosing,
    /// From the timeline.
    Looking,
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
    /// Shows how these changes look inside, in the pager.
    Page(Range<usize>),
    /// Takes one hunk of a change back: its change and its number, from 0.
    Hunk(usize, usize),
    /// Takes all of it back, with the question of `nono undo`.
    TakeBack,
    /// Shows the timeline.
    Back,
    /// Is done with the page.
    Decide(Decision),
    /// Is done with the screen.
    Quit,
}

/// The question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Question {
    /// Whether to restore: everything.
    RestoreAll,
    /// The same: these paths.
    Restore(Vec<usize>),
    /// The same: a hunk of a change, by its number from 0.
    RestoreHunk(usize, usize),
    /// Whether to keep everything though something is marked.
    Keep,
}

/// Changes of one kind, or those of git directories.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KindSummary {
    pub(super) change_type: ChangeType,
    /// As summaries count them: `+2 files +1 directory`.
    pub(super) words: String,
    /// By how many bytes the contents grew in all.
    pub(super) size_delta: i64,
}

/// The state.
#[derive(Debug)]
pub(super) struct Changes {
    pub(super) desk: Desk,
    title: String,
    /// The command, the prompt and the commits, in a line each.
    facts: Vec<String>,
    purpose: Purpose,
    changes: Vec<Change>,
    roots: Vec<PathBuf>,
    renames: Renames,
    kinds: Vec<KindSummary>,
    rows: Vec<Row>,
    marked: Vec<bool>,
    marked_count: usize,
    question: Option<Question>,
    /// Whether the keys of the question are explained in its place.
    is_explained: bool,
    /// The step that changed the path at the cursor last, and which change that is.
    step: Option<(usize, String)>,
}

impl Changes {
    /// Nothing is marked, the first change is at the cursor.
    pub(super) fn new(
        title: String,
        changes: Vec<Change>,
        roots: Vec<PathBuf>,
        renames: Renames,
        purpose: Purpose,
    ) -> Self {
        let moved: HashSet<usize> = renames.values().copied().collect();
        let (rows, mut nodes) = tree_of(&changes, &roots, |index| moved.contains(&index));
        if changes.len() > MANY_CHANGES {
            for (row, node) in rows.iter().zip(&mut nodes) {
                node.is_folded = row.extent.len() >= FOLDED_FROM;
            }
        }
        let kinds = summarise(&changes);
        let marked = vec![false; changes.len()];
        Self {
            desk: Desk::new(Outline::new(nodes)),
            title,
            facts: Vec::new(),
            purpose,
            changes,
            roots,
            renames,
            kinds,
            rows,
            marked,
            marked_count: 0,
            question: None,
            is_explained: false,
            step: None,
        }
    }

    /// With the command, the prompt and the commits.
    pub(super) fn with_facts(self, facts: Vec<String>) -> Self {
        Self { facts, ..self }
    }

    pub(super) fn title(&self) -> &str {
        &self.title
    }

    pub(super) fn facts(&self) -> &[String] {
        &self.facts
    }

    pub(super) fn purpose(&self) -> Purpose {
        self.purpose
    }

    pub(super) fn changes(&self) -> &[Change] {
        &self.changes
    }

    pub(super) fn renames(&self) -> &Renames {
        &self.renames
    }

    pub(super) fn kinds(&self) -> &[KindSummary] {
        &self.kinds
    }

    pub(super) fn question(&self) -> Option<&Question> {
        self.question.as_ref()
    }

    /// Whether the keys of the question are to be explained.
    pub(super) fn is_explained(&self) -> bool {
        self.is_explained
    }

    pub(super) fn marked_count(&self) -> usize {
        self.marked_count
    }

    /// A row of the tree.
    pub(super) fn row(&self, index: usize) -> &Row {
        &self.rows[index]
    }

    /// The change that a row is.
    pub(super) fn change(&self, row: &Row) -> Option<&Change> {
        row.change.map(|index| &self.changes[index])
    }

    /// Whether all of a row is marked.
    pub(super) fn is_marked(&self, row: &Row) -> bool {
        match row.change {
            Some(index) => self.marked[index],
            None => self.marked[row.extent.clone()].iter().all(|marked| *marked),
        }
    }

    /// The earlier path of a row that was renamed, as it is shown.
    pub(super) fn old_name(&self, row: &Row) -> Option<String> {
        let gone = self.renames.get(&row.change?)?;
        Some(self.shown(&self.changes[*gone].path))
    }

    /// A path as it is shown.
    pub(super) fn shown(&self, path: &Path) -> String {
        shown(relative_to_roots(path.as_os_str().as_encoded_bytes(), &self.roots))
    }

    /// The row at the cursor.
    pub(super) fn current(&self) -> Option<&Row> {
        self.desk.outline.current().map(|index| &self.rows[index])
    }

    /// The path at the cursor.
    pub(super) fn current_path(&self) -> Option<&Path> {
        self.change(self.current()?).map(|change| change.path.as_path())
    }

    /// Says which step changed the path at the cursor last; harmless for a terminal.
    pub(super) fn set_step(&mut self, step: Option<String>) {
        self.step = self.desk.outline.current().zip(step);
    }

    /// The step that changed the path at the cursor last, if that is known.
    pub(super) fn step(&self) -> Option<&str> {
        let (index, step) = self.step.as_ref()?;
        (self.desk.outline.current() == Some(*index)).then_some(step)
    }

    /// Takes what came of a key or of the mouse.
    pub(super) fn take(&mut self, pressed: Pressed) -> Action {
        match pressed {
            Pressed::Redraw => Action::Redraw,
            Pressed::Suspend => Action::Suspend,
            Pressed::Interrupt => match self.purpose {
                Purpose::Deciding => Action::Decide(Decision::KeepAll),
                Purpose::Looking | Purpose::Choosing => Action::Quit,
            },
            Pressed::Searched => self.search(),
            // All of it is loaded.
            Pressed::Done | Pressed::Unfolded(_) => Action::Nothing,
            Pressed::Back => self.leave(),
            Pressed::Open => self.open(),
            Pressed::Key(key) if self.question.is_some() => self.answer(key),
            Pressed::Key(key) => self.press(key),
        }
    }

    fn press(&mut self, key: KeyCode) -> Action {
        match (key, self.purpose) {
            (KeyCode::Char(' '), _) => self.toggle(),
            (KeyCode::Char('a'), _) => self.toggle_shown(),
            (KeyCode::Char('d'), _) => {
                let row = self.current();
                row.map_or(Action::Nothing, |row| Action::Page(row.extent.clone()))
            }
            (KeyCode::Enter | KeyCode::Char('r'), Purpose::Choosing) => self.ask_to_restore(),
            (KeyCode::Char('R' | 'u'), Purpose::Choosing) => Action::Nothing,
            (KeyCode::Char('r'), _) => match self.hunk_at_cursor() {
                Some((index, hunk)) => self.ask(Question::RestoreHunk(index, hunk)),
                None => self.ask_to_restore(),
            },
            (KeyCode::Char('R'), _) | (KeyCode::Char('u'), Purpose::Deciding) => {
                self.ask(Question::RestoreAll)
            }
            (KeyCode::Char('u'), Purpose::Looking) => Action::TakeBack,
            (KeyCode::Enter, Purpose::Looking) => self.open(),
            (KeyCode::Enter | KeyCode::Char('q'), Purpose::Deciding) if self.marked_count > 0 => {
                self.ask(Question::Keep)
            }
            (KeyCode::Enter | KeyCode::Char('q'), Purpose::Deciding) => {
                Action::Decide(Decision::KeepAll)
            }
            (KeyCode::Char('q'), Purpose::Looking | Purpose::Choosing) => Action::Quit,
            _ => Action::Nothing,
        }
    }

    fn answer(&mut self, key: KeyCode) -> Action {
        self.is_explained = key == KeyCode::Char('?');
        if self.is_explained {
            return Action::Nothing;
        }
        self.desk.mode = Mode::Looking;
        let is_yes = matches!(key, KeyCode::Char('y' | 'Y'));
        match self.question.take() {
            Some(Question::RestoreAll) if is_yes => Action::Decide(Decision::RestoreAll),
            Some(Question::Restore(indices)) if is_yes => Action::Decide(self.restore(&indices)),
            Some(Question::RestoreHunk(index, hunk)) if is_yes => Action::Hunk(index, hunk),
            Some(Question::Keep) => match key {
                KeyCode::Enter | KeyCode::Char('y' | 'Y' | 'q') => {
                    Action::Decide(Decision::KeepAll)
                }
                KeyCode::Char('r') => self.ask_to_restore(),
                _ => Action::Nothing,
            },
            _ => Action::Nothing,
        }
    }

    fn ask(&mut self, question: Question) -> Action {
        self.question = Some(question);
        self.is_explained = false;
        self.desk.mode = Mode::Asked;
        Action::Nothing
    }

    /// Opens the row at the cursor: a directory folds, of a file the difference is looked at.
    fn open(&mut self) -> Action {
        if let Some(index) = self.desk.outline.current() {
            if self.desk.outline.is_parent(index) {
                self.desk.toggle(index);
            } else {
                self.desk.focus = Focus::Difference;
            }
        }
        Action::Nothing
    }

    fn leave(&mut self) -> Action {
        if self.marked_count > 0 {
            let count = self.marked_count;
            let message = format!("{count} marked: r restores them, a takes all marks off");
            self.desk.tell(message);
            return Action::Nothing;
        }
        Action::Back
    }

    /// Shows only paths that contain the text, whatever the case; the cursor stays on its row if
    /// that is still shown.
    fn search(&mut self) -> Action {
        let wanted = self.desk.search().to_lowercase();
        let contains = |path: &Path| self.shown(path).to_lowercase().contains(&wanted);
        let matches = |row: &Row| {
            let gone = row.change.and_then(|index| self.renames.get(&index));
            let paths = row.change.iter().chain(gone);
            paths.into_iter().any(|index| contains(&self.changes[*index].path))
        };
        let matching = (!wanted.is_empty()).then(|| self.rows.iter().map(matches).collect());
        self.desk.outline.search(matching);
        Action::Nothing
    }

    fn toggle(&mut self) -> Action {
        if let Some(row) = self.current().cloned() {
            self.mark_row(&row, !self.is_marked(&row));
        }
        self.desk.outline.move_by(1);
        Action::Nothing
    }

    /// Marks every change of the list, with a search every change that matches; or nothing of it if
    /// all was marked.
    fn toggle_shown(&mut self) -> Action {
        let is_all = self.desk.outline.match_count().is_none();
        let rows: Vec<Row> = (0..self.rows.len())
            .filter(|index| is_all || self.desk.outline.is_match(*index))
            .map(|index| self.rows[index].clone())
            .filter(|row| row.change.is_some())
            .collect();
        let mark = !rows.iter().all(|row| self.is_marked(row));
        for row in rows {
            if self.is_marked(&row) != mark {
                self.mark_row(&row, mark);
            }
        }
        Action::Nothing
    }

    fn mark_row(&mut self, row: &Row, mark: bool) {
        match row.change {
            Some(index) => self.mark(index, mark),
            None => row.extent.clone().for_each(|index| self.mark(index, mark)),
        }
    }

    fn mark(&mut self, index: usize, mark: bool) {
        self.mark_alone(index, mark);
        for below in self.extent(index) {
            if let Some(gone) = self.renames.get(&below).copied() {
                self.mark_alone(gone, mark);
            }
        }
    }

    fn mark_alone(&mut self, index: usize, mark: bool) {
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

    /// The hunk that is looked at, where the keys move the difference of a changed file and
    /// nothing is marked.
    fn hunk_at_cursor(&self) -> Option<(usize, usize)> {
        if self.desk.focus != Focus::Difference || self.marked_count > 0 {
            return None;
        }
        let index = self.current()?.change?;
        let change = &self.changes[index];
        let is_text = change.change_type == ChangeType::Modified && !change.is_directory;
        let (number, _) = self.desk.hunk().filter(|_| is_text && !self.is_renamed(index))?;
        Some((index, number - 1))
    }

    fn is_renamed(&self, index: usize) -> bool {
        self.renames.contains_key(&index)
    }

    /// Asks about what is marked, or else about the row at the cursor.
    fn ask_to_restore(&mut self) -> Action {
        let marked = || (0..self.changes.len()).filter(|index| self.marked[*index]).collect();
        let indices: Vec<usize> = match self.current() {
            _ if self.marked_count > 0 => marked(),
            Some(row) => self.with_renamed(match row.change {
                Some(index) => self.extent(index),
                None => row.extent.clone(),
            }),
            None => Vec::new(),
        };
        if indices.is_empty() {
            self.desk.tell("nothing is here to restore".to_owned());
            return Action::Nothing;
        }
        self.ask(Question::Restore(indices))
    }

    /// The changes of a range with the earlier paths of renamed files, in order.
    fn with_renamed(&self, range: Range<usize>) -> Vec<usize> {
        let gone = range.clone().filter_map(|index| self.renames.get(&index).copied());
        let mut indices: Vec<usize> = gone.chain(range.clone()).collect();
        indices.sort_unstable();
        indices.dedup();
        indices
    }

    fn restore(&self, indices: &[usize]) -> Decision {
        if indices.len() == self.changes.len() {
            return Decision::RestoreAll;
        }
        Decision::Restore(indices.iter().map(|index| self.changes[*index].path.clone()).collect())
    }
}

/// The changes of each kind in words, with the sum of their sizes.
fn summarise(changes: &[Change]) -> Vec<KindSummary> {
    let summary = ChangeSummary::of(changes);
    let mut kinds: Vec<KindSummary> = Vec::new();
    for counted in counted_changes(&summary) {
        match kinds.last_mut() {
            Some(last) if last.change_type == counted.change_type => {
                last.words = format!("{} {counted}", last.words);
            }
            _ => {
                let words = counted.to_string();
                let change_type = counted.change_type;
                kinds.push(KindSummary { change_type, words, size_delta: 0 });
            }
        }
    }
    for change in changes.iter().filter(|change| !change.is_in_git()) {
        if let Some(kind) = kinds.iter_mut().find(|kind| kind.change_type == change.change_type) {
            kind.size_delta = kind.size_delta.saturating_add(change.size_delta.unwrap_or(0));
        }
    }
    if summary.in_git > 0 {
        let words = GIT_CHANGED.to_owned();
        kinds.push(KindSummary { change_type: ChangeType::Modified, words, size_delta: 0 });
    }
    kinds
}

#[cfg(test)]
#[path = "changes_tests.rs"]
mod tests;
