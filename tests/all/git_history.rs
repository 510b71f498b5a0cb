//! Repositories in a recorded project, with real git: a few lines tell the command's work on
//! commits, branches and the index, and an undo brings all of it back.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::{Finished, Fixture, finished};

/// A project that is a repository with three commits, a second branch, and work in progress.
struct Repository {
    fixture: Fixture,
}

/// All that git tells of a repository.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    status: String,
    head: String,
    refs: String,
    index: String,
    reflog: String,
    worktrees: String,
}

impl Repository {
    fn new() -> Self {
        let fixture = Fixture::new();
        settings(&fixture);
        let repository = Self { fixture };
        repository.git(&["init", "-q"]);
        for number in 1..=3 {
            repository.fixture.write("file", format!("{number}\n"));
            repository.git(&["add", "."]);
            repository.git(&["commit", "-qm", &format!("commit {number}")]);
        }
        repository.git(&["branch", "feature", "HEAD~1"]);
        repository.git(&["tag", "-a", "v1", "-m", "one", "HEAD~2"]);
        repository.fixture.write("staged", "in the index\n");
        repository.git(&["add", "staged"]);
        repository.fixture.write("file", "not committed\n");
        repository
    }

    fn git_in(&self, dir: &Path, arguments: &[&str]) -> Finished {
        git(&self.fixture, dir, arguments)
    }

    #[track_caller]
    fn git(&self, arguments: &[&str]) -> String {
        self.git_in(&self.fixture.project(), arguments).success().stdout
    }

    fn told(&self) -> Told {
        told(&self.fixture, &self.fixture.project())
    }

    /// Runs a script under nono, undoes it, and proves that nothing is different. Gives what was
    /// said after the run and after the restore.
    #[track_caller]
    fn undone(&self, script: &str) -> (Finished, Finished) {
        let before = self.told();
        let run = self.fixture.record(script).success();
        assert_ne!(self.told(), before, "the script does something");
        let restore = self.fixture.nono(&["rollback", "restore", &self.fixture.latest()]).success();
        assert_eq!(self.told(), before);
        self.is_sound();
        let again = self.fixture.nono(&["rollback", "restore", &self.fixture.latest()]).success();
        assert!(again.says("as in"), "{}", again.stderr);
        (run, restore)
    }

    #[track_caller]
    fn is_sound(&self) {
        let checked = self.git_in(&self.fixture.project(), &["fsck", "--strict"]).success();
        let bad = checked.stderr.lines().chain(checked.stdout.lines()).find(|line| {
            line.contains("error") || line.contains("missing") || line.contains("broken")
        });
        assert_eq!(bad, None);
    }
}

/// git's settings about its user.
pub fn settings(fixture: &Fixture) {
    let text = "[user]\nname = A\nemail = a@example.org\n[init]\ndefaultBranch = main\n[gc]\nauto = 0\n\
                [protocol \"file\"]\nallow = always\n[advice]\ndetachedHead = false\n";
    fs::write(fixture.path("home/.gitconfig"), text).unwrap();
}

pub fn git(fixture: &Fixture, dir: &Path, arguments: &[&str]) -> Finished {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(dir).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    // To look must not write the index.
    command.env("HOME", fixture.path("home")).env("GIT_OPTIONAL_LOCKS", "0");
    finished(command.output().unwrap())
}

fn told(fixture: &Fixture, dir: &Path) -> Told {
    let said = |arguments: &[&str]| git(fixture, dir, arguments).stdout;
    Told {
        status: said(&["status", "--porcelain"]),
        head: said(&["rev-parse", "--symbolic-full-name", "HEAD", "HEAD"])
            + &said(&["rev-parse", "HEAD"]),
        refs: said(&["for-each-ref"]),
        index: said(&["ls-files", "-s"]),
        reflog: said(&["reflog", "--all"]),
        worktrees: said(&["worktree", "list"]),
    }
}

fn short(repository: &Repository, what: &str) -> String {
    repository.git(&["rev-parse", "--short=7", what]).trim().to_owned()
}

#[test]
fn commits_are_named_and_undone() {
    let repository = Repository::new();
    let old = short(&repository, "HEAD");
    let script = "git commit -qam one; echo x > x; git add x; git commit -qm two";
    let (run, restore) = repository.undone(script);
    let said = format!("the command made 2 commits on main ({old}..");
    assert!(run.says(&said), "{}", run.stderr);
    let said = format!("main is at {old} again (2 commits undone)");
    assert!(restore.says(&said), "{}", restore.stderr);
    // One line for all that git wrote.
    assert_eq!(run.stderr.matches(".git").count(), 1, "{}", run.stderr);
    assert_eq!(restore.stdout.matches(".git").count(), 1, "{}", restore.stdout);
    assert!(restore.says("+ deleted") || restore.says("x"), "{}", restore.stdout);
}

#[test]
fn an_amended_commit_a_reset_and_a_rebase_are_told_apart() {
    for (script, said) in [
        ("git commit -q --amend -am other", "(1 commit added, 1 gone)"),
        ("git reset -q --hard HEAD~2", "(2 commits gone)"),
        (
            "git stash -q; git checkout -q -b topic HEAD~2; echo t > t; git add t; \
             git commit -qm t; git rebase -q main; git checkout -q main; git branch -D -q feature",
            "gone: feature (was ",
        ),
        (
            "git commit -qam w; git rebase -q --onto HEAD~3 HEAD~1 main -X theirs",
            "(1 commit added, 2 gone)",
        ),
    ] {
        let repository = Repository::new();
        let (run, _) = repository.undone(script);
        assert!(run.says(said), "{script}: {}", run.stderr);
    }
}

#[test]
fn another_branch_and_a_stash_are_named_and_undone() {
    let repository = Repository::new();
    let (run, restore) = repository.undone("git stash -q; git checkout -q feature; rm file");
    assert!(run.says("switched from main to feature"), "{}", run.stderr);
    assert!(run.says("changes were stashed ("), "{}", run.stderr);
    assert!(restore.says("HEAD is at main again"), "{}", restore.stderr);
    assert!(restore.says("the stash is removed (was "), "{}", restore.stderr);
    let (run, restore) = repository.undone("git stash -q; git checkout -q --detach HEAD~1");
    let commit = short(&repository, "HEAD~1");
    assert!(run.says(&format!("switched from main to {commit}")), "{}", run.stderr);
    assert!(restore.says("HEAD is at main again"), "{}", restore.stderr);
}

