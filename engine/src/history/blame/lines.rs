//! The lines of a text that are lines of the text before.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

/// Longest time of one comparison. After it the rest counts as written anew.
const TIMEOUT: Duration = Duration::from_secs(10);

/// For each new line, the number of the old line that it is; `None` for one that is new. Both rise.
/// A comparison that takes longer than ten seconds leaves its rest new.
pub fn found_again(old: &[Vec<u8>], new: &[Vec<u8>]) -> Vec<Option<usize>> {
    let mut numbers: HashMap<&[u8], u32> = HashMap::new();
    for line in old {
        let next = numbers.len() as u32;
        numbers.entry(line).or_insert(next);
    }
    // A line that only one side has is in no common sequence. Without those, a text that was
    // written anew costs nothing.
    let new_in_both: Vec<(usize, u32)> = new
        .iter()
        .enumerate()
        .filter_map(|(at, line)| Some((at, *numbers.get(line.as_slice())?)))
        .collect();
    let mut is_in_new = vec![false; numbers.len()];
    for (_, number) in &new_in_both {
        is_in_new[*number as usize] = true;
    }
    let old_in_both: Vec<(usize, u32)> = old
        .iter()
        .enumerate()
        .map(|(at, line)| (at, numbers[line.as_slice()]))
        .filter(|(_, number)| is_in_new[*number as usize])
        .collect();
    let of = |lines: &[(usize, u32)]| lines.iter().map(|(_, number)| *number).collect::<Vec<_>>();
    let deadline = Instant::now().checked_add(TIMEOUT);
    let ops = capture_diff_slices_deadline(
        Algorithm::Myers,
        &of(&old_in_both),
        &of(&new_in_both),
        deadline,
    );
    let mut found = vec![None; new.len()];
    for op in ops {
        if let DiffOp::Equal { old_index, new_index, len } = op {
            for nth in 0..len {
                found[new_in_both[new_index + nth].0] = Some(old_in_both[old_index + nth].0);
            }
        }
    }
    found
}

/// How much of two texts is the same, in percent of the longer one: bytes of lines that both have,
/// wherever they stand.
pub fn similarity(old: &[u8], new: &[u8]) -> u64 {
    let mut count: HashMap<&[u8], usize> = HashMap::new();
    for line in old.split_inclusive(|byte| *byte == b'\n') {
        *count.entry(line).or_default() += 1;
    }
    let mut shared = 0;
    for line in new.split_inclusive(|byte| *byte == b'\n') {
        if let Some(left @ 1..) = count.get_mut(line) {
            *left -= 1;
            shared += line.len() as u64;
        }
    }
    match old.len().max(new.len()) as u64 {
        0 => 100,
        longest => shared * 100 / longest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<Vec<u8>> {
        text.chars().map(|c| format!("{c}\n").into_bytes()).collect()
    }

    #[test]
    fn lines_are_found_again_in_their_order() {
        let found = |old: &str, new: &str| found_again(&lines(old), &lines(new));
        assert_eq!(found("abc", "abc"), [Some(0), Some(1), Some(2)]);
        assert_eq!(found("abc", "xaybzc"), [None, Some(0), None, Some(1), None, Some(2)]);
        assert_eq!(found("abc", "xyz"), [None; 3]);
        assert_eq!(found("", "ab"), [None; 2]);
        // The first of two places.
        assert_eq!(found("aab", "ab"), [Some(0), Some(2)]);
        // A line that moved was written anew.
        assert_eq!(found("abcd", "bcda"), [Some(1), Some(2), Some(3), None]);
    }

    #[test]
    fn similarity_is_the_share_of_common_lines() {
        assert_eq!(similarity(b"a\nb\n", b"a\nb\n"), 100);
        assert_eq!(similarity(b"a\nb\n", b"b\nc\n"), 50);
        assert_eq!(similarity(b"a\na\na\na\n", b"a\n"), 25);
        assert_eq!(similarity(b"x", b"y"), 0);
    }
}
