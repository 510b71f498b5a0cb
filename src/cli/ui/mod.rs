//! `nono ui`: a page of this machine that shows what the agents did, and takes it back.
//!
//! A server of the program on 127.0.0.1, and pages of plain HTML that it makes itself. Styles, the
//! script and the icon are in the program; a page loads nothing from elsewhere. The model of a
//! session is the one of the timeline ([`looking`](crate::cli::looking)), and the work of an undo the
//! one of the engine: plan, safety snapshot, journal, report.
//!
//! Always true:
//!
//! - An answer about the past needs the cookie of the opened address ([`guard`]).
//! - Data is never markup ([`html`]): names, contents and prompts are hostile.
//! - A page has a limit of rows, lines and bytes. A long list comes in pages, a large directory is
//!   loaded when it is opened, a huge file is named and not read.
//! - Nothing changes without a form of this server, and an undo not without the number of its paths.
//!
//! An export is one session as a page without a server and without a script ([`export`](mod@export)).

mod app;
mod changed;
mod export;
mod guard;
mod html;
mod pages;
mod program;
mod server;
mod working;

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::error::CliError;
use app::App;
use guard::Guard;
use nono_engine::session::Catalog;

pub(super) use export::{Exported, export};

/// A server that listens, and answers nothing yet.
pub(super) struct Server {
    app: Arc<App>,
    listener: TcpListener,
}

impl Server {
    /// Listens at a port of 127.0.0.1; at 0, the system chooses one. `home` names projects.
    ///
    /// # Errors
    /// When the port is taken.
    pub(super) fn listen(
        port: u16,
        catalog: Catalog,
        home: Option<PathBuf>,
        threads: usize,
        idle_time: Duration,
    ) -> Result<Self, CliError> {
        let failed = |error: io::Error| {
            CliError::failed(format!("cannot listen at port {port} of 127.0.0.1: {error}"))
                .with_hint("without --port, a free one is chosen")
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let guard = Guard::new(port)?;
        Ok(Self { app: Arc::new(App::new(catalog, guard, home, threads, idle_time)), listener })
    }

    /// The address to open, once.
    pub(super) fn address(&self) -> String {
        self.app.guard.address()
    }

    /// Serves until Ctrl-C, or until nothing was asked for a while.
    ///
    /// # Errors
    /// When connections cannot be accepted.
    pub(super) fn serve(self) -> Result<(), CliError> {
        let reads = Arc::clone(&self.app);
        server::serve(self.app, self.listener)
            .map_err(|error| CliError::failed(format!("the server failed: {error}")))?;
        tracing::debug!("{} manifests of sessions were read", reads.read_count());
        Ok(())
    }
}
