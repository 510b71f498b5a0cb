//! A difference as values, line by line, for a screen that draws it itself. Each line has its kind,
//! its number, and the words that changed within it.
//!
//! The texts are harmless for a terminal: control characters, marks that reorder text and
//! characters without a width are escaped, and a tab is spaces.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use unicode_width::UnicodeWidthChar;

use nono_engine::diff::Difference;
use nono_engine::path_text::Shown;
use nono_engine::store::StoreError;

use super::DiffOptions;
use super::entries::{Contents, Entry, FileChange, Texts, entries, git_mode};
use super::lines::{LineDiff, extent, hunk_range};
use super::patch::too_large;
use super::words::changed_words;

/// Cells between two stops of a tab.
const TAB_CELLS: usize = 4;
/// Combining marks that one character may carry.
const MAX_COMBINING: usize = 2;
/// Maximum number of bytes that are shown of a line.
const MAX_LINE_BYTES: usize = 4096;

/// The kind of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineKind {
    /// The name of a file, above its lines.
    File,
    /// A remark on what lines of text cannot express.
    Remark,
    /// A fact that is known of the changes: a command, a prompt.
    Fact,
    /// Where a changed place begins.
    Hunk,
    /// Unchanged.
    Same,
    /// In the newer state alone.
    Added,
    /// In the older state alone.
    Removed,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MarkedLine {
    /// The kind.
    pub kind: LineKind,
    /// Without its end, harmless for a terminal.
    pub text: String,
    /// The changed words of an added or removed line, as bytes of `text`; none where all of the
    /// line is new.
    pub words: Vec<Range<usize>>,
    /// The number of the line in its state, from 1.
    pub number: Option<usize>,
    /// The name of the file whose line it is.
    pub file: Option<Arc<str>>,
}

impl MarkedLine {
    /// A line that is none of a file.
    pub fn remark(kind: LineKind, text: String) -> Self {
        Self { kind, text, words: Vec::new(), number: None, file: None }
    }
}

/// Gives the lines of some differences to `take`, until it wants no more.
///
/// # Errors
/// When contents cannot be read; a part was given then.
pub fn marked_lines(
    differences: &[Difference],
    options: &DiffOptions<'_>,
    take: &mut dyn FnMut(MarkedLine) -> bool,
) -> Result<(), StoreError> {
    for entry in entries(differences, options) {
        let goes_on = match entry {
            Entry::File(change) => file(&change, None, options, take)?,
            Entry::Remark(remark) => {
                let text = format!("{}: {}", remark.text, shown(&remark.name));
                take(MarkedLine::remark(LineKind::Remark, text))
            }
        };
        if !goes_on {
            break;
        }
    }
    Ok(())
}

/// The lines of a file that has another name now, as of one file.
///
/// # Errors
/// As [`marked_lines`].
pub fn renamed_lines(
    gone: &Difference,
    made: &Difference,
    options: &DiffOptions<'_>,
    take: &mut dyn FnMut(MarkedLine) -> bool,
) -> Result<(), StoreError> {
    let pair = [gone.clone(), made.clone()];
    let found = entries(&pair, options);
    let [Entry::File(before), Entry::File(after)] = found.as_slice() else {
        return marked_lines(&pair, options, take);
    };
    let change =
        FileChange { name: after.name.clone(), old: before.old, new: after.new, renamed: None };
    file(&change, Some(&before.name), options, take).map(drop)
}

/// Whether more is wanted.
fn file(
    change: &FileChange<'_>,
    old_name: Option<&[u8]>,
    options: &DiffOptions<'_>,
    take: &mut dyn FnMut(MarkedLine) -> bool,
) -> Result<bool, StoreError> {
    if !take(MarkedLine::remark(LineKind::File, title(change, old_name))) {
        return Ok(false);
    }
    if change.has_same_contents() {
        return Ok(true);
    }
    let remark = |text: &str| MarkedLine::remark(LineKind::Remark, text.to_owned());
    Ok(match change.load(options)? {
        Contents::Text(texts) if texts.old.is_empty() && texts.new.is_empty() => {
            take(remark("(empty)"))
        }
        Contents::Text(texts) => hunks(change, &texts, options, take),
        Contents::Binary(Texts { old, new }) => {
            let sizes = (old.len() as u64, new.len() as u64);
            let of = |is_there, size| if is_there { super::byte_size(size) } else { "none".into() };
            let (old, new) = (of(change.old.is_some(), sizes.0), of(change.new.is_some(), sizes.1));
            take(remark(&format!("(binary, {old} → {new})")))
        }
        Contents::TooLarge { old, new } => take(remark(&format!("({})", too_large(old, new)))),
    })
}

