//! The meaning of the paths in a git directory, and the git directories of a snapshot.

use std::collections::HashMap;

use super::state::tracked_ref;
use crate::byte_path;
use crate::diff::Lookup;
use crate::object::{Node, RootTree};
use crate::store::{ObjectSource, StoreError, read_tree};

/// The git directories of one snapshot.
pub(crate) struct GitDirs<'a> {
    source: &'a dyn ObjectSource,
    root: &'a RootTree,
    lookup: Lookup<'a>,
    known: HashMap<Vec<u8>, bool>,
    /// The directory that was asked about last, and its git directory. Paths come in order, and
    /// most of them have the directory of the one before.
    last: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

impl<'a> GitDirs<'a> {
    pub(crate) fn new(source: &'a dyn ObjectSource, root: &'a RootTree) -> Self {
        Self { source, root, lookup: Lookup::new(source, root), known: HashMap::new(), last: None }
    }

    /// Whether a directory is a git directory, or that of a branch that is tracked by itself.
    pub(crate) fn is_git_dir(&mut self, path: &[u8]) -> Result<bool, StoreError> {
        if let Some(known) = self.known.get(path) {
            return Ok(*known);
        }
        let found = match self.lookup.find(path)?.map(|state| state.node) {
            Some(Node::Directory { tree }) => {
                let tree = read_tree(self.source, &tree)?;
                let is_dir = |name: &[u8]| {
                    tree.get(name).is_some_and(|e| matches!(e.node, Node::Directory { .. }))
                };
                let has_head = tree.get(b"HEAD").is_some_and(|entry| {
                    matches!(entry.node, Node::File { .. } | Node::Symlink { .. })
                });
                // The objects of a large repository may be left out. The directory of reflogs,
                // which also has HEAD and refs, has no configuration.
                let is_whole = is_dir(b"refs")
                    && (is_dir(b"objects")
                        || tree.get(b"objects").is_none() && tree.get(b"config").is_some());
                // The git directory of a linked worktree shares all else.
                let is_linked =
                    tree.get(b"commondir").is_some_and(|e| matches!(e.node, Node::File { .. }));
                has_head && (is_whole || is_linked)
            }
            None => self
                .root
                .entries
                .iter()
                .any(|entry| tracked_ref(entry).is_some_and(|(git_dir, _)| git_dir == path)),
            _ => return Ok(false),
        };
        self.known.insert(path.to_vec(), found);
        Ok(found)
    }

    /// The innermost git directory that the path is or lies in.
    pub(crate) fn of(&mut self, path: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if self.is_git_dir(path)? {
            return Ok(Some(path.to_vec()));
        }
        let (above, _) = byte_path::split(path);
        if let Some((_, found)) = self.last.as_ref().filter(|(known, _)| known == above) {
            return Ok(found.clone());
        }
        let mut found = None;
        for dir in byte_path::ancestors(path).rev() {
            if self.is_git_dir(dir)? {
                found = Some(dir.to_vec());
                break;
            }
        }
        self.last = Some((above.to_vec(), found.clone()));
        Ok(found)
    }
}

/// Entries of a git directory that are there while an operation of git is under way, and the
/// operation.
pub(crate) const OPERATIONS: [(&[u8], &str); 7] = [
    (b"BISECT_LOG", "bisect"),
    (b"CHERRY_PICK_HEAD", "cherry-pick"),
    (b"MERGE_HEAD", "merge"),
    (b"REVERT_HEAD", "revert"),
    (b"rebase-apply", "rebase"),
    (b"rebase-merge", "rebase"),
    (b"sequencer", "cherry-pick or revert"),
];

/// The directory of refs that are in reftables.
pub(crate) const REFTABLE: &[u8] = b"reftable";

