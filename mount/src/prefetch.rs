//! Pushing small files to the kernel before it asks for them.
//!
//! Who reads one file of a directory mostly reads the next ones. A push costs one message where a
//! READ costs two and a wait. What always holds:
//! - Only files the kernel has named are pushed; they are pinned meanwhile, so an id cannot come to
//!   mean another file between the look-up and the push.
//! - The source verifies before it hands bytes out; what does not verify is not pushed, and the READ
//!   that follows reports the error.
//! - A thread of its own pushes, because the kernel may hold a page until a READ on it is answered.
//! - The queue is short and drops what does not fit: a push is never waited for.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use fuser::{INodeNo, Notifier};
use parking_lot::Mutex;

use crate::nodes::Push;
use crate::source::{Kind, TreeSource};
use crate::tree::Tree;

/// Pushes that may wait.
const QUEUE_LENGTH: usize = 32;

/// Where requests leave pushes. Closed when the session ends.
pub(crate) struct PushQueue(Mutex<Option<SyncSender<Push>>>);

impl PushQueue {
    pub(crate) fn new() -> (Self, Receiver<Push>) {
        let (sender, receiver) = sync_channel(QUEUE_LENGTH);
        (Self(Mutex::new(Some(sender))), receiver)
    }

    pub(crate) fn push(&self, push: Push) {
        if let Some(sender) = &*self.0.lock()
            && let Err(TrySendError::Full(push)) = sender.try_send(push)
        {
            tracing::trace!(?push, "not pushed: the queue is full");
        }
    }

    pub(crate) fn close(&self) {
        self.0.lock().take();
    }
}

/// Pushes until the queue is closed.
pub(crate) fn run<S: TreeSource>(tree: &Tree<S>, queue: &Receiver<Push>, notifier: &Notifier) {
    let mut buffer = Vec::new();
    for push in queue {
        push_files(tree, &push, notifier, &mut buffer);
    }
}

fn push_files<S: TreeSource>(
    tree: &Tree<S>,
    push: &Push,
    notifier: &Notifier,
    buffer: &mut Vec<u8>,
) -> Option<()> {
    let list = tree.siblings(push.directory)?;
    let mut budget = tree.options.push_batch_bytes;
    for index in push.indices.clone() {
        let entry = list.entries.get(index as usize)?;
        let Kind::File { size, ref content } = entry.node.kind else { continue };
        if size == 0 || size > tree.options.push_file_bytes {
            continue;
        }
        budget = budget.checked_sub(size)?;
        let Some(state) = entry.node.state else { continue };
        let Some(id) = tree.nodes.lock().pin(state, push.again) else { continue };
        let loaded = push_file(tree, id, content, size, notifier, buffer).is_some();
        tree.nodes.lock().unpin(id, loaded);
    }
    Some(())
}

fn push_file<S: TreeSource>(
    tree: &Tree<S>,
    id: u64,
    content: &S::Content,
    size: u64,
    notifier: &Notifier,
    buffer: &mut Vec<u8>,
) -> Option<()> {
    tree.counters.opened.one();
    // The reader that comes for this file will report the error, once.
    let file = tree.source.open(content, size).ok()?;
    buffer.resize(usize::try_from(size).ok()?, 0);
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], filled as u64).ok()? {
            0 => return None,
            count => filled += count,
        }
    }
    notifier.store(INodeNo(id), 0, buffer).ok()?;
    tree.counters.pushed_files.one();
    tree.counters.pushed_bytes.add(size);
    Some(())
}

/// The thread that pushes.
pub(crate) fn spawn<S: TreeSource>(
    tree: Arc<Tree<S>>,
    queue: Receiver<Push>,
    notifier: Notifier,
) -> std::io::Result<()> {
    std::thread::Builder::new()
        .name("nono-push".to_owned())
        .spawn(move || run(&tree, &queue, &notifier))
        .map(drop)
}
