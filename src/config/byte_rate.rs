//! Bytes in a second, as a flag and a setting give them.

use std::num::NonZeroU64;

/// Reads a number of bytes in a second: `500K`, `2M`, `1GiB`, with binary units.
///
/// # Errors
/// It is no such number, or 0.
pub fn parse_byte_rate(text: &str) -> Result<NonZeroU64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = unit.strip_suffix("iB").or_else(|| unit.strip_suffix('B')).unwrap_or(unit);
    let shift = match unit {
        "" => Some(0),
        "K" | "k" => Some(10),
        "M" => Some(20),
        "G" => Some(30),
        _ => None,
    };
    let number = digits.parse::<u64>().ok().zip(shift);
    let bytes = number.and_then(|(number, shift)| number.checked_mul(1 << shift));
    bytes.and_then(NonZeroU64::new).ok_or_else(|| "give bytes in a second: 500K, 2M, 1G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_with_a_binary_unit() {
        let read = |text: &str| parse_byte_rate(text).ok().map(NonZeroU64::get);
        for (text, bytes) in [("7", 7), ("500K", 500 << 10), ("2MiB", 2 << 20), ("1GB", 1 << 30)] {
            assert_eq!(read(text), Some(bytes), "{text}");
        }
        for text in ["", "0", "0K", "-1", "1.5M", "M", "1T", "99999999999999999G", "1 M"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
