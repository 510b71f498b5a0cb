//! The store: what takes space, verification and cleanup.
//!
//! The last two are the program itself, started again: its reports, its questions answered by a form.

use std::path::Path;

use jiff::Zoned;

use super::{form_token, hidden, named, page, project_of};
use crate::cli::render::byte_size;
use crate::cli::ui::app::App;
use crate::cli::ui::html::{Html, address, html, plural};
use crate::cli::ui::program::{Finished, run};
use crate::cli::ui::server::{Answer, Asked, Failure};
use nono_engine::gc::{CleanupOptions, measure_holdings};
use nono_engine::session::{Catalog, SessionSummary};

/// Projects that are drawn.
const MAX_PROJECTS: usize = 12;
/// Months that are drawn.
const MAX_MONTHS: usize = 24;
/// Paths that are named.
const MAX_PATHS: usize = 15;

pub(super) fn make(app: &App, _asked: &Asked) -> Result<Answer, Failure> {
    let mut out = Html::default();
    html!(
        out,
        "<div class=\"title\"><h1>Store</h1><p class=\"soft\"><code>{}</code></p></div>",
        app.catalog.root().display()
    );
    if !Catalog::is_store(app.catalog.root()) {
        html!(
            out,
            "<section class=\"empty\"><p>There is no store yet. <code>nono run -- COMMAND</code> \
            makes it.</p></section>"
        );
        return Ok(Answer::Page(page(app, "Store", "/store", &out)));
    }
    usage(app, &mut out)?;
    html!(
        out,
        "<section class=\"card\"><h2>Verify</h2><p>Reads every recorded byte, and says what is \
        damaged.</p><form method=\"post\" action=\"/verify\">"
    );
    form_token(app, &mut out);
    html!(
        out,
        "<button data-busy=\"Verifying…\">Verify all sessions</button></form></section>\
        <section class=\"card\"><h2>Clean up</h2><p>Removes sessions that are older, and the objects \
        that only they need. Pinned sessions stay.</p><form action=\"/cleanup\">\
        <label>Older than <input name=\"days\" inputmode=\"numeric\" size=\"4\" value=\"30\"> days</label> \
        <button data-busy=\"Planning…\">Plan a cleanup…</button></form></section>"
    );
    Ok(Answer::Page(page(app, "Store", "/store", &out)))
}

fn usage(app: &App, out: &mut Html) -> Result<(), Failure> {
    let listing = app.listing()?;
    let (mut sessions, mut summaries) = (Vec::new(), Vec::<&SessionSummary>::new());
    for summary in &listing.sessions {
        if let Ok(session) = app.session(&summary.session_id) {
            sessions.push((session, summary.project()));
            summaries.push(summary);
        }
    }
    let options = CleanupOptions { threads: app.threads, ..CleanupOptions::default() };
    let held = measure_holdings(app.catalog.root(), &sessions, MAX_PATHS, &options)?;
    let total = held.total.stored;
    html!(
        out,
        "<section class=\"card\"><h2>Space</h2><p class=\"big\">{} <span class=\"soft\">on the disk, \
        {} of contents in {}</span></p>",
        byte_size(total),
        byte_size(held.total.plain),
        plural(summaries.len() as u64, "session")
    );
    let mut projects: Vec<(String, u64)> = Vec::new();
    for (name, bytes) in &held.projects {
        let summary = summaries.iter().find(|summary| summary.project() == *name);
        projects
            .push((summary.map_or_else(|| name.clone(), |it| project_of(app, it)), bytes.stored));
    }
    projects.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    projects.truncate(MAX_PROJECTS);
    if held.shared.stored > 0 {
        projects.push(("shared by several projects".to_owned(), held.shared.stored));
    }
    if held.unneeded.stored > 0 {
        projects.push(("needed by no session".to_owned(), held.unneeded.stored));
    }
    html!(out, "<h3>By project</h3>");
    bars(out, &projects);
    let zone = Zoned::now().time_zone().clone();
    let mut months: Vec<(String, u64)> = Vec::new();
    let mut by_time: Vec<_> = summaries.iter().zip(&held.sessions).collect();
    by_time.sort_by_key(|(summary, _)| summary.started);
    for (summary, holdings) in by_time {
        let month = summary.started.to_zoned(zone.clone()).strftime("%B %Y").to_string();
        match months.last_mut() {
            Some((known, bytes)) if *known == month => *bytes += holdings.own.stored,
            _ => months.push((month, holdings.own.stored)),
        }
    }
    let skipped = months.len().saturating_sub(MAX_MONTHS);
    html!(out, "<h3>By month: what only the sessions of it need</h3>");
    bars(out, &months[skipped..]);
    if !held.largest_paths.is_empty() {
        html!(out, "<h3>Paths that take most, over all versions</h3>");
        let paths = held.largest_paths.iter();
        let paths: Vec<_> = paths
            .map(|it| (named(app, it.path.as_os_str().as_encoded_bytes()), it.bytes.stored))
            .collect();
        bars(out, &paths);
    }
    html!(out, "</section>");
    Ok(())
}

