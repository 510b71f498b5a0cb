//! `nono pull`: sessions from a remote, or single archives, and a state of them in a directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::archive::tell_imported;
use super::pull_archive::{self, Named};
use super::restore::{copy_state, print_copy};
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use crate::cli::render::{byte_size, size_and_rate};
use crate::cli::sealing::{Target, UnsealArgs, identities};
use nono_archive::remote::{Address, Inventory, Place, PullReport, prove, pull};
use nono_archive::{ArchiveId, Identities, ReceiveReport};
use nono_engine::counted::counted;
use nono_engine::path_text::Shown;
use nono_engine::progress::Progress;
use nono_engine::restore::CopyReport;
use nono_engine::session::Catalog;

/// Arguments of `nono pull`.
#[derive(Debug, Args)]
pub(in crate::cli) struct PullArgs {
    /// A remote (a name, a URL, a path) [default: the only one], then sessions or snapshots: ID or
    /// ID/N. Or archives: files, or the URL of one
    #[arg(value_name = "REMOTE|ID")]
    words: Vec<String>,
    /// Copy the state into this directory, too: the named snapshot, or the newest one that the
    /// session left
    #[arg(long, value_name = "DIR", conflicts_with = "all")]
    to: Option<PathBuf>,
    /// Pull all sessions of the remote
    #[arg(long)]
    all: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    // A heading is that of all that follows.
    #[command(flatten)]
    unseal: UnsealArgs,
}

#[derive(Default, Serialize)]
struct Report {
    remote: String,
    url: String,
    sessions: Vec<PullReport>,
    failed: Vec<Failed>,
    /// The copy of a state.
    #[serde(skip_serializing_if = "Option::is_none")]
    copy: Option<CopyReport>,
    /// The time for each session.
    #[serde(skip)]
    times: BTreeMap<String, Duration>,
}

/// Archives that were imported.
#[derive(Serialize)]
struct Imported {
    sessions: Vec<ReceiveReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    copy: Option<CopyReport>,
}

/// A session of which nothing came.
#[derive(Serialize)]
struct Failed {
    session_id: String,
    error: String,
}

/// Sessions, each with the wanted snapshots; none for all of them.
pub(in crate::cli) type Wanted = BTreeMap<String, Option<BTreeSet<u64>>>;

pub(in crate::cli) fn run(args: &PullArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    // The name of a remote is no file.
    let is_name = |word: &String| {
        Ok::<_, CliError>(!Address::is_meant_by(word) && Target::is_meant_by(word)?)
    };
    let is_of_remote = args.all || args.words.first().map_or(Ok(false), is_name)?;
    match Some(&args.words).filter(|_| !is_of_remote).and_then(|words| Named::by(words)) {
        Some(Named::Archives(archives)) => import_archives(args, &archives, &catalog, context),
        Some(Named::Snapshot { address, id }) => {
            pull_from(args, Some(&address), &[id], &catalog, context)
        }
        None => {
            let (remote, ids) = match args.words.split_first() {
                Some((first, ids)) if Target::is_meant_by(first)? => (Some(first.as_str()), ids),
                _ => (None, args.words.as_slice()),
            };
            pull_from(args, remote, ids, &catalog, context)
        }
    }
}

/// Imports single archives, and copies their state.
fn import_archives(
    args: &PullArgs,
    archives: &[String],
    catalog: &Catalog,
    context: &Context,
) -> Outcome {
    let keys = identities(&args.unseal, None)?;
    let sessions = pull_archive::import(archives, &keys, catalog.root(), context)?;
    if !args.json {
        tell_imported(&sessions, context);
    }
    let states = sessions.iter().map(|received| states_of(received, &Wanted::new())).collect();
    let copy = copy(args, states, catalog, context)?;
    if args.json {
        context.json(&Imported { sessions, copy })?;
        return Ok(0);
    }
    copy.map_or(Ok(0), |copy| print_copy(&copy, false, context))
}

/// A session, and the numbers of its snapshots that were asked for.
type States = (String, Vec<u64>);

/// Copies the state of the one session of a pull, if it is to be copied: the newest one that the
/// session left. A snapshot that a restore took is no such state, so it is copied only where it is
/// the one that was asked for.
fn copy(
    args: &PullArgs,
    mut states: Vec<States>,
    catalog: &Catalog,
    context: &Context,
) -> Result<Option<CopyReport>, CliError> {
    let Some(to) = &args.to else { return Ok(None) };
    let (id, numbers) = match (states.pop(), states.is_empty()) {
        (Some(one), true) => one,
        (Some(_), false) => {
            return Err(CliError::usage("--to takes the state of one session: name one"));
        }
        (None, _) => return Err(CliError::failed("there is no state to copy")),
    };
    let session = catalog.find(&id)?;
    let taken_by_restores = session.metadata()?.safety_snapshots;
    let left = numbers.iter().filter(|number| !taken_by_restores.contains(number)).max();
    let number = left.or_else(|| numbers.iter().max());
    let number = number.ok_or_else(|| CliError::failed("there is no state to copy"))?;
    Ok(Some(copy_state(&session, *number, to, context)?))
}

