#![allow(clippy::disallowed_methods, reason = "tests write files and start git and diff3")]
#![allow(clippy::print_stdout, reason = "a run by hand reads the conflict rates")]

use std::cell::{Cell, RefCell};
use std::fs;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::*;

fn text(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| format!("{line}\n").into_bytes()).collect()
}

#[test]
fn changes_apart_from_each_other_are_both_kept() {
    let base = text(&["a", "b", "c", "d", "e"]);
    let ours = text(&["a", "b", "c", "d", "E", "f"]);
    let theirs = text(&["A", "b", "c", "d", "e"]);
    assert_eq!(merge(&base, &ours, &theirs), Some(text(&["A", "b", "c", "d", "E", "f"])));
}

#[test]
fn changes_that_touch_are_not_merged() {
    let base = text(&["a", "b", "c"]);
    assert_eq!(merge(&base, &text(&["a", "B", "c"]), &text(&["a", "x", "c"])), None);
    assert_eq!(merge(&base, &text(&["a", "B", "c"]), &text(&["A", "b", "c"])), None);
    assert_eq!(merge(b"a\0b\n", b"a\0b\nc\n", b"a\0B\n"), None);
}

#[test]
fn a_copy_of_a_block_is_taken_back_where_it_certainly_is() {
    let block = ["fn a() {", "    x();", "}"];
    let around = |inside: &[&str]| text(&[&["start"], inside, &["mid", "end"]].concat());
    let (one, two) = (around(&block), around(&[block, block].concat()));
    // A later step removed a copy: either of them, and the undo would remove the other one.
    let later = text(&["start", "fn a() {", "    x();", "}", "mid", "END"]);
    assert_eq!(merge(&two, &later, &one), Some(later.clone()));
    // A later step changed something else: the copy goes.
    let later = text(&[&["start"], &block[..], &block[..], &["mid", "END"]].concat());
    let expected = text(&[&["start"], &block[..], &["mid", "END"]].concat());
    assert_eq!(merge(&two, &later, &one), Some(expected));
    // A later step changed one of two copies: which one the undo has to remove is in doubt.
    let later = around(&["fn a() {", "    x();", "}", "fn a() {", "    y();", "}"]);
    assert_eq!(merge(&two, &later, &one), None);
    // Three copies became two, and a line between two of them came later.
    let three = around(&[block, block, block].concat());
    let later = around(&[&block[..], &["new"], &block[..], &block[..]].concat());
    assert_eq!(merge(&three, &later, &two), None);
}

#[test]
fn a_line_that_may_have_been_moved_in_two_ways_is_not_merged() {
    let of = |numbers: &str| -> Vec<u8> {
        numbers.chars().flat_map(|number| format!("line {number}\n").into_bytes()).collect()
    };
    // Ours removed a 1 and added one at the end, or it moved a 0. For git it is the first, and the
    // 1 at the end of theirs is the same one; for diff3 it is the second, and that 1 is one more.
    let (base, ours, theirs) = (of("0000011011011"), of("00000011010111"), of("00000110110111"));
    assert_eq!(merge(&base, &ours, &theirs), None);
    assert_eq!(merge(&base, &theirs, &ours), None);
}

