use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::history::{Objects, forms_of};
use crate::restore::{OnConflict, RestoreOptions};
use crate::snapshot::{Budget, SnapshotManager, SnapshotRequest, Step};
use crate::walk::ExclusionConfig;

struct Project {
    temp: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        fs::create_dir_all(temp.path().join("project")).unwrap();
        Self { temp }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().canonicalize().unwrap().join("project").join(name)
    }

    fn write(&self, name: &str, lines: &[&str]) {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        fs::write(self.path(name), text).unwrap();
    }

    fn session(&self, name: &str) -> SnapshotManager {
        let session = self.temp.path().join("store").join(name);
        let tracked = [self.path("")];
        SnapshotManager::new(&session, &tracked, ExclusionConfig::nothing(), Budget::default())
            .unwrap()
    }

    fn sessions(&self) -> Vec<SessionDir> {
        let mut names: Vec<_> = fs::read_dir(self.temp.path().join("store"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.join("snapshots").is_dir())
            .collect();
        names.sort();
        names.iter().map(|path| SessionDir::open(path).unwrap()).collect()
    }

    fn blame_at(&self, name: &str, at: &BlameAt) -> Result<Option<Blame>, HistoryError> {
        let sessions = self.sessions();
        let (objects, damaged) = Objects::of(&sessions);
        assert!(damaged.is_empty());
        blame(&forms_of(&self.path(name)), at, &sessions, &objects)
    }

    /// `line writer` of each line.
    fn told(&self, name: &str, at: &BlameAt) -> Vec<String> {
        self.lines(&self.blame_at(name, at).unwrap().unwrap())
    }

    fn lines(&self, blame: &Blame) -> Vec<String> {
        let line = |line: &BlamedLine| {
            let writer = &blame.writers[line.writer];
            let event = writer.event.as_ref().map_or("now".to_owned(), |it| it.place.to_string());
            format!("{} {event}", String::from_utf8_lossy(&line.bytes).trim_end())
        };
        blame.lines.iter().map(line).collect()
    }
}

#[test]
fn a_line_is_of_the_first_state_that_has_it() {
    let project = Project::new();
    project.write("a", &["one", "two"]);
    let first = project.session("s1");
    first.create_baseline().unwrap();
    project.write("a", &["one", "new", "two"]);
    first.create_incremental().unwrap();
    project.write("a", &["new", "two", "hand"]);
    let second = project.session("s2");
    second.create_baseline().unwrap();
    project.write("other", &["x"]);
    second.create_incremental().unwrap();
    let expected = ["new s1/1", "two s1/0", "hand s2/0"];
    assert_eq!(project.told("a", &BlameAt::Newest), expected);
    let blame = project.blame_at("a", &BlameAt::Newest).unwrap().unwrap();
    let origins: Vec<Origin> = blame
        .lines
        .iter()
        .map(|it| blame.writers[it.writer].event.as_ref().unwrap().origin)
        .collect();
    assert_eq!(origins, [Origin::Session, Origin::First, Origin::Outside]);
    let now = BlameAt::Now(b"new\nadded\nhand\n".to_vec());
    assert_eq!(project.told("a", &now), ["new s1/1", "added now", "hand s2/0"]);
    let then = BlameAt::Snapshot { session_id: "s1".to_owned(), number: 0 };
    assert_eq!(project.told("a", &then), ["one s1/0", "two s1/0"]);
    assert!(project.blame_at("other", &then).unwrap().is_none());
    assert!(project.blame_at("nowhere", &BlameAt::Newest).unwrap().is_none());
    let early = BlameAt::Time("2001-01-01T00:00:00Z".parse().unwrap());
    assert!(project.blame_at("a", &early).unwrap().is_none());
}

