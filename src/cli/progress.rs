//! A progress line on stderr, for work that takes longer than half a second.
//!
//! A working thread only counts. A thread of the progress line looks at the counts after half a
//! second and then ten times a second, so that the line appears, and lives, also while nothing can
//! be counted: during a flush, or while another process has a lock. Where stderr is no terminal, or
//! no thread can be started, there is no line.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::{Condvar, Mutex};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::context::Context;
use super::signals::Taken;
use nono_engine::progress::{Amount, Progress, Stage};
use nono_engine::sys;

/// Shorter work shows nothing.
const SILENT: Duration = Duration::from_millis(500);
/// Time between two looks at the counts.
const TICK: Duration = Duration::from_millis(100);
/// A rate is not told before so much time has passed in a stage.
const SETTLED: Duration = Duration::from_millis(300);
/// The cost of an entry, in bytes that could be read in that time: weighs both in one estimate.
const ENTRY_BYTES: f64 = 8192.0;
/// Width of the bar in columns.
const BAR_WIDTH: usize = 16;
/// Width where bytes are told as well: a line has 80 columns.
const NARROW_BAR_WIDTH: usize = 6;
/// Width of the bar, and number of rates: the first form that fits the terminal is shown.
const FORMS: [(usize, usize); 6] = [
    (BAR_WIDTH, 2),
    (NARROW_BAR_WIDTH, 2),
    (NARROW_BAR_WIDTH, 1),
    (NARROW_BAR_WIDTH, 0),
    (0, 1),
    (0, 0),
];
/// Columns where stderr does not say how many it has.
const USUAL_COLUMNS: usize = 80;
/// Columns of the spinner and the space behind it.
const SPINNER_WIDTH: usize = 2;
/// Units of bytes, each 1,024 times the one before.
const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

/// Finds out about how much there is to do, if it takes long enough to ask.
type Guess = Box<dyn FnOnce() -> Option<Amount> + Send>;

/// Counts entries and bytes; stops the work on Ctrl-C.
pub(super) struct Bar {
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    /// How often a signal came, and how often it has to.
    signals: AtomicUsize,
    patience: usize,
    taken: Mutex<Option<Taken>>,
    painter: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    entries: AtomicU64,
    bytes: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    stage: Part,
    guess: Option<Guess>,
    /// Said instead of the counts.
    notice: Option<&'static str>,
    is_finished: bool,
}

/// One part of the work, and what was counted before it began.
struct Part {
    stage: Option<Stage>,
    expected: Option<Amount>,
    began: Instant,
    before: Amount,
}

impl std::fmt::Debug for Bar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bar").finish_non_exhaustive()
    }
}

impl Bar {
    /// A bar that says what is being done. Ctrl-C and SIGTERM end the work in order, instead of
    /// ending the process in the middle of it.
    pub(super) fn new(context: &Context, what: &'static str) -> Arc<Self> {
        Self::with(context, what, 1, None)
    }

    /// As [`new`](Self::new). `guess` says how much there is to do in the first stage, if that is
    /// not known otherwise.
    pub(super) fn guessing(
        context: &Context,
        what: &'static str,
        guess: impl FnOnce() -> Option<Amount> + Send + 'static,
    ) -> Arc<Self> {
        Self::with(context, what, 1, Some(Box::new(guess)))
    }

    /// As [`new`](Self::new), for work that the first Ctrl-C does not stop: it was meant for the
    /// command that has just ended.
    pub(super) fn after_command(context: &Context, what: &'static str) -> Arc<Self> {
        Self::with(context, what, 2, None)
    }

