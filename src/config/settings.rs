//! Settings of recordings and of the store: from a flag, the environment, `config.toml`, or built
//! in.
//!
//! The file is `config.toml` in the directory of the configuration, its table `[rollback]` (older
//! name `[undo]`). A limit of 0 is none.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Serialize;
use serde_json::json;

use super::containers::{CONTAINERS_PREFIX, ContainerLimits, ContainersTable};
use super::document;
use super::profile::RollbackRules;
use super::remotes::RemoteTables;
use super::strict::strict_table;
use super::{ConfigError, Surroundings, config_dir};
use nono_engine::path_text::Shown;
use nono_engine::snapshot::Budget;
use nono_engine::store::Compression;
use nono_engine::walk::Ignored;

/// Name of the file.
pub(super) const FILE_NAME: &str = "config.toml";
const DEFAULT_MAX_SESSIONS: u64 = 10;
const DEFAULT_MAX_STORAGE_GB: f64 = 5.0;
/// Files that usually hold secrets: agents are not shown their contents.
const DEFAULT_MCP_HIDDEN: [&str; 13] = [
    ".env",
    ".env.*",
    ".envrc",
    "*.pem",
    "*.key",
    "*.p12",
    "id_rsa",
    "id_ecdsa",
    "id_ed25519",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
];
/// More threads than any machine has use for.
const MAX_THREADS: u64 = 1024;
/// Bytes of a gigabyte, as `nono` shows sizes.
const BYTES_PER_GB: f64 = (1u64 << 30) as f64;

/// Where a value is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Built in.
    Default,
    /// The configuration file.
    File,
    /// A variable of the environment.
    Environment,
    /// An argument.
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Environment => "environment",
            Self::Flag => "flag",
        })
    }
}

/// A value, and where it is from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Where it is from.
    pub origin: Origin,
}

/// Values that arguments give.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FlagSettings {
    /// As the setting of this name.
    pub max_sessions: Option<u64>,
    /// As the setting of this name.
    pub max_storage_gb: Option<f64>,
    /// As the setting of this name.
    pub max_age_days: Option<u64>,
    /// As the settings of these names.
    pub keep: KeepFlags,
    /// As the setting of this name.
    pub max_entries: Option<u64>,
    /// As the setting of this name.
    pub max_bytes: Option<u64>,
    /// As the setting of this name.
    pub threads: Option<u64>,
    /// As the setting of this name.
    pub ignored: Option<Ignored>,
}

/// The numbers of newest sessions, hours, days, weeks and months that stay, where arguments give
/// them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KeepFlags {
    /// Sessions.
    pub last: Option<u64>,
    /// Hours.
    pub hourly: Option<u64>,
    /// Days.
    pub daily: Option<u64>,
    /// Weeks.
    pub weekly: Option<u64>,
    /// Months.
    pub monthly: Option<u64>,
}

/// All settings.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Most sessions of a project that changed something.
    pub max_sessions: Sourced<u64>,
    /// Most gigabytes (2^30 bytes) of objects of a store.
    pub max_storage_gb: Sourced<f64>,
    /// Greatest age of a session in days.
    pub max_age_days: Sourced<u64>,
    /// The number of newest sessions of a project, steps of an agent's session and changes of a
    /// watcher that stay; 0 is no rule, as in the next ones.
    pub keep_last: Sourced<u64>,
    /// The number of hours of which the newest one stays.
    pub keep_hourly: Sourced<u64>,
    /// The number of days.
    pub keep_daily: Sourced<u64>,
    /// The number of weeks.
    pub keep_weekly: Sourced<u64>,
    /// The number of months.
    pub keep_monthly: Sourced<u64>,
    /// Most files, directories and links of one snapshot.
    pub max_entries: Sourced<u64>,
    /// Most bytes of file contents of one snapshot.
    pub max_bytes: Sourced<u64>,
    /// Most forks of a store.
    pub max_forks: Sourced<u64>,
    /// Most bytes of the layers of all forks of a store.
    pub max_fork_bytes: Sourced<u64>,
    /// Worker threads; 0 is one for each core.
    pub threads: Sourced<u64>,
    /// Whether `nono run` records unless it is told not to.
    pub record: Sourced<bool>,
    /// Whether a run names what it changed that programs run by themselves later.
    pub name_run_later: Sourced<bool>,
    /// The ignored paths that are recorded.
    pub ignored: Sourced<Ignored>,
    /// How objects are compressed.
    pub compression: Sourced<Compression>,
    /// Whether an agent may restore files through `nono mcp`.
    pub mcp_restore: Sourced<bool>,
    /// Whether an agent is told, at its next prompt, of an undo, a restore or a merge.
    pub tell_agents: Sourced<bool>,
    /// Names and paths with contents that `nono mcp` hides, as globs; `None` means the usual ones.
    pub mcp_hidden: Option<Vec<String>>,
    /// The remote that gets each run when it has ended, by name.
    pub push_after_run: Option<String>,
    /// The exclusions of every recording, from the file.
    pub rollback: RollbackRules,
    /// The file, whether it exists or not.
    pub file: Option<PathBuf>,
}

