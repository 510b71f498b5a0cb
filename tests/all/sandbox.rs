//! Escapes, tried from inside: every one fails, and the command's own work goes on.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::Command;

use crate::fixture::{Finished, Fixture};
use crate::not_run::needs_root;

/// Runs a script in the sandbox with a place outside, `$OUT`, that it must not touch.
fn try_escape(fixture: &Fixture, namespaces: &str, script: &str) -> Finished {
    let outside = fixture.path("outside");
    let script =
        format!("OUT={}; STORE={}; {script}", outside.display(), fixture.store().display());
    let run = ["run", "--rollback", "--namespaces", namespaces, "--", "sh", "-c", &script];
    fixture.nono(&run)
}

fn with_outside() -> Fixture {
    let fixture = Fixture::ordinary_user();
    fs::create_dir(fixture.path("outside")).unwrap();
    fixture.give_away(&fixture.path("outside"));
    fs::write(fixture.path("outside/secret"), "secret").unwrap();
    fixture.give_away(&fixture.path("outside/secret"));
    fixture.write("inside", "1");
    fixture
}

#[test]
fn nothing_outside_the_grants_can_be_written_or_read() {
    let fixtures = [with_outside(), Fixture::new()].into_iter();
    for (fixture, namespaces) in fixtures.flat_map(|fixture| {
        let fixture = std::rc::Rc::new(fixture);
        ["on", "off"].map(|namespaces| (std::rc::Rc::clone(&fixture), namespaces))
    }) {
        let outside = fixture.path("outside");
        if !outside.exists() {
            fs::create_dir(&outside).unwrap();
            fs::write(outside.join("secret"), "secret").unwrap();
            fixture.write("inside", "1");
        }
        let _ = fs::remove_file(fixture.project().join("link"));
        let _ = fs::remove_file(fixture.project().join("secret-link"));
        symlink(&outside, fixture.project().join("link")).unwrap();
        symlink(outside.join("secret"), fixture.project().join("secret-link")).unwrap();
        for escape in [
            "echo x > $OUT/new",
            "echo x >> $OUT/secret",
            ": > $OUT/secret",
            "truncate -s 0 $OUT/secret",
            "cat $OUT/secret",
            "ls $OUT",
            "mkdir $OUT/dir",
            "rm $OUT/secret",
            "mv $OUT/secret stolen",
            "mv inside $OUT/moved",
            "ln $OUT/secret hard",
            "ln inside $OUT/hard",
            "echo x > link/new",
            "cat link/secret",
            "echo x > secret-link",
            "cat ../outside/secret",
            "mv ../project ../elsewhere",
            "mv .. ../../elsewhere",
            "mv ../outside ../elsewhere",
            "rmdir ../home",
            "mknod disk b 7 0",
            "ls $STORE",
            "rm -r $STORE",
            "chmod 777 $STORE && ls $STORE",
            "cat $STORE/$NONO_SESSION/manifest.json",
            "echo x > $STORE/$NONO_SESSION/manifest.json",
            "mv $STORE ../home/gone",
        ] {
            let tried = try_escape(&fixture, namespaces, &format!("({escape}); echo ended $?"));
            assert!(tried.stdout.contains("ended "), "{escape}: {}", tried.stderr);
            assert!(!tried.stdout.contains("ended 0"), "{escape}: {}", tried.stdout);
            assert!(!tried.stdout.contains("secret\n"), "{escape}: {}", tried.stdout);
            assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "{escape}");
            assert_eq!(fs::read(outside.join("secret")).unwrap(), b"secret", "{escape}");
            assert_eq!(fs::metadata(outside.join("secret")).unwrap().nlink(), 1, "{escape}");
            assert!(fixture.project().join("inside").exists(), "{escape}");
        }
        fixture.nono(&["rollback", "verify", "--all"]).success();
    }
}