#[test]
fn new_branches_and_tags_are_named_and_undone() {
    let repository = Repository::new();
    let (run, restore) = repository.undone("git branch a; git tag v2; git tag -d v1; git branch b");
    for said in ["new: a (", "new: b (", "new: tag v2 (", "gone: tag v1 (was "] {
        assert!(run.says(said), "{said}: {}", run.stderr);
    }
    assert!(restore.says("tag v1 is back ("), "{}", restore.stderr);
}

#[test]
fn garbage_collection_and_packed_refs_are_undone() {
    let repository = Repository::new();
    let (_, restore) = repository
        .undone("git commit -qam one; git reflog expire --expire=now --all; git gc -q --prune=now");
    assert!(restore.says("(1 commit undone)"), "{}", restore.stderr);
    // And where refs are packed before.
    repository.git(&["pack-refs", "--all"]);
    let (run, _) = repository.undone("git commit -qam one; git branch -D -q feature");
    assert!(run.says("the command made 1 commit on main"), "{}", run.stderr);
    assert!(run.says("gone: feature"), "{}", run.stderr);
}

#[test]
fn objects_that_git_added_stay_and_the_restore_is_complete() {
    let repository = Repository::new();
    repository.fixture.record("git commit -qam one; git rev-parse HEAD > ../project/id").success();
    let made = fs::read_to_string(repository.fixture.project().join("id")).unwrap();
    let done =
        repository.fixture.nono(&["rollback", "restore", "--json", &repository.fixture.latest()]);
    let report = done.success().json();
    assert_eq!(report["skipped"], serde_json::json!([]));
    // A noted commit can still be had.
    assert_eq!(repository.git(&["cat-file", "-t", made.trim()]), "commit\n");
    // A file that is no object is not kept for lying beside objects.
    repository
        .fixture
        .record("echo evil > .git/objects/info/alternates; touch .git/objects/x")
        .success();
    repository.fixture.nono(&["rollback", "restore", &repository.fixture.latest()]).success();
    for name in [".git/objects/info/alternates", ".git/objects/x"] {
        assert!(!repository.fixture.project().join(name).exists(), "{name}");
    }
}

#[test]
fn a_repository_that_is_removed_comes_back_and_a_new_one_goes() {
    let repository = Repository::new();
    let (run, restore) = repository.undone("rm -rf .git");
    assert!(run.says("the repository is gone"), "{}", run.stderr);
    assert!(restore.says("the repository is back"), "{}", restore.stderr);
    let (run, restore) = repository.undone("rm -rf .git; git init -q; git add .; git commit -qm x");
    assert!(run.says("main"), "{}", run.stderr);
    assert!(restore.says("main is at "), "{}", restore.stderr);

    let fixture = Fixture::new();
    settings(&fixture);
    fixture.write("file", "x");
    let run = fixture.record("git init -q; git add .; git commit -qm x").success();
    assert!(run.says("a new repository"), "{}", run.stderr);
    fixture.nono(&["rollback", "restore", &fixture.latest()]).success();
    assert!(!fixture.project().join(".git").exists());
}

#[test]
fn no_ignore_rule_counts_in_a_git_directory() {
    let repository = Repository::new();
    repository.fixture.write(".gitignore", "*\n.git\nobjects/\nrefs\nbuild/\n");
    repository.fixture.write("large", vec![0; 2 << 20]);
    let (run, _) = repository.undone("git checkout -q -b build/x; git commit -qam one");
    assert!(run.says("the command made 1 commit on build/x, a new branch ("), "{}", run.stderr);
    let show =
        repository.fixture.nono(&["rollback", "show", "--json", &repository.fixture.latest()]);
    let left_out = show.success().json()["snapshots"][0]["not_captured"].to_string();
    assert!(left_out.contains("/large") && !left_out.contains("/.git\""), "{left_out}");
    assert!(!left_out.contains("/.git/"), "{left_out}");
}

#[test]
fn later_commits_of_the_user_are_one_conflict() {
    let repository = Repository::new();
    repository.fixture.record("git commit -qam one").success();
    let session = repository.fixture.latest();
    let after_run = repository.told();
    for number in 1..=3 {
        repository.git(&["commit", "-q", "--allow-empty", "-m", &format!("mine {number}")]);
    }
    let mine = repository.told();
    let restore = |flags: &[&str]| {
        let arguments = [&["rollback", "restore", &session][..], flags].concat();
        repository.fixture.nono(&arguments)
    };
    let refused = restore(&[]).fails(1, ".git: the repository has moved on: 3 commits");
    assert_eq!(refused.stderr.matches(".git").count(), 1, "{}", refused.stderr);
    let report = restore(&["--json", "--dry-run"]).json();
    assert_eq!(report["conflicts"].as_array().unwrap().len(), 1);
    assert_eq!(report["conflicts"][0]["repository"]["why"], "moved_on");
    assert_eq!(repository.told(), mine);

    // The newer repository stays as one thing, and nothing else differs.
    restore(&["--keep-newer"]).fails(1, "all that differs is newer");
    let kept = repository.told();
    assert_eq!((&kept.refs, &kept.head, &kept.index), (&mine.refs, &mine.head, &mine.index));
    repository.is_sound();

    let forced = restore(&["--force"]).success();
    assert!(forced.says("(4 commits undone)"), "{}", forced.stderr);
    assert_ne!(repository.told().refs, after_run.refs);
    repository.is_sound();
    // The restore is undone as well, and no question is asked.
    let safety =
        forced.stderr.lines().find_map(|line| line.split_once("take this back: nono ")).unwrap();
    let words: Vec<&str> = safety.1.split(' ').collect();
    let again = repository.fixture.nono(&words).success();
    assert!(again.says("4 commits back"), "{}", again.stderr);
    assert_eq!(repository.told().refs, mine.refs);
    repository.is_sound();
}

#[test]
fn a_plan_tells_of_commits_that_no_snapshot_holds() {
    let repository = Repository::new();
    repository.fixture.record("git commit -qam one").success();
    repository.git(&["commit", "-q", "--allow-empty", "-m", "mine"]);
    let planned = ["rollback", "restore", &repository.fixture.latest(), "--dry-run"];
    repository.fixture.nono(&planned).fails(1, "the repository has moved on: 1 commit");
}

