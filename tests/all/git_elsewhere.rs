//! Git directories that are not in the work tree. A command writes what is its own there, and that
//! is recorded and undone. What cannot be granted is named with the flags that grant it.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::fixture::{Finished, Fixture, finished};
use crate::git_history::{git, settings};
use crate::hooks::Agent;
use crate::not_run::not_run;

/// A fixture with a repository `main` of two commits.
fn with_repository() -> Fixture {
    let fixture = Fixture::new();
    settings(&fixture);
    let main = fixture.path("main");
    fs::create_dir(&main).unwrap();
    run_git(&fixture, &main, &["init", "-q"]);
    for content in ["1", "2"] {
        fs::write(main.join("file"), content).unwrap();
        run_git(&fixture, &main, &["add", "."]);
        run_git(&fixture, &main, &["commit", "-qm", content]);
    }
    run_git(&fixture, &main, &["branch", "feature"]);
    fixture
}

#[track_caller]
fn run_git(fixture: &Fixture, dir: &Path, arguments: &[&str]) -> String {
    git(fixture, dir, arguments).success().stdout
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn nono_in(fixture: &Fixture, dir: &Path, arguments: &[&str]) -> Finished {
    finished(fixture.command(arguments).current_dir(dir).output().unwrap())
}

fn record_in(fixture: &Fixture, dir: &Path, options: &[&str], script: &str) -> Finished {
    let run = [&["run", "--rollback"], options, &["--", "sh", "-ec", script]].concat();
    nono_in(fixture, dir, &run)
}

/// All that a person could lose.
fn told(fixture: &Fixture, dir: &Path) -> String {
    let parts = [
        &["for-each-ref"][..],
        &["log", "--all", "--format=%H %s"],
        &["rev-parse", "--symbolic-full-name", "HEAD"],
        &["status", "--porcelain"],
        &["ls-files", "-s"],
    ];
    parts.into_iter().map(|arguments| run_git(fixture, dir, arguments)).collect()
}

/// The git directory of a work tree.
fn git_dir(fixture: &Fixture, top: &Path) -> PathBuf {
    let said = run_git(fixture, top, &["rev-parse", "--path-format=absolute", "--git-common-dir"]);
    fs::canonicalize(said.trim_end()).unwrap()
}

const COMMIT: &str = "echo x > x; git add x; git commit -qm x";

/// Records work with refs, hooks and settings, and undoes it.
#[track_caller]
fn assert_recorded_and_undone(fixture: &Fixture, top: &Path, options: &[&str], layout: &str) {
    let before = told(fixture, top);
    let hook = git_dir(fixture, top).join("hooks/post-commit");
    let script = format!(
        "{COMMIT}; git branch made; git branch -m made moved; git branch -d moved; git tag v1; \
         git tag -d v1; git branch kept; git config core.editor x; printf '#!/bin/sh\\n' > {}",
        hook.display()
    );
    let run = record_in(fixture, top, options, &script).success();
    assert!(!run.says("error"), "{layout}: {}", run.stderr);
    assert!(run.says("the command made 1 commit on "), "{layout}: {}", run.stderr);
    for later in ["run by themselves later: ", "core.editor in ", "hooks/post-commit"] {
        assert!(run.says(later), "{layout}: {later}: {}", run.stderr);
    }
    let after = told(fixture, top);
    assert!(after.contains("refs/heads/kept") && after != before, "{layout}: {after}");
    nono_in(fixture, top, &["undo", "--yes"]).success();
    assert_eq!(told(fixture, top), before, "{layout}");
    assert!(!hook.exists(), "{layout}");
    assert!(!run_git(fixture, top, &["config", "--list"]).contains("core.editor"), "{layout}");
    run_git(fixture, top, &["fsck", "--strict"]);
    nono_in(fixture, top, &["redo", "--yes"]).success();
    assert_eq!(told(fixture, top), after, "{layout}");
}

/// Makes a work tree with `.git` elsewhere, and gives its top.
type Layout = fn(&Fixture) -> PathBuf;

fn submodule(fixture: &Fixture) -> PathBuf {
    let above = fixture.path("above");
    fs::create_dir(&above).unwrap();
    run_git(fixture, &above, &["init", "-q"]);
    run_git(fixture, &above, &["submodule", "--quiet", "add", "../main", "sub"]);
    run_git(fixture, &above, &["commit", "-qm", "sub"]);
    above.join("sub")
}

fn submodule_of_linked(fixture: &Fixture) -> PathBuf {
    let above = submodule(fixture).parent().unwrap().to_owned();
    run_git(fixture, &above, &["worktree", "add", "-q", "../linked"]);
    let linked = fixture.path("linked");
    run_git(fixture, &linked, &["submodule", "--quiet", "update", "--init"]);
    run_git(fixture, &linked.join("sub"), &["checkout", "-q", "main"]);
    linked.join("sub")
}

fn separate(fixture: &Fixture) -> PathBuf {
    let (top, git_dir) = (fixture.path("apart"), fixture.path("apart.data"));
    let clone = ["clone", "-q", "--separate-git-dir", text(&git_dir), "main", "apart"];
    run_git(fixture, &fixture.path(""), &clone);
    top
}

fn linked_by_symlink(fixture: &Fixture) -> PathBuf {
    let top = fixture.path("symlinked");
    run_git(fixture, &fixture.path(""), &["clone", "-q", "main", "symlinked"]);
    fs::rename(top.join(".git"), fixture.path("symlinked.data")).unwrap();
    symlink(fixture.path("symlinked.data"), top.join(".git")).unwrap();
    top
}

/// Names the work tree in the settings of its git directory.
fn named(fixture: &Fixture, top: PathBuf) -> PathBuf {
    run_git(fixture, &top, &["config", "core.worktree", text(&top)]);
    top
}

#[test]
fn a_git_directory_that_names_this_work_tree_is_written_recorded_and_undone() {
    let layouts: [(&str, Layout); 4] = [
        ("submodule", submodule),
        ("submodule of a linked worktree", submodule_of_linked),
        ("separate", |fixture| named(fixture, separate(fixture))),
        ("symlink", |fixture| named(fixture, linked_by_symlink(fixture))),
    ];
    for (layout, make) in layouts {
        let fixture = with_repository();
        let top = make(&fixture);
        let git_dir = git_dir(&fixture, &top);
        let said = format!(
            "the git directory of this work tree, {}, can be written, and is recorded",
            git_dir.display()
        );
        let looked = record_in(&fixture, &top, &[], "git status --porcelain").success();
        assert!(looked.says(&said), "{layout}: {}", looked.stderr);
        assert_recorded_and_undone(&fixture, &top, &[], layout);
        // Below the top, the history is read.
        fs::create_dir(top.join("deep")).unwrap();
        let below = record_in(&fixture, &top.join("deep"), &[], "git log --oneline").success();
        assert!(below.says("the top of the repository is above"), "{layout}: {}", below.stderr);
        assert!(below.stdout.lines().count() >= 2, "{layout}: {}", below.stdout);
    }
}

#[test]
fn a_git_directory_that_names_no_work_tree_is_named_with_the_flags() {
    let layouts: [(&str, Layout); 5] = [
        ("separate", separate),
        ("symlink", linked_by_symlink),
        // As a command may leave it for the next one.
        ("another repository", |fixture| {
            let top = fixture.path("hostile");
            fs::create_dir(&top).unwrap();
            fs::write(top.join(".git"), "gitdir: ../main/.git\n").unwrap();
            top
        }),
        ("of another work tree", |fixture| {
            let top = separate(fixture);
            fs::create_dir(fixture.path("other")).unwrap();
            run_git(fixture, &top, &["config", "core.worktree", text(&fixture.path("other"))]);
            top
        }),
        ("by an included file", |fixture| {
            let top = separate(fixture);
            let included = top.join("included");
            fs::write(&included, format!("[core]\nworktree = {}\n", text(&top))).unwrap();
            run_git(fixture, &top, &["config", "include.path", text(&included)]);
            top
        }),
    ];
    for (layout, make) in layouts {
        let fixture = with_repository();
        let top = make(&fixture);
        let git_dir = git_dir(&fixture, &top);
        let flags = format!("(--allow {} --allow {})", text(&top), text(&git_dir));
        let target = git_dir.join("hooks/post-commit");
        let script =
            format!("! git log 2> /dev/null; ! echo x 2> /dev/null > {}", target.display());
        let run = record_in(&fixture, &top, &[], &script).success();
        let said =
            format!("git cannot work here: the git directory {} does not name", text(&git_dir));
        assert!(run.says(&said) && run.says(&flags), "{layout}: {}", run.stderr);
        assert!(!target.exists(), "{layout}");
        let free = record_in(&fixture, &top, &["--no-sandbox"], "true").success();
        assert!(free.says("commits are not recorded: the git directory"), "{}", free.stderr);
        let flags = ["--allow", text(&top), "--allow", text(&git_dir)];
        let granted = record_in(&fixture, &top, &flags, "git rev-parse --git-dir").success();
        assert!(!granted.says("does not name"), "{layout}: {}", granted.stderr);
        if matches!(layout, "separate" | "symlink") {
            assert_recorded_and_undone(&fixture, &top, &flags, layout);
        }
    }
}

#[test]
fn a_git_directory_of_another_user_is_neither_granted_nor_offered() {
    if !rustix::process::geteuid().is_root() {
        crate::not_run::needs_root("gives directories to another user");
        return;
    }
    let fixture = with_repository();
    let top = named(&fixture, separate(&fixture));
    chown(fixture.path("apart.data"), Some(1), Some(1)).unwrap();
    let script = format!("! cat {}/HEAD 2> /dev/null", text(&fixture.path("apart.data")));
    let run = record_in(&fixture, &top, &[], &script).success();
    assert!(!run.says("apart.data"), "{}", run.stderr);
}

#[test]
fn a_work_tree_of_a_bare_repository_can_commit_and_be_undone() {
    for name in ["bare", "project.git", "work/.bare"] {
        let fixture = with_repository();
        let here = fixture.path("");
        run_git(&fixture, &here, &["clone", "-q", "--bare", "main", name]);
        let bare = fixture.path(name);
        let top = bare.parent().unwrap().join("tree");
        run_git(&fixture, &bare, &["worktree", "add", "-q", text(&top), "feature"]);
        let before = told(&fixture, &top);
        let run = record_in(&fixture, &top, &[], COMMIT).success();
        assert!(run.says("a git worktree: "), "{name}: {}", run.stderr);
        assert!(run.says("the command made 1 commit on feature ("), "{name}: {}", run.stderr);
        assert_ne!(told(&fixture, &top), before, "{name}");
        nono_in(&fixture, &top, &["undo", "--yes"]).success();
        assert_eq!(told(&fixture, &top), before, "{name}");
        run_git(&fixture, &top, &["fsck", "--strict"]);
    }
}

#[test]
fn borrowed_objects_are_named_with_the_flags_that_grant_them() {
    let fixture = with_repository();
    let here = fixture.path("");
    run_git(&fixture, &here, &["clone", "-q", "-s", "main", "first"]);
    run_git(&fixture, &here, &["clone", "-q", "-s", "first", "second"]);
    let (top, main) = (fixture.path("second"), fixture.path("main/.git/objects"));
    let first = fixture.path("first/.git/objects");
    let flags = format!("--read {} --read {}", text(&first), text(&main));
    let script = "! git log 2> /dev/null";
    let run = record_in(&fixture, &top, &[], script).success();
    let said = format!("borrows objects of {} and 1 more ({flags})", text(&first));
    assert!(run.says(&said), "{}", run.stderr);
    let flags: Vec<&str> = flags.split(' ').collect();
    let granted = record_in(&fixture, &top, &flags, &format!("git log --oneline; {COMMIT}"));
    let granted = granted.success();
    assert!(!granted.says("borrows") && !granted.says("error"), "{}", granted.stderr);
    assert_eq!(granted.stdout.lines().count(), 2);
    // A list that names what it wants is no grant.
    let secret = fixture.path("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("key"), "secret").unwrap();
    fs::write(top.join(".git/objects/info/alternates"), text(&secret)).unwrap();
    let script = format!("! cat {}/key 2> /dev/null", text(&secret));
    let run = record_in(&fixture, &top, &[], &script).success();
    assert!(run.says(&format!("(--read {})", text(&secret))), "{}", run.stderr);
}

#[test]
fn refs_that_a_linked_work_tree_cannot_delete_are_named_with_the_flags() {
    let fixture = with_repository();
    let (main, top) = (fixture.path("main"), fixture.path("linked"));
    run_git(&fixture, &main, &["worktree", "add", "-q", text(&top), "feature"]);
    let common = main.join(".git");
    let script = format!("{COMMIT}; git branch made; ! git branch -d made");
    let run = record_in(&fixture, &top, &[], &script).success();
    let said = format!(
        "packed-refs and config of the repository cannot be written: git deletes and renames no \
         branch or tag, and prints an error when it commits (--allow {} --allow {})",
        text(&top),
        text(&common)
    );
    assert!(run.says(&said), "{}", run.stderr);
    nono_in(&fixture, &top, &["undo", "--yes"]).success();
    run_git(&fixture, &main, &["branch", "-D", "made"]);
    let flags = ["--allow", text(&top), "--allow", text(&common)];
    let granted = record_in(&fixture, &top, &flags, "true").success();
    assert!(!granted.says("cannot be written"), "{}", granted.stderr);
    assert_recorded_and_undone(&fixture, &top, &flags, "linked");
    // Without walls there is nothing that a flag would grant.
    let free = record_in(&fixture, &top, &["--no-sandbox"], "true").success();
    assert!(!free.says("cannot be written"), "{}", free.stderr);
}

#[test]
fn a_linked_work_tree_with_reftables_names_the_settings_alone() {
    let fixture = with_repository();
    let main = fixture.path("tables");
    fs::create_dir(&main).unwrap();
    if git(&fixture, &main, &["init", "-q", "--ref-format=reftable"]).code != 0 {
        not_run("git has no reftables");
        return;
    }
    run_git(&fixture, &main, &["commit", "-q", "--allow-empty", "-m", "base"]);
    let top = fixture.path("linked");
    run_git(&fixture, &main, &["worktree", "add", "-q", text(&top)]);
    let script =
        format!("{COMMIT} 2> errors; test ! -s errors; git branch made; git tag v1; git tag -d v1");
    let run = record_in(&fixture, &top, &[], &script).success();
    let said = ": config of the repository cannot be written: git prints an error when it deletes";
    assert!(run.says(said), "{}", run.stderr);
    assert!(!run.says("packed-refs"), "{}", run.stderr);
}

#[test]
fn two_linked_work_trees_of_one_repository_can_both_commit() {
    let fixture = with_repository();
    let main = fixture.path("main");
    let tops = ["one", "two"].map(|name| fixture.path(name));
    for top in &tops {
        run_git(&fixture, &main, &["worktree", "add", "-q", text(top)]);
    }
    let before = told(&fixture, &main);
    let script = tops.iter().map(|top| format!("cd {}; {COMMIT}", text(top)));
    let script = script.collect::<Vec<_>>().join("; ");
    let flags = ["--allow", text(&tops[0]), "--allow", text(&tops[1])];
    record_in(&fixture, &tops[0], &flags, &script).success();
    assert_ne!(told(&fixture, &main), before);
    nono_in(&fixture, &tops[0], &["undo", "--yes"]).success();
    assert_eq!(told(&fixture, &main), before);
}

#[test]
fn below_the_top_of_a_linked_work_tree_history_can_be_read() {
    let fixture = with_repository();
    let top = fixture.path("linked");
    run_git(&fixture, &fixture.path("main"), &["worktree", "add", "-q", text(&top), "feature"]);
    fs::create_dir(top.join("deep")).unwrap();
    let script = "git log --oneline; ! git commit -q --allow-empty -m x 2> /dev/null";
    let run = record_in(&fixture, &top.join("deep"), &[], script).success();
    assert_eq!(run.stdout.lines().count(), 2, "{}", run.stderr);
    assert!(run.says("the top of the repository is above"), "{}", run.stderr);
}

fn linked(fixture: &Fixture) -> PathBuf {
    let top = fixture.path("linked");
    run_git(fixture, &fixture.path("main"), &["worktree", "add", "-q", text(&top), "feature"]);
    top
}

/// Where agents have their work trees.
fn linked_in_the_project(fixture: &Fixture) -> PathBuf {
    let (main, top) = (fixture.path("main"), fixture.path("main/.claude/worktrees/x"));
    run_git(fixture, &main, &["worktree", "add", "-q", text(&top), "feature"]);
    run_git(fixture, &main, &["pack-refs", "--all"]);
    top
}

fn linked_of_reftables(fixture: &Fixture) -> PathBuf {
    let (main, top) = (fixture.path("tables"), fixture.path("linked"));
    fs::create_dir(&main).unwrap();
    if git(fixture, &main, &["init", "-q", "--ref-format=reftable"]).code != 0 {
        not_run("git has no reftables");
        return linked(fixture);
    }
    run_git(fixture, &main, &["commit", "-q", "--allow-empty", "-m", "base"]);
    run_git(fixture, &main, &["worktree", "add", "-q", text(&top)]);
    top
}

#[test]
fn what_is_recorded_without_walls_has_the_git_directory_elsewhere_too() {
    let layouts: [(&str, Layout); 5] = [
        ("linked", linked),
        ("linked in the project", linked_in_the_project),
        ("linked, of reftables", linked_of_reftables),
        ("submodule", submodule),
        ("separate", |fixture| named(fixture, separate(fixture))),
    ];
    for (layout, make) in layouts {
        // The commit of an agent.
        let fixture = with_repository();
        let top = make(&fixture);
        let before = told(&fixture, &top);
        let agent = Agent::new(&fixture, "claude-code");
        let within = |more: serde_json::Value| {
            let mut event = json!({"cwd": top, "tool_name": "Bash", "tool_use_id": "commit"});
            event.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            event
        };
        agent.hook("SessionStart", &within(json!({"source": "startup"})));
        agent.hook("PreToolUse", &within(json!({"tool_input": {"command": COMMIT}})));
        fs::write(top.join("x"), "x").unwrap();
        run_git(&fixture, &top, &["add", "x"]);
        run_git(&fixture, &top, &["commit", "-qm", "of the agent"]);
        agent.hook("PostToolUse", &within(json!({"tool_input": {"command": COMMIT}})));
        agent.hook("SessionEnd", &within(json!({"reason": "other"})));
        let after = told(&fixture, &top);
        assert!(after.contains("of the agent"), "{layout}: {after}");
        nono_in(&fixture, &top, &["undo", "--yes"]).success();
        assert_eq!(told(&fixture, &top), before, "{layout}");
        run_git(&fixture, &top, &["fsck", "--strict"]);
        nono_in(&fixture, &top, &["redo", "--yes"]).success();
        assert_eq!(told(&fixture, &top), after, "{layout}");
        // A state that was asked for.
        let taken = nono_in(&fixture, &top, &["snapshot", "--json"]).success().json();
        let state = format!("{}/0", taken["session_id"].as_str().unwrap());
        run_git(&fixture, &top, &["commit", "-q", "--allow-empty", "-m", "later"]);
        nono_in(&fixture, &top, &["restore", &state, "--yes", "--force"]).success();
        assert_eq!(told(&fixture, &top), after, "{layout}");
    }
}
