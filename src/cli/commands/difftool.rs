//! `nono difftool`: two states in a program that shows differences, under the names that
//! `git difftool` has for these programs.
//!
//! The changed files of both states are written into two folders of a new directory, which goes
//! when the program ends. A program that takes folders is started once, another one for each file.
//! Always true: the tool comes from the command line or from git's settings of the user, and never
//! from those of a project, which a recorded command could have written.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;

use super::diff::{Asked, compared};
use super::diff_sides::Words;
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::when::{When, when};
use nono_engine::diff::{Difference, EntryState, relative_to_roots};
use nono_engine::object::Node;
use nono_engine::path_text::{Shown, to_path};
use nono_engine::store::ObjectSource;
use nono_engine::sys::{self, Dir};

/// Longer files are named and left out, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// Arguments of `nono difftool`.
#[derive(Debug, Args)]
pub(in crate::cli) struct DifftoolArgs {
    /// The states and paths, as in `nono diff`
    #[arg(value_name = "A [B] | PATH", allow_negative_numbers = true)]
    words: Vec<OsString>,
    /// Only these paths, also where they look like an id
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The program: meld, kdiff3, vimdiff, code, or another one that git's settings of this user
    /// know [default: git's diff.tool]
    #[arg(long, short)]
    tool: Option<String>,
    /// The older state is the one at this time
    #[arg(long, value_name = "TIME", value_parser = when)]
    at: Option<When>,
}

/// A program that shows differences.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Tool {
    /// Takes two folders, behind these words.
    Folders(&'static [&'static str]),
    /// Takes two files, behind these words.
    Files(&'static [&'static str]),
    /// A command line of git's settings, for a shell, with `$LOCAL` and `$REMOTE`.
    Line(String),
}

/// The programs that are known by name, as git names them.
const KNOWN: &[(&str, Tool)] = &[
    ("bc", Tool::Folders(&["bcompare"])),
    ("code", Tool::Files(&["code", "--wait", "--diff"])),
    ("diffuse", Tool::Files(&["diffuse"])),
    ("gvimdiff", Tool::Files(&["gvim", "-f", "-d"])),
    ("kdiff3", Tool::Folders(&["kdiff3"])),
    ("kompare", Tool::Folders(&["kompare"])),
    ("meld", Tool::Folders(&["meld"])),
    ("nvimdiff", Tool::Files(&["nvim", "-d"])),
    ("tkdiff", Tool::Files(&["tkdiff"])),
    ("vimdiff", Tool::Files(&["vim", "-d"])),
    ("vscode", Tool::Files(&["code", "--wait", "--diff"])),
    ("xxdiff", Tool::Files(&["xxdiff"])),
];

pub(in crate::cli) fn run(args: &DifftoolArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let tool = Tool::find(args.tool.as_deref())?;
    let catalog = store.catalog()?;
    let words = Words::of(&args.words, &args.paths, &catalog)?;
    let asked = Asked { words, at: args.at.as_ref(), is_for_program: false };
    compared(asked, &catalog, context, |compared, is_complete| {
        let differences = compared.outside_git(context)?;
        let place = Place::new()?;
        let pairs = place.fill(compared.source, &differences, &compared.roots, context)?;
        if pairs.is_empty() {
            context.say("no file differs");
            return Ok(u8::from(!is_complete));
        }
        let code = tool.start(&place.path, &pairs)?;
        Ok(if code == 0 { u8::from(!is_complete) } else { code })
    })
}

impl Tool {
    /// Whether a directory of PATH has its program.
    fn is_installed(&self) -> bool {
        let (Self::Folders(words) | Self::Files(words)) = self else { return false };
        let path = std::env::var_os("PATH").unwrap_or_default();
        sys::find_program(words[0].as_ref(), &path).is_some()
    }