#[test]
fn lines_keep_their_writers_through_renames_with_and_without_edits() {
    let project = Project::new();
    let lines: Vec<String> = (0..10).map(|n| format!("line {n}")).collect();
    let mut text: Vec<&str> = lines.iter().map(String::as_str).collect();
    project.write("a", &text[..9]);
    // As large, and another file.
    project.write("z", &["other file, as long as the first one", "and more of it for that"]);
    let manager = project.session("s");
    manager.create_baseline().unwrap();
    project.write("a", &text);
    manager.create_incremental().unwrap();
    fs::rename(project.path("a"), project.path("b")).unwrap();
    manager.create_incremental().unwrap();
    fs::remove_file(project.path("b")).unwrap();
    fs::remove_file(project.path("z")).unwrap();
    text[3] = "changed";
    project.write("c", &text);
    manager.create_incremental().unwrap();
    let mut expected: Vec<String> = text[..9].iter().map(|line| format!("{line} s/0")).collect();
    expected[3] = "changed s/3".to_owned();
    expected.push("line 9 s/1".to_owned());
    assert_eq!(project.told("c", &BlameAt::Newest), expected);
    let blame = project.blame_at("c", &BlameAt::Newest).unwrap().unwrap();
    let paths: Vec<&Path> = blame.writers.iter().map(|writer| writer.path.as_path()).collect();
    assert_eq!(paths, [project.path("a"), project.path("a"), project.path("c")]);
    // A new file beside which nothing went is all new.
    project.write("d", &text);
    manager.create_incremental().unwrap();
    assert!(project.told("d", &BlameAt::Newest).iter().all(|line| line.ends_with(" s/4")));
}

#[test]
fn contents_that_came_back_keep_their_writers() {
    let project = Project::new();
    project.write("a", &["one"]);
    let manager = project.session("s");
    manager.create_baseline().unwrap();
    project.write("a", &["one", "two"]);
    manager.create_incremental().unwrap();
    fs::remove_file(project.path("a")).unwrap();
    manager.create_incremental().unwrap();
    let options =
        RestoreOptions { on_conflict: OnConflict::Overwrite, ..RestoreOptions::default() };
    manager.restore_with(1, &options).unwrap();
    assert_eq!(project.told("a", &BlameAt::Newest), ["one s/0", "two s/1"]);
    // Another command of the shell, which nothing recorded, brings the first state back.
    project.write("a", &["one"]);
    manager.create_incremental().unwrap();
    assert_eq!(project.told("a", &BlameAt::Newest), ["one s/0"]);
}

#[test]
fn what_is_no_text_is_refused() {
    let project = Project::new();
    fs::write(project.path("a"), b"x\0y").unwrap();
    fs::create_dir(project.path("d")).unwrap();
    project.session("s").create_baseline().unwrap();
    let refused = |name: &str| project.blame_at(name, &BlameAt::Newest).unwrap_err().to_string();
    assert!(refused("a").contains("it is binary"));
    assert!(refused("d").contains("it is a directory"));
}

#[derive(Debug, Clone)]
enum Act {
    /// Lines from here go, and new ones stand there.
    Edit {
        writer: u8,
        at: usize,
        removed: usize,
        added: usize,
    },
    Rename {
        writer: u8,
        edits: bool,
    },
    /// One of the states of the session comes back.
    Restore {
        back: usize,
    },
    /// Another file changes.
    Elsewhere,
}

fn act() -> impl Strategy<Value = Act> {
    let edit = (0..3_u8, 0..40_usize, 0..6_usize, 0..6_usize)
        .prop_map(|(writer, at, removed, added)| Act::Edit { writer, at, removed, added });
    prop_oneof![
        6 => edit,
        2 => (0..3_u8, any::<bool>()).prop_map(|(writer, edits)| Act::Rename { writer, edits }),
        1 => (0..4_usize).prop_map(|back| Act::Restore { back }),
        1 => Just(Act::Elsewhere),
    ]
}

/// The file as it has to be: its name, and its lines with their writers.
#[derive(Debug, Clone)]
struct Model {
    name: String,
    lines: Vec<(String, String)>,
}

const UNWRITTEN: &str = "?";

