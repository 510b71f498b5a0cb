//! The state of an agent that was recorded in another home directory: what lay below that home
//! comes back below the home here. So a state moves to another machine or another user.
//!
//! Nothing that is there is overwritten without `--force`, and then it becomes a session of its own
//! first. Paths outside of the recorded home have no place here: they are named and left out.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::Restoring;
use crate::cli::Outcome;
use crate::cli::args::real_home;
use crate::cli::context::{Context, GREEN, YELLOW};
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use nono_engine::path_text::{Shown, serde_path, serde_paths};
use nono_engine::progress::NoProgress;
use nono_engine::restore::{
    CopyOptions, InPlace, KeepBefore, OnConflict, PlannedCopy, Selection, Skipped,
};
use nono_engine::session::{RecordRequest, Recording};
use nono_engine::snapshot::{Budget, SessionDir, SessionOrigin};
use nono_engine::store::Compression;
use nono_engine::walk::ExclusionConfig;

/// Two home directories, without symlinks.
pub(in crate::cli) struct AnotherHome {
    recorded: PathBuf,
    here: PathBuf,
}

#[derive(Serialize)]
struct HomeReport {
    session_id: String,
    snapshot: u64,
    dry_run: bool,
    /// The home directory in which the state was recorded.
    #[serde(with = "serde_path")]
    recorded_home: PathBuf,
    /// The one in which it is restored.
    #[serde(with = "serde_path")]
    home: PathBuf,
    #[serde(with = "serde_paths")]
    created: Vec<PathBuf>,
    #[serde(with = "serde_paths")]
    overwritten: Vec<PathBuf>,
    /// Number of paths that are as recorded already.
    unchanged_count: u64,
    /// Paths that differ from the record, and stay.
    #[serde(with = "serde_paths")]
    left: Vec<PathBuf>,
    /// Paths that did not come back, or not as recorded.
    skipped: Vec<Skipped>,
    /// The session that has what was overwritten.
    state_before: Option<String>,
}

impl AnotherHome {
    /// The homes of the state of an agent, if they are two.
    pub(in crate::cli) fn of(session: &SessionDir) -> Result<Option<Self>, CliError> {
        let metadata = session.metadata()?;
        let recorded = metadata.home.filter(|_| metadata.origin == SessionOrigin::AgentState);
        let (Some(recorded), Some(here)) = (recorded, real_home()) else { return Ok(None) };
        Ok((recorded != here).then_some(Self { recorded, here }))
    }

    /// Restores, or says what that would do.
    pub(in crate::cli) fn restore(
        &self,
        work: &Restoring<'_>,
        is_dry_run: bool,
        compression: Compression,
        context: &Context,
    ) -> Outcome {
        let Self { recorded, here } = self;
        let (manager, asked) = (work.job.manager(), work.job.options());
        let number = work.job.snapshot();
        let on_conflict = asked.on_conflict;
        let mut selection = asked.selection.clone();
        for path in selection.paths.iter_mut().chain(&mut selection.exclude) {
            // Paths are named as they are here.
            if let Ok(inside) = path.strip_prefix(here) {
                *path = recorded.join(inside);
            }
        }
        let options = CopyOptions {
            selection,
            overwrite: on_conflict == OnConflict::Overwrite,
            with_privileges: asked.with_privileges,
            base: Some(recorded.clone()),
            in_store: false,
        };
        let planned = manager.plan_copy(number, here, &options)?;
        let (mut created, mut overwritten, mut left) = (Vec::new(), Vec::new(), Vec::new());
        let mut copied = Vec::new();
        for PlannedCopy { path, place, found } in &planned {
            let list = match found {
                InPlace::Same => continue,
                InPlace::Nothing => &mut created,
                InPlace::Other if on_conflict == OnConflict::Overwrite => &mut overwritten,
                InPlace::Other => {
                    left.push(place.clone());
                    continue;
                }
            };
            list.push(place.clone());
            copied.push(path.clone());
        }
        let unchanged = planned.iter().filter(|it| it.found == InPlace::Same).count();
        let outside = work.roots.iter().filter(|root| !root.starts_with(recorded));
        let skipped = outside.map(|root| Skipped {
            path: root.clone(),
            reason: format!("it lay outside of the home {}", Shown::path(recorded)),
        });
        let mut report = HomeReport {
            session_id: work.session().id(),
            snapshot: number,
            dry_run: is_dry_run,
            recorded_home: recorded.clone(),
            home: here.clone(),
            created,
            overwritten,
            unchanged_count: unchanged as u64,
            left,
            skipped: skipped.collect(),
            state_before: None,
        };
        let is_refused = on_conflict == OnConflict::Refuse && !report.left.is_empty();
        if !is_dry_run && !is_refused && !copied.is_empty() {
            if !report.overwritten.is_empty() && asked.keep_before != KeepBefore::Nothing {
                report.state_before = Some(self.keep(&report, work, compression)?);
            }
            let selection = Selection { paths: copied, ..Selection::default() };
            let bar = Bar::new(context, "restoring");
            let manager = manager.clone().with_progress(bar.clone());
            let done = manager.copy_out(number, here, &CopyOptions { selection, ..options });
            bar.finish();
            report.skipped.extend(done?.skipped);
        }
        self.print(&report, is_refused, work.is_for_program, context)?;
        let is_kept = on_conflict == OnConflict::KeepNewer || report.left.is_empty();
        Ok(u8::from(!is_kept || !report.skipped.is_empty()))
    }

