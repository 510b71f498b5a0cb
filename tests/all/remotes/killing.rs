//! Pushes and pulls that end at any moment.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::Duration;

use super::{Travel, archives, pull};
#[test]
fn a_push_that_is_killed_at_any_moment_harms_nothing_and_the_next_one_completes() {
    let travel = Travel::with(6, 20, 1);
    let mut moments = 0;
    for point in 1.. {
        let remote = format!("disk{point}");
        let place = travel.directory(&remote);
        let mut push = travel.command(&["push", &remote, &travel.session]);
        let killed = push.env("NONO_FAIL_POINT", point.to_string()).output().unwrap();
        travel.verify(&remote).success();
        travel.push(&remote);
        assert_eq!(archives(&place, &travel.session).len(), 6, "at point {point}");
        travel.verify(&remote).success();
        fs::remove_dir_all(&place).unwrap();
        moments += 1;
        if killed.status.success() {
            break;
        }
    }
    assert!(moments > 30, "{moments}");
}

#[test]
fn a_pull_that_is_killed_at_any_moment_leaves_a_store_that_verifies_and_the_next_one_completes() {
    let travel = Travel::with(4, 20, 1);
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
    assert!(moments > 30, "{moments}");
}

#[test]
fn a_push_to_s3_that_is_killed_thirty_times_is_completed_by_the_next_one() {
    let Some(travel) = Travel::with(3, 20, 1).with_server() else { return };
    // More than one part: the parts of a killed upload have to go.
    travel.large();
    let mut killed = 0;
    for attempt in 0..30 {
        // At each request of a push, and a while after it that differs.
        let (request, late) = (1 + attempt % 15, Duration::from_millis(attempt as u64 / 15 * 3));
        let remote = format!("cloud{attempt}");
        let url = travel.server().url(&remote);
        travel.nono(&["remote", "add", &remote, &url, "--plaintext"]).success();
        travel.server().forget_requests();
        let mut push = travel.command(&["push", &remote, &travel.session]);
        let mut push = push.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        for _ in 0..request {
            travel.server().next_request();
        }
        std::thread::sleep(late);
        push.kill().unwrap();
        killed += u64::from(push.wait().unwrap().signal() == Some(9));
        travel.nono(&["remote", "verify", &remote]).success();
        travel.push(&remote);
        travel.nono(&["remote", "verify", &remote]).success();
        let left = travel.notes_of_uploads();
        assert_eq!(left, 0, "notes of uploads are left after request {request}");
    }
    assert!(killed >= 28, "only {killed} pushes did not end before");
}

#[test]
fn a_pull_from_s3_that_is_killed_thirty_times_leaves_nothing_half_made() {
    let Some(travel) = Travel::with(3, 20, 1).with_server() else { return };
    travel.large();
    travel.cloud("cloud");
    travel.push("cloud");
    let whole = travel.roots(&travel.fixture.store());
    let root = travel.fixture.path("store");
    let text = root.to_str().unwrap();
    let mut killed = 0;
    for attempt in 0..30u64 {
        travel.server().forget_requests();
        let mut command = travel.command(&pull(text, "cloud", &travel.session, travel.identity()));
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // After one of its five requests, and a while that differs each time.
        (0..=attempt % 5).for_each(|_| drop(travel.server().next_request()));
        std::thread::sleep(Duration::from_millis(attempt * 37 % 211));
        child.kill().unwrap();
        killed += u64::from(child.wait().unwrap().signal() == Some(9));
        if root.join(&travel.session).exists() {
            assert_eq!(travel.roots(&root), whole, "attempt {attempt}");
            travel.nono(&["--root", text, "rollback", "verify", &travel.session]).success();
            fs::remove_dir_all(&root).unwrap();
        }
    }
    assert!(killed > 10, "only {killed} pulls did not end before");
    travel.arrives_whole("cloud", "store");
    // The leftovers of the killed ones are found by a cleanup.
    travel.nono(&["--root", text, "rollback", "cleanup", "--yes"]).success();
    travel.arrives_whole("cloud", "store");
}
