//! Archives at remotes: pushed to a directory and to an S3 server, pulled into an empty store,
//! verified, cleaned up.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixture::{Finished, Fixture, finished};
use crate::object_server::{ObjectServer, SECRET};

/// Files of the tree that changes from snapshot to snapshot.
const FILES: usize = 1_000;
/// Files that change: one in a hundred.
const CHANGED: usize = FILES / 100;

/// A project with snapshots in one session, and places to push them to.
pub struct Travel {
    pub fixture: Fixture,
    pub session: String,
    identity: PathBuf,
    pub recipient: String,
    server: Option<ObjectServer>,
}

impl Travel {
    /// A session with so many snapshots of a tree of `files` files, `changed` of them new each
    /// time.
    pub fn with(snapshots: usize, files: usize, changed: usize) -> Self {
        let fixture = Fixture::new();
        for file in 0..files {
            fixture.write(&name(file), text(file, 0));
        }
        fixture.nono(&["snapshot"]).success();
        let session = fixture.latest();
        let identity = fixture.path("key.txt");
        let made = Command::new("age-keygen").arg("-o").arg(&identity).output().unwrap();
        assert!(made.status.success());
        let key = fs::read_to_string(&identity).unwrap();
        let recipient = key.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap();
        let recipient = recipient.to_owned();
        let travel = Self { fixture, session, identity, recipient, server: None };
        for number in 1..snapshots {
            travel.change(number, changed, files);
            travel.snapshot();
        }
        travel
    }

    fn with_server(mut self) -> Option<Self> {
        self.server = Some(ObjectServer::start()?);
        Some(self)
    }

    fn server(&self) -> &ObjectServer {
        self.server.as_ref().unwrap()
    }

    /// Changes files of the tree; which ones depends on the number.
    pub fn change(&self, number: usize, changed: usize, files: usize) {
        for at in 0..changed {
            let file = (number * changed + at) % files;
            self.fixture.write(&name(file), text(file, number));
        }
    }

    pub fn snapshot(&self) {
        self.fixture.nono(&["snapshot", "--session", &self.session]).success();
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.fixture.command(arguments);
        if let Some(server) = &self.server {
            server.allow(&mut command);
        }
        command
    }

    /// Runs the program; whatever it says, it never repeats the secret of the server.
    pub fn nono(&self, arguments: &[&str]) -> Finished {
        let done = finished(self.command(arguments).output().unwrap());
        assert!(!done.says(SECRET), "{}{}", done.stdout, done.stderr);
        done
    }

    fn identity(&self) -> &str {
        self.identity.to_str().unwrap()
    }

    /// A named remote in a directory, with archives for this test's recipient.
    pub fn directory(&self, remote: &str) -> PathBuf {
        let place = self.fixture.path(&format!("remote-{remote}"));
        let recipient = &self.recipient;
        let add = ["remote", "add", remote, place.to_str().unwrap(), "--recipient", recipient];
        self.nono(&add).success();
        place
    }

    /// A named remote in a directory, without encryption.
    pub fn plain_directory(&self, remote: &str) -> PathBuf {
        let place = self.fixture.path(&format!("remote-{remote}"));
        self.nono(&["remote", "add", remote, place.to_str().unwrap(), "--plaintext"]).success();
        place
    }

    pub fn push(&self, remote: &str) -> Value {
        self.nono(&["push", remote, &self.session, "--json"]).success().json()
    }

    fn pull(&self, remote: &str, root: &Path, what: &str) -> Finished {
        let root = root.to_str().unwrap();
        self.nono(&["--root", root, "pull", remote, what, "--identity", self.identity(), "--json"])
    }

    pub fn verify(&self, remote: &str) -> Finished {
        self.nono(&["remote", "verify", remote, "--identity", self.identity(), "--json"])
    }

    /// The Merkle roots of the session's snapshots in a store, by number.
    pub fn roots(&self, root: &Path) -> BTreeMap<u64, String> {
        let root = root.to_str().unwrap();
        let shown = self.nono(&["--root", root, "rollback", "show", &self.session, "--json"]);
        let shown = shown.success().json();
        let snapshots = shown["snapshots"].as_array().unwrap().iter();
        snapshots
            .map(|one| {
                (one["number"].as_u64().unwrap(), one["merkle_root"].as_str().unwrap().to_owned())
            })
            .collect()
    }

