//! The recorded state that a time means, said with its exact time before it is used.

use std::path::PathBuf;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::context::Context;
use super::error::CliError;
use super::offer::NONO;
use super::past::{Past, name_damaged};
use super::when::{Exact, When};
use nono_engine::history::{forms_of, state_at};
use nono_engine::session::{Catalog, CatalogError, NotHere, Place, Purpose, sessions_here};
use nono_engine::snapshot::SessionDir;
use nono_engine::sys;

/// A snapshot that a time means.
#[derive(Debug)]
pub(super) struct Meant {
    pub(super) session: SessionDir,
    pub(super) number: u64,
}

/// A time to the second, in the zone of this machine.
pub(super) fn exact(at: Timestamp) -> String {
    Exact(&at.to_zoned(TimeZone::system())).to_string()
}

/// The state of one session at a time.
///
/// # Errors
/// When it had none yet.
pub(super) fn in_session(
    session: &SessionDir,
    when: &When,
    context: &Context,
) -> Result<Meant, CliError> {
    of(std::slice::from_ref(session), when, context)
}

/// The state of the project here at a time, over all its sessions.
///
/// # Errors
/// When nothing was recorded here by then, or nothing at all.
pub(super) fn here(
    when: &When,
    purpose: Purpose,
    catalog: &Catalog,
    context: &Context,
) -> Result<Meant, CliError> {
    let now = Timestamp::now();
    let place = Place::current(purpose)?;
    let listed = catalog.listed()?.sessions;
    let here: Vec<String> = match sessions_here(&listed, &place, now) {
        Ok(here) => here.iter().map(|session| session.session_id.clone()).collect(),
        Err(NotHere::SeveralBelow(projects)) => {
            let directory = place.directory;
            return Err(CatalogError::SeveralBelow { directory, projects }.into());
        }
        Err(NotHere::Nowhere) => return Err(catalog.none_here(&place, &listed, now).into()),
    };
    let past = Past::of(catalog, |summary| here.contains(&summary.session_id))?;
    of_past(&past, when, context)
}

/// The state of these paths at a time, over all sessions that hold them.
///
/// # Errors
/// As [`here`].
pub(super) fn of_paths(
    paths: &[PathBuf],
    when: &When,
    catalog: &Catalog,
    context: &Context,
) -> Result<Meant, CliError> {
    let current_dir = sys::current_or_former_dir()?;
    let forms: Vec<Vec<PathBuf>> =
        paths.iter().map(|path| forms_of(&sys::plain_absolute(path, &current_dir))).collect();
    let past = Past::of(catalog, |summary| {
        !summary.received && forms.iter().all(|forms| forms.iter().any(|form| summary.holds(form)))
    })?;
    if let (true, Some(path)) = (past.sessions.is_empty(), paths.first()) {
        return Err(super::argument::not_held(path));
    }
    of_past(&past, when, context)
}

fn of_past(past: &Past, when: &When, context: &Context) -> Result<Meant, CliError> {
    name_damaged(&past.damaged, context);
    of(&past.sessions, when, context)
}

fn of(sessions: &[SessionDir], when: &When, context: &Context) -> Result<Meant, CliError> {
    let (found, damaged) = state_at(sessions, when.end());
    // The state that is meant may be one of those.
    if !name_damaged(&damaged, context) {
        let message = "a session that cannot be read may hold the state that is meant";
        return Err(CliError::failed(message)
            .with_hint(format!("name the snapshot: {NONO} show ID lists them")));
    }
    let at = exact(when.end());
    let state = found.map_err(|first| match first {
        Some(first) => CliError::failed(format!(
            "nothing was recorded here until {at}: the first state is {first}, recorded {}",
            exact(first.timestamp)
        )),
        None => CliError::failed("no session here has a snapshot"),
    })?;
    let place = &state.place;
    let how = if state.is_restored { "restored" } else { "recorded" };
    let time = exact(place.timestamp);
    context.say(format_args!("the state at {at} is {place}, {how} {time}"));
    if let Some(restored) = state.changed_by_restore {
        let time = exact(restored);
        context.warn(format_args!(
            "a restore changed a part of this state at {time}, and no snapshot holds the result"
        ));
    }
    let session = sessions.iter().find(|session| session.id() == place.session_id);
    let session = session.ok_or_else(|| CliError::failed(format!("{place} is gone")))?;
    Ok(Meant { session: session.clone(), number: place.number })
}
