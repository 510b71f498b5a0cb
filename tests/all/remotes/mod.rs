//! Archives at remotes: pushed to a directory and to an S3 server, pulled into an empty store,
//! verified, cleaned up.

mod after_run;
mod azure;
mod cleaning;
mod faults;
mod faulty_server;
mod google;
mod interrupting;
mod killing;
mod looking;
mod meeting;
mod mending;
mod progress;
mod provider;
mod pulling;
mod pushing;
mod removing_damaged;
mod scale;
mod secrets;
mod settings;
mod sharing;
mod single;
mod steps;
mod verifying;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fixture::{Finished, Fixture, finished};
use crate::object_server::{ObjectServer, SECRET};

/// Files of the tree that changes from snapshot to snapshot.
const FILES: usize = 10_000;
/// Files that change: one in a hundred.
const CHANGED: usize = FILES / 100;

/// A project with snapshots in one session, and places to push them to.
pub struct Travel {
    pub fixture: Fixture,
    pub session: String,
    identity: PathBuf,
    pub recipient: String,
    server: Option<ObjectServer>,
}

impl Travel {
    /// A session with so many snapshots of a tree of `files` files, `changed` of them new each
    /// time.
    pub fn with(snapshots: usize, files: usize, changed: usize) -> Self {
        let fixture = Fixture::new();
        for file in 0..files {
            fixture.write(&name(file), text(file, 0));
        }
        fixture.nono(&["snapshot"]).success();
        let session = fixture.latest();
        let identity = fixture.path("key.txt");
        let made = Command::new("age-keygen").arg("-o").arg(&identity).output().unwrap();
        assert!(made.status.success());
        let key = fs::read_to_string(&identity).unwrap();
        let recipient = key.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap();
        let recipient = recipient.to_owned();
        let travel = Self { fixture, session, identity, recipient, server: None };
        for number in 1..snapshots {
            travel.change(number, changed, files);
            travel.snapshot();
        }
        travel
    }

    fn with_server(mut self) -> Option<Self> {
        self.server = Some(ObjectServer::start()?);
        Some(self)
    }

    fn at(mut self, server: ObjectServer) -> Self {
        self.server = Some(server);
        self
    }

    fn server(&self) -> &ObjectServer {
        self.server.as_ref().unwrap()
    }

    /// Changes files of the tree; which ones depends on the number.
    pub fn change(&self, number: usize, changed: usize, files: usize) {
        for at in 0..changed {
            let file = (number * changed + at) % files;
            self.fixture.write(&name(file), text(file, number));
        }
    }

    pub fn snapshot(&self) {
        self.fixture.nono(&["snapshot", "--session", &self.session]).success();
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.fixture.command(arguments);
        if let Some(server) = &self.server {
            server.allow(&mut command);
        }
        command
    }

    /// Runs the program; whatever it says, it never repeats the secret of the server.
    pub fn nono(&self, arguments: &[&str]) -> Finished {
        let done = finished(self.command(arguments).output().unwrap());
        assert!(!done.says(SECRET), "{}{}", done.stdout, done.stderr);
        done
    }

    fn identity(&self) -> &str {
        self.identity.to_str().unwrap()
    }

    /// A named remote in a directory, with archives for this test's recipient.
    pub fn directory(&self, remote: &str) -> PathBuf {
        let place = self.fixture.path(&format!("remote-{remote}"));
        let recipient = &self.recipient;
        let add = ["remote", "add", remote, place.to_str().unwrap(), "--recipient", recipient];
        self.nono(&add).success();
        place
    }

    /// A named remote in a directory, without encryption.
    pub fn plain_directory(&self, remote: &str) -> PathBuf {
        let place = self.fixture.path(&format!("remote-{remote}"));
        self.nono(&["remote", "add", remote, place.to_str().unwrap(), "--plaintext"]).success();
        place
    }

    /// A named remote at the server, with archives for this test's recipient.
    fn cloud(&self, remote: &str) {
        let url = self.server().url(remote);
        let add = ["remote", "add", remote, &url, "--recipient", &self.recipient];
        self.server().forget_requests();
        self.nono(&add).success();
        // Its look at the place is no request of the test.
        while !self.server().next_request().contains("list-type") {}
    }

    /// A large file, so that an archive of it goes in several parts, and a snapshot of it.
    fn large(&self) {
        self.fixture.write("large", crate::fixture::noise(18 << 20, 1));
        self.snapshot();
    }

    /// Notes of uploads that were not finished.
    fn notes_of_uploads(&self) -> usize {
        let notes = self.fixture.path("home/.local/state/nono/uploads");
        fs::read_dir(notes).into_iter().flatten().count()
    }

    pub fn push(&self, remote: &str) -> Value {
        self.nono(&["push", remote, &self.session, "--json"]).success().json()
    }

    fn pull(&self, remote: &str, root: &Path, what: &str) -> Finished {
        let root = root.to_str().unwrap();
        self.nono(&[&pull(root, remote, what, self.identity()), &["--json"][..]].concat())
    }

    pub fn verify(&self, remote: &str) -> Finished {
        self.nono(&["remote", "verify", remote, "--identity", self.identity(), "--json"])
    }

    /// The Merkle roots of the session's snapshots in a store, by number.
    pub fn roots(&self, root: &Path) -> BTreeMap<u64, String> {
        let root = root.to_str().unwrap();
        let shown = self.nono(&["--root", root, "rollback", "show", &self.session, "--json"]);
        let shown = shown.success().json();
        let snapshots = shown["snapshots"].as_array().unwrap().iter();
        snapshots
            .map(|one| {
                (one["number"].as_u64().unwrap(), one["merkle_root"].as_str().unwrap().to_owned())
            })
            .collect()
    }

    /// Pulls all of the session into a store of its own, and checks that it is the same.
    pub fn arrives_whole(&self, remote: &str, store: &str) {
        let root = self.fixture.path(store);
        self.pull(remote, &root, &self.session).success();
        assert_eq!(self.roots(&root), self.roots(&self.fixture.store()));
        let root = root.to_str().unwrap();
        self.nono(&["--root", root, "rollback", "verify", &self.session]).success();
    }
}

fn pull<'a>(root: &'a str, remote: &'a str, what: &'a str, identity: &'a str) -> Vec<&'a str> {
    vec!["--root", root, "pull", remote, what, "--identity", identity]
}

fn name(file: usize) -> String {
    format!("d{}/f{file}", file % 20)
}

fn text(file: usize, number: usize) -> String {
    format!("file {file} as of {number}\n").repeat(1 + file % 5)
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < patience, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Names of the archives in a directory remote, sorted.
pub fn archives(place: &Path, session: &str) -> Vec<String> {
    let listed = fs::read_dir(place.join(session)).into_iter().flatten();
    let mut names: Vec<_> =
        listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    // References of other sessions lie beside them.
    names.retain(|name| !name.starts_with("needed-by-"));
    names.sort();
    names
}

/// The document of an archive that is not encrypted, read by ordinary programs.
fn delta_manifest(archive: &Path) -> Value {
    let script = "zstd -dcq \"$1\" | tar -xO meta/delta-manifest.json";
    let read = Command::new("sh").args(["-c", script, "sh"]).arg(archive).output().unwrap();
    serde_json::from_slice(&read.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&read.stderr)))
}
