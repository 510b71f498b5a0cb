//! A real terminal: a tmux server of its own, with one window.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Far longer than anything takes on a slow machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The count of terminals of this process.
static STARTED: AtomicU64 = AtomicU64::new(0);

pub struct Terminal {
    socket: PathBuf,
}

impl Terminal {
    /// Runs a command (as a shell understands it) in a new terminal of 80 columns and 24 lines.
    pub fn start(socket: &Path, dir: &Path, home: &Path, command: &str) -> Self {
        // Never that of a server that is about to end.
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = socket.file_name().unwrap().to_str().unwrap();
        let socket = &socket.with_file_name(format!("{name}{number}"));
        let terminal = Self { socket: socket.clone() };
        let dir = dir.to_str().unwrap();
        let started = Command::new("tmux")
            .arg("-S")
            .arg(socket)
            .args(["-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "-c", dir])
            .arg(command)
            .env("HOME", home)
            .env_remove("NONO_ROOT")
            .output()
            .unwrap();
        assert!(started.status.success(), "{started:?}");
        terminal
    }

    pub fn tmux(&self, arguments: &[&str]) -> Output {
        Command::new("tmux").arg("-S").arg(&self.socket).args(arguments).output().unwrap()
    }

    /// Presses keys, as `tmux send-keys` names them.
    pub fn keys(&self, keys: &[&str]) {
        let sent = self.tmux(&[&["send-keys"], keys].concat());
        assert!(sent.status.success(), "{sent:?}");
    }

    /// Types a line and presses Enter.
    pub fn line(&self, text: &str) {
        self.keys(&["-l", text]);
        self.keys(&["Enter"]);
    }

    pub fn screen(&self) -> String {
        let screen = self.tmux(&["capture-pane", "-p", "-S", "-200"]);
        String::from_utf8_lossy(&screen.stdout).into_owned()
    }

    /// Waits until the screen has this text.
    #[track_caller]
    pub fn wait_for(&self, text: &str) {
        self.wait_until(text, |screen| screen.contains(text));
    }

    /// Waits until the question of an undo stands `times` times, also where lines are wrapped.
    #[track_caller]
    pub fn wait_for_question(&self, times: usize) {
        let question = "[y/N/d";
        let unwrapped = |screen: &str| screen.replace([' ', '\n'], "");
        self.wait_until(question, |screen| {
            unwrapped(screen).matches(&unwrapped(question)).count() == times
        });
    }

    #[track_caller]
    pub fn wait_until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let started = Instant::now();
        while !is_so(&self.screen()) {
            assert!(started.elapsed() < TIMEOUT, "{what:?} did not come:\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until this program has the terminal: keys from now on are meant for it.
    #[track_caller]
    pub fn wait_for_program(&self, name: &str) {
        eventually(&format!("{name} does not have the terminal:\n{}", self.screen()), || {
            let shown = self.tmux(&["display-message", "-p", "#{pane_current_command}"]);
            String::from_utf8_lossy(&shown.stdout).trim() == name
        });
    }

    /// Closes it, as a person closes a window.
    pub fn close(&self) {
        self.tmux(&["kill-session"]);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// Waits until something holds.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
