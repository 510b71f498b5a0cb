//! The share of each session and each project in a store.
//!
//! Every object is counted once: to the session that alone needs it, else to the project whose
//! sessions alone do, else as shared by projects. So what a project holds is what would become free
//! if all of its sessions went, and all numbers add up to what the store holds.

use std::collections::HashMap;
use std::path::Path;

use foldhash::fast::RandomState;

use super::mark::Marks;
use super::store_root::{ObjectsPlace, StoreRoot};
use super::{CleanupError, CleanupOptions};
use crate::object::ContentHash;
use crate::progress::Stage;
use crate::snapshot::SessionDir;
use crate::store::LocalStore;

/// The contents of a store, by owner. Bytes of objects on the disk, added up.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holdings {
    /// All objects, as they are stored.
    pub total_bytes: u64,
    /// The same, uncompressed.
    pub plain_bytes: u64,
    /// Objects that sessions of several projects need.
    pub shared_bytes: u64,
    /// Objects that no session needs: the next cleanup frees most of them.
    pub unneeded_bytes: u64,
    /// For each session as given: of what no other session needs.
    pub session_bytes: Vec<u64>,
    /// For each project: of what no other project needs, its sessions' own included.
    pub project_bytes: HashMap<String, u64>,
}

/// The owners of an object.
#[derive(Clone, Copy)]
struct Needed {
    /// The project, unless there are several.
    project: Option<usize>,
    /// The session, unless there are several.
    session: Option<usize>,
}

/// Finds out what sessions hold, each with its project. Looks at every list of every session.
/// Changes nothing and needs no lock.
///
/// # Errors
/// [`CleanupError::DamagedSession`] when a session cannot be read completely.
pub fn measure_holdings(
    root: &Path,
    sessions: &[(SessionDir, String)],
    options: &CleanupOptions<'_>,
) -> Result<Holdings, CleanupError> {
    let root = StoreRoot::open(root)?;
    options.pool()?.install(|| measure(&root, sessions, options))
}

fn measure(
    root: &StoreRoot,
    sessions: &[(SessionDir, String)],
    options: &CleanupOptions<'_>,
) -> Result<Holdings, CleanupError> {
    options.progress.begin(Stage::ReadLists, None);
    let mut projects: HashMap<&str, usize> = HashMap::new();
    let project_of: Vec<usize> = sessions
        .iter()
        .map(|(_, project)| {
            let next = projects.len();
            *projects.entry(project).or_insert(next)
        })
        .collect();
    let mut holdings = Holdings { session_bytes: vec![0; sessions.len()], ..Holdings::default() };
    let mut by_project = vec![0u64; projects.len()];
    let mut needed: HashMap<ContentHash, Needed, RandomState> = HashMap::default();
    for (index, (session, _)) in sessions.iter().enumerate() {
        let (project, own) = (project_of[index], Some(index));
        match (root.place(session)?, &root.store) {
            (ObjectsPlace::Shared, Some((store, _))) => {
                let mut marks = Marks::default();
                marks.keep(store, &[session], options.progress)?;
                for hash in marks.beyond(&Marks::default()) {
                    let first = Needed { project: Some(project), session: own };
                    let known = needed.entry(hash).or_insert(first);
                    known.session = known.session.filter(|known| *known == index);
                    known.project = known.project.filter(|known| *known == project);
                }
            }
            (ObjectsPlace::Own, _) => {
                LocalStore::open(&session.objects_path())?.for_each_object(|found| {
                    holdings.total_bytes += found.size;
                    holdings.plain_bytes += found.plain_bytes;
                    holdings.session_bytes[index] += found.size;
                    by_project[project] += found.size;
                    Ok::<_, CleanupError>(())
                })?;
            }
            _ => {}
        }
    }
    if let Some((store, _)) = &root.store {
        options.progress.begin(Stage::ListObjects, None);
        store.for_each_object(|found| {
            options.progress.advance(1, 0);
            holdings.total_bytes += found.size;
            holdings.plain_bytes += found.plain_bytes;
            match needed.get(&found.hash) {
                None => holdings.unneeded_bytes += found.size,
                Some(Needed { project: None, .. }) => holdings.shared_bytes += found.size,
                Some(Needed { project: Some(project), session }) => {
                    by_project[*project] += found.size;
                    if let Some(session) = session {
                        holdings.session_bytes[*session] += found.size;
                    }
                }
            }
            Ok::<_, CleanupError>(())
        })?;
    }
    let named = projects.into_iter().map(|(name, index)| (name.to_owned(), by_project[index]));
    holdings.project_bytes = named.collect();
    Ok(holdings)
}
