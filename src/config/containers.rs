//! Limits of container snapshots: the table `[containers]` of `config.toml`. A limit of 0 is none.

use serde_json::{Value, json};

use super::settings::{FILE_NAME, Origin, Setting, read_containers};
use super::strict::strict_table;
use super::{ConfigError, Surroundings, config_dir};

/// The keys of these limits in a list of settings begin so.
pub const CONTAINERS_PREFIX: &str = "containers.";

/// Bytes of a gigabyte, as `nono` shows sizes.
const BYTES_PER_GB: f64 = (1u64 << 30) as f64;

strict_table! {
    pub(super) struct ContainersTable {
        max_age_days: u64,
        max_per_container: u64,
        max_snapshots: u64,
        max_storage_gb: f64,
    }
}

/// The limits. They count apart from those of sessions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ContainerLimits {
    /// Greatest age of a snapshot in days.
    pub max_age_days: u64,
    /// Most snapshots of one container.
    pub max_per_container: u64,
    /// Most snapshots of all containers.
    pub max_snapshots: u64,
    /// Most gigabytes (2^30 bytes) of container snapshots, images included.
    pub max_storage_gb: f64,
}

impl Default for ContainerLimits {
    fn default() -> Self {
        Self { max_age_days: 7, max_per_container: 10, max_snapshots: 100, max_storage_gb: 10.0 }
    }
}

impl ContainerLimits {
    /// Reads the table. A file that does not exist says nothing.
    ///
    /// # Errors
    /// A file that is not valid.
    pub fn load(surroundings: &Surroundings<'_>) -> Result<Self, ConfigError> {
        Self::of(&table(surroundings)?)
    }

    /// The limits, one after the other. Their keys begin with [`CONTAINERS_PREFIX`].
    ///
    /// # Errors
    /// A file that is not valid.
    pub fn list(surroundings: &Surroundings<'_>) -> Result<Vec<Setting>, ConfigError> {
        let table = table(surroundings)?;
        let limits = Self::of(&table)?;
        let setting = |key, value: Value, is_in_file, flag| Setting {
            key,
            value,
            origin: if is_in_file { Origin::File } else { Origin::Default },
            flag,
            variable: None,
        };
        Ok(vec![
            setting(
                "containers.max_age_days",
                json!(limits.max_age_days),
                table.max_age_days.is_some(),
                "--max-age-days",
            ),
            setting(
                "containers.max_per_container",
                json!(limits.max_per_container),
                table.max_per_container.is_some(),
                "--max-per-container",
            ),
            setting(
                "containers.max_snapshots",
                json!(limits.max_snapshots),
                table.max_snapshots.is_some(),
                "--max-snapshots",
            ),
            setting(
                "containers.max_storage_gb",
                json!(limits.max_storage_gb),
                table.max_storage_gb.is_some(),
                "--max-storage-gb",
            ),
        ])
    }

    pub(super) fn of(table: &ContainersTable) -> Result<Self, ConfigError> {
        let usual = Self::default();
        let limits = Self {
            max_age_days: table.max_age_days.unwrap_or(usual.max_age_days),
            max_per_container: table.max_per_container.unwrap_or(usual.max_per_container),
            max_snapshots: table.max_snapshots.unwrap_or(usual.max_snapshots),
            max_storage_gb: table.max_storage_gb.unwrap_or(usual.max_storage_gb),
        };
        let gigabytes = limits.max_storage_gb;
        if !gigabytes.is_finite() || gigabytes < 0.0 {
            let reason = format!("{gigabytes} is no size");
            return Err(ConfigError::invalid("containers.max_storage_gb".to_owned(), reason));
        }
        Ok(limits)
    }

    /// Most bytes; `None` is no limit.
    pub fn max_bytes(&self) -> Option<u64> {
        // A value that is too large for the type is no limit either; the cast saturates.
        (self.max_storage_gb > 0.0).then_some((self.max_storage_gb * BYTES_PER_GB) as u64)
    }
}

/// The table in the file. A file that does not exist says nothing.
fn table(surroundings: &Surroundings<'_>) -> Result<ContainersTable, ConfigError> {
    match config_dir(surroundings) {
        Some(dir) => read_containers(&dir.join(FILE_NAME)),
        None => Ok(ContainersTable::default()),
    }
}
