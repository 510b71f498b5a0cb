//! Two runs on the same files: each of them is told, because what one changes is recorded by both.
//! So is what a restore changes while a run is at work.

use std::path::PathBuf;

use jiff::Timestamp;

use super::args::named_project;
use super::context::Context;
use super::restoring::command;
use nono_engine::session::{Catalog, Recording, restored_meanwhile, running_on, worked_meanwhile};
use nono_engine::snapshot::SessionDir;

/// The known runs that work on the paths of a run.
pub(super) struct Together {
    began: Timestamp,
    tracked: Vec<PathBuf>,
}

impl Together {
    /// Names the runs that are at work when one begins. Its session is there already: of two that
    /// begin at once, each sees the other.
    pub(super) fn begin(
        catalog: &Catalog,
        recording: &Recording,
        began: Timestamp,
        context: &Context,
    ) -> Self {
        let roots = recording.baseline().roots.iter();
        let tracked: Vec<PathBuf> = roots.map(|root| root.path.clone()).collect();
        let running = running_on(catalog, &tracked, Some(recording.manager().session()));
        let running = running.unwrap_or_else(|error| {
            context.warn(format_args!("whether another run is at work here is not known: {error}"));
            Vec::new()
        });
        for session in &running {
            context.warn(format_args!(
                "session {} is at work in {} too: {}; what either changes is recorded by both",
                session.session_id,
                named_project(&session.tracked_paths),
                command(session)
            ));
        }
        Self { began, tracked }
    }

    /// Names the runs that were at work meanwhile, and the sessions that were restored. Whether
    /// there were any: an undo then asks about what they may have changed.
    pub(super) fn report(
        &self,
        catalog: &Catalog,
        session: &SessionDir,
        context: &Context,
    ) -> bool {
        let Self { began, tracked } = self;
        let mut had_others = false;
        match worked_meanwhile(catalog, session, *began, tracked) {
            Ok(others) => {
                had_others |= !others.is_empty();
                for other in others {
                    context.warn(format_args!(
                        "session {} worked in {} meanwhile: what it changed is in this session too",
                        other.session_id,
                        named_project(&other.tracked_paths)
                    ));
                }
            }
            Err(error) => context.warn(format_args!(
                "whether another run was at work here meanwhile is not known: {error}"
            )),
        }
        match restored_meanwhile(catalog, session, *began, tracked) {
            Ok(others) => {
                had_others |= !others.is_empty();
                for other in others {
                    context.warn(format_args!(
                        "session {} was restored in {} meanwhile: what that changed is in this \
                         session too",
                        other.session_id,
                        named_project(&other.tracked_paths)
                    ));
                }
            }
            Err(error) => context.warn(format_args!(
                "whether a session was restored here meanwhile is not known: {error}"
            )),
        }
        had_others
    }
}
