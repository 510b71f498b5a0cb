//! Pushing a long file by the piece, a little ahead of whoever reads it.
//!
//! A reader that comes to bytes which were pushed asks for none of them, so it is known where it is only when it
//! asks. Then what is next to it is left to it: a push waits for pages that a READ has locked. It goes on behind that,
//! in the processor time that the reader does not need. So that nobody has a gigabyte pushed to which a reader comes
//! much later, or never, only [so much](MOST_BYTES) is pushed before one asks again, and less of
//! a file that is longer than that.

use super::Pushed;
use super::queue::Job;
use crate::contained::Opened;

/// Bytes of long files that are pushed before a reader shows that it has read those.
pub(super) const MOST_BYTES: u64 = 64 * 1024 * 1024;
/// Those of a file that is longer than what is left of these: enough for the reader to come.
const BEGINNING_BYTES: u64 = 8 * 1024 * 1024;
/// Those that are asked of the source at a time.
const PIECE_BYTES: u64 = 1024 * 1024;
/// Those that the kernel gets at a time.
const PART_BYTES: usize = 256 * 1024;
/// What is left to a reader beyond what it has asked for: it asks for as much while it is at work with the rest.
pub(super) const READER_BYTES: u64 = 512 * 1024;

/// A long file in the order of a job.
pub(super) struct LongFile<'a> {
    pub(super) job: &'a Job,
    pub(super) position: u64,
    pub(super) size: u64,
}

