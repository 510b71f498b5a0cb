//! The command has its terminal, its signals and its children as without nono, and whatever becomes
//! of them, the last state is recorded.

use std::fs;
use std::process::{Command, Stdio};

use crate::fixture::{Finished, Fixture, finished};
use crate::held::Held;
use crate::terminal::{Terminal, eventually};

/// A shell in the project of a fixture, on a terminal.
pub fn shell(fixture: &Fixture) -> Terminal {
    let terminal = Terminal::start(
        &fixture.path("tmux"),
        &fixture.project(),
        &fixture.path("home"),
        "env PS1='ready> ' bash --norc --noprofile -i",
    );
    terminal.wait_for("ready>");
    terminal
}

fn nono(arguments: &str) -> String {
    format!("{} run --rollback --no-rollback-prompt -- {arguments}", env!("CARGO_BIN_EXE_nono"))
}

#[track_caller]
fn assert_ended(fixture: &Fixture, code: i64) {
    eventually("the session did not end", || {
        let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
        list[0]["status"] == "completed"
    });
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["exit_code"], code, "{list}");
}

#[test]
fn ctrl_c_ends_the_command_and_not_its_record() {
    let fixture = Fixture::new();
    let terminal = shell(&fixture);
    // With `exec`: a child that dash has made and that is not `sleep` yet ignores a SIGINT, and
    // dash itself waits for it.
    terminal.line(&nono("sh -c 'touch made; echo started; exec sleep 600'"));
    terminal.wait_for("\nstarted");
    terminal.keys(&["C-c"]);
    terminal.wait_for("+1 file");
    assert_ended(&fixture, 130);
}

#[test]
fn ctrl_z_gives_the_terminal_back_and_fg_goes_on() {
    let fixture = Fixture::new();
    let terminal = shell(&fixture);
    terminal.line(&nono("cat"));
    terminal.wait_for_program("nono");
    terminal.line("before");
    terminal.wait_for("before\nbefore");
    terminal.keys(&["C-z"]);
    terminal.wait_for("Stopped");
    terminal.line("echo in $((1 + 1)) shells");
    terminal.wait_for("in 2 shells");
    terminal.line("fg");
    terminal.wait_for_program("nono");
    terminal.line("after");
    terminal.wait_for("after\nafter");
    terminal.keys(&["C-d"]);
    terminal.wait_for("nothing changed");
    assert_ended(&fixture, 0);
}

#[test]
fn a_command_that_stops_itself_takes_the_supervisor_along() {
    let fixture = Fixture::new();
    let terminal = shell(&fixture);
    terminal.line(&nono("sh -c 'kill -TSTP $$; touch made; echo woken'"));
    terminal.wait_for("Stopped");
    terminal.line("fg");
    terminal.wait_for("\nwoken");
    terminal.wait_for("+1 file");
    assert_ended(&fixture, 0);
}

#[test]
fn an_editor_edits_stops_and_goes_on() {
    let fixture = Fixture::new();
    fixture.write("text", "one\n");
    let terminal = shell(&fixture);
    terminal.line(&nono("vim -u NONE text"));
    terminal.wait_for("\"text\" 1");
    terminal.keys(&["C-z"]);
    terminal.wait_for("Stopped");
    terminal.line("fg");
    terminal.wait_until("the editor again", |screen| screen.contains("~\n~\n~"));
    terminal.keys(&["-l", "otwo"]);
    terminal.keys(&["Escape"]);
    terminal.line(":wq");
    terminal.wait_for("~1 modified");
    assert_ended(&fixture, 0);
    assert_eq!(fs::read_to_string(fixture.project().join("text")).unwrap(), "one\ntwo\n");
}

#[test]
fn a_shell_inside_has_job_control_of_its_own() {
    let fixture = Fixture::new();
    let terminal = shell(&fixture);
    terminal.line(&nono("bash --norc --noprofile -i"));
    terminal.line("export PS1='inner> '");
    terminal.wait_for("\ninner>");
    terminal.line("sleep 600");
    terminal.wait_for_program("sleep");
    terminal.keys(&["C-z"]);
    terminal.wait_for("Stopped");
    terminal.line("kill %1; wait; touch made; exit 5");
    terminal.wait_for("+1 file");
    terminal.wait_until("the outer shell", |screen| screen.trim_end().ends_with("ready>"));
    assert_ended(&fixture, 5);
}