/// One line of a list of settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Setting {
    /// Its key in the file.
    pub key: &'static str,
    /// Its value.
    pub value: serde_json::Value,
    /// Where that is from.
    pub origin: Origin,
    /// The argument that sets it.
    pub flag: &'static str,
    /// The variable that sets it, if there is one.
    pub variable: Option<&'static str>,
}

strict_table! {
    pub(super) struct ConfigTable {
        rollback | undo: SettingsTable,
        remotes: RemoteTables,
        containers: ContainersTable,
    }
}

strict_table! {
    pub(super) struct SettingsTable {
        max_sessions: u64,
        max_storage_gb: f64,
        max_age_days: u64,
        keep_last: u64,
        keep_hourly: u64,
        keep_daily: u64,
        keep_weekly: u64,
        keep_monthly: u64,
        max_entries: u64,
        max_bytes: u64,
        max_forks: u64,
        max_fork_bytes: u64,
        threads: u64,
        record: bool,
        name_run_later: bool,
        ignored: Ignored,
        compression: Compression,
        exclude_patterns: Vec<String>,
        exclude_globs: Vec<String>,
        force_include: Vec<String>,
        use_gitignore: bool,
        mcp_restore: bool,
        tell_agents: bool,
        mcp_hidden: Vec<String>,
        push_after_run: String,
    }
}

/// The table of containers in the file.
pub(super) fn read_containers(file: &Path) -> Result<ContainersTable, ConfigError> {
    match document::read::<ConfigTable>(file) {
        Err(ConfigError::Io(error)) if error.is_gone() => Ok(ContainersTable::default()),
        read => Ok(read?.content.containers.unwrap_or_default()),
    }
}

impl Settings {
    /// Finds every value. A file that does not exist says nothing, and inside of a run neither does
    /// one that the walls keep out of reach.
    ///
    /// # Errors
    /// A file or a variable that is not valid.
    pub fn load(
        surroundings: &Surroundings<'_>,
        flags: &FlagSettings,
    ) -> Result<Self, ConfigError> {
        let file = config_dir(surroundings).map(|dir| dir.join(FILE_NAME));
        let table = match file.as_deref().map(document::read::<ConfigTable>) {
            None => SettingsTable::default(),
            Some(Err(ConfigError::Io(error)))
                if error.is_gone() || surroundings.is_inside && error.is_denied() =>
            {
                SettingsTable::default()
            }
            Some(read) => read?.content.rollback.unwrap_or_default(),
        };
        Self::of(table, file, surroundings, flags)
    }

    /// Whether a text could be the file; `origin` names it.
    ///
    /// # Errors
    /// The first defect.
    pub(super) fn check(origin: &str, text: &str) -> Result<(), ConfigError> {
        let mut whole = document::parse_toml::<ConfigTable>(origin, text)?;
        whole.check_remotes()?;
        ContainerLimits::of(&whole.containers.unwrap_or_default())?;
        let table = whole.rollback.unwrap_or_default();
        let nowhere = Surroundings {
            home: None,
            current_dir: PathBuf::new(),
            variable: &|_| None,
            is_inside: false,
        };
        Self::of(table, None, &nowhere, &FlagSettings::default())?.rollback.check(origin)
    }

