//! Colours of code: which parts of a line are keywords, strings and comments.
//!
//! The grammars are those of `bat`. They are loaded when the first line is coloured, and a grammar
//! when its first file is. A file whose name says no language has no colours, and so has what is
//! not parsed in time. The colours are the sixteen of the terminal, so they fit any background.
//!
//! Parsing begins anew at each hunk, as the lines above it are not known. Removed lines are parsed
//! from the state of the lines before them.

use std::ops::Range;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use syntect::parsing::{ParseState, Scope, ScopeStack, SyntaxReference, SyntaxSet};

use super::{Colours, Token};
use crate::cli::render::{LineKind, MarkedLine};

/// Lines that are coloured however long that takes: a screen of them, while grammars are loaded.
const FIRST_LINES: usize = 50;
/// Limit of the time for the other lines of one difference.
const TIMEOUT: Duration = Duration::from_millis(100);
/// Longer lines have no colours.
const MAX_BYTES: usize = 1000;

static GRAMMARS: LazyLock<SyntaxSet> = LazyLock::new(two_face::syntax::extra_newlines);

/// Scopes, the first that fits counts; without a colour it is plain text.
static SCOPES: LazyLock<Vec<(Scope, Option<Token>)>> = LazyLock::new(|| {
    let scopes = [
        ("comment", Some(Token::Comment)),
        ("constant.character.escape", Some(Token::Constant)),
        ("string", Some(Token::Text)),
        ("constant", Some(Token::Constant)),
        ("keyword.operator", None),
        ("keyword", Some(Token::Keyword)),
        ("storage", Some(Token::Keyword)),
        ("entity.name.function", Some(Token::Name)),
        ("variable.function", Some(Token::Name)),
        ("support.function", Some(Token::Name)),
        ("entity.name.tag", Some(Token::Name)),
        ("entity.name", Some(Token::Constant)),
        ("support.type", Some(Token::Constant)),
        ("support.class", Some(Token::Constant)),
        ("markup.heading", Some(Token::Name)),
    ];
    scopes.iter().filter_map(|(name, colour)| Some((Scope::new(name).ok()?, *colour))).collect()
});

/// Colours lines, each as far as its language is known.
pub(crate) fn colours_of(lines: &[MarkedLine]) -> Vec<Colours> {
    colours_until(lines, Instant::now() + TIMEOUT)
}

fn colours_until(lines: &[MarkedLine], deadline: Instant) -> Vec<Colours> {
    let is_in_time = |count: usize| count < FIRST_LINES || Instant::now() < deadline;
    let mut coloured = Vec::with_capacity(lines.len());
    let mut language: Option<(&str, Option<&SyntaxReference>)> = None;
    let mut state: Option<State> = None;
    for line in lines {
        let Some(file) = line.file.as_deref() else {
            state = None;
            coloured.push(Vec::new());
            continue;
        };
        let grammar = match language {
            Some((known, grammar)) if known == file => grammar,
            _ => grammar_of(file),
        };
        language = Some((file, grammar));
        let Some(grammar) = grammar.filter(|_| is_in_time(coloured.len())) else {
            coloured.push(Vec::new());
            continue;
        };
        let state = state.get_or_insert_with(|| State::new(grammar));
        coloured.push(match line.kind {
            // The colour of what is gone says that it is gone.
            LineKind::Removed => Vec::new(),
            _ => state.colours(&line.text),
        });
    }
    coloured
}

fn grammar_of(file: &str) -> Option<&'static SyntaxReference> {
    let extension = file.rsplit_once('.').map_or(file, |(_, extension)| extension);
    let by_name = GRAMMARS.find_syntax_by_extension(file);
    let found = by_name.or_else(|| GRAMMARS.find_syntax_by_extension(extension))?;
    (found.name != "Plain Text").then_some(found)
}

/// Where the parser stands.
struct State {
    parser: ParseState,
    scopes: ScopeStack,
}

impl State {
    fn new(grammar: &SyntaxReference) -> Self {
        Self { parser: ParseState::new(grammar), scopes: ScopeStack::new() }
    }

