//! The lines of a difference: one under the other, or side by side, with words and code marked.

use std::ops::Range;

use super::hunks;
use crate::cli::looking::Token;
use crate::cli::render::{LineKind, MarkedLine};
use crate::cli::ui::html::{Html, html};

/// How lines are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    Unified,
    Split,
}

/// Colours of each line.
#[cfg(feature = "syntax")]
fn colours(lines: &[MarkedLine]) -> Vec<crate::cli::looking::Colours> {
    crate::cli::looking::colours_of(lines)
}

#[cfg(not(feature = "syntax"))]
fn colours(lines: &[MarkedLine]) -> Vec<crate::cli::looking::Colours> {
    vec![Vec::new(); lines.len()]
}

/// A line with its number in the older state.
struct Numbered<'a> {
    line: &'a MarkedLine,
    code: &'a [(Range<usize>, Token)],
    old: Option<usize>,
    new: Option<usize>,
}

/// The lines above hunks.
pub(super) struct Headers {
    /// Whether each has a box with which its hunk is chosen.
    pub(super) are_chosen: bool,
    written: usize,
}

impl Headers {
    pub(super) fn new(are_chosen: bool) -> Self {
        Self { are_chosen, written: 0 }
    }

    fn write(&mut self, out: &mut Html, text: &str) {
        if self.are_chosen {
            hunks::choice(out, self.written, text);
        } else {
            html!(out, "{}", text);
        }
        self.written += 1;
    }
}

/// Writes lines; the title of the file is not among them.
pub(super) fn write(out: &mut Html, lines: &[MarkedLine], view: View, mut headers: Headers) {
    let colours = colours(lines);
    let numbered = numbered(lines, &colours);
    match view {
        View::Unified => unified(out, &numbered, &mut headers),
        View::Split => split(out, &numbered, &mut headers),
    }
}

/// Unchanged lines know their number in the newer state alone; the older one follows from the
/// changed lines above them and from where the hunk begins.
fn numbered<'a>(
    lines: &'a [MarkedLine],
    colours: &'a [crate::cli::looking::Colours],
) -> Vec<Numbered<'a>> {
    let mut old_next = None;
    let code = colours.iter().map(Vec::as_slice);
    let all = lines.iter().zip(code).filter(|(line, _)| line.kind != LineKind::File);
    all.map(|(line, code)| {
        let (old, new) = match line.kind {
            LineKind::Hunk => {
                old_next = first_of_hunk(&line.text);
                (None, None)
            }
            LineKind::Removed => {
                old_next = line.number.map(|number| number + 1);
                (line.number, None)
            }
            LineKind::Added => (None, line.number),
            LineKind::Same => {
                let old = old_next;
                old_next = old_next.map(|number| number + 1);
                (old, line.number)
            }
            _ => (None, None),
        };
        Numbered { line, code, old, new }
    })
    .collect()
}

/// `@@ -3,4 +3,5 @@`: 3.
fn first_of_hunk(text: &str) -> Option<usize> {
    let digits = text.split_once('-')?.1;
    let end = digits.find(|c: char| !c.is_ascii_digit())?;
    digits[..end].parse().ok()
}

