//! Shows the differences of some changes in the pager.
//!
//! Only what the pager asks for is read and compared, a few paths at a time, and nothing more once
//! it is closed.

use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, mpsc};

use super::screen::Screen;
use crate::cli::error::CliError;
use crate::cli::pager;
use crate::cli::render::{DiffOptions, RenderError, write_patch};
use crate::cli::repositories::{Repositories, Told};
use crate::cli::supervise;
use nono_engine::diff::{Change, Difference, Lookup};
use nono_engine::git;
use nono_engine::object::{ContentHash, RootTree};
use nono_engine::store::{StoreError, read_root_tree};
use nono_engine::sys;

/// So many paths are compared before the first line is written.
const CHUNK: usize = 200;

/// Both states.
#[derive(Debug)]
pub(super) struct Differ<'a> {
    options: &'a DiffOptions<'a>,
    old: RootTree,
    new: RootTree,
    /// Merkle roots of both.
    roots: [ContentHash; 2],
}

impl<'a> Differ<'a> {
    pub(super) fn new(
        options: &'a DiffOptions<'a>,
        old: &ContentHash,
        new: &ContentHash,
    ) -> Result<Self, StoreError> {
        let roots = [*old, *new];
        let old = read_root_tree(options.store, old)?;
        let new = read_root_tree(options.store, new)?;
        Ok(Self { options, old, new, roots })
    }

    /// How differences are shown in the pager.
    pub(super) fn options(&self) -> &DiffOptions<'a> {
        self.options
    }

    /// Writes what HEAD and the refs of a git directory did: it is one change as a whole.
    fn write_repository(&self, out: &mut dyn Write, git_dir: &Path) -> Result<(), RenderError> {
        let inside = [git_dir.join("HEAD").into_os_string().into_encoded_bytes()];
        let [old, new] = &self.roots;
        let found = git::repositories(self.options.store, old, new, inside)?;
        let repositories = Repositories::restored(&found, self.options.roots);
        for line in repositories.said(Told::Done) {
            writeln!(out, "# {line}")?;
        }
        Ok(())
    }

    /// Writes a patch of these changes.
    fn write(&self, out: &mut dyn Write, changes: &[Change]) -> Result<(), RenderError> {
        self.write_with(out, changes, self.options)
    }

    /// The same in another way.
    pub(super) fn write_with(
        &self,
        out: &mut dyn Write,
        changes: &[Change],
        options: &DiffOptions<'_>,
    ) -> Result<(), RenderError> {
        let mut old = Lookup::new(self.options.store, &self.old);
        let mut new = Lookup::new(self.options.store, &self.new);
        for chunk in changes.chunks(CHUNK) {
            let mut differences = Vec::with_capacity(chunk.len());
            for change in chunk {
                let path = change.path.as_os_str().as_encoded_bytes();
                let (old, new) = (old.find(path)?.map(Arc::new), new.find(path)?.map(Arc::new));
                let path = path.to_vec();
                let (is_relinked, is_refreshed) = (false, false);
                let mut found = Difference { path, old, new, is_relinked, is_refreshed };
                if change.is_directory && found.change_type().is_none() {
                    self.write_repository(out, &change.path)?;
                    continue;
                }
                // It is a change, so if it is no other it is this one.
                found.is_relinked = found.change_type().is_none();
                differences.push(found);
            }
            write_patch(out, &differences, options)?;
        }
        out.flush()?;
        Ok(())
    }
}

/// Shows how these changes look inside, and comes back when the pager is closed.
pub(super) fn show(
    screen: &mut Screen,
    differ: &Differ<'_>,
    changes: &[Change],
) -> Result<(), CliError> {
    let Some(pager) = pager::chosen() else { return show_plainly(screen, differ, changes) };
    let pager = pager.as_str();
    screen.outside(|| -> Result<(), CliError> {
        let (hand_over, handed_over) = mpsc::sync_channel(1);
        let (shown, ended) = std::thread::scope(move |scope| {
            // Before the pager, which would have nothing to show without it.
            let writer = sys::spawn_scoped(scope, "pager", move || {
                let write = |input| differ.write(&mut BufWriter::new(input), changes);
                handed_over.into_iter().try_for_each(write)
            })
            .map_err(|error| CliError::failed(error.to_string()))?;
            let mut child = start(pager)?;
            if let Some(input) = child.stdin.take() {
                // The receiver waits.
                let _ = hand_over.send(input);
            }
            drop(hand_over);
            let ended = supervise::wait_in_foreground(&child);
            Ok::<_, CliError>((writer.join(), ended))
        })?;
        if ended? == 127 {
            return Err(CliError::failed(format!("cannot run the pager {pager:?}")));
        }
        match shown {
            // A user who closes a pager has seen enough.
            Ok(Err(RenderError::Output(error))) if error.kind() == io::ErrorKind::BrokenPipe => {
                Ok(())
            }
            Ok(Err(RenderError::Output(error))) => Err(error.into()),
            Ok(Err(RenderError::Store(error))) => Err(error.into()),
            Ok(Ok(())) => Ok(()),
            Err(_) => Err(CliError::failed("the differences cannot be shown")),
        }
    })?
}

fn start(pager: &str) -> Result<Child, CliError> {
    let mut command = pager::command(pager);
    command.stdin(Stdio::piped());
    // The output of the command may have gone elsewhere; this text is for the terminal.
    command.stdout(Stdio::from(io::stderr().as_fd().try_clone_to_owned()?));
    // Colours are let through, and a short text stays until a key is pressed.
    let options = std::env::var("LESS").unwrap_or_default();
    command.env("LESS", format!("{options} -R -+F").trim());
    command
        .spawn()
        .map_err(|error| CliError::failed(format!("cannot run the pager {pager:?}: {error}")))
}

/// Without a pager: everything at once, until a key is pressed.
fn show_plainly(
    screen: &mut Screen,
    differ: &Differ<'_>,
    changes: &[Change],
) -> Result<(), CliError> {
    let mut err = BufWriter::new(io::stderr().lock());
    let shown = screen.outside(|| {
        let shown = differ.write(&mut err, changes);
        let _ = err.write_all(b"\nnono: Enter goes back").and_then(|()| err.flush());
        let mut line = String::new();
        let _ = io::stdin().read_line(&mut line);
        shown
    })?;
    match shown {
        Ok(()) => Ok(()),
        Err(RenderError::Store(error)) => Err(error.into()),
        Err(RenderError::Output(error)) => Err(error.into()),
    }
}
