//! Files that something writes to while they are read: named wherever a user looks.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::fixture::Fixture;

/// Reading it takes several ticks of the clock that stamps files.
const LONG: u64 = 64 << 20;

/// Does something while a file of the project changes at every moment.
fn while_written_to<T>(fixture: &Fixture, name: &str, work: impl FnOnce() -> T) -> T {
    let path = fixture.write(name, "");
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(LONG).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0_u64;
            while !is_done.load(Relaxed) {
                file.write_all_at(&number.to_le_bytes(), LONG - 8).unwrap();
                number += 1;
            }
        });
        let done = work();
        is_done.store(true, Relaxed);
        done
    })
}

#[test]
fn a_file_that_changed_while_it_was_read_is_named_everywhere() {
    let fixture = Fixture::new();
    fixture.write("still", "still");
    let path = fixture.project().join("database");
    let path = path.to_str().unwrap();
    let (run, report) = while_written_to(&fixture, "database", || {
        (fixture.record("true"), fixture.nono(&["snapshot", "--json"]).success())
    });
    assert_eq!(report.json()["unstable"], serde_json::json!([path]));
    assert!(report.stderr.contains(path), "{}", report.stderr);
    // The message of a run at its end covers both states.
    let (_, end) = run.stderr.rsplit_once("warning: 2 files kept changing").unwrap();
    for number in 0..2 {
        assert!(end.contains(&format!("  {path} (snapshot {number})\n")), "{}", run.stderr);
    }
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    let id = list[1]["session_id"].as_str().unwrap();
    let show = fixture.nono(&["rollback", "show", "--json", id]).success().json();
    for number in 0..2 {
        assert_eq!(show["snapshots"][number]["unstable"], serde_json::json!([path]));
    }
    let show = fixture.nono(&["rollback", "show", id]).success();
    assert_eq!(show.stdout.matches("changed while it was read: database").count(), 2);
    // Nothing in its recorded state is promised, and that is said once more.
    let copy = fixture.path("copy");
    let to = ["rollback", "restore", id, "--to", copy.to_str().unwrap(), "--json"];
    let copied = fixture.nono(&to).success().json();
    assert_eq!(copied["unstable"], serde_json::json!([copy.join("database")]));
    let restored = fixture.nono(&["rollback", "restore", id, "--force"]).success();
    assert!(restored.says("may never have had"), "{}", restored.stderr);
    assert!(restored.stderr.contains(path), "{}", restored.stderr);
}
