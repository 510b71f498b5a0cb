//! Machines that go on with one session, and what others put at a place.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use super::{Travel, archives};
use crate::fixture::Finished;

/// Another store, which has pulled the session.
struct Other<'a> {
    travel: &'a Travel,
    root: String,
}

impl<'a> Other<'a> {
    fn pulls(travel: &'a Travel, remote: &str) -> Self {
        let root = travel.fixture.path("other");
        travel.pull(remote, &root, &travel.session).success();
        Self { travel, root: root.to_str().unwrap().to_owned() }
    }

    fn nono(&self, arguments: &[&str]) -> Finished {
        self.travel.nono(&[&["--root", &self.root], arguments].concat())
    }

    /// Takes a snapshot with a file of its own.
    fn goes_on(&self, file: &str) {
        self.travel.fixture.write(file, file);
        self.nono(&["snapshot", "--session", &self.travel.session]).success();
        fs::remove_file(self.travel.fixture.project().join(file)).unwrap();
    }
}

/// All archives of the session at a remote, with their bytes.
fn stored(travel: &Travel, place: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let bytes = fs::read(place.join(&travel.session).join(&name)).unwrap();
        (name, bytes)
    };
    archives(place, &travel.session).into_iter().map(read).collect()
}

#[test]
fn two_machines_that_go_on_with_one_session_do_not_overwrite_each_other() {
    let travel = Travel::with(2, 20, 1);
    let place = travel.directory("disk");
    travel.push("disk");
    let other = Other::pulls(&travel, "disk");
    other.goes_on("theirs");
    travel.snapshot();
    travel.push("disk");
    let before = stored(&travel, &place);
    let theirs = travel.roots(Path::new(&other.root));
    let session = &travel.session;
    for _ in 0..2 {
        // The same number means another snapshot, also once there are more of them.
        let pushed = other.nono(&["push", "disk", session]);
        pushed.fails(1, &format!("`nono push ADDRESS {session}`"));
        let words = "its snapshot 2 there is not the one here";
        other.nono(&["push", "disk", &format!("{session}/2"), "--full"]).fails(1, words);
        let pull = ["pull", "disk", session, "--identity", travel.identity()];
        other.nono(&pull).fails(1, "`nono --root DIR pull …`");
        assert_eq!(travel.roots(Path::new(&other.root))[&2], theirs[&2]);
        assert_eq!(stored(&travel, &place), before);
        other.goes_on("more");
    }
    // The first one goes on, and what it stores stays whole.
    travel.snapshot();
    travel.push("disk");
    travel.verify("disk").success();
    travel.arrives_whole("disk", "third");
    // What the message says keeps the other history, and lets it be had beside.
    let elsewhere = travel.fixture.path("elsewhere");
    let elsewhere = elsewhere.to_str().unwrap();
    other.nono(&["push", elsewhere, session, "--plaintext"]).success();
    let fourth = travel.fixture.path("fourth");
    let root = fourth.to_str().unwrap();
    travel.nono(&["--root", root, "pull", elsewhere, session]).success();
    assert_eq!(travel.roots(&fourth), travel.roots(Path::new(&other.root)));
}

#[test]
fn another_history_is_told_whatever_the_encryption_and_where_nothing_but_a_bucket_knows() {
    let Some(travel) = Travel::with(2, 20, 1).with_server() else { return };
    travel.cloud("cloud");
    travel.plain_directory("plain");
    let phrase = travel.fixture.path("phrase");
    fs::write(&phrase, "correct horse\n").unwrap();
    let (phrase, sealed) = (phrase.to_str().unwrap(), travel.fixture.path("sealed"));
    let add = ["remote", "add", "sealed", sealed.to_str().unwrap(), "--passphrase-file", phrase];
    travel.nono(&add).success();
    let remotes = ["cloud", "plain", "sealed"];
    for remote in remotes {
        travel.push(remote);
    }
    let other = Other::pulls(&travel, "cloud");
    other.goes_on("theirs");
    travel.snapshot();
    for remote in remotes {
        travel.push(remote);
        let pushed = other.nono(&["push", remote, &travel.session]);
        pushed.fails(1, "its snapshot 2 there is not the one here");
        // A machine with the same history finds it there.
        travel.push(remote);
    }
}

#[test]
fn a_push_leaves_the_files_of_others_alone() {
    let travel = Travel::with(1, 3, 0);
    let place = travel.directory("disk");
    let old = SystemTime::now() - Duration::from_secs(3 * 24 * 3600);
    let session = place.join(&travel.session);
    let left = format!(".tmp-{}", "0a".repeat(16));
    let (photos, foreign) = (place.join("photos"), session.join(".tmp-notes"));
    fs::create_dir(&photos).unwrap();
    travel.push("disk");
    for file in [&photos.join(&left), &photos.join(".tmp-notes"), &foreign, &session.join(&left)] {
        fs::write(file, "precious").unwrap();
        set_private(file);
        fs::File::open(file).unwrap().set_modified(old).unwrap();
    }
    travel.push("disk");
    assert!(photos.join(&left).exists() && photos.join(".tmp-notes").exists());
    assert!(foreign.exists());
    assert!(!session.join(&left).exists(), "what a push has left is not removed");
}

fn set_private(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, PermissionsExt::from_mode(0o600)).unwrap();
}

