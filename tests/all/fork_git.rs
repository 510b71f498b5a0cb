//! git in a fork: its index fits the files as they are there, and hides no change of one.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use crate::fixture::{Finished, Fixture, finished};
use crate::forks::has_forks;
use crate::git_history::settings;
use crate::not_run::not_run;

/// Number of committed files in each of two directories.
const FILES: usize = 20;

/// Both kinds of users, each with a repository in which everything is committed, and a fork of it.
fn users() -> impl Iterator<Item = Fixture> {
    let root = rustix::process::geteuid().is_root();
    let fixtures = [Some(Fixture::ordinary_user()), root.then(Fixture::new)];
    fixtures.into_iter().flatten().filter(has_forks).inspect(|fixture| {
        settings(fixture);
        for number in 0..FILES {
            fixture.write(&format!("dir/content-{number}"), format!("{number:04}\n"));
            fixture.write(&format!("dir/in it/content-{number}"), format!("{number:04}\n"));
        }
        // git reads files as new as its index again, in the project as well.
        by_hand(
            fixture,
            "find dir -type f -exec touch -d '2026-01-02 03:04:05.678' {} +; git init -q -b main; \
             git add . && git commit -qm first",
        );
        fixture.nono(&["fork", "one"]).success();
    })
}

fn by_hand(fixture: &Fixture, script: &str) -> Finished {
    finished(fixture.command_of("sh", &["-ec", script]).output().unwrap()).success()
}

fn inside(fixture: &Fixture, script: &str) -> Finished {
    fixture.nono(&["fork", "enter", "one", "--", "sh", "-ec", script])
}

/// The index in the layer of the fork, where git wrote one.
fn written_index(fixture: &Fixture) -> PathBuf {
    let shown = fixture.nono(&["fork", "show", "one", "--json"]).success().json();
    let fork = fixture.store().join("forks").join(shown["session_id"].as_str().unwrap());
    fork.join("layers/0/upper/.git/index")
}

#[test]
fn the_first_git_status_in_a_fork_opens_no_content() {
    for fixture in users() {
        let traced = "strace -f -o trace -e trace=open,openat,openat2 git status --porcelain";
        let status = inside(&fixture, traced);
        if status.code != 0 {
            not_run("no strace, or it may not trace");
        } else {
            assert_eq!(status.stdout, "?? trace\n", "{}", status.stderr);
            let trace = inside(&fixture, "cat trace; rm trace").success().stdout;
            assert!(trace.contains(".git/index"), "{trace}");
            let read: Vec<_> = trace.lines().filter(|line| line.contains("content-")).collect();
            assert_eq!(read, [""; 0]);
        }
        // git writes an index anew when it had to look at a file.
        inside(&fixture, "git status --porcelain").success();
        assert!(!written_index(&fixture).exists());
        assert_eq!(inside(&fixture, "git fsck --strict 2>&1").success().stdout, "");
        assert_eq!(inside(&fixture, "git ls-files | wc -l").stdout.trim(), "40");
    }
}

#[test]
fn a_change_with_the_time_and_length_of_before_is_seen_by_git_in_a_fork() {
    for fixture in users() {
        let script = "echo 9999 > dir/content-7; touch -d '2026-01-02 03:04:05.678' dir/content-7; \
                      git status --porcelain; git commit -qam second; git show HEAD:dir/content-7";
        let did = inside(&fixture, script).success();
        assert_eq!(did.stdout, " M dir/content-7\n9999\n", "{}", did.stderr);
        assert_eq!(fs::read(fixture.project().join("dir/content-7")).unwrap(), b"0007\n");
    }
}

#[test]
fn a_file_that_git_does_not_trust_in_the_project_is_read_in_a_fork() {
    for fixture in users() {
        fixture.nono(&["fork", "discard", "one"]).success();
        // As long, as old and in the same inode: the ctime alone tells.
        let path = fixture.project().join("dir/content-7");
        let before = fs::metadata(&path).unwrap();
        let script = "echo 9999 > dir/content-7; touch -d '2026-01-02 03:04:05.678' dir/content-7";
        by_hand(&fixture, script);
        let after = fs::metadata(&path).unwrap();
        assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
        fixture.nono(&["fork", "one"]).success();
        let status = inside(&fixture, "git status --porcelain").success();
        assert_eq!(status.stdout, " M dir/content-7\n", "{}", status.stderr);
    }
}

#[test]
fn a_fork_of_an_older_state_has_git_read_what_changed_since_alone() {
    for fixture in users() {
        fixture.nono(&["snapshot"]).success();
        let id = fixture.latest();
        fixture.write("dir/content-3", "changed later\n");
        fixture.nono(&["snapshot"]).success();
        fixture.nono(&["fork", "discard", "one"]).success();
        fixture.nono(&["fork", "one", "--from", &format!("{id}/0")]).success();
        let status = inside(&fixture, "git status --porcelain; cat dir/content-3").success();
        assert_eq!(status.stdout, "0003\n", "{}", status.stderr);
    }
}
