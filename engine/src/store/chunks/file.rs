//! Reading long objects out of their chunks.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::cut::first_of_zeros;
use super::{Head, NO_LIST, OTHER_LENGTH, Run, Unlisted, runs_of};
use crate::object::ContentHash;
use crate::store::packs::{Kind, Pack, Span};
use crate::store::{LocalStore, ObjectFile, StoreError};
use crate::sys;

/// An open object that is made of chunks. What is read is unchecked.
#[derive(Debug)]
pub(in crate::store) struct ChunkedFile {
    size: u64,
    sparse: bool,
    runs: Box<[Placed]>,
    packs: Vec<Arc<Pack>>,
    own: Vec<File>,
}

/// Which of several copies of a chunk are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum Choice {
    /// The ones that are found first.
    First,
    /// Intact ones. To find these out, all are read.
    Intact,
}

/// A run with its place in the contents, and that of its chunk in the store.
#[derive(Debug, Clone, Copy)]
struct Placed {
    start: u64,
    len: u32,
    times: u32,
    chunk: Place,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Zeros,
    /// In the pack of this number.
    Packed(u32, Span),
    /// The file of this number.
    Own(u32),
}

impl Placed {
    fn end(&self) -> u64 {
        self.start + u64::from(self.len) * u64::from(self.times)
    }
}

impl LocalStore {
    /// The list behind a record of the kind [`Kind::ChunkList`].
    pub(super) fn listed(
        &self,
        hash: &ContentHash,
        pack: &Pack,
        span: Span,
    ) -> Result<Head, StoreError> {
        let mut bytes = Vec::new();
        pack.read(span, &mut bytes)?;
        Head::decode(&bytes).ok_or_else(|| Unlisted::Wrong(NO_LIST).at(hash, pack.path()))
    }

    pub(super) fn runs(
        &self,
        hash: &ContentHash,
        head: &Head,
        path: &Path,
    ) -> Result<Vec<Run>, StoreError> {
        let runs = runs_of(head, |part| self.read_unlisted(part));
        runs.map_err(|error| error.at(hash, path))
    }

    /// The objects that lists of an object name: chunks, and the parts of the lists. None where it
    /// is no list of chunks.
    ///
    /// # Errors
    /// When a list cannot be read: what it names is not known then.
    pub(crate) fn chunks_of(&self, hash: &ContentHash) -> Result<Vec<ContentHash>, StoreError> {
        let mut named = Vec::new();
        for (pack, span) in self.lists_of(hash)? {
            let head = self.listed(hash, &pack, span)?;
            named.extend(head.parts.iter().map(|part| part.hash));
            named.extend(self.runs(hash, &head, pack.path())?.iter().map(|run| run.hash));
        }
        Ok(named)
    }

    pub(in crate::store) fn lists_of(
        &self,
        hash: &ContentHash,
    ) -> Result<Vec<(Arc<Pack>, Span)>, StoreError> {
        let mut found = self.packs().find_each(self.dir(), hash)?;
        found.retain(|(_, span)| span.kind() == Kind::ChunkList);
        Ok(found)
    }