/// Pulls sessions or snapshots from a remote.
fn pull_from(
    args: &PullArgs,
    remote: Option<&str>,
    ids: &[String],
    catalog: &Catalog,
    context: &Context,
) -> Outcome {
    if args.all != ids.is_empty() {
        return Err(match args.all {
            true => CliError::usage("--all means every session: name none"),
            false => CliError::usage("name a session, or give --all for every one")
                .with_hint("`nono remote show NAME` lists the sessions of a remote"),
        });
    }
    let target = Target::find(remote)?;
    let identities = identities(&args.unseal, target.encryption.as_ref())?;
    let place = target.open(false)?;
    let bar = Bar::new(context, "pulling");
    let identities = identities.with_key_of(&place, &*bar)?;
    let inventory = inventory(ids, &target, &place, &*bar)?;
    let wanted = match args.all {
        true => inventory.session_ids().into_iter().map(|id| (id.to_owned(), None)).collect(),
        false => wanted(ids, &inventory, &target)?,
    };
    if args.to.is_some() && (wanted.len() != 1 || wanted.values().flatten().any(|it| it.len() > 1))
    {
        return Err(CliError::usage("--to takes one state: name one session or one snapshot"));
    }
    let names = wanted.keys().flat_map(|id| inventory.archives.of_session(id));
    target.needs_key(names.map(|(name, _)| name), &identities)?;
    let mut report = Report {
        remote: target.name.clone(),
        url: place.address().to_string(),
        ..Report::default()
    };
    let pulling = Pulling { place: &place, inventory: &inventory, identities: &identities };
    for (id, numbers) in &wanted {
        let stopped = pulling.pull(id, numbers.as_ref(), catalog.root(), &*bar, &mut report);
        if let Err(error) = stopped {
            bar.finish();
            return Err(error);
        }
    }
    let proved =
        prove(&place, &inventory, &mut report.sessions, catalog.root(), &identities, &*bar);
    bar.finish();
    match &proved {
        Err(error) if error.is_cancelled() => {
            return Err(CliError::stopped(
                "stopped: the sessions are here, and not all of them are verified",
            ));
        }
        _ => {}
    }
    let is_all_read = warn_of_unread(&inventory, args.all, context);
    let is_complete = is_all_read
        && proved.is_ok()
        && report.failed.is_empty()
        && report.sessions.iter().all(|it| it.not_pulled.is_empty() && it.is_verified);
    if !report.sessions.is_empty() {
        let states = report.sessions.iter().map(|it| states_of(&it.received, &wanted)).collect();
        report.copy = copy(args, states, catalog, context)?;
    }
    if args.json {
        context.json(&report)?;
    }
    tell(&report, args.json, context);
    if let Err(error) = proved {
        context.error(&error.into());
    }
    let copied = match &report.copy {
        Some(copy) if !args.json => print_copy(copy, false, context)?,
        Some(copy) => u8::from(!copy.skipped.is_empty()),
        None => 0,
    };
    Ok(u8::from(!is_complete).max(copied))
}

/// A remote from which sessions are pulled.
struct Pulling<'a> {
    place: &'a Place,
    inventory: &'a Inventory,
    identities: &'a Identities,
}

impl Pulling<'_> {
    /// Pulls one session. A failure is in the report; the error is that the user stopped it.
    fn pull(
        &self,
        id: &str,
        numbers: Option<&BTreeSet<u64>>,
        root: &Path,
        progress: &dyn Progress,
        report: &mut Report,
    ) -> Result<(), CliError> {
        let Self { place, inventory, identities } = self;
        let begin = Instant::now();
        let pulled = pull(place, inventory, id, numbers, root, identities, progress);
        report.times.insert(id.to_owned(), begin.elapsed());
        match pulled {
            Ok(pulled) => report.sessions.push(pulled),
            Err(error) if error.is_cancelled() => {
                let before = match report.sessions.len() {
                    0 => "",
                    _ => "; the sessions before it are here",
                };
                return Err(CliError::stopped(format!(
                    "stopped: nothing new of session {id} is here, and the same pull fetches it\
                     {before}"
                )));
            }
            Err(error) => {
                report.failed.push(Failed { session_id: id.to_owned(), error: error.to_string() });
            }
        }
        Ok(())
    }
}

fn states_of(received: &ReceiveReport, wanted: &Wanted) -> States {
    let id = &received.session_id;
    let asked = wanted.get(id).and_then(Option::as_ref);
    let is_asked = |number: &&u64| asked.is_none_or(|asked| asked.contains(number));
    let all = received.snapshots.iter().chain(&received.already_here);
    (id.clone(), all.filter(is_asked).copied().collect())
}

/// Names what is none of the remote's, or cannot be read. Returns whether all was read.
fn warn_of_unread(inventory: &Inventory, all: bool, context: &Context) -> bool {
    for key in &inventory.unencrypted {
        let key = Shown::bytes(key.as_bytes());
        context
            .warn(format_args!("{key} is not encrypted, so it is none of this remote's: not read"));
    }
    let linked = inventory.linked.iter().filter(|_| all);
    for id in linked.clone() {
        let id = Shown::bytes(id.as_bytes());
        context.warn(format_args!("{id} is a symlink, which is not followed: not read"));
    }
    linked.count() == 0
}

