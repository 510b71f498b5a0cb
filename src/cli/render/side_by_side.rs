//! The old and the new state in two columns, fitted to the width of a terminal.
//!
//! Meant for eyes only: control characters are always escaped, tabs are expanded, and what does not
//! fit is cut. Widths are counted in columns, two for a CJK character and none for a combining
//! mark.

use std::io::Write;
use std::ops::Range;

use anstyle::Style;
use unicode_width::UnicodeWidthChar;

use nono_engine::diff::Difference;
use nono_engine::path_text::Shown;

use super::entries::{FileChange, Texts};
use super::lines::{Block, LineDiff, extent, hunk_range};
use super::palette::write_styled;
use super::titled::{text_or_reason, write_titled};
use super::{DiffOptions, RenderError};

/// Half of what terminals do, because half of the width is there.
const TAB_COLUMNS: usize = 4;
/// Columns narrower than this show nothing; a narrower terminal wraps.
const MIN_TEXT_COLUMNS: usize = 8;
const NO_NEWLINE: &[u8] = b"\\ No newline at end of file";

/// Writes changed places with their context in two columns, `width` columns in all. Between them
/// stands `|` for a changed line, `<` for one that is only in the old state, `>` for a new one.
///
/// # Errors
/// When contents cannot be read, or `out` cannot be written; a part is written then.
pub fn write_side_by_side(
    out: &mut dyn Write,
    differences: &[Difference],
    options: &DiffOptions<'_>,
    width: usize,
) -> Result<(), RenderError> {
    write_titled(out, differences, options, |out, change| write_file(out, change, options, width))
}

fn write_file(
    out: &mut dyn Write,
    change: &FileChange<'_>,
    options: &DiffOptions<'_>,
    width: usize,
) -> Result<(), RenderError> {
    if change.has_same_contents() {
        return Ok(());
    }
    let contents = change.load(options)?;
    let Some(Texts { old, new }) = text_or_reason(out, contents, options)? else { return Ok(()) };
    let diff = LineDiff::new(&old, &new, options.timeout);
    let columns = Columns::new(width, diff.old().len().max(diff.new_lines().len()));
    for hunk in diff.hunks(options.context_lines) {
        let (old, new) = extent(&hunk);
        let position = format!("@@ -{} +{} @@", hunk_range(&old), hunk_range(&new));
        write_styled(out, options.palette.hunk, position.as_bytes())?;
        out.write_all(b"\n")?;
        for block in hunk {
            for row in rows(&block) {
                columns.write(out, &row, &diff, options)?;
            }
        }
    }
    Ok(())
}

/// A line of output: the lines left and right by their indices from 0.
struct Row {
    mark: char,
    old: Option<usize>,
    new: Option<usize>,
}

fn rows(block: &Block) -> Vec<Row> {
    let at = |range: &Range<usize>, n| (n < range.len()).then_some(range.start + n);
    (0..block.old.len().max(block.new.len()))
        .map(|n| {
            let (old, new) = (at(&block.old, n), at(&block.new, n));
            let mark = match (old, new) {
                _ if block.is_same => ' ',
                (Some(_), Some(_)) => '|',
                (Some(_), None) => '<',
                _ => '>',
            };
            Row { mark, old, new }
        })
        .collect()
}

/// How the width is divided: number, space, text, ` | `, number, space, text.
struct Columns {
    number: usize,
    text: usize,
}

impl Columns {
    fn new(width: usize, line_count: usize) -> Self {
        let number = line_count.to_string().len().max(3);
        let text = (width.saturating_sub(2 * (number + 1) + 3) / 2).max(MIN_TEXT_COLUMNS);
        Self { number, text }
    }