    /// Pulls all of the session into a store of its own, and checks that it is the same.
    pub fn arrives_whole(&self, remote: &str, store: &str) {
        let root = self.fixture.path(store);
        self.pull(remote, &root, &self.session).success();
        assert_eq!(self.roots(&root), self.roots(&self.fixture.store()));
        let root = root.to_str().unwrap();
        self.nono(&["--root", root, "rollback", "verify", &self.session]).success();
    }
}

fn name(file: usize) -> String {
    format!("d{}/f{file}", file % 20)
}

fn text(file: usize, number: usize) -> String {
    format!("file {file} as of {number}\n").repeat(1 + file % 5)
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < patience, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Names of the archives in a directory remote, sorted.
pub fn archives(place: &Path, session: &str) -> Vec<String> {
    let listed = fs::read_dir(place.join(session)).into_iter().flatten();
    let mut names: Vec<_> =
        listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The document of an archive that is not encrypted, read by ordinary programs.
fn delta_manifest(archive: &Path) -> Value {
    let script = "zstd -dcq \"$1\" | tar -xO meta/delta-manifest.json";
    let read = Command::new("sh").args(["-c", script, "sh"]).arg(archive).output().unwrap();
    serde_json::from_slice(&read.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&read.stderr)))
}

#[test]
fn a_place_is_refused_as_long_as_nothing_is_said_about_encryption() {
    let travel = Travel::with(1, 3, 0);
    let place = travel.fixture.path("place");
    let place = place.to_str().unwrap();
    travel.nono(&["remote", "add", "a", place]).fails(2, "--plaintext");
    travel.nono(&["push", place, &travel.session]).fails(2, "--plaintext");
    assert!(!Path::new(place).exists());
    travel.nono(&["remote", "add", "a", place, "--recipient", "nobody"]).fails(2, "nobody");
    travel.nono(&["remote", "add", "a", place, "--plaintext"]).success();
    travel.nono(&["remote", "add", "a", place, "--plaintext"]).fails(2, "already");
    // Said once, also for the path.
    travel.nono(&["push", place, &travel.session]).success();
    assert_eq!(archives(Path::new(place), &travel.session), ["0-full.tar.zst"]);
    let list = travel.nono(&["remote", "list", "--json"]).success().json();
    assert_eq!(list[0]["name"], "a");
    travel.nono(&["remote", "remove", "a"]).success();
    travel.nono(&["push", "a"]).fails(2, "there is no remote");
    travel.nono(&["push", place]).fails(2, "--plaintext");
}

#[test]
fn credentials_in_a_url_are_refused_and_never_repeated() {
    let travel = Travel::with(1, 3, 0);
    for url in [
        format!("s3://AKIA:{SECRET}@bucket/x"),
        format!("s3://bucket/x?secret={SECRET}"),
        format!("s3://bucket?endpoint=http://u:{SECRET}@host"),
        format!("https://a.blob.core.windows.net/c?sig={SECRET}"),
    ] {
        let added = travel.nono(&["remote", "add", "a", &url, "--plaintext"]);
        assert_eq!(added.code, 2, "{}", added.stderr);
        assert_eq!(travel.nono(&["push", &url, &travel.session]).code, 2);
    }
    // A server that nobody runs: the reason has the place in it, and no credential.
    let mut push = travel.fixture.command(&[
        "push",
        "s3://bucket/x?endpoint=http://127.0.0.1:9&region=r",
        &travel.session,
        "--plaintext",
    ]);
    push.env("AWS_ACCESS_KEY_ID", "AKIA").env("AWS_SECRET_ACCESS_KEY", SECRET);
    let failed = finished(push.output().unwrap());
    assert!(!failed.says(SECRET), "{}", failed.stderr);
    failed.fails(1, "s3://bucket/x");
}

#[test]
fn ten_snapshots_pushed_to_a_directory_and_to_s3_come_back_with_the_same_roots() {
    let Some(travel) = Travel::with(10, FILES, CHANGED).with_server() else { return };
    travel.directory("disk");
    let url = travel.server().url("deep/folder");
    let add = ["remote", "add", "cloud", &url, "--recipient", &travel.recipient];
    travel.nono(&add).success();
    for remote in ["disk", "cloud"] {
        let report = travel.push(remote);
        let pushed = report["snapshots"].as_array().unwrap();
        assert_eq!(pushed.len(), 10);
        assert!(pushed.iter().all(|one| one["outcome"] == "stored"), "{report:#}");
        let again = travel.push(remote);
        let pushed = again["snapshots"].as_array().unwrap();
        assert!(pushed.iter().all(|one| one["outcome"] == "already_there"), "{again:#}");
        travel.verify(remote).success();
        travel.arrives_whole(remote, &format!("store-{remote}"));
    }
}

