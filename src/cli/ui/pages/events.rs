//! The marks of the band: sessions, steps, forks and restores, as numbers that the script draws.

use serde_json::{Value, json};

use super::{outcome, project_of, title_of};
use crate::cli::ui::app::App;
use crate::cli::ui::server::{Answer, Asked, Failure};
use nono_engine::session::{SessionSummary, steps_of};
use nono_engine::snapshot::SessionOrigin;

/// Sessions of one answer, the newest.
const MAX_SESSIONS: usize = 5_000;
/// Sessions whose steps and restores are read, the newest of the part of time that is looked at.
const MAX_READ: usize = 60;
/// Steps of one answer.
const MAX_STEPS: usize = 2_000;
/// Characters of a prompt.
const MAX_CHARS: usize = 160;

/// With `from` and `to`, in seconds, also the steps and restores between them.
pub(super) fn marks(app: &App, asked: &Asked) -> Result<Answer, Failure> {
    let wanted = asked.get("project");
    let listing = app.listing()?;
    let is_meant = |it: &&SessionSummary| wanted.is_empty() || project_of(app, it) == wanted;
    let sessions: Vec<_> = listing.sessions.iter().filter(is_meant).take(MAX_SESSIONS).collect();
    let span = asked.get("from").parse::<i64>().ok().zip(asked.get("to").parse::<i64>().ok());
    if let Some((from, to)) = span {
        return Ok(Answer::Json(inner(app, &sessions, from, to)));
    }
    let mut projects: Vec<String> = Vec::new();
    let mut marks = Vec::with_capacity(sessions.len());
    for summary in sessions {
        let project = project_of(app, summary);
        let lane = projects.iter().position(|known| *known == project).unwrap_or_else(|| {
            projects.push(project);
            projects.len() - 1
        });
        let begin = summary.started.as_millisecond();
        let end = summary.ended.map(|ended| ended.as_millisecond());
        let total = summary.changes.map_or(0, |changes| changes.total());
        let kind = if summary.origin == SessionOrigin::Fork { "fork" } else { outcome(summary) };
        let title = crate::cli::render::shown(title_of(summary).as_bytes());
        marks.push(json!([
            summary.session_id,
            lane,
            begin,
            end,
            total,
            kind,
            title,
            summary.pinned,
            summary.step_count,
        ]));
    }
    Ok(Answer::Json(json!({"projects": projects, "marks": marks})))
}

/// Steps and restores of a part of time.
fn inner(app: &App, sessions: &[&SessionSummary], from: i64, to: i64) -> Value {
    let overlaps = |it: &&&SessionSummary| {
        let end = it.ended.map_or(i64::MAX, |ended| ended.as_second());
        it.started.as_second() <= to && end >= from
    };
    let may_tell = |it: &&&SessionSummary| it.step_count > 0 || it.restore_count > 0;
    let (mut steps, mut restores) = (Vec::new(), Vec::new());
    for summary in sessions.iter().filter(may_tell).filter(overlaps).take(MAX_READ) {
        let Ok(session) = app.session(&summary.session_id) else { continue };
        let Ok(metadata) = session.metadata() else { continue };
        let is_in = |at: jiff::Timestamp| (from..=to).contains(&at.as_second());
        for step in steps_of(&metadata).into_iter().filter(|step| is_in(step.timestamp)) {
            if steps.len() >= MAX_STEPS {
                break;
            }
            let prompt = step.prompt.as_ref().map_or("", |prompt| &prompt.text);
            let prompt: String = prompt.chars().take(MAX_CHARS).collect();
            steps.push(json!([
                summary.session_id,
                step.number,
                step.timestamp.as_millisecond(),
                step.changes.map_or(0, |changes| changes.total()),
                step.failed,
                crate::cli::render::shown(step.summary().as_bytes()),
                crate::cli::render::shown(prompt.as_bytes()),
            ]));
        }
        for record in metadata.restores.iter().filter(|record| is_in(record.at)) {
            restores.push(json!([summary.session_id, record.at.as_millisecond(), record.snapshot]));
        }
    }
    json!({"steps": steps, "restores": restores})
}