#[test]
fn the_supervisor_is_out_of_reach() {
    for escape in [
        "kill -0 $PPID",
        "kill -KILL $PPID",
        "cat /proc/$PPID/environ",
        "cat /proc/$PPID/mem",
        "ls -l /proc/$PPID/fd/",
        "ls /proc/$PPID/root/",
        "ls /proc/$PPID/cwd/",
        "echo 1000 > /proc/$PPID/oom_score_adj",
    ] {
        let fixture = Fixture::new();
        fixture.write("a", "1");
        let script = format!("({escape}) > /dev/null; echo ended $?; echo 2 > a");
        let tried = fixture.record(&script).success();
        assert!(tried.stdout.contains("ended "), "{escape}: {}", tried.stderr);
        assert!(!tried.stdout.contains("ended 0"), "{escape}: {}", tried.stdout);
        let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
        assert_eq!(list[0]["status"], "completed", "{escape}");
        assert_eq!(list[0]["changes"]["modified"], 1, "{escape}");
    }
}

/// System calls on the supervisor that no shell makes. Each prints the error, or that it worked.
const CALLS: &str = r#"
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
supervisor = int(os.environ["SUPERVISOR"])
def attempt(name, call, *arguments):
    ctypes.set_errno(0)
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(call), *wide)
    print(name, "worked" if result >= 0 else os.strerror(ctypes.get_errno()))
    return result
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(8)
local = Vector(ctypes.addressof(buffer), 8)
with open("/proc/self/maps") as maps:
    address = int(maps.read().split("-")[0], 16)
remote = Vector(address, 8)
machine = os.uname().machine
arm = machine == "aarch64"
PTRACE, READ, WRITE, TKILL = (117, 270, 271, 130) if arm else (101, 310, 311, 200)
attempt("attach", PTRACE, 16, supervisor, 0, 0)
attempt("seize", PTRACE, 0x4206, supervisor, 0, 0)
attempt("read", READ, supervisor, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
attempt("write", WRITE, supervisor, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
attempt("tkill", TKILL, supervisor, signal.SIGKILL)
pidfd = os.pidfd_open(supervisor)
attempt("pidfd signal", 424, pidfd, signal.SIGKILL, 0, 0)
attempt("pidfd getfd", 438, pidfd, 0, 0)
for number in (signal.SIGTERM, signal.SIGSTOP, signal.SIGHUP, signal.SIGINT):
    attempt("kill", 129 if arm else 62, supervisor, number)
"#;

#[test]
fn the_supervisor_can_be_neither_traced_nor_read_nor_signalled() {
    for fixture in [Fixture::ordinary_user(), Fixture::new()] {
        fixture.write("a", "1");
        let calls = fixture.write("calls.py", CALLS);
        let script = format!("SUPERVISOR=$PPID /usr/bin/python3 {}; echo 2 > a", calls.display());
        let tried = fixture.record(&script).success();
        assert_eq!(tried.stdout.lines().count(), 11, "{}\n{}", tried.stdout, tried.stderr);
        assert!(!tried.stdout.contains("worked"), "{}", tried.stdout);
        let denied = tried.stdout.lines().filter(|line| line.ends_with("not permitted"));
        assert_eq!(denied.count(), 11, "{}", tried.stdout);
        assert_recorded(&fixture, 0);
    }
}

#[test]
fn a_signal_to_all_that_can_be_reached_does_not_reach_the_supervisor() {
    for (target, name) in [("0", "its group"), ("-1", "everybody")] {
        // As a user of its own: one without walls would otherwise end all of this user's processes.
        let fixture = Fixture::ordinary_user();
        fixture.write("a", "1");
        let tried = fixture.record(&format!("echo 2 > a; sleep 600 & kill -KILL {target}; exit 3"));
        assert!([137, 3].contains(&tried.code), "{name}: {} {}", tried.code, tried.stderr);
        assert_recorded(&fixture, tried.code);
    }
}

/// The session ended in order, with the one file changed that was.
#[track_caller]
fn assert_recorded(fixture: &Fixture, code: i32) {
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["status"], "completed", "{list}");
    assert_eq!(list[0]["exit_code"], code, "{list}");
    assert_eq!(list[0]["changes"]["modified"], 1, "{list}");
    fixture.nono(&["rollback", "verify", "latest"]).success();
}

#[test]
fn a_tracked_path_that_a_granted_parent_lets_go_is_recorded_and_comes_back() {
    let fixture = Fixture::new();
    fixture.write("inner/a", "1");
    let (inner, parent) = (fixture.project().join("inner"), fixture.project());
    let before = crate::observe::observe(&inner);
    let script = "mv inner moved; mkdir inner; echo other > inner/b; ln -s /etc inner/etc";
    let arguments = ["run", "--rollback", "--allow", "inner", "--write", "."];
    fixture.nono(&[&arguments[..], &["--", "sh", "-c", script]].concat()).success();
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["changes"]["created"], 2, "{list}");
    assert_eq!(list[0]["changes"]["deleted"], 1, "{list}");
    fixture.nono(&["rollback", "restore", &fixture.latest()]).success();
    crate::observe::assert_same(&before, &crate::observe::observe(&inner));
    // An untracked path is as the command left it.
    assert_eq!(fs::read(parent.join("moved/a")).unwrap(), b"1");
}

