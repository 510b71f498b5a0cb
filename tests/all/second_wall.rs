//! The second wall: attributes, `/tmp`, `/dev/shm` and processes of a command's own. And what holds
//! where the system gives only the first one.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::fixture::{Finished, Fixture, finished};
use crate::not_run::{needs_root, not_run};
use crate::terminal::eventually;

/// Both walls, and the first alone.
const WALLS: [&str; 2] = ["on", "off"];

fn run_in(fixture: &Fixture, namespaces: &str, script: &str) -> Finished {
    let run = ["run", "--rollback", "--no-rollback-prompt", "--namespaces", namespaces];
    fixture.nono(&[&run[..], &["--", "sh", "-c", script]].concat())
}

/// The newest session ended in order, with this exit code.
#[track_caller]
fn assert_recorded(fixture: &Fixture, code: i32) {
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["status"], "completed", "{list}");
    assert_eq!(list[0]["exit_code"], code, "{list}");
    fixture.nono(&["rollback", "verify", "latest"]).success();
}

fn with_outside(fixture: Fixture) -> Fixture {
    fs::create_dir(fixture.path("outside")).unwrap();
    fs::write(fixture.path("outside/secret"), "secret").unwrap();
    fs::set_permissions(fixture.path("outside/secret"), fs::Permissions::from_mode(0o600)).unwrap();
    fixture.give_away(&fixture.path("outside"));
    fixture.give_away(&fixture.path("outside/secret"));
    fixture.write("a", "1");
    fixture
}

#[test]
fn attributes_outside_the_grants_cannot_be_changed() {
    for fixture in [with_outside(Fixture::ordinary_user()), with_outside(Fixture::new())] {
        let (out, store) = (fixture.path("outside"), fixture.store());
        let looked = |path: &Path| {
            let meta = fs::metadata(path).unwrap();
            (meta.mode(), meta.uid(), meta.gid(), meta.mtime(), meta.mtime_nsec())
        };
        fixture.record("echo 0 > a").success();
        let before = (looked(&out), looked(&out.join("secret")), looked(&store));
        for change in [
            "chmod 777 $OUT/secret",
            "chmod 4777 $OUT/secret",
            "chown 1:1 $OUT/secret",
            "touch -d 2000-01-01 $OUT/secret",
            "setfattr -n user.x -v 1 $OUT/secret",
            "chmod 777 $OUT",
            "chmod 0 $STORE",
            "chmod -R 0 $STORE",
            "mount -o remount,bind,rw / && chmod 777 $OUT/secret",
            "unshare -Urm sh -c \"mount -o remount,bind,rw /; chmod 777 $OUT/secret\"",
            "umount -l /tmp",
            "chmod 666 /proc/uptime",
        ] {
            let script = format!(
                "OUT={}; STORE={}; ({change}); echo ended $?; echo 2 > a",
                out.display(),
                store.display()
            );
            let tried = run_in(&fixture, "on", &script).success();
            assert!(tried.stdout.contains("ended "), "{change}: {}", tried.stderr);
            assert!(!tried.stdout.contains("ended 0"), "{change}: {}", tried.stdout);
            let (dir, secret, root) = (looked(&out), looked(&out.join("secret")), looked(&store));
            assert_eq!((dir, secret), (before.0, before.1), "{change}");
            assert_eq!(root.0, before.2.0, "{change}");
            assert_recorded(&fixture, 0);
        }
        // Its own it may change.
        run_in(&fixture, "on", "chmod 751 a && setfattr -n user.x -v 1 a").success();
        assert_eq!(fs::metadata(fixture.project().join("a")).unwrap().mode() & 0o7777, 0o751);
    }
}

#[test]
fn with_one_wall_the_modes_of_the_store_come_back() {
    for fixture in [Fixture::ordinary_user(), Fixture::new()] {
        fixture.write("a", "1");
        let store = fixture.store();
        for harm in
            ["chmod 0 $S", "chmod 0 $S/objects", "chmod 777 $S/$NONO_SESSION", "chmod 0 $S/index"]
        {
            let script = format!("S={}; {harm}; echo $? >> a", store.display());
            let run = run_in(&fixture, "off", &script).success();
            assert!(run.stderr.contains("are put back"), "{harm}: {}", run.stderr);
            assert_eq!(fs::metadata(&store).unwrap().mode() & 0o7777, 0o700, "{harm}");
            assert_recorded(&fixture, 0);
        }
        let quiet = run_in(&fixture, "on", "echo x >> a").success();
        assert!(!quiet.stderr.contains("put back"), "{}", quiet.stderr);
    }
}

