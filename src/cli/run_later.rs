//! Files that programs run by themselves later, outside of every wall: hooks and settings of git,
//! tasks of editors, scripts of package managers.
//!
//! A command that may write to a project may plant something in them, and `.git: 13 changes` says
//! nothing of it. So they are named after the run and by `nono status`. To be named is no verdict:
//! most such changes are ordinary work. The setting `name_run_later` switches it off.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gix_config::file::{Metadata, init};
use serde::Serialize;

use super::context::Context;
use super::error::CliError;
use nono_engine::diff::{self, Change, ChangeType, Comparison, Lookup, relative_to_roots};
use nono_engine::object::{Node, RootTree};
use nono_engine::path_text::Shown;
use nono_engine::snapshot::{NotCapturedSet, SnapshotManifest};
use nono_engine::store::{ObjectSource, read_root_tree};

/// A longer file is no file of settings; it is named without a look into it.
const MAX_BYTES: u64 = 1 << 20;
/// Maximum number of keys in a section: each is looked up among all of them.
const MAX_KEYS: usize = 1000;
/// Maximum number that is named in a line.
const MAX_NAMED: usize = 6;

/// Names of files that a program reads and runs by itself, wherever they lie.
const NAMES: &[&str] = &[
    ".bash_profile",
    ".bashrc",
    ".envrc",
    ".gitlab-ci.yml",
    ".mcp.json",
    ".npmrc",
    ".pnpmfile.cjs",
    ".pre-commit-config.yaml",
    ".profile",
    ".travis.yml",
    ".yarnrc.yml",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    "GNUmakefile",
    "Jenkinsfile",
    "Makefile",
    "Vagrantfile",
    "build.rs",
    "conftest.py",
    "justfile",
    "lefthook.yml",
    "makefile",
    "setup.py",
    "sitecustomize.py",
    "usercustomize.py",
];
/// Ends of paths: a directory and a file in it.
const PATHS: &[(&str, &str)] = &[
    (".cargo", "config.toml"),
    (".claude", "settings.json"),
    (".claude", "settings.local.json"),
    (".codex", "config.toml"),
    (".cursor", "mcp.json"),
    (".devcontainer", "devcontainer.json"),
    (".gemini", "settings.json"),
    (".ssh", "config"),
    (".ssh", "rc"),
    (".vscode", "launch.json"),
    (".vscode", "settings.json"),
    (".vscode", "tasks.json"),
];
/// Directories of which every file runs.
const DIRECTORIES: &[&[&str]] = &[
    &[".github", "actions"],
    &[".github", "workflows"],
    &[".husky"],
    &[".config", "autostart"],
    &[".config", "systemd"],
];

/// The files and settings, in words that are harmless on a terminal.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
pub(super) struct RunLater(Vec<String>);

impl RunLater {
    /// The files that run later, among the changes from one state to another.
    ///
    /// # Errors
    /// When a tree or a file that has to be read is missing or damaged.
    pub(super) fn among(
        changes: &[Change],
        store: &dyn ObjectSource,
        before: &SnapshotManifest,
        after: &SnapshotManifest,
    ) -> Result<Self, CliError> {
        let roots: Vec<PathBuf> = before.roots.iter().map(|root| root.path.clone()).collect();
        let trees = [&before.merkle_root, &after.merkle_root];
        let [old, new] = trees.map(|root| read_root_tree(store, root));
        let states = States { store, old: old?, new: new? };
        let git_dirs = states.git_dirs(&roots)?;
        let mut found = Vec::new();
        // One that is gone runs no more.
        for change in changes.iter().filter(|change| change.change_type != ChangeType::Deleted) {
            let shown = relative_to_roots(change.path.as_os_str().as_bytes(), &roots);
            let shown = Shown::bytes(shown).to_string();
            match in_git(&change.path, &git_dirs) {
                Some(inside) => found.extend(states.git(change, inside, &shown)?),
                None if is_run(&change.path) => found.push(shown),
                None if is_named(&change.path, "package.json")
                    && states.has_other(change, scripts)? =>
                {
                    found.push(format!("scripts in {shown}"));
                }
                None => {}
            }
        }
        Ok(Self(found))
    }

    /// The line about them, without its beginning; `None` where there are none.
    pub(super) fn line(&self) -> Option<String> {
        let named = self.0.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
        let more = match self.0.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        (!self.0.is_empty()).then(|| format!("these run by themselves later: {named}{more}"))
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Names them after a run.
    pub(super) fn report(&self, context: &Context) {
        if let Some(line) = self.line() {
            context.warn(line);
        }
    }

    /// All of them, for a program.
    pub(super) fn into_words(self) -> Vec<String> {
        self.0
    }
}

/// Two states of the files.
struct States<'a> {
    store: &'a dyn ObjectSource,
    old: RootTree,
    new: RootTree,
}

