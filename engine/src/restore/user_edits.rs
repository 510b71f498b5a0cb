//! The user's own edits between the calls of an agent: an undo of the agent's session spares them.
//!
//! The [links](super::makers) of the session say whose each change is. A path that only the user
//! changed stays, and is named as spared. A path that both changed, or may have, is a conflict. In
//! a session with a damaged state, every path is one.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use super::conflicts::{AllConflicts, Conflict, Conflicts, Later, OverwrittenEdit, UserEdit};
use super::makers::{Link, Makers};
use super::plan::RestorePlan;
use super::repositories::Repositories;
use crate::byte_path;
use crate::diff::{ChangeType, Lookup, Told};
use crate::object::Node;
use crate::path_text::to_path;
use crate::snapshot::{LoadedManifest, SnapshotManifest};
use crate::store::{ObjectSource, StoreError, read_root_tree};

/// The known facts of a path that the user changed, or may have.
#[derive(Debug, Clone, Copy)]
struct Touched {
    edit: UserEdit,
    change_type: ChangeType,
    is_agents: bool,
    /// Whether the agent changed it after the edit.
    is_overwritten: bool,
}

impl Touched {
    fn new(makers: Makers, step: u64, change_type: ChangeType) -> Self {
        let edit = UserEdit { step, is_certain: !makers.session };
        Self { edit, change_type, is_agents: makers.session, is_overwritten: false }
    }

    fn add(&mut self, later: Self) {
        self.is_agents |= later.is_agents;
        // A step that is surely the user's says more.
        if later.edit.is_certain >= self.edit.is_certain {
            (self.edit, self.change_type) = (later.edit, later.change_type);
        }
    }
}

/// The paths of a session that the user changed, or may have.
#[derive(Debug, Default)]
pub(super) struct UserEdits {
    paths: HashMap<Vec<u8>, Touched>,
    /// Git directories, each as one thing.
    repositories: BTreeMap<Vec<u8>, Touched>,
}

