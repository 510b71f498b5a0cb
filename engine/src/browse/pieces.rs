//! Long files, verified piece by piece while they are read.
//!
//! A piece is read into memory, verified, and served from there. Later, when it is no longer in
//! memory, it is read in place, where the `stat` of the object has to be what it was when it was
//! opened: an object is never written again. One that is made of chunks is verified anew. The next
//! pieces of who reads one after the other are verified ahead, by a thread for all files, so that
//! hashing and copying go on at the same time. The same thread lets go of what is in memory when
//! no reader is left.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::Duration;

use nono_mount::Content;
use parking_lot::Mutex;

use super::contents::OpenObject;
use crate::object::Midstates;
use crate::sys;

const PIECE_BYTES: u64 = Midstates::PIECE_BYTES;
/// Pieces in memory, of all files together: for two readers in order, what they read and what is
/// ahead.
const PIECES_KEPT: usize = 10;
/// Buffers kept besides: for two pieces that are verified at once.
const MAX_SPARE: usize = 2;
/// Pieces that are verified before a reader comes to them.
const PIECES_AHEAD: u64 = 4;
/// Longer than a piece takes, if its thread gets a processor and the disk is not very slow.
const TIMEOUT: Duration = Duration::from_millis(20);
/// So long they are kept when no piece is verified any more.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// Jobs that may wait; more are not needed.
const QUEUE_LENGTH: usize = 16;

/// The pieces in memory, and the thread that looks after them.
pub(super) struct Pieces {
    kept: Arc<Mutex<Kept>>,
    jobs: OnceLock<mpsc::SyncSender<Job>>,
}

/// Pieces of a file that are to be verified, if it is still open. None, when a reader only has one
/// in memory.
type Job = (Weak<LongFile>, Range<u64>);

/// With the number of its file, and its own.
type KeptPiece = (u64, u64, Arc<Piece>);

#[derive(Default)]
struct Kept {
    /// Newest last.
    pieces: VecDeque<KeptPiece>,
    /// Buffers of some that are no longer kept: to take new memory costs the kernel as much as to
    /// copy a piece.
    spare: Vec<Vec<u8>>,
    files_opened: u64,
}

/// A piece that a thread verifies, or has.
#[derive(Default)]
struct Piece {
    verifying: Mutex<()>,
    bytes: OnceLock<Vec<u8>>,
}

impl Pieces {
    pub(super) fn new() -> Self {
        Self { kept: Arc::default(), jobs: OnceLock::new() }
    }

    /// Serves an open object, in the state in which it was opened.
    pub(super) fn serve(&self, opened: OpenObject, states: Midstates) -> Arc<dyn Content> {
        let number = {
            let mut kept = self.kept.lock();
            kept.files_opened += 1;
            kept.files_opened
        };
        let words = states.pieces().div_ceil(u64::from(u64::BITS));
        let verified = (0..words).map(|_| AtomicU64::new(0)).collect();
        let jobs = self.jobs.get_or_init(|| start_thread(self.kept.clone())).clone();
        let kept = self.kept.clone();
        let file = LongFile { opened, states, verified, number, kept };
        Arc::new(InPieces { file: Arc::new(file), jobs })
    }
}

/// Starts the thread. It ends with the last sender; where there is none, readers do all.
fn start_thread(kept: Arc<Mutex<Kept>>) -> mpsc::SyncSender<Job> {
    let (sender, jobs) = mpsc::sync_channel::<Job>(QUEUE_LENGTH);
    let run = move || {
        loop {
            let is_empty = kept.lock().is_empty();
            let patience = if is_empty { Duration::MAX } else { KEPT_FOR };
            match jobs.recv_timeout(patience) {
                Ok((file, pieces)) => verify_ahead(&file, pieces),
                // The memory is freed after the lock.
                Err(mpsc::RecvTimeoutError::Timeout) => drop(kept.lock().take()),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
        }
    };
    if let Err(error) = sys::spawn("nono-ahead", run) {
        tracing::warn!(%error, "long files are not verified ahead of who reads them");
    }
    sender
}

fn verify_ahead(file: &Weak<LongFile>, pieces: Range<u64>) {
    let Range { mut start, end } = pieces;
    while start < end
        && let Some(file) = file.upgrade()
    {
        if start + 1 < end && file.verify_two(start) {
            start += 2;
            continue;
        }
        if !file.is_verified(start) {
            // The reader that comes for it will report the error.
            let _ = file.piece(start).bytes(|| file.load(start));
        }
        start += 1;
    }
}

impl Kept {
    fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.spare.is_empty()
    }

    fn take(&mut self) -> (VecDeque<KeptPiece>, Vec<Vec<u8>>) {
        (std::mem::take(&mut self.pieces), std::mem::take(&mut self.spare))
    }

    fn find(&self, file: u64, piece: u64) -> Option<Arc<Piece>> {
        let found = self.pieces.iter().find(|(of, number, _)| (*of, *number) == (file, piece));
        found.map(|(_, _, piece)| piece.clone())
    }

    fn find_or_add(&mut self, file: u64, piece: u64) -> Arc<Piece> {
        if let Some(found) = self.find(file, piece) {
            return found;
        }
        let added = Arc::<Piece>::default();
        self.pieces.push_back((file, piece, added.clone()));
        if self.pieces.len() > PIECES_KEPT
            && let Some((_, _, oldest)) = self.pieces.pop_front()
        {
            let bytes = Arc::into_inner(oldest).and_then(|piece| piece.bytes.into_inner());
            self.spare.extend(bytes.filter(|_| self.spare.len() < MAX_SPARE));
        }
        added
    }
}

