//! Sessions of a store: made, found, listed, recorded.
//!
//! A store's root directory holds one directory for each session and the objects that they share.
//! A session appears with its manifest or not at all, so one that is listed can always be read.

mod at_work;
mod attribution;
mod catalog;
mod clock;
mod here;
mod keep;
mod moved;
mod names;
mod recording;
mod retention;
mod steps;
mod store_modes;
mod summary;
mod thinning;
mod together;
mod undo;

pub use at_work::{AtWork, at_work, recorded_by_others};
pub use attribution::changed_since;
pub use catalog::{Catalog, CatalogError, InterruptedRestores, SnapshotId};
pub use clock::aging_until;
pub use here::{Listed, NotHere, Place, Purpose, Unreadable, last_watched, newest, sessions_here};
pub use keep::{KeepItem, KeepRules};
pub use moved::Moved;
pub use names::{LabelError, MAX_LABEL_BYTES, NameOwner, check_label};
pub(crate) use recording::new_session_id;
pub use recording::{
    RecordError, RecordRequest, Recorded, Recording, create_session, end_merge, new_session_dir,
};
pub use retention::{Expired, Expiry, RetentionPolicy, SessionContent, SessionFacts};
pub use steps::{PromptSteps, UnrecordedStep, by_prompt, last_of_each_prompt, steps, steps_of};
pub use store_modes::StoreModes;
pub use summary::{SessionStatus, SessionSummary, places_of_work, project_of};
pub use thinning::{Thinning, thinned_steps};
pub use together::{restored_meanwhile, running_on, worked_meanwhile};
pub use undo::{History, NoRedo, Redo};
