//! Members of a tar file with PAX attributes, as GNU tar and bsdtar read them.

use std::io::{self, Write};

use tar::{EntryType, Header};

use nono_engine::object::{Attributes, FileTime};

/// Longest name in a plain header.
const MAX_NAME_BYTES: usize = 100;
/// Largest owner in a plain header.
const MAX_PLAIN_ID: u32 = 0o7_777_777;
/// Largest length in a plain header.
pub(super) const MAX_PLAIN_SIZE: u64 = 0o77_777_777_777;
const BLOCK_BYTES: u64 = 512;

/// Writes a tar file.
pub(crate) struct Members<W> {
    pub(crate) out: W,
}

/// A member without its contents.
pub(crate) struct Member<'a> {
    pub(crate) path: &'a [u8],
    pub(crate) kind: EntryType,
    pub(crate) size: u64,
    /// The target of a symlink or a hard link.
    pub(crate) target: &'a [u8],
    pub(crate) device: Option<(u32, u32)>,
    pub(crate) attributes: &'a Attributes,
}

impl<W: Write> Members<W> {
    /// Writes a whole member of `meta/`.
    pub(crate) fn document(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.begin_document(path, bytes.len() as u64)?;
        self.out.write_all(bytes)?;
        self.end(bytes.len() as u64)
    }

    pub(crate) fn begin_document(&mut self, path: &str, size: u64) -> io::Result<()> {
        let attributes = Attributes { mode: 0o600, ..Attributes::default() };
        self.begin(&Member {
            path: path.as_bytes(),
            kind: EntryType::Regular,
            size,
            target: b"",
            device: None,
            attributes: &attributes,
        })
    }

    /// Writes the header; contents of `size` bytes and [`end`](Self::end) follow.
    pub(crate) fn begin(&mut self, member: &Member<'_>) -> io::Result<()> {
        let Attributes { mode, uid, gid, mtime, xattrs } = member.attributes;
        let mut records = Vec::new();
        if member.path.len() > MAX_NAME_BYTES {
            record(&mut records, b"path", member.path);
        }
        if member.target.len() > MAX_NAME_BYTES {
            record(&mut records, b"linkpath", member.target);
        }
        if member.size > MAX_PLAIN_SIZE {
            record(&mut records, b"size", member.size.to_string().as_bytes());
        }
        for (key, id) in [(&b"uid"[..], *uid), (b"gid", *gid)] {
            if id > MAX_PLAIN_ID {
                record(&mut records, key, id.to_string().as_bytes());
            }
        }
        if mtime.nanoseconds != 0 || !(0..=0o77_777_777_777).contains(&mtime.seconds) {
            record(&mut records, b"mtime", time(*mtime).as_bytes());
        }
        for (name, value) in xattrs.iter() {
            let mut key = b"SCHILY.xattr.".to_vec();
            for byte in name {
                // As GNU tar writes what would end the key.
                match byte {
                    b'%' => key.extend(b"%25"),
                    b'=' => key.extend(b"%3D"),
                    byte => key.push(*byte),
                }
            }
            record(&mut records, &key, value);
        }
        if !records.is_empty() {
            let plain = Attributes { mode: 0o600, ..Attributes::default() };
            let mut header = header(EntryType::XHeader, records.len() as u64, &plain);
            set_name(&mut header, b"PaxHeaders/attributes");
            header.set_cksum();
            self.out.write_all(header.as_bytes())?;
            self.out.write_all(&records)?;
            self.end(records.len() as u64)?;
        }
        let plain = Attributes {
            mode: *mode,
            uid: (*uid).min(MAX_PLAIN_ID),
            gid: (*gid).min(MAX_PLAIN_ID),
            mtime: *mtime,
            ..Attributes::default()
        };
        let mut header = header(member.kind, member.size.min(MAX_PLAIN_SIZE), &plain);
        set_name(&mut header, &member.path[..member.path.len().min(MAX_NAME_BYTES)]);
        let target = &member.target[..member.target.len().min(MAX_NAME_BYTES)];
        header.as_old_mut().linkname[..target.len()].copy_from_slice(target);
        if let Some((major, minor)) = member.device {
            header.set_device_major(major)?;
            header.set_device_minor(minor)?;
        }
        header.set_cksum();
        self.out.write_all(header.as_bytes())
    }

    /// Fills the last block of contents.
    pub(crate) fn end(&mut self, size: u64) -> io::Result<()> {
        let rest = (BLOCK_BYTES - size % BLOCK_BYTES) % BLOCK_BYTES;
        self.out.write_all(&[0; BLOCK_BYTES as usize][..rest as usize])
    }

    /// Writes the end of the file.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 2 * BLOCK_BYTES as usize])?;
        Ok(self.out)
    }
}

/// The bytes in front of the contents of a member. They follow from its entry alone, so that
/// whoever verifies an archive compares them.
pub(crate) fn header_of(member: &Member<'_>) -> io::Result<Vec<u8>> {
    let mut members = Members { out: Vec::new() };
    members.begin(member)?;
    Ok(members.out)
}

/// As [`header_of`], of a member of `meta/`.
pub(crate) fn header_of_document(path: &str, size: u64) -> io::Result<Vec<u8>> {
    let mut members = Members { out: Vec::new() };
    members.begin_document(path, size)?;
    Ok(members.out)
}

fn header(kind: EntryType, size: u64, attributes: &Attributes) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(attributes.mode.into());
    header.set_uid(attributes.uid.into());
    header.set_gid(attributes.gid.into());
    header.set_mtime(attributes.mtime.seconds.clamp(0, 0o77_777_777_777) as u64);
    header
}

fn set_name(header: &mut Header, name: &[u8]) {
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
}

/// `LENGTH KEY=VALUE\n`, where the length counts itself.
fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while rest + len.to_string().len() != len {
        len = rest + len.to_string().len();
    }
    out.extend(len.to_string().as_bytes());
    out.push(b' ');
    out.extend(key);
    out.push(b'=');
    out.extend(value);
    out.push(b'\n');
}

/// Seconds with a fraction; before 1970 the fraction counts backwards, as in `-1.5`.
fn time(time: FileTime) -> String {
    let FileTime { seconds, nanoseconds } = time;
    let text = match seconds < 0 && nanoseconds > 0 {
        true => format!("-{}.{:09}", (seconds + 1).unsigned_abs(), 1_000_000_000 - nanoseconds),
        false => format!("{seconds}.{nanoseconds:09}"),
    };
    let is_whole = nanoseconds == 0;
    let end = if is_whole { text.find('.').unwrap_or(text.len()) } else { text.len() };
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_itself() {
        for len in 0..300 {
            let mut out = Vec::new();
            record(&mut out, b"key", &vec![b'v'; len]);
            let text = String::from_utf8(out).unwrap();
            assert_eq!(text.split(' ').next().unwrap(), text.len().to_string());
        }
    }

    #[test]
    fn times_have_their_fraction() {
        let of = |seconds, nanoseconds| time(FileTime { seconds, nanoseconds });
        assert_eq!(of(1, 0), "1");
        assert_eq!(of(10, 500_000_000), "10.500000000");
        assert_eq!(of(-2, 500_000_000), "-1.500000000");
        assert_eq!(of(-1, 1), "-0.999999999");
        assert_eq!(of(-3, 0), "-3");
    }
}
