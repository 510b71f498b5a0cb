//! A server between the program and an object server, that does not pass on every answer.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The fate of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it has its answer.
    None,
    /// It has no answer, and did no work.
    Silence,
    /// It did its work, and has no answer.
    Lost,
    /// Its answer breaks off in the middle.
    Cut,
    /// Its answer ends in the middle, and does not say how long it is.
    CutSilently,
    /// It has this answer instead: a status, and a body.
    Answer(u16, String),
}

/// Decides by the head of a request.
type Decide = Box<dyn FnMut(&str) -> Fault + Send>;

#[derive(Clone)]
pub struct FaultyServer(Arc<Shared>);

struct Shared {
    /// The port of this server.
    port: u16,
    /// The host and the port of the object server.
    upstream: String,
    decide: Mutex<Decide>,
    /// The heads of the requests so far.
    requests: Mutex<Vec<String>>,
    /// Connections that have no answer.
    silent: Mutex<Vec<TcpStream>>,
}

impl FaultyServer {
    /// Starts one in front of the server with this host and port.
    pub fn before(upstream: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let shared = Arc::new(Shared {
            port: listener.local_addr().unwrap().port(),
            upstream: upstream.to_owned(),
            decide: Mutex::new(Box::new(|_| Fault::None)),
            requests: Mutex::default(),
            silent: Mutex::default(),
        });
        let served = Arc::clone(&shared);
        let serve = move || {
            for client in listener.incoming() {
                let (client, shared) = (client.unwrap(), Arc::clone(&served));
                std::thread::Builder::new().spawn(move || shared.serve(client)).unwrap();
            }
        };
        std::thread::Builder::new().spawn(serve).unwrap();
        Self(shared)
    }

    /// The address of a folder of the bucket.
    pub fn url(&self, folder: &str) -> String {
        format!("s3://bucket/{folder}?endpoint=http://127.0.0.1:{}&region=us-east-1", self.0.port)
    }

    /// From now on, requests meet what `decide` says of their heads. Forgets those so far.
    pub fn decide(&self, decide: impl FnMut(&str) -> Fault + Send + 'static) {
        *self.0.decide.lock().unwrap() = Box::new(decide);
        self.0.requests.lock().unwrap().clear();
    }

    /// From now on, the first `count` requests that have all of these words in their heads meet a
    /// fault. Forgets those so far.
    pub fn spoil(&self, count: usize, words: &'static [&'static str], fault: Fault) {
        let mut left = count;
        self.decide(move |head| {
            if left == 0 || !words.iter().all(|word| head.contains(word)) {
                return Fault::None;
            }
            left -= 1;
            fault.clone()
        });
    }

    /// The heads of the requests that have all of these words.
    pub fn requests(&self, words: &[&str]) -> Vec<String> {
        let heads = self.0.requests.lock().unwrap();
        let has_all = |head: &&String| words.iter().all(|word| head.contains(word));
        heads.iter().filter(has_all).cloned().collect()
    }
}

impl Shared {
    fn serve(&self, mut client: TcpStream) {
        let Some((head, body)) = read_request(&mut client) else { return };
        self.requests.lock().unwrap().push(head.clone());
        let fault = (self.decide.lock().unwrap())(&head);
        if let Fault::Answer(status, text) = &fault {
            let len = text.len();
            let _ = write!(
                client,
                "HTTP/1.1 {status} No\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{text}"
            );
            return;
        }
        if fault == Fault::Silence {
            self.silent.lock().unwrap().push(client);
            return;
        }
        let answer = self.pass_on(&head, &body);
        let begin = position(&answer, b"\r\n\r\n").unwrap() + 4;
        let middle = begin + (answer.len() - begin) / 2;
        // The program may have gone meanwhile.
        let _ = match fault {
            Fault::Lost => {
                self.silent.lock().unwrap().push(client);
                return;
            }
            Fault::Cut => client.write_all(&answer[..middle]),
            Fault::CutSilently => {
                let lines = String::from_utf8_lossy(&answer[..begin]).into_owned();
                let is_length = |line: &&str| line.to_lowercase().starts_with("content-length");
                let lines: Vec<&str> = lines.split("\r\n").filter(|it| !is_length(it)).collect();
                let head = lines.join("\r\n");
                client.write_all(&[head.as_bytes(), &answer[begin..middle]].concat())
            }
            _ => client.write_all(&answer),
        };
    }

    /// The answer of the object server, which ends its connection then.
    fn pass_on(&self, head: &str, body: &[u8]) -> Vec<u8> {
        let mut server = TcpStream::connect(&self.upstream).unwrap();
        let head = head.replacen("\r\n", "\r\nConnection: close\r\n", 1);
        server.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = Vec::new();
        server.read_to_end(&mut answer).unwrap();
        answer
    }
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// The head of a request, with the empty line at its end, and its body.
fn read_request(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 1 << 16];
    loop {
        let read = client.read(&mut buffer).ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&buffer[..read]);
        // A head is short: only then the search is too.
        let Some(end) = position(&bytes[..bytes.len().min(1 << 16)], b"\r\n\r\n") else { continue };
        let mut body = bytes.split_off(end + 4);
        let head = String::from_utf8(bytes).unwrap();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
        });
        let length: usize = length.unwrap_or_default();
        while body.len() < length {
            let read = client.read(&mut buffer).ok().filter(|read| *read > 0)?;
            body.extend_from_slice(&buffer[..read]);
        }
        return Some((head, body));
    }
}
