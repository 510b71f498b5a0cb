//! Sessions of one project that share archives.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use nono_archive::{ArchiveId, ArchiveName};

use super::faulty_server::{Fault, FaultyServer};
use super::{Travel, archives, delta_manifest};
use crate::fixture::{Finished, finished, noise};
use crate::object_server::ObjectServer;

/// Runs of a project of `files` text files of 8 KiB, each of which changes one file.
struct Runs {
    travel: Travel,
    sessions: Vec<String>,
}

impl Runs {
    fn of(files: usize) -> Self {
        let travel = Travel::with(1, 1, 0);
        for file in 0..files {
            let text: String = noise(4096, file as u64 + 1).iter().map(text_of).collect();
            travel.fixture.write(&format!("src{}/f{file}", file % 7), text);
        }
        Self { travel, sessions: Vec::new() }
    }

    /// Records a run that changes a file.
    fn run(&mut self) -> String {
        let number = self.sessions.len();
        self.travel.fixture.record(&format!("echo {number} >> src0/f0")).success();
        self.sessions.push(self.travel.fixture.latest());
        self.sessions[number].clone()
    }

    /// Records a run and pushes its session.
    fn pushed(&mut self, remote: &str) -> String {
        let session = self.run();
        self.push(remote, &session).success();
        session
    }

    fn push(&self, remote: &str, session: &str) -> Finished {
        self.travel.nono(&["push", remote, session])
    }

    /// Pulls one session into an empty store, and compares its states.
    fn arrives(&self, remote: &str, session: &str) {
        let root = tempfile::tempdir_in(self.travel.fixture.path("")).unwrap();
        self.travel.pull(remote, root.path(), session).success();
        assert_eq!(self.roots(root.path(), session), self.roots(&self.store(), session));
        let root = root.path().to_str().unwrap();
        self.travel.nono(&["--root", root, "rollback", "verify", session]).success();
    }

    fn store(&self) -> PathBuf {
        self.travel.fixture.store()
    }

    fn roots(&self, root: &Path, session: &str) -> Vec<(u64, String)> {
        let root = root.to_str().unwrap();
        let shown = self.travel.nono(&["--root", root, "rollback", "show", session, "--json"]);
        let shown = shown.success().json();
        let root = |one: &serde_json::Value| {
            let merkle_root = one["merkle_root"].as_str().unwrap().to_owned();
            (one["number"].as_u64().unwrap(), merkle_root)
        };
        shown["snapshots"].as_array().unwrap().iter().map(root).collect()
    }

    /// The archives at a place that archives of other sessions depend on.
    fn links(&self, place: &Path) -> BTreeSet<ArchiveId> {
        let of_other = |name: &ArchiveName| {
            let parent = name.kind.parent()?;
            (parent.session() != name.id.session()).then(|| parent.clone())
        };
        names(place, &self.sessions).iter().filter_map(of_other).collect()
    }

    /// The files of the archives that give a snapshot back.
    fn files(&self, place: &Path, id: &ArchiveId) -> Vec<PathBuf> {
        let of_it = names(place, &self.sessions).into_iter().filter(|name| name.id == *id);
        of_it.map(|name| place.join(name.to_string())).collect()
    }
}

fn text_of(byte: &u8) -> String {
    format!("{byte:02x}")
}

fn names(place: &Path, sessions: &[String]) -> Vec<ArchiveName> {
    let of_session = |id: &String| {
        let names = archives(place, id).into_iter();
        names.map(|name| format!("{id}/{name}").parse().unwrap()).collect::<Vec<_>>()
    };
    sessions.iter().flat_map(of_session).collect()
}

/// Lengths of all files below a directory.
fn bytes_below(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let bytes = |path: PathBuf| match fs::symlink_metadata(&path).unwrap() {
        found if found.is_dir() => bytes_below(&path),
        found => found.len(),
    };
    entries.map(bytes).sum()
}