/// The archives of these sessions and of those that they depend on; all archives for no id, or for
/// an id that is no whole one.
pub(in crate::cli) fn inventory(
    ids: &[String],
    target: &Target,
    place: &Place,
    progress: &dyn Progress,
) -> Result<Inventory, CliError> {
    let whole = ids.iter().map(|text| text.split('/').next().unwrap_or(text).to_owned());
    let sessions: Vec<String> = whole.filter(|id| ArchiveId::new(id, 0).is_ok()).collect();
    if sessions.len() == ids.len() && !sessions.is_empty() {
        let inventory = target.inventory(place, &sessions, progress)?;
        let known = inventory.session_ids();
        if sessions.iter().all(|id| known.contains(id.as_str())) {
            return Ok(inventory);
        }
    }
    target.inventory(place, &[], progress)
}

/// The sessions that ids, or beginnings of ids, mean at a remote.
pub(in crate::cli) fn wanted(
    ids: &[String],
    inventory: &Inventory,
    target: &Target,
) -> Result<Wanted, CliError> {
    let mut wanted = Wanted::new();
    let known = inventory.session_ids();
    for text in ids {
        let shown = Shown::bytes(text.as_bytes());
        let (id, number) = match text.split_once('/') {
            Some((id, number)) => (id, Some(number)),
            None => (text.as_str(), None),
        };
        let found: Vec<&str> = match known.contains(id) {
            true => vec![id],
            false => known.iter().copied().filter(|known| known.starts_with(id)).collect(),
        };
        if found.is_empty() && inventory.linked.iter().any(|linked| linked == id) {
            let message = format!("{shown} at {} is a symlink, which is not followed", target.name);
            return Err(CliError::failed(message).with_hint("put the folder itself there"));
        }
        let (name, list) = (&target.name, format!("`nono remote show {}` lists them", target.name));
        let [session] = found.as_slice() else {
            let error = match found.len() {
                0 => format!("{name} has no session {shown}"),
                count => {
                    let sessions = counted(count, "session", "sessions");
                    format!("{shown} could be any of {sessions} of {name}")
                }
            };
            return Err(CliError::failed(error).with_hint(list));
        };
        match number {
            None => drop(wanted.insert((*session).to_owned(), None)),
            Some(number) => {
                let number = match number.parse::<u64>() {
                    Ok(number) => number,
                    Err(_) => {
                        let message = format!("{shown} names no snapshot: ID/NUMBER does");
                        return Err(CliError::usage(message));
                    }
                };
                let entry = wanted.entry((*session).to_owned());
                if let Some(numbers) = entry.or_insert_with(|| Some(BTreeSet::new())) {
                    numbers.insert(number);
                }
            }
        }
    }
    Ok(wanted)
}

fn tell(report: &Report, is_json: bool, context: &Context) {
    for session in &report.sessions {
        let received = &session.received;
        let id = &received.session_id;
        let (new, here) = (received.snapshots.len(), received.already_here.len());
        if !is_json {
            let what = match (received.is_new_session, new) {
                (true, _) => counted(new, "snapshot", "snapshots"),
                (false, 0) => format!("nothing new, {here} here already"),
                (false, _) => format!("{new} more, {here} here already"),
            };
            let size = byte_size(received.bytes_written);
            let mended = match session.mended {
                0 => String::new(),
                count => format!(", {} mended", counted(count, "object", "objects")),
            };
            let proved = if session.is_verified { ", verified" } else { "" };
            let time = report.times.get(id).copied().unwrap_or_default();
            let read = match session.bytes_read {
                0 => String::new(),
                bytes => format!(", {} read", size_and_rate(bytes, time)),
            };
            context.say(format_args!("{id}: {what}, {size} new{read}{mended}{proved}"));
        }
        if let Some(damage) = &session.damage {
            context.warn(format_args!(
                "{id} is damaged here, and the remote did not mend it: {}",
                Shown::bytes(damage.as_bytes())
            ));
        }
        for missing in &session.not_pulled {
            let reason = Shown::bytes(missing.reason.as_bytes());
            context.warn(format_args!("{id}/{} cannot be had: {reason}", missing.snapshot));
        }
    }
    for Failed { session_id, error } in &report.failed {
        context.error(&CliError::failed(format!("session {session_id} is not pulled: {error}")));
    }
    let has_new = report.sessions.iter().any(|session| !session.received.snapshots.is_empty());
    if !is_json && !report.sessions.is_empty() {
        let archives: u64 = report.sessions.iter().map(|session| session.archives_read).sum();
        let bytes: u64 = report.sessions.iter().map(|session| session.bytes_read).sum();
        let url = Shown::bytes(report.url.as_bytes());
        let size = size_and_rate(bytes, report.times.values().sum());
        let archives = counted(archives, "archive", "archives");
        context.say(format_args!("{url}: {archives} read, {size}"));
    }
    if has_new && !is_json {
        context.say(format_args!("see them: {NONO} list --all"));
    }
}
