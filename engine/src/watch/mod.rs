//! Which directories changed: a tree under watch, and the answer of its watcher.
//!
//! A *watcher* is one process for each tracked path. It lives beside the commands that record, sets
//! a watch of the kernel on every directory that is recorded ([`TreeWatch`]), and notes which of
//! them changed, and in which order (`log::ChangeLog`). Programs ask it over a socket
//! in the store (`place`, `protocol`). The store has the mode 0700, and the walls of a run keep
//! its command from what is in it.
//!
//! ```text
//! <root directory>/.watch/<first half of the hash of the tracked path>/
//!   lock      held by the watcher for as long as it lives
//!   key       a question has to know it
//!   socket    where it answers
//! ```
//!
//! Always true:
//! - A watch stands before its directory is listed. So a name that comes meanwhile is either in the
//!   list or an event. A directory that comes is noted with all that is below it.
//! - A [`Token`] names a moment of one *generation*. A generation ends when anything may have been
//!   missed: a full queue, a mount that came or went, another directory at the tracked path. Its
//!   name is random, so no other process, and no process after a restart, has it.
//! - Where a watch cannot stand there is a [`Gap`]: then a change may come without an event, and
//!   only a whole walk finds it. A gap is said, never hidden.
//! - An answer is made from an empty queue ([`sys::notify`](crate::sys)), so it knows every change
//!   before the question.
//!
//! `inotify` is used by the calls of `rustix`. The crate `notify` hides what the above needs: when
//! a watch stands, which event came before, and that a file system was unmounted. It also sets a
//! watch on every directory, left out or not.

mod log;
mod mounts;
mod place;
mod protocol;
mod tree;

pub use self::place::{WatchLock, WatchPlace, watched_places};
pub use self::protocol::{Connection, Question, Reply, Token, WatchFacts, ask, read_question};
pub use self::tree::{Gap, Loss, NameWatch, Seen, TreeWatch};

/// Why a tree or a directory cannot be watched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// A call of the system failed.
    #[error(transparent)]
    Io(#[from] crate::sys::Error),
    /// The tracked path is no directory.
    #[error("cannot watch {path}: it is no directory")]
    NoDirectory {
        /// The path, as it is shown.
        path: String,
    },
    /// The watcher gave no answer that can be understood.
    #[error("the watcher gave no answer: {reason}")]
    NoAnswer {
        /// The fault in it.
        reason: String,
    },
}
