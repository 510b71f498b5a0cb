//! Making the index while an archive is written.

use std::io::{self, Write};

use super::{
    BLOCK_BYTES, FOOTER_BYTES, FRAME_BYTES, KEY_BYTES, MAGIC, MAX_FRAMES, RECORD_BYTES,
    SKIPPED_MAGIC, SUM_BYTES,
};
use nono_engine::object::ContentHash;

/// Where the objects of an archive stand: thirteen bytes of memory for each.
#[derive(Debug, Default)]
pub(crate) struct Notes(Vec<[u8; RECORD_BYTES]>);

impl Notes {
    /// Notes an object whose last header block begins so many bytes behind the begin of the tar
    /// file.
    pub(crate) fn add(&mut self, hash: &ContentHash, header_at: u64) {
        let mut record = [0; RECORD_BYTES];
        record[..KEY_BYTES].copy_from_slice(&hash.as_bytes()[..KEY_BYTES]);
        let block = (header_at / BLOCK_BYTES).to_be_bytes();
        record[KEY_BYTES..].copy_from_slice(&block[3..]);
        self.0.push(record);
    }
}

/// Writes the index. `frames` are the lengths of the frames, compressed and decompressed. An
/// archive that is too long for an index has none.
///
/// # Errors
/// When `out` fails.
pub(crate) fn write_index(
    mut notes: Notes,
    frames: &[(u32, u32)],
    out: &mut impl Write,
) -> io::Result<()> {
    notes.0.sort_unstable();
    // Equal contents are several times in an archive.
    notes.0.dedup_by(|a, b| a[..KEY_BYTES] == b[..KEY_BYTES]);
    let bytes = frames.len() * FRAME_BYTES + notes.0.len() * RECORD_BYTES + FOOTER_BYTES;
    let (Ok(length), Ok(count)) = (u32::try_from(bytes), u32::try_from(frames.len())) else {
        return Ok(());
    };
    if count > MAX_FRAMES {
        return Ok(());
    }
    let mut content = Vec::with_capacity(bytes);
    for (compressed, decompressed) in frames {
        content.extend(compressed.to_le_bytes());
        content.extend(decompressed.to_le_bytes());
    }
    content.extend(notes.0.as_flattened());
    content.extend(count.to_le_bytes());
    content.extend((notes.0.len() as u64).to_le_bytes());
    content.extend(length.to_le_bytes());
    let sum = ContentHash::of(&content);
    content.extend(&sum.as_bytes()[..SUM_BYTES]);
    content.extend(MAGIC);
    out.write_all(&SKIPPED_MAGIC)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&content)
}
