//! The verification of archives: an archive that a pull cannot use, or whose files the ordinary
//! programs would give back otherwise than it says, is not intact.

use std::fs;
use std::path::Path;

use crate::archives::{BLOCK_BYTES, Desk, link, member, pack, tar_of};

/// A member of a tar file with its attributes and contents.
struct Part {
    path: String,
    /// Where its own header is: behind that of its attributes.
    header: usize,
    bytes: Vec<u8>,
}

fn octal(bytes: &[u8]) -> usize {
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |value, digit| value * 8 + usize::from(digit - b'0'))
}

fn parts(tar: &[u8]) -> Vec<Part> {
    let (mut parts, mut at) = (Vec::new(), 0);
    while at < tar.len() {
        let begin = at;
        let body = |at: usize| octal(&tar[at + 124..at + 135]).next_multiple_of(BLOCK_BYTES);
        if tar[at + 156] == b'x' {
            at += BLOCK_BYTES + body(at);
        }
        let header = at - begin;
        let name = tar[at..at + 100].split(|byte| *byte == 0).next().unwrap();
        let path = String::from_utf8_lossy(name).into_owned();
        at += BLOCK_BYTES + body(at);
        parts.push(Part { path, header, bytes: tar[begin..at].to_vec() });
    }
    parts
}

/// The header of a part with another byte in it, and the right checksum.
fn with_other_byte(part: &Part, at: usize, byte: u8) -> Vec<u8> {
    let mut bytes = part.bytes.clone();
    let header = &mut bytes[part.header..part.header + BLOCK_BYTES];
    assert_ne!(header[at], byte);
    header[at] = byte;
    sign(header);
    bytes
}

