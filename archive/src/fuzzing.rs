//! Archives, from their members: what a fuzzer cannot guess is put right.
//!
//! A case is a list of members: kind, length of the name, name, mode, owner, group, time, what the
//! declared length is off by, length, contents. In names and contents, `0xff` and a letter stand
//! for what follows from others:
//!
//! - `h` and a number: the hash of the contents of that member, as text; `r`: as bytes. A member
//!   comes before those whose hashes it has, as in an archive; a name may have its own member's.
//! - `s`: the `rootHash` of the delta manifest that it is in.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{ArchiveReader, Identities, KnownStates, Receiver, Role};
use nono_engine::object::ContentHash;
use nono_engine::progress::NoProgress;
use nono_engine::snapshot::SessionDir;
use nono_engine::store::LocalStore;
use nono_engine::sys::Dir;
use nono_engine::verify::{VerifyOptions, verify_session};

const ESCAPE: u8 = 0xff;
const BLOCK_BYTES: usize = 512;
/// Longest name in a header.
const NAME_BYTES: usize = 100;

/// Bytes of mode, owner, group and time in a case, each in two or four of them.
const ATTRIBUTE_BYTES: usize = 14;

struct Member {
    kind: u8,
    name: Vec<u8>,
    attributes: [u8; ATTRIBUTE_BYTES],
    off_by: i8,
    contents: Vec<u8>,
}

/// An archive: read, verified, and received into a store of its own.
pub fn archive(bytes: &[u8]) {
    let bytes = compressed(&tar(members(bytes)));
    let keys = Identities::none();
    let Ok(reader) = ArchiveReader::open(&*bytes, &keys) else { return };
    let head = reader.head().clone();
    let name = head.name();
    assert_eq!(name.to_string().parse().as_ref(), Ok(&name));
    if let Ok(summary) = reader.verify(&mut KnownStates::default(), &NoProgress) {
        assert!(summary.file_count <= head.stats.added + head.stats.modified);
    }
    let temp = Dir::open(&std::env::temp_dir()).expect("there is a directory for it");
    static CASES: AtomicU64 = AtomicU64::new(0);
    let number = CASES.fetch_add(1, Relaxed);
    let name = format!("nono-fuzz-archive-{}-{number}", std::process::id());
    let root = temp.path_of(name.as_bytes());
    let received = receive(&bytes, &root, head.id.session());
    let place = root.join(head.id.session());
    match received {
        Err(_) => assert!(Dir::open(&place).is_err(), "a part of a session has appeared"),
        Ok(()) => {
            let session = SessionDir::open(&place).expect("a session that appeared is one");
            let store = LocalStore::open(&session.objects_path()).expect("with its store");
            let report = verify_session(&session, &store, &VerifyOptions::default());
            let report = report.expect("that can be verified");
            assert!(report.ok, "{:?}", report.problems);
        }
    }
    let _ = temp.remove_dir_all(name.as_bytes());
}

fn receive(bytes: &[u8], root: &Path, session: &str) -> Result<(), crate::ArchiveError> {
    let mut receiver = Receiver::new(root, session, &NoProgress)?;
    receiver.read(bytes, &Identities::none(), Role::Target)?;
    receiver.finish().map(drop)
}

fn members(mut bytes: &[u8]) -> Vec<Member> {
    let mut members = Vec::new();
    while let Some(member) = next(&mut bytes) {
        members.push(member);
    }
    for at in (0..members.len()).rev() {
        let (before, after) = members.split_at_mut(at + 1);
        let own = &mut before[at];
        own.contents = filled(&own.contents, at + 1, after);
        own.name = filled(&own.name, at, std::slice::from_ref(own));
    }
    members
}

fn next(bytes: &mut &[u8]) -> Option<Member> {
    let (kind, name_len) = (take(bytes, 1)?[0], take(bytes, 1)?[0]);
    let name = take(bytes, name_len.into())?.to_vec();
    let attributes = take(bytes, ATTRIBUTE_BYTES)?.try_into().ok()?;
    let off_by = take(bytes, 1)?[0].cast_signed();
    let len = u16::from_le_bytes(take(bytes, 2)?.try_into().ok()?);
    let contents = take(bytes, usize::from(len).min(bytes.len()))?.to_vec();
    Some(Member { kind, name, attributes, off_by, contents })
}