#[test]
fn an_empty_or_foreign_file_in_the_place_of_an_archive_is_none_and_costs_no_good_one() {
    let travel = Travel::with(2, 20, 1);
    let place = travel.plain_directory("disk");
    travel.push("disk");
    let session = place.join(&travel.session);
    let good = session.join("1-delta-0.tar.zst");
    // Cut off at once: it counts as missing, and what lies there is not replaced unasked.
    fs::write(session.join("1-full.tar.zst"), "").unwrap();
    let show = travel.nono(&["remote", "show", "disk", "--json"]).success().json();
    assert_eq!(show["archive_count"], 2, "{show:#}");
    assert_eq!(show["cut_off"].as_array().unwrap().len(), 1, "{show:#}");
    travel.nono(&["remote", "verify", "disk"]).fails(1, "");
    let push = ["push", "disk", &travel.session];
    travel.nono(&[&push[..], &["--full"]].concat()).fails(1, "remove it, then push again");
    travel.nono(&["remote", "cleanup", "disk", "--keep", "1", "--yes"]).success();
    assert!(good.exists() && session.join("0-full.tar.zst").exists());
    // Junk that is as long as an archive: the other one of the same snapshot is read.
    fs::write(session.join("1-full.tar.zst"), "junk ".repeat(100)).unwrap();
    let root = travel.fixture.path("beside");
    travel.pull("disk", &root, &travel.session).success();
    assert_eq!(travel.roots(&root), travel.roots(&travel.fixture.store()));
    travel.nono(&["remote", "cleanup", "disk", "--keep", "1", "--yes"]).success();
    assert!(good.exists() && session.join("0-full.tar.zst").exists());
    let junk = session.join("1-full.tar.zst");
    fs::remove_file(&junk).unwrap();
    fs::rename(&good, &junk).unwrap();
    fs::write(&good, "junk ".repeat(100)).unwrap();
    // Alone, it is named, and the push does not count it as stored.
    fs::remove_file(&junk).unwrap();
    travel.nono(&push).fails(1, "1-delta-0.tar.zst at");
    fs::remove_file(&good).unwrap();
    travel.nono(&push).success();
    travel.nono(&["remote", "verify", "disk"]).success();
}

#[test]
fn an_archive_without_encryption_is_none_of_an_encrypted_remote() {
    let travel = Travel::with(1, 5, 0);
    let place = travel.directory("disk");
    travel.push("disk");
    let sealed = fs::read_dir(place.join(&travel.session)).unwrap().count();
    assert_eq!(sealed, 1);
    let id = format!("{}/0", travel.session);
    let foreign = place.join(&travel.session).join("0-full.tar.zst");
    let out = foreign.to_str().unwrap();
    travel.nono(&["archive", "create", &id, "-o", out]).success();
    let verified = travel.verify("disk");
    assert_eq!(verified.code, 1, "{}", verified.stderr);
    let key = format!("{}/0-full.tar.zst", travel.session);
    assert_eq!(verified.json()["unencrypted"], serde_json::json!([key]));
    // Alone, it is not read at all.
    fs::remove_file(place.join(&travel.session).join("0-full.tar.zst.age")).unwrap();
    let root = travel.fixture.path("nothing");
    let pulled = travel.pull("disk", &root, &travel.session);
    assert_eq!(pulled.code, 1, "{}", pulled.stderr);
    assert!(!root.join(&travel.session).exists());
    let push = travel.push("disk");
    assert_eq!(push["snapshots"][0]["outcome"], "stored", "{push:#}");
}

#[test]
fn sessions_are_kept_by_their_time_and_those_without_one_stay() {
    let travel = Travel::with(1, 5, 0);
    let place = travel.plain_directory("disk");
    travel.push("disk");
    let archive = place.join(&travel.session).join("0-full.tar.zst");
    for other in ["852ea2e914272a29", "zz-old", "20200101-000000-1"] {
        fs::create_dir(place.join(other)).unwrap();
        fs::copy(&archive, place.join(other).join("0-full.tar.zst")).unwrap();
    }
    let cleanup = ["remote", "cleanup", "disk", "--keep-sessions", "1", "--yes"];
    let said = travel.nono(&cleanup).success();
    assert!(said.stderr.contains("zz-old stays"), "{}", said.stderr);
    let left = |id: &str| place.join(id).exists();
    assert!(left(&travel.session) && left("zz-old") && left("852ea2e914272a29"));
    assert!(!left("20200101-000000-1"));
}

#[test]
fn without_a_key_one_line_says_so_before_anything_is_read() {
    let travel = Travel::with(2, 5, 1);
    travel.directory("disk");
    travel.push("disk");
    let root = travel.fixture.path("empty");
    let root = root.to_str().unwrap();
    let words = format!("the archives of disk are encrypted for {}", travel.recipient);
    travel.nono(&["remote", "verify", "disk"]).fails(1, &words);
    let pulled = travel.nono(&["--root", root, "pull", "disk", "--all"]);
    assert_eq!(pulled.stderr.lines().filter(|line| line.contains("encrypted")).count(), 1);
    pulled.fails(1, "--identity FILE");
}

#[test]
fn a_private_key_is_never_repeated() {
    let travel = Travel::with(1, 5, 0);
    let key = fs::read_to_string(travel.identity()).unwrap();
    let secret = key.lines().find(|line| line.starts_with("AGE-SECRET-KEY")).unwrap();
    for command in [&["remote", "add", "a", "./a"][..], &["push", "./a"]] {
        for secret in [secret.to_owned(), secret.to_lowercase()] {
            let refused = travel.nono(&[command, &["--recipient", &secret]].concat());
            assert!(!refused.says(&secret), "{}", refused.stderr);
            refused.fails(2, "private key");
        }
    }
    travel.directory("disk");
    let config = travel.fixture.path("home/.config/nono/config.toml");
    let text = fs::read_to_string(&config).unwrap().replace(&travel.recipient, secret);
    fs::write(&config, text).unwrap();
    for command in [&["remote", "list"][..], &["remote", "show", "disk"], &["push", "disk"]] {
        let refused = travel.nono(command);
        assert!(!refused.says(secret), "{}", refused.stderr);
        refused.fails(2, "private key");
    }
}
