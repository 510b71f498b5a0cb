//! The top of a snapshot: from the record and the parts to one root tree.

use jiff::Timestamp;

use super::changes::Changes;
use super::error::ContainerError;
use super::record::ContainerRecord;
use super::storage::SnapshotState;
use super::volumes::Parts;
use super::{CHANGES_PATH, RECORD_PATH, VOLUMES_PATH};
use nono_engine::manifest::{NotCaptured, NotCapturedReason};
use nono_engine::object::{
    Attributes, ContentHash, FileTime, LinkGroups, Node, RootEntry, RootTree, Tree, Xattrs,
};
use nono_engine::store::ObjectStore;
use nono_engine::sys;

/// Stores the record and the top of a snapshot. `changes`: `None` if they were not asked for.
pub(super) fn build(
    store: &dyn ObjectStore,
    record: &ContainerRecord,
    volumes: Parts,
    changes: Option<Changes>,
) -> Result<SnapshotState, ContainerError> {
    let bytes = record.encode().map_err(|reason| ContainerError::InvalidAnswer {
        operation: "write the record".to_owned(),
        reason,
    })?;
    let timestamp = record.captured_at;
    let mut parts = volumes;
    let tree = Tree::new(std::mem::take(&mut parts.entries)).encode();
    let volumes = Node::Directory { tree: count(store, &tree, &mut parts)? };
    let size = bytes.len() as u64;
    let hash = count(store, &bytes, &mut parts)?;
    parts.totals.file_count += 1;
    parts.totals.total_bytes += size;
    parts.totals.entry_count += 2;
    let mut entries = Vec::new();
    match changes {
        Some(mut changes) => {
            parts.add_totals(&changes.parts.totals);
            parts.links.append(&mut changes.parts.links);
            parts.not_captured.append(&mut changes.parts.not_captured);
            let (attributes, node) = (changes.attributes, changes.node);
            entries.push(RootEntry { path: CHANGES_PATH.as_bytes().into(), attributes, node });
        }
        None => {
            let rule = "the caller: the changed files were not wanted".to_owned();
            parts.not_captured.push(NotCaptured {
                path: CHANGES_PATH.into(),
                reason: NotCapturedReason::Excluded { rule },
                state: None,
            });
        }
    }
    entries.push(RootEntry {
        path: RECORD_PATH.as_bytes().into(),
        attributes: attributes(0o600, timestamp),
        node: Node::file(size, hash),
    });
    entries.push(RootEntry {
        path: VOLUMES_PATH.as_bytes().into(),
        attributes: attributes(0o700, timestamp),
        node: volumes,
    });
    let links = LinkGroups::new(std::mem::take(&mut parts.links));
    let links = match links.is_empty() {
        true => None,
        false => Some(count(store, &links.encode(), &mut parts)?),
    };
    let merkle_root = count(store, &RootTree { entries, links }.encode(), &mut parts)?;
    parts.not_captured.sort_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
    parts.unstable.sort();
    Ok(SnapshotState {
        timestamp,
        merkle_root,
        totals: parts.totals,
        not_captured: parts.not_captured,
        unstable: parts.unstable,
        label: record.message.clone(),
    })
}

fn count(
    store: &dyn ObjectStore,
    bytes: &[u8],
    parts: &mut Parts,
) -> Result<ContentHash, ContainerError> {
    let stored = store.write(bytes)?;
    if stored.is_new {
        parts.totals.objects_written += 1;
        parts.totals.bytes_written += bytes.len() as u64;
    }
    Ok(stored.hash)
}

fn attributes(mode: u16, timestamp: Timestamp) -> Attributes {
    let mtime = FileTime { seconds: timestamp.as_second(), nanoseconds: 0 };
    let (uid, gid) = (sys::effective_uid(), sys::effective_gid());
    Attributes { mode, uid, gid, mtime, xattrs: Xattrs::default() }
}
