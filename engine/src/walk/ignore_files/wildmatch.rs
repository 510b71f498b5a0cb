//! git's wildcards (`wildmatch.c`), matched in time that is bounded by both lengths.
//!
//! git backtracks. Here all places in the text that the pattern reaches so far are kept at once, so
//! a pattern that the recorded command wrote cannot stop a walk.

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Wildmatch {
    steps: Vec<Step>,
    /// A slash is matched by a slash alone, and by `**`.
    is_path: bool,
}

#[derive(Debug)]
enum Step {
    Byte(u8),
    /// `?`
    Any,
    /// `*`
    Star,
    /// `**` between slashes, or at the end.
    All,
    /// `**/`: no directory, or some.
    Directories,
    Class {
        is_negated: bool,
        bytes: Box<[bool; 256]>,
    },
}

impl Wildmatch {
    /// A pattern for a name. `None` if it matches nothing.
    pub(super) fn name(pattern: &[u8]) -> Option<Self> {
        Self::new(pattern, false)
    }

    /// A pattern for a path, which begins with a name. `None` if it matches nothing.
    pub(super) fn path(pattern: &[u8]) -> Option<Self> {
        Self::new(pattern, true)
    }

    fn new(pattern: &[u8], is_path: bool) -> Option<Self> {
        let mut steps = Vec::new();
        let mut at = 0;
        while let Some(byte) = pattern.get(at) {
            match byte {
                b'\\' => {
                    steps.push(Step::Byte(*pattern.get(at + 1)?));
                    at += 2;
                }
                b'?' => {
                    steps.push(Step::Any);
                    at += 1;
                }
                b'*' => {
                    let begins_name = at == 0 || pattern[at - 1] == b'/';
                    let count = pattern[at..].iter().take_while(|byte| **byte == b'*').count();
                    let rest = &pattern[at + count..];
                    at += count;
                    let ends_name =
                        rest.is_empty() || rest.starts_with(b"/") || rest.starts_with(b"\\/");
                    let is_all = count > 1 && is_path && begins_name && ends_name;
                    if is_all && rest.starts_with(b"/") {
                        at += 1;
                        steps.push(Step::Directories);
                    } else {
                        steps.push(if is_all { Step::All } else { Step::Star });
                    }
                }
                b'[' => {
                    let (step, len) = class(&pattern[at + 1..])?;
                    steps.push(step);
                    at += 1 + len;
                }
                byte => {
                    steps.push(Step::Byte(*byte));
                    at += 1;
                }
            }
        }
        Some(Self { steps, is_path })
    }

    /// Whether the whole text matches.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        let passes = |byte: u8| !(self.is_path && byte == b'/');
        // Whether the steps so far match the text up to a place.
        let mut reached = vec![false; text.len() + 1];
        reached[0] = true;
        for step in &self.steps {
            let mut is_any = false;
            match step {
                Step::Star | Step::All | Step::Directories => {
                    let mut is_within = false;
                    for (at, place) in reached.iter_mut().enumerate() {
                        let was_reached = *place;
                        let before = at.checked_sub(1).map(|before| text[before]);
                        match step {
                            Step::Star => {
                                is_within &= before.is_some_and(passes);
                                is_within |= was_reached;
                                *place = is_within;
                            }
                            Step::Directories => {
                                *place |= is_within && before == Some(b'/');
                                is_within |= was_reached;
                            }
                            _ => {
                                is_within |= was_reached;
                                *place = is_within;
                            }
                        }
                        is_any |= *place;
                    }
                }
                single => {
                    for at in (0..text.len()).rev() {
                        let byte = text[at];
                        let is_matched = match single {
                            Step::Byte(own) => *own == byte,
                            Step::Class { is_negated, bytes } => {
                                bytes[usize::from(byte)] != *is_negated && passes(byte)
                            }
                            _ => passes(byte),
                        };
                        reached[at + 1] = reached[at] && is_matched;
                        is_any |= reached[at + 1];
                    }
                    reached[0] = false;
                }
            }
            if !is_any {
                return false;
            }
        }
        reached[text.len()]
    }
}

/// A class, and its length: what follows its bracket, with the closing one. `None` if it is not
/// closed or names an unknown class, so that the pattern matches nothing.
fn class(pattern: &[u8]) -> Option<(Step, usize)> {
    let mut at = 0;
    let is_negated = matches!(pattern.first()?, b'!' | b'^');
    at += usize::from(is_negated);
    let mut bytes = Box::new([false; 256]);
    // The beginning of a range that may follow.
    let mut before = None;
    let mut is_first = true;
    loop {
        let byte = *pattern.get(at)?;
        if byte == b']' && !is_first {
            return Some((Step::Class { is_negated, bytes }, at + 1));
        }
        is_first = false;
        let next = pattern.get(at + 1).copied();
        match (byte, before) {
            (b'\\', _) => {
                let byte = next?;
                bytes[usize::from(byte)] = true;
                before = Some(byte);
                at += 2;
            }
            (b'-', Some(from)) if next.is_some_and(|next| next != b']') => {
                at += 1;
                let mut to = next?;
                if to == b'\\' {
                    at += 1;
                    to = *pattern.get(at)?;
                }
                (from..=to).for_each(|byte| bytes[usize::from(byte)] = true);
                before = None;
                at += 1;
            }
            (b'[', _) if next == Some(b':') => {
                let rest = &pattern[at + 2..];
                let end = rest.iter().position(|byte| *byte == b']')?;
                match rest[..end].strip_suffix(b":") {
                    Some(name) => {
                        let is_in = named(name)?;
                        (0..=255).filter(is_in).for_each(|byte| bytes[usize::from(byte)] = true);
                        before = None;
                        at += 2 + end + 1;
                    }
                    None => {
                        bytes[usize::from(b'[')] = true;
                        before = Some(b'[');
                        at += 1;
                    }
                }
            }
            (byte, _) => {
                bytes[usize::from(byte)] = true;
                before = Some(byte);
                at += 1;
            }
        }
    }
}

/// The bytes of a named class: `[:alpha:]`.
fn named(name: &[u8]) -> Option<fn(&u8) -> bool> {
    Some(match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    })
}
