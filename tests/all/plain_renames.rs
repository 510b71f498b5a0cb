//! File systems that know no flag of a rename (NFS, sshfs, most of FUSE): a store and a project
//! there work as elsewhere, and a kill at any point loses nothing.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::fixture::{Finished, Fixture, finished};
use crate::not_run::{needs_root, not_run};
use crate::observe::{assert_same, observe};
use crate::scene::{Scene, Tree, as_strs};
use crate::terminal::eventually;

/// A file system that passes everything on to a directory, but for the flags of a rename.
struct Passing {
    mount: PathBuf,
    /// The server of a file system that needs one.
    _server: Option<Server>,
    // Last, because it is removed as a whole.
    ground: tempfile::TempDir,
}

struct Server(std::process::Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Passing {
    /// `None`, and said so, where it cannot be mounted.
    fn mount(kind: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            needs_root("mounts these file systems for others");
            return None;
        }
        let ground = match std::env::var_os("NONO_TEST_DIR") {
            Some(ground) => tempfile::tempdir_in(ground).unwrap(),
            None => tempfile::tempdir_in("/var/tmp").unwrap(),
        };
        let at = |name: &str| ground.path().join(name);
        for made in ["below", "more", "mount"] {
            fs::create_dir(at(made)).unwrap();
        }
        let mut server = None;
        let mounted = match kind {
            // Another name of a file shows a change at once: tests look right after it.
            "bindfs" => Command::new("bindfs")
                .args(["-o", "attr_timeout=0,entry_timeout=0"])
                .arg(at("below"))
                .arg(at("mount"))
                .status(),
            "mergerfs" => {
                let branches = format!("{}:{}", at("below").display(), at("more").display());
                Command::new("mergerfs")
                    .args(["-o", "cache.attr=0,cache.entry=0"])
                    .arg(branches)
                    .arg(at("mount"))
                    .status()
            }
            _ => {
                server = Some(ssh_server(ground.path())?);
                let options = format!(
                    "port=2298,IdentityFile={},StrictHostKeyChecking=no,\
                     UserKnownHostsFile=/dev/null,default_permissions",
                    at("key").display()
                );
                let from = format!("root@127.0.0.1:{}", at("below").display());
                let mut sshfs = Command::new("sshfs");
                sshfs.args(["-o", &options, &from]).arg(at("mount"));
                sshfs.stderr(Stdio::null()).status()
            }
        };
        if !mounted.is_ok_and(|status| status.success()) {
            not_run(format_args!("{kind} cannot be mounted"));
            return None;
        }
        let mount = at("mount");
        eventually("it is mounted", || is_mounted(&mount));
        Some(Self { mount, _server: server, ground })
    }

    /// A project and a home here.
    fn fixture(&self) -> Fixture {
        Fixture::below(&self.mount)
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.mount).status();
        assert!(self.ground.path().exists());
    }
}

fn is_mounted(place: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == place.to_str())
}

/// A server on this machine that lets root in by a key of its own.
fn ssh_server(ground: &Path) -> Option<Server> {
    let at = |name: &str| ground.join(name);
    for key in ["key", "host"] {
        let mut make = Command::new("ssh-keygen");
        make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(at(key));
        assert!(make.status().unwrap().success());
    }
    fs::create_dir_all("/run/sshd").unwrap();
    let mut server = Command::new("/usr/sbin/sshd");
    server.args(["-D", "-e", "-f", "/dev/null", "-p", "2298", "-h"]).arg(at("host"));
    let keys = format!("AuthorizedKeysFile={}", at("key.pub").display());
    let sftp = "Subsystem=sftp internal-sftp";
    for option in [&keys, "StrictModes=no", "UsePAM=no", "ListenAddress=127.0.0.1", sftp] {
        server.args(["-o", option]);
    }
    let Ok(server) = server.stderr(Stdio::null()).spawn() else {
        not_run("there is no server of SSH");
        return None;
    };
    let server = Server(server);
    eventually("the server listens", || std::net::TcpStream::connect("127.0.0.1:2298").is_ok());
    Some(server)
}

const SCRIPT: &str = "rm b; echo more >> a; rm -r d; mkdir n; echo n > n/n; mv long moved; \
                      mkdir d; echo 9 > d/e; echo y > 'a b'";

fn write_project(fixture: &Fixture) {
    for name in ["a", "b", "d/e/f", "d/g", "a b"] {
        fixture.write(name, name);
    }
    fixture.write("long", vec![7; 600_000]);
}

