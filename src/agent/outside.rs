//! Paths that a tool call names, and the fate of those outside of the record.
//!
//! A client says which file a tool writes, and which command a shell runs. The hook looks at the
//! named paths before the call and after it. A path that differs, and lies outside of the recorded
//! directories, is named in the step, because no snapshot holds it.
//!
//! The words of a command are read roughly as a shell reads them. A word that is no path names
//! nothing that changes, so it is never told. A path that a command makes up while it runs is
//! missed.
//!
//! Every path comes from the agent and may be anything. Always true: at most [`MAX_NAMED`] paths
//! are looked at, and none is opened; files of other users count for nothing; and the hook does not
//! wait for a file system that does not answer.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::place::is_of_system;
use super::title;
use nono_engine::path_text::serde_path;
use nono_engine::snapshot::{OutsideFate, OutsidePath};
use nono_engine::sys::{self, FileKind, Stat};

/// Most paths of a call that are looked at.
pub(super) const MAX_NAMED: usize = 32;
/// A longer path is none that a system call takes.
const MAX_PATH_BYTES: usize = 4096;
/// A longer command is not read to its end.
const MAX_COMMAND_BYTES: usize = 1 << 16;
/// The longest wait for the file systems of the named paths.
const TIMEOUT: Duration = Duration::from_millis(200);

/// Fields of an input that hold a path, or a list of paths.
const PATH_FIELDS: [&str; 10] = [
    "file_path",
    "filePath",
    "notebook_path",
    "absolute_path",
    "path",
    "paths",
    "file",
    "filename",
    "source",
    "destination",
];
/// Fields of an input that hold a command for a shell, or its words.
const COMMAND_FIELDS: [&str; 2] = ["command", "cmd"];
/// Directories in which every program makes files.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// A path that a call names, and its state at the time of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedPath {
    /// As it was named, absolute or from the home directory (`~/…`); once looked at, with the
    /// symlinks of its parents resolved.
    #[serde(with = "serde_path")]
    path: PathBuf,
    /// `None`: it was not looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    state: Option<PathState>,
}

/// The state of a path, so that two of them can be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PathState {
    /// Nothing is there.
    Missing,
    /// It cannot be looked at, or another user owns it.
    Foreign,
    /// Numbers of the inode; any change moves its ctime.
    There { device: u64, inode: u64, size: u64, seconds: i64, nanoseconds: u32 },
}

impl PathState {
    fn of(found: sys::Result<Option<Stat>>) -> Self {
        let own = sys::effective_uid();
        match found {
            Ok(None) => Self::Missing,
            Ok(Some(Stat { dev, ino, size, ctime, uid, .. })) if own == 0 || uid == own => {
                let (seconds, nanoseconds) = (ctime.seconds, ctime.nanoseconds);
                Self::There { device: dev, inode: ino, size, seconds, nanoseconds }
            }
            _ => Self::Foreign,
        }
    }
}

/// The paths that the input of a call names, not looked at. Relative ones begin at `cwd`.
pub(super) fn named_in(input: &Value, cwd: Option<&Path>) -> Vec<NamedPath> {
    let mut texts: Vec<String> = PATH_FIELDS
        .iter()
        .filter_map(|field| input.get(field))
        .flat_map(texts_of)
        .map(str::to_owned)
        .collect();
    texts.extend(title::patched_files(input));
    let commands = COMMAND_FIELDS.iter().filter_map(|field| input.get(field)).flat_map(texts_of);
    let (absolute, relative): (Vec<_>, Vec<_>) = commands
        .filter(|command| !title::is_patch(command))
        .flat_map(words)
        .partition(|word| word.starts_with(['/', '~', '$']));
    // A word from the current directory is seldom outside of the project.
    texts.extend(absolute.iter().chain(&relative).filter_map(|word| without_wildcards(word)));
    let mut named: Vec<NamedPath> = Vec::new();
    for path in texts.iter().filter_map(|text| placed(text, cwd)) {
        if named.len() == MAX_NAMED {
            break;
        }
        if !named.iter().any(|known| known.path == path) {
            named.push(NamedPath { path, state: None });
        }
    }
    named
}

/// A text, or the texts of a list.
fn texts_of(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().filter_map(Value::as_str).take(MAX_NAMED).collect(),
        _ => Vec::new(),
    }
}

/// A word of a command, or the directory above the first wildcard in it.
fn without_wildcards(word: &str) -> Option<String> {
    let home = "${HOME}";
    let begin = if word.starts_with(home) { home.len() } else { 0 };
    match word[begin..].find(['*', '?', '[', '{']) {
        Some(at) => Some(word[..word[..begin + at].rfind('/')?].to_owned()),
        None => Some(word.to_owned()),
    }
}

