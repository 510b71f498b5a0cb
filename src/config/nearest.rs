//! The known word that was probably meant.

/// Words that share less than this with the one given are no suggestion (Jaro-Winkler).
const ALIKE: f64 = 0.75;

/// The known word that is most like `word`, if one is like it at all.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    known
        .into_iter()
        .map(|candidate| (strsim::jaro_winkler(word, candidate), candidate))
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// Whether a word is a slip of the pen for another one.
pub(crate) fn is_like(word: &str, known: &str) -> bool {
    nearest(word, [known]).is_some()
}

/// The text after `unknown key "x"`: the nearest one, or all of them.
pub(crate) fn suggestion(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(meant) => format!("did you mean {meant:?}?"),
        None => format!("there are: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_pen_are_recognised_and_other_words_are_not() {
        let known = ["allow", "extends", "exclude_patterns", "exclude_globs"];
        assert_eq!(nearest("alow", known), Some("allow"));
        assert_eq!(nearest("extend", known), Some("extends"));
        assert_eq!(nearest("exclude-pattern", known), Some("exclude_patterns"));
        assert_eq!(nearest("colour", known), None);
        assert!(suggestion("colour", &known).contains("extends, "));
    }
}
