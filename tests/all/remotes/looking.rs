//! Looking into a remote without a pull: single files, differences, searches, copies, and a mount.
//! Requests and bytes are counted by a server in front of the object server.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use super::faulty_server::FaultyServer;
use super::{Travel, archives, name, text};
use crate::fixture::{Finished, noise};
use crate::object_server::ObjectServer;

/// A long file that no compression makes shorter.
const LONG_BYTES: usize = 24 << 20;

impl Travel {
    /// Runs a command with the key and with a store that has no session.
    fn far(&self, arguments: &[&str]) -> Finished {
        let root = self.fixture.path("no-store").to_str().unwrap().to_owned();
        let arguments = [&["--root", &root], arguments, &["--identity", self.identity()]].concat();
        let done = self.nono(&arguments);
        assert!(!Path::new(&root).exists(), "{arguments:?}");
        done
    }

    fn file(&self, name: &str) -> String {
        self.fixture.project().join(name).to_str().unwrap().to_owned()
    }

    fn cache(&self) -> std::path::PathBuf {
        self.fixture.path("home/.cache/nono/remotes")
    }
}

/// Three snapshots, in each of which one file is another one, and a place without encryption or
/// with it.
fn pushed(is_plain: bool) -> Travel {
    let travel = Travel::with(3, 200, 1);
    match is_plain {
        true => travel.plain_directory("disk"),
        false => travel.directory("disk"),
    };
    travel.push("disk");
    travel
}

#[test]
fn a_file_a_difference_a_search_and_a_copy_come_from_a_remote_without_a_pull() {
    for is_plain in [false, true] {
        let travel = pushed(is_plain);
        let at = |number: u64| format!("disk:{}/{number}", travel.session);
        for (number, changed) in [(0, 0), (1, 1), (2, 1)] {
            let done = travel.far(&["cat", &at(number), &travel.file(&name(1))]).success();
            assert_eq!(done.stdout, text(1, changed), "{number}");
        }
        let changed = travel.far(&["diff", &at(0), &at(2), "--name-only"]).success();
        let names: Vec<&str> = changed.stdout.lines().collect();
        assert_eq!(names.len(), 2, "{}", changed.stdout);
        assert!(names.iter().any(|line| line.ends_with(&name(1))), "{}", changed.stdout);
        let session = format!("disk:{}", travel.session);
        let found = travel.far(&["find", "f1", "--session", &session, "--json"]).success().json();
        assert_eq!(found[0]["snapshot"], format!("{}/2", travel.session), "{found:#}");
        assert_eq!(found[0]["first"], format!("{}/1", travel.session), "{found:#}");
        let to = travel.fixture.path("copy");
        travel.far(&["restore", &at(1), "--to", to.to_str().unwrap()]).success();
        for file in 0..200 {
            let expected = text(file, usize::from(file == 1));
            assert_eq!(fs::read_to_string(to.join(name(file))).unwrap(), expected, "{file}");
        }
        travel.far(&["restore", &at(1)]).fails(2, "give --to DIR");
        let unknown = travel.far(&["cat", "disk:2001", &travel.file(&name(1))]);
        unknown.fails(1, "disk has no session 2001");
    }
}

#[test]
fn a_file_of_a_large_archive_costs_few_requests_and_less_than_two_mib() {
    let travel = Travel::with(1, 3000, 0);
    let Some(travel) = travel.with_server() else { return };
    for part in 0..3 {
        let bytes = noise(LONG_BYTES, part + 1);
        travel.fixture.write(&format!("long/{part}"), bytes);
    }
    travel.snapshot();
    let counting = FaultyServer::before(travel.server().address());
    let url = counting.url("far");
    travel.nono(&["remote", "add", "far", &url, "--recipient", &travel.recipient]).success();
    travel.push("far");
    let before = counting.requests(&[]).len();
    let id = format!("far:{}/1", travel.session);
    let done = travel.far(&["cat", &id, &travel.file(&name(77))]).success();
    assert_eq!(done.stdout, text(77, 0));
    let heads = counting.requests(&[]).split_off(before);
    let bytes: u64 = heads.iter().map(|head| asked_bytes(head)).sum();
    assert!(heads.len() <= 16 && bytes < 2 << 20, "{bytes} bytes, {heads:#?}");
    // All of it is in the cache now: only the list is asked for.
    let before = counting.requests(&[]).len();
    travel.far(&["cat", &id, &travel.file(&name(77))]).success();
    let heads = counting.requests(&[]).split_off(before);
    assert!(heads.iter().all(|head| head.contains("list-type")), "{heads:#?}");
    // A long file comes whole, and is what was recorded.
    let long = travel.far(&["restore", &id, &travel.file("long/1"), "--to", "here"]);
    long.success();
    let copied = find_file(&travel.fixture.project().join("here"), "1").unwrap();
    assert!(fs::read(copied).unwrap() == noise(LONG_BYTES, 2));
}

/// The bytes that a request asks for.
fn asked_bytes(head: &str) -> u64 {
    let range = head.to_lowercase();
    let Some(range) = range.lines().find_map(|line| line.strip_prefix("range: bytes=")) else {
        assert!(head.contains("list-type"), "{head}");
        return 0;
    };
    let (first, last) = range.trim().split_once('-').unwrap();
    last.parse::<u64>().unwrap() - first.parse::<u64>().unwrap() + 1
}

fn find_file(dir: &Path, name: &str) -> Option<std::path::PathBuf> {
    let mut entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.find_map(|path| match path.is_dir() {
        true => find_file(&path, name),
        false => path.file_name().is_some_and(|it| it == name).then_some(path),
    })
}

