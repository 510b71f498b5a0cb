//! The file of a journal, in the session's directory: read, replaced as a whole, removed.

use std::path::PathBuf;

use super::{Journal, Work};
use crate::layout;
use crate::object::DecodeError;
use crate::snapshot::SessionDir;
use crate::sys;

const JOURNAL_NAME: &[u8] = layout::RESTORE_JOURNAL.as_bytes();
/// A journal of millions of steps.
const MAX_BYTES: u64 = 1 << 32;

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in crate::restore) enum JournalError {
    #[error(transparent)]
    Io(#[from] sys::Error),
    #[error("the journal of a restore, {}, cannot be read: {source}", path.display())]
    Undecodable { path: PathBuf, source: DecodeError },
}

impl Journal {
    /// Reads the journal of a session, if there is one.
    pub(in crate::restore) fn load(session: &SessionDir) -> Result<Option<Self>, JournalError> {
        let Some(bytes) = Self::bytes(session)? else { return Ok(None) };
        let path = session.path().join(layout::RESTORE_JOURNAL);
        let journal = Self::decode(&bytes);
        journal.map(Some).map_err(|source| JournalError::Undecodable { path, source })
    }

    /// The journal as it is on the disk, whatever is in it.
    pub(in crate::restore) fn bytes(session: &SessionDir) -> sys::Result<Option<Vec<u8>>> {
        match session.dir()?.read(layout::RESTORE_JOURNAL.as_bytes(), MAX_BYTES) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.is_gone() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Puts the journal in place of the one before, durably.
    pub(in crate::restore) fn save(&self, session: &SessionDir) -> sys::Result<()> {
        self.save_as(self.work.as_ref(), session)
    }

    /// The same, with this work.
    pub(in crate::restore) fn save_with(
        &self,
        work: &Work,
        session: &SessionDir,
    ) -> sys::Result<()> {
        self.save_as(Some(work), session)
    }

    fn save_as(&self, work: Option<&Work>, session: &SessionDir) -> sys::Result<()> {
        let dir = session.dir()?;
        dir.replace_file_with(JOURNAL_NAME, 0o600, true, |file| self.write(work, file))
    }

    /// Removes the journal: the restore is over.
    pub(in crate::restore) fn remove(session: &SessionDir) -> sys::Result<()> {
        let dir = session.dir()?;
        dir.remove_file(JOURNAL_NAME)?;
        dir.sync()
    }

    /// Renames the journal, whatever is in it, so that it is kept and followed no more. `false`:
    /// there is none.
    pub(in crate::restore) fn set_aside(session: &SessionDir) -> sys::Result<bool> {
        let dir = session.dir()?;
        let aside = [JOURNAL_NAME, b".discarded"].concat();
        match dir.rename(JOURNAL_NAME, &dir, &aside) {
            Ok(()) => dir.sync().map(|()| true),
            Err(error) if error.is_gone() => Ok(false),
            Err(error) => Err(error),
        }
    }
}
