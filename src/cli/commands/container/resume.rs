//! `nono container resume`: the way out of a restore that was interrupted.

use std::time::Duration;

use clap::Args;

use super::restore::{safety_snapshot, tell_not_started};
use crate::cli::Outcome;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::progress::Bar;
use nono_container::restore::{Direction, HealthCheck, ResumeReport, interrupted, resume};
use nono_container::{ContainerHistory, Docker, LocalStorage};
use nono_engine::path_text::Shown;

/// Arguments of `nono container resume`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ResumeArgs {
    /// Id of a session, or a container's name [default: every interrupted restore]
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Take the restore back instead of finishing it
    #[arg(long)]
    abort: bool,
    /// Forget the restore, and leave containers and volumes as they are now
    #[arg(long, conflicts_with = "abort", requires = "id")]
    give_up: bool,
    /// Time in which a replacement has to prove that it works, in seconds
    #[arg(long, value_name = "N", default_value_t = 5)]
    health_seconds: u64,
    /// Print the reports as a JSON list
    #[arg(long)]
    json: bool,
}

pub(in crate::cli) fn run(args: &ResumeArgs, storage: &LocalStorage, context: &Context) -> Outcome {
    let histories = match &args.id {
        Some(id) => vec![ContainerHistory::find(storage, id)?.history],
        None => ContainerHistory::all(storage)?,
    };
    let direction = match (args.abort, args.give_up) {
        (true, _) => Direction::TakeBack,
        (_, true) => Direction::GiveUp,
        _ => Direction::Finish,
    };
    let check = HealthCheck { time: Duration::from_secs(args.health_seconds), command: None };
    let mut reports: Vec<ResumeReport> = Vec::new();
    let mut failures: Vec<CliError> = Vec::new();
    let mut waiting = Vec::new();
    for history in histories {
        match interrupted(&history) {
            // It may be a damaged list alone that has to go.
            _ if args.give_up => waiting.push(history),
            Ok(None) => {}
            Ok(Some(_)) => waiting.push(history),
            Err(error) => failures.push(error.into()),
        }
    }
    if !waiting.is_empty() {
        let docker = Docker::connect()?;
        let bar = Bar::new(context, "restoring");
        for history in &waiting {
            // The outcome of each is reported, whatever the outcome of another.
            let message = format!("before the resume of a restore of {}", history.container().name);
            let safety = safety_snapshot(&docker, storage, message, bar.clone());
            match resume(&docker, history, direction, &check, &safety, &*bar) {
                Ok(report) => reports.extend(report),
                Err(error) => failures.push(error.into()),
            }
        }
        bar.finish();
    }
    if args.json {
        context.json(&reports)?;
    } else {
        for report in &reports {
            tell(report, context);
        }
    }
    let last = failures.pop();
    for error in &failures {
        context.error(error);
    }
    if let Some(error) = last {
        return Err(error);
    }
    if reports.is_empty() && !args.json {
        context.say("no restore of a container was interrupted");
    }
    let is_unfinished =
        |report: &ResumeReport| direction == Direction::Finish && !report.is_finished;
    Ok(u8::from(reports.iter().any(is_unfinished)))
}

fn tell(report: &ResumeReport, context: &Context) {
    let name = Shown::bytes(report.name.as_bytes());
    let ResumeReport { session_id, snapshot, .. } = report;
    if let Some(health) = report.health.as_ref().filter(|health| !health.is_healthy) {
        let finding = Shown::bytes(health.finding.as_bytes());
        context.warn(format_args!("the new container is not healthy: {finding}"));
    }
    if let Some(found) = &report.safety_snapshot {
        context.say(format_args!("the volumes as they were found are in {found}"));
    }
    for entry in &report.not_made {
        let entry = Shown::bytes(entry.as_bytes());
        context.warn(format_args!("{entry}: this user cannot make sockets and devices"));
    }
    for aside in &report.set_aside {
        context.say(format_args!("set aside as {}", Shown::path(aside)));
    }
    if report.is_given_up {
        context.say(format_args!(
            "the restore of {name} is forgotten: containers and volumes are as it left them"
        ));
        return;
    }
    if let Some(not_started) = &report.not_started {
        tell_not_started(not_started, &report.name, false, context);
    }
    let Some(snapshot) = snapshot else { return };
    if report.is_finished {
        context.say(format_args!("the restore of {name} from {session_id}/{snapshot} is complete"));
    } else if let Some(kept) = &report.kept_as {
        let kept = Shown::bytes(kept.as_bytes());
        context.say(format_args!(
            "the restore of {name} is taken back; the new container had run, so it is kept with \
             its volumes, stopped, as {kept}"
        ));
    } else {
        context.say(format_args!("the restore of {name} is taken back: all is as it was before"));
    }
}
