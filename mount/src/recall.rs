//! Taking back lists of directories that the kernel keeps.
//!
//! A thread of its own does it: the kernel may be using what it is to forget, for a message that the thread that answers
//! would have to answer.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::listers::Recall;
use crate::source::TreeSource;
use crate::tree::Tree;
use crate::wire::Connection;

/// Recalls that wait; more are dropped, at the cost of some messages.
const QUEUED: usize = 4;

/// Where recalls go.
pub(crate) struct Recalls(Mutex<Option<SyncSender<Recall>>>);

/// Where they come from.
pub(crate) struct Waiting(Receiver<Recall>);

impl Recalls {
    pub(crate) fn new() -> (Self, Waiting) {
        let (sender, receiver) = sync_channel(QUEUED);
        (Self(Mutex::new(Some(sender))), Waiting(receiver))
    }

    /// The kernel should forget some lists, soon.
    pub(crate) fn recall(&self, recall: Recall) {
        if let Some(sender) = &*self.0.lock() {
            let _ = sender.try_send(recall);
        }
    }

    pub(crate) fn close(&self) {
        self.0.lock().take();
    }
}

/// The thread, until the session ends.
pub(crate) fn spawn<S: TreeSource>(
    tree: &Arc<Tree<S>>,
    waiting: Waiting,
    connection: Arc<Connection>,
) -> std::io::Result<()> {
    let tree = tree.clone();
    let run = move || {
        for Recall(directories) in waiting.0 {
            for directory in directories {
                tree.nodes.lock().note_recall(directory);
                match connection.invalidate(directory) {
                    Ok(()) => tree.counters.recalled.one(),
                    Err(Errno::NODEV) => return,
                    // One that the kernel has forgotten has no list.
                    Err(errno) => tracing::debug!(directory, %errno, "a list is not taken back"),
                }
            }
        }
    };
    std::thread::Builder::new().name("nono-recall".to_owned()).spawn(run)?;
    Ok(())
}