#[test]
fn ten_runs_that_change_a_file_each_cost_the_remote_little_more_than_the_store() {
    let mut runs = Runs::of(400);
    let place = runs.travel.directory("disk");
    for _ in 0..10 {
        runs.pushed("disk");
    }
    let (remote, store) = (bytes_below(&place), bytes_below(&runs.store()));
    assert!(remote * 10 <= store * 12, "{remote} bytes at the remote, {store} in the store");
    let stored = names(&place, &runs.sessions);
    assert_eq!(stored.iter().filter(|name| name.kind.parent().is_none()).count(), 1, "{stored:?}");
    assert_eq!(stored.len(), 20, "{stored:?}");
    runs.travel.verify("disk").success();
    runs.arrives("disk", &runs.sessions[9]);
    runs.arrives("disk", &runs.sessions[4]);
}

#[test]
fn the_document_names_a_parent_of_another_session_and_archives_of_two_are_imported() {
    let mut runs = Runs::of(40);
    let place = runs.travel.plain_directory("disk");
    let (first, second) = (runs.pushed("disk"), runs.pushed("disk"));
    let delta = archives(&place, &second).remove(0);
    let parent = delta.strip_prefix("0-delta-").unwrap().strip_suffix(".tar.zst").unwrap();
    let (number, of) = parent.split_once("-of-").unwrap();
    assert_eq!(of, first);
    let document = delta_manifest(&place.join(&second).join(&delta));
    assert_eq!(document["parentId"], format!("{first}/{number}"));
    assert_eq!(document["baseId"], format!("{first}/0"));
    assert_eq!(document["chainDepth"], number.parse::<u64>().unwrap() + 1);
    assert!(document["stats"]["unchanged"].as_u64().unwrap() > 35, "{document:#}");
    // As files, in any order; without the first session, the second is not complete.
    let file = |session: &str, name: &str| place.join(session).join(name).display().to_string();
    let of_second = archives(&place, &second);
    let of_second: Vec<String> = of_second.iter().map(|name| file(&second, name)).collect();
    let of_first = archives(&place, &first);
    let of_first: Vec<String> = of_first.iter().map(|name| file(&first, name)).collect();
    let import = |root: &Path, files: &[String]| {
        let mut command = runs.travel.command(&["--root", root.to_str().unwrap(), "archive"]);
        finished(command.arg("import").args(files).output().unwrap())
    };
    let alone = runs.travel.fixture.path("alone");
    import(&alone, &of_second).fails(1, "is needed, too");
    assert!(!alone.join(&second).exists());
    let both = runs.travel.fixture.path("both");
    import(&both, &[&of_second[..], &of_first].concat()).success();
    for session in [&first, &second] {
        assert_eq!(runs.roots(&both, session), runs.roots(&runs.store(), session));
        let root = both.to_str().unwrap();
        runs.travel.nono(&["--root", root, "rollback", "verify", session]).success();
    }
}

#[test]
fn a_remote_with_a_passphrase_shares_archives_too() {
    let mut runs = Runs::of(20);
    let (place, secret) = (runs.travel.fixture.path("sealed"), runs.travel.fixture.path("secret"));
    fs::write(&secret, "correct horse\n").unwrap();
    let (url, file) = (place.to_str().unwrap(), secret.to_str().unwrap());
    runs.travel.nono(&["remote", "add", "sealed", url, "--passphrase-file", file]).success();
    let (_, second) = (runs.pushed("sealed"), runs.pushed("sealed"));
    assert!(archives(&place, &second)[0].contains("-of-"), "{:?}", archives(&place, &second));
    runs.travel.nono(&["remote", "verify", "sealed"]).success();
    let root = runs.travel.fixture.path("store");
    let pull = ["--root", root.to_str().unwrap(), "pull", "sealed", &second];
    runs.travel.nono(&pull).success();
    assert_eq!(runs.roots(&root, &second), runs.roots(&runs.store(), &second));
}

