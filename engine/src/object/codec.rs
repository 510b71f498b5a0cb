//! The few primitives that all binary objects are made of.
//!
//! Canonical: each value has exactly one encoding, and the reader refuses every other one, so equal
//! values are equal bytes and equal hashes. Total: the reader never panics, and what it allocates
//! is decided by what the input has and not by what it declares.

/// Why bytes are not an object of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The first bytes are not the ones this kind of object starts with.
    #[error("does not start like a {0}")]
    WrongMagic(&'static str),
    /// Written by a newer nono.
    #[error("format version {found} is newer than the newest known here ({known})")]
    NewerVersion {
        /// Version in the object.
        found: u8,
        /// Newest version that this program reads.
        known: u8,
    },
    /// The bytes end in the middle of a value.
    #[error("ends too early, at byte {0}")]
    Truncated(usize),
    /// Bytes follow the last value.
    #[error("{0} bytes follow the end")]
    TrailingBytes(usize),
    /// A value that the format does not allow.
    #[error("{what} at byte {at}")]
    Invalid {
        /// The defect.
        what: &'static str,
        /// Where it was noticed.
        at: usize,
    },
}

/// Appends values.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn new(magic: &[u8; 8], version: u8) -> Self {
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(magic);
        bytes.push(version);
        Self(bytes)
    }

    /// Writes after what is there already, for a part of an object.
    pub(crate) fn append_to(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    /// LEB128, as in DWARF and WebAssembly.
    pub(crate) fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Zigzag, then LEB128, as in Protocol Buffers: small negative numbers stay short.
    pub(crate) fn signed(&mut self, value: i64) {
        self.varint(((value << 1) ^ (value >> 63)) as u64);
    }

    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.varint(bytes.len() as u64);
        self.raw(bytes);
    }

    /// The bytes appended so far, for a writer that passes on long objects in parts: empty it then.
    pub(crate) fn part(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Takes values from the front.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(
        bytes: &'a [u8],
        magic: &[u8; 8],
        kind: &'static str,
        known: u8,
    ) -> Result<Self, DecodeError> {
        if !bytes.starts_with(magic) {
            return Err(DecodeError::WrongMagic(kind));
        }
        let mut reader = Self { bytes, at: magic.len() };
        match reader.u8()? {
            found if found > known => Err(DecodeError::NewerVersion { found, known }),
            0 => Err(reader.invalid("format version 0")),
            _ => Ok(reader),
        }
    }

    pub(crate) fn invalid(&self, what: &'static str) -> DecodeError {
        DecodeError::Invalid { what, at: self.at }
    }

    pub(crate) fn raw(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let end = self.at.checked_add(len).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or(DecodeError::Truncated(self.bytes.len()))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut out = [0; N];
        out.copy_from_slice(self.raw(N)?);
        Ok(out)
    }

    pub(crate) fn hash(&mut self) -> Result<super::ContentHash, DecodeError> {
        Ok(super::ContentHash::from_bytes(self.array()?))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                return Err(self.invalid("number beyond 64 bits"));
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                if byte == 0 && shift > 0 {
                    return Err(self.invalid("number not in its shortest form"));
                }
                return Ok(value);
            }
        }
        Err(self.invalid("number without end"))
    }

    pub(crate) fn varint_u32(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.varint()?).map_err(|_| self.invalid("number beyond 32 bits"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64, DecodeError> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// A length-prefixed byte string.
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.varint()?;
        self.raw(usize::try_from(len).map_err(|_| DecodeError::Truncated(self.bytes.len()))?)
    }

    /// A count of items that are at least `min_len` bytes each; more than fit is refused here, so
    /// that a declared count never decides how much memory is taken.
    pub(crate) fn count(&mut self, min_len: usize) -> Result<usize, DecodeError> {
        let count = self.varint()?;
        let most = (self.bytes.len() - self.at) / min_len.max(1);
        match usize::try_from(count) {
            Ok(count) if count <= most => Ok(count),
            _ => Err(self.invalid("more items declared than there are bytes")),
        }
    }

    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        match self.bytes.len() - self.at {
            0 => Ok(()),
            left => Err(DecodeError::TrailingBytes(left)),
        }
    }
}
