//! The text that `nono agent install --dry-run` shows, as a patch (`patch -p1 -d /` applies it).

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use crate::agent::install::{Edit, NEW_FILE_MODE};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::render::{DiffOptions, Palette, write_patch};
use nono_engine::diff::{Difference, EntryState};
use nono_engine::object::{Attributes, Node};
use nono_engine::store::{MemoryStore, ObjectStore, StoreError};

/// Writes the changes of files as one patch.
pub(super) fn write_preview(edits: &[Edit], context: &Context) -> Result<(), CliError> {
    let store = MemoryStore::new();
    let state = |bytes: Option<&[u8]>| -> Result<Option<Arc<EntryState>>, StoreError> {
        let Some(bytes) = bytes else { return Ok(None) };
        let node = Node::file(bytes.len() as u64, store.write(bytes)?.hash);
        // The mode stays as it is: one mode for both sides says nothing of it.
        let attributes = Attributes { mode: NEW_FILE_MODE, ..Attributes::default() };
        Ok(Some(Arc::new(EntryState { attributes, node })))
    };
    let mut differences = Vec::new();
    for edit in edits.iter().filter(|edit| edit.is_change) {
        let path = edit.path.as_os_str().as_bytes().to_vec();
        let (old, new) = (state(edit.before())?, state(edit.after())?);
        let (is_relinked, is_refreshed) = (false, false);
        differences.push(Difference { path, old, new, is_relinked, is_refreshed });
    }
    differences.sort_by(|a, b| a.path.cmp(&b.path));
    let mut options = DiffOptions::new(&store, &[]);
    options.escape = context.stdout_is_terminal;
    if context.colours() {
        options.palette = Palette::coloured();
    }
    let mut out = context.out_bytes();
    write_patch(&mut out, &differences, &options)?;
    Ok(out.flush()?)
}
