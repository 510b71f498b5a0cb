//! The changes of a run to the names on the disk, written down so that a test can revert some of
//! them, as a power failure reverts unflushed ones.
//!
//! `NONO_OPERATION_LOG` names a directory. Each line of the file `log` in it is an operation that
//! succeeded, in the order in which they took effect, its fields separated by tabs; paths are those
//! of the moment. A removed file gets one more name there, a number, so that it can be put back as
//! the same inode.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use parking_lot::Mutex;
use rustix::fd::AsRawFd;
use rustix::fs::{AtFlags, CWD};

use super::fail_point::{Operation, Place};

struct Log {
    dir: PathBuf,
    kept: u64,
}

/// Runs a call and writes it down if it succeeds.
pub(super) fn record<T, E>(
    operation: Operation<'_>,
    call: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    static LOG: OnceLock<Option<Mutex<Log>>> = OnceLock::new();
    let log = LOG.get_or_init(|| {
        let dir = std::env::var_os("NONO_OPERATION_LOG")?;
        Some(Mutex::new(Log { dir: dir.into(), kept: 0 }))
    });
    match log {
        None => call(),
        // Held over the call: the order of the log is the order on the disk.
        Some(log) => log.lock().record(operation, call),
    }
}

impl Log {
    fn record<T, E>(
        &mut self,
        operation: Operation<'_>,
        call: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let line = match operation {
            Operation::Attributes | Operation::StartThread(_) | Operation::Request(_) => {
                return call();
            }
            Operation::Create(place) => fields("create", &[path(place)]),
            Operation::MakeDir(place) => fields("mkdir", &[path(place)]),
            Operation::MakeDirAt(path) => fields("mkdir", &[path.to_owned()]),
            Operation::Link(place) => fields("link", &[path(place)]),
            Operation::Rename(from, to) => {
                let kept = self.keep(to);
                fields("rename", &[&[path(from), path(to)], &*kept].concat())
            }
            Operation::Exchange(from, to) => fields("exchange", &[path(from), path(to)]),
            Operation::Remove(place) => {
                let kept = self.keep(place);
                fields("remove", &[&[path(place)], &*kept].concat())
            }
            Operation::RemoveDir(place) => fields("rmdir", &[path(place)]),
            Operation::SyncFile(place) => fields("sync-file", &[path(place)]),
            Operation::SyncDir(dir) => fields("sync-dir", &[path(Place(dir, b""))]),
            Operation::SyncAll => fields("sync-all", &[]),
        };
        let value = call()?;
        let mut log = OpenOptions::new().create(true).append(true).open(self.dir.join("log"));
        if let Ok(log) = &mut log {
            let _ = log.write_all(line.as_bytes());
        }
        Ok(value)
    }

    /// Gives what has a name another one in the log's directory.
    fn keep(&mut self, place: Place<'_>) -> Vec<PathBuf> {
        self.kept += 1;
        let kept = self.dir.join(self.kept.to_string());
        let Place(dir, name) = place;
        let linked = rustix::fs::linkat(dir, name, CWD, &kept, AtFlags::empty());
        linked.map(|()| vec![kept]).unwrap_or_default()
    }
}

fn path(Place(dir, name): Place<'_>) -> PathBuf {
    let own = format!("/proc/self/fd/{}", rustix::fd::AsFd::as_fd(dir).as_raw_fd());
    let dir = std::fs::read_link(own).unwrap_or_default();
    if name.is_empty() { dir } else { dir.join(Path::new(crate::path_text::to_path(name))) }
}

fn fields(word: &str, paths: &[PathBuf]) -> String {
    let mut line = word.to_owned();
    for path in paths {
        line.push('\t');
        line.push_str(&path.to_string_lossy());
    }
    line.push('\n');
    line
}
