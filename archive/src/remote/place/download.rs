//! Reading an object as it arrives.
//!
//! A download that breaks off goes on behind the last byte that came, as long as the object is the
//! same. The client does so in the first minutes of a download alone.

use std::io::{self, Read};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::{GetOptions, GetRange, GetResult};

use super::bucket::Cloud;
use super::connection::{MAX_REPETITIONS, is_unanswered};
use nono_engine::progress::Progress;

pub(super) struct Download<'a> {
    cloud: &'a Cloud,
    key: String,
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    chunk: Bytes,
    /// Names the contents of the object.
    e_tag: Option<String>,
    /// Number of bytes that came.
    came: u64,
    /// Number of attempts since the last byte came.
    attempts: usize,
    progress: &'a dyn Progress,
}

impl<'a> Download<'a> {
    pub(super) fn new(
        cloud: &'a Cloud,
        key: &str,
        got: GetResult,
        progress: &'a dyn Progress,
    ) -> Self {
        let (key, e_tag) = (key.to_owned(), got.meta.e_tag.clone());
        let stream = got.into_stream();
        Self { cloud, key, stream, chunk: Bytes::new(), e_tag, came: 0, attempts: 0, progress }
    }

    /// Asks for the rest after an error, which is returned where the rest cannot be had.
    fn go_on(&mut self, broken: object_store::Error) -> io::Result<()> {
        let (cloud, key) = (self.cloud, self.key.clone());
        let failed = |error| io::Error::other(cloud.failed("read", &key, error));
        let Some(e_tag) = self.e_tag.clone().filter(|_| is_unanswered(&broken)) else {
            return Err(failed(broken));
        };
        if self.attempts == MAX_REPETITIONS {
            return Err(failed(broken));
        }
        let options = GetOptions {
            if_match: Some(e_tag),
            range: Some(GetRange::Offset(self.came)),
            ..GetOptions::default()
        };
        let place = cloud.key(&key);
        let pause = cloud.client.patience.pause(self.attempts);
        let rest = async {
            tokio::time::sleep(pause).await;
            cloud.store().get_opts(&place, options).await
        };
        self.attempts += 1;
        match cloud.ask(self.progress, rest).map_err(io::Error::other)? {
            Ok(rest) if rest.range.start == self.came => {
                self.stream = rest.into_stream();
                Ok(())
            }
            // Another object has the name by now, or the server knows no parts.
            Ok(_) => Err(failed(broken)),
            Err(error) if is_unanswered(&error) => self.go_on(error),
            Err(_) => Err(failed(broken)),
        }
    }
}

impl Read for Download<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        while self.chunk.is_empty() {
            let next = self.cloud.runtime.wait(self.progress, self.stream.next());
            match next.map_err(io::Error::other)? {
                None => return Ok(0),
                Some(Ok(chunk)) => {
                    self.came += chunk.len() as u64;
                    self.attempts = if chunk.is_empty() { self.attempts } else { 0 };
                    self.chunk = chunk;
                }
                Some(Err(error)) => self.go_on(error)?,
            }
        }
        let len = buffer.len().min(self.chunk.len());
        buffer[..len].copy_from_slice(&self.chunk.split_to(len));
        Ok(len)
    }
}
