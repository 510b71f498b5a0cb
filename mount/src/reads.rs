//! Answering READ: from which thread, and with what pushed beside it.
//!
//! - A short answer would show zeros at the end of the file, so fewer bytes than the attributes
//!   promise are an error.
//! - Bytes go from the memory of the source, or by way of one buffer of the answering thread, to the kernel;
//!   no copy of a long file stays in memory.

use std::io;
use std::ops::Range;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use parking_lot::Mutex;

use crate::buffer::with_buffer;
use crate::contained::Opened;
use crate::contents::{Contents, Found, INLINE_OPEN_BYTES};
use crate::lists::List;
use crate::nodes::{Order, Push, Spot, Stretch};
use crate::prefetch::{Origin, PushQueue, Walker, Walkers};
use crate::source::TreeSource;
use crate::tree::Tree;
use crate::wire::Reply;

/// For who pushes a file that a reader opens: longer than a thread takes to start.
const OPEN_PATIENCE: Duration = Duration::from_millis(5);

/// A READ to answer.
pub(crate) struct Read {
    pub(crate) id: u64,
    pub(crate) offset: u64,
    pub(crate) size: usize,
    pub(crate) reply: Reply,
}

/// Answers READs.
pub(crate) struct Reads<S: TreeSource> {
    files: Arc<Files<S>>,
    pushes: PushQueue,
    walkers: Mutex<Walkers>,
}

/// What threads that answer READs share.
struct Files<S: TreeSource> {
    tree: Arc<Tree<S>>,
    contents: Contents<S, Read>,
    openings: Openings,
}

impl<S: TreeSource> Reads<S> {
    /// # Errors
    /// No thread could be started.
    pub(crate) fn new(tree: Arc<Tree<S>>, pushes: PushQueue) -> io::Result<Self> {
        let contents = Contents::new(tree.options.cached_contents);
        let files = Arc::new(Files { tree, contents, openings: Openings::start()? });
        Ok(Self { files, pushes, walkers: Mutex::default() })
    }

    /// Opens large files before they are read, and keeps them open. `None`: it cannot be opened, or somebody else is
    /// opening it and takes long.
    pub(crate) fn opener(&self) -> impl Fn(&S::Content, u64) -> Option<Opened> + Send + 'static {
        let files = self.files.clone();
        move |key, file_bytes| match files.contents.begin(key) {
            true => files.open_large(key, file_bytes),
            false => files.contents.wait(key, OPEN_PATIENCE),
        }
    }

    /// No more pushes.
    pub(crate) fn close(&self) {
        self.pushes.close();
    }

    /// `process` gets these entries of the list of a directory now.
    pub(crate) fn listed(&self, process: u32, directory: u64, list: &List<S>, part: Range<usize>) {
        let tree = &self.files.tree;
        if !tree.options.push_siblings || list.entries.is_empty() {
            return;
        }
        let walker = {
            let mut walkers = self.walkers.lock();
            walkers.note_list(process, directory, list.entries.len());
            walkers.walker(process)
        };
        let Some(walker) = walker else { return };
        if part.end < list.entries.len() {
            let (start, length) = (part.start as u64, part.len() as u32);
            let stretch = Stretch { order: Order::Listed, start, length };
            let push = Push { directory, stretch, again: false };
            // The end of the list begins a push of what was not.
            let _ = self.pushes.push(push, Origin::PartOfList, walker);
            return;
        }
        let order = Order::expected(walker.order, list.entries.len());
        let push = tree.nodes.lock().push_after_list(directory, order);
        if let Some(push) = push {
            self.push(push, Origin::List, walker);
        }
    }

    /// Has the rest of a long file pushed behind what somebody has asked for of it.
    fn push_rest(&self, process: u32, directory: u64, spot: Spot, to: u64) {
        let walker = self.walkers.lock().walker(process);
        let Some(walker) = walker.filter(|walker| walker.reads_long_files) else { return };
        let stretch = Stretch { order: Order::Listed, start: spot.index.into(), length: 1 };
        let push = Push { directory, stretch, again: false };
        if self.pushes.push(push, Origin::RestOfFile, walker) {
            self.pushes.reads(directory, spot, to);
        }
    }

    fn push(&self, push: Push, origin: Origin, walker: Walker) {
        if !self.pushes.push(push, origin, walker) {
            self.files.tree.nodes.lock().push_ended(&push, Some(push.stretch.start));
        }
    }

    /// Answers a READ of `process`, now or soon.
    pub(crate) fn read(&self, process: u32, read: Read) {
        let tree = &self.files.tree;
        if !tree.options.push_siblings {
            return self.files.answer(read);
        }
        let id = read.id;
        let Some((directory, spot)) = tree.nodes.lock().spot(id) else {
            return self.files.answer(read);
        };
        let to = read.offset.saturating_add(read.size as u64);
        let is_pushed = self.pushes.reads(directory, spot, to);
        self.walkers.lock().note_part(process, id, read.offset..to);
        if read.offset != 0 {
            let is_long = read.offset >= INLINE_OPEN_BYTES;
            self.files.answer(read);
            if is_long && !is_pushed {
                self.push_rest(process, directory, spot, to);
            }
            return;
        }
        let reader = self.walkers.lock().read(process, directory, spot);
        let push = tree.nodes.lock().push_after_read(id, reader);
        // Before the answer: who has it may list the next directory at once.
        let push = push.map(|push| {
            let mut walkers = self.walkers.lock();
            walkers.note_push(process, directory, spot);
            (push, walkers.walker(process).unwrap_or_default())
        });
        self.pushes.reached(directory, spot);
        self.files.answer(read);
        if let Some((push, walker)) = push {
            self.push(push, Origin::Read, walker);
        }
    }
}

