//! The facts of a container, in the manifest of its history that was made again.

use serde::Deserialize;

use super::RepairError;
use crate::object::{ContentHash, Node};
use crate::snapshot::{CONTAINER_PATHS, ContainerSession, SessionDir, SessionOrigin, VolumeSource};
use crate::store::{LocalStore, ObjectSource, read_root_tree};

/// Longer records are not read.
const MAX_RECORD_BYTES: u64 = 64 << 20;

/// The part of a snapshot's record that the session repeats.
#[derive(Deserialize)]
struct Record {
    container_id: String,
    name: String,
    #[serde(default)]
    volume_source: Option<VolumeSource>,
}

/// Takes the facts from the newest record that can be read. Without one the session stays without
/// them: its files are there, and `nono container` passes it over. Under the session's lock.
pub(super) fn describe_again(session: &SessionDir, store: &LocalStore) -> Result<(), RepairError> {
    let Ok(mut metadata) = session.metadata() else { return Ok(()) };
    if metadata.origin != SessionOrigin::Container || metadata.container.is_some() {
        return Ok(());
    }
    let mut roots = metadata.merkle_roots.iter().enumerate().rev();
    let record = roots.find_map(|(number, root)| {
        let is_held = metadata.removal(number as u64).is_none();
        is_held.then(|| read(store, root)).flatten()
    });
    let Some(record) = record else { return Ok(()) };
    metadata.container = Some(ContainerSession {
        container_id: record.container_id,
        former_ids: Vec::new(),
        name: record.name,
        // The next snapshot notes it.
        endpoint: String::new(),
        volume_source: record.volume_source,
        restored_from: None,
        restorations: Vec::new(),
    });
    Ok(session.save_metadata(&metadata)?)
}

fn read(store: &LocalStore, root: &ContentHash) -> Option<Record> {
    let [_, path, _] = CONTAINER_PATHS;
    let entries = read_root_tree(store, root).ok()?.entries;
    let entry = entries.into_iter().find(|entry| *entry.path == *path.as_bytes())?;
    let Node::File { size, hash, .. } = entry.node else { return None };
    let bytes = (size <= MAX_RECORD_BYTES).then(|| store.read(&hash, size))?.ok()?;
    serde_json::from_slice(&bytes).ok()
}
