//! Contents of git directories beside objects and refs that are files: reftables, operations that
//! are under way, and stores that only grow. None of them is lost in silence.

use std::fs;
use std::path::{Path, PathBuf};

use crate::fixture::{Fixture, finished};
use crate::git_history::{git, settings};
use crate::not_run::not_run;

/// A repository with two branches that conflict in `file`, and a session that committed there.
struct Repository {
    fixture: Fixture,
}

impl Repository {
    /// `None`: this git has no such format of refs.
    fn new(format: &str) -> Option<Self> {
        let fixture = Fixture::new();
        settings(&fixture);
        let format = format!("--ref-format={format}");
        let repository = Self { fixture };
        let project = repository.fixture.project();
        if git(&repository.fixture, &project, &["init", "-q", "-b", "main", &format]).code != 0 {
            not_run("git has no reftables");
            return None;
        }
        repository.commit("file", "1");
        repository.git(&["checkout", "-qb", "other"]);
        repository.commit("file", "other");
        repository.git(&["checkout", "-q", "main"]);
        repository.commit("file", "main");
        Some(repository)
    }

    fn git(&self, arguments: &[&str]) -> String {
        git(&self.fixture, &self.fixture.project(), arguments).success().stdout
    }

    fn commit(&self, name: &str, content: &str) {
        self.fixture.write(name, format!("{content}\n"));
        self.git(&["add", "."]);
        self.git(&["commit", "-qm", content]);
    }

    fn record_a_commit(&self) {
        let work = "echo x > of-session && git add . && git commit -qm session";
        self.fixture.record(work).success();
    }

    /// Everything that a person could lose.
    fn told(&self) -> String {
        let parts = [
            &["for-each-ref"][..],
            &["stash", "list"],
            &["log", "--all", "--format=%H %s"],
            &["status", "--porcelain"],
        ];
        parts.into_iter().map(|arguments| self.git(arguments)).collect()
    }
}

#[test]
fn later_work_in_reftables_is_a_conflict_and_never_lost_in_silence() {
    for later in [
        &["branch", "later"][..],
        &["tag", "later"],
        &["commit", "-q", "--amend", "-m", "amended"],
        &["commit", "-q", "--allow-empty", "-m", "later"],
        &["stash"],
        &["update-ref", "refs/remotes/origin/main", "HEAD"],
        &["branch", "-D", "other"],
    ] {
        let Some(repository) = Repository::new("reftable") else { return };
        let fixture = &repository.fixture;
        let before = repository.told();
        repository.record_a_commit();
        if later == ["stash"] {
            fixture.write("file", "to be stashed\n");
        }
        repository.git(later);
        let with_later = repository.told();
        fixture.nono(&["undo", "--yes"]).fails(1, "reftables");
        assert_eq!(repository.told(), with_later, "{later:?}");
        fixture.nono(&["undo", "--yes", "--force"]).success();
        assert_eq!(repository.told(), before, "{later:?}");
        fixture.nono(&["redo", "--yes"]).success();
        assert_eq!(repository.told(), with_later, "{later:?}");
    }
}

#[test]
fn without_later_work_a_repository_with_reftables_comes_back() {
    let Some(repository) = Repository::new("reftable") else { return };
    let before = repository.told();
    repository.record_a_commit();
    let after = repository.told();
    repository.fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(repository.told(), before);
    repository.fixture.nono(&["redo", "--yes"]).success();
    assert_eq!(repository.told(), after);
}

#[test]
fn an_operation_that_began_after_the_session_is_a_conflict() {
    for format in ["files", "reftable"] {
        for (operation, begin) in [
            ("bisect", &["bisect", "start"][..]),
            ("merge", &["merge", "other"]),
            ("cherry-pick", &["cherry-pick", "other"]),
            ("revert", &["revert", "--no-edit", "HEAD~1"]),
        ] {
            let Some(repository) = Repository::new(format) else { return };
            let fixture = &repository.fixture;
            // `revert` of the commit before the last one has to conflict.
            fixture
                .record(
                    "echo x > file && git commit -qam one && echo y > file && git commit -qam 2",
                )
                .success();
            git(fixture, &fixture.project(), begin);
            let with_operation = repository.told();
            let undo = fixture.nono(&["undo", "--yes"]);
            assert_eq!(undo.code, 1, "{operation}: {}", undo.stdout);
            let is_named = undo.says(&format!("a {operation} is under way"));
            assert!(is_named || undo.says("reftables"), "{operation}: {}", undo.stderr);
            assert_eq!(repository.told(), with_operation, "{format}, {operation}");
        }
    }
}

