//! A container engine of the tests' own: socket, data root and exec root in a temporary directory,
//! and all data on an ext4 image in memory. `engine.rs` says which engine it is.
//!
//! The daemon is started once for the test binary, and lazily. A shell beside it, the *warden*,
//! holds the other end of a pipe. When the test process ends, in any way, the pipe closes: the
//! daemon and all containers are killed with their process namespace, and the image is unmounted.
//! A paused container goes on before: with version 1 of control groups, what stands still does not
//! die. The volumes' directories are visible outside, as those of any local daemon are.

#![allow(dead_code, reason = "the tests of one subject need few parts")]

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::engine::Engine;
use crate::fixture::{Finished, Fixture, finished};
use crate::not_run::{needs_root, not_run};

/// The image of all tests: busybox and nothing else.
pub const IMAGE: &str = "nono-test/busybox:1";

/// How long a step of the daemon may take.
const LIMIT: Duration = Duration::from_secs(60);

/// The programs in the image, each a link to busybox.
const APPLETS: [&str; 29] = [
    "cat", "chmod", "chown", "cmp", "cp", "date", "dd", "echo", "env", "false", "find", "grep",
    "head", "httpd", "id", "kill", "ln", "ls", "mkdir", "mv", "nc", "rm", "sh", "sleep", "stat",
    "sync", "touch", "true", "wc",
];

/// The script of the warden. `$1` is the directory of the daemon, `$2` the image file; the others
/// are the command of the daemon.
const WARDEN: &str = r#"
set -e
dir=$1
mkdir "$dir/data" "$dir/exec"
mount -o loop,discard "$2" "$dir/data"
# From now on the loop device alone keeps the image.
rm -f "$2"
shift 2
# Lets every container of the directory $1 go on, whatever its engine knows of it.
thaw='for id in $(ls "$1/data/containers" "$1/data/overlay-containers" 2>/dev/null); do
    find /sys/fs/cgroup -path "*$id*" -name freezer.state | while read -r state; do
        echo THAWED >"$state"
    done
done'
# A daemon that ended is started again when a file asks for it. The shell stays: it reaps what the
# daemon leaves behind. At the end it kills all others, and then what stands still can die.
serve='dir=$1; thaw=$2; shift 2
    while :; do
        rm -f "$dir/pid"
        "$@" >>"$dir/log" 2>&1
        until [ -e "$dir/again" ]; do sleep 0.02; done
        rm "$dir/again"
    done & cat >/dev/null; kill -KILL -1; sh -c "$thaw" sh "$dir"; exit 0'
unshare --mount --pid --fork --kill-child=KILL --mount-proc \
    sh -c "$serve" sh "$dir" "$thaw" "$@" || :
# The namespace was killed from outside.
sh -c "$thaw" sh "$dir" || :
for id in $(ls "$dir/data/containers" "$dir/data/overlay-containers" 2>/dev/null); do
    find /sys/fs/cgroup -depth -type d -path "*$id*" -exec rmdir {} + 2>/dev/null || :
done
umount "$dir/data" || umount -l "$dir/data"
rm -rf "$dir"
"#;

/// A running daemon; it ends with the value, or with the process that holds it.
pub struct Daemon {
    dir: PathBuf,
    engine: Engine,
    warden: Child,
    /// Never written to: its end is the end of the daemon.
    alive: Option<ChildStdin>,
}

/// The daemon that all tests share. `None`, and said so, where none can be started.
pub fn daemon() -> Option<&'static Daemon> {
    static SHARED: OnceLock<Option<Daemon>> = OnceLock::new();
    if !rustix::process::geteuid().is_root() {
        needs_root("starts a container engine");
        return None;
    }
    let daemon = SHARED.get_or_init(Daemon::start).as_ref();
    if daemon.is_none() {
        not_run("no container engine can be started");
    }
    daemon
}

impl Daemon {
    /// A daemon for one test alone, for example to stop it. `None` where none can be started.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// The same with options of its own.
    pub fn start_with(options: &[&str]) -> Option<Self> {
        Self::start_on(8 << 30, &[], options)
    }