    /// The tool of this name, or that of git's settings.
    fn find(name: Option<&str>) -> Result<Self, CliError> {
        let (installed, others): (Vec<_>, Vec<_>) =
            KNOWN.iter().partition(|(_, tool)| tool.is_installed());
        let names = |tools: &[&(&'static str, Self)]| -> Vec<&'static str> {
            tools.iter().map(|(name, _)| *name).collect()
        };
        let known = [names(&installed), names(&others)].concat().join(", ");
        let name = match name {
            Some(name) => name.to_owned(),
            None => git_setting("diff.tool").ok_or_else(|| {
                let error = CliError::usage("git's settings name no program (diff.tool)");
                match &names(&installed)[..] {
                    [] => error.with_hint(format!("install one, for --tool NAME: {known}")),
                    [first, others @ ..] => {
                        let name_one = format!("name one: {NONO} difftool --tool {first}");
                        error.with_hint(match others {
                            [] => name_one,
                            others => format!("{name_one}, or {}", others.join(", ")),
                        })
                    }
                }
            })?,
        };
        // A setting of git comes before a name that is known here, as in git.
        if let Some(line) = git_setting(&format!("difftool.{name}.cmd")) {
            return Ok(Self::Line(line));
        }
        let found = KNOWN.iter().find(|(known, _)| *known == name);
        found.map(|(_, tool)| tool.clone()).ok_or_else(|| {
            let name = Shown::bytes(name.as_bytes());
            CliError::usage(format!("no program is known as {name}")).with_hint(format!(
                "known are {known}; for another one set difftool.{name}.cmd in git's settings \
                 (git config --global)"
            ))
        })
    }

    /// Starts the program and waits for it. Gives its exit code, or the first one that is not 0.
    fn start(&self, place: &Path, pairs: &[Pair]) -> Outcome {
        let mut failed = 0;
        let calls: Vec<[PathBuf; 2]> = match self {
            Self::Folders(_) => vec![[place.join(OLD), place.join(NEW)]],
            _ => pairs.iter().map(|pair| pair.files.clone()).collect(),
        };
        for [old, new] in calls {
            let mut command = match self {
                Self::Folders(words) | Self::Files(words) => {
                    let mut command = Command::new(words[0]);
                    command.args(&words[1..]).arg(&old).arg(&new);
                    command
                }
                Self::Line(line) => {
                    let mut command = Command::new("sh");
                    command.arg("-c").arg(line).env("LOCAL", &old).env("REMOTE", &new);
                    command.env("MERGED", &new).env("BASE", &old);
                    command
                }
            };
            let name = command.get_program().to_owned();
            let status = command.status().map_err(|error| {
                let name = Shown::path(Path::new(&name));
                CliError::failed(format!("cannot start {name}: {error}"))
                    .with_hint(format!("{NONO} difftool --tool NAME starts another program"))
            })?;
            if failed == 0 && !status.success() {
                failed = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
            }
        }
        Ok(failed)
    }
}

/// A setting of git of this user, and never of a project.
fn git_setting(key: &str) -> Option<String> {
    let mut git = Command::new("git");
    git.args(["config", "--global", "--includes", "--get", key]).current_dir("/");
    let output = git.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let value = String::from_utf8(output.stdout).ok()?;
    Some(value.trim_end_matches('\n').to_owned()).filter(|value| !value.is_empty())
}

/// The folder of the older state, and of the newer one.
const OLD: &str = "old";
const NEW: &str = "new";

/// Both states of a file. One that is not there is empty.
#[derive(Debug)]
struct Pair {
    files: [PathBuf; 2],
}

/// A directory of its own, which goes with the value.
struct Place {
    above: Dir,
    name: String,
    path: PathBuf,
}

impl Place {
    fn new() -> Result<Self, CliError> {
        let above = sys::open_temporary_dir()?;
        let name = format!("nono-diff-{}", hex::encode(&sys::random_bytes()?[..8]));
        let path = above.path().join(&name);
        sys::create_private_dir(&path)?;
        Ok(Self { above, name, path })
    }

    /// Writes both states of the changed files, readable only.
    fn fill(
        &self,
        source: &dyn ObjectSource,
        differences: &[Difference],
        roots: &[PathBuf],
        context: &Context,
    ) -> Result<Vec<Pair>, CliError> {
        sys::create_private_dir(&self.path.join(OLD))?;
        sys::create_private_dir(&self.path.join(NEW))?;
        let mut pairs = Vec::new();
        for difference in differences {
            let (old, new) = (difference.old.as_deref(), difference.new.as_deref());
            if !is_file(old) && !is_file(new) || has_same_bytes(old, new) {
                continue;
            }
            if bytes(old).max(bytes(new)) > MAX_FILE_BYTES {
                let path = Shown::bytes(&difference.path);
                context.warn(format_args!("not shown: {path} is too large"));
                continue;
            }
            let name = to_path(relative_to_roots(&difference.path, roots));
            let name = name.strip_prefix("/").unwrap_or(name);
            let files = [self.path.join(OLD).join(name), self.path.join(NEW).join(name)];
            for (path, state) in files.iter().zip([old, new]) {
                if is_file(state) {
                    write(path, &read(source, state)?)?;
                }
            }
            pairs.push(Pair { files });
        }
        for pair in &mut pairs {
            for path in &mut pair.files {
                // Programs for two files take no missing one.
                if sys::kind_of(path)?.is_none() {
                    *path = self.nothing()?;
                }
            }
        }
        Ok(pairs)
    }

    /// An empty file, beside both folders.
    fn nothing(&self) -> Result<PathBuf, CliError> {
        let path = self.path.join("nothing");
        if sys::kind_of(&path)?.is_none() {
            write(&path, b"")?;
        }
        Ok(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = self.above.remove_dir_all(self.name.as_bytes()) {
            tracing::warn!("{error}");
        }
    }
}

fn is_file(state: Option<&EntryState>) -> bool {
    state.is_some_and(|state| matches!(state.node, Node::File { .. } | Node::Symlink { .. }))
}

fn has_same_bytes(old: Option<&EntryState>, new: Option<&EntryState>) -> bool {
    old.zip(new).is_some_and(|(old, new)| old.node == new.node)
}

fn bytes(state: Option<&EntryState>) -> u64 {
    match state.map(|state| &state.node) {
        Some(Node::File { size, .. }) => *size,
        _ => 0,
    }
}

/// The contents of a file; of a symlink, its target as text: it leads nowhere from here.
fn read(source: &dyn ObjectSource, state: Option<&EntryState>) -> Result<Vec<u8>, CliError> {
    match state.map(|state| &state.node) {
        Some(Node::File { size: 0, .. }) | None => Ok(Vec::new()),
        Some(Node::File { hash, size, .. }) => Ok(source.read(hash, *size)?),
        Some(Node::Symlink { target }) => Ok(target.to_vec()),
        Some(_) => Ok(Vec::new()),
    }
}

/// Writes a file that no editor changes by mistake, with the directories above it.
fn write(path: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    sys::create_private_dir(above)?;
    let dir = Dir::open_no_symlinks(above)?;
    let file = dir.create_file(name.as_encoded_bytes(), 0o400)?;
    Ok((&file).write_all(bytes)?)
}
