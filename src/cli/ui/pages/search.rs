//! The search: paths by a part of their name or a glob, and text in everything that is recorded.

use super::{named, page, path_field, time, title_of};
use crate::cli::past::Past;
use crate::cli::render::{byte_size, shown};
use crate::cli::ui::app::App;
use crate::cli::ui::html::{Html, address, html, plural};
use crate::cli::ui::server::{Answer, Asked, Failure};
use nono_engine::history::{
    self, Depth, Origin, PathGlob, Place, TextOptions, TextPattern, TextRequest,
};
use nono_engine::path_text;
use nono_engine::progress::NoProgress;

/// Results of one kind that are shown.
const MAX_FOUND: usize = 200;
/// Lines of one file that are shown.
const MAX_LINES: usize = 3;
/// Bytes of a line that are shown.
const MAX_LINE_BYTES: usize = 300;

pub(super) fn make(app: &App, asked: &Asked) -> Result<Answer, Failure> {
    let wanted = asked.get("q").trim();
    let mut out = Html::default();
    html!(
        out,
        "<div class=\"title\"><h1>Search</h1></div><form class=\"card search\" \
        action=\"/search\"><input name=\"q\" type=\"search\" value=\"{}\" aria-label=\"Text or path\" \
        placeholder=\"Text or path\"><label><input type=\"checkbox\" name=\"text\" value=\"no\"{}> \
        paths alone</label><button class=\"primary\">Search</button></form>",
        wanted,
        ""
    );
    if wanted.is_empty() {
        html!(
            out,
            "<section class=\"empty\"><p>A part of a name, a glob such as \
            <code>*.rs</code>, or a text that a file had at any time.</p></section>"
        );
        return Ok(Answer::Page(page(app, "Search", "", &out)));
    }
    let past = Past::of(&app.catalog, |summary| summary.has_begun && !summary.received)?;
    paths(app, &mut out, &past, wanted)?;
    if asked.get("text") != "no" {
        texts(app, &mut out, &past, wanted)?;
    }
    for damaged in &past.damaged {
        html!(
            out,
            "<p class=\"note failed\">Session {} is not searched: {}</p>",
            damaged.session_id,
            damaged.error
        );
    }
    Ok(Answer::Page(page(app, wanted, "", &out)))
}

fn paths(app: &App, out: &mut Html, past: &Past, wanted: &str) -> Result<(), Failure> {
    let is_glob = wanted.contains(['*', '?', '[', '{', '/']);
    let text = if is_glob { wanted.to_owned() } else { format!("*{wanted}*") };
    let glob = match PathGlob::new(&text, std::path::Path::new("/")) {
        Ok(glob) => glob,
        Err(error) => {
            html!(out, "<p class=\"note\">{}</p>", error);
            return Ok(());
        }
    };
    let (found, _) = history::find(&glob, &past.sessions, &past.objects);
    html!(out, "<section class=\"card\"><h2>{}</h2>", plural(found.len() as u64, "path"));
    if found.is_empty() {
        html!(out, "<p class=\"soft empty-list\">No recorded path has this in its name.</p>");
    }
    html!(out, "<ul class=\"paths\">");
    for one in found.iter().take(MAX_FOUND) {
        let link = file_address(&one.newest, &one.path, "history");
        html!(
            out,
            "<li><a class=\"name\" href=\"{}\">{}</a><span class=\"soft\">{}</span>",
            link,
            named(app, &one.path),
            byte_size(one.state.bytes())
        );
        time(out, one.newest.timestamp);
        html!(out, "</li>");
    }
    more(out, found.len());
    html!(out, "</ul></section>");
    Ok(())
}

fn texts(app: &App, out: &mut Html, past: &Past, wanted: &str) -> Result<(), Failure> {
    let options =
        TextOptions { fixed: true, ignore_case: wanted == wanted.to_lowercase(), words: false };
    let pattern = match TextPattern::new(wanted, options) {
        Ok(pattern) => pattern,
        Err(error) => {
            html!(out, "<p class=\"note\">{}</p>", error);
            return Ok(());
        }
    };
    let request =
        TextRequest { pattern: &pattern, paths: &[], depth: Depth::Lines, threads: app.threads };
    let found = history::search_text(&request, &past.sessions, &past.objects, &NoProgress)?;
    html!(
        out,
        "<section class=\"card\"><h2>The text in {}</h2>",
        plural(found.standing.len() as u64, "file")
    );
    if found.standing.is_empty() {
        html!(out, "<p class=\"soft empty-list\">No recorded file ever had this text.</p>");
    }
    html!(out, "<ul class=\"found\">");
    for standing in found.standing.iter().take(MAX_FOUND) {
        let link = file_address(&standing.appeared.place, &standing.path, "");
        html!(
            out,
            "<li><a class=\"name\" href=\"{}\">{}</a> <span class=\"soft\">appeared ",
            link,
            named(app, &standing.path)
        );
        event(out, past, &standing.appeared);
        if let Some(gone) = &standing.gone {
            html!(out, ", went ");
            event(out, past, gone);
        }
        html!(out, "</span>");
        let version = &standing.versions[0];
        if let Some(of) = found.objects.get(&version.hash).filter(|of| !of.is_binary())
            && let Ok(lines) = of.lines(&version.hash, &pattern, &past.objects)
        {
            html!(out, "<pre>");
            for line in lines.iter().take(MAX_LINES) {
                let text = line.bytes.strip_suffix(b"\n").unwrap_or(&line.bytes);
                html!(
                    out,
                    "<span class=\"soft\">{} </span>{}\n",
                    line.number,
                    shown(&text[..text.len().min(MAX_LINE_BYTES)])
                );
            }
            html!(out, "</pre>");
        }
        html!(out, "</li>");
    }
    more(out, found.standing.len());
    html!(out, "</ul></section>");
    Ok(())
}

fn event(out: &mut Html, past: &Past, event: &history::Event) {
    time(out, event.place.timestamp);
    if event.origin == Origin::Session
        && let Some(summary) = past.summary(&event.place.session_id)
    {
        html!(
            out,
            " in <a href=\"{}\">{}</a>",
            address("/session", &[("id", &event.place.session_id)]),
            title_of(summary)
        );
    }
}

fn file_address(place: &Place, path: &[u8], tab: &str) -> String {
    let field = path_field(path_text::to_path(path));
    address("/file", &[("id", &place.session_id), ("path", &field), ("tab", tab)])
}

fn more(out: &mut Html, count: usize) {
    if count > MAX_FOUND {
        html!(
            out,
            "<li class=\"soft\">and {} more: a longer text finds fewer</li>",
            count - MAX_FOUND
        );
    }
}
