//! The part of a patch that says binary contents: git's `GIT binary patch`.
//!
//! git takes contents as a zlib stream in base 85. The stream here is not compressed: a patch is
//! rarely kept, and so needs no other crate.

use std::io::{self, Write};

/// Longest block of a stream that is not compressed (RFC 1951, 3.2.4).
const MAX_BLOCK_BYTES: usize = 0xffff;
/// Bytes in a line of git's base 85.
const LINE_BYTES: usize = 52;
const DIGITS: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
/// Largest prime below 2¹⁶ (RFC 1950, 8.2).
const ADLER_MODULUS: u32 = 65_521;

/// Writes the lines behind the header of a file: the new contents, and the old ones for the way
/// back.
pub(super) fn write_binary(out: &mut dyn Write, old: &[u8], new: &[u8]) -> io::Result<()> {
    out.write_all(b"GIT binary patch\n")?;
    for contents in [new, old] {
        writeln!(out, "literal {}", contents.len())?;
        for line in zlib(contents).chunks(LINE_BYTES) {
            out.write_all(&base85_line(line))?;
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// A zlib stream of these bytes.
fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let mut rest = bytes;
    loop {
        let (block, after) = rest.split_at(rest.len().min(MAX_BLOCK_BYTES));
        let is_last = after.is_empty();
        // It fits: a block has at most so many bytes.
        let length = block.len() as u16;
        stream.push(u8::from(is_last));
        stream.extend_from_slice(&length.to_le_bytes());
        stream.extend_from_slice(&(!length).to_le_bytes());
        stream.extend_from_slice(block);
        if is_last {
            break;
        }
        rest = after;
    }
    stream.extend_from_slice(&adler32(bytes).to_be_bytes());
    stream
}

fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in bytes {
        a = (a + u32::from(*byte)) % ADLER_MODULUS;
        b = (b + a) % ADLER_MODULUS;
    }
    b << 16 | a
}

/// A line: its length as a letter, then five digits for each four bytes.
fn base85_line(bytes: &[u8]) -> Vec<u8> {
    let length = bytes.len() as u8;
    let mut line = vec![if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 }];
    for group in bytes.chunks(4) {
        let mut padded = [0; 4];
        padded[..group.len()].copy_from_slice(group);
        let mut value = u32::from_be_bytes(padded);
        let mut digits = [0; 5];
        for digit in digits.iter_mut().rev() {
            *digit = DIGITS[(value % 85) as usize];
            value /= 85;
        }
        line.extend_from_slice(&digits);
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_the_checksum_of_its_bytes() {
        assert_eq!(adler32(b""), 1);
        assert_eq!(adler32(b"Wikipedia"), 0x11e6_0398);
        assert_eq!(zlib(b"a"), [0x78, 1, 1, 1, 0, 0xfe, 0xff, b'a', 0, 0x62, 0, 0x62]);
        let long = zlib(&[7; MAX_BLOCK_BYTES + 1]);
        assert_eq!(long.len(), 2 + 2 * 5 + MAX_BLOCK_BYTES + 1 + 4);
    }

    #[test]
    fn a_line_begins_with_its_length() {
        assert_eq!(base85_line(&[0; 4]), b"D00000\n");
        assert_eq!(base85_line(&[0xff]), b"A{{R30\n");
        assert_eq!(base85_line(&[0; 52])[0], b'z');
        assert_eq!(base85_line(&[0; 27])[0], b'a');
    }
}
