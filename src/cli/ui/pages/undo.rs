//! Undo, as `nono undo` does it: a plan that is shown, a yes with the number of paths, the work of
//! the engine with its safety snapshot and its journal, a report, and the way back.
//!
//! The yes is about the plan that was shown: with another number of paths, or a session that was
//! restored meanwhile, nothing is done and the new plan is shown.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::hunks;
use super::paths::{changes, merged, reasons};
use super::{form_token, hidden, page, path_of, time, title_of};
use crate::cli::repositories::{Repositories, Told, conflict_text};
use crate::cli::ui::app::App;
use crate::cli::ui::changed::{Changed, Part};
use crate::cli::ui::html::{Html, address, html, plural};
use crate::cli::ui::server::{Answer, Asked, Failure};
use nono_engine::diff::ChangeType;
use nono_engine::job::{JobKind, RestoreJob};
use nono_engine::restore::{JobReport, OnConflict, RestoreError, RestoreReport, Selection};
use nono_engine::session::{SessionSummary, steps};
use nono_engine::snapshot::{SessionDir, SnapshotManager, StepEntry};

/// The field that names the work for its progress; the script of the page fills it.
const WORK: &str = "work";

/// The work that is to be taken back.
struct Undo {
    summary: SessionSummary,
    job: RestoreJob,
    /// In words.
    name: String,
}

/// The changes that an undo made, or would make.
struct Report {
    restore: RestoreReport,
    /// Paths that stay, each with its reason.
    staying: Vec<(PathBuf, String)>,
    /// Paths that later changes are in the way of.
    conflicts: Vec<(PathBuf, String)>,
    is_refused: bool,
}

impl Undo {
    fn of(app: &App, asked: &Asked) -> Result<Self, Failure> {
        let session = app.session(asked.get("id"))?;
        let summary = SessionSummary::of(&session)?;
        let manager = SnapshotManager::open(session.path())?.with_threads(app.threads);
        let mut selection = Selection::default();
        let (name, kind) = match asked.get("what") {
            "all" => ("all that the session did".to_owned(), JobKind::Undo(0)),
            "paths" => {
                let changed = Changed::of(app, &session, Part::Whole)?;
                selection.exactly = chosen_paths(&changed, asked.all("path").map(path_of));
                if selection.exactly.is_empty() {
                    return Err(Failure::wrong("no changed path is chosen"));
                }
                ("the chosen paths".to_owned(), JobKind::Undo(changed.numbers.0))
            }
            "steps" => steps_of(&session, asked)?,
            "hunks" => {
                let (name, part) = hunks::chosen(app, &session, asked)?;
                (name, JobKind::Text(part))
            }
            "state" => {
                let number =
                    asked.number("to").ok_or_else(|| Failure::wrong("which state is meant?"))?;
                (format!("all that came after state {number}"), JobKind::Restore(number))
            }
            "redo" => {
                let number =
                    asked.number("n").ok_or_else(|| Failure::wrong("which undo is meant?"))?;
                ("that undo".to_owned(), JobKind::Redo(number))
            }
            _ => return Err(Failure::wrong("nothing is chosen")),
        };
        let job = RestoreJob::new(manager, kind).map_err(|error| match error {
            RestoreError::ChangedNothing { .. } => {
                Failure::wrong("this undo changed nothing, or it is not known any more")
            }
            error => error.into(),
        })?;
        let mut job = job.in_catalog(&app.catalog).decided_at(summary.restore_count);
        job.choose(|options| {
            options.on_conflict = match asked.get("conflicts") {
                "keep" => OnConflict::KeepNewer,
                "overwrite" => OnConflict::Overwrite,
                _ => OnConflict::Refuse,
            };
            options.skip_blocked = !asked.get("skip").is_empty();
            if !selection.is_everything() {
                options.selection = selection;
            }
        });
        Ok(Self { summary, job, name })
    }

    fn roots(&self) -> Vec<PathBuf> {
        self.job.manager().roots().iter().map(|root| root.path.clone()).collect()
    }
}

