//! Edits of JSON that a person wrote: only what has to change changes.
//!
//! A scanner finds where the values of a text are, comments and trailing commas allowed. An edit
//! then inserts or removes text there, so that order, indentation, comments and odd spacing of
//! everything else stay as they are, byte for byte.

use std::ops::Range;

use serde_json::Value;

/// Deeper texts are refused.
const MAX_DEPTH: usize = 64;

/// Why a text cannot be edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JsonTextError {
    /// It is no JSON.
    #[error("line {line} is no JSON: {expected} is expected")]
    Syntax {
        /// The line, from 1 on.
        line: usize,
        /// The token that is missing there.
        expected: &'static str,
    },
    /// Something on the way to a value is not what it has to be.
    #[error("{at:?} is no {expected}")]
    Shape {
        /// The keys on the way.
        at: String,
        /// The kind that it has to be.
        expected: &'static str,
    },
}

/// One step on the way to a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Key<'a> {
    Name(&'a str),
    Index(usize),
}

/// A value and where it is.
#[derive(Debug)]
struct Node {
    span: Range<usize>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Object(Vec<(Member, Node)>),
    Array(Vec<Node>),
    Scalar,
}

#[derive(Debug)]
struct Member {
    name: String,
    start: usize,
}

/// The value that a text means; an empty text is an empty object.
pub(super) fn value(text: &str) -> Result<Value, JsonTextError> {
    let node = parse(text)?;
    Ok(to_value(text, &node))
}

fn to_value(text: &str, node: &Node) -> Value {
    match &node.kind {
        Kind::Object(members) => Value::Object(
            members.iter().map(|(m, node)| (m.name.clone(), to_value(text, node))).collect(),
        ),
        Kind::Array(items) => items.iter().map(|node| to_value(text, node)).collect(),
        Kind::Scalar => serde_json::from_str(&text[node.span.clone()]).unwrap_or(Value::Null),
    }
}

/// Sets a member of nested objects, which are made where they are missing.
pub(super) fn set(text: &str, path: &[&str], value: &Value) -> Result<String, JsonTextError> {
    let text = whole(text);
    let mut node = &parse(text)?;
    for (depth, name) in path.iter().enumerate() {
        let Kind::Object(members) = &node.kind else { return Err(shape(&path[..depth], "object")) };
        match members.iter().find(|(member, _)| member.name == *name) {
            Some((_, found)) => node = found,
            None => {
                let nested = path[depth + 1..].iter().rev().fold(value.clone(), |value, name| {
                    Value::Object([((*name).to_owned(), value)].into_iter().collect())
                });
                let name = Value::from(*name);
                return Ok(insert(text, node, depth, Some(&name), &nested));
            }
        }
    }
    let shown = pretty(value, &indentation(text).repeat(path.len()), indentation(text));
    Ok([&text[..node.span.start], &shown, &text[node.span.end..]].concat())
}

/// Adds an item to the end of an array in nested objects, which are made where they are missing.
pub(super) fn push(text: &str, path: &[&str], item: &Value) -> Result<String, JsonTextError> {
    let text = whole(text);
    let root = parse(text)?;
    let keys: Vec<_> = path.iter().map(|name| Key::Name(name)).collect();
    match find(&root, &keys) {
        None => set(text, path, &Value::Array(vec![item.clone()])),
        Some(node) if matches!(node.kind, Kind::Array(_)) => {
            Ok(insert(text, node, path.len(), None, item))
        }
        Some(_) => Err(shape(path, "array")),
    }
}

