//! How long the documents of an archive may be. Whoever writes one goes by this, too, so that no
//! archive is made that no reader accepts.

use super::ArchiveError;

/// Longest document of a session or a snapshot, in bytes.
pub(super) const MAX_DOCUMENT_BYTES: u64 = 12 << 20;
/// Most values in one: each takes many times its own length in memory.
const MAX_VALUES: usize = 1 << 18;

/// Refuses a document that takes too much memory.
///
/// # Errors
/// [`ArchiveError::TooLarge`] with its name.
pub(super) fn check_document(name: &str, bytes: &[u8]) -> Result<(), ArchiveError> {
    let values = values(bytes);
    let reason = if bytes.len() as u64 > MAX_DOCUMENT_BYTES {
        format!("{name} has {} bytes, and {MAX_DOCUMENT_BYTES} is the most", bytes.len())
    } else if values > MAX_VALUES {
        format!("{name} has {values} values, and {MAX_VALUES} is the most")
    } else {
        return Ok(());
    };
    Err(ArchiveError::TooLarge { reason })
}

/// About how many values a JSON document has: at least as many as any reader finds in it.
fn values(bytes: &[u8]) -> usize {
    let (mut values, mut is_text, mut is_escaped) = (1, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_text => is_escaped = true,
            b'"' => is_text = !is_text,
            b',' | b':' | b'[' | b'{' if !is_text => values += 1,
            _ => {}
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_outside_of_texts_alone() {
        assert_eq!(values(b"1"), 1);
        assert_eq!(values(br#"["a,b", "c\",[{[", {}]"#), 5);
        assert_eq!(values(br#"{"a": [], "b": "\\", "c": 1}"#), 8);
    }

    #[test]
    fn many_values_in_few_bytes_are_too_large() {
        let many = [b"[", "[],".repeat(MAX_VALUES).as_bytes(), b"[]]"].concat();
        assert!(check_document("meta/session.json", &many).is_err());
        assert!(check_document("meta/session.json", b"[]").is_ok());
        let long = vec![b' '; MAX_DOCUMENT_BYTES as usize + 1];
        assert!(check_document("meta/session.json", &long).is_err());
    }
}
