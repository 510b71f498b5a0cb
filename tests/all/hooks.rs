//! `nono hook` as clients call it: one process for each event, the event on its input.

use std::fs;
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fixture::{Finished, Fixture, finished};
use crate::small_disk::SmallDisk;

/// An agent session of a client, which calls its hooks.
pub struct Agent<'a> {
    pub fixture: &'a Fixture,
    client: &'static str,
    session: String,
    calls: std::cell::Cell<u32>,
}

impl<'a> Agent<'a> {
    pub fn new(fixture: &'a Fixture, client: &'static str) -> Self {
        let session = format!("session-of-{client}");
        Self { fixture, client, session, calls: 0.into() }
    }

    fn event(&self, name: &str, more: &Value) -> String {
        let mut event = json!({
            "session_id": self.session, "cwd": self.fixture.project(), "hook_event_name": name,
        });
        let fields = event.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        event.to_string()
    }

    pub fn start_hook(&self, name: &str, more: &Value, flags: &[&str]) -> Child {
        let mut arguments = vec!["hook", self.client];
        arguments.extend(flags);
        start(self.fixture.command(&arguments), &self.event(name, more))
    }

    /// The client's view of a hook: nothing.
    pub fn hook(&self, name: &str, more: &Value) {
        quiet(self.start_hook(name, more, &["--deadline-ms", "60000"]));
    }

    fn names(&self) -> [&'static str; 4] {
        match self.client {
            "gemini" => ["BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent"],
            _ => ["UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"],
        }
    }

    pub fn prompt(&self, text: &str) {
        self.hook(self.names()[0], &json!({"prompt": text}));
    }

    /// A prompt after an undo, of which the agent is told.
    #[track_caller]
    pub fn prompt_after_undo(&self, text: &str) {
        let flags = ["--deadline-ms", "60000"];
        let hook = self.start_hook(self.names()[0], &json!({"prompt": text}), &flags);
        let done = finished(hook.wait_with_output().unwrap()).success();
        assert!(done.stdout.contains("[nono] Since your last turn"), "{}", done.stdout);
        assert_eq!(done.stderr, "");
    }

    pub fn call_of(&self, tool: &str, input: Value) -> Value {
        let mut call = json!({"tool_name": tool, "tool_input": input});
        // Gemini's calls have no ids.
        if self.client != "gemini" {
            self.calls.set(self.calls.get() + 1);
            call["tool_use_id"] = json!(format!("call_{}", self.calls.get()));
        }
        call
    }

    pub fn before(&self, call: &Value) {
        self.hook(self.names()[1], call);
    }

    pub fn after(&self, call: &Value) {
        self.hook(self.names()[2], call);
    }

    /// A tool call: the hook before, the work, the hook after.
    pub fn call(&self, tool: &str, input: Value, work: impl FnOnce()) {
        let call = self.call_of(tool, input);
        self.before(&call);
        work();
        self.after(&call);
    }

    /// A shell command.
    pub fn shell(&self, command: &str) {
        let tool = if self.client == "gemini" { "run_shell_command" } else { "Bash" };
        self.call(tool, json!({"command": command}), || {
            let mut shell = Command::new("sh");
            let done = shell.args(["-c", command]).current_dir(self.fixture.project()).status();
            assert!(done.unwrap().success());
        });
    }

    pub fn turn_end(&self) {
        self.hook(self.names()[3], &json!({}));
    }

    pub fn end(&self) {
        self.hook("SessionEnd", &json!({"reason": "other"}));
    }
}

pub fn start(mut command: Command, input: &str) -> Child {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A process that does not listen any more has ended.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child
}

#[track_caller]
pub fn quiet(child: Child) {
    let Finished { code, stdout, stderr } = finished(child.wait_with_output().unwrap());
    assert_eq!((code, &*stdout, &*stderr), (0, "", ""));
}

/// The steps of the newest session: number, words, kind.
pub fn steps(fixture: &Fixture) -> Vec<(u64, String, String)> {
    let report = fixture.nono(&["steps", "--json"]).success().json();
    let of = |prompt: &Value| prompt["steps"].as_array().unwrap().clone();
    let all = report["prompts"].as_array().unwrap().iter().flat_map(of);
    let told = |step: Value| {
        let text = |field: &str| step[field].as_str().unwrap_or_default().to_owned();
        let words = [text("tool"), text("title")].join(" ").trim().to_owned();
        (step["number"].as_u64().unwrap(), words, text("kind"))
    };
    all.map(told).collect()
}

pub fn told(number: u64, words: &str, kind: &str) -> (u64, String, String) {
    (number, words.to_owned(), kind.to_owned())
}

fn project(fixture: &Fixture) {
    fixture.write("README.md", "# hello\n");
    fixture.write("src/a.c", "int a;\n");
}

