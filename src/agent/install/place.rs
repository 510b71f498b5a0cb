//! Where a client keeps its configuration: below the home directory, unless a variable moves it.
//!
//! `CLAUDE_CONFIG_DIR` and `CODEX_HOME` are the directory itself, `GEMINI_CLI_HOME` stands for the
//! home directory, and `XDG_CONFIG_HOME` is the directory above that of OpenCode. The clients
//! resolve a relative value where they are started, so it names no single file: it is refused. A
//! directory that is not there is made, except that of Codex, which does not start without it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{InstallError, Scope};
use crate::agent::Client;
use nono_engine::sys;

/// How a variable moves the configuration of a client.
struct Variable {
    name: &'static str,
    /// The client's directory below that of the variable.
    dir: &'static str,
}

/// A place in which a client looks for its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Whose it is.
    pub(super) scope: Scope,
    /// An existing directory, symlinks resolved. Below it, none is followed.
    pub(super) base: PathBuf,
    /// Below it: the project, the home directory, or what a variable names. Empty, unless it is
    /// still to be made.
    pub(super) top: PathBuf,
    /// Below `base`: the directory of the client.
    pub(super) dir: PathBuf,
}

impl Place {
    /// The configuration of one project.
    ///
    /// # Errors
    /// When the project is not there.
    pub fn of_project(client: Client, project: &Path) -> Result<Self, InstallError> {
        let dir = match client {
            Client::OpenCode => ".opencode",
            _ => usual_dir(client),
        };
        Ok(Self::below(Scope::Project, &sys::real_path(project)?, PathBuf::new(), dir))
    }

    /// The configuration of the user whose home directory and environment these are.
    ///
    /// # Errors
    /// When the home directory is not there, or a variable names no directory.
    pub fn of_user(
        client: Client,
        home: &Path,
        environment: &dyn Fn(&str) -> Option<OsString>,
    ) -> Result<Self, InstallError> {
        let variable = variable(client);
        let Some(value) = environment(variable.name) else { return Self::at_home(client, home) };
        let wrong = |why| {
            Err(InstallError::Variable { name: variable.name, value: PathBuf::from(&value), why })
        };
        if value.is_empty() {
            return match client {
                // Its settings would be files of whatever directory it is started in.
                Client::ClaudeCode => wrong("unset it, or name a directory"),
                _ => Self::at_home(client, home),
            };
        }
        let path = Path::new(&value);
        if path.to_str().is_none() {
            return wrong("the path is not UTF-8");
        }
        if !path.is_absolute() {
            return wrong("a relative path means another directory wherever the agent is started");
        }
        if client == Client::Codex && !sys::leads_to_dir(path) {
            return wrong("there is no such directory, and codex does not start without it");
        }
        let (base, top) = existing(path)?;
        Ok(Self::below(Scope::User, &base, top, variable.dir))
    }

    fn at_home(client: Client, home: &Path) -> Result<Self, InstallError> {
        Ok(Self::below(Scope::User, &sys::real_path(home)?, PathBuf::new(), usual_dir(client)))
    }

    fn below(scope: Scope, base: &Path, top: PathBuf, dir: &str) -> Self {
        let dir = if dir.is_empty() { top.clone() } else { top.join(dir) };
        Self { scope, base: base.to_owned(), top, dir }
    }

    /// Whether the client has a directory there.
    pub fn is_there(&self) -> bool {
        sys::leads_to_dir(&self.base.join(&self.dir))
    }
}

/// The directory of a client in a home directory.
fn usual_dir(client: Client) -> &'static str {
    match client {
        Client::ClaudeCode => ".claude",
        Client::Codex => ".codex",
        Client::Gemini => ".gemini",
        Client::OpenCode => ".config/opencode",
    }
}

fn variable(client: Client) -> Variable {
    let (name, dir) = match client {
        Client::ClaudeCode => ("CLAUDE_CONFIG_DIR", ""),
        Client::Codex => ("CODEX_HOME", ""),
        Client::Gemini => ("GEMINI_CLI_HOME", ".gemini"),
        Client::OpenCode => ("XDG_CONFIG_HOME", "opencode"),
    };
    Variable { name, dir }
}

/// The part of a path that exists, symlinks resolved, and the rest of it.
fn existing(path: &Path) -> Result<(PathBuf, PathBuf), InstallError> {
    if let Ok(real) = sys::real_path(path) {
        return Ok((real, PathBuf::new()));
    }
    // As the clients do, without a look at the disk.
    let plain = sys::plain_absolute(path, Path::new("/"));
    let mut base = plain.as_path();
    loop {
        let parent = base.parent();
        match (sys::real_path(base), parent) {
            (Ok(real), _) => {
                let rest = plain.strip_prefix(base).unwrap_or(Path::new(""));
                return Ok((real, rest.to_owned()));
            }
            (Err(error), Some(_)) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error.into());
            }
            (Err(_), Some(parent)) => base = parent,
            (Err(error), None) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests plant what they look at")]
mod tests {
    use super::*;

    /// Where the place of a client is, and the directory of the client below it.
    fn place(client: Client, home: &Path, value: Option<&str>) -> Result<PathBuf, String> {
        let environment =
            |name: &str| value.filter(|_| name == variable(client).name).map(OsString::from);
        let place = Place::of_user(client, home, &environment);
        place.map(|place| place.base.join(place.dir)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_variable_moves_the_directory_as_its_client_reads_it() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().canonicalize().unwrap();
        let other = home.join("other");
        std::fs::create_dir(&other).unwrap();
        let named = other.to_str();
        for (client, usual, moved) in [
            (Client::ClaudeCode, ".claude", "other"),
            (Client::Codex, ".codex", "other"),
            (Client::Gemini, ".gemini", "other/.gemini"),
            (Client::OpenCode, ".config/opencode", "other/opencode"),
        ] {
            assert_eq!(place(client, &home, None), Ok(home.join(usual)));
            assert_eq!(place(client, &home, named), Ok(home.join(moved)));
            for relative in ["other", "./other", "~/other"] {
                let refused = place(client, &home, Some(relative)).unwrap_err();
                assert!(refused.contains(relative) && refused.contains("relative"), "{refused}");
            }
            let empty = place(client, &home, Some(""));
            match client {
                Client::ClaudeCode => assert!(empty.unwrap_err().contains("CLAUDE_CONFIG_DIR")),
                _ => assert_eq!(empty, Ok(home.join(usual))),
            }
        }
    }

    #[test]
    fn a_directory_that_is_not_there_is_one_to_make_but_that_of_codex() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().canonicalize().unwrap();
        let value = home.join("a/../b/c");
        let environment = |_: &str| Some(OsString::from(&value));
        let found = Place::of_user(Client::Gemini, &home, &environment).unwrap();
        assert_eq!(found.base, home);
        assert_eq!((found.top, found.dir), (PathBuf::from("b/c"), PathBuf::from("b/c/.gemini")));
        let refused = Place::of_user(Client::Codex, &home, &environment).unwrap_err();
        assert!(refused.to_string().contains("does not start"), "{refused}");
    }
}