    fn of(
        table: SettingsTable,
        file: Option<PathBuf>,
        surroundings: &Surroundings<'_>,
        flags: &FlagSettings,
    ) -> Result<Self, ConfigError> {
        let Budget { max_entries, max_bytes } = Budget::default();
        let from = Sources { surroundings };
        let settings = Self {
            max_sessions: from.choose(
                flags.max_sessions,
                "NONO_MAX_SESSIONS",
                table.max_sessions,
                DEFAULT_MAX_SESSIONS,
            )?,
            max_storage_gb: from.choose(
                flags.max_storage_gb,
                "NONO_MAX_STORAGE_GB",
                table.max_storage_gb,
                DEFAULT_MAX_STORAGE_GB,
            )?,
            max_age_days: from.choose(
                flags.max_age_days,
                "NONO_MAX_AGE_DAYS",
                table.max_age_days,
                0,
            )?,
            keep_last: from.choose(flags.keep.last, "NONO_KEEP_LAST", table.keep_last, 0)?,
            keep_hourly: from.choose(
                flags.keep.hourly,
                "NONO_KEEP_HOURLY",
                table.keep_hourly,
                0,
            )?,
            keep_daily: from.choose(flags.keep.daily, "NONO_KEEP_DAILY", table.keep_daily, 0)?,
            keep_weekly: from.choose(
                flags.keep.weekly,
                "NONO_KEEP_WEEKLY",
                table.keep_weekly,
                0,
            )?,
            keep_monthly: from.choose(
                flags.keep.monthly,
                "NONO_KEEP_MONTHLY",
                table.keep_monthly,
                0,
            )?,
            max_entries: from.choose(
                flags.max_entries,
                "NONO_MAX_ENTRIES",
                table.max_entries,
                max_entries,
            )?,
            max_bytes: from.choose(
                flags.max_bytes,
                "NONO_MAX_BYTES",
                table.max_bytes,
                max_bytes,
            )?,
            max_forks: from.choose(None, "NONO_MAX_FORKS", table.max_forks, 0)?,
            max_fork_bytes: from.choose(None, "NONO_MAX_FORK_BYTES", table.max_fork_bytes, 0)?,
            threads: from.choose(flags.threads, "NONO_THREADS", table.threads, 0)?,
            record: from.choose(None, "NONO_RECORD", table.record, true)?,
            name_run_later: match table.name_run_later {
                Some(value) => Sourced { value, origin: Origin::File },
                None => Sourced { value: true, origin: Origin::Default },
            },
            ignored: from.choose(flags.ignored, "NONO_IGNORED", table.ignored, Ignored::Small)?,
            compression: from.choose(
                None,
                "NONO_COMPRESSION",
                table.compression,
                Compression::default(),
            )?,
            mcp_restore: match table.mcp_restore {
                Some(value) => Sourced { value, origin: Origin::File },
                None => Sourced { value: true, origin: Origin::Default },
            },
            tell_agents: match table.tell_agents {
                Some(value) => Sourced { value, origin: Origin::File },
                None => Sourced { value: true, origin: Origin::Default },
            },
            mcp_hidden: table.mcp_hidden,
            push_after_run: table.push_after_run.filter(|name| !name.is_empty()),
            rollback: RollbackRules {
                exclude_patterns: table.exclude_patterns.unwrap_or_default(),
                exclude_globs: table.exclude_globs.unwrap_or_default(),
                force_include: table.force_include.unwrap_or_default(),
                use_gitignore: table.use_gitignore,
            },
            file,
        };
        let gigabytes = settings.max_storage_gb.value;
        if !gigabytes.is_finite() || gigabytes < 0.0 {
            let origin = format!("max_storage_gb ({})", settings.max_storage_gb.origin);
            return Err(ConfigError::invalid(origin, format!("{gigabytes} is no size")));
        }
        let threads = settings.threads;
        if threads.value > MAX_THREADS {
            let origin = format!("threads ({})", threads.origin);
            let reason = format!("{} is more than {MAX_THREADS}", threads.value);
            return Err(ConfigError::invalid(origin, reason));
        }
        Ok(settings)
    }

    /// Worker threads; 0 is one for each core.
    pub fn threads(&self) -> usize {
        // Checked when it was loaded.
        self.threads.value as usize
    }

    /// Limits of one snapshot.
    pub fn budget(&self) -> Budget {
        Budget { max_entries: self.max_entries.value, max_bytes: self.max_bytes.value }
    }

    /// Names and paths whose contents `nono mcp` does not show, as globs.
    pub fn mcp_hidden(&self) -> Vec<String> {
        let usual = || DEFAULT_MCP_HIDDEN.map(str::to_owned).to_vec();
        self.mcp_hidden.clone().unwrap_or_else(usual)
    }

    /// Most bytes of objects of a store; `None` is no limit.
    pub fn max_storage_bytes(&self) -> Option<u64> {
        let gigabytes = self.max_storage_gb.value;
        // A value that is too large for the type is no limit either; the cast saturates.
        (gigabytes > 0.0).then_some((gigabytes * BYTES_PER_GB) as u64)
    }

