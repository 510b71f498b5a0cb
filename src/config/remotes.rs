//! Remotes that have a name: the tables `[remotes.NAME]` of the configuration file.
//!
//! A table holds an address and how archives are encrypted, and never a credential. A table that
//! says nothing about encryption is not valid: what is recorded may be secret.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::path::PathBuf;

use serde::Serialize;
use toml_edit::{Array, DocumentMut, Item, Table, value};

use super::byte_rate::parse_byte_rate;
use super::document::{self, ConfigError};
use super::nearest::nearest;
use super::settings::{ConfigTable, FILE_NAME};
use super::strict::strict_table;
use super::{ConfigFile, Surroundings, config_dir};
use nono_engine::path_text::{Shown, encode};

/// Name of the table with the tables.
const TABLE: &str = "remotes";
/// Longest name of a remote, in bytes.
const MAX_NAME_BYTES: usize = 64;

strict_table! {
    pub(super) struct RemoteTable {
        url: String,
        recipients: Vec<String>,
        passphrase_file: String,
        plaintext: bool,
        limit_upload: String,
    }
}

/// How the archives of a remote are encrypted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RemoteEncryption {
    /// For these recipients: public keys of age or ssh. Reading takes one of their identities.
    Recipients(Vec<String>),
    /// By the passphrase in this file.
    PassphraseFile(#[serde(with = "nono_engine::path_text::serde_path")] PathBuf),
    /// Not at all: the user said so.
    Plaintext,
}

/// A remote that has a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamedRemote {
    /// Its name.
    pub name: String,
    /// Its address, as it was given.
    pub url: String,
    /// How its archives are encrypted.
    pub encryption: RemoteEncryption,
    /// The most bytes that a push sends in a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_upload: Option<NonZeroU64>,
}

/// The remotes of the configuration file, by name. A file that does not exist has none.
///
/// # Errors
/// A file that is not valid.
pub fn remotes(surroundings: &Surroundings<'_>) -> Result<Vec<NamedRemote>, ConfigError> {
    let Some(path) = config_dir(surroundings).map(|dir| dir.join(FILE_NAME)) else {
        return Ok(Vec::new());
    };
    let table = match document::read::<ConfigTable>(&path) {
        Err(ConfigError::Io(error)) if error.is_gone() => return Ok(Vec::new()),
        read => read?.content.remotes.unwrap_or_default(),
    };
    table.into_iter().map(|(name, table)| NamedRemote::of(name, table)).collect()
}

/// Finds a remote by its name.
///
/// # Errors
/// [`ConfigError::NoRemote`]; a file that is not valid.
pub fn remote(surroundings: &Surroundings<'_>, name: &str) -> Result<NamedRemote, ConfigError> {
    let mut known = remotes(surroundings)?;
    match known.iter().position(|remote| remote.name == name) {
        Some(at) => Ok(known.swap_remove(at)),
        None => Err(ConfigError::NoRemote {
            name: name.to_owned(),
            nearest: nearest(name, known.iter().map(|remote| remote.name.as_str()))
                .map(str::to_owned),
        }),
    }
}

/// Whether a word can be the name of a remote: a letter, then letters, digits, `-`, `_` and `.`.
/// Ids of sessions that were recorded here begin with a digit, so the two are seldom confused.
pub fn is_remote_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.len() <= MAX_NAME_BYTES
        && name.bytes().all(is_plain)
        && name != "latest"
}

impl NamedRemote {
    fn of(name: String, table: RemoteTable) -> Result<Self, ConfigError> {
        let invalid = |reason: &str| {
            let origin = format!("[{TABLE}.{}]", Shown::bytes(name.as_bytes()));
            Err(ConfigError::invalid(origin, reason))
        };
        if !is_remote_name(&name) {
            return invalid("a name is a letter, then letters, digits, - _ and .");
        }
        let Some(url) = table.url else { return invalid("url is missing") };
        let recipients = table.recipients.filter(|recipients| !recipients.is_empty());
        let encryption = match (recipients, table.passphrase_file, table.plaintext) {
            (Some(recipients), None, None | Some(false)) => {
                RemoteEncryption::Recipients(recipients)
            }
            (None, Some(file), None | Some(false)) => {
                RemoteEncryption::PassphraseFile(PathBuf::from(file))
            }
            (None, None, Some(true)) => RemoteEncryption::Plaintext,
            (None, None, _) => {
                return invalid("recipients, passphrase_file or plaintext = true is missing");
            }
            _ => return invalid("only one of recipients, passphrase_file and plaintext can be"),
        };
        let limit_upload = match table.limit_upload.as_deref().map(parse_byte_rate) {
            None => None,
            Some(Ok(rate)) => Some(rate),
            Some(Err(reason)) => return invalid(&format!("limit_upload: {reason}")),
        };
        Ok(Self { name, url, encryption, limit_upload })
    }
}

