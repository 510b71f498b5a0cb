//! Differences as a patch in git's format, which `git apply` and `patch -p1` both accept.
//!
//! Changes that such a patch cannot express are lines that start with `#`, and both programs skip
//! them. A remark that follows a header without hunks (an empty file, a mode) is set apart by a
//! line `#`, or git would take it for part of that header.
//!
//! Contents that are not there (of binary files, unless they are asked for by
//! [`DiffOptions::binary`], and of large ones) are a header and a line `Binary files a/x and b/x
//! differ`, as git writes them. So git refuses the whole patch, and a part of an undo is never
//! taken for all of it. `patch` skips them.
//!
//! `index` lines have git's blob ids, so `git apply --3way` works in a repository that knows the
//! old contents; `patch` learns from them that a name is a symlink. Modes are git's: only whether
//! the owner may execute a file is expressed.
//!
//! One limit is that of `patch` itself: it removes files last, so a directory that takes the place
//! of a file, or the other way round, is for git only.

use std::io::{self, Write};

use anstyle::Style;
use sha1::{Digest, Sha1};

use nono_engine::diff::Difference;
use nono_engine::path_text::Shown;

use super::binary::write_binary;
use super::entries::{Contents, Entry, FileChange, Remark, Renamed, Texts, entries, git_mode};
use super::lines::{LineDiff, extent, hunk_range};
use super::palette::write_styled;
use super::quote::{quoted, quoted_word};
use super::{DiffOptions, RenderError, byte_size};

/// Digits of blob ids; git wants enough to be unique in a repository.
const ID_DIGITS: usize = 10;
const FULL_ID_DIGITS: usize = 40;
const NO_ID: &str = "0000000000";

/// Writes differences as one patch from the older to the newer state.
///
/// # Errors
/// When contents cannot be read, or `out` cannot be written; a part is written then.
pub fn write_patch(
    out: &mut dyn Write,
    differences: &[Difference],
    options: &DiffOptions<'_>,
) -> Result<(), RenderError> {
    write_patch_counting(out, differences, options).map(drop)
}

/// As [`write_patch`]. Returns the number of files whose new contents are not in the patch, because
/// they are binary or too large: a program that applies it does not bring them back.
///
/// # Errors
/// As there.
pub fn write_patch_counting(
    out: &mut dyn Write,
    differences: &[Difference],
    options: &DiffOptions<'_>,
) -> Result<usize, RenderError> {
    let mut patch = Patch { out, options, after_bare_header: false, left_out: 0 };
    for entry in entries(differences, options) {
        match entry {
            Entry::File(change) => patch.file(&change)?,
            Entry::Remark(remark) => patch.remark(&remark)?,
        }
    }
    Ok(patch.left_out)
}

struct Patch<'a> {
    out: &'a mut dyn Write,
    options: &'a DiffOptions<'a>,
    after_bare_header: bool,
    /// Files whose contents are not in it.
    left_out: usize,
}

