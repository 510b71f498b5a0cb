//! The first fields of a manifest, without the rest.
//!
//! A snapshot's manifest lists every path that was not captured, which can be megabytes. What the
//! mount needs stands before that, so the parser stops as soon as it has it. It finds the fields in
//! any order, only slower.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufReader};
use std::path::PathBuf;

use jiff::Timestamp;
use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};

use super::error::from_manifest;
use crate::object::ContentHash;
use crate::path_text;
use crate::snapshot::{MANIFEST_VERSION, ManifestError, SessionOrigin};
use crate::sys::{Dir, FileKind};

/// The facts in the manifest of a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SnapshotHead {
    pub(super) timestamp: Timestamp,
    pub(super) merkle_root: ContentHash,
}

/// The facts in the manifest of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SessionHead {
    pub(super) started: Timestamp,
    pub(super) tracked_paths: Vec<PathBuf>,
    /// Whether an archive brought the session.
    pub(super) received: bool,
    /// Its maker.
    pub(super) origin: SessionOrigin,
    /// The name of the fork that begins from it, if one does.
    pub(super) fork: Option<String>,
    /// The name that a person gave it.
    pub(super) label: Option<String>,
    /// The command and its arguments, as text.
    pub(super) command: Vec<String>,
}

#[derive(Default)]
struct SnapshotFields {
    format_version: Option<u32>,
    number: Option<u64>,
    timestamp: Option<Timestamp>,
    merkle_root: Option<ContentHash>,
}

#[derive(Default)]
struct SessionFields {
    started: Option<Timestamp>,
    tracked_paths: Option<Vec<String>>,
    /// Only there when it is true, and then before the others.
    received: bool,
    /// Before the tracked paths.
    origin: SessionOrigin,
    /// Before the tracked paths, if it is there.
    label: Option<String>,
    /// Before the tracked paths.
    command: Vec<String>,
}

/// Fields to collect from a JSON object.
trait Fields {
    /// Takes the value of `name`, or ignores it.
    fn take<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
    fn complete(&self) -> bool;
}

impl Fields for SnapshotFields {
    fn take<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "format_version" => self.format_version = Some(map.next_value()?),
            "number" => self.number = Some(map.next_value()?),
            "timestamp" => self.timestamp = Some(map.next_value()?),
            "merkle_root" => self.merkle_root = Some(map.next_value()?),
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }

    fn complete(&self) -> bool {
        self.format_version.is_some()
            && self.number.is_some()
            && self.timestamp.is_some()
            && self.merkle_root.is_some()
    }
}

impl Fields for SessionFields {
    fn take<'de, A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error> {
        match name {
            "received" => self.received = map.next_value()?,
            "origin" => self.origin = map.next_value()?,
            "label" => self.label = map.next_value()?,
            "command" => self.command = map.next_value()?,
            "started" => self.started = Some(map.next_value()?),
            "tracked_paths" => self.tracked_paths = Some(map.next_value()?),
            _ => drop(map.next_value::<IgnoredAny>()?),
        }
        Ok(())
    }

    fn complete(&self) -> bool {
        self.started.is_some() && self.tracked_paths.is_some()
    }
}

struct Collect<'a, F>(&'a mut F);

impl<'de, F: Fields> Visitor<'de> for Collect<'_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a manifest")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while !self.0.complete() {
            let Some(name) = map.next_key::<Cow<'de, str>>()? else { break };
            self.0.take(&name, &mut map)?;
        }
        Ok(())
    }
}

/// Reads the head of a snapshot's manifest.
pub(super) fn read_snapshot(dir: &Dir, name: &[u8], number: u64) -> io::Result<SnapshotHead> {
    let corrupt =
        |reason: String| from_manifest(ManifestError::Corrupt { path: dir.path_of(name), reason });
    let fields: SnapshotFields = read(dir, name)?;
    let SnapshotFields { format_version, number: found, timestamp, merkle_root } = fields;
    let (Some(version), Some(found), Some(timestamp), Some(merkle_root)) =
        (format_version, found, timestamp, merkle_root)
    else {
        return Err(corrupt("a field is missing".to_owned()));
    };
    if version > MANIFEST_VERSION {
        let path = dir.path_of(name);
        return Err(from_manifest(ManifestError::Newer { path, found: version }));
    }
    if found != number {
        return Err(corrupt(format!("it says it is snapshot {found}, not {number}")));
    }
    Ok(SnapshotHead { timestamp, merkle_root })
}

