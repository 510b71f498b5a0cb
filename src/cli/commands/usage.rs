//! `nono usage`: how much space sessions take, by project.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, ThreadArgs, real_home};
use crate::cli::context::{BOLD, Context, DIM};
use crate::cli::error::CliError;
use crate::cli::metrics::Metrics;
use crate::cli::progress::Bar;
use crate::cli::render::{byte_size, project_name};
use nono_engine::fork::Forks;
use nono_engine::gc::{
    Bytes, CleanupOptions, Holdings, SessionHoldings, UnreadSession, disk_usage, measure_holdings,
};
use nono_engine::path_text::{Shown, serde_path, serde_paths};
use nono_engine::session::{Catalog, SessionSummary, project_of};

/// Arguments of `nono usage`.
#[derive(Debug, Args)]
pub(in crate::cli) struct UsageArgs {
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Print numbers in the text format of Prometheus, for a textfile collector
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
}

/// Maximum number of the largest paths that are named.
const NAMED_PATHS: usize = 10;

/// Bytes on the disk.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// The blocks of everything in the store, with indexes, caches and journals.
    disk_bytes: u64,
    /// The bytes of all objects.
    total_bytes: u64,
    /// The bytes of all objects, uncompressed.
    plain_bytes: u64,
    /// The uncompressed bytes for each one on the disk; `None` where there is none.
    ratio: Option<f64>,
    /// The bytes that sessions of several projects need.
    shared_bytes: u64,
    /// The bytes that no session needs.
    unneeded_bytes: u64,
    projects: Vec<ProjectReport>,
    /// The layers of forks.
    forks: Vec<ForkReport>,
    /// The files whose versions take the most space, the largest first.
    largest_paths: Vec<PathReport>,
    /// Sessions that cannot be read: their share is not known.
    unread_sessions: Vec<UnreadSession>,
}

#[derive(Debug, Serialize)]
struct ProjectReport {
    #[serde(with = "serde_paths")]
    tracked_paths: Vec<PathBuf>,
    /// The bytes that the removal of all sessions of the project frees.
    bytes: u64,
    /// The same, uncompressed.
    plain_bytes: u64,
    /// Newest first.
    sessions: Vec<SessionReport>,
}

#[derive(Debug, Serialize)]
struct SessionReport {
    session_id: String,
    /// The bytes that the removal of this session alone frees.
    bytes: u64,
    /// The same, uncompressed.
    plain_bytes: u64,
    /// The bytes of all that it needs, also of what other sessions need.
    needed_bytes: u64,
    /// The same, uncompressed.
    needed_plain_bytes: u64,
    pinned: bool,
    #[serde(skip)]
    started: jiff::Timestamp,
}

