//! A writer of HTML in which nothing but the program's own text is markup.
//!
//! A template is a literal of the program. What stands in its `{}` is data: it is always escaped,
//! and there is no way to put data in unescaped. Data are names, contents and prompts of others, so
//! characters that move text on a screen are written as `\u{…}` too.

use std::fmt::{self, Display, Write as _};

use nono_engine::path_text::moves_text;

/// A piece of a page.
#[derive(Debug, Default, Clone)]
pub(super) struct Html(String);

/// Writes a template with data in its `{}`: `html!(out, "<b>{}</b>", name)`.
macro_rules! html {
    ($out:expr, $template:literal $(, $value:expr)* $(,)?) => {
        $out.fill($template, &[$(&$value),*])
    };
}
pub(super) use html;

impl Html {
    /// Writes a template, with each `{}` replaced by a value, escaped.
    pub(super) fn fill(&mut self, template: &'static str, values: &[&dyn Display]) {
        let mut values = values.iter();
        for (at, part) in template.split("{}").enumerate() {
            if at > 0
                && let Some(value) = values.next()
            {
                // Writing to a String cannot fail.
                let _ = write!(Escaping(&mut self.0), "{value}");
            }
            self.0.push_str(part);
        }
        debug_assert!(values.next().is_none(), "more values than places in {template}");
    }

    /// Adds a piece that was made here.
    pub(super) fn add(&mut self, piece: &Self) {
        self.0.push_str(&piece.0);
    }

    /// Adds a text of the program: its style.
    pub(super) fn own(&mut self, text: &'static str) {
        self.0.push_str(text);
    }

    /// The finished text.
    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// Escapes what is written through it.
struct Escaping<'a>(&'a mut String);

impl fmt::Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' | '\t' => self.0.push(c),
                c if moves_text(c) => self.0.extend(c.escape_unicode()),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

/// An address of this server: a place and what is asked of it.
pub(super) fn address(place: &'static str, asked: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(asked.iter().filter(|(_, value)| !value.is_empty()));
    let query = query.finish();
    if query.is_empty() { place.to_owned() } else { format!("{place}?{query}") }
}

/// A number with commas: `12,345`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 step`, `2 steps`.
pub(super) fn plural(number: u64, word: &str) -> String {
    let end = if number == 1 { "" } else { "s" };
    format!("{} {word}{end}", count(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_never_markup() {
        let mut out = Html::default();
        let hostile = "\"><script>alert('x')</script>&\u{202e}\u{1b}[2J";
        html!(out, "<a title=\"{}\">{}</a>", hostile, hostile);
        let text = out.into_text();
        assert_eq!(text.matches('<').count(), 2, "{text}");
        assert_eq!(text.matches('"').count(), 2, "{text}");
        assert!(!text.contains('\u{202e}') && !text.contains('\u{1b}'), "{text}");
        assert!(text.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&amp;"), "{text}");
    }

    #[test]
    fn data_with_the_sign_of_a_place_is_data() {
        let mut out = Html::default();
        html!(out, "{}-{}", "{}", "b");
        assert_eq!(out.into_text(), "{}-b");
    }

    #[test]
    fn addresses_keep_what_they_ask_for_apart() {
        let asked = address("/file", &[("path", "a&b=c d/é"), ("to", "")]);
        assert_eq!(asked, "/file?path=a%26b%3Dc+d%2F%C3%A9");
    }

    #[test]
    fn numbers_have_commas() {
        let numbers = [0, 999, 1000, 12_345, 1_234_567].map(count);
        assert_eq!(numbers, ["0", "999", "1,000", "12,345", "1,234,567"]);
        assert_eq!([plural(1, "step"), plural(2, "step")], ["1 step", "2 steps"]);
    }
}
