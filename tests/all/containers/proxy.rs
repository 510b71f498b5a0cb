//! A socket between nono and a daemon that does something at one request: stall, refuse, or run
//! what a test wants.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use tempfile::TempDir;

/// The event at the request.
pub enum At {
    /// Nothing goes on, in no direction and on no connection, until [`Proxy::release`].
    Stall,
    /// The daemon answers 500 with these words.
    Refuse(&'static str),
    /// A function runs before the request goes on.
    Do(Box<dyn Fn() + Send + Sync>),
}

/// The socket; its connections end with their two ends.
pub struct Proxy {
    dir: TempDir,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: PathBuf,
    /// A part of the first line of the request.
    request: &'static str,
    at: At,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_met: bool,
    is_stalled: bool,
}

impl Proxy {
    /// A socket before the daemon at `upstream` that acts once, at a request that has these
    /// characters in its first line.
    pub fn start(upstream: &Path, request: &'static str, at: At) -> Self {
        let dir = tempfile::Builder::new().prefix("nono-proxy-").tempdir_in("/var/tmp").unwrap();
        let listener = UnixListener::bind(dir.path().join("docker.sock")).unwrap();
        let upstream = upstream.to_owned();
        let (state, changed) = Default::default();
        let shared = Arc::new(Shared { upstream, request, at, state, changed });
        let accepting = Arc::clone(&shared);
        // It ends with the test process.
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let shared = Arc::clone(&accepting);
                thread::spawn(move || shared.serve(client));
            }
        });
        Self { dir, shared }
    }

    /// Makes a command talk to the daemon through this socket.
    pub fn lead(&self, mut command: Command) -> Command {
        let socket = self.dir.path().join("docker.sock");
        command.env("DOCKER_HOST", format!("unix://{}", socket.display()));
        command
    }

    /// Whether the request came.
    pub fn is_met(&self) -> bool {
        self.shared.state.lock().unwrap().is_met
    }

    /// Lets everything go on that stalls.
    pub fn release(&self) {
        self.shared.state.lock().unwrap().is_stalled = false;
        self.shared.changed.notify_all();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.release();
    }
}

impl Shared {
    /// Carries the bytes of one connection in both directions.
    fn serve(self: Arc<Self>, client: UnixStream) {
        self.wait();
        // A daemon that is gone: the connection ends at once.
        let Ok(daemon) = UnixStream::connect(&self.upstream) else { return };
        let (mut from, mut to) = (daemon.try_clone().unwrap(), client.try_clone().unwrap());
        let back = Arc::clone(&self);
        let answers = thread::spawn(move || back.copy(&mut from, &mut to, false));
        let (mut from, mut to) = (client, daemon);
        self.copy(&mut from, &mut to, true);
        let _ = to.shutdown(std::net::Shutdown::Both);
        answers.join().unwrap();
    }

    fn copy(&self, from: &mut UnixStream, to: &mut UnixStream, are_requests: bool) {
        let mut bytes = [0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let chunk = &bytes[..count];
            if are_requests && self.meets(chunk) {
                match &self.at {
                    At::Stall => self.state.lock().unwrap().is_stalled = true,
                    At::Do(action) => action(),
                    At::Refuse(words) => {
                        let body = format!("{{\"message\":\"{words}\"}}");
                        let length = body.len();
                        let answer = format!(
                            "HTTP/1.1 500 Internal Server Error\r\nConnection: close\r\n\
                             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n\
                             {body}"
                        );
                        let _ = from.write_all(answer.as_bytes());
                        break;
                    }
                }
            }
            self.wait();
            if to.write_all(chunk).is_err() {
                break;
            }
        }
        let _ = from.shutdown(std::net::Shutdown::Both);
        let _ = to.shutdown(std::net::Shutdown::Both);
    }

    /// Whether it is the request, for the first time.
    fn meets(&self, chunk: &[u8]) -> bool {
        let line = chunk.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let is_it = line.windows(self.request.len()).any(|part| part == self.request.as_bytes());
        is_it && !std::mem::replace(&mut self.state.lock().unwrap().is_met, true)
    }

    fn wait(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |state| state.is_stalled).unwrap());
    }
}