/// A thread for each large file that is opened, and for each read of bytes that are not ready. They are all started by one thread: what the
/// companion (see [`crate::company`]) started would be of its class.
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
        // Whoever reads the file waits for it, so it is opened even where the thread has ended.
        if let Err(mpsc::SendError(opening)) = self.0.send(Box::new(opening)) {
            opening();
        }
    }
}

impl<S: TreeSource> Files<S> {
    fn answer(self: &Arc<Self>, mut read: Read) {
        let (key, file_bytes) = match self.tree.file(read.id) {
            Ok(found) => found,
            Err(errno) => return read.reply.error(errno),
        };
        let rest = file_bytes.saturating_sub(read.offset);
        read.size = read.size.min(usize::try_from(rest).unwrap_or(read.size));
        if read.size == 0 {
            read.reply.bytes(&[]);
        } else if let Some(content) = self.contents.cached(&key) {
            self.reply_when_ready(content, read);
        } else if file_bytes <= INLINE_OPEN_BYTES && read.size as u64 == file_bytes {
            with_buffer(|buffer| match self.tree.read_whole(read.id, &key, file_bytes, buffer) {
                Ok(()) => read.reply.bytes(buffer),
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
                let files = self.clone();
                self.openings.run(move || drop(files.open_large(&key, file_bytes)));
            }
        }
    }

    /// Opens a large file and answers the reads that waited for it. `None` when it cannot be opened, which one of them reports.
    fn open_large(&self, key: &S::Content, file_bytes: u64) -> Option<Opened> {
        let opened = self.tree.open(key, file_bytes);
        let mut errno = None;
        for read in self.contents.opened(key, opened.as_ref().ok()) {
            match &opened {
                Ok(content) => self.reply(content, read),
                Err(error) => {
                    let failed = || self.tree.failed("open", read.id, error);
                    read.reply.error(*errno.get_or_insert_with(failed));
                }
            }
        }
        opened.ok()
    }

    /// Answers now, or from a thread that nobody else waits for.
    fn reply_when_ready(self: &Arc<Self>, content: Opened, read: Read) {
        if content.is_ready(read.offset, read.size) {
            self.reply(&content, read);
        } else {
            let files = self.clone();
            self.openings.run(move || files.reply(&content, read));
        }
    }

    fn reply(&self, content: &Opened, read: Read) {
        let Read { id, offset, size, reply } = read;
        let mut reply = Some(reply);
        let answered = content.with_bytes(offset..offset + size as u64, |bytes| {
            if let Some(reply) = reply.take() {
                reply.bytes(bytes);
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