#[test]
fn ends_of_lines_and_of_texts_are_part_of_them() {
    let cases: &[(&str, &str, &str, Option<&str>)] = &[
        ("", "", "", Some("")),
        ("", "a\n", "", Some("a\n")),
        ("", "", "a", Some("a")),
        ("", "a\n", "a\n", Some("a\n")),
        ("", "a\n", "b\n", None),
        ("a\n", "", "a\n", Some("")),
        ("a\n", "", "a\nb\n", None),
        ("a", "a\n", "a", Some("a\n")),
        ("a", "a\n", "b", None),
        ("a\nb\nc", "A\nb\nc", "a\nb\nc\n", Some("A\nb\nc\n")),
        ("a\nb\nc\n", "A\nb\nc\n", "a\nb\nc", Some("A\nb\nc")),
        ("a\nb\nc", "a\nb\nc\nd", "A\nb\nc", Some("A\nb\nc\nd")),
        ("a\r\nb\r\nc\r\n", "A\r\nb\r\nc\r\n", "a\r\nb\r\nC\r\n", Some("A\r\nb\r\nC\r\n")),
        ("a\r\nb\r\nc\r\n", "a\nb\nc\n", "a\r\nb\r\nC\r\n", None),
        ("a\rb\rc", "A\rb\rc", "a\rb\rC", None),
        ("\n\n", "\n\n\n", "\n\n", Some("\n\n\n")),
        ("\n\n\n", "\n\n", "a\n\n\n\n", None),
    ];
    for &(base, ours, theirs, expected) in cases {
        let merged = merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes());
        assert_eq!(merged.as_deref(), expected.map(str::as_bytes), "{base:?} {ours:?} {theirs:?}");
        let swapped = merge(base.as_bytes(), theirs.as_bytes(), ours.as_bytes());
        assert_eq!(swapped, merged, "{base:?} {ours:?} {theirs:?}");
    }
}

/// A change of a text. Places and lengths are cut to fit.
#[derive(Debug, Clone)]
enum Edit {
    Insert(Index, Vec<String>),
    Delete(Index, usize),
    /// Behind itself, or anywhere.
    Duplicate(Index, usize, Option<Index>),
    /// One of the further copies of a block, if there are any.
    RemoveCopy(Index, usize, Index),
    Move(Index, usize, Index),
    Change(Index, Vec<String>),
}

impl Edit {
    fn apply(&self, lines: &mut Vec<String>) {
        let len = lines.len();
        let block = |at: &Index, length: usize| {
            let at = at.index(len + 1);
            at..(at + length).min(len)
        };
        match self {
            Self::Insert(at, new) => {
                let at = at.index(len + 1);
                lines.splice(at..at, new.iter().cloned());
            }
            Self::Delete(at, length) => drop(lines.drain(block(at, *length))),
            Self::Duplicate(at, length, to) => {
                let block = block(at, *length);
                let to = to.map_or(block.end, |to| to.index(len + 1));
                let copy = lines[block].to_vec();
                lines.splice(to..to, copy);
            }
            Self::RemoveCopy(at, length, nth) => {
                let block = block(at, *length);
                let is_copy = |&start: &usize| {
                    start != block.start && lines[start..].starts_with(&lines[block.clone()])
                };
                let copies: Vec<usize> = (0..len).filter(is_copy).collect();
                if !block.is_empty() && !copies.is_empty() {
                    let start = copies[nth.index(copies.len())];
                    lines.drain(start..start + block.len());
                }
            }
            Self::Move(at, length, to) => {
                let moved: Vec<String> = lines.drain(block(at, *length)).collect();
                let to = to.index(lines.len() + 1);
                lines.splice(to..to, moved);
            }
            Self::Change(at, new) => {
                let block = block(at, new.len());
                let new = new[..block.len()].to_vec();
                lines.splice(block, new);
            }
        }
    }
}

/// One of a few lines, or now and then a new one.
fn line(distinct: u16) -> impl Strategy<Value = String> {
    let known = (0..distinct).prop_map(|number| format!("line {number}"));
    prop_oneof![3 => known, 1 => (0..1000u16).prop_map(|number| format!("new {number}"))]
}

fn edits(distinct: u16, most: usize) -> impl Strategy<Value = Vec<Edit>> {
    let new = || prop::collection::vec(line(distinct), 1..5);
    let edit = prop_oneof![
        (any::<Index>(), new()).prop_map(|(at, new)| Edit::Insert(at, new)),
        (any::<Index>(), 1..5usize).prop_map(|(at, length)| Edit::Delete(at, length)),
        (any::<Index>(), 1..5usize, any::<Option<Index>>())
            .prop_map(|(at, length, to)| Edit::Duplicate(at, length, to)),
        (any::<Index>(), 1..5usize, any::<Index>())
            .prop_map(|(at, length, nth)| Edit::RemoveCopy(at, length, nth)),
        (any::<Index>(), 1..5usize, any::<Index>())
            .prop_map(|(at, length, to)| Edit::Move(at, length, to)),
        (any::<Index>(), new()).prop_map(|(at, new)| Edit::Change(at, new)),
    ];
    prop::collection::vec(edit, 1..=most)
}

