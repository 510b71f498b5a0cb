//! `nono container validate`.

use std::io::Write;

use clap::Args;

use crate::cli::Outcome;
use crate::cli::context::Context;
use nono_container::{ContainerHistory, Docker, INCONSISTENT, LocalStorage, validate};
use nono_engine::counted::counted;
use nono_engine::path_text::Shown;

/// Arguments of `nono container validate`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ValidateArgs {
    /// A history or a snapshot: ID, ID/N, NAME or NAME/N; without it, all
    id: Option<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ValidateArgs, storage: &LocalStorage, context: &Context) -> Outcome {
    let picked = args.id.as_ref().map(|id| ContainerHistory::find(storage, id)).transpose()?;
    let named =
        picked.map(|picked| (picked.history.id(), picked.is_named.then_some(picked.number)));
    let docker = Docker::connect()?;
    let only = named.as_ref().map(|(id, number)| (id.as_str(), *number));
    let report = validate(storage, &docker, only)?;
    if args.json {
        context.json(&report)?;
    } else {
        let mut out = context.out();
        for problem in &report.problems {
            let text = Shown::bytes(problem.problem.as_bytes()).to_string();
            writeln!(out, "{}: {text}", problem.subject)?;
        }
        for snapshot in &report.inconsistent {
            writeln!(out, "{snapshot}: {INCONSISTENT}")?;
        }
        let snapshots = counted(report.snapshots_checked, "snapshot", "snapshots");
        let images = counted(report.images_checked, "image", "images");
        let problems = counted(report.problems.len(), "problem", "problems");
        writeln!(out, "{snapshots} and {images} checked, {problems}")?;
    }
    Ok(u8::from(!report.problems.is_empty()))
}
