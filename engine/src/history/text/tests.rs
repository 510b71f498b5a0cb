use std::collections::HashMap;
use std::fs;
use std::fs::File as OsFile;
use std::io::Read;
use std::path::PathBuf;

use parking_lot::Mutex;

use super::*;
use crate::history::{Objects, Origin, forms_of};
use crate::progress::NoProgress;
use crate::restore::RestoreOptions;
use crate::snapshot::{Budget, SnapshotManager};
use crate::store::{ObjectSource, Transfer};
use crate::walk::ExclusionConfig;

struct Project {
    temp: tempfile::TempDir,
}

impl Project {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        fs::create_dir_all(temp.path().join("project/d")).unwrap();
        Self { temp }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.temp.path().canonicalize().unwrap().join("project").join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), content).unwrap();
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

    fn search(&self, pattern: &str, paths: &[&str]) -> TextSearch {
        let sessions = self.sessions();
        let (objects, damaged) = Objects::of(&sessions);
        assert!(damaged.is_empty());
        search_in(pattern, &self.forms(paths), &sessions, &objects)
    }

    fn forms(&self, paths: &[&str]) -> Vec<Vec<PathBuf>> {
        paths.iter().map(|path| forms_of(&self.path(path))).collect()
    }
}

fn search_in(
    pattern: &str,
    paths: &[Vec<PathBuf>],
    sessions: &[SessionDir],
    source: &dyn FileSource,
) -> TextSearch {
    let pattern = TextPattern::new(pattern, TextOptions::default()).unwrap();
    let request = TextRequest { pattern: &pattern, paths, depth: Depth::Lines, threads: 2 };
    search_text(&request, sessions, source, &NoProgress).unwrap()
}

/// `name appeared..gone versions` of each time, as snapshots are named.
fn told(search: &TextSearch) -> Vec<String> {
    let line = |standing: &Standing| {
        let path = String::from_utf8_lossy(&standing.path).into_owned();
        let name = path.rsplit('/').next().unwrap().to_owned();
        let gone = standing.gone.as_ref().map_or("-".to_owned(), |gone| gone.place.to_string());
        format!("{name} {}..{gone} {}", standing.appeared.place, standing.versions.len())
    };
    search.standing.iter().map(line).collect()
}

#[test]
fn a_text_appears_and_goes_and_comes_back_in_contents_after_contents() {
    let project = Project::new();
    project.write("a", "one\n");
    project.write("d/b", "needle\n");
    let first = project.session("s1");
    first.create_baseline().unwrap();
    project.write("a", "one\nneedle\n");
    first.create_incremental().unwrap();
    project.write("a", "two\nneedle\n");
    first.create_incremental().unwrap();
    project.write("a", "two\n");
    first.create_incremental().unwrap();
    fs::remove_file(project.path("d/b")).unwrap();
    // Outside of both sessions.
    let second = project.session("s2");
    second.create_baseline().unwrap();
    project.write("a", "needle\n");
    second.create_incremental().unwrap();
    let found = project.search("needle", &[]);
    assert_eq!(told(&found), ["a s2/1..- 1", "b s1/0..s2/0 1", "a s1/1..s1/3 2"]);
    let origins: Vec<_> = found.standing.iter().map(|standing| standing.appeared.origin).collect();
    assert_eq!(origins, [Origin::Session, Origin::First, Origin::Session]);
    assert_eq!(found.standing[1].gone.as_ref().unwrap().origin, Origin::Outside);
    let places = |version: &TextVersion| {
        let places = version.places.iter().map(|number| found.places[*number].to_string());
        places.collect::<Vec<_>>()
    };
    assert_eq!(places(&found.standing[1].versions[0]), ["s1/0", "s1/1", "s1/2", "s1/3"]);
    assert_eq!(places(&found.standing[2].versions[0]), ["s1/2"]);
}

#[test]
fn a_restore_brings_a_text_back() {
    let project = Project::new();
    project.write("a", "needle\n");
    let manager = project.session("s");
    manager.create_baseline().unwrap();
    project.write("a", "none\n");
    manager.create_incremental().unwrap();
    manager.restore_with(0, &RestoreOptions::default()).unwrap();
    let found = project.search("needle", &[]);
    assert_eq!(told(&found), ["a s/0..- 1", "a s/0..s/1 1"]);
    assert_eq!(found.standing[0].appeared.origin, Origin::Restored);
    assert!(found.standing[0].versions[0].places.is_empty());
}

/// Counts how often each object is read.
struct Counting<'a>(&'a Objects, Mutex<HashMap<ContentHash, usize>>);

impl Counting<'_> {
    fn count(&self, hash: &ContentHash) {
        *self.1.lock().entry(*hash).or_default() += 1;
    }
}

impl ObjectSource for Counting<'_> {
    fn read(&self, hash: &ContentHash, max_bytes: u64) -> Result<Vec<u8>, StoreError> {
        self.count(hash);
        self.0.read(hash, max_bytes)
    }
}

impl FileSource for Counting<'_> {
    fn export(
        &self,
        hash: &ContentHash,
        size: u64,
        target: &OsFile,
        transfer: &mut Transfer<'_>,
    ) -> Result<(), StoreError> {
        self.0.export(hash, size, target, transfer)
    }

    fn open_checked(
        &self,
        hash: &ContentHash,
        size: u64,
        transfer: &mut Transfer<'_>,
    ) -> Result<Box<dyn Read>, StoreError> {
        self.count(hash);
        self.0.open_checked(hash, size, transfer)
    }
}

