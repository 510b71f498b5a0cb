//! A source that remembers its own failure, so that a broken connection is not taken for damage.

use std::cell::RefCell;
use std::io::{self, Read};

use super::error::RemoteError;

/// Why the source failed, if it did.
#[derive(Debug, Default)]
pub(super) struct Failure(RefCell<Option<String>>);

pub(super) struct Watched<'a, R> {
    source: R,
    failure: &'a Failure,
}

impl Failure {
    /// A source whose failures end here.
    pub(super) fn watch<R: Read>(&self, source: R) -> Watched<'_, R> {
        Watched { source, failure: self }
    }

    /// The error of reading an object, if its source failed.
    pub(super) fn error(&self, object: &str, place: &str) -> Option<RemoteError> {
        let reason = self.0.borrow_mut().take()?;
        let (object, place) = (object.to_owned(), place.to_owned());
        Some(RemoteError::Failed { operation: "read", object, place, reason })
    }
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.source.read(buffer).inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                *self.failure.0.borrow_mut() = Some(error.to_string());
            }
        })
    }
}
