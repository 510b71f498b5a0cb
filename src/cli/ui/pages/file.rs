//! One file: what changed in it, who wrote its lines, all its versions, and each of them as it was.
//!
//! Contents are hostile. A browser shows those of pictures alone, by the first bytes of the file and
//! never by its name; everything else is a download without a type. A page reads no file whole that
//! is longer than the timeline shows.

use std::path::Path;

use super::hunks;
use super::lines::{Headers, View, write};
use super::session::{part_fields, part_of};
use super::{page, path_field, path_of, time, title_of};
use crate::cli::looking::{Renames, States};
use crate::cli::maker::Maker;
use crate::cli::past::Past;
use crate::cli::render::{DiffOptions, LineKind, MarkedLine, byte_size, size_delta};
use crate::cli::ui::app::App;
use crate::cli::ui::changed::Changed;
use crate::cli::ui::html::{Html, address, count, html};
use crate::cli::ui::server::{Answer, Asked, Failure, File};
use nono_engine::history::{self, BlameAt, Origin};
use nono_engine::object::Node;
use nono_engine::session::{Catalog, SessionSummary, steps};
use nono_engine::snapshot::{SessionDir, SnapshotManager, SnapshotManifest};

/// Files that are longer in either state are named, and not compared.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Lines of one page.
const MAX_LINES: usize = 3_000;
/// Versions of one page.
const MAX_VERSIONS: usize = 200;
/// A picture that is longer is a download.
const MAX_PICTURE_BYTES: u64 = 32 << 20;

/// The first bytes of the pictures that browsers show, without any that is a document (SVG).
const PICTURES: &[(&[u8], &str)] = &[
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
];

fn picture_type(begin: &[u8]) -> Option<&'static str> {
    let is_webp = begin.len() >= 12 && begin.starts_with(b"RIFF") && &begin[8..12] == b"WEBP";
    let known = PICTURES.iter().find(|(magic, _)| begin.starts_with(magic)).map(|(_, kind)| *kind);
    known.or(is_webp.then_some("image/webp"))
}