#[test]
fn an_archive_without_an_index_is_read_from_its_beginning_and_that_is_said() {
    let travel = pushed(true);
    let place = travel.fixture.path("remote-disk").join(&travel.session);
    for archive in archives(&place, "") {
        let script = "zstd -dcq \"$1\" | zstd -q > \"$1.new\" && mv \"$1.new\" \"$1\"";
        let path = place.join(&archive);
        let made = Command::new("sh").args(["-c", script, "sh"]).arg(&path).status().unwrap();
        assert!(made.success(), "{archive}");
    }
    let id = format!("disk:{}/2", travel.session);
    let done = travel.far(&["cat", &id, &travel.file(&name(5))]).success();
    assert_eq!(done.stdout, text(5, 0));
    let words = "0-full.tar.zst has no index: it is read from its beginning";
    assert!(done.says(words), "{}", done.stderr);
}

#[test]
fn no_byte_of_a_changed_archive_is_printed() {
    let travel = Travel::with(1, 3, 0);
    travel.fixture.write("long", noise(3 << 20, 9));
    travel.snapshot();
    let place = travel.plain_directory("disk");
    travel.push("disk");
    let archive = place.join(&travel.session).join(&archives(&place, &travel.session)[0]);
    let archive = match archive.to_str().unwrap().contains("0-full") {
        true => place.join(&travel.session).join(&archives(&place, &travel.session)[1]),
        false => archive,
    };
    let file = fs::File::options().read(true).write(true).open(&archive).unwrap();
    let middle = file.metadata().unwrap().len() / 2;
    let mut byte = [0];
    file.read_exact_at(&mut byte, middle).unwrap();
    file.write_all_at(&[byte[0] ^ 1], middle).unwrap();
    let id = format!("disk:{}/1", travel.session);
    let done = travel.far(&["cat", &id, &travel.file("long")]);
    assert_eq!((done.code, done.stdout.len()), (1, 0), "{}", done.stderr);
    assert!(done.says("does not come from its remote"), "{}", done.stderr);
    // A file in another frame is whole.
    travel.far(&["cat", &id, &travel.file(&name(0))]).success();
}

#[test]
fn a_cache_is_bounded_and_what_went_comes_again() {
    let travel = Travel::with(1, 3, 0);
    for part in 0..4 {
        travel.fixture.write(&format!("part{part}"), noise(1 << 20, part + 1));
    }
    travel.snapshot();
    travel.plain_directory("disk");
    travel.push("disk");
    let id = format!("disk:{}/1", travel.session);
    for round in 0..2 {
        for part in 0..4 {
            let path = travel.file(&format!("part{part}"));
            let root = travel.fixture.path("no-store").to_str().unwrap().to_owned();
            let mut command = travel.command(&["--root", &root, "cat", &id, &path]);
            let done = command.env("NONO_REMOTE_CACHE", "2500000").output().unwrap();
            assert!(done.stdout == noise(1 << 20, part + 1), "{round}, {part}");
            let used = bytes_below(&travel.cache());
            assert!(used < 2_700_000, "{used} bytes in round {round}");
        }
    }
}

fn bytes_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let bytes = |path: std::path::PathBuf| match fs::symlink_metadata(&path).unwrap() {
        found if found.is_dir() => bytes_below(&path),
        found => found.len(),
    };
    entries.map(bytes).sum()
}

/// A mount that goes with the test.
#[cfg(feature = "mount")]
struct Mounted<'a>(&'a Travel, std::path::PathBuf);

#[cfg(feature = "mount")]
impl<'a> Mounted<'a> {
    fn of(travel: &'a Travel, remote: &str) -> Self {
        let at = travel.fixture.path("mounted");
        travel.far(&["mount", "--remote", remote, at.to_str().unwrap()]).success();
        Self(travel, at)
    }
}

#[cfg(feature = "mount")]
impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = self.0.command(&["umount", self.1.to_str().unwrap()]).output();
    }
}

#[test]
#[cfg(feature = "mount")]
fn sessions_of_a_remote_are_folders_that_are_listed_with_few_requests() {
    let travel = Travel::with(2, 100, 1);
    let Some(server) = ObjectServer::start() else { return };
    let travel = travel.at(server);
    travel.fixture.record("echo more > made").success();
    let newer = travel.fixture.latest();
    let counting = FaultyServer::before(travel.server().address());
    let url = counting.url("far");
    travel.nono(&["remote", "add", "far", &url, "--recipient", &travel.recipient]).success();
    travel.nono(&["push", "far", &travel.session, &newer]).success();
    let mounted = Mounted::of(&travel, "far");
    let names = |path: &Path| {
        let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{error}: {path:?}"));
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let at = &mounted.1;
    let sessions = names(at);
    assert!(sessions.contains(&travel.session) && sessions.contains(&newer), "{sessions:?}");
    let before = counting.requests(&[]).len();
    let snapshots = names(&at.join(&travel.session));
    assert!(snapshots.contains("0") && snapshots.contains("1"), "{snapshots:?}");
    let heads = counting.requests(&[]).split_off(before);
    assert!(heads.len() <= 5, "{heads:#?}");
    let project = travel.fixture.project();
    let project = project.strip_prefix("/").unwrap();
    for (number, changed) in [("0", 0), ("1", 1)] {
        let file = at.join(&travel.session).join(number).join(project).join(name(1));
        assert_eq!(fs::read_to_string(file).unwrap(), text(1, changed));
    }
    let made = at.join(&newer).join("1").join(project).join("made");
    assert_eq!(fs::read_to_string(made).unwrap(), "more\n");
    let state = at.join(&newer).join("1").join(project);
    let same = Command::new("diff").arg("-r").arg(&state).arg(travel.fixture.project()).status();
    assert!(same.unwrap().success());
    let status = travel.nono(&["mount", "--status"]).success();
    assert!(status.stdout.contains("remote far"), "{}", status.stdout);
}
