//! `nono rollback usage`: how much space sessions take, by project.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, ThreadArgs, real_home};
use crate::cli::context::{BOLD, Context, DIM};
use crate::cli::error::CliError;
use crate::cli::progress::Bar;
use crate::cli::render::{byte_size, project_name};
use crate::gc::{CleanupOptions, measure_holdings};
use crate::path_text::serde_paths;
use crate::session::{Catalog, SessionSummary};
use crate::snapshot::SessionDir;

/// Arguments of `nono rollback usage`.
#[derive(Debug, Args)]
pub(in crate::cli) struct UsageArgs {
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Bytes of objects on the disk.
#[derive(Debug, Default, Serialize)]
struct Report {
    total_bytes: u64,
    /// The bytes of all objects, uncompressed.
    plain_bytes: u64,
    /// The bytes that sessions of several projects need.
    shared_bytes: u64,
    /// The bytes that no session needs.
    unneeded_bytes: u64,
    projects: Vec<ProjectReport>,
}

#[derive(Debug, Serialize)]
struct ProjectReport {
    #[serde(with = "serde_paths")]
    tracked_paths: Vec<PathBuf>,
    /// The bytes that the removal of all sessions of the project frees.
    bytes: u64,
    /// Newest first.
    sessions: Vec<SessionReport>,
}

#[derive(Debug, Serialize)]
struct SessionReport {
    session_id: String,
    /// The bytes that the removal of this session alone frees.
    bytes: u64,
    pinned: bool,
}

pub(in crate::cli) fn run(args: &UsageArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    let threads = args.threads.count(context)?;
    let bar = Bar::new(context, "looking at what sessions take");
    let options = CleanupOptions { threads, progress: &*bar, ..CleanupOptions::default() };
    let mut report = Report::default();
    let measured = catalog
        .roots()
        .iter()
        .filter(|root| Catalog::is_store(root))
        .try_for_each(|root| add(root.clone(), &options, &mut report));
    bar.finish();
    measured?;
    report.projects.sort_by_key(|project| std::cmp::Reverse(project.bytes));
    if args.json {
        context.json(&report)?;
    } else {
        print(&report, context)?;
    }
    Ok(0)
}

/// Adds what one store holds.
fn add(root: PathBuf, options: &CleanupOptions<'_>, report: &mut Report) -> Result<(), CliError> {
    let mut summaries = Vec::new();
    for session in Catalog::new(root.clone(), []).sessions()? {
        match SessionSummary::of(&session) {
            Ok(summary) => summaries.push((session, summary)),
            Err(_) if session.is_gone() => {}
            Err(error) => return Err(error.into()),
        }
    }
    let named =
        |(session, summary): &(SessionDir, SessionSummary)| (session.clone(), summary.project());
    let sessions: Vec<_> = summaries.iter().map(named).collect();
    let holdings = measure_holdings(&root, &sessions, options)?;
    report.total_bytes += holdings.total_bytes;
    report.plain_bytes += holdings.plain_bytes;
    report.shared_bytes += holdings.shared_bytes;
    report.unneeded_bytes += holdings.unneeded_bytes;
    let mut projects: BTreeMap<String, ProjectReport> = BTreeMap::new();
    for ((_, summary), bytes) in summaries.into_iter().zip(&holdings.session_bytes).rev() {
        let name = summary.project();
        let of_project = holdings.project_bytes.get(&name).copied().unwrap_or(0);
        let SessionSummary { session_id, pinned, tracked_paths, .. } = summary;
        let project = projects.entry(name).or_insert_with(|| ProjectReport {
            tracked_paths,
            bytes: of_project,
            sessions: Vec::new(),
        });
        project.sessions.push(SessionReport { session_id, bytes: *bytes, pinned });
    }
    report.projects.extend(projects.into_values());
    Ok(())
}

fn print(report: &Report, context: &Context) -> Result<(), CliError> {
    let home = real_home();
    let mut out = context.out();
    for ProjectReport { tracked_paths, bytes, sessions } in &report.projects {
        let size = byte_size(*bytes);
        writeln!(out, "{BOLD}{}{BOLD:#}  {size}", project_name(tracked_paths, home.as_deref()))?;
        for SessionReport { session_id, bytes, pinned } in sessions {
            let pinned = if *pinned { "  pinned" } else { "" };
            writeln!(out, "  {session_id}  {}{pinned}", byte_size(*bytes))?;
        }
    }
    let Report { total_bytes, plain_bytes, shared_bytes, unneeded_bytes, .. } = report;
    let total = byte_size(*total_bytes);
    if plain_bytes > total_bytes && *total_bytes > 0 {
        let ratio = *plain_bytes as f64 / *total_bytes as f64;
        writeln!(out, "in all {total}, {} uncompressed ({ratio:.1} ×)", byte_size(*plain_bytes))?;
    } else {
        writeln!(out, "in all {total}")?;
    }
    for (bytes, what) in
        [(shared_bytes, "several projects need"), (unneeded_bytes, "no session needs")]
    {
        if *bytes > 0 {
            writeln!(out, "{DIM}{} that {what}{DIM:#}", byte_size(*bytes))?;
        }
    }
    Ok(())
}
