//! Draws a page: its head, the rows that fit, the difference beside them, what the keys do.
//!
//! One layout for both pages. Costs what fits on the screen.

use std::ops::Range;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::changes::{Changes, Purpose, Question};
use super::desk::{Desk, Focus, Mode, Places};
use super::difference::Difference;
use super::sessions::{Entry, Scope, Sessions};
use crate::cli::looking::Token;
use crate::cli::render::columns::{cut, pad, width};
use crate::cli::render::{LineKind, MarkedLine, change_mark, change_word, shown, size_delta};
use nono_engine::diff::ChangeType;

/// From this width on, the difference stands beside the sessions.
const SPLIT_SESSIONS_FROM: u16 = 80;
/// The same beside the changes, whose rows are wider.
const SPLIT_CHANGES_FROM: u16 = 100;
/// Columns of the list beside a difference.
const LIST_WIDTH: (u16, u16) = (30, 70);
/// Columns of the keys in the help, with the space behind them.
const KEYS_WIDTH: usize = 19;
/// Narrower rows of sessions have no room for the changes.
const NOTES_FROM: usize = 30;
/// On lower screens the list is worth more than the summary.
const ROWS_FOR_SUMMARY: u16 = 10;
/// The same for the command, the prompt and the commits.
const ROWS_FOR_FACTS: u16 = 16;
/// Maximum number of these.
const MAX_FACTS: usize = 4;
/// Narrower rows have no words for the kinds of changes.
const WORDS_FROM: usize = 50;
/// Narrower differences have no line numbers.
const NUMBERS_FROM: u16 = 80;

const KEYS_DECIDING: &str =
    "space mark  a all  d diff  / find  r restore  ? help  Enter keep everything";
const KEYS_CHOOSING: &str =
    "space mark  a all  d diff  / find  ? help  Enter keep what is marked  q nothing";
const KEYS_LOOKING: &str = "? help  q end  Esc back  Enter open  space mark  r restore  u undo";
const KEYS_SESSIONS: &str = "? help  q end  Enter open  u undo  / find  o all projects";
const KEYS_DIFFERENCE: &str =
    "? help  j k scroll  < > sideways  n p hunks  r restore hunk  Esc list  d pager";

const HELP_MOVING: [&str; 10] = [
    "up, down, k, j     move",
    "left, right, h, l  fold and unfold; right on a file looks at its difference",
    "PgUp, PgDn, g, G   move a page, to the first, to the last",
    "Tab                to the difference and back",
    "n, p               the next hunk, the one before; J, K one line",
    "<, >               the difference sideways",
    "/                  search; Esc shows all again",
    "mouse              click selects, a second click opens, the wheel moves",
    "Ctrl-C             end, at once",
    "Ctrl-Z             back to the shell; fg comes back here",
];
const HELP_CHANGES: [&str; 7] = [
    "space              mark a path, a new or deleted directory with all that is in it",
    "a                  mark all that is shown, or none",
    "d                  show what changed in it, in the pager",
    "r                  restore what is marked, or else the path at the cursor",
    "r in a difference  restore the hunk that is looked at",
    "R                  restore everything",
    "Esc                back to the timeline",
];
const HELP_DECIDING: [&str; 1] = ["Enter, q           keep everything"];
const HELP_CHOOSING: [&str; 6] = [
    "space              mark a path, a new or deleted directory with all that is in it",
    "a                  mark all that is shown, or none",
    "d                  show what changed in it, in the pager",
    "Enter              keep what is marked, or else the path at the cursor",
    "q                  choose nothing",
    "Esc                choose nothing",
];
const HELP_LOOKING: [&str; 3] = [
    "Enter              fold a directory, look at a file",
    "u                  take all of it back, as nono undo does",
    "q                  end",
];
const HELP_SESSIONS: [&str; 4] = [
    "Enter              show the changed files",
    "u                  take a session, a prompt or a step back, with a question",
    "o                  the sessions of all projects, or of this one",
    "q                  end",
];
const HELP_END: [&str; 4] = [
    "",
    "A restore records the state of now first, so it can be undone as well.",
    "",
    "down, up           more of this; any other key: back",
];

