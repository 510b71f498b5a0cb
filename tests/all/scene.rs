//! A project in its second state, recorded in a session with its first one: the beginning of every
//! attempt to break something.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;

use crate::fixture::Fixture;
use crate::observe::{Observed, observe};

pub type Tree = BTreeMap<PathBuf, Observed>;

/// A project in its second state, recorded in a session with its first one.
pub struct Scene {
    pub fixture: Fixture,
    pub session: String,
    pub old: Tree,
    pub new: Tree,
}

impl Scene {
    pub fn new() -> Self {
        // In memory: flushing is what is tested, not waited for.
        Self::in_fixture(Fixture::in_memory())
    }

    pub fn in_fixture(fixture: Fixture) -> Self {
        let project = fixture.project();
        fixture.write("changed", "first");
        fixture.write("gone/file", "gone");
        fixture.write("gone/deep/inside/file", "deep");
        symlink("inside/file", project.join("gone/deep/link")).unwrap();
        fs::hard_link(project.join("gone/file"), project.join("gone/deep/linked")).unwrap();
        fixture.write("to-dir", "was a file");
        fixture.write("to-file/inside", "was in a directory");
        fixture.write("mode", "mode");
        symlink("changed", project.join("link")).unwrap();
        fs::hard_link(project.join("mode"), project.join("linked")).unwrap();
        let first = observe(&project);
        let taken = fixture.nono(&["snapshot", "--json"]).success().json();
        let session = taken["session_id"].as_str().unwrap().to_owned();
        fixture.write("changed", "second");
        fixture.write("new/file", "new");
        fs::remove_dir_all(project.join("gone")).unwrap();
        fs::remove_file(project.join("to-dir")).unwrap();
        fixture.write("to-dir/inside", "x");
        fs::remove_dir_all(project.join("to-file")).unwrap();
        fixture.write("to-file", "y");
        fs::set_permissions(project.join("mode"), PermissionsExt::from_mode(0o600)).unwrap();
        fs::remove_file(project.join("linked")).unwrap();
        let second = observe(&project);
        let scene = Self { fixture, session, old: second, new: first };
        scene.keep();
        scene
    }

    /// Makes the state of the moment the one that every attempt begins with.
    pub fn keep(&self) {
        self.fixture.copy_state("", "pristine");
    }

    pub fn reset(&self) {
        self.fixture.copy_state("pristine", "");
    }

    /// Runs the program until it ends or passes so many points; says whether it was killed.
    pub fn killed_at(&self, point: u64, arguments: &[&str]) -> bool {
        let mut command = self.fixture.command(arguments);
        let output = command.env("NONO_FAIL_POINT", point.to_string()).output().unwrap();
        match output.status.signal() {
            Some(9) => true,
            None if output.status.success() => false,
            _ => panic!("at point {point}: {output:?}"),
        }
    }

    pub fn tree(&self) -> Tree {
        observe(&self.fixture.project())
    }

    pub fn verify(&self, point: u64) {
        let verified = self.fixture.nono(&["rollback", "verify", "--all"]);
        assert_eq!(verified.code, 0, "at point {point}: {}{}", verified.stdout, verified.stderr);
    }

    pub fn restore(&self, number: u64) -> [String; 3] {
        ["rollback".to_owned(), "restore".to_owned(), format!("{}/{number}", self.session)]
    }

    pub fn has_journal(&self) -> bool {
        self.fixture.store().join(&self.session).join("restore.journal").exists()
    }

    /// How many restores the session's manifest tells of.
    pub fn noted_restores(&self) -> usize {
        let path = self.fixture.store().join(&self.session).join("manifest.json");
        let manifest: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        manifest["restores"].as_array().map_or(0, Vec::len)
    }

    /// Names of the staging directories that are there.
    pub fn staging(&self) -> Vec<String> {
        let names = self.tree().into_keys().map(|path| path.to_string_lossy().into_owned());
        let mut staging: Vec<_> = names
            .filter_map(|path| {
                Some(path[path.find(".nono-restore-")?..].split('/').next()?.to_owned())
            })
            .collect();
        staging.dedup();
        staging
    }

    /// Whether the journal has steps in it, as its tenth byte says.
    pub fn has_work(&self) -> bool {
        let path = self.fixture.store().join(&self.session).join("restore.journal");
        fs::read(path).is_ok_and(|journal| journal.get(9) == Some(&1))
    }
}

pub fn as_strs(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// Names, kinds and contents, without attributes.
pub fn contents(tree: &Tree) -> BTreeMap<PathBuf, (String, Vec<u8>)> {
    let entry = |(path, observed): (&PathBuf, &Observed)| {
        (path.clone(), (observed.kind.clone(), observed.content.clone()))
    };
    tree.iter().map(entry).collect()
}