/// Puts the right checksum into a header.
fn sign(header: &mut [u8]) {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn joined(parts: &[Part], at: usize, instead: &[u8]) -> Vec<u8> {
    let before = parts[..at].iter().flat_map(|part| &part.bytes);
    let after = parts[at + 1..].iter().flat_map(|part| &part.bytes);
    before.chain(instead).chain(after).copied().collect()
}

#[track_caller]
fn not_intact(desk: &Desk, tar: &[u8], what: &str) -> String {
    let bad = desk.fixture.path("bad");
    pack(tar, "-1", &bad);
    let done = desk.fixture.nono(&["archive", "verify", &desk.at("bad")]);
    // An archive that the verification refuses is not imported either.
    let imported = desk.import("nowhere", &["bad"]);
    fs::remove_file(&bad).unwrap();
    assert_eq!(imported.code, 1, "{what}: {}{}", imported.stdout, imported.stderr);
    assert_eq!(imported.stderr, done.stderr, "{what}");
    let brought = desk.fixture.path("nowhere").join(&desk.session);
    assert!(!brought.exists(), "{what}");
    assert_eq!(done.code, 1, "{what}: {}{}", done.stdout, done.stderr);
    assert!(!done.stderr.contains("panicked"), "{what}: {}", done.stderr);
    done.stderr
}

#[test]
fn no_member_can_be_left_out_changed_or_added_without_a_word_from_verify() {
    let desk = Desk::new();
    desk.create(0, "good", &[]);
    desk.fixture.nono(&["archive", "verify", &desk.at("good")]).success();
    let parts = parts(&tar_of(&desk.fixture.path("good")));
    assert!(parts.iter().filter(|part| part.path.starts_with("meta/objects/")).count() > 5);
    for (at, part) in parts.iter().enumerate() {
        let path = &part.path;
        let said = not_intact(&desk, &joined(&parts, at, b""), path);
        if path.starts_with("meta/objects/") {
            let hash = path.rsplit('/').next().unwrap();
            // The one that names it may be missing, or the one that it names.
            assert!(said.contains(hash) || said.contains("nothing in it names"), "{path}: {said}");
        }
        // Other permissions, and another owner.
        for at_byte in [105, 114] {
            let other = with_other_byte(part, at_byte, b'2');
            not_intact(&desk, &joined(&parts, at, &other), path);
        }
    }
    let kind = |kind: u8| {
        let is = |part: &&Part| part.bytes[part.header + 156] == kind;
        parts.iter().position(|part| is(&part)).unwrap()
    };
    // A link to another place, and a file as a link to one outside.
    let other = with_other_byte(&parts[kind(b'2')], 157, b'/');
    let said = not_intact(&desk, &joined(&parts, kind(b'2'), &other), "a symlink");
    assert!(said.contains("is not as its tree says"), "{said}");
    let linked = parts.iter().position(|part| part.path.ends_with("/many/0")).unwrap();
    let mut outside = link(&parts[linked].path, "/etc/passwd");
    outside[156] = b'1';
    sign(&mut outside);
    not_intact(&desk, &joined(&parts, linked, &outside), "a hard link");
    // Members that no archive has.
    let last = parts.len() - 1;
    let mut device = member("files/zz", b'3', 0, b"");
    device[329..345].copy_from_slice(b"0000001\x000000003\0");
    sign(&mut device);
    for extra in [device, link("files/zz", "/etc/passwd"), member("files/zz", b'5', 0, b"")] {
        let both = [&*parts[last].bytes, &extra].concat();
        let said = not_intact(&desk, &joined(&parts, last, &both), "an extra member");
        assert!(said.contains("files/zz is no path of its trees"), "{said}");
    }
}

/// Whether a part is taken out of an archive.
type IsGone = fn(&Part) -> bool;

/// Changes the tar file in an archive that is not encrypted.
fn edit(archive: &Path, change: impl FnOnce(Vec<Part>) -> Vec<u8>) {
    let tar = change(parts(&tar_of(archive)));
    fs::remove_file(archive).unwrap();
    pack(&tar, "-1", archive);
}

#[test]
fn a_delta_is_compared_with_its_parent_at_the_remote_and_alone_with_its_own_trees() {
    let desk = Desk::new();
    desk.fixture.write("many/20", "new");
    std::os::unix::fs::symlink("to", desk.fixture.project().join("many/link")).unwrap();
    desk.fixture.nono(&["snapshot", "--session", &desk.session]).success();
    let place = desk.at("place");
    desk.fixture.nono(&["push", &place, &desk.session, "--plaintext"]).success();
    let delta = desk.fixture.path("place").join(&desk.session).join("1-delta-0.tar.zst");
    let file = delta.to_str().unwrap();
    let verify = || desk.fixture.nono(&["remote", "verify", &place, "--json"]);
    let alone = || desk.fixture.nono(&["archive", "verify", file]);
    verify().success();
    assert!(alone().success().says("which was not read"));
    let whole = fs::read(&delta).unwrap();
    // Known from the parent alone: the new symlink, and a tree that changed.
    let is_link = |part: &Part| part.path.ends_with("/many/link");
    let is_tree = |part: &Part| part.path.starts_with("meta/objects/");
    let wanted: [(IsGone, bool); 2] = [(is_link, false), (is_tree, true)];
    for (is_gone, pull_fails) in wanted {
        edit(&delta, |parts| {
            let at = parts.iter().rposition(is_gone).unwrap();
            joined(&parts, at, b"")
        });
        let said = verify();
        assert_eq!(said.code, 1, "{}", said.stdout);
        let problems = said.json()["problems"].as_array().unwrap().clone();
        let kinds: Vec<_> = problems.iter().map(|it| it["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["damaged_archive", "broken_chain"], "{problems:?}");
        if pull_fails {
            let root = desk.at("elsewhere");
            desk.fixture.nono(&["--root", &root, "pull", &place, "--all"]).fails(1, "not in it");
        }
        fs::write(&delta, &whole).unwrap();
    }
    // Its own trees tell of the symlink.
    edit(&delta, |parts| {
        let at = parts.iter().position(is_link).unwrap();
        joined(&parts, at, &with_other_byte(&parts[at], 157, b'/'))
    });
    alone().fails(1, "is not as its tree says");
    edit(&delta, |parts| {
        let at = parts.iter().position(is_link).unwrap();
        joined(&parts, at, &link(&parts[at].path.replace("link", "none"), "/etc"))
    });
    alone().fails(1, "is no path of its trees");
    assert_eq!(verify().code, 1);
}
