//! The pages: what is asked for, made of what the engine says.
//!
//! A page is a value and is made without any lock; nothing but [`undo`], [`store`] and [`forks`]
//! changes anything, and these only for a form.

mod events;
mod file;
#[cfg(feature = "mount")]
mod forks;
mod hunks;
mod lines;
mod overview;
mod paths;
mod search;
mod session;
mod store;
mod tree;
mod undo;

use std::path::PathBuf;

use jiff::{Timestamp, Zoned};

use super::app::App;
use super::html::{Html, address, html};
use super::server::{Answer, Asked, Failure};
use crate::cli::render::{
    GIT_CHANGED, absolute_time, counted_changes, project_name, relative_time, shown,
};
use nono_engine::diff::{ChangeSummary, ChangeType};
use nono_engine::path_text;
use nono_engine::session::{SessionStatus, SessionSummary};
use nono_engine::snapshot::SessionOrigin;

pub(super) use file::export_file;
pub(super) use session::export_session;

/// A place of the server.
type Work = fn(&App, &Asked) -> Result<Answer, Failure>;

/// Makes the answer for a place.
pub(super) fn make(app: &App, place: &str, asked: &Asked) -> Result<Answer, Failure> {
    let work: Work = match (place, asked.is_change) {
        ("/", false) => overview::make,
        ("/marks.json", false) => events::marks,
        ("/session", false) => session::make,
        ("/tree", false) => session::part,
        ("/file", false) => file::make,
        ("/raw", false) => file::raw,
        ("/search", false) => search::make,
        ("/undo", false) => undo::plan,
        ("/undo", true) => undo::carry_out,
        ("/redo", true) => undo::take_back,
        ("/store", false) => store::make,
        ("/verify", true) => store::verify,
        ("/cleanup", false) => store::plan_cleanup,
        ("/cleanup", true) => store::cleanup,
        #[cfg(feature = "mount")]
        ("/forks", false) => forks::make,
        #[cfg(feature = "mount")]
        ("/forks", true) => forks::change,
        _ => return Err(Failure::not_found("there is no such page")),
    };
    work(app, asked)
}

/// A whole page.
pub(super) fn page(app: &App, title: &str, here: &str, body: &Html) -> Html {
    let mut out = Html::default();
    html!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
        <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
        <title>{} · nono</title><link rel=\"icon\" href=\"/assets/icon.svg\">\
        <link rel=\"stylesheet\" href=\"/assets/page.css\">\
        <script src=\"/assets/page.js\" defer></script></head><body>\
        <a class=\"skip\" href=\"#main\">Skip to the content</a><header class=\"bar\">\
        <a class=\"brand\" href=\"/\"><img src=\"/assets/icon.svg\" alt=\"\" width=\"22\" \
        height=\"22\">nono</a><nav aria-label=\"Pages\">",
        title
    );
    let places = [("/", "Sessions"), ("/forks", "Forks"), ("/store", "Store")];
    // A build without mounts has no forks.
    let has = |(place, _): &(&str, &str)| cfg!(feature = "mount") || *place != "/forks";
    for (place, name) in places.into_iter().filter(has) {
        if place == here {
            html!(out, "<a href=\"{}\" aria-current=\"page\">{}</a>", place, name);
        } else {
            html!(out, "<a href=\"{}\">{}</a>", place, name);
        }
    }
    html!(
        out,
        "</nav><form class=\"find\" action=\"/search\" role=\"search\">\
        <input id=\"find\" name=\"q\" type=\"search\" placeholder=\"Search paths and text\" \
        aria-label=\"Search paths and text\"><kbd aria-hidden=\"true\">/</kbd></form>\
        <button id=\"theme\" class=\"quiet\" type=\"button\" \
        aria-label=\"Switch between light and dark\">◐</button></header>\
        <main id=\"main\" tabindex=\"-1\">"
    );
    out.add(body);
    html!(
        out,
        "</main><footer class=\"foot\"><span>{}</span><span class=\"keys\">\
        <kbd>j</kbd> <kbd>k</kbd> move · <kbd>Enter</kbd> open · <kbd>/</kbd> search · \
        <kbd>u</kbd> undo · <kbd>?</kbd> help</span></footer></body></html>",
        app.catalog.root().display()
    );
    out
}

/// A page that says what is wrong.
pub(super) fn failure(app: &App, failure: &Failure) -> Html {
    let mut body = Html::default();
    html!(
        body,
        "<section class=\"empty\"><h1>This did not work</h1><p>{}</p>\
        <p><a class=\"button\" href=\"/\">All sessions</a></p></section>",
        failure.message
    );
    page(app, "This did not work", "", &body)
}

/// The secret field of a form.
fn form_token(app: &App, out: &mut Html) {
    let (name, value) = (super::guard::FORM_FIELD, app.guard.form_token());
    html!(out, "<input type=\"hidden\" name=\"{}\" value=\"{}\">", name, value);
}

/// A field that is not shown.
fn hidden(out: &mut Html, name: &str, value: &str) {
    html!(out, "<input type=\"hidden\" name=\"{}\" value=\"{}\">", name, value);
}