/// Whether a path of a git directory, relative to it, is that of an object, or a directory for
/// objects: to add one changes nothing that is there. Contents of git LFS and of git-annex have
/// names like objects, and resolved conflicts are only added, too.
pub(crate) fn is_added_object(relative: &[u8]) -> bool {
    let parts: Vec<&[u8]> = byte_path::components(relative).collect();
    let is_hex = |name: &[u8]| name.iter().all(u8::is_ascii_hexdigit);
    let is_hash = |name: &[u8]| matches!(name.len(), 40 | 64) && is_hex(name);
    let is_short = |name: &[u8]| name.len() <= 3;
    match parts[..] {
        [b"lfs" | b"annex" | b"rr-cache"] | [b"lfs" | b"annex", b"objects"] => true,
        [b"lfs", b"objects", a] => a.len() == 2 && is_hex(a),
        [b"lfs", b"objects", a, b] => a.len() == 2 && b.len() == 2 && is_hex(a) && is_hex(b),
        [b"lfs", b"objects", a, b, name] => {
            name.len() == 64 && is_hex(name) && name.starts_with(a) && name[2..].starts_with(b)
        }
        [b"rr-cache", id] => is_hash(id),
        [b"rr-cache", id, name] => {
            is_hash(id) && [&b"preimage"[..], b"postimage"].iter().any(|it| name.starts_with(it))
        }
        [b"annex", b"objects", a] => is_short(a),
        [b"annex", b"objects", a, b] => is_short(a) && is_short(b),
        [b"annex", b"objects", a, b, key] => is_short(a) && is_short(b) && is_annex_key(key),
        [b"annex", b"objects", a, b, key, name] => {
            is_short(a) && is_short(b) && is_annex_key(key) && key == name
        }
        [b"objects", dir] => dir == b"pack" || dir == b"info" || dir.len() == 2 && is_hex(dir),
        [b"objects", b"pack", name] => {
            name.starts_with(b"pack-") || name.starts_with(b"multi-pack-index")
        }
        [b"objects", b"info", name] => {
            matches!(name, b"packs" | b"commit-graph" | b"commit-graphs")
        }
        [b"objects", b"info", b"commit-graphs", _] => true,
        [b"objects", dir, name] => {
            dir.len() == 2 && is_hex(dir) && matches!(name.len(), 38 | 62) && is_hex(name)
        }
        _ => false,
    }
}

/// Whether a name is a key of git-annex: a backend, fields, and a hash or another name.
fn is_annex_key(name: &[u8]) -> bool {
    let backend = name.split(|byte| *byte == b'-').next().unwrap_or_default();
    let is_backend =
        |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    !backend.is_empty() && backend.iter().all(is_backend) && name.windows(2).any(|it| it == b"--")
}

/// Whether git writes a path of a git directory, relative to it, by itself while a user works.
/// Everything else (settings, hooks, what a stranger put there) is a user's own work.
pub(crate) fn is_bookkeeping(relative: &[u8]) -> bool {
    let Some(first) = byte_path::components(relative).next() else { return false };
    // `git gc` writes it for clients that know nothing of packs.
    if relative == b"info/refs" {
        return true;
    }
    // HEAD, FETCH_HEAD, COMMIT_EDITMSG and the like.
    let is_pseudo_ref = first.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'_');
    let known: &[&[u8]] = &[
        b"index",
        b"packed-refs",
        b"refs",
        b"reftable",
        b"logs",
        b"objects",
        b"shallow",
        b"gc.log",
        b"gc.pid",
        b"rebase-merge",
        b"rebase-apply",
        b"sequencer",
        b"rr-cache",
        b"worktrees",
        b"modules",
        b"lfs",
        b"index.lock",
        b"HEAD.lock",
        b"packed-refs.lock",
    ];
    is_pseudo_ref
        || known.contains(&first)
        || first.starts_with(b"sharedindex.")
        || first.starts_with(b"fsmonitor--daemon")
}

