//! The places around this process: its home, and where its paths and settings are looked up.

use std::ffi::OsString;
use std::path::PathBuf;

use super::error::CliError;
use super::render::project_name;
use crate::config::Surroundings;
use nono_engine::sys;

/// The home directory.
pub(super) fn home_dir() -> Result<PathBuf, CliError> {
    let home = std::env::home_dir().filter(|home| home.is_absolute());
    home.ok_or_else(|| {
        CliError::usage("the home directory is unknown: set HOME, or give --root DIR")
    })
}

/// The home directory as tracked paths have it, for showing paths; `None` where it is unknown.
pub(super) fn real_home() -> Option<PathBuf> {
    home_dir().ok().and_then(|home| sys::real_path(&home).ok())
}

/// A project as it is named to people here.
pub(super) fn named_project(tracked_paths: &[PathBuf]) -> String {
    project_name(tracked_paths, real_home().as_deref())
}

/// The environment in which paths and settings of this process are looked up.
///
/// # Errors
/// When there is no current directory.
pub(super) fn surroundings() -> Result<Surroundings<'static>, CliError> {
    fn variable(name: &str) -> Option<OsString> {
        std::env::var_os(name)
    }
    let current_dir = sys::current_dir()?;
    let is_inside = crate::sandbox::is_inside();
    Ok(Surroundings { home: home_dir().ok(), current_dir, variable: &variable, is_inside })
}
