//! A tar stream of the engine, read as it arrives.

use std::io::{self, Read};
use std::pin::Pin;

use bollard::errors::Error as BollardError;
use bollard::query_parameters::DownloadFromContainerOptions;
use futures_util::{Stream, StreamExt};

use super::docker::Docker;
use super::error::ContainerError;

type Chunks = Pin<Box<dyn Stream<Item = Result<Vec<u8>, BollardError>>>>;

/// The bytes of a path of a container, as a tar archive. Dropped early, it ends the request.
pub struct ArchiveReader<'a> {
    docker: &'a Docker,
    operation: String,
    chunks: Chunks,
    chunk: Vec<u8>,
    at: usize,
}

impl std::fmt::Debug for ArchiveReader<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArchiveReader").field("operation", &self.operation).finish_non_exhaustive()
    }
}

impl<'a> ArchiveReader<'a> {
    pub(super) fn new(docker: &'a Docker, container: &str, path: &str) -> Self {
        let options = DownloadFromContainerOptions { path: path.to_owned() };
        let stream = docker.client().download_from_container(container, Some(options));
        Self {
            docker,
            operation: format!("read {path} of container {container}"),
            chunks: Box::pin(stream.map(|chunk| chunk.map(Into::into))),
            chunk: Vec::new(),
            at: 0,
        }
    }

    fn next_chunk(&mut self) -> Result<bool, ContainerError> {
        let next = self.chunks.next();
        match self.docker.wait(&self.operation, next)? {
            None => Ok(false),
            Some(Ok(chunk)) => {
                (self.chunk, self.at) = (chunk, 0);
                Ok(true)
            }
            Some(Err(error)) => Err(self.docker.failed(&self.operation, error)),
        }
    }
}

impl Read for ArchiveReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.chunk.len() {
            if buffer.is_empty() || !self.next_chunk().map_err(io::Error::other)? {
                return Ok(0);
            }
        }
        let count = buffer.len().min(self.chunk.len() - self.at);
        buffer[..count].copy_from_slice(&self.chunk[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