#[test]
fn a_chain_has_ten_deltas_at_most_and_a_great_change_is_full() {
    let travel = Travel::with(12, 100, 1);
    let place = travel.plain_directory("disk");
    // Six of ten files changed, then eight.
    for (number, changed) in [(12, 60), (13, 80)] {
        travel.change(number, changed, 100);
        travel.snapshot();
    }
    travel.push("disk");
    let names = archives(&place, &travel.session);
    for (name, base, depth) in [
        ("0-full.tar.zst", "0", 0),
        ("1-delta-0.tar.zst", "0", 1),
        ("10-delta-9.tar.zst", "0", 10),
        ("11-full.tar.zst", "11", 0),
        ("12-delta-11.tar.zst", "11", 1),
        ("13-full.tar.zst", "13", 0),
    ] {
        assert!(names.iter().any(|known| known == name), "{name} is not in {names:?}");
        let manifest = delta_manifest(&place.join(&travel.session).join(name));
        assert_eq!(manifest["chainDepth"], depth, "{name}");
        let ends_with = |id: &Value| id.as_str().unwrap().ends_with(&format!("/{base}"));
        assert!(ends_with(&manifest["baseId"]), "{name}: {}", manifest["baseId"]);
        assert_eq!(manifest["resultHashes"]["count"], 100, "{name}");
        assert_eq!(manifest["stats"]["totalFiles"], 100, "{name}");
    }
    assert_eq!(names.len(), 14);
    travel.nono(&["push", "disk", &format!("{}/12", travel.session), "--full"]).success();
    assert!(archives(&place, &travel.session).contains(&"12-full.tar.zst".to_owned()));
    travel.arrives_whole("disk", "store-2");
}

#[test]
fn a_push_says_what_changed_what_it_saved_and_what_was_stored() {
    let travel = Travel::with(1, 50, 0);
    travel.directory("disk");
    travel.nono(&["push", "disk", &travel.session]).success();
    travel.fixture.write("new", "x");
    travel.change(1, 2, 50);
    fs::remove_file(travel.fixture.project().join(name(30))).unwrap();
    travel.snapshot();
    let said = travel.nono(&["push", "disk", &travel.session]).success();
    for line in [
        "Changes: +1 added, ~2 modified, -1 removed, 47 unchanged",
        "vs full snapshot",
        "Encrypted & stored (",
        "1 archive stored",
        "1 was there already",
    ] {
        assert!(said.stderr.contains(line), "{line:?} is not in {}", said.stderr);
    }
}

#[test]
fn after_a_delta_is_gone_verify_names_what_cannot_be_had_and_a_push_mends_it() {
    let travel = Travel::with(5, 20, 1);
    let place = travel.directory("disk");
    travel.push("disk");
    let gone = place.join(&travel.session).join("2-delta-1.tar.zst.age");
    fs::remove_file(&gone).unwrap();
    let broken = travel.verify("disk");
    assert_eq!(broken.code, 1, "{}", broken.stderr);
    let report = broken.json();
    let lost = |number: u64| {
        let problems = report["problems"].as_array().unwrap();
        problems.iter().any(|problem| problem["snapshot"] == number)
    };
    assert!(lost(3) && lost(4), "{report:#}");
    assert!(!lost(0) && !lost(1), "{report:#}");
    // What can be had comes, and the rest is named.
    let root = travel.fixture.path("part");
    let pulled = travel.pull("disk", &root, &travel.session);
    assert_eq!(pulled.code, 1, "{}", pulled.stderr);
    assert_eq!(travel.roots(&root).keys().copied().collect::<Vec<_>>(), [0, 1]);
    travel.push("disk");
    travel.verify("disk").success();
    // A session that is there is completed.
    travel.pull("disk", &root, &travel.session).success();
    assert_eq!(travel.roots(&root), travel.roots(&travel.fixture.store()));
}

