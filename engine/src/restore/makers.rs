//! Whose change is this: the one answer, for every command that asks.
//!
//! The states of a session form links, each from one state to the next. Its makers are the session
//! (its command, or the calls of its agent), the user, or both where that cannot be told. A change
//! of which the maker is in doubt counts as both's. So it is never taken back unasked, and never
//! passed over in silence. Doubt falls on: a thinned step that goes with the next one of another
//! maker, late changes, snapshots that a person took, and a state that cannot be read.
//!
//! A restore makes nothing: the states before and after it differ by what it brought back.

use std::collections::HashSet;

use jiff::Timestamp;

use super::conflicts::{Alongside, last_ordinary};
use super::repositories::Repositories;
use crate::diff::{self, ChangeSummary, ChangeType, Comparison};
use crate::object::ContentHash;
use crate::snapshot::{
    LoadedManifest, NotCapturedSet, SessionMetadata, SnapshotKind, SnapshotManifest, Step, StepKind,
};
use crate::store::{ObjectSource, StoreError};

/// The makers of the changes between two states.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Makers {
    /// Whether the command or the agent of the session may have made them.
    pub(super) session: bool,
    /// Number of the last snapshot whose changes may be the user's.
    pub(super) user: Option<u64>,
}

impl Makers {
    fn of(manifest: &SnapshotManifest) -> Self {
        let user = Some(manifest.number);
        let sessions = Self { session: true, user: None };
        if manifest.kind == SnapshotKind::Safety {
            // No call had recorded it.
            return Self { session: false, user };
        }
        match &manifest.step {
            Some(Step { kind: StepKind::Tool, .. }) => sessions,
            Some(Step { kind: StepKind::Checkpoint, call_id: Some(_), .. }) => sessions,
            Some(Step { kind: StepKind::UserEdits | StepKind::Watched, .. }) => {
                Self { session: false, user }
            }
            Some(Step { kind: StepKind::Undo | StepKind::Elsewhere, .. }) => Self::default(),
            Some(Step { kind: StepKind::Late | StepKind::Checkpoint, .. }) | None => {
                Self { session: true, user }
            }
        }
    }

    pub(super) fn and(self, later: Self) -> Self {
        Self { session: self.session || later.session, user: later.user.or(self.user) }
    }

    /// Whether the user made them, without doubt.
    pub(super) fn is_users(self) -> bool {
        !self.session && self.user.is_some()
    }
}

/// A time in which changes were made; both ends belong to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

impl Window {
    pub(super) fn overlaps(self, other: Self) -> bool {
        self.from <= other.to && other.from <= self.to
    }
}

/// Two states of the session that can be read, the first right before the second but for what was
/// removed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Link<'a> {
    pub(super) before: &'a ContentHash,
    pub(super) after: &'a ContentHash,
    /// The state that a restore brought back between the two.
    pub(super) restored: Option<&'a ContentHash>,
    pub(super) makers: Makers,
    /// Number of the second.
    pub(super) number: u64,
    pub(super) window: Window,
}

impl<'a> Link<'a> {
    /// All of these as one: for states in between that are damaged.
    pub(super) fn merged(links: &[Self]) -> Option<Self> {
        let (first, last) = (links.first()?, links.last()?);
        let makers = links.iter().fold(Makers::default(), |all, it| all.and(it.makers));
        let window = Window { from: first.window.from, to: last.window.to };
        Some(Link { before: first.before, restored: None, makers, window, ..*last })
    }
}

impl Link<'_> {
    /// Hands out the changes between the two that no restore explains.
    pub(super) fn each_change(
        &self,
        source: &dyn ObjectSource,
        mut found: impl FnMut(Vec<u8>, ChangeType),
    ) -> Result<(), StoreError> {
        let restored = self.restored.map(|root| diff::differences(source, root, self.after));
        let mut from_restored = restored.transpose()?.map(Alongside::new);
        for difference in diff::differences(source, self.before, self.after)? {
            let difference = difference?;
            let Some(change_type) = difference.change_type() else { continue };
            let is_explained = match &mut from_restored {
                Some(differences) => {
                    let other = differences.at(&difference.path)?;
                    other.and_then(|other| other.change_type()).is_none()
                }
                None => false,
            };
            if !is_explained {
                found(difference.path, change_type);
            }
        }
        Ok(())
    }

    /// The git directories in which work was done between the two. A restore is no work.
    pub(super) fn worked_on(
        &self,
        source: &dyn ObjectSource,
        repositories: &Repositories,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut found = repositories.worked_on_between(source, self.before, self.after)?;
        if let (Some(restored), false) = (self.restored, found.is_empty()) {
            let since = repositories.worked_on_between(source, restored, self.after)?;
            found.retain(|git_dir| since.contains(git_dir));
        }
        Ok(found)
    }
}

