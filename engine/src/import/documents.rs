//! The documents of the other nono.
//!
//! ```text
//! <session>/session.json        id, times, command, tracked paths, exit code; missing when the
//!                               program gave up at the end
//! <session>/snapshots/000.json  number, time, Merkle root, each file by its absolute path, and
//!                               the symlinks by their paths alone
//! <session>/changes/001.json    the differences to the snapshot before; they follow from the
//!                               snapshots, and are not read
//! <session>/objects/ab/cd…      contents, named by SHA-256
//! ```
//!
//! Up to version 0.69 a document has no list of symlinks: a file of it may have been a symlink to a
//! file, whose contents are recorded. Since 0.70 it has the list, and each of its files was a file.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{ImportSessionError, merkle};
use crate::byte_path;
use crate::layout;
use crate::object::{ContentHash, is_tracked_path};
use crate::path_text::to_path;
use crate::sys::{Dir, FileKind};

const SESSION: &[u8] = b"session.json";
const SNAPSHOTS: &[u8] = b"snapshots";
const CHANGES: &[u8] = b"changes";
pub(super) const OBJECTS: &[u8] = b"objects";
/// The other program records at most 300,000 files unless told otherwise: about 90 MB of JSON.
const MAX_DOCUMENT_BYTES: u64 = 1 << 29;
/// Longest id.
const MAX_ID_BYTES: usize = 128;

/// A session of the other program, checked for form.
#[derive(Debug)]
pub(super) struct ForeignSession {
    pub(super) id: String,
    /// `None` without a `session.json`.
    pub(super) facts: Option<SessionFacts>,
    /// Sorted, none inside another.
    pub(super) tracked_paths: Vec<Vec<u8>>,
    /// In order, from number 0.
    pub(super) snapshots: Vec<ForeignSnapshot>,
}

/// `session.json`.
#[derive(Debug, Deserialize)]
pub(super) struct SessionFacts {
    session_id: String,
    pub(super) started: Timestamp,
    #[serde(default)]
    pub(super) ended: Option<Timestamp>,
    #[serde(default)]
    pub(super) command: Vec<String>,
    tracked_paths: Vec<String>,
    #[serde(default)]
    pub(super) exit_code: Option<i32>,
    #[serde(default)]
    merkle_roots: Vec<ContentHash>,
    #[serde(default)]
    pub(super) network_events: Vec<serde_json::Value>,
}

/// A snapshot.
#[derive(Debug)]
pub(super) struct ForeignSnapshot {
    pub(super) timestamp: Timestamp,
    /// Its own root, by the rule of the other program. The files have it.
    pub(super) merkle_root: ContentHash,
    /// By absolute path.
    pub(super) files: BTreeMap<Vec<u8>, ForeignFile>,
    /// Absolute paths. `None`: the program followed symlinks to files, and listed no symlinks.
    pub(super) symlinks: Option<BTreeSet<Vec<u8>>>,
}

/// A file of a snapshot.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(super) struct ForeignFile {
    pub(super) hash: ContentHash,
    pub(super) size: u64,
    /// Seconds since 1970.
    pub(super) mtime: i64,
    /// Kind and permission bits, as `st_mode` has them.
    pub(super) permissions: u32,
}

/// `snapshots/NNN.json`.
#[derive(Deserialize)]
struct SnapshotDocument {
    number: u64,
    timestamp: Time,
    merkle_root: ContentHash,
    files: BTreeMap<String, ForeignFile>,
    #[serde(default)]
    symlinks: Option<BTreeSet<String>>,
}

/// Version 0.66.0 writes seconds since 1970 as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Time {
    Seconds(i64),
    Text(String),
}

impl Time {
    fn timestamp(&self) -> Result<Timestamp, String> {
        let seconds = |seconds| Timestamp::from_second(seconds).map_err(|error| error.to_string());
        match self {
            Self::Seconds(number) => seconds(*number),
            Self::Text(text) => match text.parse::<i64>() {
                Ok(number) => seconds(number),
                Err(_) => text.parse().map_err(|error: jiff::Error| error.to_string()),
            },
        }
    }
}