    /// All settings, one after the other.
    pub fn list(&self) -> Vec<Setting> {
        let number = |key, sourced: Sourced<u64>, flag, variable| Setting {
            key,
            value: json!(sourced.value),
            origin: sourced.origin,
            flag,
            variable: Some(variable),
        };
        let rule = |key, value: serde_json::Value, is_set: bool, flag| Setting {
            key,
            value,
            origin: if is_set { Origin::File } else { Origin::Default },
            flag,
            variable: None,
        };
        let RollbackRules { exclude_patterns, exclude_globs, force_include, use_gitignore } =
            &self.rollback;
        vec![
            number("max_sessions", self.max_sessions, "--max-sessions", "NONO_MAX_SESSIONS"),
            Setting {
                key: "max_storage_gb",
                value: json!(self.max_storage_gb.value),
                origin: self.max_storage_gb.origin,
                flag: "--max-storage-gb",
                variable: Some("NONO_MAX_STORAGE_GB"),
            },
            number("max_age_days", self.max_age_days, "--max-age-days", "NONO_MAX_AGE_DAYS"),
            number("keep_last", self.keep_last, "--keep-last", "NONO_KEEP_LAST"),
            number("keep_hourly", self.keep_hourly, "--keep-hourly", "NONO_KEEP_HOURLY"),
            number("keep_daily", self.keep_daily, "--keep-daily", "NONO_KEEP_DAILY"),
            number("keep_weekly", self.keep_weekly, "--keep-weekly", "NONO_KEEP_WEEKLY"),
            number("keep_monthly", self.keep_monthly, "--keep-monthly", "NONO_KEEP_MONTHLY"),
            number("max_entries", self.max_entries, "--max-entries", "NONO_MAX_ENTRIES"),
            number("max_bytes", self.max_bytes, "--max-bytes", "NONO_MAX_BYTES"),
            number("max_forks", self.max_forks, "", "NONO_MAX_FORKS"),
            number("max_fork_bytes", self.max_fork_bytes, "", "NONO_MAX_FORK_BYTES"),
            number("threads", self.threads, "--threads", "NONO_THREADS"),
            Setting {
                key: "record",
                value: json!(self.record.value),
                origin: self.record.origin,
                flag: "--no-rollback",
                variable: Some("NONO_RECORD"),
            },
            Setting {
                key: "ignored",
                value: json!(self.ignored.value),
                origin: self.ignored.origin,
                flag: "--ignored",
                variable: Some("NONO_IGNORED"),
            },
            Setting {
                key: "compression",
                value: json!(self.compression.value),
                origin: self.compression.origin,
                flag: "",
                variable: Some("NONO_COMPRESSION"),
            },
            rule(
                "exclude_patterns",
                json!(exclude_patterns),
                !exclude_patterns.is_empty(),
                "--rollback-exclude",
            ),
            rule(
                "exclude_globs",
                json!(exclude_globs),
                !exclude_globs.is_empty(),
                "--rollback-exclude",
            ),
            rule(
                "force_include",
                json!(force_include),
                !force_include.is_empty(),
                "--rollback-include",
            ),
            rule(
                "use_gitignore",
                json!(use_gitignore.unwrap_or(true)),
                use_gitignore.is_some(),
                "--rollback-all",
            ),
            rule(
                "mcp_restore",
                json!(self.mcp_restore.value),
                self.mcp_restore.origin == Origin::File,
                "--no-restore",
            ),
            rule(
                "name_run_later",
                json!(self.name_run_later.value),
                self.name_run_later.origin == Origin::File,
                "",
            ),
            rule(
                "tell_agents",
                json!(self.tell_agents.value),
                self.tell_agents.origin == Origin::File,
                "",
            ),
            rule("mcp_hidden", json!(self.mcp_hidden()), self.mcp_hidden.is_some(), "--hide"),
            rule(
                "push_after_run",
                json!(self.push_after_run.as_deref().unwrap_or_default()),
                self.push_after_run.is_some(),
                "nono push",
            ),
        ]
    }
}

/// The meaning of a 0 as the value of a setting; `None` if it is a value like any other.
pub fn zero_means(key: &str) -> Option<&'static str> {
    match key {
        "max_sessions" | "max_storage_gb" | "max_age_days" | "max_entries" | "max_bytes"
        | "max_forks" | "max_fork_bytes" => Some("no limit"),
        "keep_last" | "keep_hourly" | "keep_daily" | "keep_weekly" | "keep_monthly" => {
            Some("no rule")
        }
        "threads" => Some("one for each core"),
        // All of them are limits.
        key if key.starts_with(CONTAINERS_PREFIX) => Some("no limit"),
        _ => None,
    }
}

struct Sources<'a> {
    surroundings: &'a Surroundings<'a>,
}

impl Sources<'_> {
    fn choose<T: FromStr<Err: fmt::Display>>(
        &self,
        flag: Option<T>,
        variable: &'static str,
        file: Option<T>,
        default: T,
    ) -> Result<Sourced<T>, ConfigError> {
        if let Some(value) = flag {
            return Ok(Sourced { value, origin: Origin::Flag });
        }
        if let Some(text) = (self.surroundings.variable)(variable).filter(|text| !text.is_empty()) {
            let shown = Shown::bytes(text.as_encoded_bytes()).to_string();
            let value = shown.parse().map_err(|error: T::Err| {
                ConfigError::invalid(format!("{variable}={shown}"), error.to_string())
            })?;
            return Ok(Sourced { value, origin: Origin::Environment });
        }
        Ok(match file {
            Some(value) => Sourced { value, origin: Origin::File },
            None => Sourced { value: default, origin: Origin::Default },
        })
    }
}
