//! Arguments that several commands share.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::context::Context;
use super::error::CliError;
use super::output::GLOBAL;
pub(super) use super::surroundings::{home_dir, named_project, real_home, surroundings};
use crate::config::{FlagSettings, KeepFlags, Origin, Profile, Settings, expand_patterns};
use nono_engine::session::Catalog;
use nono_engine::store::Compression;
use nono_engine::sys;
use nono_engine::walk::{ExclusionConfig, GitDirectories, Ignored};

/// Where sessions are kept.
#[derive(Debug, Args)]
pub(super) struct StoreArgs {
    /// Directory that holds all sessions [default: ~/.nono/rollbacks]
    #[arg(long, global = true, env = "NONO_ROOT", value_name = "DIR")]
    #[arg(help_heading = GLOBAL, display_order = 990)]
    pub(super) root: Option<PathBuf>,
}

impl StoreArgs {
    /// The store that is meant.
    pub(super) fn catalog(&self) -> Result<Catalog, CliError> {
        match &self.root {
            Some(root) if root.as_os_str().is_empty() => {
                Err(CliError::usage("--root (or NONO_ROOT) is empty"))
            }
            Some(root) => Ok(Catalog::new(root.clone(), [])),
            None => {
                let home = home_dir()?;
                let nono = home.join(".nono");
                let root = nono.join("rollbacks");
                // A store that root made in the home of another user would be root's alone.
                if matches!(sys::kind_of(&root), Ok(None)) {
                    sys::refuse_to_write_as_root(&home)?;
                }
                // Where sessions were kept before.
                Ok(Catalog::new(root, [nono.join("undo")]))
            }
        }
    }
}

impl StoreArgs {
    /// The argument that chooses the store.
    pub(super) fn origin(&self) -> Origin {
        let variable = std::env::var_os("NONO_ROOT").map(PathBuf::from);
        match &self.root {
            None => Origin::Default,
            Some(_) if self.root == variable => Origin::Environment,
            Some(_) => Origin::Flag,
        }
    }
}

/// The paths to capture, and their limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "What is recorded")]
pub(super) struct CaptureArgs {
    /// Leave out what matches: a name, a path (with a /), or a glob (repeatable)
    #[arg(long, value_name = "PATTERN")]
    pub(super) rollback_exclude: Vec<String>,
    /// Keep what matches, whatever excludes it (repeatable)
    #[arg(long, value_name = "PATTERN")]
    pub(super) rollback_include: Vec<String>,
    /// Record the small ignored paths (a file of 1 MiB, a database, notebook or .env of 16 MiB, a
    /// directory of 64 MiB and 5000 entries), none, or all of them
    /// [env: NONO_IGNORED] [default: small]
    #[arg(long, value_name = "WHAT", value_parser = ignored())]
    pub(super) ignored: Option<Ignored>,
    /// Leave nothing out: no build directories, not even what .gitignore names
    #[arg(long, conflicts_with = "rollback_exclude")]
    pub(super) rollback_all: bool,
    /// Most files, directories and links of one snapshot; 0 is no limit
    /// [env: NONO_MAX_ENTRIES] [default: 300000]
    #[arg(long, value_name = "N")]
    pub(super) max_entries: Option<u64>,
    /// Most bytes of file contents of one snapshot; 0 is no limit
    /// [env: NONO_MAX_BYTES] [default: 2147483648]
    #[arg(long, value_name = "BYTES")]
    pub(super) max_bytes: Option<u64>,
}

impl CaptureArgs {
    /// Settings that these arguments give.
    pub(super) fn flags(&self) -> FlagSettings {
        let Self { max_entries, max_bytes, ignored, .. } = *self;
        FlagSettings { max_entries, max_bytes, ignored, ..FlagSettings::default() }
    }

    /// The exclusions: of these arguments, of a profile, of the settings, and by habit.
    pub(super) fn exclusion(
        &self,
        settings: &Settings,
        profile: Option<&Profile>,
    ) -> Result<ExclusionConfig, CliError> {
        if self.rollback_all {
            let git_directories = GitDirectories::Whole;
            return Ok(ExclusionConfig { git_directories, ..ExclusionConfig::nothing() });
        }
        let surroundings = surroundings()?;
        let rules = [Some(&settings.rollback), profile.map(|profile| &profile.rollback)];
        let mut config = ExclusionConfig {
            exclude_patterns: expand_patterns(&self.rollback_exclude, &surroundings)?,
            force_include: expand_patterns(&self.rollback_include, &surroundings)?,
            ignored: settings.ignored.value,
            rebuildable: true,
            git_directories: GitDirectories::WithinLimit,
            ..ExclusionConfig::default()
        };
        for rules in rules.into_iter().flatten() {
            rules.add_to(&mut config, &surroundings)?;
        }
        Ok(config)
    }
}

