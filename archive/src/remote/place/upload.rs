//! Storing an object whose length is not known, under a name that must be free.
//!
//! A short object is one conditional request. A long one is sent in parts to a name of its own in
//! the folder `.incomplete`, then copied to its name on the condition that the name is free, and
//! the first copy is removed. So a name has a whole object or none, and the first pusher wins.
//!
//! A conditional request without an answer may have done its work. It is repeated, and where the
//! name is taken then, the object of that name tells whose it is.
//!
//! The upload is noted in [`uploads`](crate::remote::uploads), so the next push removes what a
//! killed one left.

use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::multipart::PartId;
use object_store::path::Path as Key;
use object_store::{ObjectStoreExt, PutMode, PutOptions, PutPayload};
use tokio::task::JoinHandle;

use super::bucket::{Cloud, INCOMPLETE};
use super::connection::{MAX_REPETITIONS, is_unanswered};
use crate::remote::error::RemoteError;
use crate::remote::uploads::NotedUpload;
use nono_engine::progress::Progress;
use nono_engine::sys;

/// Bytes of a part. 10,000 parts are the most that S3 takes, so an object has at most 80 GiB.
const PART_BYTES: usize = 8 << 20;
/// Longest time for the removal of an upload that ends early. What is left then, the next push
/// removes.
const CLEARING: Duration = Duration::from_secs(3);
/// Number of parts that are on the way at once.
const IN_FLIGHT: usize = 3;
/// Bytes at the beginning of an object that tell it from others: an encrypted archive has a key of
/// its own there.
const TELLING_BYTES: usize = 1 << 16;

pub(super) struct Upload<'a> {
    cloud: &'a Cloud,
    key: &'a str,
    progress: &'a dyn Progress,
    buffer: Vec<u8>,
    /// The first [`TELLING_BYTES`] of the object.
    beginning: Vec<u8>,
    written: u64,
    long: Option<Long>,
    failure: Option<RemoteError>,
}

/// The state of an upload in parts.
struct Long {
    staged: Key,
    noted: NotedUpload,
    started: usize,
    parts: Vec<PartId>,
    on_the_way: VecDeque<JoinHandle<object_store::Result<PartId>>>,
}

impl<'a> Upload<'a> {
    pub(super) fn new(cloud: &'a Cloud, key: &'a str, progress: &'a dyn Progress) -> Self {
        let (buffer, beginning) = (Vec::new(), Vec::new());
        Self { cloud, key, progress, buffer, beginning, written: 0, long: None, failure: None }
    }

    /// Why a write failed, if one did.
    pub(super) fn failure(&mut self) -> Option<RemoteError> {
        self.failure.take()
    }

    fn failed(&self, error: object_store::Error) -> RemoteError {
        self.cloud.failed("store", self.key, error)
    }

    /// The store, for a task of its own.
    fn shared_store(&self) -> std::sync::Arc<dyn super::client::PartStore> {
        std::sync::Arc::clone(&self.cloud.client.store)
    }

    fn begin(&self) -> Result<Long, RemoteError> {
        let own = hex::encode(sys::random_bytes()?);
        let staged = self.cloud.key(&format!("{INCOMPLETE}/{own}"));
        let begun = self.shared_store();
        let place = staged.clone();
        let begun = async move { begun.create_multipart(&place).await };
        let upload = self.cloud.ask(self.progress, begun)?;
        let upload = upload.map_err(|error| self.failed(error))?;
        let noted = NotedUpload::note(&self.cloud.place, staged.as_ref(), &upload)?;
        Ok(Long { staged, noted, started: 0, parts: Vec::new(), on_the_way: VecDeque::new() })
    }

    /// Sends the buffer as the next part, when there is room for one.
    fn send_part(&mut self) -> Result<(), RemoteError> {
        if self.long.is_none() {
            self.long = Some(self.begin()?);
        }
        let store = self.shared_store();
        let part = Bytes::from(std::mem::replace(&mut self.buffer, Vec::with_capacity(PART_BYTES)));
        self.wait_for_room(IN_FLIGHT - 1)?;
        let Some(long) = &mut self.long else { return Ok(()) };
        let (staged, upload, index) =
            (long.staged.clone(), long.noted.upload().to_owned(), long.started);
        long.started += 1;
        long.on_the_way.push_back(self.cloud.runtime.spawn(async move {
            store.put_part(&staged, &upload, index, PutPayload::from(part)).await
        }));
        Ok(())
    }