/// Removes a value, if it is there.
pub(super) fn remove(text: &str, path: &[Key<'_>]) -> Result<String, JsonTextError> {
    let root = parse(text)?;
    let Some((last, above)) = path.split_last() else { return Ok(text.to_owned()) };
    let Some(parent) = find(&root, above) else { return Ok(text.to_owned()) };
    let ranges: Vec<Range<usize>> = match &parent.kind {
        Kind::Object(members) => members.iter().map(|(m, n)| m.start..n.span.end).collect(),
        Kind::Array(items) => items.iter().map(|node| node.span.clone()).collect(),
        Kind::Scalar => Vec::new(),
    };
    let at = match (last, &parent.kind) {
        (Key::Name(name), Kind::Object(members)) => {
            members.iter().position(|(member, _)| member.name == *name)
        }
        (Key::Index(index), Kind::Array(items)) => (*index < items.len()).then_some(*index),
        _ => None,
    };
    let Some(at) = at else { return Ok(text.to_owned()) };
    let Range { start, end } = ranges[at].clone();
    // One comma goes too: the one behind it, else the one in front.
    let comma = after_trivia(text, end).filter(|next| text.as_bytes()[*next] == b',');
    let blank = |at: usize| text[..at].trim_end().len();
    let (mut text, mut start) = (text.to_owned(), start);
    match comma {
        Some(comma) => text.replace_range(end..=comma, ""),
        None if at > 0 => {
            let before = ranges[at - 1].end;
            if let Some(comma) = text[before..start].find(',') {
                text.remove(before + comma);
                start -= 1;
                let end = end - 1;
                let from = text[..start].trim_end().len();
                text.replace_range(from..end, "");
                return Ok(text);
            }
        }
        None => {}
    }
    let from = blank(start);
    text.replace_range(from..end, "");
    Ok(text)
}

/// A text that holds a value at least.
fn whole(text: &str) -> &str {
    if text.trim().is_empty() { "{}\n" } else { text }
}

fn find<'a>(node: &'a Node, path: &[Key<'_>]) -> Option<&'a Node> {
    let Some((first, rest)) = path.split_first() else { return Some(node) };
    let next = match (&node.kind, first) {
        (Kind::Object(members), Key::Name(name)) => {
            &members.iter().find(|(member, _)| member.name == *name)?.1
        }
        (Kind::Array(items), Key::Index(index)) => items.get(*index)?,
        _ => return None,
    };
    find(next, rest)
}

fn shape(path: &[&str], expected: &'static str) -> JsonTextError {
    JsonTextError::Shape { at: path.join("."), expected }
}

/// Adds a member or an item at the end of `node`, which lies so deep.
fn insert(text: &str, node: &Node, depth: usize, name: Option<&Value>, value: &Value) -> String {
    let unit = indentation(text);
    let (inner, outer) = (unit.repeat(depth + 1), unit.repeat(depth));
    let last = match &node.kind {
        Kind::Object(members) => members.last().map(|(_, node)| node.span.end),
        Kind::Array(items) => items.last().map(|node| node.span.end),
        Kind::Scalar => None,
    };
    let close = node.span.end - 1;
    let mut new = format!("\n{inner}");
    if let Some(name) = name {
        new.push_str(&format!("{name}: "));
    }
    new.push_str(&pretty(value, &inner, unit));
    let has_comma = last.is_none_or(|last| {
        after_trivia(text, last).is_some_and(|next| text.as_bytes()[next] == b',')
    });
    // Behind whatever is written there, so that a comment stays with its value.
    let end = text[..close].trim_end().len();
    let is_one_line = !text[end..close].contains('\n');
    let tail = if is_one_line { format!("\n{outer}") } else { String::new() };
    match last {
        Some(last) if !has_comma => {
            [&text[..last], ",", &text[last..end], &new, &tail, &text[end..]].concat()
        }
        _ => [&text[..end], &new, &tail, &text[end..]].concat(),
    }
}

/// How a level is indented: as the first member of the text is.
fn indentation(text: &str) -> &str {
    let line = text.lines().skip(1).find(|line| !line.trim().is_empty());
    let unit = line.map_or("", |line| &line[..line.len() - line.trim_start().len()]);
    if unit.is_empty() { "  " } else { unit }
}

fn pretty(value: &Value, indent: &str, unit: &str) -> String {
    let mut out = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(unit.as_bytes());
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, formatter);
    // Values have text for their keys, so this cannot fail.
    let _ = serde::Serialize::serialize(value, &mut serializer);
    String::from_utf8_lossy(&out).replace('\n', &format!("\n{indent}"))
}

/// Where something begins that is neither white space nor a comment.
fn after_trivia(text: &str, from: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = from;
    loop {
        match bytes.get(at)? {
            b' ' | b'\t' | b'\r' | b'\n' => at += 1,
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += text[at..].find('\n').unwrap_or(text.len() - at);
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => at += text[at..].find("*/")? + 2,
            _ => return Some(at),
        }
    }
}

fn parse(text: &str) -> Result<Node, JsonTextError> {
    // A mark that some editors put at the beginning.
    let begin = if text.starts_with('\u{feff}') { 3 } else { 0 };
    if text.trim_start_matches('\u{feff}').trim().is_empty() {
        return Ok(Node { span: begin..begin, kind: Kind::Object(Vec::new()) });
    }
    let scanner = Scanner { text };
    let node = scanner.node(begin, 0)?;
    match after_trivia(text, node.span.end) {
        None => Ok(node),
        Some(at) => Err(scanner.expected(at, "the end")),
    }
}

struct Scanner<'a> {
    text: &'a str,
}