#[test]
fn stores_that_only_grow_keep_what_came_after_a_session() {
    let Some(repository) = Repository::new("files") else { return };
    let project = repository.fixture.project();
    repository.git(&["init", "-q", "--bare", ".git/modules/sub"]);
    repository.record_a_commit();
    let (hash, id) = (format!("abcd{}", "0".repeat(60)), "a".repeat(40));
    let key = "SHA256E-s3--0123456789.txt";
    let mut kept: Vec<PathBuf> = Vec::new();
    for git_dir in [".git", ".git/modules/sub"] {
        let git_dir = project.join(git_dir);
        kept.push(git_dir.join("lfs/objects/ab/cd").join(&hash));
        kept.push(git_dir.join("rr-cache").join(&id).join("preimage"));
        kept.push(git_dir.join("rr-cache").join(&id).join("postimage"));
        kept.push(git_dir.join("annex/objects/w8/Xv").join(key).join(key));
    }
    for path in &kept {
        write(path);
    }
    repository.fixture.nono(&["undo", "--yes"]).success();
    assert!(!project.join("of-session").exists());
    for path in &kept {
        assert_eq!(fs::read_to_string(path).unwrap(), "kept", "{}", path.display());
    }
}

fn write(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "kept").unwrap();
}

#[test]
fn a_linked_work_tree_of_a_repository_with_reftables_can_commit_and_be_undone() {
    let Some(repository) = Repository::new("reftable") else { return };
    let fixture = &repository.fixture;
    let linked = fixture.path("linked");
    repository.git(&["worktree", "add", "-q", linked.to_str().unwrap(), "other"]);
    let there = |arguments: &[&str]| git(fixture, &linked, arguments).success().stdout;
    let nono = |arguments: &[&str]| {
        finished(fixture.command(arguments).current_dir(&linked).output().unwrap())
    };
    let before = repository.told();
    let script = "echo x > x && git add x && git commit -qm x && git tag v1 && git tag -d v1";
    nono(&["run", "--rollback", "--", "sh", "-c", script]).success();
    assert!(there(&["log", "-1", "--format=%s"]).contains('x'));
    nono(&["undo", "--yes"]).success();
    assert_eq!(repository.told(), before);
    assert_eq!(there(&["status", "--porcelain"]), "");
    nono(&["redo"]).success();
    assert!(there(&["log", "-1", "--format=%s"]).contains('x'));
    // Later work elsewhere in the repository is no part of it.
    repository.commit("file", "later");
    nono(&["undo", "--yes"]).success();
    assert_eq!(there(&["status", "--porcelain"]), "");
    assert!(repository.told().contains(" later\n") && !repository.told().contains(" x\n"));
    repository.git(&["fsck", "--strict"]);
    // Later work on the branch itself is a conflict, also where nothing happened in the work tree.
    nono(&["redo"]).success();
    repository.git(&["update-ref", "refs/heads/other", "refs/heads/main"]);
    let moved = repository.told();
    nono(&["undo", "--yes"]).fails(1, "the repository has moved on");
    assert_eq!(repository.told(), moved);
    nono(&["undo", "--yes", "--keep-commits"]).success();
    assert_eq!(repository.told(), moved);
}

#[test]
fn an_undo_in_one_work_tree_leaves_what_another_one_did_in_reftables() {
    for (later, flag) in [(false, None), (true, None), (false, Some("--force"))] {
        let Some(repository) = Repository::new("reftable") else { return };
        let fixture = &repository.fixture;
        let tops = ["one", "two"].map(|name| fixture.path(name));
        for top in &tops {
            repository.git(&["worktree", "add", "-q", top.to_str().unwrap()]);
        }
        let there = |top: &Path, arguments: &[&str]| git(fixture, top, arguments).success().stdout;
        let commit = |top: &Path, name: &str| {
            fs::write(top.join(name), name).unwrap();
            there(top, &["add", name]);
            there(top, &["commit", "-qm", name]);
        };
        let base = there(&tops[0], &["rev-parse", "HEAD"]);
        // The other work tree is in use while the command is at work, and later.
        let flags = ["--no-sandbox", "--rollback", "--", "sh", "-ec"];
        let script = format!(
            "echo x > x; git add x; git commit -qm x; cd {}; echo y > y; git add y; \
             git commit -qm y; git branch extra",
            tops[1].display()
        );
        let run = [&["run"], &flags[..], &[&script]].concat();
        let nono = |arguments: &[&str]| {
            finished(fixture.command(arguments).current_dir(&tops[0]).output().unwrap())
        };
        nono(&run).success();
        let after = there(&tops[0], &["rev-parse", "HEAD"]);
        if later {
            commit(&tops[1], "z");
            repository.git(&["tag", "v1"]);
        }
        let of_others = || {
            let refs = there(&tops[1], &["for-each-ref"]);
            let refs = refs.lines().filter(|line| !line.ends_with("refs/heads/one"));
            let refs: Vec<String> = refs.map(str::to_owned).collect();
            let status = there(&tops[1], &["status", "--porcelain", "-b"]);
            (refs, status, there(&tops[1], &["log", "-g", "--format=%gs"]))
        };
        let others = of_others();
        for _ in 0..2 {
            nono(&[&["undo", "--yes"][..], flag.as_slice()].concat()).success();
            assert_eq!(there(&tops[0], &["rev-parse", "HEAD"]), base);
            assert_eq!(there(&tops[0], &["rev-parse", "one"]), base);
            assert_eq!(there(&tops[0], &["status", "--porcelain"]), "");
            assert_eq!(of_others(), others);
            nono(&["redo"]).success();
            assert_eq!(there(&tops[0], &["rev-parse", "one"]), after);
            assert_eq!(there(&tops[0], &["status", "--porcelain"]), "");
            assert_eq!(of_others(), others);
        }
        // git goes on with the tables.
        repository.git(&["pack-refs", "--all"]);
        commit(&tops[0], "more");
        repository.git(&["fsck", "--strict"]);
    }
}

