//! A user's day with two projects and three runs in each, told once from morning to evening: what
//! the agents do to files that git ignores, to the history and to the work, and every way back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fixture::{Finished, Fixture, finished};
use crate::observe::{Observed, assert_same, observe};

/// One of the user's projects: a repository with sources, and files that git ignores.
struct Project<'a> {
    fixture: &'a Fixture,
    top: PathBuf,
}

/// The visible state of a project: each path that a restore answers for, and git's answers.
#[derive(Debug, PartialEq)]
struct State {
    paths: BTreeMap<PathBuf, Observed>,
    history: String,
    status: String,
}

impl<'a> Project<'a> {
    fn new(fixture: &'a Fixture, name: &str) -> Self {
        let top = fixture.project().join(name);
        for (path, content) in [
            ("src/main.rs", "fn main() {}\n"),
            ("src/deep/er/mod.rs", "pub fn deep() {}\n"),
            ("README.md", "# A project\n"),
            ("build/rules.mk", "all:\n"),
            (".gitignore", "*.sqlite*\nlocal.yml\n*.iso\ncache/\ntarget/\n"),
        ] {
            fixture.write(&format!("{name}/{path}"), content);
        }
        let project = Self { fixture, top };
        project.git(&["init", "-q", "-b", "main"]);
        project.git(&["add", "-A"]);
        project.git(&["add", "-f", "build"]);
        project.git(&["commit", "-qm", "begin"]);
        for (path, content) in [
            ("dev.sqlite", b"rows and rows".to_vec()),
            ("dev.sqlite-wal", b"rows to come".to_vec()),
            ("local.yml", b"secret: 1\n".to_vec()),
            ("cache/warm", b"warm".to_vec()),
            ("big.iso", vec![7; 3 << 20]),
            ("target/CACHEDIR.TAG", b"Signature: 8a477f597d28d172789f06886806bc55\n".to_vec()),
            ("target/debug/out", b"made".to_vec()),
        ] {
            fixture.write(&format!("{name}/{path}"), content);
        }
        project
    }

    fn at(&self, below: &str, mut command: Command) -> Command {
        command.current_dir(self.top.join(below));
        command
    }

    /// The program, somewhere in this project.
    fn nono(&self, below: &str, arguments: &[&str]) -> Finished {
        finished(self.at(below, self.fixture.command(arguments)).output().unwrap())
    }

    fn run(&self, script: &str) -> Finished {
        let script = format!("set -e; {script}");
        let arguments = ["run", "--rollback", "--no-rollback-prompt", "--", "sh", "-c", &script];
        self.nono("", &arguments).success()
    }

    fn git(&self, arguments: &[&str]) -> String {
        let home = self.fixture.command(&[]);
        let mut git = Command::new("git");
        git.env_clear().envs(home.get_envs().filter_map(|(key, value)| Some((key, value?))));
        git.env("GIT_OPTIONAL_LOCKS", "0").args(arguments);
        let done = finished(self.at("", git).output().unwrap()).success();
        done.stdout
    }

    /// Objects of git stay and are seen by `git fsck`; build products are no loss.
    fn state(&self) -> State {
        let is_kept =
            |path: &Path| !path.starts_with(".git/objects") && !path.starts_with("target");
        let mut paths = observe(&self.top);
        paths.retain(|path, _| is_kept(path));
        // A new entry that stays gives a directory another time.
        for dir in ["", ".git"] {
            if let Some(dir) = paths.get_mut(Path::new(dir)) {
                dir.mtime = (0, 0);
            }
        }
        if !self.top.join(".git").exists() {
            return State { paths, history: String::new(), status: String::new() };
        }
        self.git(&["fsck", "--strict", "--no-dangling"]);
        State {
            paths,
            history: self.git(&["log", "--all", "--decorate", "--format=%H %D"]),
            status: self.git(&["status", "--porcelain", "--ignored"]),
        }
    }
}

#[track_caller]
fn assert_state(wanted: &State, found: &State) {
    assert_same(&wanted.paths, &found.paths);
    assert_eq!(wanted.history, found.history);
    assert_eq!(wanted.status, found.status);
}

const GIT_CONFIG: &str = "[user]\n\tname = A User\n\temail = user@example.org\n[gc]\n\tauto = 0\n";

