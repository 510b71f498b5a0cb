//! Machines that go on with one session, and what others put at a place.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime};

use super::{Travel, archives};
use crate::fixture::{Finished, finished};
use crate::held::Held;

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

/// A session of which two stores have two histories after snapshot 0. No remote has any but the
/// first.
fn two_histories(ours: usize, theirs: usize) -> Travel {
    let travel = Travel::with(1, 20, 1);
    travel.plain_directory("seed");
    travel.push("seed");
    let other = Other::pulls(&travel, "seed");
    for number in 0..theirs {
        other.goes_on(&format!("theirs{number}"));
    }
    for number in 1..=ours {
        travel.change(number, 1, 20);
        travel.snapshot();
    }
    travel
}

fn other(travel: &Travel) -> Other<'_> {
    Other { travel, root: travel.fixture.path("other").to_str().unwrap().to_owned() }
}

/// Everything below a directory, with the bytes of files.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            match fs::symlink_metadata(&path).unwrap().is_dir() {
                true => open.push(path),
                false => drop(found.insert(path.clone(), fs::read(&path).unwrap_or_default())),
            }
        }
    }
    found
}

#[test]
fn a_delta_of_another_history_is_never_added_to_a_session() {
    let travel = two_histories(1, 3);
    let (ours, theirs) = (travel.plain_directory("ours"), travel.plain_directory("theirs"));
    let (session, other) = (&travel.session, other(&travel));
    travel.push("ours");
    other.nono(&["push", "theirs", session]).success();
    // A user merges the folders of two remotes.
    for name in ["2-delta-1.tar.zst", "3-delta-2.tar.zst"] {
        fs::copy(theirs.join(session).join(name), ours.join(session).join(name)).unwrap();
    }
    let store = travel.fixture.store();
    let before = contents(&store.join(session));
    assert!(before.len() > 3, "{before:?}");
    let roots = travel.roots(&store);
    let delta = ours.join(session).join("2-delta-1.tar.zst");
    let full = travel.fixture.path("full.tar.zst");
    let full = full.to_str().unwrap();
    other.nono(&["archive", "create", &format!("{session}/3"), "-o", full, "--full"]).success();
    let words = "snapshot 2 in the archive does not follow the snapshot 1 here";
    for (command, words) in [
        (&["pull", "ours", "--all"][..], words),
        (&["pull", "ours", session], words),
        (&["pull", "ours", &format!("{session}/2")], words),
        (&["pull", "ours", &format!("{session}/3")], words),
        (&["archive", "import", delta.to_str().unwrap()], words),
        (&["archive", "import", full], "its snapshot 1 is not the one in the archive"),
    ] {
        let refused = travel.nono(command);
        assert!(refused.stderr.contains("`--root DIR`"), "{command:?}: {}", refused.stderr);
        refused.fails(1, words);
        assert!(contents(&store.join(session)) == before, "{command:?} changed the session");
    }
    travel.nono(&["rollback", "verify", session]).success();
    travel.nono(&["rollback", "cleanup", "--yes"]).success();
    // A store that has nothing of it gets the snapshots that are a chain.
    let is_chain = |name: &str| {
        let root = travel.fixture.path(name);
        let pulled = travel.pull("ours", &root, session);
        assert_eq!(pulled.code, 1, "{}", pulled.stderr);
        let report = pulled.json();
        assert_eq!(report["sessions"][0]["snapshots"], serde_json::json!([0, 1]), "{report:#}");
        let not_pulled = report["sessions"][0]["not_pulled"].as_array().unwrap();
        let numbers: Vec<_> = not_pulled.iter().map(|it| it["snapshot"].as_u64()).collect();
        assert_eq!(numbers, [Some(2), Some(3)], "{report:#}");
        assert_eq!(travel.roots(&root), roots);
        travel.nono(&["--root", root.to_str().unwrap(), "rollback", "verify", session]).success();
    };
    is_chain("delta");
    fs::remove_file(ours.join(session).join("3-delta-2.tar.zst")).unwrap();
    fs::copy(full, ours.join(session).join("3-full.tar.zst")).unwrap();
    is_chain("full");
    // One archive of several is enough, wherever the others come from.
    for name in ["2-delta-1.tar.zst", "3-full.tar.zst"] {
        fs::remove_file(ours.join(session).join(name)).unwrap();
    }
    travel.snapshot();
    travel.push("ours");
    other.nono(&["archive", "create", &format!("{session}/1"), "-o", full, "--full", "--force"]);
    fs::copy(full, ours.join(session).join("1-full.tar.zst")).unwrap();
    travel.arrives_whole("ours", "beside");
}

/// Lets a push of the other store go on until it stores an archive of which the name begins so.
fn held_push(travel: &Travel, root: &Path, place: &Path, name: &str) -> (Child, Held) {
    let root = root.to_str().unwrap();
    let push = ["--root", root, "push", place.to_str().unwrap(), &travel.session, "--plaintext"];
    let mut command = travel.command(&push);
    let held = Held::at(&format!("name={name}"), ":hold", &travel.fixture, &mut command);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    (piped.spawn().unwrap(), held)
}

