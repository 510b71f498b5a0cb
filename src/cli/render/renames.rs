//! Files that were renamed: a deletion and a creation with much the same contents, as
//! `git diff -M` finds them.
//!
//! Equal contents are paired first, those that kept their name before others. Of the rest, the most
//! similar pairs are taken, each file once. Empty files and symlinks are never renamed: nothing
//! tells them apart.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use nono_engine::byte_path;
use nono_engine::history::similarity;
use nono_engine::object::{ContentHash, Node};

use super::DiffOptions;
use super::entries::{Entry, FileChange, Renamed};

/// Most files of each side whose contents are compared; git has a like limit
/// (`diff.renameLimit`).
const MOST_COMPARED: usize = 300;

/// A file on one side.
struct Side {
    /// Its place among the entries.
    at: usize,
    name: Vec<u8>,
    hash: ContentHash,
    bytes: u64,
}

impl Side {
    fn own_name(&self) -> &[u8] {
        byte_path::split(&self.name).1
    }
}

/// Places of a deletion and a creation, and how much of the contents is the same, in percent.
type Pair = (usize, usize, u64);

/// Turns deletions and creations into renames, where `percent` of the contents are the same.
pub(super) fn find(entries: &mut Vec<Entry<'_>>, percent: u64, options: &DiffOptions<'_>) {
    let (mut gone, mut made) = (Vec::new(), Vec::new());
    for (at, entry) in entries.iter().enumerate() {
        let Entry::File(change) = entry else { continue };
        let (side, state) = match (change.old, change.new) {
            (Some(old), None) => (&mut gone, old),
            (None, Some(new)) => (&mut made, new),
            _ => continue,
        };
        if let Node::File { size: bytes @ 1.., hash, .. } = state.node {
            side.push(Side { at, name: change.name.clone(), hash, bytes });
        }
    }
    let mut pairs = same_contents(&mut gone, &mut made);
    pairs.extend(similar_contents(&gone, &made, percent, options));
    let mut removed = HashSet::new();
    for (old, new, percent) in pairs {
        let Entry::File(FileChange { name, old: state, .. }) = &entries[old] else { continue };
        let (name, state) = (name.clone(), *state);
        if let Entry::File(change) = &mut entries[new] {
            (change.old, change.renamed) = (state, Some(Renamed { from: name, percent }));
            removed.insert(old);
        }
    }
    let mut at = 0;
    entries.retain(|_| {
        at += 1;
        !removed.contains(&(at - 1))
    });
}

/// Pairs of equal contents, which are taken out of both sides.
fn same_contents(gone: &mut Vec<Side>, made: &mut Vec<Side>) -> Vec<Pair> {
    let mut by_hash: HashMap<ContentHash, Vec<Side>> = HashMap::new();
    for old in gone.drain(..) {
        by_hash.entry(old.hash).or_default().push(old);
    }
    let mut pairs = Vec::new();
    made.retain(|new| {
        let Some(sources) = by_hash.get_mut(&new.hash).filter(|it| !it.is_empty()) else {
            return true;
        };
        let kept = sources.iter().position(|old| old.own_name() == new.own_name());
        pairs.push((sources.remove(kept.unwrap_or(0)).at, new.at, 100));
        false
    });
    gone.extend(by_hash.into_values().flatten());
    gone.sort_by_key(|old| old.at);
    pairs
}

/// Pairs of similar contents, the most similar ones first.
fn similar_contents(
    gone: &[Side],
    made: &[Side],
    percent: u64,
    options: &DiffOptions<'_>,
) -> Vec<Pair> {
    let mut texts: HashMap<ContentHash, Option<Vec<u8>>> = HashMap::new();
    let mut scores = Vec::new();
    for old in gone.iter().take(MOST_COMPARED) {
        for new in made.iter().take(MOST_COMPARED) {
            let (least, most) = (old.bytes.min(new.bytes), old.bytes.max(new.bytes));
            if most > options.max_file_bytes || least * 100 < most * percent {
                continue;
            }
            for Side { hash, bytes, .. } in [old, new] {
                texts.entry(*hash).or_insert_with(|| options.store.read(hash, *bytes).ok());
            }
            // An unreadable file is named where it is shown.
            let (Some(Some(a)), Some(Some(b))) = (texts.get(&old.hash), texts.get(&new.hash))
            else {
                continue;
            };
            let score = similarity(a, b);
            if score >= percent {
                scores.push((score, old.own_name() == new.own_name(), old.at, new.at));
            }
        }
    }
    scores
        .sort_by_key(|(score, keeps_name, old, new)| (Reverse((*score, *keeps_name)), *old, *new));
    let mut taken = HashSet::new();
    let mut pairs = Vec::new();
    for (score, _, old, new) in scores {
        if !taken.contains(&old) && !taken.contains(&new) {
            // Only the same bytes are wholly the same.
            pairs.push((old, new, score.min(99)));
            taken.extend([old, new]);
        }
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::super::test_support::{TestDiff, file};
    use super::super::write_patch;
    use super::*;

    fn patch(diff: &TestDiff) -> String {
        let mut out = Vec::new();
        let options = DiffOptions { renames: Some(50), ..diff.options() };
        write_patch(&mut out, &diff.differences, &options).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn equal_and_similar_files_are_renames_and_others_are_not() {
        let text = b"1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        let mut diff = TestDiff::new();
        diff.add("/p/a", file(text), None);
        diff.add("/p/b", None, file(b"1\n2\n3\n4\n5\n6\n7\n8\nnine\n"));
        diff.add("/p/d/moved", None, file(b"all the same\n"));
        diff.add("/p/moved", file(b"all the same\n"), None);
        diff.add("/p/new", None, file(b"nothing like it\n"));
        assert_eq!(
            patch(&diff),
            "diff --git a/a b/b\nsimilarity index 76%\nrename from a\nrename to b\n\
             index 0719398930..e952784d6e 100644\n--- a/a\n+++ b/b\n@@ -6,4 +6,4 @@\n 6\n 7\n 8\n\
             -9\n+nine\n\
             diff --git a/moved b/d/moved\nsimilarity index 100%\nrename from moved\n\
             rename to d/moved\n\
             diff --git a/new b/new\nnew file mode 100644\nindex 0000000000..4c71f447dd\n\
             --- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+nothing like it\n"
        );
    }

    #[test]
    fn an_empty_file_is_never_renamed_and_each_file_only_once() {
        let mut diff = TestDiff::new();
        diff.add("/p/a", file(b""), None);
        diff.add("/p/b", None, file(b""));
        diff.add("/p/c", file(b"text\n"), None);
        diff.add("/p/d", None, file(b"text\n"));
        diff.add("/p/e", None, file(b"text\n"));
        let text = patch(&diff);
        assert_eq!(text.matches("rename from").count(), 1, "{text}");
        assert!(text.contains("rename from c\nrename to d\n"), "{text}");
        assert!(text.contains("a/a b/a\ndeleted file mode"), "{text}");
        assert!(text.contains("a/e b/e\nnew file mode"), "{text}");
    }
}