    /// The same on a file system of this length, made with these options of `mkfs.ext4`.
    pub fn start_on(bytes: u64, made_with: &[&str], options: &[&str]) -> Option<Self> {
        let engine = Engine::chosen();
        let dir = tempfile::Builder::new().prefix("nono-docker-").tempdir_in("/var/tmp").unwrap();
        let image = tempfile::Builder::new().prefix("nono-docker-").tempfile_in("/dev/shm");
        let (_, image) = image.ok()?.keep().unwrap();
        fs::File::options().write(true).open(&image).unwrap().set_len(bytes).unwrap();
        let mut made = Command::new("mkfs.ext4");
        made.args(["-q", "-F", "-m", "0"]);
        let made = made.args(made_with).arg(&image).status();
        if !made.is_ok_and(|status| status.success()) {
            fs::remove_file(&image).unwrap();
            return None;
        }
        // The warden removes the directory.
        let dir = dir.keep();
        open_to_all(&dir, 0o755);
        let mut command = Command::new("sh");
        command.args(["-c", WARDEN, "sh"]).arg(&dir).arg(&image);
        command.args(engine.command(&dir)).args(options).envs(engine.settings(&dir));
        // A Ctrl-C for the tests is none for the warden.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).process_group(0);
        let mut warden = command.spawn().unwrap();
        let alive = warden.stdin.take();
        let mut daemon = Self { dir, engine, warden, alive };
        if !daemon.becomes_ready() {
            let log = fs::read_to_string(daemon.dir.join("log")).unwrap_or_default();
            eprintln!("no {engine:?}: {log}");
            return None;
        }
        // An ordinary user in the tests talks to the daemon, too; it has no access to volumes.
        open_to_all(&daemon.socket(), 0o666);
        daemon.import_image();
        Some(daemon)
    }

    /// `false` if it ended instead.
    fn becomes_ready(&mut self) -> bool {
        let started = Instant::now();
        while self.warden.try_wait().unwrap().is_none() {
            if UnixStream::connect(self.socket()).is_ok() && self.docker(&["version"]).code == 0 {
                return true;
            }
            assert!(started.elapsed() < LIMIT, "the engine does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    fn import_image(&self) {
        let root = tempfile::tempdir().unwrap();
        for dir in ["bin", "etc", "tmp"] {
            fs::create_dir(root.path().join(dir)).unwrap();
        }
        fs::write(root.path().join("etc/passwd"), "root:x:0:0::/:/bin/sh\n").unwrap();
        fs::write(root.path().join("etc/image"), "of the image\n").unwrap();
        fs::copy("/bin/busybox", root.path().join("bin/busybox")).unwrap();
        for applet in APPLETS {
            std::os::unix::fs::symlink("busybox", root.path().join("bin").join(applet)).unwrap();
        }
        self.import(root.path(), IMAGE);
    }

    /// Makes an image of a directory.
    pub fn import(&self, root: &Path, name: &str) {
        let mut tar = Command::new("tar");
        tar.args(["--numeric-owner", "--owner=0", "--group=0", "-c", "."]).current_dir(root);
        let tar = tar.output().unwrap();
        assert!(tar.status.success(), "{}", String::from_utf8_lossy(&tar.stderr));
        let mut import = self.docker_command(&["import", "-", name]);
        import.stdin(Stdio::piped()).stdout(Stdio::null());
        let mut import = import.spawn().unwrap();
        import.stdin.take().unwrap().write_all(&tar.stdout).unwrap();
        assert!(import.wait().unwrap().success());
    }

    /// Makes an image of a container. The request of `docker` itself has no body, which Podman
    /// refuses.
    pub fn commit(&self, container: &str, image: &str) {
        let (repository, tag) = image.split_once(':').unwrap();
        let request = format!(
            "POST /commit?container={container}&repo={repository}&tag={tag} HTTP/1.1\r\nHost: x\r\n\
             Content-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
        );
        let mut socket = UnixStream::connect(self.socket()).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }

    /// The engine behind the socket.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("docker.sock")
    }

    /// The value of `DOCKER_HOST`.
    pub fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// The directory of a volume, as the daemon tells it to clients.
    pub fn volume_dir(&self, volume: &str) -> PathBuf {
        self.dir.join("data/volumes").join(volume).join("_data")
    }

    /// The `docker` program with these arguments.
    pub fn docker_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("docker");
        command.arg("-H").arg(self.host()).args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs the `docker` program.
    pub fn docker(&self, arguments: &[&str]) -> Finished {
        finished(self.docker_command(arguments).output().unwrap())
    }

    /// Runs the `docker` program, which has to succeed; its output without the last line's end.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> String {
        self.docker(arguments).success().stdout.trim_end().to_owned()
    }

