//! Lost objects come back from a remote: contents, lists of directories, manifests.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Travel, name, text};
use crate::fixture::{Finished, noise};

/// A store that has pulled the session from a remote.
struct Here<'a> {
    travel: &'a Travel,
    root: PathBuf,
}

impl<'a> Here<'a> {
    fn pulls(travel: &'a Travel) -> Self {
        travel.plain_directory("disk");
        travel.push("disk");
        let here = Self { travel, root: travel.fixture.path("here") };
        let first = here.pull();
        assert_eq!(
            (first.code, first.json()["sessions"][0]["is_verified"].as_bool()),
            (0, Some(true))
        );
        here
    }

    fn nono(&self, arguments: &[&str]) -> Finished {
        self.travel.nono(&[&["--root", self.root.to_str().unwrap()], arguments].concat())
    }

    fn pull(&self) -> Finished {
        self.nono(&["pull", "disk", &self.travel.session, "--json"])
    }

    /// A pull that gives back what was lost. Returns how much.
    #[track_caller]
    fn is_mended(&self) -> u64 {
        assert_eq!(self.verify().code, 1);
        let pulled = self.pull();
        assert_eq!(pulled.code, 0, "{}{}", pulled.stdout, pulled.stderr);
        let session = &pulled.json()["sessions"][0];
        assert_eq!(session["is_verified"], true, "{session}");
        self.verify().success();
        self.nono(&["rollback", "show", &self.travel.session]).success();
        session["mended"].as_u64().unwrap()
    }

    fn verify(&self) -> Finished {
        self.nono(&["rollback", "verify", &self.travel.session])
    }

    fn session(&self) -> PathBuf {
        self.root.join(&self.travel.session)
    }

    /// Overwrites the middle of every pack, and of every third object that has a file of its own.
    fn spoil(&self) {
        let objects = self.root.join("objects");
        let is_prefix = |dir: &PathBuf| dir.file_name().is_some_and(|name| name.len() == 2);
        let own = files(&objects).into_iter().filter(is_prefix).flat_map(|dir| files(&dir));
        let packs = files(&objects.join("packs"));
        let spoilt: Vec<_> = own.step_by(3).chain(packs).collect();
        assert!(!spoilt.is_empty());
        for path in spoilt {
            spoil_middle(&path);
        }
    }
}

