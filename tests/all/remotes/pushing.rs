//! Pushes: which archives there are, what they are, and what is said of them.

use std::fs;

use serde_json::Value;

use super::{CHANGED, FILES, Travel, archives, delta_manifest, name};
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
    let quiet = travel.plain_directory("other");
    let pushed = travel.nono(&["--quiet", "push", "other", &travel.session]).success();
    assert_eq!((&*pushed.stdout, &*pushed.stderr), ("", ""));
    assert_eq!(archives(&quiet, &travel.session).len(), 2);
    let said = travel.nono(&["--verbose", "push", "disk", &travel.session]).success();
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
fn each_session_is_one_line_with_its_bytes_and_their_rate_and_all_of_them_another_one() {
    let travel = Travel::with(2, 50, 1);
    travel.directory("disk");
    let other = travel.nono(&["snapshot", "--json"]).success().json();
    let other = other["session_id"].as_str().unwrap();
    let push = ["push", "disk", &travel.session, other];
    let said = travel.nono(&push).success();
    let lines: Vec<&str> = said.stderr.lines().collect();
    let [first, second, total] = lines[..] else { panic!("{}", said.stderr) };
    for (line, session) in [(first, &*travel.session), (second, other)] {
        assert!(line.starts_with(&format!("nono: session {session}: ")), "{line}");
        assert!(line.contains("B/s), encrypted"), "{line}");
    }
    assert!(total.contains("3 archives stored, ") && total.contains("B/s)"), "{total}");
    let root = travel.fixture.path("store");
    let pull = super::pull(root.to_str().unwrap(), "disk", &travel.session, travel.identity());
    let said = travel.nono(&pull).success();
    let lines: Vec<&str> = said.stderr.lines().collect();
    assert!(lines[0].contains(&travel.session) && lines[0].contains("B/s)"), "{}", said.stderr);
    assert!(lines[1].contains("2 archives read, "), "{}", said.stderr);
    let root = travel.fixture.path("quiet");
    let pull = super::pull(root.to_str().unwrap(), "disk", &travel.session, travel.identity());
    let said = travel.nono(&[&["--quiet"], &pull[..]].concat()).success();
    assert_eq!((&*said.stdout, &*said.stderr), ("", ""));
}

#[test]
fn a_limit_of_uploads_keeps_a_push_below_a_rate() {
    let travel = Travel::with(1, 3, 0).with_server();
    let Some(travel) = travel else { return };
    travel.fixture.write("noise", crate::fixture::noise(600 << 10, 1));
    travel.snapshot();
    travel.directory("disk");
    travel.cloud("cloud");
    for remote in ["disk", "cloud"] {
        let begin = std::time::Instant::now();
        let push = ["push", remote, &format!("{}/1", travel.session), "--limit-upload", "300K"];
        travel.nono(&push).success();
        // Without the limit, it takes far less.
        assert!(begin.elapsed().as_millis() >= 2000, "{remote}: {:?}", begin.elapsed());
        travel.verify(remote).success();
    }
    let push = ["push", "disk", &travel.session, "--limit-upload", "fast"];
    travel.nono(&push).fails(2, "500K");
}

#[test]
fn a_remote_has_a_limit_of_uploads_of_its_own() {
    let travel = Travel::with(1, 3, 0);
    travel.fixture.write("noise", crate::fixture::noise(600 << 10, 1));
    travel.snapshot();
    let place = travel.fixture.path("slow");
    let add = ["remote", "add", "slow", place.to_str().unwrap(), "--plaintext"];
    travel.nono(&[&add[..], &["--limit-upload", "fast"]].concat()).fails(2, "500K");
    travel.nono(&[&add[..], &["--limit-upload", "300K"]].concat()).success();
    let listed = travel.nono(&["remote", "list", "--json"]).success().json();
    assert_eq!(listed[0]["limit_upload"], 300 << 10, "{listed:#}");
    let begin = std::time::Instant::now();
    travel.nono(&["push", "slow", &format!("{}/1", travel.session)]).success();
    assert!(begin.elapsed().as_millis() >= 2000, "{:?}", begin.elapsed());
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
fn a_delta_depends_on_what_is_here_and_a_full_archive_says_why_it_is_one() {
    let travel = Travel::with(4, 50, 1);
    let place = travel.directory("disk");
    travel.push("disk");
    let session = &travel.session;
    let gone = place.join(session).join("3-delta-2.tar.zst.age");
    for (held, archive, said) in [
        // Snapshot 2 is only there.
        (&["1", "3"][..], "3-delta-1.tar.zst.age", "Saved: "),
        (&["3"][..], "3-full.tar.zst.age", "because the snapshots before it are not in this store"),
    ] {
        let root = travel.fixture.path(&format!("store-{}", held.len()));
        for number in held {
            travel.pull("disk", &root, &format!("{session}/{number}")).success();
        }
        fs::remove_file(&gone).unwrap();
        let root = root.to_str().unwrap();
        let push = ["--root", root, "--verbose", "push", "disk", &format!("{session}/3")];
        let pushed = travel.nono(&push).success();
        assert!(pushed.stderr.contains(said), "{}", pushed.stderr);
        let stored = place.join(session).join(archive);
        assert!(stored.exists(), "{:?}", archives(&place, session));
        travel.verify("disk").success();
        fs::remove_file(stored).unwrap();
        travel.push("disk");
        assert!(gone.exists());
    }
    // A file for which a parent was named is a delta or nothing.
    let (root, one) =
        (travel.fixture.path("store-1"), place.join(session).join("1-delta-0.tar.zst.age"));
    let out = travel.fixture.path("out.age");
    let create = ["archive", "create", &format!("{session}/3"), "-o", out.to_str().unwrap()];
    let parent = ["--parent", one.to_str().unwrap(), "-i", travel.identity()];
    let created =
        travel.nono(&[&["--root", root.to_str().unwrap()], &create[..], &parent[..]].concat());
    created.fails(1, "is not in this store, so there is no delta to it: use --full");
    assert!(!out.exists());
}