#[test]
fn a_later_symbolic_ref_is_later_work() {
    let Some(repository) = Repository::new("files") else { return };
    let fixture = &repository.fixture;
    let alias = ["symbolic-ref", "refs/heads/alias"];
    repository.git(&["symbolic-ref", "refs/heads/known", "refs/heads/main"]);
    repository.record_a_commit();
    for later in [
        &["symbolic-ref", "refs/heads/alias", "refs/heads/main"][..],
        &["symbolic-ref", "refs/heads/known", "refs/heads/other"],
        &["symbolic-ref", "-d", "refs/heads/known"],
    ] {
        repository.git(later);
        let now = repository.told();
        fixture.nono(&["undo", "--yes"]).fails(1, "the repository has moved on");
        assert_eq!(repository.told(), now, "{later:?}");
        let done = fixture.nono(&["undo", "--yes", "--force"]).success();
        assert!(done.says("alias is removed") || done.says("known is leading to main again"));
        fixture.nono(&["redo"]).success();
        assert_eq!(repository.told(), now, "{later:?}");
        repository.git(&["symbolic-ref", "refs/heads/known", "refs/heads/main"]);
        let _ = git(fixture, &fixture.project(), &[&alias[..1], &["-d"], &alias[1..]].concat());
    }
    // A ref of a remote tells of the remote, and is no work.
    repository.git(&["symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main"]);
    fixture.nono(&["undo", "--yes"]).success();
    assert!(fixture.project().join(".git/refs/remotes/origin/HEAD").exists());
}

#[test]
fn no_lock_of_git_comes_back() {
    let Some(repository) = Repository::new("files") else { return };
    let fixture = &repository.fixture;
    let linked = fixture.path("linked");
    repository.git(&["worktree", "add", "-q", linked.to_str().unwrap(), "other"]);
    let locks = [
        ".git/index.lock",
        ".git/config.lock",
        ".git/HEAD.lock",
        ".git/refs/heads/main.lock",
        ".git/objects/maintenance.lock",
        ".git/worktrees/linked/index.lock",
    ];
    let others = ["Cargo.lock", ".git/hooks/own.lock"];
    let names = || locks.iter().chain(&others);
    for name in names() {
        fixture.write(name, "locked");
    }
    let all: Vec<&str> = names().copied().collect();
    // The processes of git end while the command is at work.
    fixture.record(&format!("rm {}; echo x > of-session", all.join(" "))).success();
    let session = fixture.latest();
    let check = |top: &Path| {
        for name in names() {
            let is_back = top.join(name).exists();
            assert_eq!(is_back, others.contains(name), "{name} in {}", top.display());
        }
    };
    fixture.nono(&["undo", "--yes"]).success();
    check(&fixture.project());
    repository.git(&["commit", "-q", "--allow-empty", "-m", "later"]);
    let copy = fixture.path("copy");
    fixture.nono(&["restore", &session, "--to", copy.to_str().unwrap()]).success();
    check(&copy);
    // The whole repository, after it was moved away.
    let moved = fixture.path("moved");
    fs::rename(fixture.project().join(".git"), moved).unwrap();
    fixture.nono(&["restore", &session, "--yes", "--force"]).success();
    check(&fixture.project());
    repository.git(&["commit", "-q", "--allow-empty", "-m", "again"]);
}
