//! The claims of a session about itself: its changes, and the proof of a noted root.

use serde::Serialize;

use super::graph::{Graph, Reading, Role};
use super::manifests::{DescribedSnapshot, Manifests};
use crate::diff::{ChangeSummary, count_changes};
use crate::object::ContentHash;
use crate::snapshot::{SessionDir, SessionMetadata, SnapshotKind};

/// Maximum number of counted differences. A capture of more takes minutes. Trees that no program
/// captured can claim to hold any number.
const MAX_DIFFERENCES: u64 = 1 << 24;

/// The part of a session that a noted root vouches for, as far as it was found sound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proved {
    /// The kind of the root.
    pub by: ProvedBy,
    /// Whether it vouches for what the session says of its begin: command, tracked paths, when it
    /// began.
    pub facts: bool,
    /// Whether it vouches for what the session says of its end, too: when it ended, and the exit
    /// code.
    pub end: bool,
    /// Numbers of the snapshots for which it vouches, and which are sound.
    pub snapshots: Vec<u64>,
}

/// The kinds of roots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProvedBy {
    /// The session, with these snapshots: their names and times are proved too.
    SessionRoot,
    /// A snapshot: every name, attribute and byte of it, and nothing of the session.
    MerkleRoot,
}

impl Manifests {
    /// The part that `root` vouches for; `None` when it is a root of nothing here.
    pub(super) fn proved(&self, root: ContentHash, graph: &Graph) -> Option<Proved> {
        let is_sound = |snapshot: &DescribedSnapshot| {
            let held = snapshot.description.as_ref().filter(|_| snapshot.removed.is_none());
            let root = held.map(|description| description.merkle_root);
            let id = root.and_then(|root| graph.id(root, Role::Root));
            id.is_some_and(|id| graph.is_sound(id))
        };
        let sound = |snapshots: &mut dyn Iterator<Item = &DescribedSnapshot>| {
            let numbers = snapshots.filter(|it| is_sound(it)).map(|it| it.number);
            let mut numbers: Vec<_> = numbers.collect();
            numbers.sort_unstable();
            numbers
        };
        if let Some((end, count)) = self.metadata.as_ref().and_then(|it| self.find_root(it, root)) {
            let (by, facts) = (ProvedBy::SessionRoot, true);
            let snapshots = sound(&mut self.chain_before(count));
            return Some(Proved { by, facts, end, snapshots });
        }
        let has_root = |it: &&DescribedSnapshot| {
            it.description.as_ref().is_some_and(|it| it.merkle_root == root)
        };
        let mut with_root = self.snapshots.iter().filter(has_root).peekable();
        with_root.peek()?;
        let by = ProvedBy::MerkleRoot;
        Some(Proved { by, facts: false, end: false, snapshots: sound(&mut with_root) })
    }

    /// With how many snapshots the session has this root, and whether with its end.
    fn find_root(&self, metadata: &SessionMetadata, root: ContentHash) -> Option<(bool, usize)> {
        let variants = [(true, metadata.facts()), (false, metadata.facts_before_end())];
        variants.into_iter().find_map(|(end, facts)| {
            if facts.root(0, None) == root {
                return Some((end, 0));
            }
            let mut described = self.snapshots.iter().filter_map(|snapshot| {
                let count = usize::try_from(snapshot.number).ok()? + 1;
                Some((count, snapshot.description.as_ref()?.hash))
            });
            let found = described.find(|(count, hash)| facts.root(*count, Some(hash)) == root)?;
            Some((end, found.0))
        })
    }

    /// The snapshots below a number to which the one before that number leads, from one manifest to
    /// the next.
    fn chain_before(&self, count: usize) -> impl Iterator<Item = &DescribedSnapshot> {
        let mut named = None;
        let mut is_whole = true;
        let below = self.snapshots.iter().rev().filter(move |it| it.number < count as u64);
        below.take_while(move |snapshot| {
            is_whole &= snapshot.description.as_ref().is_some_and(|description| {
                let fits = named.is_none_or(|named| named == Some(description.hash));
                named = Some(description.parent_hash);
                fits
            });
            is_whole
        })
    }

    /// How the trees contradict what the session counts as changed, if they do. Trees that are
    /// damaged contradict nothing.
    pub(super) fn miscounted(
        &self,
        session: &SessionDir,
        graph: &Graph,
        reading: &Reading<'_>,
    ) -> Option<String> {
        let metadata = self.metadata.as_ref()?;
        let said = metadata.changes?;
        if self.listed().count() < metadata.manifest_hashes.len() {
            return None;
        }
        let mut held = self.listed().filter(|(number, _)| {
            metadata.removal(*number).is_none() && !metadata.was_added(*number)
        });
        let first = held.next();
        let last =
            first.into_iter().chain(held).filter(|(_, it)| it.kind == SnapshotKind::Ordinary);
        let held = match (first, last.last()) {
            (Some((first, _)), Some((last, _))) if first < last => {
                self.count(session, first, last, graph, reading)?
            }
            _ => ChangeSummary::default(),
        };
        (held != said).then(|| {
            let words = |it: ChangeSummary| {
                let ChangeSummary { created, created_directories, .. } = it;
                let ChangeSummary { deleted, deleted_directories, .. } = it;
                let ChangeSummary { modified, permissions_changed, touched, .. } = it;
                format!(
                    "{created} created ({created_directories} directories), {modified} modified, \
                     {deleted} deleted ({deleted_directories} directories), {permissions_changed} \
                     with other permissions and {touched} touched"
                )
            };
            format!("it counts as changed {}, but its trees tell of {}", words(said), words(held))
        })
    }

    fn count(
        &self,
        session: &SessionDir,
        first: u64,
        last: u64,
        graph: &Graph,
        reading: &Reading<'_>,
    ) -> Option<ChangeSummary> {
        let load = |number: u64| {
            let (_, description) = self.listed().find(|(listed, _)| *listed == number)?;
            let id = graph.id(description.merkle_root, Role::Root)?;
            let loaded = session.manifest(number).ok()?;
            let is_sound = graph.is_sound(id) && loaded.hash == description.hash;
            is_sound.then_some(loaded.manifest)
        };
        let (old, new) = (load(first)?, load(last)?);
        let mut left = MAX_DIFFERENCES;
        let goes_on = || {
            left = left.saturating_sub(1);
            left > 0 && !reading.progress.is_cancelled()
        };
        let counted = count_changes(reading.store, &old, &new, goes_on);
        counted.inspect_err(|error| tracing::debug!("changes not counted: {error}")).ok()?
    }
}