    fn with(
        context: &Context,
        what: &'static str,
        patience: usize,
        guess: Option<Guess>,
    ) -> Arc<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        // Else they end the process, which is safe too.
        let taken = Mutex::new(Taken::raising(&[SIGINT, SIGTERM], &stop).ok());
        let state = State { stage: Part::new(None, None), guess, notice: None, is_finished: false };
        let shared = Arc::new(Shared {
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let painted = Arc::clone(&shared);
        let paint = move || painted.paint(what);
        let painter =
            context.shows_progress().then(|| sys::spawn("progress", paint).ok()).flatten();
        Arc::new(Self {
            shared,
            stop,
            signals: AtomicUsize::new(0),
            patience,
            taken,
            painter: Mutex::new(painter),
        })
    }

    /// Takes the line away, and gives the signals back.
    pub(super) fn finish(&self) {
        self.shared.state.lock().is_finished = true;
        self.shared.changed.notify_one();
        drop(self.taken.lock().take());
        if let Some(painter) = self.painter.lock().take() {
            // It only draws; a panic there is no failure of the work.
            let _ = painter.join();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Progress for Bar {
    fn advance(&self, entries: u64, bytes: u64) {
        self.shared.entries.fetch_add(entries, Relaxed);
        self.shared.bytes.fetch_add(bytes, Relaxed);
    }

    fn begin(&self, stage: Stage, expected: Option<Amount>) {
        let mut state = self.shared.state.lock();
        let before = self.shared.done();
        // The guess was about the first stage that has no better number.
        if expected.is_some() {
            state.guess = None;
        }
        state.stage = Part { before, ..Part::new(Some(stage), expected) };
    }

    fn is_cancelled(&self) -> bool {
        if self.stop.load(Relaxed) && self.stop.swap(false, Relaxed) {
            let signals = self.signals.fetch_add(1, Relaxed) + 1;
            let mut state = self.shared.state.lock();
            state.notice = Some(match signals < self.patience {
                true => "Ctrl-C once more: the last state is not recorded",
                false => "stopping",
            });
        }
        self.signals.load(Relaxed) >= self.patience
    }
}

impl Shared {
    fn done(&self) -> Amount {
        Amount { entries: self.entries.load(Relaxed), bytes: self.bytes.load(Relaxed) }
    }

    /// Draws until the work is finished.
    fn paint(&self, what: &str) {
        let mut state = self.state.lock();
        let shown = Instant::now() + SILENT;
        while !state.is_finished && !self.changed.wait_until(&mut state, shown).timed_out() {}
        if state.is_finished {
            return;
        }
        if let Some(guess) = state.guess.take() {
            let guessed = parking_lot::MutexGuard::unlocked(&mut state, guess);
            state.stage.expected = state.stage.expected.or(guessed);
        }
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        while !state.is_finished {
            let line = match state.notice {
                Some(notice) => format!("{what}: {notice}"),
                None => {
                    let room = columns().saturating_sub(SPINNER_WIDTH + what.len() + ": ".len());
                    format!("{what}: {}", state.stage.line(self.done(), Instant::now(), room))
                }
            };
            bar.set_message(line);
            bar.tick();
            self.changed.wait_for(&mut state, TICK);
        }
        bar.finish_and_clear();
    }
}

impl Part {
    fn new(stage: Option<Stage>, expected: Option<Amount>) -> Self {
        Self { stage, expected, began: Instant::now(), before: Amount::default() }
    }

    /// The present work, its finished part, its rate, and the remaining time, in `room` columns.
    fn line(&self, done: Amount, now: Instant, room: usize) -> String {
        let forms = FORMS.into_iter().map(|form| self.line_as(form, done, now));
        let mut shortest = String::new();
        for line in forms {
            if line.len() <= room {
                return line;
            }
            shortest = line;
        }
        shortest
    }

    /// The line with a bar of at most this width, and at most so many rates.
    fn line_as(
        &self,
        (bar_width, rate_count): (usize, usize),
        done: Amount,
        now: Instant,
    ) -> String {
        let Some(stage) = self.stage else { return "waiting".to_owned() };
        let elapsed = now.saturating_duration_since(self.began);
        let done = Amount {
            entries: done.entries.saturating_sub(self.before.entries),
            bytes: done.bytes.saturating_sub(self.before.bytes),
        };
        let (verb, noun) = words(stage);
        if done == Amount::default() {
            return verb.to_owned();
        }
        let mut parts = Vec::new();
        match self.expected {
            // A total that was exceeded was none.
            Some(expected) if expected.entries >= done.entries && expected.entries > 0 => {
                let share = (weight(done) / weight(expected)).clamp(0.0, 1.0);
                let width = match moves_bytes(stage) {
                    true => bar_width.min(NARROW_BAR_WIDTH),
                    false => bar_width,
                };
                let full = (share * width as f64) as usize;
                let bar = format!(" [{}{}]", "=".repeat(full), " ".repeat(width - full));
                parts.push(format!(
                    "{verb}{} {} of {} {noun}",
                    if width == 0 { "" } else { &bar },
                    HumanCount(done.entries),
                    HumanCount(expected.entries)
                ));
                if moves_bytes(stage) {
                    parts.push(bytes_of(done.bytes, expected.bytes));
                }
                parts.extend(rates(stage, done, elapsed).into_iter().take(rate_count));
                if elapsed >= SETTLED && share > 0.0 {
                    let left = elapsed.as_secs_f64() * (1.0 - share) / share;
                    parts.push(format!("{} left", span(left)));
                }
            }
            _ => {
                parts.push(format!("{verb} {} {noun}", HumanCount(done.entries)));
                if done.bytes > 0 {
                    parts.push(HumanBytes(done.bytes).to_string());
                }
                parts.extend(rates(stage, done, elapsed).into_iter().take(rate_count));
            }
        }
        parts.join(", ")
    }
}

/// Columns of the terminal that stderr is.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr());
    size.map(|size| size.ws_col.into()).ok().filter(|columns| *columns > 0).unwrap_or(USUAL_COLUMNS)
}

/// The verb of a stage, and its object.
fn words(stage: Stage) -> (&'static str, &'static str) {
    match stage {
        Stage::Capture => ("looking at", "files"),
        Stage::Flush => ("waiting for the disk", ""),
        Stage::Compare => ("making sure of", "files"),
        Stage::Stage => ("preparing", "files"),
        Stage::Commit => ("putting in place", "files"),
        Stage::Copy => ("copying", "files"),
        Stage::ReadLists => ("reading", "directories"),
        Stage::ReadContents => ("checking", "contents"),
        Stage::ListObjects => ("sorting", "objects"),
        Stage::Upload => ("sending", "files"),
        Stage::Download => ("reading", "archives"),
        Stage::Remove => ("removing", "objects"),
        Stage::Wait => ("waiting for a restore here", ""),
    }
}

fn weight(amount: Amount) -> f64 {
    amount.entries as f64 * ENTRY_BYTES + amount.bytes as f64
}

/// Whether the bytes of a stage are what takes its time: they cross a network.
fn moves_bytes(stage: Stage) -> bool {
    matches!(stage, Stage::Upload | Stage::Download)
}

/// A number of bytes in few columns, in the unit that fits `of`.
fn short(bytes: u64, of: u64) -> (String, &'static str) {
    let unit = UNITS.iter().enumerate().rev().find(|(power, _)| of >> (10 * power) > 0);
    let (power, unit) = unit.unwrap_or((0, &UNITS[0]));
    let size = f64::powi(1024.0, power as i32);
    let decimals = usize::from(power > 0 && (of as f64) < 10.0 * size);
    (format!("{:.decimals$}", bytes as f64 / size), unit)
}

/// The done bytes, of how many. A total that was exceeded was none.
fn bytes_of(done: u64, expected: u64) -> String {
    let total = if done <= expected { expected } else { done };
    let ((done, unit), (total, _)) = (short(done, total), short(total, total));
    match done == total {
        true => format!("{total} {unit}"),
        false => format!("{done} of {total} {unit}"),
    }
}

fn rates(stage: Stage, done: Amount, elapsed: Duration) -> Vec<String> {
    if elapsed < SETTLED {
        return Vec::new();
    }
    let per_second = |count: u64| (count as f64 / elapsed.as_secs_f64()) as u64;
    let mut rates = Vec::new();
    if !moves_bytes(stage) {
        rates.push(format!("{}/s", HumanCount(per_second(done.entries))));
    }
    if moves_bytes(stage) {
        let (number, unit) = short(per_second(done.bytes), per_second(done.bytes));
        rates.push(format!("{number} {unit}/s"));
    } else if done.bytes > 0 {
        rates.push(format!("{}/s", HumanBytes(per_second(done.bytes))));
    }
    rates
}

/// Seconds as a person says them.
fn span(seconds: f64) -> String {
    match seconds.ceil() as u64 {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3600)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(expected: Option<Amount>, entries: u64, bytes: u64, seconds: u64) -> String {
        let before = Amount { entries: 5, bytes: 5 };
        let part = Part { before, ..Part::new(Some(Stage::Capture), expected) };
        let now = part.began + Duration::from_secs(seconds);
        part.line(Amount { entries: entries + 5, bytes: bytes + 5 }, now, usize::MAX)
    }

    #[test]
    fn a_line_fits_the_terminal_and_keeps_what_is_asked_for_most() {
        let part =
            Part::new(Some(Stage::Capture), Some(Amount { entries: 97_470, bytes: 9 << 30 }));
        let now = part.began + Duration::from_secs(30);
        let shown = |room| part.line(Amount { entries: 45_678, bytes: 3 << 30 }, now, room);
        let all = shown(usize::MAX);
        assert!(all.contains("1,522/s, 102.40 MiB/s, "), "{all}");
        for room in 45..120 {
            let line = shown(room);
            assert!(line.len() <= room, "{room}: {line}");
            assert!(line.contains("45,678 of 97,470 files") && line.ends_with(" left"), "{line}");
        }
        let usual = shown(80 - "recording the state before: ".len() - SPINNER_WIDTH);
        assert!(usual.starts_with("looking at 45,678 of"), "{usual}");
    }

    #[test]
    fn with_a_total_there_is_a_bar_a_rate_and_an_estimate() {
        let expected = Some(Amount { entries: 4000, bytes: 0 });
        let shown = line(expected, 1000, 0, 2);
        assert_eq!(shown, "looking at [====            ] 1,000 of 4,000 files, 500/s, 6 s left");
        assert_eq!(
            line(expected, 4000, 0, 2),
            format!("looking at [{}] 4,000 of 4,000 files, 2,000/s, 0 s left", "=".repeat(16))
        );
    }

    #[test]
    fn bytes_count_as_well_as_files() {
        // Half of the files and of the bytes; the other half takes as long.
        let expected = Some(Amount { entries: 10, bytes: 2 << 30 });
        let shown = line(expected, 5, 1 << 30, 300);
        assert!(shown.ends_with("3.41 MiB/s, 5 min left"), "{shown}");
        // All small files are done, the large one is not.
        assert!(line(expected, 9, 0, 10).ends_with("h left"));
    }

    #[test]
    fn what_crosses_a_network_shows_its_bytes_and_their_rate() {
        let before = Amount { entries: 5, bytes: 5 };
        let shown = |stage, expected, bytes| {
            let part = Part { before, ..Part::new(Some(stage), expected) };
            let now = part.began + Duration::from_secs(2);
            part.line(Amount { entries: 1 + 5, bytes: bytes + 5 }, now, usize::MAX)
        };
        let mib = |count: u64| count << 20;
        let expected = Some(Amount { entries: 4, bytes: mib(40) });
        assert_eq!(
            shown(Stage::Download, expected, mib(10)),
            "reading [=     ] 1 of 4 archives, 10 of 40 MiB, 5.0 MiB/s, 6 s left"
        );
        let sending = shown(Stage::Upload, expected, mib(10));
        assert!(sending.contains("1 of 4 files, 10 of 40 MiB, 5.0 MiB/s, 6 s left"), "{sending}");
        // A total that was exceeded was none.
        let more = shown(Stage::Download, expected, mib(41));
        assert!(more.contains("archives, 41 MiB, 20 MiB/s"), "{more}");
        assert_eq!(
            shown(Stage::Download, None, mib(10)),
            "reading 1 archives, 10.00 MiB, 5.0 MiB/s"
        );
        let large = Some(Amount { entries: 12, bytes: mib(5 << 10) });
        let shown = shown(Stage::Upload, large, mib(512));
        assert!(shown.contains("0.5 of 5.0 GiB, 256 MiB/s, 19 s left"), "{shown}");
        assert!("pushing: ".len() + shown.len() + 2 <= 80, "{shown}");
    }

    #[test]
    fn without_a_total_or_beyond_it_counts_are_shown() {
        assert_eq!(
            line(None, 1000, 2048, 2),
            "looking at 1,000 files, 2.00 KiB, 500/s, 1.00 KiB/s"
        );
        let wrong = Some(Amount { entries: 10, bytes: 10 });
        assert_eq!(line(wrong, 1000, 0, 2), "looking at 1,000 files, 500/s");
        assert_eq!(line(wrong, 0, 0, 2), "looking at");
    }
}
