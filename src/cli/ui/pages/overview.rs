//! The first page: the band of all projects in time, and the sessions, a page at a time.

use std::collections::BTreeMap;

use jiff::Zoned;

use super::{badges, counts, duration, outcome, page, pager, project_of, time, title_of};
use crate::cli::ui::app::App;
use crate::cli::ui::html::{Html, address, html, plural};
use crate::cli::ui::server::{Answer, Asked, Failure};
use nono_engine::session::SessionSummary;

/// Sessions of one page.
const PAGE_SESSIONS: usize = 50;
/// Projects that are named above the list; the search finds the others.
const MAX_PROJECTS: usize = 30;

pub(super) fn make(app: &App, asked: &Asked) -> Result<Answer, Failure> {
    let listing = app.listing()?;
    let mut body = Html::default();
    if listing.sessions.is_empty() && listing.unreadable.is_empty() {
        empty(&mut body);
        return Ok(Answer::Page(page(app, "Sessions", "/", &body)));
    }
    let mut projects: BTreeMap<String, u64> = BTreeMap::new();
    for summary in &listing.sessions {
        *projects.entry(project_of(app, summary)).or_default() += 1;
    }
    let wanted = asked.get("project");
    let is_meant =
        |summary: &&SessionSummary| wanted.is_empty() || project_of(app, summary) == wanted;
    let sessions: Vec<&SessionSummary> = listing.sessions.iter().filter(is_meant).collect();
    let pages = sessions.len().div_ceil(PAGE_SESSIONS).max(1) as u64;
    let at = asked.number("page").unwrap_or(1).clamp(1, pages);
    let first = (at as usize - 1) * PAGE_SESSIONS;
    let title = if wanted.is_empty() { "Sessions" } else { wanted };
    let (of_sessions, of_projects) =
        (plural(sessions.len() as u64, "session"), plural(projects.len() as u64, "project"));
    html!(body, "<div class=\"title\"><h1>{}</h1><p class=\"soft\">", title);
    match wanted.is_empty() {
        true => html!(body, "{} in {}", of_sessions, of_projects),
        false => html!(body, "{} · <a href=\"/\">all projects</a>", of_sessions),
    }
    html!(body, "</p></div>");
    band(&mut body, wanted);
    if projects.len() > 1 {
        html!(body, "<nav class=\"chips\" aria-label=\"Projects\">");
        let mut by_count: Vec<_> = projects.iter().collect();
        by_count.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (name, number) in by_count.into_iter().take(MAX_PROJECTS) {
            let link = address("/", &[("project", name)]);
            let here = if name == wanted { "page" } else { "false" };
            html!(
                body,
                "<a class=\"chip\" href=\"{}\" aria-current=\"{}\">{} <b>{}</b></a>",
                link,
                here,
                name,
                number
            );
        }
        html!(body, "</nav>");
    }
    for (id, reason) in &listing.unreadable {
        html!(body, "<p class=\"note failed\">Session {} cannot be read: {}</p>", id, reason);
    }
    html!(body, "<div id=\"live\" data-live=\"sessions\">");
    let shown = sessions.iter().skip(first).take(PAGE_SESSIONS);
    list(app, &mut body, shown.copied(), wanted.is_empty());
    pager(&mut body, "/", &[("project", wanted)], at, pages);
    html!(body, "</div>");
    Ok(Answer::Page(page(app, title, "/", &body)))
}

