//! The bytes of a journal, in both directions; see `docs/format.md`.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::{AreaRecord, End, Facts, Journal, Staged, Step, Work, is_area_name};
use crate::byte_path;
use crate::diff::EntryState;
use crate::object::{
    ContentHash, DecodeError, FileTime, Hasher, Reader, Writer, is_name, read_entry, write_entry,
};
use crate::path_text::to_path;
use crate::restore::plan::Skipped;

const MAGIC: &[u8; 8] = b"nonorest";
const VERSION: u8 = 1;
const STAGING: u8 = 0;
const WITH_STEPS: u8 = 1;
const FINISHED: u8 = 2;
const TAKEN_BACK: u8 = 3;
/// As much is written at once.
const PART_BYTES: usize = 1 << 16;

impl Journal {
    /// Writes the bytes a part at a time: of millions of steps they are not made a second time.
    /// `work` stands for that of the journal.
    pub(super) fn write(&self, work: Option<&Work>, out: &mut impl Write) -> io::Result<()> {
        let mut out = Parts { out, hasher: Hasher::new() };
        let mut writer = Writer::new(MAGIC, VERSION);
        writer.u8(match (work, self.end) {
            (Some(_), _) => WITH_STEPS,
            (None, None) => STAGING,
            (None, Some(End::Finished)) => FINISHED,
            (None, Some(End::TakenBack)) => TAKEN_BACK,
        });
        writer.varint(self.snapshot);
        // A safety snapshot is never the first.
        writer.varint(self.safety.unwrap_or(0));
        writer.varint(self.areas.len() as u64);
        for area in &self.areas {
            writer.bytes(&area.parent);
            writer.bytes(&area.name);
            write_time(&mut writer, area.mtime);
        }
        writer.bytes(&serde_json::to_vec(&self.facts)?);
        if let Some(work) = work {
            write_time(&mut writer, work.started);
            writer.varint(work.steps.len() as u64);
            for step in &work.steps {
                write_step(&mut writer, step);
                if let Step::PlaceTree { steps, .. } = step {
                    for piece in steps {
                        out.pass_on_if_long(&mut writer)?;
                        write_step(&mut writer, piece);
                    }
                }
                out.pass_on_if_long(&mut writer)?;
            }
            writer.varint(work.skipped.len() as u64);
            for skipped in &work.skipped {
                writer.bytes(skipped.path.as_os_str().as_bytes());
                writer.bytes(skipped.reason.as_bytes());
            }
        }
        out.pass_on(&mut writer)?;
        out.out.write_all(out.hasher.finish().as_bytes())
    }

    /// The bytes at once.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write(self.work.as_ref(), &mut bytes).expect("memory takes everything");
        bytes
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes, MAGIC, "journal of a restore", VERSION)?;
        let body = bytes.len().checked_sub(32).ok_or(DecodeError::Truncated(bytes.len()))?;
        if *ContentHash::of(&bytes[..body]).as_bytes() != bytes[body..] {
            return Err(reader.invalid("the checksum is not that of the bytes"));
        }
        let stage = reader.u8()?;
        let end = match stage {
            STAGING | WITH_STEPS => None,
            FINISHED => Some(End::Finished),
            TAKEN_BACK => Some(End::TakenBack),
            _ => return Err(reader.invalid("no stage of a restore")),
        };
        let snapshot = reader.varint()?;
        let safety = Some(reader.varint()?).filter(|number| *number > 0);
        let count = reader.count(4)?;
        let mut areas = Vec::with_capacity(count);
        for _ in 0..count {
            let parent = absolute(&mut reader, true)?;
            let name = reader.bytes()?;
            if !is_area_name(name) {
                return Err(reader.invalid("not the name of a staging directory"));
            }
            areas.push(AreaRecord { parent, name: name.to_vec(), mtime: read_time(&mut reader)? });
        }
        let facts = read_facts(&mut reader)?;
        let work = (stage == WITH_STEPS).then(|| read_work(&mut reader, areas.len()));
        let work = work.transpose()?;
        reader.hash()?;
        reader.finish()?;
        Ok(Self { snapshot, safety, areas, work, end, facts })
    }
}

/// One text for one value: whatever is read is written the same.
fn read_facts(reader: &mut Reader<'_>) -> Result<Facts, DecodeError> {
    let text = reader.bytes()?;
    let facts: Facts = serde_json::from_slice(text)
        .map_err(|_| reader.invalid("the facts are not those of a restore"))?;
    let is_same = serde_json::to_vec(&facts).is_ok_and(|written| written == text);
    is_same.then_some(facts).ok_or_else(|| reader.invalid("the facts are written in another way"))
}

