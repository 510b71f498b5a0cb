//! `nono rollback verify`: every manifest and every byte.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::{BOLD, Context, GREEN, RED};
use crate::cli::error::CliError;
use crate::cli::progress::Bar;
use crate::cli::render::byte_size;
use crate::object::ContentHash;
use crate::session::Catalog;
use crate::snapshot::SessionDir;
use crate::sys;
use crate::verify::{Verifier, VerifyOptions, VerifyReport};

/// Arguments of `nono rollback verify`.
#[derive(Debug, Args)]
pub(in crate::cli) struct VerifyArgs {
    /// Id of a session, a prefix of it, or `latest`
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    id: Option<String>,
    /// Verify all sessions
    #[arg(long)]
    all: bool,
    /// A Merkle root noted elsewhere, which must be that of one of the session's snapshots
    #[arg(long, value_name = "HEX", conflicts_with = "all")]
    expect_root: Option<ContentHash>,
    /// Print the report as JSON; with --all a list of reports
    #[arg(long)]
    json: bool,
}

pub(in crate::cli) fn run(args: &VerifyArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    let sessions = match &args.id {
        Some(id) => vec![catalog.find(id)?],
        None => catalog.sessions()?,
    };
    let bar = Bar::new(context, "verifying", true);
    let mut failures = Vec::new();
    let reports = verify(&sessions, args.expect_root, &bar, &mut failures);
    bar.finish();
    for failure in &failures {
        context.error(failure);
    }
    let ok = failures.is_empty() && reports.iter().all(|report| report.ok);
    if args.json {
        match reports.as_slice() {
            [report] if !args.all => context.json(report)?,
            reports => context.json(&reports)?,
        }
    } else {
        print(&reports, context)?;
    }
    Ok(u8::from(!ok))
}

/// Sessions that share a store share the work: each object is read once. A session of which nothing
/// can be said is a failure, and does not keep the others from being verified.
fn verify(
    sessions: &[SessionDir],
    expected_root: Option<ContentHash>,
    bar: &Bar,
    failures: &mut Vec<CliError>,
) -> Vec<VerifyReport> {
    let mut by_store: BTreeMap<PathBuf, Vec<&SessionDir>> = BTreeMap::new();
    for session in sessions {
        match sys::real_path(&session.objects_path()) {
            Ok(objects) => by_store.entry(objects).or_default().push(session),
            Err(error) => failures.push(error.into()),
        }
    }
    let options = VerifyOptions { progress: bar, expected_root, ..VerifyOptions::default() };
    let mut reports = Vec::new();
    for sessions in by_store.values() {
        let verified = verify_store(sessions, options, &mut reports, failures);
        failures.extend(verified.err());
    }
    reports
}

fn verify_store(
    sessions: &[&SessionDir],
    options: VerifyOptions<'_>,
    reports: &mut Vec<VerifyReport>,
    failures: &mut Vec<CliError>,
) -> Result<(), CliError> {
    let store = Catalog::store_of(sessions[0])?;
    let failed = |error: crate::verify::VerifyError| CliError::failed(error.to_string());
    let mut verifier = Verifier::new(&store, options).map_err(failed)?;
    for session in sessions {
        match verifier.session(session) {
            // Removed by a cleanup since it was listed: nothing is wrong with it.
            Ok(report) if !report.ok && SessionDir::open(session.path()).is_err() => {}
            Ok(report) => reports.push(report),
            Err(error) => failures.push(failed(error)),
        }
    }
    Ok(())
}

fn print(reports: &[VerifyReport], context: &Context) -> Result<(), CliError> {
    let mut out = context.out();
    for report in reports {
        let verdict =
            if report.ok { format!("{GREEN}ok{GREEN:#}") } else { format!("{RED}DAMAGED{RED:#}") };
        let id = &report.session_id;
        let size = byte_size(report.bytes_checked);
        let snapshots = report.snapshots.len();
        let plural = if snapshots == 1 { "" } else { "s" };
        writeln!(
            out,
            "{BOLD}{id}{BOLD:#}  {verdict}  {snapshots} snapshot{plural}, {} objects, {size}",
            report.objects_checked
        )?;
        for problem in &report.problems {
            writeln!(out, "  {problem}")?;
        }
    }
    if reports.is_empty() {
        context.say("no sessions to verify");
    }
    Ok(())
}
