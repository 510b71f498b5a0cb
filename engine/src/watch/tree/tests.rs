use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use proptest::prelude::*;

use super::*;

/// Names and states of what is in each directory.
type Listing = BTreeMap<Vec<u8>, Vec<(Vec<u8>, u64, i64, i64)>>;

struct Place {
    _temp: tempfile::TempDir,
    root: PathBuf,
}

impl Place {
    fn new() -> Self {
        let temp = tempfile::tempdir_in("/var/tmp").unwrap();
        let root = temp.path().canonicalize().unwrap().join("project");
        fs::create_dir(&root).unwrap();
        Self { _temp: temp, root }
    }

    fn watch(&self) -> TreeWatch {
        TreeWatch::begin(&self.root, &[], usize::MAX).unwrap()
    }

    fn make(&self, directory: &str) {
        fs::create_dir_all(self.root.join(directory)).unwrap();
    }

    fn write(&self, file: &str) {
        fs::write(self.root.join(file), file).unwrap();
    }

    fn listing(&self) -> Listing {
        let mut found = Listing::new();
        let mut waiting = vec![Vec::new()];
        while let Some(relative) = waiting.pop() {
            let path = self.root.join(crate::path_text::to_path(&relative));
            let mut names = Vec::new();
            for entry in fs::read_dir(path).unwrap() {
                let entry = entry.unwrap();
                let (name, stat) = (entry.file_name(), entry.metadata().unwrap());
                if stat.is_dir() {
                    waiting.push(byte_path::join(&relative, name.as_bytes()));
                }
                // The times of a directory follow from what is in it.
                let nanos = if stat.is_dir() { 0 } else { stat.ctime_nsec() };
                let seconds = if stat.is_dir() { 0 } else { stat.ctime() };
                names.push((name.as_bytes().to_vec(), stat.ino(), seconds, nanos));
            }
            names.sort();
            found.insert(relative, names);
        }
        found
    }
}

fn changed(watch: &mut TreeWatch, since: &Token) -> Vec<(String, bool)> {
    watch.look().unwrap();
    let all = watch.changed_since(since).expect("an unbroken chain");
    all.iter().map(|it| (String::from_utf8(it.path.to_vec()).unwrap(), it.is_deep)).collect()
}

#[test]
fn the_directory_of_a_changed_file_is_told_and_no_other() {
    let place = Place::new();
    place.make("a/deep");
    place.make("b");
    place.write("b/file");
    let mut watch = place.watch();
    let then = watch.token();
    assert_eq!(changed(&mut watch, &then), []);
    place.write("a/deep/file");
    fs::write(place.root.join("b/file"), "other").unwrap();
    assert_eq!(changed(&mut watch, &then), [("a/deep".into(), false), ("b".into(), false)]);
    let then = watch.token();
    fs::set_permissions(
        place.root.join("b/file"),
        std::os::unix::fs::PermissionsExt::from_mode(0o600),
    )
    .unwrap();
    assert_eq!(changed(&mut watch, &then), [("b".into(), false)]);
}

#[test]
fn a_directory_that_was_filled_before_its_watch_stood_is_told_with_all_below_it() {
    let place = Place::new();
    let mut watch = place.watch();
    let then = watch.token();
    place.make("new/deep/deeper");
    place.write("new/deep/deeper/file");
    assert_eq!(changed(&mut watch, &then), [(String::new(), false), ("new".into(), true)]);
    // By now everything in it has a watch.
    let then = watch.token();
    place.write("new/deep/deeper/second");
    assert_eq!(changed(&mut watch, &then), [("new/deep/deeper".into(), false)]);
    assert_eq!(watch.directories(), 4);
}

#[test]
fn a_renamed_directory_is_told_at_its_new_place_and_goes_on_being_watched() {
    let place = Place::new();
    place.make("a/inner");
    place.make("b");
    let mut watch = place.watch();
    let then = watch.token();
    fs::rename(place.root.join("a"), place.root.join("b/moved")).unwrap();
    assert!(changed(&mut watch, &then).contains(&("b/moved".into(), true)));
    let then = watch.token();
    place.write("b/moved/inner/file");
    assert_eq!(changed(&mut watch, &then), [("b/moved/inner".into(), false)]);
    // One that left the tree is none of it.
    let then = watch.token();
    let outside = place.root.with_file_name("outside");
    fs::rename(place.root.join("b/moved"), &outside).unwrap();
    changed(&mut watch, &then);
    let then = watch.token();
    fs::write(outside.join("inner/file"), "x").unwrap();
    assert_eq!(changed(&mut watch, &then), []);
    assert_eq!(watch.directories(), 2);
}

#[test]
fn two_directories_that_change_places_are_both_watched_afterwards() {
    let place = Place::new();
    place.make("a/of_a");
    place.make("b/of_b");
    let mut watch = place.watch();
    let dir = Dir::open(&place.root).unwrap();
    dir.exchange(b"a", &dir, b"b").unwrap();
    watch.look().unwrap();
    for inner in ["a/of_b", "b/of_a"] {
        let then = watch.token();
        place.write(&format!("{inner}/file"));
        assert_eq!(changed(&mut watch, &then), [(inner.to_owned(), false)]);
    }
}

#[test]
fn without_enough_watches_no_answer_is_given() {
    let place = Place::new();
    for number in 0..20 {
        place.make(&format!("d{number}"));
    }
    let mut watch = TreeWatch::begin(&place.root, &[], 10).unwrap();
    assert_eq!(watch.gap(), Some(&Gap::NoMoreWatches));
    let then = watch.token();
    watch.look().unwrap();
    assert_eq!(watch.changed_since(&then), None);
    assert!(matches!(watch.reply(None), Reply::Changed { now: None, .. }));
}

