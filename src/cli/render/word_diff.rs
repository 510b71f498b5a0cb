//! Changed words in their lines, as `git diff --word-diff` shows them: `[-old-]{+new+}`.
//!
//! The lines of a hunk stand without marks at their beginnings. A word is a run of characters that
//! are no white space. No mark reaches over the end of a line.

use std::io::Write;
use std::time::Instant;

use anstyle::Style;
use similar::{Algorithm, DiffTag, capture_diff_slices_deadline};

use nono_engine::diff::Difference;

use super::entries::{FileChange, Texts};
use super::lines::{LineDiff, extent, hunk_range};
use super::palette::write_styled;
use super::patch::push_escaped;
use super::titled::{text_or_reason, write_titled};
use super::{DiffOptions, RenderError};

/// Writes the changed places of each file with the words that changed.
///
/// # Errors
/// When contents cannot be read, or `out` cannot be written; a part is written then.
pub fn write_word_diff(
    out: &mut dyn Write,
    differences: &[Difference],
    options: &DiffOptions<'_>,
) -> Result<(), RenderError> {
    write_titled(out, differences, options, |out, change| write_file(out, change, options))
}

fn write_file(
    out: &mut dyn Write,
    change: &FileChange<'_>,
    options: &DiffOptions<'_>,
) -> Result<(), RenderError> {
    let contents = change.load(options)?;
    let Some(Texts { old, new }) = text_or_reason(out, contents, options)? else { return Ok(()) };
    let diff = LineDiff::new(&old, &new, options.timeout);
    for hunk in diff.hunks(options.context_lines) {
        let (old_lines, new_lines) = extent(&hunk);
        let position = format!("@@ -{} +{} @@", hunk_range(&old_lines), hunk_range(&new_lines));
        write_styled(out, options.palette.hunk, position.as_bytes())?;
        out.write_all(b"\n")?;
        let mut text = Merged { out, options, is_line_open: false };
        for block in hunk {
            let new_lines = diff.new_lines()[block.new].concat();
            if block.is_same {
                text.push(Style::new(), [b"", b""], &new_lines)?;
            } else {
                text.push_changed(&diff.old()[block.old].concat(), &new_lines)?;
            }
        }
        text.end()?;
    }
    Ok(())
}

/// The text of a hunk.
struct Merged<'a, 'o> {
    out: &'a mut dyn Write,
    options: &'a DiffOptions<'o>,
    /// Whether the last line lacks its end.
    is_line_open: bool,
}

impl Merged<'_, '_> {
    /// The words of two texts, the removed ones before the added ones.
    fn push_changed(&mut self, old: &[u8], new: &[u8]) -> Result<(), RenderError> {
        let (a, b) = (words(old), words(new));
        let deadline = Instant::now().checked_add(self.options.timeout);
        let ops = capture_diff_slices_deadline(Algorithm::Myers, &a, &b, deadline);
        let palette = self.options.palette;
        for op in &ops {
            let (tag, in_old, in_new) = op.as_tag_tuple();
            if tag == DiffTag::Equal {
                self.push(Style::new(), [b"", b""], &b[in_new].concat())?;
                continue;
            }
            self.push(palette.removed, [b"[-", b"-]"], &a[in_old].concat())?;
            self.push(palette.added, [b"{+", b"+}"], &b[in_new].concat())?;
        }
        Ok(())
    }

    /// Some text in a style, between marks on each of its lines.
    fn push(&mut self, style: Style, marks: [&[u8]; 2], text: &[u8]) -> Result<(), RenderError> {
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            let words = line.strip_suffix(b"\n").unwrap_or(line);
            if !words.is_empty() {
                let mut shown = marks[0].to_vec();
                if self.options.escape {
                    push_escaped(&mut shown, words);
                } else {
                    shown.extend_from_slice(words);
                }
                shown.extend_from_slice(marks[1]);
                write_styled(self.out, style, &shown)?;
                self.is_line_open = true;
            }
            if words.len() < line.len() {
                // A removed end of a line before the added one is the same end.
                if self.is_line_open || marks[0] != b"[-" {
                    self.out.write_all(b"\n")?;
                }
                self.is_line_open = false;
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), RenderError> {
        if std::mem::take(&mut self.is_line_open) {
            self.out.write_all(b"\n")?;
        }
        Ok(())
    }
}

/// Words, runs of spaces, and ends of lines one by one. Together they are the text.
fn words(text: &[u8]) -> Vec<&[u8]> {
    let class = |byte: u8| match byte {
        b'\n' => 0,
        byte if byte.is_ascii_whitespace() => 1,
        _ => 2,
    };
    text.chunk_by(|a, b| class(*a) == class(*b) && *a != b'\n').collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::test_support::{TestDiff, file};
    use super::*;

    fn shown(old: &[u8], new: &[u8]) -> String {
        let mut diff = TestDiff::new();
        diff.add("/p/a", file(old), file(new));
        let mut out = Vec::new();
        write_word_diff(&mut out, &diff.differences, &diff.options()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn changed_words_stand_in_their_line() {
        assert_eq!(
            shown(b"one two three\nsame\n", b"one 2 three\nsame\n"),
            "~ modified a\n@@ -1,2 +1,2 @@\none [-two-]{+2+} three\nsame\n"
        );
        assert_eq!(
            shown(b"a\nb\n", b"a\nnew line\nb\n"),
            "~ modified a\n@@ -1,2 +1,3 @@\na\n{+new line+}\nb\n"
        );
        assert_eq!(
            shown(b"a\ngone here\nb\n", b"a\nb"),
            "~ modified a\n@@ -1,3 +1,2 @@\na\n[-gone here-]\nb\n"
        );
    }

    proptest! {
        #[test]
        fn without_the_marks_of_a_side_its_words_are_left(
            old in "([ab]{1,2}[ \n]){0,12}", new in "([ab]{1,2}[ \n]){0,12}",
        ) {
            prop_assume!(old != new);
            let text = shown(old.as_bytes(), new.as_bytes());
            let body: String = text
                .lines()
                .skip(1)
                .filter(|line| !line.starts_with("@@"))
                .map(|line| format!("{line}\n"))
                .collect();
            let without = |open: &str, close: &str, text: &str| {
                let mut left = String::new();
                for (at, part) in text.split(open).enumerate() {
                    left.push_str(if at == 0 { part } else { part.split_once(close).unwrap().1 });
                }
                left
            };
            let words = |text: &str| -> Vec<String> {
                text.split_whitespace().map(str::to_owned).collect()
            };
            let newer = without("[-", "-]", &body).replace("{+", "").replace("+}", "");
            let older = without("{+", "+}", &body).replace("[-", "").replace("-]", "");
            prop_assert_eq!(words(&newer), words(&new), "{}", text);
            prop_assert_eq!(words(&older), words(&old), "{}", text);
        }
    }
}
