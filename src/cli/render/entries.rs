//! The entries of the views: differences taken apart into files with two states, and remarks.
//!
//! A file or symlink that became another kind of entry is a deletion and a creation. A file that
//! takes the place of a directory comes after the contents of the directory, so that a reader who
//! follows the order finds its place free. A change that lines of text cannot express (owners,
//! times, directories without contents, pipes) becomes a remark, so that every reported change has
//! a line somewhere.

use std::os::unix::ffi::OsStrExt;

use nono_engine::byte_path;
use nono_engine::diff::{Difference, EntryState};
use nono_engine::object::{Attributes, ContentHash, Node};
use nono_engine::store::StoreError;

use super::{DiffOptions, renames};

/// git looks for a NUL in so many bytes.
const BINARY_PROBE_BYTES: usize = 8000;

/// One thing to show.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    File(FileChange<'a>),
    Remark(Remark),
}

/// A regular file or a symlink that was made, changed or removed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileChange<'a> {
    /// As it is shown, not quoted.
    pub(super) name: Vec<u8>,
    pub(super) old: Option<&'a EntryState>,
    pub(super) new: Option<&'a EntryState>,
    /// The name that it had, if it was renamed.
    pub(super) renamed: Option<Renamed>,
}

/// Where a renamed file is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Renamed {
    /// As it is shown, not quoted.
    pub(super) from: Vec<u8>,
    /// How much of the contents is the same.
    pub(super) percent: u64,
}

/// A change that is told in words.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Remark {
    pub(super) text: String,
    pub(super) name: Vec<u8>,
}

/// Both states of a file, in memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Contents {
    Text(Texts),
    Binary(Texts),
    /// Bytes of each state.
    TooLarge {
        old: Option<u64>,
        new: Option<u64>,
    },
}

/// Contents before and after; of a state that is not there: nothing.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Texts {
    pub(super) old: Vec<u8>,
    pub(super) new: Vec<u8>,
}

impl FileChange<'_> {
    /// The name in the older state.
    pub(super) fn old_name(&self) -> &[u8] {
        self.renamed.as_ref().map_or(&self.name, |renamed| &renamed.from)
    }

    /// Whether there are two states with the same contents.
    pub(super) fn has_same_contents(&self) -> bool {
        matches!((self.old, self.new), (Some(old), Some(new)) if old.node == new.node)
    }

    /// Reads both states.
    pub(super) fn load(&self, options: &DiffOptions<'_>) -> Result<Contents, StoreError> {
        let (old, new) = (self.old.map(file_size), self.new.map(file_size));
        if old.max(new) > Some(options.max_file_bytes) {
            return Ok(Contents::TooLarge { old, new });
        }
        let old = read(self.old, options)?;
        let new = read(self.new, options)?;
        if is_binary(&old) || is_binary(&new) {
            return Ok(Contents::Binary(Texts { old, new }));
        }
        Ok(Contents::Text(Texts { old, new }))
    }
}

fn file_size(state: &EntryState) -> u64 {
    match &state.node {
        Node::File { size, .. } => *size,
        _ => 0,
    }
}

fn read(state: Option<&EntryState>, options: &DiffOptions<'_>) -> Result<Vec<u8>, StoreError> {
    match state.map(|state| &state.node) {
        Some(Node::File { size: 0, hash, .. }) if *hash == ContentHash::of(b"") => Ok(Vec::new()),
        Some(Node::File { hash, .. }) => options.store.read(hash, options.max_file_bytes),
        Some(Node::Symlink { target }) => Ok(target.to_vec()),
        _ => Ok(Vec::new()),
    }
}

fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(BINARY_PROBE_BYTES)].contains(&0)
}

/// The mode that git knows: a symlink, or a file that its owner may execute or not.
pub(super) fn git_mode(state: &EntryState) -> u32 {
    match state.node {
        Node::Symlink { .. } => 0o120000,
        _ if state.attributes.mode & 0o100 != 0 => 0o100755,
        _ => 0o100644,
    }
}

/// Takes differences apart. They are sorted, as [`nono_engine::diff::compare`] gives them.
pub(super) fn entries<'a>(
    differences: &'a [Difference],
    options: &DiffOptions<'_>,
) -> Vec<Entry<'a>> {
    let mut entries = Vec::with_capacity(differences.len());
    // The file in place of a directory, until everything in the directory is done.
    let mut waiting: Vec<&'a Difference> = Vec::new();
    for (at, difference) in differences.iter().enumerate() {
        while let Some(last) =
            waiting.pop_if(|last| !byte_path::is_in(&difference.path, &last.path))
        {
            create(last, false, options, &mut entries);
        }
        let has_more =
            differences.get(at + 1).is_some_and(|d| byte_path::is_in(&d.path, &difference.path));
        match (&difference.old, &difference.new) {
            (Some(old), Some(new)) if is_pair(&old.node, &new.node) => {
                keep(difference, old, new, options, &mut entries);
            }
            (old, new) => {
                if old.is_some() {
                    delete(difference, has_more, options, &mut entries);
                }
                let was_dir = matches!(old, Some(old) if is_dir(&old.node));
                if new.is_some() && was_dir {
                    waiting.push(difference);
                } else if new.is_some() {
                    create(difference, has_more, options, &mut entries);
                }
            }
        }
    }
    while let Some(last) = waiting.pop() {
        create(last, false, options, &mut entries);
    }
    if let Some(percent) = options.renames {
        renames::find(&mut entries, percent, options);
    }
    entries
}