/// The place where the other program keeps its sessions: `$XDG_STATE_HOME/nono/rollbacks`.
pub fn usual_place(state_home: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let state = state_home.and_then(absolute);
    let state = state.or_else(|| Some(home.and_then(absolute)?.join(".local/state")))?;
    Some(state.join("nono/rollbacks"))
}

/// The directories where sessions may be.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FoundSessions {
    /// Directories of sessions, sorted.
    pub sessions: Vec<PathBuf>,
    /// The rests of sessions that have no manifest, sorted: neither `session.json` nor
    /// `snapshots/000.json`.
    pub without_manifest: Vec<PathBuf>,
}

/// The sessions in a directory: itself, or the directories in it.
///
/// # Errors
/// [`ImportSessionError::NothingThere`], or a directory that cannot be read.
pub fn find_sessions(path: &Path) -> Result<FoundSessions, ImportSessionError> {
    let dir = Dir::open(path)?;
    let mut found = FoundSessions::default();
    found.sort_in(&dir, path);
    if found == FoundSessions::default() {
        for listed in dir.names()? {
            // No symlink: it may lead to another store.
            if let Ok(inner) = dir.open_dir(&listed.name) {
                found.sort_in(&inner, &path.join(to_path(&listed.name)));
            }
        }
    }
    if found == FoundSessions::default() {
        return Err(ImportSessionError::NothingThere { path: path.to_owned() });
    }
    found.sessions.sort();
    found.without_manifest.sort();
    Ok(found)
}

impl FoundSessions {
    fn sort_in(&mut self, dir: &Dir, path: &Path) {
        if is_session(dir) {
            self.sessions.push(path.to_owned());
        } else if [SNAPSHOTS, OBJECTS, CHANGES].iter().any(|name| dir.open_dir(name).is_ok()) {
            self.without_manifest.push(path.to_owned());
        }
    }
}

fn is_session(dir: &Dir) -> bool {
    let is_file = |dir: &Dir, name: &[u8]| {
        dir.try_stat(name).ok().flatten().is_some_and(|stat| stat.kind == FileKind::File)
    };
    is_file(dir, SESSION)
        || dir.open_dir(SNAPSHOTS).is_ok_and(|snapshots| is_file(&snapshots, b"000.json"))
}

/// Reads the documents of the session in `dir`.
pub(super) fn read(dir: &Dir) -> Result<ForeignSession, ImportSessionError> {
    let facts: Option<SessionFacts> = match dir.try_stat(SESSION)? {
        Some(_) => Some(document(dir, SESSION)?),
        None => None,
    };
    let invalid = |reason: String| ImportSessionError::Invalid {
        path: dir.path_of(if facts.is_some() { SESSION } else { SNAPSHOTS }),
        reason,
    };
    let name = dir.path().file_name().map(|name| name.to_string_lossy().into_owned());
    let id = match (&facts, name) {
        (Some(facts), _) => facts.session_id.clone(),
        (None, Some(name)) => name,
        (None, None) => return Err(invalid("the session has no name".to_owned())),
    };
    if !is_id(&id) {
        return Err(invalid(format!("{id:?} cannot be the id of a session")));
    }
    let snapshots = read_snapshots(dir)?;
    if let Some(facts) = &facts {
        let (listed, has) = (facts.merkle_roots.len(), snapshots.len());
        if listed > has {
            return Err(invalid(format!("it lists {listed} snapshots, and {has} are there")));
        }
        let listed = facts.merkle_roots.iter().zip(&snapshots);
        if let Some(number) = listed.into_iter().position(|(root, has)| *root != has.merkle_root) {
            let reason =
                format!("its Merkle root of snapshot {number} is not that of the snapshot");
            return Err(invalid(reason));
        }
    }
    let tracked_paths = match &facts {
        Some(facts) => outermost(facts.tracked_paths.iter().map(|path| path.clone().into_bytes())),
        None => outermost(derived(&snapshots)),
    };
    if let Some(bad) = tracked_paths.iter().find(|path| !is_tracked_path(path)) {
        let bad = String::from_utf8_lossy(bad);
        return Err(invalid(format!("tracked path {bad:?} is not absolute and plain")));
    }
    if tracked_paths.is_empty() {
        return Err(invalid("it has no file and no tracked path".to_owned()));
    }
    Ok(ForeignSession { id, facts, tracked_paths, snapshots })
}

