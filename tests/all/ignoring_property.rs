//! Ignore files and files change at random: an undo is complete, or it names the paths it left.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use nono_engine::restore::{RestoreOptions, RestoreReport};
use nono_engine::snapshot::{Budget, SnapshotManager, SnapshotManifest};
use nono_engine::walk::{ExclusionConfig, Ignored};
use proptest::prelude::*;

use crate::fixture::settle;

/// Any id that is not the superuser's, for whom everything is readable.
const ORDINARY_USER: u32 = 54_321;

/// One thing that a command does. A path that does not fit is made to.
#[derive(Debug, Clone)]
enum Step {
    Write {
        path: String,
        content: u8,
    },
    Rules {
        dir: String,
        rules: String,
    },
    RulesAreDirectory {
        dir: String,
    },
    RulesAreSymlink {
        dir: String,
        target: String,
    },
    Remove {
        path: String,
    },
    Rename {
        from: String,
        to: String,
    },
    Mode {
        path: String,
        mode: u32,
    },
    /// The state is recorded, as a command may ask for.
    Snapshot,
}

fn dir() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "d", "d/e", "d/e/d", "logs", "logs/d", "build", "d/build"])
        .prop_map(str::to_owned)
}

fn path() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["x", "y.log", "keep", "e", "logs", "build", ".gitignore"]);
    (dir(), name).prop_map(|(dir, name)| inside(&dir, name))
}

