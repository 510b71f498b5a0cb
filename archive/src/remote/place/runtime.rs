//! Everything asynchronous of this program's remotes: one thread that drives the network.
//!
//! Callers stay ordinary code: [`Runtime::wait`] runs a future in the calling thread, which looks
//! ten times a second whether it is to stop.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Once;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::remote::error::RemoteError;
use nono_engine::progress::Progress;
use nono_engine::sys;

/// Time between two looks whether to stop.
const LOOK: Duration = Duration::from_millis(100);

pub(super) struct Runtime {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    pub(super) fn start() -> io::Result<Self> {
        static PROVIDER: Once = Once::new();
        // The client of HTTP is built without a provider of its own.
        PROVIDER.call_once(|| {
            let _ = rustls::crypto::ring::default_provider().install_default();
        });
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let drive = move || {
            let _ = runtime.block_on(stopped);
        };
        let thread = sys::spawn("network", drive)?;
        Ok(Self { handle, stop: Some(stop), thread: Some(thread) })
    }

    /// Runs a future to its end, in this thread.
    ///
    /// # Errors
    /// [`RemoteError::Cancelled`]: the caller asked to stop, and the future was dropped.
    pub(super) fn wait<T>(
        &self,
        progress: &dyn Progress,
        future: impl Future<Output = T>,
    ) -> Result<T, RemoteError> {
        self.handle.block_on(async {
            let mut future = pin!(future);
            loop {
                if progress.is_cancelled() {
                    return Err(RemoteError::Cancelled);
                }
                if let Ok(done) = tokio::time::timeout(LOOK, &mut future).await {
                    return Ok(done);
                }
            }
        })
    }

    /// Runs a future to its end whatever the user asks: for clearing up.
    pub(super) fn finish<T>(&self, future: impl Future<Output = T>) -> T {
        self.handle.block_on(future)
    }

    /// Starts a future in the background.
    pub(super) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> tokio::task::JoinHandle<T> {
        self.handle.spawn(future)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