/// Base, ours, theirs.
struct Versions([Vec<u8>; 3]);

impl std::fmt::Debug for Versions {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_list().entries(self.0.each_ref().map(|text| shown(text))).finish()
    }
}

fn shown(text: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(text)
}

fn edited(lines: &[String], edits: &[Edit]) -> Vec<String> {
    let mut lines = lines.to_vec();
    edits.iter().for_each(|edit| edit.apply(&mut lines));
    lines
}

/// Versions with few distinct lines, so that blocks repeat.
fn versions() -> impl Strategy<Value = Versions> {
    let parts = prop::sample::select(vec![2u16, 3, 5, 8, 20, 60]).prop_flat_map(|distinct| {
        let known = (0..distinct).prop_map(|number| format!("line {number}"));
        let first = prop::collection::vec(known, 0..40);
        // As on two branches, or as of a step that is taken back after another one.
        let is_undo = any::<bool>();
        let end = prop::sample::select(vec!["\n", "\n", "\n", "\r\n"]);
        let cut = prop_oneof![
            4 => Just([false; 3]),
            1 => Just([true; 3]),
            1 => any::<[bool; 3]>(),
        ];
        (first, edits(distinct, 3), edits(distinct, 3), is_undo, end, cut)
    });
    parts.prop_map(|(first, one, other, is_undo, end, cut)| {
        let changed = edited(&first, &one);
        let versions = match is_undo {
            true => [changed.clone(), edited(&changed, &other), first],
            false => [first.clone(), changed, edited(&first, &other)],
        };
        let mut cut = cut.into_iter();
        Versions(versions.map(|lines| {
            let mut text = lines.join(end);
            if !lines.is_empty() && !cut.next().unwrap_or(false) {
                text.push_str(end);
            }
            text.into_bytes()
        }))
    })
}

/// Versions of a text with blank lines and closing braces, but else without repetition, and small
/// edits as of a programmer.
fn ordinary_versions() -> impl Strategy<Value = Versions> {
    let function = (1..12usize).prop_map(|length| {
        let mut lines = vec!["fn {".to_owned()];
        lines.extend((0..length).map(|nth| format!("    statement {nth};")));
        lines.extend(["}".to_owned(), String::new()]);
        lines
    });
    let edit = (any::<Index>(), 0..3usize, 0..4usize, 0..1000u16);
    let edits = || prop::collection::vec(edit.clone(), 1..4);
    (prop::collection::vec(function, 1..15), edits(), edits()).prop_map(
        |(functions, one, other)| {
            let mut base = Vec::new();
            for (nth, function) in functions.iter().enumerate() {
                let name = |line: &String| match line.trim() {
                    "}" | "" => line.clone(),
                    _ => format!("{line} // {nth}"),
                };
                base.extend(function.iter().map(name));
            }
            let edited = |edits: &[(Index, usize, usize, u16)]| {
                let mut lines = base.clone();
                for (at, removed, added, number) in edits {
                    let at = at.index(lines.len() + 1);
                    let block = at..(at + removed).min(lines.len());
                    lines
                        .splice(block, (0..*added).map(|nth| format!("    added {number} {nth};")));
                }
                lines
            };
            let text = |lines: Vec<String>| (lines.join("\n") + "\n").into_bytes();
            Versions([base.clone(), edited(&one), edited(&other)].map(text))
        },
    )
}

const GIT: &[&str] = &["git", "merge-file", "-p", "--diff-algorithm=histogram"];
const DIFF3: &[&str] = &["diff3", "-m"];

/// The merge of another program; `None`: it has a conflict.
fn merge_by(program: &[&str], dir: &Path) -> Option<Vec<u8>> {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).args(["ours", "base", "theirs"]).current_dir(dir);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let done = command.output().unwrap();
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.code().is_some_and(|code| code < 128), "{program:?}: {error}");
    done.status.success().then_some(done.stdout)
}