/// The chosen steps, or those of a prompt, in words and as the work of a job.
fn steps_of(session: &SessionDir, asked: &Asked) -> Result<(String, JobKind), Failure> {
    let known = steps(session)?;
    let wanted: BTreeSet<u64> = asked.all("step").filter_map(|it| it.parse().ok()).collect();
    let prompt = asked.number("prompt");
    let is_meant = |step: &&StepEntry| {
        let of_prompt = step.prompt.as_ref().map(|it| it.number);
        let is_chosen = wanted.contains(&step.number) || prompt.is_some() && of_prompt == prompt;
        step.is_agents() && is_chosen
    };
    let numbers: Vec<u64> = known.iter().filter(is_meant).map(|step| step.number).collect();
    if numbers.is_empty() {
        return Err(Failure::wrong("no step of the agent is chosen"));
    }
    let name = match (prompt, &numbers[..]) {
        (Some(prompt), _) => format!("what prompt {prompt} did"),
        (None, [number]) => format!("what step {number} did"),
        (None, numbers) => format!("what {} did", plural(numbers.len() as u64, "step")),
    };
    Ok((name, JobKind::Steps(numbers)))
}

/// The changes that chosen rows mean: a directory with all that is below it, a renamed file with
/// both of its paths.
fn chosen_paths(changed: &Changed, chosen: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    let Changed { changes, renames, .. } = changed;
    let mut indices = BTreeSet::new();
    for path in chosen {
        let first = changes.partition_point(|change| change.path < path);
        let below = changes[first..].iter().take_while(|change| change.path.starts_with(&path));
        let is_attributes_alone =
            changes.get(first).is_some_and(|change| change.path == path && !change.is_directory);
        let count = if is_attributes_alone { 1 } else { below.count() };
        indices.extend(first..first + count);
    }
    let gone: Vec<usize> = indices.iter().filter_map(|index| renames.get(index).copied()).collect();
    indices.extend(gone);
    indices.into_iter().map(|index| changes[index].path.clone()).collect()
}

impl Report {
    fn of(report: JobReport) -> Self {
        let JobReport { restore, step_conflicts, .. } = report;
        let reason = |conflict: &nono_engine::restore::Conflict| match &conflict.repository {
            Some(repository) => conflict_text(&conflict.path, repository),
            None if conflict.user_edit.is_some() => "you edited it as well".to_owned(),
            None if conflict.change_type == ChangeType::Deleted => {
                "it was deleted later".to_owned()
            }
            None => "it was changed later".to_owned(),
        };
        let conflicts = restore.conflicts.iter().map(|it| (it.path.clone(), reason(it))).collect();
        let mut staying: Vec<_> =
            step_conflicts.into_iter().map(|it| (it.path, it.reason)).collect();
        let skipped = restore.skipped.iter().chain(&restore.blocked);
        staying.extend(skipped.map(|it| (it.path.clone(), it.reason.clone())));
        let later = |path: &PathBuf| (path.clone(), "it was changed later, by others".to_owned());
        staying.extend(restore.spared.iter().map(later));
        let gone = |lost: &nono_engine::diff::Lost| {
            (lost.path.clone(), "it was not recorded, and is not as it was".to_owned())
        };
        staying.extend(restore.lost_for_good().map(gone));
        let is_refused = restore.is_refused();
        Self { restore, staying, conflicts, is_refused }
    }
}

/// The plan, with the question.
pub(super) fn plan(app: &App, asked: &Asked) -> Result<Answer, Failure> {
    let undo = Undo::of(app, asked)?;
    let planned = Report::of(undo.job.plan()?.report);
    Ok(Answer::Page(plan_page(app, asked, &undo, &planned, None)))
}

