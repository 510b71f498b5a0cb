//! An S3 server for one test: `moto`, in a process of its own, with one bucket in memory.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::process::{Pid, Signal};

use crate::not_run::not_run;

/// The server's credentials. No output of the program may repeat the second.
pub const KEY_ID: &str = "AKIAEXAMPLEKEYID";
pub const SECRET: &str = "sEcReTvAlUeOfTheTest0123456789";

pub struct ObjectServer {
    process: Child,
    address: String,
    /// The log: a line for each request.
    requests: Receiver<String>,
}

impl ObjectServer {
    /// Starts one. `None`, and said so, where moto is missing.
    pub fn start() -> Option<Self> {
        let Some(program) = program() else {
            not_run("moto is missing (scripts/test installs it)");
            return None;
        };
        let server = Self::of(Command::new(program).args(["-H", "127.0.0.1", "-p", "0"]));
        let answer = server.request("PUT /bucket HTTP/1.1");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        server.next_request();
        Some(server)
    }

    /// Starts one whose bucket holds so many archives. `None`, and said so, where moto is missing.
    pub fn start_full(archives: usize) -> Option<Self> {
        let python = program().and_then(|program| {
            let python = program.parent()?.join("python");
            python.exists().then_some(python)
        });
        let Some(python) = python else {
            not_run("moto is missing (scripts/test installs it)");
            return None;
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/remotes/full_bucket.py");
        Some(Self::of(Command::new(python).arg(script).arg(archives.to_string())))
    }

    fn of(command: &mut Command) -> Self {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut address = None;
        while address.is_none() {
            let mut line = String::new();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "the server ended");
            address = line.split("http://").nth(1).map(|rest| rest.trim().to_owned());
        }
        let (sender, requests) = channel();
        std::thread::Builder::new()
            .spawn(move || {
                for line in log.lines().map_while(Result::ok) {
                    if line.contains("HTTP/1.1") && sender.send(line).is_err() {
                        break;
                    }
                }
            })
            .unwrap();
        Self { process, address: address.unwrap(), requests }
    }

    fn request(&self, line: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let host = &self.address;
        write!(stream, "{line}\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Its host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The address of a folder of the bucket.
    pub fn url(&self, folder: &str) -> String {
        format!("s3://bucket/{folder}?endpoint=http://{}&region=us-east-1", self.address)
    }

    /// The environment in which the program may use the server.
    pub fn allow(&self, command: &mut Command) {
        command.env("AWS_ACCESS_KEY_ID", KEY_ID).env("AWS_SECRET_ACCESS_KEY", SECRET);
    }

    /// Waits for a request, and returns its line in the log.
    pub fn next_request(&self) -> String {
        let patience = std::time::Duration::from_secs(60);
        self.requests.recv_timeout(patience).expect("a request within a minute")
    }

    /// Lets it answer nothing, until what is returned is dropped.
    pub fn pause(&self) -> Paused<'_> {
        self.signal(Signal::STOP);
        Paused(self)
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Forgets the requests so far.
    pub fn forget_requests(&self) {
        while self.requests.try_recv().is_ok() {}
    }
}

/// A server that answers nothing.
pub struct Paused<'a>(&'a ObjectServer);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.signal(Signal::CONT);
    }
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn program() -> Option<PathBuf> {
    let named = std::env::var_os("NONO_TEST_S3").map(PathBuf::from);
    let usual =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-tools/moto/bin/moto_server");
    named.or(Some(usual)).filter(|program| program.exists())
}
