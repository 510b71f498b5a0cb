//! A bucket of Google as a remote: the documented calls, answered by `google_server.py`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tempfile::TempDir;

use super::Travel;
use super::provider::Provider;

/// Stands in the service account. No output of the program may repeat it.
const SECRET: &str = "pRiVaTeKeYoFtHeAcCoUnT0123456789";

/// Starts one. Its second value has a line for each request.
fn start() -> (Provider, Receiver<String>, TempDir) {
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
    let place = TempDir::new().unwrap();
    let account = place.path().join("account.json");
    let text = serde_json::json!({
        "type": "service_account", "private_key": SECRET, "private_key_id": "id",
        "client_email": "test@example.com", "disable_oauth": true
    });
    fs::write(&account, text.to_string()).unwrap();
    let base = format!("http://127.0.0.1:{}", port.trim());
    let environment =
        vec![("GOOGLE_BASE_URL", base.into()), ("GOOGLE_SERVICE_ACCOUNT", account.into())];
    let (secret, scheme, bucket) = (SECRET, "gs", "bucket");
    (Provider { process, environment, secret, scheme, bucket }, requests, place)
}

#[test]
fn a_bucket_of_google_takes_archives_and_gives_them_back() {
    let (server, _requests, _account) = start();
    server.gives_archives_back();
}

#[test]
fn two_pushers_to_google_leave_one_archive_of_each_snapshot() {
    let (server, _requests, _account) = start();
    server.keeps_one_archive_of_two_pushers();
}

#[test]
fn a_push_to_google_that_is_killed_at_any_request_is_completed_by_the_next_one() {
    let travel = Travel::with(2, 20, 1);
    let (server, requests, _account) = start();
    travel.large();
    for request in 1..=14 {
        let url = format!("gs://bucket/{request}");
        let push = ["push", &url, &travel.session, "--plaintext"];
        while requests.try_recv().is_ok() {}
        let mut command = server.command(&travel, &push);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        for _ in 0..request {
            requests.recv_timeout(Duration::from_secs(60)).unwrap();
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