fn take<'b>(bytes: &mut &'b [u8], len: usize) -> Option<&'b [u8]> {
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}

/// Puts in what follows from the members from number `first` on.
fn filled(bytes: &[u8], first: usize, others: &[Member]) -> Vec<u8> {
    let hash = |number: Option<&u8>| {
        let other = others.get(usize::from(*number?).checked_sub(first)?)?;
        Some(ContentHash::of(&other.contents))
    };
    let (mut out, mut sums, mut at) = (Vec::with_capacity(bytes.len()), Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        let escape = bytes.get(at + 1).filter(|_| *byte == ESCAPE);
        let hash = hash(bytes.get(at + 2));
        at += match (escape, hash) {
            (Some(b'h'), Some(hash)) => {
                out.extend(hash.hex().bytes());
                3
            }
            (Some(b'r'), Some(hash)) => {
                out.extend(hash.as_bytes());
                3
            }
            (Some(b's'), _) => {
                sums.push(out.len());
                out.extend([b'0'; ContentHash::HEX_LEN]);
                2
            }
            _ => {
                out.push(*byte);
                1
            }
        };
    }
    if let (false, Some(sum)) = (sums.is_empty(), root_hash(&out)) {
        for at in sums {
            out[at..at + ContentHash::HEX_LEN].copy_from_slice(sum.hex().as_bytes());
        }
    }
    out
}

/// The sum of the lines of a delta manifest.
fn root_hash(document: &[u8]) -> Option<ContentHash> {
    let document: serde_json::Value = serde_json::from_slice(document).ok()?;
    let files = document.get("resultHashes")?.get("files")?.as_object()?;
    let line =
        |(path, hash): (&String, &serde_json::Value)| Some(format!("{path}:{}", hash.as_str()?));
    let mut lines = files.iter().map(line).collect::<Option<Vec<_>>>()?;
    lines.sort_unstable();
    Some(ContentHash::of(lines.join("\n").as_bytes()))
}

fn tar(members: Vec<Member>) -> Vec<u8> {
    let mut out = Vec::new();
    for Member { kind, name, attributes, off_by, contents } in members {
        let mut header = tar::Header::new_ustar();
        let (mode, [uid, gid, mtime]) = numbers(&attributes);
        header.set_mode(mode);
        header.set_uid(uid.into());
        header.set_gid(gid.into());
        header.set_mtime(mtime.into());
        let len = name.len().min(NAME_BYTES);
        header.as_old_mut().name[..len].copy_from_slice(&name[..len]);
        header.set_entry_type(tar::EntryType::new(kind));
        header.set_size((contents.len() as u64).saturating_add_signed(off_by.into()));
        header.set_cksum();
        out.extend(header.as_bytes());
        out.extend(contents);
        out.resize(out.len().next_multiple_of(BLOCK_BYTES), 0);
    }
    out.resize(out.len() + 2 * BLOCK_BYTES, 0);
    out
}

/// The numbers in the attributes of a case.
fn numbers(attributes: &[u8; ATTRIBUTE_BYTES]) -> (u32, [u32; 3]) {
    let (mode, rest) = attributes.split_at(2);
    let mut others = [0; 3];
    for (number, bytes) in others.iter_mut().zip(rest.chunks_exact(4)) {
        *number = bytes.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
    }
    (u32::from(mode[0]) | u32::from(mode[1]) << 8, others)
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut zstd = zstd::Encoder::new(Vec::new(), 1).expect("there is memory");
    zstd.include_checksum(true).expect("there is memory");
    zstd.write_all(bytes).and_then(|()| zstd.finish()).expect("there is memory")
}

