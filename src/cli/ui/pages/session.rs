//! One session: its prompts and steps, the states, and what changed in the part that is looked at.

use std::path::PathBuf;
use std::sync::Arc;

use axum::http::StatusCode;
use jiff::Zoned;

use super::tree::Tree;
use super::{badges, counts, duration, hidden, outcome, page, project_of, time, title_of};
use crate::cli::render::absolute_time;
use crate::cli::ui::app::App;
use crate::cli::ui::changed::{Changed, Part};
use crate::cli::ui::html::{Html, address, html, plural};
use crate::cli::ui::server::{Answer, Asked, Failure};
use nono_engine::session::{PromptSteps, SessionSummary, by_prompt, steps};
use nono_engine::snapshot::{SessionDir, StepEntry, StepKind};

/// Steps of one page, the newest first.
const PAGE_STEPS: usize = 200;
/// Characters of a prompt that are shown before it is unfolded.
const PROMPT_CHARS: usize = 140;
/// Commits and branches that are named.
const MAX_COMMITS: usize = 20;

/// The part of a session that an address asks for, and its name.
pub(super) fn part_of(asked: &Asked, steps: &[StepEntry]) -> Result<(Part, String), Failure> {
    if let Some(number) = asked.number("step") {
        return Ok((Part::Steps(number, number), format!("Step {number}")));
    }
    if let Some(prompt) = asked.number("prompt") {
        let of = |step: &&StepEntry| step.prompt.as_ref().is_some_and(|it| it.number == prompt);
        let numbers: Vec<u64> = steps.iter().filter(of).map(|step| step.number).collect();
        let ends = numbers.iter().min().zip(numbers.iter().max());
        let Some((first, last)) = ends else {
            return Err(Failure::not_found(format!("there is no prompt {prompt} in this session")));
        };
        return Ok((Part::Steps(*first, *last), format!("Prompt {prompt}")));
    }
    if let Some(number) = asked.number("to") {
        return Ok((Part::UpTo(number), format!("Up to state {number}")));
    }
    Ok((Part::Whole, "All changes".to_owned()))
}

/// The fields that keep the part in links.
pub(super) fn part_fields(asked: &Asked) -> Vec<(&str, &str)> {
    let keys = ["id", "step", "prompt", "to"];
    keys.iter().map(|key| (*key, asked.get(key))).filter(|(_, value)| !value.is_empty()).collect()
}

/// A part of the tree, for a directory that is opened.
pub(super) fn part(app: &App, asked: &Asked) -> Result<Answer, Failure> {
    let session = app.session(asked.get("id"))?;
    let steps = steps(&session)?;
    let (part, _) = part_of(asked, &steps)?;
    let changed = Changed::of(app, &session, part)?;
    let fields = part_fields(asked);
    let tree = Tree {
        changed: &changed,
        asked: &fields,
        has_choice: part == Part::Whole,
        is_static: false,
    };
    let Some(row) = tree.row_of(asked.get("dir")) else {
        return Err(Failure::not_found("nothing changed in this directory"));
    };
    let mut out = Html::default();
    tree.write(&mut out, Some(row));
    Ok(Answer::Page(out))
}

pub(super) fn make(app: &App, asked: &Asked) -> Result<Answer, Failure> {
    let session = app.session(asked.get("id"))?;
    let summary = SessionSummary::of(&session)?;
    let steps = steps(&session)?;
    let (part, name) = part_of(asked, &steps)?;
    let mut body = Html::default();
    head(app, &mut body, &summary);
    html!(
        body,
        "<form class=\"desk {}\" action=\"/undo\" method=\"get\">",
        if steps.is_empty() { "wide" } else { "" }
    );
    hidden(&mut body, "id", &summary.session_id);
    if !steps.is_empty() {
        html!(
            body,
            "<section class=\"card steps\" id=\"live\" data-live=\"{}\" \
            aria-label=\"Prompts and steps\">",
            summary.session_id
        );
        prompts(&mut body, asked, &summary, by_prompt(steps), true);
        html!(body, "</section>");
    }
    html!(body, "<section class=\"card changes\" aria-label=\"Changes\">");
    match Changed::of(app, &session, part) {
        Ok(changed) => changes(&mut body, asked, &session, &changed, part, &name)?,
        Err(failure) if failure.status == StatusCode::NOT_FOUND => return Err(failure),
        Err(failure) => html!(body, "<p class=\"note failed\">{}</p>", failure.message),
    }
    html!(body, "</section></form>");
    Ok(Answer::Page(page(app, &title_of(&summary), "", &body)))
}

