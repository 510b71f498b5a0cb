//! Shows the differences of some changes in the pager.
//!
//! Only what the pager asks for is read and compared, a few paths at a time, and nothing more once
//! it is closed.

use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::process::{Child, Stdio};
use std::sync::mpsc;

use super::screen::Screen;
use crate::cli::error::CliError;
use crate::cli::looking::States;
use crate::cli::pager;
use crate::cli::render::{DiffOptions, Palette, RenderError};
use crate::cli::supervise;
use nono_engine::diff::Change;
use nono_engine::sys;

/// Shows how these changes look inside, and comes back when the pager is closed.
pub(super) fn show(
    screen: &mut Screen,
    states: &States<'_>,
    changes: &[Change],
    colours: bool,
) -> Result<(), CliError> {
    let palette = if colours { Palette::coloured() } else { Palette::plain() };
    let options = DiffOptions { palette, ..states.options() };
    let options = &options;
    let Some(pager) = pager::chosen() else {
        return show_plainly(screen, states, changes, options);
    };
    let pager = pager.as_str();
    screen.outside(|| -> Result<(), CliError> {
        let (hand_over, handed_over) = mpsc::sync_channel(1);
        let (shown, ended) = std::thread::scope(move |scope| {
            // Before the pager, which would have nothing to show without it.
            let writer = sys::spawn_scoped(scope, "pager", move || {
                let write =
                    |input| states.write_patch(&mut BufWriter::new(input), changes, options);
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
    states: &States<'_>,
    changes: &[Change],
    options: &DiffOptions<'_>,
) -> Result<(), CliError> {
    let mut err = BufWriter::new(io::stderr().lock());
    let shown = screen.outside(|| {
        let shown = states.write_patch(&mut err, changes, options);
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
