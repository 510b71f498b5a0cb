//! Counts in words: `1 file`, `2 files`.
//!
//! Each message with a number and a noun is made here, so no message says "1 files".

use std::fmt::Display;

/// A count with its noun: `one` behind 1, `many` behind every other number.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, one: &str, many: &str) -> String {
    let noun = if count == N::from(1) { one } else { many };
    format!("{count} {noun}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        let all: Vec<String> = (0_u64..3).map(|count| counted(count, "file", "files")).collect();
        assert_eq!(all, ["0 files", "1 file", "2 files"]);
        assert_eq!(counted(1_usize, "directory", "directories"), "1 directory");
        assert_eq!(counted(21_usize, "directory", "directories"), "21 directories");
    }
}
