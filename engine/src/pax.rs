//! The records of a PAX header of a tar file.

/// Records of a PAX header: `LENGTH KEY=VALUE\n`, with the length of the whole record in decimal
/// digits (POSIX, `pax`, "pax Extended Header"). A value has any bytes, newlines too, so only the
/// length tells where a record ends.
#[derive(Debug, Clone)]
pub struct PaxRecords<'a> {
    left: &'a [u8],
}

/// A key and its value.
pub type PaxRecord<'a> = (&'a [u8], &'a [u8]);

/// Bytes that are no record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("attributes of a file that cannot be read")]
pub struct NoPaxRecord;

impl<'a> PaxRecords<'a> {
    /// The records of the contents of a header.
    pub fn new(header: &'a [u8]) -> Self {
        Self { left: header }
    }

    /// The first record, and what follows it.
    fn split(left: &'a [u8]) -> Option<(PaxRecord<'a>, &'a [u8])> {
        let space = left.iter().position(|byte| *byte == b' ')?;
        let digits = left[..space].iter().all(u8::is_ascii_digit);
        let length: usize = std::str::from_utf8(&left[..space]).ok()?.parse().ok()?;
        let record = left.get(space + 1..length).filter(|_| digits)?.strip_suffix(b"\n")?;
        let equals = record.iter().position(|byte| *byte == b'=')?;
        Some(((&record[..equals], &record[equals + 1..]), &left[length..]))
    }
}

impl<'a> Iterator for PaxRecords<'a> {
    type Item = Result<PaxRecord<'a>, NoPaxRecord>;

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
                Some(Err(NoPaxRecord))
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
