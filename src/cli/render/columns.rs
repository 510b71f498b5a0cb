//! Columns of a list: text cut to a width and padded to it, counted as a terminal shows it.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Maximum width of a command in a list or a sentence, in cells.
pub const MAX_COMMAND_CELLS: usize = 60;

/// Cells that a text takes on a terminal. The text must be harmless already.
pub fn width(text: &str) -> usize {
    text.width()
}

/// The text in at most so many cells; a longer text ends with `…`.
pub fn cut(text: &str, cells: usize) -> String {
    if width(text) <= cells {
        return text.to_owned();
    }
    let mut room = cells.saturating_sub(1);
    let mut end = 0;
    for (at, c) in text.char_indices() {
        let cells = c.width().unwrap_or(0);
        if cells > room {
            break;
        }
        room -= cells;
        end = at + c.len_utf8();
    }
    let dots = if cells == 0 { "" } else { "…" };
    format!("{}{dots}", text[..end].trim_end())
}

/// The text, followed by spaces up to so many cells.
pub fn pad(text: &str, cells: usize) -> String {
    format!("{text}{}", " ".repeat(cells.saturating_sub(width(text))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_and_padded_by_the_cells_that_it_takes() {
        assert_eq!(cut("claude --resume", 15), "claude --resume");
        assert_eq!(cut("claude --resume", 14), "claude --resu…");
        assert_eq!(cut("claude --resume", 8), "claude…");
        // Two cells each: half of one is none.
        assert_eq!(cut("你好世界", 6), "你好…");
        assert_eq!(cut("你好世界", 5), "你好…");
        assert_eq!(cut("e\u{301}e\u{301}e\u{301}", 2), "e\u{301}…");
        assert_eq!((cut("ab", 1), cut("ab", 0)), ("…".to_owned(), String::new()));
        assert_eq!(pad("你", 4), "你  ");
        assert_eq!(pad("long", 2), "long");
    }
}