#[test]
fn each_tool_call_of_each_client_is_a_step_that_can_be_restored() {
    for client in ["claude-code", "codex", "gemini", "opencode"] {
        let fixture = Fixture::new();
        project(&fixture);
        let agent = Agent::new(&fixture, client);
        agent.hook("SessionStart", &json!({"source": "startup"}));
        agent.prompt("do the work");
        agent.shell("rm -rf src && echo x > new.txt");
        agent.call("Read", json!({"file_path": fixture.project().join("README.md")}), || {});
        let readme = fixture.project().join("README.md");
        agent.call("Edit", json!({"file_path": readme}), || {
            fixture.write("README.md", "# goodbye\n");
        });
        agent.shell("true");
        agent.turn_end();
        fixture.write("README.md", "# by hand\n");
        agent.prompt("more");
        agent.shell("echo made > made.txt");
        agent.turn_end();
        agent.end();

        let shell = if client == "gemini" { "run_shell_command" } else { "Bash" };
        assert_eq!(
            steps(&fixture),
            [
                told(1, &format!("{shell} rm -rf src && echo x > new.txt"), "tool"),
                told(2, "Edit README.md", "tool"),
                told(3, "", "user_edits"),
                told(4, &format!("{shell} echo made > made.txt"), "tool"),
            ],
            "{client}"
        );
        let report = fixture.nono(&["steps", "--json"]).success().json();
        assert_eq!(report["agent"]["client"], client);
        assert_eq!(report["prompts"][0]["text"], "do the work");
        assert_eq!(report["prompts"][1]["number"], 2);
        let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
        assert_eq!(list.as_array().unwrap().len(), 1);
        assert_eq!(list[0]["status"], "completed");
        // Each step is a state that comes back.
        let state = || {
            let read = |name: &str| fs::read_to_string(fixture.project().join(name)).ok();
            ["README.md", "src/a.c", "new.txt", "made.txt"].map(read)
        };
        let text = |text: &str| Some(text.to_owned());
        let states = [
            [text("# hello\n"), text("int a;\n"), None, None],
            [text("# hello\n"), None, text("x\n"), None],
            [text("# goodbye\n"), None, text("x\n"), None],
            [text("# by hand\n"), None, text("x\n"), None],
            [text("# by hand\n"), None, text("x\n"), text("made\n")],
        ];
        for (number, expected) in states.iter().enumerate() {
            let id = format!("latest#{number}");
            fixture.nono(&["rollback", "restore", &id]).success();
            assert_eq!(state(), *expected, "{client} {number}");
        }
        fixture.nono(&["rollback", "verify"]).success();
    }
}

#[test]
fn a_session_that_is_resumed_goes_on_in_the_same_session() {
    let fixture = Fixture::new();
    project(&fixture);
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("one");
    agent.shell("echo 1 > one");
    agent.end();
    // A cleaner removes all of it.
    fs::remove_dir_all(fixture.store().join(".agents")).unwrap();
    agent.hook("SessionStart", &json!({"source": "resume"}));
    agent.prompt("two");
    agent.shell("echo 2 > two");
    assert_eq!(steps(&fixture).len(), 2);
    let report = fixture.nono(&["steps", "--json"]).success().json();
    assert_eq!(report["prompts"][1]["number"], 2);
    assert_eq!(report["prompts"][1]["text"], "two");
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!((list.as_array().unwrap().len(), &list[0]["status"]), (1, &json!("open")));
}

#[test]
fn what_reads_or_asks_leaves_no_trace_in_the_store() {
    let fixture = Fixture::new();
    let agent = Agent::new(&fixture, "claude-code");
    for tool in ["Read", "Grep", "Glob", "WebFetch", "TodoWrite"] {
        agent.call(tool, json!({"file_path": "/etc/passwd"}), || {});
    }
    assert!(!fixture.store().exists());
}

#[test]
fn hooks_that_come_at_once_take_turns_and_none_is_lost() {
    let fixture = Fixture::new();
    project(&fixture);
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("all at once");
    let call = |number: usize| {
        let mut call = agent.call_of("Bash", json!({"command": format!("echo {number}")}));
        call["agent_id"] = json!(format!("subagent-{number}"));
        call
    };
    let calls: Vec<Value> = (0..6).map(call).collect();
    let at_once = |name: &str| {
        let start = |call| agent.start_hook(name, call, &["--deadline-ms", "60000"]);
        let children: Vec<_> = calls.iter().map(start).collect();
        children.into_iter().for_each(quiet);
    };
    at_once("PreToolUse");
    for number in 0..6 {
        fixture.write(&format!("file-{number}"), "new");
    }
    at_once("PostToolUse");
    let steps = steps(&fixture);
    // All files are there when the first hook comes, which alone finds something.
    assert_eq!(steps.len(), 1, "{steps:?}");
    let spool = fs::read_dir(fixture.store().join(".agents")).unwrap().next().unwrap().unwrap();
    let left = fs::read_dir(spool.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().ends_with(".event")).collect();
    assert!(left.is_empty(), "{left:?}");
    let report = fixture.nono(&["steps", "--json"]).success().json();
    assert_eq!(report["prompts"][0]["steps"][0]["overlapped"], true);
    fixture.nono(&["rollback", "verify"]).success();
}