#[test]
fn what_git_writes_by_itself_is_no_conflict() {
    let repository = Repository::new();
    let before = repository.told();
    repository.fixture.record("git commit -qam one").success();
    // Files with other times have git write its index; a fetch and a message leave traces, too.
    repository.fixture.write("staged", "in the index\n");
    let mut status = Command::new("git");
    status.args(["status"]).current_dir(repository.fixture.project()).env("HOME", "/nowhere");
    assert!(status.output().unwrap().status.success());
    repository.fixture.write(".git/FETCH_HEAD", "x");
    repository.fixture.write(".git/COMMIT_EDITMSG", "x");
    repository.git(&["gc", "-q"]);
    // The file itself was touched by this test, and is left.
    let done = repository.fixture.nono(&[
        "rollback",
        "restore",
        &repository.fixture.latest(),
        "--dry-run",
    ]);
    assert!(!done.says(".git was changed") && !done.says("index was changed"), "{}", done.stderr);
    repository
        .fixture
        .nono(&["rollback", "restore", "--force", &repository.fixture.latest()])
        .success();
    assert_eq!(repository.told(), before);

    // Settings and hooks are the user's own work.
    repository.fixture.record("git commit -qam one").success();
    repository.fixture.write(".git/hooks/pre-commit", "mine");
    repository.git(&["config", "x.y", "z"]);
    let done = repository.fixture.nono(&["rollback", "restore", &repository.fixture.latest()]);
    let done = done.fails(1, ".git/config was changed after the session");
    assert!(!done.says("index"), "{}", done.stderr);
}

#[test]
fn commits_are_kept_when_that_is_asked_for() {
    let repository = Repository::new();
    repository.fixture.record("git commit -qam one; echo more > file; rm staged").success();
    let after_run = repository.told();
    let session = repository.fixture.latest();
    let done =
        repository.fixture.nono(&["rollback", "restore", "--keep-commits", &session]).success();
    assert!(!done.says(".git"), "{}{}", done.stdout, done.stderr);
    let now = repository.told();
    assert_eq!(
        (&now.refs, &now.head, &now.index),
        (&after_run.refs, &after_run.head, &after_run.index)
    );
    let file = fs::read_to_string(repository.fixture.project().join("file")).unwrap();
    assert_eq!(file, "not committed\n");
    repository.is_sound();
}

#[test]
fn a_part_that_names_no_repository_leaves_it_alone() {
    let repository = Repository::new();
    let before = repository.told();
    repository.fixture.record("git commit -qam one; echo more > file; git branch file").success();
    let after_run = repository.told();
    let restore = |arguments: &[&str]| {
        let session = repository.fixture.latest();
        let arguments = [&["rollback", "restore", &session][..], arguments].concat();
        repository.fixture.nono(&arguments).success();
        repository.is_sound();
    };
    // A glob that a branch's name matches as well, and kinds of change of which git makes all.
    restore(&["fil*"]);
    assert_eq!(repository.told().refs, after_run.refs);
    restore(&["--only", "modified"]);
    restore(&["--only", "created"]);
    assert_eq!(repository.told().refs, after_run.refs);
    restore(&[".git"]);
    let now = repository.told();
    assert_eq!((now.refs, now.index), (before.refs, before.index));
}

#[test]
fn a_lock_says_that_git_is_at_work() {
    let repository = Repository::new();
    let before = repository.told();
    repository.fixture.record("git commit -qam one").success();
    let session = repository.fixture.latest();
    let lock = repository.fixture.write(".git/index.lock", "");
    let restore = ["rollback", "restore", &session];
    repository.fixture.nono(&restore).fails(1, ".git: git is at work in it (index.lock)");
    fs::remove_file(lock).unwrap();
    repository.fixture.nono(&restore).success();
    assert_eq!(repository.told(), before);
    // One that the command left behind is no sign of work.
    let (_, restore) = repository.undone("git commit -qam one; touch .git/refs/heads/main.lock");
    assert!(restore.says("main is at"), "{}", restore.stderr);
}

#[test]
fn a_bare_repository_is_recognised_as_tracked_path() {
    let fixture = Fixture::new();
    settings(&fixture);
    let seed = Repository::new();
    seed.git(&["commit", "-qam", "all"]);
    let clone = |from: &Path| {
        let from = from.to_str().unwrap();
        git(&fixture, &fixture.project(), &["clone", "-q", "--bare", from, "."]).success();
    };
    clone(&seed.fixture.project());
    let before = told(&fixture, &fixture.project());
    let run = fixture.record("git branch -D -q feature; git update-ref refs/heads/main HEAD~1");
    let run = run.success();
    assert!(run.says("main moved: ") && run.says("(1 commit gone)"), "{}", run.stderr);
    fixture.nono(&["rollback", "restore", &fixture.latest()]).success();
    assert_eq!(told(&fixture, &fixture.project()), before);
    git(&fixture, &fixture.project(), &["fsck", "--strict"]).success();
}

#[test]
fn a_submodule_comes_back_with_its_repository() {
    let other = Repository::new();
    other.git(&["commit", "-qam", "all"]);
    let repository = Repository::new();
    let from: PathBuf = other.fixture.project();
    repository.git(&["submodule", "add", "-q", from.to_str().unwrap(), "sub"]);
    repository.git(&["commit", "-qam", "with a submodule"]);
    let sub = repository.fixture.project().join("sub");
    let before = told(&repository.fixture, &sub);
    let (run, restore) = repository
        .undone("cd sub; echo x > x; git add x; git commit -qm x; cd ..; git commit -qam s");
    let said = ".git/modules/sub: the command made 1 commit on main (";
    assert!(run.says(said), "{}", run.stderr);
    assert!(run.says("  the command made 1 commit on main ("), "{}", run.stderr);
    assert!(restore.says(".git/modules/sub: main is at"), "{}", restore.stderr);
    assert_eq!(told(&repository.fixture, &sub), before);
    git(&repository.fixture, &sub, &["fsck", "--strict"]).success();
    let (_, restore) = repository.undone("rm -rf sub .git/modules");
    assert!(restore.says("the repository is back"), "{}", restore.stderr);
    assert_eq!(told(&repository.fixture, &sub), before);
}