#[derive(Debug, Serialize)]
struct ForkReport {
    name: String,
    session_id: String,
    #[serde(with = "serde_paths")]
    tracked_paths: Vec<PathBuf>,
    /// The bytes that its layers take on the disk.
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct PathReport {
    #[serde(with = "serde_path")]
    path: PathBuf,
    /// The bytes of its contents in all snapshots.
    bytes: u64,
    /// The same, uncompressed.
    plain_bytes: u64,
    /// Number of different contents.
    versions: usize,
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
        .try_for_each(|root| add(root, &options, &mut report));
    bar.finish();
    measured?;
    report.projects.sort_by_key(|project| std::cmp::Reverse(project.bytes));
    report.largest_paths.sort_by_key(|path| std::cmp::Reverse(path.bytes));
    report.largest_paths.truncate(NAMED_PATHS);
    report.ratio =
        (report.total_bytes > 0).then(|| report.plain_bytes as f64 / report.total_bytes as f64);
    if args.json {
        context.json(&report)?;
    } else if args.prometheus {
        context.out_bytes().write_all(report.metrics().to_string().as_bytes())?;
    } else {
        print(&report, context)?;
    }
    for UnreadSession { session_id, reason } in &report.unread_sessions {
        context.warn(format_args!("the share of session {session_id} is not known: {reason}"));
    }
    Ok(u8::from(!report.unread_sessions.is_empty()))
}

/// The holdings of the sessions of one store, the oldest first, and those of the store.
fn measure(
    root: &Path,
    path_count: usize,
    options: &CleanupOptions<'_>,
) -> Result<(Vec<SessionSummary>, Holdings), CliError> {
    let (mut sessions, mut summaries, mut unread) = (Vec::new(), Vec::new(), Vec::new());
    for session in Catalog::new(root.to_owned(), []).sessions()? {
        match SessionSummary::of(&session) {
            Ok(summary) => {
                sessions.push((session, summary.project()));
                summaries.push(summary);
            }
            Err(_) if session.is_gone() => {}
            Err(error) => {
                let (session_id, reason) = (session.id(), error.to_string());
                unread.push(UnreadSession { session_id, reason });
            }
        }
    }
    let mut holdings = measure_holdings(root, &sessions, path_count, options)?;
    holdings.unread.append(&mut unread);
    Ok((summaries, holdings))
}

/// The holdings of each session of some stores, by its id.
pub(super) fn session_holdings(
    catalog: &Catalog,
    options: &CleanupOptions<'_>,
) -> Result<HashMap<String, SessionHoldings>, CliError> {
    let mut held = HashMap::new();
    for root in catalog.roots().iter().filter(|root| Catalog::is_store(root)) {
        let (summaries, holdings) = measure(root, 0, options)?;
        let ids = summaries.into_iter().map(|summary| summary.session_id);
        held.extend(ids.zip(holdings.sessions));
    }
    Ok(held)
}

/// Adds what one store holds.
fn add(root: &Path, options: &CleanupOptions<'_>, report: &mut Report) -> Result<(), CliError> {
    let (summaries, mut holdings) = measure(root, NAMED_PATHS, options)?;
    report.unread_sessions.append(&mut holdings.unread);
    report.disk_bytes += disk_usage(root)?;
    report.total_bytes += holdings.total.stored;
    report.plain_bytes += holdings.total.plain;
    report.shared_bytes += holdings.shared.stored;
    report.unneeded_bytes += holdings.unneeded.stored;
    for fork in Forks::new(root).list()? {
        // One that is damaged is named where forks are listed.
        let measured = fork.and_then(|fork| Ok((fork.disk_bytes()?, fork)));
        if let Ok((bytes, fork)) = measured {
            report.forks.push(ForkReport {
                name: fork.name().to_owned(),
                session_id: fork.document().session.clone(),
                tracked_paths: fork.recorded_paths().cloned().collect(),
                bytes,
            });
        }
    }
    let mut projects: BTreeMap<String, ProjectReport> = BTreeMap::new();
    for (summary, held) in summaries.into_iter().zip(&holdings.sessions).rev() {
        let name = summary.project();
        let of_project = holdings.projects.get(&name).copied().unwrap_or_default();
        let SessionSummary { session_id, pinned, tracked_paths, started, .. } = summary;
        let project = projects.entry(name).or_insert_with(|| ProjectReport {
            tracked_paths,
            bytes: of_project.stored,
            plain_bytes: of_project.plain,
            sessions: Vec::new(),
        });
        let SessionHoldings { own, needed } = *held;
        project.sessions.push(SessionReport {
            session_id,
            bytes: own.stored,
            plain_bytes: own.plain,
            needed_bytes: needed.stored,
            needed_plain_bytes: needed.plain,
            pinned,
            started,
        });
    }
    report.projects.extend(projects.into_values());
    let paths = holdings.largest_paths.into_iter().map(|large| {
        let Bytes { stored: bytes, plain: plain_bytes } = large.bytes;
        PathReport { path: large.path, bytes, plain_bytes, versions: large.versions }
    });
    report.largest_paths.extend(paths);
    Ok(())
}

impl Report {
    /// The report as numbers for Prometheus. The tracked paths of a project are its label.
    fn metrics(&self) -> Metrics {
        let mut metrics = Metrics::default();
        let total = [
            ("nono_store_disk_bytes", "Space on the disk.", self.disk_bytes),
            ("nono_store_object_bytes", "Recorded contents.", self.total_bytes),
            ("nono_store_plain_bytes", "Recorded contents, uncompressed.", self.plain_bytes),
            ("nono_store_shared_bytes", "Space that several projects need.", self.shared_bytes),
            ("nono_store_unneeded_bytes", "Space that no session needs.", self.unneeded_bytes),
            (
                "nono_unread_sessions",
                "Sessions that cannot be read.",
                self.unread_sessions.len() as u64,
            ),
        ];
        for (name, help, value) in total {
            metrics.family(name, help).sample(None, value as f64);
        }
        let of_projects: [OfProject; 4] = [
            ("nono_sessions", "Sessions of a project.", |it| it.sessions.len() as f64),
            ("nono_pinned_sessions", "Pinned sessions of a project.", |it| {
                it.sessions.iter().filter(|session| session.pinned).count() as f64
            }),
            ("nono_project_bytes", "Space that the removal of a project's sessions frees.", |it| {
                it.bytes as f64
            }),
            ("nono_last_session_timestamp_seconds", "Begin of a project's newest session.", |it| {
                let begins = it.sessions.iter().map(|session| session.started.as_second());
                begins.max().unwrap_or_default() as f64
            }),
        ];
        for (name, help, value) in of_projects {
            let mut family = metrics.family(name, help);
            for project in &self.projects {
                let label = project_of(&project.tracked_paths);
                family.sample(Some(("project", &label)), value(project));
            }
        }
        let mut family = metrics.family("nono_fork_bytes", "Space of the layers of a fork.");
        for fork in &self.forks {
            family.sample(Some(("fork", &fork.name)), fork.bytes as f64);
        }
        metrics
    }
}

/// A number of each project: the name of its family, its help, and its value.
type OfProject = (&'static str, &'static str, fn(&ProjectReport) -> f64);

/// A size, and what it is uncompressed where that is more.
fn sizes(bytes: u64, plain: u64) -> String {
    match plain > bytes {
        true => format!("{}, {} uncompressed", byte_size(bytes), byte_size(plain)),
        false => byte_size(bytes),
    }
}

fn print(report: &Report, context: &Context) -> Result<(), CliError> {
    let home = real_home();
    let mut out = context.out();
    let disk = byte_size(report.disk_bytes);
    writeln!(out, "{BOLD}{disk} on the disk{BOLD:#}, with indexes and caches")?;
    for ProjectReport { tracked_paths, bytes, plain_bytes, sessions } in &report.projects {
        let name = project_name(tracked_paths, home.as_deref());
        writeln!(out, "{BOLD}{name}{BOLD:#}  {}", sizes(*bytes, *plain_bytes))?;
        for session in sessions {
            let SessionReport { session_id, bytes, plain_bytes, needed_bytes, .. } = session;
            let pinned = if session.pinned { "  pinned" } else { "" };
            let (own, needed) = (sizes(*bytes, *plain_bytes), byte_size(*needed_bytes));
            writeln!(out, "  {session_id}  {own} {DIM}of {needed}{DIM:#}{pinned}")?;
        }
    }
    if !report.forks.is_empty() {
        let bytes = report.forks.iter().map(|fork| fork.bytes).sum();
        writeln!(out, "{BOLD}layers of forks{BOLD:#}  {}", byte_size(bytes))?;
    }
    for ForkReport { name, tracked_paths, bytes, .. } in &report.forks {
        let project = project_name(tracked_paths, home.as_deref());
        writeln!(out, "  {name}  {project}  {}", byte_size(*bytes))?;
    }
    if !report.largest_paths.is_empty() {
        writeln!(out, "{BOLD}largest files, with all their versions{BOLD:#}")?;
    }
    for PathReport { path, bytes, plain_bytes, versions } in &report.largest_paths {
        let path = Shown::path(path);
        let versions =
            if *versions == 1 { String::new() } else { format!(", {versions} versions") };
        writeln!(out, "  {path}  {}{versions}", sizes(*bytes, *plain_bytes))?;
    }
    let Report { total_bytes, plain_bytes, shared_bytes, unneeded_bytes, .. } = report;
    let total = byte_size(*total_bytes);
    if let Some(ratio) = report.ratio.filter(|_| plain_bytes > total_bytes) {
        let plain = byte_size(*plain_bytes);
        writeln!(out, "contents in all {total}, {plain} uncompressed ({ratio:.1} ×)")?;
    } else {
        writeln!(out, "contents in all {total}")?;
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
