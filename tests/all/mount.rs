//! The store, mounted for real, and looked at with the programs that people use.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use nono_engine::browse::{Scope, StoreTree};
use nono_engine::session::{RecordRequest, Recording};
use nono_engine::snapshot::{Budget, SessionOrigin};
use nono_engine::walk::ExclusionConfig;
use nono_mount::{Mount, MountError, MountOptions};
use tempfile::TempDir;

use crate::not_run::not_run;

/// A store, a project, and a mount of the store.
pub struct World {
    pub mount: Option<Mount>,
    recording: Recording,
    pub project: PathBuf,
    pub base: PathBuf,
    _temp: TempDir,
}

impl World {
    /// Records the project that `build` makes and mounts the store. `None`, loudly, where nothing
    /// can be mounted.
    pub fn new(build: impl FnOnce(&Path)) -> Option<Self> {
        let temp = TempDir::new().unwrap();
        let base = temp.path().canonicalize().unwrap();
        let project = base.join("project");
        fs::create_dir(&project).unwrap();
        fs::create_dir(base.join("mnt")).unwrap();
        fs::create_dir(base.join("out")).unwrap();
        build(&project);
        let recording = record(&base.join("store"), &project);
        let mount = mount(&base.join("store"), &base.join("mnt"))?;
        Some(Self { mount: Some(mount), recording, project, base, _temp: temp })
    }

    pub fn snapshot(&self) {
        self.recording.manager().create_incremental().unwrap();
    }

    /// The folder of the project in a snapshot.
    fn past(&self, snapshot: &str) -> PathBuf {
        let session = self.base.join("mnt").join(self.recording.session_id());
        session.join(snapshot).join(self.project.strip_prefix("/").unwrap())
    }

    /// Runs a script with the project as `$P`, its first two snapshots as `$A` and `$B`, and an
    /// empty directory as the current one.
    pub fn output(&self, script: &str) -> Output {
        let mut command = Command::new("sh");
        command.args(["-euc", script]).env("LC_ALL", "C").env("M", self.base.join("mnt"));
        command.env("P", &self.project).env("A", self.past("0")).env("B", self.past("1"));
        command.current_dir(self.base.join("out")).output().unwrap()
    }

    pub fn shell(&self, script: &str) -> String {
        let output = self.output(script);
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }
}

fn record(root: &Path, project: &Path) -> Recording {
    let request = RecordRequest {
        threads: 0,
        root: root.to_owned(),
        command: vec!["test".into()],
        tracked_paths: vec![project.to_owned()],
        exclusion: ExclusionConfig::default(),
        budget: Budget::default(),
        compression: nono_engine::store::Compression::default(),
        origin: SessionOrigin::Run,
        label: None,
    };
    let recording =
        Recording::start(&request, std::sync::Arc::new(nono_engine::progress::NoProgress)).unwrap();
    // A baseline appears when it is durable; until then a thread holds the session's lock.
    drop(recording.manager().session().lock().unwrap());
    recording
}

