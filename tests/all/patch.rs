//! Patches are what `git apply` and `patch -p1` accept: the real programs apply them, and the
//! result is compared with `diff -r`.
#![allow(clippy::disallowed_methods, reason = "tests make their own trees")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nono::cli::render::{DiffOptions, write_patch};
use nono_engine::diff;
use nono_engine::snapshot::{Budget, SnapshotManager};
use nono_engine::walk::ExclusionConfig;
use proptest::prelude::*;

use crate::fixture::Fixture;

/// A tree in two states, `a` and `b`; `a` becomes a copy of `b` while it is being tracked.
struct Trees {
    temp: tempfile::TempDir,
}

impl Trees {
    fn new() -> Self {
        let trees = Self { temp: tempfile::tempdir().unwrap() };
        for name in ["a", "b"] {
            fs::create_dir(trees.path(name)).unwrap();
        }
        trees
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// Writes a file below one state; the name is bytes.
    fn write(&self, state: &str, name: impl AsRef<[u8]>, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(state).join(OsStr::from_bytes(name.as_ref()));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }

    fn link(&self, state: &str, name: &str, target: &str) {
        let path = self.path(state).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    fn mode(&self, state: &str, name: &str, mode: u32) {
        fs::set_permissions(self.path(state).join(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// The patch from `a` to `b`, through two snapshots.
    fn patch(&self) -> Vec<u8> {
        let tracked = self.path("tracked");
        copy(&self.path("a"), &tracked);
        let manager = SnapshotManager::new(
            &self.path("session"),
            std::slice::from_ref(&tracked),
            ExclusionConfig::default(),
            Budget::default(),
        )
        .unwrap();
        let old = manager.create_baseline().unwrap();
        fs::remove_dir_all(&tracked).unwrap();
        copy(&self.path("b"), &tracked);
        let (new, _) = manager.create_incremental().unwrap();
        let store = manager.store();
        let differences = diff::compare(store, &old.merkle_root, &new.merkle_root).unwrap();
        let roots = [tracked.canonicalize().unwrap()];
        let mut patch = Vec::new();
        write_patch(&mut patch, &differences, &DiffOptions::new(store, &roots)).unwrap();
        fs::write(self.path("patch"), &patch).unwrap();
        patch
    }

    /// Applies the patch to a copy of `a` and gives the place of the copy.
    fn applied(&self, program: &str) -> PathBuf {
        let place = self.path(&format!("applied with {program}"));
        copy(&self.path("a"), &place);
        let patch = self.path("patch");
        let mut command = match program {
            "git" => {
                let mut command = Command::new("git");
                command.args(["apply", "--whitespace=nowarn"]).arg(&patch);
                command
            }
            _ => {
                let mut command = Command::new("patch");
                command.args(["-p1", "--batch", "--fuzz=0", "-i"]).arg(&patch);
                command
            }
        };
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        // Not in a repository that happens to be above the temporary directory.
        command.env("GIT_CEILING_DIRECTORIES", self.temp.path());
        run(command.current_dir(&place), &patch);
        place
    }

    /// Both programs turn `a` into `b`.
    fn check(&self) {
        self.patch();
        for program in ["git", "patch"] {
            self.assert_is_b(&self.applied(program));
        }
    }

    fn assert_is_b(&self, place: &Path) {
        let b = self.path("b");
        run(
            Command::new("diff").args(["-r", "--no-dereference"]).args([place, &b]),
            &self.path("patch"),
        );
        assert_eq!(executables(place), executables(&b));
    }
}

fn run(command: &mut Command, patch: &Path) -> Output {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr),
        text(&fs::read(patch).unwrap())
    );
    output
}

fn copy(from: &Path, to: &Path) {
    let output = Command::new("cp").arg("-a").args([from, to]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Which files have an executable bit for their owner.
fn executables(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(current) = pending.pop() {
        for entry in fs::read_dir(current).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                pending.push(entry.path());
            } else if kind.is_file() && entry.metadata().unwrap().permissions().mode() & 0o100 != 0
            {
                found.push(entry.path().strip_prefix(dir).unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn created_changed_and_deleted_files() {
    let trees = Trees::new();
    let lines = |from: u32, to: u32| (from..to).map(|n| format!("line {n}\n")).collect::<String>();
    trees.write("a", "changed", lines(0, 100));
    trees.write("b", "changed", lines(3, 50) + "between\n" + &lines(50, 90) + &lines(95, 103));
    trees.write("a", "deleted", lines(0, 3));
    trees.write("a", "deep/er/deleted", lines(0, 3));
    trees.write("b", "created", lines(0, 3));
    trees.write("b", "new/dir/created", lines(0, 3));
    trees.write("a", "same", "same\n");
    trees.write("b", "same", "same\n");
    trees.write("a", "-dash/--- x", "-- old\n++ old\n");
    trees.write("b", "-dash/--- x", "-- new\n++ new\n");
    trees.check();
}

#[test]
fn files_with_and_without_a_last_newline() {
    let trees = Trees::new();
    for (n, (old, new)) in [
        ("a\nb", "a\nb\n"),
        ("a\nb\n", "a\nb"),
        ("a\nb", "a\nc"),
        ("a\nb", "b\nb"),
        ("", "x"),
        ("x", ""),
        ("\n", ""),
        ("", "\n\n"),
        ("x\n", "\n"),
    ]
    .iter()
    .enumerate()
    {
        trees.write("a", format!("{n}"), old);
        trees.write("b", format!("{n}"), new);
    }
    trees.write("a", "gone", "no end");
    trees.write("b", "made", "no end");
    trees.check();
}

#[test]
fn empty_files() {
    let trees = Trees::new();
    trees.write("a", "gone", "");
    trees.write("b", "made", "");
    trees.write("b", "made too", "");
    trees.write("a", "gone too", "");
    trees.write("b", "dir/made", "");
    trees.check();
}

#[test]
fn carriage_returns_and_odd_bytes() {
    let trees = Trees::new();
    trees.write("a", "crlf", "one\r\ntwo\r\nthree\r\n");
    trees.write("b", "crlf", "one\r\n2\r\nthree\r\n");
    trees.write("a", "to lf", "one\r\ntwo\r\n");
    trees.write("b", "to lf", "one\ntwo\n");
    trees.write("a", "mac", "one\rtwo\rthree");
    trees.write("b", "mac", "one\r2\rthree\r");
    trees.write("a", "latin", b"caf\xe9\n\xff\xfe\n");
    trees.write("b", "latin", b"caf\xe9s\n\xff\xfe\n\x1b[2J\x0c\n");
    trees.write("b", "made", "one\r\ntwo\r\n");
    trees.write("a", "late nul", [&b"x\n".repeat(5000)[..], b"\0\n"].concat());
    trees.write("b", "late nul", [&b"x\n".repeat(5000)[..], b"y\0\n"].concat());
    trees.check();
}

#[test]
fn names_with_special_bytes() {
    let trees = Trees::new();
    let names: [&[u8]; 14] = [
        b"with space",
        b" both ends ",
        b"two  spaces/in dir",
        "f\u{fc}r/\u{e9}t\u{e9}".as_bytes(),
        b"quote\"s'",
        b"back\\slash",
        b"tab\there",
        b"tab and space\t ",
        b"a b/b/a b",
        b"\xff not UTF-8",
        b"bell\x07del\x7f\x01",
        b"a/b/c",
        b"#hash {brace} $dollar *",
        b"carriage\r",
    ];
    for name in names {
        trees.write("a", [name, b" changed"].concat(), "old\n");
        trees.write("b", [name, b" changed"].concat(), "new\n");
        trees.write("a", [name, b" gone"].concat(), "old\n");
        trees.write("b", [name, b".made"].concat(), "new\n");
        trees.write("b", [name, b".empty"].concat(), "");
        let path = trees.write("a", name, "mode\n");
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
        let path = trees.write("b", name, "mode\n");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    trees.check();
}

#[test]
fn names_with_newlines() {
    let trees = Trees::new();
    trees.write("a", "new\nline", "old\n");
    trees.write("b", "new\nline", "new\n");
    trees.write("b", "--- a/x\n+++ b/x\n@@ -1 +1 @@", "new\n");
    trees.check();
}

#[test]
fn modes() {
    let trees = Trees::new();
    for (n, (old, new)) in [(0o644, 0o755), (0o755, 0o644), (0o644, 0o700)].iter().enumerate() {
        for (state, mode) in [("a", *old), ("b", *new)] {
            trees.write(state, format!("{n}"), "same\n");
            trees.mode(state, &format!("{n}"), mode);
            trees.write(state, format!("{n} changed"), format!("{state}\n"));
            trees.mode(state, &format!("{n} changed"), mode);
        }
    }
    trees.write("b", "made", "#!/bin/sh\n");
    trees.mode("b", "made", 0o755);
    trees.write("a", "gone", "#!/bin/sh\n");
    trees.mode("a", "gone", 0o755);
    trees.write("b", "empty", "");
    trees.mode("b", "empty", 0o755);
    trees.check();
}

#[test]
fn symlinks() {
    let trees = Trees::new();
    trees.link("a", "changed", "old target");
    trees.link("b", "changed", "new target");
    trees.link("a", "gone", "nowhere");
    trees.link("b", "made", "../with space/\u{e9}");
    trees.link("b", "dir/made", "x");
    trees.check();
}

#[test]
fn a_symlink_in_the_place_of_a_file() {
    let trees = Trees::new();
    trees.write("a", "file to link", "text\n");
    trees.link("b", "file to link", "target");
    trees.link("a", "link to file", "target");
    trees.write("b", "link to file", "text\n");
    trees.check();
}

/// `patch` removes files last and so never finds the place free, in git's own patches neither.
#[test]
fn a_directory_in_the_place_of_a_file_for_git() {
    let trees = Trees::new();
    trees.write("a", "dir to file/inner/x", "x\n");
    trees.write("a", "dir to file/y", "y\n");
    trees.write("b", "dir to file", "text\n");
    trees.write("a", "dir to link/x", "x\n");
    trees.link("b", "dir to link", "target");
    trees.write("a", "file to dir", "text\n");
    trees.write("b", "file to dir/x", "x\n");
    trees.link("a", "link to dir", "target");
    trees.write("b", "link to dir/x", "x\n");
    trees.patch();
    trees.assert_is_b(&trees.applied("git"));
}

#[test]
fn what_cannot_be_said_does_not_stop_the_rest() {
    let trees = Trees::new();
    for (state, text) in [("a", "old\n"), ("b", "new\n")] {
        for name in ["1", "4", "9"] {
            trees.write(state, name, text);
        }
    }
    // A remark after headers that have no hunks, on which git would take it for theirs.
    trees.write("b", "5 empty", "");
    trees.write("b", "7 empty", "");
    fs::create_dir(trees.path("b").join("8 empty dir")).unwrap();
    let patch = String::from_utf8(trees.patch()).unwrap();
    assert!(patch.contains("\n# created directory: 8 empty dir\n"), "{patch}");
    for program in ["git", "patch"] {
        let place = trees.applied(program);
        for name in ["1", "4", "5 empty", "7 empty", "9"] {
            let read = |dir: &Path| fs::read_to_string(dir.join(name)).unwrap();
            assert_eq!(read(&place), read(&trees.path("b")), "{program}: {name}");
        }
    }
}

#[test]
fn git_refuses_a_patch_in_which_contents_are_missing_and_patch_does_the_rest() {
    for (old, new) in [(Some("\0old"), Some("\0new")), (Some("\0old"), None), (None, Some("\0new"))]
    {
        let trees = Trees::new();
        for (state, text, bytes) in [("a", "old\n", old), ("b", "new\n", new)] {
            for name in ["1", "4", "9"] {
                trees.write(state, name, text);
            }
            for name in ["2 binary", "6 binary"] {
                if let Some(bytes) = bytes {
                    trees.write(state, name, bytes);
                }
            }
        }
        trees.write("b", "5 empty", "");
        trees.patch();
        let place = trees.applied("patch");
        for name in ["1", "4", "5 empty", "9"] {
            let read = |dir: &Path| fs::read_to_string(dir.join(name)).unwrap();
            assert_eq!(read(&place), read(&trees.path("b")), "{name}");
        }
        let binary = place.join("2 binary");
        assert_eq!(fs::read_to_string(binary).ok().as_deref(), old);
        // Forth and back, and nothing is half done.
        for (state, flags) in [("a", &["apply"][..]), ("b", &["apply", "-R"])] {
            let place = trees.path(&format!("refused in {state}"));
            copy(&trees.path(state), &place);
            let git = Command::new("git")
                .args(flags)
                .arg(trees.path("patch"))
                .current_dir(&place)
                .env("GIT_CEILING_DIRECTORIES", trees.temp.path())
                .output()
                .unwrap();
            assert_eq!(git.status.code(), Some(1), "{git:?}");
            assert!(git.stderr.starts_with(b"error: "), "{git:?}");
            assert_eq!(
                fs::read(place.join("1")).unwrap(),
                fs::read(trees.path(state).join("1")).unwrap()
            );
        }
    }
}

#[test]
fn binary_contents_go_forth_and_back_with_git() {
    let fixture = Fixture::new();
    let project = fixture.project();
    let long: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let old =
        [("changed", &b"\0old"[..]), ("gone", &long[..50]), ("text", b"1\n"), ("grown", &long)];
    let new = [
        ("changed", &b"\0new and longer than one line of base 85, which is 52 bytes"[..]),
        ("made", b"\0"),
        ("grown", &long[4..]),
        ("deep/emptied", b""),
        ("text", b"2\n"),
    ];
    let set = |state: &[(&str, &[u8])]| {
        for entry in fs::read_dir(&project).unwrap() {
            let path = entry.unwrap().path();
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
        state.iter().for_each(|(name, bytes)| drop(fixture.write(name, bytes)));
    };
    set(&[&old[..], &[("deep/emptied", b"\0x")]].concat());
    let before = contents(&project);
    let taken = fixture.nono(&["snapshot", "--json"]).success().json();
    let id = taken["session_id"].as_str().unwrap();
    set(&new);
    fixture.nono(&["snapshot", "--session", id]).success();
    let after = contents(&project);
    let patch = fixture.path("patch");
    let write = |more: &[&str]| {
        let arguments = [&["rollback", "diff", id], more].concat();
        let output = fixture.command(&arguments).output().unwrap();
        fs::write(&patch, &output.stdout).unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let apply = |back: &[&str]| {
        let mut git = Command::new("git");
        git.args([&["apply", "--whitespace=nowarn"], back].concat()).arg(&patch);
        git.env("GIT_CEILING_DIRECTORIES", fixture.path("")).current_dir(&project);
        run(&mut git, &patch);
        contents(&project)
    };
    assert_eq!(write(&["--binary"]), "");
    assert!(apply(&["-R"]) == before);
    assert!(apply(&[]) == after);
    // Without them, the patch says that it is not everything.
    assert!(
        write(&[]).contains("the contents of 5 files are not in this patch, and git refuses it")
    );
}

fn contents(dir: &Path) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let tree = crate::observe::observe(dir).into_iter();
    tree.filter(|(_, it)| it.kind == "file").map(|(path, it)| (path, it.content)).collect()
}

#[test]
fn index_lines_let_git_merge_into_later_work() {
    let trees = Trees::new();
    let text = |first: &str, last: &str| format!("{first}\n{}{last}\n", "same\n".repeat(9));
    trees.write("a", "x", text("1", "2"));
    trees.write("b", "x", text("1", "two"));
    trees.patch();
    let place = trees.path("repository");
    copy(&trees.path("a"), &place);
    let git = |args: &[&str]| {
        let identity = ["-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=m"];
        let mut command = Command::new("git");
        command.args(identity).args(args).current_dir(&place);
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        run(&mut command, &trees.path("patch"))
    };
    git(&["init", "-q"]);
    git(&["add", "x"]);
    git(&["commit", "-qm", "old"]);
    // The context is gone, so that only a merge that knows the old contents can do it.
    fs::write(place.join("x"), text("one", "2").replacen("same", "other", 7)).unwrap();
    git(&["commit", "-qam", "later"]);
    let patch = trees.path("patch");
    git(&["apply", "--3way", patch.to_str().unwrap()]);
    let merged = fs::read_to_string(place.join("x")).unwrap();
    assert_eq!(merged, text("one", "two").replacen("same", "other", 7));
}

fn small_text() -> impl Strategy<Value = String> {
    let line =
        proptest::sample::select(&["a", "b", "c", "", "-- x", "+", "\\ No", "@@ -1 +1 @@"][..]);
    (proptest::collection::vec(line, 0..25), any::<bool>()).prop_map(|(lines, ends)| {
        let text = lines.join("\n");
        if ends && !text.is_empty() { text + "\n" } else { text }
    })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 32,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn any_text_becomes_any_other(
        files in proptest::collection::vec(
            (proptest::option::of(small_text()), proptest::option::of(small_text())),
            1..12
        )
    ) {
        let trees = Trees::new();
        // An empty tree gives an empty patch, which git refuses.
        trees.write("b", "always", "x\n");
        for (n, (old, new)) in files.iter().enumerate() {
            for (state, text) in [("a", old), ("b", new)] {
                if let Some(text) = text {
                    trees.write(state, format!("{n}"), text);
                }
            }
        }
        trees.check();
    }
}
