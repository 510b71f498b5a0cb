//! Cutting contents that come a buffer at a time.

use super::cut::{LONGEST, first, first_of_zeros};

/// In front of the bytes in a buffer there is room for those before them that were not cut off.
pub(super) const ROOM: usize = LONGEST;

/// Contents that come in order, with gaps where there are holes.
pub(super) struct Cutter {
    /// The bytes that came and were not cut off: fewer than [`LONGEST`].
    rest: Vec<u8>,
    /// Where the next bytes come.
    at: u64,
}

/// What comes next in the contents.
pub(super) enum Cut {
    /// Chunks, each with its end in a buffer. The first begins at `start`.
    Chunks { buffer: Vec<u8>, start: usize, ends: Vec<usize> },
    /// So many chunks of nothing but zeros, each as long as [`first_of_zeros`] says.
    Zeros(u64),
}

impl Cutter {
    pub(super) fn new() -> Self {
        Self { rest: Vec::new(), at: 0 }
    }

    /// Takes the bytes at a place of the contents, which are behind [`ROOM`] in the buffer. The
    /// buffer always comes out again.
    ///
    /// # Errors
    /// Those of `take`.
    pub(super) fn add<E>(
        &mut self,
        offset: u64,
        mut buffer: Vec<u8>,
        take: &mut impl FnMut(Cut) -> Result<(), E>,
    ) -> Result<(), E> {
        self.add_zeros(offset.saturating_sub(self.at), take)?;
        self.at += (buffer.len() - ROOM) as u64;
        let start = ROOM - self.rest.len();
        buffer[start..ROOM].copy_from_slice(&self.rest);
        let (ends, done) = ends(&buffer, start, LONGEST);
        self.rest.clear();
        self.rest.extend_from_slice(&buffer[done..]);
        take(Cut::Chunks { buffer, start, ends })
    }

    /// Takes zeros up to the end of the contents, and cuts off all that is left.
    ///
    /// # Errors
    /// Those of `take`.
    pub(super) fn finish<E>(
        mut self,
        size: u64,
        take: &mut impl FnMut(Cut) -> Result<(), E>,
    ) -> Result<(), E> {
        self.add_zeros(size.saturating_sub(self.at), take)?;
        self.cut_rest(1, take)
    }

    fn add_zeros<E>(
        &mut self,
        mut count: u64,
        take: &mut impl FnMut(Cut) -> Result<(), E>,
    ) -> Result<(), E> {
        self.at += count;
        // What is left of the bytes before is cut as if the zeros were bytes as well.
        let mut zeros = 0;
        while count > 0 && zeros < self.rest.len() {
            let step = count.min(LONGEST as u64);
            self.rest.resize(self.rest.len() + step as usize, 0);
            (count, zeros) = (count - step, zeros + step as usize);
            self.cut_rest(LONGEST, take)?;
        }
        if count > 0 { self.cut_zeros(count, take) } else { Ok(()) }
    }

    /// Adds zeros behind nothing but zeros: all chunks are the same.
    fn cut_zeros<E>(
        &mut self,
        count: u64,
        take: &mut impl FnMut(Cut) -> Result<(), E>,
    ) -> Result<(), E> {
        let (len, all) = (first_of_zeros() as u64, self.rest.len() as u64 + count);
        let times = all.checked_sub(LONGEST as u64).map_or(0, |beyond| beyond / len + 1);
        self.rest.clear();
        self.rest.resize((all - times * len) as usize, 0);
        if times > 0 { take(Cut::Zeros(times)) } else { Ok(()) }
    }

    /// Cuts off chunks as long as so many bytes are left.
    fn cut_rest<E>(
        &mut self,
        least: usize,
        take: &mut impl FnMut(Cut) -> Result<(), E>,
    ) -> Result<(), E> {
        let (ends, done) = ends(&self.rest, 0, least);
        if done == 0 {
            return Ok(());
        }
        let left = self.rest[done..].to_vec();
        let buffer = std::mem::replace(&mut self.rest, left);
        take(Cut::Chunks { buffer, start: 0, ends })
    }
}

/// Where chunks end in a buffer from `start` on, as long as at least so many bytes are left, and
/// where the last one does.
fn ends(buffer: &[u8], start: usize, least: usize) -> (Vec<usize>, usize) {
    let (mut ends, mut done) = (Vec::new(), start);
    while buffer.len() - done >= least.max(1) {
        done += first(&buffer[done..]);
        ends.push(done);
    }
    (ends, done)
}