#[test]
fn what_is_granted_works() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("outside")).unwrap();
    fs::write(fixture.path("outside/secret"), "secret").unwrap();
    fixture.write("a", "1");
    let outside = fixture.path("outside");
    let out = outside.to_str().unwrap();
    let run = |grant: &[&str], script: &str| {
        let arguments = [&["run", "--no-rollback"], grant, &["--", "sh", "-c", script]].concat();
        fixture.nono(&arguments)
    };
    let read = run(&["--read", out], &format!("cat {out}/secret && echo x > {out}/new"));
    assert!(read.stdout.contains("secret"), "{}", read.stderr);
    assert_ne!(read.code, 0);
    run(&["--allow-cwd", "--write", out], &format!("mv a {out}/a; mv {out}/a b; echo y > b"))
        .success();
    // Programs, devices, pipes, temporary files and the process's own /proc.
    let usual = "sort < b > /dev/null; t=$(mktemp) && echo z > $t && cat $t && rm $t; (echo p | \
                 cat); ls /proc/self/fd > /dev/null && cat /etc/passwd > /dev/null && exec > \
                 /dev/stdout";
    let usual = run(&[], usual).success();
    assert_eq!(usual.stdout, "z\np\n");
    assert_eq!(usual.stderr, "", "something is refused, or told");
}

#[test]
fn a_grant_that_reaches_the_record_or_the_configuration_is_refused() {
    let fixture = Fixture::new();
    let home = fixture.path("home");
    for grant in ["--allow", "--write", "--read"] {
        for path in ["home", "", "home/.nono/rollbacks", "home/.nono"] {
            let path = fixture.path(path);
            fs::create_dir_all(fixture.store()).unwrap();
            let arguments =
                ["run", "--allow-cwd", grant, path.to_str().unwrap(), "--", "touch", "ran"];
            fixture.nono(&arguments).fails(1, "the store");
        }
        let config = home.join(".config/nono/profiles");
        fs::create_dir_all(&config).unwrap();
        let config = ["run", "--allow-cwd", grant, config.to_str().unwrap(), "--", "touch", "ran"];
        fixture.nono(&config).fails(1, "configuration");
        let link = fixture.path("link");
        if !link.exists() {
            symlink(&home, &link).unwrap();
        }
        let linked = ["run", "--allow-cwd", grant, link.to_str().unwrap(), "--", "touch", "ran"];
        fixture.nono(&linked).fails(1, "the store");
    }
    assert!(!fixture.project().join("ran").exists());
    fixture.nono(&["run", "--allow", "missing", "--", "true"]).fails(1, "missing");
}

#[test]
fn without_the_sandbox_the_command_may_do_what_you_may() {
    let fixture = with_outside();
    let script = format!("echo x > {}/new", fixture.path("outside").display());
    let run = fixture.nono(&["run", "--no-sandbox", "--", "sh", "-c", &script]).success();
    assert!(run.stderr.contains("no sandbox"), "{}", run.stderr);
    assert!(fixture.path("outside/new").exists());
}