pub fn mount(root: &Path, point: &Path) -> Option<Mount> {
    let tree = StoreTree::new(&[root.to_owned()], &Scope::Everything).unwrap();
    // The pushed files depend on which thread is faster, and messages are counted here.
    let options = MountOptions { predictor: false, ..MountOptions::default() };
    match Mount::new(tree, point, options) {
        Ok(mount) => Some(mount),
        Err(
            error @ (MountError::NoFuseDevice
            | MountError::FuseDevicePermission
            | MountError::NoFusermount
            | MountError::Permission { .. }),
        ) => {
            not_run(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Everything that a tree can hold and an ordinary user can make.
pub fn varied(project: &Path) {
    for dir in ["src/deep/deeper", "empty", "links/a", "links/b"] {
        fs::create_dir_all(project.join(dir)).unwrap();
    }
    fs::write(project.join("src/main.c"), "int main() {}\n").unwrap();
    fs::write(project.join("src/deep/deeper/none"), "").unwrap();
    let large: Vec<u8> =
        (0..3_000_001_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(project.join("src/large"), large).unwrap();
    let raw = OsStr::from_bytes(b"raw \xff\\name\n");
    fs::write(project.join("src").join(raw), "raw").unwrap();
    fs::write(project.join("src/run"), "#!/bin/sh\n").unwrap();
    for (path, mode) in [("src/run", 0o755), ("src/main.c", 0o640), ("empty", 0o1770)] {
        fs::set_permissions(project.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    symlink("../src/main.c", project.join("links/relative")).unwrap();
    symlink("/nowhere/at/all", project.join("links/dangling")).unwrap();
    fs::write(project.join("links/a/one"), "linked").unwrap();
    fs::hard_link(project.join("links/a/one"), project.join("links/a/two")).unwrap();
    fs::hard_link(project.join("links/a/one"), project.join("links/b/three")).unwrap();
    let fifo = Command::new("mkfifo").arg(project.join("fifo")).status().unwrap();
    assert!(fifo.success());
    let old = std::time::UNIX_EPOCH + Duration::new(1_234_567_890, 987_654_321);
    fs::File::open(project.join("src/run")).unwrap().set_modified(old).unwrap();
}

/// All attributes of everything below `$1`; the size and links of directories are the file system's
/// own business.
const LIST: &str = r#"list() { (cd "$1" &&
    find . ! -type d -printf '%p %y %m %U %G %n %s %T@ %l\0' -o -printf '%p %y %m %U %G %T@\0' |
    sort -z | tr '\0' '\n'); }; "#;

#[test]
fn a_snapshot_is_what_was_recorded_to_every_program() {
    let Some(world) = World::new(varied) else { return };
    // Two fifos are never equal to diff, whatever they are.
    assert_eq!(world.shell(r#"diff -r --no-dereference -x fifo "$P" "$A""#), "");
    let list = |dir: &str| world.shell(&format!("{LIST} list {dir}"));
    assert_eq!(list("\"$A\""), list("\"$P\""));
    // Copies, archives: the same again, hard links included.
    world.shell(r#"cp -a "$A" copy"#);
    assert_eq!(list("copy"), list("\"$P\""));
    world.shell(
        r#"tar -C "$A" --format=pax -cf a.tar . && tar -C "$P" -df a.tar && mkdir t && tar -C t -xpf a.tar"#,
    );
    assert_eq!(list("t"), list("\"$P\""));
    assert_eq!(world.shell(r#"cd "$A"; stat -c %i links/a/one links/b/three | uniq | wc -l"#), "1");
    assert_eq!(
        world.shell(r#"cat "$A/src/large" | cmp - "$P/src/large"; cd "$A/src/deep"; pwd -P"#),
        world.past("0").join("src/deep").to_str().unwrap()
    );
}

#[test]
fn nothing_can_be_changed() {
    let Some(world) = World::new(varied) else { return };
    for change in [
        "touch \"$A/new\"",
        "rm \"$A/src/main.c\"",
        "echo x > \"$A/src/main.c\"",
        "chmod 777 \"$A\"",
        "mkdir \"$M/new\"",
        "ln -s x \"$M/latest/x\"",
    ] {
        let output = world.output(change);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains("Read-only"), "{change}: {error}");
    }
}

#[test]
fn comparing_two_snapshots_costs_what_changed() {
    const DIRECTORIES: usize = 60;
    let build = |project: &Path| {
        for dir in 0..DIRECTORIES {
            let dir = project.join(format!("d{dir}/sub"));
            fs::create_dir_all(&dir).unwrap();
            for file in 0..10 {
                fs::write(dir.join(format!("f{file}")), format!("{} {file}", dir.display()))
                    .unwrap();
            }
            fs::hard_link(dir.join("f0"), dir.join("linked")).unwrap();
        }
    };
    let Some(world) = World::new(build) else { return };
    fs::write(world.project.join("d7/sub/f3"), "other").unwrap();
    fs::write(world.project.join("d8/new"), "new").unwrap();
    world.snapshot();

    let mount = world.mount.as_ref().unwrap();
    let before = mount.counts();
    let said = world.output(r#"cd "$M"; diff -rq "$A" "$B""#);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.contains("f3 differ") && said.contains("d8: new"), "{said}");
    let cost = mount.counts() - before;
    // On each side d7, d7/sub, d8 and the project are listed, in two messages each. All other
    // directories of the project are equal: looked up and looked at on one side, and left alone.
    const LISTS: u64 = 2 * 4;
    const EQUAL: u64 = DIRECTORIES as u64 - 2 + 1;
    // The names on both ways down: the session, the snapshots, what is above the project. What may
    // change on the way (the root, the session) is looked at and listed.
    let above = world.project.components().count() as u64 - 1;
    let names = 1 + 2 * (1 + above);
    // A changing list is asked for again when the work takes longer than it is believed: a look and
    // up to two names for each. And OPENDIR is answered once.
    const ASKED_AGAIN: u64 = 2 * 3;
    assert!(cost.listed <= LISTS + 2 * above + 2 + ASKED_AGAIN, "{cost:?}");
    assert_eq!((cost.opened, cost.read), (0, 0), "the sizes differ: {cost:?}");
    let needed = names + 2 + 2 * LISTS + 2 * EQUAL + 1;
    assert!(cost.requests() <= needed + ASKED_AGAIN, "{cost:?}, {needed} needed");

    // Contents that were read once are in the kernel's memory; it may drop a little.
    let files = 11 * DIRECTORIES as u64;
    let before = mount.counts();
    world.shell(r#"grep -r nothing "$A" "$B" || true"#);
    let first = mount.counts() - before;
    // Hard links share their contents, and equal paths theirs; the changed and the new file are on
    // one side each more.
    assert!(first.read <= files - DIRECTORIES as u64 + 2, "{first:?}");
    let before = mount.counts();
    world.shell(r#"grep -r nothing "$A" "$B" || true; find "$A" -ls > list"#);
    let cost = mount.counts() - before;
    assert!(cost.requests() < first.requests() / 100, "{cost:?} after {first:?}");
}

#[test]
fn new_snapshots_and_sessions_appear_and_removed_ones_go() {
    let Some(world) = World::new(|project| fs::write(project.join("file"), "one").unwrap()) else {
        return;
    };
    let first = world.recording.session_id();
    assert_eq!(world.shell(r#"readlink "$M/latest""#), first);
    assert_eq!(world.shell(r#"readlink "$M/latest/latest"; ls "$M/latest/""#), "0\n0\nlatest");
    fs::write(world.project.join("file"), "two").unwrap();
    world.snapshot();
    assert_eq!(world.shell(r#"readlink "$M/latest/latest"; cat "$B/file""#), "1\ntwo");
    eventually("it is listed", || world.shell(r#"ls "$M/latest/""#) == "0\n1\nlatest");

    let second = record(&world.base.join("store"), &world.project).session_id();
    assert_eq!(world.shell(r#"readlink "$M/latest""#), second);
    eventually("it is listed", || world.shell(r#"ls "$M""#).lines().count() == 4);

    let store = world.base.join("store");
    fs::remove_dir_all(store.join(&first)).unwrap();
    eventually("it is gone", || {
        world.shell(r#"ls "$M""#) == format!("{second}\nby-project\nlatest")
            && !world.past("0").exists()
    });
}

#[test]
fn a_project_is_a_folder_and_what_was_read_there_is_read_by_id_as_well() {
    let Some(world) = World::new(varied) else { return };
    fs::write(world.project.join("src/main.c"), "int main() { return 1; }\n").unwrap();
    world.snapshot();
    let list = |dir: &str| world.shell(&format!("{LIST} list {dir}"));
    let by_project = r#"S="$M/by-project/project/latest";"#;
    let shell = |script: &str| world.shell(&format!("{by_project} {script}"));
    assert_eq!(
        shell(r#"ls "$S/" | tr '\n' ' '; readlink "$S/../now""#),
        format!("after before {}", world.project.display())
    );
    // Every attribute, the directory's own included.
    assert_eq!(list("\"$M/by-project/project/latest/after\""), list("\"$P\""));
    assert_eq!(shell(r#"diff -r --no-dereference -x fifo "$S/after" "$S/../now/.""#), "");
    shell(r#"cp -a "$S/after" copy"#);
    assert_eq!(list("copy"), list("\"$P\""));
    let changed = shell(r#"diff -rq "$S/before" "$S/after" || true"#);
    assert!(changed.lines().count() == 1 && changed.contains("main.c differ"), "{changed}");
    // One inode, one page cache: what was read by id is not read again.
    let same = r#"stat -c %i "$A" "$A/src/large" "$S/before" "$S/before/src/large" | sort | uniq"#;
    assert_eq!(shell(same).lines().count(), 2);
    let mount = world.mount.as_ref().unwrap();
    shell(r#"cat "$A/src/large" > one"#);
    let before = mount.counts();
    shell(r#"cat "$S/before/src/large" | cmp - one"#);
    let cost = mount.counts() - before;
    assert_eq!(cost.read, 0, "{cost:?}");
    // A directory that is open stays what it is, and the name moves on.
    let moved = r#"cd "$S/after"; grep -c return src/main.c;
        echo later > "$P/src/main.c"; cat src/main.c"#;
    assert_eq!(shell(moved), "1\nint main() { return 1; }");
    let open = fs::File::open(world.base.join("mnt/by-project/project/latest/after")).unwrap();
    world.snapshot();
    eventually("the name moves on", || shell(r#"cat "$S/after/src/main.c""#) == "later");
    let kept = rustix::fs::openat(
        &open,
        "src/main.c",
        rustix::fs::OFlags::RDONLY,
        rustix::fs::Mode::empty(),
    );
    let kept = std::io::read_to_string(fs::File::from(kept.unwrap())).unwrap();
    assert_eq!(kept, "int main() { return 1; }\n");
    for change in ["mkdir \"$M/by-project/x\"", "rm \"$M/by-project/project/now\""] {
        let output = world.output(change);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains("Read-only"), "{change}: {error}");
    }
    // The walk of all folders ends, and finds no impossible name.
    world.shell(r#"find "$M" -mindepth 1 > all; grep -c by-project all"#);
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < patience, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_damaged_object_is_an_input_output_error() {
    let build = |project: &Path| {
        fs::write(project.join("bad"), "right bytes").unwrap();
        fs::write(project.join("good"), "good").unwrap();
    };
    let Some(world) = World::new(build) else { return };
    let hash = nono_engine::object::ContentHash::of(b"right bytes").hex();
    let object = world.base.join("store/objects").join(&hash[..2]).join(&hash[2..]);
    fs::remove_file(&object).unwrap();
    fs::write(&object, "wrong bytes").unwrap();
    let output = world.output(r#"cat "$A/good" "$A/bad""#);
    assert!(!output.status.success());
    assert_eq!(output.stdout, b"good");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Input/output error"));
}

#[test]
fn a_missing_object_is_an_input_output_error_as_long_as_its_session_is_there() {
    let build = |project: &Path| {
        for name in ["held", "other"] {
            fs::write(project.join(name), format!("bytes of {name}")).unwrap();
        }
    };
    let Some(world) = World::new(build) else { return };
    let held = fs::File::open(world.past("0").join("held")).unwrap();
    let store = world.base.join("store");
    for name in ["held", "other"] {
        let hash =
            nono_engine::object::ContentHash::of(format!("bytes of {name}").as_bytes()).hex();
        fs::remove_file(store.join("objects").join(&hash[..2]).join(&hash[2..])).unwrap();
    }
    let said = world.output(r#"cat "$A/other""#);
    assert!(String::from_utf8_lossy(&said.stderr).contains("Input/output error"), "{said:?}");
    fs::remove_dir_all(store.join(world.recording.session_id())).unwrap();
    let error = std::io::Read::read(&mut &held, &mut [0; 8]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn a_damaged_piece_of_a_long_file_is_an_error_until_somebody_mends_it() {
    const PIECE: usize = 1 << 20;
    // Nothing compresses, so nearly all of the pack is chunks.
    let mut state = 1_u64;
    let right: Vec<u8> = (0..6 * PIECE)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect();
    let Some(world) = World::new(|project| fs::write(project.join("long"), &right).unwrap()) else {
        return;
    };
    let hash = nono_engine::object::ContentHash::of(&right).hex();
    let object = world.base.join("store/objects").join(&hash[..2]).join(&hash[2..]);
    // A file of its own, which comes before its chunks where it was cut into such.
    let put = |bytes: &[u8]| {
        fs::create_dir_all(object.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&object);
        fs::write(&object, bytes).unwrap();
    };
    let mut wrong = right.clone();
    wrong[4 * PIECE + 5] ^= 1;
    put(&wrong);
    // Its chunks would be another copy. Trees, lists and midstates lie at the ends of the pack.
    for pack in fs::read_dir(world.base.join("store/objects/packs")).into_iter().flatten() {
        let pack = pack.unwrap().path();
        let mut bytes = fs::read(&pack).unwrap();
        let ends = bytes.len() / 20;
        let chunks = ends..bytes.len() - ends;
        bytes[chunks].iter_mut().step_by(16 << 10).for_each(|byte| *byte ^= 1);
        fs::set_permissions(&pack, PermissionsExt::from_mode(0o600)).unwrap();
        fs::write(&pack, bytes).unwrap();
    }
    let file = fs::File::open(world.past("0").join("long")).unwrap();
    let mut buffer = vec![0; PIECE];
    // Not the piece before the damaged one, as the kernel reads ahead.
    for piece in [0, 1, 2] {
        file.read_exact_at(&mut buffer, (piece * PIECE) as u64).unwrap();
        assert!(buffer == right[piece * PIECE..][..PIECE]);
    }
    for _ in 0..2 {
        let error = file.read_exact_at(&mut buffer, (4 * PIECE) as u64).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
    }
    put(&right);
    assert!(fs::read(world.past("0").join("long")).unwrap() == right);
}

#[test]
fn df_shows_the_disk_that_the_store_is_on() {
    let Some(world) = World::new(|project| fs::write(project.join("file"), "one").unwrap()) else {
        return;
    };
    let size = |path: &Path| rustix::fs::statvfs(path).map(|s| s.f_blocks * s.f_frsize).unwrap();
    // The mount counts in blocks of its own.
    let (shown, below) = (size(&world.past("0")), size(&world.base.join("store")));
    assert!(shown > 0 && below.abs_diff(shown) < 4096, "{shown} {below}");
}

#[test]
fn many_programs_walk_at_the_same_time() {
    let build = |project: &Path| {
        for dir in 0..20 {
            let dir = project.join(format!("d{dir}"));
            fs::create_dir(&dir).unwrap();
            for file in 0..20 {
                fs::write(dir.join(format!("f{file}")), format!("{} {file}", dir.display()))
                    .unwrap();
            }
        }
    };
    let Some(world) = World::new(build) else { return };
    world.snapshot();
    let said = world.shell(
        r#"for i in 1 2 3 4; do
             (diff -r "$P" "$A"; diff -r "$A" "$B"; grep -rc f "$B" > /dev/null) 2>&1 &
             (cd "$A/d3"; find "$M" > /dev/null; test "$(pwd -P)" = "$A/d3" || echo wrong) 2>&1 &
           done; wait"#,
    );
    assert_eq!(said, "");
}

#[test]
fn a_restore_while_the_mount_is_read_mixes_nothing() {
    let fill = |project: &Path, text: &str| {
        for number in 0..60 {
            fs::write(project.join(format!("file{number}")), text).unwrap();
        }
    };
    let Some(world) = World::new(|project| fill(project, "first")) else { return };
    fill(&world.project, "second, and longer");
    world.snapshot();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let all_are = |dir: &Path, text: &str| {
        (0..60).all(|number| fs::read_to_string(dir.join(format!("file{number}"))).unwrap() == text)
    };
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut rounds = 0;
            while rounds == 0 || !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                assert!(all_are(&world.past("0"), "first"));
                assert!(all_are(&world.past("1"), "second, and longer"));
                rounds += 1;
            }
            rounds
        });
        for _ in 0..3 {
            for (number, text) in [(0, "first"), (1, "second, and longer")] {
                let report = world.recording.manager().restore(number).unwrap();
                assert!(report.is_complete(), "{report:?}");
                assert!(all_are(&world.project, text));
            }
        }
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(reader.join().unwrap() > 0);
    });
}