/// `src/main.rs`, `a.rs → b.rs`, with the permissions if they are different.
fn title(change: &FileChange<'_>, old_name: Option<&[u8]>) -> String {
    let mut title = match old_name {
        Some(old) => format!("{} → {}", shown(old), shown(&change.name)),
        None => shown(&change.name),
    };
    let word = match (change.old, change.new) {
        (None, _) => "  new",
        (_, None) => "  deleted",
        _ if old_name.is_some() => "  renamed",
        _ => "",
    };
    title.push_str(word);
    if let (Some(old), Some(new)) = (change.old, change.new)
        && git_mode(old) != git_mode(new)
    {
        let (old, new) = (old.attributes.mode, new.attributes.mode);
        title.push_str(&format!("  ({old:04o} → {new:04o})"));
    }
    title
}

fn hunks(
    change: &FileChange<'_>,
    texts: &Texts,
    options: &DiffOptions<'_>,
    take: &mut dyn FnMut(MarkedLine) -> bool,
) -> bool {
    let diff = LineDiff::new(&texts.old, &texts.new, options.timeout);
    let name: Arc<str> = Path::new(&*shown(&change.name))
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        .into();
    let line = |kind, number: usize, line: &[u8], words| {
        let text = shown_line(line);
        let file = Some(Arc::clone(&name));
        MarkedLine { kind, text, words, number: Some(number + 1), file }
    };
    for hunk in diff.hunks(options.context_lines) {
        let (old, new) = extent(&hunk);
        let text = hunk_header(&old, &new);
        if !take(MarkedLine::remark(LineKind::Hunk, text)) {
            return false;
        }
        for block in hunk {
            if block.is_same {
                for at in block.new {
                    if !take(line(LineKind::Same, at, diff.new_lines()[at], Vec::new())) {
                        return false;
                    }
                }
                continue;
            }
            let (old, new) = (&diff.old()[block.old.clone()], &diff.new_lines()[block.new.clone()]);
            let texts = [old, new].map(|side| side.iter().map(|it| shown_line(it)).collect());
            let [removed, added]: [Vec<String>; 2] = texts;
            let (mut old_words, mut new_words) = changed_words(&removed, &added);
            for (at, text) in old.iter().enumerate() {
                let words = std::mem::take(&mut old_words[at]);
                if !take(line(LineKind::Removed, block.old.start + at, text, words)) {
                    return false;
                }
            }
            for (at, text) in new.iter().enumerate() {
                let words = std::mem::take(&mut new_words[at]);
                if !take(line(LineKind::Added, block.new.start + at, text, words)) {
                    return false;
                }
            }
        }
        let lacks_end = |side: &[&[u8]]| side.last().is_some_and(|last| !last.ends_with(b"\n"));
        let is_end = new.end == diff.new_lines().len() && old.end == diff.old().len();
        if is_end && lacks_end(diff.old()) != lacks_end(diff.new_lines()) {
            let state = if lacks_end(diff.new_lines()) { "now" } else { "before" };
            let text = format!("(no newline at the end {state})");
            if !take(MarkedLine::remark(LineKind::Remark, text)) {
                return false;
            }
        }
    }
    true
}

