//! Calls into the engine: off the interpreter's thread, interruptible, and without panics.
//!
//! Python runs signal handlers only in its main thread, and only when that thread asks. So the
//! engine works on a thread of its own, and the thread that called waits for it. Every
//! [`SIGNAL_INTERVAL`] it asks whether a handler has raised, and tells the `progress` function of
//! the call how far the work is. If a handler or the function has raised, the engine is told to
//! stop; when it has (nothing is half-done then), that exception is raised, with a note if the work
//! was complete by then.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::error::Failure;
use crate::progress::{Counter, Listener, Wish};

/// How long Ctrl-C may go unnoticed.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Does work that may take long.
pub(crate) fn call<T: Send>(
    py: Python<'_>,
    operation: &'static str,
    place: &Path,
    work: impl FnOnce(Arc<Counter>) -> Result<T, Failure> + Send,
) -> PyResult<T> {
    call_telling(py, operation, place, None, work)
}

/// As [`call`], and tells a function how far the work is.
pub(crate) fn call_telling<T: Send>(
    py: Python<'_>,
    operation: &'static str,
    place: &Path,
    progress: Option<Py<PyAny>>,
    work: impl FnOnce(Arc<Counter>) -> Result<T, Failure> + Send,
) -> PyResult<T> {
    if let Some(progress) = &progress
        && !progress.bind(py).is_callable()
    {
        return Err(PyTypeError::new_err("progress is a function of one argument, or None"));
    }
    let counter = Arc::new(Counter::default());
    let mut listener = Listener::new(progress);
    let (done, interrupted) = py.detach(|| run(&counter, &mut listener, work));
    // Told of its end, too: then the wish to stop is too late.
    let last = || listener.tell(py, &counter).err().or_else(|| py.check_signals().err());
    // The last report must not take the result away without a word.
    match interrupted.or_else(|| done.is_ok().then(last).flatten()) {
        Some(raised) => {
            if done.is_ok() {
                let text = format!("nono_py: {operation} was complete before it could stop");
                note(py, &raised, &text);
            }
            Err(raised)
        }
        None => done.map_err(|failure| failure.raise(py, operation, place)),
    }
}

/// Adds a line to what is shown of an exception. Before Python 3.11 there is no such thing.
fn note(py: Python<'_>, raised: &PyErr, text: &str) {
    let _ = raised.value(py).call_method1("add_note", (text,));
}

/// Does work that takes no longer than reading a small file.
pub(crate) fn quick<T: Send>(
    py: Python<'_>,
    operation: &'static str,
    place: &Path,
    work: impl FnOnce() -> Result<T, Failure> + Send,
) -> PyResult<T> {
    py.detach(|| guarded(work)).map_err(|failure| failure.raise(py, operation, place))
}

fn run<T: Send>(
    counter: &Arc<Counter>,
    listener: &mut Listener,
    work: impl FnOnce(Arc<Counter>) -> Result<T, Failure> + Send,
) -> (Result<T, Failure>, Option<PyErr>) {
    let given = counter.clone();
    thread::scope(|scope| {
        let (done, is_done) = channel();
        let worker = thread::Builder::new().name("nono".into()).spawn_scoped(scope, move || {
            // No caller waits any more when the receiver is gone.
            let _ = done.send(guarded(|| work(given)));
        });
        if let Err(error) = worker {
            return (Err(Failure::internal(format!("cannot start a thread: {error}"))), None);
        }
        let mut interrupted = None;
        loop {
            match is_done.recv_timeout(SIGNAL_INTERVAL) {
                Ok(result) => return (result, interrupted),
                Err(RecvTimeoutError::Disconnected) => {
                    return (Err(Failure::internal("the work ended without a result")), None);
                }
                Err(RecvTimeoutError::Timeout) if interrupted.is_none() => {
                    // Not attached while the interpreter shuts down; no caller can be told then.
                    let asked = Python::try_attach(|py| {
                        py.check_signals()?;
                        listener.tell(py, counter)
                    });
                    match asked {
                        None | Some(Ok(Wish::GoOn)) => {}
                        Some(Ok(Wish::Stop)) => counter.stop(),
                        Some(Err(raised)) => {
                            counter.stop();
                            interrupted = Some(raised);
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    })
}

fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // A borrowed value is either dropped with the call or only read afterwards.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| Err(panicked(&*payload)))
}

/// The last report of the panic hook: the message with its place in the source.
static LAST_PANIC: Mutex<Option<String>> = Mutex::new(None);

fn panicked(payload: &(dyn Any + Send)) -> Failure {
    let words = LAST_PANIC.lock().take().unwrap_or_else(|| {
        let text = payload.downcast_ref::<&str>().copied();
        text.or(payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("?").to_owned()
    });
    Failure::internal(format!("a bug in nono, please report it: {words}"))
}

/// Panics become exceptions, so they are not printed as well, unless a backtrace was asked for. The
/// hook is that of this library's own copy of the standard library; no other one is touched.
pub(crate) fn keep_panics_quiet() {
    let print = std::env::var_os("RUST_BACKTRACE").is_some().then(std::panic::take_hook);
    std::panic::set_hook(Box::new(move |info| {
        *LAST_PANIC.lock() = Some(info.to_string().replace('\n', " "));
        if let Some(print) = &print {
            print(info);
        }
    }));
}

/// Panics in the place of the engine; only in builds for tests.
#[cfg(debug_assertions)]
#[pyfunction]
#[pyo3(name = "_panic_for_tests")]
#[allow(clippy::panic, reason = "that is what it is for")]
pub(crate) fn panic_for_tests(py: Python<'_>) -> PyResult<()> {
    call(py, "panic_for_tests", Path::new("/nowhere"), |_| panic!("on purpose"))
}