#[test]
fn a_full_archive_is_made_where_it_is_asked_for_and_where_most_files_changed() {
    let mut runs = Runs::of(40);
    let place = runs.travel.directory("disk");
    let first = runs.pushed("disk");
    let second = runs.run();
    runs.travel.nono(&["push", "disk", &second, "--full"]).success();
    assert_eq!(archives(&place, &second), ["0-full.tar.zst.age", "1-full.tar.zst.age"]);
    for file in 0..40 {
        runs.travel.fixture.write(&format!("src{}/f{file}", file % 7), format!("new {file}"));
    }
    let third = runs.pushed("disk");
    assert_eq!(archives(&place, &third), ["0-full.tar.zst.age", "1-delta-0.tar.zst.age"]);
    // Another project shares nothing.
    let elsewhere = runs.travel.fixture.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("a"), "a").unwrap();
    let mut snapshot = runs.travel.command(&["snapshot", "--json"]);
    let other = finished(snapshot.current_dir(&elsewhere).output().unwrap()).success().json();
    let other = other["session_id"].as_str().unwrap();
    runs.push("disk", other).success();
    assert_eq!(archives(&place, other), ["0-full.tar.zst.age"]);
    assert_ne!(first, other);
}

#[test]
fn what_another_session_needs_is_never_removed() {
    let mut runs = Runs::of(40);
    let place = runs.travel.directory("disk");
    let first = runs.pushed("disk");
    let second = runs.pushed("disk");
    let third = runs.pushed("disk");
    let links = runs.links(&place);
    assert!(!links.is_empty());
    // One session, and its references tell of the others.
    assert!(place.join(&first).join(format!("needed-by-{second}")).exists());
    runs.travel.nono(&["remote", "cleanup", "disk", &first, "--keep", "0", "--yes"]).success();
    runs.travel.verify("disk").success();
    for session in [&second, &third] {
        runs.arrives("disk", session);
    }
    // All but the newest session, by its id.
    let newest = runs.sessions.iter().max().unwrap();
    runs.travel.nono(&["remote", "cleanup", "disk", "--keep-sessions", "1", "--yes"]).success();
    runs.travel.verify("disk").success();
    runs.arrives("disk", newest);
    // Nothing depends on anything any more.
    runs.travel.nono(&["remote", "cleanup", "disk", "--keep-sessions", "0", "--yes"]).success();
    for session in &runs.sessions {
        assert!(!place.join(session).exists(), "{session}");
    }
}

#[test]
fn references_that_were_lost_are_written_again_by_the_next_push() {
    let mut runs = Runs::of(40);
    let place = runs.travel.directory("disk");
    let (first, second) = (runs.pushed("disk"), runs.pushed("disk"));
    let reference = place.join(&first).join(format!("needed-by-{second}"));
    fs::remove_file(&reference).unwrap();
    // All of the session is there already.
    runs.push("disk", &second).success();
    assert!(reference.exists());
    fs::remove_file(&reference).unwrap();
    // Another session of the project looks at its relatives.
    runs.pushed("disk");
    assert!(reference.exists());
    runs.travel.nono(&["remote", "cleanup", "disk", &first, "--keep", "0", "--yes"]).success();
    runs.travel.verify("disk").success();
    runs.arrives("disk", &second);
}

#[test]
fn a_cleanup_by_id_of_a_directory_breaks_no_session_whose_references_are_lost() {
    let mut runs = Runs::of(40);
    let place = runs.travel.directory("disk");
    let sessions = [runs.pushed("disk"), runs.pushed("disk"), runs.pushed("disk")];
    for (parent, child) in [(0, 1), (0, 2), (1, 2)] {
        let reference = format!("needed-by-{}", sessions[child]);
        let _ = fs::remove_file(place.join(&sessions[parent]).join(reference));
    }
    let first = &sessions[0];
    runs.travel.nono(&["remote", "cleanup", "disk", first, "--keep", "0", "--yes"]).success();
    runs.travel.verify("disk").success();
    for session in &sessions[1..] {
        runs.arrives("disk", session);
    }
}

