//! The names of projects and of their sessions, as a person knows them.
//!
//! A project is a tracked path, and is called by its last part. A session of several paths is in
//! the folder of each. A session is called by when it began and by its name, or by its command. One
//! without a command is called by its maker: the fork, or a watcher's "you or another program".
//!
//! Projects of one name are all called by the directories around them as well. So no name means
//! another project because sessions came or went. Equal names of sessions are numbered from the
//! first that began. Sessions that archives brought say so in their names, so they never take the
//! name of a session that was recorded here.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::tz::TimeZone;

use super::head::SessionHead;
use super::key::SessionKey;
use super::safe_name::{distinct, folded, safe_name};
use super::sessions::{Session, Sessions};
use crate::byte_path;
use crate::path_text;
use crate::session::places_of_work;
use crate::snapshot::SessionOrigin;
use crate::sys::FileTime;

/// Maximum length of the name of a project or session, and of a part that is added to one. With all
/// that is added, a name stays below the 143 bytes that an encrypted file system allows.
const MAX_NAME_BYTES: usize = 80;
const MAX_QUALIFIER_BYTES: usize = 40;
/// Maximum number of directories in the name of a project.
const MAX_QUALIFIER_DIRECTORIES: usize = 4;

/// All projects, as they were when the sessions were last listed.
#[derive(Debug, Default)]
pub(super) struct Projects {
    by_name: BTreeMap<String, Arc<[u8]>>,
    by_path: HashMap<Arc<[u8]>, Project>,
}

/// One tracked path, and its sessions.
#[derive(Debug)]
pub(super) struct Project {
    /// Sessions by name.
    pub(super) sessions: BTreeMap<String, Session>,
    /// The name of the newest one.
    pub(super) latest: Option<String>,
    /// Whether a session was recorded here: then the path means something on this machine.
    pub(super) is_here: bool,
    /// When the last of them changed.
    pub(super) mtime: FileTime,
}

impl Projects {
    pub(super) fn new(sessions: &BTreeMap<Arc<str>, Session>, zone: &TimeZone) -> Self {
        let mut by_path: BTreeMap<&PathBuf, Vec<&Session>> = BTreeMap::new();
        for session in sessions.values() {
            for path in session.head.iter().flat_map(|head| places_of_work(&head.tracked_paths)) {
                by_path.entry(path).or_default().push(session);
            }
        }
        let undated: Vec<&Session> = sessions.values().filter(|one| one.head.is_none()).collect();
        let paths: Vec<Arc<[u8]>> =
            by_path.keys().map(|path| path.as_os_str().as_bytes().into()).collect();
        let projects = by_path.into_values().map(|of_path| project(of_path, &undated, zone));
        let by_name = names(&paths).into_iter().zip(paths.iter().cloned()).collect();
        Self { by_name, by_path: paths.into_iter().zip(projects).collect() }
    }

    /// Names and paths, sorted by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Arc<[u8]>, &Project)> {
        self.by_name.iter().filter_map(|(name, path)| {
            self.by_path.get(path).map(|project| (name.as_str(), path, project))
        })
    }

    pub(super) fn named(&self, name: &[u8]) -> Option<(&Arc<[u8]>, &Project)> {
        let path = self.by_name.get(std::str::from_utf8(name).ok()?)?;
        self.by_path.get_key_value(path)
    }

    pub(super) fn at(&self, path: &[u8]) -> Option<&Project> {
        self.by_path.get(path)
    }
}

impl Project {
    pub(super) fn named(&self, name: &[u8]) -> Option<&Session> {
        self.sessions.get(std::str::from_utf8(name).ok()?)
    }
}

fn project(mut sessions: Vec<&Session>, undated: &[&Session], zone: &TimeZone) -> Project {
    let newest = Sessions::newest(sessions.iter().chain(undated).copied());
    let newest: Option<&SessionKey> = newest.map(|newest| &newest.key);
    sessions.sort_by_key(|session| (session.started(), &session.key.id));
    let heads = sessions.iter().filter_map(|session| session.head.as_deref());
    let names = distinct(heads.map(|head| session_name(head, zone)));
    let latest = sessions.iter().zip(&names).find(|(session, _)| Some(&session.key) == newest);
    Project {
        latest: latest.map(|(_, name)| name.clone()),
        is_here: sessions.iter().any(|session| !session.received()),
        mtime: sessions.iter().map(|session| session.mtime).max().unwrap_or_default(),
        sessions: names.into_iter().zip(sessions.into_iter().cloned()).collect(),
    }
}

/// `2026-11-26 11.49 the big refactor`
fn session_name(head: &SessionHead, zone: &TimeZone) -> String {
    let began = head.started.to_zoned(zone.clone()).strftime("%Y-%m-%d %H.%M").to_string();
    let words = match (&head.label, &head.fork, head.origin) {
        (Some(label), ..) => label.clone().into_bytes(),
        (None, Some(fork), _) => format!("fork {fork}").into_bytes(),
        (None, None, SessionOrigin::Fork) => b"fork".to_vec(),
        (None, None, SessionOrigin::Watch) => b"you or another program".to_vec(),
        (None, None, _) => command(&head.command),
    };
    let name = safe_name(&words, MAX_NAME_BYTES, "snapshot");
    let from = if head.received { " (received)" } else { "" };
    format!("{began} {name}{from}")
}

