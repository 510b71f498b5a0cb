//! Numbers, lengths and names in a cache, little endian.

use super::StatKey;
use crate::object::{ContentHash, FileTime, Xattrs};

pub(super) fn put_u32(out: &mut Vec<u8>, value: usize) {
    out.extend_from_slice(&(value as u32).to_le_bytes());
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(out, bytes.len());
    out.extend_from_slice(bytes);
}

pub(super) fn put_key(out: &mut Vec<u8>, key: &StatKey) {
    for number in [key.dev, key.ino, key.size] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    for time in [key.mtime, key.ctime] {
        put_time(out, time);
    }
}

pub(super) fn put_time(out: &mut Vec<u8>, time: FileTime) {
    out.extend_from_slice(&time.seconds.to_le_bytes());
    out.extend_from_slice(&time.nanoseconds.to_le_bytes());
}

pub(super) fn put_xattrs(out: &mut Vec<u8>, xattrs: &Xattrs) {
    put_u32(out, xattrs.iter().count());
    for (name, value) in xattrs.iter() {
        put_bytes(out, name);
        put_bytes(out, value);
    }
}

/// Takes fields from the front; `None` where the bytes end.
pub(super) struct Fields<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Fields<'a> {
    pub(super) fn raw(&mut self, len: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.raw(N)?.try_into().ok()
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.array()?))
    }

    /// A length that is inside the bytes.
    pub(super) fn length(&mut self) -> Option<usize> {
        let len = self.u32()? as usize;
        (len <= self.bytes.len() - self.at).then_some(len)
    }

    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = self.length()?;
        self.raw(len)
    }

    pub(super) fn hash(&mut self) -> Option<ContentHash> {
        Some(ContentHash::from_bytes(self.array()?))
    }

    pub(super) fn time(&mut self) -> Option<FileTime> {
        Some(FileTime { seconds: i64::from_le_bytes(self.array()?), nanoseconds: self.u32()? })
    }

    pub(super) fn key(&mut self) -> Option<StatKey> {
        Some(StatKey {
            dev: self.u64()?,
            ino: self.u64()?,
            size: self.u64()?,
            mtime: self.time()?,
            ctime: self.time()?,
        })
    }

    pub(super) fn xattrs(&mut self) -> Option<Xattrs> {
        let count = self.u32()?;
        let mut pairs = Vec::new();
        for _ in 0..count {
            pairs.push((self.bytes()?.into(), self.bytes()?.into()));
        }
        Some(Xattrs::new(pairs))
    }
}