impl ConfigTable {
    /// Checks the remotes of a text that may become the file.
    pub(super) fn check_remotes(&mut self) -> Result<(), ConfigError> {
        let tables = self.remotes.take().unwrap_or_default();
        tables.into_iter().try_for_each(|(name, table)| NamedRemote::of(name, table).map(drop))
    }
}

impl ConfigFile {
    /// The text with one remote more, checked.
    ///
    /// # Errors
    /// A file that is not valid, a name that is taken or is none.
    pub fn with_remote(&self, remote: &NamedRemote) -> Result<String, ConfigError> {
        let mut document = self.parsed()?;
        let tables = document.entry(TABLE).or_insert_with(|| {
            let mut table = Table::new();
            table.set_implicit(true);
            Item::Table(table)
        });
        let origin = Shown::path(&self.path).to_string();
        let Some(tables) = tables.as_table_like_mut() else {
            return Err(ConfigError::invalid(origin, format!("{TABLE} is no table")));
        };
        if tables.contains_key(&remote.name) {
            let reason = format!("there is a remote {:?} already", remote.name);
            return Err(ConfigError::invalid(origin, reason));
        }
        let mut table = Table::new();
        table.insert("url", value(&remote.url));
        match &remote.encryption {
            RemoteEncryption::Recipients(recipients) => {
                table.insert("recipients", value(recipients.iter().collect::<Array>()));
            }
            RemoteEncryption::PassphraseFile(path) => {
                let text = encode(path.as_os_str().as_encoded_bytes()).into_owned();
                table.insert("passphrase_file", value(text));
            }
            RemoteEncryption::Plaintext => {
                table.insert("plaintext", value(true));
            }
        }
        if let Some(rate) = remote.limit_upload {
            table.insert("limit_upload", value(rate.to_string()));
        }
        tables.insert(&remote.name, Item::Table(table));
        Ok(document.to_string())
    }

    /// The text without a remote; `None` if there is none of that name.
    ///
    /// # Errors
    /// A file that is not valid.
    pub fn without_remote(&self, name: &str) -> Result<Option<String>, ConfigError> {
        let mut document = self.parsed()?;
        let tables = document.get_mut(TABLE).and_then(Item::as_table_like_mut);
        let removed = tables.and_then(|tables| tables.remove(name)).is_some();
        Ok(removed.then(|| document.to_string()))
    }

    fn parsed(&self) -> Result<DocumentMut, ConfigError> {
        let origin = Shown::path(&self.path).to_string();
        let text = self.text.as_deref().unwrap_or_default();
        text.parse()
            .map_err(|error: toml_edit::TomlError| ConfigError::invalid(origin, error.message()))
    }
}

/// The tables of a configuration file, before they are checked.
pub(super) type RemoteTables = BTreeMap<String, RemoteTable>;

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> ConfigFile {
        let path = PathBuf::from("/c.toml");
        ConfigFile { path: path.clone(), real_path: path, text: Some(text.to_owned()) }
    }

    #[test]
    fn a_remote_is_added_and_removed_and_all_else_stays() {
        let before = "# mine\n[rollback]\nthreads = 1\n";
        let remote = NamedRemote {
            name: "backup".to_owned(),
            url: "s3://b/x".to_owned(),
            encryption: RemoteEncryption::Recipients(vec!["age1x".to_owned()]),
            limit_upload: None,
        };
        let after = file(before).with_remote(&remote).unwrap();
        assert_eq!(
            after,
            "# mine\n[rollback]\nthreads = 1\n\n[remotes.backup]\nurl = \"s3://b/x\"\n\
             recipients = [\"age1x\"]\n"
        );
        assert!(file(&after).with_remote(&remote).is_err(), "the name is taken");
        let without = file(&after).without_remote("backup").unwrap().unwrap();
        assert_eq!(without.trim_end(), before.trim_end());
        assert_eq!(file(before).without_remote("backup").unwrap(), None);
    }

    #[test]
    fn a_table_that_does_not_speak_of_encryption_is_refused() {
        for (table, is_right) in [
            ("url = 'x'", false),
            ("url = 'x'\nplaintext = true", true),
            ("url = 'x'\nplaintext = false", false),
            ("url = 'x'\nrecipients = []", false),
            ("url = 'x'\nrecipients = ['a']", true),
            ("url = 'x'\nrecipients = ['a']\nplaintext = true", false),
            ("url = 'x'\npassphrase_file = '/f'", true),
            ("plaintext = true", false),
            ("url = 'x'\nplaintext = true\nlimit_upload = '500K'", true),
            ("url = 'x'\nplaintext = true\nlimit_upload = 'fast'", false),
        ] {
            let text = format!("[remotes.a]\n{table}\n");
            let checked = ConfigFile::check(std::path::Path::new("/c.toml"), &text);
            assert_eq!(checked.is_ok(), is_right, "{table}: {checked:?}");
        }
    }
}