    /// Waits until at most `count` parts are on the way.
    fn wait_for_room(&mut self, count: usize) -> Result<(), RemoteError> {
        while let Some(long) = &mut self.long
            && long.on_the_way.len() > count
            && let Some(first) = long.on_the_way.pop_front()
        {
            let sent = self.cloud.ask(self.progress, first)?;
            let sent = sent.unwrap_or_else(|error| {
                Err(object_store::Error::Generic { store: "upload", source: Box::new(error) })
            });
            match sent {
                Ok(part) => long.parts.push(part),
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(())
    }

    /// Lets the object appear. `None`: the name is taken.
    pub(super) fn finish(mut self) -> Result<Option<u64>, RemoteError> {
        if self.long.is_none() {
            return self.put_whole();
        }
        if !self.buffer.is_empty() {
            self.send_part()?;
        }
        self.wait_for_room(0)?;
        let Some(long) = &mut self.long else { return Ok(None) };
        let parts = std::mem::take(&mut long.parts);
        let (staged, upload) = (long.staged.clone(), long.noted.upload().to_owned());
        let store = self.shared_store();
        let completed = store.complete_multipart(&staged, &upload, parts);
        let completed = self.cloud.ask(self.progress, completed)?;
        completed.map_err(|error| self.failed(error))?;
        let target = self.cloud.key(self.key);
        // The staged copy goes when `self` does, whatever came of it.
        self.take_name(&target, || store.copy_if_not_exists(&staged, &target))
    }

    fn put_whole(&mut self) -> Result<Option<u64>, RemoteError> {
        let bytes = Bytes::from(std::mem::take(&mut self.buffer));
        let target = self.cloud.key(self.key);
        let store = self.shared_store();
        self.take_name(&target, || {
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            store.put_opts(&target, PutPayload::from(bytes.clone()), options)
        })
    }

    /// Repeats a conditional request until it has an answer. `None`: another object has the name.
    fn take_name<T, F: Future<Output = object_store::Result<T>>>(
        &self,
        target: &Key,
        request: impl Fn() -> F,
    ) -> Result<Option<u64>, RemoteError> {
        let patience = self.cloud.client.patience;
        let began = Instant::now();
        let mut unanswered = 0;
        loop {
            match self.cloud.ask(self.progress, request())? {
                Ok(_) => return Ok(Some(self.written)),
                Err(error) if is_taken(&error) => {
                    let is_own = unanswered > 0 && self.is_own(target)?;
                    return Ok(is_own.then_some(self.written));
                }
                Err(error)
                    if is_unanswered(&error)
                        && unanswered < MAX_REPETITIONS
                        && began.elapsed() < patience.attempts() =>
                {
                    let pause = patience.pause(unanswered);
                    // A timer is made within the runtime alone.
                    let pause = async { tokio::time::sleep(pause).await };
                    self.cloud.ask(self.progress, pause)?;
                    unanswered += 1;
                }
                Err(error) => return Err(self.failed(error)),
            }
        }
    }

    /// Whether the object of a name has the length and the beginning of this one.
    fn is_own(&self, target: &Key) -> Result<bool, RemoteError> {
        let store = self.cloud.store();
        let same = async {
            if store.head(target).await?.size != self.written {
                return Ok(false);
            }
            if self.beginning.is_empty() {
                return Ok(true);
            }
            let found = store.get_range(target, 0..self.beginning.len() as u64).await?;
            Ok(found == self.beginning)
        };
        match self.cloud.ask(self.progress, same)? {
            // Removed meanwhile.
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            same => same.map_err(|error| self.failed(error)),
        }
    }
}

fn is_taken(error: &object_store::Error) -> bool {
    use object_store::Error::{AlreadyExists, Precondition};
    matches!(error, AlreadyExists { .. } | Precondition { .. })
}

impl Write for Upload<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.progress.is_cancelled() {
            self.failure = Some(RemoteError::Cancelled);
            return Err(io::Error::other(RemoteError::Cancelled));
        }
        // A full buffer waits for one more byte: a short object has no parts.
        if self.buffer.len() == PART_BYTES
            && let Err(error) = self.send_part()
        {
            let text = error.to_string();
            self.failure = Some(error);
            return Err(io::Error::other(text));
        }
        let len = bytes.len().min(PART_BYTES - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..len]);
        let telling = len.min(TELLING_BYTES - self.beginning.len());
        self.beginning.extend_from_slice(&bytes[..telling]);
        self.written += len as u64;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        let Some(long) = self.long.take() else { return };
        for part in &long.on_the_way {
            part.abort();
        }
        let store = self.shared_store();
        let upload = long.noted.upload().to_owned();
        let clear = async {
            // Refused after the completion, when nothing is left to end.
            let _ = store.abort_multipart(&long.staged, &upload).await;
            store.delete(&long.staged).await
        };
        // The user may have stopped the push because nothing answers.
        let cleared =
            self.cloud.runtime.finish(async { tokio::time::timeout(CLEARING, clear).await });
        if matches!(cleared, Ok(Ok(()) | Err(object_store::Error::NotFound { .. }))) {
            long.noted.forget();
        }
    }
}
