//! Keeping a store within its limits, without anybody having to wait for it.
//!
//! Sessions that are too old or too many are known from their manifests alone: they go when a run
//! begins, by a rename each. Their objects go in batches, and so does what is over the limit of space:
//! finding out what that frees takes a look at every object. That work is done while the command runs,
//! at a low priority.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use jiff::{SignedDuration, Timestamp};

use super::context::Context;
use super::error::CliError;
use super::render::byte_size;
use crate::config::Settings;
use crate::gc::{
    CleanupOptions, CleanupPlan, CleanupReport, StorageUsage, guess_usage, measure_usage,
    note_floor, withdraw,
};
use crate::session::{Catalog, Expired, Expiry, RetentionPolicy, SessionFacts, SessionSummary};
use crate::snapshot::SessionDir;
use crate::sys;

/// So many withdrawn sessions are collected at once.
const BATCH: usize = 8;

/// The policy that the settings ask for.
pub(super) fn policy(settings: &Settings) -> RetentionPolicy {
    let days = i64::try_from(settings.max_age_days.value).unwrap_or(i64::MAX);
    let max_sessions = settings.max_sessions.value;
    RetentionPolicy {
        max_age: (days > 0).then(|| SignedDuration::from_secs(days.saturating_mul(24 * 60 * 60))),
        max_sessions: (max_sessions > 0).then_some(max_sessions),
        max_storage_bytes: settings.max_storage_bytes(),
    }
}

/// A collection that goes on while the command runs.
#[derive(Debug)]
pub(super) struct Retention {
    collecting: Option<JoinHandle<Result<Collected, CliError>>>,
}

#[derive(Debug)]
struct Collected {
    expired: Vec<Expired>,
    report: CleanupReport,
}

/// Removes what is too old or too many, says so, and begins to collect if it is time. Whatever fails
/// here is said, and keeps no command from running.
pub(super) fn begin(root: &Path, settings: &Settings, context: &Context) -> Retention {
    try_begin(root, settings, context).unwrap_or_else(|error| {
        context.warn(format_args!("no old session is removed: {error}"));
        Retention { collecting: None }
    })
}

fn try_begin(root: &Path, settings: &Settings, context: &Context) -> Result<Retention, CliError> {
    let policy = policy(settings);
    let sessions = list(root)?;
    let expired = policy.expired(&facts_of(&sessions), Timestamp::now(), None);
    let going = pick(&sessions, &expired);
    let withdrawn = withdraw(root, &going)?;
    for expired in expired.iter().filter(|e| withdrawn.session_ids.contains(&e.session_id)) {
        say(expired, settings, context);
    }
    let guess = guess_usage(root)?;
    // Where the limit cannot be reached, it is not tried again before the store has grown by a tenth
    // of it.
    let worth_a_look = |max: u64| max.max(guess.floor_bytes.saturating_add(max / 10));
    let is_over = policy.max_storage_bytes.is_some_and(|max| guess.bytes > worth_a_look(max));
    let can_shrink = guess.withdrawn_sessions > 0
        || !RetentionPolicy::removable(&facts_of(&list(root)?), Timestamp::now()).is_empty();
    if guess.withdrawn_sessions < BATCH && !(is_over && can_shrink) {
        return Ok(Retention { collecting: None });
    }
    let (root, threads) = (root.to_owned(), settings.threads());
    let collect = move || {
        sys::lower_priority();
        collect(&root, &policy, threads)
    };
    // Without a thread, the next one does it.
    Ok(Retention { collecting: sys::spawn("retention", collect).ok() })
}

impl Retention {
    /// Waits for the collection, and says what it removed.
    pub(super) fn finish(self, settings: &Settings, context: &Context) {
        let Some(collected) = self.collecting.map(JoinHandle::join) else { return };
        match collected {
            Ok(Ok(Collected { expired, report })) => {
                let removed = &report.sessions_removed;
                for expired in expired.iter().filter(|e| removed.contains(&e.session_id)) {
                    say(expired, settings, context);
                }
                if report.bytes_freed > 0 {
                    let size = byte_size(report.bytes_freed);
                    context.say(format_args!("freed {size} of removed sessions"));
                }
            }
            Ok(Err(error)) => context.warn(format_args!("no space is freed: {error}")),
            Err(_) => context.warn("no space is freed: the collection failed"),
        }
    }
}

