//! Paths as profiles write them: `~/…`, `$NAME/…`, absolute, or relative to the current directory;
//! and patterns that begin with such a place.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::ConfigError;
use nono_engine::sys;
use nono_engine::walk::pattern_of_path;

/// The environment in which paths and settings are looked up, so that tests need none of their own.
pub struct Surroundings<'a> {
    /// The home directory, if there is one.
    pub home: Option<PathBuf>,
    /// Where relative paths begin.
    pub current_dir: PathBuf,
    /// The environment.
    pub variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// Whether this is inside a run, whose walls may keep the configuration out of reach.
    pub is_inside: bool,
}

impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").field("home", &self.home).finish_non_exhaustive()
    }
}

/// Directories that a variable moves, with their defaults below the home directory: the base
/// directories of the XDG specification, and those of coding agents.
const MOVABLE: &[(&str, &str)] = &[
    ("XDG_CONFIG_HOME", ".config"),
    ("XDG_CACHE_HOME", ".cache"),
    ("XDG_DATA_HOME", ".local/share"),
    ("XDG_STATE_HOME", ".local/state"),
    ("CLAUDE_CONFIG_DIR", ".claude"),
    ("CODEX_HOME", ".codex"),
    // It stands for the home directory itself.
    ("GEMINI_CLI_HOME", ""),
];

impl Surroundings<'_> {
    /// An absolute path from the environment. Relative ones are ignored, as the XDG specification
    /// wants it.
    fn directory(&self, name: &str) -> Option<PathBuf> {
        (self.variable)(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// A base directory, or its default below the home directory.
    pub(super) fn xdg(&self, name: &str, default: &str) -> Option<PathBuf> {
        self.directory(name).or_else(|| Some(self.home.as_ref()?.join(default)))
    }
}

/// The absolute path that a profile means; `None` when it begins with a variable that is not set.
///
/// # Errors
/// A path that can never mean anything: empty, or of another user's home (`~ada`).
pub fn expand(text: &str, surroundings: &Surroundings<'_>) -> Result<Option<PathBuf>, ConfigError> {
    let wrong = |reason: &str| Err(ConfigError::invalid(format!("the path {text:?}"), reason));
    let (first, rest) = text.split_once('/').unwrap_or((text, ""));
    let base = match first.strip_prefix('$') {
        _ if text.is_empty() => return wrong("it is empty"),
        _ if first == "~" => surroundings.home.clone(),
        None if first.starts_with('~') => {
            return wrong("only `~` alone stands for a home directory");
        }
        None => {
            return Ok(Some(sys::plain_absolute(Path::new(text), &surroundings.current_dir)));
        }
        Some(name) => {
            let name =
                name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
            let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if name.is_empty() || !name.bytes().all(is_word) {
                return wrong("a variable is written $NAME or ${NAME}, and a / follows");
            }
            match MOVABLE.iter().find(|(known, _)| *known == name) {
                Some((_, default)) => surroundings.xdg(name, default),
                None if name == "HOME" => surroundings.home.clone(),
                None => surroundings.directory(name),
            }
        }
    };
    Ok(base.map(|base| sys::plain_absolute(Path::new(rest), &base)))
}

/// A pattern of a recording as the engine takes it. One that begins with a place (`~/…`, `$NAME/…`)
/// is a path from the root of the file system; any other stays as it is. `None` when it begins with
/// a variable that is not set.
///
/// # Errors
/// A pattern that begins with another user's home (`~ada/…`).
pub(super) fn expand_pattern(
    text: &str,
    surroundings: &Surroundings<'_>,
) -> Result<Option<String>, ConfigError> {
    let first = text.split('/').next().unwrap_or_default();
    let rest = &text[first.len()..];
    let is_word = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let is_place = match (first.strip_prefix('$'), first.strip_prefix('~')) {
        (Some(name), _) => {
            let inner = name.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
            is_word(inner.unwrap_or(name))
        }
        (_, Some("")) => true,
        (_, Some(user)) if is_word(user) && !rest.is_empty() => {
            return Err(ConfigError::invalid(
                format!("the pattern {text:?}"),
                "only `~` alone stands for a home directory",
            ));
        }
        _ => false,
    };
    if !is_place {
        return Ok(Some(text.to_owned()));
    }
    let base = expand(first, surroundings)?;
    Ok(base.map(|base| format!("{}{rest}", pattern_of_path(&base))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_begins_with_a_place_or_stays_as_it_is() {
        let variable = |name: &str| (name == "DATA").then(|| "/srv/d[1]".into());
        let surroundings = Surroundings {
            home: Some("/home/me".into()),
            current_dir: "/work".into(),
            variable: &variable,
            is_inside: false,
        };
        for (text, pattern) in [
            ("~/shop/data", Some("//home/me/shop/data")),
            ("~/shop/data/", Some("//home/me/shop/data/")),
            ("~/*.iso", Some("//home/me/*.iso")),
            ("~", Some("//home/me")),
            ("$HOME/x", Some("//home/me/x")),
            ("${HOME}/x", Some("//home/me/x")),
            ("$DATA/x", Some("//srv/d[[]1[]]/x")),
            ("$NOT_SET/x", None),
            ("/data", Some("/data")),
            ("./data", Some("./data")),
            ("data", Some("data")),
            ("*~", Some("*~")),
            ("~$*.docx", Some("~$*.docx")),
            ("$RECYCLE.BIN/", Some("$RECYCLE.BIN/")),
        ] {
            let expanded = expand_pattern(text, &surroundings).unwrap();
            assert_eq!(expanded.as_deref(), pattern, "{text}");
        }
        assert!(expand_pattern("~ada/x", &surroundings).is_err());
    }

    #[test]
    fn places_are_expanded_as_a_shell_would_and_unset_ones_are_nowhere() {
        let variable = |name: &str| match name {
            "XDG_CACHE_HOME" => Some("/var/cache/me".into()),
            "XDG_DATA_HOME" => Some("relative".into()),
            "CODEX_HOME" => Some("/opt/codex".into()),
            _ => None,
        };
        let surroundings = Surroundings {
            home: Some("/home/me".into()),
            current_dir: "/work".into(),
            variable: &variable,
            is_inside: false,
        };
        for (text, path) in [
            ("~", Some("/home/me")),
            ("~/.npm", Some("/home/me/.npm")),
            ("$HOME/x/../y", Some("/home/me/y")),
            ("${HOME}/x", Some("/home/me/x")),
            ("$XDG_CACHE_HOME/x", Some("/var/cache/me/x")),
            ("$XDG_CONFIG_HOME/x", Some("/home/me/.config/x")),
            ("$XDG_DATA_HOME/x", Some("/home/me/.local/share/x")),
            ("$CODEX_HOME", Some("/opt/codex")),
            ("$CLAUDE_CONFIG_DIR/agents", Some("/home/me/.claude/agents")),
            ("$GEMINI_CLI_HOME/.gemini", Some("/home/me/.gemini")),
            ("$NOT_SET/x", None),
            ("src/../lib", Some("/work/lib")),
            (".", Some("/work")),
            ("/a//b", Some("/a/b")),
        ] {
            assert_eq!(expand(text, &surroundings).unwrap(), path.map(PathBuf::from), "{text}");
        }
        for text in ["", "~ada/x", "$/x", "$A-B/x"] {
            assert!(expand(text, &surroundings).is_err(), "{text:?}");
        }
    }
}
