//! Commands, edits of a person, undos and redos in any order, against a model of what each may
//! change: no path becomes another in silence.
//!
//! The model is a map of the project's files. It knows the state before and after each run, so it
//! can tell for each path whose change it is. `scripts/fuzz model SECONDS` goes on for longer.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixture::Fixture;
use crate::random::Random;

/// Steps of one project, before the next one begins.
const STEPS: usize = 14;
/// Projects of an ordinary run of the tests.
const PROJECTS: u64 = 6;
/// Lines of each file: an edit of one of them leaves the others.
const LINES: usize = 12;
const NAMES: [&str; 9] = ["a", "b", "c", "d", "d/x", "d/y", "d/e/z", "f", "f/x"];

/// A file, symlink or directory as a person sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    File { content: Vec<u8>, mode: u32, links: u64 },
    Symlink(PathBuf),
    Directory,
}

type State = BTreeMap<PathBuf, Entry>;

fn look(project: &Path) -> State {
    fn walk(top: &Path, dir: &Path, state: &mut State) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let stat = fs::symlink_metadata(&path).unwrap();
            let entry = if stat.is_symlink() {
                Entry::Symlink(fs::read_link(&path).unwrap())
            } else if stat.is_dir() {
                walk(top, &path, state);
                Entry::Directory
            } else {
                let (mode, links) = (stat.permissions().mode() & 0o7777, stat.nlink());
                Entry::File { content: fs::read(&path).unwrap(), mode, links }
            };
            state.insert(path.strip_prefix(top).unwrap().to_owned(), entry);
        }
    }
    let mut state = State::new();
    walk(project, project, &mut state);
    state
}