/// Seeds: `NONO_FUZZ_SEEDS=fuzz/corpus/archive cargo test --features fuzzing fuzzing::archive`
#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use std::fs;

    use super::*;
    use crate::{ArchiveId, ArchivePlan, Encryption, FullReason, Parent};
    use nono_engine::snapshot::{Budget, SnapshotManager};
    use nono_engine::walk::ExclusionConfig;

    fn attributes_of(header: &tar::Header) -> [u8; ATTRIBUTE_BYTES] {
        let mut attributes = header.mode().unwrap().to_le_bytes()[..2].to_vec();
        let others = [header.uid(), header.gid(), header.mtime()];
        attributes.extend(others.into_iter().flat_map(|it| (it.unwrap() as u32).to_le_bytes()));
        attributes.try_into().unwrap()
    }

    /// The case that becomes an archive: hashes that follow from others are taken out.
    fn case(tar: &[u8]) -> Vec<u8> {
        let mut members: Vec<Member> = Vec::new();
        let mut rest = tar;
        while rest[0] != 0 {
            let header = tar::Header::from_byte_slice(&rest[..BLOCK_BYTES]);
            let len = header.entry_size().unwrap() as usize;
            members.push(Member {
                kind: header.entry_type().as_byte(),
                name: header.path_bytes().into_owned(),
                attributes: attributes_of(header),
                off_by: 0,
                contents: rest[BLOCK_BYTES..][..len].to_vec(),
            });
            rest = &rest[BLOCK_BYTES + len.next_multiple_of(BLOCK_BYTES)..];
        }
        let hashes: Vec<_> = members.iter().map(|it| ContentHash::of(&it.contents)).collect();
        let mut out = Vec::new();
        for (at, member) in members.iter_mut().enumerate() {
            if let Some(sum) = root_hash(&member.contents) {
                replace(&mut member.contents, sum.hex().as_bytes(), &[ESCAPE, b's']);
            }
            for (number, hash) in hashes.iter().enumerate().skip(at) {
                let number = number as u8;
                replace(&mut member.name, hash.hex().as_bytes(), &[ESCAPE, b'h', number]);
                if usize::from(number) > at {
                    let contents = &mut member.contents;
                    replace(contents, hash.hex().as_bytes(), &[ESCAPE, b'h', number]);
                    replace(contents, hash.as_bytes(), &[ESCAPE, b'r', number]);
                }
            }
            out.extend([member.kind, member.name.len() as u8]);
            out.extend(&member.name);
            out.extend(member.attributes);
            out.push(0);
            out.extend((member.contents.len() as u16).to_le_bytes());
            out.extend(&member.contents);
        }
        out
    }

    fn replace(bytes: &mut Vec<u8>, old: &[u8], new: &[u8]) {
        while let Some(at) = bytes.windows(old.len()).position(|part| part == old) {
            bytes.splice(at..at + old.len(), new.iter().copied());
        }
    }

    #[test]
    fn a_case_of_a_whole_archive_is_that_archive() {
        let temp = tempfile::tempdir().unwrap();
        let work = temp.path().join("w");
        fs::create_dir_all(work.join("d")).unwrap();
        fs::write(work.join("d/a"), "a").unwrap();
        // Most of it stays, or there is no delta.
        for name in ["b", "c", "e", "f"] {
            fs::write(work.join(name), name).unwrap();
        }
        let place = temp.path().join("store/20260101-000000-1");
        let (tracked, exclusion) = ([work.clone()], ExclusionConfig::nothing());
        let manager = SnapshotManager::new(&place, &tracked, exclusion, Budget::default()).unwrap();
        let session = SessionDir::open(&place).unwrap();
        manager.create_baseline().unwrap();
        fs::write(work.join("b"), "bb").unwrap();
        fs::remove_file(work.join("d/a")).unwrap();
        manager.create_incremental().unwrap();
        let first = ArchiveId::new(&session.id(), 0).unwrap();
        let parent = Parent { id: first.clone(), base: first, depth: 0 };
        let full = || Err(FullReason::NoParent);
        for (number, parent, name) in
            [(0, full(), "full"), (1, full(), "two"), (1, Ok(parent), "delta")]
        {
            let is_full = parent.is_err();
            let plan = ArchivePlan::new(&session, number, parent, &NoProgress).unwrap();
            let mut bytes = Vec::new();
            plan.write(&Encryption::None, &mut bytes, &NoProgress).unwrap();
            let plain = zstd::decode_all(&*bytes).unwrap();
            let case = case(&plain);
            assert!(case.len() < 4096, "{}", case.len());
            let again = compressed(&tar(members(&case)));
            let opened = ArchiveReader::open(&*again, &Identities::none()).unwrap();
            assert_eq!(opened.head().id.number(), number);
            opened.verify(&mut KnownStates::default(), &NoProgress).unwrap();
            let root = temp.path().join(name);
            let received = receive(&again, &root, &session.id());
            assert_eq!(received.is_ok(), is_full, "{received:?}");
            archive(&case);
            if let Some(seeds) = std::env::var_os("NONO_FUZZ_SEEDS") {
                fs::write(Path::new(&seeds).join(name), case).unwrap();
            }
        }
    }

    /// How many cases a run of the tests tries; `NONO_MUTATIONS` says another number.
    const MUTATIONS: u64 = 5_000;

    /// Numbers that are the same in each run (xorshift).
    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % end.max(1) as u64) as usize
        }

        /// A part of some bytes.
        fn part(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
            let start = self.below(bytes.len());
            start..(start + 1 + self.below(40)).min(bytes.len())
        }

        /// Changes some bytes as an attacker might who wants a reader to stumble.
        fn mutate(&mut self, bytes: &mut Vec<u8>, others: &[Vec<u8>]) {
            for _ in 0..=self.below(3) {
                if bytes.is_empty() {
                    return;
                }
                let at = self.below(bytes.len());
                let part = self.part(bytes);
                match self.below(7) {
                    0 => bytes[at] ^= 1 << self.below(8),
                    1 => bytes[at] = [0, 1, b'/', b'.', b'9', 0x7f, 0x80, 0xff][self.below(8)],
                    2 => drop(bytes.drain(part)),
                    3 => drop(bytes.splice(at..at, bytes[part].to_vec())),
                    4 => bytes.truncate(at),
                    5 => {
                        let other = &others[self.below(others.len())];
                        let part = self.part(other);
                        bytes.splice(at..at, other[part].iter().copied());
                    }
                    _ => {
                        // A number of a document becomes a great one.
                        let digit = bytes[at..].iter().position(u8::is_ascii_digit);
                        bytes[at + digit.unwrap_or(0)] = b'9';
                        bytes.splice(at..at, *b"184467440737095516");
                    }
                }
            }
        }
    }

    #[test]
    fn changed_archives_are_errors_or_archives() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/archive");
        let mut files: Vec<_> =
            fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        let seeds: Vec<_> = files.iter().map(|path| fs::read(path).unwrap()).collect();
        let tars: Vec<_> = seeds.iter().map(|seed| tar(members(seed))).collect();
        let (mut numbers, mut opened) = (Numbers(88_172_645_463_325_252), 0u64);
        let wanted = std::env::var("NONO_MUTATIONS").ok().and_then(|text| text.parse().ok());
        for _ in 0..wanted.unwrap_or(MUTATIONS) {
            // Members with right hashes and headers.
            let mut case = seeds[numbers.below(seeds.len())].clone();
            numbers.mutate(&mut case, &seeds);
            archive(&case);
            // The bytes of a tar file, and those of the compressed one.
            let mut bytes = tars[numbers.below(tars.len())].clone();
            numbers.mutate(&mut bytes, &tars);
            let mut bytes = compressed(&bytes);
            if numbers.below(4) == 0 {
                numbers.mutate(&mut bytes, &tars);
            }
            if let Ok(reader) = ArchiveReader::open(&*bytes, &Identities::none()) {
                opened += 1;
                let _ = reader.verify(&mut KnownStates::default(), &NoProgress);
            }
        }
        assert!(opened > 0, "no case comes beyond the head of an archive");
    }

    #[test]
    fn a_manifest_that_contradicts_its_trees_is_refused() {
        let seed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/archive/full");
        let whole = tar(members(&fs::read(seed).unwrap()));
        let temp = tempfile::tempdir().unwrap();
        let attempt = |tar: &[u8], name: &str| {
            let bytes = compressed(tar);
            let reader = ArchiveReader::open(&*bytes, &Identities::none()).unwrap();
            receive(&bytes, &temp.path().join(name), reader.head().id.session())
        };
        attempt(&whole, "whole").unwrap();
        let key = b"\"total_bytes\": ";
        let changes =
            [(&b"/w\""[..], 1, "which it does not track"), (key, key.len(), "the totals of")];
        for (text, at, reason) in changes {
            let mut tar = whole.clone();
            let places: Vec<_> = tar
                .windows(text.len())
                .enumerate()
                .filter(|(_, part)| *part == text)
                .map(|(place, _)| place + at)
                .collect();
            assert!(!places.is_empty(), "{reason}");
            places.into_iter().for_each(|place| tar[place] = b'9');
            let refused = attempt(&tar, reason).unwrap_err();
            assert!(refused.to_string().contains(reason), "{refused}");
        }
    }
}
