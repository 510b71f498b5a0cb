//! `nono rollback diff`: two snapshots compared, of one session or of two.

use std::collections::BTreeSet;
use std::io::Write;

use clap::Args;
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::render::{
    DiffOptions, Palette, RenderError, write_full, write_patch, write_side_by_side,
};
use crate::diff::{self, Change};
use crate::git::repositories;
use crate::object::ContentHash;
use crate::path_text::{Shown, to_path};
use crate::session::{Catalog, SnapshotId};
use crate::snapshot::{NotCapturedSet, SessionDir, SnapshotManifest};
use crate::store::{ObjectSource, StoreError};

/// Arguments of `nono rollback diff`.
#[derive(Debug, Args)]
pub(in crate::cli) struct DiffArgs {
    /// The older state: ID or ID/N [N: the baseline]
    #[arg(value_name = "ID[/N]")]
    old: SnapshotId,
    /// The newer state: ID or ID/N [default: the last snapshot of the first session]
    #[arg(value_name = "ID[/N]")]
    new: Option<SnapshotId>,
    #[command(flatten)]
    style: StyleArgs,
    /// Print the changed paths as JSON
    #[arg(long, conflicts_with = "style")]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    old: Side,
    new: Side,
    changes: Vec<Change>,
}

#[derive(Serialize)]
struct Side {
    session_id: String,
    number: u64,
    merkle_root: ContentHash,
}

/// The ways to show differences other than a patch; one at a time.
#[derive(Debug, Args)]
#[group(skip)]
pub(super) struct StyleArgs {
    /// Show what changed in two columns
    #[arg(long, group = "style")]
    side_by_side: bool,
    /// Show what changed within the whole of each file
    #[arg(long, group = "style")]
    full: bool,
}

impl StyleArgs {
    /// The style that was asked for, if one was.
    pub(super) fn chosen(&self) -> Option<DiffStyle> {
        match (self.side_by_side, self.full) {
            (true, _) => Some(DiffStyle::SideBySide),
            (_, true) => Some(DiffStyle::Full),
            _ => None,
        }
    }
}

/// How differences are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DiffStyle {
    Patch,
    SideBySide,
    Full,
}

pub(in crate::cli) fn run(args: &DiffArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    let (old_session, number) = catalog.find_snapshot(&args.old)?;
    let old = old_session.manifest(number.unwrap_or(0))?.manifest;
    let (new_session, number) = catalog.find_snapshot(args.new.as_ref().unwrap_or(&args.old))?;
    // The first id may name its snapshot; without a second one, the session's last is meant.
    let number = if args.new.is_some() { number } else { None };
    let new = new_session.manifest(last_unless(number, &new_session)?)?.manifest;
    let (old_store, new_store) =
        (Catalog::store_of(&old_session)?, Catalog::store_of(&new_session)?);
    if args.json {
        let both = TwoStores { first: &old_store, second: &new_store };
        let differences = diff::compare(&both, &old.merkle_root, &new.merkle_root)?;
        let unknown = (NotCapturedSet::new(&old), NotCapturedSet::new(&new));
        let side = |session: &SessionDir, manifest: &SnapshotManifest| Side {
            session_id: session.id(),
            number: manifest.number,
            merkle_root: manifest.merkle_root,
        };
        let changes = diff::changes(&differences, &unknown.0, &unknown.1);
        let (old, new) = (side(&old_session, &old), side(&new_session, &new));
        context.json(&Report { old, new, changes })?;
        return Ok(0);
    }
    let style = args.style.chosen().unwrap_or(DiffStyle::Patch);
    write_diff(&old_store, &old, &new_store, &new, style, context)?;
    Ok(0)
}

fn last_unless(number: Option<u64>, session: &SessionDir) -> Result<u64, CliError> {
    match number {
        Some(number) => Ok(number),
        None => {
            session.snapshot_numbers()?.last().copied().ok_or_else(|| {
                CliError::failed(format!("session {} has no snapshot", session.id()))
            })
        }
    }
}

/// Writes the differences of two snapshots to stdout.
pub(super) fn write_diff(
    old_store: &dyn ObjectSource,
    old: &SnapshotManifest,
    new_store: &dyn ObjectSource,
    new: &SnapshotManifest,
    style: DiffStyle,
    context: &Context,
) -> Result<(), CliError> {
    let both = TwoStores { first: old_store, second: new_store };
    let mut differences = diff::compare(&both, &old.merkle_root, &new.merkle_root)?;
    let unknown = (NotCapturedSet::new(old), NotCapturedSet::new(new));
    differences.retain(|difference| diff::is_known(difference, &unknown.0, &unknown.1));
    // `git apply` and `patch` take nothing in a git directory.
    let paths = differences.iter().map(|difference| &difference.path);
    let git = repositories(&both, &old.merkle_root, &new.merkle_root, paths)?;
    let is_in_git = |path: &[u8]| git.iter().any(|git| to_path(path).starts_with(&git.git_dir));
    differences.retain(|difference| !is_in_git(&difference.path));
    for git in &git {
        let path = Shown::path(&git.git_dir);
        context.say(format_args!("not shown: what changed in {path} (--json names it)"));
    }
    let roots = old.roots.iter().chain(&new.roots).map(|root| root.path.clone());
    let roots: Vec<_> = roots.collect::<BTreeSet<_>>().into_iter().collect();
    let mut options = DiffOptions::new(&both, &roots);
    options.escape = context.stdout_is_terminal;
    if context.colours() {
        options.palette = Palette::coloured();
    }
    let mut out = context.out_bytes();
    match style {
        DiffStyle::Patch => write_patch(&mut out, &differences, &options),
        DiffStyle::Full => write_full(&mut out, &differences, &options),
        DiffStyle::SideBySide => {
            let width = rustix::termios::tcgetwinsize(std::io::stdout()).map(|size| size.ws_col);
            let width = width.ok().filter(|width| *width > 0).unwrap_or(160);
            write_side_by_side(&mut out, &differences, &options, width.into())
        }
    }
    .map_err(|error| match error {
        RenderError::Store(error) => CliError::from(error),
        RenderError::Output(error) => CliError::from(error),
    })?;
    Ok(out.flush()?)
}

/// Two sessions may keep their objects in different places.
struct TwoStores<'a> {
    first: &'a dyn ObjectSource,
    second: &'a dyn ObjectSource,
}

impl ObjectSource for TwoStores<'_> {
    fn read(&self, hash: &ContentHash, max_bytes: u64) -> Result<Vec<u8>, StoreError> {
        match self.first.read(hash, max_bytes) {
            Err(StoreError::Missing { .. }) => self.second.read(hash, max_bytes),
            other => other,
        }
    }
}
