//! Reading one configuration file: JSON or TOML, by its name.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use nono_engine::path_text::Shown;
use nono_engine::sys::{self, Dir};

/// A larger configuration file is not read, in bytes.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file cannot be read.
    #[error(transparent)]
    Io(#[from] sys::Error),
    /// A file is not what it has to be.
    #[error("{origin}: {reason}")]
    Invalid {
        /// The file, and the place in it if it is known.
        origin: String,
        /// The defect, in one line.
        reason: String,
    },
    /// There is no profile of this name.
    #[error("there is no profile {name:?}")]
    NoProfile {
        /// The name as given.
        name: String,
        /// The profile that asks for it, if another one does.
        wanted_by: Option<String>,
        /// The profile that has what the tool of this name needs.
        serving: Option<&'static str>,
        /// The profile that was probably meant.
        nearest: Option<String>,
    },
    /// There is no remote of this name.
    #[error("there is no remote {name:?}")]
    NoRemote {
        /// The name as given.
        name: String,
        /// The remote that was probably meant.
        nearest: Option<String>,
    },
    /// Profiles extend each other in a circle.
    #[error("profiles extend each other in a circle: {}", chain.join(" -> "))]
    Circle {
        /// Their names; the first is the last.
        chain: Vec<String>,
    },
}

impl ConfigError {
    /// Something is wrong with a value that has no place in a file of its own.
    pub(super) fn invalid(origin: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { origin: origin.into(), reason: reason.into() }
    }
}

/// A file that was read, under its real path.
pub(super) struct Document<T> {
    pub(super) content: T,
    /// Where it really is, all symlinks resolved.
    pub(super) real_path: PathBuf,
}

/// Reads a file, as TOML if its name says so, else as JSON.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<Document<T>, ConfigError> {
    let real_path = sys::real_path(path)?;
    let text = text_at(&real_path, path)?;
    let shown = Shown::path(path).to_string();
    let is_toml = path.extension().is_some_and(|extension| extension == "toml");
    let content = if is_toml { parse_toml(&shown, &text) } else { parse_json(&shown, &text) }?;
    Ok(Document { content, real_path })
}

/// Reads the text of a file under its real path.
pub(super) fn read_text(real_path: &Path) -> Result<String, ConfigError> {
    text_at(real_path, real_path)
}

fn text_at(real_path: &Path, named: &Path) -> Result<String, ConfigError> {
    let name = real_path.file_name().unwrap_or_default();
    let parent = real_path.parent().unwrap_or(Path::new("/"));
    let bytes = Dir::open(parent)?.read(name.as_encoded_bytes(), MAX_CONFIG_BYTES)?;
    String::from_utf8(bytes).map_err(|error| {
        let reason = format!("not UTF-8: {}", error.utf8_error());
        ConfigError::invalid(Shown::path(named).to_string(), reason)
    })
}

pub(super) fn parse_json<T: DeserializeOwned>(origin: &str, text: &str) -> Result<T, ConfigError> {
    serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        let reason = message.strip_suffix(&place).unwrap_or(&message);
        ConfigError::invalid(format!("{origin}:{}:{}", error.line(), error.column()), reason)
    })
}

/// The words of a parser for people who do not know its types.
fn plain_reason(message: &str) -> String {
    const TYPES: [(&str, &str); 4] = [
        ("expected u64", "expected a whole number, 0 or more"),
        ("expected u32", "expected a whole number, 0 or more"),
        ("expected usize", "expected a whole number, 0 or more"),
        ("expected f64", "expected a number"),
    ];
    let message = message.replace('\n', "; ");
    TYPES.iter().fold(message, |message, (theirs, ours)| message.replace(theirs, ours))
}

pub(super) fn parse_toml<T: DeserializeOwned>(origin: &str, text: &str) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let reason = plain_reason(error.message());
        match error.span() {
            None => ConfigError::invalid(origin, reason),
            Some(span) => {
                let before = text.get(..span.start).unwrap_or(text);
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
                ConfigError::invalid(format!("{origin}:{line}:{column}"), reason)
            }
        }
    })
}
