//! The search through objects: each one once, by several threads.

use std::collections::HashMap;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use parking_lot::Mutex;
use rayon::prelude::*;

use super::{File, TextPattern, TextRequest};
use crate::history::HistoryError;
use crate::object::ContentHash;
use crate::path_text::to_path;
use crate::progress::{Progress, Stage};
use crate::store::{FileSource, StoreError, Transfer};

/// Longest object that is read into memory at once, in bytes.
const MAX_WHOLE_BYTES: u64 = 4 << 20;

/// Longest line of a longer object, in bytes: a line has to be in memory.
const MAX_LINE_BYTES: usize = 256 << 20;

/// Bytes of lines that are kept of one search. The lines of further objects are read again when
/// they are shown, so that a pattern that matches everything does not fill the memory.
const MAX_KEPT_BYTES: u64 = 128 << 20;

/// The facts that are kept of each object that has the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Its presence: the search of an object ends at the first match.
    Presence,
    /// The number of lines.
    Count,
    /// The lines.
    Lines,
}

/// A line that has the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Number of the line, from 1.
    pub number: u64,
    /// Where it begins, in bytes from the beginning of the object.
    pub offset: u64,
    /// The line with its end.
    pub bytes: Vec<u8>,
}

/// The text in one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InObject {
    /// Number of lines that have it; 1 where only its presence was asked for.
    pub line_count: u64,
    /// Number of matches in these lines.
    pub match_count: u64,
    /// Offset of the first NUL, which makes the object binary.
    pub binary_offset: Option<u64>,
    /// Length of the object in bytes.
    pub size: u64,
    lines: Option<Vec<Line>>,
}

impl InObject {
    /// Whether it is binary: none of its lines are shown.
    pub fn is_binary(&self) -> bool {
        self.binary_offset.is_some()
    }

    /// The lines of this object `hash`: those that were kept, or found by another search of it.
    ///
    /// # Errors
    /// When it cannot be read any more.
    pub fn lines(
        &self,
        hash: &ContentHash,
        pattern: &TextPattern,
        source: &dyn FileSource,
    ) -> Result<Vec<Line>, HistoryError> {
        if let Some(lines) = &self.lines {
            return Ok(lines.clone());
        }
        let mut work = Work::new(Depth::Lines);
        let found = work.search(hash, self.size, pattern, source)?;
        Ok(found.lines)
    }
}

/// The objects that have a text.
pub(super) struct Found {
    pub(super) objects: HashMap<ContentHash, InObject>,
    pub(super) searched_count: u64,
    pub(super) searched_bytes: u64,
    pub(super) unsearched: Vec<(PathBuf, HistoryError)>,
}

pub(super) fn search(
    files: &[File],
    request: &TextRequest<'_>,
    source: &dyn FileSource,
    progress: &dyn Progress,
) -> Result<Found, HistoryError> {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(request.threads)
        .thread_name(|index| format!("search {index}"))
        .build()
        .map_err(|error| HistoryError::Threads { reason: error.to_string() })?;
    progress.begin(Stage::ReadContents, None);
    let kept_bytes = AtomicU64::new(0);
    let unsearched = Mutex::new(Vec::new());
    let searched = pool.install(|| {
        let of_file = |work: &mut Work, file: &File| -> Result<_, HistoryError> {
            if progress.is_cancelled() {
                return Err(StoreError::Cancelled.into());
            }
            let found = work.search(&file.hash, file.size, request.pattern, source);
            progress.advance(1, file.size);
            match found {
                Ok(found) if found.line_count == 0 => Ok(None),
                Ok(found) => Ok(Some((file.hash, found.kept(file.size, &kept_bytes)))),
                Err(error) => {
                    unsearched.lock().push((to_path(&file.path).to_owned(), error));
                    Ok(None)
                }
            }
        };
        files
            .par_iter()
            .map_init(|| Work::new(request.depth), of_file)
            .filter_map(Result::transpose)
            .collect::<Result<HashMap<_, _>, _>>()
    })?;
    let mut unsearched = unsearched.into_inner();
    unsearched.sort_by(|a: &(PathBuf, HistoryError), b| a.0.cmp(&b.0));
    Ok(Found {
        objects: searched,
        searched_count: files.len() as u64,
        searched_bytes: files.iter().map(|file| file.size).sum(),
        unsearched,
    })
}

/// The tools of one thread.
struct Work {
    searcher: Searcher,
    depth: Depth,
    buffer: Vec<u8>,
}

impl Work {
    fn new(depth: Depth) -> Self {
        let searcher = SearcherBuilder::new()
            .line_number(depth == Depth::Lines)
            // A NUL ends a line, so that no binary object is one line without an end.
            .binary_detection(BinaryDetection::convert(b'\0'))
            .heap_limit(Some(MAX_LINE_BYTES))
            .build();
        Self { searcher, depth, buffer: Vec::new() }
    }

    fn search<'a>(
        &mut self,
        hash: &ContentHash,
        size: u64,
        pattern: &'a TextPattern,
        source: &dyn FileSource,
    ) -> Result<InLines<'a>, HistoryError> {
        let mut sink = InLines::new(pattern, self.depth);
        let searched = if size <= MAX_WHOLE_BYTES {
            let bytes = source.read(hash, size)?;
            // Through a reader: a search in a slice looks for a NUL in its first bytes alone.
            self.searcher.search_reader(pattern.matcher(), &bytes[..], &mut sink)
        } else {
            let mut transfer = Transfer::unwatched(&mut self.buffer);
            let reader: Box<dyn Read> = source.open_checked(hash, size, &mut transfer)?;
            self.searcher.search_reader(pattern.matcher(), reader, &mut sink)
        };
        let failed = |source| HistoryError::Search { hash: *hash, source };
        searched.map_err(failed)?;
        Ok(sink)
    }
}

/// The text in the lines of an object.
struct InLines<'a> {
    pattern: &'a TextPattern,
    depth: Depth,
    line_count: u64,
    match_count: u64,
    binary_offset: Option<u64>,
    lines: Vec<Line>,
}

impl<'a> InLines<'a> {
    fn new(pattern: &'a TextPattern, depth: Depth) -> Self {
        let (line_count, match_count, binary_offset) = (0, 0, None);
        Self { pattern, depth, line_count, match_count, binary_offset, lines: Vec::new() }
    }

    /// The same without lines that are not shown, or would be too many of this search.
    fn kept(self, size: u64, kept_bytes: &AtomicU64) -> InObject {
        let Self { line_count, match_count, binary_offset, .. } = self;
        let is_shown = self.depth == Depth::Lines && binary_offset.is_none();
        let lines = if is_shown { self.lines } else { Vec::new() };
        let bytes = lines.iter().map(|line| line.bytes.len() + size_of::<Line>()).sum::<usize>();
        let before = kept_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let lines = (before + bytes as u64 <= MAX_KEPT_BYTES).then_some(lines);
        InObject { line_count, match_count, binary_offset, size, lines }
    }
}

impl Sink for InLines<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.line_count += 1;
        if self.depth == Depth::Presence {
            return Ok(false);
        }
        if self.depth == Depth::Lines {
            self.match_count += self.pattern.matches_in(found.bytes()).len() as u64;
            if self.binary_offset.is_none() {
                self.lines.push(Line {
                    number: found.line_number().unwrap_or(0),
                    offset: found.absolute_byte_offset(),
                    bytes: found.bytes().to_vec(),
                });
            }
        }
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, offset: u64) -> io::Result<bool> {
        self.binary_offset.get_or_insert(offset);
        Ok(true)
    }
}
