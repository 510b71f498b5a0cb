//! Ctrl-C during a push and a pull: nothing half-made, and the next one goes on.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{Travel, pull};
use crate::fixture::{Finished, finished};
use crate::object_server::ObjectServer;

/// Far less than the patience with a server that is silent, and than its repetitions.
const PROMPT: Duration = Duration::from_secs(30);

/// Interrupts a command while the server owes it an answer to its request number `request`.
fn interrupted(mut command: Command, server: &ObjectServer, request: usize) -> Finished {
    server.forget_requests();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    (0..request).for_each(|_| drop(server.next_request()));
    // The work goes on up to its next request, which stays without an answer.
    let paused = server.pause();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let asked = Instant::now();
    let done = finished(child.wait_with_output().unwrap());
    assert!(asked.elapsed() < PROMPT, "it waited for the server");
    drop(paused);
    done
}

#[test]
fn ctrl_c_stops_a_push_and_the_next_one_goes_on() {
    let Some(travel) = Travel::with(3, 20, 1).with_server() else { return };
    travel.large();
    travel.cloud("cloud");
    let push = ["push", "cloud", &travel.session];
    let command = || {
        let mut command = travel.fixture.command_to_be_signalled(&push);
        travel.server().allow(&mut command);
        command
    };
    // Each push stores more: a list, then the beginning of an upload and its parts.
    for request in [1, 2, 3, 3, 4] {
        let stopped = interrupted(command(), travel.server(), request);
        let words = "stopped: the archives so far are stored, and the same push goes on from there";
        stopped.fails(130, words);
        travel.verify("cloud").success();
    }
    let report = travel.push("cloud");
    let outcomes: Vec<_> =
        report["snapshots"].as_array().unwrap().iter().map(|one| &one["outcome"]).collect();
    assert_eq!(outcomes.first().unwrap(), &"already_there", "{report:#}");
    assert_eq!(outcomes.last().unwrap(), &"stored", "{report:#}");
    travel.verify("cloud").success();
    assert_eq!(travel.notes_of_uploads(), 0);
    travel.arrives_whole("cloud", "arrived");
}

#[test]
fn ctrl_c_stops_a_pull_and_nothing_appears() {
    // A list, then the archives from the newest one down. Each time a server of its own: one that
    // goes on may count late what a stopped pull had asked for.
    for request in [1, 2, 3] {
        let Some(travel) = Travel::with(3, 20, 1).with_server() else { return };
        travel.large();
        travel.cloud("cloud");
        travel.push("cloud");
        let root = travel.fixture.path("store");
        let text = root.to_str().unwrap();
        let pull = pull(text, "cloud", &travel.session, travel.identity());
        let mut command = travel.fixture.command_to_be_signalled(&pull);
        travel.server().allow(&mut command);
        let stopped = interrupted(command, travel.server(), request);
        let words = match request {
            1 => "stopped".to_owned(),
            _ => format!("stopped: nothing new of session {} is here", travel.session),
        };
        stopped.fails(130, &words);
        assert!(!root.join(&travel.session).exists());
        travel.arrives_whole("cloud", "store");
    }
}