/// The newer text of a changed file without some of its hunks. Each has its number, as
/// [`marked_lines`] counts them from 0, and the line above it. `None`: a state of the file is no
/// text, or a hunk has other lines by now, as where the search for a small difference ended early.
///
/// # Errors
/// When contents cannot be read.
pub fn without_hunks(
    difference: &Difference,
    unwanted: &[(usize, &str)],
    options: &DiffOptions<'_>,
) -> Result<Option<Vec<u8>>, StoreError> {
    let pair = std::slice::from_ref(difference);
    let found = entries(pair, options);
    let [Entry::File(change)] = found.as_slice() else { return Ok(None) };
    let (Some(_), Some(_), Contents::Text(texts)) = (change.old, change.new, change.load(options)?)
    else {
        return Ok(None);
    };
    let diff = LineDiff::new(&texts.old, &texts.new, options.timeout);
    let hunks = diff.hunks(options.context_lines);
    let (lines_before, lines_after) = (diff.old(), diff.new_lines());
    let (mut text, mut done) = (Vec::new(), 0);
    let unwanted: BTreeMap<usize, &str> = unwanted.iter().copied().collect();
    for (index, header) in unwanted {
        let Some(hunk) = hunks.get(index) else { return Ok(None) };
        let (old, new) = extent(hunk);
        if hunk_header(&old, &new) != header {
            return Ok(None);
        }
        text.extend([&lines_after[done..new.start], &lines_before[old]].concat().concat());
        done = new.end;
    }
    text.extend(lines_after[done..].concat());
    Ok(Some(text))
}

fn hunk_header(old: &Range<usize>, new: &Range<usize>) -> String {
    format!("@@ -{} +{} @@", hunk_range(old), hunk_range(new))
}

/// A line of a file as a screen can show it: its beginning, if it is very long.
fn shown_line(line: &[u8]) -> String {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let cut = &line[..line.len().min(MAX_LINE_BYTES)];
    let mut text = String::with_capacity(cut.len());
    for (at, piece) in cut.split(|byte| *byte == b'\t').enumerate() {
        if at > 0 {
            let cells = super::columns::width(&text);
            text.push_str(&" ".repeat(TAB_CELLS - cells % TAB_CELLS));
        }
        text.push_str(&shown(piece));
    }
    if cut.len() < line.len() {
        text.push('…');
    }
    text
}

/// Bytes as a screen can show them: as [`Shown`], and without characters that take no room.
pub fn shown(bytes: &[u8]) -> String {
    let text = Shown::bytes(bytes).to_string();
    if text.is_ascii() {
        return text;
    }
    let mut out = String::with_capacity(text.len());
    let mut combining = MAX_COMBINING;
    for c in text.chars() {
        if c.width() != Some(0) {
            combining = 0;
            out.push(c);
        } else if combining < MAX_COMBINING && !is_invisible(c) {
            combining += 1;
            out.push(c);
        } else {
            out.extend(c.escape_unicode());
        }
    }
    out
}

