//! Globs with the meaning that a shell gives them.
//!
//! A glob is matched name by name. A name that begins with a dot is hidden: only a pattern that
//! begins with a dot matches it, and `**` goes through no hidden directory. So a glob never selects
//! more than the same word does in a shell. For exceptions from a selection, and for searches,
//! hidden names are names like others.

use std::str;

use globset::{GlobBuilder, GlobMatcher};

use crate::byte_path;
use crate::path_text::to_path;

/// Largest number of globs that the braces of one glob stand for.
const MAX_ALTERNATIVES: usize = 1024;

/// The treatment of names that begin with a dot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// As in a shell: a dot is matched by a dot alone.
    ByDotAlone,
    /// As in a `.gitignore` and with `find`: a dot is a character like others.
    LikeOthers,
}

/// A glob, as the globs that its braces stand for.
#[derive(Debug)]
pub(crate) struct ShellGlob {
    alternatives: Vec<Vec<Part>>,
    hidden: Hidden,
}

/// The pattern of a name.
#[derive(Debug)]
enum Part {
    /// `**`: any number of directories.
    Directories,
    /// One name alone.
    Literal(Vec<u8>),
    /// All names that match.
    Names { matcher: GlobMatcher, begins_with_dot: bool },
}

/// How far a path and a glob go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// Neither the path nor anything below it matches.
    Apart,
    /// Something below the path may match.
    Above,
    /// The path or a directory above it matches.
    Match,
}

/// Whether a text has a character that is special in a glob.
pub(crate) fn is_special(text: &[u8]) -> bool {
    text.iter().any(|byte| b"*?[{".contains(byte))
}

impl ShellGlob {
    /// The glob `text` below the directory `fixed`, whose own name is no pattern.
    ///
    /// # Errors
    /// The defect of the glob, in words.
    pub(crate) fn new(fixed: &[u8], text: &[u8], hidden: Hidden) -> Result<Self, String> {
        let compile = |text: Vec<u8>| {
            let above = byte_path::components(fixed).map(|name| Ok(Part::Literal(name.to_vec())));
            above.chain(parts(&text)).collect::<Result<Vec<_>, String>>()
        };
        let alternatives = expand_braces(text)?.into_iter().map(compile);
        Ok(Self { alternatives: alternatives.collect::<Result<_, _>>()?, hidden })
    }

    /// The glob for a name at any depth.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn anywhere(name: &[u8], hidden: Hidden) -> Result<Self, String> {
        Self::new(b"", &[b"**/", name].concat(), hidden)
    }

    /// The same, or the path that is written exactly so.
    pub(crate) fn or_exactly(mut self, fixed: &[u8], text: &[u8]) -> Self {
        let names = [fixed, text].into_iter().flat_map(byte_path::components);
        let names = names.filter(|name| *name != b".");
        self.alternatives.push(names.map(|name| Part::Literal(name.to_vec())).collect());
        self
    }

    /// Whether the glob matches this very path.
    pub(crate) fn is_match(&self, path: &[u8]) -> bool {
        let is_matched = |parts: &Vec<Part>| {
            let mut next = first(parts);
            for name in byte_path::components(path) {
                next = self.behind(parts, &next, name);
            }
            next.contains(&parts.len())
        };
        self.alternatives.iter().any(is_matched)
    }

    /// Compares the glob with a path and the directories above it.
    pub(crate) fn reach(&self, path: &[u8]) -> Reach {
        let reached = self.alternatives.iter().map(|parts| self.reach_of(parts, path));
        reached.max().unwrap_or(Reach::Apart)
    }

    fn reach_of(&self, parts: &[Part], path: &[u8]) -> Reach {
        let mut next = first(parts);
        for name in byte_path::components(path) {
            next = self.behind(parts, &next, name);
            if next.contains(&parts.len()) {
                return Reach::Match;
            }
            if next.is_empty() {
                return Reach::Apart;
            }
        }
        Reach::Above
    }

    /// The parts that may follow a name, for which these parts may stand.
    fn behind(&self, parts: &[Part], next: &[usize], name: &[u8]) -> Vec<usize> {
        let is_visible = self.hidden == Hidden::LikeOthers || !name.starts_with(b".");
        let mut behind = Vec::new();
        for at in next {
            match parts.get(*at) {
                Some(Part::Directories) if is_visible => add_next(parts, *at, &mut behind),
                Some(Part::Literal(literal)) if literal == name => {
                    add_next(parts, at + 1, &mut behind);
                }
                Some(Part::Names { matcher, begins_with_dot })
                    if (is_visible || *begins_with_dot) && matcher.is_match(to_path(name)) =>
                {
                    add_next(parts, at + 1, &mut behind);
                }
                _ => {}
            }
        }
        behind
    }
}

/// The parts that may stand for the first name: more than one where a `**` does.
fn first(parts: &[Part]) -> Vec<usize> {
    let mut first = Vec::new();
    add_next(parts, 0, &mut first);
    first
}