/// Bytes on their way to a file, and their checksum.
struct Parts<'a, W> {
    out: &'a mut W,
    hasher: Hasher,
}

impl<W: Write> Parts<'_, W> {
    fn pass_on(&mut self, writer: &mut Writer) -> io::Result<()> {
        let part = writer.part();
        self.hasher.update(part);
        self.out.write_all(part)?;
        part.clear();
        Ok(())
    }

    fn pass_on_if_long(&mut self, writer: &mut Writer) -> io::Result<()> {
        if writer.part().len() < PART_BYTES { Ok(()) } else { self.pass_on(writer) }
    }
}

fn read_work(reader: &mut Reader<'_>, area_count: usize) -> Result<Work, DecodeError> {
    let started = read_time(reader)?;
    let count = reader.count(4)?;
    let mut steps = Vec::with_capacity(count);
    for _ in 0..count {
        steps.push(read_step(reader, area_count)?);
    }
    let count = reader.count(3)?;
    let mut skipped = Vec::with_capacity(count);
    for _ in 0..count {
        let path = to_path(&absolute(reader, false)?).to_owned();
        let reason = String::from_utf8(reader.bytes()?.to_vec())
            .map_err(|_| reader.invalid("a reason that is not UTF-8"))?;
        skipped.push(Skipped { path, reason });
    }
    Ok(Work { started, steps, skipped })
}

/// Writes a step; the pieces of a tree follow it.
fn write_step(writer: &mut Writer, step: &Step) {
    let kind = match step {
        Step::Remove { .. } => 1,
        Step::RemoveDirectory { .. } => 2,
        Step::MakeDirectory { .. } => 3,
        Step::Place { .. } => 4,
        Step::Exchange { .. } => 5,
        Step::Attributes { current: None, .. } => 6,
        Step::Attributes { .. } => 7,
        Step::PlaceTree { .. } => 8,
    };
    writer.u8(kind);
    writer.bytes(step.path());
    let (current, target) = step.states();
    for state in [current, target].into_iter().flatten() {
        write_entry(writer, &state.attributes, &state.node);
    }
    match step {
        Step::Remove { staged, .. } => write_staged(writer, *staged),
        Step::Place { staged, ino, .. } => {
            write_staged(writer, *staged);
            writer.varint(*ino);
        }
        Step::Exchange { staged, ino, is_relinked, .. } => {
            write_staged(writer, *staged);
            writer.varint(*ino);
            writer.u8(u8::from(*is_relinked));
        }
        Step::PlaceTree { staged, steps, .. } => {
            write_staged(writer, *staged);
            writer.varint(steps.len() as u64);
        }
        _ => {}
    }
}

fn read_step(reader: &mut Reader<'_>, area_count: usize) -> Result<Step, DecodeError> {
    match reader.u8()? {
        8 => {
            let path = absolute(reader, false)?;
            let staged = read_staged(reader, area_count)?;
            let steps = read_pieces(reader, area_count, &path)?;
            Ok(Step::PlaceTree { path, staged, steps })
        }
        kind => read_piece(reader, kind, area_count),
    }
}

fn read_piece(reader: &mut Reader<'_>, kind: u8, area_count: usize) -> Result<Step, DecodeError> {
    let path = absolute(reader, false)?;
    Ok(match kind {
        1 => {
            let current = read_state(reader)?;
            Step::Remove { path, current, staged: read_staged(reader, area_count)? }
        }
        2 => Step::RemoveDirectory { path, current: read_state(reader)? },
        3 => Step::MakeDirectory { path },
        4 => {
            let target = read_state(reader)?;
            let staged = read_staged(reader, area_count)?;
            Step::Place { path, target, staged, ino: reader.varint()? }
        }
        5 => {
            let (current, target) = (read_state(reader)?, read_state(reader)?);
            let staged = read_staged(reader, area_count)?;
            let ino = reader.varint()?;
            let is_relinked = match reader.u8()? {
                0 => false,
                1 => true,
                _ => return Err(reader.invalid("neither linked anew nor not")),
            };
            Step::Exchange { path, current, target, staged, ino, is_relinked }
        }
        6 => Step::Attributes { path, current: None, target: read_state(reader)? },
        7 => {
            let current = Some(read_state(reader)?);
            Step::Attributes { path, current, target: read_state(reader)? }
        }
        _ => return Err(reader.invalid("unknown kind of step")),
    })
}

