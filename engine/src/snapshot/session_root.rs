//! One hash that commits to a whole session: its facts, and all of its snapshots.
//!
//! ```text
//! nono session root 1
//! facts <hash>          of the facts: compact JSON, keys sorted
//! snapshots <count>
//! manifest <hash>       of the file of the last snapshot's manifest; without a snapshot there is no such line
//! ```
//!
//! The SHA-256 of this text is the session root. The last manifest names the one before it by hash,
//! and each names a Merkle root, so the root commits to every manifest, name, attribute and byte.
//! The facts are everything that a session's manifest says but for what follows from its snapshots:
//! command, times, exit code, tracked paths, network events, and what programs added. Nothing of
//! the root is stored: it is computed from what the session says.
//!
//! Snapshots that come later change neither the facts nor the manifests before, unless a program
//! goes on with more tracked paths. So a root that was
//! noted at the end of a run can still be compared after a restore has added a snapshot.

use serde_json::Value;

use super::metadata::SessionMetadata;
use crate::object::ContentHash;

/// The fields that follow from the snapshots, describe the file and not the session, or may change
/// at any time.
const NO_FACTS: [&str; 17] = [
    "snapshot_count",
    "merkle_roots",
    "manifest_hashes",
    "labels",
    "safety_snapshots",
    "agent",
    "container",
    "merge",
    "steps",
    "bytes_written",
    "changes",
    "restores",
    "removed",
    "altered",
    "pinned",
    "received",
    "received_snapshots",
];

/// Commits to the facts of a session, without its snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FactsHash(ContentHash);

impl FactsHash {
    /// The session root with so many snapshots, of which the last one has a manifest with this
    /// hash.
    pub(crate) fn root(self, count: usize, last_manifest: Option<&ContentHash>) -> ContentHash {
        let mut text = format!("nono session root 1\nfacts {}\nsnapshots {count}\n", self.0);
        if let Some(manifest) = last_manifest {
            text.push_str(&format!("manifest {manifest}\n"));
        }
        ContentHash::of(text.as_bytes())
    }
}

impl SessionMetadata {
    /// One hash that commits to the session as it is described here, and to all snapshots that it
    /// lists. [`VerifyOptions::expected_root`](crate::verify::VerifyOptions::expected_root)
    /// compares with it.
    pub fn session_root(&self) -> ContentHash {
        self.facts().root(self.manifest_hashes.len(), self.manifest_hashes.last())
    }

    pub(crate) fn facts(&self) -> FactsHash {
        // Every field has text for its keys, so this cannot fail.
        let mut facts = serde_json::to_value(self).unwrap_or_default();
        if let Value::Object(fields) = &mut facts {
            fields.retain(|name, _| !NO_FACTS.contains(&name.as_str()));
        }
        facts.sort_all_objects();
        FactsHash(ContentHash::of(facts.to_string().as_bytes()))
    }

    /// The facts as they were as long as the session had not ended: roots of checkpoints that a
    /// command asked for commit to these.
    pub(crate) fn facts_before_end(&self) -> FactsHash {
        Self { ended: None, exit_code: None, ..self.clone() }.facts()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::snapshot::restore_log::RestoreRecord;

    fn session() -> SessionMetadata {
        let mut session =
            SessionMetadata::new("s".to_owned(), vec!["make".to_owned()], vec!["/p".into()]);
        session.network_events = vec![json!({"b": 0.1, "a": 1.000_000_000_000_000_2})];
        session.manifest_hashes = vec![ContentHash::of(b"first"), ContentHash::of(b"second")];
        session
    }

    /// Something that changes a session.
    type Change = Box<dyn Fn(&mut SessionMetadata)>;

    #[test]
    fn every_fact_and_every_snapshot_is_in_the_root() {
        let root = session().session_root();
        let changes: [Change; 10] = [
            Box::new(|s| s.session_id.push('x')),
            Box::new(|s| s.command.push("all".to_owned())),
            Box::new(|s| s.tracked_paths[0].push("x")),
            Box::new(|s| s.ended = Some(s.started)),
            Box::new(|s| s.exit_code = Some(0)),
            Box::new(|s| s.label = Some("x".to_owned())),
            Box::new(|s| s.network_events[0]["a"] = json!(1)),
            Box::new(|s| drop(s.extra.insert("more".to_owned(), json!(null)))),
            Box::new(|s| s.manifest_hashes[1] = ContentHash::of(b"other")),
            Box::new(|s| s.manifest_hashes.truncate(1)),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut changed = session();
            changed.started = session().started;
            change(&mut changed);
            assert_ne!(changed.session_root(), root, "change {number}");
        }
    }

    #[test]
    fn a_pin_changes_no_root() {
        let mut pinned = session();
        let root = pinned.session_root();
        pinned.pinned = true;
        assert_eq!(pinned.session_root(), root);
    }

    #[test]
    fn the_root_is_the_same_after_writing_and_reading() {
        let session = session();
        let text = serde_json::to_string(&session).unwrap();
        let read: SessionMetadata = serde_json::from_str(&text).unwrap();
        assert_eq!(read.session_root(), session.session_root());
    }

    #[test]
    fn a_later_snapshot_does_not_keep_an_earlier_root_from_being_computed() {
        let mut later = session();
        later.manifest_hashes.push(ContentHash::of(b"third"));
        later.snapshot_count = 3;
        later.bytes_written = 7;
        later.restores = vec![RestoreRecord {
            at: later.started,
            snapshot: 0,
            command: crate::snapshot::RestoreCommand::Undo,
            safety_snapshot: Some(2),
            is_partial: false,
            undoes_steps: false,
            left_some: false,
            has_merged: false,
            left_text: None,
        }];
        let mut earlier = later.clone();
        earlier.manifest_hashes.pop();
        let root = later.facts().root(2, earlier.manifest_hashes.last());
        assert_eq!(root, earlier.session_root());
        later.ended = Some(later.started);
        later.exit_code = Some(1);
        assert_eq!(later.facts_before_end(), earlier.facts());
    }
}