#[test]
fn where_namespaces_are_refused_that_is_said_once_a_day_and_the_first_wall_stands() {
    if !rustix::process::geteuid().is_root() {
        needs_root("can be root without CAP_SYS_ADMIN");
        return;
    }
    let fixture = with_outside(Fixture::new());
    fs::create_dir(fixture.path("tmp")).unwrap();
    let run = |namespaces: &str, script: &str| {
        let inner = fixture.command(&["run", "--rollback", "--namespaces", namespaces]);
        let mut outer = Command::new("setpriv");
        outer.args(["--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]);
        outer.arg(inner.get_program()).args(inner.get_args()).args(["--", "sh", "-c", script]);
        outer.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        outer.env("TMPDIR", fixture.path("tmp")).current_dir(fixture.project());
        finished(outer.output().unwrap())
    };
    run("on", "echo 2 > a").fails(126, "the command gets no namespaces");
    let script = format!("echo 3 >> a; echo x > {}/secret", fixture.path("outside").display());
    let told = run("auto", &script).fails(2, "one wall only (cannot make a mount namespace");
    assert!(told.stderr.contains("modes, owners and times"), "{}", told.stderr);
    assert_recorded(&fixture, 2);
    let again = run("auto", "echo 4 >> a").success();
    assert!(!again.stderr.contains("one wall"), "{}", again.stderr);
    assert_eq!(fs::read_to_string(fixture.path("outside/secret")).unwrap(), "secret");
}

#[test]
fn where_no_process_table_can_be_mounted_the_mounts_stand_alone() {
    if !rustix::process::geteuid().is_root() {
        needs_root("hides a part of /proc");
        return;
    }
    let fixture = with_outside(Fixture::ordinary_user());
    let script = format!(
        "chmod 777 {}/secret || echo held; ls /proc | grep -c '^[0-9]*$'; echo 2 > a",
        fixture.path("outside").display()
    );
    let inner = fixture.command(&["run", "--rollback", "--", "sh", "-c", &script]);
    let mut outer = Command::new("unshare");
    outer.args(["-m", "sh", "-c", "mount -t tmpfs none /proc/tty && exec \"$@\"", "sh"]);
    outer.args(["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"]);
    outer.arg(inner.get_program()).args(inner.get_args());
    outer.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = finished(outer.current_dir(fixture.project()).output().unwrap()).success();
    let (held, count) = ran.stdout.split_once('\n').unwrap();
    assert_eq!(held, "held", "{}", ran.stderr);
    // All processes of the machine.
    assert!(count.trim().parse::<usize>().unwrap() > 8, "{}", ran.stdout);
    assert_recorded(&fixture, 0);
}

#[test]
fn a_store_in_shared_memory_cannot_be_touched() {
    for namespaces in WALLS {
        let fixture = Fixture::ordinary_user();
        fixture.write("a", "1");
        let Ok(place) = tempfile::tempdir_in("/dev/shm") else {
            not_run("there is no tmpfs at /dev/shm");
            return;
        };
        fixture.give_away(place.path());
        let root = place.path().join("store");
        let script = format!("rm -rf {}; echo 2 > a; ls {0}", place.path().display());
        let run = ["run", "--rollback", "--namespaces", namespaces, "--", "sh", "-c", &script];
        let nono = |arguments: &[&str]| {
            finished(fixture.command(arguments).env("NONO_ROOT", &root).output().unwrap())
        };
        nono(&run).fails(2, "");
        let list = nono(&["rollback", "list", "--json"]).success().json();
        assert_eq!(list[0]["status"], "completed", "{list}");
        nono(&["rollback", "restore", "latest"]).success();
        assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "1");
        nono(&["rollback", "verify", "--all"]).success();
    }
}

#[test]
fn a_record_or_a_home_in_a_place_that_every_command_reads_is_withheld() {
    if !rustix::process::geteuid().is_root() {
        needs_root("writes below /opt");
        return;
    }
    let place = tempfile::tempdir_in("/opt").unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(place.path().join("beside"), "beside\n").unwrap();
    for namespaces in WALLS {
        for (variable, dir) in [("NONO_ROOT", "store"), ("HOME", "home")] {
            let fixture = Fixture::new();
            fixture.write("a", "1");
            let kept = place.path().join(dir);
            fs::create_dir_all(&kept).unwrap();
            fs::write(kept.join(".secret"), "secret").unwrap();
            let script = format!(
                "cat {}/beside; ls -a {}; cat {1}/.secret; ls /opt",
                place.path().display(),
                kept.display()
            );
            let run = ["run", "--rollback", "--namespaces", namespaces, "--", "sh", "-c", &script];
            let mut command = fixture.command(&run);
            let ran = finished(command.env(variable, &kept).output().unwrap());
            assert!(ran.stdout.contains("beside\n"), "{dir}: {} {}", ran.stdout, ran.stderr);
            assert!(!ran.stdout.contains("secret"), "{dir}: {}", ran.stdout);
        }
    }
}

#[test]
fn tmp_and_shared_memory_are_the_commands_own_and_what_is_left_there_is_named() {
    for fixture in [Fixture::ordinary_user(), Fixture::new(), Fixture::in_tmp().by_ordinary_user()]
    {
        fixture.write("a", "1");
        let outside = tempfile::tempdir_in("/tmp").unwrap();
        let script = format!(
            "ls -d {} && exit 9; echo $TMPDIR; mktemp /tmp/left.XXXXXX; echo 2 > /dev/shm/left; \
             python3 -c 'import multiprocessing; multiprocessing.Lock()'; echo 2 > a; pwd",
            outside.path().display()
        );
        let run = run_in(&fixture, "on", &script).success();
        assert!(run.stdout.starts_with("/tmp\n/tmp/left."), "{}", run.stdout);
        assert!(run.stdout.ends_with(&format!("{}\n", fixture.project().display())));
        assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "2\n");
        assert_recorded(&fixture, 0);
        // One entry in each, and none of what was shown there besides.
        let kept: Vec<&str> = run
            .stderr
            .lines()
            .filter_map(|line| line.split_once("left 1 temporary entry, kept for a day: "))
            .map(|(_, path)| path)
            .collect();
        assert_eq!(kept.len(), 2, "{}", run.stderr);
        assert_eq!(fs::read_to_string(Path::new(kept[1]).join("left")).unwrap(), "2\n");
        // Another run leaves it, as long as it is young.
        assert!(!run_in(&fixture, "on", "true").success().stderr.contains("kept for a day"));
        for room in kept.into_iter().map(Path::new) {
            assert_eq!(fs::read_dir(room).unwrap().count(), 1);
            fs::remove_dir_all(room.parent().unwrap()).unwrap();
        }
    }
}

