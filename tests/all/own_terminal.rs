//! The terminals and the kernel's keys that a command reaches: its own, and no others.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};

use crate::fixture::{Finished, Fixture, finished};
use crate::not_run::not_run;
use crate::terminal::Terminal;

/// Both walls, and the first alone.
const WALLS: [&str; 2] = ["on", "off"];
/// The text that is typed in the other terminal.
const TYPED: &[u8] = b"a password\n";

/// Another terminal of the same user, in which something was typed that nothing has read yet.
struct Other {
    screen: File,
    keyboard: File,
    path: PathBuf,
}

impl Other {
    fn new(fixture: &Fixture) -> Self {
        let controller: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes())).to_owned();
        let flags = (OFlags::NOCTTY | OFlags::NONBLOCK).bits() as i32;
        let keyboard =
            OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path).unwrap();
        let mut modes = tcgetattr(&keyboard).unwrap();
        modes.local_modes -= LocalModes::ECHO;
        tcsetattr(&keyboard, OptionalActions::Now, &modes).unwrap();
        rustix::io::ioctl_fionbio(&controller, true).unwrap();
        fixture.give_away(&path);
        let other = Self { screen: controller.into(), keyboard, path };
        other.type_it();
        other
    }

    fn type_it(&self) {
        (&self.screen).write_all(TYPED).unwrap();
    }

    /// The typed text is there to be read, and nothing else; nothing was written.
    #[track_caller]
    fn assert_untouched(&self, after: &str) {
        let mut buffer = [0; 64];
        let count = (&self.keyboard).read(&mut buffer).unwrap_or(0);
        assert_eq!(&buffer[..count], TYPED, "{after}");
        let rest = (&self.keyboard).read(&mut buffer).map_err(|error| error.kind());
        assert_eq!(rest, Err(ErrorKind::WouldBlock), "{after}");
        let shown = (&self.screen).read(&mut buffer).map_err(|error| error.kind());
        assert_eq!(shown, Err(ErrorKind::WouldBlock), "{after}: {buffer:?}");
        self.type_it();
    }
}

fn run_in(fixture: &Fixture, namespaces: &str, script: &str) -> Finished {
    fixture.nono(&["run", "--namespaces", namespaces, "--", "sh", "-c", script])
}

/// Types a key on behalf of the next reader of a terminal.
fn typing(path: &str) -> String {
    format!(
        "python3 -c 'import fcntl, os, termios; \
         fcntl.ioctl(os.open(\"{path}\", os.O_RDWR | os.O_NOCTTY), termios.TIOCSTI, b\"x\")'"
    )
}

#[test]
fn another_terminal_can_be_neither_read_nor_written() {
    for fixture in [Fixture::ordinary_user(), Fixture::new()] {
        let other = Other::new(&fixture);
        let path = other.path.to_str().unwrap();
        for attempt in [
            format!("timeout 5 head -n 1 {path}"),
            format!("timeout 5 head -n 1 /dev/pts/../pts/{}", path.rsplit('/').next().unwrap()),
            format!("timeout 5 head -n 1 /proc/self/root{path}"),
            format!("echo written > {path}"),
            format!("stty -F {path} echo"),
            format!("chmod 666 {path}"),
            format!("ln -s {path} link; timeout 5 head -n 1 link"),
            format!("mkdir -p own; mount -t devpts devpts own; timeout 5 head -n 1 own/{path}"),
            typing(path),
        ] {
            let tried = run_in(&fixture, "on", &format!("({attempt}); echo ended $?"));
            assert!(tried.stdout.contains("ended "), "{attempt}: {}", tried.stderr);
            assert!(!tried.stdout.contains("ended 0"), "{attempt}: {}", tried.stdout);
            assert!(!tried.stdout.contains("password"), "{attempt}: {}", tried.stdout);
            other.assert_untouched(&attempt);
        }
        // With both walls, it has not even a name.
        let listed = run_in(&fixture, "on", "ls /dev/pts").success();
        assert_eq!(listed.stdout, "ptmx\n");
        // The filter holds with one wall too.
        for namespaces in WALLS {
            run_in(&fixture, namespaces, &typing(path)).fails(1, "Error");
            other.assert_untouched(namespaces);
        }
    }
}

#[test]
fn a_terminal_that_is_granted_is_the_machines() {
    let fixture = Fixture::ordinary_user();
    let other = Other::new(&fixture);
    let path = other.path.to_str().unwrap();
    let script = format!("head -n 1 {path}");
    let run = ["run", "--namespaces", "on", "--write", path, "--allow-cwd", "--", "sh", "-c"];
    let run = fixture.nono(&[&run[..], &[script.as_str()]].concat()).success();
    assert_eq!(run.stdout.as_bytes(), TYPED);
}

/// The name by which `tty` knows the own terminal, and all ways to it.
const OWN: &str = "stty size; tput -T xterm cols; echo by-tty > /dev/tty; \
                   echo by-stderr > /dev/stderr; echo by-name > $(tty) && stty -F $(tty) size; \
                   stty -echo; echo ready; read line; stty echo; echo got $line; \
                   head -n 1 < /dev/tty | tr a-z A-Z; echo over";

