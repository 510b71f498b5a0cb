//! Reading a remote without a pull: `NAME:ID/N` in place of `ID/N`, and a mount.
//!
//! Each remote has a store of its own in the cache. What a command reads there comes from the
//! remote first, see [`Window`].

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use super::args::{home_dir, surroundings};
use super::commands::pull::{self, Wanted};
use super::context::Context;
use super::error::CliError;
use super::progress::Bar;
use super::sealing::{Target, UnsealArgs, identities};
use crate::config;
use nono_archive::ArchiveName;
use nono_archive::remote::{Inventory, Window};
use nono_engine::object::ContentHash;
use nono_engine::session::Catalog;
use nono_engine::store::set_origin;

/// A word that names a session of a remote, or a snapshot of one.
#[derive(Debug)]
pub(super) struct RemoteWord {
    /// The name of the remote.
    remote: String,
    /// The rest: ID or ID/N.
    id: String,
}

impl RemoteWord {
    /// The meaning of `NAME:ID`, where a remote has that name. `None` for every other word.
    pub(super) fn of(word: &OsStr) -> Result<Option<Self>, CliError> {
        let Some((name, id)) = word.to_str().and_then(|word| word.split_once(':')) else {
            return Ok(None);
        };
        let known = config::remotes(&surroundings()?)?;
        let is_known = known.iter().any(|remote| remote.name == name);
        Ok(is_known.then(|| Self { remote: name.to_owned(), id: id.to_owned() }))
    }

    /// Opens a store in the cache in which these sessions of one remote can be read. Returns it
    /// with the ids as they are there.
    pub(super) fn open(
        words: &[Self],
        unseal: &UnsealArgs,
        context: &Context,
    ) -> Result<(Catalog, Vec<String>), CliError> {
        let Some(first) = words.first() else {
            return Err(CliError::usage("name a session of the remote: NAME:ID"));
        };
        if words.iter().any(|word| word.remote != first.remote) {
            return Err(CliError::usage("two remotes are not compared: pull one of them"));
        }
        let target = Target::find(Some(&first.remote))?;
        let ids: Vec<String> = words.iter().map(|word| word.id.clone()).collect();
        let (window, wanted) = connect(&target, &ids, unseal, context)?;
        for id in wanted.keys() {
            window.show_session(id)?;
        }
        let root = root_of(&target)?;
        set_origin(&root, Arc::new(window))?;
        let whole = |word: &Self| {
            let (id, number) = word.id.split_once('/').unwrap_or((word.id.as_str(), ""));
            let id = wanted.keys().find(|known| known.starts_with(id)).map_or(id, String::as_str);
            if number.is_empty() { id.to_owned() } else { format!("{id}/{number}") }
        };
        Ok((Catalog::new(root, []), words.iter().map(whole).collect()))
    }
}

/// Where the store of a remote is in the cache.
pub(super) fn root_of(target: &Target) -> Result<PathBuf, CliError> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = match cache.filter(|path| path.is_absolute()) {
        Some(cache) => cache,
        None => home_dir()?.join(".cache"),
    };
    let name = ContentHash::of(target.address.to_string().as_bytes()).hex();
    Ok(cache.join("nono").join("remotes").join(&name[..16]))
}

/// Lets all sessions of a remote be read in its store in the cache. Their manifests come when they
/// are looked at.
#[cfg(feature = "mount")]
pub(super) fn open_all(
    target: &Target,
    unseal: &UnsealArgs,
    context: &Context,
) -> Result<(), CliError> {
    let (window, _) = connect(target, &[], unseal, context)?;
    window.show_names()?;
    Ok(set_origin(&root_of(target)?, Arc::new(window))?)
}

/// A window to the sessions that these ids mean, or to all for no id.
fn connect(
    target: &Target,
    ids: &[String],
    unseal: &UnsealArgs,
    context: &Context,
) -> Result<(Window, Wanted), CliError> {
    let keys = identities(unseal, target.encryption.as_ref())?;
    let place = target.open(false)?;
    let bar = Bar::new(context, "looking");
    let keys = keys.with_key_of(&place, &*bar)?;
    let inventory: Inventory = pull::inventory(ids, target, &place, &*bar)?;
    bar.finish();
    let wanted = pull::wanted(ids, &inventory, target)?;
    match ids {
        [] => target.needs_key(inventory.archives.all().map(|(name, _)| name), &keys)?,
        _ => {
            let sessions = wanted.keys().flat_map(|id| inventory.archives.of_session(id));
            target.needs_key(sessions.map(|(name, _)| name), &keys)?;
        }
    }
    let say = context.sayer();
    let tell = move |name: &ArchiveName| {
        say(format_args!("{name} has no index: it is read from its beginning"));
    };
    Ok((Window::new(place, &inventory, keys, &root_of(target)?, tell)?, wanted))
}
