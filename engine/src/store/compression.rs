//! Compression on the way to the disk, and back into memory of a known length.
//!
//! Nothing that comes out of here is trusted: the name of an object proves its bytes. A length that
//! a file declares is checked against a bound before it gets here.

use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe::WriteBuf;

/// How much work is spent on a small store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Compression {
    /// Everything is stored as it is.
    Off,
    /// As fast as a disk writes.
    #[default]
    Fast,
    /// Smaller, and some times slower.
    Small,
}

/// Bytes are stored compressed when that spares at least one in so many of them.
const WORTH_IT: usize = 16;

thread_local! {
    static COMPRESSOR: RefCell<Option<(i32, Compressor<'static>)>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

impl Compression {
    fn level(self) -> Option<i32> {
        match self {
            Self::Off => None,
            Self::Fast => Some(1),
            Self::Small => Some(9),
        }
    }

    /// Appends the compressed bytes. Appends nothing and says `false` where that does not pay.
    pub(super) fn compress(self, plain: &[u8], out: &mut Vec<u8>) -> bool {
        let Some(level) = self.level() else { return false };
        let start = out.len();
        out.resize(start + plain.len() - plain.len().div_ceil(WORTH_IT), 0);
        let compressed = COMPRESSOR.with_borrow_mut(|kept| {
            let compressor = match kept {
                Some((of, compressor)) if *of == level => compressor,
                _ => &mut kept.insert((level, Compressor::new(level).ok()?)).1,
            };
            // It fails where the room does not suffice.
            compressor.compress_to_buffer(plain, &mut out[start..]).ok()
        });
        out.truncate(start + compressed.unwrap_or(0));
        compressed.is_some()
    }
}

/// Fills `plain` with what was compressed. `false`: these are not so many compressed bytes.
pub(super) fn decompress(stored: &[u8], plain: &mut [u8]) -> bool {
    decompress_to(stored, plain) == Some(plain.len())
}

/// The `len` bytes that were compressed, in this memory, which has room for them and is written
/// once. `None`: these are not so many compressed bytes.
pub(super) fn decompressed(stored: &[u8], len: usize, mut plain: Vec<u8>) -> Option<Vec<u8>> {
    (decompress_to(stored, &mut plain) == Some(len)).then_some(plain)
}

/// All of it goes into this memory, and no window beside it.
fn decompress_to(stored: &[u8], plain: &mut (impl WriteBuf + ?Sized)) -> Option<usize> {
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let decompressor = match kept {
            Some(decompressor) => decompressor,
            None => kept.insert(Decompressor::new().ok()?),
        };
        decompressor.decompress_to_buffer(stored, plain).ok()
    })
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Fast => "fast",
            Self::Small => "small",
        })
    }
}

impl FromStr for Compression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self::Off),
            "fast" => Ok(Self::Fast),
            "small" => Ok(Self::Small),
            _ => Err(format!("{text} is none of fast, small, off")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shrinks_comes_back_and_what_does_not_is_left_as_it_is() {
        let text = b"all work and no play ".repeat(1000);
        let noise: Vec<u8> = (0..2000_u32)
            .flat_map(|number| *crate::object::ContentHash::of(&number.to_le_bytes()).as_bytes())
            .collect();
        for compression in [Compression::Fast, Compression::Small] {
            let mut out = b"before".to_vec();
            assert!(compression.compress(&text, &mut out));
            assert!(out.starts_with(b"before") && out.len() < text.len() / 10);
            let mut plain = vec![0; text.len()];
            assert!(decompress(&out[6..], &mut plain));
            assert_eq!(plain, text);
            for room in [text.len(), 2 * text.len()] {
                let decompressed = |len| decompressed(&out[6..], len, Vec::with_capacity(room));
                assert_eq!(decompressed(text.len()), Some(text.clone()));
                for other in [text.len() - 1, text.len() + 1] {
                    assert_eq!(decompressed(other), None, "another length than declared");
                }
            }
            assert!(!decompress(&out[6..], &mut plain[1..]), "more than there is room for");
            assert!(!decompress(&out[6..], &mut vec![0; text.len() + 1]), "less than was declared");
            assert!(!decompress(&out[6..out.len() - 1], &mut plain));
            let mut out = b"before".to_vec();
            assert!(!compression.compress(&noise, &mut out));
            assert!(!compression.compress(b"", &mut out) || out.len() == 6);
            assert_eq!(out, b"before");
        }
        assert!(!Compression::Off.compress(&text, &mut Vec::new()));
    }
}
