//! Answers.

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::abi::{Attr, AttrOut, Entry, KEEP_CACHE, OpenOut, Space, XattrSize};
use super::connection::Connection;

/// The answer that a request waits for: given once, from any thread. Dropped without one, it is an input/output error,
/// so that nobody waits for ever.
pub(crate) struct Reply {
    connection: Arc<Connection>,
    /// `None`: it was answered.
    unique: Option<u64>,
}

impl Reply {
    pub(crate) fn new(connection: &Arc<Connection>, unique: u64) -> Self {
        Self { connection: connection.clone(), unique: Some(unique) }
    }

    /// Done, and nothing to say.
    pub(crate) fn done(self) {
        self.bytes(&[]);
    }

    /// The answer is these bytes.
    pub(crate) fn bytes(mut self, body: &[u8]) {
        let Some(unique) = self.unique.take() else { return };
        if !is_taken(unique, self.connection.answer(unique, body)) {
            is_taken(unique, self.connection.refuse(unique, Errno::IO));
        }
    }

    /// It cannot be done.
    pub(crate) fn error(mut self, errno: Errno) {
        self.refuse(errno);
    }

    /// A name is this.
    pub(crate) fn entry(self, entry: &Entry) {
        self.bytes(entry.as_bytes());
    }

    /// Attributes, and how long they hold.
    pub(crate) fn attributes(self, attr: Attr, valid: Duration) {
        let (valid, valid_ns) = (valid.as_secs(), valid.subsec_nanos());
        self.bytes(AttrOut { valid, valid_ns, padding: 0, attr }.as_bytes());
    }

    /// It is open, and what the kernel has of it stays.
    pub(crate) fn opened(self) {
        self.bytes(OpenOut { flags: KEEP_CACHE, ..OpenOut::default() }.as_bytes());
    }

    /// How long a value is.
    pub(crate) fn xattr_size(self, size: u32) {
        self.bytes(XattrSize { size, padding: 0 }.as_bytes());
    }

    /// What `df` shows.
    pub(crate) fn space(self, space: &Space) {
        self.bytes(space.as_bytes());
    }

    fn refuse(&mut self, errno: Errno) {
        let Some(unique) = self.unique.take() else { return };
        is_taken(unique, self.connection.refuse(unique, errno));
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        self.refuse(Errno::IO);
    }
}

/// False: somebody still waits.
fn is_taken(unique: u64, sent: Result<(), Errno>) -> bool {
    match sent {
        Ok(()) => true,
        // Whoever asked was killed, or the mount has ended.
        Err(errno @ (Errno::NOENT | Errno::NODEV)) => {
            tracing::debug!(unique, %errno, "nobody waits for this answer any more");
            true
        }
        Err(errno) => {
            tracing::error!(unique, %errno, "the kernel does not take an answer");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn answered(answer: impl FnOnce(Reply)) -> Vec<u8> {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let connection = Arc::new(Connection::new(writer.into()));
        answer(Reply::new(&connection, 7));
        drop(connection);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn there_is_one_answer_whatever_happens() {
        let io_error = answered(|reply| reply.error(Errno::IO));
        assert_eq!(answered(drop), io_error);
        assert_eq!(answered(Reply::done).len(), 16);
        let entry = Entry::new(1, 2, Duration::new(3, 4), Duration::new(5, 6), Attr::default());
        let bytes = answered(|reply| reply.entry(&entry));
        assert_eq!(bytes.len(), 16 + 128);
        let head = [1_u64, 2, 3, 5].as_bytes().to_vec();
        assert_eq!(bytes[16..56], [head, [4_u32, 6].as_bytes().to_vec()].concat());
    }
}
