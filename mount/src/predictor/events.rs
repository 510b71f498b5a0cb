//! The events and requests of the predictor, and both as text: the lines of a recorded
//! trace.

use std::fmt;

use super::order::{Order, Spot};
use super::window::Stretch;

/// An event that the predictor hears of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A thread gets the end of the list of a directory.
    Listed { thread: u32, directory: u64, entries: usize },
    /// A thread asks for the beginning of a file, of which the kernel `had` the contents before.
    Read { thread: u32, directory: u64, spot: Spot, had: bool },
    /// A push has ended: before this position, or (`None`) as far on as its stretch goes.
    PushEnded { push: Push, before: Option<u64> },
    /// The kernel has forgotten a directory.
    Forgotten { directory: u64 },
}

/// A request of the predictor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Hand files to the kernel.
    Push(Push),
    /// A reader has asked for the files before this position, in the order of the push that runs.
    Reached { directory: u64, before: u64 },
}

/// Files to hand to the kernel before it asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Push {
    pub(crate) directory: u64,
    pub(crate) stretch: Stretch,
    /// The kernel had contents once and lost them: push what was pushed before, too.
    pub(crate) again: bool,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listed { thread, directory, entries } => {
                write!(f, "listed {thread} {directory} {entries}")
            }
            Self::Read { thread, directory, spot: Spot { index, number }, had } => {
                let had = if *had { "had" } else { "new" };
                write!(f, "read {thread} {directory} {index} {number} {had}")
            }
            Self::PushEnded { push, before: Some(before) } => write!(f, "ended {push} {before}"),
            Self::PushEnded { push, before: None } => write!(f, "ended {push} all"),
            Self::Forgotten { directory } => write!(f, "forgotten {directory}"),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Push(push) => write!(f, "push {push}"),
            Self::Reached { directory, before } => write!(f, "reached {directory} {before}"),
        }
    }
}

impl fmt::Display for Push {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { directory, stretch: Stretch { order, start, length }, again } = self;
        let order = match order {
            Order::Listed => "listed",
            Order::Numbered => "numbered",
        };
        let again = if *again { "again" } else { "new" };
        write!(f, "{directory} {order} {start} {length} {again}")
    }
}
