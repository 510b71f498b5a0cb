//! A profile: the needs of a kind of command.
//!
//! `allow` is the user's work: written, and recorded. `write` is written and not recorded: the
//! command's own settings and caches. `create` is as `write`, for directories that are made when
//! they are missing, because a grant needs an existing path; `create_files` is the same for files,
//! with their first contents.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde::{Serialize, Serializer};

use super::environment::{EnvironmentRules, EnvironmentTable};
use super::place::expand_pattern;
use super::strict::strict_table;
use super::{ConfigError, Surroundings};
use nono_engine::walk::{ExclusionConfig, Filter};

/// A profile, with everything that it inherits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Profile {
    /// Its purpose, in one line.
    pub description: String,
    /// Paths that the command reads and writes, and that are recorded.
    pub allow: Vec<String>,
    /// Paths that it only reads.
    pub read: Vec<String>,
    /// Paths that it reads and writes, and that are not recorded.
    pub write: Vec<String>,
    /// Directories as `write`, made (0700) when they are missing.
    pub create: Vec<String>,
    /// Files as `write`, made (0600) with this text when they are missing.
    pub create_files: BTreeMap<String, String>,
    /// Paths that make the agent what it is: memory, settings, skills. A component `*` means each
    /// directory there. `nono snapshot --agent` records them.
    pub state_paths: Vec<String>,
    /// Exceptions from these: credentials, caches, histories. A place (`~/…`, `$NAME/…`, `/…`) is
    /// named, any other text is a pattern.
    pub state_exclude: Vec<String>,
    /// The reachable part of the network.
    pub network: NetworkGrant,
    /// Which variables it sees.
    pub env: EnvironmentRules,
    /// The rules of the recording.
    pub rollback: RollbackRules,
    /// The commands around the snapshots of a run.
    #[serde(skip_serializing_if = "SnapshotHooks::is_empty")]
    pub hooks: SnapshotHooks,
}

/// Commands around the first and the last snapshot of a run. They run outside of the walls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SnapshotHooks {
    /// The words of the command before; none is no command.
    pub before_snapshot: Vec<String>,
    /// The words of the command after.
    pub after_snapshot: Vec<String>,
    /// Longest time of each command, in seconds.
    pub timeout_seconds: u64,
    /// The effect of a failure before the first snapshot.
    pub on_failure: HookFailure,
}

/// The effect of a failed command before a snapshot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HookFailure {
    /// It is said, and the snapshot is taken.
    #[default]
    Warn,
    /// The run does not begin. The last snapshot is taken in any case.
    Stop,
}

/// The time limit of a command without a word about it, in seconds.
const HOOK_TIMEOUT_SECONDS: u64 = 30;

impl Default for SnapshotHooks {
    fn default() -> Self {
        Self {
            before_snapshot: Vec::new(),
            after_snapshot: Vec::new(),
            timeout_seconds: HOOK_TIMEOUT_SECONDS,
            on_failure: HookFailure::default(),
        }
    }
}

impl SnapshotHooks {
    /// Whether there is no command.
    pub fn is_empty(&self) -> bool {
        self.before_snapshot.is_empty() && self.after_snapshot.is_empty()
    }

    /// A command of the extended profile stays unless there is another one.
    fn extend(&mut self, table: HooksTable) {
        let HooksTable { before_snapshot, after_snapshot, timeout_seconds, on_failure } = table;
        self.before_snapshot = before_snapshot.unwrap_or(std::mem::take(&mut self.before_snapshot));
        self.after_snapshot = after_snapshot.unwrap_or(std::mem::take(&mut self.after_snapshot));
        self.timeout_seconds = timeout_seconds.unwrap_or(self.timeout_seconds);
        self.on_failure = on_failure.unwrap_or(self.on_failure);
    }
}

/// The exclusions of a recording, and their exceptions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RollbackRules {
    /// Names or paths that are left out.
    pub exclude_patterns: Vec<String>,
    /// Globs on names of files that are left out.
    pub exclude_globs: Vec<String>,
    /// The names that stay in whatever excludes them.
    pub force_include: Vec<String>,
    /// Whether `.gitignore` files count; without a value, they do.
    pub use_gitignore: Option<bool>,
}

/// The part of the network that a command reaches: `true`, `false`, or `{"connect": [443]}`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NetworkGrant {
    /// Everything.
    #[default]
    Open,
    /// Nothing.
    Closed,
    /// TCP connections to these ports.
    Connect(Vec<u16>),
}

strict_table! {
    /// A profile as its file has it.
    pub(super) struct ProfileTable {
        extends: String,
        description: String,
        allow: Vec<String>,
        read: Vec<String>,
        write: Vec<String>,
        create: Vec<String>,
        create_files: BTreeMap<String, String>,
        state_paths: Vec<String>,
        state_exclude: Vec<String>,
        network: NetworkGrant,
        env: EnvironmentTable,
        rollback | undo: RollbackTable,
        hooks: HooksTable,
    }
}