#[test]
fn a_day_with_two_projects() {
    let fixture = Fixture::new();
    let home = fixture.path("home");
    std::fs::write(home.join(".gitconfig"), GIT_CONFIG).unwrap();
    let alpha = Project::new(&fixture, "alpha");
    let beta = Project::new(&fixture, "beta");
    let projects = [&alpha, &beta];

    // Three runs in each, in turn. Every state is kept in mind.
    let mut states = [vec![alpha.state()], vec![beta.state()]];
    let work = [
        [
            "rm dev.sqlite dev.sqlite-wal local.yml; echo 'fn more() {}' >> src/main.rs; \
             git commit -qam one; echo two > two; git add two; git commit -qm two",
            "rm -rf .git; rm -r src",
        ],
        [
            "git reset -q --hard HEAD~1; echo new > local.yml; echo '// x' >> src/deep/er/mod.rs; \
             git commit -q --amend -am amended",
            "mkdir src; echo all > src/new.rs; git init -q -b other; git add -A; git commit -qm \
             fresh",
        ],
        [
            "git gc -q --prune=now; rm build/rules.mk; git commit -qam three; echo 1 > cache/cold; \
             rm -r cache/warm",
            "rm -rf build src README.md local.yml dev.sqlite*; git checkout -q -b agent",
        ],
    ];
    for scripts in work {
        for ((project, states), script) in projects.iter().zip(&mut states).zip(scripts) {
            project.run(script);
            states.push(project.state());
        }
    }
    let [of_alpha, of_beta] = &states;

    // From deep inside, and from the top: one step back at a time, to the morning.
    for back in (0..3).rev() {
        alpha.nono("src/deep", &["undo", "--yes"]).success();
        assert_state(&of_alpha[back], &alpha.state());
        assert_state(&of_beta[3], &beta.state());
    }
    alpha.nono("", &["undo", "--yes"]).fails(1, "nothing");
    for state in &of_alpha[1..] {
        alpha.nono("src", &["redo", "--yes"]).success();
        assert_state(state, &alpha.state());
    }
    for back in (0..3).rev() {
        beta.nono("", &["undo", "--yes"]).success();
        assert_state(&of_beta[back], &beta.state());
        assert_state(&of_alpha[3], &alpha.state());
    }

    // A part: a file that the last run removed comes back, the commits stay.
    let history = alpha.git(&["log", "--all", "--format=%H %D"]);
    let rules = alpha.top.join("build/rules.mk");
    assert!(!rules.exists());
    alpha.nono("build", &["undo", "--yes", "rules.mk"]).success();
    assert_eq!(std::fs::read_to_string(&rules).unwrap(), "all:\n");
    assert_eq!(alpha.git(&["log", "--all", "--format=%H %D"]), history);
    alpha.nono("", &["redo"]).success();
    assert_state(&of_alpha[3], &alpha.state());

    // Commits of one's own in the evening are one conflict; the files come back without them.
    std::fs::write(alpha.top.join("mine"), "mine\n").unwrap();
    alpha.git(&["add", "mine"]);
    alpha.git(&["commit", "-qm", "mine"]);
    let history = alpha.git(&["log", "--all", "--format=%H %D"]);
    let refused =
        alpha.nono("", &["undo", "--yes"]).fails(1, "the repository has moved on: 1 commit");
    assert!(!refused.says(".git/refs"), "{}", refused.stderr);
    alpha.nono("", &["undo", "--yes", "--keep-commits", "cache"]).success();
    assert_eq!(std::fs::read_to_string(alpha.top.join("cache/warm")).unwrap(), "warm");
    assert_eq!(alpha.git(&["log", "--all", "--format=%H %D"]), history);

    // An unrecorded path is named when it is gone, and no undo says that it is complete.
    let run = beta.run("rm big.iso; echo x > README.md");
    assert!(run.says("not recorded and gone: "), "{}", run.stderr);
    let incomplete = beta.nono("", &["undo", "--yes"]).fails(1, "cannot come back");
    assert!(incomplete.says("not recorded and gone: "), "{}", incomplete.stderr);
    assert_eq!(std::fs::read_to_string(beta.top.join("README.md")).unwrap(), "# A project\n");

    // Every byte that a snapshot held can be had, wherever one stands.
    let copy = fixture.path("copy");
    let ids = ids_of(&alpha);
    for (id, state) in ids.iter().zip(of_alpha) {
        let to = copy.join(id);
        fixture.nono(&["rollback", "restore", &format!("{id}/0"), "--to", to.to_str().unwrap()]);
        for (path, wanted) in state.paths.iter().filter(|(path, _)| *path != Path::new("big.iso")) {
            let copied = to.join(alpha.top.strip_prefix("/").unwrap()).join(path);
            let copied = [copied, to.join(path)].into_iter().find(|path| path.exists());
            let found = copied.unwrap_or_else(|| panic!("{id}: {}", path.display()));
            if wanted.kind == "file" {
                assert_eq!(
                    std::fs::read(found).unwrap(),
                    wanted.content,
                    "{id}: {}",
                    path.display()
                );
            }
        }
    }
    fixture.nono(&["rollback", "verify", "--all"]).success();
}

/// Sessions of a project that changed something, oldest first.
fn ids_of(project: &Project<'_>) -> Vec<String> {
    let list = project.nono("", &["rollback", "list", "--json"]).success().json();
    let of_it = list.as_array().unwrap().iter().rev();
    let of_it = of_it.filter(|it| it["tracked_paths"][0] == project.top.to_str().unwrap());
    of_it.map(|it| it["session_id"].as_str().unwrap().to_owned()).collect()
}
