//! The tree of changed paths, and the same as a map of areas.
//!
//! A page has so many rows at most: a directory with more below it is folded, and loaded when it is
//! opened. A tree that is folded costs what is shown of it.

use super::path_field;
use crate::cli::looking::Row;
use crate::cli::render::{change_word, size_delta};
use crate::cli::ui::changed::Changed;
use crate::cli::ui::html::{Html, address, count, html, plural};
use nono_engine::diff::{ChangeSummary, ChangeType};
use nono_engine::path_text;

/// Rows of one page, or of one folded directory that is opened.
const MAX_ROWS: usize = 400;
/// Deeper directories are folded.
const MAX_DEPTH: usize = 24;
/// Areas of a map; smaller ones are one area together.
const MAX_AREAS: usize = 60;
/// The size of a map, in its own units.
const MAP: (f64, f64) = (1000.0, 420.0);

/// The tree of some changes, and what its links keep.
pub(super) struct Tree<'a> {
    pub(super) changed: &'a Changed,
    /// The fields of every link: the session and the part of it.
    pub(super) asked: &'a [(&'a str, &'a str)],
    /// Whether rows can be chosen.
    pub(super) has_choice: bool,
    /// Without a server: links lead to places of the page.
    pub(super) is_static: bool,
}

impl Tree<'_> {
    /// Writes what stands below a row.
    pub(super) fn write(&self, out: &mut Html, below: Option<usize>) {
        let mut budget = if self.is_static { usize::MAX } else { MAX_ROWS };
        html!(out, "<ul class=\"tree\">");
        self.write_below(out, below, 0, &mut budget);
        html!(out, "</ul>");
    }

    fn write_below(&self, out: &mut Html, below: Option<usize>, depth: usize, budget: &mut usize) {
        // Directories of the same depth come before those within them.
        let rows: Vec<usize> = self.changed.below(below).collect();
        let shown = rows.len().min(if depth == 0 { usize::MAX } else { *budget });
        let shown = if self.is_static { shown } else { shown.min(5 * MAX_ROWS) };
        *budget = budget.saturating_sub(rows.len());
        for row in &rows[..shown] {
            self.write_row(out, *row, depth, budget);
        }
        if shown < rows.len() {
            let more = count((rows.len() - shown) as u64);
            html!(out, "<li class=\"soft more\">and {} more: the search finds them</li>", more);
        }
    }

    fn write_row(&self, out: &mut Html, row: usize, depth: usize, budget: &mut usize) {
        let Changed { rows, changes, .. } = self.changed;
        let entry = &rows[row];
        let size = self.changed.size(row);
        if size == 0 {
            html!(out, "<li>");
            self.write_file(out, entry, row);
            html!(out, "</li>");
            return;
        }
        let is_folded = size > *budget || depth >= MAX_DEPTH;
        let path = path_text::encode(entry.path(changes)).into_owned();
        let mut asked = self.asked.to_vec();
        asked.push(("dir", &path));
        html!(out, "<li class=\"has-dir\">");
        self.write_choice(out, entry);
        match is_folded {
            true => {
                let load = address("/tree", &asked);
                html!(out, "<details data-load=\"{}\"><summary>", load);
            }
            false => html!(out, "<details open><summary>"),
        }
        html!(out, "<span class=\"name dir\">{}/</span>", self.changed.name(row));
        if let Some(change) = entry.change {
            kind(out, changes[change].change_type, false);
        }
        super::counts(out, &self.changed.counts(entry.extent.clone()));
        html!(out, "</summary><ul>");
        match is_folded {
            true => {
                let link = address("/session", &asked);
                let paths = plural(size as u64, "path");
                html!(out, "<li><a href=\"{}\">{}</a></li>", link, paths);
            }
            false => self.write_below(out, Some(row), depth + 1, budget),
        }
        html!(out, "</ul></details></li>");
    }

    fn write_choice(&self, out: &mut Html, entry: &Row) {
        if self.has_choice {
            let path = path_text::encode(entry.path(&self.changed.changes)).into_owned();
            html!(
                out,
                "<input type=\"checkbox\" name=\"path\" value=\"{}\" \
                aria-label=\"Choose {}\">",
                path,
                path
            );
        }
    }

    fn write_file(&self, out: &mut Html, entry: &Row, row: usize) {
        let Changed { changes, renames, .. } = self.changed;
        self.write_choice(out, entry);
        let Some(index) = entry.change else { return };
        let change = &changes[index];
        let path = path_field(&change.path);
        let link = match self.is_static {
            true => format!("#c{index}"),
            false => {
                let mut asked = self.asked.to_vec();
                asked.push(("path", &path));
                address("/file", &asked)
            }
        };
        html!(out, "<a class=\"name\" href=\"{}\">{}</a>", link, self.changed.name(row));
        let old = renames.get(&index).map(|old| &changes[*old].path);
        if let Some(old) = old {
            html!(out, "<span class=\"soft\">was {}</span>", self.changed.shown(old));
        }
        kind(out, change.change_type, old.is_some());
        if let Some(delta) = change.size_delta {
            html!(out, "<span class=\"soft size\">{}</span>", size_delta(delta));
        }
    }

    /// The row of a directory.
    pub(super) fn row_of(&self, dir: &str) -> Option<usize> {
        let wanted = path_text::decode(dir);
        let Changed { rows, changes, .. } = self.changed;
        rows.iter().position(|row| row.path(changes) == wanted.as_slice())
    }

    /// The rows below one as areas, each as large as the number of its changes.
    pub(super) fn write_map(&self, out: &mut Html, below: Option<usize>) {
        let Changed { rows, changes, .. } = self.changed;
        let mut areas: Vec<(usize, ChangeSummary)> = self
            .changed
            .below(below)
            .map(|row| (row, self.changed.counts(rows[row].extent.clone())))
            .collect();
        areas.sort_by_key(|(_, counts)| std::cmp::Reverse(weight(counts)));
        areas.truncate(MAX_AREAS);
        let weights: Vec<f64> = areas.iter().map(|(_, it)| weight(it) as f64).collect();
        html!(
            out,
            "<svg class=\"map\" viewBox=\"0 0 {} {}\" role=\"group\" \
            aria-label=\"Changed paths as areas, by the number of changes\">",
            MAP.0,
            MAP.1
        );
        for ((row, counts), area) in areas.iter().zip(squares(&weights, MAP)) {
            let entry = &rows[*row];
            let path = path_text::encode(entry.path(changes)).into_owned();
            let mut asked = self.asked.to_vec();
            let place = if self.changed.size(*row) > 0 {
                asked.push(("dir", &path));
                "/session"
            } else {
                asked.push(("path", &path));
                "/file"
            };
            let (x, y, width, height) = area;
            let total = counts.total();
            let main = [
                (counts.created, "created"),
                (counts.modified + counts.permissions_changed + counts.in_git, "modified"),
                (counts.deleted, "deleted"),
            ];
            let class = main.iter().max_by_key(|(number, _)| *number).map_or("", |it| it.1);
            let name = self.changed.name(*row);
            let changes = super::super::html::plural(total, "change");
            html!(
                out,
                "<a href=\"{}\"><title>{}: {}</title><rect class=\"{}\" x=\"{}\" y=\"{}\" \
                width=\"{}\" height=\"{}\" rx=\"4\"/>",
                address(place, &asked),
                name,
                changes,
                class,
                round(x + 1.0),
                round(y + 1.0),
                round((width - 2.0).max(1.0)),
                round((height - 2.0).max(1.0))
            );
            // A name that does not fit is in the title.
            let room = ((width - 16.0) / 10.6).max(0.0) as usize;
            if height > 32.0 && room >= 3 {
                let text: String = match name.chars().count() > room {
                    true => name.chars().take(room - 1).chain(['…']).collect(),
                    false => name,
                };
                html!(
                    out,
                    "<text x=\"{}\" y=\"{}\">{}</text>",
                    round(x + 9.0),
                    round(y + 24.0),
                    text
                );
                if height > 56.0 {
                    html!(
                        out,
                        "<text class=\"number\" x=\"{}\" y=\"{}\">{}</text>",
                        round(x + 9.0),
                        round(y + 46.0),
                        count(total)
                    );
                }
            }
            html!(out, "</a>");
        }
        html!(out, "</svg>");
    }
}

