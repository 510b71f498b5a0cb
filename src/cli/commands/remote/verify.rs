//! `nono remote verify`: every archive is read, and every chain is judged. Damaged archives go if
//! they are to, and if a push can store them again.

use std::collections::BTreeSet;
use std::io::Write;

use clap::Args;
use serde::Serialize;

use super::damage::Damage;
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::{Context, RED};
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use crate::cli::render::byte_size;
use crate::cli::sealing::{Target, UnsealArgs, identities};
use nono_archive::remote::{RemoteProblem, RemoteProblemKind, StayingArchive, check};
use nono_engine::counted::counted;
use nono_engine::path_text::Shown;

/// Maximum number of problems that are named.
const NAMED: usize = 50;

/// Arguments of `nono remote verify`.
#[derive(Debug, Args)]
pub(in crate::cli) struct VerifyArgs {
    /// Name of a remote, a URL, or a path
    #[arg(value_name = "NAME")]
    remote: String,
    /// Sessions to check, by their whole ids [default: all]
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Remove damaged archives, so that the next push stores them again; those that no push from
    /// here can replace stay
    #[arg(long)]
    remove_damaged: bool,
    /// Remove without asking
    #[arg(long, short, requires = "remove_damaged")]
    yes: bool,
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
    ok: bool,
    session_count: u64,
    /// Snapshots that can be had.
    snapshot_count: u64,
    archives_checked: u64,
    bytes_checked: u64,
    problems: Vec<RemoteProblem>,
    /// Damaged archives that were removed.
    removed: Vec<String>,
    /// Damaged archives that were to be removed and stay.
    staying: Vec<StayingArchive>,
    /// Names at the place that are no archives.
    foreign: Vec<String>,
    /// Archives that are not encrypted, where those of the remote are. They are not read.
    unencrypted: Vec<String>,
    /// Folders of sessions that are symlinks. They are not read.
    linked: Vec<String>,
}

pub(in crate::cli) fn run(args: &VerifyArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let target = Target::find(Some(&args.remote))?;
    let identities = identities(&args.unseal, target.encryption.as_ref())?;
    let place = target.open(false)?;
    let bar = Bar::new(context, "verifying the remote");
    let identities = identities.with_key_of(&place, &*bar)?;
    let mut inventory = target.inventory(&place, &args.ids, &*bar)?;
    let known = inventory.session_ids();
    let is_there = |id: &String| known.contains(id.as_str()) || inventory.linked.contains(id);
    if let Some(id) = args.ids.iter().find(|id| !is_there(id)) {
        let id = Shown::bytes(id.as_bytes());
        return Err(CliError::failed(format!("the remote has no session {id}")));
    }
    let is_asked = |id: &String| args.ids.is_empty() || args.ids.contains(id);
    let sessions = inventory.archives.sessions().into_iter().map(str::to_owned);
    let sessions: BTreeSet<String> = sessions.filter(is_asked).collect();
    let names = sessions.iter().flat_map(|id| inventory.archives.of_session(id));
    target.needs_key(names.map(|(name, _)| name), &identities)?;
    let mut report = Report { remote: target.name.clone(), ..Report::default() };
    inventory.cut_off.retain(|name| is_asked(&name.id.session().to_owned()));
    let checks = check(&place, &inventory.archives, &sessions, &identities, &*bar)?;
    for checked in checks.values() {
        report.session_count += 1;
        report.snapshot_count += checked.available.len() as u64;
        report.archives_checked += checked.archives_checked;
        report.bytes_checked += checked.bytes_checked;
        report.problems.extend(checked.problems.iter().cloned());
    }
    report.problems.extend(inventory.cut_off.iter().map(RemoteProblem::cut_off));
    report.unencrypted = std::mem::take(&mut inventory.unencrypted);
    report.linked = std::mem::take(&mut inventory.linked);
    report.linked.retain(is_asked);
    let is_all_read = report.unencrypted.is_empty() && report.linked.is_empty();
    report.ok = report.problems.is_empty() && is_all_read;
    report.foreign = std::mem::take(&mut inventory.foreign);
    let damage = match args.remove_damaged {
        true => {
            let root = store.catalog()?.root().to_owned();
            Some({
                let is_asked = |id: &str| args.ids.is_empty() || args.ids.iter().any(|it| it == id);
                Damage::sort(&place, &inventory, &checks, is_asked, &root, &identities, &*bar)?
            })
        }
        false => None,
    };
    bar.finish();
    if !args.json {
        print(&report, args, context)?;
    }
    if let Some(damage) = damage {
        report.removed = damage.remove(&place, &identities, args.yes, context)?;
        report.staying = damage.staying;
        tell_removal(&report, context);
    }
    if args.json {
        context.json(&report)?;
    }
    Ok(u8::from(!report.ok))
}

fn print(report: &Report, args: &VerifyArgs, context: &Context) -> std::io::Result<()> {
    let mut out = context.out();
    for problem in report.problems.iter().take(context.at_most(NAMED)) {
        let RemoteProblem { session_id, snapshot, archive, reason, .. } = problem;
        let reason = Shown::bytes(reason.as_bytes());
        match archive {
            Some(archive) => writeln!(out, "{RED}{archive}{RED:#}: {reason}")?,
            None => {
                writeln!(out, "{RED}{session_id}/{snapshot} cannot be had{RED:#}: {reason}")?;
            }
        }
    }
    if let more @ 1.. = report.problems.len().saturating_sub(context.at_most(NAMED)) {
        writeln!(out, "and {more} more")?;
    }
    for key in &report.unencrypted {
        let key = Shown::bytes(key.as_bytes());
        writeln!(
            out,
            "{RED}{key}{RED:#}: not encrypted, so it is none of this remote's: not read"
        )?;
    }
    for id in &report.linked {
        let id = Shown::bytes(id.as_bytes());
        writeln!(out, "{RED}{id}{RED:#}: a symlink, which is not followed: not read")?;
    }
    for key in &report.foreign {
        writeln!(out, "no archive: {}", Shown::bytes(key.as_bytes()))?;
    }
    writeln!(
        out,
        "{} read, {}; {} of {} can be had",
        counted(report.archives_checked, "archive", "archives"),
        byte_size(report.bytes_checked),
        counted(report.snapshot_count, "snapshot", "snapshots"),
        counted(report.session_count, "session", "sessions")
    )?;
    let of_no_use =
        |it: &&RemoteProblem| it.archive.is_some() && it.kind == RemoteProblemKind::DamagedArchive;
    if !args.remove_damaged && report.problems.iter().any(|problem| of_no_use(&problem)) {
        context.say(format_args!(
            "{NONO} remote verify {} --remove-damaged removes damaged archives, and the next push \
             stores them again",
            Shown::bytes(report.remote.as_bytes())
        ));
    }
    Ok(())
}

/// Says what became of damaged archives.
fn tell_removal(report: &Report, context: &Context) {
    for StayingArchive { archive, reason } in &report.staying {
        let reason = Shown::bytes(reason.as_bytes());
        context.warn(format_args!("{archive} is damaged and stays: {reason}"));
    }
    for archive in &report.removed {
        context.say(format_args!("removed: {archive}"));
    }
    if !report.removed.is_empty() {
        context.say(format_args!(
            "{} removed; `{NONO} push {} ID` stores what is missing of a session",
            counted(report.removed.len() as u64, "damaged archive", "damaged archives"),
            Shown::bytes(report.remote.as_bytes())
        ));
    }
}
