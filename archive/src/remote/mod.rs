//! Remotes: places where archives lie, and the commands that move archives to them and back.
//!
//! `address` says where a remote is, `place` is what can be done there (a directory or an object
//! store), and the rest decides which archives are made, read and removed. Always true:
//!
//! - An archive appears on a remote complete or not at all, and is never written again. Two pushers
//!   cannot replace each other's archives: the second one finds the name taken.
//! - What a remote lists and sends is untrusted. Names are parsed, and contents are checked by
//!   [`archive`](crate).
//! - A cleanup needs no key of the archives, and a push none but that for which it encrypts: they
//!   read names alone.
//! - Credentials come from the usual environment and files, and appear in no message.
//! - Work ends soon after [`Progress`](nono_engine::progress::Progress) asks for it.

mod address;
mod agreement;
mod archives;
mod check;
mod damage;
mod error;
mod failures;
mod healing;
mod inventory;
mod key;
mod mend;
mod place;
mod pull;
mod push;
mod ranges;
mod relatives;
mod transfer;
mod uploads;
mod watched;

pub use address::{Address, AddressError};
pub use archives::{Archives, ChainError};
pub use check::{CheckReport, RemoteProblem, RemoteProblemKind, check};
pub use damage::{DamageReport, StayingArchive, remove_damaged, replaceable};
pub use error::RemoteError;
pub use failures::{
    PushFailure, forget_failure, note_begin, note_failure, push_failures, unpushed,
};
pub use inventory::{Inventory, begin_cleanup, end_cleanup};
pub use mend::prove;
pub use place::{Place, Source, Stored, fetch};
pub use pull::{NotPulled, PullReport, pull};
pub use push::{PushOutcome, PushRequest, PushedSnapshot, push, snapshots_to_push};
pub use ranges::Window;