#[test]
fn what_git_wrote_is_one_line_in_every_list() {
    let repository = Repository::new();
    repository.fixture.record("git commit -qam one; echo x > new").success();
    let session = repository.fixture.latest();
    let show = repository.fixture.nono(&["rollback", "show", &session]).success();
    assert!(show.says("the command made 1 commit on main ("), "{}", show.stdout);
    assert_eq!(show.stdout.matches("~ repository  .git: ").count(), 1, "{}", show.stdout);
    assert!(!show.says(".git/"), "{}", show.stdout);
    let patch = repository.fixture.nono(&["rollback", "show", "--diff", &session]).success();
    assert!(!patch.stdout.contains(".git") && patch.stdout.contains("new"), "{}", patch.stdout);
    let said = "not shown: .git: 1 commit (--json names its files)";
    assert!(patch.stderr.contains(said), "{}", patch.stderr);
    // Programs get every path.
    let report =
        repository.fixture.nono(&["rollback", "show", "--json", &session]).success().json();
    let changes = report["snapshots"][1]["changes"].to_string();
    assert!(
        changes.contains(".git/index") && changes.contains(".git/refs/heads/main"),
        "{changes}"
    );
    let moved = &report["snapshots"][1]["repositories"][0]["moves"][0];
    assert_eq!((&moved["what"], &moved["name"]), (&"moved".into(), &"refs/heads/main".into()));
}

#[test]
fn objects_beyond_a_limit_are_left_out_and_named() {
    let repository = Repository::new();
    let pack = repository.fixture.write(".git/objects/pack/pack-large.pack", "");
    fs::File::options().write(true).open(&pack).unwrap().set_len((1 << 30) + 1).unwrap();
    let before = repository.told();
    let run = repository.fixture.record("git commit -qam one; git branch x").success();
    let said = "left out: ".to_owned();
    assert!(run.says(&said) && run.says(".git/objects, more than 1 GiB"), "{}", run.stderr);
    assert!(run.says("the command made 1 commit on main"), "{}", run.stderr);
    // It is unknown whether an object that is needed is among those that went.
    let restore = ["rollback", "restore", &repository.fixture.latest()];
    let restored = repository.fixture.nono(&restore).fails(1, "not recorded and changed: ");
    assert!(restored.says(".git/objects/"), "{}", restored.stderr);
    assert_eq!(repository.told(), before);
}

#[test]
fn hostile_git_directories_say_nothing_and_break_nothing() {
    let fixture = Fixture::new();
    for dir in ["refs/heads", "objects/pack"] {
        fs::create_dir_all(fixture.project().join(".git").join(dir)).unwrap();
    }
    fixture.write(".git/HEAD", "ref: refs/../../../etc/passwd\n");
    fixture.write(".git/packed-refs", [0xff; 300]);
    let (a, b) = ("a".repeat(40), "b".repeat(40));
    fixture.write(".git/refs/heads/main", format!("{a}\n"));
    fixture.write(".git/refs/heads/long", vec![b'a'; 1 << 20]);
    // An object that is a pipe would be waited for, one that claims to be huge would be allocated.
    let script = format!(
        "echo {b} > .git/refs/heads/main; echo {b} > '.git/refs/heads/a\u{1b}[31m'; \
         mkdir .git/objects/bb; mkfifo .git/objects/bb/{}",
        "b".repeat(38)
    );
    let run = fixture.record(&script).success();
    assert!(run.says("main moved: aaaaaaa..bbbbbbb"), "{}", run.stderr);
    assert!(!run.stderr.contains('\u{1b}'), "{}", run.stderr);
    // This commit never was there.
    fixture.nono(&["rollback", "restore", &fixture.latest()]).fails(1, "does not have commit aaaa");
    let main = fs::read_to_string(fixture.project().join(".git/refs/heads/main")).unwrap();
    assert_eq!(main, format!("{a}\n"));
}

/// A linked work tree beside a repository.
fn linked_worktree(repository: &Repository) -> PathBuf {
    repository.git(&["commit", "-qam", "all"]);
    repository.git(&["pack-refs", "--all"]);
    let worktree = repository.fixture.path("linked");
    repository.git(&["worktree", "add", "-q", worktree.to_str().unwrap(), "feature"]);
    worktree
}

fn nono_in(repository: &Repository, dir: &Path, arguments: &[&str]) -> Finished {
    finished(repository.fixture.command(arguments).current_dir(dir).output().unwrap())
}

fn record_in(repository: &Repository, dir: &Path, script: &str) -> Finished {
    nono_in(repository, dir, &["run", "--rollback", "--", "sh", "-ec", script])
}

#[test]
fn in_a_linked_work_tree_only_what_is_its_own_moves() {
    let repository = Repository::new();
    let worktree = linked_worktree(&repository);
    let told_there = || told(&repository.fixture, &worktree);
    let before = told_there();
    let script = "echo x > x; git add x; git commit -qm x; git tag made; git branch other";
    let run = record_in(&repository, &worktree, script).success();
    assert!(run.says("can write objects, refs and logs of its repository"), "{}", run.stderr);
    assert!(run.says("  the command made 1 commit on feature ("), "{}", run.stderr);
    // Work of others in the meantime.
    repository.git(&["commit", "-q", "--allow-empty", "-m", "elsewhere"]);
    let elsewhere = short(&repository, "main");
    let session = repository.fixture.latest();
    let restore = nono_in(&repository, &worktree, &["rollback", "restore", &session]).success();
    assert!(
        restore.says("feature is at ") && restore.says("(1 commit undone)"),
        "{}",
        restore.stderr
    );
    let now = told_there();
    assert_eq!((&now.status, &now.head, &now.index), (&before.status, &before.head, &before.index));
    assert_eq!(short(&repository, "main"), elsewhere, "branches of others stay");
    assert!(now.refs.contains("refs/tags/made") && now.refs.contains("refs/heads/other"));
    repository.is_sound();
    git(&repository.fixture, &worktree, &["fsck", "--strict"]).success();
    let again = nono_in(&repository, &worktree, &["rollback", "restore", &session]).success();
    assert!(again.says("as in"), "{}", again.stderr);
}

#[test]
fn later_commits_and_locks_in_a_linked_work_tree_are_one_conflict() {
    let repository = Repository::new();
    let worktree = linked_worktree(&repository);
    record_in(&repository, &worktree, "git commit -q --allow-empty -m x").success();
    let session = repository.fixture.latest();
    let lock = repository.fixture.project().join(".git/refs/heads/feature.lock");
    fs::write(&lock, "").unwrap();
    let restore = ["rollback", "restore", &session];
    let refused = nono_in(&repository, &worktree, &restore).fails(1, "git is at work in it");
    assert!(refused.says("refs/heads/feature.lock"), "{}", refused.stderr);
    fs::remove_file(&lock).unwrap();
    for message in ["a", "b"] {
        let commit = ["commit", "-q", "--allow-empty", "-m", message];
        git(&repository.fixture, &worktree, &commit).success();
    }
    let refused = nono_in(&repository, &worktree, &restore);
    let refused = refused.fails(1, "the repository has moved on: 2 commits");
    assert_eq!(refused.stderr.matches("moved on").count(), 1, "{}", refused.stderr);
    assert!(!refused.says("was changed after"), "{}", refused.stderr);
    nono_in(&repository, &worktree, &[&restore[..], &["--force"]].concat()).success();
    repository.is_sound();
}