impl States<'_> {
    /// The tracked paths that are git directories, whatever their names.
    fn git_dirs<'r>(&self, roots: &'r [PathBuf]) -> Result<Vec<&'r Path>, CliError> {
        let mut lookup = Lookup::new(self.store, &self.new);
        let mut has = |root: &Path, name: &str| -> Result<bool, CliError> {
            let found = lookup.find(root.join(name).as_os_str().as_bytes())?;
            Ok(found.is_some_and(|state| matches!(state.node, Node::File { .. })))
        };
        let mut found = Vec::new();
        for root in roots {
            if has(root, "HEAD")? && (has(root, "config")? || has(root, "commondir")?) {
                found.push(root.as_path());
            }
        }
        Ok(found)
    }

    /// A change in a git directory: `inside` is the path in it.
    fn git(&self, change: &Change, inside: &Path, shown: &str) -> Result<Vec<String>, CliError> {
        let parent = inside.parent().unwrap_or(Path::new(""));
        if parent.ends_with("hooks") {
            let is_sample = inside.extension().is_some_and(|extension| extension == "sample");
            let is_file = !change.is_directory && !is_sample;
            return Ok(is_file.then(|| shown.to_owned()).into_iter().collect());
        }
        if is_named(inside, "attributes") && parent.ends_with("info") {
            return Ok(vec![shown.to_owned()]);
        }
        if !is_named(inside, "config") && !is_named(inside, "config.worktree") {
            return Ok(Vec::new());
        }
        let [old, new] = self.contents(&change.path)?;
        let known = old.map(|bytes| settings(&bytes)).unwrap_or_default();
        Ok(match new.as_deref().map(settings) {
            // git may read what the parser does not.
            None | Some(None) => vec![shown.to_owned()],
            Some(Some(new)) => {
                let known = known.unwrap_or_default();
                let names: BTreeSet<_> = new.difference(&known).map(|(name, _)| name).collect();
                names.into_iter().map(|name| format!("{name} in {shown}")).collect()
            }
        })
    }

    /// Whether a part of a file is another; also where that part cannot be told.
    fn has_other<T: PartialEq>(
        &self,
        change: &Change,
        part: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<bool, CliError> {
        let [old, new] = self.contents(&change.path)?;
        Ok(match new.as_deref().map(&part) {
            Some(Some(new)) => old.as_deref().and_then(part).as_ref() != Some(&new),
            Some(None) => false,
            None => true,
        })
    }

    /// The contents of a file in both states; `None` where it is none, or too long.
    fn contents(&self, path: &Path) -> Result<[Option<Vec<u8>>; 2], CliError> {
        let path = path.as_os_str().as_bytes();
        let read = |root: &RootTree| -> Result<Option<Vec<u8>>, CliError> {
            match Lookup::new(self.store, root).find(path)?.map(|state| state.node) {
                Some(Node::File { size, hash, .. }) if size <= MAX_BYTES => {
                    Ok(Some(self.store.read(&hash, MAX_BYTES)?.to_vec()))
                }
                _ => Ok(None),
            }
        };
        Ok([read(&self.old)?, read(&self.new)?])
    }
}

fn is_named(path: &Path, name: &str) -> bool {
    path.file_name().is_some_and(|last| last == name)
}

/// The path in a git directory: one of these, or one that is called as git calls it.
fn in_git<'p>(path: &'p Path, git_dirs: &[&Path]) -> Option<&'p Path> {
    if let Some(inside) = git_dirs.iter().find_map(|dir| path.strip_prefix(dir).ok()) {
        return Some(inside);
    }
    let bytes = path.as_os_str().as_bytes();
    let at = bytes.windows(6).position(|part| part == b"/.git/")?;
    Some(Path::new(std::ffi::OsStr::from_bytes(&bytes[at + 6..])))
}

fn is_run(path: &Path) -> bool {
    let names: Vec<&str> = path.iter().map(|name| name.to_str().unwrap_or_default()).collect();
    let Some((name, above)) = names.split_last() else { return false };
    NAMES.contains(name)
        || above.last().is_some_and(|above| PATHS.contains(&(above, name)))
        || DIRECTORIES.iter().any(|dir| above.windows(dir.len()).any(|part| part == *dir))
}

/// The scripts of a package; `None` where there are none.
fn scripts(bytes: &[u8]) -> Option<serde_json::Value> {
    serde_json::from_slice::<serde_json::Value>(bytes).ok()?.get_mut("scripts").map(|it| it.take())
}

/// The settings of git that make it run something, each with its value. `None`: these are none.
fn settings(bytes: &[u8]) -> Option<BTreeSet<(String, Vec<u8>)>> {
    let options = init::Options::default();
    let file = gix_config::File::from_bytes_no_includes(bytes, Metadata::api(), options).ok()?;
    let mut found = BTreeSet::new();
    for section in file.sections() {
        let header = section.header();
        let section_name = header.name().to_string().to_ascii_lowercase();
        let subsection = header.subsection_name().map(|name| name.to_string());
        let names: BTreeSet<String> =
            section.body().value_names().map(|name| name.to_ascii_lowercase()).collect();
        if names.len() > MAX_KEYS {
            return None;
        }
        for key in names {
            for value in section.body().values(&key) {
                if runs(&section_name, subsection.is_some(), &key, &value) {
                    let name = match &subsection {
                        Some(subsection) => format!("{section_name}.{subsection}.{key}"),
                        None => format!("{section_name}.{key}"),
                    };
                    found.insert((Shown::bytes(name.as_bytes()).to_string(), value.to_vec()));
                }
            }
        }
    }
    Some(found)
}

