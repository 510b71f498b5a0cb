//! Names that a person reads, from arbitrary bytes.
//!
//! A label, a prompt or a directory may hold any bytes. As a name in a folder each is safe on every
//! file system and in every file manager, also after a copy to another machine:
//! - no separator, control character, mark that reorders text, or invisible character;
//! - none of `: * ? " < > |`, and no name that Windows keeps for devices;
//! - no dot, space or hyphen at the beginning, no dot or space at the end;
//! - at most a given number of bytes, cut between characters.
//!
//! Different bytes may become one name. [`distinct`] numbers these, and counts names that differ
//! only by case as one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::path_text::moves_text;

/// Names of devices on Windows, whatever follows after a dot.
const DEVICES: [&str; 4] = ["con", "prn", "aux", "nul"];
/// The same, with a digit behind.
const NUMBERED_DEVICES: [&str; 2] = ["com", "lpt"];

/// Bytes as a name of at most `max_bytes`; `otherwise` where nothing of them can be shown.
pub(super) fn safe_name(bytes: &[u8], max_bytes: usize, otherwise: &str) -> String {
    let mut name = String::new();
    for c in String::from_utf8_lossy(bytes).chars() {
        let c = match c {
            '/' | '\\' => '-',
            ':' | '*' | '?' | '"' | '<' | '>' | '|' => ' ',
            c if c.is_whitespace() || is_unseen(c) => ' ',
            c => c,
        };
        let is_kept = match c {
            ' ' | '.' | '-' if name.is_empty() => false,
            ' ' => !name.ends_with(' '),
            _ => true,
        };
        if is_kept {
            if name.len() + c.len_utf8() > max_bytes {
                break;
            }
            name.push(c);
        }
    }
    name.truncate(name.trim_end_matches([' ', '.']).len());
    if name.is_empty() {
        return otherwise.to_owned();
    }
    if is_device(&name) {
        name.insert(0, '_');
    }
    name
}

/// Characters that move other ones, that are not seen, or that stand for no character.
fn is_unseen(c: char) -> bool {
    let is_format = matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{ffff}' | '\u{e0000}'..='\u{e0fff}');
    moves_text(c) || is_format || u32::from(c) & 0xfffe == 0xfffe
}

fn is_device(name: &str) -> bool {
    let base = name.split('.').next().unwrap_or(name).trim_end().to_ascii_lowercase();
    let is_numbered = |device: &str| {
        let rest = base.strip_prefix(device).unwrap_or_default();
        matches!(rest, "¹" | "²" | "³") || matches!(rest.as_bytes(), [b'0'..=b'9'])
    };
    DEVICES.contains(&base.as_str()) || NUMBERED_DEVICES.into_iter().any(is_numbered)
}

/// The names, each used once: the second of equal ones gets ` (2)`, and so on.
pub(super) fn distinct(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut next: HashMap<String, u64> = HashMap::new();
    let mut found = Vec::new();
    for name in names {
        let folded = folded(&name);
        let mut number = match next.entry(folded.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(2);
                found.push(name);
                continue;
            }
            Entry::Occupied(entry) => *entry.get(),
        };
        // A numbered name may be the name of another one.
        while next.contains_key(&format!("{folded} ({number})")) {
            number += 1;
        }
        next.insert(format!("{folded} ({number})"), 2);
        next.insert(folded, number + 1);
        found.push(format!("{name} ({number})"));
    }
    found
}

/// The common form of names that are equal where case does not count.
pub(super) fn folded(name: &str) -> String {
    name.to_lowercase()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(bytes: impl AsRef<[u8]>) -> String {
        safe_name(bytes.as_ref(), 60, "none")
    }

    #[test]
    fn names_stay_readable() {
        for (given, expected) in [
            ("the big refactor", "the big refactor"),
            ("fix: the cart\nand more", "fix the cart and more"),
            ("Edit · src/cart.py", "Edit · src-cart.py"),
            ("../../etc/passwd", "etc-passwd"),
            (".claude", "claude"),
            ("-rf", "rf"),
            ("ends. . ", "ends"),
            ("\u{1b}[2J\u{202e}gpj.exe", "[2J gpj.exe"),
            ("a\u{200b}b\u{feff}", "a b"),
            ("Grüße 漢字 🦀", "Grüße 漢字 🦀"),
            ("con", "_con"),
            ("Aux.tar.gz", "_Aux.tar.gz"),
            ("COM1", "_COM1"),
            ("com10", "com10"),
            ("", "none"),
            (" ..\t/", "none"),
        ] {
            assert_eq!(name(given), expected, "{given:?}");
        }
        assert_eq!(name(b"raw\xff\xfename"), "raw name");
        assert_eq!(name("ä".repeat(100)).len(), 60);
        assert_eq!(safe_name("ä".repeat(100).as_bytes(), 59, "").len(), 58);
    }

    #[test]
    fn equal_names_are_numbered_and_case_does_not_tell_apart() {
        let given = ["a", "A", "a (2)", "b", "a", "a (2)"].map(str::to_owned);
        assert_eq!(distinct(given), ["a", "A (2)", "a (2) (2)", "b", "a (3)", "a (2) (3)"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_safe_name(
            bytes in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..100),
                ".{0,100}".prop_map(String::into_bytes),
                r#"[ ./:\\*?"<>|\-conau\x00-\x1f]{0,12}"#.prop_map(String::into_bytes),
            ],
            max in 4_usize..80,
        ) {
            let name = safe_name(&bytes, max, "none");
            prop_assert!(!name.is_empty() && name.len() <= max + 1);
            prop_assert!(!name.contains(['/', '\\', ':', '*', '?', '"', '<', '>', '|']));
            prop_assert!(!name.contains(|c: char| is_unseen(c) || c.is_control()));
            prop_assert!(!name.starts_with(['.', ' ', '-']) && !name.ends_with(['.', ' ']));
            prop_assert!(!is_device(&name));
            // Such a name stays as it is.
            prop_assert_eq!(&safe_name(name.as_bytes(), max + 1, "none"), &name);
        }

        #[test]
        fn numbered_names_are_all_different(
            given in prop::collection::vec("[aA]( \\([1-3]\\)){0,2}", 0..30),
        ) {
            let mut names: Vec<_> = distinct(given.clone()).iter().map(|n| folded(n)).collect();
            names.sort_unstable();
            names.dedup();
            prop_assert_eq!(names.len(), given.len());
        }
    }
}