/// The place of the band, which the script fills.
fn band(out: &mut Html, project: &str) {
    let source = address("/marks.json", &[("project", project)]);
    html!(
        out,
        "<section class=\"card band\" aria-label=\"Sessions in time\">\
        <div class=\"band-head\"><div class=\"zooms\" role=\"group\" aria-label=\"Zoom\">\
        <button type=\"button\" data-span=\"31536000\">Year</button>\
        <button type=\"button\" data-span=\"2592000\">Month</button>\
        <button type=\"button\" data-span=\"604800\">Week</button>\
        <button type=\"button\" data-span=\"86400\">Day</button>\
        <button type=\"button\" data-span=\"3600\">Hour</button>\
        <button type=\"button\" data-span=\"60\">Minute</button>\
        <button type=\"button\" data-span=\"fit\">All</button></div>\
        <div class=\"zooms\" role=\"group\" aria-label=\"Move in time\">\
        <button type=\"button\" data-move=\"-1\" aria-label=\"Earlier\">←</button>\
        <button type=\"button\" data-move=\"1\" aria-label=\"Later\">→</button></div>\
        <ul class=\"legend\"><li class=\"fine\">done<li class=\"failed\">failed\
        <li class=\"running\">running<li class=\"undone\">undone<li class=\"restore\">restore</ul></div>\
        <div id=\"band\" data-marks=\"{}\" tabindex=\"0\" role=\"group\" \
        aria-label=\"Band of sessions in time: arrow keys move, plus and minus zoom\"></div>\
        <p id=\"hover\" class=\"soft hover\" aria-live=\"polite\">Point at a mark to see what it was. \
        Scroll to zoom, drag to move.</p></section>",
        source
    );
}

/// Rows of sessions, below their days.
pub(super) fn list<'a>(
    app: &App,
    out: &mut Html,
    sessions: impl Iterator<Item = &'a SessionSummary>,
    names_projects: bool,
) {
    let zone = Zoned::now().time_zone().clone();
    let today = Zoned::now().date();
    let mut last = None;
    for summary in sessions {
        let date = summary.started.to_zoned(zone.clone()).date();
        if last != Some(date) {
            if last.is_some() {
                html!(out, "</ul>");
            }
            let words = match today.since(date).map(|since| since.get_days()) {
                Ok(0) => "Today".to_owned(),
                Ok(1) => "Yesterday".to_owned(),
                _ => date.strftime("%A, %-d %B %Y").to_string(),
            };
            html!(out, "<h2 class=\"day\">{}</h2><ul class=\"rows\">", words);
            last = Some(date);
        }
        row(app, out, summary, names_projects);
    }
    if last.is_some() {
        html!(out, "</ul>");
    }
}

fn row(app: &App, out: &mut Html, summary: &SessionSummary, names_project: bool) {
    let id = &summary.session_id;
    let link = address("/session", &[("id", id)]);
    html!(
        out,
        "<li class=\"row {}\" data-id=\"{}\"><a class=\"main\" href=\"{}\">\
        <span class=\"dot\" aria-hidden=\"true\"></span><span class=\"what\">{}</span></a>\
        <span class=\"facts\">",
        outcome(summary),
        id,
        link,
        title_of(summary)
    );
    badges(out, summary);
    if summary.step_count > 0 {
        html!(out, "<span class=\"soft\">{}</span>", plural(summary.step_count, "step"));
    }
    if names_project {
        html!(out, "<span class=\"project\">{}</span>", project_of(app, summary));
    }
    html!(out, "</span>");
    match &summary.changes {
        Some(changes) => counts(out, changes),
        None => html!(out, "<span class=\"counts none\"></span>"),
    }
    html!(out, "<span class=\"when soft\">");
    time(out, summary.started);
    if let Some(ended) = summary.ended {
        html!(out, "<span class=\"long\">{}</span>", duration(summary.started, ended));
    }
    html!(out, "</span></li>");
}

/// The first look of a person who has recorded nothing.
fn empty(out: &mut Html) {
    html!(
        out,
        "<section class=\"empty\"><h1>Nothing is recorded yet</h1>\
        <p>Run a command, and it appears here with all that it changed:</p>\
        <pre><code>nono run -- make test</code></pre>\
        <p>Or let each tool call of your coding agent become a step:</p>\
        <pre><code>nono agent install</code></pre></section>"
    );
}