/// A page of the screen.
pub(super) trait Page {
    /// The shared part.
    fn desk(&self) -> &Desk;
    /// The shared part, to be changed.
    fn desk_mut(&mut self) -> &mut Desk;
    /// The width from which on the difference stands beside the list.
    fn split_from(&self) -> u16;
    /// The lines above the list.
    fn head(&self, area: Rect, colours: bool) -> Vec<Line<'static>>;
    /// Cells of a row before its marks of folding.
    fn prefix(&self, width: usize) -> u16;
    /// A row of the list in so many cells.
    fn row(&self, index: usize, width: usize, colours: bool) -> Line<'static>;
    /// A question, if one is asked.
    fn question(&self, width: usize) -> Option<String>;
    /// A remark on the row at the cursor.
    fn remark(&self) -> Option<String>;
    /// The keys in a line.
    fn keys(&self) -> &'static str;
    /// The keys of the page.
    fn help(&self) -> Vec<&'static str>;
}

/// Whether the screen has a difference on it.
pub(super) fn shows_difference(page: &impl Page, width: u16) -> bool {
    let desk = page.desk();
    desk.mode != Mode::Help && (width >= page.split_from() || desk.focus == Focus::Difference)
}

/// Draws the whole of it.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    page: &mut impl Page,
    difference: &Difference,
    colours: bool,
) {
    let area = frame.area();
    let head = page.head(area, colours);
    let keys = match page.desk().focus {
        Focus::Difference => KEYS_DIFFERENCE,
        Focus::List => page.keys(),
    };
    let dim = Style::new().add_modifier(Modifier::DIM);
    let room = usize::from(area.width);
    let foot = [status(page, room), Line::styled(fitting_keys(keys, room), dim)];
    let rows = usize::from(area.height).saturating_sub(head.len() + foot.len());
    let top = u16::try_from(head.len()).unwrap_or(u16::MAX);
    let height = u16::try_from(rows).unwrap_or(u16::MAX);
    let body = Rect { y: area.y.saturating_add(top), height, ..area }.intersection(area);
    for (y, line) in (area.y..).zip(&head) {
        put(frame, Rect { y, height: 1, ..area }, line);
    }
    if page.desk().mode == Mode::Help {
        let help: Vec<String> =
            page.help().into_iter().flat_map(|line| folded_help(line, room)).collect();
        let desk = page.desk_mut();
        desk.help_top = desk.help_top.min(help.len().saturating_sub(rows));
        let shown = help.into_iter().skip(desk.help_top);
        for (y, line) in (body.y..body.bottom()).zip(shown) {
            put(frame, Rect { y, height: 1, ..body }, &Line::raw(line));
        }
        page.desk_mut().places = Places::default();
    } else {
        let mut places = places(page, body);
        places.prefix = page.prefix(places.list.width.into());
        page.desk_mut().places = places;
        draw_list(frame, page, places.list, rows, colours);
        // The text of another row would mislead.
        if difference.is_of(page.desk().outline.current()) {
            draw_difference(frame, page.desk(), difference, places.difference, colours);
        } else if places.difference.width > 0 {
            frame.render_widget(Clear, places.difference);
        }
    }
    for (y, line) in (area.bottom().saturating_sub(2).max(area.y)..).zip(&foot) {
        put(frame, Rect { y, height: 1, ..area }, line);
    }
}

fn places(page: &impl Page, body: Rect) -> Places {
    let prefix = 0;
    let none = Rect { width: 0, ..body };
    match (shows_difference(page, body.width), body.width >= page.split_from()) {
        (true, true) => {
            let (least, most) = LIST_WIDTH;
            let width = (body.width / 2).clamp(least, most);
            let list = Rect { width, ..body };
            let x = body.x + width;
            Places { list, difference: Rect { x, width: body.width - width, ..body }, prefix }
        }
        (true, false) => Places { list: none, difference: body, prefix },
        (false, _) => Places { list: body, difference: none, prefix },
    }
}

fn draw_list(frame: &mut Frame<'_>, page: &mut impl Page, place: Rect, rows: usize, colours: bool) {
    let window = page.desk_mut().outline.window(rows);
    if place.width == 0 {
        return;
    }
    let cursor = page.desk().outline.cursor();
    let room = usize::from(place.width);
    for (y, (position, index)) in (place.y..place.bottom()).zip(window) {
        let line = page.row(index, room, colours);
        let line = match position == cursor {
            true => line.style(Style::new().add_modifier(Modifier::REVERSED)),
            false => line,
        };
        put(frame, Rect { y, height: 1, ..place }, &line);
    }
}