/// One change of a project, which makes room for itself.
#[derive(Debug)]
enum Change {
    Write(&'static str, u8),
    Line(&'static str, usize, u8),
    Mode(&'static str, u32),
    Symlink(&'static str),
    Remove(&'static str),
    Rename(&'static str, &'static str),
    Link(&'static str, &'static str),
}

impl Change {
    fn any(random: &mut Random) -> Self {
        let (name, other) = (random.of(&NAMES), random.of(&NAMES));
        match random.below(10) {
            0..=3 => Self::Write(name, random.below(5) as u8),
            4 => Self::Mode(name, [0o600, 0o644, 0o755, 0o444][random.below(4)]),
            5 => Self::Symlink(name),
            6 | 7 => Self::Remove(name),
            8 => Self::Rename(name, other),
            _ => Self::Link(name, other),
        }
    }

    fn line(random: &mut Random) -> Self {
        let name = random.of(&["a", "b", "d/x"]);
        Self::Line(name, 1 + random.below(LINES), random.below(3) as u8)
    }

    /// The same by a command.
    fn script(&self) -> String {
        let free = |name: &str| {
            let parent = Path::new(name).parent().unwrap().display().to_string();
            let parent = if parent.is_empty() { ".".to_owned() } else { parent };
            let mut made = String::new();
            for above in Path::new(&parent).ancestors().filter(|it| !it.as_os_str().is_empty()) {
                let above = above.display();
                made.insert_str(
                    0,
                    &format!("[ -d {above} ] && [ ! -L {above} ] || rm -rf {above}; "),
                );
            }
            format!("{made} mkdir -p {parent}; rm -rf {name}; ")
        };
        match self {
            Self::Write(name, content) => {
                // In place where it is a file: all of its names get the contents.
                let free = free(name);
                let text = text(&content.to_string());
                format!(
                    "if [ -f {name} ] && [ ! -L {name} ]; then :; else {free} fi
                    printf '%s' '{text}' > {name}"
                )
            }
            // In place as well.
            Self::Line(name, line, content) => format!(
                "if [ -f {name} ] && [ ! -L {name} ]; then
                    text=$(sed '{line}s/.*/line {line} is {content}/' {name})
                    printf '%s\\n' \"$text\" > {name}
                fi"
            ),
            Self::Mode(name, mode) => {
                format!("if [ -f {name} ] && [ ! -L {name} ]; then chmod {mode:o} {name}; fi")
            }
            Self::Symlink(name) => format!("{} ln -s target {name}", free(name)),
            Self::Remove(name) => format!("rm -rf {name}"),
            Self::Rename(from, to) if to.starts_with(from) || from.starts_with(to) => {
                format!("rm -rf {from}")
            }
            Self::Rename(from, to) => {
                format!("if [ -e {from} ]; then {} mv {from} {to}; fi", free(to))
            }
            Self::Link(from, to) if to.starts_with(from) || from.starts_with(to) => String::new(),
            Self::Link(from, to) => {
                format!("if [ -f {from} ] && [ ! -L {from} ]; then {} ln {from} {to}; fi", free(to))
            }
        }
    }
}

/// The contents of a file: its first line is its own.
fn text(first: &str) -> String {
    let others = (2..=LINES).map(|line| format!("line {line}\n"));
    std::iter::once(format!("{first}\n")).chain(others).collect()
}

/// The file without the change from `new` back to `old`, if later changes touch nothing of
/// it. All three have the same number of lines, and no line has another one's text.
fn merged(old: &Entry, new: &Entry, now: &Entry) -> Option<Entry> {
    let file = |entry: &Entry| match entry {
        Entry::File { content, mode, links: 1 } => {
            Some((String::from_utf8(content.clone()).unwrap(), *mode))
        }
        _ => None,
    };
    let [old, new, now] = [file(old)?, file(new)?, file(now)?];
    let mode = if old.1 == new.1 {
        now.1
    } else if now.1 == new.1 || now.1 == old.1 {
        old.1
    } else {
        return None;
    };
    let [was, made, is] = [&old.0, &new.0, &now.0].map(|text| text.lines().collect::<Vec<_>>());
    let content = if was == made || is == was {
        now.0.clone()
    } else {
        assert!(was.len() == made.len() && made.len() == is.len(), "{was:?} {made:?} {is:?}");
        let is_changed = |line: &usize| was[*line] != made[*line] || is[*line] != made[*line];
        let (mut lines, mut from) = (Vec::new(), 0);
        while from < made.len() {
            // Changed lines without an unchanged one between them are one change.
            let to = (from..made.len()).find(|line| !is_changed(line)).unwrap_or(made.len());
            let [was, part, is] = [&was, &made, &is].map(|lines| &lines[from..to]);
            if is == part {
                lines.extend_from_slice(was);
            } else if was == part || is == was {
                lines.extend_from_slice(is);
            } else {
                return None;
            }
            lines.extend(made.get(to));
            from = to + 1;
        }
        lines.iter().map(|line| format!("{line}\n")).collect()
    };
    Some(Entry::File { content: content.into_bytes(), mode, links: 1 })
}

fn script(changes: &[Change]) -> String {
    changes.iter().map(Change::script).collect::<Vec<_>>().join("\n") + "\n:"
}

/// A state that a restore replaced, and the one that it left.
#[derive(Clone)]
struct Replaced {
    before: State,
    after: State,
    /// The paths of the session that undos in part had taken back before.
    taken_back: BTreeSet<PathBuf>,
}

struct Model {
    fixture: Fixture,
    random: Random,
    /// The states before and after each run, by id.
    runs: BTreeMap<String, Replaced>,
    /// The states that each undo and redo replaced, by session and safety snapshot.
    restores: BTreeMap<(String, u64), Replaced>,
    /// Paths that an undo in part took back, by session: what is there now is not of the session.
    taken_back: BTreeSet<(String, PathBuf)>,
    /// Files that undos merged.
    merged_count: usize,
    /// The steps so far, for the message of a failure.
    story: Vec<String>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let fixture = Fixture::new();
        for name in ["a", "b", "d/x", "d/e/z"] {
            fixture.write(name, text(name));
        }
        symlink("a", fixture.project().join("c")).unwrap();
        Self {
            fixture,
            random: Random::new(seed),
            runs: BTreeMap::new(),
            restores: BTreeMap::new(),
            taken_back: BTreeSet::new(),
            merged_count: 0,
            story: Vec::new(),
        }
    }

    fn state(&self) -> State {
        look(&self.fixture.project())
    }

    fn changes(&mut self) -> Vec<Change> {
        let count = 1 + self.random.below(4);
        // Often lines alone: where anything else is in conflict, nothing is merged.
        let change = if self.random.below(2) == 0 { Change::any } else { Change::line };
        (0..count).map(|_| change(&mut self.random)).collect()
    }

    fn step(&mut self) {
        match self.random.below(10) {
            0..=2 => self.run(),
            3 | 4 => self.edit(),
            5..=7 => self.undo(),
            8 => self.redo(),
            _ => self.restore(),
        }
    }

    fn run(&mut self) {
        let script = script(&self.changes());
        self.story.push(format!("run: {script}"));
        let before = self.state();
        let words = ["run", "--rollback", "--no-sandbox", "--no-rollback-prompt", "--", "sh", "-c"];
        self.fixture.nono(&[&words[..], &[&script]].concat()).success();
        let replaced = Replaced { before, after: self.state(), taken_back: BTreeSet::new() };
        self.runs.insert(self.fixture.latest(), replaced);
    }

    fn edit(&mut self) {
        let script = script(&self.changes());
        self.story.push(format!("edit: {script}"));
        let mut shell = std::process::Command::new("sh");
        let shell = shell.args(["-c", &script]).current_dir(self.fixture.project());
        assert!(shell.status().unwrap().success());
    }

    fn undo(&mut self) {
        let path = (self.random.below(3) == 0).then(|| self.random.of(&NAMES));
        let keeps_newer = self.random.below(4) == 0;
        let flags: &[&str] = if keeps_newer { &["--keep-newer"] } else { &[] };
        let words = [&["undo", "--yes", "--json"][..], flags, path.as_slice()].concat();
        self.story.push(words.join(" "));
        let before = self.state();
        let done = self.fixture.nono(&words);
        let after = self.state();
        if done.stdout.is_empty() {
            assert_eq!(after, before, "{}", done.stderr);
            return;
        }
        let report = done.json();
        let id = report["session_id"].as_str().unwrap().to_owned();
        let mut run = self.runs[&id].clone();
        let taken_back = self.taken_back_of(&id);
        for (_, path) in self.taken_back.iter().filter(|(of, _)| *of == id) {
            match run.before.get(path) {
                Some(entry) => run.after.insert(path.clone(), entry.clone()),
                None => run.after.remove(path),
            };
        }
        let is_meant = |of: &Path| path.is_none_or(|path| of.starts_with(path));
        // They are made where the path needs them.
        let is_above = |of: &Path| {
            path.is_some_and(|path| of != Path::new(path) && Path::new(path).starts_with(of))
        };
        let (from, to) = (&run.after, &run.before);
        self.check(from, to, &before, &after, [&is_meant, &is_above], from, &report, true);
        let merged = self.named(&report, &["merged"]);
        self.merged_count += merged.len();
        // After an undo that left newer changes, the next one means all paths again.
        let left_some = keeps_newer && !report["conflicts"].as_array().unwrap().is_empty();
        if path.is_some() && !left_some {
            let is_back = |path: &&PathBuf| {
                after.get(*path) == run.before.get(*path) || merged.contains(path)
            };
            let paths = run.before.keys().chain(run.after.keys());
            let paths = paths.filter(|path| is_meant(path)).filter(is_back);
            self.taken_back.extend(paths.map(|path| (id.clone(), path.clone())));
        }
        self.keep(Replaced { before, after, taken_back }, &report);
    }

    fn taken_back_of(&self, session: &str) -> BTreeSet<PathBuf> {
        let own = self.taken_back.iter().filter(|(of, _)| of == session);
        own.map(|(_, path)| path.clone()).collect()
    }

    fn redo(&mut self) {
        self.story.push("redo".to_owned());
        let before = self.state();
        let done = self.fixture.nono(&["redo", "--yes", "--json"]);
        let after = self.state();
        if done.stdout.is_empty() {
            assert_eq!(after, before, "{}", done.stderr);
            return;
        }
        let report = done.json();
        let number = report["snapshot"].as_u64().unwrap();
        let undone = &self.restores[&(report["session_id"].as_str().unwrap().to_owned(), number)];
        let Replaced { before: to, after: from, taken_back: earlier } = undone.clone();
        let session = report["session_id"].as_str().unwrap().to_owned();
        let taken_back = self.taken_back_of(&session);
        // Undos before the one that is taken back still stand.
        if !is_refused(&report) {
            self.taken_back.retain(|(of, _)| *of != session);
            self.taken_back.extend(earlier.into_iter().map(|path| (session.clone(), path)));
        }
        self.check(&from, &to, &before, &after, [&|_| true, &|_| false], &from, &report, false);
        self.keep(Replaced { before, after, taken_back }, &report);
    }

    /// A state comes back whole, whatever came later.
    fn restore(&mut self) {
        let runs: Vec<String> = self.runs.keys().cloned().collect();
        if runs.is_empty() {
            return;
        }
        let id = &runs[self.random.below(runs.len())];
        let number = self.random.below(2) as u64;
        self.story.push(format!("restore {id}/{number}"));
        let before = self.state();
        let words = ["restore", &format!("{id}/{number}"), "--force", "--json"];
        let done = self.fixture.nono(&words).success();
        let after = self.state();
        let taken_back = self.taken_back_of(id);
        self.taken_back.retain(|(of, _)| of != id);
        let run = &self.runs[id];
        assert_eq!(after, if number == 0 { run.before.clone() } else { run.after.clone() });
        self.keep(Replaced { before, after, taken_back }, &done.json());
    }

    fn keep(&mut self, replaced: Replaced, report: &Value) {
        if let Some(safety) = report["safety_snapshot"].as_u64() {
            let session = report["session_id"].as_str().unwrap().to_owned();
            self.restores.insert((session, safety), replaced);
        }
    }

    /// The paths in lists of a report.
    fn named(&self, report: &Value, lists: &[&str]) -> Vec<PathBuf> {
        let project = self.fixture.project();
        let entries = lists.iter().flat_map(|list| report[list].as_array().cloned());
        let name = |entry: Value| {
            let path = entry["path"].as_str().or(entry.as_str()).unwrap();
            Path::new(path).strip_prefix(&project).unwrap().to_owned()
        };
        entries.flatten().map(name).collect()
    }

    /// Asserts that the changes from one state to another are taken back where nothing came later.
    /// The rest stays, and later changes in the same place are named: what is none of the states,
    /// and not `known`. `merges`: such a file is merged where that is possible, and only there.
    #[allow(clippy::too_many_arguments, reason = "the states of one comparison")]
    fn check(
        &self,
        from: &State,
        to: &State,
        before: &State,
        after: &State,
        [is_meant, is_above]: [&dyn Fn(&Path) -> bool; 2],
        known: &State,
        report: &Value,
        merges: bool,
    ) {
        let named = self.named(report, &["conflicts", "skipped", "spared", "lost"]);
        let merged_files = self.named(report, &["merged"]);
        let merged_at = |path: &Path| {
            let states = (to.get(path)?, from.get(path)?, before.get(path)?);
            merged(states.0, states.1, states.2).filter(|_| merges)
        };
        if is_refused(report) {
            assert_eq!(after, before, "a refusal changes nothing: {report}");
            assert!(merged_files.is_empty(), "a refusal merges nothing: {report}");
            for path in self.named(report, &["conflicts"]) {
                let merged = merged_at(&path);
                assert_eq!(merged, None, "{} can be merged: {report}", path.display());
            }
            return;
        }
        let paths: BTreeSet<_> =
            [from, to, before, after].into_iter().flat_map(State::keys).collect();
        for path in paths {
            let [was, target, now, is] = [from, to, before, after].map(|state| state.get(path));
            // A directory goes and comes with its contents; other names of a file change its count.
            let same = |a: Option<&Entry>, b: Option<&Entry>| match (a, b) {
                (Some(Entry::Directory), None) | (None, Some(Entry::Directory)) => true,
                (
                    Some(Entry::File { content, mode, .. }),
                    Some(Entry::File { content: other, mode: others, .. }),
                ) => content == other && mode == others,
                (a, b) => a == b,
            };
            let is_named =
                named.iter().any(|named| path.starts_with(named) || named.starts_with(path));
            let is_known = same(now, was) || same(now, target) || same(now, known.get(path));
            let is_later = !same(was, target) && is_meant(path) && !is_known;
            let merged = merged_at(path).filter(|_| is_later);
            if merges {
                let is_merged = merged.is_some() && !same(merged.as_ref(), now);
                let is_told = merged_files.contains(path);
                assert_eq!(is_told, is_merged, "{}: {report}", path.display());
            }
            let expected = match &merged {
                Some(merged) => Some(merged),
                None if !is_meant(path) || same(was, target) => now,
                None => target,
            };
            let is_right = same(is, expected);
            // Where something else came later, what is there stays.
            let stays = is_named && merged.is_none() && same(is, now);
            let is_way = is_above(path) && same(is, target);
            assert!(
                is_right || stays || is_way,
                "{}: was {was:?}, target {target:?}, now {now:?}, is {is:?}: {report}",
                path.display()
            );
            if is_later {
                let is_named = is_named || merged_files.contains(path);
                assert!(is_named, "{} goes unnamed: {report}", path.display());
            }
        }
    }
}

/// Whether a report says that later changes kept everything as it was.
fn is_refused(report: &Value) -> bool {
    report["on_conflict"] == "refuse" && !report["conflicts"].as_array().unwrap().is_empty()
}

/// Returns how many files were merged.
fn play(seed: u64) -> usize {
    let mut model = Model::new(seed);
    for _ in 0..STEPS {
        let step = std::panic::AssertUnwindSafe(|| model.step());
        if let Err(failure) = std::panic::catch_unwind(step) {
            eprintln!("seed {seed}:\n{}", model.story.join("\n"));
            std::panic::resume_unwind(failure);
        }
    }
    model.fixture.nono(&["verify", "--all"]).success();
    model.merged_count
}

#[test]
fn no_undo_redo_or_restore_changes_a_path_in_silence() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("NONO_MODEL_SEED").unwrap_or(1);
    let begun = Instant::now();
    let limit = number("NONO_MODEL_SECONDS").map(Duration::from_secs);
    let is_on = |seed: &u64| match limit {
        Some(limit) => begun.elapsed() < limit,
        None => *seed < first + PROJECTS,
    };
    let merged: Vec<usize> = (first..).take_while(is_on).map(play).collect();
    let (projects, merged) = (merged.len(), merged.iter().sum::<usize>());
    let rounds = projects * STEPS;
    eprintln!("{projects} projects, {rounds} rounds, {merged} merged files: no silent difference");
    assert!(merged > 0, "no undo met a later change that it could merge");
}
