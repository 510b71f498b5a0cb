//! `packed-refs` in two states: the refs of the one, and the remote-tracking branches of the other.

use std::collections::BTreeMap;

use super::files::is_of_remote;
use super::refs::{Oid, is_ref_name};

const HEADER: &[u8] = b"# pack-refs with:";

/// Refs by name: the line of each, with that of the object that a tag leads to.
type Lines<'a> = BTreeMap<&'a [u8], Vec<&'a [u8]>>;

/// A decoded file.
#[derive(Debug, PartialEq, Eq)]
struct Packed<'a> {
    /// The promises of the first line about the others; `None`: there is no such line.
    traits: Option<Vec<&'a [u8]>>,
    local: Lines<'a>,
    remote: Lines<'a>,
}

/// The new file where the local refs of a snapshot come back, and the remote-tracking
/// branches stay.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PackedRefs {
    /// The file of the snapshot, or none if it has none.
    Then,
    /// The present file, or none if there is none.
    Now,
    /// A file with these bytes.
    Merged(Vec<u8>),
}

impl PackedRefs {
    /// Decides it. `None`: git would not write one of the two, so nothing can be said of it.
    pub(crate) fn of(then: Option<&[u8]>, now: Option<&[u8]>) -> Option<Self> {
        let (old, new) = (Packed::decode(then)?, Packed::decode(now)?);
        if old.remote == new.remote {
            return Some(Self::Then);
        }
        if old.local == new.local {
            return Some(Self::Now);
        }
        if old.local.is_empty() && new.remote.is_empty() {
            // A file without any ref is as good as none.
            match (then, now) {
                (None, _) => return Some(Self::Then),
                (_, None) => return Some(Self::Now),
                _ => {}
            }
        }
        let traits = match (old.traits, new.traits) {
            (Some(a), Some(b)) => a.into_iter().filter(|word| b.contains(word)).collect(),
            (Some(only), None) if now.is_none() => only,
            (None, Some(only)) if then.is_none() => only,
            _ => Vec::new(),
        };
        let mut bytes = Vec::new();
        if !traits.is_empty() {
            bytes.extend_from_slice(HEADER);
            for word in traits {
                bytes.extend_from_slice(b" ");
                bytes.extend_from_slice(word);
            }
            bytes.extend_from_slice(b" \n");
        }
        let refs: Lines<'_> = old.local.into_iter().chain(new.remote).collect();
        for line in refs.into_values().flatten() {
            bytes.extend_from_slice(line);
            bytes.push(b'\n');
        }
        Some(Self::Merged(bytes))
    }
}

impl<'a> Packed<'a> {
    /// Decodes a file. `None`: a line of it means nothing, or a name comes twice.
    fn decode(bytes: Option<&'a [u8]>) -> Option<Self> {
        let (local, remote) = (Lines::new(), Lines::new());
        let mut found = Self { traits: None, local, remote };
        let bytes = bytes.unwrap_or_default();
        let lines = bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n');
        let mut last: Option<&mut Vec<&[u8]>> = None;
        for (at, line) in lines.enumerate() {
            if let (0, Some(traits)) = (at, line.strip_prefix(HEADER)) {
                let words = traits.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
                found.traits = Some(words.collect());
                continue;
            }
            if let (0, true) = (at, bytes.is_empty()) {
                continue;
            }
            if let Some(peeled) = line.strip_prefix(b"^") {
                Oid::from_hex(peeled)?;
                last.as_mut().filter(|lines| lines.len() == 1)?.push(line);
                continue;
            }
            let space = line.iter().position(|byte| *byte == b' ')?;
            let (oid, name) = (&line[..space], &line[space + 1..]);
            Oid::from_hex(oid)?;
            if !is_ref_name(name) {
                return None;
            }
            let kind = if is_of_remote(name) { &mut found.remote } else { &mut found.local };
            let lines = kind.entry(name).or_default();
            if !lines.is_empty() {
                return None;
            }
            lines.push(line);
            last = Some(lines);
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
    const ALL: &str = "# pack-refs with: peeled fully-peeled sorted \n";

    fn of(then: &str, now: &str) -> Option<PackedRefs> {
        PackedRefs::of(Some(then.as_bytes()), Some(now.as_bytes()))
    }

    fn merged(then: &str, now: &str) -> String {
        match of(then, now) {
            Some(PackedRefs::Merged(bytes)) => String::from_utf8(bytes).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn local_refs_are_those_of_then_and_remote_ones_those_of_now() {
        let then = format!(
            "{ALL}{A} refs/heads/main\n{A} refs/remotes/origin/main\n{A} refs/tags/v1\n^{B}\n"
        );
        let now = format!("{ALL}{B} refs/heads/main\n{B} refs/remotes/origin/main\n");
        let expected = format!(
            "{ALL}{A} refs/heads/main\n{B} refs/remotes/origin/main\n{A} refs/tags/v1\n^{B}\n"
        );
        assert_eq!(merged(&then, &now), expected);
        // A second restore finds nothing to do.
        assert_eq!(of(&then, &expected), Some(PackedRefs::Now));
    }

    #[test]
    fn only_what_both_files_promise_is_promised() {
        let then = format!("# pack-refs with: peeled \n{A} refs/heads/main\n");
        let now = format!("{ALL}{B} refs/heads/main\n{B} refs/remotes/o/m\n");
        assert!(merged(&then, &now).starts_with("# pack-refs with: peeled \n"));
        let then = format!("{A} refs/heads/main\n");
        assert!(merged(&then, &now).starts_with(A));
    }

    #[test]
    fn a_file_that_only_one_state_has_is_kept_in_part_or_not_at_all() {
        let both = format!("{ALL}{A} refs/heads/main\n{A} refs/remotes/o/m\n");
        let local = format!("{ALL}{A} refs/heads/main\n");
        let remote = format!("{ALL}{A} refs/remotes/o/m\n");
        let of = |then: Option<&String>, now: Option<&String>| {
            PackedRefs::of(then.map(|it| it.as_bytes()), now.map(|it| it.as_bytes()))
        };
        let merged = |text: &String| Some(PackedRefs::Merged(text.as_bytes().to_vec()));
        assert_eq!(of(None, Some(&both)), merged(&remote));
        assert_eq!(of(Some(&both), None), merged(&local));
        assert_eq!(of(None, Some(&local)), Some(PackedRefs::Then));
        assert_eq!(of(Some(&local), None), Some(PackedRefs::Then));
        assert_eq!(of(None, Some(&remote)), Some(PackedRefs::Now));
        assert_eq!(of(Some(&remote), None), Some(PackedRefs::Now));
        assert_eq!(of(None, None), Some(PackedRefs::Then));
    }

    #[test]
    fn of_a_file_that_git_would_not_write_nothing_is_said() {
        let good = format!("{A} refs/heads/main\n");
        for bad in [
            "x\n".to_owned(),
            format!("{A} refs/../config\n"),
            format!("^{A}\n"),
            format!("{good}{good}"),
            format!("{good}^{A}\n^{A}\n"),
            format!("{good}\n{good}"),
        ] {
            assert_eq!(of(&bad, &good), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_decided_about_or_not(then: Vec<u8>, now: Vec<u8>) {
            PackedRefs::of(Some(&then), Some(&now));
        }
    }
}
