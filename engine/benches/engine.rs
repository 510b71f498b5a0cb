//! The parts of a capture, each by itself: hashing, the tree codec, the walk, the stat cache.
//!
//! `cargo bench --package nono-engine`; a word behind `--` chooses some of them, and
//! `--save-baseline NAME` and `--baseline NAME` compare two versions. `scripts/bench` measures the
//! whole program instead.

#![allow(clippy::disallowed_methods, reason = "it makes the files that it measures with")]

use std::fs;
use std::hint::black_box;
use std::path::Path;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use nono_engine::object::{
    Attributes, ContentHash, FileTime, MidstatesLink, Node, PieceHasher, Tree, TreeEntry, Xattrs,
    hash_each,
};
use nono_engine::stat_cache::{
    CachedDirectory, CachedFile, CountedOn, StatCache, StatCacheWriter, StatKey, StoreState,
};
use nono_engine::store::{FanOut, FanOuts};
use nono_engine::sys::Dir;
use nono_engine::walk::{ExclusionConfig, Filter, Ignores, Mode, Repository, estimate, list};
use tempfile::TempDir;

/// Entries of one directory: an ordinary one, and the largest that real trees have.
const ENTRIES: [usize; 3] = [20, 1000, 33_000];
/// Directories of the stat cache, with `FILES` files each.
const DIRECTORIES: usize = 500;
const FILES: usize = 20;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    hash(&mut criterion);
    tree_codec(&mut criterion);
    walk(&mut criterion);
    stat_cache(&mut criterion);
    criterion.final_summary();
}

fn hash(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hash");
    // A tree object, a median source file, a step of a large file.
    for len in [100, 4 << 10, 1 << 20] {
        let bytes = vec![0x5a; len];
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_with_input(BenchmarkId::new("bytes", len), &bytes, |bencher, bytes| {
            bencher.iter(|| ContentHash::of(black_box(bytes)));
        });
    }
    let both = [vec![0x5a; 1 << 20], vec![0x5b; 1 << 20]];
    group.throughput(Throughput::Bytes(2 << 20));
    group.bench_function("two at once", |bencher| {
        bencher.iter(|| {
            hash_each(both.iter().map(|bytes| &**black_box(bytes)), |_, hash| {
                black_box(hash);
            })
        });
    });
    let long = vec![0x5a; 16 << 20];
    group.throughput(Throughput::Bytes(long.len() as u64));
    group.bench_with_input("with midstates", &long, |bencher, bytes| {
        bencher.iter(|| {
            let mut hasher = PieceHasher::new(bytes.len() as u64);
            bytes.chunks(1 << 20).for_each(|step| hasher.update(black_box(step)));
            hasher.finish()
        });
    });
    let hole = 64 << 20;
    group.throughput(Throughput::Bytes(hole));
    group.bench_function("hole", |bencher| {
        bencher.iter(|| {
            let mut hasher = PieceHasher::new(hole);
            hasher.update_zeros(black_box(hole));
            hasher.finish()
        });
    });
    group.finish();
}

fn tree_codec(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("tree");
    for count in ENTRIES {
        let tree = Tree::new((0..count).map(file).collect());
        let bytes = tree.encode();
        group.throughput(Throughput::Elements(count as u64));
        group.bench_with_input(BenchmarkId::new("encode", count), &tree, |bencher, tree| {
            bencher.iter(|| black_box(tree).encode());
        });
        group.bench_with_input(BenchmarkId::new("decode", count), &bytes, |bencher, bytes| {
            bencher.iter(|| Tree::decode(black_box(bytes)).expect("it was encoded"));
        });
    }
    group.finish();
}

fn file(index: usize) -> TreeEntry {
    let attributes = Attributes {
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        mtime: FileTime { seconds: 1_700_000_000 + index as i64, nanoseconds: 123_456_789 },
        xattrs: Xattrs::default(),
    };
    let hash = ContentHash::of(&index.to_le_bytes());
    let name = format!("Component{index:05}.js").into_bytes().into();
    TreeEntry { name, attributes, node: Node::file(1 << 12, hash) }
}

/// A directory of so many files.
fn directory(count: usize) -> TempDir {
    let temp = tempfile::tempdir().expect("a temporary directory");
    for index in 0..count {
        fs::write(temp.path().join(format!("Component{index:05}.js")), "").expect("a file");
    }
    temp
}

