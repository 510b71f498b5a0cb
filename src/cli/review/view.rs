//! Draws a review: a summary, the rows that fit, what the keys do, and on a wide screen the
//! beginning of the difference at the cursor.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::beside::{Beside, LEAST_WIDTH};
use super::model::{KindSummary, Mode, Model};
use crate::cli::render::{change_mark, change_word, size_delta};
use nono_engine::diff::{Change, ChangeType, relative_to_roots};
use nono_engine::path_text::Shown;

/// On lower screens the list is worth more than the summary.
const ROWS_FOR_SUMMARY: u16 = 10;
const KEYS: &str = "space mark  a all  d diff  / find  r restore  ? help  Enter keep everything";
const HELP: [&str; 15] = [
    "up, down, k, j     move",
    "PgUp, PgDn, g, G   move a page, to the first, to the last",
    "space              mark a path, a new or deleted directory with all that is in it",
    "a                  mark all that is shown, or none",
    "d, right           show what changed in it",
    "/                  show only paths that contain a text; Esc shows all again",
    "r                  restore what is marked",
    "R                  restore everything",
    "Enter, q           keep everything",
    "Ctrl-C             the same, at once",
    "Ctrl-Z             back to the shell; fg comes back here",
    "",
    "A restore records the state of now first, so it can be undone as well.",
    "",
    "any key            back to the list",
];

/// Draws the whole of it. Costs what fits on the screen.
pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model, beside: &Beside, colours: bool) {
    let area = frame.area();
    let mut lines = head(model, area, colours);
    let foot = [status(model), Line::styled(KEYS, Style::new().add_modifier(Modifier::DIM))];
    let rows = usize::from(area.height).saturating_sub(lines.len() + foot.len());
    let has_beside = area.width >= LEAST_WIDTH && model.mode() != Mode::Help;
    let list_width = if has_beside { area.width / 2 } else { area.width };
    let width = usize::from(list_width);
    let top = lines.len();
    let body: Vec<Line<'_>> = if model.mode() == Mode::Help {
        HELP.iter().map(|line| Line::raw(*line)).collect()
    } else {
        let window = model.window(rows);
        window.into_iter().map(|(at, index)| row(model, at, index, width, colours)).collect()
    };
    lines.extend(body.into_iter().take(rows));
    for (y, line) in (area.y..).zip(&lines) {
        put(frame, y, line);
    }
    // The text of another change would mislead.
    if has_beside && beside.is_of(model.current()) {
        let first = area.y.saturating_add(u16::try_from(top).unwrap_or(u16::MAX));
        let place = Rect {
            x: area.x + list_width,
            y: first,
            width: area.width - list_width,
            height: u16::try_from(rows).unwrap_or(u16::MAX),
        };
        draw_beside(frame, beside, place.intersection(area), colours);
    }
    for (y, line) in (area.bottom().saturating_sub(2).max(area.y)..).zip(&foot) {
        put(frame, y, line);
    }
}

/// The difference, behind a line from top to bottom.
fn draw_beside(frame: &mut Frame<'_>, beside: &Beside, place: Rect, colours: bool) {
    let mut lines = beside.lines().iter();
    for y in place.y..place.bottom() {
        let text = lines.next().map_or("", String::as_str);
        let dim = Style::new().add_modifier(Modifier::DIM);
        let line = Line::from(vec![
            Span::styled("│ ", dim),
            Span::styled(text, style_of_patch(text, colours)),
        ]);
        frame.render_widget(Clear, Rect { y, height: 1, ..place });
        frame.render_widget(line, Rect { y, height: 1, ..place });
    }
}

fn style_of_patch(line: &str, colours: bool) -> Style {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let coloured = |colour| if colours { Style::new().fg(colour) } else { Style::new() };
    match line.as_bytes() {
        [b'+', b'+', b'+', b' ', ..] | [b'-', b'-', b'-', b' ', ..] => bold,
        _ if ["diff ", "index ", "new file", "deleted file", "old mode", "new mode"]
            .iter()
            .any(|begin| line.starts_with(begin)) =>
        {
            bold
        }
        [b'+', ..] => coloured(Color::Green),
        [b'-', ..] => coloured(Color::Red),
        [b'@', b'@', ..] => coloured(Color::Cyan),
        [b'#', ..] => Style::new().add_modifier(Modifier::DIM),
        _ => Style::new(),
    }
}

