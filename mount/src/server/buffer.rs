//! Memory that a thread uses for one answer after the other.
//!
//! Answers are as long as 1 MiB. To take memory of that size from the kernel takes longer than to
//! fill it.

use std::cell::RefCell;

/// Calls `fill` with the buffer of this thread and what was last in it. `fill` must not call this.
pub(crate) fn with_buffer<T>(fill: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    thread_local! {
        static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    BUFFER.with_borrow_mut(fill)
}