impl Model {
    fn write(&self, project: &Project) {
        let lines: Vec<&str> = self.lines.iter().map(|(line, _)| line.as_str()).collect();
        project.write(&self.name, &lines);
    }

    fn written_by(&mut self, writer: &str) {
        for (_, known) in self.lines.iter_mut().filter(|(_, known)| known == UNWRITTEN) {
            *known = writer.to_owned();
        }
    }
}

/// Runs a program of edits by a command, an agent and a person, and compares after each act.
fn check(acts: &[Act]) -> Result<(), TestCaseError> {
    let project = Project::new();
    let (mut session_count, mut line_count) = (1, 0);
    let mut fresh = || {
        line_count += 1;
        // All as long, so that sizes say how much of a file is the same.
        (format!("line number {line_count:06}"), UNWRITTEN.to_owned())
    };
    let mut model = Model { name: "f0".to_owned(), lines: (0..20).map(|_| fresh()).collect() };
    model.write(&project);
    let mut manager = project.session("s001");
    manager.create_baseline().unwrap();
    model.written_by("s001/0");
    // The states of the session, by the numbers of their snapshots.
    let mut states = vec![(0, model.clone())];
    for (number, act) in acts.iter().enumerate() {
        let writer = match act {
            Act::Edit { writer, at, removed, added } => {
                let at = at % (model.lines.len() + 1);
                let end = (at + removed).min(model.lines.len());
                let new: Vec<_> = (0..*added).map(|_| fresh()).collect();
                model.lines.splice(at..end, new);
                model.write(&project);
                *writer
            }
            Act::Rename { writer, edits } => {
                // An empty file is like any other, and of a short one an edit leaves too little.
                if model.lines.len() < 4 {
                    continue;
                }
                fs::remove_file(project.path(&model.name)).unwrap();
                model.name = format!("f{}", number + 1);
                if *edits {
                    let at = model.lines.len() / 2;
                    model.lines[at] = fresh();
                }
                model.write(&project);
                *writer
            }
            Act::Restore { back } => {
                let (snapshot, state) = states[states.len() - 1 - back % states.len()].clone();
                let on_conflict = OnConflict::Overwrite;
                let options = RestoreOptions { on_conflict, ..RestoreOptions::default() };
                manager.restore_with(snapshot, &options).unwrap();
                model = state;
                let text: String =
                    model.lines.iter().map(|(line, _)| format!("{line}\n")).collect();
                prop_assert_eq!(fs::read_to_string(project.path(&model.name)).unwrap(), text);
                compare(&project, &model)?;
                continue;
            }
            Act::Elsewhere => {
                project.write("other", &[&number.to_string()]);
                0
            }
        };
        let place = match writer {
            0 => {
                let number = manager.create_incremental().unwrap().0.number;
                (format!("{}/{number}", manager.session().id()), number)
            }
            1 => {
                let step = Step { agent: "a".into(), agent_session: "x".into(), ..Step::default() };
                let request = SnapshotRequest { step: Some(step), ..SnapshotRequest::default() };
                let taken = manager.record_state(request).unwrap();
                let number = taken.manifest().number;
                (format!("{}/{number}", manager.session().id()), number)
            }
            _ => {
                // A person, between two sessions.
                session_count += 1;
                manager = project.session(&format!("s{session_count:03}"));
                manager.create_baseline().unwrap();
                states.clear();
                (format!("{}/0", manager.session().id()), 0)
            }
        };
        model.written_by(&place.0);
        states.push((place.1, model.clone()));
        compare(&project, &model)?;
    }
    Ok(())
}

fn compare(project: &Project, model: &Model) -> Result<(), TestCaseError> {
    let blame = project.blame_at(&model.name, &BlameAt::Newest).unwrap().unwrap();
    let expected: Vec<String> =
        model.lines.iter().map(|(line, writer)| format!("{line} {writer}")).collect();
    prop_assert_eq!(project.lines(&blame), expected);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_line_has_the_writer_that_a_model_knows(
        acts in proptest::collection::vec(act(), 1..14)
    ) {
        check(&acts)?;
    }
}
