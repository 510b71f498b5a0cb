//! `SESSION/steps`: a link to the snapshot of each step, with a name that says what the step was.

use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::remembered::{Remembered, metadata};
use crate::session::steps_of;
use crate::snapshot::SessionMetadata;

/// Name of the folder.
pub(super) const STEPS: &[u8] = b"steps";
/// Longest name of a link in characters, without the number.
const MAX_NAME_CHARS: usize = 60;

/// Whether a session has steps.
pub(super) fn has_steps(session: &Path) -> bool {
    metadata(session).is_ok_and(|metadata| !metadata.steps.is_empty())
}

/// Names and targets of links, sorted by name.
type Links = Vec<(String, String)>;

/// The links of the session that was looked at last.
#[derive(Debug, Default)]
pub(super) struct StepLinks(Remembered<Links>);

impl StepLinks {
    /// Names and targets of the links: `0017-Bash-rm-rf-src` and `../17`.
    ///
    /// # Errors
    /// When the session's manifest cannot be used.
    pub(super) fn of(&self, session: &Path) -> io::Result<Arc<Links>> {
        self.0.of(session, links)
    }

    /// Where the link of this name leads.
    ///
    /// # Errors
    /// When the session's manifest cannot be used.
    pub(super) fn target(&self, session: &Path, name: &[u8]) -> io::Result<Option<String>> {
        let links = self.of(session)?;
        let at = links.binary_search_by(|(known, _)| known.as_bytes().cmp(name));
        Ok(at.ok().map(|at| links[at].1.clone()))
    }
}

fn links(metadata: &SessionMetadata) -> Links {
    let removed: HashSet<u64> = metadata.removed.iter().map(|removed| removed.number).collect();
    let steps = steps_of(metadata).into_iter().filter(|step| !removed.contains(&step.number));
    let link = |step: crate::snapshot::StepEntry| {
        let number = step.number;
        (format!("{number:04}-{}", plain(&step.summary())), format!("../{number}"))
    };
    let mut links: Vec<_> = steps.map(link).collect();
    links.sort_unstable();
    links
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
#[allow(clippy::disallowed_methods, reason = "tests plant what they look at")]
mod tests {
    use super::*;
    use crate::layout::MANIFEST;

    #[test]
    fn a_manifest_is_read_once_for_all_names_and_again_when_it_is_replaced() {
        let temp = tempfile::tempdir().unwrap();
        let place = |name: &str| temp.path().join(name);
        let plant = |numbers: &[u64]| {
            let mut metadata = SessionMetadata::new("s".to_owned(), Vec::new(), Vec::new());
            let step = |number: &u64| {
                let text = format!(
                    r#"{{"number":{number},"timestamp":"2026-01-01T00:00:00Z","agent":"codex",
                        "tool":"Bash","title":"make","changes":null}}"#
                );
                serde_json::from_str(&text).unwrap()
            };
            metadata.steps = numbers.iter().map(step).collect();
            std::fs::write(place("new"), serde_json::to_vec(&metadata).unwrap()).unwrap();
            std::fs::rename(place("new"), place(MANIFEST)).unwrap();
        };
        plant(&[1, 10, 2]);
        let links = StepLinks::default();
        let first = links.of(temp.path()).unwrap();
        let names: Vec<_> = first.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["0001-Bash-make", "0002-Bash-make", "0010-Bash-make"]);
        let target = |name: &str| links.target(temp.path(), name.as_bytes()).unwrap();
        assert_eq!(target("0010-Bash-make").as_deref(), Some("../10"));
        assert_eq!(target("0011-Bash-make"), None);
        assert!(Arc::ptr_eq(&first, &links.of(temp.path()).unwrap()));
        plant(&[1, 10, 2, 11]);
        assert_eq!(target("0011-Bash-make").as_deref(), Some("../11"));
    }

    #[test]
    fn a_name_is_words_and_hyphens() {
        assert_eq!(plain("Bash · rm -rf src"), "Bash-rm-rf-src");
        assert_eq!(plain("Edit · src/cart.py"), "Edit-src-cart.py");
        assert_eq!(plain("\u{1b}[2J/../\u{202e}x"), "2J-..-x");
        assert_eq!(plain(&"ab/".repeat(100)).chars().count(), 59);
    }
}
