//! A store whose disk is full: the possible undos, and how it gets space again.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use nono_engine::object::ContentHash;
use nono_engine::store::{LocalStore, ObjectStore};

use crate::fixture::Fixture;
use crate::observe::{assert_same, observe};
use crate::small_disk::SmallDisk;

/// An object that no session names, as an interrupted snapshot leaves it.
fn leave_orphan(fixture: &Fixture) -> PathBuf {
    let store = LocalStore::open(&fixture.store().join("objects")).unwrap();
    let hash = store.write(b"an unneeded object").unwrap().hash;
    assert_eq!(hash, ContentHash::of(b"an unneeded object"));
    let hex = hash.to_string();
    let path = fixture.store().join("objects").join(&hex[..2]).join(&hex[2..]);
    assert!(path.exists(), "{}", path.display());
    path
}

#[test]
fn with_all_sessions_orphans_go_at_once_when_nobody_else_uses_the_store() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    let orphan = leave_orphan(&fixture);
    let told = fixture.nono(&["rollback", "cleanup"]).success();
    let said = &told.stdout;
    assert!(said.contains("a later cleanup frees them") && !said.contains("--all"), "{said}");
    assert!(orphan.exists());
    let foreseen = ["rollback", "cleanup", "--all", "--dry-run", "--json"];
    let foreseen = fixture.nono(&foreseen).success().json();
    assert!(orphan.exists());
    let done = fixture.nono(&["rollback", "cleanup", "--all", "--yes", "--json"]).success().json();
    assert_eq!(foreseen["bytes_freed"], done["bytes_freed"]);
    assert_eq!(done["objects_kept_young"], 0, "{done}");
    assert!(!orphan.exists());
}

#[test]
fn orphans_stay_for_their_hour_while_somebody_else_uses_the_store() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let wait = ["run", "--rollback", "--", "sh", "-c", "echo started; read line"];
    let mut command = fixture.command(&wait);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut line).unwrap();
    assert_eq!(line, "started\n");
    let orphan = leave_orphan(&fixture);
    // The session that runs is kept, which is only a part of what was asked for.
    for more in ["--dry-run", "--yes"] {
        let told = fixture.nono(&["rollback", "cleanup", "--all", more]);
        assert!(told.stdout.contains("something else uses the store"), "{}", told.stdout);
        assert!(orphan.exists());
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    fixture.nono(&["rollback", "cleanup", "--all", "--yes"]).success();
    assert!(!orphan.exists());
}

#[test]
fn a_store_without_a_free_byte_is_emptied() {
    let fixture = Fixture::new();
    let Some(disk) = SmallDisk::mount(&fixture.path("home/.nono"), 1024) else { return };
    for n in 0..8 {
        fixture.write(&format!("file{n}"), vec![n; 30_000]);
    }
    fixture.record("echo 2 > file0").success();
    leave_orphan(&fixture);
    disk.fill();
    fixture.nono(&["rollback", "cleanup", "--all", "--yes"]).success();
    assert!(disk.free() > 200_000, "{}", disk.free());
    fs::remove_file(disk.filler()).unwrap();
    // It is a store as before.
    fixture.record("echo 3 > file0").success();
    fixture.nono(&["rollback", "restore", "latest"]).success();
    fixture.nono(&["rollback", "verify", "--all"]).success();
}

/// A project and a session that changed it in every way, on a store of its own disk.
struct Worked {
    fixture: Fixture,
    disk: SmallDisk,
}

impl Worked {
    /// `None`, and said so, where file systems cannot be mounted.
    fn new() -> Option<Self> {
        let fixture = Fixture::new();
        let disk = SmallDisk::mount(&fixture.path("home/.nono"), 2048)?;
        fixture.write("deleted", "1");
        fixture.write("dir/deleted", "1");
        fixture.write("edited", "1");
        fixture.write("edited later", "1");
        fixture.write("same", "1");
        Some(Self { fixture, disk })
    }

    fn record(&self) {
        let script = "rm -r deleted dir; echo 22 > edited; echo 22 > 'edited later'; mkdir new; \
                      echo 3 > new/created; chmod 600 same";
        self.fixture.record(script).success();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.fixture.project().join(name)).unwrap_or_default()
    }

    fn snapshot_count(&self) -> usize {
        let shown = ["rollback", "show", "latest", "--json"];
        let shown = self.fixture.nono(&shown).success().json();
        shown["snapshots"].as_array().unwrap().len()
    }
}

#[test]
fn on_a_full_disk_what_the_store_has_is_restored_without_a_safety_snapshot() {
    let Some(worked) = Worked::new() else { return };
    let before = observe(&worked.fixture.project());
    worked.record();
    let after = observe(&worked.fixture.project());
    worked.disk.fill();
    let done = worked.fixture.nono(&["rollback", "restore", "latest"]).success();
    assert!(done.stderr.contains("no space for a safety snapshot"), "{}", done.stderr);
    assert!(!done.stderr.contains("undo this"), "{}", done.stderr);
    assert_same(&before, &observe(&worked.fixture.project()));
    assert_eq!(worked.snapshot_count(), 2);
    worked.fixture.nono(&["rollback", "verify", "--all"]).success();
    // The undone changes are in the session all the same. Nothing says that the session did the
    // undoing.
    let redo = ["rollback", "restore", "latest/1", "--force"];
    worked.fixture.nono(&redo).success();
    assert_same(&after, &observe(&worked.fixture.project()));
}