/// Whether a path of a git directory, relative to it, says what a remote repository has, and no
/// more: `git fetch` and `git push` write it. `packed-refs` has some of that as well.
pub(crate) fn is_of_remote(relative: &[u8]) -> bool {
    let is_in = |dir: &[u8]| byte_path::is_in(relative, dir);
    relative == b"FETCH_HEAD" || is_in(b"refs/remotes") || is_in(b"logs/refs/remotes")
}

/// Whether a path of a git directory, relative to it, says which objects it has beside its own, or
/// which it does without.
pub(crate) fn is_about_objects(relative: &[u8]) -> bool {
    matches!(relative, b"shallow" | b"objects/info/alternates")
}

/// The end of the name of a lock.
pub(crate) const LOCK: &[u8] = b".lock";

/// Whether a path of a git directory, relative to it, is there only while git works. No ref has
/// such a name, and git writes nothing by itself where hooks and the data of other programs lie.
pub(crate) fn is_lock(relative: &[u8]) -> bool {
    let mut parts = byte_path::components(relative);
    let is_of_others = matches!(parts.next(), Some(b"hooks" | b"lfs" | b"annex"));
    let name = byte_path::split(relative).1;
    !is_of_others && name.len() > LOCK.len() && name.ends_with(LOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_the_shape_of_an_object_is_one() {
        let name = "b".repeat(38);
        for (path, is_object) in [
            (format!("objects/ab/{name}"), true),
            ("objects/ab".to_owned(), true),
            ("objects/pack/pack-1.idx".to_owned(), true),
            ("objects/info/commit-graph".to_owned(), true),
            (format!("objects/ab/{name}/x"), false),
            (format!("objects/abc/{name}"), false),
            ("objects/ab/script".to_owned(), false),
            ("objects/info/alternates".to_owned(), false),
            ("objects/pack/tmp_pack_x".to_owned(), false),
            ("hooks/pre-commit".to_owned(), false),
            (format!("lfs/objects/ab/cd/abcd{}", "0".repeat(60)), true),
            (format!("lfs/objects/ab/cd/ab00{}", "0".repeat(60)), false),
            ("lfs/objects/ab".to_owned(), true),
            ("lfs/hooks".to_owned(), false),
            (format!("rr-cache/{}/preimage", "a".repeat(40)), true),
            (format!("rr-cache/{}/run", "a".repeat(40)), false),
            ("annex/objects/w8/Xv/SHA256E-s3--ab.txt/SHA256E-s3--ab.txt".to_owned(), true),
            ("annex/objects/w8/Xv/SHA256E-s3--ab.txt/other".to_owned(), false),
            ("annex/journal".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(is_added_object(path.as_bytes()), is_object, "{path}");
        }
    }

    #[test]
    fn settings_and_hooks_are_no_bookkeeping() {
        for path in ["index", "FETCH_HEAD", "logs/HEAD", "objects/ab", "refs/heads/x", "gc.log"] {
            assert!(is_bookkeeping(path.as_bytes()), "{path}");
        }
        for path in ["", "config", "hooks/pre-commit", "info/exclude", "notes"] {
            assert!(!is_bookkeeping(path.as_bytes()), "{path}");
        }
        for path in ["FETCH_HEAD", "refs/remotes", "refs/remotes/o/m", "logs/refs/remotes/o/HEAD"] {
            assert!(is_of_remote(path.as_bytes()), "{path}");
        }
        for path in ["refs", "refs/heads/remotes", "refs/remotesx", "logs/refs", "packed-refs"] {
            assert!(!is_of_remote(path.as_bytes()), "{path}");
        }
        for path in
            ["index.lock", "refs/heads/a/b.lock", "config.lock", "reftable/t.lock", "x.lock"]
        {
            assert!(is_lock(path.as_bytes()), "{path}");
        }
        for path in ["", "index", ".lock", "refs/.lock", "hooks/x.lock", "lfs/x.lock", "lock"] {
            assert!(!is_lock(path.as_bytes()), "{path}");
        }
    }
}