#[test]
fn the_size_of_the_terminal_follows() {
    let fixture = Fixture::new();
    let terminal = shell(&fixture);
    let script = "trap \"stty size\" WINCH; stty size; while :; do sleep 0.05; done";
    terminal.line(&nono(&format!("sh -c '{script}'")));
    terminal.wait_for("24 80");
    terminal.tmux(&["resize-window", "-x", "100", "-y", "30"]);
    terminal.wait_for("30 100");
    terminal.keys(&["C-c"]);
    assert_ended(&fixture, 130);
}

#[test]
fn a_closed_terminal_still_ends_in_a_final_snapshot() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let terminal = Terminal::start(
        &fixture.path("tmux"),
        &fixture.project(),
        &fixture.path("home"),
        &nono("sh -c 'echo 2 > a; echo written; sleep 600'"),
    );
    terminal.wait_for("written");
    terminal.close();
    assert_ended(&fixture, 129);
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["changes"]["modified"], 1);
}

#[test]
fn a_checkpoint_is_taken_from_inside() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let program = env!("CARGO_BIN_EXE_nono");
    let script = format!(
        "echo 22 > a; {program} snapshot --json; echo 333 > a; {program} snapshot; rm a; \
         {program} snapshot --session $NONO_SESSION"
    );
    let run = fixture.record(&script).success();
    assert!(run.stdout.contains("\"number\": 1"), "{}", run.stdout);
    let show = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
    assert_eq!(show["snapshots"].as_array().unwrap().len(), 5);
    assert_eq!(show["snapshots"][2]["changes"][0]["size_delta"], 1);
    fixture.nono(&["rollback", "verify", "latest"]).success();
    fixture.nono(&["rollback", "restore", "latest/1"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "22\n");
}

/// Records a shell script where no thread of this name can be started.
fn record_without_thread(fixture: &Fixture, name: &str, script: &str) -> Finished {
    let run = ["run", "--rollback", "--no-sandbox", "--", "sh", "-c", script];
    let mut command = fixture.command(&run);
    command.env("NONO_FAIL_POINT", format!("name={name}:EAGAIN"));
    finished(command.output().unwrap())
}

#[test]
fn where_nobody_could_pass_signals_on_the_command_is_not_run() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let why = "cannot run sh: cannot start a thread for signals";
    record_without_thread(&fixture, "signals", "echo 22 > a").fails(126, why);
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
    assert_ended(&fixture, 126);
}

#[test]
fn a_command_that_cannot_ask_for_checkpoints_is_run_and_recorded() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let script = "echo 22 > a; test -z \"$NONO_SOCKET\"";
    let run = record_without_thread(&fixture, "checkpoints", script).success();
    assert!(run.stderr.contains("cannot start a thread for checkpoints"), "{}", run.stderr);
    assert_ended(&fixture, 0);
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
}

#[test]
fn without_a_thread_to_flush_the_state_before_the_command_waits_for_it() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let script = "ls ~/.nono/rollbacks/$NONO_SESSION/snapshots/0; rm a";
    let listed = record_without_thread(&fixture, "publish", script).success().stdout;
    assert_eq!(listed, "manifest.json\n");
    assert_ended(&fixture, 0);
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
}

#[test]
fn nonsense_on_the_socket_is_refused_and_harms_nothing() {
    let fixture = Fixture::new();
    let ask = |line: &str| {
        let script = format!(
            "import os, socket; s = socket.socket(socket.AF_UNIX); \
             s.connect(os.environ['NONO_SOCKET']); s.sendall({line}); \
             s.shutdown(socket.SHUT_WR); print(s.recv(1000).decode())"
        );
        fixture.nono(&["run", "--rollback", "--", "/usr/bin/python3", "-c", &script]).success()
    };
    for line in ["b'\\n'", "b'{\"restore\": 1}\\n'", "b'\\xff' * 9000", "b'[' * 4000"] {
        let answer = ask(line);
        assert!(answer.stdout.contains("refused"), "{line}: {}", answer.stdout);
        let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
        assert_eq!(list[0]["snapshot_count"], 2);
    }
}

#[test]
fn what_children_still_write_is_waited_for() {
    let fixture = Fixture::new();
    // Its parent is gone long before the last byte is written.
    let script = "(for n in 1 2 3 4 5 6 7 8; do sleep 0.1; echo $n >> late; done) &";
    fixture.record(script).success();
    let late = fixture.project().join("late");
    let written = fs::read(&late).unwrap();
    assert_eq!(written.len(), 16);
    let show = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
    assert_eq!(show["snapshots"][1]["changes"][0]["size_delta"], 16, "{show}");
}

