//! Reading an object as it arrives.

use std::io::{self, Read};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;

use super::bucket::Cloud;
use crate::remote::error::RemoteError;
use nono_engine::progress::Progress;

pub(super) struct Download<'a> {
    cloud: &'a Cloud,
    key: String,
    stream: BoxStream<'static, object_store::Result<Bytes>>,
    chunk: Bytes,
    progress: &'a dyn Progress,
}

impl<'a> Download<'a> {
    pub(super) fn new(
        cloud: &'a Cloud,
        key: &str,
        stream: BoxStream<'static, object_store::Result<Bytes>>,
        progress: &'a dyn Progress,
    ) -> Self {
        Self { cloud, key: key.to_owned(), stream, chunk: Bytes::new(), progress }
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
                Some(Ok(chunk)) => self.chunk = chunk,
                Some(Err(error)) => {
                    let failed: RemoteError = self.cloud.failed("read", &self.key, error);
                    return Err(io::Error::other(failed));
                }
            }
        }
        let len = buffer.len().min(self.chunk.len());
        buffer[..len].copy_from_slice(&self.chunk.split_to(len));
        Ok(len)
    }
}
