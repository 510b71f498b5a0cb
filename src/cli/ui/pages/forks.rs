//! Forks side by side: what each changed, where two of them changed the same path, merge and discard.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{form_token, page};
use crate::cli::ui::app::App;
use crate::cli::ui::html::{Html, html, plural};
use crate::cli::ui::server::{Answer, Asked, Failure};
use nono_engine::diff::ChangeType;

/// Paths of all forks that are compared in a table.
const MAX_PATHS: usize = 400;

/// A fork, and its changes.
struct Shown {
    name: String,
    session: String,
    from: String,
    project: String,
    created: jiff::Timestamp,
    changes: Result<Vec<nono_engine::diff::Change>, String>,
}

fn forks(app: &App) -> Result<(Vec<Shown>, Vec<String>), Failure> {
    use nono_engine::fork::Forks;
    use nono_engine::progress::NoProgress;
    use nono_engine::session::Catalog;
    let (mut shown, mut failures) = (Vec::new(), Vec::new());
    for fork in Forks::new(app.catalog.root()).list()? {
        let fork = match fork {
            Ok(fork) => fork,
            Err(error) => {
                failures.push(error.to_string());
                continue;
            }
        };
        let changes = || -> Result<_, Failure> {
            let store = Catalog::store_of(&fork.session()?)?;
            let state = fork.state(&store, &NoProgress, app.threads)?;
            Ok(state.comparison()?.changes)
        };
        let paths: Vec<PathBuf> =
            fork.document().layers.iter().map(|layer| layer.path.clone()).collect();
        shown.push(Shown {
            name: fork.name().to_owned(),
            session: fork.document().session.clone(),
            from: fork.document().from.clone(),
            project: crate::cli::render::project_name(&paths, app.home.as_deref()),
            created: fork.document().created,
            changes: changes().map_err(|failure| failure.message),
        });
    }
    Ok((shown, failures))
}

pub(super) fn make(app: &App, _asked: &Asked) -> Result<Answer, Failure> {
    let (forks, failures) = forks(app)?;
    let mut out = Html::default();
    if forks.is_empty() && failures.is_empty() {
        html!(
            out,
            "<section class=\"empty\"><h1>There are no forks</h1><p>A fork is a writable layer \
            over a recorded state. Let two agents try the same thing, and merge the better one:</p>\
            <pre><code>nono fork idea -- claude\nnono fork other -- codex</code></pre></section>"
        );
        return Ok(Answer::Page(page(app, "Forks", "/forks", &out)));
    }
    html!(
        out,
        "<div class=\"title\"><h1>Forks</h1><p class=\"soft\">{}</p></div>",
        plural(forks.len() as u64, "fork")
    );
    for failure in failures {
        html!(out, "<p class=\"note failed\">{}</p>", failure);
    }
    html!(out, "<div class=\"forks\">");
    for fork in &forks {
        one(app, &mut out, fork);
    }
    html!(out, "</div>");
    table(&mut out, &forks);
    Ok(Answer::Page(page(app, "Forks", "/forks", &out)))
}

fn one(app: &App, out: &mut Html, fork: &Shown) {
    html!(
        out,
        "<section class=\"card fork\"><h2>{}</h2><p class=\"facts soft\"><span>{}</span>",
        fork.name,
        fork.project
    );
    super::time(out, fork.created);
    html!(out, "<span>from {}</span></p>", fork.from);
    match &fork.changes {
        Ok(changes) => super::counts(out, &nono_engine::diff::ChangeSummary::of(changes)),
        Err(error) => html!(out, "<p class=\"note failed\">{}</p>", error),
    }
    html!(out, "<form method=\"post\" action=\"/forks\">");
    form_token(app, out);
    super::hidden(out, "id", &fork.session);
    html!(
        out,
        "<label>Check before the merge<input name=\"check\" placeholder=\"make test\"></label>\
        <div class=\"act\"><button name=\"what\" value=\"plan\">Show the merge</button>\
        <button class=\"primary\" name=\"what\" value=\"merge\" data-busy=\"Merging…\">Merge</button></div>\
        <div class=\"act\"><label>Type its name to discard it<input name=\"confirm\" autocomplete=\"off\"></label>\
        <button class=\"danger\" name=\"what\" value=\"discard\">Discard</button></div></form></section>"
    );
}

