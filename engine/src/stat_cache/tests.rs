use super::*;
use crate::store::PackState;

const GENERATION: [u8; 16] = [7; 16];
/// There from the beginning to the end, gone before the end, made by the snapshot.
const PACK: PackState = pack(1, 5);
const GONE: PackState = pack(2, 5);
const LATER: PackState = pack(3, 5);

const fn pack(name: u8, seconds: i64) -> PackState {
    PackState { name: [name; 16], changed_at: FileTime { seconds, nanoseconds: 1 } }
}

/// Seen at second 20, with all fan-out directories as they were at second 5 but one.
fn counted_on(packs: &[PackState], other: Option<(u8, Option<FileTime>)>) -> CountedOn {
    let fan_outs = FanOuts::new(|prefix| {
        let other = other.filter(|(other, _)| *other == prefix);
        FanOut::seen(time(20, 0), other.map_or(Some(time(5, 1)), |(_, time)| time))
    });
    CountedOn { packs: packs.to_vec(), fan_outs }
}

fn store(generation: [u8; 16]) -> StoreState<'static> {
    let counted_on = counted_on(&[PACK, GONE, LATER], None);
    StoreState { generation, counted_on, holds: Box::new(NO_LOOK) }
}

const NO_LOOK: fn(&ContentHash, u64) -> bool = |_, _| panic!("nothing changed");

fn time(seconds: i64, nanoseconds: u32) -> FileTime {
    FileTime { seconds, nanoseconds }
}

fn file(ctime: FileTime) -> CachedFile {
    let key = StatKey { dev: 1, ino: 2, size: 3, mtime: time(1, 1), ctime };
    let xattrs = Xattrs::new(vec![((*b"user.a").into(), (*b"1").into())]);
    CachedFile { key, hash: ContentHash::of(b"x"), midstates: MidstatesLink::NONE, xattrs }
}

#[test]
fn a_long_file_is_known_with_its_midstates_and_not_without() {
    let long = |name: &[u8], midstates| {
        let file = file(time(9, 1));
        let key = StatKey { size: 5 << 20, ..file.key };
        (name.into(), CachedFile { key, midstates, ..file })
    };
    let midstates = ContentHash::of(b"midstates");
    let link = MidstatesLink::to(midstates);
    let files = vec![long(b"with", link), long(b"without", MidstatesLink::NONE)];
    let (_temp, index) = saved(time(10, 0), &directory(files));
    let cache = StatCache::load(&index, Path::new("/p"), &store(GENERATION));
    let known = cache.directory(b"a/b").unwrap();
    assert_eq!(known.files.len(), 1);
    assert_eq!(known.file(b"with").unwrap().midstates.name(), Some(midstates));
    assert!(known.vouches_only_for(|hash| *hash != ContentHash::of(b"other")));
    assert!(!known.vouches_only_for(|hash| *hash != midstates));
}

fn directory(files: Vec<(Box<[u8]>, CachedFile)>) -> CachedDirectory {
    CachedDirectory { tree: ContentHash::of(b"t"), is_plain: true, files }
}

fn saved(start: FileTime, content: &CachedDirectory) -> (tempfile::TempDir, Dir) {
    let temp = tempfile::tempdir().unwrap();
    let index = Dir::open(temp.path()).unwrap();
    save(&index, start, content, &counted_on(&[PACK, LATER], None));
    (temp, index)
}

fn save(index: &Dir, start: FileTime, content: &CachedDirectory, end: &CountedOn) {
    let mut writer =
        StatCacheWriter::new(index, Path::new("/p"), &store(GENERATION), start).unwrap();
    writer.add(b"a/b", content).unwrap();
    writer.commit(end).unwrap();
}

/// The cached directory when a store is like this, and has lost the object of these bytes.
fn known(index: &Dir, now: CountedOn, lost: &'static [u8]) -> Option<CachedDirectory> {
    let holds: Box<Holds<'_>> = Box::new(|hash, size| {
        assert_eq!(size, 3);
        *hash != ContentHash::of(lost)
    });
    let store = StoreState { generation: GENERATION, counted_on: now, holds };
    let cache = StatCache::load(index, Path::new("/p"), &store);
    let known = cache.directory(b"a/b")?;
    let vouches = |hash: &_| cache.vouches_for(b"a/b", hash, 3, &store.holds);
    known.vouches_only_for(vouches).then_some(known)
}

#[test]
fn a_cache_comes_back() {
    let content = directory(vec![((*b"f").into(), file(time(9, 1)))]);
    let (_temp, index) = saved(time(10, 0), &content);
    let cache = StatCache::load(&index, Path::new("/p"), &store(GENERATION));
    assert_eq!(cache.directory(b"a/b"), Some(content));
    assert_eq!(cache.directory(b"a"), None);
}

#[test]
fn an_entry_as_new_as_the_cache_is_racy_and_is_not_kept() {
    let start = time(10, 500);
    let content = directory(vec![
        ((*b"older").into(), file(time(10, 499))),
        ((*b"same tick").into(), file(time(10, 500))),
        ((*b"whole seconds").into(), file(time(9, 0))),
    ]);
    let (_temp, index) = saved(start, &content);
    let cache = StatCache::load(&index, Path::new("/p"), &store(GENERATION));
    let known = cache.directory(b"a/b").unwrap();
    let names: Vec<_> = known.files.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [(*b"older").into()]);
}

