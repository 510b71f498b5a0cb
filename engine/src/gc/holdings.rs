//! The share of each session and each project in a store.
//!
//! Every object is counted once: to the session that alone needs it, else to the project whose
//! sessions alone do, else as shared by projects. So what a project holds is what would become free
//! if all of its sessions went, and all numbers add up to what the store holds.

use std::collections::HashMap;
use std::iter::Sum;
use std::ops::AddAssign;
use std::path::Path;

use foldhash::fast::RandomState;
use serde::Serialize;

use super::largest::{self, LargePath, Largest};
use super::mark::Marks;
use super::store_root::{ObjectsPlace, StoreRoot};
use super::{CleanupError, CleanupOptions};
use crate::object::ContentHash;
use crate::progress::Stage;
use crate::snapshot::SessionDir;
use crate::store::{FoundObject, LocalStore};

/// Bytes of objects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// As they are on the disk; of a packed object, its share of what it is compressed with.
    pub stored: u64,
    /// Uncompressed.
    pub plain: u64,
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        self.stored = self.stored.saturating_add(other.stored);
        self.plain = self.plain.saturating_add(other.plain);
    }
}

impl Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, bytes| {
            sum += bytes;
            sum
        })
    }
}

impl From<&FoundObject> for Bytes {
    fn from(found: &FoundObject) -> Self {
        Self { stored: found.size, plain: found.plain_bytes }
    }
}

/// The holdings of one session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionHoldings {
    /// Bytes that no other session needs: the removal of this one frees them.
    pub own: Bytes,
    /// All that it needs.
    pub needed: Bytes,
}

/// The contents of a store, by owner.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holdings {
    /// All objects.
    pub total: Bytes,
    /// Objects that sessions of several projects need.
    pub shared: Bytes,
    /// Objects that no session needs: the next cleanup frees most of them.
    pub unneeded: Bytes,
    /// For each session as given.
    pub sessions: Vec<SessionHoldings>,
    /// For each project: what no other project needs, its sessions' own included.
    pub projects: HashMap<String, Bytes>,
    /// The paths that take the most space, the largest first, as many as were asked for.
    pub largest_paths: Vec<LargePath>,
    /// Sessions that cannot be read completely: their share is not known, so that it counts to the
    /// other sessions that need it, or as not needed.
    pub unread: Vec<UnreadSession>,
}

/// A session that cannot be read completely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnreadSession {
    /// The session.
    pub session_id: String,
    /// The unreadable part, as text.
    pub reason: String,
}

/// An object, and who needs it.
#[derive(Clone, Copy)]
struct Object {
    /// In all places where it lies.
    bytes: Bytes,
    need: Need,
}

/// The users of an object: a number of a project and one of a session, or several of them.
#[derive(Clone, Copy)]
enum Need {
    None,
    Session { project: u32, session: u32 },
    Project { project: u32 },
    Several,
}

impl Need {
    fn and(self, of_project: u32, of_session: u32) -> Self {
        match self {
            Self::None => Self::Session { project: of_project, session: of_session },
            Self::Session { project, .. } | Self::Project { project } if project == of_project => {
                Self::Project { project }
            }
            _ => Self::Several,
        }
    }
}

/// Finds out what sessions hold, each with its project, and which paths take the most space. Looks
/// at every list of every session. Changes nothing and needs no lock. A session that cannot be read
/// completely keeps no number from the others.
///
/// # Errors
/// The store cannot be read.
pub fn measure_holdings(
    root: &Path,
    sessions: &[(SessionDir, String)],
    path_count: usize,
    options: &CleanupOptions<'_>,
) -> Result<Holdings, CleanupError> {
    let root = StoreRoot::open(root)?;
    options.pool()?.install(|| measure(&root, sessions, path_count, options))
}