#[test]
fn a_hook_that_is_killed_or_does_not_wait_loses_no_step() {
    let fixture = Fixture::new();
    project(&fixture);
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    for number in 0..5 {
        let call = agent.call_of("Bash", json!({"command": format!("echo {number}")}));
        agent.before(&call);
        fixture.write(&format!("file-{number}"), "new");
        let mut killed = agent.start_hook("PostToolUse", &call, &["--deadline-ms", "0"]);
        if number % 2 == 0 {
            killed.kill().unwrap();
        }
        killed.wait().unwrap();
    }
    // Comes after all of them, and waits for the worker.
    agent.end();
    let steps = steps(&fixture);
    let new: u64 = {
        let report = fixture.nono(&["steps", "--json"]).success().json();
        let of = |prompt: &Value| prompt["steps"].as_array().unwrap().clone();
        let all = report["prompts"].as_array().unwrap().iter().flat_map(of);
        all.map(|step| step["changes"]["created"].as_u64().unwrap()).sum()
    };
    assert_eq!(new, 5, "{steps:?}");
    fixture.nono(&["rollback", "verify"]).success();
}

#[test]
fn a_worker_that_is_killed_leaves_its_event_to_the_next_one() {
    let fixture = Fixture::new();
    project(&fixture);
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    let call = agent.call_of("Bash", json!({"command": "echo"}));
    agent.before(&call);
    fixture.write("new", "new");
    // As long as another worker holds the lock, the event stays.
    let spool = fs::read_dir(fixture.store().join(".agents")).unwrap();
    let spool = spool.map(|entry| entry.unwrap()).find(|it| it.path().is_dir()).unwrap().path();
    let lock = fs::File::options().write(true).open(spool.join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    quiet(agent.start_hook("PostToolUse", &call, &["--deadline-ms", "100"]));
    let events = || {
        let names = fs::read_dir(&spool).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().ends_with(".event")).count()
    };
    assert_eq!(events(), 1);
    drop(lock);
    agent.turn_end();
    assert_eq!(events(), 0);
    assert_eq!(steps(&fixture), [told(1, "Bash echo", "tool")]);
}

#[test]
fn a_store_that_cannot_be_written_is_not_noticed_by_the_agent() {
    let fixture = Fixture::ordinary_user();
    fs::create_dir_all(fixture.path("home/.nono/rollbacks")).unwrap();
    let agent = Agent::new(&fixture, "codex");
    // Owned by root, as far as the tests run as root; else by mode.
    let place = fixture.path("home/.nono/rollbacks");
    fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
    agent.hook("SessionStart", &json!({}));
    agent.shell("true");
    fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
}

#[test]
fn a_full_disk_of_the_store_is_not_noticed_by_the_agent_and_steps_go_on_when_there_is_space() {
    let fixture = Fixture::new();
    project(&fixture);
    let Some(disk) = SmallDisk::mount(&fixture.path("home/.nono"), 20_000) else { return };
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.shell("echo 1 > one");
    disk.fill();
    agent.shell("head -c 100000 /dev/urandom > large");
    fs::remove_file(disk.filler()).unwrap();
    agent.shell("echo 2 > two");
    let steps = steps(&fixture);
    let words: Vec<_> = steps.iter().map(|(_, words, _)| words.as_str()).collect();
    assert!(
        words.contains(&"Bash echo 1 > one") && words.contains(&"Bash echo 2 > two"),
        "{words:?}"
    );
    // Changes that could not be recorded at once are in a later step.
    let names = fixture.nono(&["rollback", "find", "large", "--json"]).success();
    assert!(names.stdout.contains("large"), "{}", names.stdout);
    fixture.nono(&["rollback", "verify"]).success();
}

#[test]
fn nonsense_on_the_input_and_in_the_arguments_is_no_error_for_the_client() {
    let fixture = Fixture::new();
    for input in ["", "{", "[]", "null", "{\"hook_event_name\":\"SessionStart\"}", "\u{0}"] {
        quiet(start(fixture.command(&["hook", "claude-code"]), input));
    }
    for arguments in
        [&["hook", "--no-such-flag"][..], &["hook", "a", "b", "c"], &["hook", "no-client"]]
    {
        quiet(start(fixture.command(arguments), "{}"));
    }
}