/// Whether git runs the value of a setting, or reads further settings from it. From
/// <https://git-scm.com/docs/git-config>.
fn runs(section: &str, has_subsection: bool, key: &str, value: &[u8]) -> bool {
    let is_shell = value.starts_with(b"!");
    match (section, key) {
        ("core", "fsmonitor") => !matches!(value, b"true" | b"false" | b"1" | b"0" | b""),
        ("core", "pager" | "editor" | "sshcommand" | "askpass" | "hookspath" | "gitproxy") => true,
        ("core", "alternaterefscommand" | "attributesfile") => true,
        ("pager", _) => !matches!(value, b"true" | b"false"),
        ("alias", _) | ("submodule", "update") => is_shell,
        ("include" | "includeif", "path") => true,
        ("filter", "clean" | "smudge" | "process") => true,
        ("diff", "external" | "command" | "textconv") | ("merge", "driver") => true,
        ("credential", "helper") | ("sequence", "editor") => true,
        ("gpg", "program" | "defaultkeycommand") => true,
        ("remote", "uploadpack" | "receivepack" | "vcs") => true,
        ("uploadpack", "packobjectshook") | ("interactive", "difffilter") => true,
        ("difftool" | "mergetool" | "browser" | "man", "cmd" | "path") => has_subsection,
        ("trailer", "command" | "cmd") | ("web", "browser") => true,
        ("sendemail", "smtpserver" | "tocmd" | "cccmd" | "headercmd" | "sendmailcmd") => true,
        ("remote" | "url", _) => value.windows(5).any(|part| part == b"ext::"),
        _ => false,
    }
}

/// The files and settings that a session left, for its first and last state.
///
/// # Errors
/// As [`RunLater::among`].
pub(super) fn of_states(
    store: &dyn ObjectSource,
    before: &SnapshotManifest,
    after: &SnapshotManifest,
) -> Result<RunLater, CliError> {
    let differences = diff::compare(store, &before.merkle_root, &after.merkle_root)?;
    let unknown = (NotCapturedSet::new(before), NotCapturedSet::new(after));
    let Comparison { changes, .. } = Comparison::of(&differences, &unknown.0, &unknown.1);
    RunLater::among(&changes, store, before, after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_run_something_are_told_from_others() {
        let told = |text: &str| -> Vec<String> {
            let found = settings(text.as_bytes()).unwrap();
            found.into_iter().map(|(name, _)| name).collect()
        };
        for (text, expected) in [
            ("[core]\n\tfsmonitor = .git/x\n", &["core.fsmonitor"][..]),
            ("[core]\n\tfsmonitor = true\n\tbare = false\n", &[]),
            ("[CORE]\n\tsshCommand = x\n", &["core.sshcommand"]),
            ("[alias]\n\tst = !x\n\tci = commit\n", &["alias.st"]),
            ("[alias \"st\"]\n\tcommand = !x\n", &["alias.st.command"]),
            ("[include]\n\tpath = ../x\n", &["include.path"]),
            ("[includeIf \"gitdir:/\"]\n\tpath = x\n", &["includeif.gitdir:/.path"]),
            ("[filter \"a\"]\n\tsmudge = x\n\trequired\n", &["filter.a.smudge"]),
            ("[remote \"o\"]\n\turl = ext::sh -c x\n\tfetch = +r:r\n", &["remote.o.url"]),
            ("[remote \"o\"]\n\turl = https://example.org\n", &[]),
            ("[user]\n\tname = x\n[branch \"main\"]\n\tremote = o\n", &[]),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
        assert_eq!(settings(b"[core"), None);
        // Too many keys for a look are no way to stop the report.
        let many: String = (0..=MAX_KEYS).map(|n| format!("\tk{n} = x\n")).collect();
        assert_eq!(settings(format!("[alias]\n{many}").as_bytes()), None);
    }

    #[test]
    fn files_that_run_are_told_by_their_names() {
        for (path, is_one) in [
            ("/p/.envrc", true),
            ("/p/sub/Makefile", true),
            ("/p/.github/workflows/ci.yml", true),
            ("/p/.vscode/tasks.json", true),
            ("/p/vscode/tasks.json", false),
            ("/p/workflows/ci.yml", false),
            ("/p/main.rs", false),
        ] {
            assert_eq!(is_run(Path::new(path)), is_one, "{path}");
        }
        let inside = |path: &'static str| in_git(Path::new(path), &[Path::new("/p/own")]);
        assert_eq!(inside("/p/.git/hooks/x"), Some(Path::new("hooks/x")));
        assert_eq!(inside("/p/own/hooks/x"), Some(Path::new("hooks/x")));
        assert_eq!(inside("/p/.gitignore"), None);
    }
}
