//! How many lines of each file changed, as `git diff --stat` shows it.

use std::io::Write;

use unicode_width::UnicodeWidthStr;

use super::entries::{Contents, Entry, FileChange, entries, git_mode};
use super::lines::LineDiff;
use super::patch::too_large;
use super::{DiffOptions, RenderError, byte_size};
use nono_engine::diff::Difference;
use nono_engine::path_text::Shown;

/// The graph keeps so many columns, however long the names are.
const LEAST_GRAPH: usize = 10;

/// The row of one path.
enum Row {
    Lines { added: usize, removed: usize },
    Words(String),
}

/// Writes one line for each changed path, `width` columns wide at the most where names allow it,
/// and a sum.
///
/// # Errors
/// When contents cannot be read, or `out` cannot be written; a part is written then.
pub fn write_stat(
    out: &mut dyn Write,
    differences: &[Difference],
    options: &DiffOptions<'_>,
    width: usize,
) -> Result<(), RenderError> {
    let mut rows = Vec::new();
    let mut file_count = 0;
    for entry in entries(differences, options) {
        rows.push(match entry {
            Entry::File(change) => {
                file_count += 1;
                let name = Shown::bytes(&change.name);
                let name = match &change.renamed {
                    Some(renamed) => format!("{} => {name}", Shown::bytes(&renamed.from)),
                    None => name.to_string(),
                };
                (name, row(&change, options)?)
            }
            Entry::Remark(remark) => {
                (Shown::bytes(&remark.name).to_string(), Row::Words(remark.text))
            }
        });
    }
    if rows.is_empty() {
        return Ok(());
    }
    let lines = |row: &Row| match row {
        Row::Lines { added, removed } => added + removed,
        Row::Words(_) => 0,
    };
    let most = rows.iter().map(|(_, row)| lines(row)).max().unwrap_or(0);
    let digits = most.to_string().len();
    let names = rows.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    // A space, the name, ` | `, the number, a space.
    let room = width.saturating_sub(names + digits + 5).max(LEAST_GRAPH);
    for (name, row) in &rows {
        let gap = " ".repeat(names - name.width());
        match row {
            Row::Words(text) => writeln!(out, " {name}{gap} | {text}")?,
            Row::Lines { added, removed } => {
                let (plus, minus) = graph(*added, *removed, most, room);
                let (new, old) = (options.palette.added, options.palette.removed);
                let count = added + removed;
                let space = if count == 0 { "" } else { " " };
                write!(out, " {name}{gap} | {count:>digits$}{space}")?;
                for (style, sign, length) in [(new, "+", plus), (old, "-", minus)] {
                    if length > 0 {
                        write!(out, "{style}{}{style:#}", sign.repeat(length))?;
                    }
                }
                writeln!(out)?;
            }
        }
    }
    let sum = rows.iter().fold((0, 0), |sum, (_, row)| match row {
        Row::Lines { added, removed } => (sum.0 + added, sum.1 + removed),
        Row::Words(_) => sum,
    });
    Ok(writeln!(out, " {}", sentence(file_count, sum.0, sum.1))?)
}

fn row(change: &FileChange<'_>, options: &DiffOptions<'_>) -> Result<Row, RenderError> {
    if change.has_same_contents() {
        let mode =
            |state: Option<_>| state.map_or(String::new(), |s| format!("{:06o}", git_mode(s)));
        return Ok(Row::Words(format!("mode {} -> {}", mode(change.old), mode(change.new))));
    }
    Ok(match change.load(options)? {
        Contents::Text(texts) => {
            let diff = LineDiff::new(&texts.old, &texts.new, options.timeout);
            let changed = diff.blocks().filter(|block| !block.is_same);
            let (mut added, mut removed) = (0, 0);
            for block in changed {
                added += block.new.len();
                removed += block.old.len();
            }
            Row::Lines { added, removed }
        }
        Contents::Binary(_) => {
            let size = |state: Option<&nono_engine::diff::EntryState>| {
                byte_size(state.map_or(0, nono_engine::diff::EntryState::bytes))
            };
            Row::Words(format!("Bin {} -> {}", size(change.old), size(change.new)))
        }
        Contents::TooLarge { old, new } => Row::Words(too_large(old, new)),
    })
}

/// Columns of `+` and `-`. A changed file has at least one.
fn graph(added: usize, removed: usize, most: usize, room: usize) -> (usize, usize) {
    if most <= room {
        return (added, removed);
    }
    let scaled = |count: usize| {
        let columns = count.saturating_mul(room) / most;
        if count == 0 { 0 } else { columns.max(1) }
    };
    (scaled(added), scaled(removed))
}

fn sentence(files: usize, added: usize, removed: usize) -> String {
    let plural =
        |count: usize, one: &str| if count == 1 { one.to_owned() } else { format!("{one}s") };
    let mut text = format!("{files} {} changed", plural(files, "file"));
    if added > 0 || removed == 0 {
        text.push_str(&format!(", {added} {}(+)", plural(added, "insertion")));
    }
    if removed > 0 || added == 0 {
        text.push_str(&format!(", {removed} {}(-)", plural(removed, "deletion")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{TestDiff, directory, file, file_with_mode};
    use super::*;

    fn stat(diff: &TestDiff, width: usize) -> String {
        let mut out = Vec::new();
        write_stat(&mut out, &diff.differences, &diff.options(), width).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn each_path_has_its_line_and_all_have_a_sum() {
        let mut diff = TestDiff::new();
        diff.add("/p/a", file(b"1\n2\n3\n"), file(b"1\ntwo\n3\n4\n"));
        diff.add("/p/binary", file(b"\0"), file(b"\0\0"));
        diff.add("/p/dir", None, directory());
        diff.add("/p/gone", file(b"x\n"), None);
        diff.add("/p/run", file_with_mode(b"x\n", 0o644), file_with_mode(b"x\n", 0o755));
        assert_eq!(
            stat(&diff, 80),
            " a      | 3 ++-\n binary | Bin 1 B -> 2 B\n dir    | created directory\n \
             gone   | 1 -\n run    | mode 100644 -> 100755\n \
             4 files changed, 2 insertions(+), 2 deletions(-)\n"
        );
        assert_eq!(stat(&TestDiff::new(), 80), "");
    }

    #[test]
    fn long_graphs_are_scaled_and_nothing_that_changed_is_without_a_sign() {
        let mut diff = TestDiff::new();
        let many = "x\n".repeat(1000);
        diff.add("/p/long", None, file(many.as_bytes()));
        diff.add("/p/short", None, file(b"x\n"));
        let text = stat(&diff, 40);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].len(), 40);
        assert!(lines[0].starts_with(" long  | 1000 ++++"));
        assert_eq!(lines[1], " short |    1 +");
        assert_eq!(lines[2], " 2 files changed, 1001 insertions(+)");
    }
}
