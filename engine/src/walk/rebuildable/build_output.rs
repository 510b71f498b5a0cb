//! The target directory of Cargo: its layout.

use std::collections::BTreeSet;

use super::{CACHE_TAG, is_directory, names_below};
use crate::byte_path;
use crate::sys::{Dir, ListedName};

/// The comment in the tag that Cargo writes.
const COMMENT: &[u8] = b"created by cargo";
const RUSTC_INFO: &[u8] = b".rustc_info.json";

/// Files right in a target directory.
const FILES: [&[u8]; 6] = [
    CACHE_TAG.as_bytes(),
    RUSTC_INFO,
    b".rustdoc_fingerprint.json",
    b".future-incompat-report.json",
    b".cargo-lock",
    b".cargo-build-lock",
];
/// Directories of Cargo, and of the usual tools that write to a target directory.
const DIRECTORIES: [&[u8]; 13] = [
    b"cargo-timings",
    b"criterion",
    b"debug",
    b"doc",
    b"flycheck0",
    b"llvm-cov-target",
    b"miri",
    b"nextest",
    b"package",
    b"release",
    b"rust-analyzer",
    b"tmp",
    b"wheels",
];
/// Directories in an unknown one that are looked into.
const MAX_LOOKS: usize = 16;

/// Whether the tag of a directory is Cargo's.
pub(super) fn is_of_cargo(name: &[u8], tag: &[u8], has_file: &dyn Fn(&[u8]) -> bool) -> bool {
    name == b"target"
        || has_file(RUSTC_INFO)
        || tag.windows(COMMENT.len()).any(|words| words == COMMENT)
}

/// Paths in a target directory that Cargo does not make.
pub(super) fn foreign(target: &Dir, names: &[ListedName]) -> BTreeSet<Box<[u8]>> {
    let is_covered = |listed: &ListedName| {
        let name = &*listed.name;
        match is_directory(target, listed) {
            true => DIRECTORIES.contains(&name) || is_profile_or_platform(target, name),
            false => FILES.contains(&name),
        }
    };
    names.iter().filter(|listed| !is_covered(listed)).map(|listed| listed.name.clone()).collect()
}

/// Whether a directory has the output of a profile in it, or those of a platform's profiles.
fn is_profile_or_platform(target: &Dir, name: &[u8]) -> bool {
    let Some((dir, names)) = names_below(target, name) else { return false };
    let directories = names.iter().filter(|listed| is_directory(&dir, listed)).take(MAX_LOOKS);
    let holds_profile = |listed: &ListedName| {
        let path = byte_path::join(name, &listed.name);
        names_below(target, &path).is_some_and(|(_, names)| is_profile(&names))
    };
    is_profile(&names) || directories.into_iter().any(holds_profile)
}

fn is_profile(names: &[ListedName]) -> bool {
    let has = |wanted: &[u8]| names.iter().any(|listed| *listed.name == *wanted);
    has(b".fingerprint") || has(b".cargo-lock") || has(b"deps") && has(b"build")
}
