//! `nono mount` and `nono umount` as a person runs them: the real program, in the background.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use rustix::process::{PidfdFlags, pidfd_open};
use tempfile::TempDir;

use crate::not_run::not_run;

/// A home directory with a store in it.
struct Home {
    path: PathBuf,
    _temp: TempDir,
}

impl Home {
    /// A home with one recorded session. `None`, loudly, where nothing can be mounted.
    fn new() -> Option<Self> {
        let temp = TempDir::new().unwrap();
        let home = Self { path: temp.path().canonicalize().unwrap(), _temp: temp };
        fs::create_dir(home.path.join("project")).unwrap();
        fs::write(home.path.join("project/file"), "text").unwrap();
        home.ok(&["snapshot", "project"]);
        let tried = home.nono(&["mount"]);
        let said = text(&tried.stderr);
        if !tried.status.success()
            && ["/dev/fuse", "fuse3", "no permission"].iter().any(|word| said.contains(word))
        {
            not_run(said);
            return None;
        }
        assert!(tried.status.success(), "{said}");
        home.ok(&["umount"]);
        Some(home)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        // The parent of the tests may ignore signals (`nohup`, a job in the background), which is
        // inherited.
        let mut command = Command::new("env");
        command.args(["--default-signal=HUP", "--default-signal=INT"]);
        command.arg(env!("CARGO_BIN_EXE_nono")).args(arguments);
        command.current_dir(&self.path).env("HOME", &self.path);
        command.env("LC_ALL", "C").env_remove("NONO_ROOT").env_remove("XDG_STATE_HOME");
        command.stdin(Stdio::null());
        command
    }

