//! `by-project`: the same states in folders as a person would name them.
//!
//! ```text
//! by-project/shop/now -> /home/ada/shop
//! by-project/shop/latest -> 2026-11-26 11.49 the big refactor
//! by-project/shop/2026-11-26 11.49 the big refactor/before/…           the project's files
//!                                                   after/…
//!                                                   steps/prompt 01 …/0003 Edit · cart.py/…
//! ```
//!
//! Always true:
//! - A state is the recorded directory itself: the same key, attributes and [state
//!   id](nono_mount::StateId) as below the ids. So it is the same inode, and caches are shared.
//! - Only a tracked path that is no directory, or not there, stands in a folder of ours.
//! - A name that was found means the same session as when the sessions were last listed, or is
//!   looked for anew.

use std::io;
use std::sync::Arc;

use jiff::tz::TimeZone;
use nono_mount::{Entry, Kind};
use parking_lot::Mutex;

use super::LATEST;
use super::key::{DirectoryKind, PastKey, PathHash, SessionKey, SnapshotKey};
use super::lister::Lister;
use super::past::{AFTER, BEFORE, Past};
use super::projects::{Project, Projects};
use super::remembered::Remembered;
use super::sessions::Session;
use super::steps::STEPS;
use super::tree::{StoreEntry, StoreNode, StoreTree, file_time, sorted};
use crate::byte_path;
use crate::object;
use crate::store::read_root_tree;
use crate::sys::FileTime;

/// Name of the folder.
pub(super) const BY_PROJECT: &[u8] = b"by-project";
/// Link to the directory of a project as it is now.
const NOW: &[u8] = b"now";

/// The memory of `by-project`.
#[derive(Debug)]
pub(super) struct ByProject {
    zone: TimeZone,
    /// As they were when the sessions were last listed.
    projects: Mutex<Arc<Projects>>,
    past: Remembered<Past>,
}

impl ByProject {
    pub(super) fn new() -> Self {
        let (projects, past) = (Mutex::default(), Remembered::default());
        Self { zone: TimeZone::system(), projects, past }
    }
}

impl StoreTree {
    /// The folder itself.
    pub(super) fn by_project_node(&self, mtime: FileTime) -> StoreNode {
        self.folder(DirectoryKind::Projects, mtime)
    }

    /// All projects as they are now.
    fn projects_now(&self) -> io::Result<Arc<Projects>> {
        let sessions = self.sessions.list().map_err(io::Error::other)?;
        let projects = Arc::new(Projects::new(&sessions, &self.by_project.zone));
        *self.by_project.projects.lock() = projects.clone();
        Ok(projects)
    }

    /// Whether a session says the same as when the sessions were listed.
    fn is_same(&self, session: &Session) -> io::Result<bool> {
        let now = self.sessions.get(&session.key)?;
        Ok(now.is_some_and(|now| now.head == session.head))
    }

    pub(super) fn list_projects(&self) -> io::Result<Vec<StoreEntry>> {
        let projects = self.projects_now()?;
        let entry = |(name, path, project): (&str, &Arc<[u8]>, &Project)| Entry {
            name: name.as_bytes().into(),
            node: self.project_node(path, project),
        };
        Ok(projects.iter().map(entry).collect())
    }

    pub(super) fn find_project(&self, name: &[u8]) -> io::Result<Option<StoreNode>> {
        let known = self.by_project.projects.lock().clone();
        if let Some((path, project)) = known.named(name)
            && let Some(session) = project.sessions.values().next_back()
            && self.is_same(session)?
        {
            return Ok(Some(self.project_node(path, project)));
        }
        let projects = self.projects_now()?;
        Ok(projects.named(name).map(|(path, project)| self.project_node(path, project)))
    }

    fn project_node(&self, path: &Arc<[u8]>, project: &Project) -> StoreNode {
        self.folder(DirectoryKind::Project(path.clone()), project.mtime)
    }