fn walk(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("walk");
    let nothing = Filter::new(&ExclusionConfig::nothing()).expect("no patterns");
    let patterns = ["*.log", "build/", "/dist", "src/generated", "!keep.log", "*.py[co]"];
    let temp = directory(1000);
    let dir = Dir::open(temp.path()).expect("it was made");
    let repository = Repository::above(temp.path());
    let listed = |bencher: &mut criterion::Bencher<'_>, filter: &Filter| {
        bencher.iter(|| {
            list(&dir, b"", Mode::Filtered, filter, &Ignores::ON_DISK, &repository).expect("a list")
        });
    };
    group.throughput(Throughput::Elements(1000));
    group.bench_function("list 1000", |bencher| listed(bencher, &nothing));
    let exclude_patterns = ["node_modules", "target/", "src/generated"].map(String::from).to_vec();
    let config = ExclusionConfig { exclude_patterns, ..ExclusionConfig::default() };
    let filter = Filter::new(&config).expect("good patterns");
    group.bench_function("list 1000, patterns", |bencher| listed(bencher, &filter));
    fs::write(temp.path().join(".gitignore"), patterns.join("\n")).expect("a file");
    group.bench_function("list 1000, patterns and .gitignore", |bencher| listed(bencher, &filter));

    let temp = tempfile::tempdir().expect("a temporary directory");
    for index in 0..200 {
        let path = temp.path().join(format!("{}/{index}", index % 10));
        fs::create_dir_all(&path).expect("a directory");
        for file in 0..FILES {
            fs::write(path.join(file.to_string()), "").expect("a file");
        }
    }
    let dir = Dir::open(temp.path()).expect("it was made");
    let all = estimate(&dir, &nothing);
    assert!(all.is_exact, "it is small enough to be counted");
    group.throughput(Throughput::Elements(all.entries as u64));
    group.bench_function("a tree of 211 directories", |bencher| {
        bencher.iter(|| estimate(&dir, &nothing));
    });
    group.finish();
}

fn stat_cache(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("stat cache");
    group.throughput(Throughput::Elements((DIRECTORIES * FILES) as u64));
    let (tracked, generation) = (Path::new("/home/me/project"), [7; 16]);
    let fan_outs = FanOuts::new(|_| FanOut::Absent);
    let counted_on = CountedOn { packs: Vec::new(), fan_outs };
    let store =
        StoreState { generation, counted_on: counted_on.clone(), holds: Box::new(|_, _| true) };
    let temp = directory(1);
    let index = Dir::open(temp.path()).expect("it was made");
    let stat = index.stat(b"Component00000.js").expect("it was made");
    // As late as can be: then nothing is racy.
    let start = FileTime { seconds: i64::MAX / 2, nanoseconds: 0 };
    let directories: Vec<(Vec<u8>, CachedDirectory)> = (0..DIRECTORIES)
        .map(|number| {
            let name = |file: usize| format!("Component{file:05}.js").into_bytes().into();
            let cached = |file: usize| CachedFile {
                key: StatKey::of(&stat),
                hash: ContentHash::of(&[number, file].map(usize::to_le_bytes).concat()),
                midstates: MidstatesLink::NONE,
                xattrs: Xattrs::default(),
            };
            let files = (0..FILES).map(|file| (name(file), cached(file))).collect();
            let tree = ContentHash::of(&number.to_le_bytes());
            (
                format!("src/part{number:03}").into_bytes(),
                CachedDirectory { tree, is_plain: true, files },
            )
        })
        .collect();
    let written = || {
        let mut writer = StatCacheWriter::new(&index, tracked, &store, start).expect("a file");
        for (path, directory) in &directories {
            writer.add(path, directory).expect("it is written");
        }
        writer
    };
    group.bench_function("write", |bencher| {
        bencher.iter(|| written().commit(&counted_on).expect("it is put in place"));
    });
    written().commit(&counted_on).expect("it is put in place");
    group.bench_function("load", |bencher| {
        bencher.iter(|| {
            let cache = StatCache::load(&index, tracked, &store);
            assert!(!cache.is_empty());
            cache
        });
    });
    let cache = StatCache::load(&index, tracked, &store);
    group.bench_function("look up every file", |bencher| {
        bencher.iter(|| {
            for (path, directory) in &directories {
                let known = cache.directory(path).expect("it was added");
                for (name, file) in &directory.files {
                    let hit = known.file(name).is_some_and(|known| known.key == file.key);
                    assert!(hit, "it was added");
                }
            }
        });
    });
    // The work of a capture in an unchanged directory.
    group.bench_function("copy every directory", |bencher| {
        bencher.iter_batched(
            || StatCacheWriter::new(&index, tracked, &store, start).expect("a file"),
            |mut writer| {
                for (path, _) in &directories {
                    let known = cache.directory(path).expect("it was added");
                    writer.add(path, &known).expect("it is written");
                }
                writer
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}