#[test]
fn what_is_granted_in_tmp_and_named_sockets_are_shown_in_the_commands_own() {
    let fixture = Fixture::in_tmp().by_ordinary_user();
    fixture.write("a", "1");
    for dir in ["read", "agent"] {
        fs::create_dir(fixture.path(dir)).unwrap();
        fixture.give_away(&fixture.path(dir));
    }
    fs::write(fixture.path("read/file"), "read\n").unwrap();
    fs::write(fixture.path("not-granted"), "").unwrap();
    let socket = fixture.path("agent/socket");
    let listener = UnixListener::bind(&socket).unwrap();
    fixture.give_away(&socket);
    let script = format!(
        "cat {0}/read/file; chmod 777 {0}/read/file || echo refused; ls {0}; \
         python3 -c 'import os, socket; s = socket.socket(socket.AF_UNIX); \
         s.connect(os.environ[\"SSH_AUTH_SOCK\"]); s.sendall(b\"hello\")'",
        fixture.path("").display()
    );
    let read = fixture.path("read");
    let run = ["run", "--rollback", "--namespaces", "on", "--allow-cwd", "--read"];
    let run = [&run[..], &[read.to_str().unwrap(), "--", "sh", "-c", &script]].concat();
    let ran = finished(fixture.command(&run).env("SSH_AUTH_SOCK", &socket).output().unwrap());
    let ran = ran.success();
    assert!(ran.stdout.starts_with("read\nrefused\n"), "{} {}", ran.stdout, ran.stderr);
    assert!(!ran.stdout.contains("not-granted"), "{}", ran.stdout);
    let mut said = String::new();
    let (mut stream, _) = listener.accept().unwrap();
    std::io::Read::read_to_string(&mut stream, &mut said).unwrap();
    assert_eq!(said, "hello");
    assert_recorded(&fixture, 0);
}

#[test]
fn the_command_sees_its_own_processes_and_no_open_directory_of_the_world_outside() {
    for fixture in [Fixture::ordinary_user(), Fixture::new()] {
        fixture.write("a", "1");
        let script = "echo pids $(ls /proc | grep -c '^[0-9]*$'); \
                      readlink /proc/$$/fd/* | grep -v -e ^pipe: -e ^/dev/null -e ^/proc; echo \
                      over";
        let run = run_in(&fixture, "on", script).success();
        let (pids, rest) = run.stdout.split_once('\n').unwrap();
        let pids: u32 = pids.strip_prefix("pids ").unwrap().parse().unwrap();
        // The keeper, the shell, its subshell, and what it runs.
        assert!((3..=6).contains(&pids), "{}", run.stdout);
        assert_eq!(rest, "over\n");
    }
}

