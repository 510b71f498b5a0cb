//! The functions behind the targets in `fuzz/`, from every package; see [`nono_engine::fuzzing`].

#[cfg(feature = "archive")]
pub use nono_archive::fuzzing::archive;
pub use nono_engine::fuzzing::*;

/// The event of an agent's hook.
pub fn hook_event(bytes: &[u8]) {
    if let Some(event) = crate::agent::parse(None, bytes) {
        let again = serde_json::to_vec(&event).expect("an event can be written");
        let again: crate::agent::Event = serde_json::from_slice(&again).expect("and read again");
        assert_eq!(again, event);
        let mut state = crate::agent::AgentState::default();
        state.advance(&event);
        state.advance(&event);
    }
}
