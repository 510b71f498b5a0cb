//! `nono watch` with real events: what is recorded, whose it is, and what is said of it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::fixture::Fixture;
use crate::hooks::Agent;
use crate::not_run::not_run;
use crate::terminal::Terminal;

/// Nothing here takes so long.
const PATIENCE: Duration = Duration::from_secs(120);

/// A watcher in the foreground, and what it says.
struct Watching {
    child: Child,
    said: mpsc::Receiver<String>,
    session: String,
}

impl Watching {
    fn begin(fixture: &Fixture, more: &[&str]) -> Self {
        let project = fixture.project();
        let mut arguments = vec!["watch", project.to_str().unwrap(), "--json"];
        arguments.extend(more);
        let mut command = fixture.command(&arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, said) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let report = serde_json::Deserializer::from_reader(child.stdout.take().unwrap());
        let report: Value = report.into_iter().next().expect("a report").unwrap();
        let session = report["session_id"].as_str().unwrap().to_owned();
        Self { child, said, session }
    }

    /// Waits until it says something with this text.
    #[track_caller]
    fn says(&self, text: &str) -> String {
        let until = Instant::now() + PATIENCE;
        let mut heard = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.said.recv_timeout(left) {
                Ok(line) if line.contains(text) => return line,
                Ok(line) => heard.push(line),
                Err(error) => panic!("{error}: no {text:?} in {heard:?}"),
            }
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    #[track_caller]
    fn stop(mut self, fixture: &Fixture) {
        let project = fixture.project();
        fixture.nono(&["watch", "stop", project.to_str().unwrap()]).success();
        assert!(self.child.wait().unwrap().success());
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

/// Kinds of the steps of a session, by number.
fn kinds(fixture: &Fixture, session: &str) -> Vec<String> {
    let manifest = fixture.store().join(session).join("manifest.json");
    let manifest: Value = serde_json::from_slice(&fs::read(manifest).unwrap()).unwrap();
    let steps = manifest["steps"].as_array().cloned().unwrap_or_default();
    steps.iter().map(|step| step["kind"].as_str().unwrap().to_owned()).collect()
}

fn status(fixture: &Fixture) -> Value {
    let all = fixture.nono(&["watch", "status", "--json"]).success().json();
    all.as_array().unwrap().first().cloned().unwrap_or_default()
}

#[test]
fn a_change_is_recorded_after_a_quiet_moment_as_of_you_or_another_program() {
    let fixture = Fixture::new();
    fixture.write("notes.txt", "before");
    let watching = Watching::begin(&fixture, &[]);
    fixture.write("notes.txt", "after");
    watching.says("recorded");
    let id = watching.session.clone();
    assert_eq!(kinds(&fixture, &id), ["watched"]);
    assert!(fixture.nono(&["steps", &id]).success().says("you or another program"));
    assert!(fixture.nono(&["list"]).success().says("(you or another program)"));
    let log = fixture.nono(&["blame", "notes.txt"]).success();
    assert!(log.says("you or another program"), "{}", log.stdout);
    // Nothing more is taken where nothing changed.
    watching.stop(&fixture);
    assert_eq!(kinds(&fixture, &id).len(), 1);
    let restored = fixture.nono(&["restore", &format!("{id}/0")]).success();
    assert_eq!(
        fs::read(fixture.project().join("notes.txt")).unwrap(),
        b"before",
        "{}",
        restored.stderr
    );
}

/// The kernel tells a watcher nothing of these writes. So no capture trusts one about what changed.
#[test]
fn a_write_by_another_name_elsewhere_or_through_a_mapping_is_in_every_state_beside_a_watcher() {
    let fixture = Fixture::new();
    fixture.write("linked", "before");
    fixture.write("mapped", "before");
    let watching = Watching::begin(&fixture, &[]);
    let elsewhere = fixture.path("elsewhere");
    fs::hard_link(fixture.project().join("linked"), &elsewhere).unwrap();
    fs::write(&elsewhere, "linked").unwrap();
    // The mapping is still there when the state is taken.
    let script = "import mmap, sys; f = open('mapped', 'r+b'); m = mmap.mmap(f.fileno(), 0); \
                  m[:] = b'mapped'; print(flush=True); sys.stdin.read()";
    let mut mapping = Command::new("python3")
        .args(["-c", script])
        .current_dir(fixture.project())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(mapping.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let report = fixture.nono(&["snapshot", "--json"]).success().json();
    drop(mapping.stdin.take());
    assert!(mapping.wait().unwrap().success());
    for name in ["linked", "mapped"] {
        let state = format!("{}/{}", report["session_id"].as_str().unwrap(), report["number"]);
        let shown = fixture.nono(&["cat", &state, name]).success();
        assert_eq!(shown.stdout, name);
    }
    watching.stop(&fixture);
}

#[test]
fn a_watcher_waits_without_a_limit_while_nothing_happens() {
    let fixture = Fixture::new();
    fixture.write("file", "x");
    let watching = Watching::begin(&fixture, &[]);
    // The first moments may hold a look at what happened before.
    status(&fixture);
    let file = format!("/proc/{}/syscall", watching.child.id());
    let until = Instant::now() + PATIENCE;
    loop {
        // The number of the call, and its arguments: `ppoll` with no time in the third.
        let call = fs::read_to_string(&file).unwrap();
        let words: Vec<&str> = call.split_whitespace().collect();
        if let [_, _, _, "0x0", ..] = words[..] {
            break;
        }
        assert!(Instant::now() < until, "{call}");
        std::thread::yield_now();
    }
    watching.stop(&fixture);
}

#[test]
fn a_project_has_one_watcher() {
    let fixture = Fixture::new();
    let watching = Watching::begin(&fixture, &[]);
    let project = fixture.project();
    let second = fixture.nono(&["watch", project.to_str().unwrap()]);
    second.fails(1, "is watched already");
    let facts = status(&fixture);
    assert_eq!(facts["session_id"], *watching.session);
    assert_eq!(facts["pid"], watching.child.id());
    watching.stop(&fixture);
    assert_eq!(status(&fixture), Value::Null);
    fixture.nono(&["watch", "stop", project.to_str().unwrap()]).fails(1, "is not watched");
}

#[test]
fn after_a_kill_the_next_watcher_goes_on_and_finds_what_changed_meanwhile() {
    let fixture = Fixture::new();
    fixture.write("file", "one");
    let watching = Watching::begin(&fixture, &[]);
    let id = watching.session.clone();
    fixture.write("file", "two");
    watching.says("recorded");
    watching.kill();
    assert_eq!(status(&fixture), Value::Null);
    fixture.write("file", "three");
    let watching = Watching::begin(&fixture, &[]);
    assert_eq!(watching.session, id);
    watching.says("recorded");
    assert_eq!(kinds(&fixture, &id), ["watched", "watched"]);
    let cat = fixture.nono(&[
        "cat",
        &format!("{id}/2"),
        fixture.project().join("file").to_str().unwrap(),
    ]);
    assert_eq!(cat.success().stdout, "three");
    watching.stop(&fixture);
}

#[test]
fn a_signal_ends_a_watcher_after_a_last_step() {
    let fixture = Fixture::new();
    fixture.write("file", "one");
    let mut watching = Watching::begin(&fixture, &[]);
    fixture.write("file", "two");
    kill_process(pid_of(&watching.child), Signal::TERM).unwrap();
    assert!(watching.child.wait().unwrap().success());
    let cat = fixture.project().join("file");
    let id = format!("{}/1", watching.session);
    assert_eq!(fixture.nono(&["cat", &id, cat.to_str().unwrap()]).success().stdout, "two");
}

#[test]
fn what_an_agent_changed_is_its_step_and_never_the_users() {
    let fixture = Fixture::new();
    fixture.write("file", "one");
    let agent = Agent::new(&fixture, "claude-code");
    agent.prompt("change it");
    let watching = Watching::begin(&fixture, &[]);
    let call = agent.call_of("Bash", json!({"command": "echo"}));
    agent.hook("PreToolUse", &call);
    fixture.write("file", "of the agent");
    watching.says("waits for the end of a call of the agent");
    agent.hook("PostToolUse", &call);
    watching.says("recorded");
    fixture.write("file", "of the user");
    watching.says("recorded");
    assert_eq!(kinds(&fixture, &watching.session), ["elsewhere", "watched"]);
    let agents = fixture.nono(&["steps", "--json"]).success().json();
    assert!(agents.to_string().contains("Bash"), "{agents}");
    watching.stop(&fixture);
}

#[test]
fn a_command_at_work_is_waited_for() {
    let fixture = Fixture::new();
    fixture.write("file", "one");
    let watching = Watching::begin(&fixture, &[]);
    let script = "echo two > file; read line; echo three > file";
    let mut run = fixture.command(&["run", "--no-rollback-prompt", "--", "sh", "-c", script]);
    let run = run.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut run = run.spawn().unwrap();
    let said = watching.says("waits for the end of the command");
    assert!(status(&fixture)["waits_for"].as_str().unwrap().contains("the command"), "{said}");
    drop(run.stdin.take());
    run.wait().unwrap();
    watching.says("recorded");
    assert_eq!(kinds(&fixture, &watching.session), ["elsewhere"]);
    // An undo without a name means the command, and not the watcher.
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(fs::read(fixture.project().join("file")).unwrap(), b"one");
    // The watcher records the undo, which is no reason against a redo.
    watching.says("recorded");
    fixture.nono(&["redo"]).success();
    assert_eq!(fs::read(fixture.project().join("file")).unwrap(), b"three\n");
    watching.stop(&fixture);
}

#[test]
fn without_enough_watches_a_change_is_found_by_a_walk_and_the_status_says_so() {
    let fixture = Fixture::new();
    for number in 0..30 {
        fixture.write(&format!("d{number}/file"), "one");
    }
    let watching = Watching::begin(&fixture, &["--max-watches", "5"]);
    let facts = status(&fixture);
    assert_eq!(facts["directories"], 5);
    assert!(facts["gap"].as_str().unwrap().contains("max_user_watches"), "{facts}");
    for number in 0..30 {
        fixture.write(&format!("d{number}/file"), "two");
    }
    let id = watching.session.clone();
    watching.stop(&fixture);
    let shown = fixture.nono(&["diff", &format!("{id}/0"), &format!("{id}/1"), "--json"]);
    assert_eq!(shown.success().stdout.matches("/file").count(), 30);
}

#[test]
fn twenty_thousand_directories_are_watched_and_a_change_in_the_last_one_is_found() {
    let fixture = Fixture::new();
    for outer in 0..200 {
        for inner in 0..100 {
            fs::create_dir_all(fixture.project().join(format!("d{outer}/e{inner}"))).unwrap();
        }
    }
    let watching = Watching::begin(&fixture, &[]);
    assert_eq!(status(&fixture)["directories"], 20_201);
    fixture.write("d199/e99/file", "x");
    watching.says("recorded");
    fs::rename(fixture.project().join("d199"), fixture.project().join("moved")).unwrap();
    fixture.write("moved/e99/file", "y");
    watching.says("recorded");
    assert_eq!(status(&fixture)["directories"], 20_201);
    watching.stop(&fixture);
}

#[test]
fn a_left_out_directory_takes_no_watches_below_it() {
    let fixture = Fixture::new();
    fixture.write("src/main.rs", "x");
    for number in 0..50 {
        fixture.write(&format!("left/d{number}/file"), "x");
    }
    let watching = Watching::begin(&fixture, &["--rollback-exclude", "left"]);
    // The project, `src`, and the left-out directory itself.
    assert_eq!(status(&fixture)["directories"], 3);
    watching.stop(&fixture);
}

#[test]
fn a_file_system_that_comes_is_noticed_and_everything_is_looked_at() {
    let fixture = Fixture::new();
    fixture.write("inner/file", "one");
    let other = fixture.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), "two").unwrap();
    let watching = Watching::begin(&fixture, &[]);
    let inner = fixture.project().join("inner");
    if let Err(error) = rustix::mount::mount_bind(&other, &inner) {
        watching.kill();
        return not_run(format_args!("a bind mount: {error}"));
    }
    watching.says("a mount came or went");
    watching.says("recorded");
    rustix::mount::unmount(&inner, rustix::mount::UnmountFlags::empty()).unwrap();
    watching.says("a mount came or went");
    watching.says("recorded");
    assert_eq!(status(&fixture)["losses"], 2);
    watching.stop(&fixture);
}

#[test]
fn a_detached_watcher_lives_on_and_is_stopped() {
    let fixture = Fixture::new();
    fixture.write("file", "one");
    let project = fixture.project();
    let begun = fixture.nono(&["watch", "--detach", "--json", project.to_str().unwrap()]);
    let id = begun.success().json()["session_id"].as_str().unwrap().to_owned();
    let begun = status(&fixture);
    assert_eq!((&begun["session_id"], &begun["is_pending"]), (&json!(id), &json!(false)));
    fixture.nono(&["watch", "stat"]).fails(1, "its commands are nono watch status");
    fixture.write("file", "two");
    fixture.nono(&["watch", "stop", project.to_str().unwrap()]).success();
    assert_eq!(kinds(&fixture, &id), ["watched"]);
}

#[test]
fn a_unit_is_written_for_the_project_and_what_starts_it_is_said() {
    let fixture = Fixture::new();
    let project = fixture.project();
    let printed = fixture.nono(&["watch", "install", "--print", project.to_str().unwrap()]);
    let text = printed.success().stdout;
    let line = text.lines().find(|line| line.starts_with("ExecStart=")).unwrap().to_owned();
    assert!(line.contains(project.to_str().unwrap()) && line.contains("\"watch\""), "{line}");
    let written = fixture.nono(&["watch", "install", "--json", project.to_str().unwrap()]);
    let report = written.success().json();
    assert_eq!(fs::read_to_string(report["unit"].as_str().unwrap()).unwrap(), text);
    assert!(report["cron"].as_str().unwrap().starts_with("@reboot "), "{report}");
}

#[test]
fn a_home_directory_is_no_project() {
    let fixture = Fixture::new();
    let mut command = fixture.command(&["watch"]);
    command.current_dir("/");
    let finished = crate::fixture::finished(command.output().unwrap());
    finished.fails(2, "is no project");
}

fn file(fixture: &Fixture) -> String {
    fs::read_to_string(fixture.project().join("file")).unwrap()
}

#[test]
fn where_only_a_watcher_recorded_every_command_means_it_and_an_undo_takes_one_change_back() {
    let fixture = Fixture::new();
    fixture.write("file", "one");
    let watching = Watching::begin(&fixture, &[]);
    for text in ["two", "three"] {
        fixture.write("file", text);
        watching.says("recorded");
    }
    let id = watching.session.clone();
    let last = format!("nono undo --step {id}#last");
    let shown = fixture.nono(&["status"]).success();
    let line = format!("last session: {id}  you or another program");
    assert!(shown.says(&line) && shown.says(&format!("watched: {id}/2")), "{}", shown.stdout);
    assert!(shown.says(&last), "{}", shown.stdout);
    assert!(fixture.nono(&["watch", "status"]).success().says(&last));
    assert!(fixture.nono(&["show", "latest"]).success().says(&id));
    assert!(fixture.nono(&["steps"]).success().says(&id));
    let planned = fixture.nono(&["undo", "--dry-run"]).success();
    let step = format!("undo step 2 of {id}: you or another program");
    assert!(planned.says(&step), "{}", planned.stderr);
    assert_eq!(file(&fixture), "three");
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(file(&fixture), "two");
    fixture.nono(&["redo"]).success();
    assert_eq!(file(&fixture), "three");
    fixture.nono(&["undo", "--yes"]).success();
    fixture.nono(&["undo", "--step", &format!("{id}#last"), "--yes"]).success();
    assert_eq!(file(&fixture), "one");
    fixture.nono(&["undo", "--yes"]).fails(1, "is left to undo");
    watching.stop(&fixture);
}

#[test]
fn a_restore_of_the_watchers_own_session_is_no_change_of_the_user() {
    let fixture = Fixture::new();
    fixture.write("dir/file", "one");
    let watching = Watching::begin(&fixture, &[]);
    fs::remove_dir_all(fixture.project().join("dir")).unwrap();
    watching.says("recorded");
    fixture.nono(&["restore", "dir"]).success();
    watching.says("recorded");
    let text = || fs::read_to_string(fixture.project().join("dir/file")).ok();
    assert_eq!(text().as_deref(), Some("one"));
    assert_eq!(kinds(&fixture, &watching.session), ["watched", "elsewhere"]);
    // The only change of the user is back already.
    fixture.nono(&["undo", "--yes"]).fails(1, "");
    assert_eq!(text().as_deref(), Some("one"));
    watching.stop(&fixture);
}

#[test]
fn a_question_about_a_change_that_a_watcher_saw_says_whose_it_is() {
    let fixture = Fixture::new();
    fixture.write("file", "one");
    let watching = Watching::begin(&fixture, &[]);
    fixture.write("file", "two");
    watching.says("recorded");
    let id = watching.session.clone();
    watching.stop(&fixture);
    let ask = |arguments: &str| {
        let program = fixture.command(&[]).get_program().to_str().unwrap().to_owned();
        let command = format!("{program} {arguments}; echo ended with $?; exec cat");
        let (socket, home) = (fixture.path("tmux"), fixture.path("home"));
        Terminal::start(&socket, &fixture.project(), &home, &command)
    };
    let terminal = ask("undo");
    terminal.wait_for("undo what you or another program changed in");
    terminal.keys(&["n", "Enter"]);
    terminal.wait_for("ended with 1");
    terminal.close();
    let terminal = ask(&format!("undo {id}"));
    terminal.wait_for(&format!("undo session {id} (you or another program) in"));
    assert!(terminal.screen().contains("its only step; the last one alone"));
    terminal.keys(&["n", "Enter"]);
    terminal.wait_for("ended with 1");
    assert_eq!(file(&fixture), "two");
}

#[test]
fn beside_a_run_a_watcher_is_never_latest_and_the_way_to_its_last_change_is_said() {
    let fixture = Fixture::new();
    fixture.write("file", "one");
    fixture.write("other", "one");
    let watching = Watching::begin(&fixture, &[]);
    fixture.record("echo run > other").success();
    watching.says("recorded");
    let id = watching.session.clone();
    // A change of the run is none of the user.
    let none = fixture.nono(&["undo", "--step", &format!("{id}#last"), "--yes"]);
    none.fails(1, &format!("session {id} has no changes of you or another program"));
    fixture.write("file", "of the user");
    watching.says("recorded");
    let show = fixture.nono(&["show", "latest"]).success();
    assert!(!show.says(&id), "{}", show.stdout);
    assert!(!fixture.nono(&["status"]).success().says(&format!("last session: {id}")));
    let steps = fixture.nono(&["steps"]).success();
    assert!(steps.says(&format!("nono steps {id}")), "{}", steps.stderr);
    fixture.nono(&["undo", "--yes"]).success();
    assert_eq!(fs::read_to_string(fixture.project().join("other")).unwrap(), "one");
    assert_eq!(file(&fixture), "of the user");
    // The user's own change goes by its name alone.
    let none = fixture.nono(&["undo", "--yes"]);
    none.fails(1, &format!("nono undo --step {id}#last"));
    let none = fixture.nono(&["undo", "--since", "2000-01-01", "--yes"]);
    none.fails(1, &format!("nono undo --step {id}#last"));
    assert_eq!(file(&fixture), "of the user");
    fixture.nono(&["undo", "--step", &format!("{id}#last"), "--yes"]).success();
    assert_eq!(file(&fixture), "one");
    watching.stop(&fixture);
}

/// The place of the only watcher of a store.
fn place(fixture: &Fixture) -> PathBuf {
    let mut places = fs::read_dir(fixture.store().join(".watch")).unwrap();
    places.next().unwrap().unwrap().path()
}

#[test]
fn the_lock_and_the_socket_of_a_killed_watcher_are_taken_over() {
    let fixture = Fixture::new();
    let watching = Watching::begin(&fixture, &[]);
    let key = fs::read(place(&fixture).join("key")).unwrap();
    watching.kill();
    for left in ["lock", "socket", "key"] {
        assert!(place(&fixture).join(left).exists(), "{left}");
    }
    let project = fixture.project();
    let project = project.to_str().unwrap();
    assert_eq!(status(&fixture), Value::Null);
    assert_eq!(fixture.nono(&["status", "--json"]).success().json()["watchers"], json!([]));
    fixture.nono(&["watch", "stop", project]).fails(1, "is not watched");
    let watching = Watching::begin(&fixture, &[]);
    assert_eq!(status(&fixture)["pid"], watching.child.id());
    assert_ne!(fs::read(place(&fixture).join("key")).unwrap(), key);
    fixture.nono(&["watch", project]).fails(1, "is watched already");
    watching.stop(&fixture);
}

#[test]
fn the_unit_finds_the_session_again_after_a_reboot() {
    let fixture = Fixture::new();
    fixture.write("file", "one");
    let project = fixture.project();
    let watching = Watching::begin(&fixture, &[]);
    let id = watching.session.clone();
    watching.kill();
    fixture.write("file", "two");
    let printed = fixture.nono(&["watch", "install", "--print", project.to_str().unwrap()]);
    let text = printed.success().stdout;
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let words: Vec<&str> = line.trim_matches('"').split("\" \"").collect();
    let usual = fixture.command(&[]);
    let mut unit = Command::new(words[0]);
    unit.args(&words[1..]).current_dir("/").env_clear();
    unit.envs(usual.get_envs().filter_map(|(key, value)| Some((key, value?))));
    unit.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = unit.spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut says = |wanted: &str| said.find(|line| line.as_ref().unwrap().contains(wanted));
    assert!(says(&format!("session {id}")).is_some());
    assert!(says(&format!("recorded {id}#1")).is_some());
    kill_process(pid_of(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(kinds(&fixture, &id), ["watched"]);
}

#[test]
fn a_change_is_recorded_whatever_the_clock_says() {
    let fixture = Fixture::new();
    fixture.write("file", "text 0");
    let path = fixture.project().join("file");
    let unchanged = fs::metadata(&path).unwrap().modified().unwrap();
    let watching = Watching::begin(&fixture, &[]);
    let year = Duration::from_secs(365 * 24 * 3600);
    // As it was, long ago, and long after now; the length stays.
    for (at, time) in [unchanged, unchanged - 40 * year, unchanged + 40 * year].iter().enumerate() {
        fixture.write("file", format!("text {}", at + 1));
        fs::File::options().write(true).open(&path).unwrap().set_modified(*time).unwrap();
        watching.says("recorded");
        let state = format!("{}/{}", watching.session, at + 1);
        let shown = fixture.nono(&["cat", &state, path.to_str().unwrap()]).success();
        assert_eq!(shown.stdout, format!("text {}", at + 1));
    }
    watching.stop(&fixture);
}

/// Processor time of a process, in ticks of a hundredth of a second.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[test]
fn a_watcher_of_a_hundred_thousand_files_uses_little_memory_and_no_processor_time() {
    let fixture = Fixture::new();
    for number in 0..10_000 {
        let place = fixture.project().join(format!("d{}/e{}", number / 100, number % 100));
        fs::create_dir_all(&place).unwrap();
        for file in 0..10 {
            fs::write(place.join(file.to_string()), format!("{number} {file}")).unwrap();
        }
    }
    let watching = Watching::begin(&fixture, &[]);
    let pid = watching.child.id();
    fixture.write("d1/e1/1", "changed");
    watching.says("recorded");
    let facts = status(&fixture);
    assert!(facts["is_pending"] == false && facts["directories"] == 10_101, "{facts}");
    let memory = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    // The pages of the program itself are in the cache of the kernel, and bigger in a debug build.
    let own = memory.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let own: u64 = own.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(own < 20_000, "{own} kB");
    // Work beside the project, in the same store, is no event for it.
    let (began, before) = (Instant::now(), ticks(pid));
    let beside = fixture.path("beside");
    fs::create_dir(&beside).unwrap();
    for number in 0..20 {
        fs::write(beside.join("file"), number.to_string()).unwrap();
        fixture.nono(&["snapshot", beside.to_str().unwrap()]).success();
    }
    let used = Duration::from_millis(10 * (ticks(pid) - before));
    // One tick is what the clock of the kernel cannot tell from nothing.
    let most = began.elapsed() / 1000 + Duration::from_millis(10);
    assert!(used <= most, "{used:?} of {:?}", began.elapsed());
    watching.stop(&fixture);
}

#[test]
fn the_program_that_changed_a_file_is_named_where_the_kernel_tells_it() {
    let fixture = Fixture::new();
    fixture.write("file", "one");
    let watching = Watching::begin(&fixture, &[]);
    if status(&fixture)["names_programs"] == false {
        watching.stop(&fixture);
        return not_run("fanotify is for administrators (CAP_SYS_ADMIN)");
    }
    assert!(fixture.nono(&["watch", "status"]).success().says("(fanotify)"));
    let mut writer = Command::new("sh");
    writer.args(["-c", "echo two > file; read line"]).current_dir(fixture.project());
    let mut writer = writer.stdin(Stdio::piped()).spawn().unwrap();
    watching.says("recorded");
    drop(writer.stdin.take());
    writer.wait().unwrap();
    let id = watching.session.clone();
    let steps = fixture.nono(&["steps", &id]).success();
    assert!(steps.says("you or another program · sh  "), "{}", steps.stdout);
    // A command of nono has its own session, and is no other program.
    fixture.record("echo three > file").success();
    watching.says("recorded");
    let steps = fixture.nono(&["steps", &id]).success();
    assert!(steps.says("changes of other sessions  "), "{}", steps.stdout);
    watching.stop(&fixture);
}

#[test]
fn after_more_events_than_the_kernel_keeps_everything_is_looked_at() {
    let fixture = Fixture::new();
    fixture.write("inner/file", "one");
    let watching = Watching::begin(&fixture, &[]);
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let pid = pid_of(&watching.child);
    kill_process(pid, Signal::STOP).unwrap();
    for number in 0..=limit {
        let file = fixture.project().join(format!("passing-{number}"));
        fs::File::create(&file).unwrap();
        fs::remove_file(file).unwrap();
    }
    // The event of this one is lost.
    fixture.write("inner/file", "two");
    kill_process(pid, Signal::CONT).unwrap();
    watching.says("events were lost (the queue of events was full)");
    watching.says("recorded");
    let facts = status(&fixture);
    assert!(facts["last_loss"].as_str().unwrap().contains("the queue of events was full"));
    let path = fixture.project().join("inner/file");
    let state = format!("{}/1", watching.session);
    let shown = fixture.nono(&["cat", &state, path.to_str().unwrap()]).success();
    assert_eq!(shown.stdout, "two");
    watching.stop(&fixture);
}

#[test]
fn a_hundred_thousand_directories_over_the_limit_of_watches_are_looked_at() {
    let fixture = Fixture::new();
    for outer in 0..1_000 {
        for inner in 0..100 {
            fs::create_dir_all(fixture.project().join(format!("d{outer}/e{inner}"))).unwrap();
        }
    }
    let watching = Watching::begin(&fixture, &["--max-watches", "65536"]);
    let facts = status(&fixture);
    assert_eq!(facts["directories"], 65_536);
    assert!(facts["gap"].as_str().unwrap().contains("max_user_watches"), "{facts}");
    for outer in 0..1_000 {
        fixture.write(&format!("d{outer}/e7/file"), "new");
    }
    let id = watching.session.clone();
    watching.stop(&fixture);
    let shown = fixture.nono(&["diff", &format!("{id}/0"), &format!("{id}/latest"), "--json"]);
    assert_eq!(shown.success().stdout.matches("e7/file\"").count(), 1_000);
}
