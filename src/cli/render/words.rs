//! Changed words within lines: removed and added lines that belong together, and the words by
//! which they differ.
//!
//! Lines belong together in their order, where they have most of their text in common. A pair with
//! little in common has no marks: all of it changed.

use std::ops::Range;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffTag, capture_diff_slices_deadline};

/// Longer lines have no marks.
const MAX_BYTES: usize = 1000;
/// Longer blocks are compared in so many lines on each side.
const MAX_LINES: usize = 100;
/// Added lines that are tried for one removed line.
const MAX_TRIES: usize = 8;
/// Limit of the time for one block.
const TIMEOUT: Duration = Duration::from_millis(20);
/// The part of the longer line that both lines of a pair have in common, in percent.
const LEAST_COMMON_PERCENT: usize = 40;

/// The marks of each removed and of each added line.
type Marks = Vec<Vec<Range<usize>>>;

/// Finds the changed words of a block of lines. Both results have an entry for each line.
pub(super) fn changed_words(removed: &[String], added: &[String]) -> (Marks, Marks) {
    let (mut old_marks, mut new_marks) = (vec![vec![]; removed.len()], vec![vec![]; added.len()]);
    let deadline = Instant::now() + TIMEOUT;
    let mut next = 0;
    for (at, old) in removed.iter().enumerate().take(MAX_LINES) {
        if Instant::now() > deadline {
            break;
        }
        let last = added.len().min(next + MAX_TRIES).min(MAX_LINES);
        for (other, new) in added.iter().enumerate().take(last).skip(next) {
            if let Some((old_words, new_words)) = pair(old, new, deadline) {
                (old_marks[at], new_marks[other]) = (old_words, new_words);
                next = other + 1;
                break;
            }
        }
    }
    (old_marks, new_marks)
}

/// The marked words of a line.
type LineMarks = Vec<Range<usize>>;

/// The words by which two lines differ, if they belong together.
fn pair(old: &str, new: &str, deadline: Instant) -> Option<(LineMarks, LineMarks)> {
    if old.len().max(new.len()) > MAX_BYTES {
        return None;
    }
    let (old_words, new_words) = (words(old), words(new));
    let text = |line: &str, words: &[Range<usize>]| -> Vec<String> {
        words.iter().map(|word| line[word.clone()].to_owned()).collect()
    };
    let (a, b) = (text(old, &old_words), text(new, &new_words));
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &a, &b, Some(deadline));
    let (mut old_marks, mut new_marks) = (Vec::new(), Vec::new());
    let mut common = 0;
    for op in &ops {
        let (tag, in_old, in_new) = op.as_tag_tuple();
        if tag == DiffTag::Equal {
            common += a[in_old].iter().map(|word| word.trim().len()).sum::<usize>();
            continue;
        }
        mark(&mut old_marks, &old_words[in_old], old);
        mark(&mut new_marks, &new_words[in_new], new);
    }
    let longer = old.trim().len().max(new.trim().len());
    (common > 0 && common * 100 >= longer * LEAST_COMMON_PERCENT).then_some((old_marks, new_marks))
}

/// Adds some words to the marks. With nothing but space between, two marks are one.
fn mark(marks: &mut Vec<Range<usize>>, words: &[Range<usize>], line: &str) {
    let (Some(first), Some(last)) = (words.first(), words.last()) else { return };
    match marks.last_mut() {
        Some(before) if line[before.end..first.start].trim().is_empty() => before.end = last.end,
        _ => marks.push(first.start..last.end),
    }
}

/// Runs of letters, digits and underscores, runs of spaces, and all other characters one by one.
fn words(line: &str) -> Vec<Range<usize>> {
    let class = |c: char| match c {
        '_' => 1,
        c if c.is_alphanumeric() => 1,
        c if c.is_whitespace() => 2,
        _ => 0,
    };
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut before = 0;
    for (at, c) in line.char_indices() {
        let end = at + c.len_utf8();
        match words.last_mut() {
            Some(word) if class(c) != 0 && class(c) == before => word.end = end,
            _ => words.push(at..end),
        }
        before = class(c);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn marked(old: &[&str], new: &[&str]) -> (Vec<Vec<String>>, Vec<Vec<String>>) {
        let lines = |lines: &[&str]| lines.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let (old, new) = (lines(old), lines(new));
        let (old_marks, new_marks) = changed_words(&old, &new);
        let of = |lines: &[String], marks: Marks| {
            let word = |line: &String, range: Range<usize>| line[range].to_owned();
            let pairs = lines.iter().zip(marks);
            pairs
                .map(|(line, marks)| marks.into_iter().map(|it| word(line, it)).collect())
                .collect()
        };
        (of(&old, old_marks), of(&new, new_marks))
    }

    #[test]
    fn the_words_that_differ_are_marked() {
        let (old, new) = marked(&["let total = sum(prices);"], &["let total = sum(costs) * 2;"]);
        assert_eq!(old, [["prices"]]);
        assert_eq!(new, [vec!["costs".to_owned(), " * 2".to_owned()]]);
    }

    #[test]
    fn lines_with_little_in_common_have_no_marks() {
        assert_eq!(marked(&["one two three"], &["x = y + 1"]), (vec![vec![]], vec![vec![]]));
    }

    #[test]
    fn a_line_is_compared_with_the_line_that_it_became() {
        let (old, new) = marked(
            &["fn first(a: u8) {}", "fn second(b: u8) {}"],
            &["// a comment of its own", "fn first(a: u16) {}", "fn second(b: u16) {}"],
        );
        assert_eq!(old, [["u8"], ["u8"]]);
        assert_eq!(new, [vec![], vec!["u16".to_owned()], vec!["u16".to_owned()]]);
    }

    #[test]
    fn very_long_lines_and_blocks_take_no_time() {
        let long = "x ".repeat(1_000_000);
        let lines = vec![format!("{}y", "a b ".repeat(200)); 20_000];
        // A test has a limit of time, which is shorter than a comparison of each pair takes.
        let long = std::slice::from_ref(&long);
        assert_eq!(changed_words(long, long).0, [Vec::<Range<usize>>::new()]);
        changed_words(&lines, &lines);
    }

    proptest! {
        #[test]
        fn marks_are_within_their_lines(old in ".{0,40}", new in ".{0,40}") {
            let (old, new) = ([old], [new]);
            let (old_marks, new_marks) = changed_words(&old, &new);
            let ([old], [new]) = (old, new);
            for (line, marks) in [(old, &old_marks[0]), (new, &new_marks[0])] {
                let mut end = 0;
                for mark in marks {
                    prop_assert!(mark.start >= end && line.get(mark.clone()).is_some());
                    end = mark.end;
                }
            }
        }
    }
}