impl Patch<'_> {
    fn file(&mut self, change: &FileChange<'_>) -> Result<(), RenderError> {
        if change.has_same_contents() {
            self.header(change)?;
            self.after_bare_header = true;
            return Ok(());
        }
        match change.load(self.options)? {
            Contents::Text(texts) => self.text(change, &texts.old, &texts.new)?,
            Contents::Binary(Texts { old, new }) if self.options.binary => {
                self.binary(change, &old, &new)?;
            }
            Contents::Binary(Texts { old, new }) => {
                self.unsaid_mode(change)?;
                self.missing(change, [&old, &new])?;
            }
            Contents::TooLarge { old, new } => {
                self.unsaid_mode(change)?;
                self.remark(&Remark { text: too_large(old, new), name: change.name.clone() })?;
                self.missing(change, [b"", b""])?;
            }
        }
        Ok(())
    }

    /// Contents as git alone takes them. It wants whole ids, and looks whether the old contents are
    /// there.
    fn binary(&mut self, change: &FileChange<'_>, old: &[u8], new: &[u8]) -> io::Result<()> {
        self.header(change)?;
        self.index(change, old, new, FULL_ID_DIGITS)?;
        self.after_bare_header = false;
        write_binary(self.out, old, new)
    }

    /// A file whose contents are not in the patch. Its ids are too short for git, which refuses it.
    /// No id and no mode says that a file is new or gone, because `patch` would make or remove it.
    fn missing(&mut self, change: &FileChange<'_>, contents: [&[u8]; 2]) -> io::Result<()> {
        self.left_out += 1;
        self.first_line(change)?;
        let [old, new] = contents.map(blob_id);
        let index = format!("index {}..{}", &old[..ID_DIGITS], &new[..ID_DIGITS]);
        self.line(self.options.palette.header, index.as_bytes())?;
        self.after_bare_header = false;
        let (old, new) = names(change);
        self.skipped(&[b"Binary files ", &*old, b" and ", &new, b" differ"].concat())
    }

    fn index(
        &mut self,
        change: &FileChange<'_>,
        old: &[u8],
        new: &[u8],
        digits: usize,
    ) -> io::Result<()> {
        let id = |is_there, bytes| if is_there { blob_id(bytes) } else { NO_ID.repeat(4) };
        let (old, new) = (id(change.old.is_some(), old), id(change.new.is_some(), new));
        let mode = match (change.old, change.new) {
            (Some(old), Some(new)) if git_mode(old) == git_mode(new) => {
                format!(" {:06o}", git_mode(new))
            }
            _ => String::new(),
        };
        let index = format!("index {}..{}{mode}", &old[..digits], &new[..digits]);
        self.line(self.options.palette.header, index.as_bytes())
    }

    fn text(&mut self, change: &FileChange<'_>, old: &[u8], new: &[u8]) -> io::Result<()> {
        self.header(change)?;
        self.index(change, old, new, ID_DIGITS)?;
        self.after_bare_header = old.is_empty() && new.is_empty();
        if self.after_bare_header {
            return Ok(());
        }
        let (old_name, new_name) = names(change);
        // Without the tab both programs take what follows a space for a date.
        let tab = if change.name.contains(&b' ') { &b"\t"[..] } else { b"" };
        for (mark, name, is_there) in [
            (&b"--- "[..], old_name, change.old.is_some()),
            (b"+++ ", new_name, change.new.is_some()),
        ] {
            let tab = if is_there { tab } else { b"" };
            self.line(self.options.palette.header, &[mark, &name, tab].concat())?;
        }
        self.hunks(old, new)
    }

    fn header(&mut self, change: &FileChange<'_>) -> io::Result<()> {
        let style = self.options.palette.header;
        self.first_line(change)?;
        let mode = |state| format!("{:06o}", git_mode(state));
        match (change.old.map(mode), change.new.map(mode)) {
            (None, Some(new)) => self.line(style, format!("new file mode {new}").as_bytes())?,
            (Some(old), None) => self.line(style, format!("deleted file mode {old}").as_bytes())?,
            (Some(old), Some(new)) if old != new => {
                self.line(style, format!("old mode {old}").as_bytes())?;
                self.line(style, format!("new mode {new}").as_bytes())?;
            }
            _ => {}
        }
        let Some(Renamed { from, percent }) = &change.renamed else { return Ok(()) };
        self.line(style, format!("similarity index {percent}%").as_bytes())?;
        self.line(style, &[b"rename from ", &*quoted_word("", from)].concat())?;
        self.line(style, &[b"rename to ", &*quoted_word("", &change.name)].concat())
    }

    fn first_line(&mut self, change: &FileChange<'_>) -> io::Result<()> {
        let old_name = quoted_word("a/", change.old_name());
        let new_name = quoted_word("b/", &change.name);
        let line = [b"diff --git ", &*old_name, b" ", &new_name].concat();
        self.line(self.options.palette.header, &line)
    }

    fn hunks(&mut self, old: &[u8], new: &[u8]) -> io::Result<()> {
        let diff = LineDiff::new(old, new, self.options.timeout);
        let palette = &self.options.palette;
        for hunk in diff.hunks(self.options.context_lines) {
            let (old, new) = extent(&hunk);
            let position = format!("@@ -{} +{} @@", hunk_range(&old), hunk_range(&new));
            self.line(palette.hunk, position.as_bytes())?;
            for block in hunk {
                if block.is_same {
                    for line in &diff.new_lines()[block.new] {
                        self.content(Style::new(), b' ', line)?;
                    }
                    continue;
                }
                for line in &diff.old()[block.old] {
                    self.content(palette.removed, b'-', line)?;
                }
                for line in &diff.new_lines()[block.new] {
                    self.content(palette.added, b'+', line)?;
                }
            }
        }
        Ok(())
    }

    /// A line of a file, which ends with its newline if it has one.
    fn content(&mut self, style: Style, mark: u8, line: &[u8]) -> io::Result<()> {
        let text = line.strip_suffix(b"\n");
        let shown = text.unwrap_or(line);
        let mut marked = Vec::with_capacity(shown.len() + 1);
        marked.push(mark);
        if self.options.escape {
            push_escaped(&mut marked, shown);
        } else {
            marked.extend_from_slice(shown);
        }
        self.line(style, &marked)?;
        if text.is_none() {
            self.line(self.options.palette.dim, b"\\ No newline at end of file")?;
        }
        Ok(())
    }

    /// The mode of a file whose contents are not in the patch.
    fn unsaid_mode(&mut self, change: &FileChange<'_>) -> io::Result<()> {
        let (Some(old), Some(new)) = (change.old, change.new) else { return Ok(()) };
        if git_mode(old) == git_mode(new) {
            return Ok(());
        }
        let (old, new) = (old.attributes.mode, new.attributes.mode);
        let text = format!("permissions {old:04o} -> {new:04o}");
        self.remark(&Remark { text, name: change.name.clone() })
    }

    fn remark(&mut self, remark: &Remark) -> io::Result<()> {
        let name = quoted("", &remark.name);
        self.skipped(&[b"# ", remark.text.as_bytes(), b": ", &name].concat())
    }

    /// A line that is no part of the patch.
    fn skipped(&mut self, text: &[u8]) -> io::Result<()> {
        let style = self.options.palette.dim;
        if std::mem::take(&mut self.after_bare_header) {
            self.line(style, b"#")?;
        }
        self.line(style, text)
    }

    fn line(&mut self, style: Style, text: &[u8]) -> io::Result<()> {
        write_styled(self.out, style, text)?;
        self.out.write_all(b"\n")
    }
}

