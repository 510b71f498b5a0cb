//! The threads that answer the kernel, until the connection ends.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::io::Errno;

use crate::filesystem::TreeFilesystem;
use crate::source::TreeSource;
use crate::wire::{Connection, REQUEST_BYTES};

/// A session that runs. Dropped, it runs on.
pub(crate) struct Session(Vec<JoinHandle<Result<(), Errno>>>);

impl Session {
    /// Starts `threads` of them. The file system is dropped with the last.
    ///
    /// # Errors
    /// Not all could be started. Those that were end with the connection.
    pub(crate) fn start<S: TreeSource>(
        connection: &Arc<Connection>,
        filesystem: TreeFilesystem<S>,
        threads: usize,
    ) -> io::Result<Self> {
        let filesystem = Arc::new(filesystem);
        let start = |number: usize| {
            let (connection, filesystem) = (connection.clone(), filesystem.clone());
            let named = std::thread::Builder::new().name(format!("nono-answer-{number}"));
            named.spawn(move || answer_all(&connection, &filesystem))
        };
        (0..threads).map(start).collect::<io::Result<Vec<_>>>().map(Self)
    }

    /// Waits until the connection has ended.
    ///
    /// # Errors
    /// It broke.
    pub(crate) fn wait(self) -> io::Result<()> {
        let mut ended = Ok(());
        for thread in self.0 {
            let thread_ended = match thread.join() {
                Ok(result) => result.map_err(io::Error::from),
                Err(_) => Err(io::Error::other("a thread that answers panicked")),
            };
            ended = ended.and(thread_ended);
        }
        ended
    }
}

fn answer_all<S: TreeSource>(
    connection: &Arc<Connection>,
    filesystem: &TreeFilesystem<S>,
) -> Result<(), Errno> {
    let mut buffer = vec![0; REQUEST_BYTES];
    loop {
        match connection.receive(&mut buffer) {
            Ok(request) => {
                // Who asked got an error when the answer was dropped. Without this thread, others would wait for ever.
                let answer = || filesystem.answer(connection, request);
                if catch_unwind(AssertUnwindSafe(answer)).is_err() {
                    tracing::error!("a request could not be answered");
                }
            }
            Err(Errno::AGAIN) => {}
            Err(Errno::NODEV) => return Ok(()),
            Err(errno) => {
                tracing::error!(%errno, "the connection to the kernel broke");
                return Err(errno);
            }
        }
    }
}
