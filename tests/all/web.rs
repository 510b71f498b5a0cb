//! `nono ui` as a program speaks to it: a server of its own for a test, and HTTP over one connection
//! for each request.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use crate::fixture::Fixture;

/// Far longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server with the cookie of its opened address.
pub struct Web {
    server: Child,
    _output: BufReader<ChildStdout>,
    pub port: u16,
    /// The address that was printed; used by [`Web::start`].
    pub address: String,
    pub cookie: String,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The value of a field of the head.
    pub fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut fields = fields.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        fields.next().map(|(_, value)| value.trim())
    }

    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.status, 200, "{}\n{}", self.head, self.text());
        self
    }
}

impl Web {
    /// Starts a server, and opens its address.
    pub fn start(fixture: &Fixture) -> Self {
        let mut web = Self::unopened(fixture, &[]);
        let path = web.address.strip_prefix(&web.origin()).unwrap().to_owned();
        let host = web.host();
        let opened = web.send("GET", &path, &[("Host", &host)], b"");
        assert_eq!(opened.status, 303, "{}", opened.text());
        assert_eq!(opened.field("location"), Some("/"));
        let cookie = opened.field("set-cookie").unwrap();
        assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
        web.cookie = cookie.split(';').next().unwrap().to_owned();
        web
    }

    /// Starts a server that nothing has opened.
    pub fn unopened(fixture: &Fixture, flags: &[&str]) -> Self {
        Self::of(fixture.command_to_be_signalled(&[&["ui", "--no-open"], flags].concat()))
    }

    /// A server by its command, whose address nothing has opened.
    pub fn of(mut command: std::process::Command) -> Self {
        let mut server = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env("NONO_LOG", "nono=debug")
            .spawn()
            .unwrap();
        let mut output = BufReader::new(server.stdout.take().unwrap());
        let mut address = String::new();
        output.read_line(&mut address).unwrap();
        let address = address.trim().to_owned();
        let port = address.split([':', '/']).nth(4).unwrap().parse().unwrap();
        Self { server, _output: output, port, address, cookie: String::new() }
    }

    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn origin(&self) -> String {
        format!("http://{}", self.host())
    }

    /// Sends a request with just these fields, and reads the answer to its end.
    pub fn send(&self, method: &str, path: &str, head: &[(&str, &str)], body: &[u8]) -> Answer {
        request(self.port, method, path, head, body)
    }

    /// Sends a request, and leaves the answer to be read.
    pub fn begin(&self, method: &str, path: &str, head: &[(&str, &str)], body: &[u8]) -> TcpStream {
        begin(self.port, method, path, head, body).unwrap()
    }

    /// A page, as a browser asks for it.
    pub fn get(&self, path: &str) -> Answer {
        let host = self.host();
        self.send("GET", path, &[("Host", &host), ("Cookie", &self.cookie)], b"")
    }

    /// A form, as a browser sends it.
    pub fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let (host, origin) = (self.host(), self.origin());
        let body = encoded(fields);
        let head = [
            ("Host", &*host),
            ("Origin", &*origin),
            ("Cookie", &*self.cookie),
            ("Content-Type", "application/x-www-form-urlencoded"),
        ];
        self.send("POST", path, &head, body.as_bytes())
    }

    /// Stops the server as Ctrl-C does. What it said on stderr.
    pub fn stop(mut self) -> (Option<i32>, String) {
        let pid = rustix::process::Pid::from_child(&self.server);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        self.ended()
    }

    /// Waits for its end.
    pub fn wait(mut self) -> (Option<i32>, String) {
        self.ended()
    }

    fn ended(&mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.server.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (self.server.wait().unwrap().code(), said)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Sends a request to a port of this machine, and reads the answer to its end.
pub fn request(port: u16, method: &str, path: &str, head: &[(&str, &str)], body: &[u8]) -> Answer {
    let mut stream = BufReader::new(begin(port, method, path, head, body).unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{path}: no end of the head: {head}");
    }
    let head = head.trim_end().to_owned();
    let fields = head.to_ascii_lowercase();
    let length = fields.lines().find_map(|line| line.strip_prefix("content-length:"));
    let mut body = vec![0; length.map_or(0, |length| length.trim().parse().unwrap())];
    // A server may leave the connection open.
    match length {
        Some(_) => stream.read_exact(&mut body).unwrap(),
        None => drop(stream.read_to_end(&mut body).unwrap()),
    }
    if fields.contains("transfer-encoding: chunked") {
        body = unchunked(&body);
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head, body }
}

/// Sends a request, and leaves the answer to be read.
pub fn begin(
    port: u16,
    method: &str,
    path: &str,
    head: &[(&str, &str)],
    body: &[u8],
) -> std::io::Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    for (name, value) in head {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    stream.write_all(&[text.as_bytes(), body].concat())?;
    Ok(stream)
}

/// Fields as a browser writes them.
pub fn encoded(fields: &[(&str, &str)]) -> String {
    let escape = |text: &str| -> String {
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
        let one = |byte: u8| match plain(&byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        };
        text.bytes().map(one).collect()
    };
    let pairs = fields.iter().map(|(key, value)| format!("{}={}", escape(key), escape(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).unwrap();
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        body.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 2 + size + 2..];
    }
    body
}