/// The difference, behind a line from top to bottom where the list is beside it.
fn draw_difference(
    frame: &mut Frame<'_>,
    desk: &Desk,
    difference: &Difference,
    place: Rect,
    colours: bool,
) {
    let has_list = place.x > 0;
    let border = match (has_list, desk.focus) {
        (false, _) => "",
        (true, Focus::List) => "│ ",
        (true, Focus::Difference) => "┃ ",
    };
    let has_numbers = place.width >= NUMBERS_FROM;
    let mut lines = difference.lines().iter().enumerate().skip(desk.top());
    for y in place.y..place.bottom() {
        let mut spans = vec![Span::styled(border, Style::new().add_modifier(Modifier::DIM))];
        if let Some((at, line)) = lines.next() {
            let (fixed, text) = difference_line(line, difference.colours(at), has_numbers, colours);
            spans.extend(fixed);
            spans.extend(behind(text, desk.left()));
        }
        put(frame, Rect { y, height: 1, ..place }, &Line::from(spans));
    }
}

/// Pieces of one style each.
type Spans = Vec<Span<'static>>;

/// A line of a difference: its number and sign, which stay, and its text, which moves sideways.
fn difference_line(
    line: &MarkedLine,
    code: &[(Range<usize>, Token)],
    has_numbers: bool,
    colours: bool,
) -> (Spans, Spans) {
    let dim = Style::new().add_modifier(Modifier::DIM);
    let base = line_style(line.kind, colours);
    let sign = match line.kind {
        LineKind::Added => "+",
        LineKind::Removed => "-",
        LineKind::Same => " ",
        _ => return (Vec::new(), vec![Span::styled(line.text.clone(), base)]),
    };
    let (mut fixed, mut spans) = (Vec::new(), Vec::new());
    if has_numbers && let Some(number) = line.number {
        fixed.push(Span::styled(format!("{number:>4} "), dim));
    }
    fixed.push(Span::styled(sign, base));
    let word = match colours {
        true => base.add_modifier(Modifier::REVERSED),
        false => base.add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
    };
    let ends = |range: &Range<usize>| [range.start, range.end];
    let mut cuts: Vec<usize> = line.words.iter().flat_map(ends).collect();
    cuts.extend(code.iter().flat_map(|(range, _)| ends(range)));
    cuts.extend([0, line.text.len()]);
    cuts.sort_unstable();
    cuts.dedup();
    for part in cuts.windows(2) {
        let coloured = code.iter().find(|(range, _)| range.contains(&part[0]));
        let style = match coloured {
            _ if line.words.iter().any(|range| range.contains(&part[0])) => word,
            Some((_, token)) if colours => base.fg(code_colour(*token)),
            _ => base,
        };
        spans.push(Span::styled(line.text[part[0]..part[1]].to_owned(), style));
    }
    (fixed, spans)
}

/// The pieces of a line behind its first cells. A wide character that is cut leaves a space.
fn behind(spans: Spans, mut cells: usize) -> Spans {
    let mut rest = Vec::new();
    for span in spans {
        let width = span.width();
        if cells >= width {
            cells -= width;
            continue;
        }
        let mut kept = String::new();
        for c in span.content.chars() {
            let width = c.width().unwrap_or(0);
            if cells == 0 {
                kept.push(c);
            } else if width > cells {
                kept.push_str(&" ".repeat(width - cells));
                cells = 0;
            } else {
                cells -= width;
            }
        }
        rest.push(Span::styled(kept, span.style));
    }
    rest
}

/// A line of the help on a screen: a narrow one has the words below the keys, in several lines.
fn folded_help(line: &str, room: usize) -> Vec<String> {
    if width(line) <= room {
        return vec![line.to_owned()];
    }
    let (keys, words) = match line.split_at_checked(KEYS_WIDTH) {
        Some((keys, words)) if keys.ends_with(' ') => (keys.trim_end(), words),
        _ => ("", line),
    };
    let indent = if keys.is_empty() { "" } else { "  " };
    let mut lines: Vec<String> =
        Some(cut(keys, room)).filter(|keys| !keys.is_empty()).into_iter().collect();
    let mut current = String::new();
    for word in words.split_whitespace() {
        let is_full = width(indent) + width(&current) + 1 + width(word) > room;
        if is_full && !current.is_empty() {
            lines.push(format!("{indent}{}", std::mem::take(&mut current)));
        }
        if !current.is_empty() {
            current.push(' ');
        }
        current.push_str(word);
    }
    lines.push(format!("{indent}{current}"));
    lines
}

