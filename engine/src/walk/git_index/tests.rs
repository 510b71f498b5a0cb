#![allow(clippy::disallowed_methods, reason = "tests make files and start git")]

use std::fs;
use std::process::Command;

use super::*;

/// Runs git in a directory, with nothing of the user's configuration.
fn git(dir: &Path, arguments: &[&str]) {
    let done = Command::new("git")
        .current_dir(dir)
        .args(["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"])
        .args(["-c", "protocol.file.allow=always"])
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn write(dir: &Path, name: &str) {
    let path = dir.join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, name).unwrap();
}

/// A repository with two directories of two files each.
fn repository() -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    git(temp.path(), &["init", "-q"]);
    for name in ["a/deep/one", "a/deep/two", "b", "build/kept"] {
        write(temp.path(), name);
    }
    git(temp.path(), &["add", "-A"]);
    write(temp.path(), "a/untracked");
    temp
}

fn of(path: &Path) -> Repository {
    Repository::at(&Dir::open(path).unwrap(), b"")
}

fn is_as_in_repository(repository: &Repository) {
    for (path, tracks) in [
        ("a", Tracks::Below),
        ("a/deep", Tracks::Below),
        ("a/deep/one", Tracks::Itself),
        ("a/deep/on", Tracks::Nothing),
        ("a/untracked", Tracks::Nothing),
        ("b", Tracks::Itself),
        ("build", Tracks::Below),
        ("buil", Tracks::Nothing),
        ("zzz", Tracks::Nothing),
    ] {
        assert_eq!(repository.tracks(path.as_bytes()), tracks, "{path}");
    }
}

#[test]
fn every_form_of_an_index_tells_what_git_tracks() {
    let temp = repository();
    is_as_in_repository(&of(temp.path()));
    for version in ["4", "3", "2"] {
        git(temp.path(), &["update-index", "--index-version", version]);
        is_as_in_repository(&of(temp.path()));
    }
    // An entry with flags of version 3.
    write(temp.path(), "c");
    git(temp.path(), &["add", "-N", "c"]);
    assert_eq!(of(temp.path()).tracks(b"c"), Tracks::Itself);
    git(temp.path(), &["update-index", "--split-index"]);
    write(temp.path(), "d");
    git(temp.path(), &["add", "d"]);
    is_as_in_repository(&of(temp.path()));
    assert_eq!(of(temp.path()).tracks(b"d"), Tracks::Itself);
    let temp = tempfile::tempdir().unwrap();
    git(temp.path(), &["init", "-q", "--object-format=sha256"]);
    write(temp.path(), "x/y");
    git(temp.path(), &["add", "-A"]);
    assert_eq!(of(temp.path()).tracks(b"x"), Tracks::Below);
}

#[test]
fn worktrees_submodules_and_repositories_above_have_their_own_index() {
    let temp = repository();
    git(temp.path(), &["commit", "-qm", "1"]);
    git(temp.path(), &["worktree", "add", "-q", "../tree-of-test"]);
    let tree = temp.path().parent().unwrap().join("tree-of-test");
    is_as_in_repository(&of(&tree));
    fs::remove_dir_all(&tree).unwrap();
    let outer = tempfile::tempdir().unwrap();
    git(outer.path(), &["init", "-q"]);
    git(outer.path(), &["submodule", "add", "-q", temp.path().to_str().unwrap(), "sub"]);
    assert_eq!(of(outer.path()).tracks(b"sub"), Tracks::Itself);
    is_as_in_repository(&of(&outer.path().join("sub")));
    // A tracked path below the top of the repository.
    let above = Repository::above(&temp.path().join("a"));
    assert_eq!(above.tracks(b"deep"), Tracks::Below);
    assert_eq!(above.tracks(b"deep/two"), Tracks::Itself);
    assert_eq!(above.tracks(b"b"), Tracks::Nothing);
    // And one above the top of another.
    let nested = Repository::at(&Dir::open(temp.path()).unwrap(), b"here");
    assert_eq!(nested.tracks(b"here/b"), Tracks::Itself);
    assert_eq!(nested.tracks(b"b"), Tracks::Nothing);
    let none = tempfile::tempdir().unwrap();
    assert_eq!(of(none.path()).tracks(b"b"), Tracks::Nothing);
}