pub(super) fn make(app: &App, asked: &Asked) -> Result<Answer, Failure> {
    let session = app.session(asked.get("id"))?;
    let summary = SessionSummary::of(&session)?;
    let steps = steps(&session)?;
    let (part, name) = part_of(asked, &steps)?;
    let changed = Changed::of(app, &session, part)?;
    let path = path_of(asked.get("path"));
    let is_plain = path.components().all(|part| part != std::path::Component::ParentDir);
    if !is_plain || !changed.roots.iter().any(|root| path.starts_with(root)) {
        return Err(Failure::not_found("this session has not recorded such a path"));
    }
    let shown = changed.shown(&path);
    let fields = part_fields(asked);
    let tab = asked.get("tab");
    let mut out = Html::default();
    html!(
        out,
        "<div class=\"title\"><p class=\"crumbs\"><a href=\"/\">Sessions</a> / \
        <a href=\"{}\">{}</a> / <a href=\"{}\">{}</a></p><h1 class=\"path\">{}</h1></div>",
        address("/session", &[("id", &session.id())]),
        title_of(&summary),
        address("/session", &fields),
        name,
        shown
    );
    html!(
        out,
        "<section class=\"card file\"><div class=\"changes-head\">\
        <div class=\"views\" role=\"group\" aria-label=\"View\">"
    );
    for (value, word) in [
        ("", "Changes"),
        ("split", "Side by side"),
        ("lines", "Writers of lines"),
        ("history", "History"),
    ] {
        let mut with = fields.clone();
        with.extend([("path", asked.get("path")), ("tab", value)]);
        let here = if tab == value { "true" } else { "false" };
        html!(
            out,
            "<a class=\"tab\" aria-current=\"{}\" href=\"{}\">{}</a>",
            here,
            address("/file", &with),
            word
        );
    }
    html!(out, "</div><div class=\"views\">");
    let (old, new) = (
        session.manifest(changed.numbers.0)?.manifest,
        session.manifest(changed.numbers.1)?.manifest,
    );
    let store = Catalog::store_of(&session)?;
    let states = States::new(&session, &store, &old, &new)?;
    let bytes = path.as_os_str().as_encoded_bytes();
    let (before, after) = (states.old_states().find(bytes)?, states.new_states().find(bytes)?);
    let is_file = |state: &Option<nono_engine::diff::EntryState>| {
        state.as_ref().is_some_and(|state| matches!(state.node, Node::File { .. }))
    };
    let versions = [("before", old.number, &before), ("after", new.number, &after)];
    for (word, number, state) in versions.iter().filter(|it| is_file(it.2)) {
        let size = state.as_ref().map_or(0, nono_engine::diff::EntryState::bytes);
        html!(
            out,
            "<a class=\"button\" href=\"{}\" download>Download {} ({})</a>",
            raw_address(&session.id(), *number, &path, false),
            word,
            byte_size(size)
        );
    }
    html!(out, "</div></div>");
    match tab {
        "lines" => writers(app, &mut out, &session, new.number, &path)?,
        "history" => versions_of(app, &mut out, &path)?,
        _ => {
            let view = if tab == "split" { View::Split } else { View::Unified };
            let limit = asked
                .number("lines")
                .map_or(MAX_LINES, |lines| (lines as usize).clamp(MAX_LINES, 200_000));
            if !pictures(&mut out, &session, &versions, &path)? {
                let index = changed.change(&path);
                let are_chosen =
                    index.is_some_and(|index| hunks::are_chosen(&states, &changed, index));
                let look = Look { view, limit, are_chosen };
                let is_cut = difference(&mut out, &states, &changed, index, look)?;
                if are_chosen {
                    hunks::form(&mut out, asked);
                }
                if is_cut {
                    let more = (limit * 4).to_string();
                    let mut with = fields.clone();
                    with.extend([("path", asked.get("path")), ("tab", tab), ("lines", &more)]);
                    html!(
                        out,
                        "<p class=\"pager\"><a class=\"button\" href=\"{}\">Show more lines</a></p>",
                        address("/file", &with)
                    );
                }
            }
        }
    }
    html!(out, "</section>");
    if tab != "lines" && tab != "history" && changed.change(&path).is_some() && fields.len() == 1 {
        let undo = address(
            "/undo",
            &[("id", &session.id()), ("what", "paths"), ("path", asked.get("path"))],
        );
        html!(
            out,
            "<div class=\"act\"><a class=\"button danger\" data-undo href=\"{}\">Undo this file…</a></div>",
            undo
        );
    }
    Ok(Answer::Page(page(app, &shown, "", &out)))
}

fn raw_address(id: &str, number: u64, path: &Path, is_picture: bool) -> String {
    let (number, path) = (number.to_string(), path_field(path));
    let show = if is_picture { "1" } else { "" };
    address("/raw", &[("id", id), ("n", &number), ("path", &path), ("show", show)])
}

/// How the lines of a change are written.
#[derive(Clone, Copy)]
struct Look {
    view: View,
    /// Maximum number of lines.
    limit: usize,
    /// Whether hunks are chosen.
    are_chosen: bool,
}

/// Writes the lines of a change. Whether there are more.
fn difference(
    out: &mut Html,
    states: &States<'_>,
    changed: &Changed,
    index: Option<usize>,
    look: Look,
) -> Result<bool, Failure> {
    let Some(index) = index else {
        html!(
            out,
            "<p class=\"soft empty-list\">This file did not change here. Its history names \
            the sessions in which it did.</p>"
        );
        return Ok(false);
    };
    let (lines, is_cut) = lines_of(states, changed, index, look.limit)?;
    if lines.iter().all(|line| line.kind == LineKind::File) {
        html!(out, "<p class=\"soft empty-list\">The contents are the same.</p>");
    }
    if let Some(title) = lines.iter().find(|line| line.kind == LineKind::File) {
        html!(out, "<p class=\"soft file-title\">{}</p>", title.text);
    }
    write(out, &lines, look.view, Headers::new(look.are_chosen));
    Ok(is_cut)
}

/// How the lines of a file are found.
pub(super) fn options<'a>(states: &'a States<'_>) -> DiffOptions<'a> {
    DiffOptions { max_file_bytes: MAX_FILE_BYTES, ..states.options() }
}