fn put(frame: &mut Frame<'_>, y: u16, line: &Line<'_>) {
    let area = frame.area();
    if y < area.bottom() {
        frame.render_widget(line, Rect { y, height: 1, ..area });
    }
}

/// The subject, and the number of each kind.
fn head(model: &Model, area: Rect, colours: bool) -> Vec<Line<'static>> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let mut title = vec![Span::styled(model.title().to_owned(), bold)];
    if !model.filter().is_empty() {
        let filter = Shown::bytes(model.filter().as_bytes());
        let count = model.visible_count();
        title.push(Span::raw(format!("  {count} of {} contain {filter:}", model.changes().len())));
    }
    if model.marked_count() > 0 {
        title.push(Span::raw(format!("  {} marked", model.marked_count())));
    }
    let mut lines = vec![Line::from(title)];
    if area.height >= ROWS_FOR_SUMMARY {
        let kinds: Vec<Span<'static>> =
            model.kinds().iter().map(|kind| kind_summary(kind, colours)).collect();
        let width: usize = kinds.iter().map(|kind| kind.width() + 2).sum();
        if width <= usize::from(area.width) {
            let gap = |kind| [kind, Span::raw("  ")];
            lines.push(Line::from(kinds.into_iter().flat_map(gap).collect::<Vec<_>>()));
        } else {
            lines.extend(kinds.into_iter().map(Line::from));
        }
        lines.push(Line::default());
    }
    lines
}

fn kind_summary(kind: &KindSummary, colours: bool) -> Span<'static> {
    let (mark, word) = (change_mark(kind.change_type), change_word(kind.change_type));
    let size = match kind.size_delta {
        0 => String::new(),
        delta => format!(" ({})", size_delta(delta)),
    };
    Span::styled(format!("{mark} {} {word}{size}", kind.count), style(kind.change_type, colours))
}

fn row(model: &Model, position: usize, index: usize, width: usize, colours: bool) -> Line<'static> {
    let change = &model.changes()[index];
    let mark = if model.is_marked(index) { "[x] " } else { "[ ] " };
    let what =
        format!("{} {:<12}", change_mark(change.change_type), change_word(change.change_type));
    let delta = match change.size_delta {
        None | Some(0) => String::new(),
        Some(delta) => format!("  ({})", size_delta(delta)),
    };
    let room = width.saturating_sub(mark.width() + what.width() + delta.width());
    let path = shown_path(change, model);
    let line = Line::from(vec![
        Span::raw(mark),
        Span::styled(what, style(change.change_type, colours)),
        Span::raw(end_of(&path, room)),
        Span::styled(delta, Style::new().add_modifier(Modifier::DIM)),
    ]);
    match position == model.cursor() {
        true => line.style(Style::new().add_modifier(Modifier::REVERSED)),
        false => line,
    }
}

fn shown_path(change: &Change, model: &Model) -> String {
    let bytes = change.path.as_os_str().as_encoded_bytes();
    Shown::bytes(relative_to_roots(bytes, model.roots())).to_string()
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
    std::iter::once('…').take(room).chain(kept.into_iter().rev()).collect()
}

/// A question, a message, or where the cursor is.
fn status(model: &Model) -> Line<'static> {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let marked = model.marked_count();
    let paths = |count: usize| if count == 1 { "path" } else { "paths" };
    let count = model.changes().len();
    match (model.mode(), model.message()) {
        (Mode::ConfirmRestore { all: true }, _) => {
            Line::styled(format!("restore all {count} {}? [y/N]", paths(count)), bold)
        }
        (Mode::ConfirmRestore { all: false }, _) => {
            Line::styled(format!("restore {marked} marked {}? [y/N]", paths(marked)), bold)
        }
        (Mode::ConfirmKeep, _) => Line::styled(
            format!("keep everything, also the {marked} marked? Enter keeps, r restores them"),
            bold,
        ),
        (Mode::Filter, _) => {
            Line::styled(format!("/{}_", Shown::bytes(model.filter().as_bytes())), bold)
        }
        (_, Some(message)) => Line::styled(Shown::bytes(message.as_bytes()).to_string(), bold),
        (Mode::List | Mode::Help, None) => {
            let at = (model.cursor() + 1).min(model.visible_count());
            let step = model.step().map(|step| format!("  {step}")).unwrap_or_default();
            Line::raw(format!("{at} of {}{step}", model.visible_count()))
        }
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

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
