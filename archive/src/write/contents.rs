//! Contents of files on their way out of the store. No byte leaves before it was verified, so a
//! damaged copy of an object is left for an intact one in the middle of a file.

use std::io::Write;

use crate::ArchiveError;
use nono_engine::object::{ContentHash, Midstates, MidstatesLink, PieceHasher};
use nono_engine::path_text::to_path;
use nono_engine::progress::Progress;
use nono_engine::store::{LocalStore, ObjectFile, ObjectSource, StoreError, Transfer};
use nono_engine::sys::IoContext;

const PIECE_BYTES: u64 = Midstates::PIECE_BYTES;

/// A file whose contents go out.
pub(super) struct File<'a> {
    /// For errors.
    pub(super) path: &'a [u8],
    pub(super) hash: ContentHash,
    pub(super) size: u64,
    pub(super) midstates: &'a MidstatesLink,
}

/// Copies contents out of a store.
pub(super) struct Contents<'a> {
    pub(super) store: &'a LocalStore,
    pub(super) progress: &'a dyn Progress,
    /// The bytes of a short file, or of two pieces of a long one.
    buffer: Vec<u8>,
}

impl<'a> Contents<'a> {
    pub(super) fn new(store: &'a LocalStore, progress: &'a dyn Progress) -> Self {
        Self { store, progress, buffer: Vec::new() }
    }

    /// Writes all contents of a file, each byte from any intact copy.
    ///
    /// # Errors
    /// [`ArchiveError::Contents`] when there is none, [`ArchiveError::Write`],
    /// [`ArchiveError::Cancelled`].
    pub(super) fn copy(
        &mut self,
        file: &File<'_>,
        out: &mut impl Write,
    ) -> Result<(), ArchiveError> {
        let copied = if file.size <= PIECE_BYTES {
            self.copy_short(file, out)
        } else {
            match self.midstates(file) {
                Some(states) => self.copy_pieces(file, &states, out),
                None => self.copy_verified(file, out),
            }
        };
        copied.map_err(|error| match error {
            ArchiveError::Store(source) => {
                ArchiveError::Contents { path: to_path(file.path).to_owned(), source }
            }
            error => error,
        })
    }

    fn copy_short(&mut self, file: &File<'_>, out: &mut impl Write) -> Result<(), ArchiveError> {
        self.store.read_into(&file.hash, file.size, &mut self.buffer)?;
        if self.buffer.len() as u64 != file.size {
            // Its hash is right, so its tree is wrong.
            let object = self.store.open_object(&file.hash)?;
            return Err(object.check_size(file.size).err().unwrap_or(object.corrupt()).into());
        }
        out.write_all(&self.buffer).map_err(ArchiveError::Write)?;
        self.progress.advance(1, file.size);
        Ok(())
    }

    /// The states of a long file, if the store can give them.
    fn midstates(&self, file: &File<'_>) -> Option<Midstates> {
        let bytes = self.store.read(&file.midstates.name()?, Midstates::encoded_bytes(file.size));
        Midstates::decode(&bytes.ok()?, file.size).ok()
    }

    /// Copies a long file of which each piece can be verified by itself, two pieces at once.
    fn copy_pieces(
        &mut self,
        file: &File<'_>,
        states: &Midstates,
        out: &mut impl Write,
    ) -> Result<(), ArchiveError> {
        let mut source = Copies::open(self.store, file)?;
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut piece = 0;
        while piece < states.pieces() {
            if self.progress.is_cancelled() {
                return Err(ArchiveError::Cancelled);
            }
            let at = piece * PIECE_BYTES;
            buffer.resize((file.size - at).min(2 * PIECE_BYTES) as usize, 0);
            source.read(&mut buffer, at, |bytes| {
                let (first, second) = bytes.split_at(bytes.len().min(PIECE_BYTES as usize));
                match second {
                    [] => states.verifies(piece, first, &file.hash),
                    _ => {
                        let both = [(piece, first), (piece + 1, second)];
                        states.verifies_two(both, &file.hash) == [true; 2]
                    }
                }
            })?;
            out.write_all(&buffer).map_err(ArchiveError::Write)?;
            self.progress.advance(0, buffer.len() as u64);
            piece += 2;
        }
        self.buffer = buffer;
        self.progress.advance(1, 0);
        Ok(())
    }

    /// Copies a long file without midstates: it is verified as a whole first, and again on the way.
    fn copy_verified(&mut self, file: &File<'_>, out: &mut impl Write) -> Result<(), ArchiveError> {
        let mut transfer = Transfer::new(&mut self.buffer, self.progress);
        let object = self.store.open_intact(&file.hash, file.size, &mut transfer)?;
        let mut hasher = PieceHasher::new(file.size);
        let mut at = 0;
        while at < file.size {
            if self.progress.is_cancelled() {
                return Err(ArchiveError::Cancelled);
            }
            self.buffer.resize((file.size - at).min(PIECE_BYTES) as usize, 0);
            read_exact(&object, &mut self.buffer, at)?;
            hasher.update(&self.buffer);
            out.write_all(&self.buffer).map_err(ArchiveError::Write)?;
            at += self.buffer.len() as u64;
        }
        if hasher.finish().0 != file.hash {
            return Err(object.corrupt().into());
        }
        self.progress.advance(1, 0);
        Ok(())
    }
}

/// The copies of one object: the same one is read as long as it is intact.
struct Copies<'a> {
    store: &'a LocalStore,
    file: &'a File<'a>,
    open: ObjectFile,
}

impl<'a> Copies<'a> {
    /// Opens a copy of the right length. Other damage shows when it is read.
    fn open(store: &'a LocalStore, file: &'a File<'a>) -> Result<Self, StoreError> {
        let first = store.open_object(&file.hash).and_then(|object| {
            object.check_size(file.size)?;
            Ok(object)
        });
        let open = match first {
            Err(error) if is_of_copy(&error) => {
                let other = store.copies(&file.hash)?.find(|copy| copy.size() == file.size);
                other.ok_or(error)?
            }
            first => first?,
        };
        Ok(Self { store, file, open })
    }

    /// Fills the buffer from a copy that is intact there.
    fn read(
        &mut self,
        buffer: &mut [u8],
        at: u64,
        is_intact: impl Fn(&[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let mut take = |object: &ObjectFile| {
            read_exact(object, buffer, at)?;
            if is_intact(buffer) { Ok(()) } else { Err(object.corrupt()) }
        };
        let damage = match take(&self.open) {
            Err(error) if is_of_copy(&error) => error,
            read => return read,
        };
        let mut copies = self.store.copies(&self.file.hash)?;
        let intact = copies.find(|copy| copy.size() == self.file.size && take(copy).is_ok());
        self.open = intact.ok_or(damage)?;
        Ok(())
    }
}

/// Whether an error concerns one copy, and another one may be intact.
fn is_of_copy(error: &StoreError) -> bool {
    error.is_damage() || error.is_bad_disk()
}

fn read_exact(object: &ObjectFile, buffer: &mut [u8], at: u64) -> Result<(), StoreError> {
    let read = object.read_at(buffer, at).at("read", object.path())?;
    if read == buffer.len() { Ok(()) } else { Err(object.corrupt()) }
}