/// Adds a part to those that may be next, and the ones behind it that a `**` lets be next, too.
fn add_next(parts: &[Part], mut at: usize, next: &mut Vec<usize>) {
    while !next.contains(&at) {
        next.push(at);
        if !matches!(parts.get(at), Some(Part::Directories)) {
            break;
        }
        at += 1;
    }
}

/// The patterns of the names of a path.
fn parts(text: &[u8]) -> impl Iterator<Item = Result<Part, String>> {
    let mut names: Vec<&[u8]> = byte_path::components(text).filter(|name| *name != b".").collect();
    // `d/**` is about what is in `d`.
    if names.last() == Some(&&b"**"[..]) {
        names.push(b"*");
    }
    names.into_iter().map(part)
}

fn part(name: &[u8]) -> Result<Part, String> {
    if name == b"**" {
        return Ok(Part::Directories);
    }
    let mut glob = Vec::new();
    let mut literal = Vec::new();
    let mut is_glob = false;
    let mut at = 0;
    while let Some(&byte) = name.get(at) {
        let rest = &name[at + 1..];
        let class = if byte == b'[' { class_bytes(rest) } else { None };
        at += 1;
        match (byte, class, rest.first()) {
            (b'[', Some(length), _) => {
                let class = &rest[..length];
                if [&b"[:"[..], b"[.", b"[="].iter().any(|mark| has(class, mark)) {
                    return Err("a named class such as [:alpha:] is not supported".to_owned());
                }
                is_glob = true;
                glob.push(b'[');
                glob.extend_from_slice(class);
                at += length;
            }
            (b'*' | b'?', ..) => {
                is_glob = true;
                if byte == b'?' || glob.last() != Some(&b'*') || glob.ends_with(b"\\*") {
                    glob.push(byte);
                }
            }
            (b'\\', _, Some(escaped)) => {
                at += 1;
                glob.extend_from_slice(&[b'\\', *escaped]);
                literal.push(*escaped);
            }
            _ => {
                if b"[]{},\\".contains(&byte) {
                    glob.push(b'\\');
                }
                glob.push(byte);
                literal.push(byte);
            }
        }
    }
    if !is_glob {
        return Ok(Part::Literal(literal));
    }
    let text = str::from_utf8(&glob).map_err(|_| "not UTF-8".to_owned())?;
    let built = GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build();
    let matcher = built.map_err(|error| error.kind().to_string())?.compile_matcher();
    let begins_with_dot = glob.starts_with(b".") || glob.starts_with(b"\\.");
    Ok(Part::Names { matcher, begins_with_dot })
}

/// The length of a class behind its `[`, with the `]` that ends it. A `]` that comes first is one
/// of its characters.
fn class_bytes(text: &[u8]) -> Option<usize> {
    let first = usize::from(text.first().is_some_and(|byte| b"!^".contains(byte)));
    let behind = text.get(first + 1..)?;
    Some(first + 1 + behind.iter().position(|byte| *byte == b']')? + 1)
}

fn has(text: &[u8], wanted: &[u8]) -> bool {
    text.windows(wanted.len()).any(|window| window == wanted)
}

/// The texts that braces stand for: `{a,b}c` is `ac` and `bc`. Braces without a comma are
/// characters like others.
fn expand_braces(text: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let mut expanded = Vec::new();
    let mut pending = vec![text.to_vec()];
    while let Some(text) = pending.pop() {
        let Some(choice) = first_choice(&text) else {
            expanded.push(text);
            continue;
        };
        if expanded.len() + pending.len() + choice.len() > MAX_ALTERNATIVES {
            return Err(format!("its braces stand for more than {MAX_ALTERNATIVES} globs"));
        }
        let (Some(start), Some(end)) = (choice.first(), choice.last()) else { continue };
        let (before, after) = (&text[..*start], &text[end + 1..]);
        let options = choice.windows(2).map(|edges| &text[edges[0] + 1..edges[1]]);
        pending.extend(options.map(|option| [before, option, after].concat()));
    }
    Ok(expanded)
}