/// The sixteen colours of the terminal fit any background.
fn code_colour(token: Token) -> Color {
    match token {
        Token::Comment => Color::DarkGray,
        Token::Text => Color::Yellow,
        Token::Constant => Color::Cyan,
        Token::Keyword => Color::Magenta,
        Token::Name => Color::Blue,
    }
}

fn line_style(kind: LineKind, colours: bool) -> Style {
    let coloured = |colour| if colours { Style::new().fg(colour) } else { Style::new() };
    match kind {
        LineKind::File => Style::new().add_modifier(Modifier::BOLD),
        LineKind::Remark => Style::new().add_modifier(Modifier::DIM),
        LineKind::Hunk => coloured(Color::Cyan),
        LineKind::Added => coloured(Color::Green),
        LineKind::Removed => coloured(Color::Red),
        LineKind::Same | LineKind::Fact => Style::new(),
    }
}

fn put(frame: &mut Frame<'_>, place: Rect, line: &Line<'_>) {
    let place = place.intersection(frame.area());
    frame.render_widget(Clear, place);
    frame.render_widget(line, place);
}

/// The keys that fit, each with its word.
fn fitting_keys(keys: &str, room: usize) -> String {
    let mut line = String::new();
    for key in keys.split("  ") {
        let gap = if line.is_empty() { "" } else { "  " };
        if width(&line) + gap.len() + width(key) > room {
            break;
        }
        line.push_str(gap);
        line.push_str(key);
    }
    line
}

fn status(page: &impl Page, room: usize) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let desk = page.desk();
    if let Some(question) = page.question(room) {
        return Line::styled(question, bold);
    }
    if desk.mode == Mode::Searching {
        return Line::styled(format!("/{}_", shown(desk.search().as_bytes())), bold);
    }
    if let Some(message) = desk.message() {
        return Line::styled(shown(message.as_bytes()), bold);
    }
    let at = (desk.outline.cursor() + 1).min(desk.outline.shown_count());
    let hunk = desk.hunk().filter(|_| desk.focus == Focus::Difference);
    let hunk = hunk.map(|(at, count)| format!("  hunk {at} of {count}")).unwrap_or_default();
    let remark = page.remark().map(|remark| format!("  {remark}")).unwrap_or_default();
    Line::raw(format!("{at} of {}{hunk}{remark}", desk.outline.shown_count()))
}

/// The title, with the search and what is marked.
fn title_line(title: &str, desk: &Desk, of: usize, marked: usize) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut line = vec![Span::styled(title.to_owned(), bold)];
    if let Some(count) = desk.outline.match_count() {
        let search = shown(desk.search().as_bytes());
        line.push(Span::raw(format!("  {count} of {of} contain {search}")));
    }
    if marked > 0 {
        line.push(Span::raw(format!("  {marked} marked")));
    }
    Line::from(line)
}

impl Page for Changes {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn desk_mut(&mut self) -> &mut Desk {
        &mut self.desk
    }

    fn split_from(&self) -> u16 {
        SPLIT_CHANGES_FROM
    }