    /// Whether an object is a list of chunks somewhere.
    #[cfg_attr(
        not(any(test, feature = "fuzzing")),
        allow(dead_code, reason = "only tests and fuzzing ask")
    )]
    pub(crate) fn has_list_of(&self, hash: &ContentHash) -> bool {
        self.lists_of(hash).is_ok_and(|lists| !lists.is_empty())
    }

    /// Whether a list of an object of `size` bytes is whole, and all its chunks are there. They are
    /// not read.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(in crate::store) fn has_all_chunks(
        &self,
        hash: &ContentHash,
        size: u64,
        pack: &Pack,
        span: Span,
    ) -> Result<bool, StoreError> {
        let found = self.listed(hash, pack, span).and_then(|head| {
            let is_right = head.size == size;
            Ok(if is_right { self.runs(hash, &head, pack.path())? } else { Vec::new() })
        });
        let runs = match found {
            Err(error) if error.is_damage() => return Ok(false),
            found => found?,
        };
        let mut known: HashMap<_, _, RandomState> = HashMap::default();
        for Run { hash, len, .. } in &runs {
            if known.insert(*hash, ()).is_none() && !self.contains_chunk(hash, (*len).into())? {
                return Ok(false);
            }
        }
        Ok(!runs.is_empty())
    }

    /// Whether a pack has a sound list of chunks that are not all there.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(in crate::store) fn is_without_chunks(
        &self,
        hash: &ContentHash,
        pack: &Pack,
        span: Span,
    ) -> Result<bool, StoreError> {
        if span.kind() != Kind::ChunkList {
            return Ok(false);
        }
        match self.listed(hash, pack, span) {
            Ok(head) => Ok(!self.has_all_chunks(hash, head.size, pack, span)?),
            Err(error) if error.is_damage() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Opens an object whose list of chunks is in a pack.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`], also where a chunk is missing, or a failed read.
    pub(in crate::store) fn open_chunked(
        &self,
        hash: &ContentHash,
        pack: &Pack,
        span: Span,
        choice: Choice,
    ) -> Result<ChunkedFile, StoreError> {
        let head = self.listed(hash, pack, span)?;
        let listed = self.runs(hash, &head, pack.path()).map_err(|error| match error {
            // The missing part is missing of this object.
            StoreError::Missing { hash: part, .. } => lacks(hash, &part, pack.path()),
            error => error,
        })?;
        let mut file = ChunkedFile {
            size: head.size,
            sparse: head.sparse,
            runs: Box::default(),
            packs: Vec::new(),
            own: Vec::new(),
        };
        let mut known: HashMap<_, _, RandomState> = HashMap::default();
        let (mut runs, mut start) = (Vec::with_capacity(listed.len()), 0);
        for Run { hash: chunk, len, times } in listed {
            let place = match known.get(&chunk) {
                Some((known_len, place)) if *known_len == len => *place,
                Some(_) => return Err(Unlisted::Wrong(OTHER_LENGTH).at(hash, pack.path())),
                None => {
                    let found = self.place_of(&chunk, len, choice, &mut file)?;
                    let place = found.ok_or_else(|| lacks(hash, &chunk, pack.path()))?;
                    known.insert(chunk, (len, place));
                    place
                }
            };
            let placed = Placed { start, len, times, chunk: place };
            start = placed.end();
            runs.push(placed);
        }
        file.runs = runs.into();
        Ok(file)
    }

    /// Where a chunk is; `None` when no copy of its length is.
    fn place_of(
        &self,
        chunk: &ContentHash,
        len: u32,
        choice: Choice,
        file: &mut ChunkedFile,
    ) -> Result<Option<Place>, StoreError> {
        if len as usize == first_of_zeros() && *chunk == hash_of_zeros() {
            return Ok(Some(Place::Zeros));
        }
        if let Some(own) = self.own_file_of(chunk, len, choice)? {
            file.own.push(own);
            return Ok(Some(Place::Own(file.own.len() as u32 - 1)));
        }
        let found = match choice {
            Choice::First => self.packs().find(self.dir(), chunk, true)?,
            Choice::Intact => self.find_intact(chunk, len)?,
        };
        let Some((pack, span)) = found else { return Ok(None) };
        if span.kind() != Kind::Whole || span.len() != u64::from(len) {
            return Ok(None);
        }
        let number = file.packs.iter().rposition(|known| Arc::ptr_eq(known, &pack));
        let number = number.unwrap_or_else(|| {
            file.packs.push(pack);
            file.packs.len() - 1
        });
        Ok(Some(Place::Packed(number as u32, span)))
    }

    fn own_file_of(
        &self,
        chunk: &ContentHash,
        len: u32,
        choice: Choice,
    ) -> Result<Option<File>, StoreError> {
        match choice {
            Choice::First if self.has_no_own(chunk) => Ok(None),
            Choice::First => self.open_own_file(chunk, len.into()),
            Choice::Intact => {
                let own = self.open_own(chunk).ok().flatten();
                let own = own.filter(|own| own.size() == u64::from(len));
                let is_intact = own
                    .as_ref()
                    .is_some_and(|own| own.read_checked(len.into(), &mut Vec::new()).is_ok());
                Ok(own.filter(|_| is_intact).and_then(ObjectFile::into_file))
            }
        }
    }
}

fn lacks(hash: &ContentHash, chunk: &ContentHash, path: &Path) -> StoreError {
    let reason = format!("its chunk {chunk} is missing");
    StoreError::Corrupt { hash: *hash, path: path.to_owned(), reason }
}

fn hash_of_zeros() -> ContentHash {
    static HASH: std::sync::OnceLock<ContentHash> = std::sync::OnceLock::new();
    *HASH.get_or_init(|| ContentHash::of(&vec![0; first_of_zeros()]))
}

impl ChunkedFile {
    /// Length in bytes.
    pub(in crate::store) fn size(&self) -> u64 {
        self.size
    }

    /// Whether its zeros are holes.
    pub(in crate::store) fn is_sparse(&self) -> bool {
        self.sparse
    }

    /// Reads until the buffer is full or the object ends; less where a chunk is cut short.
    pub(in crate::store) fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let first = self.runs.partition_point(|run| run.end() <= offset);
        let mut done = 0;
        for run in self.runs.get(first..).unwrap_or_default() {
            while done < buffer.len() && offset + (done as u64) < run.end() {
                let within = (offset + done as u64 - run.start) % u64::from(run.len);
                let left = (u64::from(run.len) - within) as usize;
                let rest = &mut buffer[done..];
                let step = left.min(rest.len());
                let part = &mut rest[..step];
                let count = match run.chunk {
                    Place::Zeros => {
                        part.fill(0);
                        step
                    }
                    Place::Packed(pack, span) => {
                        self.packs[pack as usize].read_at(span, part, within)?
                    }
                    Place::Own(file) => sys::read_full_at(&self.own[file as usize], part, within)?,
                };
                done += count;
                if count < step {
                    return Ok(done);
                }
            }
            if done == buffer.len() {
                break;
            }
        }
        Ok(done)
    }

    /// As [`sys::allocated_ranges`].
    pub(in crate::store) fn ranges<E: From<io::Error>>(
        &self,
        len: u64,
        mut visit: impl FnMut(u64, u64, bool) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.sparse {
            return visit(0, len, true);
        }
        let is_data = |run: &Placed| !matches!(run.chunk, Place::Zeros);
        for same in self.runs.chunk_by(|one, other| is_data(one) == is_data(other)) {
            let (Some(first), Some(last)) = (same.first(), same.last()) else { continue };
            let end = last.end().min(len);
            if first.start < end {
                visit(first.start, end - first.start, is_data(first))?;
            }
        }
        Ok(())
    }
}
