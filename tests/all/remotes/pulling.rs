//! Pulls: sessions and single snapshots.

use std::fs;

use super::{Travel, name, text};
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