/// The facts of a session as a whole.
fn head(app: &App, out: &mut Html, summary: &SessionSummary) {
    let project = project_of(app, summary);
    html!(
        out,
        "<div class=\"title\"><p class=\"crumbs\"><a href=\"/\">Sessions</a> / \
        <a href=\"{}\">{}</a></p><h1 class=\"{}\"><span class=\"dot\" aria-hidden=\"true\"></span>\
        {}</h1><p class=\"facts\">",
        address("/", &[("project", &project)]),
        project,
        outcome(summary),
        title_of(summary)
    );
    facts(out, summary);
    html!(out, "</p></div>");
}

fn facts(out: &mut Html, summary: &SessionSummary) {
    badges(out, summary);
    time(out, summary.started);
    if let Some(ended) = summary.ended {
        html!(out, "<span class=\"soft\">took {}</span>", duration(summary.started, ended));
    }
    if summary.step_count > 0 {
        html!(out, "<span class=\"soft\">{}</span>", plural(summary.step_count, "step"));
    }
    if summary.restore_count > 0 {
        html!(out, "<span class=\"soft\">{}</span>", plural(summary.restore_count, "restore"));
    }
    html!(out, "<code class=\"soft id\">{}</code>", summary.session_id);
    if let Some(changes) = &summary.changes {
        counts(out, changes);
    }
}

/// Prompts with their steps, the newest prompt first.
fn prompts(
    out: &mut Html,
    asked: &Asked,
    summary: &SessionSummary,
    prompts: Vec<PromptSteps>,
    has_server: bool,
) {
    let id = &summary.session_id;
    html!(out, "<h2>Prompts and steps</h2>");
    if has_server {
        let here = if asked.get("step").is_empty()
            && asked.get("prompt").is_empty()
            && asked.get("to").is_empty()
        {
            "page"
        } else {
            "false"
        };
        html!(
            out,
            "<a class=\"all\" href=\"{}\" aria-current=\"{}\">All changes of the session</a>",
            address("/session", &[("id", id)]),
            here
        );
    }
    let mut left = if has_server { PAGE_STEPS } else { usize::MAX };
    let skipped = asked.number("skip").unwrap_or(0) as usize;
    let mut to_skip = skipped;
    html!(out, "<ol class=\"prompts\">");
    for PromptSteps { prompt, steps } in prompts {
        if to_skip >= steps.len() {
            to_skip -= steps.len();
            continue;
        }
        if left == 0 {
            break;
        }
        let steps: Vec<_> =
            steps.into_iter().skip(std::mem::take(&mut to_skip)).take(left).collect();
        left -= steps.len();
        html!(out, "<li class=\"prompt\">");
        match &prompt {
            Some(prompt) => prompt_head(out, asked, id, prompt, has_server),
            None => html!(out, "<p class=\"prompt-text soft\">Before the first prompt</p>"),
        }
        html!(out, "<ol class=\"step-rows\">");
        for step in &steps {
            step_row(out, asked, id, step, has_server);
        }
        html!(out, "</ol></li>");
    }
    html!(out, "</ol>");
    if left == 0 {
        let skip = (skipped + PAGE_STEPS).to_string();
        html!(
            out,
            "<p class=\"pager\"><a class=\"button\" href=\"{}\">More steps</a></p>",
            address("/session", &[("id", id), ("skip", &skip)])
        );
    }
    if has_server {
        html!(
            out,
            "<div class=\"act\"><button class=\"primary\" name=\"what\" value=\"steps\" \
            data-needs=\"step\">Undo chosen steps…</button></div>"
        );
    }
}