#[test]
fn an_index_that_is_none_tracks_nothing_and_harms_nobody() {
    let temp = repository();
    let index = temp.path().join(".git/index");
    let whole = fs::read(&index).unwrap();
    // Cut anywhere: an error, or the same paths where only the checksum is short.
    for length in 0..whole.len() {
        if let Ok(decoded) = decode::decode(&whole[..length]) {
            assert!(decoded.paths.ends.len() <= 4, "{length}");
        }
    }
    // Each bit the other way: the answer must only be an answer.
    for position in 0..whole.len() * 8 {
        let mut other = whole.clone();
        other[position / 8] ^= 1 << (position % 8);
        let _ = decode::decode(&other);
    }
    let mut many = whole.clone();
    many[8..12].fill(0xff);
    let header = [b"DIRC".as_slice(), &2u32.to_be_bytes(), &1u32.to_be_bytes()].concat();
    let endless = [header.as_slice(), &vec![b'a'; 1 << 20]].concat();
    // Version 4: strips more than there is, by a number without an end.
    let stripping = [b"DIRC".as_slice(), &4u32.to_be_bytes(), &1u32.to_be_bytes()].concat();
    let stripping = [stripping.as_slice(), &[0; 62], &vec![0xff; 1 << 10]].concat();
    for bytes in [&b""[..], b"DIRC", b"garbage, and long enough", &many, &endless, &stripping] {
        fs::write(&index, bytes).unwrap();
        assert_eq!(of(temp.path()).tracks(b"b"), Tracks::Nothing);
    }
    // Another kind of node is not read, and the target of a symlink is not this repository's.
    fs::remove_file(&index).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &index).unwrap();
    assert_eq!(of(temp.path()).tracks(b"b"), Tracks::Nothing);
    fs::remove_file(&index).unwrap();
    let large = fs::File::create(&index).unwrap();
    large.set_len(MAX_INDEX_BYTES + 1).unwrap();
    assert_eq!(of(temp.path()).tracks(b"b"), Tracks::Nothing);
    fs::remove_dir_all(temp.path().join(".git")).unwrap();
    for link in ["", "gitdir:", "gitdir: ../../../../../..", "gitdir: /dev/null", "gitdir: gone"] {
        fs::write(temp.path().join(".git"), link).unwrap();
        assert_eq!(of(temp.path()).tracks(b"b"), Tracks::Nothing, "{link}");
    }
}

#[test]
fn paths_that_leave_the_repository_are_never_asked_for() {
    let entry = |path: &str| {
        let mut bytes = vec![0; 60];
        bytes.extend((path.len() as u16).to_be_bytes());
        bytes.extend(path.as_bytes());
        let padding = 8 - bytes.len() % 8;
        bytes.extend(vec![0; padding]);
        bytes
    };
    let mut bytes = [b"DIRC".as_slice(), &2u32.to_be_bytes(), &3u32.to_be_bytes()].concat();
    for path in ["../../etc/passwd", "/etc/passwd", "build/x"] {
        bytes.extend(entry(path));
    }
    bytes.extend([0; 20]);
    let decoded = decode::decode(&bytes).unwrap();
    assert_eq!(decoded.paths.look_up(b"build"), Tracks::Below);
    assert_eq!(decoded.paths.look_up(b"etc"), Tracks::Nothing);
    // Out of order, they could not be looked up.
    let mut bytes = [b"DIRC".as_slice(), &2u32.to_be_bytes(), &2u32.to_be_bytes()].concat();
    bytes.extend([entry("b"), entry("a")].concat());
    bytes.extend([0; 20]);
    assert!(decode::decode(&bytes).is_err());
}

#[test]
fn times_of_files_stage_nothing_and_contents_do() {
    let temp = repository();
    let staged = || {
        let index = fs::read(temp.path().join(".git/index")).unwrap();
        (ContentHash::of(&index), super::staged(&index).unwrap())
    };
    let (bytes, before) = staged();
    let touched = fs::File::options().write(true).open(temp.path().join("b")).unwrap();
    touched.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    git(temp.path(), &["update-index", "--refresh"]);
    assert_ne!(staged().0, bytes);
    assert_eq!(staged().1, before);
    fs::write(temp.path().join("b"), "other").unwrap();
    git(temp.path(), &["add", "b"]);
    assert_ne!(staged().1, before);
    let index = fs::read(temp.path().join(".git/index")).unwrap();
    let entries = super::staged_entries(&index).unwrap();
    let added = &entries[&(b"b".to_vec(), 0)];
    assert_eq!(added.mode, 0o100_644);
    git(temp.path(), &["cat-file", "-e", &added.object]);
    git(temp.path(), &["update-index", "--split-index"]);
    assert_eq!(super::staged_entries(b"DIRC"), None);
    assert_eq!(super::staged(&fs::read(temp.path().join(".git/index")).unwrap()), None);
    assert_eq!(super::staged(b"DIRC"), None);
}