fn is_dir(node: &Node) -> bool {
    matches!(node, Node::Directory { .. })
}

/// Whether the states are two versions of one thing. A device that became another device is not.
fn is_pair(old: &Node, new: &Node) -> bool {
    match (old, new) {
        (Node::File { .. } | Node::Directory { .. } | Node::Symlink { .. }, _) => {
            old.same_kind(new)
        }
        _ => old == new,
    }
}

/// An entry that is there before and after.
fn keep<'a>(
    difference: &'a Difference,
    old: &'a EntryState,
    new: &'a EntryState,
    options: &DiffOptions<'_>,
    entries: &mut Vec<Entry<'a>>,
) {
    let name = shown_name(&difference.path, is_dir(&new.node), options);
    let is_file = matches!(new.node, Node::File { .. } | Node::Symlink { .. });
    let mode_is_shown = is_file && git_mode(old) != git_mode(new);
    let is_shown = mode_is_shown || (is_file && old.node != new.node);
    let remarks = attribute_remarks(&old.attributes, &new.attributes, mode_is_shown);
    let time = difference.is_touched().then(|| "modification time changed".to_owned());
    let links = difference.is_relinked.then(|| "linked to other names".to_owned());
    entries.extend(
        remarks
            .into_iter()
            .chain(time)
            .chain(links)
            .map(|text| Entry::Remark(Remark { text, name: name.clone() })),
    );
    if is_shown {
        entries.push(Entry::File(FileChange {
            name,
            old: Some(old),
            new: Some(new),
            renamed: None,
        }));
    }
}

fn attribute_remarks(old: &Attributes, new: &Attributes, mode_is_shown: bool) -> Vec<String> {
    let mut remarks = Vec::new();
    if old.mode != new.mode && !mode_is_shown {
        remarks.push(format!("permissions {:04o} -> {:04o}", old.mode, new.mode));
    }
    if (old.uid, old.gid) != (new.uid, new.gid) {
        remarks.push(format!("owner {}:{} -> {}:{}", old.uid, old.gid, new.uid, new.gid));
    }
    if old.xattrs != new.xattrs {
        remarks.push("extended attributes changed".to_owned());
    }
    remarks
}

fn delete<'a>(
    difference: &'a Difference,
    has_more: bool,
    options: &DiffOptions<'_>,
    entries: &mut Vec<Entry<'a>>,
) {
    let old = difference.old.as_deref();
    part(difference, old, None, "deleted", has_more, options, entries);
}

fn create<'a>(
    difference: &'a Difference,
    has_more: bool,
    options: &DiffOptions<'_>,
    entries: &mut Vec<Entry<'a>>,
) {
    let new = difference.new.as_deref();
    part(difference, None, new, "created", has_more, options, entries);
}

/// One state that appeared or went. `has_more` says that what is in the directory is shown.
fn part<'a>(
    difference: &Difference,
    old: Option<&'a EntryState>,
    new: Option<&'a EntryState>,
    verb: &str,
    has_more: bool,
    options: &DiffOptions<'_>,
    entries: &mut Vec<Entry<'a>>,
) {
    let Some(state) = old.or(new) else { return };
    let name = shown_name(&difference.path, is_dir(&state.node), options);
    let text = match &state.node {
        Node::File { .. } | Node::Symlink { .. } => {
            entries.push(Entry::File(FileChange { name, old, new, renamed: None }));
            return;
        }
        Node::Directory { .. } if has_more => return,
        Node::Directory { .. } => format!("{verb} directory"),
        node => format!("{verb} {}", node.kind_name()),
    };
    entries.push(Entry::Remark(Remark { text, name }));
}

/// The name under which a path is shown and patched.
fn shown_name(path: &[u8], is_dir: bool, options: &DiffOptions<'_>) -> Vec<u8> {
    if let [root] = options.roots
        && let Some(rest) = path.strip_prefix(root.as_os_str().as_bytes())
    {
        match rest.split_first() {
            Some((b'/', relative)) => return relative.to_vec(),
            None if is_dir => return b".".to_vec(),
            // A tracked path that is a file: its directory is where a patch is applied.
            None => {
                let name = root.file_name().map(|name| name.as_bytes().to_vec());
                return name.unwrap_or_else(|| path.to_vec());
            }
            Some(_) => {}
        }
    }
    path.strip_prefix(b"/").unwrap_or(path).to_vec()
}