strict_table! {
    /// The table `hooks`.
    pub(super) struct HooksTable {
        before_snapshot: Vec<String>,
        after_snapshot: Vec<String>,
        timeout_seconds: u64,
        on_failure: HookFailure,
    }
}

strict_table! {
    /// The table `rollback`, which older files call `undo`.
    pub(super) struct RollbackTable {
        exclude_patterns: Vec<String>,
        exclude_globs: Vec<String>,
        force_include: Vec<String>,
        use_gitignore: bool,
    }
}

strict_table! {
    /// The table `network`.
    struct NetworkTable {
        connect: Vec<u16>,
    }
}

impl Profile {
    /// Adds what a profile says to what it inherits: lists grow, single values are replaced.
    pub(super) fn extend(&mut self, table: ProfileTable) {
        let ProfileTable {
            extends: _,
            description,
            allow,
            read,
            write,
            create,
            create_files,
            state_paths,
            state_exclude,
            network,
            env,
            rollback,
            hooks,
        } = table;
        self.description = description.unwrap_or_default();
        append(&mut self.allow, allow);
        append(&mut self.read, read);
        append(&mut self.write, write);
        append(&mut self.create, create);
        self.create_files.extend(create_files.unwrap_or_default());
        append(&mut self.state_paths, state_paths);
        append(&mut self.state_exclude, state_exclude);
        if let Some(network) = network {
            self.network = network;
        }
        self.env.extend(env.unwrap_or_default());
        self.rollback.extend(rollback.unwrap_or_default());
        self.hooks.extend(hooks.unwrap_or_default());
    }

    /// Checks what can be checked without a look at the disk.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        self.env.check()?;
        self.rollback.check("rollback")
    }
}

impl RollbackRules {
    /// The exclusions that they add to `config`.
    ///
    /// # Errors
    /// A pattern that can never mean anything.
    pub fn add_to(
        &self,
        config: &mut ExclusionConfig,
        surroundings: &Surroundings<'_>,
    ) -> Result<(), ConfigError> {
        config.exclude_patterns.extend(expand_patterns(&self.exclude_patterns, surroundings)?);
        config.exclude_globs.extend_from_slice(&self.exclude_globs);
        config.force_include.extend(expand_patterns(&self.force_include, surroundings)?);
        config.use_gitignore = self.use_gitignore.unwrap_or(config.use_gitignore);
        Ok(())
    }

    /// Checks what can be checked without a look at the disk and at variables. `origin` names them.
    pub(super) fn check(&self, origin: &str) -> Result<(), ConfigError> {
        let anywhere = Surroundings {
            home: Some("/home".into()),
            current_dir: "/".into(),
            variable: &|_| Some("/variable".into()),
            is_inside: false,
        };
        let mut config = ExclusionConfig::default();
        self.add_to(&mut config, &anywhere)?;
        match Filter::new(&config) {
            Ok(_) => Ok(()),
            Err(error) => Err(ConfigError::invalid(origin, error.to_string())),
        }
    }

    pub(super) fn extend(&mut self, table: RollbackTable) {
        append(&mut self.exclude_patterns, table.exclude_patterns);
        append(&mut self.exclude_globs, table.exclude_globs);
        append(&mut self.force_include, table.force_include);
        self.use_gitignore = table.use_gitignore.or(self.use_gitignore);
    }
}

/// Patterns as the engine takes them, without those that begin with a variable that is not set.
///
/// # Errors
/// When a pattern begins with another user's home (`~ada/…`).
pub fn expand_patterns(
    texts: &[String],
    surroundings: &Surroundings<'_>,
) -> Result<Vec<String>, ConfigError> {
    let expanded = texts.iter().map(|text| {
        let pattern = expand_pattern(text, surroundings)?;
        if pattern.is_none() {
            tracing::debug!("the pattern {text} does not count: the variable is not set");
        }
        Ok(pattern)
    });
    expanded.filter_map(Result::transpose).collect()
}

/// Adds what is not there yet.
pub(super) fn append(list: &mut Vec<String>, more: Option<Vec<String>>) {
    for item in more.unwrap_or_default() {
        if !list.contains(&item) {
            list.push(item);
        }
    }
}

impl<'de> Deserialize<'de> for NetworkGrant {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Grant;

        impl<'de> Visitor<'de> for Grant {
            type Value = NetworkGrant;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, or a table with the TCP ports to \"connect\" to")
            }

            fn visit_bool<E: Error>(self, is_open: bool) -> Result<NetworkGrant, E> {
                Ok(if is_open { NetworkGrant::Open } else { NetworkGrant::Closed })
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<NetworkGrant, M::Error> {
                let table =
                    NetworkTable::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                let missing = || M::Error::missing_field("connect");
                Ok(NetworkGrant::Connect(table.connect.ok_or_else(missing)?))
            }
        }

        input.deserialize_any(Grant)
    }
}

impl Serialize for NetworkGrant {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Open => out.serialize_bool(true),
            Self::Closed => out.serialize_bool(false),
            Self::Connect(ports) => out.collect_map([("connect", ports)]),
        }
    }
}