#[test]
fn a_session_goes_with_its_references() {
    let mut runs = Runs::of(40);
    let place = runs.travel.directory("disk");
    let (first, second) = (runs.pushed("disk"), runs.pushed("disk"));
    let reference = place.join(&first).join(format!("needed-by-{second}"));
    assert!(reference.exists());
    runs.travel.nono(&["remote", "cleanup", "disk", &second, "--keep", "0", "--yes"]).success();
    assert!(archives(&place, &second).is_empty());
    assert!(!reference.exists());
    runs.travel.verify("disk").success();
}

#[test]
fn the_next_push_of_the_project_heals_every_chain_that_lost_a_link() {
    let mut runs = Runs::of(40);
    let place = runs.travel.directory("disk");
    for _ in 0..4 {
        runs.pushed("disk");
    }
    for link in runs.links(&place) {
        for file in runs.files(&place, &link) {
            fs::remove_file(file).unwrap();
        }
    }
    let broken = runs.travel.verify("disk");
    assert_eq!(broken.code, 1, "{}", broken.stderr);
    let root = runs.travel.fixture.path("broken");
    let pulled = runs.travel.pull("disk", &root, &runs.sessions[3]);
    assert_eq!(pulled.code, 1, "{}", pulled.stderr);
    assert!(pulled.says("which is not there"), "{}{}", pulled.stdout, pulled.stderr);
    assert!(!root.join(&runs.sessions[3]).exists());
    // A session that has nothing to do with the loss.
    runs.pushed("disk");
    runs.travel.verify("disk").success();
    for session in &runs.sessions {
        runs.arrives("disk", session);
    }
}

#[test]
fn a_damaged_link_is_named_removed_and_healed_by_a_push_of_another_session() {
    let mut runs = Runs::of(40);
    let place = runs.travel.directory("disk");
    for _ in 0..3 {
        runs.pushed("disk");
    }
    let link = runs.links(&place).into_iter().next().unwrap();
    let file = runs.files(&place, &link).remove(0);
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).unwrap();
    let verified = runs.travel.verify("disk");
    assert_eq!(verified.code, 1, "{}", verified.stderr);
    let problems = verified.json()["problems"].as_array().unwrap().clone();
    let told = |kind: &str| {
        let of_kind = problems.iter().filter(|one| one["kind"] == kind);
        of_kind.map(|one| one["session_id"].as_str().unwrap()).collect::<BTreeSet<_>>()
    };
    assert_eq!(told("damaged_archive"), BTreeSet::from([link.session()]));
    assert!(told("broken_chain").contains(runs.sessions[2].as_str()), "{problems:#?}");
    // Also a check of one session reads what its chains go through.
    let last = &runs.sessions[2];
    let one = ["remote", "verify", "disk", last, "--identity", runs.travel.identity()];
    runs.travel.nono(&one).fails(1, "");
    let remove = ["remote", "verify", "disk", "--identity", runs.travel.identity()];
    let remove = [&remove[..], &["--remove-damaged", "--yes"]].concat();
    assert_eq!(runs.travel.nono(&remove).code, 1);
    assert!(!file.exists());
    runs.push("disk", last).success();
    runs.travel.verify("disk").success();
    for session in &runs.sessions {
        runs.arrives("disk", session);
    }
}

#[test]
fn two_pushers_depend_on_the_same_archive_and_a_cleanup_takes_it_from_neither() {
    let mut runs = Runs::of(40);
    let place = runs.travel.directory("disk");
    let first = runs.pushed("disk");
    // Another machine, which has pulled the session.
    let other = runs.travel.fixture.path("other");
    runs.travel.pull("disk", &other, &first).success();
    let other = other.to_str().unwrap();
    let snapshot = ["--root", other, "snapshot", "--json"];
    let theirs = runs.travel.nono(&snapshot).success().json();
    let theirs = theirs["session_id"].as_str().unwrap().to_owned();
    let ours = runs.run();
    let mut pushes = [
        runs.travel.command(&["push", "disk", &ours]),
        runs.travel.command(&["--root", other, "push", "disk", &theirs]),
    ];
    let pushes: Vec<_> = pushes.iter_mut().map(|push| push.spawn().unwrap()).collect();
    for mut push in pushes {
        assert!(push.wait().unwrap().success());
    }
    for session in [&ours, &theirs] {
        let delta = archives(&place, session).remove(0);
        assert!(delta.contains("-of-"), "{session}: {delta}");
    }
    runs.travel.verify("disk").success();
    runs.travel.nono(&["remote", "cleanup", "disk", &first, "--keep", "0", "--yes"]).success();
    runs.travel.verify("disk").success();
    runs.arrives("disk", &ours);
}