/// Characters that show nothing, so that two names look the same.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202f}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0e}' | '\u{feff}'
        | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{TestDiff, directory, file, file_with_mode};
    use super::*;

    fn lines(diff: &TestDiff) -> Vec<MarkedLine> {
        let mut lines = Vec::new();
        let mut take = |line| {
            lines.push(line);
            true
        };
        marked_lines(&diff.differences, &diff.options(), &mut take).unwrap();
        lines
    }

    fn texts(lines: &[MarkedLine]) -> Vec<(LineKind, &str)> {
        lines.iter().map(|line| (line.kind, line.text.as_str())).collect()
    }

    #[test]
    fn a_removed_line_that_begins_with_dashes_is_no_header() {
        let mut diff = TestDiff::new();
        diff.add("/p/a.sql", file(b"-- one\nkept\n"), file(b"++ two\nkept\n"));
        let lines = lines(&diff);
        use LineKind::{Added, File, Hunk, Removed, Same};
        assert_eq!(
            texts(&lines),
            [
                (File, "a.sql"),
                (Hunk, "@@ -1,2 +1,2 @@"),
                (Removed, "-- one"),
                (Added, "++ two"),
                (Same, "kept"),
            ]
        );
        assert_eq!(lines[2].number, Some(1));
        assert_eq!((lines[4].number, lines[4].file.as_deref()), (Some(2), Some("a.sql")));
    }

    #[test]
    fn a_text_without_one_hunk_has_all_others() {
        let old: Vec<u8> = (0..40).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        let text = |changed: &[usize]| -> Vec<u8> {
            let line =
                |n| if changed.contains(&n) { format!("new {n}\n") } else { format!("{n}\n") };
            (0..40).flat_map(|n| line(n).into_bytes()).collect()
        };
        let mut diff = TestDiff::new();
        diff.add("/p/a", file(&old), file(&text(&[2, 20, 38])));
        let headers: Vec<String> = lines(&diff)
            .into_iter()
            .filter(|line| line.kind == LineKind::Hunk)
            .map(|line| line.text)
            .collect();
        assert_eq!(headers.len(), 3);
        let without = |at: usize, header: &str| {
            without_hunks(&diff.differences[0], &[(at, header)], &diff.options()).unwrap()
        };
        assert_eq!(without(0, &headers[0]).unwrap(), text(&[20, 38]));
        assert_eq!(without(1, &headers[1]).unwrap(), text(&[2, 38]));
        assert_eq!(without(2, &headers[2]).unwrap(), text(&[2, 20]));
        let both = [(2, headers[2].as_str()), (0, headers[0].as_str())];
        let without_both = without_hunks(&diff.differences[0], &both, &diff.options()).unwrap();
        assert_eq!(without_both.unwrap(), text(&[20]));
        // Another hunk than the one that was looked at.
        assert_eq!(without(1, &headers[0]), None);
        assert_eq!(without(3, &headers[2]), None);
        let mut made = TestDiff::new();
        made.add("/p/b", None, file(b"x\n"));
        let header = "@@ -0,0 +1 @@";
        assert_eq!(
            without_hunks(&made.differences[0], &[(0, header)], &made.options()).unwrap(),
            None
        );
    }

    #[test]
    fn what_has_no_lines_is_a_remark() {
        let mut diff = TestDiff::new();
        diff.add("/p/bin", file(b"\0"), file(b"\0\0"));
        diff.add("/p/dir", None, directory());
        diff.add("/p/empty", None, file(b""));
        diff.add("/p/run", file_with_mode(b"x", 0o644), file_with_mode(b"x", 0o755));
        let lines = lines(&diff);
        use LineKind::{File, Remark};
        assert_eq!(
            texts(&lines),
            [
                (File, "bin"),
                (Remark, "(binary, 1 B → 2 B)"),
                (Remark, "created directory: dir"),
                (File, "empty  new"),
                (Remark, "(empty)"),
                (File, "run  (0644 → 0755)"),
            ]
        );
    }

    #[test]
    fn a_rename_is_one_file_with_the_lines_that_changed() {
        let mut diff = TestDiff::new();
        diff.add("/p/new.rs", None, file(b"a\nb\nd\n"));
        diff.add("/p/old.rs", file(b"a\nb\nc\n"), None);
        let mut lines = Vec::new();
        let mut take = |line| {
            lines.push(line);
            true
        };
        let [made, gone] = &diff.differences[..] else { panic!() };
        renamed_lines(gone, made, &diff.options(), &mut take).unwrap();
        assert_eq!(lines[0].text, "old.rs → new.rs  renamed");
        let changed = |kind| lines.iter().filter(|line| line.kind == kind).count();
        assert_eq!((changed(LineKind::Added), changed(LineKind::Removed)), (1, 1));
    }

    #[test]
    fn no_more_is_made_than_is_taken() {
        let mut diff = TestDiff::new();
        let long: Vec<u8> = (0..10_000).flat_map(|n| format!("{n}\n").into_bytes()).collect();
        diff.add("/p/a", None, file(&long));
        diff.add("/p/b", None, file(&long));
        let mut count = 0;
        let mut take = |_| {
            count += 1;
            count < 50
        };
        marked_lines(&diff.differences, &diff.options(), &mut take).unwrap();
        assert_eq!(count, 50);
    }

    #[test]
    fn hostile_text_is_harmless() {
        assert_eq!(shown(b"a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
        // Without a width: two names that look the same.
        assert_eq!(shown("a\u{200b}b\u{feff}".as_bytes()), "a\\u{200b}b\\u{feff}");
        assert_eq!(shown("e\u{301}".as_bytes()), "e\u{301}");
        assert_eq!(shown("e\u{301}\u{301}\u{301}".as_bytes()), "e\u{301}\u{301}\\u{301}");
        assert_eq!(shown("你好".as_bytes()), "你好");
        assert_eq!(shown_line(b"\tx\ty\n"), "    x   y");
        assert_eq!(shown_line("你\ty".as_bytes()), "你  y");
        assert!(shown_line(&[b'x'; 10_000]).len() < 5_000);
    }
}