    fn head(&self, area: Rect, colours: bool) -> Vec<Line<'static>> {
        let title = title_line(self.title(), &self.desk, self.changes().len(), self.marked_count());
        let mut lines = vec![title];
        let room = usize::from(area.width);
        if area.height >= ROWS_FOR_FACTS {
            let facts = self.facts().iter().take(MAX_FACTS);
            lines.extend(facts.map(|fact| Line::raw(cut(fact, room))));
        }
        if area.height >= ROWS_FOR_SUMMARY {
            let kinds: Vec<Span<'static>> = self
                .kinds()
                .iter()
                .map(|kind| {
                    let size = match kind.size_delta {
                        0 => String::new(),
                        delta => format!(" ({})", size_delta(delta)),
                    };
                    let text = format!("{}{size}", kind.words);
                    Span::styled(text, style(kind.change_type, colours))
                })
                .collect();
            let needed: usize = kinds.iter().map(|kind| kind.width() + 2).sum();
            if needed <= room {
                let gap = |kind| [kind, Span::raw("  ")];
                lines.push(Line::from(kinds.into_iter().flat_map(gap).collect::<Vec<_>>()));
            } else {
                lines.extend(kinds.into_iter().map(Line::from));
            }
            lines.push(Line::default());
        }
        lines
    }

    fn prefix(&self, width: usize) -> u16 {
        // `[ ] + ` and, in a wide list, a word.
        if width >= WORDS_FROM { 18 } else { 6 }
    }

    fn row(&self, index: usize, room: usize, colours: bool) -> Line<'static> {
        let row = self.row(index);
        let node = self.desk.outline.node(index);
        let mark = if self.is_marked(row) { "[x] " } else { "[ ] " };
        let change = self.change(row);
        let old_name = self.old_name(row);
        let (sign, word, colour) = match change {
            Some(_) if old_name.is_some() => ('r', "renamed", style(ChangeType::Modified, colours)),
            Some(change) => (
                change_mark(change.change_type),
                change_word(change.change_type),
                style(change.change_type, colours),
            ),
            None => (' ', "", Style::new()),
        };
        let what = match room >= WORDS_FROM {
            true => format!("{sign} {word:<12}"),
            false => format!("{sign} "),
        };
        let is_parent = self.desk.outline.is_parent(index);
        let fold = match (is_parent, node.is_folded && self.desk.outline.match_count().is_none()) {
            (false, _) => "",
            (true, false) => "▾ ",
            (true, true) => "▸ ",
        };
        let depth = usize::from(node.depth).min(room / 4);
        let indent = format!("{}{fold}", "  ".repeat(depth));
        let slash = if is_parent { "/" } else { "" };
        let count = match (is_parent, change) {
            (true, None) => format!("  ({})", row.extent.len()),
            _ => String::new(),
        };
        let delta = match change.and_then(|change| change.size_delta) {
            _ if old_name.is_some() => String::new(),
            None | Some(0) => count,
            Some(delta) => format!("  ({})", size_delta(delta)),
        };
        let taken = mark.width() + what.width() + indent.width() + slash.len();
        let room = room.saturating_sub(taken);
        // In a narrow list the name is worth more than its size.
        let delta = if room < 12 + delta.width() { String::new() } else { delta };
        let name = shown(row.name(self.changes()));
        let name = match old_name {
            Some(old) => format!("{name} ← {old}"),
            None => name,
        };
        Line::from(vec![
            Span::raw(mark),
            Span::styled(what, colour),
            Span::raw(indent),
            Span::raw(end_of(&name, room.saturating_sub(delta.width()))),
            Span::raw(slash),
            Span::styled(delta, Style::new().add_modifier(Modifier::DIM)),
        ])
    }

    fn question(&self, room: usize) -> Option<String> {
        let paths = |count: usize| match count {
            1 => "1 path".to_owned(),
            count => format!("{count} paths"),
        };
        let marked = self.marked_count();
        let verb = if self.purpose() == Purpose::Choosing { "keep" } else { "restore" };
        let question = self.question()?;
        if self.is_explained() {
            return Some(match question {
                Question::Keep => "Enter keeps, r restores, another key goes back".to_owned(),
                _ => format!("y: {verb}; another key: do nothing"),
            });
        }
        Some(match question {
            Question::RestoreAll => {
                format!("{verb} all {}? [y/N/?]", paths(self.changes().len()))
            }
            Question::Restore(_) if marked == 1 => format!("{verb} 1 marked path? [y/N/?]"),
            Question::Restore(_) if marked > 1 => {
                format!("{verb} {marked} marked paths? [y/N/?]")
            }
            Question::Restore(indices) => match indices.as_slice() {
                [index] => {
                    let name = self.shown(&self.changes()[*index].path);
                    format!("{verb} {}? [y/N/?]", end_of(&name, room.saturating_sub(17)))
                }
                indices => format!("{verb} {}? [y/N/?]", paths(indices.len())),
            },
            Question::RestoreHunk(index, hunk) => {
                let name = self.shown(&self.changes()[*index].path);
                let count = self.desk.hunk().map_or(0, |(_, count)| count);
                let what = format!("hunk {} of {count} of ", hunk + 1);
                let room = room.saturating_sub(what.len() + 17);
                format!("restore {what}{}? [y/N/?]", end_of(&name, room))
            }
            Question::Keep => {
                format!("keep everything, also the {marked} marked? Enter keeps, r restores them")
            }
        })
    }

    fn remark(&self) -> Option<String> {
        self.step().map(str::to_owned)
    }

    fn keys(&self) -> &'static str {
        match self.purpose() {
            Purpose::Deciding => KEYS_DECIDING,
            Purpose::Choosing => KEYS_CHOOSING,
            Purpose::Looking => KEYS_LOOKING,
        }
    }

    fn help(&self) -> Vec<&'static str> {
        let own: &[&str] = match self.purpose() {
            Purpose::Deciding => &HELP_DECIDING,
            Purpose::Choosing => {
                return [&HELP_CHOOSING[..], &HELP_MOVING, &HELP_END].concat();
            }
            Purpose::Looking => &HELP_LOOKING,
        };
        [&HELP_CHANGES, own, &HELP_MOVING, &HELP_END].concat()
    }
}