/// Random numbers that are the same each time, and others for each `NONO_MERGE_SEED`.
fn random() -> TestRng {
    let Ok(seed) = std::env::var("NONO_MERGE_SEED") else {
        return TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.parse::<u64>().unwrap().to_le_bytes());
    TestRng::from_seed(RngAlgorithm::ChaCha, &bytes)
}

/// Merges versions with this program and with others. `PROPTEST_CASES` is the number of cases.
/// Returns how many are conflicts: here, of git, and of `diff3`. `scripts/fuzz merges` has many.
fn compare(versions: impl Strategy<Value = Versions>) -> (u32, [u32; 3]) {
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    let cases = config.cases;
    let rng = random();
    let temp = tempfile::tempdir().unwrap();
    let conflicts = RefCell::new([0; 3]);
    let done = Cell::new(0);
    let result = TestRunner::new_with_rng(config, rng).run(&versions, |Versions(versions)| {
        for (name, version) in ["base", "ours", "theirs"].iter().zip(&versions) {
            fs::write(temp.path().join(name), version).unwrap();
        }
        done.set(done.get() + 1);
        if done.get() % 10_000 == 0 {
            println!("{} of {cases} cases: no third text", done.get());
        }
        let [base, ours, theirs] = &versions;
        let merged = merge(base, ours, theirs);
        let others = [GIT, DIFF3].map(|program| merge_by(program, temp.path()));
        let [git, diff3] = &others;
        for (count, text) in conflicts.borrow_mut().iter_mut().zip([&merged, git, diff3]) {
            *count += u32::from(text.is_none());
        }
        let Some(merged) = merged else { return Ok(()) };
        let mut texts = others.iter().flatten().peekable();
        if texts.peek().is_some() && texts.all(|text| *text == merged) {
            return Ok(());
        }
        let others = others.each_ref().map(|text| text.as_deref().map(shown));
        let merged = shown(&merged);
        Err(TestCaseError::fail(format!("merged: {merged:?}, git and diff3: {others:?}")))
    });
    result.unwrap_or_else(|error| panic!("{error}"));
    (cases, conflicts.into_inner())
}

#[test]
fn a_merge_is_that_of_git_and_of_diff3_or_a_conflict() {
    let (cases, [here, git, diff3]) = compare(versions());
    println!("{cases} cases, conflicts: {here}, git {git}, diff3 {diff3}");
    assert!(here < cases, "nothing was merged");
}

#[test]
fn ordinary_edits_are_no_more_often_a_conflict_than_in_git() {
    let (cases, [here, git, diff3]) = compare(ordinary_versions());
    println!("{cases} cases, conflicts: {here}, git {git}, diff3 {diff3}");
    assert!(here <= git + cases / 20, "{cases} cases, conflicts: {here}, git {git}, diff3 {diff3}");
}

proptest! {
    /// Lines that occur once, so that there is one way to see a change, and changes in blocks
    /// between which a line stays: the merge is what replaying the one change on the other
    /// gives.
    #[test]
    fn what_does_not_touch_is_merged_as_if_replayed(
        blocks in proptest::collection::vec((0..4u8, 1..3usize), 1..12),
        no_end in any::<bool>(),
    ) {
        let (mut base, mut ours, mut theirs, mut both) = (vec![], vec![], vec![], vec![]);
        for (at, (who, length)) in blocks.iter().enumerate() {
            let stay = format!("stay {at}\n");
            for side in [&mut base, &mut ours, &mut theirs, &mut both] {
                side.extend_from_slice(stay.as_bytes());
            }
            for line in 0..*length {
                let old = format!("old {at} {line}\n");
                let new = format!("new {at} {line}\n");
                base.extend_from_slice(old.as_bytes());
                let pick = |is_new: bool| if is_new { new.clone() } else { old.clone() };
                ours.extend_from_slice(pick(*who == 1).as_bytes());
                // Another one deletes.
                if *who != 3 {
                    theirs.extend_from_slice(pick(*who == 2).as_bytes());
                    both.extend_from_slice(pick(*who == 1 || *who == 2).as_bytes());
                }
            }
        }
        let end = if no_end { "end" } else { "end\n" };
        for side in [&mut base, &mut ours, &mut theirs, &mut both] {
            side.extend_from_slice(end.as_bytes());
        }
        prop_assert_eq!(merge(&base, &ours, &theirs), Some(both));
    }

    #[test]
    fn any_bytes_are_merged_or_not_and_nothing_is_made_up(
        base in "[ab\n]{0,20}", ours in "[ab\n]{0,20}", theirs in "[ab\n]{0,20}",
    ) {
        if let Some(merged) = merge(base.as_bytes(), ours.as_bytes(), theirs.as_bytes()) {
            prop_assert!(!merged.windows(7).any(|bytes| bytes == b"<<<<<<<"));
            if ours == base { prop_assert_eq!(&merged, theirs.as_bytes()); }
            if theirs == base { prop_assert_eq!(&merged, ours.as_bytes()); }
        }
    }
}

