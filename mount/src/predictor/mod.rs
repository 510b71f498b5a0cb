//! Which files a program will read next.
//!
//! A program that reads one file of a directory mostly reads the next ones, too. A program that
//! does so in three directories walks a tree (`grep -r`, `cp -a`, `tar`): it will read every file
//! of each directory that it lists.
//!
//! The predictor is a pure state machine without threads, clocks or locks: [events](Event) in,
//! [actions](Action) out. The [driver](crate::driver) feeds it and carries its actions out. Its
//! tests replay what real programs did.

mod events;
mod order;
#[cfg(test)]
mod replay;
mod walkers;
mod window;

use std::collections::HashMap;

pub(crate) use self::events::{Action, Event, Push};
pub(crate) use self::order::{Order, Spot};
use self::walkers::Walkers;
use self::window::PushWindow;
pub(crate) use self::window::Stretch;

/// The known facts of programs that read, and of the directories in which they do.
#[derive(Default)]
pub(crate) struct Predictor {
    walkers: Walkers,
    /// By the id of the directory.
    windows: HashMap<u64, PushWindow>,
}

impl Predictor {
    /// Notes what happened and says what to do about it.
    pub(crate) fn on(&mut self, event: &Event) -> Option<Action> {
        match *event {
            Event::Listed { thread, directory, entries } => {
                self.listed(thread, directory, entries).map(Action::Push)
            }
            Event::Read { thread, directory, spot, had } => self.read(thread, directory, spot, had),
            Event::PushEnded { push, before } => {
                if let Some(window) = self.windows.get_mut(&push.directory) {
                    window.ended(push.stretch, before);
                }
                None
            }
            Event::Forgotten { directory } => {
                self.windows.remove(&directory);
                None
            }
        }
    }

    fn listed(&mut self, thread: u32, directory: u64, entries: usize) -> Option<Push> {
        let order = self.walkers.listed(thread, directory, entries)?;
        let stretch = self.windows.entry(directory).or_default().after_list(order)?;
        Some(Push { directory, stretch, again: false })
    }

    fn read(&mut self, thread: u32, directory: u64, spot: Spot, had: bool) -> Option<Action> {
        let reader = self.walkers.read(thread, directory, spot);
        let window = self.windows.entry(directory).or_default();
        if let Some((stretch, again)) = window.after_read(spot, had, reader) {
            self.walkers.note_push(thread, directory, spot);
            return Some(Action::Push(Push { directory, stretch, again }));
        }
        let order = window.running_order()?;
        Some(Action::Reached { directory, before: spot.position(order) + 1 })
    }
}