#[test]
fn a_command_in_a_linked_work_tree_leaves_no_hook_and_no_setting() {
    let repository = Repository::new();
    let worktree = linked_worktree(&repository);
    let config = repository.fixture.project().join(".git/config");
    let before = fs::read(&config).unwrap();
    let script = "common=$(git rev-parse --git-common-dir); echo x > x; git add x; git commit -qm \
                  x; ! echo x 2>/dev/null > $common/hooks/post-commit; ! git config core.editor x \
                  2>/dev/null";
    record_in(&repository, &worktree, script).success();
    assert!(!repository.fixture.project().join(".git/hooks/post-commit").exists());
    assert_eq!(fs::read(&config).unwrap(), before);
}

#[test]
fn a_restore_to_a_commit_that_is_gone_is_not_complete() {
    let repository = Repository::new();
    let worktree = linked_worktree(&repository);
    let commit = ["commit", "-q", "--allow-empty", "-m", "mine"];
    git(&repository.fixture, &worktree, &commit).success();
    let mine = git(&repository.fixture, &worktree, &["rev-parse", "HEAD"]).success().stdout;
    let script = "git reset -q --hard HEAD~1; common=$(git rev-parse --git-common-dir); \
                  rm -rf $common/objects/??";
    record_in(&repository, &worktree, script).success();
    let restore = ["rollback", "restore", &repository.fixture.latest()];
    let restored = nono_in(&repository, &worktree, &restore).fails(1, "does not have commit");
    assert!(restored.says(mine.trim()), "{}", restored.stderr);
}

#[test]
fn a_git_file_leads_only_to_what_says_that_it_belongs_here() {
    let repository = Repository::new();
    let worktree = linked_worktree(&repository);
    let own = repository.fixture.project().join(".git/worktrees/linked");
    // A stranger's directory, a worktree of another place, a loop, nothing, and a way out.
    let stranger = repository.fixture.path("stranger");
    fs::create_dir(&stranger).unwrap();
    fs::write(stranger.join("gitdir"), stranger.join(".git").to_str().unwrap()).unwrap();
    let victim = repository.fixture.path("victim");
    fs::create_dir(&victim).unwrap();
    for (name, lies) in [
        ("stranger", stranger.display().to_string()),
        ("other", own.display().to_string()),
        ("loop", ".".to_owned()),
        ("up", "../project/.git/worktrees/linked/../linked".to_owned()),
        ("etc", "/etc".to_owned()),
        ("none", String::new()),
    ] {
        let work = repository.fixture.path(name).with_extension("work");
        fs::create_dir(&work).unwrap();
        fs::write(work.join(".git"), format!("gitdir: {lies}\n")).unwrap();
        let target = repository.fixture.project().join(".git/made");
        let script = format!("! echo x 2>/dev/null > {}", target.display());
        let run = record_in(&repository, &work, &script).success();
        assert!(!run.says("git worktree"), "{name}: {}", run.stderr);
        assert!(!target.exists(), "{name}");
    }
    // The right directory that names another repository as its own.
    fs::write(own.join("commondir"), format!("{}\n", victim.display())).unwrap();
    let run = record_in(&repository, &worktree, "true").success();
    assert!(!run.says("git worktree"), "{}", run.stderr);
}

#[test]
fn below_the_top_history_can_be_read_and_no_commit_be_made() {
    let repository = Repository::new();
    repository.fixture.write("deep/er/file", "x");
    let before = repository.told();
    let deep = repository.fixture.project().join("deep/er");
    let script = "git log --oneline | grep -q 'commit 3'; git diff -- . > /dev/null; echo y > \
                  file; ! git commit -qam x 2> /dev/null";
    let run = record_in(&repository, &deep, script).success();
    let top = repository.fixture.project();
    let said = format!(
        "commits cannot be made from here: the top of the repository is above (--allow {}); \
         what lies there cannot be read, and git shows it as deleted",
        top.display()
    );
    assert!(run.says(&said), "{}", run.stderr);
    // Commits of the user are nothing to this session.
    repository.git(&["commit", "-q", "--allow-empty", "-m", "mine"]);
    let mine = repository.told();
    nono_in(&repository, &deep, &["rollback", "restore", &repository.fixture.latest()]).success();
    assert_eq!(fs::read_to_string(deep.join("file")).unwrap(), "x");
    assert_eq!(repository.told().refs, mine.refs);
    assert_ne!(mine.refs, before.refs);
}

#[test]
fn a_restore_that_is_killed_leaves_a_repository_that_is_resumed_or_taken_back() {
    let repository = Repository::new();
    let before = repository.told();
    let script = "git commit -qam one; git checkout -q -b new; git commit -q --allow-empty -m two; \
                  git gc -q --prune=now";
    repository.fixture.record(script).success();
    let after = repository.told();
    let session = repository.fixture.latest();
    let is_half_way = || {
        fs::read_dir(repository.fixture.store().join(&session))
            .unwrap()
            .any(|entry| entry.unwrap().file_name().to_string_lossy().contains("restore.journal"))
    };
    let (mut half_way, mut point, mut number) = (0, 40, 0);
    // Every few calls, there and back again.
    while half_way < 12 {
        let target = format!("{session}/{number}");
        let mut killed = repository.fixture.command(&["rollback", "restore", "--force", &target]);
        let status = killed.env("NONO_FAIL_POINT", point.to_string()).output().unwrap().status;
        if status.success() {
            number = 1 - number;
            point = 40;
            continue;
        }
        if is_half_way() {
            half_way += 1;
            let way: &[&str] = if half_way % 2 == 0 { &["--abort"] } else { &[] };
            let ended = repository.fixture.nono(&[&["rollback", "resume"][..], way].concat());
            // Without a path half-way it ends as it was, and says so where that was not asked for.
            let is_finish = way.is_empty();
            let wanted = if (number == 0) == is_finish { &before } else { &after };
            let is_as_asked = repository.told() == *wanted;
            // A journal that is only being written is none yet.
            let is_none = ended.says("no restore was interrupted");
            assert_eq!(ended.code == 0, is_as_asked || is_none, "{point}: {}", ended.stderr);
        }
        let now = repository.told();
        assert!(now == before || now == after, "at point {point}: {now:?}");
        repository.is_sound();
        point += 23;
    }
}