impl UserEdits {
    /// Finds the user's edits in the links from the target of an undo.
    pub(super) fn find(
        source: &dyn ObjectSource,
        links: &[Link<'_>],
        repositories: &Repositories,
    ) -> Result<Self, StoreError> {
        match Self::among(source, links, repositories) {
            Err(error) if error.is_damage() => {
                tracing::warn!("whose the changes are cannot be told: {error}");
                Self::among(source, Link::merged(links).as_slice(), repositories)
            }
            found => found,
        }
    }

    fn among(
        source: &dyn ObjectSource,
        links: &[Link<'_>],
        repositories: &Repositories,
    ) -> Result<Self, StoreError> {
        let mut found = Self::default();
        for link in links {
            let Some(step) = link.makers.user else { continue };
            let touched = |change_type| Touched::new(link.makers, step, change_type);
            link.each_change(source, |path, change_type| {
                let touched = touched(change_type);
                found.paths.entry(path).and_modify(|known| known.add(touched)).or_insert(touched);
            })?;
            for git_dir in link.worked_on(source, repositories)? {
                let touched = touched(ChangeType::Modified);
                let known = found.repositories.entry(git_dir);
                known.and_modify(|known| known.add(touched)).or_insert(touched);
            }
        }
        if found.paths.is_empty() {
            return Ok(found);
        }
        for link in links.iter().filter(|link| link.makers.session && link.makers.user.is_none()) {
            link.each_change(source, |path, _| {
                if let Some(known) = found.paths.get_mut(&path) {
                    known.is_agents = true;
                    known.is_overwritten |= link.number > known.edit.step;
                }
            })?;
            if found.repositories.is_empty() {
                continue;
            }
            for git_dir in link.worked_on(source, repositories)? {
                if let Some(known) = found.repositories.get_mut(&git_dir) {
                    known.is_agents = true;
                }
            }
        }
        Ok(found)
    }

    /// Names as conflicts what the agent changed as well, and returns what is to be spared. `left`
    /// are paths that stay already; it gets those that stay for the user.
    pub(super) fn settle(
        &self,
        plan: &RestorePlan,
        repositories: &Repositories,
        conflicts: &mut AllConflicts,
        left: &mut HashSet<Vec<u8>>,
    ) -> Vec<PathBuf> {
        let mut spared = Vec::new();
        if self.paths.is_empty() {
            return spared;
        }
        let contested = self.contested(plan);
        let mut settled = Conflicts::default();
        let mut known = conflicts.paths.iter().peekable();
        for (path, told) in plan.changes.iter() {
            let later = known.next_if(|(known, _)| *known == path).map(|(_, later)| *later);
            let touched = self.paths.get(&path);
            let touched =
                touched.filter(|_| !left.contains(&path) && repositories.of_path(&path).is_none());
            match (touched, told.change_type()) {
                (Some(touched), change) if !touched.is_agents && !contested.contains(&path) => {
                    if change.is_some() {
                        spared.push(to_path(&path).to_owned());
                    }
                    left.insert(path);
                }
                (Some(touched), Some(_)) => {
                    let change_type = later.map_or(touched.change_type, |it| it.change_type);
                    settled.push(&path, Later { change_type, user_edit: Some(touched.edit) });
                }
                _ => later.iter().for_each(|later| settled.push(&path, *later)),
            }
        }
        drop(known);
        conflicts.paths = settled;
        let changed = repositories.changed_by(plan);
        for (git_dir, touched) in &self.repositories {
            if left.contains(git_dir) || !changed.contains(git_dir) {
                continue;
            }
            let path = to_path(git_dir);
            let known = conflicts.repositories.iter().position(|known| known.path == path);
            let (user_edit, change_type) = (Some(touched.edit), touched.change_type);
            match known {
                _ if !touched.is_agents => {
                    conflicts.repositories.retain(|known| known.path != path);
                    spared.push(path.to_owned());
                    left.insert(git_dir.clone());
                }
                Some(at) => conflicts.repositories[at].user_edit = user_edit,
                None => conflicts.repositories.push(Conflict {
                    path: path.to_owned(),
                    change_type,
                    sessions: Vec::new(),
                    repository: None,
                    user_edit,
                    beside: Vec::new(),
                }),
            }
        }
        spared
    }

    /// The user's edits that the agent overwrote, where nothing is left to undo: the path is as in
    /// the target. Sorted by path.
    pub(super) fn overwritten(
        &self,
        source: &dyn ObjectSource,
        chain: &[LoadedManifest],
        target: &SnapshotManifest,
        plan: &RestorePlan,
    ) -> Result<Vec<OverwrittenEdit>, StoreError> {
        let changed = plan.changes.iter().filter(|(_, told)| told.change_type().is_some());
        let changed: HashSet<Vec<u8>> = changed.map(|(path, _)| path).collect();
        let lost = self.paths.iter().filter(|(path, touched)| {
            touched.is_overwritten && touched.edit.is_certain && !changed.contains(*path)
        });
        let target_root = read_root_tree(source, &target.merkle_root)?;
        let mut then = Lookup::new(source, &target_root);
        let mut found = Vec::new();
        let mut by_step: BTreeMap<u64, Vec<&Vec<u8>>> = BTreeMap::new();
        for (path, touched) in lost {
            by_step.entry(touched.edit.step).or_default().push(path);
        }
        for (step, paths) in by_step {
            let edited = chain.iter().find(|loaded| loaded.manifest.number == step);
            let Some(edited) = edited else { continue };
            let root = read_root_tree(source, &edited.manifest.merkle_root)?;
            let mut edited = Lookup::new(source, &root);
            for path in paths {
                let edit = edited.find(path)?.map(|state| state.node);
                let has_contents = matches!(edit, Some(Node::File { .. } | Node::Symlink { .. }));
                if has_contents && edit != then.find(path)?.map(|state| state.node) {
                    found.push(OverwrittenEdit { path: to_path(path).to_owned(), step });
                }
            }
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(found)
    }

    /// The user's paths that cannot stay if the agent's work is undone: directories that the user
    /// removed, or made a file of, and in which the agent had changed something.
    fn contested(&self, plan: &RestorePlan) -> HashSet<Vec<u8>> {
        let is_users = |path: &[u8]| self.paths.get(path).is_some_and(|it| !it.is_agents);
        let puts = plan.actions.puts.iter().map(|put| &put.path);
        let made: HashSet<&[u8]> = (plan.actions.directories.iter().chain(puts))
            .map(Vec::as_slice)
            .filter(|path| is_users(path))
            .collect();
        let mut contested = HashSet::new();
        if made.is_empty() {
            return contested;
        }
        let is_change = |told: &Told| told.change_type().is_some();
        for (path, _) in plan.changes.iter().filter(|(_, told)| is_change(told)) {
            if !is_users(&path) {
                let above = byte_path::ancestors(&path).filter(|dir| made.contains(dir));
                contested.extend(above.map(<[u8]>::to_vec));
            }
        }
        contested
    }
}
