//! Changing the configuration file: checked before it is written, replaced at once.
//!
//! A person's text stays: comments, order, and a link in the place of the file. A text that
//! [`Settings`] would not read never becomes the file.

use std::path::{Path, PathBuf};

use toml_edit::{Array, DocumentMut, Item, Table, Value};

use super::document::{self, ConfigError};
use super::settings::{FILE_NAME, Settings};
use super::{Surroundings, config_dir};
use nono_engine::path_text::Shown;
use nono_engine::sys::{self, Dir};

/// Name of the table with the settings, and its older name.
const TABLES: [&str; 2] = ["rollback", "undo"];
/// Name of the table with the limits of containers. Its keys are named with it.
const CONTAINERS: &str = "containers";

/// The configuration file as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// Where people look for it.
    pub path: PathBuf,
    /// Where it really is, symlinks resolved.
    pub real_path: PathBuf,
    /// Its text; `None` if there is no file.
    pub text: Option<String>,
}

impl ConfigFile {
    /// Reads the file, whether it makes sense or not.
    ///
    /// # Errors
    /// When there is no place for it, or it cannot be read.
    pub fn load(surroundings: &Surroundings<'_>) -> Result<Self, ConfigError> {
        let Some(dir) = config_dir(surroundings) else {
            let reason = "the home directory is unknown: set HOME";
            return Err(ConfigError::invalid("the configuration", reason));
        };
        let path = dir.join(FILE_NAME);
        let real_path = sys::real_or_future_path(&path);
        let text = match document::read_text(&real_path) {
            Ok(text) => Some(text),
            Err(ConfigError::Io(error)) if error.is_gone() => None,
            Err(error) => return Err(error),
        };
        Ok(Self { path, real_path, text })
    }

    /// The text of a file that may become this one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn text_of(path: &Path) -> Result<String, ConfigError> {
        document::read_text(&sys::real_path(path)?)
    }

    /// Removes a file that was to become this one.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn discard(path: &Path) -> Result<(), ConfigError> {
        let (parent, name) = (path.parent().unwrap_or(Path::new("/")), path.file_name());
        Ok(Dir::open(parent)?.remove_file(name.unwrap_or_default().as_encoded_bytes())?)
    }

    /// Whether a text could be the file. `origin` names it in the error.
    ///
    /// # Errors
    /// The first defect, with its place.
    pub fn check(origin: &Path, text: &str) -> Result<(), ConfigError> {
        Settings::check(&Shown::path(origin).to_string(), text)
    }

    /// Replaces the file, durably. Its directory is made if it is missing.
    ///
    /// # Errors
    /// As [`check`](Self::check), or when it cannot be written; the file is then as it was.
    pub fn save(&self, text: &str) -> Result<(), ConfigError> {
        Self::check(&self.path, text)?;
        let (Some(parent), Some(name)) = (self.real_path.parent(), self.real_path.file_name())
        else {
            return Err(ConfigError::invalid(Shown::path(&self.path).to_string(), "it is no file"));
        };
        sys::refuse_to_write_for_others(&self.real_path)?;
        sys::create_private_dir(parent)?;
        let dir = Dir::open(parent)?;
        let name = name.as_encoded_bytes();
        let mode = dir.try_stat(name)?.map_or(0o600, |stat| stat.mode);
        Ok(dir.replace_file(name, text.as_bytes(), mode, true)?)
    }

    /// The text with one setting changed, checked. A single value may be written as TOML or without
    /// quotes; several are a list.
    ///
    /// # Errors
    /// A file that is not valid, a key that is not known, a value that the key cannot have.
    pub fn with_setting(&self, key: &str, values: &[String]) -> Result<String, ConfigError> {
        let origin = Shown::path(&self.path).to_string();
        let (document, table, key) = self.place_of(key)?;
        let mut refused = None;
        for value in candidates(values) {
            let changed = changed(document.clone(), table, key, value);
            match Settings::check(&format!("{key} in {origin}"), &changed) {
                Ok(()) => return Ok(changed),
                // The form of the value says best what is wrong with it.
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(match refused {
            // The file has no such line: it stays as it was.
            Some(ConfigError::Invalid { reason, .. }) => {
                ConfigError::invalid(key, format!("{reason}; nothing was changed"))
            }
            Some(error) => error,
            None => ConfigError::invalid(key, "there is no value"),
        })
    }

    /// The text without one setting, so that its default holds; `None` where it does not set it.
    ///
    /// # Errors
    /// A file that is not valid.
    pub fn without_setting(&self, key: &str) -> Result<Option<String>, ConfigError> {
        let (mut document, table, key) = self.place_of(key)?;
        let items = document.get_mut(table).and_then(Item::as_table_like_mut);
        let removed = items.and_then(|items| items.remove(key));
        Ok(removed.map(|_| document.to_string()))
    }

    /// The file, and the table and the key in it that a key means.
    fn place_of<'a>(
        &self,
        key: &'a str,
    ) -> Result<(DocumentMut, &'static str, &'a str), ConfigError> {
        let origin = Shown::path(&self.path).to_string();
        let text = self.text.as_deref().unwrap_or_default();
        Settings::check(&origin, text)?;
        let document: DocumentMut = text.parse().map_err(|error: toml_edit::TomlError| {
            ConfigError::invalid(&origin, error.message())
        })?;
        let in_table = |table: &str| key.strip_prefix(table)?.strip_prefix('.');
        let usual = TABLES.iter().find(|name| document.contains_key(name)).unwrap_or(&TABLES[0]);
        let (table, key) = match in_table(CONTAINERS) {
            Some(key) => (CONTAINERS, key),
            None => (*usual, TABLES.iter().find_map(|table| in_table(table)).unwrap_or(key)),
        };
        Ok((document, table, key))
    }
}