/// A command, its program without directories.
fn command(words: &[String]) -> Vec<u8> {
    let mut decoded = words.iter().map(|word| path_text::decode(word));
    let program = decoded.next().unwrap_or_default();
    let program = byte_path::split(&program).1.to_vec();
    let mut line = program;
    for word in decoded {
        // A part that is further behind is cut in any case.
        if line.len() > 4 * MAX_NAME_BYTES {
            break;
        }
        line.push(b' ');
        line.extend(word);
    }
    line
}

/// The names of projects, in the order of their paths, which are sorted.
fn names(paths: &[Arc<[u8]>]) -> Vec<String> {
    let plain: Vec<String> = paths.iter().map(|path| plain_name(path)).collect();
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (at, name) in plain.iter().enumerate() {
        groups.entry(folded(name)).or_default().push(at);
    }
    let mut names = plain.clone();
    for group in groups.into_values().filter(|group| group.len() > 1) {
        for depth in 1..=MAX_QUALIFIER_DIRECTORIES {
            let qualified: Vec<String> = group
                .iter()
                .map(|at| format!("{} ({})", plain[*at], around(&paths[*at], depth)))
                .collect();
            let mut seen: Vec<String> = qualified.iter().map(|name| folded(name)).collect();
            seen.sort_unstable();
            seen.dedup();
            let is_told_apart = seen.len() == group.len();
            for (at, name) in group.iter().zip(qualified) {
                names[*at] = name;
            }
            if is_told_apart {
                break;
            }
        }
    }
    distinct(names)
}

fn plain_name(path: &[u8]) -> String {
    safe_name(byte_path::split(path).1, MAX_NAME_BYTES, "project")
}

/// The last directories of those around a path.
fn around(path: &[u8], depth: usize) -> String {
    let above: Vec<&[u8]> = byte_path::components(byte_path::split(path).0).collect();
    let last = above[above.len().saturating_sub(depth)..].join(&b'-');
    safe_name(&last, MAX_QUALIFIER_BYTES, "top")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(paths: &[&str]) -> Vec<String> {
        let mut paths: Vec<Arc<[u8]>> = paths.iter().map(|path| path.as_bytes().into()).collect();
        paths.sort_unstable();
        names(&paths)
    }

    #[test]
    fn projects_of_one_name_are_told_apart_by_the_directories_around_them() {
        assert_eq!(named(&["/home/ada/shop", "/home/ada/bank"]), ["bank", "shop"]);
        assert_eq!(named(&["/a/shop", "/b/shop", "/shop"]), ["shop (a)", "shop (b)", "shop (top)"]);
        assert_eq!(named(&["/a/x/shop", "/b/x/shop"]), ["shop (a-x)", "shop (b-x)"]);
        assert_eq!(named(&["/a/Shop", "/b/shop"]), ["Shop (a)", "shop (b)"]);
        // Where the names of directories become one, or a project is called so.
        assert_eq!(named(&["/a:/s", "/a?/s"]), ["s (a)", "s (a) (2)"]);
        assert_eq!(named(&["/a/s", "/b/s", "/b/s (b)"]), ["s (a)", "s (b)", "s (b) (2)"]);
        assert_eq!(named(&["/"]), ["project"]);
    }

    #[test]
    fn a_session_is_called_by_its_name_its_command_or_its_maker() {
        let name = |label: Option<&str>, command: &[&str], received| {
            let head = SessionHead {
                started: "2026-11-26T10:49:31Z".parse().unwrap(),
                tracked_paths: Vec::new(),
                received,
                origin: SessionOrigin::Run,
                fork: None,
                label: label.map(str::to_owned),
                command: command.iter().map(|word| (*word).to_owned()).collect(),
            };
            session_name(&head, &TimeZone::fixed(jiff::tz::offset(1)))
        };
        let made_by = |origin, fork: Option<&str>| {
            let head = SessionHead {
                started: "2026-11-26T10:49:31Z".parse().unwrap(),
                tracked_paths: Vec::new(),
                received: false,
                origin,
                fork: fork.map(str::to_owned),
                label: None,
                command: Vec::new(),
            };
            session_name(&head, &TimeZone::fixed(jiff::tz::offset(1)))
        };
        let fork = SessionOrigin::Fork;
        assert_eq!(made_by(fork, Some("a/b")), "2026-11-26 11.49 fork a-b");
        assert_eq!(made_by(fork, None), "2026-11-26 11.49 fork");
        let watched = made_by(SessionOrigin::Watch, None);
        assert_eq!(watched, "2026-11-26 11.49 you or another program");
        let label = Some("the big refactor");
        assert_eq!(name(label, &["claude"], false), "2026-11-26 11.49 the big refactor");
        assert_eq!(name(None, &["/bin/sh", "-c", "a; b"], false), "2026-11-26 11.49 sh -c a; b");
        assert_eq!(name(None, &[], false), "2026-11-26 11.49 snapshot");
        assert_eq!(name(Some("x"), &[], true), "2026-11-26 11.49 x (received)");
        assert_eq!(name(None, &["\\xff\\x00"], false), "2026-11-26 11.49 snapshot");
        let longest = name(Some(&"ä".repeat(100)), &[], true);
        assert!(longest.len() < 143 - " (1000)".len(), "{}", longest.len());
    }
}
