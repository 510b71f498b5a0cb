//! Our part in the configuration of coding agents: put in, taken out, looked at.
//!
//! Clients keep their configuration in files that people write, too. So an edit changes what it has
//! to and nothing else, a copy of the file as it was lies beside it, and the new file takes the
//! place of the old one at once. Installing twice changes nothing the second time. Uninstalling
//! gives back the old file, byte for byte, if it is unchanged since; else it takes out
//! exactly what is ours.
//!
//! Always true: no symlink is followed below the home directory, the project, or the directory that
//! a variable of the client names, because whoever works there may have made it; a file that is not
//! understood is not touched.

mod entries;
mod json_text;
mod place;

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::event::Client;
use nono_engine::path_text::{Shown, serde_path};
use nono_engine::sys::{self, Dir, FileKind};

pub use entries::State;
pub use json_text::JsonTextError;
pub use place::Place;

/// Behind the name of a file: the file as it was before.
const BACKUP: &str = ".before-nono";
/// Longer files are no configuration.
const MAX_BYTES: u64 = 64 << 20;
/// Permissions of a file that is made.
pub const NEW_FILE_MODE: u16 = 0o600;

/// Why a configuration is not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The file cannot be read or written.
    #[error(transparent)]
    Io(#[from] sys::Error),
    /// The file is not understood.
    #[error("{0}")]
    Json(#[from] JsonTextError),
    /// The file is not understood.
    #[error("no TOML: {0}")]
    Toml(#[from] toml_edit::TomlError),
    /// With the file that it is about.
    #[error("{} is left as it is: {source}", Shown::path(path))]
    Of {
        /// The file.
        path: PathBuf,
        /// Why.
        source: Box<InstallError>,
    },
    /// Another user may decide what the path means.
    #[error("it is a symlink or lies behind one, which is not followed; change the file itself")]
    Symlink,
    /// The file is not text.
    #[error("it is not UTF-8")]
    NotText,
    /// Another process wrote the file meanwhile.
    #[error("it was changed meanwhile; try again")]
    Changed,
    /// A variable of the client names no directory.
    #[error("{name} is {:?}: {why}", Shown::path(value).to_string())]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: PathBuf,
        /// The reason.
        why: &'static str,
    },
}

/// Whose configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The user's, for all projects.
    User,
    /// The configuration of one project, as far as possible not committed.
    Project,
}

/// A part of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Hooks, which take the steps.
    Hooks,
    /// The MCP server.
    Server,
}

/// A request to install or uninstall.
#[derive(Debug, Clone)]
pub struct Request {
    /// The client.
    pub client: Client,
    /// Where its configuration lies.
    pub place: Place,
    /// The program that hooks call.
    pub program: PathBuf,
    /// Whether the MCP server is wanted, too.
    pub with_server: bool,
}

/// A file that changed or would change.
#[derive(Debug, Clone, Serialize)]
pub struct Edit {
    /// The client's name.
    pub client: &'static str,
    /// Our parts in it.
    pub parts: Vec<Part>,
    /// The file.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// Whether there is anything to change.
    pub is_change: bool,
    /// Whether the file appears or vanishes.
    pub is_whole: bool,
    /// Where the file as it was lies.
    pub backup: Option<String>,
    #[serde(skip)]
    relative: PathBuf,
    #[serde(skip)]
    before: Option<Vec<u8>>,
    #[serde(skip)]
    after: Option<Vec<u8>>,
}

impl Edit {
    /// The text before; `None`: there is no file.
    pub fn before(&self) -> Option<&[u8]> {
        self.before.as_deref()
    }

    /// The text afterwards; `None`: there is no file.
    pub fn after(&self) -> Option<&[u8]> {
        self.after.as_deref()
    }
}

/// How a file of a client is.
#[derive(Debug, Clone, Serialize)]
pub struct Found {
    /// Our part that may be in it.
    pub part: Part,
    /// Whose configuration.
    pub scope: Scope,
    /// The file.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// How it is.
    pub state: State,
    /// Why it cannot be used.
    pub problem: Option<String>,
}

impl Found {
    /// The hooks of a user whose configuration has no place.
    pub fn nowhere(home: &Path, why: &InstallError) -> Self {
        let path = match why {
            InstallError::Variable { value, .. } => value.clone(),
            _ => home.to_owned(),
        };
        let (state, problem) = (State::Missing, Some(why.to_string()));
        Self { part: Part::Hooks, scope: Scope::User, path, state, problem }
    }
}

