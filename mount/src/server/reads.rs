//! Answering READ, and from which thread.
//!
//! - A short answer would show zeros at the end of the file, so fewer bytes than the attributes
//!   promise are an error.
//! - Bytes go from the memory of the source, or by way of one buffer of the answering thread, to the
//!   kernel; no copy of a long file stays in memory.

use std::io;
use std::sync::{Arc, mpsc};

use fuser::ReplyData;
use parking_lot::Mutex;

use crate::server::buffer::with_buffer;
use crate::server::contained::Opened;
use crate::server::contents::{Contents, Found, INLINE_OPEN_BYTES};
use crate::server::tree::Tree;
use crate::source::TreeSource;

/// A READ to answer.
pub(crate) struct Read {
    pub(crate) id: u64,
    pub(crate) offset: u64,
    pub(crate) size: usize,
    pub(crate) reply: ReplyData,
}

/// Answers READs.
pub(crate) struct Reads<S: TreeSource> {
    tree: Arc<Tree<S>>,
    contents: Contents<S, Read>,
    openings: Openings,
}

impl<S: TreeSource> Reads<S> {
    /// # Errors
    /// No thread could be started.
    pub(crate) fn new(tree: Arc<Tree<S>>) -> io::Result<Arc<Self>> {
        let contents = Contents::new(tree.options.cached_contents);
        Ok(Arc::new(Self { tree, contents, openings: Openings::start()? }))
    }

    /// Answers a READ, now or soon.
    pub(crate) fn answer(self: &Arc<Self>, mut read: Read) {
        let (key, file_bytes) = match self.tree.file(read.id) {
            Ok(found) => found,
            Err(errno) => return read.reply.error(errno),
        };
        let rest = file_bytes.saturating_sub(read.offset);
        read.size = read.size.min(usize::try_from(rest).unwrap_or(read.size));
        if read.size == 0 {
            read.reply.data(&[]);
        } else if let Some(content) = self.contents.cached(&key) {
            self.reply_when_ready(content, read);
        } else if file_bytes <= INLINE_OPEN_BYTES && read.size as u64 == file_bytes {
            with_buffer(|buffer| match self.tree.read_whole(read.id, &key, file_bytes, buffer) {
                Ok(()) => read.reply.data(buffer),
                Err(errno) => read.reply.error(errno),
            });
        } else if file_bytes <= INLINE_OPEN_BYTES {
            match self.tree.open(&key, file_bytes) {
                Ok(content) => {
                    self.reply(&content, read);
                    self.contents.keep_small(key, content);
                }
                Err(error) => read.reply.error(self.tree.failed("open", read.id, &error)),
            }
        } else {
            self.answer_large(key, file_bytes, read);
        }
    }

    fn answer_large(self: &Arc<Self>, key: S::Content, file_bytes: u64, read: Read) {
        match self.contents.open_or_queue(&key, read) {
            Found::Open(content, read) => self.reply_when_ready(content, read),
            Found::Queued => {}
            Found::Missing => {
                let reads = self.clone();
                self.openings.run(move || reads.open_large(&key, file_bytes));
            }
        }
    }

    /// Opens a large file and answers the reads that waited for it.
    fn open_large(&self, key: &S::Content, file_bytes: u64) {
        let opened = self.tree.open(key, file_bytes);
        let mut errno = None;
        for read in self.contents.opened(key, opened.as_ref().ok()) {
            match &opened {
                Ok(content) => self.reply(content, read),
                Err(error) => {
                    // One of them reports the error.
                    let failed = || self.tree.failed("open", read.id, error);
                    read.reply.error(*errno.get_or_insert_with(failed));
                }
            }
        }
    }

    /// Answers now, or from a thread for which no other request waits.
    fn reply_when_ready(self: &Arc<Self>, content: Opened, read: Read) {
        if content.is_ready(read.offset, read.size) {
            self.reply(&content, read);
        } else {
            let reads = self.clone();
            self.openings.run(move || reads.reply(&content, read));
        }
    }

    fn reply(&self, content: &Opened, read: Read) {
        let Read { id, offset, size, reply } = read;
        let mut reply = Some(reply);
        let answered = content.with_bytes(offset..offset + size as u64, |bytes| {
            if let Some(reply) = reply.take() {
                reply.data(bytes);
            }
        });
        if let Err(error) = answered {
            if let Ok((key, _)) = self.tree.file(id) {
                self.contents.forget(&key);
            }
            let errno = self.tree.failed("read", id, &error);
            if let Some(reply) = reply {
                reply.error(errno);
            }
        }
    }
}

/// A thread for each large file that is opened, and for each read of bytes that are not ready. One
/// thread starts them all: those that the [companion](crate::company) started would be of its class.
struct Openings(mpsc::Sender<Opening>);

type Opening = Box<dyn FnOnce() + Send>;

fn run_once(opening: &Mutex<Option<Opening>>) {
    let opening = opening.lock().take();
    if let Some(opening) = opening {
        opening();
    }
}

impl Openings {
    fn start() -> io::Result<Self> {
        let (sender, openings) = mpsc::channel::<Opening>();
        let start_each = move || {
            for opening in openings {
                // The closure is lost where there is no thread for it, so it goes by way of a cell.
                let opening = Arc::new(Mutex::new(Some(opening)));
                let for_thread = opening.clone();
                let run = move || run_once(&for_thread);
                let spawned = std::thread::Builder::new().name("nono-open".to_owned()).spawn(run);
                if let Err(error) = spawned {
                    tracing::warn!(%error, "no thread to open a large file; others wait for it");
                    run_once(&opening);
                }
            }
        };
        std::thread::Builder::new().name("nono-opener".to_owned()).spawn(start_each)?;
        Ok(Self(sender))
    }

    fn run(&self, opening: impl FnOnce() + Send + 'static) {
        // The reader of the file waits, so it is opened even where the thread has ended.
        if let Err(mpsc::SendError(opening)) = self.0.send(Box::new(opening)) {
            opening();
        }
    }
}