#[test]
fn on_a_full_disk_what_no_snapshot_holds_is_left_and_named_and_given_up_by_name() {
    let Some(worked) = Worked::new() else { return };
    let Worked { fixture, disk } = &worked;
    let before = observe(&fixture.project());
    worked.record();
    fixture.write("edited later", vec![b'x'; 100_000]);
    fixture.write("new/later", "mine");
    disk.fill();
    let restore = ["rollback", "restore", "latest", "--force"];
    let part = fixture.nono(&[&restore[..], &["--json"]].concat());
    assert_eq!(part.code, 1, "{}", part.stderr);
    let report = part.json();
    let names: Vec<&str> = report["not_kept"]
        .as_array()
        .unwrap()
        .iter()
        .map(|path| path.as_str().unwrap().rsplit_once("/project/").unwrap().1)
        .collect();
    assert_eq!(names, ["edited later", "new/later"], "{report}");
    assert_eq!(report["is_store_full"], true);
    assert_eq!(report["safety_snapshot"], serde_json::Value::Null);
    assert_eq!((worked.read("edited").as_str(), worked.read("deleted").as_str()), ("1", "1"));
    assert_eq!(worked.read("dir/deleted"), "1");
    assert_eq!(
        (worked.read("edited later").len(), worked.read("new/later").as_str()),
        (100_000, "mine")
    );
    assert!(!fixture.project().join("new/created").exists());
    // Once more, in words: the rest has a way of its own, which works as it stands there.
    let told = fixture
        .nono(&restore)
        .fails(1, "no space to keep what is there now: 2 paths stay as they are");
    assert!(told.stdout.contains("no space in the store to keep it"), "{}", told.stdout);
    let offered = told.stderr.lines().find_map(|line| line.split_once("to lose it: nono "));
    let (_, offered) = offered.unwrap_or_else(|| panic!("{}", told.stderr));
    assert!(offered.contains("--no-safety-snapshot --force"), "{offered}");
    let script = format!("{} {offered} --yes", env!("CARGO_BIN_EXE_nono"));
    let nono = fixture.command(&[]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", &script]).current_dir(fixture.project()).env_clear();
    shell.envs(nono.get_envs().filter_map(|(key, value)| Some((key, value?))));
    let done = crate::fixture::finished(shell.output().unwrap()).success();
    assert!(done.stderr.contains("no safety snapshot was taken"), "{}", done.stderr);
    assert!(!fixture.project().join("new/later").exists());
    assert_eq!(worked.read("edited later"), "1");
    assert_eq!(worked.snapshot_count(), 2);
    // The directory was not among the paths that were offered. For it there is space again.
    let rest = fixture.nono(&["rollback", "restore", "latest"]).success();
    assert!(!rest.stderr.contains("warning"), "{}", rest.stderr);
    assert_same(&before, &observe(&fixture.project()));
    fixture.nono(&["rollback", "verify", "--all"]).success();
}

#[test]
fn on_a_full_disk_what_the_store_only_seems_to_have_is_left() {
    let Some(worked) = Worked::new() else { return };
    let Worked { fixture, disk } = &worked;
    worked.record();
    let hex = ContentHash::of(b"22\n").to_string();
    let object = fixture.store().join("objects").join(&hex[..2]).join(&hex[2..]);
    let length = fs::metadata(&object).unwrap().len() as usize;
    fs::remove_file(&object).unwrap();
    fs::write(&object, vec![b'x'; length]).unwrap();
    disk.fill();
    let part = fixture.nono(&["rollback", "restore", "latest", "--json"]);
    assert_eq!(part.code, 1, "{}", part.stderr);
    let left = part.json()["not_kept"].as_array().unwrap().len();
    assert_eq!(left, 2, "{}", part.stdout);
    assert_eq!(
        (worked.read("edited").as_str(), worked.read("edited later").as_str()),
        ("22\n", "22\n")
    );
    assert_eq!(worked.read("deleted"), "1");
}

#[test]
fn without_a_safety_snapshot_later_changes_are_still_asked_about_and_nothing_is_kept() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    fixture.write("a", "mine");
    let restore = ["rollback", "restore", "latest", "--no-safety-snapshot"];
    let refused = fixture.nono(&restore).fails(1, "nothing was changed");
    assert!(refused.stderr.contains("--force (they are not kept)"), "{}", refused.stderr);
    let read = || fs::read_to_string(fixture.project().join("a")).unwrap();
    assert_eq!(read(), "mine");
    let planned = [&restore[..], &["--force", "--dry-run"]].concat();
    fixture.nono(&planned).success();
    assert_eq!(read(), "mine");
    let done = fixture.nono(&[&restore[..], &["--force"]].concat()).success();
    assert!(done.stderr.contains("no safety snapshot was taken"), "{}", done.stderr);
    assert_eq!(read(), "1");
    let show = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
    assert_eq!(show["snapshots"].as_array().unwrap().len(), 2);
    let to = ["rollback", "restore", "latest", "--no-safety-snapshot", "--to", "copy"];
    fixture.nono(&to).fails(2, "cannot be used with");
}
