//! `nono push`: snapshots become archives at a remote.

use std::collections::BTreeMap;
use std::iter;
use std::num::NonZeroU64;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use jiff::Timestamp;
use serde::Serialize;

use super::archive::because;
use crate::cli::Outcome;
use crate::cli::after_run;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use crate::cli::render::{byte_size, size_and_rate};
use crate::cli::sealing::{SealArgs, Target, encryption_of, encryption_words};
use crate::config::{is_remote_name, parse_byte_rate};
use nono_archive::remote::{
    Address, PushFailure, PushOutcome, PushRequest, PushedSnapshot, RemoteError, forget_failure,
    note_begin, note_failure, push, snapshots_to_push, unpushed,
};
use nono_archive::{ArchiveError, ArchiveReport};
use nono_engine::counted::counted;
use nono_engine::path_text::Shown;
use nono_engine::progress::Progress;
use nono_engine::session::{CatalogError, Purpose, SnapshotId};
use nono_engine::snapshot::{PushNote, SessionDir};
use nono_engine::sys;

/// Arguments of `nono push`.
#[derive(Debug, Args)]
pub(in crate::cli) struct PushArgs {
    /// A remote (a name, a URL, a path), then sessions or snapshots: ID or ID/N [default: the only
    /// remote, and the last session here]
    #[arg(value_name = "REMOTE|ID")]
    words: Vec<String>,
    /// Push all sessions of the store
    #[arg(long)]
    all: bool,
    /// Make every archive a full one
    #[arg(long)]
    full: bool,
    /// Push all steps of agents, and not only the last one of each prompt
    #[arg(long)]
    steps: bool,
    /// Send no more than so many bytes in a second: 500K, 2M
    #[arg(long, value_name = "BYTES", value_parser = parse_byte_rate)]
    limit_upload: Option<NonZeroU64>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    // A heading is that of all that follows.
    #[command(flatten)]
    seal: SealArgs,
}

#[derive(Serialize)]
struct Report {
    remote: String,
    url: String,
    snapshots: Vec<PushedSnapshot>,
    failed: Vec<Failed>,
    /// The time for each session.
    #[serde(skip)]
    times: BTreeMap<String, Duration>,
}

impl Report {
    /// The stored archives.
    fn archives(&self) -> impl Iterator<Item = &ArchiveReport> {
        self.snapshots.iter().filter_map(|pushed| pushed.archive.as_ref())
    }
}

/// A session that was not pushed to its end.
#[derive(Serialize)]
struct Failed {
    session_id: String,
    error: String,
}

/// Sessions, each with the wanted snapshot if one was named.
type Wanted = Vec<(SessionDir, Option<u64>)>;

pub(in crate::cli) fn run(args: &PushArgs, store: &StoreArgs, context: &Context) -> Outcome {
    if !after_run::is_after_run() {
        return run_here(args, store, context);
    }
    // No user reads what it says: a note remains.
    after_run::detach();
    let [remote, session_id] = args.words.as_slice() else {
        return run_here(args, store, context);
    };
    let root = store.catalog()?.root().to_owned();
    // Sessions that could not be pushed before go along.
    let earlier = unpushed(remote, &root).into_iter().filter(|id| {
        let is_there = SessionDir::open(&root.join(id)).is_ok();
        if !is_there {
            forget_failure(remote, id);
        }
        is_there && id != session_id
    });
    let ids: Vec<_> = iter::once(session_id.clone()).chain(earlier).collect();
    let failure = |session_id: &str, reason: &str| {
        let (remote, session_id) = (remote.clone(), session_id.to_owned());
        let (root, reason) = (root.clone(), reason.to_owned());
        let at = Timestamp::now();
        PushFailure { remote, session_id, root, at, reason }
    };
    let note = |session_id: &str, reason: &str| note_failure(&failure(session_id, reason));
    // A push that is killed says nothing any more.
    let _begun = note_begin(&failure(session_id, "the push was ended before it was done"))?;
    match push_to(args, Some(remote.as_str()), &ids, store, context) {
        Ok(report) => {
            for Failed { session_id, error } in &report.failed {
                note(session_id, error)?;
            }
            Ok(u8::from(!report.failed.is_empty()))
        }
        Err(error) => {
            note(session_id, &error.to_string())?;
            Err(error)
        }
    }
}