/// Removes what takes too much space, and the objects of all that was removed.
fn collect(root: &Path, policy: &RetentionPolicy, threads: usize) -> Result<Collected, CliError> {
    let options = CleanupOptions { threads, ..CleanupOptions::default() };
    let sessions = list(root)?;
    let (expired, usage) = expired(root, policy, &sessions, &options)?;
    if let Some(usage) = usage {
        note_floor(root, &usage)?;
    }
    let plan = CleanupPlan::new(root, &pick(&sessions, &expired))?;
    let report = plan.apply(|| Catalog::new(root.to_owned(), []).sessions(), &options)?;
    Ok(Collected { expired, report })
}

/// All sessions of a store that its policy lets go, space included.
pub(super) fn expired_sessions(
    root: &Path,
    settings: &Settings,
    options: &CleanupOptions<'_>,
) -> Result<Vec<(SessionDir, Expired)>, CliError> {
    let sessions = list(root)?;
    let (expired, _) = expired(root, &policy(settings), &sessions, options)?;
    Ok(pick(&sessions, &expired).into_iter().zip(expired).collect())
}

fn expired(
    root: &Path,
    policy: &RetentionPolicy,
    sessions: &[Listed],
    options: &CleanupOptions<'_>,
) -> Result<(Vec<Expired>, Option<StorageUsage>), CliError> {
    let facts = facts_of(sessions);
    let removable: Vec<_> = RetentionPolicy::removable(&facts, Timestamp::now())
        .into_iter()
        .filter_map(|facts| find(sessions, &facts.session_id))
        .collect();
    if policy.max_storage_bytes.is_none() || removable.is_empty() {
        return Ok((policy.expired(&facts, Timestamp::now(), None), None));
    }
    let usage = measure_usage(root, &removable, options)?;
    Ok((policy.expired(&facts, Timestamp::now(), Some(&usage)), Some(usage)))
}

/// A session, and what the policy looks at.
#[derive(Debug)]
struct Listed {
    session: SessionDir,
    facts: SessionFacts,
}

/// The sessions of one store. One that is damaged has no age, and stays.
fn list(root: &Path) -> Result<Vec<Listed>, CliError> {
    let mut listed = Vec::new();
    for session in Catalog::new(PathBuf::from(root), []).sessions()? {
        match SessionSummary::of(&session) {
            Ok(summary) => listed.push(Listed { facts: SessionFacts::from(&summary), session }),
            Err(error) => tracing::debug!("left out of retention: {error}"),
        }
    }
    Ok(listed)
}

fn facts_of(listed: &[Listed]) -> Vec<SessionFacts> {
    listed.iter().map(|listed| listed.facts.clone()).collect()
}

fn find(listed: &[Listed], id: &str) -> Option<SessionDir> {
    let found = listed.iter().find(|listed| listed.facts.session_id == id)?;
    Some(found.session.clone())
}

fn pick(listed: &[Listed], expired: &[Expired]) -> Vec<SessionDir> {
    expired.iter().filter_map(|expired| find(listed, &expired.session_id)).collect()
}

/// Says that a session is gone, and which limit it was over.
pub(super) fn say(expired: &Expired, settings: &Settings, context: &Context) {
    let Expired { session_id, reason } = expired;
    context.say(format_args!("removed session {session_id}: {}", describe(*reason, settings)));
}

/// Which limit a session is over.
pub(super) fn describe(reason: Expiry, settings: &Settings) -> String {
    match reason {
        Expiry::TooOld => format!("older than {} days (max_age_days)", settings.max_age_days.value),
        Expiry::TooMany => {
            format!("there are more than {} (max_sessions)", settings.max_sessions.value)
        }
        Expiry::TooLarge => {
            format!("they take more than {} GiB (max_storage_gb)", settings.max_storage_gb.value)
        }
    }
}