/// Which fork changed which path; the paths that several changed come first.
fn table(out: &mut Html, forks: &[Shown]) {
    let mut by_path: BTreeMap<&Path, Vec<Option<ChangeType>>> = BTreeMap::new();
    for (at, fork) in forks.iter().enumerate() {
        for change in fork.changes.iter().flatten().filter(|change| !change.is_directory) {
            by_path.entry(&change.path).or_insert_with(|| vec![None; forks.len()])[at] =
                Some(change.change_type);
        }
    }
    let mut rows: Vec<_> = by_path.into_iter().collect();
    let makers = |row: &[Option<ChangeType>]| row.iter().flatten().count();
    rows.sort_by_key(|(_, row)| std::cmp::Reverse(makers(row)));
    let collisions = rows.iter().filter(|(_, row)| makers(row) > 1).count() as u64;
    if forks.len() < 2 || rows.is_empty() {
        return;
    }
    html!(
        out,
        "<section class=\"card\"><h2>Side by side</h2><p class=\"soft\">{} changed in several forks</p>\
        <div class=\"scroll\"><table class=\"grid\"><thead><tr><th>Path</th>",
        plural(collisions, "path")
    );
    for fork in forks {
        html!(out, "<th>{}</th>", fork.name);
    }
    html!(out, "</tr></thead><tbody>");
    for (path, row) in rows.iter().take(MAX_PATHS) {
        let class = if makers(row) > 1 { "collision" } else { "" };
        html!(
            out,
            "<tr class=\"{}\"><th scope=\"row\">{}</th>",
            class,
            crate::cli::render::shown(path.as_os_str().as_encoded_bytes())
        );
        for change in row {
            html!(out, "<td>");
            if let Some(change) = change {
                super::tree::kind(out, *change, false);
            }
            html!(out, "</td>");
        }
        html!(out, "</tr>");
    }
    html!(out, "</tbody></table></div></section>");
}

pub(super) fn change(app: &App, asked: &Asked) -> Result<Answer, Failure> {
    use crate::cli::ui::program::run;
    use nono_engine::fork::Forks;
    // Forks of several projects may have one name, and a page may be older than a fork. The id is
    // one that there is, and so no flag.
    let fork = Forks::new(app.catalog.root()).of_session(asked.get("id"))?;
    let (name, id) = (fork.name(), fork.document().session.as_str());
    let place = fork.document().layers.first().map_or(Path::new("/"), |layer| layer.path.as_path());
    let (title, finished) = match asked.get("what") {
        "discard" if asked.get("confirm") == name => {
            ("The fork is discarded", run(app, &["fork", "discard", "--", id], place)?)
        }
        "discard" => {
            return Err(Failure::wrong(
                "nothing was changed: type the name of the fork to discard it",
            ));
        }
        "plan" => (
            "This is what a merge would do",
            run(app, &["fork", "merge", "--dry-run", "--", id], place)?,
        ),
        "merge" => {
            let check = format!("--check={}", asked.get("check"));
            let mut words = vec!["fork", "merge"];
            if !asked.get("check").trim().is_empty() {
                words.push(&check);
            }
            words.extend(["--", id]);
            ("The merge", run(app, &words, place)?)
        }
        _ => return Err(Failure::wrong("nothing is chosen")),
    };
    let mut out = Html::default();
    html!(
        out,
        "<div class=\"title\"><p class=\"crumbs\"><a href=\"/forks\">Forks</a></p><h1>{}</h1></div>",
        name
    );
    super::store::said(&mut out, title, &finished);
    html!(out, "<p><a class=\"button\" href=\"/forks\">All forks</a></p>");
    Ok(Answer::Page(page(app, name, "/forks", &out)))
}
