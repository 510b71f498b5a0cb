//! Keeping a store within its limits, without anybody having to wait for it.
//!
//! Nothing goes before the command of a run has started: a start that fails costs nobody a session.
//! Within the walls a failed start is known by its end alone, so the first seconds count as a
//! start. Objects of removed sessions go in batches, and so do sessions over the limit of space:
//! their effect costs a look at every object. That work is done while the command runs, at a low
//! priority. Sessions that are too old or too many go at the end, by a rename each, when the
//! changes of the run itself are known. Then all of it is said, in one line.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::context::Context;
use super::error::CliError;
use super::offer::NONO;
use super::render::byte_size;
use crate::config::Settings;
use nono_engine::counted::counted;
use nono_engine::gc::{
    CleanupOptions, CleanupPlan, StorageUsage, guess_usage, measure_usage, note_floor,
    pack_long_files, remove_snapshots, withdraw,
};
use nono_engine::progress::NoProgress;
use nono_engine::session::{
    Catalog, Expired, Expiry, KeepRules, RetentionPolicy, SessionFacts, Thinning, thinned_steps,
};
use nono_engine::snapshot::{RemovalReason, SessionDir, SessionOrigin};
use nono_engine::store::Compression;
use nono_engine::sys;

/// So many withdrawn sessions are collected at once.
const BATCH: usize = 8;
/// A command that has run for so long has started.
const STARTING: Duration = Duration::from_secs(3);

/// The policy that the settings ask for.
pub(super) fn policy(settings: &Settings) -> RetentionPolicy {
    let days = i64::try_from(settings.max_age_days.value).unwrap_or(i64::MAX);
    let max_sessions = settings.max_sessions.value;
    RetentionPolicy {
        max_age: (days > 0).then(|| SignedDuration::from_secs(days.saturating_mul(24 * 60 * 60))),
        max_sessions: (max_sessions > 0).then_some(max_sessions),
        max_storage_bytes: settings.max_storage_bytes(),
        keep: keep_rules(settings),
    }
}

/// The rules that the settings ask for.
fn keep_rules(settings: &Settings) -> KeepRules {
    KeepRules {
        last: settings.keep_last.value,
        hourly: settings.keep_hourly.value,
        daily: settings.keep_daily.value,
        weekly: settings.keep_weekly.value,
        monthly: settings.keep_monthly.value,
        ..KeepRules::default()
    }
}

/// The sessions that are removed in the course of a run.
#[derive(Debug)]
pub(super) struct Retention {
    collecting: Option<Collecting>,
}

#[derive(Debug)]
struct Collecting {
    /// Lets it begin at once; dropped, it does nothing any more.
    go: Sender<()>,
    collected: JoinHandle<Result<Removed, CliError>>,
}

/// Sessions that are gone.
#[derive(Debug, Default)]
struct Removed {
    sessions: Vec<Expired>,
    bytes_freed: u64,
    /// Sessions with a name that space alone would have taken.
    named: Vec<String>,
}

/// Begins to collect if it is time, beside a command that has started. A failure here is reported,
/// and keeps no command from running.
pub(super) fn begin(root: &Path, settings: &Settings, context: &Context) -> Retention {
    try_begin(root, settings).unwrap_or_else(|error| {
        context.warn(format_args!("no space is freed: {error}"));
        Retention { collecting: None }
    })
}

/// Takes steps and changes of watchers out of their sessions: those that no rule keeps, and of a
/// store that is over its limit of space more of them. The next collection frees what only they
/// needed. `says`: the sessions and the number of snapshots of each; with `dry_run` nothing goes.
pub(super) fn thin(
    root: &Path,
    settings: &Settings,
    dry_run: bool,
    mut says: impl FnMut(&SessionDir, usize),
) -> Result<u64, CliError> {
    let guess = guess_usage(root)?;
    let is_full = settings.max_storage_bytes().is_some_and(|max| guess.bytes > max);
    let thinning = Thinning { rules: keep_rules(settings), is_full };
    let (now, zone) = (Timestamp::now(), TimeZone::system());
    let mut thinned = 0;
    for session in Catalog::new(root.to_owned(), []).sessions()? {
        // One that cannot be read or is at work keeps all.
        let Ok(metadata) = session.metadata() else { continue };
        let numbers = thinned_steps(&metadata, &thinning, now, &zone);
        if numbers.is_empty() || metadata.altered.is_some() {
            continue;
        }
        if dry_run {
            says(&session, numbers.len());
            continue;
        }
        match remove_snapshots(&session, &numbers, RemovalReason::Thinning) {
            Ok(removed) => {
                says(&session, removed.len());
                thinned += removed.len() as u64;
            }
            Err(error) => tracing::warn!("no steps of {} go: {error}", session.id()),
        }
    }
    Ok(thinned)
}

