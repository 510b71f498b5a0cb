//! Small files as a whole: read at once, and replaced at once.

use std::fs::File;
use std::io::{self, Write};

use rustix::io::Errno;

use super::Dir;
use crate::sys::error::{IoContext, Result};
use crate::sys::fail_point::{self, Operation, Place};
use crate::sys::stat::FileKind;

impl Dir {
    /// Reads a whole file of at most `max_bytes`.
    ///
    /// # Errors
    /// EFBIG when it is larger; EINVAL when it is not a regular file.
    pub fn read(&self, name: &[u8], max_bytes: u64) -> Result<Vec<u8>> {
        let file = self.open_file(name, false)?;
        let stat = self.stat_file(&file, name)?;
        if stat.kind != FileKind::File {
            return Err(Errno::INVAL).at("read as a regular file", &self.path_of(name));
        }
        if stat.size > max_bytes {
            return Err(Errno::FBIG).at("read", &self.path_of(name));
        }
        let mut bytes = vec![0; stat.size as usize];
        let len = crate::sys::read_full_at(&file, &mut bytes, 0).at("read", &self.path_of(name))?;
        bytes.truncate(len);
        Ok(bytes)
    }

    /// Replaces a file at once: readers see the old or the new bytes, never a part. With `durable`
    /// the new bytes and their name are on the disk when this returns.
    ///
    /// # Errors
    /// EACCES, ENOSPC; the old file is then still there.
    pub fn replace_file(&self, name: &[u8], bytes: &[u8], mode: u16, durable: bool) -> Result<()> {
        self.replace_file_with(name, mode, durable, |file| file.write_all(bytes))
    }

    /// As [`replace_file`](Self::replace_file), for bytes that are not all in memory: `write`
    /// writes them.
    ///
    /// # Errors
    /// As there, and those of `write`.
    pub fn replace_file_with(
        &self,
        name: &[u8],
        mode: u16,
        durable: bool,
        write: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> Result<()> {
        let path = self.path_of(name);
        // A name that no other process takes, so that two writers cannot publish each other's half.
        let random = hex::encode(&crate::sys::random_bytes()?[..8]);
        let temp = [b".", name, b".new-", random.as_bytes()].concat();
        let written = (|| {
            let mut file = self.create_file(&temp, mode)?;
            fail_point::around(Operation::Attributes, || write(&mut file)).at("write", &path)?;
            if durable {
                let synced = Operation::SyncFile(Place(self, &temp));
                fail_point::around(synced, || rustix::fs::fsync(&file)).at("flush", &path)?;
            }
            self.rename(&temp, self, name)
        })();
        if written.is_err() {
            let _ = self.remove_file(&temp);
        } else if durable {
            self.sync()?;
        }
        written
    }

    /// Removes what a crash left of [`replace_file`](Self::replace_file) for this name. Only for
    /// a caller that keeps all others from replacing it; a failure leaves unread files.
    pub(crate) fn remove_unfinished(&self, name: &[u8]) {
        let temporary = [b".", name, b".new-"].concat();
        for listed in self.names().unwrap_or_default() {
            if listed.name.starts_with(&temporary) {
                let _ = self.remove_file(&listed.name);
            }
        }
    }
}