/// Plans the changes of an installation. Nothing is changed.
///
/// # Errors
/// When a file cannot be read or is not understood.
pub fn plan_install(request: &Request) -> Result<Vec<Edit>, InstallError> {
    let program = &request.program;
    let files = entries::files(request.client, &request.place);
    plan(request, files, |edit, form, text| {
        let is_wanted = edit.parts.last() == Some(&Part::Hooks) || request.with_server;
        if !is_wanted {
            return Ok(Some(text.to_owned()));
        }
        entries::with_ours(request.client, form, text, program).map(Some)
    })
}

/// Plans the changes of an uninstallation. Nothing is changed.
///
/// # Errors
/// When a file cannot be read or is not understood.
pub fn plan_uninstall(request: &Request) -> Result<Vec<Edit>, InstallError> {
    let base = &request.place.base;
    let mut files = entries::files(request.client, &request.place);
    files.extend(entries::other_files(request.client, &request.place));
    let mut edits =
        plan(request, files, |_, form, text| entries::without_ours(request.client, form, text))?;
    for edit in edits.iter_mut().filter(|edit| edit.is_change) {
        let backup = read(base, &backup_of(&edit.relative))
            .map_err(|source| in_file(&base.join(backup_of(&edit.relative)), source))?;
        // The file is what installing made of the backup, maybe with the server: no other program
        // wrote it.
        let made_of = |with_server: bool| {
            let request = Request { with_server, ..request.clone() };
            made(&request, &edit.relative, backup.as_deref()).ok().flatten()
        };
        let is_untouched = [true, false].map(made_of).contains(&edit.before);
        if is_untouched {
            edit.after.clone_from(&backup);
            edit.is_whole = backup.is_none();
        }
    }
    Ok(edits)
}

/// The text that installing makes of a file.
fn made(
    request: &Request,
    relative: &Path,
    before: Option<&[u8]>,
) -> Result<Option<Vec<u8>>, InstallError> {
    let mut text = text_of(before)?.to_owned();
    let mut files = entries::files(request.client, &request.place);
    files.extend(entries::other_files(request.client, &request.place));
    for file in files {
        let is_wanted = file.part == Part::Hooks || request.with_server;
        if file.path == relative && is_wanted {
            text = entries::with_ours(request.client, file.form, &text, &request.program)?;
        }
    }
    Ok(Some(text.into_bytes()))
}

fn plan(
    request: &Request,
    files: Vec<entries::File>,
    change: impl Fn(&Edit, entries::Form, &str) -> Result<Option<String>, InstallError>,
) -> Result<Vec<Edit>, InstallError> {
    let base = &request.place.base;
    let mut edits: Vec<Edit> = Vec::new();
    for file in files {
        let path = base.join(&file.path);
        let at = match edits.iter().position(|edit| edit.relative == file.path) {
            Some(at) => at,
            None => {
                let before = read(base, &file.path).map_err(|error| in_file(&path, error))?;
                edits.push(Edit {
                    client: request.client.name(),
                    parts: Vec::new(),
                    path: path.clone(),
                    is_change: false,
                    is_whole: false,
                    backup: None,
                    relative: file.path.clone(),
                    after: before.clone(),
                    before,
                });
                edits.len() - 1
            }
        };
        let edit = &mut edits[at];
        edit.parts.push(file.part);
        let text = text_of(edit.after.as_deref()).map_err(|error| in_file(&path, error))?;
        let new = change(edit, file.form, text).map_err(|error| in_file(&path, error))?;
        // A file that is not there is no empty one.
        if new.as_deref() != Some(text) {
            edit.after = new.map(String::into_bytes);
        }
        edit.is_change = edit.after != edit.before;
        edit.is_whole = edit.after.is_none() || edit.before.is_none();
    }
    Ok(edits)
}

/// Changes the files of a plan, one after the other, each at once.
///
/// # Errors
/// When one cannot be written; those before it are changed.
pub fn apply(
    request: &Request,
    edits: &mut [Edit],
    keeps_backup: bool,
) -> Result<(), InstallError> {
    for edit in edits.iter_mut().filter(|edit| edit.is_change) {
        let path = edit.path.clone();
        let base = &request.place.base;
        write(base, edit, keeps_backup).map_err(|error| in_file(&path, error))?;
        if edit.after.is_none() && request.place.scope == Scope::Project {
            remove_empty_dirs(base, &edit.relative).map_err(|error| in_file(&path, error))?;
        }
    }
    Ok(())
}