    fn nono(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must succeed, and returns what it says on both outputs.
    fn ok(&self, arguments: &[&str]) -> (String, String) {
        let output = self.nono(arguments);
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        (text(&output.stdout), text(&output.stderr))
    }

    /// Runs a command that must fail with code 1 and this reason, and a hint.
    fn refused(&self, arguments: &[&str], reason: &str) {
        let output = self.nono(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {output:?}");
        assert!(said.contains(reason) && said.contains("hint:"), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty());
    }

    fn names(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path.join(path)) else { return Vec::new() };
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Mounts that this home's tests made, as `--status --json` lists them.
    fn mounts(&self) -> Vec<serde_json::Value> {
        let (json, _) = self.ok(&["mount", "--status", "--json"]);
        let all: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
        let ours = |mount: &serde_json::Value| {
            Path::new(mount["directory"].as_str().unwrap()).starts_with(&self.path)
        };
        all.into_iter().filter(ours).collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // Mounts that a failed test left behind.
        for mount in self.mounts() {
            let _ = self.nono(&["umount", mount["directory"].as_str().unwrap()]);
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < patience, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_mount_is_usable_when_the_prompt_returns_and_gone_after_umount() {
    let Some(home) = Home::new() else { return };
    let (out, said) = home.ok(&["mount"]);
    assert!(out.is_empty());
    assert!(said.contains("mounted at") && said.contains("nono umount"), "{said}");
    let past = format!("snapshots/latest/latest{}/project/file", home.path.display());
    assert_eq!(fs::read_to_string(home.path.join(past)).unwrap(), "text");
    let mounts = home.mounts();
    assert_eq!(mounts.len(), 1);
    assert_eq!(mounts[0]["alive"], true);
    assert_eq!(mounts[0]["root"], home.path.join(".nono/rollbacks").to_str().unwrap());
    for again in [&["mount"][..], &["mount", "./snapshots"]] {
        assert!(home.ok(again).1.contains("mounted already at"));
    }
    assert_eq!(home.mounts().len(), 1);
    home.refused(&["mount", "--session", "latest"], "mounted there already");

    home.ok(&["umount"]);
    assert!(home.names("snapshots").is_empty() && home.mounts().is_empty());
    home.refused(&["umount"], "nothing of nono is mounted");
}

/// The process in the background, in `/proc`.
fn server(home: &Home) -> PathBuf {
    let ours = |process: &Path| {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        let variables: Vec<_> = environment.split(|byte| *byte == 0).collect();
        let home = format!("HOME={}", home.path.display());
        variables.contains(&&b"NONO_IN_BACKGROUND=1"[..]) && variables.contains(&home.as_bytes())
    };
    let mut processes = fs::read_dir("/proc").unwrap().map(|process| process.unwrap().path());
    processes.find(|process| ours(process)).expect("it runs")
}

/// The process beside it, which ends it when it is killed at the worst moment.
fn guard(server: &Path) -> Option<PathBuf> {
    let threads = fs::read_dir(server.join("task")).unwrap();
    let children =
        |thread: fs::DirEntry| fs::read_to_string(thread.path().join("children")).unwrap();
    let children: String = threads.map(|thread| children(thread.unwrap())).collect();
    let mut children = children.split_whitespace().map(|child| Path::new("/proc").join(child));
    let called = |child: &Path| fs::read(child.join("cmdline")).unwrap_or_default();
    children.find(|child| text(&called(child)).contains("\0__mount-guard\0"))
}

/// Whether only its parent may still know of it.
fn has_ended(process: &Path) -> bool {
    fs::read(process.join("cmdline")).unwrap_or_default().is_empty()
}

/// Whether a process has said what signals of these numbers mean.
fn catches(process: &Path, signals: &[u32]) -> bool {
    let status = fs::read_to_string(process.join("status")).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
    signals.iter().all(|signal| caught >> (signal - 1) & 1 == 1)
}

#[test]
fn a_mount_has_a_guard_that_ends_with_it_and_not_before() {
    let of_a_thread = PidfdFlags::from_bits_retain(OFlags::EXCL.bits());
    if let Err(error) = pidfd_open(rustix::thread::gettid(), of_a_thread) {
        not_run(format_args!("guards need Linux 6.9: {error}"));
        return;
    }
    let Some(home) = Home::new() else { return };
    let kill = |signal: &str, process: &Path| {
        let id = process.file_name().unwrap();
        assert!(Command::new("kill").arg(signal).arg(id).status().unwrap().success());
    };
    for end in ["umount", "-TERM", "-KILL"] {
        home.ok(&["mount"]);
        let server = server(&home);
        eventually("it has a guard", || guard(&server).is_some());
        let guard = guard(&server).unwrap();
        eventually("it is ready for signals", || catches(&guard, &[1, 2, 15]));
        for signal in ["-TERM", "-INT", "-HUP"] {
            kill(signal, &guard);
        }
        assert!(!has_ended(&guard), "{guard:?}");
        assert_eq!(home.names("snapshots").len(), 3, "{:?}", home.names("snapshots"));
        match end {
            "umount" => drop(home.ok(&["umount"])),
            signal => kill(signal, &server),
        }
        eventually("both are gone", || has_ended(&server) && has_ended(&guard));
        assert_eq!(home.mounts().len(), usize::from(end == "-KILL"));
    }
}

/// Bytes of its own that the process in the background has in memory.
#[cfg(target_env = "gnu")]
fn own_memory(home: &Home) -> u64 {
    let process = server(home);
    let status = fs::read_to_string(process.join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim_end_matches("kB").trim().parse::<u64>().unwrap() * 1024
}

#[test]
#[cfg(target_env = "gnu")]
fn what_a_large_file_took_to_verify_is_given_back() {
    const BUFFERS: u64 = 12 << 20;
    let Some(home) = Home::new() else { return };
    fs::write(home.path.join("project/large"), vec![7; 40 << 20]).unwrap();
    home.ok(&["snapshot", "project"]);
    home.ok(&["mount"]);
    let past = format!("snapshots/latest/latest{}/project/large", home.path.display());
    let past = home.path.join(past);
    fs::metadata(&past).unwrap();
    let before = own_memory(&home);
    assert_eq!(fs::read(&past).unwrap().len(), 40 << 20);
    // The thread that verified may still be ending.
    eventually("it gives back", || own_memory(&home) < before + BUFFERS / 2);
    home.ok(&["umount"]);
}

#[test]
fn a_part_of_the_store_can_be_mounted() {
    let Some(home) = Home::new() else { return };
    let (json, _) = home.ok(&["mount", "--session", "latest", "--owner", "me", "--json", "one"]);
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["directory"], home.path.join("one").to_str().unwrap());
    assert_eq!(home.names("one"), ["0", "latest"]);
    assert_eq!(home.mounts()[0]["session"], report["session"]);
    home.ok(&["mount", "--path", "project/sub", "two"]);
    assert_eq!(home.names("two").len(), 3);
    home.ok(&["mount", "--path", "elsewhere", "three"]);
    assert!(home.names("three").is_empty());
    home.refused(&["mount", "--session", "nope", "four"], "there is no session");
    assert!(!home.path.join("four").exists());
    for directory in ["one", "two", "three"] {
        home.ok(&["umount", directory]);
    }
}

#[test]
fn bad_mount_points_are_refused_with_a_reason_and_a_hint() {
    let Some(home) = Home::new() else { return };
    fs::write(home.path.join("file"), "").unwrap();
    fs::create_dir(home.path.join(".nono/rollbacks/empty")).unwrap();
    symlink(".nono/rollbacks/empty", home.path.join("link")).unwrap();
    home.refused(&["mount", "file"], "it is not a directory");
    home.refused(&["mount", "project"], "not empty");
    home.refused(&["mount", "missing/dir"], "it does not exist");
    home.refused(&["mount", "."], "it contains the store");
    home.refused(&["mount", ".nono/rollbacks/empty"], "it is inside the store");
    home.refused(&["mount", "link"], "it is inside the store");
    home.refused(&["mount", ".nono/rollbacks/new"], "it is inside the store");
    assert!(!home.path.join(".nono/rollbacks/new").exists());
    assert!(home.mounts().is_empty());
    let usage = home.nono(&["mount", "--session", "a", "--path", "b"]);
    assert_eq!(usage.status.code(), Some(2));
}

#[test]
fn a_signal_ends_a_mount_cleanly_even_when_it_is_in_use() {
    let Some(home) = Home::new() else { return };
    for (signal, busy) in [("-INT", false), ("-TERM", false), ("-HUP", true)] {
        let mut command = home.command(&["mount", "--foreground", "mnt"]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        // This process opens nothing in it: the children of other tests would use it until they
        // start their programs.
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("Ctrl-C unmounts") {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "it ends");
        }
        let user = busy.then(|| fs::File::open(home.path.join("mnt/latest")).unwrap());
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        eventually("it ends", || child.try_wait().unwrap().is_some());
        assert!(child.wait().unwrap().success());
        line.clear();
        said.read_to_string(&mut line).unwrap();
        assert_eq!(line.contains("while in use"), busy, "{line}");
        assert!(home.mounts().is_empty() && home.names("mnt").is_empty());
        drop(user);
    }
}

#[test]
fn a_mount_whose_process_died_is_replaced() {
    let Some(home) = Home::new() else { return };
    fs::create_dir(home.path.join("mnt")).unwrap();
    let mut child =
        home.command(&["mount", "--foreground", "mnt"]).stderr(Stdio::null()).spawn().unwrap();
    eventually("it is mounted", || home.names("mnt").len() == 3);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(home.mounts()[0]["alive"], false);
    let (listed, _) = home.ok(&["mount", "--status"]);
    assert!(listed.contains("(dead"), "{listed}");
    let doctor = home.command(&["doctor"]).output().unwrap();
    assert_eq!(doctor.status.code(), Some(1));
    let found = String::from_utf8_lossy(&doctor.stdout).into_owned();
    let mend = format!("nono umount {}", home.path.join("mnt").display());
    assert!(found.contains("their process is gone") && found.contains(&mend), "{found}");
    let (_, said) = home.ok(&["mount", "mnt"]);
    assert!(said.contains("replaced"), "{said}");
    assert_eq!(home.names("mnt").len(), 3);
    home.ok(&["umount", "mnt"]);
}

#[test]
fn a_mount_before_the_first_session_shows_it_when_it_comes() {
    let Some(home) = Home::new() else { return };
    home.ok(&["mount", "--root", "later", "mnt"]);
    assert!(home.names("mnt").is_empty());
    home.ok(&["snapshot", "--root", "later", "project"]);
    eventually("it is shown", || home.names("mnt").len() == 3);
    home.ok(&["umount", "mnt"]);
}

#[test]
fn nohup_keeps_a_mount_when_the_terminal_closes() {
    let Some(home) = Home::new() else { return };
    let program = env!("CARGO_BIN_EXE_nono");
    let mut command = Command::new("nohup");
    command.args([program, "mount", "--foreground", "mnt"]).current_dir(&home.path);
    command.env("HOME", &home.path).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    eventually("it is mounted", || home.names("mnt").len() == 3);
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    // A signal is handled before the one that is sent after it.
    assert_eq!(home.names("mnt").len(), 3);
    assert!(child.try_wait().unwrap().is_none());
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    eventually("it ends", || child.try_wait().unwrap().is_some());
    assert!(home.names("mnt").is_empty());
}

#[test]
fn the_state_before_a_run_is_shown_while_it_goes_on_and_after_it_was_killed() {
    let Some(home) = Home::new() else { return };
    let pipe = home.path.join("pipe");
    mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    home.ok(&["mount"]);
    let script = "echo changed > file; read line < ../pipe";
    let pipe = pipe.to_str().unwrap();
    let mut run = home.command(&["run", "--rollback", "--read", pipe, "--", "sh", "-c", script]);
    // The flush of the baseline never ends.
    let held = home.path.join("flush");
    mkfifoat(CWD, &held, Mode::RUSR | Mode::WUSR).unwrap();
    run.env("NONO_FAIL_POINT", format!("flush:hold@{}", held.display()));
    let mut run = run.current_dir(home.path.join("project")).spawn().unwrap();
    let project = home.path.join("project");
    eventually("the command changes the file", || {
        fs::read_to_string(project.join("file")).unwrap() == "changed\n"
    });
    let past = home.path.join("snapshots/latest/0").join(project.strip_prefix("/").unwrap());
    let seen = || fs::read_to_string(past.join("file")).unwrap_or_default();
    eventually("a running session is shown", || seen() == "text");
    run.kill().unwrap();
    run.wait().unwrap();
    let session = fs::read_link(home.path.join("snapshots/latest")).unwrap();
    assert_eq!(seen(), "text");
    assert_eq!(home.names("snapshots/latest"), ["0", "latest"]);
    // No other command was run since; that it is published by the next one changes nothing.
    let dir = home.path.join(".nono/rollbacks").join(&session).join("snapshots/0");
    assert!(!dir.join("manifest.json").exists());
    home.ok(&["rollback", "list"]);
    assert!(dir.join("manifest.json").exists());
    assert_eq!(seen(), "text");
    home.ok(&["umount"]);
}
