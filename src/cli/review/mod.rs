//! Looking through what a command changed, on a terminal, and taking some or all of it back.
//!
//! On a wide terminal, the difference of the change at the cursor stands [`beside`] the list.
//! Three parts: the [`model`] knows what is shown, marked and asked, and turns a key into an
//! [`Action`] without touching anything; the [`view`] draws the rows that fit and no
//! others; the [`screen`] owns the terminal. Always true:
//!
//! - Nothing is restored but by a clear yes to a question. Enter, q, Ctrl-C, the end of input, a
//!   signal and a closed terminal all keep everything.
//! - Keys typed before the review was on the screen are no answer to it.
//! - However it ends, the terminal is as it was before.

mod beside;
mod last_step;
mod model;
mod pager;
mod screen;
mod view;

use std::path::PathBuf;

use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

use super::context::Context;
use super::error::CliError;
use super::render::{DiffOptions, touched_part};
use nono_engine::diff::Comparison;
use nono_engine::snapshot::SnapshotManifest;
use nono_engine::store::ObjectSource;

use beside::Beside;
pub(super) use last_step::LastSteps;
pub(super) use model::Decision;
use model::{Action, Model};
use screen::{Input, Screen};

/// The subject of a review.
pub(super) struct Review<'a> {
    /// The session's id, and its name.
    pub(super) session_id: &'a str,
    /// Where the contents are.
    pub(super) store: &'a dyn ObjectSource,
    /// The state before.
    pub(super) old: &'a SnapshotManifest,
    /// The state after.
    pub(super) new: &'a SnapshotManifest,
    /// The differences. The list has the changes, the title the number of touched files.
    pub(super) comparison: Comparison,
    /// The steps of an agent between the two states.
    pub(super) steps: LastSteps<'a>,
}

/// Whether somebody sits in front of a terminal that can show a review, and is asked nothing else.
pub(super) fn is_possible(context: &Context) -> bool {
    let is_foreground = || tcgetpgrp(std::io::stdin()).is_ok_and(|group| group == getpgrp());
    context.stdin_is_terminal
        && context.stderr_is_terminal
        && std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
        && is_foreground()
}

impl Review<'_> {
    /// Shows the changes and returns what is to become of them.
    ///
    /// # Errors
    /// When the terminal cannot be used. Nothing was changed then.
    pub(super) fn run(mut self, context: &Context) -> Result<Decision, CliError> {
        let roots: Vec<PathBuf> = self.old.roots.iter().map(|root| root.path.clone()).collect();
        let colours = context.colours_on_stderr();
        let mut options = DiffOptions::new(self.store, &roots);
        options.escape = true;
        if colours {
            options.palette = super::render::Palette::coloured();
        }
        let differ = pager::Differ::new(&options, &self.old.merkle_root, &self.new.merkle_root)?;
        let touched = touched_part(&self.comparison.summary());
        let title = format!("session {}{touched}", self.session_id);
        let mut model = Model::new(title, self.comparison.changes, roots.clone());
        let mut screen = Screen::open()?;
        let mut beside = Beside::default();
        loop {
            // A user who holds a key down wants to get on.
            if screen.width() >= beside::LEAST_WIDTH
                && !beside.is_of(model.current())
                && !screen.has_keys()
            {
                beside = match model.extent_at_cursor() {
                    Some(range) => Beside::make(&differ, model.changes(), range),
                    None => Beside::default(),
                };
            }
            if !screen.has_keys() {
                let step = model.current_path().and_then(|path| self.steps.of(path));
                model.set_step(step);
            }
            screen.draw(|frame| view::draw(frame, &mut model, &beside, colours))?;
            let action = match screen.next_input()? {
                Input::Key(key) => model.press(key),
                Input::Redraw => Action::Nothing,
                Input::Suspend => Action::Suspend,
                Input::End => return Ok(Decision::KeepAll),
            };
            match action {
                Action::Nothing => {}
                Action::Redraw => screen.clear()?,
                Action::Suspend => screen.suspend()?,
                Action::ShowDifferences(range) => {
                    let shown = pager::show(&mut screen, &differ, &model.changes()[range]);
                    if let Err(error) = shown {
                        model.tell(error.to_string());
                    }
                }
                Action::End(decision) => return Ok(decision),
            }
        }
    }
}
