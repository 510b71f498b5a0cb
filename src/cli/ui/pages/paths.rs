//! Lists of paths of a plan or of a report.

use std::path::{Path, PathBuf};

use crate::cli::ui::html::{Html, count, html, plural};
use nono_engine::diff::{Change, ChangeType};

/// Paths that are listed.
const MAX_PATHS: usize = 500;

/// Files in which later changes stay.
pub(super) fn merged(out: &mut Html, merged: &[PathBuf], roots: &[PathBuf]) {
    if !merged.is_empty() {
        let note = |path: &PathBuf| (path.clone(), "later changes of it stay".to_owned());
        reasons(out, "Merged line by line", &merged.iter().map(note).collect::<Vec<_>>(), roots);
    }
}

fn below(path: &Path, roots: &[PathBuf]) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    crate::cli::render::shown(nono_engine::diff::relative_to_roots(bytes, roots))
}

/// Changes, each with its effect on the path.
pub(super) fn changes(out: &mut Html, title: &'static str, changes: &[Change], roots: &[PathBuf]) {
    html!(out, "<h2>{} {}</h2><ul class=\"paths\">", title, plural(changes.len() as u64, "path"));
    for change in changes.iter().take(MAX_PATHS) {
        html!(out, "<li><span class=\"name\">{}</span>", below(&change.path, roots));
        let (class, word) = match change.change_type {
            ChangeType::Created => ("created", "brought back"),
            ChangeType::Deleted => ("deleted", "removed"),
            ChangeType::Modified | ChangeType::PermissionsChanged => ("modified", "changed back"),
        };
        html!(out, "<span class=\"kind {}\">{}</span></li>", class, word);
    }
    if changes.len() > MAX_PATHS {
        html!(
            out,
            "<li class=\"soft\">and {} more</li>",
            count((changes.len() - MAX_PATHS) as u64)
        );
    }
    html!(out, "</ul>");
}

/// Paths, each with a reason.
pub(super) fn reasons(
    out: &mut Html,
    title: &'static str,
    paths: &[(PathBuf, String)],
    roots: &[PathBuf],
) {
    if paths.is_empty() {
        return;
    }
    if !title.is_empty() {
        html!(out, "<h2>{}</h2>", title);
    }
    html!(out, "<ul class=\"paths\">");
    for (path, reason) in paths.iter().take(MAX_PATHS) {
        html!(
            out,
            "<li><span class=\"name\">{}</span><span class=\"soft\">{}</span></li>",
            below(path, roots),
            reason
        );
    }
    if paths.len() > MAX_PATHS {
        html!(out, "<li class=\"soft\">and {} more</li>", count((paths.len() - MAX_PATHS) as u64));
    }
    html!(out, "</ul>");
}
