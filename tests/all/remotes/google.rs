//! A bucket of Google as a remote: the documented calls, answered by `google_server.py`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use super::Travel;
use crate::fixture::{Finished, finished};

/// Stands in the service account. No output of the program may repeat it.
const SECRET: &str = "pRiVaTeKeYoFtHeAcCoUnT0123456789";

struct GoogleServer {
    process: Child,
    base: String,
    account: PathBuf,
    /// A line for each request.
    requests: Receiver<String>,
}

impl GoogleServer {
    fn start(travel: &Travel) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/remotes/google_server.py");
        let mut python = Command::new("python3");
        python.arg(script).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = python.spawn().unwrap();
        let mut log = BufReader::new(process.stdout.take().unwrap());
        let mut port = String::new();
        log.read_line(&mut port).unwrap();
        let (sender, requests) = channel();
        std::thread::Builder::new()
            .spawn(move || {
                let lines = log.lines().map_while(Result::ok);
                lines.take_while(|line| sender.send(line.clone()).is_ok()).for_each(drop);
            })
            .unwrap();
        let account = travel.fixture.path("account.json");
        let text = serde_json::json!({
            "type": "service_account", "private_key": SECRET, "private_key_id": "id",
            "client_email": "test@example.com", "disable_oauth": true
        });
        fs::write(&account, text.to_string()).unwrap();
        Self { process, base: format!("http://127.0.0.1:{}", port.trim()), account, requests }
    }

    fn command(&self, travel: &Travel, arguments: &[&str]) -> Command {
        let mut command = travel.fixture.command(arguments);
        command.env("GOOGLE_BASE_URL", &self.base).env("GOOGLE_SERVICE_ACCOUNT", &self.account);
        command
    }

    fn nono(&self, travel: &Travel, arguments: &[&str]) -> Finished {
        let done = finished(self.command(travel, arguments).output().unwrap());
        assert!(!done.says(SECRET), "{}{}", done.stdout, done.stderr);
        done
    }
}

impl Drop for GoogleServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_bucket_of_google_takes_archives_and_gives_them_back() {
    let travel = Travel::with(3, 20, 1);
    let server = GoogleServer::start(&travel);
    // An archive of several parts is copied to its name.
    travel.large();
    let nono = |arguments: &[&str]| server.nono(&travel, arguments);
    let add = ["remote", "add", "goo", "gs://bucket/deep/x", "--recipient", &travel.recipient];
    nono(&add).success();
    let outcomes = || {
        let report = nono(&["push", "goo", &travel.session, "--json"]).success().json();
        let pushed = report["snapshots"].as_array().unwrap().iter();
        pushed.map(|one| one["outcome"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(outcomes(), ["stored"; 4]);
    assert_eq!(outcomes(), ["already_there"; 4]);
    assert_eq!(travel.notes_of_uploads(), 0);
    let identity = ["--identity", travel.identity()];
    nono(&[&["remote", "verify", "goo"], &identity[..]].concat()).success();
    let root = travel.fixture.path("store");
    let pull = ["--root", root.to_str().unwrap(), "pull", "goo", &travel.session];
    nono(&[&pull[..], &identity].concat()).success();
    assert_eq!(travel.roots(&root), travel.roots(&travel.fixture.store()));
    nono(&["remote", "cleanup", "goo", "--keep-sessions", "0", "--yes"]).success();
    assert_eq!(outcomes(), ["stored"; 4]);
    nono(&["push", "gs://nowhere/x", &travel.session, "--plaintext"]).fails(1, "gs://nowhere/x");
}

#[test]
fn two_pushers_to_google_leave_one_archive_of_each_snapshot() {
    let travel = Travel::with(2, 20, 1);
    let server = GoogleServer::start(&travel);
    travel.large();
    let push = ["push", "gs://bucket/x", &travel.session, "--plaintext"];
    let start = || server.command(&travel, &push).stderr(Stdio::piped()).spawn().unwrap();
    for pusher in [start(), start()] {
        finished(pusher.wait_with_output().unwrap()).success();
    }
    let show = ["remote", "show", "gs://bucket/x", "--json"];
    let shown = server.nono(&travel, &show).success().json();
    assert_eq!(shown["archive_count"], 3, "{shown:#}");
    server.nono(&travel, &["remote", "verify", "gs://bucket/x"]).success();
}

#[test]
fn a_push_to_google_that_is_killed_at_any_request_is_completed_by_the_next_one() {
    let travel = Travel::with(2, 20, 1);
    let server = GoogleServer::start(&travel);
    travel.large();
    for request in 1..=14 {
        let url = format!("gs://bucket/{request}");
        let push = ["push", &url, &travel.session, "--plaintext"];
        while server.requests.try_recv().is_ok() {}
        let mut command = server.command(&travel, &push);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        for _ in 0..request {
            server.requests.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let verify = ["remote", "verify", &url];
        server.nono(&travel, &verify).success();
        server.nono(&travel, &push).success();
        server.nono(&travel, &verify).success();
        assert_eq!(travel.notes_of_uploads(), 0, "after request {request}");
    }
}