/// Reads one of the words, which are completed and listed.
fn ignored() -> impl TypedValueParser<Value = Ignored> {
    PossibleValuesParser::new(["small", "none", "all"]).try_map(|word| word.parse::<Ignored>())
}

/// How many processors are kept busy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub(super) struct ThreadArgs {
    /// Work with so many threads; 0 is one for each core [env: NONO_THREADS] [default: 0]
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<u64>,
}

impl ThreadArgs {
    /// Settings that these arguments give, next to those of others.
    pub(super) fn flags(&self, others: FlagSettings) -> FlagSettings {
        FlagSettings { threads: self.threads, ..others }
    }

    /// Worker threads of a command that needs no other setting, and that a mistake in the file must
    /// not keep from undoing.
    pub(super) fn count(&self, context: &Context) -> Result<usize, CliError> {
        let load = |flags| Settings::load(&surroundings()?, &flags).map_err(CliError::from);
        match (load(self.flags(FlagSettings::default())), self.threads) {
            (Ok(settings), _) => Ok(settings.threads()),
            (Err(error), Some(_)) => Err(error),
            (Err(error), None) => {
                context.warn(format_args!("{error}; work is done with all cores"));
                Ok(0)
            }
        }
    }
}

impl ThreadArgs {
    /// How objects are compressed, from the settings; as usual where these cannot be read.
    /// Like the number of threads, no reason to keep from undoing.
    pub(super) fn compression(&self) -> Compression {
        let load =
            |around| Settings::load(&around, &FlagSettings::default()).map_err(CliError::from);
        let settings = surroundings().and_then(load);
        settings.map(|settings| settings.compression.value).unwrap_or_default()
    }
}

/// How much a store may hold. A limit of 0 is none.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "How much is kept")]
pub(super) struct LimitArgs {
    /// Keep at most so many sessions of a project that changed something; 0 is no limit
    /// [env: NONO_MAX_SESSIONS] [default: 10]
    #[arg(long, value_name = "N")]
    pub(super) max_sessions: Option<u64>,
    /// Keep at most so many GiB of recorded contents; 0 is no limit
    /// [env: NONO_MAX_STORAGE_GB] [default: 5]
    #[arg(long, value_name = "GB")]
    pub(super) max_storage_gb: Option<f64>,
    /// Keep no session that began more than so many days ago; 0 is no limit
    /// [env: NONO_MAX_AGE_DAYS] [default: 0]
    #[arg(long, value_name = "DAYS")]
    pub(super) max_age_days: Option<u64>,
}

impl LimitArgs {
    /// Whether one of them is given.
    pub(super) fn is_given(&self) -> bool {
        self.flags(FlagSettings::default()) != FlagSettings::default()
    }

    /// Settings that these arguments give, next to those of others.
    pub(super) fn flags(&self, others: FlagSettings) -> FlagSettings {
        let Self { max_sessions, max_storage_gb, max_age_days } = *self;
        FlagSettings { max_sessions, max_storage_gb, max_age_days, ..others }
    }
}

/// Rules that decide which sessions, steps and changes of a watcher stay.
#[derive(Debug, Clone, Copy, Default, Args)]
#[command(next_help_heading = "Rules")]
pub(super) struct KeepArgs {
    /// Keep the newest N sessions of each project; 0 is no rule
    #[arg(long, value_name = "N")]
    pub(super) keep_last: Option<u64>,
    /// Keep the newest session of each of the last N hours that have one
    #[arg(long, value_name = "N")]
    pub(super) keep_hourly: Option<u64>,
    /// Keep the newest session of each of the last N days that have one
    #[arg(long, value_name = "N")]
    pub(super) keep_daily: Option<u64>,
    /// Keep the newest session of each of the last N weeks that have one
    #[arg(long, value_name = "N")]
    pub(super) keep_weekly: Option<u64>,
    /// Keep the newest session of each of the last N months that have one
    #[arg(long, value_name = "N")]
    pub(super) keep_monthly: Option<u64>,
}

impl KeepArgs {
    /// Settings that these arguments give.
    pub(super) fn flags(self) -> KeepFlags {
        let Self {
            keep_last: last,
            keep_hourly: hourly,
            keep_daily: daily,
            keep_weekly: weekly,
            keep_monthly: monthly,
        } = self;
        KeepFlags { last, hourly, daily, weekly, monthly }
    }
}