/// Answers one connection, if a client comes.
fn listen() -> (std::net::TcpListener, u16) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn the_network_is_closed_or_narrowed_on_request() {
    let fixture = Fixture::new();
    let (_first, open) = listen();
    let (_second, other) = listen();
    let connect = |grant: &[&str], port: u16| {
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
        fixture.nono(&[&["run"], grant, &["--", "bash", "-c", &script]].concat()).code == 0
    };
    let (narrowed, port) = (["--allow-connect", &open.to_string()], open);
    assert!(connect(&[], open) && connect(&[], other));
    assert!(!connect(&["--block-net"], open));
    assert!(connect(&narrowed, port) && !connect(&narrowed, other));
    let udp = ["run", "--block-net", "--", "bash", "-c", ": <>/dev/udp/127.0.0.1/9"];
    assert_ne!(fixture.nono(&udp).code, 0);
}

#[test]
fn programs_and_sockets_outside_cannot_be_reached() {
    let fixture = Fixture::new();
    let name = format!("nono-test-{}", std::process::id());
    let address =
        <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(
            &name,
        )
        .unwrap();
    let _listener = std::os::unix::net::UnixListener::bind_addr(&address).unwrap();
    let connect = format!("import socket; socket.socket(socket.AF_UNIX).connect('\\0{name}')");
    let type_ahead = "import fcntl, os; m, s = os.openpty(); fcntl.ioctl(s, 0x5412, b'x')";
    for script in [connect.as_str(), type_ahead] {
        let tried = fixture.nono(&["run", "--", "/usr/bin/python3", "-c", script]);
        assert!(tried.stderr.contains("PermissionError"), "{script}: {}", tried.stderr);
        fixture.nono(&["run", "--no-sandbox", "--", "/usr/bin/python3", "-c", script]);
    }
}

#[test]
fn a_grant_that_holds_a_link_to_the_record_or_the_same_place_under_another_path_is_refused() {
    let fixture = Fixture::new();
    let home = fixture.path("home");
    let elsewhere = fixture.path("elsewhere");
    for (name, what) in [(".nono", "the store"), (".config", "nono's configuration")] {
        let real = elsewhere.join(name);
        fs::create_dir_all(real.join("rollbacks")).unwrap();
        fs::create_dir_all(real.join("nono")).unwrap();
        symlink(&real, home.join(name)).unwrap();
        // A writer of the link can have another record, or another configuration.
        let root = fixture.path("root");
        let root = ["--root", root.to_str().unwrap()];
        let root = if name == ".config" { &root[..] } else { &[] };
        let run = [&["run", "--allow", home.to_str().unwrap()], root, &["--", "true"]].concat();
        fixture.nono(&run).fails(1, &format!("contains the link to {what}"));
        fs::remove_file(home.join(name)).unwrap();
        fs::rename(&real, home.join(name)).unwrap();
    }
    if !rustix::process::geteuid().is_root() {
        needs_root("mounts");
        return;
    }
    struct Bound(std::path::PathBuf);
    impl Drop for Bound {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(&self.0).status();
        }
    }
    let other = fixture.path("other");
    fs::create_dir(&other).unwrap();
    assert!(Command::new("mount").arg("--bind").args([&home, &other]).status().unwrap().success());
    let _bound = Bound(other.clone());
    for (place, how) in [("", "contains"), (".nono", "contains"), (".nono/rollbacks", "contains")] {
        let place = other.join(place);
        let run = ["run", "--allow", place.to_str().unwrap(), "--", "true"];
        fixture.nono(&run).fails(1, &format!("{how}, by another path, the store"));
    }
    fs::create_dir(home.join(".nono/rollbacks/x")).unwrap();
    let inside = other.join(".nono/rollbacks/x");
    let run = ["run", "--allow", inside.to_str().unwrap(), "--", "true"];
    fixture.nono(&run).fails(1, "lies, by another path, in the store");
}