fn measure(
    root: &StoreRoot,
    sessions: &[(SessionDir, String)],
    path_count: usize,
    options: &CleanupOptions<'_>,
) -> Result<Holdings, CleanupError> {
    let mut projects: HashMap<&str, u32> = HashMap::new();
    let project_of = sessions.iter().map(|(_, project)| {
        let next = projects.len() as u32;
        *projects.entry(project).or_insert(next)
    });
    let project_of: Vec<u32> = project_of.collect();
    let mut by_project = vec![Bytes::default(); projects.len()];
    let mut holdings = Holdings {
        sessions: vec![SessionHoldings::default(); sessions.len()],
        ..Holdings::default()
    };
    let mut largest = Largest::new(path_count);
    let mut objects = match &root.store {
        Some((store, _)) => {
            options.progress.begin(Stage::ListObjects, None);
            list(store, options)?
        }
        None => Objects::default(),
    };
    options.progress.begin(Stage::ReadLists, None);
    let mut sharing = Vec::new();
    for (index, (session, _)) in sessions.iter().enumerate() {
        let (project, number) = (project_of[index], index as u32);
        let needed = root.place(session).and_then(|place| match (place, &root.store) {
            (ObjectsPlace::Shared, Some((store, _))) => {
                let mut marks = Marks::default();
                marks.keep(store, &[session], options.progress)?;
                Ok((place, Some(marks)))
            }
            _ => Ok((place, None)),
        });
        match needed {
            Err(CleanupError::DamagedSession { session_id, source }) => {
                holdings.unread.push(UnreadSession { session_id, reason: source.to_string() });
            }
            Err(error) => return Err(error),
            Ok((_, Some(marks))) => {
                sharing.push(session);
                for hash in marks.beyond(&Marks::default()) {
                    if let Some(object) = objects.get_mut(&hash) {
                        object.need = object.need.and(project, number);
                        holdings.sessions[index].needed += object.bytes;
                    }
                }
            }
            Ok((ObjectsPlace::Own, None)) => {
                let store = LocalStore::open(&session.objects_path())?;
                let objects = list(&store, options)?;
                let bytes = objects.values().map(|object| object.bytes).sum();
                holdings.total += bytes;
                holdings.sessions[index] = SessionHoldings { own: bytes, needed: bytes };
                by_project[project as usize] += bytes;
                search(&store, &[session], &objects, options, &mut largest)?;
            }
            Ok(_) => {}
        }
    }
    if let Some((store, _)) = &root.store {
        search(store, &sharing, &objects, options, &mut largest)?;
    }
    for Object { bytes, need } in objects.into_values() {
        holdings.total += bytes;
        match need {
            Need::None => holdings.unneeded += bytes,
            Need::Several => holdings.shared += bytes,
            Need::Project { project } => by_project[project as usize] += bytes,
            Need::Session { project, session } => {
                by_project[project as usize] += bytes;
                holdings.sessions[session as usize].own += bytes;
            }
        }
    }
    let named =
        projects.into_iter().map(|(name, index)| (name.to_owned(), by_project[index as usize]));
    holdings.projects = named.collect();
    holdings.largest_paths = largest.into_paths();
    Ok(holdings)
}

type Objects = HashMap<ContentHash, Object, RandomState>;

/// The objects of a store.
fn list(store: &LocalStore, options: &CleanupOptions<'_>) -> Result<Objects, CleanupError> {
    let mut objects = Objects::default();
    store.for_each_object(|found| {
        options.progress.advance(1, 0);
        let none = Object { bytes: Bytes::default(), need: Need::None };
        objects.entry(found.hash).or_insert(none).bytes += Bytes::from(&found);
        Ok::<_, CleanupError>(())
    })?;
    Ok(objects)
}

/// Looks for the largest paths of sessions that share a store.
fn search(
    store: &LocalStore,
    sessions: &[&SessionDir],
    objects: &Objects,
    options: &CleanupOptions<'_>,
    largest: &mut Largest,
) -> Result<(), CleanupError> {
    if !largest.has_room() {
        return Ok(());
    }
    let mut roots = Vec::new();
    for session in sessions {
        for number in session.snapshot_numbers()? {
            roots.push(session.manifest(number)?.manifest.merkle_root);
        }
    }
    let bytes_of = |hash: &ContentHash| objects.get(hash).map(|object| object.bytes);
    largest::search(store, roots.into_iter(), &bytes_of, options, largest)
}