    pub(super) fn list_project(&self, path: &Arc<[u8]>) -> io::Result<Vec<StoreEntry>> {
        let projects = self.projects_now()?;
        let project = projects.at(path).ok_or(io::ErrorKind::NotFound)?;
        let entry = |(name, session): (&String, &Session)| Entry {
            name: name.as_bytes().into(),
            node: self.past_node(session, path),
        };
        let mut entries: Vec<StoreEntry> = project.sessions.iter().map(entry).collect();
        let links = [LATEST.as_bytes(), NOW].into_iter();
        entries.extend(links.filter_map(|name| {
            let node = self.project_link(path, project, name)?;
            Some(Entry { name: name.into(), node })
        }));
        Ok(sorted(entries))
    }

    pub(super) fn find_in_project(
        &self,
        path: &Arc<[u8]>,
        name: &[u8],
    ) -> io::Result<Option<StoreNode>> {
        let known = self.by_project.projects.lock().clone();
        if let Some(session) = known.at(path).and_then(|project| project.named(name))
            && let Some(now) = self.sessions.get(&session.key)?
            && now.head == session.head
        {
            return Ok(Some(self.past_node(&now, path)));
        }
        let projects = self.projects_now()?;
        let Some(project) = projects.at(path) else { return Ok(None) };
        Ok(match project.named(name) {
            Some(session) => Some(self.past_node(session, path)),
            None => self.project_link(path, project, name),
        })
    }

    /// A link in the folder of a project.
    fn project_link(&self, path: &[u8], project: &Project, name: &[u8]) -> Option<StoreNode> {
        let target = match name {
            _ if name == LATEST.as_bytes() => project.latest.as_ref()?.as_bytes(),
            NOW if project.is_here => path,
            _ => return None,
        };
        let target = target.into();
        Some(self.own(Kind::Symlink { target }, 0o777, project.mtime))
    }

    fn past_node(&self, session: &Session, path: &Arc<[u8]>) -> StoreNode {
        let key = PastKey { session: session.key.clone(), path: path.clone() };
        self.folder(DirectoryKind::Past(key), session.mtime)
    }

    fn past(&self, session: &SessionKey) -> io::Result<Arc<Past>> {
        self.by_project.past.of(&self.sessions.path(session), Past::new)
    }

    pub(super) fn list_past(&self, key: &PastKey) -> io::Result<Vec<StoreEntry>> {
        let mut entries = Vec::new();
        for name in [AFTER, BEFORE, STEPS] {
            if let Some(node) = self.find_in_past(key, name)? {
                entries.push(Entry { name: name.into(), node });
            }
        }
        Ok(entries)
    }

    pub(super) fn find_in_past(&self, key: &PastKey, name: &[u8]) -> io::Result<Option<StoreNode>> {
        if ![BEFORE, AFTER, STEPS].contains(&name) {
            return Ok(None);
        }
        let past = self.past(&key.session)?;
        if name == STEPS {
            let node = || self.folder(DirectoryKind::PastSteps(key.clone()), self.started);
            return Ok(past.has_steps().then(node));
        }
        let Some((first, last)) = past.ends(&self.sessions.numbers(&key.session)?) else {
            return Ok(None);
        };
        let number = if name == BEFORE { first } else { last };
        Ok(Some(self.state_node(key, number)))
    }

    pub(super) fn list_past_steps(&self, key: &PastKey) -> io::Result<Vec<StoreEntry>> {
        let past = self.past(&key.session)?;
        let mut entries = self.state_entries(key, &past.steps);
        entries.extend(past.prompts.iter().map(|(name, prompt)| Entry {
            name: name.as_bytes().into(),
            node: self.prompt_node(key, prompt.number),
        }));
        Ok(sorted(entries))
    }

