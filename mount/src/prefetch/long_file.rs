//! Pushing a long file by the piece, a little ahead of whoever reads it.
//!
//! A reader that comes to bytes which were pushed asks for none of them, so it is known where it is only when it
//! asks. Then what is next to it is left to it: a push waits for pages that a READ has locked. It goes on behind that,
//! in the processor time that the reader does not need. So that a slow reader does not have a gigabyte
//! pushed that it comes to much later, only [so much](MOST_BYTES) is pushed before it asks again.

use super::Pushed;
use super::queue::Job;
use crate::contained::Opened;

/// Bytes of long files that are pushed before a reader shows that it has read those.
pub(super) const MOST_BYTES: u64 = 64 * 1024 * 1024;
/// Those that are asked of the source at a time.
const PIECE_BYTES: u64 = 1024 * 1024;
/// Those that the kernel gets at a time.
const PART_BYTES: usize = 256 * 1024;
/// What is left to a reader beyond what it has asked for: it asks for as much while it is at work with the rest.
const READER_BYTES: u64 = 512 * 1024;

/// Pushes a file of `size` bytes, which is at this position in the order of the job, until a reader has left it behind. `left`
/// is how much of [`MOST_BYTES`] is left.
pub(super) fn push(
    file: &Opened,
    size: u64,
    (job, position): (&Job, u64),
    left: &mut u64,
    others_wait: impl Fn() -> bool,
    store: impl Fn(u64, &[u8]) -> Pushed,
) -> Pushed {
    let mut offset = 0;
    let (mut is_begun, mut is_whole) = (false, true);
    while offset < size && *left > 0 && !job.is_past(position) {
        if let Some(read_to) = job.read_to(position) {
            // It can do without, and they may not.
            if others_wait() {
                break;
            }
            let behind = (read_to + READER_BYTES).next_multiple_of(PIECE_BYTES);
            if offset < behind {
                *left = MOST_BYTES;
                offset = behind;
                is_whole = false;
                continue;
            }
        }
        let start = offset;
        let pushed = file.with_bytes(start..size.min(start + PIECE_BYTES), |bytes| {
            for part in bytes.chunks(PART_BYTES) {
                let end = offset + part.len() as u64;
                if job.read_to(position).is_some_and(|read_to| read_to + READER_BYTES > offset) {
                    break;
                }
                match store(offset, part) {
                    Pushed::Yes => offset = end,
                    ended => return ended,
                }
            }
            Pushed::Yes
        });
        is_begun |= offset > start;
        *left = left.saturating_sub(offset - start);
        match pushed {
            Ok(Pushed::Yes) => {}
            Ok(Pushed::Unnamed) if !is_begun => return Pushed::Unnamed,
            // The reader that comes for it will report an error.
            _ => break,
        }
    }
    match (is_begun, is_whole && offset == size) {
        (false, _) => Pushed::No,
        (true, false) => Pushed::InPart,
        (true, true) => Pushed::Yes,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io;
    use std::sync::Arc;

    use super::super::queue::{Jobs, Next, Origin, PushQueue};
    use super::super::walkers::Walker;
    use super::*;

    use crate::nodes::{Order, Push, Spot, Stretch};
    use crate::source::Content;

    const PART: u64 = PART_BYTES as u64;
    const LONG: u64 = 5 * PIECE_BYTES + 7;
    /// The place of the file in its list.
    const PLACE: u32 = 4;

    /// All bytes of a piece are its number, and from this one on they cannot be read.
    struct Numbered(u64);

    impl Content for Numbered {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let piece = offset / PIECE_BYTES;
            if piece >= self.0 {
                return Err(io::ErrorKind::InvalidData.into());
            }
            buffer.fill(piece as u8);
            Ok(buffer.len())
        }
    }

    struct Lab {
        queue: PushQueue,
        jobs: Jobs,
        job: Arc<Job>,
        left: u64,
        readable_pieces: u64,
        others_wait: bool,
    }

    impl Lab {
        fn new() -> Self {
            let (queue, jobs) = PushQueue::new();
            let stretch = Stretch { order: Order::Listed, start: 0, length: 9 };
            let push = Push { directory: 1, stretch, again: false };
            assert!(queue.push(push, Origin::List, Walker::default()));
            let Next::Job(job) = jobs.next() else { panic!("there is one") };
            let left = MOST_BYTES;
            Self { queue, jobs, job, left, readable_pieces: u64::MAX, others_wait: false }
        }

        fn reads(&self, to: u64) {
            self.queue.reads(1, Spot { index: PLACE, number: 0 }, to);
        }

        /// Pushes it; `stored` is what the kernel says of what begins at an offset. Returns what it got, from where to
        /// where.
        fn push(&mut self, stored: impl Fn(&Self, u64) -> Pushed) -> (Pushed, Vec<(u64, u64)>) {
            let got: RefCell<Vec<(u64, u64)>> = RefCell::default();
            let store = |offset: u64, bytes: &[u8]| {
                assert!(bytes.iter().all(|byte| u64::from(*byte) == offset / PIECE_BYTES));
                let answer = stored(self, offset);
                if answer == Pushed::Yes {
                    let end = offset + bytes.len() as u64;
                    let mut got = got.borrow_mut();
                    match got.last_mut().filter(|(_, last)| *last == offset) {
                        Some((_, last)) => *last = end,
                        None => got.push((offset, end)),
                    }
                }
                answer
            };
            let mut left = self.left;
            let file = Opened::new(Numbered(self.readable_pieces));
            let at = (&*self.job, u64::from(PLACE));
            let pushed = push(&file, LONG, at, &mut left, || self.others_wait, store);
            self.left = left;
            (pushed, got.into_inner())
        }
    }

    #[test]
    fn a_file_that_nobody_reads_yet_is_pushed_as_far_as_it_may() {
        let mut lab = Lab::new();
        lab.others_wait = true;
        assert_eq!(lab.push(|_, _| Pushed::Yes), (Pushed::Yes, vec![(0, LONG)]));
        assert_eq!(lab.left, MOST_BYTES - LONG);
        lab.left = 2 * PIECE_BYTES + 1;
        assert_eq!(lab.push(|_, _| Pushed::Yes), (Pushed::InPart, vec![(0, 3 * PIECE_BYTES)]));
        assert_eq!(lab.left, 0);
        assert_eq!(lab.push(|_, _| Pushed::Yes), (Pushed::No, vec![]));
    }

    #[test]
    fn it_goes_on_ahead_of_who_reads_it() {
        let mut lab = Lab::new();
        lab.left = PIECE_BYTES;
        lab.reads(PART);
        let pushed = lab.push(|lab, offset| {
            // The reader comes to the end of what was pushed, while more is.
            if offset == 2 * PIECE_BYTES + PART {
                lab.reads(2 * PIECE_BYTES + PART);
            }
            Pushed::Yes
        });
        let got = vec![(PIECE_BYTES, 2 * PIECE_BYTES + 2 * PART), (3 * PIECE_BYTES, LONG)];
        assert_eq!(pushed, (Pushed::InPart, got));
        assert_eq!(lab.left, MOST_BYTES - (LONG - 3 * PIECE_BYTES));
    }

    #[test]
    fn it_ends_where_the_reader_goes_and_where_others_wait() {
        let mut lab = Lab::new();
        let pushed = lab.push(|lab, _| {
            lab.queue.reached(1, Spot { index: PLACE + 1, number: 0 });
            Pushed::Yes
        });
        assert_eq!(pushed, (Pushed::InPart, vec![(0, PIECE_BYTES)]));
        assert_eq!(lab.push(|_, _| Pushed::Yes), (Pushed::No, vec![]));

        let mut lab = Lab::new();
        lab.others_wait = true;
        lab.reads(PART);
        assert_eq!(lab.push(|_, _| Pushed::Yes), (Pushed::No, vec![]));

        let mut lab = Lab::new();
        lab.queue.close();
        assert_eq!(lab.push(|_, _| Pushed::Yes), (Pushed::No, vec![]));
        assert!(matches!(lab.jobs.next(), Next::Closed));
    }

    #[test]
    fn it_ends_where_the_kernel_refuses_it_or_it_cannot_be_read() {
        let mut lab = Lab::new();
        assert_eq!(lab.push(|_, _| Pushed::Unnamed), (Pushed::Unnamed, vec![]));
        assert_eq!(lab.push(|_, _| Pushed::No), (Pushed::No, vec![]));
        let forgotten = |_: &Lab, offset| match offset {
            PART => Pushed::Unnamed,
            _ => Pushed::Yes,
        };
        assert_eq!(lab.push(forgotten), (Pushed::InPart, vec![(0, PART)]));
        lab.readable_pieces = 2;
        let readable = vec![(0, 2 * PIECE_BYTES)];
        assert_eq!(lab.push(|_, _| Pushed::Yes), (Pushed::InPart, readable));
        lab.readable_pieces = 0;
        assert_eq!(lab.push(|_, _| Pushed::Yes), (Pushed::No, vec![]));
    }
}
