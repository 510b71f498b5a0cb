//! Words of commands that read: a session here, or one of a remote as `NAME:ID`.

use std::ffi::OsString;

use clap::Args;

use super::args::StoreArgs;
use super::context::Context;
use super::error::CliError;
#[cfg(feature = "archive")]
use super::remote_view::RemoteWord;
#[cfg(feature = "archive")]
use super::sealing::UnsealArgs;
use nono_engine::session::Catalog;

/// The keys for a session of a remote.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct ViewArgs {
    #[cfg(feature = "archive")]
    #[command(flatten)]
    unseal: UnsealArgs,
}

/// Sessions that a command reads.
pub(super) struct Viewed {
    pub(super) catalog: Catalog,
    /// The words, without the names of remotes.
    pub(super) words: Vec<OsString>,
    /// Whether they are sessions of a remote.
    pub(super) is_remote: bool,
}

impl ViewArgs {
    /// The sessions that words mean: those of a remote where one of them is `NAME:ID`.
    pub(super) fn view(
        &self,
        words: &[OsString],
        store: &StoreArgs,
        context: &Context,
    ) -> Result<Viewed, CliError> {
        #[cfg(feature = "archive")]
        if let Some(view) = self.view_of_remote(words, context)? {
            return Ok(view);
        }
        #[cfg(not(feature = "archive"))]
        let _ = context;
        Ok(Viewed { catalog: store.catalog()?, words: words.to_vec(), is_remote: false })
    }

    #[cfg(feature = "archive")]
    fn view_of_remote(
        &self,
        words: &[OsString],
        context: &Context,
    ) -> Result<Option<Viewed>, CliError> {
        let (mut remote, mut places) = (Vec::new(), Vec::new());
        for (at, word) in words.iter().enumerate() {
            if let Some(word) = RemoteWord::of(word)? {
                remote.push(word);
                places.push(at);
            }
        }
        if remote.is_empty() {
            return Ok(None);
        }
        let (catalog, ids) = RemoteWord::open(&remote, &self.unseal, context)?;
        let mut words = words.to_vec();
        for (at, id) in places.into_iter().zip(ids) {
            words[at] = id.into();
        }
        Ok(Some(Viewed { catalog, words, is_remote: true }))
    }
}