#[test]
fn no_push_depends_on_a_session_that_a_cleanup_has_begun_to_remove() {
    let mut runs = Runs::of(40);
    let place = runs.travel.directory("disk");
    let first = runs.pushed("disk");
    let mark = place.join(&first).join("cleanup-begun");
    fs::write(&mark, "a cleanup was killed here\n").unwrap();
    let second = runs.pushed("disk");
    assert_eq!(archives(&place, &second), ["0-full.tar.zst.age", "1-delta-0.tar.zst.age"]);
    runs.travel.verify("disk").success();
    runs.arrives("disk", &first);
    // The next cleanup takes the mark away, also where it removes nothing.
    runs.travel.nono(&["remote", "cleanup", "disk", &first, "--keep", "9", "--yes"]).success();
    assert!(!mark.exists());
    let third = runs.pushed("disk");
    assert!(archives(&place, &third)[0].contains("-of-"), "{:?}", archives(&place, &third));
}

#[test]
fn of_a_push_and_a_cleanup_at_once_one_sees_the_other() {
    let mut runs = Runs::of(40);
    let Some(server) = ObjectServer::start() else { return };
    runs.travel = runs.travel.at(server);
    let between = FaultyServer::before(runs.travel.server().address());
    let (first, second) = (runs.run(), runs.run());
    // The push begins and ends before the cleanup marks the session, or before it removes.
    for (case, begin, word) in [(0, "PUT", "cleanup-begun"), (1, "POST", "?delete")] {
        let (near, far) = (format!("near{case}"), format!("far{case}"));
        let urls = [runs.travel.server().url(&near), between.url(&near)];
        for (name, url) in [&near, &far].into_iter().zip(&urls) {
            let recipient = ["--recipient", &runs.travel.recipient];
            runs.travel.nono(&[&["remote", "add", name, url], &recipient[..]].concat()).success();
        }
        runs.push(&near, &first).success();
        let mut push = Some(runs.travel.command(&["push", &near, &second]));
        between.decide(move |head| {
            if head.starts_with(begin)
                && head.contains(word)
                && let Some(mut push) = push.take()
            {
                assert!(push.output().unwrap().status.success());
            }
            Fault::None
        });
        let cleanup = ["remote", "cleanup", &far, &first, "--keep", "0", "--yes"];
        runs.travel.nono(&cleanup).success();
        let met = between.requests(&[begin, word]);
        assert!(!met.is_empty(), "{case}");
        runs.travel.verify(&near).success();
        runs.arrives(&near, &second);
    }
}

#[test]
fn a_push_that_is_killed_at_any_point_breaks_no_chain_and_the_next_one_goes_on() {
    let mut runs = Runs::of(8);
    let first = runs.run();
    let second = runs.run();
    let mut killed = 0;
    for point in 1.. {
        let remote = format!("disk{point}");
        let place = runs.travel.directory(&remote);
        runs.push(&remote, &first).success();
        let mut push = runs.travel.command(&["push", &remote, &second]);
        let is_whole = push.env("NONO_FAIL_POINT", point.to_string()).output().unwrap();
        if is_whole.status.success() {
            break;
        }
        killed += 1;
        runs.travel.verify(&remote).success();
        runs.push(&remote, &second).success();
        runs.travel.verify(&remote).success();
        assert_eq!(archives(&place, &second).len(), 2, "at point {point}");
        let by_session: BTreeMap<_, _> =
            names(&place, &runs.sessions).into_iter().map(|name| (name.id.clone(), name)).collect();
        assert_eq!(by_session.len(), 4, "at point {point}");
    }
    assert!(killed > 3, "{killed}");
}