fn prompt_head(
    out: &mut Html,
    asked: &Asked,
    id: &str,
    prompt: &nono_engine::snapshot::StepPrompt,
    has_server: bool,
) {
    let number = prompt.number.to_string();
    let text =
        if prompt.text.is_empty() { "A prompt whose text is not known" } else { &prompt.text };
    let is_long = text.chars().count() > PROMPT_CHARS || text.contains('\n');
    let short: String =
        text.lines().next().unwrap_or_default().chars().take(PROMPT_CHARS).collect();
    if has_server {
        let here = if asked.get("prompt") == number { "page" } else { "false" };
        html!(
            out,
            "<a class=\"prompt-text\" href=\"{}\" aria-current=\"{}\"><b>{}</b> {}{}</a>",
            address("/session", &[("id", id), ("prompt", &number)]),
            here,
            number,
            short,
            if is_long { " …" } else { "" }
        );
    } else {
        html!(
            out,
            "<p class=\"prompt-text\"><b>{}</b> {}{}</p>",
            number,
            short,
            if is_long { " …" } else { "" }
        );
    }
    if is_long {
        html!(
            out,
            "<details class=\"whole\"><summary>whole prompt</summary><pre>{}</pre></details>",
            text
        );
    }
}

fn step_row(out: &mut Html, asked: &Asked, id: &str, step: &StepEntry, has_server: bool) {
    let number = step.number.to_string();
    let here = if asked.get("step") == number { "page" } else { "false" };
    let class = if step.failed { "failed" } else { "fine" };
    html!(out, "<li class=\"step {}\">", class);
    if has_server {
        if step.is_agents() {
            html!(
                out,
                "<input type=\"checkbox\" name=\"step\" value=\"{}\" \
                aria-label=\"Choose step {}\">",
                number,
                number
            );
        } else {
            html!(out, "<span class=\"no-choice\"></span>");
        }
        html!(
            out,
            "<a href=\"{}\" aria-current=\"{}\">",
            address("/session", &[("id", id), ("step", &number)]),
            here
        );
    } else {
        html!(out, "<span>");
    }
    let who = match step.kind {
        StepKind::UserEdits => "your own edits".to_owned(),
        _ => step.summary(),
    };
    html!(out, "<span class=\"soft n\">{}</span> <span class=\"what\">{}</span>", number, who);
    match has_server {
        true => html!(out, "</a>"),
        false => html!(out, "</span>"),
    }
    if step.failed {
        html!(out, "<span class=\"badge failed\">failed</span>");
    }
    if let Some(changes) = &step.changes {
        counts(out, changes);
    }
    html!(out, "</li>");
}

/// The changes of a part.
fn changes(
    out: &mut Html,
    asked: &Asked,
    session: &SessionDir,
    changed: &Arc<Changed>,
    part: Part,
    name: &str,
) -> Result<(), Failure> {
    let id = session.id();
    let fields = part_fields(asked);
    let is_whole = part == Part::Whole;
    html!(out, "<div class=\"changes-head\"><h2>{}</h2>", name);
    counts(out, &changed.summary);
    html!(out, "<div class=\"views\" role=\"group\" aria-label=\"View\">");
    let is_map = asked.get("view") == "map";
    for (view, word) in [("", "Tree"), ("map", "Map")] {
        let mut with = fields.clone();
        with.extend([("dir", asked.get("dir")), ("view", view)]);
        let here = if is_map == (view == "map") { "true" } else { "false" };
        html!(
            out,
            "<a class=\"tab\" aria-current=\"{}\" href=\"{}\">{}</a>",
            here,
            address("/session", &with),
            word
        );
    }
    html!(out, "</div></div>");
    slider(out, session, &id, changed)?;
    for line in changed.commits.iter().take(MAX_COMMITS) {
        html!(out, "<p class=\"note git\">{}</p>", line);
    }
    if changed.changes.is_empty() {
        html!(out, "<p class=\"soft empty-list\">Nothing changed here.</p>");
        return Ok(());
    }
    let tree = Tree { changed, asked: &fields, has_choice: is_whole, is_static: false };
    let below = tree.row_of(asked.get("dir")).filter(|_| !asked.get("dir").is_empty());
    if below.is_some() {
        let mut with = fields.clone();
        with.push(("view", asked.get("view")));
        let dir = changed.shown(&super::path_of(asked.get("dir")));
        html!(
            out,
            "<p class=\"crumbs\"><a href=\"{}\">all paths</a> / {}</p>",
            address("/session", &with),
            dir
        );
    }
    match is_map {
        true => tree.write_map(out, below),
        false => {
            html!(
                out,
                "<p class=\"filter\"><input type=\"search\" id=\"filter\" \
                placeholder=\"Filter the paths below\" aria-label=\"Filter the paths below\"></p>"
            );
            tree.write(out, below);
        }
    }
    match part {
        Part::Whole => html!(
            out,
            "<div class=\"act\"><button class=\"primary\" name=\"what\" \
            value=\"paths\" data-needs=\"path\">Undo chosen paths…</button>\
            <a class=\"button danger\" data-undo href=\"{}\">Undo all of it…</a></div>",
            address("/undo", &[("id", &id), ("what", "all")])
        ),
        Part::Steps(..) => {
            let mut with = fields.clone();
            with.push(("what", "steps"));
            html!(
                out,
                "<div class=\"act\"><a class=\"button danger\" data-undo href=\"{}\">Undo {}…</a>\
                </div>",
                address("/undo", &with),
                name.to_lowercase()
            );
        }
        Part::UpTo(number) => {
            let number = number.to_string();
            html!(
                out,
                "<div class=\"act\"><a class=\"button danger\" data-undo href=\"{}\">\
                Go back to this state…</a></div>",
                address("/undo", &[("id", &id), ("what", "state"), ("to", &number)])
            );
        }
    }
    Ok(())
}