/// The steps of a tree: a new directory and its contents.
fn read_pieces(
    reader: &mut Reader<'_>,
    area_count: usize,
    tree: &[u8],
) -> Result<Vec<Step>, DecodeError> {
    let count = reader.count(4)?;
    let mut steps = Vec::with_capacity(count);
    for _ in 0..count {
        let kind = reader.u8()?;
        if !matches!(kind, 3 | 4 | 6) {
            return Err(reader.invalid("not a step that makes something new"));
        }
        let step = read_piece(reader, kind, area_count)?;
        if !byte_path::is_in(step.path(), tree) {
            return Err(reader.invalid("a step outside of its new directory"));
        }
        steps.push(step);
    }
    Ok(steps)
}

fn write_staged(writer: &mut Writer, staged: Staged) {
    writer.varint(staged.area as u64);
    writer.varint(staged.number);
}

fn read_staged(reader: &mut Reader<'_>, area_count: usize) -> Result<Staged, DecodeError> {
    let area = usize::try_from(reader.varint()?).ok().filter(|area| *area < area_count);
    let area = area.ok_or_else(|| reader.invalid("unknown staging directory"))?;
    Ok(Staged { area, number: reader.varint()? })
}

fn read_state(reader: &mut Reader<'_>) -> Result<Arc<EntryState>, DecodeError> {
    let (attributes, node) = read_entry(reader)?;
    Ok(Arc::new(EntryState { attributes, node }))
}

fn write_time(writer: &mut Writer, time: FileTime) {
    writer.signed(time.seconds);
    writer.u32(time.nanoseconds);
}

fn read_time(reader: &mut Reader<'_>) -> Result<FileTime, DecodeError> {
    let time = FileTime { seconds: reader.signed()?, nanoseconds: reader.u32()? };
    if time.nanoseconds < 1_000_000_000 {
        Ok(time)
    } else {
        Err(reader.invalid("more nanoseconds than a second has"))
    }
}