fn try_begin(root: &Path, settings: &Settings) -> Result<Retention, CliError> {
    // Sessions that are too old or too many go at the end of a run.
    let max_storage_bytes = settings.max_storage_bytes();
    let policy = RetentionPolicy { max_storage_bytes, ..RetentionPolicy::default() };
    let guess = guess_usage(root)?;
    let is_full = max_storage_bytes.is_some_and(|max| guess.bytes > max);
    // Where space is no matter, no session is looked at before the end of a run.
    let thinned = if is_full { thin(root, settings, false, |_, _| {})? } else { 0 };
    // Where the limit cannot be reached, it is not tried again before the store has grown by a
    // tenth of it.
    let worth_a_look = |max: u64| max.max(guess.floor_bytes.saturating_add(max / 10));
    let is_over = policy.max_storage_bytes.is_some_and(|max| guess.bytes > worth_a_look(max));
    let can_shrink = || -> Result<bool, CliError> {
        let facts = facts_of(&list(root)?);
        let is_removable = !policy.removable(&facts, Timestamp::now()).is_empty();
        Ok(guess.withdrawn_sessions > 0 || is_removable)
    };
    if guess.withdrawn_sessions < BATCH && thinned == 0 && !(is_over && can_shrink()?) {
        return Ok(Retention { collecting: None });
    }
    let (root, threads) = (root.to_owned(), settings.threads());
    let compression = settings.compression.value;
    let (go, begin) = mpsc::channel();
    let collect = move || {
        sys::lower_priority();
        match begin.recv_timeout(STARTING) {
            Err(RecvTimeoutError::Disconnected) => Ok(Removed::default()),
            Ok(()) | Err(RecvTimeoutError::Timeout) => {
                collect(&root, &policy, compression, threads)
            }
        }
    };
    // Without a thread, the next one does it.
    let collected = sys::spawn("retention", collect).ok();
    Ok(Retention { collecting: collected.map(|collected| Collecting { go, collected }) })
}

impl Retention {
    /// Waits for the collection, removes what is too old or too many, and says what is gone.
    /// `is_due`: the command had started, and the run is recorded to its end. Else nothing goes.
    pub(super) fn finish(self, root: &Path, settings: &Settings, is_due: bool, context: &Context) {
        let collected = self.collecting.map(|Collecting { go, collected }| {
            if is_due {
                // A thread that has begun already does not listen.
                let _ = go.send(());
            }
            drop(go);
            collected.join().unwrap_or_else(|_| Err(CliError::failed("the collection failed")))
        });
        let mut removed = collected.transpose().unwrap_or_else(|error| {
            context.warn(format_args!("no space is freed: {error}"));
            None
        });
        if is_due && let Err(error) = thin(root, settings, false, |_, _| {}) {
            context.warn(format_args!("no steps are thinned out: {error}"));
        }
        match is_due.then(|| withdraw_expired(root, settings)).transpose() {
            Ok(expired) => {
                let removed = removed.get_or_insert_default();
                removed.sessions.extend(expired.into_iter().flatten());
            }
            Err(error) => context.warn(format_args!("no old session is removed: {error}")),
        }
        let removed = removed.unwrap_or_default();
        if let Some(line) = removed.line(settings) {
            context.say(line);
        }
        if !removed.named.is_empty() {
            context.warn(format_args!(
                "the store is over max_storage_gb {} and only sessions with a name could go: {} \
                 (`{NONO} cleanup` removes them)",
                settings.max_storage_gb.value,
                removed.named.join(", ")
            ));
        }
    }
}

impl Removed {
    /// The removed sessions and the reasons, in one line; `None` without any.
    fn line(&self, settings: &Settings) -> Option<String> {
        for Expired { session_id, reason } in &self.sessions {
            tracing::info!("removed session {session_id}: {}", describe(*reason, settings));
        }
        let freed = (self.bytes_freed > 0).then(|| byte_size(self.bytes_freed));
        let reasons: BTreeSet<_> = self.sessions.iter().map(|expired| expired.reason).collect();
        let reasons: Vec<_> = reasons.into_iter().map(|reason| limit(reason, settings)).collect();
        let sessions = match self.sessions.len() {
            0 => return freed.map(|size| format!("freed {size} of removed sessions")),
            1 => "1 old session".to_owned(),
            count => format!("{count} old sessions"),
        };
        let freed = freed.map(|size| format!(", freed {size}")).unwrap_or_default();
        Some(format!("removed {sessions} ({}){freed}", reasons.join(", ")))
    }
}