fn inside(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

fn rules() -> impl Strategy<Value = String> {
    let rule = prop::sample::select(vec![
        "*",
        "*.log",
        "logs/",
        "logs/*",
        "/d",
        "d/e",
        "!keep",
        "!*.log",
        "!d/",
        ".gitignore",
        "x",
        "e",
        "!/logs",
        "**/d/**",
        "\\",
        "[",
        "!",
    ]);
    prop::collection::vec(rule, 0..4).prop_map(|rules| rules.join("\n"))
}

fn step() -> impl Strategy<Value = Step> {
    let mode = prop::sample::select(vec![0o000, 0o600, 0o700, 0o755]);
    prop_oneof![
        6 => (path(), any::<u8>()).prop_map(|(path, content)| Step::Write { path, content }),
        5 => (dir(), rules()).prop_map(|(dir, rules)| Step::Rules { dir, rules }),
        1 => dir().prop_map(|dir| Step::RulesAreDirectory { dir }),
        1 => (dir(), path()).prop_map(|(dir, target)| Step::RulesAreSymlink { dir, target }),
        3 => path().prop_map(|path| Step::Remove { path }),
        3 => (path(), path()).prop_map(|(from, to)| Step::Rename { from, to }),
        2 => (path(), mode).prop_map(|(path, mode)| Step::Mode { path, mode }),
        1 => Just(Step::Snapshot),
    ]
}

fn is_dir(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

fn remove(path: &Path) {
    let _ = if is_dir(path) { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

/// Makes room for something, whatever is in the way.
fn room(root: &Path, path: &str, owner: Option<u32>) -> PathBuf {
    let path = root.join(path);
    let mut above: Vec<_> = path.ancestors().skip(1).filter(|dir| dir.starts_with(root)).collect();
    above.reverse();
    for dir in above {
        if !is_dir(dir) {
            remove(dir);
            fs::create_dir(dir).unwrap();
            give(dir, owner);
        }
    }
    remove(&path);
    path
}

fn give(path: &Path, owner: Option<u32>) {
    if let Some(owner) = owner {
        lchown(path, Some(owner), Some(owner)).unwrap();
    }
}

fn apply(root: &Path, step: &Step, owner: Option<u32>) {
    let write = |path: &str, content: &[u8]| {
        let path = room(root, path, owner);
        fs::write(&path, content).unwrap();
        give(&path, owner);
    };
    match step {
        Step::Write { path, content } => write(path, &[*content]),
        Step::Rules { dir, rules } => write(&inside(dir, ".gitignore"), rules.as_bytes()),
        Step::RulesAreDirectory { dir } => write(&inside(dir, ".gitignore/x"), b"*"),
        Step::RulesAreSymlink { dir, target } => {
            let path = room(root, &inside(dir, ".gitignore"), owner);
            symlink(root.join(target), &path).unwrap();
            give(&path, owner);
        }
        Step::Remove { path } => remove(&root.join(path)),
        Step::Rename { from, to } => {
            let source = root.join(from);
            let fits = !root.join(to).starts_with(&source) && !source.starts_with(root.join(to));
            if fits && fs::symlink_metadata(&source).is_ok() {
                let target = room(root, to, owner);
                // The obstacle may have held it.
                let _ = fs::rename(source, target);
            }
        }
        Step::Mode { path, mode } => {
            let path = root.join(path);
            if fs::symlink_metadata(&path).is_ok_and(|metadata| !metadata.is_symlink()) {
                fs::set_permissions(path, fs::Permissions::from_mode(*mode)).unwrap();
            }
        }
        Step::Snapshot => {}
    }
}

/// Mode with kind, time, and what can be read of the contents.
type Seen = BTreeMap<PathBuf, (u32, (i64, i64), Option<Vec<u8>>)>;

fn look(root: &Path) -> Seen {
    let mut seen = Seen::new();
    let mut pending = vec![root.to_owned()];
    while let Some(path) = pending.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let content = match () {
            () if metadata.is_dir() => {
                let entries = fs::read_dir(&path).into_iter().flatten();
                pending.extend(entries.map(|entry| entry.unwrap().path()));
                None
            }
            () if metadata.is_symlink() => {
                Some(fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes())
            }
            () => fs::read(&path).ok(),
        };
        let state = (metadata.mode(), (metadata.mtime(), metadata.mtime_nsec()), content);
        seen.insert(path, state);
    }
    seen
}

/// As an ordinary user in a thread of its own, whoever runs the tests.
fn as_ordinary_user<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let thread = || {
        if rustix::process::geteuid().is_root() {
            let user = rustix::process::Uid::from_raw(ORDINARY_USER);
            let group = rustix::process::Gid::from_raw(ORDINARY_USER);
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        }
        work()
    };
    std::thread::scope(|scope| match scope.spawn(thread).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

struct Place {
    temp: tempfile::TempDir,
    owner: Option<u32>,
    ignored: Ignored,
}

impl Place {
    fn new(ignored: Ignored) -> Self {
        // In memory where that is possible: durability is not what is tested.
        let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let owner = rustix::process::geteuid().is_root().then_some(ORDINARY_USER);
        for name in ["tracked", "store"] {
            fs::create_dir(temp.path().join(name)).unwrap();
            give(&temp.path().join(name), owner);
        }
        Self { temp, owner, ignored }
    }

    fn root(&self) -> PathBuf {
        self.temp.path().join("tracked")
    }

    fn manager(&self) -> SnapshotManager {
        let exclusion = ExclusionConfig {
            exclude_patterns: vec!["build/".into()],
            ignored: self.ignored,
            ..ExclusionConfig::default()
        };
        let session = self.temp.path().join("store/session");
        SnapshotManager::new(&session, &[self.root()], exclusion, Budget::default()).unwrap()
    }

    fn apply(&self, steps: &[Step]) {
        steps.iter().for_each(|step| apply(&self.root(), step, self.owner));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // For a user who is stopped by modes.
        let modes = ["-R", "u+rwX"];
        let _ = std::process::Command::new("chmod").args(modes).arg(self.temp.path()).status();
    }
}

fn names(report: &RestoreReport) -> BTreeSet<PathBuf> {
    report.skipped.iter().map(|skipped| skipped.path.clone()).collect()
}

/// The unrecorded paths that are not as they were, with the fate of each.
fn lost(report: &RestoreReport) -> BTreeSet<(PathBuf, String)> {
    report.lost.iter().map(|lost| (lost.path.clone(), lost.what.to_string())).collect()
}

/// Whether a path, or a directory above it, is one of these.
fn is_covered(path: &Path, by: &BTreeSet<PathBuf>) -> bool {
    path.ancestors().any(|above| by.contains(above))
}

/// Whether a path lies in a directory that its owner may not look into: what others do there is
/// not seen.
fn is_out_of_sight(path: &Path, before: &Seen) -> bool {
    let is_closed = |dir: &Path| before.get(dir).is_some_and(|(mode, ..)| mode & 0o500 != 0o500);
    path.ancestors().skip(1).any(is_closed)
}

/// The outcome of a restore of the baseline, asked in every way.
fn check(place: &Place, baseline: &SnapshotManifest, before: &Seen) -> Result<(), TestCaseError> {
    let options = RestoreOptions::default();
    let (planned, done, again, planned_again) = as_ordinary_user(|| {
        let manager = place.manager();
        let planned = manager.plan_restore(0, &options).unwrap();
        let done = manager.restore(0).unwrap();
        let again = manager.restore(0).unwrap();
        (planned, done, again, manager.plan_restore(0, &options).unwrap())
    });
    let after = look(&place.root());
    let unknown: BTreeSet<_> = baseline.not_captured.iter().map(|left| left.path.clone()).collect();
    let named = names(&done);
    let paths: BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
    let differ = paths.into_iter().filter(|path| before.get(*path) != after.get(*path));
    // A left-out path of the baseline may have changed in any way, but is named then.
    let (unrecorded, differ): (Vec<_>, Vec<_>) =
        differ.partition(|path| is_covered(path, &unknown));
    let of_unknown = |has_state: bool| -> BTreeSet<PathBuf> {
        let of = baseline.not_captured.iter().filter(|left| left.state.is_some() == has_state);
        of.map(|left| left.path.clone()).collect()
    };
    let (noted, not_noted) = (of_unknown(true), of_unknown(false));
    let told: BTreeSet<PathBuf> = done.lost.iter().map(|lost| lost.path.clone()).collect();
    let silent: Vec<_> = unrecorded
        .iter()
        .filter(|path| is_covered(path, &noted) && !is_covered(path, &not_noted))
        .filter(|path| !is_covered(path, &told) && !is_covered(path, &named))
        .filter(|path| !is_out_of_sight(path, before))
        .collect();
    prop_assert!(silent.is_empty(), "changed and are not named: {silent:#?}\n{done:#?}");
    let silent: Vec<_> = differ.iter().filter(|path| !is_covered(path, &named)).collect();
    prop_assert!(silent.is_empty(), "differ and are not named: {silent:#?}\n{done:#?}");
    prop_assert!(differ.is_empty() || !done.is_complete());
    // One question, one answer.
    prop_assert_eq!(&names(&planned), &named);
    prop_assert_eq!(lost(&planned), lost(&done));
    prop_assert_eq!(&planned.changes, &done.changes);
    for later in [&again, &planned_again] {
        prop_assert_eq!(&names(later), &named);
        prop_assert_eq!(lost(later), lost(&done));
        prop_assert!(later.changes.is_empty(), "{:#?}", later.changes);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 160,
        max_shrink_iters: 300,
        ..ProptestConfig::default()
    })]

    #[test]
    fn an_undo_is_never_both_incomplete_and_silent(
        first in prop::collection::vec(step(), 0..14),
        second in prop::collection::vec(step(), 0..18),
        is_recorded in any::<bool>(),
        ignored in prop::sample::select(vec![Ignored::None, Ignored::Small]),
    ) {
        let place = Place::new(ignored);
        place.apply(&first);
        // A later change has another time.
        settle();
        let before = look(&place.root());
        let baseline = as_ordinary_user(|| place.manager().create_baseline().unwrap());
        for step in &second {
            apply(&place.root(), step, place.owner);
            if matches!(step, Step::Snapshot) {
                as_ordinary_user(|| place.manager().create_incremental().unwrap());
            }
        }
        if is_recorded {
            as_ordinary_user(|| place.manager().create_incremental().unwrap());
        }
        check(&place, &baseline, &before)?;
    }
}
