//! Patterns that name a path of the file system, tied to the tracked paths.
//!
//! A pattern is given once and counts in every tracked path. One that names a path of the file
//! system means this path alone, so it becomes a pattern of the tracked path that it lies below.
//!
//! | given | means |
//! |---|---|
//! | `//home/ada/shop/data` | this path from the root of the file system, and no other |
//! | `/home/ada/shop/data`, `/home/ada/shop` is tracked | the same |
//! | `/data` | `data` at the top of each tracked path |
//!
//! Afterwards `//data` is exactly the path `data` below the tracked path: no tied pattern has a
//! part of the path above.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::config::ExclusionConfig;
use super::pattern::{InvalidPattern, has_wildcard, invalid};
use crate::path_text::{Shown, decode, encode, to_path};
use crate::sys;

/// A path from the root of the file system begins with it, and so does one that is tied.
pub const ABSOLUTE: &str = "//";
/// Everything in a tracked path, as a pattern.
const ALL: &str = "/*";

/// How a pattern's path lies to a tracked path.
enum Position {
    /// The rest of the pattern below the tracked path.
    Below(String),
    /// It is the tracked path, or a directory above it.
    Covers,
    Elsewhere,
}

impl ExclusionConfig {
    /// The exclusions of `root`, one of the tracked paths `roots`: a pattern that names a path of
    /// the file system counts where that path lies. Symlinks above the path are followed.
    ///
    /// # Errors
    /// An exclude pattern that names all of `root`, which is to be recorded.
    pub fn tied(&self, root: &Path, roots: &[PathBuf]) -> Result<Self, InvalidPattern> {
        let exclude = |text: &String| {
            tie(text, root, roots, || {
                let (covered, path) = (text.trim_start_matches('/'), Shown::path(root));
                let reason = format!("it leaves out all of {path}, which is to be recorded");
                Err(invalid("exclude pattern", &format!("/{covered}"), reason))
            })
        };
        let include = |text: &String| tie(text, root, roots, || Ok(ALL.to_owned()));
        let all = |list: &[String], tie: &dyn Fn(&String) -> Tied| {
            list.iter().filter_map(|text| tie(text).transpose()).collect::<Result<Vec<_>, _>>()
        };
        Ok(Self {
            exclude_patterns: all(&self.exclude_patterns, &exclude)?,
            force_include: all(&self.force_include, &include)?,
            prune_patterns: all(&self.prune_patterns, &exclude)?,
            ..self.clone()
        })
    }
}

/// A path as the pattern that names exactly this path.
pub fn pattern_of_path(path: &Path) -> String {
    let text = globset::escape(&encode(path.as_os_str().as_bytes()));
    format!("{ABSOLUTE}{}", text.trim_start_matches('/'))
}

/// A pattern for one tracked path, or none where it means another path.
type Tied = Result<Option<String>, InvalidPattern>;

/// `covering` is the answer to a pattern that names all of the tracked path.
fn tie(
    text: &str,
    root: &Path,
    roots: &[PathBuf],
    covering: impl Fn() -> Result<String, InvalidPattern>,
) -> Tied {
    if !text.starts_with('/') {
        return Ok(Some(text.to_owned()));
    }
    let is_absolute = text.starts_with(ABSOLUTE);
    let forms = forms(text);
    let end = if text.ends_with('/') { "/" } else { "" };
    for form in &forms {
        match position(form, root) {
            Position::Below(rest) => return Ok(Some(format!("{ABSOLUTE}{rest}{end}"))),
            Position::Covers if is_absolute => return covering().map(Some),
            Position::Covers | Position::Elsewhere => {}
        }
    }
    let lies_below = |root: &PathBuf| {
        forms.iter().any(|form| matches!(position(form, root), Position::Below(_)))
    };
    let is_of_another = is_absolute || roots.iter().any(lies_below);
    Ok((!is_of_another).then(|| text.to_owned()))
}

/// The components of a pattern as it is written, and with the symlinks above it resolved.
fn forms(text: &str) -> Vec<Vec<String>> {
    let written: Vec<String> = text.trim_matches('/').split('/').map(str::to_owned).collect();
    let literal = written.iter().take_while(|part| !has_wildcard(part)).count();
    // The last name is meant itself, also where it is a symlink.
    let (above, rest) = written.split_at(literal.min(written.len() - 1));
    let path = PathBuf::from("/").join(to_path(&decode(&above.join("/"))));
    let real = sys::real_or_future_path(&path);
    let mut forms = vec![written.clone()];
    if real != path {
        let text = encode(real.as_os_str().as_bytes()).into_owned();
        let real = text.split('/').filter(|part| !part.is_empty()).map(globset::escape);
        forms.push(real.chain(rest.iter().cloned()).collect());
    }
    forms
}

fn position(parts: &[String], root: &Path) -> Position {
    let text = encode(root.as_os_str().as_bytes());
    let names: Vec<&str> = text.split('/').filter(|name| !name.is_empty()).collect();
    // Wildcards above a tracked path find none: `/*/data` is a path below the top.
    let is_same = |(part, name): (&String, &&str)| part == name || *part == globset::escape(name);
    if !parts.iter().zip(&names).all(is_same) {
        return Position::Elsewhere;
    }
    match parts.get(names.len()..) {
        Some(rest) if !rest.is_empty() => Position::Below(rest.join("/")),
        _ => Position::Covers,
    }
}