#[test]
fn a_client_that_never_ends_its_event_is_not_waited_for() {
    let fixture = Fixture::new();
    let mut command = fixture.command(&["hook", "claude-code", "--deadline-ms", "200"]);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let began = Instant::now();
    let held = child.stdin.take();
    quiet(child);
    assert!(began.elapsed() < Duration::from_secs(20));
    drop(held);
}

#[test]
fn directories_of_the_system_are_never_recorded_and_the_log_says_so() {
    for cwd in ["/proc", "/proc/self", "/sys/kernel", "/dev"] {
        let fixture = Fixture::new();
        let event = json!({"session_id": "s", "hook_event_name": "SessionStart", "cwd": cwd});
        let hook = fixture.command(&["hook", "claude-code", "--deadline-ms", "60000"]);
        quiet(start(hook, &event.to_string()));
        let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
        assert_eq!(list.as_array().unwrap().len(), 0, "{cwd}");
        let log = fs::read_to_string(fixture.store().join(".agents/log")).unwrap();
        assert!(log.contains("directories of the system"), "{log}");
    }
}

#[test]
fn a_home_directory_is_never_recorded_and_the_log_says_so() {
    let fixture = Fixture::new();
    let event = json!({
        "session_id": "s", "hook_event_name": "SessionStart", "cwd": fixture.path("home"),
    });
    let hook = fixture.command(&["hook", "claude-code", "--deadline-ms", "60000"]);
    quiet(start(hook, &event.to_string()));
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list.as_array().unwrap().len(), 0);
    let log = fs::read_to_string(fixture.store().join(".agents/log")).unwrap();
    assert!(log.contains("a home directory"), "{log}");
    // Nothing went wrong.
    let found = fixture.nono(&["doctor", "--json"]).json();
    let agents = found.as_array().unwrap().iter().find(|found| found["what"] == "agents");
    assert_eq!(agents.unwrap()["ok"], true, "{found}");
    assert!(fixture.nono(&["agent", "status"]).says("a home directory"));
}

#[test]
fn what_a_background_command_writes_after_its_call_is_late() {
    let fixture = Fixture::new();
    project(&fixture);
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("build");
    let writer = json!({"command": "make watch", "run_in_background": true});
    agent.call("Bash", writer, || {});
    fixture.write("built", "1");
    agent.shell("echo 1 > one");
    assert_eq!(
        steps(&fixture),
        [told(1, "make watch", "late"), told(2, "Bash echo 1 > one", "tool")]
    );
}

#[test]
fn inside_a_run_the_steps_are_in_the_session_of_the_run() {
    let fixture = Fixture::new();
    project(&fixture);
    let program = env!("CARGO_BIN_EXE_nono");
    let event = |name: &str, more: &str| {
        format!(
            r#"printf '%s' '{{"session_id":"s","cwd":"{}","hook_event_name":"{name}"{more}}}' | {program} hook claude-code --deadline-ms 60000"#,
            fixture.project().display()
        )
    };
    let call = r#","tool_name":"Bash","tool_use_id":"c","tool_input":{"command":"rm -rf src"}"#;
    let script = [
        event("SessionStart", ""),
        event("UserPromptSubmit", r#","prompt":"tidy up""#),
        event("PreToolUse", call),
        "rm -rf src".to_owned(),
        event("PostToolUse", call),
        "echo more > more".to_owned(),
        event("SessionEnd", ""),
    ];
    let ran = fixture.record(&script.join("\n")).success();
    assert!(!ran.stdout.contains("nono"), "{}", ran.stdout);
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!(list[0]["agent"], json!({"client": "claude-code", "session_id": "s"}));
    assert_eq!(steps(&fixture), [told(1, "Bash rm -rf src", "tool"), told(2, "", "user_edits")]);
    fixture.nono(&["rollback", "verify"]).success();
}

#[test]
fn the_list_of_steps_has_times_and_the_users_own_edits_as_such() {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    let agent = Agent::new(&fixture, "claude-code");
    agent.hook("SessionStart", &json!({"source": "startup"}));
    agent.prompt("first");
    let edit = |text: &str| {
        agent.call("Edit", json!({"file_path": "a"}), || {
            fixture.write("a", text);
        });
    };
    edit("1");
    fixture.write("a", "2");
    edit("3");
    agent.end();
    let listed = fixture.nono(&["steps"]).success().stdout;
    let steps: Vec<&str> = listed.lines().filter(|line| line.starts_with("  #")).collect();
    assert_eq!(steps.len(), 3, "{listed}");
    for step in &steps {
        let is_time = |word: &str| word.len() == 5 && word.as_bytes()[2] == b':';
        assert!(step.split_whitespace().take(3).any(is_time), "{listed}");
    }
    assert!(steps[1].contains("  your own edits"), "{listed}");
    assert!(!steps[0].contains("your own") && !steps[2].contains("your own"), "{listed}");
}