/// The links from a snapshot to another one. `chain`: the manifests that can be read, in order.
pub(super) fn links<'a>(
    chain: &'a [LoadedManifest],
    metadata: &SessionMetadata,
    first: &'a SnapshotManifest,
    last: u64,
) -> Vec<Link<'a>> {
    let mut links = Vec::new();
    let (mut before, mut makers, mut next) = (first, Makers::default(), first.number + 1);
    let later = chain.iter().map(|loaded| &loaded.manifest);
    for manifest in later.filter(|it| (first.number + 1..=last).contains(&it.number)) {
        if manifest.number > next {
            // The makers of those that cannot be read are unknown.
            makers = makers.and(Makers { session: true, user: Some(manifest.number - 1) });
        }
        next = manifest.number + 1;
        makers = makers.and(Makers::of(manifest));
        if metadata.removal(manifest.number).is_some() {
            continue;
        }
        let restored = before.restores.filter(|number| metadata.removal(*number).is_none());
        let restored = restored.and_then(|number| {
            let target = chain.iter().find(|target| target.manifest.number == number)?;
            Some(&target.manifest.merkle_root)
        });
        links.push(Link {
            before: &before.merkle_root,
            after: &manifest.merkle_root,
            restored,
            makers: std::mem::take(&mut makers),
            number: manifest.number,
            window: Window { from: before.timestamp, to: manifest.timestamp },
        });
        before = manifest;
    }
    links
}

/// The paths that the command or the agent of a session changed, or may have, in what it recorded
/// after a time; without one, in all of it. `chain`: its manifests, in order.
///
/// # Errors
/// When a tree is missing or damaged.
pub(crate) fn changed_by_session(
    metadata: &SessionMetadata,
    chain: &[LoadedManifest],
    source: &dyn ObjectSource,
    since: Option<Timestamp>,
) -> Result<HashSet<Vec<u8>>, StoreError> {
    let mut changed = HashSet::new();
    let Some(last) = last_ordinary(chain) else { return Ok(changed) };
    let is_since = |link: &Link<'_>| since.is_none_or(|since| link.window.to > since);
    for link in links(chain, metadata, &chain[0].manifest, last.number) {
        if link.makers.session && is_since(&link) {
            link.each_change(source, |path, _| {
                changed.insert(path);
            })?;
        }
    }
    Ok(changed)
}

/// The changes of an agent's session from its first state to its last ordinary one, without those
/// that are the user's beyond doubt, and the number of these.
///
/// # Errors
/// When a tree is missing or damaged.
pub(crate) fn count_by_maker(
    metadata: &SessionMetadata,
    chain: &[LoadedManifest],
    source: &dyn ObjectSource,
) -> Result<(ChangeSummary, usize), StoreError> {
    let Some(last) = last_ordinary(chain) else { return Ok(Default::default()) };
    let first = &chain[0].manifest;
    let links = links(chain, metadata, first, last.number);
    let mut users = HashSet::new();
    for link in links.iter().filter(|link| link.makers.is_users()) {
        link.each_change(source, |path, _| {
            users.insert(path);
        })?;
    }
    for link in links.iter().filter(|link| link.makers.session) {
        link.each_change(source, |path, _| {
            users.remove(&path);
        })?;
    }
    let mut differences = diff::compare(source, &first.merkle_root, &last.merkle_root)?;
    let all = differences.len();
    differences.retain(|difference| !users.contains(&difference.path));
    let users = all - differences.len();
    let (old, new) = (NotCapturedSet::new(first), NotCapturedSet::new(last));
    Ok((Comparison::of(&differences, &old, &new).summary(), users))
}