#[test]
fn a_full_queue_ends_the_generation_and_everything_is_watched_anew() {
    let place = Place::new();
    place.make("a");
    let mut watch = place.watch();
    let then = watch.token();
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    // Each of them is an event of another name, so none takes the place of another.
    for number in 0..=limit {
        fs::File::create(place.root.join("a").join(number.to_string())).unwrap();
    }
    place.make("unheard");
    assert_eq!(watch.look().unwrap(), Seen { changed: true, loss: Some(Loss::Overflow) });
    assert_eq!(watch.changed_since(&then), None);
    let then = watch.token();
    place.write("unheard/file");
    assert_eq!(changed(&mut watch, &then), [("unheard".into(), false)]);
}

#[test]
fn another_directory_at_the_tracked_path_ends_the_generation() {
    let place = Place::new();
    place.make("a");
    let mut watch = place.watch();
    let then = watch.token();
    fs::rename(&place.root, place.root.with_file_name("former")).unwrap();
    let replaced = Seen { changed: true, loss: Some(Loss::Replaced) };
    assert_eq!(watch.look().unwrap(), replaced);
    assert_eq!(watch.changed_since(&then), None);
    assert!(matches!(watch.reply(None), Reply::Changed { top: None, .. }));
    place.make("b");
    assert_eq!(watch.look().unwrap(), replaced);
    let then = watch.token();
    place.write("b/file");
    assert_eq!(changed(&mut watch, &then), [("b".into(), false)]);
}

#[test]
fn the_directory_around_the_tracked_path_may_be_moved_without_an_event() {
    let place = Place::new();
    place.make("inner/a");
    let mut watch = TreeWatch::begin(&place.root.join("inner"), &[], usize::MAX).unwrap();
    fs::rename(&place.root, place.root.with_file_name("former")).unwrap();
    assert_eq!(watch.look().unwrap().loss, Some(Loss::Replaced));
}

#[test]
fn another_watcher_knows_nothing_of_a_moment() {
    let place = Place::new();
    let (first, second) = (place.watch(), place.watch());
    assert_eq!(second.changed_since(&first.token()), None);
    assert_eq!(first.changed_since(&first.token()), Some(Vec::new()));
}

#[test]
fn the_store_is_not_watched() {
    let place = Place::new();
    place.make("store/objects");
    let store = place.root.join("store");
    let mut watch = TreeWatch::begin(&place.root, &[store], usize::MAX).unwrap();
    let then = watch.token();
    place.write("store/objects/file");
    assert_eq!(changed(&mut watch, &then), []);
}

#[test]
fn rules_of_what_is_ignored_concern_all_below_them() {
    let place = Place::new();
    place.make("a/b");
    let mut watch = place.watch();
    let then = watch.token();
    place.write("a/.gitignore");
    assert_eq!(changed(&mut watch, &then), [("a".into(), true)]);
}

#[derive(Debug, Clone)]
enum Edit {
    Make(u8, u8),
    Write(u8, u8),
    Remove(u8, u8),
    Rename(u8, u8, u8),
    Look,
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        (any::<u8>(), 0..4u8).prop_map(|(at, name)| Edit::Make(at, name)),
        (any::<u8>(), 0..4u8).prop_map(|(at, name)| Edit::Write(at, name)),
        (any::<u8>(), 0..4u8).prop_map(|(at, name)| Edit::Remove(at, name)),
        (any::<u8>(), any::<u8>(), 0..4u8).prop_map(|(at, to, name)| Edit::Rename(at, to, name)),
        Just(Edit::Look),
    ];
    proptest::collection::vec(edit, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn each_directory_that_changed_is_told(before in edits(), edits in edits()) {
        let place = Place::new();
        let apply = |edit: &Edit, watch: Option<&mut TreeWatch>| {
            let directories: Vec<Vec<u8>> = place.listing().into_keys().collect();
            let at = |number: u8| {
                let chosen = &directories[usize::from(number) % directories.len()];
                place.root.join(crate::path_text::to_path(chosen))
            };
            // An edit that is not possible changes nothing.
            let _ = match edit {
                Edit::Make(dir, name) => fs::create_dir(at(*dir).join(name.to_string())),
                Edit::Write(dir, name) => fs::write(at(*dir).join(format!("f{name}")), "text"),
                Edit::Remove(dir, name) => fs::remove_dir_all(at(*dir).join(name.to_string())),
                Edit::Rename(from, to, name) => fs::rename(at(*from), at(*to).join(name.to_string())),
                Edit::Look => watch.map_or(Ok(()), |watch| watch.look().map(drop).map_err(std::io::Error::other)),
            };
        };
        for edit in &before {
            apply(edit, None);
        }
        let mut watch = place.watch();
        let (then, listed) = (watch.token(), place.listing());
        for edit in &edits {
            // The root itself stays.
            apply(edit, Some(&mut watch));
        }
        watch.look().unwrap();
        let now = place.listing();
        let told = watch.changed_since(&then).expect("an unbroken chain");
        for (path, names) in &now {
            if listed.get(path) == Some(names) {
                continue;
            }
            let is_told = told.iter().any(|it| {
                *it.path == **path || (it.is_deep && byte_path::is_in(path, &it.path))
            });
            prop_assert!(is_told, "{:?} changed, told is {told:?}", String::from_utf8_lossy(path));
        }
        // Every directory has its watch: a further change in it is told.
        prop_assert_eq!(watch.directories(), now.len());
    }
}
