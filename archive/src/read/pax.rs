//! The records of a PAX header.

use crate::ArchiveError;

/// Records of a PAX header: `LENGTH KEY=VALUE\n`, with the length of the whole record in decimal
/// digits (POSIX, `pax`, "pax Extended Header"). A value has any bytes, newlines too, so only the
/// length tells where a record ends.
pub(super) struct PaxRecords<'a> {
    left: &'a [u8],
}

/// A key and its value.
type Record<'a> = (&'a [u8], &'a [u8]);

impl<'a> PaxRecords<'a> {
    pub(super) fn new(header: &'a [u8]) -> Self {
        Self { left: header }
    }

    /// The first record, and what follows it.
    fn split(left: &'a [u8]) -> Option<(Record<'a>, &'a [u8])> {
        let space = left.iter().position(|byte| *byte == b' ')?;
        let digits = left[..space].iter().all(u8::is_ascii_digit);
        let length: usize = std::str::from_utf8(&left[..space]).ok()?.parse().ok()?;
        let record = left.get(space + 1..length).filter(|_| digits)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|byte| *byte == b'=')?;
        Some(((&record[..equals], &record[equals + 1..]), &left[length..]))
    }
}

impl<'a> Iterator for PaxRecords<'a> {
    type Item = Result<Record<'a>, ArchiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left.is_empty() {
            return None;
        }
        match Self::split(self.left) {
            Some((record, left)) => {
                self.left = left;
                Some(Ok(record))
            }
            None => {
                self.left = &[];
                Some(Err(ArchiveError::corrupt("attributes of a file that cannot be read")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
        PaxRecords::new(header).collect::<Result<_, _>>().ok()
    }

    #[test]
    fn values_have_any_bytes() {
        let two = [(&b"path"[..], &b"a\nb"[..]), (b"x", b"\n=")];
        assert_eq!(read(b"12 path=a\nb\n7 x=\n=\n").unwrap(), two);
        assert_eq!(read(b"").unwrap(), []);
    }

    #[test]
    fn what_is_no_record_is_an_error() {
        for header in [
            &b"12 path=a\nb"[..],
            b"13 path=a\nb\n",
            b"3 a\n",
            b" a=b\n",
            b"+6 a=b\n",
            b"99999999999999999999 a=b\n",
            b"0 a=b\n",
            b"2 a=b\n",
            b"6 a=b\n7",
        ] {
            assert!(read(header).is_none(), "{}", header.escape_ascii());
        }
    }
}