#[test]
fn a_damaged_or_foreign_archive_and_a_wrong_key_are_named() {
    let travel = Travel::with(3, 20, 1);
    let place = travel.directory("disk");
    travel.push("disk");
    let session = place.join(&travel.session);
    let delta = session.join("1-delta-0.tar.zst.age");
    let whole = fs::read(&delta).unwrap();
    let mut flipped = whole.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 1;
    let other = Travel::with(1, 3, 0);
    let key = other.identity().to_owned();
    let wrong = travel.nono(&["remote", "verify", "disk", "--identity", &key, "--json"]);
    assert_eq!(wrong.code, 1, "{}", wrong.stderr);
    for bytes in [&flipped[..], &whole[..whole.len() - 1], b"", b"no archive"] {
        fs::write(&delta, bytes).unwrap();
        let report = travel.verify("disk");
        assert_eq!(report.code, 1, "{}", report.stderr);
        let report = report.json();
        let problems = report["problems"].as_array().unwrap();
        assert!(problems.iter().any(|one| one["snapshot"] == 1), "{report:#}");
        assert!(problems.iter().any(|one| one["snapshot"] == 2), "{report:#}");
        // Nothing half-made appears.
        let root = travel.fixture.path("damaged");
        let pulled = travel.pull("disk", &root, &format!("{}/2", travel.session));
        assert_eq!(pulled.code, 1, "{}", pulled.stderr);
        assert!(!root.join(&travel.session).exists());
    }
}

#[test]
fn one_snapshot_comes_alone_with_the_archives_that_it_needs() {
    let travel = Travel::with(6, 20, 1);
    let place = travel.directory("disk");
    travel.push("disk");
    // Nobody may need these.
    for name in ["4-delta-3.tar.zst.age", "5-delta-4.tar.zst.age"] {
        fs::write(place.join(&travel.session).join(name), "broken").unwrap();
    }
    let root = travel.fixture.path("one");
    travel.pull("disk", &root, &format!("{}/3", travel.session)).success();
    let all = travel.roots(&travel.fixture.store());
    let here = travel.roots(&root);
    assert_eq!(here.get(&3), all.get(&3));
    let root = root.to_str().unwrap();
    travel.nono(&["--root", root, "rollback", "verify", &travel.session]).success();
    // The state from before is not here, and nothing takes its place unasked.
    let copy = travel.fixture.path("copy");
    let restore = |id: &str| {
        let to = ["--to", copy.to_str().unwrap()];
        travel.nono(&[&["--root", root, "rollback", "restore", id], &to[..]].concat())
    };
    let refused = restore(&travel.session);
    assert!(!copy.exists());
    let named = format!("these can be restored: {}/3\n", travel.session);
    assert!(refused.stderr.contains(&named), "{}", refused.stderr);
    refused.fails(1, "not received");
    restore(&format!("{}/3", travel.session)).success();
    assert_eq!(fs::read_to_string(copy.join(name(15))).unwrap(), text(15, 0));
    assert_eq!(fs::read_to_string(copy.join(name(3))).unwrap(), text(3, 3));
}

#[test]
fn cleanup_keeps_what_a_kept_snapshot_needs() {
    let travel = Travel::with(6, 20, 1);
    let place = travel.directory("disk");
    travel.push("disk");
    travel.nono(&["push", "disk", &format!("{}/3", travel.session), "--full"]).success();
    let before = archives(&place, &travel.session);
    travel.nono(&["remote", "cleanup", "disk", "--keep", "2", "--dry-run"]).success();
    assert_eq!(archives(&place, &travel.session), before);
    travel.nono(&["remote", "cleanup", "disk", "--keep", "2"]).success();
    // 4 and 5 are kept, and 3 is the base of both.
    assert_eq!(
        archives(&place, &travel.session),
        ["3-full.tar.zst.age", "4-delta-3.tar.zst.age", "5-delta-4.tar.zst.age"]
    );
    travel.verify("disk").success();
    travel.nono(&["remote", "cleanup", "disk", "--keep-sessions", "0"]).success();
    assert_eq!(archives(&place, &travel.session), [] as [String; 0]);
}

#[test]
fn a_push_that_is_killed_at_any_moment_harms_nothing_and_the_next_one_completes() {
    let travel = Travel::with(3, 20, 1);
    let mut moments = 0;
    for point in 1.. {
        let remote = format!("disk{point}");
        let place = travel.directory(&remote);
        let mut push = travel.command(&["push", &remote, &travel.session]);
        let killed = push.env("NONO_FAIL_POINT", point.to_string()).output().unwrap();
        travel.verify(&remote).success();
        travel.push(&remote);
        assert_eq!(archives(&place, &travel.session).len(), 3, "at point {point}");
        travel.verify(&remote).success();
        fs::remove_dir_all(&place).unwrap();
        moments += 1;
        if killed.status.success() {
            break;
        }
    }
    assert!(moments > 15, "{moments}");
}

