//! A server of a provider for one test, in a process of its own, and what holds at every provider.

use std::ffi::OsString;
use std::process::{Child, Command, Stdio};

use super::Travel;
use crate::fixture::{Finished, finished};

/// A server with one bucket.
pub struct Provider {
    pub process: Child,
    /// The environment in which the program may use the server.
    pub environment: Vec<(&'static str, OsString)>,
    /// No output of the program may repeat it.
    pub secret: &'static str,
    /// As in `gs`.
    pub scheme: &'static str,
    pub bucket: &'static str,
}

impl Provider {
    /// The address of a folder of the bucket.
    pub fn url(&self, folder: &str) -> String {
        format!("{}://{}/{folder}", self.scheme, self.bucket)
    }

    pub fn command(&self, travel: &Travel, arguments: &[&str]) -> Command {
        let mut command = travel.fixture.command(arguments);
        command.envs(self.environment.iter().cloned());
        command
    }

    pub fn nono(&self, travel: &Travel, arguments: &[&str]) -> Finished {
        let done = finished(self.command(travel, arguments).output().unwrap());
        assert!(!done.says(self.secret), "{}{}", done.stdout, done.stderr);
        done
    }

    /// Archives come back as they went there, also those of several parts.
    pub fn gives_archives_back(&self) {
        let travel = Travel::with(3, 20, 1);
        // An archive of several parts is copied to its name.
        travel.large();
        let nono = |arguments: &[&str]| self.nono(&travel, arguments);
        let url = self.url("deep/x");
        nono(&["remote", "add", "far", &url, "--recipient", &travel.recipient]).success();
        let outcomes = || {
            let report = nono(&["push", "far", &travel.session, "--json"]).success().json();
            let pushed = report["snapshots"].as_array().unwrap().iter();
            pushed.map(|one| one["outcome"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(outcomes(), ["stored"; 4]);
        assert_eq!(outcomes(), ["already_there"; 4]);
        assert_eq!(travel.notes_of_uploads(), 0);
        let identity = ["--identity", travel.identity()];
        nono(&[&["remote", "verify", "far"], &identity[..]].concat()).success();
        let root = travel.fixture.path("store");
        let pull = ["--root", root.to_str().unwrap(), "pull", "far", &travel.session];
        nono(&[&pull[..], &identity].concat()).success();
        assert_eq!(travel.roots(&root), travel.roots(&travel.fixture.store()));
        nono(&["remote", "cleanup", "far", "--keep-sessions", "0", "--yes"]).success();
        assert_eq!(outcomes(), ["stored"; 4]);
        let nowhere = format!("{}://nowhere/x", self.scheme);
        nono(&["push", &nowhere, &travel.session, "--plaintext"]).fails(1, &nowhere);
    }

    /// Two pushers at once do not replace each other's archives.
    pub fn keeps_one_archive_of_two_pushers(&self) {
        let travel = Travel::with(2, 20, 1);
        travel.large();
        let url = self.url("x");
        let push = ["push", &url, &travel.session, "--plaintext"];
        let start = || self.command(&travel, &push).stderr(Stdio::piped()).spawn().unwrap();
        for pusher in [start(), start()] {
            finished(pusher.wait_with_output().unwrap()).success();
        }
        let shown = self.nono(&travel, &["remote", "show", &url, "--json"]).success().json();
        assert_eq!(shown["archive_count"], 3, "{shown:#}");
        self.nono(&travel, &["remote", "verify", &url]).success();
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