impl Scanner<'_> {
    fn expected(&self, at: usize, expected: &'static str) -> JsonTextError {
        let at = at.min(self.text.len());
        let line = self.text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        JsonTextError::Syntax { line, expected }
    }

    fn next(&self, from: usize, expected: &'static str) -> Result<(usize, u8), JsonTextError> {
        let at = after_trivia(self.text, from);
        let at = at.ok_or_else(|| self.expected(self.text.len(), expected))?;
        Ok((at, self.text.as_bytes()[at]))
    }

    fn node(&self, from: usize, depth: usize) -> Result<Node, JsonTextError> {
        let (start, first) = self.next(from, "a value")?;
        if depth > MAX_DEPTH {
            return Err(self.expected(start, "an end of all these brackets"));
        }
        match first {
            b'{' => {
                let mut members = Vec::new();
                let end = self.list(start + 1, b'}', |at| {
                    let name_end = self.string(at)?;
                    let name = serde_json::from_str(&self.text[at..name_end]);
                    let name = name.map_err(|_| self.expected(at, "a name"))?;
                    let (colon, found) = self.next(name_end, "a colon")?;
                    if found != b':' {
                        return Err(self.expected(colon, "a colon"));
                    }
                    let node = self.node(colon + 1, depth + 1)?;
                    let end = node.span.end;
                    members.push((Member { name, start: at }, node));
                    Ok(end)
                })?;
                Ok(Node { span: start..end, kind: Kind::Object(members) })
            }
            b'[' => {
                let mut items = Vec::new();
                let end = self.list(start + 1, b']', |at| {
                    let node = self.node(at, depth + 1)?;
                    let end = node.span.end;
                    items.push(node);
                    Ok(end)
                })?;
                Ok(Node { span: start..end, kind: Kind::Array(items) })
            }
            b'"' => Ok(Node { span: start..self.string(start)?, kind: Kind::Scalar }),
            _ => {
                let rest = &self.text[start..];
                let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
                let length = rest.find(|c| !word(c)).unwrap_or(rest.len());
                match serde_json::from_str::<Value>(&rest[..length]) {
                    Ok(_) => Ok(Node { span: start..start + length, kind: Kind::Scalar }),
                    Err(_) => Err(self.expected(start, "a value")),
                }
            }
        }
    }

    /// Elements until the closing bracket, with commas between them; where it ends.
    fn list(
        &self,
        from: usize,
        close: u8,
        mut element: impl FnMut(usize) -> Result<usize, JsonTextError>,
    ) -> Result<usize, JsonTextError> {
        let mut at = from;
        loop {
            let (start, found) = self.next(at, "a closing bracket")?;
            if found == close {
                return Ok(start + 1);
            }
            let end = element(start)?;
            let (next, found) = self.next(end, "a comma or a closing bracket")?;
            match found {
                b',' => at = next + 1,
                found if found == close => at = next,
                _ => return Err(self.expected(next, "a comma or a closing bracket")),
            }
        }
    }

    /// Where the string ends that begins here.
    fn string(&self, start: usize) -> Result<usize, JsonTextError> {
        let bytes = self.text.as_bytes();
        if bytes.get(start) != Some(&b'"') {
            return Err(self.expected(start, "a quotation mark"));
        }
        let mut at = start + 1;
        loop {
            match bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
                None => return Err(self.expected(start, "the end of a text")),
            }
        }
        match serde_json::from_str::<String>(&self.text[start..=at]) {
            Ok(_) => Ok(at + 1),
            Err(_) => Err(self.expected(start, "a text")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const COMMENTED: &str =
        "{\n    // mine\n    \"theme\": \"dark\", /* keep */\n    \"list\": [1, 2,], // two\n}\n";

    #[test]
    fn only_what_is_added_is_new() {
        let text = set(COMMENTED, &["mcp", "nono"], &json!({"type": "local"})).unwrap();
        assert_eq!(
            text,
            "{\n    // mine\n    \"theme\": \"dark\", /* keep */\n    \"list\": [1, 2,], // two\n    \"mcp\": {\n        \"nono\": {\n            \"type\": \"local\"\n        }\n    }\n}\n"
        );
        assert_eq!(push("{\"a\":[1]}", &["a"], &json!(2)).unwrap(), "{\"a\":[1,\n    2\n  ]}");
        assert_eq!(set("", &["a"], &json!(1)).unwrap(), "{\n  \"a\": 1\n}\n");
        assert_eq!(
            set("{\n\t\"a\": 1\n}", &["b"], &json!(1)).unwrap(),
            "{\n\t\"a\": 1,\n\t\"b\": 1\n}"
        );
    }

    #[test]
    fn what_is_removed_takes_its_comma_along() {
        let text = "{\n  \"a\": 1,\n  \"b\": [1, 2, 3]\n}\n";
        let gone = |path: &[Key<'_>]| remove(text, path).unwrap();
        assert_eq!(gone(&[Key::Name("a")]), "{\n  \"b\": [1, 2, 3]\n}\n");
        assert_eq!(gone(&[Key::Name("b")]), "{\n  \"a\": 1\n}\n");
        assert_eq!(gone(&[Key::Name("b"), Key::Index(1)]), "{\n  \"a\": 1,\n  \"b\": [1, 3]\n}\n");
        assert_eq!(gone(&[Key::Name("b"), Key::Index(2)]), "{\n  \"a\": 1,\n  \"b\": [1, 2]\n}\n");
        assert_eq!(gone(&[Key::Name("c")]), text);
    }

    #[test]
    fn a_text_that_is_no_json_is_refused_with_its_line() {
        for (text, at) in
            [("{\n  \"a\" 1}", 2), ("{\"a\": }", 1), ("[1 2]", 1), ("{}\n{}", 2), ("{\"", 1)]
        {
            match value(text) {
                Err(JsonTextError::Syntax { line, .. }) => assert_eq!(line, at, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        assert!(push("{\"a\": 1}", &["a"], &json!(1)).is_err());
        assert!(set("{\"a\": 1}", &["a", "b"], &json!(1)).is_err());
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-z\"\\\\/{}\\[\\],: é]{0,8}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-d]", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect()))
            ]
        })
    }

    proptest! {
        #[test]
        fn what_was_added_and_removed_leaves_the_same_value(
            before in proptest::collection::btree_map("[a-d]", any_value(), 0..4),
            added in any_value(), is_pretty in any::<bool>(),
        ) {
            let before = Value::Object(before.into_iter().collect());
            let text = match is_pretty {
                true => serde_json::to_string_pretty(&before).unwrap(),
                false => before.to_string(),
            };
            prop_assert_eq!(value(&text).unwrap(), before.clone());
            let with = set(&text, &["x", "y"], &added).unwrap();
            let mut expected = before.clone();
            expected["x"]["y"] = added;
            prop_assert_eq!(value(&with).unwrap(), expected.clone());
            // Other readers agree.
            prop_assert_eq!(serde_json::from_str::<Value>(&with).unwrap(), expected);
            let without = remove(&with, &[Key::Name("x")]).unwrap();
            prop_assert_eq!(serde_json::from_str::<Value>(&without).unwrap(), before);
        }

        #[test]
        fn any_text_is_a_value_or_an_error(text in "[\\[\\]{}\",:/* \\n\\\\a1é]{0,40}") {
            let _ = value(&text);
            let _ = set(&text, &["a", "b"], &json!([1]));
            let _ = remove(&text, &[Key::Name("a"), Key::Index(0)]);
        }
    }
}