#[test]
fn when_a_pack_is_gone_a_directory_is_known_only_if_all_its_objects_are_there() {
    let content = directory(vec![((*b"f").into(), file(time(9, 1)))]);
    let (_temp, index) = saved(time(10, 0), &content);
    let known = |packs: &[PackState], lost| known(&index, counted_on(packs, None), lost);
    let packs = [pack(9, 5), PACK, GONE, LATER];
    assert_eq!(known(&packs, b"x"), Some(content.clone()), "no look at the packs");
    for gone in 1..packs.len() {
        // Also one that went while the cache was written: who was not read may have been in it.
        let there: Vec<_> = packs.iter().copied().filter(|pack| *pack != packs[gone]).collect();
        assert_eq!(known(&there, b"else"), Some(content.clone()));
        assert_eq!(known(&there, b"x"), None);
        assert_eq!(known(&there, b"t"), None);
        // One that was written to.
        let there = [&*there, &[pack(gone as u8, 6)]].concat();
        assert_eq!(known(&there, b"x"), None);
    }
}

#[test]
fn where_a_fan_out_directory_changed_its_objects_are_looked_for() {
    let content = directory(vec![((*b"f").into(), file(time(9, 1)))]);
    let (_temp, index) = saved(time(10, 0), &content);
    let packs = [PACK, GONE, LATER];
    let prefix_of = |bytes: &[u8]| ContentHash::of(bytes).as_bytes()[0];
    let known = |changed, lost| known(&index, counted_on(&packs, changed), lost);
    for lost in [&b"x"[..], b"t"] {
        for time in [None, Some(time(6, 1)), Some(time(20, 0))] {
            let changed = Some((prefix_of(lost), time));
            assert_eq!(known(changed, lost), None);
            assert_eq!(known(changed, b"else"), Some(content.clone()));
            // Objects of another are not looked for.
            let other = Some((prefix_of(lost) ^ 1, time));
            assert_eq!(known(other, lost), Some(content.clone()));
        }
    }
    // It could have changed without a new time when the cache was complete.
    for time in [Some(time(20, 0)), Some(time(20, 1)), Some(time(18, 0))] {
        let end = counted_on(&packs, Some((prefix_of(b"x"), time)));
        save(&index, FileTime { seconds: 10, nanoseconds: 0 }, &content, &end);
        assert_eq!(super::tests::known(&index, end.clone(), b"x"), None);
        assert_eq!(super::tests::known(&index, end, b"t"), Some(content.clone()));
    }
}

#[test]
fn a_footer_that_claims_more_than_there_is_makes_a_cache_empty() {
    let parse = |end: &[u8]| {
        let mut bytes = [&*header(Path::new("/p"), &GENERATION), end].concat();
        let sum = ContentHash::of(&bytes);
        bytes.extend_from_slice(sum.as_bytes());
        StatCache::try_parse(&bytes, Path::new("/p"), &GENERATION).map(|(_, counted_on)| counted_on)
    };
    for packs in [&[][..], &[PACK, LATER]] {
        let counted_on = counted_on(packs, Some((7, None)));
        assert_eq!(parse(&counted_on.footer()), Some(counted_on));
    }
    let one = counted_on(&[PACK], None);
    let footer = one.footer();
    let (rest, _) = footer.split_last_chunk::<4>().unwrap();
    let more = |count: u32| parse(&[rest, &count.to_le_bytes()].concat());
    assert_eq!(more(1), Some(one));
    for count in [2, 3, u32::MAX] {
        assert_eq!(more(count), None);
    }
    assert_eq!(parse(b"abc"), None);
}

#[test]
fn a_cache_of_another_generation_path_or_with_a_flipped_bit_is_empty() {
    let content = directory(vec![((*b"f").into(), file(time(9, 1)))]);
    let (temp, index) = saved(time(10, 0), &content);
    assert!(StatCache::load(&index, Path::new("/p"), &store([8; 16])).is_empty());
    assert!(StatCache::load(&index, Path::new("/q"), &store(GENERATION)).is_empty());
    let path = temp.path().join(String::from_utf8(file_name(Path::new("/p"))).unwrap());
    let good = std::fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, bad).unwrap();
        assert!(
            StatCache::load(&index, Path::new("/p"), &store(GENERATION)).is_empty(),
            "byte {at}"
        );
    }
    std::fs::write(&path, &good[..good.len() / 2]).unwrap();
    assert!(StatCache::load(&index, Path::new("/p"), &store(GENERATION)).is_empty());
}

#[test]
fn plain_records_are_told_from_those_of_a_part() {
    let temp = tempfile::tempdir().unwrap();
    let index = Dir::open(temp.path()).unwrap();
    let mut writer =
        StatCacheWriter::new(&index, Path::new("/p"), &store(GENERATION), time(10, 0)).unwrap();
    let records =
        [("", true), ("p", false), ("p/src", true), ("p.d", true), ("k", false), ("k/in", false)];
    for (path, is_plain) in records {
        let files = vec![((*b"x").into(), file(time(9, 1)))];
        writer.add(path.as_bytes(), &CachedDirectory { is_plain, ..directory(files) }).unwrap();
    }
    writer.commit(&counted_on(&[PACK, LATER], None)).unwrap();
    let cache = StatCache::load(&index, Path::new("/p"), &store(GENERATION));
    for (path, is_plain) in records {
        let known = cache.directory(path.as_bytes()).unwrap();
        assert_eq!((known.is_plain, known.files.len()), (is_plain, 1), "{path}");
        assert_eq!(cache.holds_plainly(path.as_bytes()), is_plain, "{path}");
    }
    assert!(!cache.holds_plainly(b"gone") && !cache.holds_plainly_below(b"gone"));
    for (path, expected) in [("p", true), ("k", false), ("p/src", false), ("p.d", false)] {
        assert_eq!(cache.holds_plainly_below(path.as_bytes()), expected, "{path}");
    }
}