impl LongFile<'_> {
    /// Where the bytes begin that a reader will not ask for before they could be pushed. `None` when nobody reads the file.
    pub(super) fn behind_reader(&self) -> Option<u64> {
        let read_to = self.job.read_to(self.position)?.min(self.size);
        Some(read_to + READER_BYTES)
    }

    /// Pushes it until a reader has left it behind. `left` is how much of [`MOST_BYTES`] is left.
    pub(super) fn push(
        &self,
        file: &Opened,
        left: &mut u64,
        others_wait: impl Fn() -> bool,
        store: impl Fn(u64, &[u8]) -> Pushed,
    ) -> Pushed {
        let size = self.size;
        let mut most = if size <= *left { *left } else { BEGINNING_BYTES.min(*left) };
        let mut offset = 0;
        let (mut has_beginning, mut is_begun, mut is_whole) = (false, false, true);
        while offset < size && !self.job.is_past(self.position) {
            if let Some(behind) = self.behind_reader() {
                // It can do without, and they may not.
                if others_wait() {
                    break;
                }
                if offset < behind {
                    most = MOST_BYTES;
                    *left = MOST_BYTES;
                    offset = behind.next_multiple_of(PIECE_BYTES);
                    is_whole = false;
                    continue;
                }
            }
            if most == 0 {
                break;
            }
            let start = offset;
            let end = size.min((start + 1).next_multiple_of(PIECE_BYTES));
            let pushed = file.with_bytes(start..end, |bytes| {
                for part in bytes.chunks(PART_BYTES) {
                    if self.behind_reader().is_some_and(|behind| behind > offset) {
                        break;
                    }
                    match store(offset, part) {
                        Pushed::Yes => offset += part.len() as u64,
                        ended => return ended,
                    }
                }
                Pushed::Yes
            });
            has_beginning |= start == 0 && offset > 0;
            is_begun |= offset > start;
            most = most.saturating_sub(offset - start);
            *left = left.saturating_sub(offset - start);
            match pushed {
                Ok(Pushed::Yes) => {}
                Ok(Pushed::Unnamed) if !is_begun => return Pushed::Unnamed,
                // The reader that comes for it will report an error.
                _ => break,
            }
        }
        match (is_begun, has_beginning, is_whole && offset == size) {
            (true, true, true) => Pushed::Yes,
            (true, true, false) => Pushed::Beginning,
            (true, false, _) => Pushed::Rest,
            (false, ..) => Pushed::No,
        }
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

    /// All bytes of a piece are its number, and from this one on they cannot be read. Nobody asks for bytes of two.
    struct Numbered(u64);

    impl Content for Numbered {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let piece = offset / PIECE_BYTES;
            if piece >= self.0 {
                return Err(io::ErrorKind::InvalidData.into());
            }
            assert_eq!((offset + buffer.len() as u64 - 1) / PIECE_BYTES, piece);
            buffer.fill(piece as u8);
            Ok(buffer.len())
        }
    }

    struct Lab {
        order: Order,
        queue: PushQueue,
        jobs: Jobs,
        job: Arc<Job>,
        left: u64,
        readable_pieces: u64,
        others_wait: bool,
    }

    impl Lab {
        fn new() -> Self {
            Self::in_order(Order::Listed)
        }

        fn in_order(order: Order) -> Self {
            let (queue, jobs) = PushQueue::new();
            let stretch = Stretch { order, start: 0, length: 9 };
            let push = Push { directory: 1, stretch, again: false };
            assert!(queue.push(push, Origin::List, Walker::default()));
            let Next::Job(job) = jobs.next() else { panic!("there is one") };
            let left = MOST_BYTES;
            let readable_pieces = u64::MAX;
            Self { order, queue, jobs, job, left, readable_pieces, others_wait: false }
        }

        fn reads(&self, to: u64) {
            self.queue.reads(1, spot(PLACE), to);
        }

        fn push_all(&mut self) -> (Pushed, Vec<(u64, u64)>) {
            self.push(LONG, |_, _| Pushed::Yes)
        }

        /// Pushes so many bytes; `stored` is what the kernel says of what begins at an offset. Returns what it got, from where to
        /// where.
        fn push(
            &mut self,
            size: u64,
            stored: impl Fn(&Self, u64) -> Pushed,
        ) -> (Pushed, Vec<(u64, u64)>) {
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
            let long =
                LongFile { job: &self.job, position: spot(PLACE).position(self.order), size };
            let pushed = long.push(&file, &mut left, || self.others_wait, store);
            self.left = left;
            (pushed, got.into_inner())
        }
    }

    /// Numbers have gaps.
    fn spot(index: u32) -> Spot {
        Spot { index, number: 100 * u64::from(index) }
    }

    #[test]
    fn a_file_that_nobody_reads_yet_is_pushed_as_far_as_it_may() {
        let mut lab = Lab::new();
        lab.others_wait = true;
        assert_eq!(lab.push_all(), (Pushed::Yes, vec![(0, LONG)]));
        assert_eq!(lab.left, MOST_BYTES - LONG);
        // One that is longer than what is left leaves some to others.
        let longer = lab.push(lab.left + 1, |_, _| Pushed::Yes);
        assert_eq!(longer, (Pushed::Beginning, vec![(0, BEGINNING_BYTES)]));
        assert_eq!(lab.left, MOST_BYTES - LONG - BEGINNING_BYTES);
        lab.left = 2 * PIECE_BYTES + 1;
        assert_eq!(lab.push_all(), (Pushed::Beginning, vec![(0, 3 * PIECE_BYTES)]));
        assert_eq!(lab.left, 0);
        assert_eq!(lab.push_all(), (Pushed::No, vec![]));
    }

    #[test]
    fn it_goes_on_ahead_of_who_reads_it() {
        for order in [Order::Listed, Order::Numbered] {
            let mut lab = Lab::in_order(order);
            lab.left = 0;
            lab.reads(PART);
            let pushed = lab.push(LONG, |lab, offset| {
                // The reader comes to the end of what was pushed, while more is.
                if offset == 2 * PIECE_BYTES + PART {
                    lab.reads(2 * PIECE_BYTES + PART);
                }
                Pushed::Yes
            });
            let got = vec![(PIECE_BYTES, 2 * PIECE_BYTES + 2 * PART), (3 * PIECE_BYTES, LONG)];
            assert_eq!(pushed, (Pushed::Rest, got));
            assert_eq!(lab.left, MOST_BYTES - (LONG - 3 * PIECE_BYTES));
        }
    }

    #[test]
    fn a_reader_that_comes_as_the_last_of_what_may_be_is_pushed_has_it_go_on() {
        let mut lab = Lab::new();
        lab.left = PIECE_BYTES;
        let pushed = lab.push(LONG, |lab, offset| {
            if offset == 3 * PART {
                lab.reads(PIECE_BYTES + PART);
            }
            Pushed::Yes
        });
        assert_eq!(pushed, (Pushed::Beginning, vec![(0, PIECE_BYTES), (2 * PIECE_BYTES, LONG)]));
    }

    #[test]
    fn a_reader_that_goes_on_elsewhere_in_between_leaves_the_pieces_as_they_are() {
        let mut lab = Lab::new();
        let pushed = lab.push(LONG, |lab, offset| {
            match offset {
                PART => lab.reads(PART),
                // Somebody reads on in another file.
                _ => lab.queue.reads(1, spot(PLACE + 2), PART),
            }
            Pushed::Yes
        });
        assert_eq!(pushed, (Pushed::Beginning, vec![(0, 2 * PART), (PIECE_BYTES, LONG)]));
    }

    #[test]
    fn it_ends_where_the_reader_goes_and_where_others_wait() {
        for order in [Order::Listed, Order::Numbered] {
            let mut lab = Lab::in_order(order);
            let pushed = lab.push(LONG, |lab, _| {
                lab.queue.reached(1, spot(PLACE + 1));
                Pushed::Yes
            });
            assert_eq!(pushed, (Pushed::Beginning, vec![(0, PIECE_BYTES)]));
            assert_eq!(lab.push_all(), (Pushed::No, vec![]));
        }
        let mut lab = Lab::new();
        lab.others_wait = true;
        lab.reads(PART);
        assert_eq!(lab.push_all(), (Pushed::No, vec![]));

        let mut lab = Lab::new();
        lab.queue.close();
        assert_eq!(lab.push_all(), (Pushed::No, vec![]));
        assert!(matches!(lab.jobs.next(), Next::Closed));
    }

    #[test]
    fn it_ends_where_the_kernel_refuses_it_or_it_cannot_be_read() {
        let mut lab = Lab::new();
        assert_eq!(lab.push(LONG, |_, _| Pushed::Unnamed), (Pushed::Unnamed, vec![]));
        assert_eq!(lab.push(LONG, |_, _| Pushed::No), (Pushed::No, vec![]));
        let forgotten = |_: &Lab, offset| match offset {
            PART => Pushed::Unnamed,
            _ => Pushed::Yes,
        };
        assert_eq!(lab.push(LONG, forgotten), (Pushed::Beginning, vec![(0, PART)]));
        lab.readable_pieces = 2;
        assert_eq!(lab.push_all(), (Pushed::Beginning, vec![(0, 2 * PIECE_BYTES)]));
        lab.reads(PART);
        assert_eq!(lab.push_all(), (Pushed::Rest, vec![(PIECE_BYTES, 2 * PIECE_BYTES)]));
        lab.readable_pieces = 0;
        assert_eq!(lab.push_all(), (Pushed::No, vec![]));
    }

    /// The kernel's offsets end at 2^63, but a job does not count on that.
    #[test]
    fn a_reader_beyond_the_end_has_nothing_pushed() {
        let mut lab = Lab::new();
        lab.reads(u64::MAX);
        assert_eq!(lab.push_all(), (Pushed::No, vec![]));
    }
}
