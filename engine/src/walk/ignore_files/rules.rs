//! The lines of an ignore file, read as git reads them (`dir.c`): the last that names a path
//! decides.
//!
//! Names and lines are bytes. Where versions of git differ (`a**/b`), the documented meaning
//! counts, which ignores less.

use std::collections::HashMap;

use super::wildmatch::Wildmatch;
use crate::byte_path;

/// The rules of one ignore file.
#[derive(Debug, Default)]
pub(super) struct Rules {
    rules: Vec<Rule>,
    /// Rules that are a mere name, by it: most are, and a file may have very many.
    names: HashMap<Box<[u8]>, Vec<usize>>,
    /// All others.
    others: Vec<usize>,
}

#[derive(Debug)]
struct Rule {
    /// The line, without spaces at its end.
    line: Box<[u8]>,
    is_negative: bool,
    only_directories: bool,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// The name of the entry, wherever it lies.
    Name(Box<[u8]>),
    /// The end of the name.
    Ending(Box<[u8]>),
    /// A pattern for the name.
    NamePattern(Wildmatch),
    /// The path from the directory of the file.
    Path { beginning: Box<[u8]>, rest: Option<Wildmatch> },
}

/// The rule for a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said<'a> {
    /// It is ignored, by this line.
    Ignored(&'a [u8]),
    /// It is not ignored, whatever a rule before says.
    Included,
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Rules {
    /// The rules in a file.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let mut all = Self::default();
        let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        for line in bytes.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            // git's lines are strings of C.
            let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let line = without_spaces(line);
            let Some(rule) = Rule::of(line) else { continue };
            let at = all.rules.len();
            match &rule.form {
                Form::Name(name) => all.names.entry(name.clone()).or_default().push(at),
                _ => all.others.push(at),
            }
            all.rules.push(rule);
        }
        all
    }

    /// Whether nothing is said about any path.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The verdict of the rules on a path, relative to the directory of the file.
    pub(super) fn say(&self, path: &[u8], is_dir: bool) -> Option<Said<'_>> {
        let (_, name) = byte_path::split(path);
        let counts = |at: &&usize| is_dir || !self.rules[**at].only_directories;
        let by_name = self.names.get(name).and_then(|all| all.iter().rev().find(counts));
        let is_later = |at: &&usize| by_name.is_none_or(|by_name| *at > by_name);
        let mut others = self.others.iter().rev().take_while(is_later).filter(counts);
        let at = others.find(|at| self.rules[**at].matches(path, name)).or(by_name)?;
        let rule = &self.rules[*at];
        Some(if rule.is_negative { Said::Included } else { Said::Ignored(&rule.line) })
    }
}

/// The line up to its last character that is no space, unless a backslash keeps the space.
fn without_spaces(line: &[u8]) -> &[u8] {
    let (mut end, mut at) = (0, 0);
    while let Some(byte) = line.get(at) {
        match byte {
            b' ' => at += 1,
            b'\\' => {
                // One at the very end keeps the spaces before it.
                if at + 1 >= line.len() {
                    return line;
                }
                at += 2;
                end = at;
            }
            _ => {
                at += 1;
                end = at;
            }
        }
    }
    &line[..end]
}

impl Rule {
    /// `None` for a line that names nothing.
    fn of(line: &[u8]) -> Option<Self> {
        let (is_negative, pattern) = match line.strip_prefix(b"!") {
            Some(pattern) => (true, pattern),
            None => (false, line),
        };
        let (only_directories, pattern) = match pattern.strip_suffix(b"/") {
            Some(pattern) => (true, pattern),
            None => (false, pattern),
        };
        let literal_len = pattern.iter().position(|byte| b"*?[\\".contains(byte));
        let literal_len = literal_len.unwrap_or(pattern.len());
        let form = if pattern.contains(&b'/') {
            let anchored = pattern.strip_prefix(b"/").unwrap_or(pattern);
            let literal_len = literal_len - (pattern.len() - anchored.len());
            if literal_len == anchored.len() {
                Form::Path { beginning: anchored.into(), rest: None }
            } else {
                // Whole names of the path are compared first, and the rest begins with a name.
                let slash = anchored[..literal_len].iter().rposition(|byte| *byte == b'/');
                let (beginning, rest) = anchored.split_at(slash.map_or(0, |slash| slash + 1));
                Form::Path { beginning: beginning.into(), rest: Some(Wildmatch::path(rest)?) }
            }
        } else if literal_len == pattern.len() {
            Form::Name(pattern.into())
        } else if literal_len == 0
            && let Some(ending) = pattern.strip_prefix(b"*")
            && !ending.iter().any(|byte| b"*?[\\".contains(byte))
        {
            Form::Ending(ending.into())
        } else {
            Form::NamePattern(Wildmatch::name(pattern)?)
        };
        let is_nothing = matches!(&form, Form::Name(name) if name.is_empty());
        (!is_nothing).then(|| Self { line: line.into(), is_negative, only_directories, form })
    }

