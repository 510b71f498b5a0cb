//! `nono pull`: sessions from a remote.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use crate::cli::render::byte_size;
use crate::cli::sealing::{Target, UnsealArgs, identities};
use nono_archive::remote::{Inventory, PullReport, prove, pull};
use nono_engine::counted::counted;
use nono_engine::path_text::Shown;

/// Arguments of `nono pull`.
#[derive(Debug, Args)]
pub(in crate::cli) struct PullArgs {
    /// A remote (a name, a URL, a path) [default: the only one], then sessions or snapshots: ID or
    /// ID/N
    #[arg(value_name = "REMOTE|ID")]
    words: Vec<String>,
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

#[derive(Serialize)]
struct Report {
    remote: String,
    url: String,
    sessions: Vec<PullReport>,
    failed: Vec<Failed>,
}

/// A session of which nothing came.
#[derive(Serialize)]
struct Failed {
    session_id: String,
    error: String,
}

/// Sessions, each with the wanted snapshots; none for all of them.
type Wanted = BTreeMap<String, Option<BTreeSet<u64>>>;

pub(in crate::cli) fn run(args: &PullArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    let (remote, ids) = match args.words.split_first() {
        Some((first, ids)) if Target::is_meant_by(first)? => (Some(first.as_str()), ids),
        _ => (None, args.words.as_slice()),
    };
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
    let inventory = target.inventory(&place, &*bar)?;
    let wanted = match args.all {
        true => inventory.session_ids().into_iter().map(|id| (id.to_owned(), None)).collect(),
        false => wanted(ids, &inventory, &target)?,
    };
    let asked = |id: &String| wanted.contains_key(id);
    let held = inventory.sessions.iter().filter(|(id, _)| asked(id)).map(|(_, held)| held);
    target.needs_key(held, &identities)?;
    let url = place.address().to_string();
    let mut report =
        Report { remote: target.name.clone(), url, sessions: Vec::new(), failed: Vec::new() };
    for (id, numbers) in &wanted {
        let root = catalog.root();
        match pull(&place, &inventory, id, numbers.as_ref(), root, &identities, &*bar) {
            Ok(pulled) => report.sessions.push(pulled),
            Err(error) if error.is_cancelled() => {
                bar.finish();
                return Err(CliError::stopped(format!(
                    "stopped: nothing new of session {id} is here, and the same pull fetches it{}",
                    match report.sessions.len() {
                        0 => "",
                        _ => "; the sessions before it are here",
                    }
                )));
            }
            Err(error) => {
                report.failed.push(Failed { session_id: id.clone(), error: error.to_string() });
            }
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
    for key in &inventory.unencrypted {
        let key = Shown::bytes(key.as_bytes());
        context
            .warn(format_args!("{key} is not encrypted, so it is none of this remote's: not read"));
    }
    let linked = inventory.linked.iter().filter(|_| args.all);
    for id in linked.clone() {
        let id = Shown::bytes(id.as_bytes());
        context.warn(format_args!("{id} is a symlink, which is not followed: not read"));
    }
    if args.json {
        context.json(&report)?;
    }
    tell(&report, args.json, context);
    if let Err(error) = proved {
        context.error(&error.into());
    }
    let is_complete = linked.count() == 0
        && report.failed.is_empty()
        && report.sessions.iter().all(|it| it.not_pulled.is_empty() && it.is_verified);
    Ok(u8::from(!is_complete))
}

/// The sessions that ids, or beginnings of ids, mean at a remote.
fn wanted(ids: &[String], inventory: &Inventory, target: &Target) -> Result<Wanted, CliError> {
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
            context.say(format_args!("{id}: {what}, {size} new{mended}{proved}"));
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
    if has_new && !is_json {
        context.say(format_args!("see them: {NONO} list --all"));
    }
}