fn run_here(args: &PushArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let (remote, ids) = match args.words.split_first() {
        Some((first, ids)) if Target::is_meant_by(first)? => (Some(first.as_str()), ids),
        _ => (None, args.words.as_slice()),
    };
    let report = push_to(args, remote, ids, store, context)?;
    if args.json {
        context.json(&report)?;
    } else {
        tell(&report, context);
    }
    for Failed { session_id, error } in &report.failed {
        context.error(&CliError::failed(format!("session {session_id} is not pushed: {error}")));
    }
    Ok(u8::from(!report.failed.is_empty()))
}

/// Pushes what `ids` name. What fails of one session keeps no other one.
fn push_to(
    args: &PushArgs,
    remote: Option<&str>,
    ids: &[String],
    store: &StoreArgs,
    context: &Context,
) -> Result<Report, CliError> {
    let catalog = store.catalog()?;
    let target = Target::find(remote)?;
    let encryption = match (args.seal.encryption()?, &target.encryption) {
        // Archives that only some keys open, or none, would be no part of the remote for others.
        (Some(given), Some(known)) if given != *known => {
            let words = encryption_words(known);
            let message = format!("the archives of the remote {} are {words}", target.name);
            return Err(CliError::usage(message).with_hint(format!(
                "leave the flag out, or push to a place of its own: {NONO} push URL"
            )));
        }
        (_, Some(known)) => known.clone(),
        (Some(given), None) => given,
        (None, None) => return Err(args.seal.is_missing()),
    };
    let encryption = encryption_of(&encryption)?;
    let wanted: Wanted = if args.all {
        if !ids.is_empty() {
            return Err(CliError::usage("--all means every session: name none"));
        }
        catalog.sessions()?.into_iter().map(|session| (session, None)).collect()
    } else {
        if let (None, [first, _, ..]) = (remote, ids)
            && is_remote_name(first)
            && let Ok(id) = first.parse::<SnapshotId>()
            && let Err(CatalogError::NotFound { .. }) =
                catalog.find_snapshot_from(&id, Purpose::Looking)
        {
            // Before sessions stands a remote.
            Target::find(Some(first))?;
        }
        let latest = ["latest".to_owned()];
        let ids = if ids.is_empty() { latest.as_slice() } else { ids };
        let find = |id: &String| {
            let Ok(id) = id.parse::<SnapshotId>();
            catalog.find_snapshot_from(&id, Purpose::Looking).map_err(|error| match error {
                // The first word may have been meant as a remote.
                error if remote.is_none() => CliError::from(error).with_hint(
                    "neither a session nor a remote; `nono remote list` shows the remotes",
                ),
                error => error.into(),
            })
        };
        ids.iter().map(find).collect::<Result<_, CliError>>()?
    };
    refuse_store(&target.address, catalog.root())?;
    let limit = args.limit_upload.or(target.limit_upload);
    let place = target.open(true)?.with_upload_limit(limit);
    let bar = Bar::new(context, "pushing");
    place.clear_leftovers(&*bar)?;
    let encryption = encryption.at_place(&place, &*bar)?;
    let mut report = Report {
        remote: target.name.clone(),
        url: place.address().to_string(),
        snapshots: Vec::new(),
        failed: Vec::new(),
        times: BTreeMap::new(),
    };
    for (session, number) in &wanted {
        let mut pushed = Vec::new();
        let begin = Instant::now();
        let numbers = || match number {
            Some(number) => Ok(vec![*number]),
            None => snapshots_to_push(session, &session.metadata()?, args.steps),
        };
        let done = numbers().map_err(|error| RemoteError::from(ArchiveError::from(error)));
        let done = done.and_then(|numbers| {
            let request =
                PushRequest { session, numbers, encryption: &encryption, full: args.full };
            push(&place, &request, &*bar, &mut |one| {
                note(session, &report.remote, &one, context);
                pushed.push(one);
            })
        });
        report.snapshots.extend(pushed);
        report.times.insert(session.id(), begin.elapsed());
        match done {
            Ok(()) if number.is_none() => forget_failure(&report.remote, &session.id()),
            Ok(()) => {}
            Err(error) if error.is_cancelled() => {
                bar.finish();
                tell(&report, context);
                return Err(CliError::stopped(
                    "stopped: the archives so far are stored, and the same push goes on from there",
                ));
            }
            Err(error) => {
                report.failed.push(Failed { session_id: session.id(), error: error.to_string() })
            }
        }
        if bar.is_cancelled() {
            break;
        }
    }
    bar.finish();
    Ok(report)
}