impl Piece {
    /// The bytes. A reader waits while another thread loads them, but not for one that does not get
    /// a processor.
    fn bytes(&self, load: impl FnOnce() -> io::Result<Vec<u8>>) -> io::Result<&[u8]> {
        if let Some(bytes) = self.bytes.get() {
            return Ok(bytes);
        }
        let _verifying = self.verifying.try_lock_for(TIMEOUT);
        if let Some(bytes) = self.bytes.get() {
            return Ok(bytes);
        }
        let bytes = load()?;
        Ok(self.bytes.get_or_init(|| bytes))
    }
}

/// A long file that is open.
struct LongFile {
    opened: OpenObject,
    states: Midstates,
    /// A bit for each piece that was verified.
    verified: Box<[AtomicU64]>,
    /// Differs from that of every other one.
    number: u64,
    kept: Arc<Mutex<Kept>>,
}

impl LongFile {
    fn bit(&self, piece: u64) -> Option<(&AtomicU64, u64)> {
        let word = usize::try_from(piece / u64::from(u64::BITS)).ok()?;
        Some((self.verified.get(word)?, 1 << (piece % u64::from(u64::BITS))))
    }

    fn is_verified(&self, piece: u64) -> bool {
        self.bit(piece).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Whether it was verified, or is in memory or on its way there.
    fn is_at_hand(&self, piece: u64) -> bool {
        self.is_verified(piece) || self.kept.lock().find(self.number, piece).is_some()
    }

    fn piece(&self, piece: u64) -> Arc<Piece> {
        self.kept.lock().find_or_add(self.number, piece)
    }

    /// Reads a piece and verifies it. Where the copy that is open is damaged, from another one.
    fn load(&self, piece: u64) -> io::Result<Vec<u8>> {
        let damage = match self.unverified(piece) {
            Ok(bytes) if self.is_right(piece, &bytes) => {
                self.note_verified(piece, &bytes);
                return Ok(bytes);
            }
            Ok(_) => self.opened.unlike_its_name(),
            Err(error) => error,
        };
        // It is never read in place.
        let mut bytes = vec![0; self.len_of(piece)];
        match self.opened.read_other(&mut bytes, piece * PIECE_BYTES) {
            Some(Ok(len)) if len == bytes.len() && self.is_right(piece, &bytes) => Ok(bytes),
            _ => Err(damage),
        }
    }

    fn is_right(&self, piece: u64, bytes: &[u8]) -> bool {
        self.states.verifies(piece, bytes, &self.opened.key.hash)
    }

    fn len_of(&self, piece: u64) -> usize {
        self.opened.size.saturating_sub(piece * PIECE_BYTES).min(PIECE_BYTES) as usize
    }

    /// Reads and verifies a piece and the next one at once. False when that has to be done one by
    /// one: another thread has or verifies one of them, or something is wrong.
    fn verify_two(&self, first: u64) -> bool {
        let numbers = [first, first + 1];
        if numbers.iter().any(|piece| self.is_verified(*piece)) {
            return false;
        }
        let pieces = numbers.map(|piece| self.piece(piece));
        let locks = pieces.each_ref().map(|piece| piece.verifying.try_lock());
        let is_free = |piece: &Arc<Piece>| piece.bytes.get().is_none();
        if locks.iter().any(Option::is_none) || !pieces.iter().all(is_free) {
            return false;
        }
        let [Ok(one), Ok(other)] = numbers.map(|piece| self.unverified(piece)) else {
            return false;
        };
        let two = [(first, &*one), (first + 1, &*other)];
        if self.states.verifies_two(two, &self.opened.key.hash) != [true, true] {
            return false;
        }
        for ((number, piece), bytes) in numbers.into_iter().zip(&pieces).zip([one, other]) {
            self.note_verified(number, &bytes);
            // A reader whose wait ended may have verified the piece by itself.
            let _ = piece.bytes.set(bytes);
        }
        true
    }

    fn unverified(&self, piece: u64) -> io::Result<Vec<u8>> {
        let opened = &self.opened;
        let (start, len) = (piece * PIECE_BYTES, self.len_of(piece));
        let mut bytes = self.kept.lock().spare.pop().unwrap_or_default();
        bytes.resize(len, 0);
        match opened.read_unverified(&mut bytes, start)? {
            found if found == len => Ok(bytes),
            _ => Err(opened.unlike_its_name()),
        }
    }

    fn note_verified(&self, piece: u64, bytes: &[u8]) {
        if self.opened.stays_verified()
            && let Some((word, bit)) = self.bit(piece)
        {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        let start = piece * PIECE_BYTES;
        self.opened.drop_behind(start..start + bytes.len() as u64);
    }

    /// A piece that is in memory, or comes there to be verified. `None` when it was verified and is
    /// no longer there.
    fn in_memory(&self, piece: u64) -> Option<Arc<Piece>> {
        match self.is_verified(piece) {
            true => self.kept.lock().find(self.number, piece),
            false => Some(self.piece(piece)),
        }
    }

    /// Fills the buffer with bytes of a piece that was verified.
    fn read_in_place(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.opened.read_in_place(buffer, offset)? {
            len if len == buffer.len() => Ok(()),
            _ => Err(self.opened.unlike_its_name()),
        }
    }
}

impl Drop for LongFile {
    fn drop(&mut self) {
        let ours: VecDeque<KeptPiece>;
        {
            let mut kept = self.kept.lock();
            let all = std::mem::take(&mut kept.pieces);
            (ours, kept.pieces) = all.into_iter().partition(|(file, _, _)| *file == self.number);
        }
        // The memory is freed after the lock.
        drop(ours);
    }
}

struct InPieces {
    file: Arc<LongFile>,
    jobs: mpsc::SyncSender<Job>,
}

impl InPieces {
    /// A reader is here: at the beginning of a piece, after the one before it, or half of the
    /// first one.
    fn go_ahead(&self, offset: u64) {
        let (piece, within) = (offset / PIECE_BYTES, offset % PIECE_BYTES);
        let is_in_order = match piece.checked_sub(1) {
            Some(before) => within == 0 && self.file.is_at_hand(before),
            None => within == PIECE_BYTES / 2,
        };
        let next = piece + 1..self.file.states.pieces().min(piece + 1 + PIECES_AHEAD);
        if is_in_order && next.clone().any(|next| !self.file.is_at_hand(next)) {
            self.have_verified(next);
        }
    }

    fn have_verified(&self, pieces: Range<u64>) {
        // When too many wait already, the readers do it.
        let _ = self.jobs.try_send((Arc::downgrade(&self.file), pieces));
    }
}

impl Content for InPieces {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.file.opened.size.saturating_sub(offset);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let step = (PIECE_BYTES - at % PIECE_BYTES).min((len - done) as u64);
            let part = &mut buffer[done..done + step as usize];
            if !self.lend(at..at + step, &mut |bytes| part.copy_from_slice(bytes))? {
                self.go_ahead(at);
                self.file.read_in_place(part, at)?;
            }
            done += step as usize;
        }
        Ok(len)
    }

    fn lend(&self, range: Range<u64>, borrower: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
        let (piece, start) = (range.start / PIECE_BYTES, range.start % PIECE_BYTES);
        let is_inside = range.start <= range.end && range.end <= self.file.opened.size;
        let end = start + range.end.saturating_sub(range.start);
        if !is_inside || end > PIECE_BYTES {
            return Ok(false);
        }
        let Some(in_memory) = self.file.in_memory(piece) else { return Ok(false) };
        self.go_ahead(range.start);
        let was_there = in_memory.bytes.get().is_some();
        let bytes = in_memory.bytes(|| self.file.load(piece))?;
        if !was_there {
            self.have_verified(0..0);
        }
        // No lock is held: the borrower may wait for another reader of this piece.
        let wanted = bytes.get(start as usize..end as usize);
        borrower(wanted.ok_or_else(|| self.file.opened.unlike_its_name())?);
        Ok(true)
    }

    fn is_ready(&self, offset: u64, len: usize) -> bool {
        let last = offset.saturating_add((len as u64).saturating_sub(1)) / PIECE_BYTES;
        // One that is being verified is waited for: to wake another thread takes as long.
        (offset / PIECE_BYTES..=last).all(|piece| self.file.is_at_hand(piece))
    }
}