/// Reads the head of a session's manifest. The name of a fork stands elsewhere.
pub(super) fn read_session(dir: &Dir, name: &[u8]) -> io::Result<SessionHead> {
    let SessionFields { started, tracked_paths, received, origin, label, command } =
        read(dir, name)?;
    let (Some(started), Some(tracked_paths)) = (started, tracked_paths) else {
        let reason = "a field is missing".to_owned();
        return Err(from_manifest(ManifestError::Corrupt { path: dir.path_of(name), reason }));
    };
    let decode = |text: &String| path_text::to_path(&path_text::decode(text)).to_owned();
    let tracked_paths = tracked_paths.iter().map(decode).collect();
    Ok(SessionHead { started, tracked_paths, received, origin, fork: None, label, command })
}

fn read<F: Fields + Default>(dir: &Dir, name: &[u8]) -> io::Result<F> {
    let path = dir.path_of(name);
    let sys = |error: crate::sys::Error| match error.is_gone() {
        true => from_manifest(ManifestError::Missing { path: path.clone() }),
        false => from_manifest(error.into()),
    };
    let corrupt = |reason| from_manifest(ManifestError::Corrupt { path: path.clone(), reason });
    let file = dir.open_file(name, false).map_err(sys)?;
    if dir.stat_file(&file, name).map_err(sys)?.kind != FileKind::File {
        return Err(corrupt("it is not a regular file".to_owned()));
    }
    let mut fields = F::default();
    let reader = BufReader::with_capacity(4096, file);
    let mut json = serde_json::Deserializer::from_reader(reader);
    match json.deserialize_map(Collect(&mut fields)) {
        // Stopping before the end of the object is an error to the parser, but not here.
        Err(_) if fields.complete() => Ok(fields),
        Err(error) if error.is_io() => Err(error.into()),
        Err(error) => Err(corrupt(error.to_string())),
        Ok(()) => Ok(fields),
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests plant what they look at")]
mod tests {
    use super::*;

    fn dir_with(text: &str) -> (tempfile::TempDir, Dir) {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("m"), text).unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        (temp, dir)
    }

    fn snapshot(text: &str) -> io::Result<SnapshotHead> {
        let (_temp, dir) = dir_with(text);
        read_snapshot(&dir, b"m", 3)
    }

    const HASH: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn reading_stops_where_the_last_field_ends() {
        let head = format!(
            r#"{{"format_version":1,"number":3,"timestamp":"2026-02-14T14:30:22Z","parent":2,
               "merkle_root":"{HASH}","not_captured":["#
        );
        // The rest is not even JSON, and is not looked at.
        let found = snapshot(&format!("{head} !!!")).unwrap();
        assert_eq!(found.merkle_root.hex(), HASH);
        assert_eq!(found.timestamp.to_string(), "2026-02-14T14:30:22Z");
    }

    #[test]
    fn fields_are_found_in_any_order() {
        let found = snapshot(&format!(
            r#"{{"not_captured":[{{"path":"/a\u0041"}}],"merkle_root":"{HASH}","number":3,
               "timestamp":"2026-02-14T14:30:22Z","format_version":1}}"#
        ));
        assert!(found.is_ok());
    }

    #[test]
    fn damage_is_an_error_that_names_the_file() {
        let other_number = format!(
            r#"{{"format_version":1,"number":4,"timestamp":"2026-02-14T14:30:22Z","merkle_root":"{HASH}"}}"#
        );
        let newer = other_number.replace("\"format_version\":1", "\"format_version\":99");
        for text in ["", "{", "{}", "[]", "{\"format_version\":1}", &other_number, &newer] {
            let error = snapshot(text).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{text}");
            assert!(error.to_string().contains("/m"), "{error}");
        }
    }

    #[test]
    fn a_session_is_read_up_to_its_tracked_paths() {
        let (_temp, dir) = dir_with(
            r#"{"session_id":"x","started":"2026-02-14T14:30:22Z","ended":null,
               "command":["a","b"],"tracked_paths":["/p\\xff"], broken"#,
        );
        let head = read_session(&dir, b"m").unwrap();
        assert_eq!(head.tracked_paths, [path_text::to_path(b"/p\xff")]);
    }
}
