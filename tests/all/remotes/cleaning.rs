//! Removal of old archives from a remote.

use super::{Travel, archives};
#[test]
fn cleanup_keeps_what_a_kept_snapshot_needs() {
    let travel = Travel::with(6, 20, 1);
    let place = travel.directory("disk");
    travel.push("disk");
    travel.nono(&["push", "disk", &format!("{}/3", travel.session), "--full"]).success();
    let before = archives(&place, &travel.session);
    travel.nono(&["remote", "cleanup", "disk", "--keep", "2", "--dry-run"]).success();
    assert_eq!(archives(&place, &travel.session), before);
    travel.nono(&["remote", "cleanup", "disk", "--keep", "2"]).fails(2, "--yes");
    assert_eq!(archives(&place, &travel.session), before);
    travel.nono(&["remote", "cleanup", "disk", "--keep", "2", "--yes"]).success();
    // 4 and 5 are kept, and 3 is the base of both.
    assert_eq!(
        archives(&place, &travel.session),
        ["3-full.tar.zst.age", "4-delta-3.tar.zst.age", "5-delta-4.tar.zst.age"]
    );
    travel.verify("disk").success();
    travel.nono(&["remote", "cleanup", "disk", "--keep-sessions", "0", "--yes"]).success();
    assert_eq!(archives(&place, &travel.session), [] as [String; 0]);
}
