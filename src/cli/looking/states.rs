//! Two states of a session with what changed between them: the subject of the page of changes.

use std::cell::Cell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cli::render::{
    DiffOptions, LineKind, MarkedLine, RenderError, marked_lines, renamed_lines, without_hunks,
    write_patch,
};
use crate::cli::repositories::{Repositories, Told};
use nono_engine::diff::{Change, Difference, Lookup};
use nono_engine::git;
use nono_engine::object::{ContentHash, RootTree};
use nono_engine::snapshot::{SessionDir, SnapshotManifest};
use nono_engine::store::{ObjectSource, StoreError, read_root_tree};

/// Paths that are compared before the first line is written.
const CHUNK: usize = 200;

/// Both states, and where their contents are.
pub(crate) struct States<'a> {
    session: &'a SessionDir,
    source: &'a dyn ObjectSource,
    old: RootTree,
    new: RootTree,
    /// Merkle roots of both.
    merkle_roots: [ContentHash; 2],
    /// Numbers of both.
    numbers: [u64; 2],
    roots: Vec<PathBuf>,
}

impl<'a> States<'a> {
    /// Opens both.
    ///
    /// # Errors
    /// When a root tree is missing or damaged.
    pub(crate) fn new(
        session: &'a SessionDir,
        source: &'a dyn ObjectSource,
        old: &SnapshotManifest,
        new: &SnapshotManifest,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            session,
            source,
            old: read_root_tree(source, &old.merkle_root)?,
            new: read_root_tree(source, &new.merkle_root)?,
            merkle_roots: [old.merkle_root, new.merkle_root],
            numbers: [old.number, new.number],
            roots: old.roots.iter().map(|root| root.path.clone()).collect(),
        })
    }

    pub(crate) fn session(&self) -> &'a SessionDir {
        self.session
    }

    pub(crate) fn source(&self) -> &'a dyn ObjectSource {
        self.source
    }

    /// Numbers of the older and the newer state.
    pub(crate) fn numbers(&self) -> [u64; 2] {
        self.numbers
    }

    /// The tracked paths.
    pub(crate) fn roots(&self) -> &[PathBuf] {
        &self.roots
    }

    /// Paths of the older state.
    pub(crate) fn old_states(&self) -> Lookup<'_> {
        Lookup::new(self.source, &self.old)
    }

    /// Paths of the newer state.
    pub(crate) fn new_states(&self) -> Lookup<'_> {
        Lookup::new(self.source, &self.new)
    }

    /// How differences are shown on a terminal, without colours.
    pub(crate) fn options(&self) -> DiffOptions<'_> {
        DiffOptions { escape: true, ..DiffOptions::new(self.source, &self.roots) }
    }

    /// The lines of some changes, until `take` wants no more.
    pub(crate) fn lines(
        &self,
        changes: &[Change],
        options: &DiffOptions<'_>,
        take: &mut dyn FnMut(MarkedLine) -> bool,
    ) -> Result<(), StoreError> {
        let (mut old, mut new) = (self.old_states(), self.new_states());
        let goes_on = Cell::new(true);
        let mut counted = |line| {
            goes_on.set(take(line));
            goes_on.get()
        };
        for change in changes {
            match difference(change, &mut old, &mut new)? {
                Some(found) => marked_lines(&[found], options, &mut counted)?,
                None => self.repository_lines(&change.path, &mut counted)?,
            }
            if !goes_on.get() {
                break;
            }
        }
        Ok(())
    }

    /// The lines of a file that has another name now.
    pub(crate) fn renamed(
        &self,
        gone: &Change,
        made: &Change,
        options: &DiffOptions<'_>,
        take: &mut dyn FnMut(MarkedLine) -> bool,
    ) -> Result<(), StoreError> {
        let (mut old, mut new) = (self.old_states(), self.new_states());
        let found = (difference(gone, &mut old, &mut new)?, difference(made, &mut old, &mut new)?);
        match found {
            (Some(gone), Some(made)) => renamed_lines(&gone, &made, options, take),
            _ => Ok(()),
        }
    }

    /// Whether the newer state is a snapshot of the session, and not the files of now.
    pub(crate) fn is_recorded(&self) -> bool {
        let newer = self.session.manifest(self.numbers[1]);
        newer.is_ok_and(|it| it.manifest.merkle_root == self.merkle_roots[1])
    }

    /// The newer text of a file without some hunks, each by its number from 0 and its header.
    pub(crate) fn without_hunks(
        &self,
        change: &Change,
        hunks: &[(usize, &str)],
        options: &DiffOptions<'_>,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let (mut old, mut new) = (self.old_states(), self.new_states());
        match difference(change, &mut old, &mut new)? {
            Some(found) => without_hunks(&found, hunks, options),
            None => Ok(None),
        }
    }

    fn repository_lines(
        &self,
        git_dir: &Path,
        take: &mut dyn FnMut(MarkedLine) -> bool,
    ) -> Result<(), StoreError> {
        for line in self.said_of(git_dir)? {
            if !take(MarkedLine::remark(LineKind::Remark, line)) {
                break;
            }
        }
        Ok(())
    }

    /// The moves of HEAD and the refs of a git directory, which is one change as a whole.
    fn said_of(&self, git_dir: &Path) -> Result<Vec<String>, StoreError> {
        let inside = [git_dir.join("HEAD").into_os_string().into_encoded_bytes()];
        let [old, new] = &self.merkle_roots;
        let found = git::repositories(self.source, old, new, inside)?;
        Ok(Repositories::restored(&found, &self.roots).said(Told::Done))
    }

    /// Writes a patch of these changes.
    pub(crate) fn write_patch(
        &self,
        out: &mut dyn Write,
        changes: &[Change],
        options: &DiffOptions<'_>,
    ) -> Result<(), RenderError> {
        let (mut old, mut new) = (self.old_states(), self.new_states());
        for chunk in changes.chunks(CHUNK) {
            let mut differences = Vec::with_capacity(chunk.len());
            for change in chunk {
                match difference(change, &mut old, &mut new)? {
                    Some(found) => differences.push(found),
                    None => {
                        for line in self.said_of(&change.path)? {
                            writeln!(out, "# {line}")?;
                        }
                    }
                }
            }
            write_patch(out, &differences, options)?;
        }
        out.flush()?;
        Ok(())
    }
}

/// Both states of a change; `None` for a repository, which is one change as a whole.
fn difference(
    change: &Change,
    old: &mut Lookup<'_>,
    new: &mut Lookup<'_>,
) -> Result<Option<Difference>, StoreError> {
    let path = change.path.as_os_str().as_encoded_bytes();
    let (old, new) = (old.find(path)?.map(Arc::new), new.find(path)?.map(Arc::new));
    let (path, is_relinked, is_refreshed) = (path.to_vec(), false, false);
    let mut found = Difference { path, old, new, is_relinked, is_refreshed };
    if change.is_directory && found.change_type().is_none() {
        return Ok(None);
    }
    // It is a change, so if it is no other it is this one.
    found.is_relinked = found.change_type().is_none();
    Ok(Some(found))
}
