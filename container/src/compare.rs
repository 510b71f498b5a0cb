//! The differences between two snapshots of containers: configuration, volumes, changed files.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use super::RECORD_PATH;
use super::error::ContainerError;
use super::history::Picked;
use super::record::ContainerRecord;
use nono_engine::diff::{self, Change, Comparison};
use nono_engine::snapshot::NotCapturedSet;

/// The differences of two snapshots.
#[derive(Debug, Clone, Serialize)]
pub struct ContainerDiff {
    /// The older snapshot, `SESSION/N`.
    pub older: String,
    /// The newer snapshot, `SESSION/N`.
    pub newer: String,
    /// Fields of the configuration that differ, by name.
    pub configuration: Vec<FieldChange>,
    /// Paths in `/volumes` and `/changes`.
    pub changes: Vec<Change>,
}

/// A field of the configuration with two values.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FieldChange {
    /// Its name, in the words of the engine.
    pub field: String,
    /// The value in the older snapshot; null where it has none.
    pub older: Value,
    /// The value in the newer snapshot; null where it has none.
    pub newer: Value,
}

/// Compares two snapshots of one store.
///
/// # Errors
/// When one of them is damaged.
pub fn compare(older: &Picked<'_>, newer: &Picked<'_>) -> Result<ContainerDiff, ContainerError> {
    let (old, new) = (older.history.manifest(older.number)?, newer.history.manifest(newer.number)?);
    let differences = diff::compare(newer.history.objects(), &old.merkle_root, &new.merkle_root)?;
    let comparison =
        Comparison::of(&differences, &NotCapturedSet::new(&old), &NotCapturedSet::new(&new));
    let mut changes = comparison.changes;
    changes.retain(|change| change.path != Path::new(RECORD_PATH));
    let id = |picked: &Picked<'_>| format!("{}/{}", picked.history.id(), picked.number);
    Ok(ContainerDiff {
        older: id(older),
        newer: id(newer),
        configuration: configuration(fields_of(older)?, fields_of(newer)?),
        changes,
    })
}

fn fields_of(picked: &Picked<'_>) -> Result<BTreeMap<String, Value>, ContainerError> {
    let record = picked.history.record(picked.number)?;
    fields(&record).map_err(|error| ContainerError::BadRecord {
        session: picked.history.id(),
        number: picked.number,
        reason: error.to_string(),
    })
}

/// The fields that describe the container, by name; not those of the snapshot.
fn fields(record: &ContainerRecord) -> serde_json::Result<BTreeMap<String, Value>> {
    let mut all = BTreeMap::new();
    for (prefix, value) in [
        ("", serde_json::to_value(&record.config)?),
        ("HostConfig.", serde_json::to_value(&record.host_config)?),
    ] {
        if let Value::Object(fields) = value {
            all.extend(fields.into_iter().map(|(name, value)| (format!("{prefix}{name}"), value)));
        }
    }
    all.insert("Name".to_owned(), record.name.clone().into());
    all.insert("Networks".to_owned(), serde_json::to_value(&record.networks)?);
    all.insert("Mounts".to_owned(), serde_json::to_value(&record.mounts)?);
    if let Some(files) = &record.changed_files {
        all.insert("DeletedFiles".to_owned(), serde_json::to_value(&files.deleted)?);
    }
    Ok(all)
}

fn configuration(
    mut old: BTreeMap<String, Value>,
    new: BTreeMap<String, Value>,
) -> Vec<FieldChange> {
    let mut changed = Vec::new();
    for (field, newer) in new {
        let older = old.remove(&field).unwrap_or(Value::Null);
        if older != newer {
            changed.push(FieldChange { field, older, newer });
        }
    }
    let gone = old.into_iter().filter(|(_, older)| !older.is_null());
    changed.extend(gone.map(|(field, older)| FieldChange { field, older, newer: Value::Null }));
    changed
}
