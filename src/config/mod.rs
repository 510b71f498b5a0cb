//! The configuration: profiles of commands, and settings of the store.
//!
//! Files lie in `$XDG_CONFIG_HOME/nono` or `~/.config/nono`, never in a project: a recorded command
//! could write them there. Always true:
//!
//! - A key that is not known is an error that names the file, the place in it and the nearest key
//!   that there is. Nothing is ignored in silence.
//! - Reading changes nothing; whether a grant is safe is judged where it is made, for profiles as
//!   for flags.
//! - Every value knows where it came from.

mod agent_state;
mod byte_rate;
mod containers;
mod document;
mod editing;
mod environment;
mod library;
pub(crate) mod nearest;
mod place;
mod profile;
mod remotes;
mod settings;
mod strict;

use std::path::PathBuf;

pub use agent_state::AgentState;
pub use byte_rate::parse_byte_rate;
pub use containers::{CONTAINERS_PREFIX, ContainerLimits};
pub use document::ConfigError;
pub use editing::ConfigFile;
pub use environment::{EnvironmentRules, apply_rules};
pub use library::{FoundProfile, ProfileLibrary, ProfileSource};
pub use place::{Surroundings, expand};
pub use profile::{
    HookFailure, NetworkGrant, Profile, RollbackRules, SnapshotHooks, expand_patterns,
};
pub use remotes::{NamedRemote, RemoteEncryption, is_remote_name, remote, remotes};
pub use settings::{FlagSettings, KeepFlags, Origin, Setting, Settings, Sourced, zero_means};

/// nono's configuration: `$XDG_CONFIG_HOME/nono` or `~/.config/nono`.
pub fn config_dir(surroundings: &Surroundings<'_>) -> Option<PathBuf> {
    Some(surroundings.xdg("XDG_CONFIG_HOME", ".config")?.join("nono"))
}
