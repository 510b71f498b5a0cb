//! The present state, and what it is to be: changed in memory, change by change.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use super::edit_tree::Edits;
use super::outcome::{Conflict, Decided, DecidedBy, Outcome};
use super::renames::{DoubleRename, Rename, Renames, doubles, renames};
use crate::byte_path;
use crate::diff::{EntryState, Lookup};
use crate::object::{ContentHash, FileTime, Node, RootTree};
use crate::path_text::{Shown, to_path};
use crate::restore::ChosenText;
use crate::restore::merge::{Chosen, HunkChoice, Merged, Merger, is_same as are_same};
use crate::restore::others::Contested;
use crate::snapshot::TrackedRoot;
use crate::store::{ObjectStore, StoreError, read_root_tree, read_tree};

pub(super) type State = Option<Arc<EntryState>>;

/// The purpose of a change: it decides about words, and about times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::restore) enum Purpose {
    /// A step is taken back. A path that gets its former contents gets its former time.
    TakeBack,
    /// The work of another side is merged. A file that gets other contents gets this time, so that
    /// programs that compare times (`make`) see that it is another.
    Merge(FileTime),
}

/// Why a path stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// It is gone, and the change alters it.
    IsGone,
    /// It is there, and the change makes it.
    IsThere,
    /// The change removes it, and it is no longer what the change begins with.
    IsOther,
    /// Both changes alter the same lines or attributes, or may do so.
    Touches,
    /// The directory in which the change puts it is gone.
    HasNoDirectory,
    /// The change puts something in the place of a directory that holds something else.
    HoldsMore,
}

impl Purpose {
    fn reason(self, obstacle: Obstacle) -> &'static str {
        match (self, obstacle) {
            (Self::TakeBack, Obstacle::IsGone) => "it is gone by now",
            (Self::TakeBack, Obstacle::IsThere) => "something of this name is there again",
            (Self::TakeBack, Obstacle::IsOther) => "it was changed since the step made it",
            (Self::TakeBack, Obstacle::Touches) => "what came later touches what the step changed",
            (Self::TakeBack, Obstacle::HasNoDirectory) => "the directory in which it was is gone",
            (Self::TakeBack, Obstacle::HoldsMore) => {
                "the directory in its place holds something else now"
            }
            (Self::Merge(_), Obstacle::IsGone) => "it was removed here and changed there",
            (Self::Merge(_), Obstacle::IsThere) => "both sides made it, each in its own way",
            (Self::Merge(_), Obstacle::IsOther) => "it was changed here and removed there",
            (Self::Merge(_), Obstacle::Touches) => "both sides changed the same part of it",
            (Self::Merge(_), Obstacle::HasNoDirectory) => "its directory was removed here",
            (Self::Merge(_), Obstacle::HoldsMore) => {
                "here it is a directory that holds something else"
            }
        }
    }
}

/// The fate of paths that both sides changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ConflictSide {
    /// They stay, and are named.
    #[default]
    Open,
    /// They are as here, and that is decided.
    Ours,
    /// They become what the change leads to.
    Theirs,
}

/// A change of one path.
#[derive(Debug, Clone)]
pub(in crate::restore) struct Change {
    pub(in crate::restore) path: Vec<u8>,
    /// The state that it begins with.
    pub(in crate::restore) from: State,
    /// The state that it leads to.
    pub(in crate::restore) to: State,
}

/// The present state, with edits.
pub(in crate::restore) struct VirtualState<'a> {
    store: &'a dyn ObjectStore,
    root: RootTree,
    roots: &'a [TrackedRoot],
    contested: Contested,
    purpose: Purpose,
    side: ConflictSide,
    /// Whether a side decides about each hunk of a text, and not about whole files.
    by_hunk: bool,
    /// Contents that a person chose for texts in conflict.
    chosen: HashMap<PathBuf, ChosenText>,
    /// Files that have another name here than in the states that changes begin with.
    renamed_here: Renames,
    edits: Edits,
    merged: Vec<PathBuf>,
    conflicts: Vec<Conflict>,
    /// Changes that are not made, and not decided.
    left: BTreeSet<Vec<u8>>,
    /// Conflicts about which a side or a choice decided.
    decided: Vec<Decided>,
}