    fn matches(&self, path: &[u8], name: &[u8]) -> bool {
        match &self.form {
            Form::Name(own) => **own == *name,
            Form::Ending(ending) => name.ends_with(ending),
            Form::NamePattern(pattern) => pattern.matches(name),
            Form::Path { beginning, rest: None } => **beginning == *path,
            Form::Path { beginning, rest: Some(rest) } => {
                path.strip_prefix(&**beginning).is_some_and(|path| rest.matches(path))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path_text::Shown;

    fn is_ignored(rules: &[u8], path: &[u8], is_dir: bool) -> bool {
        matches!(Rules::parse(rules).say(path, is_dir), Some(Said::Ignored(_)))
    }

    #[test]
    fn lines_are_read_as_git_reads_them() {
        for (rules, path, expected) in [
            // Braces are no wildcards, and an unclosed class matches nothing.
            (&b"*.{log,sqlite}"[..], &b"a.log"[..], false),
            (b"*.{log,sqlite}", b"a.{log,sqlite}", true),
            (b"[ab", b"a", false),
            (b"[ab", b"[ab", false),
            (b"a[", b"a[", false),
            (b"a\\", b"a\\", false),
            (b"a\\", b"a", false),
            (b"\\!a", b"!a", true),
            (b"\\#a", b"#a", true),
            (b"#a", b"#a", false),
            (b"a  ", b"a", true),
            (b"a\\ ", b"a ", true),
            (b"a\\  ", b"a ", true),
            (b"a\t", b"a", false),
            (b"a\r\n", b"a", true),
            (b"a\r", b"a", true),
            (b"a\r\r", b"a", false),
            (b"a\0b\n", b"a", true),
            (b"\xef\xbb\xbfa\n", b"a", true),
            (b"\xff*", b"\xff\xfe", true),
            (b"!", b"", false),
            (b"/", b"a", false),
            (b"a//", b"a", false),
            (b"a/**/b", b"a/b", true),
            (b"a/**/b", b"a/x/y/b", true),
            (b"a**/b", b"ax/b", true),
            (b"a**/b", b"a/x/b", false),
            (b"a/**", b"a", false),
            (b"a/**", b"a/b/c", true),
            (b"**/a", b"x/y/a", true),
            (b"**/a", b"a", true),
            (b"/a", b"x/a", false),
            (b"a/b", b"x/a/b", false),
            (b"a/*", b"a/b/c", false),
            (b"*a*b", b"xaxb", true),
            (b"x[!a-c]", b"xd", true),
            (b"x[^a-c]", b"xb", false),
            (b"[[:digit:]]", b"7", true),
            (b"[[:nothing:]]", b"7", false),
            (b"*.log\n!keep.log", b"keep.log", false),
            (b"!keep.log\n*.log", b"keep.log", true),
            (b"keep\n!keep", b"keep", false),
        ] {
            let (shown, of) = (Shown::bytes(rules), Shown::bytes(path));
            assert_eq!(is_ignored(rules, path, false), expected, "{shown}, {of}");
        }
        assert!(is_ignored(b"a/", b"x/a", true) && !is_ignored(b"a/", b"x/a", false));
        assert!(is_ignored(b"!a/\na\n!a/", b"a", false), "the last rule is about directories");
    }

    #[test]
    fn many_rules_and_wildcards_are_no_way_to_stop_a_walk() {
        let stars = [&b"*a".repeat(400)[..], b"b"].concat();
        assert!(!is_ignored(&stars, &b"a".repeat(255), false));
        let names: Vec<u8> = (0..100_000).flat_map(|it| format!("n{it}\n").into_bytes()).collect();
        let rules = Rules::parse(&names);
        assert_eq!(rules.say(b"d/n99999", false), Some(Said::Ignored(b"n99999")));
        assert_eq!(rules.say(b"d/n100000", false), None);
    }
}
