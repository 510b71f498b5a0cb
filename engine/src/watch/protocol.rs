//! Questions to a watcher and its replies: one line of JSON each.
//!
//! A command within the walls of a run may reach a socket, wherever that is, but it reads nothing in
//! the store. So a question carries a key that lies beside the socket.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::WatchError;
use super::log::ChangedDirectory;
use crate::path_text::serde_paths;

/// Longer replies are no replies: more directories than a watcher notes, with long names.
const MAX_REPLY_BYTES: u64 = 64 << 20;

/// A moment in the life of a watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The time in which nothing was missed; random.
    pub generation: [u8; 16],
    /// Number of the last change before it.
    pub number: u64,
}

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// How is it?
    Status,
    /// It shall end.
    Stop,
    /// Which directories changed since a moment, and which moment is now?
    Changed {
        /// The moment; none for the present one alone.
        since: Option<Token>,
    },
}

/// A question as it is sent.
#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    key: String,
    question: Question,
}

/// Reads a question that was sent with the right key.
pub fn read_question(line: &[u8], key: &str) -> Option<Question> {
    let asked: Asked = serde_json::from_slice(line).ok()?;
    (asked.key == key).then_some(asked.question)
}

/// A way to a watcher.
#[derive(Debug)]
pub struct Connection {
    pub(super) stream: UnixStream,
    pub(super) key: String,
}

impl Connection {
    /// Waits until the watcher has ended, at most as long as for the last reply.
    ///
    /// # Errors
    /// When it has not by then.
    pub fn wait_for_end(self) -> Result<(), WatchError> {
        let read = (&self.stream).read_to_end(&mut Vec::new());
        read.map(drop).map_err(|error| WatchError::NoAnswer { reason: error.to_string() })
    }
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// How it is.
    Status(Box<WatchFacts>),
    /// It ends, and closes the connection when it has ended.
    Ending,
    /// The changes.
    Changed {
        /// The present moment; none where changes may come without an event.
        now: Option<Token>,
        /// Device and inode of the tracked path.
        top: Option<(u64, u64)>,
        /// The mount namespace of the watcher.
        namespace: String,
        /// The directories; none where only a whole walk can tell.
        directories: Option<Vec<ChangedDirectory>>,
    },
    /// It does not understand the question.
    Refused {
        /// Why.
        reason: String,
    },
}

/// How a watcher is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchFacts {
    /// The tracked paths.
    #[serde(with = "serde_paths")]
    pub paths: Vec<PathBuf>,
    /// Number of its process.
    pub pid: u32,
    /// The session that it writes.
    pub session_id: String,
    /// When it began.
    pub started: Timestamp,
    /// Directories with a watch.
    pub directories: u64,
    /// Whether its steps name the programs that wrote.
    pub names_programs: bool,
    /// Why it takes whole walks in place of events, if it does.
    pub gap: Option<String>,
    /// How often events were lost, and everything was looked at.
    pub losses: u64,
    /// Why, the last time.
    pub last_loss: Option<String>,
    /// Snapshots since it began.
    pub snapshots: u64,
    /// Number of the last one.
    pub last_snapshot: u64,
    /// When that was taken.
    pub last_taken: Option<Timestamp>,
    /// Whether something changed since.
    pub is_pending: bool,
    /// A command, an agent's call or a restore at work, which it waits for.
    pub waits_for: Option<String>,
    /// Why the last snapshot failed, if it did.
    pub failure: Option<String>,
}

/// Asks a watcher, and waits for its reply at most this long for each step.
///
/// # Errors
/// When it does not answer, or not so.
pub fn ask(
    connection: &Connection,
    question: &Question,
    patience: Duration,
) -> Result<Reply, WatchError> {
    let no_answer =
        |error: &dyn std::fmt::Display| WatchError::NoAnswer { reason: error.to_string() };
    let Connection { stream, key } = connection;
    stream.set_read_timeout(Some(patience)).map_err(|error| no_answer(&error))?;
    stream.set_write_timeout(Some(patience)).map_err(|error| no_answer(&error))?;
    let asked = Asked { key: key.clone(), question: question.clone() };
    let mut line = serde_json::to_vec(&asked).map_err(|error| no_answer(&error))?;
    line.push(b'\n');
    let mut peer: &UnixStream = stream;
    peer.write_all(&line).map_err(|error| no_answer(&error))?;
    let mut line = Vec::new();
    let read = BufReader::new(peer.take(MAX_REPLY_BYTES)).read_until(b'\n', &mut line);
    read.map_err(|error| no_answer(&error))?;
    match serde_json::from_slice(&line) {
        Ok(Reply::Refused { reason }) => Err(WatchError::NoAnswer { reason }),
        Ok(reply) => Ok(reply),
        Err(error) => Err(no_answer(&error)),
    }
}