#[test]
fn each_touching_hunk_is_as_it_was_chosen_and_the_rest_is_merged() {
    let base = b"1\nsession\n3\n4\n5\nsession too\n7\n8\nadded\n";
    let ours = b"1\nmine\n3\n4 mine\n5\nmine too\n7\n8\nadded\n";
    let theirs = b"1\nbefore\n3\n4\n5\nbefore too\n7\n8\n";
    let texts = [&base[..], ours, theirs];
    assert_eq!(merge(base, ours, theirs), None);
    let hunks = touching_hunks(base, ours, theirs).unwrap();
    let found: Vec<_> =
        hunks.iter().map(|it| (it.line, &*it.was, &*it.ours, &*it.theirs)).collect();
    assert_eq!(
        found,
        [
            (2, &b"session\n"[..], &b"mine\n"[..], &b"before\n"[..]),
            (6, b"session too\n", b"mine too\n", b"before too\n"),
        ]
    );
    use HunkChoice::{Both, Ours, Theirs};
    let chosen = |choices: &[HunkChoice]| {
        let text = merge_chosen(texts, choices).unwrap();
        assert!(is_chosen(texts, &text));
        String::from_utf8(text).unwrap()
    };
    assert_eq!(chosen(&[Ours, Theirs]), "1\nmine\n3\n4 mine\n5\nbefore too\n7\n8\n");
    assert_eq!(chosen(&[Both, Ours]), "1\nmine\nbefore\n3\n4 mine\n5\nmine too\n7\n8\n");
    // A last line without its end is a line of its own.
    let both = merge_chosen([b"a\nb", b"a\nmine", b"a\nbefore"], &[Both]).unwrap();
    assert_eq!(both, b"a\nmine\nbefore");
    assert_eq!(merge_chosen(texts, &[Ours]), None);
    assert_eq!(merge_chosen(texts, &[Ours; 3]), None);
    assert!(!is_chosen(texts, ours), "the added line is not touched, and goes");
    assert!(!is_chosen(texts, b"1\nanother\n3\n4 mine\n5\nmine too\n7\n8\n"));
    assert_eq!(touching_hunks(b"\0", ours, theirs), None);
}

proptest! {
    #[test]
    fn choices_give_a_merge_that_is_known_as_one(
        base in "[abc\n]{0,20}", ours in "[abc\n]{0,20}", theirs in "[abc\n]{0,20}",
        picks in proptest::collection::vec(0..3usize, 20),
    ) {
        let texts = [&base, &ours, &theirs].map(|text| text.as_bytes());
        let count = touching_hunks(texts[0], texts[1], texts[2]).unwrap().len();
        let all = [HunkChoice::Ours, HunkChoice::Theirs, HunkChoice::Both];
        let choices: Vec<_> = picks.iter().take(count).map(|pick| all[*pick]).collect();
        prop_assert_eq!(choices.len(), count);
        let merged = merge_chosen(texts, &choices).unwrap();
        prop_assert!(is_chosen(texts, &merged));
        if count == 0 {
            prop_assert_eq!(merge(texts[0], texts[1], texts[2]), Some(merged));
        }
    }
}