impl Page for Sessions {
    fn desk(&self) -> &Desk {
        &self.desk
    }

    fn desk_mut(&mut self) -> &mut Desk {
        &mut self.desk
    }

    fn split_from(&self) -> u16 {
        SPLIT_SESSIONS_FROM
    }

    fn head(&self, area: Rect, _colours: bool) -> Vec<Line<'static>> {
        let count = self.entry_count();
        let mut lines = vec![title_line(self.title(), &self.desk, count, 0)];
        if area.height >= ROWS_FOR_SUMMARY {
            lines.push(Line::default());
        }
        lines
    }

    fn prefix(&self, _width: usize) -> u16 {
        0
    }

    fn row(&self, index: usize, room: usize, colours: bool) -> Line<'static> {
        let entry = self.entry(index);
        let node = self.desk.outline.node(index);
        let is_folded = node.is_folded && self.desk.outline.match_count().is_none();
        let fold = match (self.desk.outline.is_parent(index), is_folded) {
            (false, _) => "  ",
            (true, false) => "▾ ",
            (true, true) => "▸ ",
        };
        let indent = format!("{}{fold}", "  ".repeat(node.depth.into()));
        let (time, text, notes) = self.words(entry);
        let time = if time.is_empty() { time } else { pad(&time, 10) };
        let room = room.saturating_sub(indent.width() + time.width());
        // A third of the rest, at least, is for the changes. What is undone is said in any room.
        let notes_room = room.saturating_sub(text.width() + 3).max(room / 3).min(notes.width());
        let notes = match room < NOTES_FROM {
            true => self.undone_word(entry).unwrap_or_default().to_owned(),
            false => cut(&notes, notes_room),
        };
        let gap = if notes.is_empty() { 0 } else { 2 };
        let text = cut(&text, room.saturating_sub(notes.width() + gap + 1));
        let space = " ".repeat(room.saturating_sub(text.width() + notes.width() + 1));
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let dim = Style::new().add_modifier(Modifier::DIM);
        let coloured = |colour| if colours { Style::new().fg(colour) } else { Style::new() };
        let style = match entry {
            Entry::Session(_) => bold,
            Entry::Prompt(..) => coloured(Color::Cyan),
            Entry::Step(..) => Style::new(),
            Entry::Unreadable(_) => coloured(Color::Red),
        };
        Line::from(vec![
            Span::raw(indent),
            Span::styled(time, dim),
            Span::styled(text, style),
            Span::raw(space),
            Span::styled(notes, dim),
        ])
    }

    fn question(&self, _room: usize) -> Option<String> {
        None
    }

    fn remark(&self) -> Option<String> {
        let entry = self.current()?;
        match entry {
            Entry::Unreadable(_) => self.failure(entry).map(|text| shown(text.as_bytes())),
            _ => self.session(entry).map(|(_, summary)| shown(summary.session_id.as_bytes())),
        }
    }

    fn keys(&self) -> &'static str {
        match self.scope() {
            Scope::Here => KEYS_SESSIONS,
            Scope::Everywhere => "? help  q end  Enter open  u undo  / find  o this project",
        }
    }

    fn help(&self) -> Vec<&'static str> {
        [&HELP_SESSIONS[..], &HELP_MOVING, &HELP_END].concat()
    }
}

fn style(change_type: ChangeType, colours: bool) -> Style {
    let colour = match change_type {
        ChangeType::Created => Color::Green,
        ChangeType::Modified => Color::Yellow,
        ChangeType::Deleted => Color::Red,
        ChangeType::PermissionsChanged => Color::Magenta,
    };
    if colours { Style::new().fg(colour) } else { Style::new() }
}

/// The end of a text that is wider than there is room: a file's name says more than where it is.
fn end_of(text: &str, room: usize) -> String {
    if text.width() <= room {
        return text.to_owned();
    }
    let mut taken = 0;
    let fits = |c: &char| {
        taken += c.width().unwrap_or(0);
        taken < room
    };
    let kept: Vec<char> = text.chars().rev().take_while(fits).collect();
    let dots = if room == 0 { "" } else { "…" };
    dots.chars().chain(kept.into_iter().rev()).collect()
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
