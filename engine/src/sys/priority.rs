//! Background work beside work that a user waits for.

/// The lowest scheduling priority there is.
const NICEST: i32 = 19;

/// Lets all other programs go before this thread, and before threads that it starts, from now on:
/// an ordinary user cannot take this back. The disk follows, because a thread without an I/O
/// priority of its own has the one of its nice value. Other threads of this process, and programs
/// that they start, stay as they are.
pub fn lower_priority() {
    // Linux keeps a nice value for each thread, and 0 names the calling one; elsewhere it is the
    // whole process that would be slowed down for good.
    #[cfg(target_os = "linux")]
    if let Err(errno) = rustix::process::setpriority_process(None, NICEST) {
        tracing::debug!("cannot lower the priority of a thread: {errno}");
    }
}