impl<'a> VirtualState<'a> {
    pub(in crate::restore) fn new(
        store: &'a dyn ObjectStore,
        current: &ContentHash,
        roots: &'a [TrackedRoot],
        purpose: Purpose,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            store,
            root: read_root_tree(store, current)?,
            roots,
            contested: Contested::default(),
            purpose,
            side: ConflictSide::Open,
            by_hunk: false,
            chosen: HashMap::new(),
            renamed_here: Renames::default(),
            edits: Edits::new(),
            merged: Vec::new(),
            conflicts: Vec::new(),
            left: BTreeSet::new(),
            decided: Vec::new(),
        })
    }

    /// Paths that other sessions may have changed are conflicts.
    pub(in crate::restore) fn with_contested(self, contested: Contested) -> Self {
        Self { contested, ..self }
    }

    /// Conflicts with the present state are decided: the state that the change leads to comes.
    pub(in crate::restore) fn overwriting(self, overwrite: bool) -> Self {
        let side = if overwrite { ConflictSide::Theirs } else { ConflictSide::Open };
        Self { side, ..self }
    }

    /// Conflicts are decided: in texts about each hunk, or as a person chose, else about the path.
    pub(in crate::restore) fn deciding(self, side: ConflictSide, chosen: &[ChosenText]) -> Self {
        let chosen = chosen.iter().map(|it| (it.path.clone(), it.clone())).collect();
        Self { side, by_hunk: true, chosen, ..self }
    }

    /// A change of a file that has another name here goes to that.
    pub(in crate::restore) fn with_renamed_here(self, renamed_here: Renames) -> Self {
        Self { renamed_here, ..self }
    }

    pub(in crate::restore) fn edits(&self) -> &Edits {
        &self.edits
    }

    /// The paths that are to be another.
    pub(super) fn paths(&self) -> impl Iterator<Item = &[u8]> {
        self.edits.keys().map(Vec::as_slice)
    }

    /// The fate of the changes, besides the edits.
    pub(super) fn finish(self) -> Outcome {
        let Self { merged, conflicts, left, decided, .. } = self;
        Outcome { merged, conflicts, left, decided }
    }

    /// Does what changes do, sorted by path. `number`: what conflicts are named with.
    pub(in crate::restore) fn carry_over(
        &mut self,
        number: u64,
        changes: impl Iterator<Item = Change>,
    ) -> Result<(), StoreError> {
        let changes: Vec<Change> = changes.collect();
        let moves = self.moves(&changes)?;
        let mut moved: HashSet<usize> =
            moves.iter().flat_map(|(it, _)| [it.removed, it.created]).collect();
        if let Purpose::Merge(_) = self.purpose {
            let is_gone_here = |path: &[u8]| self.get(path).is_ok_and(|state| state.is_none());
            for double in doubles(&changes, &self.renamed_here, is_gone_here) {
                self.settle_double(number, &changes, &double, &mut moved)?;
            }
        }
        let mut leaving_directories = Vec::new();
        for (at, change) in changes.iter().enumerate() {
            let Change { path, from, to } = change;
            if moved.contains(&at) {
                continue;
            }
            if from.as_deref().is_some_and(is_directory) && !to.as_deref().is_some_and(is_directory)
            {
                leaving_directories.push(change);
                continue;
            }
            let known = self.conflicts.len();
            self.carry_over_path(number, path, from, to)?;
            if self.conflicts.len() > known {
                self.left.insert(path.clone());
            }
        }
        for (Rename { removed, created }, state) in moves {
            let (old, new) = (&changes[removed].path, &changes[created].path);
            if self.has_parent(new)? {
                self.move_to(old, new, state);
            } else {
                self.obstacle(number, new, Obstacle::HasNoDirectory);
                self.left.extend([old.clone(), new.clone()]);
            }
        }
        // Deepest first: by then it is known whether anything is left in them.
        for Change { path, to, .. } in leaving_directories.into_iter().rev() {
            let Some(current) = self.get(path)? else { continue };
            if !is_directory(&current) {
                continue;
            }
            if self.is_empty(path, &current)? {
                self.edits.insert(path.clone(), to.clone());
            } else if to.is_some() {
                self.obstacle(number, path, Obstacle::HoldsMore);
                self.left.insert(path.clone());
            }
        }
        Ok(())
    }

    /// A file or a directory that each side gave another name. `settled` gets the changes that are
    /// dealt with.
    fn settle_double(
        &mut self,
        number: u64,
        changes: &[Change],
        double: &DoubleRename,
        settled: &mut HashSet<usize>,
    ) -> Result<(), StoreError> {
        let DoubleRename { old, there, here, pairs } = double;
        let reason =
            format!("{} was renamed on both sides, here to {}", self.shown(old), self.shown(here));
        match self.side {
            ConflictSide::Open => self.conflict(number, there, &reason),
            ConflictSide::Ours | ConflictSide::Theirs => self.decide(there, &reason),
        }
        if self.side == ConflictSide::Theirs {
            for name in pairs {
                self.edits.insert(name.clone(), None);
            }
            if let Some(current) = self.get(here)?
                && is_directory(&current)
                && self.is_empty(here, &current)?
            {
                self.edits.insert(here.clone(), None);
            }
            return Ok(());
        }
        for (at, Change { path, to, .. }) in changes.iter().enumerate() {
            if to.is_none() || !byte_path::is_in(path, there) {
                continue;
            }
            settled.insert(at);
            if self.side == ConflictSide::Open {
                self.left.insert(path.clone());
            } else if let Some(inside @ [_, ..]) = byte_path::relative_to(path, there)
                && !is_same(&self.get(&byte_path::join(here, inside))?, to)
            {
                let reason = format!("it is not in {}, and does not come", self.shown(here));
                self.decide(path, &reason);
            }
        }
        Ok(())
    }

    /// A path inside of its tracked path, as a message has it.
    fn shown(&self, path: &[u8]) -> String {
        let root = self.roots.iter().map(|root| root.path.as_os_str().as_bytes());
        let inside = root.filter_map(|root| byte_path::relative_to(path, root)).next();
        Shown::bytes(inside.unwrap_or(path)).to_string()
    }

    /// Notes that the chosen side decided about a conflict; an open one is none.
    fn decide(&mut self, path: &[u8], reason: &str) {
        let by = match self.side {
            ConflictSide::Open => return,
            ConflictSide::Ours => DecidedBy::Ours,
            ConflictSide::Theirs => DecidedBy::Theirs,
        };
        self.decided.push(Decided {
            path: to_path(path).to_owned(),
            reason: reason.to_owned(),
            by,
        });
    }

    fn carry_over_path(
        &mut self,
        number: u64,
        path: &[u8],
        from: &State,
        to: &State,
    ) -> Result<(), StoreError> {
        let mut current = self.get(path)?;
        let mut renamed = None;
        if let (None, Some(_), Some(_)) = (&current, from, to) {
            renamed = self.renamed_here.new_name(path).map(<[u8]>::to_vec);
        }
        let path = renamed.as_deref().unwrap_or(path);
        if renamed.is_some() {
            current = self.get(path)?;
        }
        if is_same(&current, to) {
            return Ok(());
        }
        if let Some(other) = self.contested.sessions(path).first() {
            let reason = format!(
                "session {other}, at work or restored at the same time, may have changed it"
            );
            return self.put_or_leave(number, path, to, &reason);
        }
        if is_same(&current, from) {
            return self.put(number, path, to);
        }
        let (Some(origin), Some(is), Some(goal)) = (from, &current, to) else {
            let obstacle = match (&current, from) {
                (None, _) => Obstacle::IsGone,
                (Some(_), None) => Obstacle::IsThere,
                _ => Obstacle::IsOther,
            };
            return self.put_or_leave(number, path, to, self.purpose.reason(obstacle));
        };
        let merged = match self.merged(path, origin, goal, is)? {
            None => {
                let decided = self.decided(path, origin, goal, is)?;
                if decided.is_some() {
                    self.note_decided_text(path);
                }
                decided
            }
            merged => merged,
        };
        match merged {
            Some(state) => {
                self.set_merged(path, is, state);
                Ok(())
            }
            None => self.put_or_leave(number, path, to, self.purpose.reason(Obstacle::Touches)),
        }
    }

    /// The present state with the change from one state to another. New contents are stored.
    fn merged(
        &self,
        path: &[u8],
        from: &EntryState,
        to: &EntryState,
        current: &EntryState,
    ) -> Result<Option<EntryState>, StoreError> {
        let merger = Merger::new(self.store, self.roots);
        let Some(Merged { state, bytes }) = merger.carry_over(path, from, to, current)? else {
            return Ok(None);
        };
        if let Some(bytes) = bytes {
            self.store.write(&bytes)?;
        }
        Ok(Some(state))
    }

    /// The present state of a file whose hunks are decided; `None`: nothing decides about them.
    fn decided(
        &self,
        path: &[u8],
        from: &EntryState,
        to: &EntryState,
        current: &EntryState,
    ) -> Result<Option<EntryState>, StoreError> {
        let Node::File { hash: now, .. } = &current.node else { return Ok(None) };
        let chosen = self.chosen.get(to_path(path)).filter(|chosen| chosen.now == *now);
        let chosen = match (chosen, self.side) {
            (Some(chosen), _) => Chosen::Bytes(&chosen.bytes),
            (None, ConflictSide::Ours) if self.by_hunk => Chosen::Hunks(HunkChoice::Ours),
            (None, ConflictSide::Theirs) if self.by_hunk => Chosen::Hunks(HunkChoice::Theirs),
            _ => return Ok(None),
        };
        let merger = Merger::new(self.store, self.roots);
        let Some(Merged { state, bytes }) = merger.decided(path, from, to, current, &chosen)?
        else {
            return Ok(None);
        };
        if let Some(bytes) = bytes {
            self.store.write(&bytes)?;
        }
        Ok(Some(state))
    }

    /// Notes that a choice, or else the chosen side, decided about a text.
    fn note_decided_text(&mut self, path: &[u8]) {
        let reason = self.purpose.reason(Obstacle::Touches);
        match self.side {
            ConflictSide::Open => self.decided.push(Decided {
                path: to_path(path).to_owned(),
                reason: reason.to_owned(),
                by: DecidedBy::Choice,
            }),
            ConflictSide::Ours | ConflictSide::Theirs => self.decide(path, reason),
        }
    }

    fn set_merged(&mut self, path: &[u8], was: &EntryState, state: EntryState) {
        // A change that was made before has no effect any more.
        if are_same(&state, was) {
            return;
        }
        if state.node != was.node {
            self.merged.push(to_path(path).to_owned());
        }
        let state = self.timed(Some(was), state);
        self.edits.insert(path.to_vec(), Some(Arc::new(state)));
    }

    /// Renames of a merge whose file was changed here, each with the state at its new name: with
    /// both changes. Other renames are a file that goes and one that comes.
    fn moves(&self, changes: &[Change]) -> Result<Vec<(Rename, EntryState)>, StoreError> {
        let mut moves = Vec::new();
        let Purpose::Merge(_) = self.purpose else { return Ok(moves) };
        for rename in renames(changes) {
            let Change { path: old, from, .. } = &changes[rename.removed];
            let Change { path: new, to, .. } = &changes[rename.created];
            let (Some(origin), Some(goal), Some(current)) = (from, to, self.get(old)?) else {
                continue;
            };
            if are_same(&current, origin) || self.get(new)?.is_some() {
                continue;
            }
            if let Some(state) = self.merged(old, origin, goal, &current)? {
                moves.push((rename, state));
            }
        }
        Ok(moves)
    }

    fn move_to(&mut self, old: &[u8], new: &[u8], state: EntryState) {
        self.merged.push(to_path(new).to_owned());
        self.edits.insert(old.to_vec(), None);
        self.edits.insert(new.to_vec(), Some(Arc::new(state)));
    }

    /// A state with the time that it is to have.
    fn timed(&self, current: Option<&EntryState>, mut state: EntryState) -> EntryState {
        let is_file = matches!(state.node, Node::File { .. });
        if let (Purpose::Merge(time), true, Some(current)) = (self.purpose, is_file, current)
            && current.node != state.node
        {
            state.attributes.mtime = time;
        }
        state
    }

    /// For a present state that differs from what the change begins with.
    fn put_or_leave(
        &mut self,
        number: u64,
        path: &[u8],
        to: &State,
        reason: &str,
    ) -> Result<(), StoreError> {
        self.decide(path, reason);
        match self.side {
            ConflictSide::Theirs => return self.put(number, path, to),
            ConflictSide::Ours => {}
            ConflictSide::Open => self.conflict(number, path, reason),
        }
        Ok(())
    }

    fn put(&mut self, number: u64, path: &[u8], to: &State) -> Result<(), StoreError> {
        if to.is_some() && !self.has_parent(path)? {
            self.obstacle(number, path, Obstacle::HasNoDirectory);
            return Ok(());
        }
        let current = self.get(path)?;
        let to = to.as_deref().map(|to| Arc::new(self.timed(current.as_deref(), to.clone())));
        self.edits.insert(path.to_vec(), to);
        Ok(())
    }

    fn obstacle(&mut self, number: u64, path: &[u8], obstacle: Obstacle) {
        self.conflict(number, path, self.purpose.reason(obstacle));
    }

    /// Names a path that stays as it is.
    pub(in crate::restore) fn conflict(&mut self, number: u64, path: &[u8], reason: &str) {
        let path = to_path(path).to_owned();
        self.conflicts.push(Conflict { path, change: number, reason: reason.to_owned() });
    }

    /// The state of a path, edits included.
    pub(in crate::restore) fn get(&self, path: &[u8]) -> Result<State, StoreError> {
        if let Some(edited) = self.edits.get(path) {
            return Ok(edited.clone());
        }
        // Below what goes or is no directory any more, nothing is.
        let is_cut = |above: &[u8]| match self.edits.get(above) {
            Some(None) => true,
            Some(Some(state)) => !is_directory(state),
            None => false,
        };
        if byte_path::ancestors(path).any(is_cut) {
            return Ok(None);
        }
        Ok(Lookup::new(self.store, &self.root).find(path)?.map(Arc::new))
    }

    fn has_parent(&self, path: &[u8]) -> Result<bool, StoreError> {
        let is_root = self.roots.iter().any(|root| root.path.as_os_str().as_bytes() == path);
        Ok(is_root || self.get(byte_path::split(path).0)?.is_some_and(|state| is_directory(&state)))
    }

    /// Whether nothing is left in a directory.
    fn is_empty(&self, path: &[u8], state: &EntryState) -> Result<bool, StoreError> {
        let edited = |child: &[u8]| self.edits.get(child).map(Option::is_some);
        let below = [path, b"/"].concat();
        let has_new = self
            .edits
            .range(below.clone()..)
            .take_while(|(child, _)| child.starts_with(&below))
            .any(|(_, state)| state.is_some());
        if has_new {
            return Ok(false);
        }
        // One that an edit puts there has nothing but edits in it.
        if self.edits.contains_key(path) {
            return Ok(true);
        }
        let Node::Directory { tree } = &state.node else { return Ok(false) };
        let tree = read_tree(self.store, tree)?;
        let stays = |name: &[u8]| edited(&byte_path::join(path, name)) != Some(false);
        Ok(!tree.entries().iter().any(|entry| stays(&entry.name)))
    }
}

fn is_directory(state: &EntryState) -> bool {
    matches!(state.node, Node::Directory { .. })
}

/// Whether two states are the same but for times, and for what is in directories.
fn is_same(a: &State, b: &State) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => are_same(a, b),
        _ => false,
    }
}
