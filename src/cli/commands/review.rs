//! `nono review`: the changes of a session, shown on a terminal.

use clap::Args;

use super::show::{Interrupted, interrupted};
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::past::compared;
use crate::cli::render::touched_part;
use crate::cli::restoring::{Ways, restore_picked, ways};
use crate::cli::timeline::{self, Decision, Subject, is_possible};
use nono_engine::diff::{self, Comparison};
use nono_engine::restore::Selection;
use nono_engine::session::{Catalog, Purpose, SnapshotId};
use nono_engine::snapshot::{NotCapturedSet, SessionDir, SnapshotManifest};
use nono_engine::store::ObjectSource;

/// Arguments of `nono review`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ReviewArgs {
    /// Id of a session, a prefix of it, or `latest`; ID/N shows what snapshot N changed
    #[arg(value_name = "ID[/N]", default_value = "latest", allow_negative_numbers = true)]
    id: SnapshotId,
}

/// Two states of a session, the older of which can be brought back.
pub(in crate::cli) struct Reviewed<'a> {
    pub(in crate::cli) catalog: &'a Catalog,
    pub(in crate::cli) store_args: &'a StoreArgs,
    pub(in crate::cli) session: &'a SessionDir,
    pub(in crate::cli) store: &'a dyn ObjectSource,
    pub(in crate::cli) old: &'a SnapshotManifest,
    pub(in crate::cli) new: &'a SnapshotManifest,
}

pub(in crate::cli) fn run(args: &ReviewArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let (store_args, catalog) = (store, &store.catalog()?);
    let (session, snapshot) = catalog.find_snapshot_from(&args.id, Purpose::Restoring)?;
    if !is_possible(context) {
        return Err(CliError::failed("a review needs a terminal").with_hint(format!(
            "`{NONO} show --diff` prints what changed, `{NONO} restore \
                 ID PATH` takes a part of it back"
        )));
    }
    if let Some(Interrupted { manager, baseline }) = interrupted(&session, snapshot)? {
        let now = manager.live_state(&baseline)?;
        let (session, store, old, new) = (&session, &now, &baseline, now.manifest());
        return Reviewed { catalog, store_args, session, store, old, new }.start(context);
    }
    let (old, new) = compared(&session, snapshot)?;
    let store = Catalog::store_of(&session)?;
    let (session, store, old, new) = (&session, &store, &old, &new);
    Reviewed { catalog, store_args, session, store, old, new }.start(context)
}

impl Reviewed<'_> {
    /// Finds out what changed, and reviews that.
    fn start(&self, context: &Context) -> Outcome {
        let Self { session, store, old, new, .. } = *self;
        let differences = diff::compare(store, &old.merkle_root, &new.merkle_root)?;
        let unknown = (NotCapturedSet::new(old), NotCapturedSet::new(new));
        let comparison = Comparison::of(&differences, &unknown.0, &unknown.1);
        drop(differences);
        if comparison.changes.is_empty() {
            let touched = touched_part(&comparison.summary());
            context.say(format_args!("session {}: nothing changed{touched}", session.id()));
            return Ok(0);
        }
        Ok(u8::from(!self.review(comparison, context)?))
    }

    /// Lets a person look through the changes, and does what is decided. Whether all of it could be
    /// done.
    ///
    /// # Errors
    /// When the terminal cannot be used, or the restore fails.
    pub(in crate::cli) fn review(
        &self,
        comparison: Comparison,
        context: &Context,
    ) -> Result<bool, CliError> {
        let id = self.session.id();
        let Self { catalog, store_args, session, store, old, new } = *self;
        let subject = Subject { session, store, old, new };
        let decision = timeline::review(&subject, comparison, catalog, store_args, context)?;
        let Some(decision) = decision else { return Ok(true) };
        let selection = match decision {
            Decision::KeepAll => {
                context.say("everything is kept");
                let Ways { undo, .. } = ways(self.catalog, self.session);
                context.say(format_args!("  look again: {NONO} review {id}"));
                context.say(format_args!("  undo it:    {undo}"));
                return Ok(true);
            }
            Decision::RestoreAll => Selection::default(),
            Decision::Restore(exactly) => Selection { exactly, ..Selection::default() },
        };
        let number = self.old.number;
        Ok(restore_picked(self.catalog, self.session, number, selection, context)? == 0)
    }
}
