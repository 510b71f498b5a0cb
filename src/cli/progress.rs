//! A progress line on stderr, for work that takes longer than half a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};

use super::context::Context;
use crate::progress::Progress;

/// Shorter work shows nothing.
const SILENT: Duration = Duration::from_millis(500);

/// Counts entries and bytes; stops the work on Ctrl-C.
#[derive(Debug)]
pub(super) struct Bar {
    bar: ProgressBar,
    started: Instant,
    shown: Mutex<bool>,
    is_terminal: bool,
    stop: Arc<AtomicBool>,
    handlers: Mutex<Vec<SigId>>,
    is_finished: AtomicBool,
    bytes: std::sync::atomic::AtomicU64,
}

impl Bar {
    /// A bar that says what is being done. `stops_on_signal`: Ctrl-C and SIGTERM end the work in
    /// order, instead of ending the process in the middle of it.
    pub(super) fn new(context: &Context, what: &'static str, stops_on_signal: bool) -> Arc<Self> {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let template = "{spinner} {msg} {human_pos} entries, {prefix} ({elapsed})";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        let stop = Arc::new(AtomicBool::new(false));
        let signals: &[i32] = if stops_on_signal { &[SIGINT, SIGTERM] } else { &[] };
        // Without a handler, the signal ends the process, which is safe too.
        let register = |signal: &i32| signal_hook::flag::register(*signal, Arc::clone(&stop)).ok();
        let handlers = Mutex::new(signals.iter().filter_map(register).collect());
        Arc::new(Self {
            bar,
            started: Instant::now(),
            shown: Mutex::new(false),
            is_terminal: context.stderr_is_terminal,
            stop,
            handlers,
            is_finished: AtomicBool::new(false),
            bytes: 0.into(),
        })
    }

    /// Takes the line away. What follows is no longer stopped by a signal: after the command of a
    /// run was interrupted, its last state still has to be recorded.
    pub(super) fn finish(&self) {
        self.is_finished.store(true, Ordering::Relaxed);
        for handler in self.handlers.lock().drain(..) {
            signal_hook::low_level::unregister(handler);
        }
        self.bar.finish_and_clear();
    }
}

impl Progress for Bar {
    fn advance(&self, entries: u64, bytes: u64) {
        let bytes = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.bar.inc(entries);
        let is_silent = !self.is_terminal || self.is_finished.load(Ordering::Relaxed);
        if is_silent || self.started.elapsed() < SILENT {
            return;
        }
        // Whoever holds the lock is drawing already.
        if let Some(mut shown) = self.shown.try_lock() {
            if !*shown {
                self.bar.set_draw_target(ProgressDrawTarget::stderr());
                *shown = true;
            }
            self.bar.set_prefix(indicatif::HumanBytes(bytes).to_string());
        }
    }

    fn is_cancelled(&self) -> bool {
        self.stop.load(Ordering::Relaxed) && !self.is_finished.load(Ordering::Relaxed)
    }
}