    /// Facts about a container, or any other object of the daemon.
    #[track_caller]
    pub fn inspect(&self, name: &str) -> Value {
        let json = self.docker(&["inspect", name]).success().json();
        json[0].clone()
    }

    /// The state of a container: `running`, `paused`, `exited`, …; `None` if there is none.
    pub fn state(&self, container: &str) -> Option<String> {
        let done = self.docker(&["inspect", "--type=container", container]);
        let state = || done.json()[0]["State"]["Status"].as_str().unwrap().to_owned();
        (done.code == 0).then(state)
    }

    /// Runs a shell script in a running container; its output without the last line's end.
    #[track_caller]
    pub fn sh(&self, container: &str, script: &str) -> String {
        self.run(&["exec", container, "sh", "-c", script])
    }

    /// Waits until a condition holds.
    #[track_caller]
    pub fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let started = Instant::now();
        while !condition() {
            assert!(started.elapsed() < LIMIT, "not in time: {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A name that no other test and no other call has.
    pub fn unique(&self, name: &str) -> String {
        use std::sync::atomic::{AtomicU64, Ordering};
        static COUNT: AtomicU64 = AtomicU64::new(0);
        format!("{name}-{}", COUNT.fetch_add(1, Ordering::Relaxed))
    }

    /// The program in a fixture, connected with this daemon.
    pub fn command(&self, fixture: &Fixture, arguments: &[&str]) -> Command {
        let mut command = fixture.command(arguments);
        command.env("DOCKER_HOST", self.host());
        command
    }

    /// Runs the program in a fixture, connected with this daemon.
    pub fn nono(&self, fixture: &Fixture, arguments: &[&str]) -> Finished {
        finished(self.command(fixture, arguments).output().unwrap())
    }

    /// Kills the engine alone, as a crash would; its containers die with their supervisor or stay.
    pub fn kill(&self) {
        let children = self.processes(self.engine.program());
        assert!(!children.is_empty(), "the engine does not run");
        for pid in children {
            kill_process(pid, Signal::KILL).unwrap();
        }
        self.until("the daemon is gone", || UnixStream::connect(self.socket()).is_err());
    }

    /// Starts the daemon again after [`kill`](Self::kill).
    pub fn restart(&self) {
        fs::write(self.dir.join("again"), "").unwrap();
        self.until("the daemon answers", || self.docker(&["version"]).code == 0);
        open_to_all(&self.socket(), 0o666);
    }

    /// Stops (`Signal::STOP`) or continues the engine, so that no request is answered meanwhile.
    pub fn signal(&self, signal: Signal) {
        for pid in self.processes(self.engine.program()) {
            kill_process(pid, signal).unwrap();
        }
    }

    /// Processes of this program with the directory of this daemon in their arguments.
    fn processes(&self, program: &str) -> Vec<Pid> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            let is_program = line.split('\0').next().is_some_and(|word| word.ends_with(program));
            if is_program && line.contains(self.dir.to_str().unwrap()) {
                found.extend(Pid::from_raw(pid));
            }
        }
        found
    }
}