/// The places of the first brace that has a comma, of its commas, and of the brace that closes it.
fn first_choice(text: &[u8]) -> Option<Vec<usize>> {
    let mut open: Vec<Vec<usize>> = Vec::new();
    let mut first: Option<Vec<usize>> = None;
    let mut bytes = text.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'\\' => {
                bytes.next();
            }
            b'{' => open.push(vec![at]),
            b',' => {
                if let Some(choice) = open.last_mut() {
                    choice.push(at);
                }
            }
            b'}' => {
                let closed = open.pop().filter(|choice| choice.len() > 1);
                if let Some(mut choice) = closed
                    && first.as_ref().is_none_or(|first| choice[0] < first[0])
                {
                    choice.push(at);
                    first = Some(choice);
                }
            }
            _ => {}
        }
    }
    first
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_match(glob: &str, path: &str) -> bool {
        let glob = ShellGlob::new(b"", glob.as_bytes(), Hidden::ByDotAlone).unwrap();
        glob.reach(path.as_bytes()) == Reach::Match
    }

    #[test]
    fn a_leading_dot_is_matched_by_a_dot_alone() {
        for (glob, path, expected) in [
            ("*", "a", true),
            ("*", ".env", false),
            ("?env", ".env", false),
            ("[.]env", ".env", false),
            ("[!x]env", ".env", false),
            (".*", ".env", true),
            (".e?v", ".env", true),
            ("\\.*", ".env", true),
            ("{.,}*", ".env", true),
            ("{.env,a}", ".env", true),
            ("*.env", "a.env", true),
            // A directory that matches is meant with everything in it.
            ("*", "d/.env", true),
            ("*/*", "d/.env", false),
            ("d/*", "d/.env", false),
            ("d/.*", "d/.env", true),
            ("*/x", ".d/x", false),
            (".*/x", ".d/x", true),
            ("**/x", "x", true),
            ("**/x", "d/e/x", true),
            ("**/x", "d/.e/x", false),
            ("**/.e/x", "d/.e/x", true),
            (".d/**/x", ".d/e/x", true),
            ("**/.env", "d/.env", true),
            ("**", ".env", false),
            ("**", ".d/x", false),
            ("d/**", "d", false),
            ("d/**", "d/e", true),
            ("d/**", "d/.e", false),
            ("**/**/x", "x", true),
        ] {
            assert_eq!(is_match(glob, path), expected, "{glob} {path}");
        }
    }

    #[test]
    fn hidden_names_are_like_others_in_an_exception() {
        for (glob, path) in [("*", ".env"), ("**/x", ".d/x"), ("[.]env", ".env")] {
            let glob = ShellGlob::new(b"", glob.as_bytes(), Hidden::LikeOthers).unwrap();
            assert_eq!(glob.reach(path.as_bytes()), Reach::Match, "{path}");
        }
        let anywhere = ShellGlob::anywhere(b"*.x", Hidden::LikeOthers).unwrap();
        assert_eq!(anywhere.reach(b"a/.b/c.x"), Reach::Match);
        assert!(anywhere.is_match(b"a/.b/c.x") && !anywhere.is_match(b"a/c.x/d"));
    }

    #[test]
    fn braces_and_brackets_mean_what_they_mean_to_a_shell() {
        for (glob, path, expected) in [
            ("{a,b}.c", "b.c", true),
            ("{a,b}.c", "c.c", false),
            ("{a}*", "ab", false),
            ("{a}*", "{a}b", true),
            ("{a,d/*}", "d/x", true),
            ("x{a,{b,c}}*", "xcd", true),
            ("{x{a,b}}*", "{xa}", true),
            ("{x,{a,b}*", "{x,b", true),
            ("\\{a,b}*", "{a,b}", true),
            ("{a\\,b,c}*", "a,b", true),
            ("a[b*", "a[bc", true),
            ("a[b/c]*", "a[b/c]d", true),
            ("a[]]*", "a]", true),
            ("[{}]*", "{", true),
            ("[{}]*", "\\", false),
            ("\\**", "*a", true),
            ("\\**", "ba", false),
            ("a***b", "axxb", true),
            ("*\\?", "a?", true),
            ("*\\", "a\\", true),
            ("*,b", "a,b", true),
        ] {
            assert_eq!(is_match(glob, path), expected, "{glob} {path}");
        }
        for glob in ["[[:alpha:]]x", &"{a,b}".repeat(20)] {
            let glob = ShellGlob::new(b"", glob.as_bytes(), Hidden::ByDotAlone);
            assert!(glob.is_err());
        }
        // A name that is no text stands for itself.
        let glob = ShellGlob::new(b"/\xff[a]", b"\xfe/*", Hidden::ByDotAlone).unwrap();
        assert_eq!(glob.reach(b"/\xff[a]/\xfe/x"), Reach::Match);
        assert_eq!(glob.reach(b"/\xffa/\xfe/x"), Reach::Apart);
    }

    proptest! {
        /// The answer of `reach` for a path holds for everything below it.
        #[test]
        fn nothing_below_a_path_apart_matches(
            glob in "[ab.*/?{},\\[\\]\\\\]{0,12}",
            path in "([ab.]{1,3}/){0,4}[ab.]{1,3}",
            hidden in prop_oneof![Just(Hidden::ByDotAlone), Just(Hidden::LikeOthers)],
        ) {
            let Ok(glob) = ShellGlob::new(b"", glob.as_bytes(), hidden) else { return Ok(()) };
            let whole = glob.reach(path.as_bytes());
            for above in byte_path::ancestors(path.as_bytes()) {
                match glob.reach(above) {
                    Reach::Apart => prop_assert_eq!(whole, Reach::Apart),
                    Reach::Match => prop_assert_eq!(whole, Reach::Match),
                    Reach::Above => {}
                }
            }
        }
    }
}
