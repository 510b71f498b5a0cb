//! `nono remote cleanup`: old archives go, and what a kept snapshot needs stays.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

use clap::Args;
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::progress::Bar;
use crate::cli::render::byte_size;
use crate::cli::sealing::Target;
use nono_archive::remote::{Archives, Inventory, Place, begin_cleanup, end_cleanup};
use nono_archive::{ArchiveError, ArchiveId, ArchiveName};
use nono_engine::counted::counted;
use nono_engine::path_text::Shown;
use nono_engine::progress::{Amount, Progress, Stage};

/// Arguments of `nono remote cleanup`.
#[derive(Debug, Args)]
pub(in crate::cli) struct CleanupArgs {
    /// Name of a remote, a URL, or a path
    #[arg(value_name = "NAME")]
    remote: String,
    /// Sessions to clean up, by their whole ids [default: all]
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Keep so many snapshots of each session, the newest ones
    #[arg(long, value_name = "N", required_unless_present = "keep_sessions")]
    keep: Option<usize>,
    /// Keep so many sessions of all projects together, the newest ones by the time in their ids;
    /// sessions whose ids have none stay
    #[arg(long, value_name = "N", conflicts_with = "ids")]
    keep_sessions: Option<usize>,
    /// Say what would go, and remove nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Remove without asking
    #[arg(long, short)]
    yes: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    remote: String,
    dry_run: bool,
    removed: Vec<String>,
    /// Archives that stay because a kept snapshot needs them.
    needed: Vec<String>,
    bytes_freed: u64,
}

pub(in crate::cli) fn run(args: &CleanupArgs, context: &Context) -> Outcome {
    let target = Target::find(Some(&args.remote))?;
    let place = target.open(false)?;
    let bar = Bar::new(context, "cleaning up the remote");
    if !args.dry_run {
        place.clear_leftovers(&*bar)?;
    }
    let inventory = target.inventory_around(&place, &args.ids, &*bar)?;
    let archives = &inventory.archives;
    let sessions = archives.sessions();
    if let Some(id) = args.ids.iter().find(|id| !sessions.contains(id.as_str())) {
        let id = Shown::bytes(id.as_bytes());
        return Err(CliError::failed(format!("the remote has no session {id}"))
            .with_hint(format!("`nono remote show {}` lists the whole ids", target.name)));
    }
    let is_asked = |id: &str| args.ids.is_empty() || args.ids.iter().any(|asked| asked == id);
    let wanted = wanted(args, archives, is_asked, context)?;
    let going = archives.removable(&wanted, is_asked);
    if !args.dry_run && !args.yes && !going.is_empty() && !confirm(&going, context)? {
        bar.finish();
        context.say("nothing was removed");
        return Ok(1);
    }
    let cleaned: BTreeSet<&str> = going.iter().map(|name| name.id.session()).collect();
    let mut now = inventory.clone();
    if !args.dry_run && !going.is_empty() {
        // A push that did not see the mark is seen by this list.
        begin_cleanup(&place, &cleaned, &*bar)?;
        now = target.inventory_around(&place, &args.ids, &*bar)?;
    }
    let appeared = now.archives.all().map(|(name, _)| name);
    let appeared = appeared.filter(|name| !archives.of_snapshot(&name.id).any(|it| it == *name));
    let mut wanted_now = wanted.clone();
    wanted_now.extend(appeared.map(|name| name.id.clone()));
    let going: Vec<&ArchiveName> = now.archives.removable(&wanted_now, is_asked);
    let going: Vec<&ArchiveName> = going
        .into_iter()
        .filter(|name| archives.of_snapshot(&name.id).any(|it| it == *name))
        .collect();
    let expected = Amount { entries: going.len() as u64, bytes: 0 };
    bar.begin(Stage::Remove, Some(expected));
    let mut report = Report {
        remote: target.name.clone(),
        dry_run: args.dry_run,
        removed: Vec::new(),
        needed: needed(&now.archives, &wanted_now, &going, is_asked),
        bytes_freed: 0,
    };
    let references = now.references_after(&going.iter().copied().collect(), is_asked);
    let sizes: BTreeMap<&ArchiveName, u64> = now.archives.all().collect();
    for name in going {
        if !args.dry_run {
            remove(&place, name, report.removed.len(), &*bar)?;
        }
        bar.advance(1, 0);
        report.removed.push(name.to_string());
        report.bytes_freed += sizes.get(name).copied().unwrap_or_default();
    }
    if !args.dry_run {
        references.iter().try_for_each(|key| place.remove(key, &*bar))?;
        end_cleanup(&place, &left_marked(&now, &cleaned, is_asked), &*bar)?;
    }
    bar.finish();
    match args.json {
        true => context.json(&report)?,
        false => tell(&report, context)?,
    }
    Ok(0)
}