#[test]
fn the_own_terminal_is_read_written_and_set() {
    for fixture in [Fixture::ordinary_user(), Fixture::new()] {
        for namespaces in WALLS {
            fixture.write("script", OWN);
            let run = fixture.command(&["run", "--namespaces", namespaces, "--", "sh", "script"]);
            let mut words = vec!["exec".to_owned(), "env".to_owned(), "-i".to_owned()];
            for (name, value) in run.get_envs() {
                let (name, value) = (name.to_str().unwrap(), value.unwrap().to_str().unwrap());
                words.push(format!("{name}={value}"));
            }
            let owner = std::os::unix::fs::MetadataExt::uid(&fixture.project().metadata().unwrap());
            if owner != rustix::process::geteuid().as_raw() {
                words.insert(0, format!("chown {owner} $(tty);"));
                let user = format!("setpriv --reuid {owner} --regid {owner} --clear-groups");
                words.insert(2, user);
            }
            words.push(run.get_program().to_str().unwrap().to_owned());
            words.extend(run.get_args().map(|word| word.to_str().unwrap().to_owned()));
            let terminal = Terminal::start(
                &fixture.path(&format!("tmux-{namespaces}")),
                &fixture.project(),
                &fixture.path("home"),
                &format!("sh -c '{}'; exec cat", words.join(" ")),
            );
            terminal.wait_for("ready");
            terminal.line("typed");
            terminal.wait_for("got typed");
            terminal.line("again");
            terminal.wait_for("AGAIN");
            terminal.wait_for("over");
            let screen = terminal.screen();
            for line in ["80", "by-tty", "by-stderr", "by-name"] {
                assert!(screen.lines().any(|shown| shown == line), "{line}:\n{screen}");
            }
            assert_eq!(screen.matches("24 80").count(), 2, "{screen}");
        }
    }
}

#[test]
fn programs_that_make_terminals_work() {
    let python = "python3 -c 'import os, pty; a, b = pty.openpty(); os.write(a, b\"x\\n\"); \
                  print(os.read(b, 9), os.ttyname(b))' | grep /dev/pts/";
    let forked = "python3 -c 'import pty, sys; sys.exit(pty.spawn([\"tty\"]))' | grep /dev/pts/";
    let tmux = "tmux -f /dev/null -S own new-session -d cat && \
                tmux -S own list-panes -F \"#{pane_tty}\" | grep /dev/pts/; \
                tmux -S own kill-server";
    for (program, script) in [
        ("python3", python),
        ("python3", forked),
        ("script", "script -qec 'stty size && tty' /dev/null | grep /dev/pts/"),
        ("tmux", tmux),
        ("expect", "expect -c 'spawn tty; expect -re /dev/pts/.* {exit 0} default {exit 1}'"),
    ] {
        if Command::new("which").arg(program).output().is_ok_and(|it| !it.status.success()) {
            not_run(format_args!("there is no {program}"));
            continue;
        }
        for fixture in [Fixture::ordinary_user(), Fixture::new()] {
            for namespaces in WALLS {
                let ran = run_in(&fixture, namespaces, script);
                assert_eq!(ran.code, 0, "{namespaces}: {script}: {}{}", ran.stdout, ran.stderr);
                assert!(ran.stdout.contains("/dev/pts/"), "{script}: {}", ran.stdout);
            }
        }
    }
}

#[test]
fn keys_of_the_kernel_are_out_of_reach() {
    if Command::new("keyctl").arg("--version").output().is_err() {
        not_run("there is no keyctl");
        return;
    }
    // A key that only a process sees in whose keyrings it is.
    let starter = [
        "keyctl",
        "session",
        "-",
        "sh",
        "-c",
        "key=$(keyctl add user nono-test secret @s) && keyctl setperm $key 0x3f000000 && \
         grep -c nono-test /proc/keys && exec \"$@\"",
        "sh",
    ];
    let script = "grep -c nono-test /proc/keys; \
                  for call in 'print %user:nono-test' 'search @s user nono-test' 'show' \
                  'add user other secret @s' 'add user other secret @u' 'request user nono-test' \
                  'link @u @s' 'session - true' 'session nono-test true'; do \
                  keyctl $call; echo $?; done";
    for fixture in [Fixture::ordinary_user(), Fixture::new()] {
        for namespaces in WALLS {
            let run = ["run", "--namespaces", namespaces, "--", "sh", "-c", script];
            let ran = finished(fixture.command_by(&starter, &run).output().unwrap()).success();
            let said: Vec<&str> = ran.stdout.lines().collect();
            let counts: Vec<&str> = said.iter().filter(|it| it.len() == 1).copied().collect();
            let refused = ["1"; 9];
            assert_eq!(counts[..2], ["1", "0"], "{said:?} {}", ran.stderr);
            assert_eq!(counts[2..], refused, "{said:?} {}", ran.stderr);
            assert!(!ran.stdout.contains("secret"), "{said:?}");
        }
    }
}
