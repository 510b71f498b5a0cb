//! The writer of each line of a file: the first state of the line of states that has it.
//!
//! The states of the file are followed from the oldest to the newest. Lines that a diff finds again
//! keep their writer, all others have the new state as theirs. Where the file appears, the file
//! that went with it is its past: one with the same contents, or else the most similar one (half of
//! it at least, as for git). Contents that came back, by an undo or by a copy, keep the writers
//! that they had. The lines of the first recorded state are older than the record.
//!
//! A state that an archive brought is no part of what happened here. A state of a received session
//! is followed in that session alone.

mod lines;
mod renames;
#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests make what they look at")]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use super::error::{Damaged, HistoryError};
use super::snapshots::Place;
use super::text::Event;
use super::versions::{Origin, Sighting, sightings_of};
use crate::diff::EntryState;
use crate::object::{ContentHash, Node};
use crate::snapshot::SessionDir;
use crate::store::ObjectSource;

pub use lines::{found_again, similarity};

/// Longest file whose lines are told apart, in bytes.
pub const MAX_BLAME_BYTES: u64 = 64 << 20;

/// Maximum number of renames that are followed one after the other.
const MAX_RENAMES: usize = 200;

/// The state whose lines are asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlameAt {
    /// The file on the disk: these bytes.
    Now(Vec<u8>),
    /// The newest recorded state that has the file.
    Newest,
    /// The state of a snapshot.
    Snapshot {
        /// Its session.
        session_id: String,
        /// Its number.
        number: u64,
    },
    /// The last state that was recorded until then.
    Time(Timestamp),
}

/// The lines of a file with their writers.
#[derive(Debug)]
pub struct Blame {
    /// The path in the form in which snapshots have it.
    pub path: PathBuf,
    /// The snapshot whose state it is; `None` for what is there now.
    pub at: Option<Place>,
    /// The lines, each with its end.
    pub lines: Vec<BlamedLine>,
    /// The writers; lines name them by number.
    pub writers: Vec<Writer>,
    /// Sessions of which a part could not be looked at.
    pub damaged: Vec<Damaged>,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlamedLine {
    /// The line with its end.
    pub bytes: Vec<u8>,
    /// Its writer, as an index of [`Blame::writers`].
    pub writer: usize,
}

/// The writer of lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Writer {
    /// The first state that has the lines; `None`: no snapshot has them.
    pub event: Option<Event>,
    /// The path that the file had then.
    pub path: PathBuf,
}

/// Finds the writers of the lines of a file in these sessions, whose objects are in `source`.
/// `forms` are those of its path. `Ok(None)`: no state that is asked about has anything there.
///
/// # Errors
/// [`HistoryError::NoText`], or an object that is missing or damaged.
pub fn blame(
    forms: &[PathBuf],
    at: &BlameAt,
    sessions: &[SessionDir],
    source: &dyn ObjectSource,
) -> Result<Option<Blame>, HistoryError> {
    let (mut sightings, damaged) = sightings_of(forms, sessions, source);
    let is_of = |sighting: &Sighting, wanted: &str, number: u64| {
        let place = &sighting.place;
        place.restored.is_none() && place.session_id == wanted && place.number == number
    };
    let mut received = None;
    match at {
        BlameAt::Now(_) | BlameAt::Newest => {}
        BlameAt::Time(time) => sightings.retain(|sighting| sighting.place.timestamp <= *time),
        BlameAt::Snapshot { session_id, number } => {
            let Some(last) =
                sightings.iter().position(|sighting| is_of(sighting, session_id, *number))
            else {
                return Ok(None);
            };
            sightings.truncate(last + 1);
            let place = &sightings[last].place;
            received = place.received.then(|| place.session_id.clone());
        }
    }
    sightings.retain(|sighting| is_in_line(sighting, received.as_deref()));
    if *at == BlameAt::Newest {
        let last = sightings.iter().rposition(|sighting| sighting.state.is_some());
        sightings.truncate(last.map_or(0, |last| last + 1));
    }
    let Some(last) = sightings.last() else { return Ok(None) };
    let (path, place) = (last.form.clone(), last.place.clone());
    let mut tracing = Tracing { sessions, source, received, writers: Vec::new(), rename_count: 0 };
    let traced = tracing.trace(&sightings)?;
    let (text, at) = match at {
        BlameAt::Now(bytes) => {
            let hash = ContentHash::of(bytes);
            let text = match traced.known(&hash) {
                Some(text) => text,
                None => tracing.next(traced.last, hash, bytes, None, &path),
            };
            (text, None)
        }
        _ => {
            // A file that is no text, or too long, is in the way only where it is asked about.
            let state = last.state.as_deref();
            let Some(text) = traced.last else {
                return match state {
                    None => Ok(None),
                    Some(state) => Err(no_text(&path, state)),
                };
            };
            (text, Some(place))
        }
    };
    if text.lines.iter().any(|line| line.contains(&0)) {
        return Err(HistoryError::NoText { path, reason: "it is binary".to_owned() });
    }
    let lines = text.lines.iter().zip(&text.writers);
    let lines = lines.map(|(bytes, writer)| BlamedLine { bytes: bytes.clone(), writer: *writer });
    Ok(Some(Blame { path, at, lines: lines.collect(), writers: tracing.writers, damaged }))
}