/// Both names as they stand in `---` and `+++` lines.
fn names(change: &FileChange<'_>) -> (Vec<u8>, Vec<u8>) {
    let name = |prefix, name, is_there| match is_there {
        true => quoted(prefix, name),
        false => b"/dev/null".to_vec(),
    };
    let old = name("a/", change.old_name(), change.old.is_some());
    (old, name("b/", &change.name, change.new.is_some()))
}

/// Says that contents are not shown because of their size.
pub(super) fn too_large(old: Option<u64>, new: Option<u64>) -> String {
    let sizes: Vec<String> = [old, new].into_iter().flatten().map(byte_size).collect();
    format!("too large to compare ({})", sizes.join(" -> "))
}

/// The name that git gives to contents.
fn blob_id(bytes: &[u8]) -> String {
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", bytes.len()));
    hasher.update(bytes);
    hex::encode(hasher.finalize())
}

/// Adds a line made safe for a terminal; tabs stay.
pub fn push_escaped(out: &mut Vec<u8>, line: &[u8]) {
    for (at, piece) in line.split(|byte| *byte == b'\t').enumerate() {
        if at > 0 {
            out.push(b'\t');
        }
        // Writing to a Vec cannot fail.
        let _ = write!(out, "{}", Shown::bytes(piece));
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{TestDiff, directory, file, file_with_mode, link};
    use super::*;
    use nono_engine::object::Node;

    fn patch(diff: &TestDiff) -> String {
        let mut out = Vec::new();
        write_patch(&mut out, &diff.differences, &diff.options()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn blob_ids_are_the_ones_of_git() {
        assert_eq!(blob_id(b""), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(blob_id(b"hello\n"), "ce013625030ba8dba906f756967f9e9ca394464a");
    }

    #[test]
    fn a_changed_file_looks_as_git_shows_it() {
        let mut diff = TestDiff::new();
        diff.add("/p/a b", file(b"1\n2\n3\n4\n5\n"), file(b"1\n2\n3\n4\nfive"));
        assert_eq!(
            patch(&diff),
            "diff --git \"a/a b\" \"b/a b\"\nindex 8a1218a102..395521f595 100644\n\
             --- a/a b\t\n+++ b/a b\t\n@@ -2,4 +2,4 @@\n 2\n 3\n 4\n-5\n+five\n\
             \\ No newline at end of file\n"
        );
    }

    #[test]
    fn a_created_empty_file_and_a_deleted_symlink_have_modes() {
        let mut diff = TestDiff::new();
        diff.add("/p/empty", None, file_with_mode(b"", 0o755));
        diff.add("/p/link", link(b"there"), None);
        assert_eq!(
            patch(&diff),
            "diff --git a/empty b/empty\nnew file mode 100755\nindex 0000000000..e69de29bb2\n\
             diff --git a/link b/link\ndeleted file mode 120000\nindex c78ee1a5bd..0000000000\n\
             --- a/link\n+++ /dev/null\n@@ -1 +0,0 @@\n-there\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn only_the_bit_that_git_knows_is_a_mode_change() {
        let mut diff = TestDiff::new();
        diff.add("/p/run", file_with_mode(b"x", 0o644), file_with_mode(b"x", 0o755));
        diff.add("/p/secret", file_with_mode(b"x", 0o644), file_with_mode(b"x", 0o600));
        assert_eq!(
            patch(&diff),
            "diff --git a/run b/run\nold mode 100644\nnew mode 100755\n\
             #\n# permissions 0644 -> 0600: secret\n"
        );
    }

    #[test]
    fn binary_and_large_files_are_named() {
        let mut diff = TestDiff::new();
        diff.add("/p/bin", file(b"\0a"), file_with_mode(b"\0b", 0o755));
        diff.add("/p/large", file(b"a"), file(&[b'x'; 2000]));
        diff.add("/p/new.bin", None, file(b"\0"));
        diff.max_file_bytes = 1024;
        assert_eq!(
            patch(&diff),
            "# permissions 0644 -> 0755: bin\n\
             diff --git a/bin b/bin\nindex daa8f618e0..10f50c4d4b\n\
             Binary files a/bin and b/bin differ\n\
             # too large to compare (1 B -> 2.0 KiB): large\n\
             diff --git a/large b/large\nindex e69de29bb2..e69de29bb2\n\
             Binary files a/large and b/large differ\n\
             diff --git a/new.bin b/new.bin\nindex e69de29bb2..f76dd238ad\n\
             Binary files /dev/null and b/new.bin differ\n"
        );
    }

    #[test]
    fn a_file_in_the_place_of_a_directory_comes_after_its_contents() {
        let mut diff = TestDiff::new();
        diff.add("/p/d", directory(), file(b"now a file\n"));
        diff.add("/p/d/x", file(b"x\n"), None);
        diff.add("/p/e", file(b"now a directory\n"), directory());
        diff.add("/p/e/x", None, file(b"x\n"));
        let text = patch(&diff);
        let headers: Vec<_> =
            text.lines().filter(|l| l.starts_with("diff") || l.contains("file mode")).collect();
        assert_eq!(
            headers,
            [
                "diff --git a/d/x b/d/x",
                "deleted file mode 100644",
                "diff --git a/d b/d",
                "new file mode 100644",
                "diff --git a/e b/e",
                "deleted file mode 100644",
                "diff --git a/e/x b/e/x",
                "new file mode 100644",
            ]
        );
    }

    #[test]
    fn what_a_patch_cannot_say_is_a_remark() {
        let mut diff = TestDiff::new();
        let mut owned = file(b"x");
        owned.as_mut().unwrap().attributes.uid = 7;
        let mut touched = file(b"x");
        touched.as_mut().unwrap().attributes.mtime.seconds = 7;
        let mut pipe = file(b"x");
        pipe.as_mut().unwrap().node = Node::Fifo;
        diff.add("/p/empty\n", None, directory());
        diff.add("/p/owned", file(b"x"), owned);
        diff.add("/p/pipe", None, pipe);
        diff.add("/p/touched", file(b"x"), touched);
        assert_eq!(
            patch(&diff),
            "# created directory: \"empty\\n\"\n# owner 0:0 -> 7:0: owned\n\
             # created fifo: pipe\n# modification time changed: touched\n"
        );
    }

    #[test]
    fn names_are_relative_to_the_only_tracked_path() {
        let mut diff = TestDiff::new();
        diff.add("/p/a", file_with_mode(b"", 0o644), file_with_mode(b"", 0o755));
        assert!(patch(&diff).starts_with("diff --git a/a b/a\n"));
        diff.roots = vec!["/p/a".into()];
        assert!(patch(&diff).starts_with("diff --git a/a b/a\n"));
        diff.roots = vec!["/p".into(), "/q".into()];
        assert!(patch(&diff).starts_with("diff --git a/p/a b/p/a\n"));
    }

    #[test]
    fn contents_are_escaped_only_for_a_terminal() {
        let mut diff = TestDiff::new();
        diff.add("/p/a", None, file(b"\x1b[2J\tx\xff\r\n"));
        let mut out = Vec::new();
        write_patch(&mut out, &diff.differences, &diff.options()).unwrap();
        assert!(out.ends_with(b"+\x1b[2J\tx\xff\r\n"));
        let options = DiffOptions { escape: true, ..diff.options() };
        out.clear();
        write_patch(&mut out, &diff.differences, &options).unwrap();
        assert!(out.ends_with(b"+\\u{1b}[2J\tx\\xff\\r\n"));
    }

    #[test]
    fn colours_leave_the_text_as_it_is() {
        let mut diff = TestDiff::new();
        diff.add("/p/a", file(b"1\n"), file(b"2\n"));
        let plain = patch(&diff);
        let options = DiffOptions { palette: super::super::Palette::coloured(), ..diff.options() };
        let mut out = Vec::new();
        write_patch(&mut out, &diff.differences, &options).unwrap();
        let coloured = String::from_utf8(out).unwrap();
        assert!(coloured.contains("\x1b[31m-1\x1b[0m\n\x1b[32m+2\x1b[0m\n"));
        assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), plain);
    }

    #[test]
    fn a_damaged_object_is_an_error() {
        let mut diff = TestDiff::new();
        diff.add("/p/a", None, file(b"never stored"));
        let empty = nono_engine::store::MemoryStore::new();
        let options = DiffOptions { store: &empty, ..diff.options() };
        let result = write_patch(&mut Vec::new(), &diff.differences, &options);
        assert!(matches!(result, Err(RenderError::Store(_))));
    }
}
