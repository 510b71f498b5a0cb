//! Pushing a long file by the piece, a little ahead of whoever reads it.
//!
//! A reader that comes to bytes which were pushed asks for none of them, so it is known where it is only when it
//! asks. Then what is next to it is left to it: a push waits for pages that a READ has locked. It goes on behind that,
//! in the processor time that the reader does not need, and by [as much](LongFile::reader) as has been read: who looks at the
//! beginnings of files has little pushed in vain.

use std::ops::Range;

use super::Pushed;
use super::queue::Job;
use crate::contained::Opened;

/// Those bytes that are asked of the source at a time.
const PIECE_BYTES: u64 = 1024 * 1024;
/// Those that the kernel gets at a time.
const PART_BYTES: usize = 256 * 1024;
/// What is left to a reader beyond what it has asked for: it asks for as much while it is at work with the rest.
pub(super) const READER_BYTES: u64 = 512 * 1024;
/// Those that are pushed at least ahead of a reader, and at most, unless it asks again.
const LEAST_AHEAD: u64 = 2 * 1024 * 1024;
const MOST_AHEAD: u64 = 64 * 1024 * 1024;

/// A long file in the order of a job.
pub(super) struct LongFile<'a> {
    pub(super) job: &'a Job,
    pub(super) position: u64,
    pub(super) size: u64,
}

impl LongFile<'_> {
    /// What is worth to be pushed to the one who reads this file, behind what it asks for by itself. `None` when nobody
    /// reads it.
    pub(super) fn reader(&self) -> Option<Range<u64>> {
        let read_to = self.job.read_to(self.position)?.min(self.size);
        let ahead = read_to.clamp(LEAST_AHEAD, MOST_AHEAD);
        Some(read_to.saturating_add(READER_BYTES)..self.size.min(read_to.saturating_add(ahead)))
    }

    /// Pushes it, as far as a reader that comes to it should have it, or until that has left it behind. Also returns how many
    /// bytes the kernel got.
    pub(super) fn push(
        &self,
        file: &Opened,
        others_wait: impl Fn() -> bool,
        store: impl Fn(u64, &[u8]) -> Pushed,
    ) -> (Pushed, u64) {
        let (mut offset, mut bytes_pushed) = (0, 0);
        let (mut has_beginning, mut is_whole) = (false, true);
        while offset < self.size && !self.job.is_past(self.position) {
            if let Some(wanted) = self.reader() {
                // It can do without, and others may not.
                if others_wait() || wanted.is_empty() || offset >= wanted.end {
                    break;
                }
                if offset < wanted.start {
                    offset = wanted.start.next_multiple_of(PIECE_BYTES);
                    is_whole = false;
                    continue;
                }
            }
            let start = offset;
            let end = self.size.min((start + 1).next_multiple_of(PIECE_BYTES));
            let pushed = file.with_bytes(start..end, |bytes| {
                for part in bytes.chunks(PART_BYTES) {
                    if self.reader().is_some_and(|wanted| offset < wanted.start) {
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
            bytes_pushed += offset - start;
            match pushed {
                Ok(Pushed::Yes) => {}
                Ok(Pushed::Unnamed) if bytes_pushed == 0 => return (Pushed::Unnamed, 0),
                // The reader that comes for it will report an error.
                _ => break,
            }
        }
        let pushed = match (has_beginning, is_whole && offset == self.size) {
            _ if bytes_pushed == 0 => Pushed::No,
            (true, true) => Pushed::Yes,
            (true, false) => Pushed::Beginning,
            (false, _) => Pushed::Rest,
        };
        (pushed, bytes_pushed)
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
            Self { order, queue, jobs, job, readable_pieces: u64::MAX, others_wait: false }
        }

        fn reads(&self, to: u64) {
            assert!(self.queue.reads(1, spot(PLACE), to));
        }

        fn push_all(&self) -> (Pushed, Vec<(u64, u64)>) {
            self.push(LONG, |_, _| Pushed::Yes)
        }

        /// Pushes so many bytes; `stored` is what the kernel says of what begins at an offset. Returns what it got, from where to
        /// where.
        fn push(
            &self,
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
            let file = Opened::new(Numbered(self.readable_pieces));
            let long =
                LongFile { job: &self.job, position: spot(PLACE).position(self.order), size };
            let (pushed, bytes) = long.push(&file, || self.others_wait, store);
            let got = got.into_inner();
            assert_eq!(bytes, got.iter().map(|(start, end)| end - start).sum::<u64>());
            (pushed, got)
        }
    }

    /// Numbers have gaps.
    fn spot(index: u32) -> Spot {
        Spot { index, number: 100 * u64::from(index) }
    }

    #[test]
    fn a_file_that_nobody_reads_yet_is_pushed_whole() {
        let mut lab = Lab::new();
        lab.others_wait = true;
        assert_eq!(lab.push_all(), (Pushed::Yes, vec![(0, LONG)]));
    }

    #[test]
    fn to_a_reader_as_much_again_is_pushed_as_it_has_read() {
        for order in [Order::Listed, Order::Numbered] {
            let lab = Lab::in_order(order);
            for (read_to, from, to) in [(PART, 1, 3), (PIECE_BYTES, 2, 3), (7 * PIECE_BYTES, 8, 14)]
            {
                lab.reads(read_to);
                let got = vec![(from * PIECE_BYTES, to * PIECE_BYTES)];
                assert_eq!(lab.push(20 * PIECE_BYTES, |_, _| Pushed::Yes), (Pushed::Rest, got));
            }
            lab.reads(100 * PIECE_BYTES);
            let got = vec![(101 * PIECE_BYTES, 164 * PIECE_BYTES)];
            assert_eq!(lab.push(255 * PIECE_BYTES, |_, _| Pushed::Yes), (Pushed::Rest, got));
        }
    }

    #[test]
    fn it_goes_on_ahead_of_who_reads_it() {
        let lab = Lab::new();
        lab.reads(PART);
        let pushed = lab.push(LONG, |lab, offset| {
            // The reader comes to the end of what was pushed, while more is.
            if offset == 2 * PIECE_BYTES + PART {
                lab.reads(2 * PIECE_BYTES + PART);
            }
            Pushed::Yes
        });
        let got =
            vec![(PIECE_BYTES, 2 * PIECE_BYTES + 2 * PART), (3 * PIECE_BYTES, 5 * PIECE_BYTES)];
        assert_eq!(pushed, (Pushed::Rest, got));
    }

    #[test]
    fn a_reader_that_goes_on_elsewhere_in_between_leaves_the_pieces_as_they_are() {
        let lab = Lab::new();
        let pushed = lab.push(LONG, |lab, offset| {
            match offset {
                PART => lab.reads(PART),
                // Somebody reads on in another file.
                _ => assert!(lab.queue.reads(1, spot(PLACE + 2), PART)),
            }
            Pushed::Yes
        });
        assert_eq!(pushed, (Pushed::Beginning, vec![(0, 2 * PART), (PIECE_BYTES, LONG)]));
    }

    #[test]
    fn it_ends_where_the_reader_goes_and_where_others_wait() {
        for order in [Order::Listed, Order::Numbered] {
            let lab = Lab::in_order(order);
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

        let lab = Lab::new();
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

    #[test]
    fn a_reader_at_the_end_or_beyond_it_has_nothing_pushed() {
        for read_to in [LONG - READER_BYTES, LONG, u64::MAX] {
            let lab = Lab::new();
            lab.reads(read_to);
            assert_eq!(lab.push_all(), (Pushed::No, vec![]), "{read_to}");
        }
    }
}