/// Records, undoes, does again and copies, by `nono`.
fn go_round(fixture: &Fixture, store: &Path, nono: impl Fn(&[&str]) -> Finished, kind: &str) {
    let observed = || observe(&fixture.project());
    let before = observed();
    nono(&["run", "--rollback", "--no-rollback-prompt", "--", "sh", "-c", SCRIPT]).success();
    let after = observed();
    assert_ne!(before, after, "{kind}");
    nono(&["undo", "--yes"]).success();
    assert_same(&before, &observed());
    nono(&["redo", "--yes"]).success();
    assert_same(&after, &observed());
    nono(&["snapshot", "-m", "kept"]).success();
    let copy = fixture.path("copy");
    nono(&["rollback", "restore", "kept", "--to", copy.to_str().unwrap()]).success();
    // The directory itself is as the copy made it.
    let inside = |mut tree: Tree| {
        tree.remove(Path::new(""));
        tree
    };
    assert_same(&inside(after), &inside(observe(&copy)));
    nono(&["rollback", "verify", "--all"]).success();
    nono(&["rollback", "cleanup", "--keep", "1", "--yes"]).success();
    let names = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().file_name());
    let hidden: Vec<_> = names.filter(|name| name.as_encoded_bytes().starts_with(b".")).collect();
    assert!(hidden.is_empty(), "{kind}: {hidden:?}");
}

#[test]
fn a_store_and_a_project_work_without_the_flags_of_a_rename() {
    for kind in ["bindfs", "mergerfs"] {
        let Some(passing) = Passing::mount(kind) else { return };
        let fixture = passing.fixture();
        write_project(&fixture);
        go_round(&fixture, &fixture.store(), |arguments| fixture.nono(arguments), kind);
    }
}

#[test]
fn a_project_on_another_machine_is_undone() {
    let Some(passing) = Passing::mount("sshfs") else { return };
    let fixture = passing.fixture();
    write_project(&fixture);
    let store = Fixture::in_memory();
    let nono = |arguments: &[&str]| {
        let mut command = fixture.command(arguments);
        finished(command.env("HOME", store.path("home")).output().unwrap())
    };
    go_round(&fixture, &store.store(), nono, "sshfs");
}

/// The calls of a rename with flags fail as on NFS, which knows links.
const NO_FLAGS: [&str; 2] = ["-e", "inject=renameat2:error=EINVAL"];

#[test]
fn a_store_and_a_project_work_by_links_where_there_are_no_flags() {
    let fixture = Fixture::new();
    write_project(&fixture);
    if fixture.nono_with_failing_calls(&NO_FLAGS, &["rollback", "list"]).is_none() {
        return;
    }
    let nono = |arguments: &[&str]| fixture.nono_with_failing_calls(&NO_FLAGS, arguments).unwrap();
    go_round(&fixture, &fixture.store(), nono, "links");
}

/// Kills a restore at its points, `step` apart, and goes the way out of each; `run` gets the point.
fn at_points(scene: &Scene, step: usize, run: impl Fn(&[&str], Option<u64>) -> Output) {
    let arguments = scene.restore(0);
    let (mut half_way, mut killed) = (0, 0);
    for point in (1..).step_by(step) {
        scene.reset();
        let place = format!("at point {point}");
        if run(&as_strs(&arguments), Some(point)).status.signal().is_none() {
            break;
        }
        killed += 1;
        half_way += u64::from(scene.has_work());
        let way: &[&str] = if point % 2 == 0 { &["--abort"] } else { &[] };
        if scene.has_journal() {
            let is_half_way = scene.has_work();
            let ended = run(&[&["rollback", "resume"], way].concat(), None);
            let wanted = if way.is_empty() { &scene.new } else { &scene.old };
            if is_half_way {
                assert!(ended.status.success(), "{place}: {ended:?}");
                assert_same(wanted, &scene.tree());
            }
        }
        let now = scene.tree();
        if now != scene.new {
            assert_same(&scene.old, &now);
        }
        assert!(!scene.has_journal() && scene.staging().is_empty(), "{place}");
    }
    assert!(half_way > 8 && killed > 15, "{killed} points, {half_way} of them half-way");
}

#[test]
fn a_restore_without_the_flags_killed_at_any_point_is_resumed_or_taken_back() {
    let Some(passing) = Passing::mount("bindfs") else { return };
    let scene = Scene::in_fixture(passing.fixture());
    at_points(&scene, 5, |arguments, point| {
        let mut command = scene.fixture.command(arguments);
        if let Some(point) = point {
            command.env("NONO_FAIL_POINT", point.to_string());
        }
        command.output().unwrap()
    });
}

#[test]
fn a_restore_by_links_killed_at_any_point_is_resumed_or_taken_back() {
    let scene = Scene::new();
    if scene.fixture.nono_with_failing_calls(&NO_FLAGS, &["rollback", "list"]).is_none() {
        return;
    }
    at_points(&scene, 5, |arguments, point| {
        let command = scene.fixture.command(arguments);
        let mut strace = Command::new("strace");
        strace.args(["-f", "-o", "/dev/null"]).args(NO_FLAGS);
        strace
            .arg(command.get_program())
            .args(command.get_args())
            .current_dir(scene.fixture.project());
        strace.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        if let Some(point) = point {
            strace.env("NONO_FAIL_POINT", point.to_string());
        }
        // It ends as the traced program did.
        strace.output().unwrap()
    });
}
