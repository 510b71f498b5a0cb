//! Damaged archives go from a remote where the next push can store them again.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Travel, archives};
use crate::fixture::Finished;
use crate::terminal::Terminal;

const DELTA: &str = "1-delta-0.tar.zst.age";

/// A pushed session of three snapshots, and the folder of its archives.
fn pushed() -> (Travel, PathBuf) {
    let travel = Travel::with(3, 20, 1);
    let place = travel.directory("disk");
    travel.push("disk");
    let folder = place.join(&travel.session);
    (travel, folder)
}

fn flip(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes.len() - 20;
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn remove(travel: &Travel, more: &[&str]) -> Finished {
    let verify = ["remote", "verify", "disk", "--identity", travel.identity(), "--json"];
    travel.nono(&[&verify[..], &["--remove-damaged", "--yes"], more].concat())
}

#[track_caller]
fn names(report: &Value, field: &str) -> Vec<String> {
    let list = report[field].as_array().unwrap().iter();
    list.map(|one| one.as_str().or(one["archive"].as_str()).unwrap().to_owned()).collect()
}

#[test]
fn a_damaged_archive_is_removed_and_the_next_push_stores_it_again() {
    let (travel, folder) = pushed();
    let delta = folder.join(DELTA);
    let whole = fs::read(&delta).unwrap();
    let archive = format!("{}/{DELTA}", travel.session);
    for damage in ["flipped", "cut", "cut at its beginning", "empty"] {
        match damage {
            "flipped" => flip(&delta),
            "cut" => fs::write(&delta, &whole[..whole.len() - 1]).unwrap(),
            "empty" => fs::write(&delta, b"").unwrap(),
            _ => fs::write(&delta, &whole[..9]).unwrap(),
        }
        let removed = remove(&travel, &[]);
        assert_eq!(removed.code, 1, "{damage}: {}", removed.stderr);
        assert_eq!(names(&removed.json(), "removed"), [archive.as_str()], "{damage}");
        assert_eq!(names(&removed.json(), "staying"), [] as [&str; 0], "{damage}");
        assert!(!delta.exists(), "{damage}");
        travel.push("disk");
        travel.verify("disk").success();
        // Nothing is left to remove.
        assert_eq!(names(&remove(&travel, &[]).success().json(), "removed"), [] as [&str; 0]);
    }
    travel.arrives_whole("disk", "arrived");
}

#[test]
fn nothing_is_removed_unasked() {
    let (travel, folder) = pushed();
    flip(&folder.join(DELTA));
    let all = archives(folder.parent().unwrap(), &travel.session);
    let identity = ["--identity", travel.identity()];
    let verify = ["remote", "verify", "disk", "--remove-damaged"];
    travel.nono(&[&verify[..], &identity].concat()).fails(2, "--yes");
    travel.nono(&["remote", "verify", "disk", "--yes"]).fails(2, "--remove-damaged");
    let told = travel.nono(&[&verify[..3], &identity].concat());
    told.fails(1, "remote verify disk --remove-damaged");
    assert_eq!(archives(folder.parent().unwrap(), &travel.session), all);
    // A person is asked, and told which ones.
    for (answer, goes) in [("n", false), ("y", true)] {
        let terminal = Terminal::start(
            &travel.fixture.path(&format!("tmux-{answer}")),
            &travel.fixture.project(),
            &travel.fixture.path("home"),
            &format!(
                "{} remote verify disk --remove-damaged --identity {}; echo code $?; exec cat",
                env!("CARGO_BIN_EXE_nono"),
                travel.identity()
            ),
        );
        terminal.wait_for("remove 1 damaged archive for good? [y/N/?]");
        assert!(terminal.screen().contains(DELTA), "{}", terminal.screen());
        terminal.line(answer);
        terminal.wait_for("code 1");
        assert_eq!(folder.join(DELTA).exists(), !goes, "{answer}");
    }
}

#[test]
fn a_damaged_archive_that_no_push_from_here_can_replace_stays() {
    let (travel, folder) = pushed();
    flip(&folder.join(DELTA));
    let archive = format!("{}/{DELTA}", travel.session);
    let all = archives(folder.parent().unwrap(), &travel.session);
    let stays = |removed: Finished, reason: &str| {
        assert_eq!(removed.code, 1, "{}", removed.stderr);
        let report = removed.json();
        assert_eq!(names(&report, "removed"), [] as [&str; 0], "{report:#}");
        assert_eq!(names(&report, "staying"), [archive.as_str()], "{report:#}");
        let told = report["staying"][0]["reason"].as_str().unwrap();
        assert!(told.contains(reason), "{told}");
        assert_eq!(archives(folder.parent().unwrap(), &travel.session), all);
    };
    // Another machine may have what is needed.
    let empty = travel.fixture.path("empty");
    let root = ["--root", empty.to_str().unwrap()];
    stays(remove(&travel, &root), "its session is not in the store here");
    // A snapshot that is here, and damaged as well.
    let lost = travel.fixture.store().join(&travel.session).join("snapshots/1/manifest.json");
    let manifest = fs::read(&lost).unwrap();
    fs::write(&lost, "{").unwrap();
    stays(remove(&travel, &[]), "1");
    fs::write(&lost, manifest).unwrap();
    // Another history of the session: what is damaged may be the last of it.
    let other = travel.fixture.path("other");
    let root = ["--root", other.to_str().unwrap()];
    let first = format!("{}/0", travel.session);
    let pull = ["pull", "disk", &first, "--identity", travel.identity()];
    travel.nono(&[&root[..], &pull].concat()).success();
    travel.fixture.write("theirs", "theirs\n");
    let goes_on = ["snapshot", "--session", &travel.session];
    travel.nono(&[&root[..], &goes_on].concat()).success();
    stays(remove(&travel, &root), "of another history");
    // With the right store, it goes.
    assert_eq!(names(&remove(&travel, &[]).json(), "removed"), [archive.as_str()]);
}

#[test]
fn a_damaged_archive_goes_where_another_one_gives_its_snapshot_back() {
    let (travel, folder) = pushed();
    travel.nono(&["push", "disk", &format!("{}/1", travel.session), "--full"]).success();
    flip(&folder.join(DELTA));
    let empty = travel.fixture.path("empty");
    let removed = remove(&travel, &["--root", empty.to_str().unwrap()]);
    assert_eq!(names(&removed.json(), "removed"), [format!("{}/{DELTA}", travel.session)]);
    travel.arrives_whole("disk", "arrived");
}

#[test]
fn an_archive_that_no_key_opens_or_that_is_another_one_stays() {
    let (travel, folder) = pushed();
    let all = archives(folder.parent().unwrap(), &travel.session);
    let other = Travel::with(1, 3, 0);
    let verify = ["remote", "verify", "disk", "--json", "--remove-damaged", "--yes"];
    let wrong = travel.nono(&[&verify[..], &["--identity", other.identity()]].concat());
    assert_eq!(names(&wrong.json(), "removed"), [] as [&str; 0]);
    fs::copy(folder.join(DELTA), folder.join("2-delta-1.tar.zst.age")).unwrap();
    let removed = remove(&travel, &[]);
    assert_eq!(removed.code, 1, "{}", removed.stderr);
    assert_eq!(names(&removed.json(), "removed"), [] as [&str; 0]);
    assert_eq!(archives(folder.parent().unwrap(), &travel.session), all);
}