#[test]
fn limits_on_other_processes_are_refused_and_own_ones_work() {
    for namespaces in WALLS {
        for fixture in [Fixture::ordinary_user(), Fixture::new()] {
            fixture.write("a", "1");
            for limit in ["fsize=0:0", "nofile=3:3", "as=1000000:1000000", "cpu=0:0"] {
                let script = format!(
                    "for pid in $PPID $(awk '/^PPid/ {{print $2}}' /proc/$PPID/status); do \
                     [ $pid = 0 ] || {{ prlimit --pid $pid --{limit}; echo $?; }}; done; ulimit -n \
                     64; ulimit -n; prlimit --nofile=32 sh -c 'ulimit -n'; echo 2 >> a"
                );
                let run = run_in(&fixture, namespaces, &script).success();
                let codes: Vec<&str> = run.stdout.lines().collect();
                let (tried, own) = codes.split_at(codes.len() - 2);
                assert!(tried.iter().all(|code| *code != "0"), "{limit}: {}", run.stdout);
                assert_eq!(own, ["64", "32"], "{limit}: {}", run.stdout);
                assert_recorded(&fixture, 0);
            }
        }
    }
}

/// A run whose command says its process id, as the world outside sees it, and then sleeps.
fn start_sleeper(fixture: &Fixture, options: &[&str]) -> (std::process::Child, Pid) {
    let script = "sleep 600 & touch started; wait";
    let arguments = [&["run", "--rollback"], options, &["--", "sh", "-c", script]].concat();
    let mut command = fixture.command(&arguments);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let started = fixture.project().join("started");
    eventually("the command does not start", || started.exists());
    fs::remove_file(&started).unwrap();
    // Below the supervisor, the one that is called `sleep`.
    let mut below = vec![child.id()];
    let mut sleeper = None;
    eventually("no sleeper is there", || {
        for entry in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
            let Some((front, rest)) = stat.rsplit_once(") ") else { continue };
            let pid: u32 = front.split(' ').next().unwrap().parse().unwrap();
            let parent: u32 = rest.split(' ').nth(1).unwrap().parse().unwrap();
            if below.contains(&parent) && !below.contains(&pid) {
                below.push(pid);
            }
            if below.contains(&pid) && front.ends_with("(sleep") {
                sleeper = Pid::from_raw(pid as i32);
            }
        }
        sleeper.is_some()
    });
    (child, sleeper.unwrap())
}

