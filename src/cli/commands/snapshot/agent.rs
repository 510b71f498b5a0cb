//! `nono snapshot --agent`: the memory, settings and skills of an agent, in a session of its own.
//!
//! The profiles name the paths. Credentials and caches are left out and named, because a session
//! may leave the machine.

use std::io::Write;
use std::path::PathBuf;

use serde::Serialize;

use super::{SnapshotArgs, report_missing, report_unstable};
use crate::agent::install::Place;
use crate::cli::Outcome;
use crate::cli::agent_grants::client_of;
use crate::cli::args::{real_home, surroundings};
use crate::cli::context::{BOLD, Context};
use crate::cli::error::CliError;
use crate::cli::progress::Bar;
use crate::cli::render::byte_size;
use crate::cli::restoring::note_home;
use crate::cli::snapshot_report::SnapshotReport;
use crate::config::{AgentState, ProfileLibrary, Settings, Surroundings, expand_patterns};
use nono_engine::counted::counted;
use nono_engine::diff::Comparison;
use nono_engine::path_text::{Shown, serde_paths};
use nono_engine::session::{Catalog, RecordRequest, Recording};
use nono_engine::snapshot::{NotCapturedReason, SessionOrigin};
use nono_engine::walk::ExclusionConfig;

/// An agent on this machine.
struct Detected {
    name: String,
    state: AgentState,
}

#[derive(Serialize)]
struct AgentReport {
    agent: String,
    /// Existing credentials, caches and histories that are not recorded.
    #[serde(with = "serde_paths")]
    left_out: Vec<PathBuf>,
    #[serde(flatten)]
    snapshot: SnapshotReport,
}

pub(super) fn run(
    args: &SnapshotArgs,
    name: &str,
    catalog: &Catalog,
    context: &Context,
) -> Outcome {
    let surroundings = surroundings()?;
    let settings = Settings::load(&surroundings, &args.threads.flags(args.capture.flags()))?;
    let mut reports = Vec::new();
    for Detected { name, state } in detected(name, &surroundings)? {
        context.say(format_args!("Platform detected: {name}"));
        for (path, what) in &state.unusable {
            context.warn(format_args!("not recorded: {}: {what}", Shown::path(path)));
        }
        let mut exclude_patterns = state.exclude_patterns;
        let of_flags = |texts: &[String]| expand_patterns(texts, &surroundings);
        exclude_patterns.extend(of_flags(&args.capture.rollback_exclude)?);
        let request = RecordRequest {
            root: catalog.root().to_owned(),
            command: Vec::new(),
            tracked_paths: state.paths,
            exclusion: ExclusionConfig {
                exclude_patterns,
                force_include: of_flags(&args.capture.rollback_include)?,
                ..ExclusionConfig::nothing()
            },
            budget: settings.budget(),
            compression: settings.compression.value,
            threads: settings.threads(),
            origin: SessionOrigin::AgentState,
            label: Some(args.message.clone().unwrap_or_else(|| format!("agent {name}"))),
        };
        let bar = Bar::new(context, "recording");
        let started = Recording::start(&request, bar.clone());
        bar.finish();
        let recording = started?;
        note_home(&recording, real_home().as_deref())?;
        let (session, manifest) = (recording.manager().session(), recording.baseline());
        let excluded = manifest
            .not_captured
            .iter()
            .filter(|left| matches!(left.reason, NotCapturedReason::Excluded { .. }));
        let mut left_out = state.left_out;
        left_out.extend(excluded.map(|left| left.path.clone()));
        left_out.sort();
        left_out.dedup();
        if !left_out.is_empty() {
            let names: Vec<String> =
                left_out.iter().map(|path| Shown::path(path).to_string()).collect();
            let names = names.join(", ");
            context.say(format_args!("  left out (credentials, caches, histories): {names}"));
        }
        for (link, real) in &state.links {
            context.say(format_args!(
                "  {} is recorded; the symlink {} to it is not",
                Shown::path(real),
                Shown::path(link)
            ));
        }
        report_missing(manifest, None, |_| false, context);
        report_unstable(&[manifest], &session.id(), context);
        let snapshot = SnapshotReport::of(session, manifest, Comparison::default());
        reports.push(AgentReport { agent: name, left_out, snapshot });
    }
    let has_gap = |report: &AgentReport| {
        report.snapshot.not_captured.iter().any(|left| left.reason.is_problem())
    };
    let code = u8::from(reports.iter().any(has_gap));
    if args.json {
        context.json(&reports)?;
        return Ok(code);
    }
    let mut out = context.out_done(false);
    for AgentReport { agent, snapshot, .. } in &reports {
        let SnapshotReport { session_id, number, file_count, total_bytes, .. } = snapshot;
        let size = byte_size(*total_bytes);
        let files = counted(*file_count, "file", "files");
        writeln!(out, "{BOLD}{session_id}/{number}{BOLD:#}  {agent}, {files}, {size}")?;
    }
    out.flush()?;
    Ok(code)
}

/// The agent of this name, or every agent with a state here.
fn detected(name: &str, surroundings: &Surroundings<'_>) -> Result<Vec<Detected>, CliError> {
    let library = ProfileLibrary::new(surroundings);
    let names = match name {
        "" => library.list()?.into_iter().map(|(name, _)| name).collect(),
        name => vec![name.to_owned()],
    };
    let mut found = Vec::new();
    for name in names {
        let profile = library.find(&name)?;
        let state = AgentState::of(&profile.profile, surroundings)?;
        if !state.is_empty() {
            let client = client_of(&profile);
            if let (Some(client), Some(home)) = (client, &surroundings.home) {
                // Where a variable misleads the agent, this is not the state that it has.
                Place::of_user(client, home, surroundings.variable)?;
            }
            // A profile of yours may extend the built-in one: the same paths, once.
            let is_same = |known: &Detected| known.state.paths == state.paths;
            if !found.iter().any(is_same) {
                found.push(Detected { name, state });
            }
        }
    }
    if !found.is_empty() {
        return Ok(found);
    }
    Err(match name {
        "" => CliError::failed("no agent is detected here: no state_paths of a profile exist")
            .with_hint("nono profile show claude-code lists those of one"),
        name => CliError::failed(format!("no state of {name} is here"))
            .with_hint(format!("nono profile show {name} lists its state_paths")),
    })
}
