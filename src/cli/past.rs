//! Which sessions are asked about the past: those that concern a place, as far as they can be read.

use std::path::Path;

use super::context::Context;
use super::error::CliError;
use crate::cli::offer::NONO;
use nono_engine::history::{Damaged, Objects, Origin, Place};
use nono_engine::session::{Catalog, SessionSummary};
use nono_engine::snapshot::{SessionDir, SnapshotKind, SnapshotManifest, StepEntry};

/// Sessions that are asked, oldest id first, and their objects.
pub(super) struct Past {
    pub(super) sessions: Vec<SessionDir>,
    pub(super) summaries: Vec<SessionSummary>,
    pub(super) objects: Objects,
    /// Sessions that cannot be asked, or not about all.
    pub(super) damaged: Vec<Damaged>,
}

impl Past {
    /// The sessions that `concerns` lets through.
    pub(super) fn of(
        catalog: &Catalog,
        concerns: impl Fn(&SessionSummary) -> bool,
    ) -> Result<Self, CliError> {
        let (mut sessions, mut summaries, mut damaged) = (Vec::new(), Vec::new(), Vec::new());
        for session in catalog.sessions()? {
            match SessionSummary::of(&session) {
                Ok(summary) if concerns(&summary) => {
                    sessions.push(session);
                    summaries.push(summary);
                }
                Ok(_) => {}
                // Removed since it was listed.
                Err(_) if session.is_gone() => {}
                Err(error) => {
                    damaged.push(Damaged { session_id: session.id(), error: error.into() });
                }
            }
        }
        let (objects, unopened) = Objects::of(&sessions);
        damaged.extend(unopened);
        Ok(Self { sessions, summaries, objects, damaged })
    }

    /// The summary of a session, by id.
    pub(super) fn summary(&self, session_id: &str) -> Option<&SessionSummary> {
        self.summaries.iter().find(|summary| summary.session_id == session_id)
    }

    /// The step that made the state of a snapshot, if a step did.
    pub(super) fn step(&self, place: &Place, origin: Origin) -> Option<StepEntry> {
        let summary = self.summary(&place.session_id)?;
        if origin != Origin::Session || summary.step_count == 0 {
            return None;
        }
        let session = self.sessions.iter().find(|session| session.id() == place.session_id)?;
        let steps = nono_engine::session::steps(session).ok()?;
        steps.into_iter().find(|step| step.number == place.number)
    }

    /// The session that began last.
    pub(super) fn newest(&self) -> Option<&SessionDir> {
        let now = jiff::Timestamp::now();
        let recency = |summary: &SessionSummary| {
            nono_engine::snapshot::Recency::new(summary.started, summary.session_id.as_str(), now)
        };
        let recorded = self.summaries.iter().filter(|summary| !summary.received);
        let newest = recorded.max_by_key(|summary| recency(summary))?;
        self.sessions.iter().find(|session| session.id() == newest.session_id)
    }
}

/// The changes of a session: from the baseline to its last state, or of one snapshot.
pub(super) fn compared(
    session: &SessionDir,
    snapshot: Option<u64>,
) -> Result<(SnapshotManifest, SnapshotManifest), CliError> {
    if let Some(number) = snapshot {
        let new = session.manifest(number)?.manifest;
        let before = session.held_before(number)?.unwrap_or(number);
        let old = session.manifest(before)?.manifest;
        return Ok((old, new));
    }
    let numbers = session.recorded_numbers()?;
    let mut last = None;
    for number in numbers.iter().rev() {
        let manifest = session.manifest(*number)?.manifest;
        // A restore is the work of the user and not of the command.
        let is_ordinary = manifest.kind == SnapshotKind::Ordinary;
        last.get_or_insert_with(|| manifest.clone());
        if is_ordinary {
            last = Some(manifest);
            break;
        }
    }
    let last =
        last.ok_or_else(|| CliError::failed(format!("session {} has no snapshot", session.id())))?;
    Ok((session.manifest(session.first_number()?)?.manifest, last))
}

/// Names what could not be asked. Whether there was nothing to name.
pub(super) fn name_damaged(damaged: &[Damaged], context: &Context) -> bool {
    for Damaged { session_id, error } in damaged {
        context.warn(format_args!("{error} ({NONO} verify {session_id})"));
    }
    damaged.is_empty()
}

/// A path as it is typed here: relative to the current directory, if it lies in it.
pub(super) fn typed_here<'a>(path: &'a Path, current_dir: &Path) -> &'a Path {
    match path.strip_prefix(current_dir) {
        Ok(inside) if inside.as_os_str().is_empty() => Path::new("."),
        Ok(inside) => inside,
        Err(_) => path,
    }
}
