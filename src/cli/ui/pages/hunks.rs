//! Hunks of a file that are chosen to be taken back: their boxes in the lines of the file, and the
//! text without them.
//!
//! A box sends the number of its hunk and the line above it, so a file whose lines were found
//! otherwise meanwhile gives an error and not another hunk.

use super::session::{part_fields, part_of};
use super::{hidden, path_of};
use crate::cli::looking::States;
use crate::cli::ui::app::App;
use crate::cli::ui::changed::Changed;
use crate::cli::ui::html::{Html, html, plural};
use crate::cli::ui::server::{Asked, Failure};
use nono_engine::diff::ChangeType;
use nono_engine::restore::TextPart;
use nono_engine::session::{Catalog, steps};
use nono_engine::snapshot::SessionDir;

/// The form to which the boxes belong.
pub(super) const FORM: &str = "hunks";

/// Whether single hunks of a change can be taken back: it is a text in both states, and both are
/// recorded.
pub(super) fn are_chosen(states: &States<'_>, changed: &Changed, index: usize) -> bool {
    let change = &changed.changes[index];
    let is_modified = change.change_type == ChangeType::Modified && !change.is_directory;
    is_modified && !changed.renames.contains_key(&index) && states.is_recorded()
}

/// The box of a hunk, by its number from 0 and the line above it.
pub(super) fn choice(out: &mut Html, number: usize, header: &str) {
    html!(
        out,
        "<label><input type=\"checkbox\" name=\"hunk\" form=\"{}\" value=\"{}\"> {}</label>",
        FORM,
        format!("{number} {header}"),
        header
    );
}

/// The form that leads to the plan of an undo of the chosen hunks.
pub(super) fn form(out: &mut Html, asked: &Asked) {
    html!(out, "<form id=\"{}\" class=\"act\" method=\"get\" action=\"/undo\">", FORM);
    hidden(out, "what", "hunks");
    for (key, value) in part_fields(asked) {
        hidden(out, key, value);
    }
    hidden(out, "path", asked.get("path"));
    html!(
        out,
        "<button class=\"danger\" data-needs=\"hunk\">Undo the chosen hunks…</button></form>"
    );
}

/// The chosen hunks in words, and the text without them.
pub(super) fn chosen(
    app: &App,
    session: &SessionDir,
    asked: &Asked,
) -> Result<(String, TextPart), Failure> {
    let (part, _) = part_of(asked, &steps(session)?)?;
    let changed = Changed::of(app, session, part)?;
    let path = path_of(asked.get("path"));
    let (before, after) = changed.numbers;
    let (old, new) = (session.manifest(before)?.manifest, session.manifest(after)?.manifest);
    let store = Catalog::store_of(session)?;
    let states = States::new(session, &store, &old, &new)?;
    let index = changed.change(&path).filter(|index| are_chosen(&states, &changed, *index));
    let Some(index) = index else {
        return Err(Failure::wrong("single hunks of this path cannot be taken back"));
    };
    let hunks: Option<Vec<(usize, &str)>> = asked.all("hunk").map(hunk).collect();
    let hunks = hunks.filter(|hunks| !hunks.is_empty());
    let hunks = hunks.ok_or_else(|| Failure::wrong("no hunk is chosen"))?;
    let options = super::file::options(&states);
    let Some(without) = states.without_hunks(&changed.changes[index], &hunks, &options)? else {
        return Err(Failure::wrong("the lines of this file are found otherwise now: look again"));
    };
    let name = format!("{} of {}", plural(hunks.len() as u64, "hunk"), changed.shown(&path));
    Ok((name, TextPart { snapshot: after, path, without }))
}

/// A hunk as its box sends it.
fn hunk(value: &str) -> Option<(usize, &str)> {
    let (number, header) = value.split_once(' ')?;
    Some((number.parse().ok()?, header))
}
