//! A bucket of an object store as a remote.

use std::future::Future;
use std::io::Read;
use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};

use super::client::{self, Client};
use super::download::Download;
use super::masking::masked;
use super::refusals;
use super::runtime::Runtime;
use super::upload::Upload;
use super::{Backend, Source, Stored};
use crate::remote::address::{Bucket, Provider};
use crate::remote::error::RemoteError;
use crate::remote::uploads;
use nono_engine::path_text::Shown;
use nono_engine::progress::Progress;

/// Folder of objects that are being stored, in the folder of the remote.
pub(super) const INCOMPLETE: &str = ".incomplete";

pub(super) struct Cloud {
    // Before the runtime: its connections end first.
    pub(super) client: Client,
    pub(super) runtime: Runtime,
    provider: Provider,
    folder: String,
    pub(super) place: String,
    /// Set once credentials were found.
    has_credentials: OnceLock<()>,
}

impl Cloud {
    pub(super) fn open(bucket: &Bucket, place: String) -> Result<Self, RemoteError> {
        let setup = |reason: String| RemoteError::Setup { place: place.clone(), reason };
        let runtime = Runtime::start().map_err(|error| setup(error.to_string()))?;
        let client = runtime.finish(async { client::connect(bucket) });
        let client = client
            .map_err(|reason| setup(masked(&reason, &super::masking::secrets_of_environment())))?;
        let (provider, folder) = (bucket.provider, bucket.folder.clone());
        Ok(Self { client, runtime, provider, folder, place, has_credentials: OnceLock::new() })
    }

    /// Runs a request to its end. Credentials are fetched before the first one.
    pub(super) fn ask<T>(
        &self,
        progress: &dyn Progress,
        request: impl Future<Output = T>,
    ) -> Result<T, RemoteError> {
        if let (None, Some(fetch)) = (self.has_credentials.get(), &self.client.credentials) {
            // Where no machine has a role, nothing answers.
            let fetched =
                async { tokio::time::timeout(self.client.patience.answer, fetch()).await };
            let reason = match self.runtime.wait(progress, fetched)? {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(super::client::words(&error)),
                Err(_) => Some("no answer came".to_owned()),
            };
            if let Some(reason) = reason {
                let reason = masked(&reason, &self.client.secrets);
                let reason =
                    refusals::no_credentials(self.provider, self.client.has_no_settings, &reason);
                return Err(RemoteError::Setup { place: self.place.clone(), reason });
            }
        }
        let _ = self.has_credentials.set(());
        self.runtime.wait(progress, request)
    }

    /// The name of an object in the bucket.
    pub(super) fn key(&self, key: &str) -> Key {
        match self.folder.as_str() {
            "" => Key::from(key),
            folder => Key::from(format!("{folder}/{key}")),
        }
    }

    pub(super) fn store(&self) -> &dyn ObjectStore {
        &*self.client.store
    }

    pub(super) fn failed(
        &self,
        operation: &'static str,
        object: &str,
        error: object_store::Error,
    ) -> RemoteError {
        if let object_store::Error::NotFound { .. } = &error
            && operation == "read"
        {
            return RemoteError::Missing { object: object.to_owned(), place: self.place.clone() };
        }
        let reason = refusals::in_words(self.provider, &self.client.region, &error);
        let mut reason = masked(&reason, &self.client.secrets);
        if let object_store::Error::InvalidPath { .. } = &error {
            // The client gives no list at all then.
            let words = "move that object away with the provider's own tool";
            reason = format!("{}; {words}", Shown::bytes(reason.as_bytes()));
        }
        RemoteError::Failed {
            operation,
            object: object.to_owned(),
            place: self.place.clone(),
            reason,
        }
    }
}

impl Backend for Cloud {
    fn list(&self, folder: &str, progress: &dyn Progress) -> Result<Vec<Stored>, RemoteError> {
        let below = self.key(folder);
        let start = match self.folder.as_str() {
            "" => String::new(),
            folder => format!("{}/", Key::from(folder)),
        };
        let listed = async {
            let mut stored = Vec::new();
            let mut objects = self.store().list(Some(&below));
            while let Some(object) = objects.next().await {
                let object = object?;
                let Some(key) = object.location.as_ref().strip_prefix(&start) else { continue };
                if !key.starts_with('.') {
                    stored.push(Stored { key: key.to_owned(), size_bytes: object.size });
                }
            }
            Ok(stored)
        };
        let listed = self.ask(progress, listed)?;
        listed.map_err(|error| self.failed("list", "the archives", error))
    }

    fn put_new(
        &self,
        key: &str,
        source: &mut Source<'_>,
        progress: &dyn Progress,
    ) -> Result<Option<u64>, RemoteError> {
        let mut upload = Upload::new(self, key, progress);
        match source(&mut upload) {
            Ok(()) => upload.finish(),
            Err(error) => Err(upload.failure().unwrap_or(RemoteError::Source(error))),
        }
    }

    fn open<'a>(
        &'a self,
        key: &str,
        progress: &'a dyn Progress,
    ) -> Result<Box<dyn Read + Send + 'a>, RemoteError> {
        let place = self.key(key);
        let got = self.ask(progress, self.store().get(&place))?;
        let got = got.map_err(|error| self.failed("read", key, error))?;
        Ok(Box::new(Download::new(self, key, got, progress)))
    }

    fn read_range(
        &self,
        key: &str,
        range: Range<u64>,
        progress: &dyn Progress,
    ) -> Result<Bytes, RemoteError> {
        let place = self.key(key);
        let read = self.ask(progress, self.store().get_range(&place, range))?;
        read.map_err(|error| self.failed("read", key, error))
    }

    fn remove(&self, key: &str, progress: &dyn Progress) -> Result<(), RemoteError> {
        let place = self.key(key);
        match self.ask(progress, self.store().delete(&place))? {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.failed("remove", key, error)),
        }
    }

    fn probe(&self, progress: &dyn Progress) -> Result<(), RemoteError> {
        let below = self.key("");
        let first = async { self.store().list(Some(&below)).next().await.transpose() };
        let first = self.ask(progress, first)?;
        first.map(drop).map_err(|error| self.failed("list", "the archives", error))
    }

    fn clear_leftovers(&self, progress: &dyn Progress) -> Result<(), RemoteError> {
        for left in uploads::left_by_dead(&self.place)? {
            let key = Key::from(left.key());
            let cleared = async {
                // An upload that is gone already is no failure, whatever the provider answers.
                let _ = self.client.store.abort_multipart(&key, &left.upload().to_owned()).await;
                match self.store().delete(&key).await {
                    Err(object_store::Error::NotFound { .. }) | Ok(()) => Ok(()),
                    Err(error) => Err(error),
                }
            };
            let cleared = self.ask(progress, cleared)?;
            cleared.map_err(|error| self.failed("remove", left.key(), error))?;
            left.forget();
        }
        Ok(())
    }
}