fn unified(out: &mut Html, lines: &[Numbered<'_>], headers: &mut Headers) {
    html!(
        out,
        "<table class=\"diff unified\"><colgroup><col class=\"n\"><col class=\"n\"><col></colgroup>\
         <tbody>"
    );
    for it in lines {
        let (class, sign) = match it.line.kind {
            LineKind::Added => ("added", "+"),
            LineKind::Removed => ("removed", "−"),
            LineKind::Same => ("same", " "),
            LineKind::Hunk => {
                html!(out, "<tr class=\"hunk\"><td colspan=\"3\">");
                headers.write(out, &it.line.text);
                html!(out, "</td></tr>");
                continue;
            }
            _ => {
                html!(out, "<tr class=\"remark\"><td colspan=\"3\">{}</td></tr>", it.line.text);
                continue;
            }
        };
        html!(out, "<tr class=\"{}\">", class);
        number(out, it.old);
        number(out, it.new);
        html!(out, "<td class=\"code\"><span class=\"sign\">{}</span>", sign);
        code(out, it);
        html!(out, "</td></tr>");
    }
    html!(out, "</tbody></table>");
}

fn split(out: &mut Html, lines: &[Numbered<'_>], headers: &mut Headers) {
    html!(
        out,
        "<table class=\"diff split\"><colgroup><col class=\"n\"><col><col class=\"n\"><col>\
        </colgroup><tbody>"
    );
    let mut at = 0;
    while let Some(it) = lines.get(at) {
        match it.line.kind {
            LineKind::Same => {
                html!(out, "<tr class=\"same\">");
                side(out, Some(it), it.old, "same");
                side(out, Some(it), it.new, "same");
                html!(out, "</tr>");
                at += 1;
            }
            LineKind::Removed | LineKind::Added => {
                let count = |from: usize, kind| {
                    lines[from..].iter().take_while(|it| it.line.kind == kind).count()
                };
                let removed = count(at, LineKind::Removed);
                let added = count(at + removed, LineKind::Added);
                for row in 0..removed.max(added) {
                    let old = (row < removed).then(|| &lines[at + row]);
                    let new = (row < added).then(|| &lines[at + removed + row]);
                    html!(out, "<tr>");
                    side(out, old, old.and_then(|it| it.old), "removed");
                    side(out, new, new.and_then(|it| it.new), "added");
                    html!(out, "</tr>");
                }
                at += removed + added;
            }
            LineKind::Hunk => {
                html!(out, "<tr class=\"hunk\"><td colspan=\"4\">");
                headers.write(out, &it.line.text);
                html!(out, "</td></tr>");
                at += 1;
            }
            _ => {
                html!(out, "<tr class=\"remark\"><td colspan=\"4\">{}</td></tr>", it.line.text);
                at += 1;
            }
        }
    }
    html!(out, "</tbody></table>");
}

fn side(out: &mut Html, it: Option<&Numbered<'_>>, at: Option<usize>, class: &'static str) {
    match it {
        Some(it) => {
            number(out, at);
            html!(out, "<td class=\"code {}\">", class);
            code(out, it);
            html!(out, "</td>");
        }
        None => html!(out, "<td class=\"n\"></td><td class=\"code nothing\"></td>"),
    }
}

fn number(out: &mut Html, number: Option<usize>) {
    match number {
        Some(number) => html!(out, "<td class=\"n\">{}</td>", number),
        None => html!(out, "<td class=\"n\"></td>"),
    }
}

/// A line in pieces of one style each.
fn code(out: &mut Html, it: &Numbered<'_>) {
    let MarkedLine { text, words, .. } = it.line;
    let ends = |range: &Range<usize>| [range.start, range.end];
    let mut cuts: Vec<usize> = words.iter().flat_map(ends).collect();
    cuts.extend(it.code.iter().flat_map(|(range, _)| ends(range)));
    cuts.extend([0, text.len()]);
    cuts.sort_unstable();
    cuts.dedup();
    for part in cuts.windows(2) {
        let Some(piece) = text.get(part[0]..part[1]) else { continue };
        let token = it.code.iter().find(|(range, _)| range.contains(&part[0]));
        let token = match token.map(|(_, token)| token) {
            Some(Token::Comment) => "t-comment",
            Some(Token::Text) => "t-text",
            Some(Token::Constant) => "t-constant",
            Some(Token::Keyword) => "t-keyword",
            Some(Token::Name) => "t-name",
            None => "",
        };
        let is_word = words.iter().any(|range| range.contains(&part[0]));
        match (token, is_word) {
            ("", false) => html!(out, "{}", piece),
            (token, false) => html!(out, "<span class=\"{}\">{}</span>", token, piece),
            (token, true) => html!(out, "<mark class=\"{}\">{}</mark>", token, piece),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: LineKind, text: &str, number: usize) -> MarkedLine {
        MarkedLine { number: Some(number), ..MarkedLine::remark(kind, text.to_owned()) }
    }

    fn lines() -> Vec<MarkedLine> {
        vec![
            MarkedLine::remark(LineKind::File, "a.txt".to_owned()),
            MarkedLine::remark(LineKind::Hunk, "@@ -3,3 +3,4 @@".to_owned()),
            line(LineKind::Same, "three", 3),
            MarkedLine {
                words: std::iter::once(0..4).collect(),
                ..line(LineKind::Removed, "four <b>", 4)
            },
            line(LineKind::Added, "4", 4),
            line(LineKind::Added, "4.5", 5),
            line(LineKind::Same, "five", 6),
        ]
    }

    #[test]
    fn unchanged_lines_have_their_numbers_in_both_states() {
        let (lines, none) = (lines(), vec![Vec::new(); 7]);
        let numbers: Vec<_> = numbered(&lines, &none).iter().map(|it| (it.old, it.new)).collect();
        let expected = [
            (None, None),
            (Some(3), Some(3)),
            (Some(4), None),
            (None, Some(4)),
            (None, Some(5)),
            (Some(5), Some(6)),
        ];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn both_views_have_each_line_and_no_markup_of_it() {
        for (view, rows) in [(View::Unified, 6), (View::Split, 5)] {
            let mut out = Html::default();
            write(&mut out, &lines(), view, Headers::new(false));
            let text = out.into_text();
            assert_eq!(text.matches("<tr").count(), rows, "{text}");
            assert!(text.contains("<mark class=\"\">four</mark> &lt;b&gt;"), "{text}");
            assert!(!text.contains("a.txt"), "the page has the title already: {text}");
        }
    }
}
