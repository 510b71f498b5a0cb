//! The progress lines of a push and of a pull, on a real terminal.

use super::Travel;
use super::faulty_server::{Fault, FaultyServer};
use crate::terminal::Terminal;

#[test]
fn a_push_on_a_terminal_shows_counts_a_rate_and_an_estimate_and_then_what_it_did() {
    let Some(travel) = Travel::with(1, 20, 0).with_server() else { return };
    // Several times what the network holds, behind many small files.
    travel.fixture.write("z", crate::fixture::noise(60 << 20, 1));
    travel.snapshot();
    travel.cloud("cloud");
    let (id, secret) = (crate::object_server::KEY_ID, crate::object_server::SECRET);
    travel.server().forget_requests();
    let terminal = Terminal::start(
        &travel.fixture.path("tmux"),
        &travel.fixture.project(),
        &travel.fixture.path("home"),
        &format!(
            "env AWS_ACCESS_KEY_ID={id} AWS_SECRET_ACCESS_KEY={secret} {} push cloud {}/1; exec \
             cat",
            env!("CARGO_BIN_EXE_nono"),
            travel.session
        ),
    );
    // With the first part, there is something to count.
    let is_part = |line: &str| line.contains("partNumber=");
    while !is_part(&travel.server().next_request()) {}
    let paused = travel.server().pause();
    terminal.wait_until("counts, a rate and an estimate", |screen| {
        let line = screen.lines().find(|line| line.contains("pushing: sending ["));
        line.is_some_and(|line| {
            [" of 21 files", " 60 MiB", "/s", " left"].iter().all(|part| line.contains(part))
        })
    });
    drop(paused);
    // The line may be longer than the screen is wide.
    terminal.wait_until("what it did", |screen| {
        screen.replace('\n', "").contains("1 archive stored, 60.0 MiB (")
    });
    // The line is gone then.
    assert!(!terminal.screen().contains("sending ["), "{}", terminal.screen());
}

#[test]
fn a_pull_on_a_terminal_shows_how_much_of_the_archives_has_come() {
    let Some(travel) = Travel::with(1, 20, 0).with_server() else { return };
    travel.fixture.write("z", crate::fixture::noise(60 << 20, 1));
    travel.snapshot();
    let server = FaultyServer::before(travel.server().address());
    let add = ["remote", "add", "far", &server.url("x"), "--recipient", &travel.recipient];
    travel.nono(&add).success();
    travel.nono(&["push", "far", &travel.session]).success();
    // The rest of the large archive has no answer.
    server.decide(|head| {
        let is_rest = head.to_lowercase().contains("range: bytes=");
        let is_large = head.contains("1-delta-0");
        match (is_large, is_rest) {
            (true, false) => Fault::Cut,
            (true, true) => Fault::Silence,
            _ => Fault::None,
        }
    });
    let (id, secret) = (crate::object_server::KEY_ID, crate::object_server::SECRET);
    let root = travel.fixture.path("store");
    let terminal = Terminal::start(
        &travel.fixture.path("tmux"),
        &travel.fixture.project(),
        &travel.fixture.path("home"),
        &format!(
            "env AWS_ACCESS_KEY_ID={id} AWS_SECRET_ACCESS_KEY={secret} {} --root {} pull far {} \
             --identity {}; exec cat",
            env!("CARGO_BIN_EXE_nono"),
            root.display(),
            travel.session,
            travel.identity()
        ),
    );
    terminal.wait_until("bytes of how many, and a rate", |screen| {
        let line = screen.lines().find(|line| line.contains("pulling: reading ["));
        line.is_some_and(|line| {
            [" of 2 archives", " of 60 MiB", "/s", " left"].iter().all(|part| line.contains(part))
        })
    });
    server.decide(|_| Fault::None);
    terminal.keys(&["C-c"]);
    terminal.wait_for("stopped: nothing new of session");
}
