//! A mount whose process is killed at the worst moment.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nono_mount::{Mount, MountOptions, MountPoint, check_mount_point, stand_guard};
use rustix::fs::OFlags;
use rustix::mount::UnmountFlags;
use rustix::process::{PidfdFlags, pidfd_open};

use crate::fixture::{SERVE_AT, eventually, keep_caches, many, mount, this_program};
use crate::memory::Memory;
use crate::not_run::{needs_root, not_run};

const SIGNAL: &str = "NONO_TEST_SIGNAL";
const WATCHED: &str = "NONO_TEST_WATCHED";
/// Files before it were read and listed, so it is pushed.
const MET: (&str, &[u8]) = ("0/d0/f5", b"contents 0 5\n");

#[test]
#[ignore = "another test runs it in a process of its own"]
fn serve_with_a_guard() {
    let (Some(point), Some(signal)) = (std::env::var_os(SERVE_AT), std::env::var_os(SIGNAL)) else {
        return;
    };
    let memory = Memory::with([("0", many(1, 10))]);
    memory.meet_at(MET.1, signal.into());
    let mut mount = Mount::new(memory, point.as_ref(), MountOptions::default()).unwrap();
    // The harness would take what is to be watched for the name of a test.
    let mut guard = Command::new("sh");
    guard.arg("-c").arg(format!("{WATCHED}=$1 exec \"$0\" --exact --ignored guard::guard"));
    guard.arg(std::env::current_exe().unwrap()).stderr(Stdio::null());
    mount.start_guard(guard).unwrap();
    mount.wait().unwrap();
}

#[test]
#[ignore = "another test runs it in a process of its own"]
fn guard() {
    let Ok(watched) = std::env::var(WATCHED) else { return };
    let connection = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    stand_guard(watched.parse().unwrap(), connection, std::io::stdout()).unwrap();
}

/// Ends what would outlive a test that failed, for ever.
struct Aborted<'a>(&'a Path);

impl Drop for Aborted<'_> {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0, UnmountFlags::FORCE);
    }
}

fn has_ended(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_some()
}

/// Whether a thread waits for something that no signal ends.
fn is_in_the_kernel(process: u32, thread: &str) -> bool {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return false };
    threads
        .filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("stat")).ok())
        .any(|stat| stat.contains(&format!("({thread}) D ")))
}

#[test]
fn a_mount_that_is_killed_as_it_pushes_a_file_that_is_read_ends_with_its_reader() {
    let of_a_thread = PidfdFlags::from_bits_retain(OFlags::EXCL.bits());
    if let Err(error) = pidfd_open(rustix::thread::gettid(), of_a_thread) {
        return not_run(format_args!("guards need Linux 6.9: {error}"));
    }
    if !rustix::process::geteuid().is_root() {
        return needs_root("ends what the test leaves when it fails");
    }
    // An entry that the kernel has forgotten is not pushed.
    let _kept = keep_caches();
    let Some(mut mounted) = mount(&Memory::with([("0", many(1, 1))])) else { return };
    mounted.mount.take();
    let signal = mounted.scratch.path().join("opened");
    let mut server = this_program("guard::serve_with_a_guard")
        .envs([(SERVE_AT, &mounted.point), (SIGNAL, &signal)])
        .spawn()
        .unwrap();
    eventually("the other process mounts", || mounted.path("0").try_exists().unwrap());
    let aborted = Aborted(&mounted.point);
    mounted.shell("ls $M/0/d0; cat $M/0/d0/f0 $M/0/d0/f1");
    eventually("the file is pushed", || signal.try_exists().unwrap());
    let mut reader = Command::new("cat");
    let reader = reader.arg(mounted.path(MET.0)).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut reader = reader.spawn().unwrap();
    eventually("the push waits for the reader", || is_in_the_kernel(server.id(), "nono-push"));

    server.kill().unwrap();
    eventually("the server ends", || has_ended(&mut server));
    eventually("the reader ends", || has_ended(&mut reader));
    assert_eq!(server.wait().unwrap().signal(), Some(9));
    // The push may come before the reader looks again.
    let read = reader.wait_with_output().unwrap();
    assert_eq!(read.stdout, if read.status.success() { MET.1 } else { b"" });
    eventually("the guard ends", || {
        matches!(check_mount_point(&mounted.point), Ok(MountPoint::Dead(_)))
    });
    drop(aborted);
}