/// The path that a text may mean.
fn placed(text: &str, cwd: Option<&Path>) -> Option<PathBuf> {
    let is_path = !text.is_empty() && text.len() < MAX_PATH_BYTES && !text.contains('\0');
    let of_home = ["~", "$HOME", "${HOME}"].iter().find_map(|home| text.strip_prefix(home));
    let path = match of_home {
        Some("") => PathBuf::from("~"),
        Some(rest) if rest.starts_with('/') => PathBuf::from(format!("~{rest}")),
        // It is another user's, or of a variable that is not known.
        _ if text.starts_with(['~', '$']) => return None,
        _ if text.starts_with('/') => PathBuf::from(text),
        _ => cwd?.join(text),
    };
    is_path.then_some(path)
}

/// The words of a command, without options, quotes and the characters between them.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let (mut quote, mut chars) = (None, command.char_indices());
    let mut end = |word: &mut String| {
        let word = std::mem::take(word);
        if !word.is_empty() && !word.starts_with('-') {
            words.push(word);
        }
    };
    while let Some((at, char)) = chars.next() {
        if at >= MAX_COMMAND_BYTES {
            break;
        }
        match (char, quote) {
            ('\\', None | Some('"')) => word.extend(chars.next().map(|(_, escaped)| escaped)),
            (char, Some(open)) if char == open => quote = None,
            (char, Some(_)) => word.push(char),
            ('"' | '\'', None) => quote = Some(char),
            (' ' | '\t' | '\n' | ';' | '|' | '&' | '<' | '>' | '(' | ')' | '=' | '`', None) => {
                end(&mut word);
            }
            (char, None) => word.push(char),
        }
    }
    end(&mut word);
    words
}

/// Notes the present states of paths, unless their file systems do not answer in time.
pub fn look_at(paths: &mut Vec<NamedPath>, home: Option<PathBuf>) {
    if paths.is_empty() {
        return;
    }
    let (found, looked) = mpsc::channel();
    let named = std::mem::take(paths);
    let unseen = named.clone();
    let work = move || drop(found.send(looked_at(named, home.as_deref())));
    let thread = sys::spawn("look", work);
    let seen = thread.ok().and_then(|_| looked.recv_timeout(TIMEOUT).ok());
    *paths = seen.unwrap_or(unseen);
}

fn looked_at(named: Vec<NamedPath>, home: Option<&Path>) -> Vec<NamedPath> {
    let mut seen: Vec<NamedPath> = Vec::new();
    let mut pending: Vec<PathBuf> = named.into_iter().rev().map(|named| named.path).collect();
    while let Some(path) = pending.pop() {
        let path = match (path.strip_prefix("~"), home) {
            (Ok(rest), Some(home)) => home.join(rest),
            (Ok(_), None) => continue,
            (Err(_), _) => path,
        };
        // Only the kernel says where a path with `..` leads.
        let place = sys::canonical_parent(&path).unwrap_or_else(|_| {
            let plain = sys::plain_absolute(&path, Path::new("/"));
            match (plain.parent(), plain.file_name()) {
                (Some(above), Some(name)) => sys::real_or_future_path(above).join(name),
                _ => plain,
            }
        });
        let is_known = seen.iter().any(|known| known.path == place);
        if is_known || is_too_general(&place, home) || seen.len() == MAX_NAMED {
            continue;
        }
        let found = sys::stat_of(&place);
        // A write through a symlink changes its target.
        if found.as_ref().is_ok_and(|it| it.is_some_and(|stat| stat.kind == FileKind::Symlink)) {
            pending.extend(sys::real_path(&place));
        }
        seen.push(NamedPath { path: place, state: Some(PathState::of(found)) });
    }
    seen
}

/// Whether so many programs write in a directory that its change says nothing.
fn is_too_general(path: &Path, home: Option<&Path>) -> bool {
    let is_temporary = TEMPORARY.iter().any(|place| path == Path::new(place));
    let real_home = home.and_then(|home| sys::real_path(home).ok());
    let is_above_home = real_home.is_some_and(|home| home.starts_with(path));
    is_temporary || is_above_home || path.parent().is_none() || is_of_system(path)
}