/// The lines of a change, and whether there are more.
fn lines_of(
    states: &States<'_>,
    changed: &Changed,
    index: usize,
    limit: usize,
) -> Result<(Vec<MarkedLine>, bool), Failure> {
    let options = options(states);
    let mut lines = Vec::new();
    let mut take = |line| {
        lines.push(line);
        lines.len() <= limit
    };
    let Changed { changes, renames, .. } = changed;
    let renames: &Renames = renames;
    match renames.get(&index) {
        Some(gone) => states.renamed(&changes[*gone], &changes[index], &options, &mut take)?,
        None => states.lines(&changes[index..=index], &options, &mut take)?,
    }
    let is_cut = lines.len() > limit;
    lines.truncate(limit);
    Ok((lines, is_cut))
}

/// Pictures before and after. Whether there are any.
fn pictures(
    out: &mut Html,
    session: &SessionDir,
    versions: &[(&str, u64, &Option<nono_engine::diff::EntryState>)],
    path: &Path,
) -> Result<bool, Failure> {
    let manager = SnapshotManager::open(session.path())?;
    let mut found = Vec::new();
    for (word, number, state) in versions {
        let Some(Node::File { size, .. }) = state.as_ref().map(|state| &state.node) else {
            continue;
        };
        if *size > MAX_PICTURE_BYTES {
            return Ok(false);
        }
        let object = manager.open_file_of(*number, path)?;
        let mut begin = [0; 16];
        let count = object.read_at(&mut begin, 0)?;
        if picture_type(&begin[..count]).is_none() {
            return Ok(false);
        }
        found.push((*word, *number, *size));
    }
    if found.is_empty() {
        return Ok(false);
    }
    let class = if found.len() == 2 { "pictures two" } else { "pictures" };
    html!(out, "<div class=\"{}\">", class);
    for (word, number, size) in &found {
        html!(
            out,
            "<figure class=\"{}\"><img src=\"{}\" alt=\"The picture {}\">\
            <figcaption>{} · {}</figcaption></figure>",
            word,
            raw_address(&session.id(), *number, path, true),
            word,
            word,
            byte_size(*size)
        );
    }
    html!(out, "</div>");
    if found.len() == 2 {
        html!(
            out,
            "<label class=\"slider swipe\"><span class=\"soft\">Swipe</span>\
            <input type=\"range\" id=\"swipe\" min=\"0\" max=\"100\" value=\"50\" \
            aria-label=\"How much of the picture before is shown\"></label>"
        );
    }
    Ok(true)
}

/// A version of a file: a picture for a page, or else a download.
pub(super) fn raw(app: &App, asked: &Asked) -> Result<Answer, Failure> {
    let session = app.session(asked.get("id"))?;
    let number = asked.number("n").ok_or_else(|| Failure::wrong("which state is meant?"))?;
    let path = path_of(asked.get("path"));
    let manager = SnapshotManager::open(session.path())?;
    let object = manager.open_file_of(number, &path)?;
    let mut begin = [0; 16];
    let count = object.read_at(&mut begin, 0)?;
    let picture = picture_type(&begin[..count]).filter(|_| !asked.get("show").is_empty());
    let name = path
        .file_name()
        .map_or_else(|| "file".to_owned(), |name| name.to_string_lossy().into_owned());
    Ok(Answer::File(File { object, name, picture }))
}

/// The lines of a state with their writers.
fn writers(
    app: &App,
    out: &mut Html,
    session: &SessionDir,
    number: u64,
    path: &Path,
) -> Result<(), Failure> {
    let forms = [path.to_owned()];
    let past = Past::of_path(&forms, &app.catalog)?;
    let at = BlameAt::Snapshot { session_id: session.id(), number };
    let found = match history::blame(&forms, &at, &past.sessions, &past.objects) {
        Ok(Some(found)) => found,
        Ok(None) => {
            html!(out, "<p class=\"soft empty-list\">This state has no such file.</p>");
            return Ok(());
        }
        Err(error) => {
            html!(out, "<p class=\"soft empty-list\">{}</p>", error);
            return Ok(());
        }
    };
    html!(
        out,
        "<table class=\"diff blame\"><colgroup><col class=\"who\"><col class=\"n\"><col></colgroup>\
         <tbody>"
    );
    let mut last = None;
    for (index, line) in found.lines.iter().take(MAX_LINES).enumerate() {
        let writer = &found.writers[line.writer];
        html!(out, "<tr><td class=\"who\">");
        if last != Some(line.writer) {
            match &writer.event {
                None => html!(out, "<span class=\"soft\">not recorded</span>"),
                Some(event) => {
                    let maker = Maker::new(&event.place, event.origin, &past);
                    let number = event.place.number.to_string();
                    let mut with = vec![("id", event.place.session_id.as_str())];
                    if event.origin == Origin::Session && maker.step().is_some() {
                        with.push(("step", &number));
                    }
                    html!(
                        out,
                        "<a href=\"{}\">{}</a>",
                        address("/session", &with),
                        plain_words(&maker)
                    );
                }
            }
            last = Some(line.writer);
        }
        let text = line.bytes.strip_suffix(b"\n").unwrap_or(&line.bytes);
        html!(
            out,
            "</td><td class=\"n\">{}</td><td class=\"code\">{}</td></tr>",
            index + 1,
            crate::cli::render::shown(text)
        );
    }
    html!(out, "</tbody></table>");
    if found.lines.len() > MAX_LINES {
        html!(
            out,
            "<p class=\"soft\">and {} more lines: <code>nono blame</code> shows them</p>",
            count((found.lines.len() - MAX_LINES) as u64)
        );
    }
    Ok(())
}

