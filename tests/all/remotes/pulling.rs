//! Pulls: sessions and single snapshots.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::{Travel, name, text};
#[test]
fn one_snapshot_comes_alone_with_the_archives_that_it_needs() {
    let travel = Travel::with(6, 20, 1);
    let place = travel.directory("disk");
    travel.push("disk");
    // No command may need these.
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
fn a_pulled_session_whose_place_does_not_exist_here_asks_for_another() {
    let mut travel = Travel::with(1, 5, 0);
    // As on a machine with other directories.
    let file = travel.fixture.write("above/tracked/file", "1");
    let (tracked, above) = (file.parent().unwrap(), travel.fixture.project().join("above"));
    travel.nono(&["snapshot", tracked.to_str().unwrap()]).success();
    travel.session = travel.fixture.latest();
    travel.directory("disk");
    travel.push("disk");
    let root = travel.fixture.path("one");
    travel.pull("disk", &root, &travel.session).success();
    fs::remove_dir_all(&above).unwrap();
    let root = root.to_str().unwrap();
    let restore = |to: &[&str]| {
        let restore = ["--root", root, "rollback", "restore", &travel.session];
        travel.nono(&[&restore[..], to].concat())
    };
    let refused = restore(&[]);
    assert!(refused.stderr.contains("--to DIR"), "{}", refused.stderr);
    refused.fails(1, tracked.to_str().unwrap());
    assert!(!above.exists());
    let copy = travel.fixture.path("copy");
    restore(&["--to", copy.to_str().unwrap()]).success();
    assert_eq!(fs::read_to_string(copy.join("file")).unwrap(), "1");
}

#[test]
fn a_snapshot_whose_archive_was_cut_off_is_named_and_the_others_come() {
    let travel = Travel::with(2, 5, 1);
    let place = travel.directory("disk");
    travel.push("disk");
    let cut_off = |name: &str| fs::write(place.join(&travel.session).join(name), "").unwrap();
    cut_off("1-delta-0.tar.zst.age");
    let pull = |store: &str, what: &str| {
        let root = travel.fixture.path(store);
        let pulled = travel.pull("disk", &root, what);
        assert_eq!(pulled.code, 1, "{what}: {}{}", pulled.stdout, pulled.stderr);
        pulled
    };
    for (store, what) in [("one", travel.session.as_str()), ("all", "--all")] {
        let pulled = pull(store, what);
        assert!(pulled.stderr.contains("1-delta-0.tar.zst.age was cut off"), "{}", pulled.stderr);
        let report = pulled.json();
        assert_eq!(report["sessions"][0]["snapshots"], serde_json::json!([0]), "{report:#}");
        let not_pulled = report["sessions"][0]["not_pulled"].as_array().unwrap();
        assert_eq!((not_pulled.len(), &not_pulled[0]["snapshot"]), (1, &1.into()), "{report:#}");
    }
    // A pull of the whole part alone gets all of it.
    let root = travel.fixture.path("whole");
    travel.pull("disk", &root, &format!("{}/0", travel.session)).success();
    // The session is known by an archive that is none.
    cut_off("0-full.tar.zst.age");
    for (store, what) in [("none", travel.session.as_str()), ("nothing", "--all")] {
        let report = pull(store, what).json();
        assert_eq!(report["failed"][0]["session_id"], travel.session.as_str(), "{report:#}");
    }
    // A whole archive of the same snapshot is as good.
    travel.nono(&["push", "disk", &travel.session]).fails(1, "remove it, then push again");
    for name in ["0-full.tar.zst.age", "1-delta-0.tar.zst.age"] {
        fs::remove_file(place.join(&travel.session).join(name)).unwrap();
    }
    travel.push("disk");
    cut_off("1-full.tar.zst.age");
    travel.arrives_whole("disk", "arrived");
}

#[test]
fn what_has_the_name_of_an_archive_and_is_no_file_is_named_and_never_read() {
    let travel = Travel::with(1, 5, 0);
    let place = travel.directory("disk");
    travel.push("disk");
    let folder = place.join(&travel.session);
    let path = folder.join("0-full.tar.zst.age");
    let aside = travel.fixture.path("aside");
    fs::rename(&path, &aside).unwrap();
    let make: [&dyn Fn(); 3] = [
        &|| rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap(),
        &|| std::os::unix::fs::symlink(&aside, &path).unwrap(),
        &|| fs::create_dir(&path).unwrap(),
    ];
    for make in make {
        make();
        let name = format!("{}/0-full.tar.zst.age", travel.session);
        let shown = travel.nono(&["remote", "show", "disk", "--json"]).success().json();
        assert_eq!(shown["cut_off"], serde_json::json!([name]), "{shown:#}");
        let root = travel.fixture.path("here");
        let pulled = travel.pull("disk", &root, &travel.session);
        for refused in [travel.verify("disk"), pulled] {
            assert_eq!(refused.code, 1, "{}{}", refused.stdout, refused.stderr);
            assert!(refused.says("or is no file"), "{}{}", refused.stdout, refused.stderr);
        }
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(_) => fs::remove_dir(&path).unwrap(),
        }
    }
    fs::rename(&aside, &path).unwrap();
    travel.verify("disk").success();
}

