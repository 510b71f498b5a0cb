//! `SESSION/steps`: a link to the snapshot of each step, with a name that says what the step was.

use std::io;
use std::path::Path;

use super::error::from_manifest;
use crate::session::steps_of;
use crate::snapshot::{SessionDir, SessionMetadata};

/// Name of the folder.
pub(super) const STEPS: &[u8] = b"steps";
/// Longest name of a link in characters, without the number.
const MAX_NAME_CHARS: usize = 60;

fn metadata(session: &Path) -> io::Result<SessionMetadata> {
    SessionDir::open(session).and_then(|session| session.metadata()).map_err(from_manifest)
}

/// Whether a session has steps.
pub(super) fn has_steps(session: &Path) -> bool {
    metadata(session).is_ok_and(|metadata| !metadata.steps.is_empty())
}

/// Names and targets of the links: `0017-Bash-rm-rf-src` and `../17`.
pub(super) fn links(session: &Path) -> io::Result<Vec<(String, String)>> {
    let metadata = metadata(session)?;
    let steps = steps_of(&metadata).into_iter();
    let steps = steps.filter(|step| metadata.removal(step.number).is_none());
    let link = |step: crate::snapshot::StepEntry| {
        let number = step.number;
        (format!("{number:04}-{}", plain(&step.summary())), format!("../{number}"))
    };
    Ok(steps.map(link).collect())
}

/// A text as a name that needs no quotes in a shell.
fn plain(text: &str) -> String {
    let mut name = String::new();
    for c in text.chars() {
        if c.is_alphanumeric() || matches!(c, '.' | '_') {
            name.push(c);
        } else if !name.is_empty() && !name.ends_with('-') {
            name.push('-');
        }
        if name.chars().count() >= MAX_NAME_CHARS {
            break;
        }
    }
    name.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_words_and_hyphens() {
        assert_eq!(plain("Bash · rm -rf src"), "Bash-rm-rf-src");
        assert_eq!(plain("Edit · src/cart.py"), "Edit-src-cart.py");
        assert_eq!(plain("\u{1b}[2J/../\u{202e}x"), "2J-..-x");
        assert_eq!(plain(&"ab/".repeat(100)).chars().count(), 59);
    }
}
