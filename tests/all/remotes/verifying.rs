//! Checks of what lies at a remote.

use std::fs;

use super::Travel;
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
    // The available part comes, and the rest is named.
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
fn an_archive_under_another_name_and_parents_in_a_circle_give_no_snapshot() {
    let travel = Travel::with(4, 20, 1);
    let place = travel.plain_directory("disk");
    travel.push("disk");
    let session = place.join(&travel.session);
    let archive = |name: &str| session.join(format!("{name}.tar.zst"));
    // The first delta in the place of the second one, and chains without a beginning.
    fs::copy(archive("1-delta-0"), archive("2-delta-1")).unwrap();
    for circle in ["7-delta-7", "8-delta-9", "9-delta-8", "6-delta-5"] {
        fs::copy(archive("3-delta-2"), archive(circle)).unwrap();
    }
    let verified = travel.verify("disk");
    assert_eq!(verified.code, 1, "{}", verified.stderr);
    let report = verified.json();
    let problems = report["problems"].as_array().unwrap();
    let of = |number: u64| {
        let of = problems.iter().filter(|problem| problem["snapshot"] == number);
        of.map(|problem| problem["kind"].as_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(of(2), ["wrong_name", "broken_chain"], "{report:#}");
    assert_eq!(of(3), ["broken_chain"], "{report:#}");
    assert!(of(0).is_empty() && of(1).is_empty(), "{report:#}");
    assert!(of(6).contains(&"broken_chain"), "{report:#}");
    for number in [2, 3, 6, 7, 8, 9] {
        let root = travel.fixture.path("circle");
        let pulled = travel.pull("disk", &root, &format!("{}/{number}", travel.session));
        assert_eq!(pulled.code, 1, "{number}: {}", pulled.stderr);
        assert!(!pulled.stderr.contains("panicked"), "{}", pulled.stderr);
        assert!(!root.join(&travel.session).exists(), "{number}");
    }
    // The sound part comes all the same, and is named apart from the rest.
    let root = travel.fixture.path("sound");
    assert_eq!(travel.pull("disk", &root, &travel.session).code, 1);
    assert_eq!(travel.roots(&root).keys().copied().collect::<Vec<_>>(), [0, 1]);
}
