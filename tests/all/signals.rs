//! A signal does what it usually does, but while work that can be stopped, a command or a record of
//! one has it.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus, Stdio};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::Fixture;
use crate::held::Held;
use crate::terminal::{Terminal, eventually};

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// How it ended.
#[track_caller]
fn end(mut child: Child) -> ExitStatus {
    let mut status = None;
    eventually("it goes on", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// Status and exit code of the newest session.
fn newest(fixture: &Fixture) -> (String, serde_json::Value) {
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    (list[0]["status"].as_str().unwrap().to_owned(), list[0]["exit_code"].clone())
}

#[test]
fn ctrl_c_right_before_the_command_starts_is_the_commands() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let held = Held::on_pipe(&fixture);
    let terminal = Terminal::start(
        &fixture.path("tmux"),
        &fixture.project(),
        &fixture.path("home"),
        &format!(
            "env NONO_FAIL_POINT={} {} run --rollback -- sh -c 'echo 1 > a; exec sleep 600'; exec \
             cat",
            held.point("name=nono-", ":hold"),
            env!("CARGO_BIN_EXE_nono")
        ),
    );
    // There it makes a directory for its temporary files.
    let waiting = held.wait();
    terminal.keys(&["C-c"]);
    terminal.wait_for("^C");
    drop(waiting);
    eventually("the command does not end", || newest(&fixture).0 == "completed");
    assert_eq!(newest(&fixture).1, 130);
}

#[test]
fn no_signal_keeps_the_last_state_from_being_recorded() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let run =
        ["run", "--rollback", "--no-rollback-prompt", "--", "sh", "-c", "echo 22 > a; exit 3"];
    let mut command = fixture.command_to_be_signalled(&run);
    // It is removed after the command has ended, and before its last state is recorded.
    let held = Held::at("name=nono.sock", ":hold", &fixture, &mut command);
    let child = command.spawn().unwrap();
    let waiting = held.wait();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1] {
        send(&child, signal);
    }
    drop(waiting);
    assert_eq!(end(child).code(), Some(3));
    assert_eq!(newest(&fixture), ("completed".to_owned(), 3.into()));
}

#[test]
fn ctrl_c_while_the_space_of_old_sessions_is_freed_ends_the_run() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let run = |text: &str| {
        let script = format!("echo {text} > a");
        let run = ["run", "--rollback", "--max-sessions", "1", "--", "sh", "-c", &script];
        fixture.command_to_be_signalled(&run)
    };
    // Each of them but the first removes the one before it, which is a young one no more.
    for number in 0..9 {
        assert!(run(&format!("number {number}")).stderr(Stdio::null()).status().unwrap().success());
        crate::retention::age(&fixture, &fixture.latest(), 50);
    }
    // A process that frees space waits for it; a recording one does not.
    let lock = File::open(fixture.store().join("objects/.lock")).unwrap();
    flock(&lock, FlockOperation::LockShared).unwrap();
    let said = fixture.path("stderr");
    let mut command = run("last");
    let child = command.stderr(File::create(&said).unwrap()).spawn().unwrap();
    eventually("the run does not tell what was changed", || {
        fs::read_to_string(&said).unwrap().contains("~1 modified")
    });
    assert_eq!(newest(&fixture), ("completed".to_owned(), 0.into()));
    send(&child, Signal::INT);
    assert_eq!(end(child).signal(), Some(2));
    drop(lock);
    fixture.nono(&["rollback", "verify", &fixture.latest()]).success();
    // The next one does it.
    let next = crate::fixture::finished(run("next").output().unwrap()).success();
    assert!(next.stderr.contains("freed "), "{}", next.stderr);
}

#[test]
fn what_was_ignored_from_the_start_is_ignored_by_the_command_too() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let program = env!("CARGO_BIN_EXE_nono");
    let script = format!(
        "trap '' HUP; exec {program} run --rollback -- sh -c 'kill -HUP $PPID $$; echo lives > a'"
    );
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]).current_dir(fixture.project());
    command.env("HOME", fixture.path("home")).env_remove("NONO_ROOT");
    assert_eq!(command.status().unwrap().code(), Some(0));
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "lives\n");
    assert_eq!(newest(&fixture), ("completed".to_owned(), 0.into()));
}