    /// Records what is about to be overwritten, and gives the id of that session.
    fn keep(
        &self,
        report: &HomeReport,
        work: &Restoring<'_>,
        compression: Compression,
    ) -> Result<String, CliError> {
        let request = RecordRequest {
            root: work.catalog.root().to_owned(),
            command: Vec::new(),
            tracked_paths: report.overwritten.clone(),
            exclusion: ExclusionConfig::nothing(),
            budget: Budget::UNLIMITED,
            compression,
            threads: 0,
            origin: SessionOrigin::AgentState,
            label: Some(format!("before restore of {}/{}", report.session_id, report.snapshot)),
        };
        let recording = Recording::start(&request, Arc::new(NoProgress))?;
        note_home(&recording, Some(&self.here))?;
        Ok(recording.session_id())
    }

    fn print(
        &self,
        report: &HomeReport,
        is_refused: bool,
        is_for_program: bool,
        context: &Context,
    ) -> Result<(), CliError> {
        if is_for_program {
            return context.json(report);
        }
        let HomeReport { created, overwritten, left, skipped, .. } = report;
        let mut out = context.out_done(report.dry_run);
        if !is_refused {
            for path in created {
                writeln!(out, "  {GREEN}+{GREEN:#} {}", Shown::path(path))?;
            }
            for path in overwritten {
                writeln!(out, "  {YELLOW}~{YELLOW:#} {}", Shown::path(path))?;
            }
        }
        for path in left {
            writeln!(
                out,
                "{YELLOW}! left{YELLOW:#}  {}: it is not as recorded",
                Shown::path(path)
            )?;
        }
        for Skipped { path, reason } in skipped {
            writeln!(out, "{YELLOW}! left{YELLOW:#}  {}: {reason}", Shown::path(path))?;
        }
        out.flush()?;
        let homes =
            format!("{} (recorded in {})", Shown::path(&self.here), Shown::path(&self.recorded));
        let counts = format!(
            "{} new, {} overwritten, {} as recorded already",
            created.len(),
            overwritten.len(),
            report.unchanged_count
        );
        match (is_refused, report.dry_run) {
            (true, true) => context.say(format_args!("nothing would be changed in {homes}")),
            (true, false) => context.say(format_args!("nothing was changed in {homes}")),
            (false, true) => context.say(format_args!("would be restored in {homes}: {counts}")),
            (false, false) => context.say(format_args!("restored in {homes}: {counts}")),
        }
        if is_refused {
            context
                .say("  overwrite them: --force; leave them, and restore the rest: --keep-newer");
        }
        if let Some(id) = &report.state_before {
            context.say(format_args!(
                "what was overwritten is kept: {NONO} restore {id} --force brings it back"
            ));
        }
        Ok(())
    }
}

/// Notes in a session with the state of an agent which home directory its paths lie below.
pub(in crate::cli) fn note_home(
    recording: &Recording,
    home: Option<&Path>,
) -> Result<(), CliError> {
    let manager = recording.manager();
    let mut metadata = manager.session().metadata()?;
    metadata.home = home.map(Path::to_owned);
    manager.save_session_metadata(&metadata)?;
    Ok(())
}