/// Takes what is too old or too many out of every list.
fn withdraw_expired(root: &Path, settings: &Settings) -> Result<Vec<Expired>, CliError> {
    let sessions = list(root)?;
    let mut expired = policy(settings).expired(&facts_of(&sessions), Timestamp::now(), None);
    let withdrawn = withdraw(root, &pick(&sessions, &expired))?;
    expired.retain(|expired| withdrawn.session_ids.contains(&expired.session_id));
    Ok(expired)
}

/// Removes what takes too much space, and the objects of all that was removed.
fn collect(
    root: &Path,
    policy: &RetentionPolicy,
    compression: Compression,
    threads: usize,
) -> Result<Removed, CliError> {
    let base = CleanupOptions::default();
    let options = CleanupOptions { threads, compression, spare_pinned: true, ..base };
    // No session goes for space that compression gives.
    pack_long_files(root, compression, &NoProgress)?;
    let sessions = list(root)?;
    let (mut expired, usage) = expired(root, policy, &sessions, &options)?;
    // A person gave the name: the next cleanup by a person says it before the session goes.
    let is_spared = |gone: &Expired| {
        let of_it = |listed: &&Listed| listed.facts.session_id == gone.session_id;
        gone.reason == Expiry::TooLarge
            && sessions.iter().find(of_it).is_some_and(|listed| listed.facts.is_named)
    };
    let named = expired.extract_if(.., |gone| is_spared(gone)).map(|gone| gone.session_id);
    let named: Vec<String> = named.collect();
    if let Some(usage) = usage {
        note_floor(root, &usage)?;
    }
    let plan = CleanupPlan::new(root, &pick(&sessions, &expired))?;
    let report = plan.apply(|| Catalog::new(root.to_owned(), []).sessions(), &options)?;
    expired.retain(|expired| report.sessions_removed.contains(&expired.session_id));
    Ok(Removed { sessions: expired, bytes_freed: report.bytes_freed, named })
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

/// How many sessions are over a limit and stay, because they are younger than a day.
pub(super) fn young_sessions(root: &Path, settings: &Settings) -> Result<usize, CliError> {
    Ok(policy(settings).young(&facts_of(&list(root)?), Timestamp::now()))
}

fn expired(
    root: &Path,
    policy: &RetentionPolicy,
    sessions: &[Listed],
    options: &CleanupOptions<'_>,
) -> Result<(Vec<Expired>, Option<StorageUsage>), CliError> {
    let facts = facts_of(sessions);
    let removable: Vec<_> = policy
        .removable(&facts, Timestamp::now())
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
        // Snapshots of containers have limits of their own: `nono container cleanup`.
        if session.metadata().is_ok_and(|metadata| metadata.origin == SessionOrigin::Container) {
            continue;
        }
        match SessionFacts::of(&session) {
            Ok(facts) => listed.push(Listed { facts, session }),
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

/// Which limit a session is over.
pub(super) fn describe(reason: Expiry, settings: &Settings) -> String {
    match reason {
        Expiry::Unbegun => "killed before its first snapshot".to_owned(),
        Expiry::TooOld => {
            let days = counted(settings.max_age_days.value, "day", "days");
            format!("older than {days} (max_age_days)")
        }
        Expiry::TooMany => {
            format!("its project has more than {} (max_sessions)", settings.max_sessions.value)
        }
        Expiry::NotKept => "no rule keeps it (keep_last, keep_hourly, …)".to_owned(),
        Expiry::TooLarge => {
            format!("they take more than {} GiB (max_storage_gb)", settings.max_storage_gb.value)
        }
    }
}

/// A limit as a setting.
fn limit(reason: Expiry, settings: &Settings) -> String {
    match reason {
        Expiry::Unbegun => "killed before a first snapshot".to_owned(),
        Expiry::TooOld => format!("max_age_days {}", settings.max_age_days.value),
        Expiry::TooMany => format!("max_sessions {} per project", settings.max_sessions.value),
        Expiry::NotKept => "no keep_… rule".to_owned(),
        Expiry::TooLarge => format!("max_storage_gb {}", settings.max_storage_gb.value),
    }
}
