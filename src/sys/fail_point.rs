//! Counted points at which a test lets the process die.
//!
//! Every call that changes names or flushes them passes one before and one after it. Without the
//! cargo feature `fail-points` this is nothing at all; with it, `NONO_FAIL_POINT=N` kills the
//! process at the Nth point as a power button would: nothing is unwound, flushed or removed.

/// Runs a call between two points.
#[cfg(not(feature = "fail-points"))]
#[inline(always)]
pub(super) fn around<T>(call: impl FnOnce() -> T) -> T {
    call()
}

/// Runs a call between two points.
#[cfg(feature = "fail-points")]
pub(super) fn around<T>(call: impl FnOnce() -> T) -> T {
    pass();
    let value = call();
    pass();
    value
}

#[cfg(feature = "fail-points")]
fn pass() {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static CHOSEN: OnceLock<Option<u64>> = OnceLock::new();
    static PASSED: AtomicU64 = AtomicU64::new(0);
    let chosen = CHOSEN.get_or_init(|| std::env::var("NONO_FAIL_POINT").ok()?.parse().ok());
    if let Some(chosen) = chosen
        && PASSED.fetch_add(1, Ordering::SeqCst) + 1 == *chosen
    {
        use rustix::process::{Signal, getpid, kill_process};
        let _ = kill_process(getpid(), Signal::KILL);
    }
}