#[test]
fn a_folder_of_a_session_that_is_a_symlink_is_named_and_never_followed() {
    let travel = Travel::with(2, 5, 1);
    let place = travel.directory("disk");
    travel.push("disk");
    let session = &travel.session;
    let (folder, aside) = (place.join(session), travel.fixture.path("aside"));
    fs::rename(&folder, &aside).unwrap();
    // Files that others keep there are none of nono's.
    fs::create_dir(travel.fixture.path("pictures")).unwrap();
    std::os::unix::fs::symlink(travel.fixture.path("pictures"), place.join("photos")).unwrap();
    travel.verify("disk").success();
    for target in [&aside, &travel.fixture.path("away")] {
        std::os::unix::fs::symlink(target, &folder).unwrap();
        let shown = travel.nono(&["remote", "show", "disk", "--json"]).success().json();
        assert_eq!(shown["linked"], serde_json::json!([session]), "{shown:#}");
        let shown = travel.nono(&["remote", "show", "disk"]).success();
        let words = format!("a symlink, which is not followed: {session}");
        assert!(shown.stdout.contains(&words), "{}", shown.stdout);
        let verified = travel.verify("disk");
        assert_eq!(verified.json()["linked"], serde_json::json!([session]));
        verified.fails(1, "");
        let identity = ["--identity", travel.identity()];
        for ids in [&[][..], &[session.as_str()]] {
            let verify = [&["remote", "verify", "disk"], ids, &identity].concat();
            let verified = travel.nono(&verify);
            assert!(verified.stdout.contains("not followed: not read"), "{}", verified.stdout);
            verified.fails(1, "");
        }
        let root = travel.fixture.path("here");
        for what in ["--all", session] {
            travel.pull("disk", &root, what).fails(1, "is a symlink, which is not followed");
            assert!(!root.join(session).exists());
        }
        let before = fs::read_dir(&aside).unwrap().count();
        let pushed = travel.nono(&["push", "disk", session]);
        assert!(pushed.stderr.contains("not pushed: cannot store"), "{}", pushed.stderr);
        pushed.fails(1, &format!("{session} there is a symlink, which is not followed"));
        assert_eq!(fs::read_dir(&aside).unwrap().count(), before);
        fs::remove_file(&folder).unwrap();
    }
    fs::rename(&aside, &folder).unwrap();
    travel.verify("disk").success();
    travel.arrives_whole("disk", "arrived");
}

#[test]
fn a_snapshot_that_came_to_a_session_of_this_machine_gives_no_file_privileges_unasked() {
    let travel = Travel::with(1, 5, 0);
    travel.plain_directory("disk");
    let (own, other) = (travel.fixture.store(), travel.fixture.path("other"));
    let copied = Command::new("cp").arg("-a").args([&own, &other]).status().unwrap();
    assert!(copied.success());
    let tool = travel.fixture.write("tool", "x");
    let mode = |file: &std::path::Path| fs::metadata(file).unwrap().permissions().mode() & 0o7777;
    let set_mode = |mode| fs::set_permissions(&tool, PermissionsExt::from_mode(mode)).unwrap();
    set_mode(0o4755);
    let other = ["--root", other.to_str().unwrap()];
    travel.nono(&[&other[..], &["snapshot", "--session", &travel.session]].concat()).success();
    travel.nono(&[&other[..], &["push", "disk", &travel.session]].concat()).success();
    fs::remove_file(&tool).unwrap();
    travel.nono(&["pull", "disk", &travel.session]).success();
    let restore = |number: u64, more: &[&str]| {
        let id = format!("{}/{number}", travel.session);
        travel.nono(&[&["rollback", "restore", &id], more].concat())
    };
    let copy = |name: &str| travel.fixture.path(name);
    let to = |number: u64, name: &str| restore(number, &["--to", copy(name).to_str().unwrap()]);
    let check = |name: &str| {
        let told = to(1, name).fails(1, "--with-privileges");
        assert!(told.stdout.contains("tool: setuid, setgid"), "{}", told.stdout);
        assert_eq!(mode(&copy(name).join("tool")), 0o755);
    };
    check("copy");
    let told = restore(1, &["--force"]).fails(1, "1 path is not as it was");
    assert!(told.stdout.contains("--with-privileges"), "{}", told.stdout);
    assert_eq!(mode(&tool), 0o755);
    // A session recorded here is trusted, and makes nothing else trusted.
    set_mode(0o4755);
    travel.snapshot();
    let newest = travel.roots(&own).keys().next_back().copied().unwrap();
    to(newest, "recorded").success();
    assert_eq!(mode(&copy("recorded").join("tool")), 0o4755);
    check("again");
    // Nor does a manifest of the session that was lost and made again.
    fs::write(own.join(&travel.session).join("manifest.json"), "{").unwrap();
    travel.nono(&["rollback", "verify", "--repair", &travel.session]);
    check("rebuilt");
    restore(1, &["--to", copy("asked").to_str().unwrap(), "--with-privileges"]).success();
    assert_eq!(mode(&copy("asked").join("tool")), 0o4755);
}