#[test]
fn what_a_user_staged_stays_where_the_session_only_looked_at_the_repository() {
    for is_linked in [false, true] {
        let repository = Repository::new();
        let place = match is_linked {
            true => linked_worktree(&repository),
            false => repository.fixture.project(),
        };
        // As `git status` does: the index gets the new times, and stages what it did.
        let script = "echo x > new; touch -d 2001-01-01 *; git update-index -q --refresh || true";
        let path = git(&repository.fixture, &place, &["rev-parse", "--git-path", "index"]).stdout;
        let index = || fs::read(place.join(path.trim())).unwrap();
        let before = index();
        record_in(&repository, &place, script).success();
        assert_ne!(index(), before);
        fs::write(place.join("own"), "staged").unwrap();
        git(&repository.fixture, &place, &["add", "own"]).success();
        fs::write(place.join("own"), "later").unwrap();
        let index = told(&repository.fixture, &place).index;
        nono_in(&repository, &place, &["undo", "--yes"]).success();
        assert!(!place.join("new").exists());
        assert_eq!(told(&repository.fixture, &place).index, index, "linked: {is_linked}");
        assert_eq!(fs::read_to_string(place.join("own")).unwrap(), "later");
    }
}

#[test]
fn a_part_of_a_repository_that_comes_back_is_called_a_part() {
    let repository = Repository::new();
    let place = repository.fixture.project();
    repository.fixture.record("rm -rf .git").success();
    let planned = nono_in(&repository, &place, &["restore", ".git/HEAD", "--dry-run"]);
    assert!(planned.says("the repository would be back in part"), "{}", planned.stderr);
    let part = nono_in(&repository, &place, &["restore", ".git/HEAD"]).success();
    assert!(part.says("the repository is back in part"), "{}{}", part.stdout, part.stderr);
    assert!(place.join(".git/HEAD").exists() && !place.join(".git/objects").exists());
    let rest = nono_in(&repository, &place, &["restore", ".git", "--force"]).success();
    let told = format!("{}{}", rest.stdout, rest.stderr);
    assert!(told.contains("the repository is back") && !told.contains("in part"), "{told}");
    repository.git(&["fsck"]);
}

#[test]
fn an_index_that_git_writes_anew_is_no_change_of_the_work() {
    for is_linked in [false, true] {
        let repository = Repository::new();
        let place = match is_linked {
            true => linked_worktree(&repository),
            false => repository.fixture.project(),
        };
        let said = |words: &[&str]| {
            let done = nono_in(&repository, &place, words).success();
            done.stdout + &done.stderr
        };
        let path = git(&repository.fixture, &place, &["rev-parse", "--git-path", "index"]).stdout;
        let index = || fs::read(place.join(path.trim())).unwrap();
        // A file that is as the index says, but for its time: git notes the new one.
        let same = if is_linked { "file" } else { "staged" };
        let refresh = || {
            let before = index();
            let time = fs::FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH);
            fs::File::open(place.join(same)).unwrap().set_times(time).unwrap();
            git(&repository.fixture, &place, &["update-index", "-q", "--refresh"]);
            assert_ne!(index(), before, "git wrote no index");
        };
        record_in(&repository, &place, "echo x > new").success();
        nono_in(&repository, &place, &["undo", "--yes"]).success();
        refresh();
        let status = said(&["status"]);
        assert!(!status.contains(".git"), "linked: {is_linked}: {status}");
        assert!(!said(&["diff"]).contains(".git"));
        // A session in which git did nothing else, in every list.
        let before = index();
        let script = format!("touch -d 2001-01-01 {same}; git status");
        let looked = record_in(&repository, &place, &script).success();
        assert_ne!(index(), before, "git wrote no index");
        assert!(looked.says("nothing changed"), "linked: {is_linked}: {}", looked.stderr);
        for list in [&["list"][..], &["show", "latest"], &["log"]] {
            assert!(!said(list).contains(".git: "), "linked: {is_linked}: {list:?} {}", said(list));
        }
        // Staged contents are work.
        fs::write(place.join("own"), "staged").unwrap();
        git(&repository.fixture, &place, &["add", "own"]).success();
        let status = said(&["status"]);
        assert!(status.contains("1 file staged"), "linked: {is_linked}: {status}");
    }
}

/// Makes a bare repository beside the project, to which `main` was pushed.
fn remote(repository: &Repository) -> PathBuf {
    let remote = repository.fixture.path("remote.git");
    repository.git(&["init", "-q", "--bare", remote.to_str().unwrap()]);
    repository.git(&["remote", "add", "origin", remote.to_str().unwrap()]);
    repository.git(&["push", "-q", "-u", "origin", "main"]);
    remote
}

/// Records a script that may write to the remote.
#[track_caller]
fn record_with(repository: &Repository, remote: &Path, script: &str) -> Finished {
    let remote = remote.to_str().unwrap();
    repository.fixture.nono(&["run", "--rollback", "--write", remote, "--", "sh", "-c", script])
}

/// The refs that are no remote-tracking branches, and those that are.
fn refs(repository: &Repository) -> [Vec<String>; 2] {
    let all = repository.git(&["for-each-ref", "--format=%(objectname) %(refname)"]);
    let (of_remote, local) =
        all.lines().map(str::to_owned).partition(|line| line.contains(" refs/remotes/"));
    [local, of_remote]
}

/// Undoes the last session, and proves that the remote-tracking branches are those of the session,
/// and all else is as before.
#[track_caller]
fn undone_but_for_the_remote(repository: &Repository, local: &[String]) -> Finished {
    let [_, of_remote] = refs(repository);
    let reflog = || repository.git(&["reflog", "origin/main"]);
    let (before, after) = (reflog(), repository.told());
    let undone = repository.fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(refs(repository), [local.to_vec(), of_remote.clone()]);
    assert_eq!(reflog(), before);
    repository.is_sound();
    // A second restore finds nothing to do, and a redo leads back.
    let id = repository.fixture.latest();
    let again = repository.fixture.nono(&["rollback", "restore", &id]).success();
    assert!(again.says("as in"), "{}", again.stderr);
    repository.fixture.nono(&["redo", "--yes"]).success();
    assert_eq!(repository.told(), after);
    repository.is_sound();
    repository.fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(refs(repository), [local.to_vec(), of_remote]);
    undone
}