/// Every version of a path, newest first.
fn versions_of(app: &App, out: &mut Html, path: &Path) -> Result<(), Failure> {
    let forms = [path.to_owned()];
    let past = Past::of_path(&forms, &app.catalog)?;
    let found = history::history_of(&forms, &past.sessions, &past.objects);
    if found.versions.is_empty() {
        html!(out, "<p class=\"soft empty-list\">No session has recorded this path.</p>");
    }
    html!(out, "<ol class=\"versions\">");
    for version in found.versions.iter().take(MAX_VERSIONS) {
        let maker = Maker::of(version, &past);
        let place = version.first();
        let (id, number) = (place.session_id.as_str(), place.number.to_string());
        let field = path_field(path);
        html!(out, "<li><span class=\"when soft\">");
        time(out, maker.timestamp());
        html!(out, "</span>");
        let mut with = vec![("id", id), ("path", field.as_str())];
        if version.origin == Origin::Session && place.number > 0 {
            with.push(if maker.step().is_some() { ("step", &number) } else { ("to", &number) });
        }
        html!(
            out,
            "<a class=\"what\" href=\"{}\">{}</a>",
            address("/file", &with),
            plain_words(&maker)
        );
        match (&version.state, version.size_delta()) {
            (None, _) => html!(out, "<span class=\"kind deleted\">gone</span>"),
            (Some(state), delta) => {
                let delta = delta.map(size_delta).unwrap_or_default();
                html!(
                    out,
                    "<span class=\"soft size\">{} {}</span>",
                    byte_size(state.bytes()),
                    delta
                );
                if matches!(state.node, Node::File { .. }) {
                    html!(
                        out,
                        "<a class=\"button\" download href=\"{}\">Download</a>",
                        raw_address(id, place.number, path, false)
                    );
                }
            }
        }
        html!(out, "</li>");
    }
    html!(out, "</ol>");
    Ok(())
}

/// The maker of a state in words, without the styles of a terminal.
fn plain_words(maker: &Maker<'_>) -> String {
    anstream::adapter::strip_str(&maker.words()).to_string()
}

/// Writes what changed in a file into a page without a server.
pub(in crate::cli::ui) fn export_file(
    session: &SessionDir,
    changed: &Changed,
    index: usize,
    out: &mut Html,
) -> Result<(), Failure> {
    let load =
        |number| -> Result<SnapshotManifest, Failure> { Ok(session.manifest(number)?.manifest) };
    let (old, new) = (load(changed.numbers.0)?, load(changed.numbers.1)?);
    let store = Catalog::store_of(session)?;
    let states = States::new(session, &store, &old, &new)?;
    let (lines, is_cut) = lines_of(&states, changed, index, MAX_LINES)?;
    write(out, &lines, View::Unified, Headers::new(false));
    if is_cut {
        html!(out, "<p class=\"soft\">The lines after these are left out.</p>");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pictures_are_shown_by_a_browser() {
        assert_eq!(picture_type(b"\x89PNG\r\n\x1a\n...."), Some("image/png"));
        assert_eq!(picture_type(b"RIFF....WEBPVP8 "), Some("image/webp"));
        for other in [&b"<svg xmlns"[..], b"<!doctype html>", b"", b"RIFF", b"%PDF-1.7"] {
            assert_eq!(picture_type(other), None);
        }
    }
}
