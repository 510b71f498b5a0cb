//! A page of the documentation as a terminal shows it: headings stand out, paragraphs fit the
//! width, blocks of code stay as they are. Knows the Markdown of our own pages, and no more of it.

use std::io::{self, Write};

use anstyle::Style;

use super::columns;

/// The widest line of a paragraph, in cells.
const MAX_CELLS: usize = 100;
/// The narrowest one.
const MIN_CELLS: usize = 40;
/// The indent of a block of code, and of the further cells of a table's row.
const INDENT: &str = "    ";

/// Writes a page in lines of at most `width` cells. Lines of code are not broken.
///
/// # Errors
/// As for the output.
pub fn write_page(out: &mut dyn Write, page: &str, width: usize) -> io::Result<()> {
    let mut writer =
        PageWriter { out, width: width.clamp(MIN_CELLS, MAX_CELLS), text: String::new() };
    let mut is_code = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            writer.end_paragraph()?;
            is_code = !is_code;
        } else if is_code {
            writeln!(writer.out, "{INDENT}{line}")?;
        } else {
            writer.line(line)?;
        }
    }
    writer.end_paragraph()
}

struct PageWriter<'a> {
    out: &'a mut dyn Write,
    width: usize,
    /// The paragraph or the point of a list that is being read, in one line.
    text: String,
}

impl PageWriter<'_> {
    fn line(&mut self, line: &str) -> io::Result<()> {
        let is_point = line.trim_start().split_once(' ').is_some_and(|(first, _)| is_marker(first));
        if line.is_empty() {
            self.end_paragraph()?;
            writeln!(self.out)
        } else if line.starts_with('#') {
            self.end_paragraph()?;
            let bold = Style::new().bold();
            writeln!(self.out, "{bold}{}{bold:#}", plain(line.trim_start_matches('#').trim()))
        } else if line.starts_with('|') {
            self.end_paragraph()?;
            self.row(line)
        } else {
            if is_point {
                self.end_paragraph()?;
            }
            if !self.text.is_empty() {
                self.text.push(' ');
            }
            self.text.push_str(if is_point { line } else { line.trim() });
            Ok(())
        }
    }

    /// A row of a table: its first cell, and below it the others.
    fn row(&mut self, row: &str) -> io::Result<()> {
        let cells = cells(row);
        if cells.iter().all(|cell| cell.chars().all(|c| "-: ".contains(c))) {
            return Ok(());
        }
        for (at, cell) in cells.iter().filter(|cell| !cell.is_empty()).enumerate() {
            let indent = if at == 0 { "" } else { INDENT };
            self.wrapped(&plain(cell), indent, indent)?;
        }
        Ok(())
    }

    fn end_paragraph(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.text);
        if text.is_empty() {
            return Ok(());
        }
        let words = text.trim_start();
        let before = &text[..text.len() - words.len()];
        // The further lines of a point stand below its text.
        let marker = words.split_once(' ').filter(|(first, _)| is_marker(first));
        let marker = marker.map_or(0, |(first, _)| first.len() + 1);
        let after = " ".repeat(before.len() + marker);
        self.wrapped(&plain(words), before, &after)
    }

    /// Words in lines: the first begins with one text, the others with another.
    fn wrapped(&mut self, text: &str, first: &str, others: &str) -> io::Result<()> {
        let mut line = first.to_owned();
        let mut is_empty = true;
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            if !is_empty && columns::width(&line) + 1 + columns::width(word) > self.width {
                writeln!(self.out, "{line}")?;
                line = others.to_owned();
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line.push_str(word);
            is_empty = false;
        }
        writeln!(self.out, "{line}")
    }
}

/// Whether a word at the start of a line makes it a point of a list: `-`, or a number.
fn is_marker(word: &str) -> bool {
    let number = word.strip_suffix('.').unwrap_or_default();
    word == "-" || number.parse::<u8>().is_ok()
}

/// The cells of a row; `\|` is a line within one.
fn cells(row: &str) -> Vec<String> {
    let row = row.trim().trim_start_matches('|');
    let row = row.strip_suffix('|').unwrap_or(row).replace("\\|", "\0");
    row.split('|').map(|cell| cell.trim().replace('\0', "|")).collect()
}

/// A text without links and without the signs of bold: `[text](target)` is the text, a picture its
/// description. Within a span of code, every sign stays.
fn plain(text: &str) -> String {
    let mut shown = String::new();
    for (at, part) in text.split('`').enumerate() {
        if at % 2 == 1 {
            shown.push_str(&format!("`{part}`"));
        } else {
            shown.push_str(&part.replace("**", ""));
        }
    }
    let mut rest = shown.as_str();
    let mut linked = String::new();
    while let Some((before, after)) = rest.split_once('[') {
        let link = after.split_once("](").and_then(|(text, target)| {
            let (_, after) = target.split_once(')')?;
            (!text.contains('[')).then_some((text, after))
        });
        linked.push_str(before.strip_suffix('!').filter(|_| link.is_some()).unwrap_or(before));
        match link {
            Some((text, after)) => {
                linked.push_str(text);
                rest = after;
            }
            None => {
                linked.push('[');
                rest = after;
            }
        }
    }
    linked + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(page: &str, width: usize) -> String {
        let mut out = Vec::new();
        write_page(&mut out, page, width).unwrap();
        let text = String::from_utf8(out).unwrap();
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn paragraphs_and_points_fit_the_width_and_code_stays() {
        let page = "# A page\n\nOne two three four five six seven eight nine ten.\n\n\
                    - a **point** of a list that is rather long, with `**code**`\n\
                    - [two](x.md)\n\n```sh\n\
                    nono undo --yes && echo a line that is much wider than the page\n```\n\
                    1. first\n";
        let expected = "A page\n\nOne two three four five six seven eight\nnine ten.\n\n\
                        - a point of a list that is rather long,\n  with `**code**`\n\
                        - two\n\n    \
                        nono undo --yes && echo a line that is much wider than the page\n\
                        1. first\n";
        assert_eq!(shown(page, 40), expected);
    }

    #[test]
    fn a_row_of_a_table_is_its_first_cell_with_the_others_below() {
        let page =
            "| command | does |\n|---|---|\n| `a \\| b` | [one](y.md#z) or ![two](p.png) |\n";
        assert_eq!(shown(page, 80), "command\n    does\n`a | b`\n    one or two\n");
    }

    #[test]
    fn brackets_that_are_no_link_stay() {
        assert_eq!(plain("nono `run [--] CMD` [ID] (x) [a"), "nono `run [--] CMD` [ID] (x) [a");
    }
}