/// The slider through the states.
fn slider(
    out: &mut Html,
    session: &SessionDir,
    id: &str,
    changed: &Changed,
) -> Result<(), Failure> {
    let numbers = session.recorded_numbers()?;
    let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else { return Ok(()) };
    if numbers.len() < 3 {
        return Ok(());
    }
    let at = changed.numbers.1;
    let text: Vec<String> = numbers.iter().map(u64::to_string).collect();
    html!(
        out,
        "<label class=\"slider\"><span class=\"soft\">State</span><input type=\"range\" \
        id=\"states\" min=\"0\" max=\"{}\" value=\"{}\" data-numbers=\"{}\" data-id=\"{}\" \
        aria-label=\"State, from {} to {}\"><output>{}</output></label>",
        numbers.len() - 1,
        numbers.iter().position(|number| *number == at).unwrap_or(numbers.len() - 1),
        text.join(" "),
        id,
        first,
        last,
        at
    );
    Ok(())
}

/// A session as one page without a server: its steps, its tree and its differences. Paths that
/// `is_hidden` has no contents in it.
pub(in crate::cli::ui) fn export_session(
    app: &App,
    session: &SessionDir,
    is_hidden: &dyn Fn(&std::path::Path) -> bool,
) -> Result<Html, Failure> {
    let summary = SessionSummary::of(session)?;
    let changed = Changed::of(app, session, Part::Whole)?;
    let steps = steps(session)?;
    let style = crate::cli::ui::server::style();
    let mut out = Html::default();
    html!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
        <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
        <meta http-equiv=\"content-security-policy\" content=\"default-src 'none'; \
        style-src 'unsafe-inline'; img-src data:\"><title>{} · nono</title><style>",
        title_of(&summary)
    );
    out.own(style);
    html!(
        out,
        "</style></head><body class=\"static\"><main id=\"main\"><div class=\"title\">\
        <h1 class=\"{}\"><span class=\"dot\"></span>{}</h1><p class=\"facts\">",
        outcome(&summary),
        title_of(&summary)
    );
    facts(&mut out, &summary);
    let when = absolute_time(summary.started, &Zoned::now());
    html!(
        out,
        "</p><p class=\"soft\">{} · exported by nono {}</p></div>",
        when,
        env!("CARGO_PKG_VERSION")
    );
    if !steps.is_empty() {
        html!(out, "<section class=\"card steps\">");
        prompts(&mut out, &Asked::default(), &summary, by_prompt(steps), false);
        html!(out, "</section>");
    }
    html!(out, "<section class=\"card changes\"><h2>Changes</h2>");
    for line in &changed.commits {
        html!(out, "<p class=\"note git\">{}</p>", line);
    }
    let tree = Tree { changed: &changed, asked: &[], has_choice: false, is_static: true };
    tree.write(&mut out, None);
    html!(out, "</section>");
    for (index, change) in changed.changes.iter().enumerate() {
        let path: &PathBuf = &change.path;
        html!(
            out,
            "<section class=\"card file\" id=\"c{}\"><h2 class=\"path\">{}</h2>",
            index,
            changed.shown(path)
        );
        match is_hidden(path) {
            true => html!(out, "<p class=\"note\">The contents are left out.</p>"),
            false => super::export_file(session, &changed, index, &mut out)?,
        }
        html!(out, "</section>");
    }
    html!(out, "</main></body></html>");
    Ok(out)
}