/// A bar for each name.
fn bars(out: &mut Html, all: &[(String, u64)]) {
    let most = all.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0).max(1);
    html!(out, "<table class=\"bars\"><tbody>");
    for (name, bytes) in all {
        let width = (bytes * 1000 / most).max(2);
        html!(
            out,
            "<tr><th scope=\"row\">{}</th><td><svg viewBox=\"0 0 1000 14\" \
            preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect width=\"{}\" height=\"14\" rx=\"3\"/></svg>\
            </td><td class=\"size\">{}</td></tr>",
            name,
            width,
            byte_size(*bytes)
        );
    }
    html!(out, "</tbody></table>");
}

/// The output of the program.
pub(super) fn said(out: &mut Html, title: &str, finished: &Finished) {
    let class = if finished.code == Some(0) { "fine" } else { "failed" };
    html!(
        out,
        "<section class=\"card\"><h2 class=\"{}\"><span class=\"dot\" aria-hidden=\"true\"></span>{}</h2>\
        <pre class=\"report\">{}{}</pre></section>",
        class,
        title,
        finished.stdout,
        finished.stderr
    );
}

pub(super) fn verify(app: &App, _asked: &Asked) -> Result<Answer, Failure> {
    let finished = run(app, &["verify", "--all"], Path::new("/"))?;
    let mut out = Html::default();
    html!(
        out,
        "<div class=\"title\"><p class=\"crumbs\"><a href=\"/store\">Store</a></p><h1>Verify</h1></div>"
    );
    let title = if finished.code == Some(0) {
        "Every byte is as it was recorded"
    } else {
        "Something is wrong"
    };
    said(&mut out, title, &finished);
    Ok(Answer::Page(page(app, "Verify", "/store", &out)))
}

fn days(asked: &Asked) -> Result<String, Failure> {
    let days = asked.number("days").filter(|days| *days <= 36_500);
    Ok(days.ok_or_else(|| Failure::wrong("the number of days is missing"))?.to_string())
}

pub(super) fn plan_cleanup(app: &App, asked: &Asked) -> Result<Answer, Failure> {
    let days = days(asked)?;
    let finished = run(app, &["cleanup", "--dry-run", "--older-than", &days], Path::new("/"))?;
    let mut out = Html::default();
    html!(
        out,
        "<div class=\"title\"><p class=\"crumbs\"><a href=\"/store\">Store</a></p><h1>Clean up</h1></div>"
    );
    said(&mut out, "This is what a cleanup would do", &finished);
    html!(out, "<form class=\"card\" method=\"post\" action=\"/cleanup\">");
    form_token(app, &mut out);
    hidden(&mut out, "days", &days);
    html!(
        out,
        "<p>A removed session is gone for good.</p><div class=\"act\">\
        <button class=\"primary danger\" data-busy=\"Removing…\">Remove them</button>\
        <a class=\"button\" href=\"{}\">Keep everything</a></div></form>",
        address("/store", &[])
    );
    Ok(Answer::Page(page(app, "Clean up", "/store", &out)))
}

pub(super) fn cleanup(app: &App, asked: &Asked) -> Result<Answer, Failure> {
    let days = days(asked)?;
    let finished = run(app, &["cleanup", "--yes", "--older-than", &days], Path::new("/"))?;
    let mut out = Html::default();
    html!(
        out,
        "<div class=\"title\"><p class=\"crumbs\"><a href=\"/store\">Store</a></p><h1>Clean up</h1></div>"
    );
    said(&mut out, "The cleanup", &finished);
    Ok(Answer::Page(page(app, "Clean up", "/store", &out)))
}
