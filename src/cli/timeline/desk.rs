//! The shared part of both pages: a list with a difference beside it, and the keys and the mouse
//! that move through them. The search and the help are here too.
//!
//! A key goes in; [`Pressed`] says whether it is done or the page decides. Nothing here touches
//! anything but the state of the screen.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::{Position, Rect};

use super::outline::Outline;

/// Longest way sideways: no line has more bytes on the screen.
const MAX_LEFT: usize = 4096;
/// Rows for one notch of the wheel.
const WHEEL_ROWS: isize = 3;

/// The part of the screen that keys move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Focus {
    #[default]
    List,
    Difference,
}

/// The meaning of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Mode {
    /// Moving, marking, deciding.
    #[default]
    Looking,
    /// Typing the text of a search.
    Searching,
    /// Answering a question of the page.
    Asked,
    /// Reading what the keys do.
    Help,
}

/// The effect of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pressed {
    /// It is done.
    Done,
    /// Everything is drawn again.
    Redraw,
    /// The shell gets the terminal for a while.
    Suspend,
    /// Ctrl-C.
    Interrupt,
    /// The text of the search is another one.
    Searched,
    /// A node is unfolded of which nothing is loaded.
    Unfolded(usize),
    /// The row at the cursor is opened.
    Open,
    /// The list is left, to where the page came from.
    Back,
    /// The page decides.
    Key(KeyCode),
}

/// Where the parts were drawn.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Places {
    pub(super) list: Rect,
    pub(super) difference: Rect,
    /// Cells of a row before the marks of folding.
    pub(super) prefix: u16,
}

/// The state.
#[derive(Debug, Default)]
pub(super) struct Desk {
    pub(super) outline: Outline,
    pub(super) mode: Mode,
    pub(super) focus: Focus,
    pub(super) places: Places,
    /// The first shown line of the help.
    pub(super) help_top: usize,
    search: String,
    message: Option<String>,
    /// The first shown line of the difference.
    top: usize,
    /// The first shown cell of its lines.
    left: usize,
    /// Lines of the difference, and where its hunks begin.
    line_count: usize,
    hunks: Vec<usize>,
}

impl Desk {
    pub(super) fn new(outline: Outline) -> Self {
        Self { outline, ..Self::default() }
    }

    /// The text of the search.
    pub(super) fn search(&self) -> &str {
        &self.search
    }

    /// The message that is shown until the next key.
    pub(super) fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// Says something until the next key.
    pub(super) fn tell(&mut self, message: String) {
        self.message = Some(message);
    }

    /// The first shown line of the difference.
    pub(super) fn top(&self) -> usize {
        self.top
    }

    /// The first shown cell of the lines of the difference.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// The hunk that is looked at, from 1, and their number.
    pub(super) fn hunk(&self) -> Option<(usize, usize)> {
        let before = self.hunks.partition_point(|begin| *begin <= self.top);
        (!self.hunks.is_empty()).then_some((before.max(1), self.hunks.len()))
    }

    /// Another difference is shown, from its top.
    pub(super) fn show(&mut self, line_count: usize, hunks: Vec<usize>) {
        (self.top, self.left) = (0, 0);
        self.grow(line_count, hunks);
    }

    /// More of the same difference is known.
    pub(super) fn grow(&mut self, line_count: usize, hunks: Vec<usize>) {
        (self.line_count, self.hunks) = (line_count, hunks);
    }

    /// Whether the end of the known lines is near.
    pub(super) fn is_near_end(&self) -> bool {
        self.top + 2 * usize::from(self.places.difference.height) >= self.line_count
    }