fn round(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

fn weight(counts: &ChangeSummary) -> u64 {
    counts.total().max(1)
}

/// The word of a change.
pub(super) fn kind(out: &mut Html, change_type: ChangeType, is_renamed: bool) {
    let class = match change_type {
        _ if is_renamed => "modified",
        ChangeType::Created => "created",
        ChangeType::Deleted => "deleted",
        ChangeType::Modified | ChangeType::PermissionsChanged => "modified",
    };
    let word = if is_renamed { "renamed" } else { change_word(change_type) };
    html!(out, "<span class=\"kind {}\">{}</span>", class, word);
}

/// Areas of these weights, the largest first, in a rectangle: rows of areas that are as square as
/// they can be (Bruls, Huizing and van Wijk, "Squarified treemaps", 2000).
fn squares(weights: &[f64], (width, height): (f64, f64)) -> Vec<(f64, f64, f64, f64)> {
    let total: f64 = weights.iter().sum();
    let scale = if total > 0.0 { width * height / total } else { 0.0 };
    let areas: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
    let mut placed = Vec::with_capacity(areas.len());
    let (mut x, mut y, mut w, mut h) = (0.0, 0.0, width, height);
    let mut at = 0;
    while at < areas.len() {
        let side = w.min(h).max(1e-6);
        let worst = |row: &[f64]| {
            let sum: f64 = row.iter().sum();
            let (most, least) =
                row.iter().fold((0.0, f64::MAX), |(a, b): (f64, f64), it| (a.max(*it), b.min(*it)));
            (side * side * most / (sum * sum)).max(sum * sum / (side * side * least))
        };
        let mut end = at + 1;
        while end < areas.len() && worst(&areas[at..=end]) <= worst(&areas[at..end]) {
            end += 1;
        }
        let sum: f64 = areas[at..end].iter().sum();
        let depth = sum / side;
        let mut along = 0.0;
        for area in &areas[at..end] {
            let length = area / depth.max(1e-6);
            placed.push(match w >= h {
                true => (x, y + along, depth, length),
                false => (x + along, y, length, depth),
            });
            along += length;
        }
        match w >= h {
            true => (x, w) = (x + depth, w - depth),
            false => (y, h) = (y + depth, h - depth),
        }
        at = end;
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_fill_the_map_without_an_overlap() {
        let weights = [60.0, 30.0, 20.0, 10.0, 5.0, 1.0, 1.0];
        let placed = squares(&weights, (100.0, 50.0));
        let sum: f64 = placed.iter().map(|(_, _, w, h)| w * h).sum();
        assert!((sum - 5000.0).abs() < 1.0, "{sum}");
        for (at, (x, y, w, h)) in placed.iter().enumerate() {
            assert!(
                *x >= -1e-6 && *y >= -1e-6 && x + w <= 100.001 && y + h <= 50.001,
                "{placed:?}"
            );
            for (a, b, c, d) in &placed[at + 1..] {
                let apart = x + w <= a + 1e-3
                    || a + c <= x + 1e-3
                    || y + h <= b + 1e-3
                    || b + d <= y + 1e-3;
                assert!(apart, "{placed:?}");
            }
            let expected = weights[at] * 5000.0 / 127.0;
            assert!((w * h - expected).abs() < 1.0, "{placed:?}");
        }
    }

    #[test]
    fn a_map_of_nothing_is_empty() {
        assert!(squares(&[], (10.0, 10.0)).is_empty());
    }
}
