//! Taking back lists of directories that the kernel keeps.
//!
//! A thread of its own does it: the kernel may be using what it is to forget, for a message that the thread that answers
//! would have to answer.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use rustix::io::Errno;

use crate::listers::Recall;
use crate::source::TreeSource;
use crate::tree::Tree;
use crate::wire::Connection;

/// Recalls that wait; more are dropped, at the cost of some messages.
const QUEUED: usize = 4;

/// Starts the thread and returns where recalls go. It ends with that.
pub(crate) fn spawn<S: TreeSource>(
    tree: &Arc<Tree<S>>,
    connection: Arc<Connection>,
) -> std::io::Result<SyncSender<Recall>> {
    let tree = tree.clone();
    let (sender, waiting) = sync_channel(QUEUED);
    let run = move || {
        for Recall(directories) in waiting {
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
    Ok(sender)
}
