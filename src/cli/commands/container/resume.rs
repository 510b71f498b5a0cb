//! `nono container resume`: the way out of a restore that was interrupted.

use std::time::Duration;

use clap::Args;

use crate::cli::Outcome;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::progress::Bar;
use crate::container::restore::{Direction, HealthCheck, ResumeReport, interrupted, resume};
use crate::container::{ContainerHistory, Docker, LocalStorage};
use crate::path_text::Shown;

/// Arguments of `nono container resume`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ResumeArgs {
    /// Id of a session, or a container's name [default: every interrupted restore]
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Take the restore back instead of finishing it
    #[arg(long)]
    abort: bool,
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
    let mut waiting = Vec::new();
    for history in histories {
        if interrupted(&history)?.is_some() {
            waiting.push(history);
        }
    }
    let direction = if args.abort { Direction::TakeBack } else { Direction::Finish };
    let check = HealthCheck { time: Duration::from_secs(args.health_seconds), command: None };
    let mut reports: Vec<ResumeReport> = Vec::new();
    let mut failures: Vec<CliError> = Vec::new();
    if !waiting.is_empty() {
        let docker = Docker::connect()?;
        let bar = Bar::new(context, "restoring");
        for history in &waiting {
            // The outcome of each is reported, whatever the outcome of another.
            match resume(&docker, history, direction, &check, &*bar) {
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
    if waiting.is_empty() && !args.json {
        context.say("no restore of a container was interrupted");
    }
    let is_unfinished = |report: &ResumeReport| !args.abort && !report.is_finished;
    Ok(u8::from(reports.iter().any(is_unfinished)))
}

fn tell(report: &ResumeReport, context: &Context) {
    let name = Shown::bytes(report.name.as_bytes());
    let ResumeReport { session_id, snapshot, .. } = report;
    if let Some(health) = report.health.as_ref().filter(|health| !health.is_healthy) {
        let finding = Shown::bytes(health.finding.as_bytes());
        context.warn(format_args!("the new container is not healthy: {finding}"));
    }
    if report.is_finished {
        context.say(format_args!("the restore of {name} from {session_id}/{snapshot} is complete"));
    } else {
        context.say(format_args!("the restore of {name} is taken back: all is as it was before"));
    }
}