/// A whole path as it is shown: `~/shop/cart.py` in the home directory.
fn named(app: &App, path: &[u8]) -> String {
    let home = app.home.as_ref().map(|home| home.as_os_str().as_encoded_bytes());
    let inside = home.and_then(|home| path.strip_prefix(home)?.strip_prefix(b"/"));
    match inside {
        Some(inside) => format!("~/{}", shown(inside)),
        None => shown(path),
    }
}

/// A path as an address has it.
fn path_field(path: &std::path::Path) -> String {
    path_text::encode(path.as_os_str().as_encoded_bytes()).into_owned()
}

/// The path that an address has.
fn path_of(field: &str) -> PathBuf {
    path_text::to_path(&path_text::decode(field)).to_owned()
}

/// `2h ago`, with the exact time for who wants it.
fn time(out: &mut Html, then: Timestamp) {
    let now = Zoned::now();
    let (exact, words) = (absolute_time(then, &now), relative_time(then, &now));
    html!(out, "<time datetime=\"{}\" title=\"{}\">{}</time>", then, exact, words);
}

/// `1m 20s`, `3h 5m`.
fn duration(begin: Timestamp, end: Timestamp) -> String {
    let seconds = (end.as_second() - begin.as_second()).max(0);
    match seconds {
        0 => "<1s".to_owned(),
        1..60 => format!("{seconds}s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// A session in a line.
fn title_of(summary: &SessionSummary) -> String {
    let agent = summary.agent.as_ref().map(|agent| agent.client.clone());
    match agent {
        Some(agent) if summary.command.is_empty() => agent,
        _ if summary.command.is_empty() && summary.origin == SessionOrigin::Snapshot => {
            "Snapshot".to_owned()
        }
        _ => crate::cli::commands::list::command(summary),
    }
}

/// The name of a project.
fn project_of(app: &App, summary: &SessionSummary) -> String {
    project_name(&summary.tracked_paths, app.home.as_deref())
}

/// How a session went, as a word for colours.
fn outcome(summary: &SessionSummary) -> &'static str {
    match (summary.status, summary.exit_code) {
        _ if summary.undone => "undone",
        (SessionStatus::Running, _) => "running",
        (SessionStatus::Interrupted, _) => "failed",
        (_, Some(code)) if code != 0 => "failed",
        _ => "fine",
    }
}

/// The notes of a session that a person looks for.
fn badges(out: &mut Html, summary: &SessionSummary) {
    if let Some(label) = &summary.label {
        html!(out, "<span class=\"badge label\">{}</span>", label);
    }
    match (summary.status, summary.exit_code) {
        (SessionStatus::Running, _) => html!(out, "<span class=\"badge running\">running</span>"),
        (SessionStatus::Interrupted, _) => {
            html!(out, "<span class=\"badge failed\">interrupted</span>");
        }
        (_, Some(code)) if code != 0 => {
            html!(out, "<span class=\"badge failed\">exit {}</span>", code);
        }
        _ => {}
    }
    if let Some(word) = summary.undone_word() {
        html!(out, "<span class=\"badge undone\">{}</span>", word);
    }
    if summary.pinned {
        html!(out, "<span class=\"badge\">pinned</span>");
    }
    if summary.received {
        html!(out, "<span class=\"badge\">from an archive</span>");
    }
    if summary.origin == SessionOrigin::Fork {
        html!(out, "<span class=\"badge\">fork</span>");
    }
}

/// Counted changes: `+3 ~2 −1`.
fn counts(out: &mut Html, changes: &ChangeSummary) {
    if changes.total() == 0 {
        html!(out, "<span class=\"counts none\">no changes</span>");
        return;
    }
    html!(out, "<span class=\"counts\">");
    for counted in counted_changes(changes) {
        let class = match counted.change_type {
            ChangeType::Created => "created",
            ChangeType::Deleted => "deleted",
            ChangeType::Modified | ChangeType::PermissionsChanged => "modified",
        };
        let number = super::html::count(counted.count);
        html!(out, "<span class=\"{}\">{}{} {}</span>", class, counted.mark, number, counted.word);
    }
    if changes.in_git > 0 {
        html!(out, "<span class=\"git\">{}</span>", GIT_CHANGED);
    }
    html!(out, "</span>");
}

/// The links to the pages before and after one.
fn pager(out: &mut Html, place: &'static str, asked: &[(&str, &str)], at: u64, pages: u64) {
    if pages < 2 {
        return;
    }
    let link = |number: u64| {
        let number = number.to_string();
        let mut asked = asked.to_vec();
        asked.push(("page", &number));
        address(place, &asked)
    };
    html!(out, "<nav class=\"pager\" aria-label=\"Pages of this list\">");
    if at > 1 {
        html!(out, "<a class=\"button\" rel=\"prev\" href=\"{}\">← Newer</a>", link(at - 1));
    }
    html!(out, "<span>page {} of {}</span>", at, pages);
    if at < pages {
        html!(out, "<a class=\"button\" rel=\"next\" href=\"{}\">Older →</a>", link(at + 1));
    }
    html!(out, "</nav>");
}