fn no_text(path: &Path, state: &EntryState) -> HistoryError {
    let reason = match &state.node {
        Node::File { .. } => format!("it has more than {MAX_BLAME_BYTES} bytes"),
        node => format!("it is a {}", node.kind_name()),
    };
    HistoryError::NoText { path: path.to_owned(), reason }
}

/// Whether a state is of those that were here, or of this received session.
fn is_in_line(sighting: &Sighting, received: Option<&str>) -> bool {
    let is_received = sighting.place.received && sighting.place.restored.is_none();
    match received {
        None => !is_received,
        Some(id) => is_received && sighting.place.session_id == id,
    }
}

/// A file with the writers of its lines.
#[derive(Debug)]
struct Text {
    hash: ContentHash,
    lines: Vec<Vec<u8>>,
    writers: Vec<usize>,
}

/// The states of a path that were followed.
#[derive(Default)]
struct Traced {
    /// The last state; `None` where it is no file, or too long.
    last: Option<Arc<Text>>,
    /// All contents so far.
    all: HashMap<ContentHash, Arc<Text>>,
}

impl Traced {
    fn known(&self, hash: &ContentHash) -> Option<Arc<Text>> {
        self.all.get(hash).cloned()
    }
}

/// Work on one file.
struct Tracing<'a> {
    sessions: &'a [SessionDir],
    source: &'a dyn ObjectSource,
    received: Option<String>,
    writers: Vec<Writer>,
    rename_count: usize,
}

impl Tracing<'_> {
    /// Follows the states of one path.
    fn trace(&mut self, sightings: &[Sighting]) -> Result<Traced, HistoryError> {
        let mut traced = Traced::default();
        let mut before: Option<&Sighting> = None;
        // The path was there, or known to be missing.
        for sighting in sightings {
            let file = sighting.state.as_deref().and_then(|state| match &state.node {
                Node::File { hash, size, .. } if *size <= MAX_BLAME_BYTES => Some((*hash, *size)),
                _ => None,
            });
            traced.last = match (file, traced.last.take()) {
                (None, _) => None,
                (Some((hash, _)), Some(last)) if last.hash == hash => Some(last),
                (Some((hash, size)), last) => match traced.known(&hash) {
                    Some(text) => Some(text),
                    None => {
                        let bytes = self.source.read(&hash, size)?;
                        let appeared = before.filter(|before| before.state.is_none());
                        let base = match (last, appeared) {
                            (None, Some(before)) => {
                                self.renamed(sighting, before, &hash, &bytes)?
                            }
                            (last, _) => last,
                        };
                        let had_before = before.is_some();
                        let origin = Origin::of(&sighting.place, had_before);
                        let event = Event { place: sighting.place.clone(), origin };
                        let path = &sighting.form;
                        Some(self.next(base, hash, &bytes, Some(event), path))
                    }
                },
            };
            if let Some(text) = &traced.last {
                traced.all.insert(text.hash, Arc::clone(text));
            }
            before = Some(sighting);
        }
        Ok(traced)
    }

    /// The next state: lines of the one before keep their writers.
    fn next(
        &mut self,
        base: Option<Arc<Text>>,
        hash: ContentHash,
        bytes: &[u8],
        event: Option<Event>,
        path: &Path,
    ) -> Arc<Text> {
        let lines: Vec<Vec<u8>> =
            bytes.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
        let kept = match &base {
            Some(base) => lines::found_again(&base.lines, &lines),
            None => vec![None; lines.len()],
        };
        let mut new = None;
        let writers = kept.into_iter().map(|kept| match (kept, &base) {
            (Some(at), Some(base)) => base.writers[at],
            _ => *new.get_or_insert_with(|| {
                self.writers.push(Writer { event: event.clone(), path: path.to_owned() });
                self.writers.len() - 1
            }),
        });
        let writers = writers.collect();
        Arc::new(Text { hash, lines, writers })
    }

    /// The file that became the one which appeared, in its last state.
    fn renamed(
        &mut self,
        appeared: &Sighting,
        before: &Sighting,
        hash: &ContentHash,
        bytes: &[u8],
    ) -> Result<Option<Arc<Text>>, HistoryError> {
        if self.rename_count >= MAX_RENAMES || appeared.place.restored.is_some() {
            return Ok(None);
        }
        let pair = (&before.place, &appeared.place);
        let Some(path) =
            renames::source_of(&appeared.form, hash, bytes, pair, self.sessions, self.source)?
        else {
            return Ok(None);
        };
        self.rename_count += 1;
        let (mut sightings, _) = sightings_of(&[path], self.sessions, self.source);
        sightings.retain(|sighting| is_in_line(sighting, self.received.as_deref()));
        let now = Timestamp::now();
        let last = before.place.order(now);
        sightings.retain(|sighting| sighting.place.order(now) <= last);
        Ok(self.trace(&sightings)?.last)
    }
}