    pub(super) fn find_past_step(
        &self,
        key: &PastKey,
        name: &[u8],
    ) -> io::Result<Option<StoreNode>> {
        let past = self.past(&key.session)?;
        let Ok(name) = std::str::from_utf8(name) else { return Ok(None) };
        Ok(match (past.steps.get(name), past.prompts.get(name)) {
            (Some(number), _) => Some(self.state_node(key, *number)),
            (None, Some(prompt)) => Some(self.prompt_node(key, prompt.number)),
            (None, None) => None,
        })
    }

    fn prompt_node(&self, key: &PastKey, number: u64) -> StoreNode {
        self.folder(DirectoryKind::PastPrompt(key.clone(), number), self.started)
    }

    pub(super) fn list_past_prompt(
        &self,
        key: &PastKey,
        prompt: u64,
    ) -> io::Result<Vec<StoreEntry>> {
        let past = self.past(&key.session)?;
        let steps = past.prompt(prompt).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.state_entries(key, steps))
    }

    pub(super) fn find_in_past_prompt(
        &self,
        key: &PastKey,
        prompt: u64,
        name: &[u8],
    ) -> io::Result<Option<StoreNode>> {
        let past = self.past(&key.session)?;
        let Ok(name) = std::str::from_utf8(name) else { return Ok(None) };
        let number = past.prompt(prompt).and_then(|steps| steps.get(name));
        Ok(number.map(|number| self.state_node(key, *number)))
    }

    fn state_entries(
        &self,
        key: &PastKey,
        states: &std::collections::BTreeMap<String, u64>,
    ) -> Vec<StoreEntry> {
        let entry = |(name, number): (&String, &u64)| Entry {
            name: name.as_bytes().into(),
            node: self.state_node(key, *number),
        };
        states.iter().map(entry).collect()
    }

    /// The state of a project in a snapshot: its directory as it was recorded.
    fn state_node(&self, key: &PastKey, number: u64) -> StoreNode {
        let PastKey { session, path } = key;
        let snapshot = match self.snapshot_key(session, number) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                tracing::error!("snapshot {number} of session {}: {error}", session.id);
                return self.unusable(session, number);
            }
        };
        match self.tracked_node(&snapshot, path) {
            Ok(Some(node)) if matches!(node.kind, Kind::Directory(_)) => node,
            // A list of the folder tells about an error.
            _ => {
                let mtime = file_time(snapshot.timestamp);
                self.folder(DirectoryKind::Alone { snapshot, path: path.clone() }, mtime)
            }
        }
    }

    /// A tracked path in a snapshot; `None` where it was not there.
    fn tracked_node(&self, snapshot: &SnapshotKey, path: &[u8]) -> io::Result<Option<StoreNode>> {
        let store = self.stores.open(snapshot.store)?;
        let root =
            read_root_tree(&*store, &snapshot.merkle_root).map_err(super::error::from_store)?;
        let is_at = |entry: &&object::RootEntry| *entry.path == *path;
        let Some(entry) = root.entries.iter().find(is_at) else { return Ok(None) };
        let links = self.links_of(snapshot.store, root.links)?;
        let links = links.as_ref().map(|(hash, index)| (hash, &**index));
        let (parent, name) = byte_path::split(path);
        let parent = PathHash::of(self.stores.top(snapshot.store)?, parent);
        let mut lister = Lister::new(snapshot.store, parent, links);
        Ok(Some(lister.node(name, &entry.attributes, &entry.node)))
    }

    /// The contents of the folder of a tracked path that is no directory.
    pub(super) fn list_alone(
        &self,
        snapshot: &SnapshotKey,
        path: &[u8],
    ) -> io::Result<Vec<StoreEntry>> {
        let Some(node) = self.tracked_node(snapshot, path)? else { return Ok(Vec::new()) };
        if let Kind::Directory(key) = &node.kind
            && let DirectoryKind::Tree(tree) = &*key.0
        {
            // It could not be read when it was looked for.
            return self.list_tree(tree);
        }
        Ok(vec![Entry { name: byte_path::split(path).1.into(), node }])
    }
}