    fn write(
        &self,
        out: &mut dyn Write,
        row: &Row,
        diff: &LineDiff<'_>,
        options: &DiffOptions<'_>,
    ) -> Result<(), RenderError> {
        let palette = &options.palette;
        let line = |lines: &[&[u8]], index: Option<usize>| {
            index.map(|at| lines[at].to_vec()).unwrap_or_default()
        };
        let (old, new) = (line(diff.old(), row.old), line(diff.new_lines(), row.new));
        let (left, right, mark) = match row.mark {
            ' ' => (Style::new(), Style::new(), Style::new()),
            '|' => (palette.removed, palette.added, palette.modified),
            '<' => (palette.removed, Style::new(), palette.removed),
            _ => (Style::new(), palette.added, palette.added),
        };
        self.cell(out, row.old, left, &old, true, options)?;
        write_styled(out, mark, format!(" {} ", row.mark).as_bytes())?;
        self.cell(out, row.new, right, &new, false, options)?;
        out.write_all(b"\n")?;
        let unended = |index: Option<usize>, line: &[u8]| index.is_some() && !line.ends_with(b"\n");
        let (old, new) = (unended(row.old, &old), unended(row.new, &new));
        if old || new {
            let text = |is: bool| if is { NO_NEWLINE } else { b"" };
            self.cell(out, None, palette.dim, text(old), true, options)?;
            out.write_all(b"   ")?;
            self.cell(out, None, palette.dim, text(new), false, options)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// One side of a row; nothing stands after the text on the right.
    fn cell(
        &self,
        out: &mut dyn Write,
        index: Option<usize>,
        style: Style,
        line: &[u8],
        is_left: bool,
        options: &DiffOptions<'_>,
    ) -> Result<(), RenderError> {
        let number = index.map_or(String::new(), |at| (at + 1).to_string());
        let number = format!("{number:>0$} ", self.number);
        let (text, columns) = fit(line.strip_suffix(b"\n").unwrap_or(line), self.text);
        if !is_left && text.is_empty() && index.is_none() {
            return Ok(());
        }
        write_styled(out, options.palette.dim, number.as_bytes())?;
        write_styled(out, style, text.as_bytes())?;
        if is_left {
            out.write_all(" ".repeat(self.text - columns).as_bytes())?;
        }
        Ok(())
    }
}

/// A line as it is shown, and the columns that it takes: at most `columns`. Looks only at so much
/// of the line as can be seen.
fn fit(line: &[u8], columns: usize) -> (String, usize) {
    // No character takes more bytes than this, combining marks on it included.
    let visible = &line[..line.len().min(columns * 64)];
    let mut shown = String::new();
    let mut used = 0;
    // Where to cut if there is no room for the rest: the place of the ellipsis.
    let mut cut = (0, 0);
    for c in expanded(visible).chars() {
        let width = c.width().unwrap_or(0);
        if used + width > columns {
            shown.truncate(cut.0);
            shown.push('…');
            return (shown, cut.1 + 1);
        }
        used += width;
        shown.push(c);
        if used < columns {
            cut = (shown.len(), used);
        }
    }
    if visible.len() < line.len() {
        shown.truncate(cut.0);
        shown.push('…');
        used = cut.1 + 1;
    }
    (shown, used)
}

/// Control characters escaped, tabs as spaces up to the next stop.
fn expanded(line: &[u8]) -> String {
    let mut text = String::new();
    let mut column = 0;
    for (at, piece) in line.split(|byte| *byte == b'\t').enumerate() {
        if at > 0 {
            let spaces = TAB_COLUMNS - column % TAB_COLUMNS;
            text.push_str(&" ".repeat(spaces));
            column += spaces;
        }
        let piece = Shown::bytes(piece).to_string();
        column += piece.chars().filter_map(UnicodeWidthChar::width).sum::<usize>();
        text.push_str(&piece);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{TestDiff, file, file_with_mode};
    use super::*;
    use unicode_width::UnicodeWidthStr;

    fn view(diff: &TestDiff, width: usize) -> String {
        let mut out = Vec::new();
        write_side_by_side(&mut out, &diff.differences, &diff.options(), width).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn changed_lines_stand_beside_each_other() {
        let mut diff = TestDiff::new();
        diff.add("/p/a", file(b"1\n2\n3\n4\n"), file(b"1\ntwo\n3\n4\nfive\nsix"));
        diff.add("/p/b", file(b"x\ny\n"), file(b"y\n"));
        diff.add("/p/c", file_with_mode(b"x", 0o644), file_with_mode(b"x", 0o755));
        let shown = view(&diff, 32);
        let expected = "\
~ modified a
@@ -1,4 +1,6 @@
  1 1              1 1
  2 2          |   2 two
  3 3              3 3
  4 4              4 4
               >   5 five
               >   6 six
                     \\ No newl…

~ modified b
@@ -1,2 +1 @@
  1 x          <
  2 y              1 y

m permissions c (0644 -> 0755)
";
        let trimmed: Vec<&str> = shown.lines().map(str::trim_end).collect();
        let wanted: Vec<&str> = expected.lines().collect();
        assert_eq!(trimmed, wanted, "\n{shown}");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let long = "語".repeat(200) + &"\t\x1b[31m".repeat(50) + &"e\u{301}".repeat(300);
        let mut diff = TestDiff::new();
        diff.add("/p/a", file(long.as_bytes()), file((long.clone() + "x").as_bytes()));
        diff.add("/p/b", file(b"\xff\xfe\r\n"), file("\t\tü\n".as_bytes()));
        for width in [30, 31, 79, 80, 200] {
            for line in view(&diff, width).lines() {
                assert!(line.width() <= width, "{width}: {} {line:?}", line.width());
                assert!(!line.contains(['\t', '\x1b']), "{line:?}");
            }
        }
    }

    #[test]
    fn text_is_cut_where_a_whole_character_ends() {
        assert_eq!(fit(b"12345678", 8), ("12345678".to_owned(), 8));
        assert_eq!(fit(b"123456789", 8), ("1234567…".to_owned(), 8));
        assert_eq!(fit("語語語語語".as_bytes(), 8), ("語語語…".to_owned(), 7));
        assert_eq!(fit("語語語語".as_bytes(), 8), ("語語語語".to_owned(), 8));
        assert_eq!(fit(b"a\tb", 8), ("a   b".to_owned(), 5));
        assert_eq!(fit(b"\x07\xff", 20), ("\\u{7}\\xff".to_owned(), 9));
    }

    #[test]
    fn marks_without_width_do_not_make_a_line_endless() {
        let (shown, columns) = fit("\u{301}".repeat(100_000).as_bytes(), 10);
        assert!(shown.len() < 1000);
        assert_eq!(columns, 1);
    }
}
