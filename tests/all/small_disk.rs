//! A file system that is soon full.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::not_run::needs_root;

/// A small file system of its own, gone with the value.
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None`, and said so, where file systems cannot be mounted.
    pub fn mount(path: &Path, kilobytes: u32) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let size = format!("size={kilobytes}k,mode=0755");
        let mounted = rustix::process::geteuid().is_root()
            && Command::new("mount")
                .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
                .arg(path)
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success());
        if !mounted {
            needs_root("mounts a small file system");
            return None;
        }
        Some(Self(path.to_owned()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Bytes that are free.
    pub fn free(&self) -> u64 {
        let space = rustix::fs::statvfs(&self.0).unwrap();
        space.f_bavail * space.f_frsize
    }

    /// The file that [`fill`](Self::fill) writes.
    pub fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Leaves no byte free.
    pub fn fill(&self) {
        let mut filler = fs::File::create(self.filler()).unwrap();
        for length in [1 << 16, 1 << 12, 1] {
            while filler.write_all(&vec![1; length]).is_ok() {}
        }
        assert_eq!(self.free(), 0);
    }

    pub fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        let mut command = Command::new("mount");
        assert!(command.args(["-o", &options]).arg(&self.0).status().unwrap().success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