/// The paths that differ after a call. `before`: the look before it, if there was one. `is_told`:
/// the client says that the call writes the named files, and that it did not fail.
pub(super) fn changed(
    before: Option<&[NamedPath]>,
    after: &[NamedPath],
    is_told: bool,
) -> Vec<OutsidePath> {
    let fate = |named: &NamedPath| {
        let known = before.and_then(|before| before.iter().find(|it| it.path == named.path));
        let what = match (known.and_then(|known| known.state), named.state?) {
            (Some(PathState::Missing), PathState::There { .. }) => OutsideFate::Created,
            (Some(PathState::There { .. }), PathState::Missing) => OutsideFate::Gone,
            (Some(then @ PathState::There { .. }), now @ PathState::There { .. })
                if then != now =>
            {
                OutsideFate::Changed
            }
            (None, PathState::There { .. }) if is_told => OutsideFate::Changed,
            _ => return None,
        };
        Some(OutsidePath { path: named.path.clone(), what })
    };
    after.iter().filter_map(fate).collect()
}

/// Whether a path belongs to no recorded directory, and is none above one.
pub(super) fn is_outside<'a>(
    outside: &OutsidePath,
    mut roots: impl Iterator<Item = &'a Path>,
) -> bool {
    let path = &outside.path;
    // A call may well work in a directory above. That one changes with all that is in it.
    let is_entered = outside.what == OutsideFate::Entered;
    !roots.any(|root| path.starts_with(root) || !is_entered && root.starts_with(path))
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests plant what they look at")]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn named(input: &Value) -> Vec<String> {
        let named = named_in(input, Some(Path::new("/p")));
        named.iter().map(|named| named.path.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn paths_of_tools_patches_and_commands_are_found() {
        for (input, expected) in [
            (json!({"file_path": "/a/b"}), vec!["/a/b"]),
            (json!({"filePath": "b[1]/*"}), vec!["/p/b[1]/*"]),
            (json!({"paths": ["/a", "~/b", 3]}), vec!["/a", "~/b"]),
            (json!({"command": "rm -rf ~/copy"}), vec!["~/copy", "/p/rm"]),
            (json!({"command": "rm \"$HOME/a b\" ${HOME}/c"}), vec!["~/a b", "~/c", "/p/rm"]),
            (json!({"command": "x>/tmp/y;z --out=/q"}), vec!["/tmp/y", "/q", "/p/x", "/p/z"]),
            (json!({"command": "rm ~/copy/*.txt ~ada/x $OTHER/y"}), vec!["~/copy", "/p/rm"]),
            (json!({"cmd": ["rm", "../a\\ b"]}), vec!["/p/rm", "/p/../a b"]),
            (
                json!({"command": "*** Begin Patch\n*** Update File: /o/x\n*** Add File: y\n"}),
                vec!["/o/x", "/p/y"],
            ),
            (json!({"command": 7, "path": null}), vec![]),
        ] {
            assert_eq!(named(&input), expected, "{input}");
        }
    }

    #[test]
    fn what_differs_is_told_with_its_fate_and_nothing_else_is() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().canonicalize().unwrap().join("home");
        fs::create_dir_all(home.join("kept")).unwrap();
        for name in ["changed", "gone", "same", "target"] {
            fs::write(home.join(name), "1").unwrap();
        }
        symlink("target", home.join("link")).unwrap();
        let look = || {
            let texts = ["changed", "gone", "same", "new", "link", "none", "kept/../same"];
            let path = |name: &&str| NamedPath { path: Path::new("~").join(name), state: None };
            let mut paths: Vec<_> = texts.iter().map(path).collect();
            // They say nothing.
            let more = ["~", "/", "/dev/null", "/proc/self", "/tmp"].map(PathBuf::from);
            paths.extend(more.map(|path| NamedPath { path, state: None }));
            look_at(&mut paths, Some(home.clone()));
            paths
        };
        let before = look();
        fs::write(home.join("changed"), "2").unwrap();
        fs::write(home.join("target"), "22").unwrap();
        fs::remove_file(home.join("gone")).unwrap();
        fs::write(home.join("new"), "1").unwrap();
        let told = changed(Some(&before), &look(), true);
        let told: Vec<_> = told
            .iter()
            .map(|it| (it.path.strip_prefix(&home).unwrap().to_str().unwrap(), it.what))
            .collect();
        use OutsideFate::{Changed, Created, Gone};
        assert_eq!(
            told,
            [("changed", Changed), ("gone", Gone), ("new", Created), ("target", Changed)]
        );
        // Without a look before, the word of the client counts.
        assert_eq!(changed(None, &look(), false), []);
        assert!(!changed(None, &look(), true).is_empty());
    }

    proptest! {
        #[test]
        fn any_command_names_few_paths(command in "[a/~$HOME{}.*'\"\\\\ ;>é\\x00-]{0,200}") {
            let named = named_in(&json!({"command": command}), Some(Path::new("/p")));
            prop_assert!(named.len() <= MAX_NAMED);
        }
    }
}
