//! One pattern, compiled: a name, a part of a path, or whole components with wildcards.

use globset::{GlobBuilder, GlobMatcher};

use super::tied::ABSOLUTE;
use crate::byte_path;
use crate::path_text::to_path;

/// A pattern or glob that cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error("invalid {what} {pattern:?}: {reason}")]
pub struct InvalidPattern {
    /// Which list it is from.
    pub what: &'static str,
    /// The pattern as given.
    pub pattern: String,
    /// The defect.
    pub reason: String,
}

pub(super) fn invalid(what: &'static str, pattern: &str, reason: impl ToString) -> InvalidPattern {
    InvalidPattern { what, pattern: pattern.to_owned(), reason: reason.to_string() }
}

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    /// As it was given.
    pub(super) text: String,
    components: Vec<Component>,
    anchored: bool,
    only_dirs: bool,
}

#[derive(Debug, Clone)]
enum Component {
    /// A whole component.
    Literal(Vec<u8>),
    /// The end of one.
    End(Vec<u8>),
    /// The beginning of one.
    Beginning(Vec<u8>),
    Glob(GlobMatcher),
}

pub(super) fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?', '[', '{'])
}

impl Pattern {
    /// Compiles a pattern of the list `what`.
    ///
    /// # Errors
    /// When it names no path, or its wildcards are not valid.
    pub(super) fn new(what: &'static str, text: &str) -> Result<Self, InvalidPattern> {
        let inner = text.strip_prefix("./").unwrap_or(text);
        let anchored = inner.starts_with('/') || text.starts_with("./");
        let is_exact = inner.starts_with(ABSOLUTE);
        let only_dirs = inner.ends_with('/');
        let inner = inner.trim_matches('/');
        if inner.is_empty() || inner.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(invalid(what, text, "it names no path"));
        }
        let is_text = inner.contains('/') && !has_wildcard(inner) && !is_exact;
        let last = inner.split('/').count() - 1;
        let component = |(index, part): (usize, &str)| {
            if has_wildcard(part) {
                let glob = GlobBuilder::new(part).literal_separator(true).build();
                return glob
                    .map(|glob| Component::Glob(glob.compile_matcher()))
                    .map_err(|error| invalid(what, text, error));
            }
            let name = crate::path_text::decode(part);
            Ok(if is_text && index == 0 && !anchored {
                Component::End(name)
            } else if is_text && index == last && !only_dirs {
                Component::Beginning(name)
            } else {
                Component::Literal(name)
            })
        };
        let components = inner.split('/').enumerate().map(component).collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), components, anchored, only_dirs })
    }

    /// Whether the last components of `relative` are this pattern.
    pub(super) fn ends(&self, relative: &[u8], is_dir: bool) -> bool {
        if self.only_dirs && !is_dir {
            return false;
        }
        let mut parts = byte_path::components(relative).rev();
        let matched = self
            .components
            .iter()
            .rev()
            .all(|component| parts.next().is_some_and(|part| component.matches(part)));
        matched && (!self.anchored || parts.next().is_none())
    }

    /// Index of the component at which this pattern begins when it ends a path of so many.
    pub(super) fn first_part(&self, part_count: usize) -> usize {
        part_count.saturating_sub(self.components.len())
    }

    /// Whether something strictly below a directory can match. With `pruned`, the match has to
    /// cover the component of that index.
    pub(super) fn leads_below(&self, dir: &[&[u8]], pruned: Option<usize>) -> bool {
        let begins_at = |start: usize| {
            let covered = &dir[start..];
            covered.len() < self.components.len()
                && covered.iter().zip(&self.components).all(|(part, own)| own.matches(part))
        };
        match (self.anchored, pruned) {
            (true, _) => begins_at(0),
            (false, Some(pruned)) => (0..=pruned).any(begins_at),
            (false, None) => true,
        }
    }
}

impl Component {
    fn matches(&self, part: &[u8]) -> bool {
        match self {
            Self::Literal(name) => name == part,
            Self::End(end) => part.ends_with(end),
            Self::Beginning(beginning) => part.starts_with(beginning),
            Self::Glob(glob) => glob.is_match(to_path(part)),
        }
    }
}