/// An absolute path whose components are names; the root directory itself only where it may be.
fn absolute(reader: &mut Reader<'_>, may_be_root: bool) -> Result<Vec<u8>, DecodeError> {
    let path = reader.bytes()?;
    let is_plain = match path.strip_prefix(b"/") {
        Some(b"") => may_be_root,
        Some(rest) => rest.split(|byte| *byte == b'/').all(is_name),
        None => false,
    };
    if is_plain { Ok(path.to_vec()) } else { Err(reader.invalid("not an absolute, plain path")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::{Lost, LostAs};
    use crate::object::arbitrary::entry;
    use crate::snapshot::NotCapturedReason;
    use proptest::prelude::*;

    fn state() -> impl Strategy<Value = Arc<EntryState>> {
        entry().prop_map(|(attributes, node)| Arc::new(EntryState { attributes, node }))
    }

    fn step() -> impl Strategy<Value = Step> {
        let path = || {
            proptest::collection::vec(1u8..=46, 1..9).prop_map(|mut path| {
                path.insert(0, b'/');
                path.push(b'x');
                path
            })
        };
        let staged =
            || (0..2usize, any::<u64>()).prop_map(|(area, number)| Staged { area, number });
        let inside = || path().prop_map(|path| [b"/tree", path.as_slice()].concat());
        let piece = prop_oneof![
            inside().prop_map(|path| Step::MakeDirectory { path }),
            (inside(), state(), staged(), any::<u64>()).prop_map(|(path, target, staged, ino)| {
                Step::Place { path, target, staged, ino }
            }),
            (inside(), state()).prop_map(|(path, target)| Step::Attributes {
                path,
                current: None,
                target
            }),
        ];
        let tree = (staged(), proptest::collection::vec(piece, 0..4));
        prop_oneof![
            (path(), state(), staged()).prop_map(|(path, current, staged)| Step::Remove {
                path,
                current,
                staged
            }),
            (path(), state()).prop_map(|(path, current)| Step::RemoveDirectory { path, current }),
            path().prop_map(|path| Step::MakeDirectory { path }),
            (path(), state(), staged(), any::<u64>()).prop_map(|(path, target, staged, ino)| {
                Step::Place { path, target, staged, ino }
            }),
            (path(), state(), state(), staged(), any::<u64>(), any::<bool>()).prop_map(
                |(path, current, target, staged, ino, is_relinked)| {
                    Step::Exchange { path, current, target, staged, ino, is_relinked }
                }
            ),
            (path(), proptest::option::of(state()), state())
                .prop_map(|(path, current, target)| Step::Attributes { path, current, target }),
            tree.prop_map(|(staged, steps)| {
                Step::PlaceTree { path: b"/tree".to_vec(), staged, steps }
            }),
        ]
    }

    fn journal() -> impl Strategy<Value = Journal> {
        let time = (any::<i64>(), 0..1_000_000_000u32)
            .prop_map(|(seconds, nanoseconds)| FileTime { seconds, nanoseconds });
        let work = (time, proptest::collection::vec(step(), 0..6)).prop_map(|(started, steps)| {
            let reason = "because".to_owned();
            Work { started, steps, skipped: vec![Skipped { path: "/a".into(), reason }] }
        });
        let area = |name: &[u8]| AreaRecord {
            parent: b"/".to_vec(),
            name: name.to_vec(),
            mtime: FileTime::default(),
        };
        let areas =
            vec![area(b".nono-restore-0123456789abcdef"), area(b".nono-restore-00000000000000ff")];
        let end = prop_oneof![Just(None), Just(Some(End::Finished)), Just(Some(End::TakenBack))];
        let lost = Lost {
            path: "/p/\u{1f4be}".into(),
            what: LostAs::Gone,
            is_directory: true,
            is_rebuildable: false,
            reason: NotCapturedReason::Unreadable {
                error: "it \"broke\"".to_owned(),
                is_denied: true,
            },
        };
        (any::<u64>(), any::<u64>(), proptest::option::of(work), end, any::<bool>()).prop_map(
            move |(snapshot, safety, work, end, left_some)| Journal {
                snapshot,
                safety: Some(safety).filter(|number| *number > 0),
                areas: areas.clone(),
                end: end.filter(|_| work.is_none()),
                work,
                facts: Facts { left_some, lost: vec![lost.clone()], ..Facts::default() },
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(journal in journal()) {
            prop_assert_eq!(Journal::decode(&journal.encode()), Ok(journal));
        }

        #[test]
        fn any_bytes_are_a_journal_or_an_error(
            journal in journal(),
            at in any::<proptest::sample::Index>(),
            byte in any::<u8>(),
            is_summed in any::<bool>(),
        ) {
            let mut bytes = journal.encode();
            let index = at.index(bytes.len());
            bytes[index] = byte;
            if is_summed {
                // A valid checksum, so that the damage reaches the decoder.
                let body = bytes.len() - 32;
                let sum = ContentHash::of(&bytes[..body]);
                bytes[body..].copy_from_slice(sum.as_bytes());
            }
            if let Ok(decoded) = Journal::decode(&bytes) {
                prop_assert_eq!(&decoded.encode(), &bytes);
            }
            let _ = Journal::decode(&bytes[..index]);
        }
    }

    #[test]
    fn places_outside_of_plain_paths_and_staging_directories_are_refused() {
        let good = Journal {
            snapshot: 0,
            safety: Some(1),
            areas: vec![AreaRecord {
                parent: b"/p".to_vec(),
                name: b".nono-restore-0123456789abcdef".to_vec(),
                mtime: FileTime::default(),
            }],
            work: None,
            end: None,
            facts: Facts::default(),
        };
        assert!(Journal::decode(&good.encode()).is_ok());
        for name in [&b"src"[..], b".nono-restore-", b".nono-restore-0123456789abcde/", b"../x"] {
            let mut bad = good.clone();
            bad.areas[0].name = name.to_vec();
            assert!(Journal::decode(&bad.encode()).is_err());
        }
        for path in [&b"p"[..], b"/p/../q", b"/p//q", b"/p/", b"/", b"", b"/p\0"] {
            let mut bad = good.clone();
            let steps = vec![Step::MakeDirectory { path: path.to_vec() }];
            bad.work = Some(Work { steps, ..Work::default() });
            assert!(Journal::decode(&bad.encode()).is_err(), "{path:?}");
        }
        let tree = |steps| {
            let staged = Staged { area: 0, number: 0 };
            Step::PlaceTree { path: b"/p/tree".to_vec(), staged, steps }
        };
        let inside = |path: &[u8]| Step::MakeDirectory { path: path.to_vec() };
        let decoded = |step| {
            let mut journal = good.clone();
            journal.work = Some(Work { steps: vec![step], ..Work::default() });
            Journal::decode(&journal.encode())
        };
        assert!(decoded(tree(vec![inside(b"/p/tree"), inside(b"/p/tree/in")])).is_ok());
        assert!(decoded(tree(vec![inside(b"/p/tree2")])).is_err());
        // No tree in a tree: a decoder that follows them could be led to any depth.
        assert!(decoded(tree(vec![tree(Vec::new())])).is_err());
    }
}
