//! Answering READ, and from which thread.
//!
//! - A short answer would show zeros at the end of the file, so fewer bytes than the attributes
//!   promise are an error.
//! - Bytes go from the memory of the source, or by way of one buffer of the answering thread, to
//!   the kernel; no copy of a long file stays in memory.

use std::io;
use std::sync::{Arc, mpsc};

use fuser::ReplyData;
use parking_lot::Mutex;

use crate::server::buffer::with_buffer;
use crate::server::contents::{Contents, INLINE_OPEN_BYTES};
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
    contents: Contents<S>,
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
        let opened = self.contents.get(&key, file_bytes);
        if read.size == 0 {
            read.reply.data(&[]);
        } else if opened.is_none()
            && file_bytes <= INLINE_OPEN_BYTES
            && read.size as u64 == file_bytes
        {
            self.tree.counters.opened.one();
            with_buffer(|buffer| match self.tree.source.read_whole(&key, file_bytes, buffer) {
                Ok(()) => read.reply.data(buffer),
                Err(error) => read.reply.error(self.tree.failed("read", read.id, &error)),
            });
        } else if file_bytes <= INLINE_OPEN_BYTES
            || opened.is_some_and(|opened| opened.is_ready(read.offset, read.size))
        {
            self.open_and_reply(&key, file_bytes, read);
        } else {
            let reads = self.clone();
            self.openings.run(move || reads.open_and_reply(&key, file_bytes, read));
        }
    }

    fn open_and_reply(&self, key: &S::Content, file_bytes: u64, read: Read) {
        let Read { id, offset, size, reply } = read;
        let mut reply = Some(reply);
        let open = || {
            self.tree.counters.opened.one();
            self.tree.source.open(key, file_bytes)
        };
        let answered = self.contents.get_or_open(key, file_bytes, open).and_then(|opened| {
            opened.with_bytes(offset..offset + size as u64, |bytes| {
                if let Some(reply) = reply.take() {
                    reply.data(bytes);
                }
            })
        });
        if let Err(error) = answered {
            self.contents.forget(key, file_bytes);
            let errno = self.tree.failed("read", id, &error);
            if let Some(reply) = reply {
                reply.error(errno);
            }
        }
    }
}

/// Threads for large files that are opened, and for bytes that are not ready. They are started with
/// the mount: threads that the [companion](crate::company) started would be of its class.
struct Openings(mpsc::Sender<Opening>);

type Opening = Box<dyn FnOnce() + Send>;

impl Openings {
    const THREADS: usize = 8;

    fn start() -> io::Result<Self> {
        let (sender, openings) = mpsc::channel::<Opening>();
        let openings = Arc::new(Mutex::new(openings));
        for _ in 0..Self::THREADS {
            let openings = openings.clone();
            let run = move || {
                loop {
                    let opening = openings.lock().recv();
                    match opening {
                        Ok(opening) => opening(),
                        Err(mpsc::RecvError) => break,
                    }
                }
            };
            std::thread::Builder::new().name("nono-open".to_owned()).spawn(run)?;
        }
        Ok(Self(sender))
    }

    fn run(&self, opening: impl FnOnce() + Send + 'static) {
        // The reader of the file waits, so it is opened even where the threads have ended.
        if let Err(mpsc::SendError(opening)) = self.0.send(Box::new(opening)) {
            opening();
        }
    }
}