/// The archives of sessions that are asked for that stay because a kept snapshot needs them.
fn needed(
    archives: &Archives,
    wanted: &BTreeSet<ArchiveId>,
    going: &[&ArchiveName],
    is_asked: impl Fn(&str) -> bool,
) -> Vec<String> {
    let going: BTreeSet<&ArchiveName> = going.iter().copied().collect();
    let of_asked = archives.all().map(|(name, _)| name);
    let of_asked = of_asked.filter(|name| is_asked(name.id.session()));
    let needed = of_asked.filter(|name| !wanted.contains(&name.id) && !going.contains(name));
    needed.map(ToString::to_string).collect()
}

/// The sessions whose marks go: those of this cleanup, and of one that was killed.
fn left_marked<'a>(
    inventory: &'a Inventory,
    cleaned: &BTreeSet<&'a str>,
    is_asked: impl Fn(&str) -> bool,
) -> BTreeSet<&'a str> {
    let others = inventory.being_cleaned.iter().map(String::as_str).filter(|id| is_asked(id));
    cleaned.iter().copied().chain(others).collect()
}

/// Removes an archive. An error says how many are gone already.
fn remove(
    place: &Place,
    name: &ArchiveName,
    removed: usize,
    progress: &dyn Progress,
) -> Result<(), CliError> {
    place.remove(&name.to_string(), progress).map_err(|error| {
        let state = counted(removed, "archive is removed", "archives are removed");
        CliError::from(error).leaving(&state)
    })
}

fn tell(report: &Report, context: &Context) -> std::io::Result<()> {
    let mut out = context.out_done(report.dry_run);
    for key in &report.removed {
        writeln!(out, "{}", Shown::bytes(key.as_bytes()))?;
    }
    out.flush()?;
    let words = if report.dry_run { "would be removed" } else { "removed" };
    context.say(format_args!(
        "{} {words}, {}; {} older ones stay because a kept snapshot needs them",
        counted(report.removed.len() as u64, "archive", "archives"),
        byte_size(report.bytes_freed),
        report.needed.len()
    ));
    Ok(())
}

/// The snapshots that are kept: of each session that is asked for, the newest ones.
fn wanted(
    args: &CleanupArgs,
    archives: &Archives,
    is_asked: impl Fn(&str) -> bool,
    context: &Context,
) -> Result<BTreeSet<ArchiveId>, CliError> {
    let sessions = archives.sessions();
    let (dated, undated): (Vec<&str>, Vec<&str>) =
        sessions.iter().copied().partition(|id| tells_time(id));
    let keep_sessions = args.keep_sessions.unwrap_or(usize::MAX);
    let mut newest: BTreeSet<&str> = dated.into_iter().rev().take(keep_sessions).collect();
    if args.keep_sessions.is_some() {
        for id in &undated {
            let id = Shown::bytes(id.as_bytes());
            context.say(format_args!(
                "session {id} stays: its id has no time; name it to clean it up"
            ));
        }
    }
    newest.extend(undated);
    let mut wanted = BTreeSet::new();
    for id in sessions.iter().filter(|id| is_asked(id)) {
        let count = match newest.contains(id) {
            true => args.keep.unwrap_or(usize::MAX),
            false => 0,
        };
        let available = archives.available(id).map_err(ArchiveError::from)?;
        for (number, _) in available.iter().rev().take(count) {
            wanted.insert(ArchiveId::new(id, *number).map_err(ArchiveError::from)?);
        }
    }
    Ok(wanted)
}

/// Whether an id begins with a time, as those that nono gives: `YYYYMMDD-HHMMSS-…`.
fn tells_time(id: &str) -> bool {
    let mut parts = id.split('-');
    let mut are_digits = |count| {
        parts.next().is_some_and(|it| it.len() == count && it.bytes().all(|b| b.is_ascii_digit()))
    };
    are_digits(8) && are_digits(6) && parts.next().is_some()
}

/// Asks whether these archives may go.
fn confirm(going: &[&ArchiveName], context: &Context) -> Result<bool, CliError> {
    let archives = counted(going.len() as u64, "archive", "archives");
    if !context.stdin_is_terminal {
        let message = format!(
            "nothing was removed: cleanup asks first whether {archives} may go, and this is no \
             terminal"
        );
        return Err(CliError::usage(message).with_hint("--yes removes, --dry-run only looks"));
    }
    context.confirm(&format!("remove {archives} for good?"))
}