    fn colours(&mut self, text: &str) -> Colours {
        let mut colours = Colours::new();
        if text.len() > MAX_BYTES {
            return colours;
        }
        let Ok(ops) = self.parser.parse_line(&format!("{text}\n"), &GRAMMARS) else {
            return colours;
        };
        let mut begin = 0;
        for (at, op) in ops {
            let at = at.min(text.len());
            self.push(&mut colours, begin..at);
            begin = at;
            if self.scopes.apply(&op).is_err() {
                return colours;
            }
        }
        self.push(&mut colours, begin..text.len());
        colours
    }

    fn push(&self, colours: &mut Colours, part: Range<usize>) {
        let Some(colour) = colour_of(&self.scopes).filter(|_| !part.is_empty()) else { return };
        match colours.last_mut() {
            Some((last, known)) if last.end == part.start && *known == colour => {
                last.end = part.end;
            }
            _ => colours.push((part, colour)),
        }
    }
}

fn colour_of(scopes: &ScopeStack) -> Option<Token> {
    let of = |scope: &Scope| SCOPES.iter().find(|(prefix, _)| prefix.is_prefix_of(*scope));
    scopes.as_slice().iter().rev().find_map(of).and_then(|(_, colour)| *colour)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(kind: LineKind, file: &str, text: &str) -> MarkedLine {
        MarkedLine { file: Some(file.into()), ..MarkedLine::remark(kind, text.to_owned()) }
    }

    /// No machine is slower.
    fn in_time() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    fn words(lines: &[MarkedLine]) -> Vec<Vec<(&str, Token)>> {
        let coloured = lines.iter().zip(colours_until(lines, in_time()));
        let of = coloured.map(|(line, colours)| {
            colours.into_iter().map(|(at, colour)| (&line.text[at], colour)).collect()
        });
        of.collect()
    }

    #[test]
    fn code_has_the_colours_of_its_language() {
        for (file, text, part, colour) in [
            ("main.rs", "let x = \"a\"; // why", "let", Token::Keyword),
            ("main.rs", "let x = \"a\"; // why", "\"a\"", Token::Text),
            ("cart.py", "    return 17", "17", Token::Constant),
            ("app.ts", "const x: number = 1;", "const", Token::Keyword),
            ("Cargo.toml", "name = \"x\"", "\"x\"", Token::Text),
            ("Dockerfile", "FROM debian", "FROM", Token::Keyword),
        ] {
            let lines = [line(LineKind::Added, file, text)];
            let words = words(&lines);
            assert!(words[0].contains(&(part, colour)), "{file}: {words:?}");
        }
    }

    #[test]
    fn what_has_no_language_or_is_gone_has_no_colours() {
        let lines = [
            line(LineKind::Added, "notes", "let x = 1;"),
            line(LineKind::Removed, "main.rs", "let x = 1;"),
            MarkedLine::remark(LineKind::Hunk, "@@ let @@".to_owned()),
        ];
        assert_eq!(words(&lines), vec![Vec::<(&str, Token)>::new(); 3]);
    }

    #[test]
    fn a_comment_goes_on_in_its_hunk_and_ends_with_it() {
        let lines = [
            line(LineKind::Same, "a.rs", "/* one"),
            line(LineKind::Added, "a.rs", "two"),
            MarkedLine::remark(LineKind::Hunk, "@@".to_owned()),
            line(LineKind::Same, "a.rs", "two"),
        ];
        let words = words(&lines);
        assert_eq!(words[1], [("two", Token::Comment)]);
        assert!(words[3].is_empty());
    }

    #[test]
    fn hostile_lines_end_when_their_time_is_over() {
        let text = "\"\\".repeat(400) + &"(".repeat(190);
        let lines = vec![line(LineKind::Added, "a.rs", &text); 5_000];
        // A test has a limit of time, which is shorter than all of these lines take.
        assert_eq!(colours_of(&lines).len(), 5_000);
        let over = colours_until(&lines, Instant::now());
        assert!(over.iter().skip(FIRST_LINES).all(Colours::is_empty));
    }
}