/// Whether a snapshot of another program can be read: any bytes give an answer.
#[cfg(feature = "fuzzing")]
pub(crate) fn can_read_snapshot(bytes: &[u8]) -> bool {
    let Ok(document) = serde_json::from_slice::<SnapshotDocument>(bytes) else { return false };
    let number = document.number;
    let Ok(snapshot) = ForeignSnapshot::of(document, number) else { return false };
    let found = outermost(derived(&[snapshot]));
    found.iter().all(|path| is_tracked_path(path))
}

impl ForeignSnapshot {
    /// Checks a document, whose name says its number.
    fn of(document: SnapshotDocument, number: u64) -> Result<Self, String> {
        if document.number != number {
            return Err(format!("it says that it is snapshot {}", document.number));
        }
        let timestamp = document.timestamp.timestamp()?;
        let files = document.files.into_iter().map(|(path, file)| (path.into_bytes(), file));
        let files: BTreeMap<Vec<u8>, ForeignFile> = files.collect();
        let symlinks = document
            .symlinks
            .map(|paths| paths.into_iter().map(String::into_bytes).collect::<BTreeSet<Vec<u8>>>());
        let mut paths = files.keys().chain(symlinks.iter().flatten());
        if let Some(bad) = paths.find(|path| !is_tracked_path(path)) {
            let bad = String::from_utf8_lossy(bad);
            return Err(format!("path {bad:?} is not absolute and plain"));
        }
        let is_symlink = |dir: &&[u8]| symlinks.as_ref().is_some_and(|has| has.contains(*dir));
        let is_above = files.keys().flat_map(|path| byte_path::ancestors(path)).find(is_symlink);
        if let Some(both) = is_above {
            let both = String::from_utf8_lossy(both);
            return Err(format!("{both:?} is a directory and a symlink in it"));
        }
        if let Some(both) = symlinks.iter().flatten().find(|path| files.contains_key(*path)) {
            let both = String::from_utf8_lossy(both);
            return Err(format!("{both:?} is a file and a symlink in it"));
        }
        Ok(Self { timestamp, merkle_root: document.merkle_root, files, symlinks })
    }

    /// Recomputes the Merkle root. The root does not tell which of the files was changed.
    fn prove(self) -> Result<Self, String> {
        match merkle::proves(&self.merkle_root, &self.files) {
            true => Ok(self),
            false => Err("its files do not have its Merkle root: a path or a hash in it was \
                          changed, or the root"
                .to_owned()),
        }
    }
}

fn read_snapshots(dir: &Dir) -> Result<Vec<ForeignSnapshot>, ImportSessionError> {
    let snapshots = dir.open_dir(SNAPSHOTS)?;
    let mut found = Vec::new();
    loop {
        let name = format!("{:03}.json", found.len()).into_bytes();
        if snapshots.try_stat(&name)?.is_none() {
            break;
        }
        let document: SnapshotDocument = document(&snapshots, &name)?;
        let snapshot = ForeignSnapshot::of(document, found.len() as u64);
        let snapshot = snapshot.and_then(ForeignSnapshot::prove);
        found.push(snapshot.map_err(|reason| {
            let path = snapshots.path_of(&name);
            ImportSessionError::Invalid { path, reason }
        })?);
    }
    let is_snapshot = |name: &[u8]| {
        name.strip_suffix(b".json")
            .is_some_and(|digits| digits.len() >= 3 && digits.iter().all(u8::is_ascii_digit))
    };
    let count = snapshots.names()?.iter().filter(|listed| is_snapshot(&listed.name)).count();
    if count != found.len() || found.is_empty() {
        let missing = snapshots.path_of(format!("{:03}.json", found.len()).as_bytes());
        let reason = "the snapshot is missing".to_owned();
        return Err(ImportSessionError::Invalid { path: missing, reason });
    }
    Ok(found)
}