fn plan_page(app: &App, asked: &Asked, undo: &Undo, planned: &Report, note: Option<&str>) -> Html {
    let Undo { summary, job, name } = undo;
    let (session, roots) = (job.session(), undo.roots());
    let number = planned.restore.changes.len() as u64;
    let mut out = Html::default();
    html!(
        out,
        "<div class=\"title\"><p class=\"crumbs\"><a href=\"/\">Sessions</a> / \
        <a href=\"{}\">{}</a></p><h1>Undo {}</h1><p class=\"facts soft\">",
        address("/session", &[("id", &session.id())]),
        title_of(summary),
        name
    );
    time(&mut out, summary.started);
    html!(out, "<span>{}</span></p></div>", super::project_of(app, summary));
    if let Some(note) = note {
        html!(out, "<p class=\"note failed\" role=\"alert\">{}</p>", note);
    }
    if number == 0 && planned.conflicts.is_empty() && planned.staying.is_empty() {
        html!(
            out,
            "<section class=\"empty\"><h2>Nothing of this is left to undo</h2>\
            <p><a class=\"button\" href=\"{}\">Back to the session</a></p></section>",
            address("/session", &[("id", &session.id())])
        );
        return page(app, "Undo", "", &out);
    }
    html!(out, "<form class=\"card plan\" method=\"post\" action=\"/undo\">");
    form_token(app, &mut out);
    hidden(&mut out, WORK, "");
    hidden(&mut out, "id", &session.id());
    for key in ["what", "to", "prompt", "n"] {
        if !asked.get(key).is_empty() {
            hidden(&mut out, key, asked.get(key));
        }
    }
    for key in ["path", "step", "hunk"] {
        for value in asked.all(key) {
            hidden(&mut out, key, value);
        }
    }
    if !planned.conflicts.is_empty() || !asked.get("conflicts").is_empty() {
        conflicts(&mut out, asked, planned, &roots);
    }
    let blocked = &planned.restore.blocked;
    if !blocked.is_empty() {
        let checked = if asked.get("skip").is_empty() { "" } else { "checked" };
        html!(
            out,
            "<p><label><input type=\"checkbox\" name=\"skip\" value=\"1\" data-state=\"{}\"> \
            Leave {} that cannot be changed, and undo the rest</label></p>",
            checked,
            plural(blocked.len() as u64, "path")
        );
    }
    changes(&mut out, "This changes", &planned.restore.changes, &roots);
    let repositories = Repositories::restored(&planned.restore.repositories, &roots);
    for line in repositories.said(Told::Planned) {
        html!(out, "<p class=\"note git\">{}</p>", line);
    }
    merged(&mut out, &planned.restore.merged, &roots);
    reasons(&mut out, "These stay as they are", &planned.staying, &roots);
    html!(
        out,
        "<div class=\"confirm\"><label for=\"count\">{} will change. To go on, type \
        the number of paths:</label><input id=\"count\" name=\"count\" inputmode=\"numeric\" \
        autocomplete=\"off\" required size=\"8\" data-expected=\"{}\">\
        <button class=\"primary danger\" data-busy=\"Undoing…\">Undo</button>\
        <a class=\"button\" href=\"{}\">Keep everything</a></div>\
        <p class=\"soft\">The state before is kept: the next page has a button that takes the undo \
        back.</p></form>",
        plural(number, "path"),
        number,
        address("/session", &[("id", &session.id())])
    );
    page(app, "Undo", "", &out)
}

fn conflicts(out: &mut Html, asked: &Asked, planned: &Report, roots: &[PathBuf]) {
    let number = planned.conflicts.len() as u64;
    html!(
        out,
        "<fieldset class=\"conflicts\"><legend>{} changed later</legend>",
        plural(number, "path")
    );
    reasons(out, "", &planned.conflicts, roots);
    let chosen = asked.get("conflicts");
    for (value, text) in [
        ("", "Do nothing as long as there are such paths"),
        ("keep", "Keep the later changes, undo the rest"),
        ("overwrite", "Undo these paths too: the later changes go"),
    ] {
        match value == chosen {
            true => html!(
                out,
                "<label><input type=\"radio\" name=\"conflicts\" value=\"{}\" checked> {}</label>",
                value,
                text
            ),
            false => html!(
                out,
                "<label><input type=\"radio\" name=\"conflicts\" value=\"{}\"> {}</label>",
                value,
                text
            ),
        }
    }
    html!(
        out,
        "<button formmethod=\"get\" formaction=\"/undo\" formnovalidate>Plan again</button></fieldset>"
    );
}

