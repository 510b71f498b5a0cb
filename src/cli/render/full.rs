//! Every changed file from its first line to its last, with what was added and removed marked.

use std::io::Write;

use anstyle::Style;

use nono_engine::diff::Difference;

use super::entries::{FileChange, Texts};
use super::lines::LineDiff;
use super::palette::write_styled;
use super::patch::push_escaped;
use super::titled::{text_or_reason, write_titled};
use super::{DiffOptions, RenderError};

/// Writes the whole of each changed file: lines of both states after a space, new ones after `+`,
/// removed ones after `-`. A file without lines gets one line of text.
///
/// # Errors
/// When contents cannot be read, or `out` cannot be written; a part is written then.
pub fn write_full(
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
    let palette = &options.palette;
    for block in diff.blocks() {
        if !block.is_same {
            for line in &diff.old()[block.old] {
                write_line(out, palette.removed, b'-', line, options)?;
            }
        }
        let (style, mark) =
            if block.is_same { (Style::new(), b' ') } else { (palette.added, b'+') };
        for line in &diff.new_lines()[block.new] {
            write_line(out, style, mark, line, options)?;
        }
    }
    Ok(())
}

fn write_line(
    out: &mut dyn Write,
    style: Style,
    mark: u8,
    line: &[u8],
    options: &DiffOptions<'_>,
) -> Result<(), RenderError> {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let mut marked = vec![mark];
    if options.escape {
        push_escaped(&mut marked, text);
    } else {
        marked.extend_from_slice(text);
    }
    write_styled(out, style, &marked)?;
    out.write_all(b"\n")?;
    if text.len() == line.len() {
        write_styled(out, options.palette.dim, b"\\ No newline at end of file")?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{TestDiff, directory, file, file_with_mode, link};
    use super::*;

    fn full(diff: &TestDiff) -> String {
        let mut out = Vec::new();
        write_full(&mut out, &diff.differences, &diff.options()).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_line_of_a_changed_file_is_shown() {
        let lines = |changed: &str| {
            let all: String = (0..20)
                .map(|n| if n == 10 { format!("{changed}\n") } else { format!("{n}\n") })
                .collect();
            file(all.as_bytes())
        };
        let mut diff = TestDiff::new();
        diff.add("/p/a", lines("old"), lines("new"));
        let text = full(&diff);
        assert!(text.starts_with("~ modified a\n 0\n 1\n"));
        assert!(text.contains("\n 9\n-old\n+new\n 11\n"));
        assert_eq!(text.lines().count(), 22);
    }

    #[test]
    fn each_kind_of_change_has_a_title() {
        let mut diff = TestDiff::new();
        diff.add("/p/bin", file(b"\0"), file(b"\0\0"));
        diff.add("/p/dir", None, directory());
        diff.add("/p/gone", file(b"x\n"), None);
        diff.add("/p/link", None, link(b"there"));
        diff.add("/p/run", file_with_mode(b"x\n", 0o644), file_with_mode(b"x\n", 0o755));
        assert_eq!(
            full(&diff),
            "~ modified bin\n(binary)\n\ncreated directory: dir\n\n- deleted gone\n-x\n\n\
             + created link\n+there\n\\ No newline at end of file\n\n\
             m permissions run (0644 -> 0755)\n x\n"
        );
    }
}
