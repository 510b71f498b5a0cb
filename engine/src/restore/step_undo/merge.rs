//! Merging three versions of a text by lines, where that is beyond doubt.

use similar::{MergeResolution, TextMerge};

/// Longer texts are not merged.
const MAX_BYTES: usize = 8 << 20;

/// `ours` with what leads from `base` to `theirs`. `None`: the two changes touch each other, or one
/// of the three is no text.
pub(super) fn merge(base: &[u8], ours: &[u8], theirs: &[u8]) -> Option<Vec<u8>> {
    let is_text = |bytes: &[u8]| bytes.len() <= MAX_BYTES && !bytes.contains(&0);
    if ![base, ours, theirs].into_iter().all(is_text) {
        return None;
    }
    let merged = TextMerge::from_lines(base, ours, theirs);
    if merged.is_conflicted() {
        return None;
    }
    // Changes of neighbouring lines may belong together, which only a person knows.
    let changed = merged.regions().windows(2).any(|pair| {
        let is_change = |at: usize| pair[at].resolution() != MergeResolution::Unchanged;
        is_change(0) && is_change(1)
    });
    if changed {
        return None;
    }
    let mut bytes = Vec::new();
    merged.to_writer(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
}