impl Daemon {
    /// Ends it where nothing drops it.
    pub fn end(&'static self) {
        for pid in self.processes("unshare") {
            kill_process(pid, Signal::KILL).unwrap();
        }
        self.until("the daemon is gone", || !self.dir.exists());
    }
}

fn open_to_all(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // End of file for the warden.
        drop(self.alive.take());
        let started = Instant::now();
        while self.warden.try_wait().is_ok_and(|ended| ended.is_none()) {
            if started.elapsed() >= LIMIT {
                eprintln!("the warden of {} does not end", self.dir.display());
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A container that a test describes, and its removal with its anonymous volumes.
pub struct Container {
    daemon: &'static Daemon,
    pub name: String,
}

impl Container {
    /// A running container that sleeps. `options` are those of `docker run`: `-v name:/data`,
    /// `-v /data`, `-v /host:/bound`, `-e A=b`, `--health-cmd …`.
    #[track_caller]
    pub fn run(daemon: &'static Daemon, name: &str, options: &[&str]) -> Self {
        Self::made(daemon, IMAGE, "run", name, options, &["sleep", "1000000"])
    }

    /// The same of another image, with a command of its own.
    #[track_caller]
    pub fn run_image(
        daemon: &'static Daemon,
        image: &str,
        name: &str,
        options: &[&str],
        command: &[&str],
    ) -> Self {
        Self::made(daemon, image, "run", name, options, command)
    }

    /// The same with a command of its own.
    #[track_caller]
    pub fn run_command(
        daemon: &'static Daemon,
        name: &str,
        options: &[&str],
        command: &[&str],
    ) -> Self {
        Self::made(daemon, IMAGE, "run", name, options, command)
    }

    /// The root directory of the running container, as its process sees it: through `/proc`, with a
    /// number of the process that is ours and not that of the engine's namespace.
    #[track_caller]
    pub fn root(&self) -> PathBuf {
        let found = self.daemon.inspect(&self.name);
        let list = format!("*{}*/cgroup.procs", found["Id"].as_str().unwrap());
        let mut find = Command::new("find");
        let lists = find.args(["/sys/fs/cgroup", "-path", &list]).output().unwrap().stdout;
        let lists = String::from_utf8(lists).unwrap();
        let numbers = lists.lines().filter_map(|list| fs::read_to_string(list).ok());
        let number = numbers.filter_map(|text| Some(text.lines().next()?.to_owned())).next();
        PathBuf::from(format!("/proc/{}/root", number.expect("a process of the container")))
    }

    /// A container that was created and never started.
    #[track_caller]
    pub fn create(daemon: &'static Daemon, name: &str, options: &[&str]) -> Self {
        Self::made(daemon, IMAGE, "create", name, options, &["sleep", "1000000"])
    }

    #[track_caller]
    fn made(
        daemon: &'static Daemon,
        image: &str,
        verb: &str,
        name: &str,
        options: &[&str],
        command: &[&str],
    ) -> Self {
        let name = daemon.unique(name);
        let mut arguments = vec![verb, "--name", &name];
        if verb == "run" {
            arguments.push("-d");
        }
        // The daemon has no bridge.
        if !options.iter().any(|option| option.starts_with("--network")) {
            arguments.extend(["--network", "none"]);
        }
        // Podman gives a process that ignores a request to end ten seconds, also for a removal.
        if daemon.engine == Engine::Podman && !options.contains(&"--stop-signal") {
            arguments.extend(["--stop-signal", "KILL"]);
        }
        arguments.extend(options);
        arguments.push(image);
        arguments.extend(command);
        daemon.run(&arguments);
        Self { daemon, name }
    }

    /// Runs a shell script in it.
    #[track_caller]
    pub fn sh(&self, script: &str) -> String {
        self.daemon.sh(&self.name, script)
    }

    pub fn state(&self) -> Option<String> {
        self.daemon.state(&self.name)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.daemon.docker(&["rm", "-f", "-v", &self.name]);
    }
}
