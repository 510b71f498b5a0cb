//! One changed path after the other, each under a title: the shared part of the views that are no
//! patch.

use std::io::Write;

use super::entries::{Contents, Entry, FileChange, Texts, entries, git_mode};
use super::palette::write_styled;
use super::patch::too_large;
use super::{DiffOptions, RenderError, change_mark, change_word};
use nono_engine::diff::{ChangeType, Difference};
use nono_engine::path_text::Shown;

/// Writes each changed file under its title, by `write_file`, and what has no lines to show in a
/// line.
///
/// # Errors
/// When contents cannot be read, or `out` cannot be written; a part is written then.
pub(super) fn write_titled(
    out: &mut dyn Write,
    differences: &[Difference],
    options: &DiffOptions<'_>,
    write_file: impl Fn(&mut dyn Write, &FileChange<'_>) -> Result<(), RenderError>,
) -> Result<(), RenderError> {
    for (at, entry) in entries(differences, options).into_iter().enumerate() {
        if at > 0 {
            out.write_all(b"\n")?;
        }
        match entry {
            Entry::File(change) => {
                write_title(out, &change, options)?;
                write_file(out, &change)?;
            }
            Entry::Remark(remark) => {
                let text = format!("{}: {}", remark.text, Shown::bytes(&remark.name));
                write_styled(out, options.palette.dim, text.as_bytes())?;
                out.write_all(b"\n")?;
            }
        }
    }
    Ok(())
}

/// `~ modified src/main.rs`, with the permissions if they are different.
fn write_title(
    out: &mut dyn Write,
    change: &FileChange<'_>,
    options: &DiffOptions<'_>,
) -> Result<(), RenderError> {
    let change_type = match (change.old, change.new) {
        (None, _) => ChangeType::Created,
        (_, None) => ChangeType::Deleted,
        _ if change.has_same_contents() => ChangeType::PermissionsChanged,
        _ => ChangeType::Modified,
    };
    let mut title = format!(
        "{} {} {}",
        change_mark(change_type),
        change_word(change_type),
        Shown::bytes(&change.name)
    );
    if let Some(renamed) = &change.renamed {
        title =
            format!("> renamed {} -> {}", Shown::bytes(&renamed.from), Shown::bytes(&change.name));
    }
    if let (Some(old), Some(new)) = (change.old, change.new)
        && git_mode(old) != git_mode(new)
    {
        let (old, new) = (old.attributes.mode, new.attributes.mode);
        title.push_str(&format!(" ({old:04o} -> {new:04o})"));
    }
    let style = options.palette.header;
    write_styled(out, style, title.as_bytes())?;
    Ok(out.write_all(b"\n")?)
}

/// Says in a line why there are no contents, or gives them back.
pub(super) fn text_or_reason(
    out: &mut dyn Write,
    contents: Contents,
    options: &DiffOptions<'_>,
) -> Result<Option<Texts>, RenderError> {
    let reason = match contents {
        Contents::Text(texts) => return Ok(Some(texts)),
        Contents::Binary(_) => "binary".to_owned(),
        Contents::TooLarge { old, new } => too_large(old, new),
    };
    write_styled(out, options.palette.dim, format!("({reason})").as_bytes())?;
    out.write_all(b"\n")?;
    Ok(None)
}