/// The place verifies, all of it arrives in an empty store, and there a push that said so has
/// stored its history.
fn no_push_lied(travel: &Travel, place: &Path, pushes: &[(&Path, &Finished)]) {
    let at = place.to_str().unwrap();
    let said = |done: &Finished| format!("{}: {}", done.code, done.stderr);
    let said: Vec<_> = pushes.iter().map(|(_, done)| said(done)).collect();
    let listed = archives(place, &travel.session);
    let verified = travel.nono(&["remote", "verify", at]);
    assert_eq!(verified.code, 0, "{listed:?} {said:#?}\n{}{}", verified.stdout, verified.stderr);
    let root = travel.fixture.path("arrived");
    let _ = fs::remove_dir_all(&root);
    let pull = ["--root", root.to_str().unwrap(), "pull", at, "--all"];
    let pulled = travel.nono(&pull);
    assert_eq!(pulled.code, 0, "{listed:?} {said:#?}\n{}", pulled.stderr);
    let arrived = travel.roots(&root);
    for (store, done) in pushes {
        match done.code {
            0 => assert_eq!(arrived, travel.roots(store), "{listed:?} {said:#?}"),
            _ => assert!(done.stderr.contains("goes on differently at"), "{said:#?}"),
        }
    }
}

#[test]
fn of_two_pushers_with_two_histories_one_is_refused_whenever_the_other_one_comes() {
    let travel = two_histories(3, 4);
    let (ours, theirs) = (travel.fixture.store(), travel.fixture.path("other"));
    for (at, name) in ["0-full", "1-delta-0", "2-delta-1", "4-delta-3"].into_iter().enumerate() {
        let place = travel.fixture.path(&format!("place{at}"));
        let (pusher, held) = held_push(&travel, &theirs, &place, name);
        let waiting = held.wait();
        let push = ["push", place.to_str().unwrap(), &travel.session, "--plaintext"];
        let first = travel.nono(&push);
        drop(waiting);
        let second = finished(pusher.wait_with_output().unwrap());
        no_push_lied(&travel, &place, &[(&ours, &first), (&theirs, &second)]);
        // The one of which snapshot 1 came first.
        let codes = if at < 2 { (0, 1) } else { (1, 0) };
        assert_eq!((first.code, second.code), codes, "{name}: {}{}", first.stderr, second.stderr);
    }
}

#[test]
fn of_two_pushers_one_takes_a_full_archive_back_where_the_other_one_has_a_delta() {
    for is_full_held in [true, false] {
        let travel = two_histories(0, 2);
        // Nearly all files are others.
        travel.change(1, 20, 20);
        travel.snapshot();
        travel.change(2, 1, 20);
        travel.snapshot();
        let (full, deltas) = (travel.fixture.store(), travel.fixture.path("other"));
        let place = travel.fixture.path("place");
        let (slow, fast, name) = match is_full_held {
            true => (&full, &deltas, "1-full"),
            false => (&deltas, &full, "1-delta-0"),
        };
        let (pusher, held) = held_push(&travel, slow, &place, name);
        let waiting = held.wait();
        let push = ["push", place.to_str().unwrap(), &travel.session, "--plaintext"];
        let root = fast.to_str().unwrap();
        let first = travel.nono(&[&["--root", root], &push[..]].concat()).success();
        drop(waiting);
        let second = finished(pusher.wait_with_output().unwrap());
        assert_eq!(second.code, 1, "{}", second.stderr);
        let listed = archives(&place, &travel.session);
        assert_eq!(listed.len(), 3, "{listed:?}");
        no_push_lied(&travel, &place, &[(fast, &first), (slow, &second)]);
    }
}

#[test]
fn two_pushers_with_two_histories_at_once_make_no_mixture() {
    let travel = two_histories(3, 3);
    travel.change(1, 20, 20);
    travel.snapshot();
    let (ours, theirs) = (travel.fixture.store(), travel.fixture.path("other"));
    for round in 0..12 {
        let place = travel.fixture.path(&format!("place{round}"));
        let at = place.to_str().unwrap();
        let begin = |root: &Path| {
            let root = root.to_str().unwrap();
            let push = ["--root", root, "push", at, &travel.session, "--plaintext"];
            let mut command = travel.command(&push);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let pushers = [begin(&ours), begin(&theirs)];
        let [first, second] = pushers.map(|pusher| finished(pusher.wait_with_output().unwrap()));
        no_push_lied(&travel, &place, &[(&ours, &first), (&theirs, &second)]);
        assert!(first.code + second.code > 0, "both say that they stored another history");
    }
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
    // The commands of the message keep the other history, and let it be had beside.
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
fn a_place_in_the_store_is_refused() {
    let travel = Travel::with(1, 3, 0);
    let store = travel.fixture.store();
    let before = contents(&store.join(&travel.session));
    let link = travel.fixture.path("link");
    std::os::unix::fs::symlink(&store, &link).unwrap();
    let new = store.join("new");
    for place in [store.clone(), store.join(&travel.session), link, new.clone()] {
        let push = ["push", place.to_str().unwrap(), &travel.session, "--plaintext"];
        travel.nono(&push).fails(1, "archives there would go with their sessions");
        assert!(!new.exists());
        assert!(contents(&store.join(&travel.session)) == before);
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
