//! Keeping the number of nodes bounded, however much is visited.
//!
//! The kernel forgets nodes when it is short of memory, and the memory of this process does not
//! count for that. So when more than [`MountOptions::max_nodes`](crate::MountOptions::max_nodes)
//! are alive, the kernel is asked to drop the ones it has known longest (`FUSE_NOTIFY_PRUNE`, Linux
//! 6.18). It keeps a node in use, so a shell inside stays where it is. An older kernel refuses, and
//! then only its own reclaim bounds the number.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use rustix::io::Errno;

use crate::kernel::notify::Notifications;
use crate::server::tree::Tree;
use crate::source::TreeSource;

/// Nodes in one message.
const BATCH: usize = 1024;

/// Starts the thread that prunes. A message wakes it when there may be too many nodes.
pub(crate) fn spawn<S: TreeSource>(
    tree: &Arc<Tree<S>>,
    notifications: Arc<Notifications>,
) -> std::io::Result<SyncSender<()>> {
    let tree = tree.clone();
    let (sender, wakes) = sync_channel(1);
    let run = move || {
        for () in wakes {
            let max = tree.options.max_nodes;
            // With some room.
            let mut excess = tree.nodes.lock().len().saturating_sub(max - max / 8);
            while excess > 0 {
                let ids = tree.nodes.lock().oldest(BATCH.min(excess));
                if ids.is_empty() {
                    break;
                }
                excess -= ids.len().min(excess);
                match notifications.prune(&ids) {
                    Ok(()) => tree.counters.pruned.add(ids.len() as u64),
                    // An older kernel.
                    Err(Errno::INVAL | Errno::NOSYS) => return,
                    Err(errno) => {
                        tracing::debug!(%errno, "the kernel does not forget");
                        break;
                    }
                }
            }
        }
    };
    std::thread::Builder::new().name("nono-prune".to_owned()).spawn(run)?;
    Ok(sender)
}
