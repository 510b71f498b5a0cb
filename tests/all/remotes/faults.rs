//! A server that is silent, breaks off or denies.

use std::process::Command;

use super::Travel;
use super::faulty_server::{Fault, FaultyServer};
use crate::fixture::{Finished, finished};

/// Requests of each kind, by words of their heads.
const LIST: &[&str] = &["GET ", "list-type=2"];
const READ: &[&str] = &["GET ", ".tar.zst.age "];
const STORE: &[&str] = &["PUT ", ".tar.zst.age "];

/// A session of several snapshots, a server with faults, and a remote there.
struct Faulty {
    travel: Travel,
    server: FaultyServer,
}

impl Faulty {
    fn start(snapshots: usize) -> Option<Self> {
        let travel = Travel::with(snapshots, 20, 1).with_server()?;
        let server = FaultyServer::before(travel.server().address());
        let faulty = Self { travel, server };
        let url = faulty.server.url("x");
        let add = ["remote", "add", "far", &url, "--recipient", &faulty.travel.recipient];
        faulty.nono(&add).success();
        Some(faulty)
    }

    /// A command that waits a second for an answer.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.travel.command(arguments);
        command.env("NONO_REMOTE_TIMEOUT", "1");
        command
    }

    fn nono(&self, arguments: &[&str]) -> Finished {
        finished(self.command(arguments).output().unwrap())
    }

    fn push(&self) -> Finished {
        self.nono(&["push", "far", &self.travel.session, "--json"])
    }

    fn verify(&self) -> Finished {
        self.nono(&["remote", "verify", "far", "--identity", self.travel.identity()])
    }

    fn pull(&self, store: &str) -> Finished {
        let root = self.travel.fixture.path(store);
        let pull = ["--root", root.to_str().unwrap(), "pull", "far", &self.travel.session];
        self.nono(&[&pull[..], &["--identity", self.travel.identity()]].concat())
    }
}

#[track_caller]
fn outcomes(pushed: &Finished) -> Vec<String> {
    let report = pushed.json();
    let snapshots = report["snapshots"].as_array().unwrap().iter();
    snapshots.map(|one| one["outcome"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_request_without_an_answer_is_repeated() {
    let Some(faulty) = Faulty::start(2) else { return };
    faulty.server.spoil(2, LIST, Fault::Silence);
    assert_eq!(outcomes(&faulty.push().success()), ["stored"; 2]);
    assert!(faulty.server.requests(LIST).len() > 2);
    faulty.server.spoil(1, READ, Fault::Silence);
    faulty.verify().success();
    assert_eq!(faulty.server.requests(READ).len(), 3, "one of two archives is asked for twice");
    faulty.server.spoil(1, READ, Fault::Silence);
    faulty.pull("store").success();
    assert_eq!(
        faulty.travel.roots(&faulty.travel.fixture.path("store")),
        faulty.travel.roots(&faulty.travel.fixture.store())
    );
}

#[test]
fn an_archive_whose_storing_had_no_answer_is_stored_once() {
    for fault in [Fault::Silence, Fault::Lost] {
        let Some(faulty) = Faulty::start(1) else { return };
        faulty.server.spoil(1, STORE, fault.clone());
        assert_eq!(outcomes(&faulty.push().success()), ["stored"], "{fault:?}");
        assert_eq!(faulty.server.requests(STORE).len(), 2, "{fault:?}");
        assert_eq!(outcomes(&faulty.push().success()), ["already_there"], "{fault:?}");
        faulty.verify().success();
    }
}

#[test]
fn a_list_that_was_cut_off_is_read_again() {
    let Some(faulty) = Faulty::start(2) else { return };
    for (at, fault) in [Fault::Cut, Fault::CutSilently].into_iter().enumerate() {
        faulty.server.spoil(2, LIST, fault.clone());
        let outcome = if at == 0 { "stored" } else { "already_there" };
        assert_eq!(outcomes(&faulty.push().success()), [outcome; 2], "{fault:?}");
        faulty.server.spoil(2, LIST, fault.clone());
        faulty.verify().success();
        assert_eq!(faulty.server.requests(LIST).len(), 3, "{fault:?}");
        faulty.server.spoil(2, LIST, fault.clone());
        faulty.pull(&format!("store-{at}")).success();
    }
    // One that is always cut off is no empty list.
    faulty.server.spoil(usize::MAX, LIST, Fault::CutSilently);
    faulty.pull("none").fails(1, "the list was cut off");
}

#[test]
fn a_download_that_breaks_off_again_and_again_goes_on() {
    let Some(faulty) = Faulty::start(1) else { return };
    faulty.travel.large();
    faulty.push().success();
    // More often than the client of the provider goes on by itself.
    faulty.server.spoil(9, READ, Fault::Cut);
    faulty.pull("store").success();
    let asked = faulty.server.requests(READ);
    let parts = asked.iter().filter(|head| head.to_lowercase().contains("range: bytes=")).count();
    assert!(parts >= 9, "{asked:#?}");
    assert_eq!(
        faulty.travel.roots(&faulty.travel.fixture.path("store")),
        faulty.travel.roots(&faulty.travel.fixture.store())
    );
}

#[test]
fn a_server_that_is_silent_for_good_ends_the_command_with_a_sentence() {
    let Some(faulty) = Faulty::start(1) else { return };
    faulty.server.spoil(usize::MAX, LIST, Fault::Silence);
    let failed = faulty.nono(&["remote", "show", "far"]);
    assert!(!failed.says("retries"), "{}", failed.stderr);
    failed.fails(1, "no answer came in time, also after several attempts");
    assert_eq!(faulty.server.requests(LIST).len(), 6, "an attempt, and five repetitions");
}

#[test]
fn a_timeout_that_is_no_number_of_seconds_is_refused() {
    let travel = Travel::with(1, 3, 0);
    for wrong in ["0", "61", "soon", "-1", "1.5"] {
        let mut show = travel.command(&["remote", "show", "s3://bucket/x"]);
        show.env("NONO_REMOTE_TIMEOUT", wrong);
        finished(show.output().unwrap()).fails(1, "NONO_REMOTE_TIMEOUT is no number of seconds");
    }
}