#[test]
fn the_wait_for_children_is_bounded() {
    let fixture = Fixture::new();
    let script = "(while [ -e a ]; do echo x >> late; sleep 0.05; done) > /dev/null 2>&1 &";
    fixture.write("a", "1");
    let started = std::time::Instant::now();
    let run = fixture.record(script).success();
    fs::remove_file(fixture.project().join("a")).unwrap();
    assert!(run.stderr.contains("does not write (5 s at most)"), "{}", run.stderr);
    assert!(run.stderr.contains("(writes at the moment)"), "{}", run.stderr);
    assert!(started.elapsed() < std::time::Duration::from_secs(25));
    // One that only waits is not waited for.
    let started = std::time::Instant::now();
    fixture.write("a", "1");
    let script = "(while [ -e a ]; do sleep 1; done) > /dev/null 2>&1 &";
    fixture.record(script).success();
    assert!(started.elapsed() < std::time::Duration::from_secs(4));
    fs::remove_file(fixture.project().join("a")).unwrap();
}

#[test]
fn five_hundred_short_processes_at_once() {
    let fixture = Fixture::new();
    let script = "for n in $(seq 500); do (echo $n > f$n) & done; wait";
    fixture.record(script).success();
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["changes"]["created"], 500);
}

#[test]
fn a_gigabyte_of_output_passes_through() {
    let fixture = Fixture::new();
    let mut child = fixture
        .command(&["run", "--rollback", "--", "head", "-c", "1G", "/dev/zero"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let bytes = std::io::copy(&mut out, &mut std::io::sink()).unwrap();
    assert_eq!(bytes, 1 << 30);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_command_starts_before_its_baseline_is_flushed() {
    let fixture = Fixture::in_memory();
    fixture.write("a", "1");
    let mut command =
        fixture.command(&["run", "--rollback", "--", "sh", "-c", "echo 2 > a; echo over > b"]);
    let flush = Held::at("flush", ":hold", &fixture, &mut command);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the command waits for the flush", || fixture.project().join("b").exists());
    // Its change is in the store, and no snapshot yet.
    let mut sessions = fs::read_dir(fixture.store()).unwrap().map(|entry| entry.unwrap().path());
    let session = sessions.find(|path| path.join("manifest.json").exists()).unwrap();
    assert!(session.join("snapshots/0/manifest.pending.json").exists());
    assert!(!session.join("snapshots/0/manifest.json").exists());
    flush.release();
    finished(child.wait_with_output().unwrap()).success();
    assert!(!session.join("snapshots/0/manifest.pending.json").exists());
    fixture.nono(&["rollback", "verify", "latest"]).success();
    fixture.nono(&["rollback", "restore", "latest"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
    assert!(!fixture.project().join("b").exists());
}

#[test]
fn what_is_said_of_the_state_before_is_true_when_its_flush_fails() {
    let fixture = Fixture::in_memory();
    fixture.write("a", "1");
    let record = |failure: &str, meanwhile: &dyn Fn()| {
        fixture.write("a", "1");
        let mut command = fixture.command(&["run", "--rollback", "--", "sh", "-c", "echo 2 > a"]);
        let flush = Held::at("flush", failure, &fixture, &mut command);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        eventually("the command did not start", || {
            fs::read_to_string(fixture.project().join("a")).unwrap() == "2\n"
        });
        meanwhile();
        flush.release();
        finished(child.wait_with_output().unwrap())
    };
    let restored = || {
        fixture.nono(&["rollback", "restore", "latest/0"]).success();
        assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
    };
    // Once: all of it is on the disk all the same, which is looked at.
    let run = record(":EIO", &|| {}).success();
    assert!(run.stderr.contains("it was read back"), "{}", run.stderr);
    restored();
    // Always: it is unknown, until a disk that works is asked.
    let run = record("+:EIO", &|| {}).fails(1, "not safely on the disk");
    assert!(!run.stderr.contains("is safe:"), "{}", run.stderr);
    let id = fixture.latest();
    assert!(run.stderr.contains(&format!("`nono verify {id}`")), "{}", run.stderr);
    fixture.nono(&["rollback", "verify", &id]).success();
    restored();
    // An object is gone with it.
    fixture.write("only-here", "lost");
    let lose = || {
        let hash = Command::new("sha256sum").arg(fixture.project().join("only-here")).output();
        let hash = String::from_utf8(hash.unwrap().stdout).unwrap();
        let objects = fixture.store().join("objects");
        fs::remove_file(objects.join(&hash[..2]).join(&hash[2..64])).unwrap();
    };
    let run = record(":EIO", &lose).fails(1, "the state before is lost");
    assert!(run.stderr.contains("cannot be undone"), "{}", run.stderr);
    fixture.nono(&["rollback", "restore", "latest"]).fails(1, "has no snapshot");
}

#[test]
fn the_older_names_of_the_options_are_accepted() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let arguments = ["run", "--supervised", "--rollback", "--no-undo-prompt", "--"];
    fixture
        .nono(&[&arguments[..], &["sh", "-c", "echo 2 > a; exit 4"]].concat())
        .fails(4, "undo it");
    assert_ended(&fixture, 4);
    fixture.nono(&["undo", "restore", "latest"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
}

#[test]
fn whoever_asks_a_byte_at_a_time_keeps_nobody_waiting() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.write(
        "drip.py",
        "import os, socket, time\n\
         s = socket.socket(socket.AF_UNIX)\n\
         s.connect(os.environ['NONO_SOCKET'])\n\
         for sent in range(200):\n    \
             s.sendall(b' ')\n    \
             open('sent', 'w').write(str(sent))\n    \
             time.sleep(0.1)\n",
    );
    // In a session of its own, so that it is not waited for as a child that still writes.
    let script = "setsid python3 drip.py >/dev/null 2>&1 & while ! [ -s sent ]; do sleep 0.05; \
                  done; echo 2 > a";
    fixture.nono(&["run", "--rollback", "--no-sandbox", "--", "sh", "-c", script]).success();
    // It went on until it was cut off, and not to its end.
    let sent: u32 = fs::read_to_string(fixture.project().join("sent")).unwrap().parse().unwrap();
    assert!(sent < 199, "the supervisor listened to all of it");
    let show = fixture.nono(&["rollback", "show", "latest", "--json"]).success().json();
    assert!(show["ended"].is_string(), "{show}");
}

#[test]
fn what_the_last_snapshot_of_a_run_lacks_is_said() {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    let run = ["run", "--rollback", "--max-entries", "20", "--"];
    let script = "for n in $(seq 40); do echo $n > f$n; done";
    let run = fixture.nono(&[&run[..], &["sh", "-c", script]].concat()).success();
    assert!(
        run.stderr.contains("not captured: ") && run.stderr.contains("over the budget"),
        "{}",
        run.stderr
    );
    // Gaps of the state before were named then.
    let fixture = Fixture::ordinary_user();
    fixture.write("secret", "1");
    let secret = fixture.project().join("secret");
    fs::set_permissions(&secret, std::os::unix::fs::PermissionsExt::from_mode(0o000)).unwrap();
    let run = fixture.record("true").success();
    assert_eq!(run.stderr.matches("not captured").count(), 1, "{}", run.stderr);
}

#[test]
fn temporary_files_of_any_depth_do_not_keep_the_last_state_from_being_recorded() {
    let fixture = Fixture::ordinary_user();
    fixture.write("a", "1");
    fixture.write(
        "deep.py",
        "import os\n\
         here = os.open(os.environ['TMPDIR'], os.O_RDONLY)\n\
         for level in range(20000):\n    \
             os.mkdir('d', dir_fd=here)\n    \
             below = os.open('d', os.O_RDONLY, dir_fd=here)\n    \
             os.close(here)\n    \
             here = below\n\
         os.mkdir(os.environ['TMPDIR'] + '/closed', 0o000)\n\
         print(os.environ['TMPDIR'])\n\
         open('a', 'w').write('2')\n",
    );
    let run = ["run", "--rollback", "--", "/usr/bin/python3", "deep.py"];
    let run = fixture.nono(&run).success();
    assert_eq!(run.stdout, "/tmp\n");
    let kept = run.stderr.lines().find_map(|line| line.split_once("kept for a day: "));
    let (_, room) = kept.unwrap_or_else(|| panic!("{}", run.stderr));
    let room = std::path::Path::new(room);
    assert!(room.join("d/d/d").exists());
    // When it is old, another run takes it away.
    crate::scratch::make_old(room.parent().unwrap());
    let wait = format!("while [ -e {} ]; do sleep 0.05; done", room.display());
    fixture
        .nono(&["run", "--no-rollback", "--namespaces", "off", "--", "sh", "-c", &wait])
        .success();
    assert!(!room.exists());
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(
        (&list[0]["status"], &list[0]["changes"]["modified"]),
        (&"completed".into(), &1.into())
    );
}