#[test]
fn an_undo_leaves_what_git_knows_of_a_push() {
    let repository = Repository::new();
    let remote = remote(&repository);
    let [local, _] = refs(&repository);
    let old = repository.git(&["rev-parse", "main"]);
    let run = record_with(&repository, &remote, "git commit -qam one && git push -q").success();
    assert!(run.says("1 remote-tracking branch moved"), "{}", run.stderr);
    let pushed = repository.git(&["rev-parse", "main"]);
    let undone = undone_but_for_the_remote(&repository, &local);
    assert!(undone.says("main was pushed to origin and stays there"), "{}", undone.stderr);
    assert!(!undone.says("remote-tracking"), "{}", undone.stderr);
    assert_eq!(repository.git(&["rev-parse", "main"]), old);
    assert_eq!(repository.git(&["rev-parse", "origin/main"]), pushed);
    let status = repository.git(&["status"]);
    assert!(status.contains("is behind 'origin/main' by 1 commit"), "{status}");
    let told = repository.fixture.nono(&["rollback", "restore", "latest", "--dry-run", "--json"]);
    let stays = told.json()["repositories"][0]["stays"][0].clone();
    assert_eq!(stays["name"], "refs/remotes/origin/main");
    assert_eq!(stays["commit"], pushed.trim());
    assert_eq!(stays["is_pushed"], true);
}

#[test]
fn an_undo_merges_packed_refs_line_by_line() {
    // Each has both kinds of refs in the file before, after, or both.
    for (before, after) in [(true, true), (false, true), (true, false)] {
        let repository = Repository::new();
        let remote = remote(&repository);
        if before {
            repository.git(&["pack-refs", "--all"]);
        }
        let [local, _] = refs(&repository);
        let pack = if after { "git pack-refs --all" } else { "true" };
        let script = format!(
            "git commit -qam one && git tag -a v2 -m two && git branch -q other && \
             git push -q origin main other && git branch -q -D feature && {pack}"
        );
        record_with(&repository, &remote, &script).success();
        let undone = undone_but_for_the_remote(&repository, &local);
        for branch in ["main", "other"] {
            let said = format!("{branch} was pushed to origin and stays there");
            assert!(undone.says(&said), "{}", undone.stderr);
        }
    }
}

#[test]
fn an_undo_leaves_what_was_fetched_and_says_so() {
    let repository = Repository::new();
    let remote = remote(&repository);
    let other = repository.fixture.path("other");
    let (from, to) = (remote.to_str().unwrap(), other.to_str().unwrap());
    repository.git(&["clone", "-q", from, to]);
    repository.git_in(&other, &["commit", "-q", "--allow-empty", "-m", "theirs"]).success();
    repository.git_in(&other, &["push", "-q"]).success();
    let [local, _] = refs(&repository);
    record_with(&repository, &remote, "git commit -qam one && git fetch -q").success();
    let fetched = repository.git(&["rev-parse", "FETCH_HEAD"]);
    let undone = undone_but_for_the_remote(&repository, &local);
    assert!(undone.says("1 remote-tracking branch stays as it is"), "{}", undone.stderr);
    assert!(!undone.says("was pushed"), "{}", undone.stderr);
    assert_eq!(repository.git(&["rev-parse", "FETCH_HEAD"]), fetched);
}

#[test]
fn a_session_that_only_pushed_is_named_and_the_one_before_is_undone() {
    let repository = Repository::new();
    let remote = remote(&repository);
    repository.fixture.record("git commit -qam one; echo x > new").success();
    record_with(&repository, &remote, "git push -q").success();
    let pushed = repository.git(&["rev-parse", "origin/main"]);
    let id = repository.fixture.latest();
    let undone = repository.fixture.nono(&["undo", "--yes"]).success();
    let said = format!(
        "nothing else of session {id} is left to undo: main was pushed to origin and stays there"
    );
    assert!(undone.says(&said), "{}", undone.stderr);
    assert!(!repository.fixture.project().join("new").exists());
    assert_eq!(repository.git(&["rev-parse", "origin/main"]), pushed);
    repository.is_sound();
}

#[test]
fn where_history_gets_another_depth_remote_tracking_branches_go_back() {
    let repository = Repository::new();
    let remote = remote(&repository);
    let other = repository.fixture.path("other");
    let (from, to) = (remote.to_str().unwrap(), other.to_str().unwrap());
    repository.git(&["clone", "-q", from, to]);
    for message in ["one", "two"] {
        repository.git_in(&other, &["commit", "-q", "--allow-empty", "-m", message]).success();
    }
    repository.git_in(&other, &["push", "-q"]).success();
    let script = format!("git fetch -q --depth 1 file://{from} +main:refs/remotes/origin/main");
    let before = repository.told();
    record_with(&repository, &remote, &script).success();
    assert!(repository.fixture.project().join(".git/shallow").exists());
    // The parents of the fetched commit are not there.
    repository.fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(repository.told(), before);
    repository.is_sound();
}

#[test]
fn what_a_user_staged_after_a_session_that_committed_is_a_conflict() {
    let repository = Repository::new();
    let place = repository.fixture.project();
    let git = |words: &[&str]| git(&repository.fixture, &place, words).success();
    fs::write(place.join("c.txt"), "c").unwrap();
    git(&["add", "c.txt"]);
    git(&["commit", "-qm", "c"]);
    let before = git(&["rev-parse", "HEAD"]).stdout;
    record_in(&repository, &place, "echo agent >> new; git add new; git commit -qm agent")
        .success();
    let after = git(&["rev-parse", "HEAD"]).stdout;
    git(&["status"]);
    fs::write(place.join("c.txt"), "staged").unwrap();
    git(&["add", "c.txt"]);
    fs::write(place.join("c.txt"), "work").unwrap();
    let staged = || git(&["show", ":c.txt"]).stdout;
    let undo = |flag: &[&str]| nono_in(&repository, &place, &[&["undo", "--yes"], flag].concat());
    undo(&[]).fails(1, "something else is staged now");
    assert_eq!((staged().as_str(), git(&["rev-parse", "HEAD"]).stdout), ("staged", after.clone()));
    undo(&["--keep-newer"]).success();
    assert_eq!((staged().as_str(), git(&["rev-parse", "HEAD"]).stdout), ("staged", after));
    assert!(!place.join("new").exists());
    undo(&["--force"]).success();
    assert_eq!((staged().as_str(), git(&["rev-parse", "HEAD"]).stdout), ("c", before));
    nono_in(&repository, &place, &["redo", "--yes"]).success();
    assert_eq!(staged(), "staged");
    assert_eq!(fs::read_to_string(place.join("c.txt")).unwrap(), "work");
}