/// Notes a stored archive in its session. Without the note the archive is stored all the same.
fn note(session: &SessionDir, remote: &str, pushed: &PushedSnapshot, context: &Context) {
    let Some(archive) = &pushed.archive else { return };
    // An archive of another session may have been lost, and is stored again.
    if pushed.session_id != session.id() {
        return;
    }
    let note = PushNote {
        at: Timestamp::now(),
        snapshot: pushed.snapshot,
        remote: remote.to_owned(),
        archive: archive.name.to_string(),
    };
    if let Err(error) = session.note_push(&note) {
        context.warn(format_args!("the push is not noted: {error}"));
    }
}

/// Refuses a directory in the store: the folder of a session there is the session itself, and goes
/// with it.
fn refuse_store(address: &Address, root: &Path) -> Result<(), CliError> {
    let Address::Directory(path) = address else { return Ok(()) };
    let (place, root) = (sys::real_or_future_path(path), sys::real_or_future_path(root));
    if !place.starts_with(&root) {
        return Ok(());
    }
    let message = format!(
        "{} is in the store {}: archives there would go with their sessions",
        Shown::path(path),
        Shown::path(&root)
    );
    Err(CliError::failed(message)
        .with_hint("push to a directory of its own, on another disk if there is one"))
}

/// Says what was stored: each session in one line, and in the end all of it. The verbose form has
/// each archive, too.
fn tell(report: &Report, context: &Context) {
    // The snapshots of a session stand together, but for archives of others that were lost.
    for pushed in report.snapshots.chunk_by(|a, b| a.session_id == b.session_id) {
        let archives: Vec<_> = pushed.iter().filter_map(|one| one.archive.as_ref()).collect();
        if context.is_verbose {
            archives.iter().for_each(|archive| tell_archive(archive, context));
        }
        let time = report.times.get(&pushed[0].session_id).copied();
        tell_session(&pushed[0].session_id, &archives, time, context);
    }
    let stored = report.archives().count();
    let bytes: u64 = report.archives().map(|archive| archive.archive_bytes).sum();
    let is_there = |pushed: &&PushedSnapshot| pushed.outcome == PushOutcome::AlreadyThere;
    let there = match report.snapshots.iter().filter(is_there).count() {
        0 => String::new(),
        1 => "; 1 was there already".to_owned(),
        count => format!("; {count} were there already"),
    };
    let archives = counted(stored, "archive", "archives");
    let url = Shown::bytes(report.url.as_bytes());
    let size = size_and_rate(bytes, report.times.values().sum());
    context.say(format_args!("{url}: {archives} stored, {size}{there}"));
}

fn tell_session(
    session: &str,
    archives: &[&ArchiveReport],
    time: Option<Duration>,
    context: &Context,
) {
    let Some(first) = archives.first() else { return };
    let bytes: u64 = archives.iter().map(|archive| archive.archive_bytes).sum();
    let sealed = if first.is_encrypted { "encrypted" } else { "not encrypted" };
    let full = archives.iter().find_map(|archive| Some((archive, archive.full?.words()?)));
    let full = full.map_or_else(String::new, |(archive, words)| {
        format!("; snapshot {} is full, because {words}", archive.id.number())
    });
    context.say(format_args!(
        "session {session}: {}, {}, {sealed}{full}",
        counted(archives.len(), "archive", "archives"),
        size_and_rate(bytes, time.unwrap_or_default())
    ));
}

fn tell_archive(archive: &ArchiveReport, context: &Context) {
    context.say(format_args!("{}", Shown::bytes(archive.name.as_bytes())));
    let written = &archive.stats;
    let removed = match written.removed {
        0 => String::new(),
        count => format!(", -{count} removed"),
    };
    context.say(format_args!(
        "  Changes: +{} added, ~{} modified{removed}, {} unchanged",
        written.added, written.modified, written.unchanged
    ));
    match archive.full {
        Some(reason) if reason.words().is_some() => {
            context.say(format_args!("  Full archive{}", because(reason)));
        }
        Some(_) => {}
        None => {
            let saved = byte_size(written.bytes_saved);
            context.say(format_args!("  Saved: {saved} vs full snapshot"));
        }
    }
    let words = if archive.is_encrypted { "Encrypted & stored" } else { "Stored, not encrypted" };
    context.say(format_args!("  {words} ({})", byte_size(archive.archive_bytes)));
}