/// Overwrites the middle of a file, of a pack more than the head of a record: that alone is no
/// damage of an object.
fn spoil_middle(path: &Path) {
    const SPOILT: usize = 64;
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes.iter_mut().skip(middle).take(SPOILT).for_each(|byte| *byte ^= 0x55);
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let listed = fs::read_dir(dir).into_iter().flatten();
    let mut files: Vec<_> = listed.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn a_pull_mends_contents_that_are_damaged_here() {
    // As many as go into a pack.
    let travel = Travel::with(3, 600, 6);
    let here = Here::pulls(&travel);
    assert!(!files(&here.root.join("objects/packs")).is_empty());
    here.spoil();
    assert!(here.is_mended() > 0);
    // Nothing is left to do.
    let session = &here.pull().success().json()["sessions"][0];
    assert_eq!(
        (&session["mended"], &session["is_verified"]),
        (&Value::from(0), &Value::from(true))
    );
    let copy = travel.fixture.path("copy");
    let id = format!("{}/2", travel.session);
    here.nono(&["rollback", "restore", &id, "--to", copy.to_str().unwrap()]).success();
    assert_eq!(fs::read_to_string(copy.join(name(599))).unwrap(), text(599, 0));
}

#[test]
fn a_session_that_was_lost_comes_back_whole_although_objects_of_it_are_damaged() {
    let travel = Travel::with(2, 20, 1);
    let here = Here::pulls(&travel);
    here.spoil();
    fs::remove_dir_all(here.session()).unwrap();
    let pulled = here.pull();
    assert_eq!(pulled.code, 0, "{}{}", pulled.stdout, pulled.stderr);
    assert_eq!(pulled.json()["sessions"][0]["is_verified"], true);
    here.verify().success();
}

#[test]
fn a_repair_that_finds_no_copy_names_the_remote_that_has_one() {
    let travel = Travel::with(2, 20, 1);
    let here = Here::pulls(&travel);
    here.spoil();
    fs::remove_dir_all(travel.fixture.project()).unwrap();
    fs::create_dir(travel.fixture.project()).unwrap();
    let repaired = here.nono(&["rollback", "verify", "--repair", &travel.session]);
    assert_eq!(repaired.code, 1, "{}", repaired.stdout);
    let root = here.root.display();
    let pull = format!("`nono --root {root} pull disk {}`", travel.session);
    assert!(repaired.says("lost for good") && repaired.says(&pull), "{}", repaired.stderr);
    assert!(here.is_mended() > 0);
}

#[test]
fn a_pull_gives_lost_manifests_back_or_says_what_to_do() {
    let travel = Travel::with(3, 20, 1);
    let here = Here::pulls(&travel);
    let manifest = |number: u64| here.session().join(format!("snapshots/{number}/manifest.json"));
    let before = [0, 1, 2].map(|number| fs::read(manifest(number)).unwrap());
    for number in 0..3 {
        fs::remove_file(manifest(number)).unwrap();
        here.is_mended();
        fs::write(manifest(number), "{").unwrap();
        here.is_mended();
        assert_eq!([0, 1, 2].map(|number| fs::read(manifest(number)).unwrap()), before);
    }
    // Nothing vouches for what is in the session's own manifest.
    let own = here.session().join("manifest.json");
    let whole = fs::read(&own).unwrap();
    fs::write(&own, "{").unwrap();
    here.pull().fails(1, "away, then pull again");
    fs::write(&own, whole).unwrap();
    here.verify().success();
}

#[test]
fn what_is_damaged_here_and_at_the_remote_is_not_called_verified() {
    let travel = Travel::with(1, 20, 0);
    let here = Here::pulls(&travel);
    here.spoil();
    let archive = travel.fixture.path("remote-disk").join(&travel.session).join("0-full.tar.zst");
    let whole = fs::read(&archive).unwrap();
    fs::write(&archive, &whole[..whole.len() / 2]).unwrap();
    let pulled = here.nono(&["pull", "disk", &travel.session]);
    assert!(!pulled.says(", verified"), "{}", pulled.stderr);
    pulled.fails(1, "the remote did not mend it");
    fs::write(&archive, &whole).unwrap();
    here.is_mended();
}

#[test]
fn a_pull_gives_back_the_lost_chunk_of_a_long_list_of_names() {
    let mut travel = Travel::with(1, 5, 0);
    for number in 0..1500 {
        // Names that hardly compress, so that most of the pack, and its middle, is the list.
        let noise = noise(90, number).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        travel.fixture.write(&format!("{number:04}{noise}"), "a file");
    }
    travel.nono(&["snapshot", "."]).success();
    travel.session = travel.fixture.latest();
    let here = Here::pulls(&travel);
    let packs = fs::read_dir(here.root.join("objects/packs")).unwrap();
    let packs = packs.map(|pack| pack.unwrap().path());
    let pack = packs.max_by_key(|pack| fs::metadata(pack).unwrap().len()).unwrap();
    spoil_middle(&pack);
    // The damaged one goes into quarantine, and the list stays without it: nothing else has it.
    fs::remove_dir_all(travel.fixture.project()).unwrap();
    fs::create_dir(travel.fixture.project()).unwrap();
    here.nono(&["rollback", "verify", "--repair", &travel.session]);
    assert!(here.is_mended() > 0);
}

#[test]
fn a_repair_that_loses_a_snapshot_with_its_manifest_fails_and_names_the_remote() {
    let travel = Travel::with(2, 20, 1);
    let here = Here::pulls(&travel);
    for name in ["manifest.json", "snapshots/1/manifest.json"] {
        let path = here.session().join(name);
        let mut bytes = fs::read(&path).unwrap();
        bytes[50] ^= 0xff;
        fs::write(&path, bytes).unwrap();
    }
    let repaired = here.nono(&["rollback", "verify", "--repair", &travel.session]);
    assert_eq!(repaired.code, 1, "{}", repaired.stdout);
    let lost = "lost for good: the manifest of snapshot 1";
    assert!(repaired.stdout.contains(lost), "{}", repaired.stdout);
    assert!(repaired.stdout.contains("repaired in part"), "{}", repaired.stdout);
    let root = here.root.display();
    let pull = format!("`nono --root {root} pull disk {}`", travel.session);
    assert!(repaired.says(&pull), "{}{}", repaired.stdout, repaired.stderr);
}

#[test]
fn a_pull_mends_a_pack_whose_index_was_changed() {
    let travel = Travel::with(2, 600, 6);
    let here = Here::pulls(&travel);
    // Headers, records, the index with its trailer, at its end: each is checked in its own way.
    for from_the_end in [6, 10, 17, 40, 100, 1000] {
        let packs = files(&here.root.join("objects/packs"));
        let length = |pack: &&PathBuf| fs::metadata(pack).unwrap().len();
        let pack = packs.iter().max_by_key(length).unwrap();
        let mut bytes = fs::read(pack).unwrap();
        let place = bytes.len() - from_the_end;
        bytes[place] ^= 1;
        fs::remove_file(pack).unwrap();
        fs::write(pack, bytes).unwrap();
        here.is_mended();
    }
}

#[test]
fn a_lost_manifest_and_a_lost_pack_come_back_with_one_pull() {
    let travel = Travel::with(2, 600, 6);
    let here = Here::pulls(&travel);
    for lost in [&[0][..], &[1], &[0, 1]] {
        for number in lost {
            fs::remove_file(here.session().join(format!("snapshots/{number}/manifest.json")))
                .unwrap();
        }
        for pack in files(&here.root.join("objects/packs")) {
            fs::remove_file(pack).unwrap();
        }
        here.is_mended();
    }
}