#[test]
fn a_redo_says_where_branches_are_again_however_they_were_undone() {
    for flags in [&["--force"][..], &["--keep-newer"], &[]] {
        let repository = Repository::new();
        let fixture = &repository.fixture;
        fixture.record("git commit -qam one; echo 2 > x").success();
        match flags {
            ["--force"] => drop(repository.git(&["commit", "-q", "--allow-empty", "-m", "mine"])),
            ["--keep-newer"] => drop(fixture.write("x", "mine")),
            _ => {}
        }
        let before = repository.told();
        let undone = fixture.nono(&[&["undo", "--yes"], flags].concat()).success();
        assert!(undone.says("undone)"), "{flags:?}: {}", undone.stderr);
        assert_ne!(repository.told().refs, before.refs);
        let commits = if flags == ["--force"] { "2 commits" } else { "1 commit" };
        let redone = fixture.nono(&["redo", "--yes"]).success();
        let said = format!("main is at {} again ({commits} back)", short(&repository, "main"));
        assert!(redone.says(&said), "{flags:?}: {}", redone.stderr);
        let after = repository.told();
        assert_eq!((after.refs, after.index), (before.refs, before.index));
        repository.is_sound();
        // And the undo of that.
        let undone = fixture.nono(&["undo", "--yes", "--force"]).success();
        assert!(undone.says(&format!("({commits} undone)")), "{flags:?}: {}", undone.stderr);
    }
}

#[test]
fn what_a_session_did_in_a_repository_is_said_in_words_wherever_it_is_listed() {
    let cases = [
        ("git commit -qam one", ".git: 1 commit"),
        ("git commit -qam one; git commit -q --allow-empty -m two", ".git: 2 commits"),
        ("git checkout -q -b other", ".git: now on other, new: other"),
        ("git tag v0; git branch -q old; git stash -q", ".git: new: old, changes stashed"),
        ("git checkout -q --detach", ".git: now at "),
        ("git commit -q --allow-empty -m 1; git reset -q --hard HEAD~2 2>&1 || true", ".git: "),
    ];
    for (script, words) in cases {
        let repository = Repository::new();
        let fixture = &repository.fixture;
        fixture.write("f", "changed");
        let run = fixture.record(script).success();
        assert!(run.says(words), "{script}: {}", run.stderr);
        for command in [&["list"][..], &["status"], &["log"], &["show"]] {
            let said = fixture.nono(command).success().stdout;
            assert!(said.contains(words), "{script}, {command:?}: {said}");
        }
    }
}

/// The lines of `nono status` about what is different now.
fn different_now(repository: &Repository) -> String {
    let status = repository.fixture.nono(&["status"]).success().stdout;
    let (_, different) = status.split_once("different now from snapshot ").unwrap();
    different.split_once(':').unwrap().1.trim().to_owned()
}

#[test]
fn the_work_in_a_repository_is_told_in_words_wherever_it_is_told() {
    let repository = Repository::new();
    let Repository { fixture, .. } = &repository;
    fixture.record("echo four > four; git add four; git commit -qam four").success();
    assert_eq!(different_now(&repository), "nothing");
    // Commits that an undo kept.
    fixture.nono(&["undo", "--yes", "--keep-commits"]).success();
    let kept = different_now(&repository);
    assert!(kept.contains(".git: 1 commit") && !kept.contains("changes"), "{kept}");
    fixture.nono(&["redo"]).success();
    // The writes of a mere look.
    fixture.nono(&["undo", "--yes"]).success();
    let mut status = Command::new("git");
    status.args(["status"]).current_dir(fixture.project()).env("HOME", fixture.path("home"));
    assert!(status.output().unwrap().status.success());
    assert_eq!(different_now(&repository), "nothing");
    fixture.nono(&["redo"]).success();
    // Staged and unstaged files.
    fixture.write("one", "1");
    fixture.write("two", "2");
    repository.git(&["add", "one", "two"]);
    assert!(different_now(&repository).ends_with("+2 files, .git: 2 files staged"));
    let run = fixture.record("git reset -q one").success();
    assert!(run.says(".git: 1 file unstaged"), "{}", run.stderr);
    assert!(fixture.nono(&["list"]).success().stdout.contains(".git: 1 file unstaged"));
    // Settings, hooks, and an operation that is under way.
    repository.git(&["config", "user.name", "B"]);
    fixture.write(".git/hooks/post-commit", "#!/bin/sh\n");
    let told = different_now(&repository);
    assert!(told.contains(".git: settings changed, hooks changed"), "{told}");
    let run = fixture.record("git gc -q --prune=now").success();
    assert!(run.says(".git: only git's own files"), "{}", run.stderr);
    let objects =
        "find .git/objects -name '*.pack' -delete; find .git/objects -name '*.idx' -delete";
    let run = fixture.record(objects).success();
    assert!(run.says("object files are gone"), "{}", run.stderr);
}

#[test]
fn a_removed_repository_is_named_with_its_branches_and_comes_back_by_its_path() {
    let repository = Repository::new();
    let Repository { fixture, .. } = &repository;
    fixture.record("git commit -qam four").success();
    let before = repository.told();
    fs::remove_dir_all(fixture.project().join(".git")).unwrap();
    let gone = "gone (main, feature, tag v1)";
    assert_eq!(different_now(&repository), format!("~ repository  .git: {gone}"));
    let diff = fixture.nono(&["diff", "latest/1", "now"]).success();
    assert!(diff.says(&format!("not shown: .git: {gone} (--json")), "{}", diff.stderr);
    // An undo of the session would be about something else.
    let refused = fixture.nono(&["undo", "--yes"]).fails(1, "the repository was removed after");
    assert!(refused.says("main at "), "{}", refused.stderr);
    // Nothing is there that could be overwritten.
    let restored = fixture.nono(&["restore", "--yes", ".git"]).success();
    assert!(restored.says("the repository is back (main at "), "{}", restored.stderr);
    assert_eq!(repository.told(), before);
    fixture.nono(&["redo"]).success();
    assert!(!fixture.project().join(".git").exists());
    // A directory that is gone comes back in the same way.
    fixture.write("dir/a", "1");
    fixture.record("true").success();
    fixture.nono(&["snapshot"]).success();
    fs::remove_dir_all(fixture.project().join("dir")).unwrap();
    fixture.nono(&["restore", "--yes", "dir"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("dir/a")).unwrap(), "1");
}