#[test]
fn each_distinct_object_is_searched_once_however_many_states_have_it() {
    let project = Project::new();
    let contents: Vec<Vec<u8>> =
        (0..30).map(|n| format!("{n} needle\n").repeat(n + 1).into_bytes()).collect();
    for (n, content) in contents.iter().enumerate() {
        project.write(&format!("d{}/f{n}", n % 3), content);
        project.write(&format!("copies/{n}"), content);
    }
    // Long enough to be searched without being in memory as a whole.
    let mut long = vec![b'x'; 5 << 20];
    long.extend_from_slice(b"\nneedle at the end\n");
    project.write("long", &long);
    let manager = project.session("s");
    manager.create_baseline().unwrap();
    for n in 0..4 {
        project.write("d0/f0", format!("{n}"));
        manager.create_incremental().unwrap();
    }
    let sessions = project.sessions();
    let (objects, _) = Objects::of(&sessions);
    let counting = Counting(&objects, Mutex::default());
    let found = search_in("needle", &[], &sessions, &counting);
    assert_eq!(found.searched_count, 30 + 1 + 4);
    let reads = counting.1.into_inner();
    for content in contents.iter().chain([&long]) {
        assert_eq!(reads[&ContentHash::of(content)], 1);
    }
    assert_eq!(found.objects.len(), 31);
    let of_long = &found.objects[&ContentHash::of(&long)];
    assert_eq!((of_long.line_count, of_long.binary_offset), (1, None));
}

#[test]
fn only_the_given_paths_are_searched_and_git_directories_where_a_path_leads() {
    let project = Project::new();
    for name in ["a", "d/b", "d/e/c", ".git/logs/HEAD", "d/.git/x", ".hidden"] {
        project.write(name, "needle\n");
    }
    project.session("s").create_baseline().unwrap();
    let names = |paths: &[&str]| {
        let found = project.search("needle", paths);
        let root = project.path("");
        let relative = |standing: &Standing| {
            let path = crate::path_text::to_path(&standing.path);
            path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned()
        };
        let mut names: Vec<String> = found.standing.iter().map(relative).collect();
        names.sort();
        names
    };
    assert_eq!(names(&[]), [".hidden", "a", "d/b", "d/e/c"]);
    assert_eq!(names(&["d"]), ["d/b", "d/e/c"]);
    assert_eq!(names(&["d/e", "a"]), ["a", "d/e/c"]);
    assert_eq!(names(&[".git"]), [".git/logs/HEAD"]);
    assert_eq!(names(&["d", "d/.git/x"]), ["d/.git/x", "d/b", "d/e/c"]);
    assert_eq!(names(&["nowhere"]), [""; 0]);
}

#[test]
fn binary_contents_are_told_and_not_shown() {
    let project = Project::new();
    let mut late = b"needle\n".repeat(30_000);
    late.push(0);
    for (name, content) in
        [("a", &b"x\0needle\nneedle\n"[..]), ("late", &late), ("text", b"needle\xff\n")]
    {
        project.write(name, content);
    }
    // With a mark of its encoding it is text.
    let wide = "\u{feff}needle\n".encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
    project.write("wide", &wide);
    project.session("s").create_baseline().unwrap();
    let found = project.search("needle", &[]);
    let of = |content: &[u8]| &found.objects[&ContentHash::of(content)];
    assert_eq!(of(b"x\0needle\nneedle\n").binary_offset, Some(1));
    assert_eq!(of(&late).binary_offset, Some(late.len() as u64 - 1));
    assert_eq!(of(b"needle\xff\n").binary_offset, None);
    assert_eq!((of(&wide).binary_offset, of(&wide).line_count), (None, 1));
}

#[test]
fn a_damaged_object_is_named_and_the_others_are_searched() {
    let project = Project::new();
    project.write("a", "needle one\n");
    project.write("b", "needle two\n");
    let manager = project.session("s");
    manager.create_baseline().unwrap();
    let sessions = project.sessions();
    let (objects, _) = Objects::of(&sessions);
    let hash = ContentHash::of(b"needle one\n").to_string();
    let object = sessions[0].objects_path().join(&hash[..2]).join(&hash[2..]);
    fs::remove_file(&object).unwrap();
    let found = search_in("needle", &[], &sessions, &objects);
    assert_eq!(told(&found), ["b s/0..- 1"]);
    assert_eq!(found.unsearched.len(), 1);
    assert!(found.unsearched[0].0.ends_with("a"));
}

/// Wants the work to stop.
struct Stopped;

impl Progress for Stopped {
    fn advance(&self, _: u64, _: u64) {}

    fn is_cancelled(&self) -> bool {
        true
    }
}

#[test]
fn a_search_stops_when_it_is_asked_to() {
    let project = Project::new();
    project.write("d/a", "needle\n");
    project.session("s").create_baseline().unwrap();
    let sessions = project.sessions();
    let (objects, _) = Objects::of(&sessions);
    let pattern = TextPattern::new("needle", TextOptions::default()).unwrap();
    let request = TextRequest { pattern: &pattern, paths: &[], depth: Depth::Lines, threads: 1 };
    let stopped = search_text(&request, &sessions, &objects, &Stopped);
    assert!(matches!(stopped, Err(HistoryError::Store(StoreError::Cancelled))), "{stopped:?}");
}

#[test]
fn a_wrong_pattern_says_what_is_wrong() {
    for pattern in ["(", "a\\nb", "[z-a]"] {
        let error = TextPattern::new(pattern, TextOptions::default()).unwrap_err();
        assert!(error.to_string().contains("is no pattern"), "{error}");
    }
    let fixed = TextOptions { fixed: true, ..TextOptions::default() };
    assert_eq!(TextPattern::new("(", fixed).unwrap().matches_in(b"a(b\n"), vec![1..2; 1]);
}