#[test]
fn a_pull_that_is_killed_at_any_moment_leaves_a_store_that_verifies_and_the_next_one_completes() {
    let travel = Travel::with(3, 20, 1);
    travel.directory("disk");
    travel.push("disk");
    let mut moments = 0;
    for point in 1.. {
        let root = travel.fixture.path(&format!("store-{point}"));
        let text = root.to_str().unwrap();
        let pull =
            ["--root", text, "pull", "disk", &travel.session, "--identity", travel.identity()];
        let mut command = travel.command(&pull);
        let killed = command.env("NONO_FAIL_POINT", point.to_string()).output().unwrap();
        if root.join(&travel.session).exists() {
            travel.nono(&["--root", text, "rollback", "verify", &travel.session]).success();
        }
        travel.pull("disk", &root, &travel.session).success();
        assert_eq!(travel.roots(&root), travel.roots(&travel.fixture.store()), "at {point}");
        fs::remove_dir_all(&root).unwrap();
        moments += 1;
        if killed.status.success() {
            break;
        }
    }
    assert!(moments > 15, "{moments}");
}

#[test]
fn a_push_to_s3_that_is_killed_at_any_request_is_completed_by_the_next_one() {
    let Some(travel) = Travel::with(3, 20, 1).with_server() else { return };
    // More than one part: the parts of a killed upload have to go.
    let mut state = 88_172_645_463_325_252_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        // What repeats would be compressed away.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(18 << 20)
    .collect();
    travel.fixture.write("large", noise);
    travel.snapshot();
    for request in 1..=12 {
        let remote = format!("cloud{request}");
        let url = travel.server().url(&remote);
        travel.nono(&["remote", "add", &remote, &url, "--plaintext"]).success();
        travel.server().forget_requests();
        let mut push = travel.command(&["push", &remote, &travel.session]);
        let mut push = push
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        for _ in 0..request {
            travel.server().next_request();
        }
        push.kill().unwrap();
        push.wait().unwrap();
        travel.nono(&["remote", "verify", &remote]).success();
        travel.push(&remote);
        travel.nono(&["remote", "verify", &remote]).success();
        let notes = travel.fixture.path("home/.local/state/nono/uploads");
        let left = fs::read_dir(notes).into_iter().flatten().count();
        assert_eq!(left, 0, "notes of uploads are left after request {request}");
    }
}

#[test]
fn two_pushers_at_once_leave_one_whole_archive_of_each_snapshot() {
    let Some(travel) = Travel::with(4, 50, 1).with_server() else { return };
    travel.directory("disk");
    let url = travel.server().url("two");
    travel.nono(&["remote", "add", "cloud", &url, "--recipient", &travel.recipient]).success();
    for remote in ["disk", "cloud"] {
        let pushers: Vec<_> = (0..2)
            .map(|_| travel.command(&["push", remote, &travel.session, "--json"]).spawn().unwrap())
            .collect();
        for mut pusher in pushers {
            assert!(pusher.wait().unwrap().success());
        }
        travel.verify(remote).success();
        let shown = travel.nono(&["remote", "show", remote, "--json"]).success().json();
        assert_eq!(shown["archive_count"], 4, "{shown:#}");
        travel.arrives_whole(remote, &format!("two-{remote}"));
    }
}

#[test]
fn a_push_after_a_run_never_fails_the_run_and_its_failure_is_shown_until_one_succeeds() {
    let travel = Travel::with(1, 3, 0);
    let place = travel.directory("disk");
    travel.nono(&["config", "set", "push_after_run", "disk"]).success();
    let aside = travel.fixture.path("aside");
    fs::rename(&place, &aside).unwrap();
    travel.fixture.record("echo x > made").success();
    let session = travel.fixture.latest();
    let notes = travel.fixture.path("home/.local/state/nono/pushes");
    eventually("the failure is noted", || fs::read_dir(&notes).into_iter().flatten().count() == 1);
    let status = travel.nono(&["status", "--json"]).success().json();
    assert_eq!(status["failed_pushes"][0]["session_id"], session.as_str(), "{status:#}");
    travel.nono(&["doctor"]).fails(1, "");
    fs::rename(&aside, &place).unwrap();
    travel.nono(&["push", "disk", &session]).success();
    let status = travel.nono(&["status", "--json"]).success().json();
    assert_eq!(status["failed_pushes"], Value::Array(vec![]));
    travel.fixture.record("echo y > made").success();
    let session = travel.fixture.latest();
    eventually("the session is pushed", || archives(&place, &session).len() == 2);
    travel.verify("disk").success();
}