    /// Takes a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Pressed {
        self.message = None;
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return self.press_with_control(key.code);
        }
        match self.mode {
            Mode::Searching => self.press_in_search(key.code),
            Mode::Asked => Pressed::Key(key.code),
            Mode::Help => self.press_in_help(key.code),
            Mode::Looking => match self.focus {
                Focus::List => self.press_in_list(key.code),
                Focus::Difference => self.press_in_difference(key.code),
            },
        }
    }

    fn press_with_control(&mut self, key: KeyCode) -> Pressed {
        match key {
            KeyCode::Char('c' | 'd') => Pressed::Interrupt,
            KeyCode::Char('z') => Pressed::Suspend,
            KeyCode::Char('l') => Pressed::Redraw,
            KeyCode::Char('u') if self.mode == Mode::Searching => self.set_search(String::new()),
            KeyCode::Char('f') if self.mode == Mode::Looking => self.page(1),
            KeyCode::Char('b') if self.mode == Mode::Looking => self.page(-1),
            _ => Pressed::Done,
        }
    }

    fn press_in_list(&mut self, key: KeyCode) -> Pressed {
        match key {
            KeyCode::Up | KeyCode::Char('k') => self.outline.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.outline.move_by(1),
            KeyCode::Home | KeyCode::Char('g') => self.outline.move_to(0),
            KeyCode::End | KeyCode::Char('G') => self.outline.move_to(usize::MAX),
            KeyCode::Left | KeyCode::Char('h') => return self.fold_or_leave(),
            KeyCode::Right | KeyCode::Char('l') => return self.unfold_or_open(),
            KeyCode::Tab => self.focus = Focus::Difference,
            KeyCode::Esc if !self.search.is_empty() => return self.set_search(String::new()),
            KeyCode::Esc => return Pressed::Back,
            key => return self.press_anywhere(key),
        }
        Pressed::Done
    }

    fn press_in_difference(&mut self, key: KeyCode) -> Pressed {
        match key {
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Home | KeyCode::Char('g') => self.top = 0,
            KeyCode::End | KeyCode::Char('G') => self.scroll(isize::MAX),
            KeyCode::Left | KeyCode::Char('h') | KeyCode::Esc | KeyCode::Tab => {
                self.focus = Focus::List;
            }
            KeyCode::Enter | KeyCode::Right | KeyCode::Char('l') => {}
            key => return self.press_anywhere(key),
        }
        Pressed::Done
    }

    fn press_anywhere(&mut self, key: KeyCode) -> Pressed {
        match key {
            KeyCode::PageUp => return self.page(-1),
            KeyCode::PageDown => return self.page(1),
            KeyCode::Char('J') => self.scroll(1),
            KeyCode::Char('K') => self.scroll(-1),
            KeyCode::Char('>') => self.move_sideways(true),
            KeyCode::Char('<') => self.move_sideways(false),
            KeyCode::Char('n') => self.next_hunk(),
            KeyCode::Char('p') => self.previous_hunk(),
            KeyCode::Char('/') => {
                self.mode = Mode::Searching;
                self.focus = Focus::List;
            }
            KeyCode::Char('?') | KeyCode::F(1) => {
                (self.mode, self.help_top) = (Mode::Help, 0);
            }
            key => return Pressed::Key(key),
        }
        Pressed::Done
    }

    fn press_in_help(&mut self, key: KeyCode) -> Pressed {
        match key {
            KeyCode::Down | KeyCode::Char('j') | KeyCode::PageDown => self.help_top += 1,
            KeyCode::Up | KeyCode::Char('k') | KeyCode::PageUp => {
                self.help_top = self.help_top.saturating_sub(1);
            }
            _ => self.mode = Mode::Looking,
        }
        Pressed::Done
    }

    fn press_in_search(&mut self, key: KeyCode) -> Pressed {
        match key {
            KeyCode::Enter | KeyCode::Up | KeyCode::Down => {
                self.mode = Mode::Looking;
                Pressed::Done
            }
            KeyCode::Esc => {
                self.mode = Mode::Looking;
                self.set_search(String::new())
            }
            KeyCode::Backspace => {
                let mut search = self.search.clone();
                search.pop();
                self.set_search(search)
            }
            KeyCode::Char(c) => self.set_search(format!("{}{c}", self.search)),
            _ => Pressed::Done,
        }
    }

    fn set_search(&mut self, search: String) -> Pressed {
        self.search = search;
        Pressed::Searched
    }

    /// Takes what the mouse did.
    pub(super) fn mouse(&mut self, event: MouseEvent) -> Pressed {
        let at = Position { x: event.column, y: event.row };
        let Places { list, difference, prefix } = self.places;
        let on_difference = difference.contains(at);
        match event.kind {
            _ if self.mode == Mode::Asked => Pressed::Done,
            MouseEventKind::Down(_) if self.mode == Mode::Help => {
                self.mode = Mode::Looking;
                Pressed::Done
            }
            MouseEventKind::ScrollDown | MouseEventKind::ScrollUp => {
                let is_down = event.kind == MouseEventKind::ScrollDown;
                let rows = if is_down { WHEEL_ROWS } else { -WHEEL_ROWS };
                if on_difference {
                    self.scroll(rows);
                } else {
                    self.outline.move_by(rows);
                }
                self.message = None;
                Pressed::Done
            }
            MouseEventKind::Down(MouseButton::Left) if on_difference => {
                self.message = None;
                self.focus = Focus::Difference;
                Pressed::Done
            }
            MouseEventKind::Down(MouseButton::Left) if list.contains(at) => {
                self.message = None;
                self.focus = Focus::List;
                self.click(usize::from(at.y - list.y), at.x - list.x, prefix)
            }
            _ => Pressed::Done,
        }
    }

    /// A click on a row: on its mark of folding, on its mark, or on the row itself, which a second
    /// click opens.
    fn click(&mut self, row: usize, column: u16, prefix: u16) -> Pressed {
        let Some(position) = self.outline.position_at(row) else { return Pressed::Done };
        let is_second = position == self.outline.cursor();
        self.outline.move_to(position);
        let Some(index) = self.outline.current() else { return Pressed::Done };
        let node = self.outline.node(index);
        let fold = prefix.saturating_add(node.depth.saturating_mul(2));
        if self.outline.is_parent(index) && (fold..fold.saturating_add(2)).contains(&column) {
            return self.toggle(index);
        }
        match (column < prefix, is_second) {
            (true, _) => Pressed::Key(KeyCode::Char(' ')),
            (false, true) => Pressed::Open,
            (false, false) => Pressed::Done,
        }
    }

    /// Folds or unfolds a node.
    pub(super) fn toggle(&mut self, index: usize) -> Pressed {
        let node = self.outline.node(index);
        if node.is_folded && node.has_more {
            return Pressed::Unfolded(index);
        }
        self.outline.fold(index, !node.is_folded);
        Pressed::Done
    }

    fn fold_or_leave(&mut self) -> Pressed {
        let Some(index) = self.outline.current() else { return Pressed::Back };
        if self.outline.is_parent(index) && !self.outline.node(index).is_folded {
            self.outline.fold(index, true);
            return Pressed::Done;
        }
        match self.outline.parent(index) {
            Some(parent) => {
                self.outline.select(parent);
                Pressed::Done
            }
            None => Pressed::Back,
        }
    }

    fn unfold_or_open(&mut self) -> Pressed {
        match self.outline.current() {
            Some(index) if self.outline.is_parent(index) && self.outline.node(index).is_folded => {
                self.toggle(index)
            }
            Some(_) => Pressed::Open,
            None => Pressed::Done,
        }
    }

    fn page(&mut self, pages: isize) -> Pressed {
        match self.focus {
            Focus::List => self.outline.move_pages(pages),
            Focus::Difference => {
                let rows = isize::try_from(self.places.difference.height).unwrap_or(1);
                self.scroll(pages.saturating_mul(rows.max(1)));
            }
        }
        Pressed::Done
    }

    fn scroll(&mut self, lines: isize) {
        let rows = usize::from(self.places.difference.height);
        let last = self.line_count.saturating_sub(rows.max(1));
        self.top = self.top.saturating_add_signed(lines).min(last);
    }

    /// Moves the lines of the difference by half of its width.
    fn move_sideways(&mut self, is_right: bool) {
        let cells = usize::from(self.places.difference.width / 2).max(1);
        self.left = match is_right {
            true => self.left.saturating_add(cells).min(MAX_LEFT),
            false => self.left.saturating_sub(cells),
        };
    }

    fn next_hunk(&mut self) {
        // A hunk near the end cannot stand at the top, and is looked at all the same.
        match self.hunks.iter().find(|begin| **begin > self.top) {
            Some(begin) => self.top = *begin,
            None => self.message = Some("no hunk after this one".to_owned()),
        }
    }

    fn previous_hunk(&mut self) {
        match self.hunks.iter().rev().find(|begin| **begin < self.top) {
            Some(begin) => self.top = *begin,
            None => self.message = Some("no hunk before this one".to_owned()),
        }
    }
}

#[cfg(test)]
#[path = "desk_tests.rs"]
mod tests;
