//! Paths as bytes, names separated by `/`: the form in trees, links and journals.
//!
//! `std::path` normalises and allocates where bytes are meant to be taken as they are; these are
//! the few operations that are needed, each written once.

use std::cmp::Ordering;
use std::iter;

/// `base/name`, or just the name at the top.
pub fn join(base: &[u8], name: &[u8]) -> Vec<u8> {
    if base.is_empty() { name.to_vec() } else { [base, b"/", name].concat() }
}

/// The directory and the last name; the directory of a single name is empty.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// The names of a path, empty ones left out.
pub fn components(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}

/// The directories above a path, topmost first, without the root directory and the path itself.
pub fn ancestors(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let ends = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
    ends.map(|(at, _)| &path[..at])
}

/// The rest of a path inside `base`: empty for `base` itself, `None` outside.
pub fn relative_to<'a>(path: &'a [u8], base: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(base)?;
    if rest.is_empty() || base.is_empty() || base.ends_with(b"/") {
        Some(rest)
    } else {
        rest.strip_prefix(b"/")
    }
}

/// Whether a path is `base` or inside it.
pub fn is_in(path: &[u8], base: &[u8]) -> bool {
    relative_to(path, base).is_some()
}

/// The order in which a directory stands right before what is in it: that of the names, one after
/// the other.
pub fn order(a: &[u8], b: &[u8]) -> Ordering {
    match iter::zip(a, b).find(|(a, b)| a != b) {
        None => a.len().cmp(&b.len()),
        Some((b'/', _)) => Ordering::Less,
        Some((_, b'/')) => Ordering::Greater,
        Some((a, b)) => a.cmp(b),
    }
}

/// The number of directories above: the key of a deepest-first order.
pub fn depth(path: &[u8]) -> usize {
    path.iter().filter(|byte| **byte == b'/').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all<'a>(paths: impl Iterator<Item = &'a [u8]>) -> Vec<&'a [u8]> {
        paths.collect()
    }

    #[test]
    fn paths_come_apart_and_together() {
        assert_eq!(split(b"/a/b"), (&b"/a"[..], &b"b"[..]));
        assert_eq!(split(b"/a"), (&b""[..], &b"a"[..]));
        assert_eq!(split(b"a"), (&b""[..], &b"a"[..]));
        assert_eq!(join(b"", b"a"), b"a");
        assert_eq!(join(b"/a", b"b"), b"/a/b");
        assert_eq!(all(components(b"/a//b/")), [b"a", b"b"]);
        assert_eq!(all(components(b"/")), [b""; 0]);
        assert_eq!(all(ancestors(b"/a/b/c")), [&b"/a"[..], b"/a/b"]);
        assert_eq!(all(ancestors(b"a/b")), [b"a"]);
        assert_eq!(all(ancestors(b"/a")), [b""; 0]);
        assert_eq!((depth(b"a"), depth(b"/a/b")), (0, 2));
    }

    #[test]
    fn what_is_in_a_directory_stands_right_behind_it() {
        let sorted = [&b"/a"[..], b"/a/b", b"/a/b/c", b"/a/b-", b"/a-", b"/a.", b"/a0", b"/b"];
        for (at, a) in sorted.iter().enumerate() {
            for (other_at, b) in sorted.iter().enumerate() {
                assert_eq!(order(a, b), at.cmp(&other_at));
            }
        }
    }

    #[test]
    fn a_name_that_only_begins_like_the_base_is_not_inside() {
        assert_eq!(relative_to(b"/a/b/c", b"/a"), Some(&b"b/c"[..]));
        assert_eq!(relative_to(b"/a", b"/a"), Some(&b""[..]));
        assert_eq!(relative_to(b"/ab", b"/a"), None);
        assert_eq!(relative_to(b"/a", b"/"), Some(&b"a"[..]));
        assert_eq!(relative_to(b"a/b", b""), Some(&b"a/b"[..]));
        assert!(is_in(b"/a/b", b"/a") && !is_in(b"/a", b"/a/b"));
    }
}
