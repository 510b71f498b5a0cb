//! A project, a store and a home directory of their own for one test, and the real program.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

use nono_engine::object::FileTime;
use serde_json::Value;

use crate::not_run::not_run;

/// An id that is no account's on any machine: the ordinary user of the tests.
const ORDINARY_USER: u32 = 54_321;

pub struct Fixture {
    temp: tempfile::TempDir,
    user: Option<u32>,
    program: PathBuf,
    is_packed: bool,
    ignored: Option<&'static str>,
}

pub struct Finished {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    #[track_caller]
    pub fn success(self) -> Self {
        assert_eq!(self.code, 0, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// Failed with this code, and said why.
    #[track_caller]
    pub fn fails(self, code: i32, message: &str) -> Self {
        assert_eq!(self.code, code, "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        assert!(self.stderr.contains(message), "{message:?} is not in: {}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }

    /// Whether it said this.
    pub fn says(&self, text: &str) -> bool {
        self.stdout.contains(text) || self.stderr.contains(text)
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}\n{}", self.stdout, self.stderr))
    }
}

/// The flag with which a restore needs no answer: a test has no terminal, unless it makes one.
fn unasked(arguments: &[&str]) -> Option<&'static str> {
    let before = ["rollback", "undo", "--root"];
    let at = arguments.iter().position(|word| *word == "restore")?;
    let is_command = arguments[..at]
        .iter()
        .enumerate()
        .all(|(at, word)| before.contains(word) || at > 0 && arguments[at - 1] == "--root");
    let has_answer = ["--yes", "-y", "--dry-run", "--to"];
    (is_command && !arguments.iter().any(|word| has_answer.contains(word))).then_some("--yes")
}

impl Fixture {
    /// As the user who runs the tests. In a directory that no built-in grant reaches: a test in
    /// `/tmp` and `/dev/shm`, in whose place a command has others, proves nothing. `scripts/test`
    /// mounts an ext4 image in memory and names it in `NONO_TEST_DIR`.
    pub fn new() -> Self {
        let Some(ground) = std::env::var_os("NONO_TEST_DIR") else {
            return Self::in_dir(tempfile::tempdir_in("/var/tmp").unwrap());
        };
        // Together as long as a directory right below `/var/tmp`: terminals break lines.
        let temp = tempfile::Builder::new().prefix("").rand_bytes(5).tempdir_in(ground);
        Self::in_dir(temp.unwrap())
    }

    /// Below `/tmp`, as many programs' test projects are.
    pub fn in_tmp() -> Self {
        Self::in_dir(tempfile::tempdir_in("/tmp").unwrap())
    }

    /// On a file system in memory where there is one, for tests that flush very often. These tests
    /// prove nothing about the walls.
    pub fn in_memory() -> Self {
        let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self::in_dir(temp.unwrap())
    }

    /// In a directory of its own below this one.
    pub fn below(place: &Path) -> Self {
        Self::in_dir(tempfile::tempdir_in(place).unwrap())
    }

    fn in_dir(temp: tempfile::TempDir) -> Self {
        fs::create_dir(temp.path().join("project")).unwrap();
        fs::create_dir(temp.path().join("home")).unwrap();
        Self {
            temp,
            user: None,
            program: env!("CARGO_BIN_EXE_nono").into(),
            is_packed: false,
            ignored: None,
        }
    }

    /// Every snapshot packs its small objects, however few they are.
    pub fn packed(self) -> Self {
        Self { is_packed: true, ..self }
    }

    /// The ignored paths that are recorded.
    pub fn ignored(self, word: &'static str) -> Self {
        Self { ignored: Some(word), ..self }
    }

    /// As an ordinary user, whoever runs the tests.
    pub fn ordinary_user() -> Self {
        Self::new().by_ordinary_user()
    }

    /// The same fixture of an ordinary user.
    pub fn by_ordinary_user(self) -> Self {
        let mut fixture = self;
        if rustix::process::geteuid().is_root() {
            fs::set_permissions(fixture.temp.path(), fs::Permissions::from_mode(0o755)).unwrap();
            // The build directory may be out of reach for others.
            let program = fixture.temp.path().join("nono");
            // By another process: a program that is open for writing here is so in every child that
            // another test is about to start, and cannot be executed ("text file busy").
            let copied = Command::new("cp").arg(&fixture.program).arg(&program).status().unwrap();
            assert!(copied.success());
            fixture.program = program;
            fixture.user = Some(ORDINARY_USER);
            fixture.give_away(&fixture.project());
            fixture.give_away(&fixture.temp.path().join("home"));
        }
        fixture
    }

    /// Makes a path the ordinary user's, if there is one.
    pub fn give_away(&self, path: &Path) {
        if let Some(user) = self.user {
            chown(path, Some(user), Some(user)).unwrap();
        }
    }

    /// The same, of a symlink itself.
    pub fn give_away_link(&self, path: &Path) {
        if let Some(user) = self.user
            && path.symlink_metadata().is_ok()
        {
            lchown(path, Some(user), Some(user)).unwrap();
        }
    }