fn lives(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    test_kill_process(pid).is_ok() && stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_supervisor_that_is_killed_takes_all_of_the_command_with_it() {
    for options in [&["--namespaces", "on"][..], &["--namespaces", "off"], &["--no-sandbox"]] {
        let fixture = Fixture::new();
        fixture.write("a", "1");
        let (mut supervisor, sleeper) = start_sleeper(&fixture, options);
        supervisor.kill().unwrap();
        supervisor.wait().unwrap();
        eventually(&format!("it lives on: {options:?}"), || !lives(sleeper));
        let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
        assert_eq!(list[0]["status"], "interrupted", "{options:?}");
        fixture.nono(&["rollback", "restore", "latest"]).success();
        // Unless it was told not to.
        let keep = [options, &["--keep-running"]].concat();
        let (mut supervisor, sleeper) = start_sleeper(&fixture, &keep);
        supervisor.kill().unwrap();
        supervisor.wait().unwrap();
        // Every ending process has ended when another run has come and gone.
        fixture.record("true").success();
        assert!(lives(sleeper), "{options:?}");
        kill_process(sleeper, Signal::KILL).unwrap();
    }
}

#[test]
fn a_keeper_that_is_killed_ends_the_run_in_order() {
    for namespaces in WALLS {
        let fixture = Fixture::new();
        fixture.write("a", "1");
        let (supervisor, sleeper) = start_sleeper(&fixture, &["--namespaces", namespaces]);
        let stat = fs::read_to_string(format!("/proc/{}/stat", sleeper.as_raw_nonzero())).unwrap();
        let parent = |stat: &str| -> i32 {
            stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap()
        };
        let shell = fs::read_to_string(format!("/proc/{}/stat", parent(&stat))).unwrap();
        kill_process(Pid::from_raw(parent(&shell)).unwrap(), Signal::KILL).unwrap();
        let ended = finished(supervisor.wait_with_output().unwrap());
        assert_eq!(ended.code, 137);
        assert_recorded(&fixture, 137);
        if lives(sleeper) {
            assert_eq!(namespaces, "off");
            kill_process(sleeper, Signal::KILL).unwrap();
        }
    }
}

#[test]
fn a_server_that_a_command_leaves_running_goes_on_and_is_named() {
    for options in [&["--namespaces", "on"][..], &["--namespaces", "off"], &["--no-sandbox"]] {
        let fixture = Fixture::new();
        fixture.write("a", "1");
        // A server without children of its own: these would be named as well.
        let made = Command::new("mkfifo").arg(fixture.project().join("stop")).status();
        assert!(made.unwrap().success());
        let script = "(read line < stop; echo bye > stopped) </dev/null >/dev/null 2>&1 & \
                      echo 2 > a";
        let run = [&["run", "--rollback", "--no-rollback-prompt"], options].concat();
        let run = fixture.nono(&[&run[..], &["--", "sh", "-c", script]].concat()).success();
        assert!(run.stderr.contains("from now on is not recorded"), "{}", run.stderr);
        let named = run.stderr.lines().filter_map(|line| {
            let (pid, command) = line.strip_prefix("nono:   ")?.split_once("  ")?;
            Some((pid.parse::<i32>().ok()?, command.contains("read line")))
        });
        let servers: Vec<i32> = named.filter(|(_, is_it)| *is_it).map(|(pid, _)| pid).collect();
        let [server] = servers[..] else { panic!("{options:?}: {}", run.stderr) };
        assert!(lives(Pid::from_raw(server).unwrap()), "{options:?}");
        // It may still write what it was granted, and ends by itself.
        fixture.write("stop", "");
        eventually("it does not go on", || fixture.project().join("stopped").exists());
        eventually("it does not end", || !lives(Pid::from_raw(server).unwrap()));
    }
}

#[test]
fn files_move_from_one_grant_to_another() {
    let fixture = Fixture::ordinary_user();
    fixture.write("a", "1");
    fs::create_dir(fixture.path("other")).unwrap();
    fixture.give_away(&fixture.path("other"));
    let other = fixture.path("other").display().to_string();
    let script = format!("mv a {other}/b && cat {other}/b && mv {other}/b /tmp/c && cp /tmp/c c");
    let run = ["run", "--rollback", "--namespaces", "on", "--write", &other, "--allow-cwd"];
    let run = fixture.nono(&[&run[..], &["--", "sh", "-c", &script]].concat()).success();
    assert_eq!(run.stdout, "1");
    assert_eq!(fs::read_to_string(fixture.project().join("c")).unwrap(), "1");
}

#[test]
fn ssh_accepts_the_settings_of_the_machine() {
    if !rustix::process::geteuid().is_root() || !Path::new("/etc/ssh/ssh_config.d").is_dir() {
        needs_root("mounts on /etc/ssh/ssh_config.d, which ssh must have");
        return;
    }
    let fixture = with_outside(Fixture::ordinary_user());
    let included = fixture.path("included");
    fs::create_dir(&included).unwrap();
    fs::set_permissions(&included, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(included.join("20-test.conf"), "Host test\n  User nono-test\n").unwrap();
    let script = "ssh -G test | grep '^user '; cat /etc/passwd > /dev/null; \
                  chmod 777 /etc/ssh/ssh_config.d/20-test.conf || echo held";
    let inner = fixture.command(&["run", "--namespaces", "on", "--", "sh", "-c", script]);
    let mut outer = Command::new("unshare");
    let mount = format!("mount --bind {} /etc/ssh/ssh_config.d", included.display());
    // ssh asks who the user is.
    let user = "echo test:x:54321:54321::/nowhere:/bin/sh >> /var/tmp/passwd.$$ && \
                cat /etc/passwd >> /var/tmp/passwd.$$ && \
                mount --bind /var/tmp/passwd.$$ /etc/passwd && rm /var/tmp/passwd.$$";
    outer.args(["-m", "sh", "-c", &format!("{mount} && {user}; exec \"$@\""), "sh"]);
    outer.args(["setpriv", "--reuid", "54321", "--regid", "54321", "--clear-groups"]);
    outer.arg(inner.get_program()).args(inner.get_args());
    outer.env_clear().envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = finished(outer.current_dir(fixture.project()).output().unwrap());
    assert_eq!(ran.stdout, "user nono-test\nheld\n", "{}", ran.stderr);
}
