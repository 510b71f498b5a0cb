//! Removing directories of nono's own with everything in them.

use super::Dir;
use crate::sys::error::Result;
use crate::sys::stat::FileKind;

impl Dir {
    /// Removes a directory of nono's own with everything in it; a symlink in it is removed, not
    /// followed. Never used on a tracked path.
    ///
    /// The directory may be as deep as the disk is large: deeper directories are moved up before
    /// their contents are removed, so depth costs neither stack nor descriptors, and `..` is not
    /// needed.
    ///
    /// # Errors
    /// The first that occurs.
    pub fn remove_dir_all(&self, name: &[u8]) -> Result<()> {
        let top = self.open_own_dir(name)?;
        let mut directories = Vec::new();
        top.remove_files(|name| {
            directories.push(name.to_vec());
            Ok(())
        })?;
        let moved = hex::encode(&crate::sys::random_bytes()?[..8]);
        let mut moved_count = 0u64;
        while let Some(directory) = directories.pop() {
            let dir = top.open_own_dir(&directory)?;
            dir.remove_files(|name| {
                moved_count += 1;
                let new_name = format!(".{moved}-{moved_count}").into_bytes();
                // Moving a directory to another one writes to it.
                dir.open_own_dir(name)?;
                dir.rename(name, &top, &new_name)?;
                directories.push(new_name);
                Ok(())
            })?;
            top.remove_dir(&directory)?;
        }
        self.remove_dir(name)
    }

    /// Opens a directory of nono's own, made accessible if it is not.
    ///
    /// # Errors
    /// As [`open_dir`](Self::open_dir).
    pub fn open_own_dir(&self, name: &[u8]) -> Result<Self> {
        let inode = self.inode(name)?;
        let stat = inode.stat()?;
        if stat.kind == FileKind::Directory && stat.mode & 0o700 != 0o700 {
            inode.set_mode(stat.mode | 0o700)?;
        }
        self.open_dir(name)
    }

    /// Removes what is no directory, and names those that are.
    fn remove_files(&self, mut directory: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        for listed in self.names()? {
            if self.stat(&listed.name)?.kind == FileKind::Directory {
                directory(&listed.name)?;
            } else {
                self.remove_file(&listed.name)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    #[test]
    fn a_directory_of_any_depth_and_mode_is_removed_with_few_descriptors() {
        let temp = tempfile::tempdir().unwrap();
        let dir = Dir::open(temp.path()).unwrap();
        let outside = temp.path().join("outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("kept"), b"").unwrap();
        dir.make_dir(b"top", 0o700).unwrap();
        let mut current = dir.open_dir(b"top").unwrap();
        for level in 0..20_000 {
            current.make_dir(b"d", 0o700).unwrap();
            let next = current.open_dir(b"d").unwrap();
            if level % 1000 == 0 {
                current.make_symlink(b"link", outside.as_os_str().as_bytes()).unwrap();
                current.create_file(b"file", 0).unwrap();
                current.make_dir(b"empty", 0).unwrap();
                current.inode(b".").unwrap().set_mode(0o500).unwrap();
            }
            current = next;
            // Only for messages, and long.
            current.path = PathBuf::new();
        }
        dir.remove_dir_all(b"top").unwrap();
        assert!(dir.try_stat(b"top").unwrap().is_none());
        assert!(outside.join("kept").exists());
    }
}