/// The possible meanings of values, the likeliest first.
fn candidates(values: &[String]) -> Vec<Value> {
    let list = Value::Array(values.iter().collect::<Array>());
    match values {
        [value] => {
            let written = value.parse::<Value>().ok();
            written.into_iter().chain([Value::from(value), list]).collect()
        }
        _ => vec![list],
    }
}

/// The text of a document with one setting changed.
fn changed(mut document: DocumentMut, name: &str, key: &str, mut value: Value) -> String {
    let table = document.entry(name).or_insert_with(|| Item::Table(Table::new()));
    if let Some(table) = table.as_table_like_mut() {
        match table.get_mut(key) {
            Some(Item::Value(old)) => {
                // The comment behind a value belongs to the line.
                *value.decor_mut() = old.decor().clone();
                *old = value;
            }
            _ => {
                table.insert(key, Item::Value(value));
            }
        }
    }
    document.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str, key: &str, values: &[&str]) -> Result<String, String> {
        let path = PathBuf::from("/c.toml");
        let file = ConfigFile { path: path.clone(), real_path: path, text: Some(text.to_owned()) };
        let values: Vec<_> = values.iter().map(|value| (*value).to_owned()).collect();
        file.with_setting(key, &values).map_err(|error| error.to_string())
    }

    #[test]
    fn a_setting_is_changed_and_all_else_stays() {
        let text = "# mine\n[undo] # old\nmax_sessions = 5 # few\n\n# last\nthreads = 1\n";
        assert_eq!(
            set(text, "max_sessions", &["20"]).unwrap(),
            "# mine\n[undo] # old\nmax_sessions = 20 # few\n\n# last\nthreads = 1\n"
        );
        assert_eq!(set("", "rollback.threads", &["2"]).unwrap(), "[rollback]\nthreads = 2\n");
        assert_eq!(
            set("rollback = { threads = 1 }\n", "threads", &["2"]).unwrap(),
            "rollback = { threads = 2 }\n"
        );
    }

    #[test]
    fn a_setting_is_taken_out_and_all_else_stays() {
        let path = PathBuf::from("/c.toml");
        let text = "# mine\n[undo] # old\nmax_sessions = 5 # few\nthreads = 1\n";
        let file = ConfigFile { path: path.clone(), real_path: path, text: Some(text.to_owned()) };
        let without = file.without_setting("rollback.max_sessions").unwrap();
        assert_eq!(without.as_deref(), Some("# mine\n[undo] # old\nthreads = 1\n"));
        assert_eq!(file.without_setting("max_age_days").unwrap(), None);
        assert_eq!(file.without_setting("containers.max_age_days").unwrap(), None);
    }

    #[test]
    fn limits_of_containers_have_a_table_of_their_own() {
        let key = "containers.max_age_days";
        assert_eq!(set("", key, &["3"]).unwrap(), "[containers]\nmax_age_days = 3\n");
        let text = "[undo]\nmax_age_days = 1\n\n[containers]\nmax_age_days = 2 # mine\n";
        assert_eq!(set(text, key, &["3"]).unwrap(), text.replace("= 2", "= 3"));
        assert_eq!(set(text, "max_age_days", &["9"]).unwrap(), text.replace("= 1", "= 9"));
        for (key, value, reason) in [
            ("containers.max_age_day", "3", "did you mean \"max_age_days\"?"),
            ("containers.max_snapshots", "-1", "-1"),
            ("containers.max_storage_gb", "-1", "no size"),
            ("containers.threads", "1", "unknown key"),
        ] {
            let error = set(text, key, &[value]).unwrap_err();
            assert!(error.contains(reason), "{key}: {error}");
        }
    }

    #[test]
    fn lists_and_texts_need_no_quotes() {
        let of = |values: &[&str]| set("", "exclude_patterns", values).unwrap();
        assert_eq!(of(&["node_modules"]), "[rollback]\nexclude_patterns = [\"node_modules\"]\n");
        assert_eq!(of(&["a", "b c"]), "[rollback]\nexclude_patterns = [\"a\", \"b c\"]\n");
        assert_eq!(of(&["['x']"]), "[rollback]\nexclude_patterns = ['x']\n");
        assert_eq!(of(&["true"]), "[rollback]\nexclude_patterns = [\"true\"]\n");
        assert_eq!(of(&["[]"]), "[rollback]\nexclude_patterns = []\n");
    }

    #[test]
    fn nothing_wrong_is_written() {
        for (text, key, value, reason) in [
            ("", "max_session", "1", "did you mean \"max_sessions\"?"),
            ("", "max_sessions", "many", "string"),
            ("", "max_sessions", "-1", "-1"),
            ("", "max_storage_gb", "-1", "no size"),
            ("", "threads", "5000", "more than"),
            ("", "a.b", "1", "unknown key"),
            ("", "", "1", "unknown key"),
            ("[rollback]\nno = 1\n", "threads", "1", "/c.toml:2:1"),
            ("[rollback\n", "threads", "1", "/c.toml:1:"),
        ] {
            let error = set(text, key, &[value]).unwrap_err();
            assert!(error.contains(reason), "{key}: {error}");
        }
    }
}