    pub fn project(&self) -> PathBuf {
        self.temp.path().join("project")
    }

    pub fn store(&self) -> PathBuf {
        self.temp.path().join("home/.nono/rollbacks")
    }

    /// The packs of the store.
    pub fn packs(&self) -> Vec<PathBuf> {
        let listed = fs::read_dir(self.store().join("objects/packs")).into_iter().flatten();
        let mut packs: Vec<_> = listed.map(|entry| entry.unwrap().path()).collect();
        packs.sort();
        packs
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// Writes a file of the project, with its parents.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.project().join(name);
        let mut parent = self.project();
        for component in Path::new(name).parent().unwrap().components() {
            parent.push(component);
            if !parent.exists() {
                fs::create_dir(&parent).unwrap();
                self.give_away(&parent);
            }
        }
        fs::write(&path, content).unwrap();
        self.give_away(&path);
        path
    }

    /// The program, in the project, with nothing of the environment but a home.
    pub fn command(&self, arguments: &[&str]) -> Command {
        self.placed(Command::new(&self.program), arguments)
    }

    /// Another program in the project, of the same user and with the same environment.
    pub fn command_of(&self, program: &str, arguments: &[&str]) -> Command {
        self.placed(Command::new(program), arguments)
    }

    /// The same with the usual effect of signals. The caller of the tests may ignore some (`nohup`,
    /// a job in the background), which is inherited.
    pub fn command_to_be_signalled(&self, arguments: &[&str]) -> Command {
        self.command_by(&["env", "--default-signal=HUP,INT,QUIT"], arguments)
    }

    /// The same, started by a program that takes a command line.
    pub fn command_by(&self, starter: &[&str], arguments: &[&str]) -> Command {
        let mut command = Command::new(starter[0]);
        command.args(&starter[1..]).arg(&self.program);
        self.placed(command, arguments)
    }

    fn placed(&self, mut command: Command, arguments: &[&str]) -> Command {
        command
            .args(arguments)
            .args(unasked(arguments))
            .current_dir(self.project())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.temp.path().join("home"));
        if let Some(word) = self.ignored {
            command.env("NONO_IGNORED", word);
        }
        if self.is_packed {
            // Not compressed, so that tests find contents where they lie.
            command.env("NONO_PACK_FROM", "1").env("NONO_COMPRESSION", "off");
        }
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// Copies the project and the home from one directory of the fixture to another, in the place
    /// of those that are there; "" is the fixture's own.
    pub fn copy_state(&self, from: &str, to: &str) {
        for name in ["project", "home"] {
            let target = self.path(to).join(name);
            let _ = fs::remove_dir_all(&target);
            fs::create_dir_all(self.path(to)).unwrap();
            let mut copy = Command::new("cp");
            copy.arg("-a").arg(self.path(from).join(name)).arg(self.path(to));
            assert!(copy.status().unwrap().success());
        }
    }

    pub fn nono(&self, arguments: &[&str]) -> Finished {
        finished(self.command(arguments).output().unwrap())
    }

    /// Runs nono while strace lets calls fail as `inject` says. `None`, and said so, where that
    /// cannot be arranged.
    pub fn nono_with_failing_calls(&self, inject: &[&str], arguments: &[&str]) -> Option<Finished> {
        let command = self.command(arguments);
        let mut strace = Command::new("strace");
        strace.args(["-f", "-o", "/dev/null"]).args(inject);
        strace.arg(command.get_program()).args(command.get_args()).current_dir(self.project());
        strace.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        let done = strace.output().ok().map(finished);
        if done.as_ref().is_none_or(|done| done.stderr.contains("strace: ")) {
            not_run("no strace, or it may not trace");
            return None;
        }
        done
    }

    /// Runs a shell script under `nono run --rollback`.
    pub fn record(&self, script: &str) -> Finished {
        self.nono(&["run", "--rollback", "--", "sh", "-c", script])
    }

    /// Id of the newest session.
    pub fn latest(&self) -> String {
        let list = self.nono(&["rollback", "list", "--json"]).success().json();
        list[0]["session_id"].as_str().unwrap().to_owned()
    }

    pub fn session(&self) -> PathBuf {
        self.store().join(self.latest())
    }
}

/// Bytes that repeat nowhere and do not compress, so that they take their space in a store.
pub fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    let words = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 32) as u32
    });
    words.take(len.div_ceil(4)).flat_map(u32::to_le_bytes).take(len).collect()
}

/// Waits until what was written is old enough for a stat cache: the clock that stamps files ticks
/// at least every 10 ms.
pub fn settle() {
    // File systems may keep a finer time than the coarse clock, which may be a tick behind it.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let written = FileTime { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() };
    while nono_engine::sys::coarse_now() <= written {
        std::thread::yield_now();
    }
}

pub fn finished(output: Output) -> Finished {
    Finished {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