fn document<T: DeserializeOwned>(dir: &Dir, name: &[u8]) -> Result<T, ImportSessionError> {
    let bytes = dir.read(name, MAX_DOCUMENT_BYTES)?;
    serde_json::from_slice(&bytes).map_err(|error| ImportSessionError::Invalid {
        path: dir.path_of(name),
        reason: error.to_string(),
    })
}

/// Whether a text can be the id of a session here: no path, no option, no hidden name, no word.
fn is_id(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    id.len() <= MAX_ID_BYTES
        && id.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && id.bytes().all(is_plain)
        && layout::may_be_session(id.as_bytes())
        && !matches!(id, "latest" | "now")
}

/// The paths, sorted, without those inside another.
fn outermost(paths: impl IntoIterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let mut paths: Vec<Vec<u8>> = paths.into_iter().collect();
    paths.sort();
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for path in paths {
        if !kept.iter().any(|outer| crate::byte_path::is_in(&path, outer)) {
            kept.push(path);
        }
    }
    kept
}

/// The deepest directory that holds every file and symlink; without one, the topmost directories.
/// The record names no tracked path then.
fn derived(snapshots: &[ForeignSnapshot]) -> Vec<Vec<u8>> {
    let all =
        || snapshots.iter().flat_map(|has| has.files.keys().chain(has.symlinks.iter().flatten()));
    let mut paths = all();
    let Some(first) = paths.next() else { return Vec::new() };
    let parent = |path: &[u8]| path[..path.iter().rposition(|b| *b == b'/').unwrap_or(0)].to_vec();
    let mut common = parent(first);
    for path in paths {
        while !crate::byte_path::is_in(path, &common) && !common.is_empty() {
            common = parent(&common);
        }
    }
    if !common.is_empty() {
        return vec![common];
    }
    let top = |path: &Vec<u8>| {
        let end = path[1..].iter().position(|byte| *byte == b'/').map_or(path.len(), |at| at + 1);
        path[..end].to_vec()
    };
    all().map(top).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(paths: &[&str]) -> ForeignSnapshot {
        let file =
            ForeignFile { hash: ContentHash::of(b""), size: 0, mtime: 0, permissions: 0o100_644 };
        ForeignSnapshot {
            timestamp: Timestamp::UNIX_EPOCH,
            merkle_root: ContentHash::of(b""),
            symlinks: None,
            files: paths.iter().map(|path| (path.as_bytes().to_vec(), file)).collect(),
        }
    }

    #[test]
    fn without_tracked_paths_the_deepest_directory_of_all_files_counts() {
        let of = |snapshots: &[&[&str]]| -> Vec<String> {
            let snapshots: Vec<_> = snapshots.iter().map(|paths| snapshot(paths)).collect();
            let found = outermost(derived(&snapshots));
            found.into_iter().map(|path| String::from_utf8(path).unwrap()).collect()
        };
        assert_eq!(of(&[&["/p/a/x", "/p/ab/y"]]), ["/p"]);
        assert_eq!(of(&[&["/p/a/x"], &["/p/a/b/y"]]), ["/p/a"]);
        assert_eq!(of(&[&["/p/x", "/q/y"]]), ["/p", "/q"]);
        assert_eq!(of(&[&["/x"]]), ["/x"]);
        assert!(of(&[&[]]).is_empty());
    }

    #[test]
    fn a_tracked_path_inside_another_is_part_of_it() {
        let paths = ["/p/a", "/p", "/pq", "/p"].map(|path| path.as_bytes().to_vec());
        assert_eq!(outermost(paths), [b"/p".to_vec(), b"/pq".to_vec()]);
    }

    #[test]
    fn the_usual_place_follows_the_environment() {
        let place = |state: Option<&str>, home: Option<&str>| {
            usual_place(state.map(Into::into), home.map(Into::into))
        };
        assert_eq!(place(Some("/s"), Some("/h")), Some("/s/nono/rollbacks".into()));
        assert_eq!(place(Some("s"), Some("/h")), Some("/h/.local/state/nono/rollbacks".into()));
        assert_eq!(place(None, None), None);
    }
}
