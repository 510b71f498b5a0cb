//! A mounted tree, and the commands run on it.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nono_mount::{Mount, MountError, MountOptions};
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use crate::memory::Memory;
use crate::not_run::not_run;

/// A tree mounted at a temporary directory.
pub(crate) struct Mounted {
    pub(crate) mount: Option<Mount>,
    pub(crate) point: PathBuf,
    pub(crate) scratch: TempDir,
}

/// Mounts without a predictor; `None`, and noted so, where nothing can be mounted.
pub(crate) fn mount(memory: &Memory) -> Option<Mounted> {
    // The pushed files depend on which thread is faster; tests that are not about it go without.
    mount_with(memory, MountOptions { predictor: false, ..MountOptions::default() })
}

pub(crate) fn mount_with(memory: &Memory, options: MountOptions) -> Option<Mounted> {
    let scratch = TempDir::new().unwrap();
    let point = scratch.path().canonicalize().unwrap().join("mnt");
    fs::create_dir(&point).unwrap();
    match Mount::new(memory.clone(), &point, options) {
        Ok(mount) => Some(Mounted { mount: Some(mount), point, scratch }),
        Err(
            error @ (MountError::NoFuseDevice
            | MountError::FuseDevicePermission
            | MountError::NoFusermount
            | MountError::Permission { .. }),
        ) => {
            not_run(error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

impl Mounted {
    pub(crate) fn mount(&self) -> &Mount {
        self.mount.as_ref().unwrap()
    }

    pub(crate) fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.point.join(below)
    }

    pub(crate) fn output(&self, program: &str, arguments: &[&dyn AsRef<OsStr>]) -> Output {
        let mut command = Command::new(program);
        command.args(arguments.iter().map(AsRef::as_ref)).current_dir(self.scratch.path());
        command.env("LC_ALL", "C").output().unwrap()
    }

    /// A script with `$M` as the mount point.
    pub(crate) fn shell(&self, script: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-euc", script]).env("M", &self.point).env("LC_ALL", "C");
        let output = command.current_dir(self.scratch.path()).output().unwrap();
        assert!(output.status.success(), "{script}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }
}

/// A tree with `directories` directories of `files` files each.
pub(crate) fn many(directories: usize, files: usize) -> crate::memory::Spec {
    use crate::memory::{dir, file};
    dir((0..directories).map(|d| {
        let entries =
            (0..files).map(move |f| (format!("f{f}"), file(format!("contents {d} {f}\n"))));
        (format!("d{d}"), dir(entries))
    }))
}

/// Where a test that runs [in a process of its own](this_program) mounts.
pub(crate) const SERVE_AT: &str = "NONO_TEST_SERVE_AT";

/// This program as another process that runs one test.
pub(crate) fn this_program(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "--ignored", test]).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Waits for what must come soon; only the patience is a time.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < patience, "never: {what}");
        std::thread::yield_now();
    }
}

/// As long as this is held, no test makes the kernel forget anything: its caches are those of all
/// tests at once, in whichever process they run. Held by what counts messages, never by what
/// forgets.
pub(crate) fn keep_caches() -> fs::File {
    lock_caches(FlockOperation::LockShared)
}

fn lock_caches(how: FlockOperation) -> fs::File {
    // For each user, as another's file cannot be opened.
    let name = format!("nono-mount-tests-{}", rustix::process::getuid().as_raw());
    let path = std::env::temp_dir().join(name);
    let file = fs::File::options().create(true).truncate(false).write(true).open(path).unwrap();
    flock(&file, how).unwrap();
    file
}

/// Makes the kernel forget what no process uses: "1" pages, "2" names and inodes, "3" both.
///
/// # Errors
/// Where that is not allowed.
pub(crate) fn drop_caches(what: &str) -> std::io::Result<()> {
    let _alone = lock_caches(FlockOperation::LockExclusive);
    fs::write("/proc/sys/vm/drop_caches", what)
}
