//! Starting threads. Where the system gives no more of them, at a limit of processes or of memory,
//! that is an error; `std::thread::spawn` panics.

use std::io;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use super::fail_point::{Operation, around};

/// Starts a thread. `name` says what for: in errors, and to whoever lists threads.
///
/// # Errors
/// There is no thread, and the work is not done.
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    start(name, |builder| builder.spawn(work))
}

/// The same for a thread that ends before the scope does.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, T>> {
    start(name, |builder| builder.spawn_scoped(scope, work))
}

fn start<T>(name: &str, spawn: impl FnOnce(Builder) -> io::Result<T>) -> io::Result<T> {
    let started =
        around(Operation::StartThread(name), || spawn(Builder::new().name(name.to_owned())));
    started.map_err(|error: io::Error| {
        io::Error::new(error.kind(), format!("cannot start a thread for {name}: {error}"))
    })
}
