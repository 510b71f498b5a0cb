//! Left-out paths of a snapshot that are gone or different by now: no comparison of trees shows
//! them, and no restore brings them back.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::manifest::{LeftOutState, NotCaptured, NotCapturedReason};
use crate::path_text::serde_path;

/// The fate of an unrecorded path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostAs {
    /// Nothing is there any more.
    Gone,
    /// Something in it, or it itself, is another.
    Changed,
}

impl fmt::Display for LostAs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "gone",
            Self::Changed => "changed",
        })
    }
}

/// Something that was not recorded, and is not as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Absolute path.
    #[serde(with = "serde_path")]
    pub path: PathBuf,
    /// Its fate.
    pub what: LostAs,
    /// Whether it was a directory.
    pub is_directory: bool,
    /// Whether it was proved that a program makes it again: then nothing is lost.
    pub is_rebuildable: bool,
    /// Why it was not recorded.
    #[serde(flatten)]
    pub reason: NotCapturedReason,
}

/// The left-out paths of an earlier snapshot that are not as they were. `now` lists the left-out
/// paths of a present capture; all others are looked at on the disk.
pub fn lost(then: &[NotCaptured], now: &[NotCaptured]) -> Vec<Lost> {
    let now: HashMap<&Path, &LeftOutState> =
        now.iter().filter_map(|left| Some((left.path.as_path(), left.state.as_ref()?))).collect();
    let became = |left: &NotCaptured| {
        let state = left.state.as_ref()?;
        let what = match now.get(left.path.as_path()) {
            Some(now) if is_same_kind(state, now) => state.differs(now).then_some(LostAs::Changed),
            _ => match state.now(&left.path) {
                Ok(None) => Some(LostAs::Gone),
                Ok(Some(now)) => state.differs(&now).then_some(LostAs::Changed),
                // A capture of the moment says what it could not look at.
                Err(_) => None,
            },
        }?;
        Some(Lost {
            path: left.path.clone(),
            what,
            is_directory: state.is_directory(),
            is_rebuildable: state.is_rebuildable(),
            reason: left.reason.clone(),
        })
    };
    then.iter().filter_map(became).collect()
}

/// Whether a later snapshot tells, by its record alone, that something which an earlier one could
/// not read is gone or another.
pub(crate) fn has_lost_unread(then: &[NotCaptured], now: &[NotCaptured]) -> bool {
    let mut unread = then.iter().filter_map(|left| {
        let state = left.state.as_ref().filter(|state| state.is_unreadable())?;
        Some((left.path.as_path(), state))
    });
    unread.any(|(path, state)| {
        let found = now.binary_search_by(|left| left.path.as_os_str().cmp(path.as_os_str()));
        match found.ok().and_then(|at| now[at].state.as_ref()) {
            Some(now) if now.is_unreadable() => state.differs(now),
            // It could be read, or is not there. A directory above it may hide it.
            _ => !path.ancestors().any(|above| {
                now.binary_search_by(|left| left.path.as_os_str().cmp(above.as_os_str())).is_ok()
            }),
        }
    })
}

/// Whether both were noted in the same way.
fn is_same_kind(a: &LeftOutState, b: &LeftOutState) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}