/// Looks at the files of a client.
pub fn look(request: &Request) -> Vec<Found> {
    let Place { scope, base, .. } = &request.place;
    let found = |file: entries::File| {
        let read = read(base, &file.path).and_then(|bytes| {
            Ok(entries::state(
                request.client,
                file.form,
                text_of(bytes.as_deref())?,
                &request.program,
            ))
        });
        let (state, problem) = match read {
            Ok(state) => (state, None),
            Err(error) => (State::Missing, Some(error.to_string())),
        };
        let path = base.join(&file.path);
        Found { part: file.part, scope: *scope, path, state, problem }
    };
    entries::files(request.client, &request.place).into_iter().map(found).collect()
}

/// Whether the program of a client is found here.
pub fn has_program(client: Client) -> bool {
    let program = match client {
        Client::ClaudeCode => "claude",
        Client::Codex => "codex",
        Client::Gemini => "gemini",
        Client::OpenCode => "opencode",
    };
    let search = std::env::var_os("PATH").unwrap_or_default();
    sys::find_program(program.as_ref(), &search).is_some()
}

fn in_file(path: &Path, source: InstallError) -> InstallError {
    InstallError::Of { path: path.to_owned(), source: Box::new(source) }
}

fn text_of(bytes: Option<&[u8]>) -> Result<&str, InstallError> {
    std::str::from_utf8(bytes.unwrap_or_default()).map_err(|_| InstallError::NotText)
}

fn backup_of(relative: &Path) -> PathBuf {
    let mut name = relative.as_os_str().to_owned();
    name.push(BACKUP);
    name.into()
}

/// The directory of a file below `base`, through no symlink. `None`: it is not there.
fn parent_of(base: &Path, relative: &Path, makes: bool) -> Result<Option<Dir>, InstallError> {
    let mut dir = Dir::open(base)?;
    let Some(parent) = relative.parent() else { return Ok(Some(dir)) };
    for component in parent.components() {
        let name = component.as_os_str().as_encoded_bytes();
        match dir.try_stat(name)?.map(|stat| stat.kind) {
            None if !makes => return Ok(None),
            None => match dir.make_dir(name, 0o755) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(error.into());
                }
                _ => {}
            },
            Some(FileKind::Directory) => {}
            Some(_) => return Err(InstallError::Symlink),
        }
        dir = dir.open_dir(name)?;
    }
    Ok(Some(dir))
}

fn name_of(relative: &Path) -> &[u8] {
    relative.file_name().unwrap_or_default().as_encoded_bytes()
}

/// A file below `base`; `None`: it is not there.
fn read(base: &Path, relative: &Path) -> Result<Option<Vec<u8>>, InstallError> {
    let Some(dir) = parent_of(base, relative, false)? else { return Ok(None) };
    match dir.try_stat(name_of(relative))?.map(|stat| stat.kind) {
        None => Ok(None),
        Some(FileKind::File) => Ok(Some(dir.read(name_of(relative), MAX_BYTES)?)),
        Some(_) => Err(InstallError::Symlink),
    }
}

fn write(base: &Path, edit: &mut Edit, keeps_backup: bool) -> Result<(), InstallError> {
    let name = name_of(&edit.relative);
    let backup = [name, BACKUP.as_bytes()].concat();
    sys::refuse_to_write_for_others(&base.join(&edit.relative))?;
    let Some(dir) = parent_of(base, &edit.relative, true)? else { return Ok(()) };
    if read(base, &edit.relative)? != edit.before {
        return Err(InstallError::Changed);
    }
    let mode = dir.try_stat(name)?.map_or(NEW_FILE_MODE, |stat| stat.mode & 0o777);
    let has_backup = dir.try_stat(&backup)?.is_some();
    if let Some(before) = edit.before.as_ref().filter(|_| keeps_backup && !has_backup) {
        dir.replace_file(&backup, before, mode, true)?;
    }
    match &edit.after {
        Some(after) => dir.replace_file(name, after, mode, true)?,
        None => dir.remove_file(name)?,
    }
    if keeps_backup {
        edit.backup = edit
            .before
            .is_some()
            .then(|| Shown::path(&base.join(backup_of(&edit.relative))).to_string());
    } else if has_backup {
        dir.remove_file(&backup)?;
    }
    Ok(())
}

/// Removes the directories of a removed file that nothing is in any more, below the project. A
/// client takes its directory in the home directory as a sign that it is used here.
fn remove_empty_dirs(base: &Path, relative: &Path) -> Result<(), InstallError> {
    let dirs = relative.ancestors().skip(1).take_while(|dir| !dir.as_os_str().is_empty());
    for dir in dirs {
        let Some(parent) = parent_of(base, dir, false)? else { continue };
        match parent.remove_dir(name_of(dir)) {
            Ok(()) => {}
            Err(error) if error.is_gone() => {}
            Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