/// Does what was planned and confirmed.
pub(super) fn carry_out(app: &App, asked: &Asked) -> Result<Answer, Failure> {
    let mut undo = Undo::of(app, asked)?;
    let plan = undo.job.plan()?;
    let planned = Report::of(plan.report.clone());
    let number = planned.restore.changes.len() as u64;
    let note = match asked.number("count") {
        _ if planned.is_refused => {
            Some("Nothing was changed: say what becomes of the later changes.".to_owned())
        }
        Some(given) if given == number => None,
        Some(given) => Some(format!(
            "Nothing was changed: this plan has {}, and the answer was {given}.",
            plural(number, "path")
        )),
        None => Some("Nothing was changed: the number of paths is missing.".to_owned()),
    };
    if let Some(note) = note {
        return Ok(Answer::Page(plan_page(app, asked, &undo, &planned, Some(&note))));
    }
    undo.job.tell(app.works.begin(asked.get(WORK)));
    let done = Report::of(undo.job.carry_out(&plan)?);
    Ok(Answer::Page(result_page(app, &undo, &done)))
}

/// Takes an undo back.
pub(super) fn take_back(app: &App, asked: &Asked) -> Result<Answer, Failure> {
    let mut undo = Undo::of(app, asked)?;
    undo.job.tell(app.works.begin(asked.get(WORK)));
    let done = Report::of(undo.job.run()?);
    if done.is_refused {
        let note = "Nothing was changed: paths changed after the undo.";
        return Ok(Answer::Page(plan_page(app, asked, &undo, &done, Some(note))));
    }
    Ok(Answer::Page(result_page(app, &undo, &done)))
}

fn result_page(app: &App, undo: &Undo, done: &Report) -> Html {
    let (id, roots) = (undo.job.session().id(), undo.roots());
    let roots = &roots[..];
    let mut out = Html::default();
    let is_complete = done.restore.is_complete() && done.staying.is_empty();
    let head = match (done.restore.changes.is_empty(), is_complete) {
        (true, _) => "Nothing was changed",
        (false, true) => "Done",
        (false, false) => "Done, in part",
    };
    html!(
        out,
        "<div class=\"title\"><p class=\"crumbs\"><a href=\"/\">Sessions</a> / \
        <a href=\"{}\">{}</a></p><h1>{}</h1><p class=\"soft\">Taken back: {}.</p></div>\
        <section class=\"card plan\">",
        address("/session", &[("id", &id)]),
        title_of(&undo.summary),
        head,
        undo.name
    );
    changes(&mut out, "Changed", &done.restore.changes, roots);
    let repositories = Repositories::restored(&done.restore.repositories, roots);
    for line in repositories.said(Told::Done) {
        html!(out, "<p class=\"note git\">{}</p>", line);
    }
    merged(&mut out, &done.restore.merged, roots);
    reasons(&mut out, "These stay as they are", &done.staying, roots);
    html!(
        out,
        "<div class=\"act\"><a class=\"button\" href=\"{}\">Back to the session</a>\
        <a class=\"button\" href=\"/\">All sessions</a></div></section>",
        address("/session", &[("id", &id)])
    );
    if let Some(safety) = done.restore.safety_snapshot {
        html!(out, "<form class=\"card\" method=\"post\" action=\"/redo\">");
        form_token(app, &mut out);
        hidden(&mut out, WORK, "");
        hidden(&mut out, "id", &id);
        hidden(&mut out, "what", "redo");
        hidden(&mut out, "n", &safety.to_string());
        html!(
            out,
            "<p>The state before is kept as state {}.</p>\
            <button class=\"primary\" data-busy=\"Taking it back…\">Take this back</button></form>",
            safety
        );
    }
    page(app, head, "", &out)
}
