//! Which files of a directory to push to the kernel next.

use std::ops::Range;

/// Most files of one push.
const MOST: u32 = 1024;
/// Files pushed for the first read of a directory, unless a walker reads.
const FIRST: u32 = 16;

/// The part of a directory's list that was pushed last.
#[derive(Clone, Copy, Default)]
pub(super) struct PushWindow {
    until: u32,
    length: u32,
}

impl PushWindow {
    /// A walker has read the whole list and will read the files next.
    pub(super) fn after_list(&mut self) -> Option<Range<u32>> {
        if self.length > 0 {
            return None;
        }
        *self = Self { until: MOST, length: MOST };
        Some(0..MOST)
    }

    /// The file at `index` was read; `again` says that the kernel had its contents before and lost
    /// them. The next files of the list are pushed: few at first, unless a `walker` reads; more
    /// each time a reader comes back where the last push ended.
    pub(super) fn after_read(
        &mut self,
        index: u32,
        again: bool,
        walker: bool,
    ) -> Option<Range<u32>> {
        let start = index + 1;
        let inside = start <= self.until && start + self.length >= self.until;
        if self.length > 0 && inside && !again {
            // Inside what is being pushed, or the file that started it.
            return None;
        }
        let onward = self.length > 0 && index >= self.until;
        self.length = match (walker, onward) {
            (true, _) => MOST,
            (false, true) => (self.length * 4).min(MOST),
            (false, false) => FIRST,
        };
        self.until = start + self.length;
        Some(start..self.until)
    }

    /// A push ended before this position.
    pub(super) fn ended_at(&mut self, index: u32) {
        self.until = self.until.min(index);
    }
}
