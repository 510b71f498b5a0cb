//! `nono verify`: every manifest and every byte, and mending what can be mended.

use std::collections::BTreeMap;
#[cfg(feature = "archive")]
use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, ThreadArgs};
use crate::cli::context::{BOLD, Context, GREEN, RED};
use crate::cli::error::CliError;
#[cfg(feature = "archive")]
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
#[cfg(feature = "archive")]
use crate::cli::remote_copies;
use crate::cli::render::byte_size;
use nono_engine::counted::counted;
use nono_engine::object::ContentHash;
use nono_engine::path_text::Shown;
#[cfg(feature = "archive")]
use nono_engine::progress::Progress;
use nono_engine::repair::{RepairOptions, RepairReport, Repaired, Source, repair_session};
use nono_engine::session::{Catalog, Purpose};
use nono_engine::snapshot::SessionDir;
use nono_engine::store::{Compression, LocalStore};
use nono_engine::sys::{self, Dir};
use nono_engine::verify::{Proved, Verifier, VerifyError, VerifyOptions, VerifyReport};

/// Arguments of `nono verify`.
#[derive(Debug, Args)]
pub(in crate::cli) struct VerifyArgs {
    /// Id of a session, a prefix of it, or `latest` [default: the newest one here]
    #[arg(conflicts_with = "all")]
    id: Option<String>,
    /// Verify all sessions
    #[arg(long)]
    all: bool,
    /// A root noted elsewhere: the session's, as `run` prints it, or the Merkle root of a snapshot
    #[arg(long, value_name = "HEX", conflicts_with = "all")]
    expect_root: Option<ContentHash>,
    /// Move what is damaged into quarantine, put good copies in its place where there are any, and
    /// say what is lost for good
    #[arg(long)]
    repair: bool,
    /// Also look for good copies in this store, session or directory of objects (repeatable)
    #[arg(long, value_name = "DIR", requires = "repair")]
    from: Vec<PathBuf>,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print the report as JSON; with --all a list of reports
    #[arg(long)]
    json: bool,
}

impl VerifyArgs {
    pub(in crate::cli) fn writes_store(&self) -> bool {
        self.repair
    }
}

pub(in crate::cli) fn run(args: &VerifyArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    let sessions = match &args.id {
        _ if args.all => catalog.sessions()?,
        id => {
            let id = id.as_deref().unwrap_or("latest");
            vec![catalog.find_from(id, Purpose::Looking)?]
        }
    };
    for place in &args.from {
        Dir::open(place)?;
    }
    let threads = args.threads.count(context)?;
    let bar = Bar::new(context, "verifying");
    let options = VerifyOptions { threads, progress: &*bar, expected_root: args.expect_root };
    let mut failures = Vec::new();
    let mut reports = verify(&sessions, options, args.all, &mut failures);
    if args.repair {
        let places: Vec<PathBuf> = args.from.iter().chain(catalog.roots()).cloned().collect();
        let options = RepairOptions { verify: options, other_stores: &places };
        let (mut stores, compression) = (BTreeMap::new(), args.threads.compression());
        for report in reports.iter_mut().filter(|report| !report.verified.ok) {
            if let Err(error) = repair(report, &mut stores, &options, compression) {
                let is_stopped = error.is_stopped();
                failures.push(error);
                if is_stopped {
                    break;
                }
            }
        }
    }
    #[cfg(feature = "archive")]
    let remedies = remedies(&reports, &*bar)?;
    bar.finish();
    if let Some(at) = failures.iter().position(CliError::is_stopped) {
        return Err(failures.swap_remove(at));
    }
    for failure in &failures {
        context.error(failure);
    }
    let is_well = |report: &Report| report.verified.ok && !report.has_lost();
    let ok = failures.is_empty() && reports.iter().all(is_well);
    if args.json {
        match reports.as_slice() {
            [report] if !args.all => context.json(report)?,
            reports => context.json(&reports)?,
        }
    } else {
        print(&reports, context)?;
        #[cfg(feature = "archive")]
        for remedy in &remedies {
            context.say(remedy);
        }
    }
    Ok(u8::from(!ok))
}

/// The commands that fetch from a remote what a repair could not find here.
#[cfg(feature = "archive")]
fn remedies(reports: &[Report], progress: &dyn Progress) -> Result<Vec<String>, CliError> {
    let mut remedies = Vec::new();
    for Report { verified, repair, .. } in reports {
        let lost = repair.iter().flat_map(|repair| &repair.lost);
        let snapshots: BTreeSet<u64> = lost.flat_map(|lost| &lost.snapshots).copied().collect();
        if snapshots.is_empty() {
            continue;
        }
        let id = &verified.session_id;
        for name in remote_copies::remotes_with(id, &snapshots, progress)? {
            remedies.push(format!("`{NONO} pull {name} {id}` fetches what {name} has of it"));
        }
    }
    Ok(remedies)
}

/// A session's report, and what was mended before.
#[derive(Serialize)]
struct Report {
    #[serde(flatten)]
    verified: VerifyReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    repair: Option<RepairReport>,
    #[serde(skip)]
    session: SessionDir,
}

impl Report {
    /// Whether the repair gave something up. What is left verifies without it.
    fn has_lost(&self) -> bool {
        self.repair.as_ref().is_some_and(|repair| !repair.lost.is_empty())
    }
}

/// Repairs a session. A store stays open for the next one, so no copy is tried twice.
fn repair(
    report: &mut Report,
    stores: &mut BTreeMap<PathBuf, LocalStore>,
    options: &RepairOptions<'_>,
    compression: Compression,
) -> Result<(), CliError> {
    let store = match stores.entry(sys::real_path(&report.session.objects_path())?) {
        Entry::Occupied(open) => open.into_mut(),
        Entry::Vacant(new) => new.insert(Catalog::store_of(&report.session)?),
    };
    store.set_compression(compression);
    let (repair, verified) = repair_session(&report.session, store, options)?;
    report.verified = verified;
    report.repair = Some(repair);
    Ok(())
}

/// Sessions that share a store share the work: each object is read once. A session of which nothing
/// can be said is a failure, and does not keep the others from being verified.
fn verify(
    sessions: &[SessionDir],
    options: VerifyOptions<'_>,
    all: bool,
    failures: &mut Vec<CliError>,
) -> Vec<Report> {
    let mut by_store: BTreeMap<PathBuf, Vec<&SessionDir>> = BTreeMap::new();
    for session in sessions {
        match sys::real_path(&session.objects_path()) {
            Ok(objects) => by_store.entry(objects).or_default().push(session),
            // Removed since it was listed: nothing is wrong with it.
            Err(_) if all && session.is_gone() => {}
            Err(error) => failures.push(error.into()),
        }
    }
    let mut reports = Vec::new();
    for (objects, sessions) in &by_store {
        let verified = verify_store(objects, sessions, options, all, &mut reports, failures);
        failures.extend(verified.err());
        if failures.last().is_some_and(CliError::is_stopped) {
            break;
        }
    }
    reports
}

fn verify_store(
    objects: &Path,
    sessions: &[&SessionDir],
    options: VerifyOptions<'_>,
    all: bool,
    reports: &mut Vec<Report>,
    failures: &mut Vec<CliError>,
) -> Result<(), CliError> {
    // Not by the path through a session, which may be removed at any moment.
    let store = LocalStore::open(objects)?;
    let mut verifier = Verifier::new(&store, options)?;
    for session in sessions {
        let verified = verifier.session(session);
        let is_well = verified.as_ref().is_ok_and(|report| report.ok);
        match verified {
            // Removed by a cleanup since it was listed: nothing is wrong with it.
            _ if !is_well && all && session.is_gone() => {}
            Ok(verified) => {
                reports.push(Report { verified, repair: None, session: (*session).clone() });
            }
            // The rest would be stopped as well.
            Err(error @ VerifyError::Cancelled) => return Err(error.into()),
            Err(error) => failures.push(error.into()),
        }
    }
    Ok(())
}

fn print(reports: &[Report], context: &Context) -> Result<(), CliError> {
    let mut out = context.out_long();
    let is_worth_a_word =
        |report: &&Report| !context.is_quiet() || !report.verified.ok || report.repair.is_some();
    for report in reports.iter().filter(is_worth_a_word) {
        let Report { verified, repair, .. } = report;
        let verdict = match repair {
            _ if !verified.ok => format!("{RED}DAMAGED{RED:#}"),
            Some(_) if report.has_lost() => format!("{RED}repaired in part{RED:#}"),
            Some(_) => format!("{GREEN}repaired{GREEN:#}"),
            None => format!("{GREEN}ok{GREEN:#}"),
        };
        let id = &verified.session_id;
        let size = byte_size(verified.bytes_checked);
        let snapshots = counted(verified.snapshots.len(), "snapshot", "snapshots");
        let objects = counted(verified.objects_checked, "object", "objects");
        writeln!(out, "{BOLD}{id}{BOLD:#}  {verdict}  {snapshots}, {objects}, {size}")?;
        if let Some(repair) = repair {
            print_repair(repair, &mut out)?;
        }
        for problem in &verified.problems {
            writeln!(out, "  {problem}")?;
        }
        if let Some(proved) = &verified.proved {
            print_proved(proved, verified, &mut out)?;
        }
    }
    if reports.is_empty() {
        context.say("no sessions to verify");
    }
    Ok(out.flush()?)
}

/// Says for what the root vouches that was noted elsewhere, and for what not.
fn print_proved(
    proved: &Proved,
    verified: &VerifyReport,
    out: &mut impl Write,
) -> Result<(), CliError> {
    const BEGIN: &str = "the command, its tracked paths and when it began";
    let sound = |number: &u64| proved.snapshots.contains(number);
    let (known, others): (Vec<u64>, Vec<u64>) =
        verified.snapshots.iter().map(|snapshot| snapshot.number).partition(sound);
    let facts = match (proved.facts, proved.end) {
        (false, _) => None,
        (true, false) => Some(BEGIN.to_owned()),
        (true, true) => Some(format!("{BEGIN}, when it ended and its exit code")),
    };
    let proves: Vec<_> = facts.into_iter().chain(snapshots_in_words(&known)).collect();
    match proves.as_slice() {
        [] => writeln!(out, "  the root proves nothing that is still whole")?,
        proves => writeln!(out, "  {GREEN}proved{GREEN:#} by the root: {}", proves.join("; "))?,
    }
    let facts = match (proved.facts, proved.end) {
        (false, _) => Some("what the session says of the command".to_owned()),
        (true, false) => Some("when it ended, and its exit code".to_owned()),
        (true, true) => None,
    };
    let open: Vec<_> = facts.into_iter().chain(snapshots_in_words(&others)).collect();
    if !open.is_empty() {
        writeln!(out, "  not proved by the root: {}", open.join("; "))?;
    }
    Ok(())
}

/// `every byte of snapshots 0 to 3, 5`; nothing without numbers, which ascend.
fn snapshots_in_words(numbers: &[u64]) -> Option<String> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => ranges.push((*number, *number)),
        }
    }
    let range = |(first, last): &(u64, u64)| match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    };
    let words: Vec<_> = ranges.iter().map(range).collect();
    let plural = if numbers.len() == 1 { "" } else { "s" };
    (!words.is_empty()).then(|| format!("every byte of snapshot{plural} {}", words.join(", ")))
}

fn print_repair(repair: &RepairReport, out: &mut impl Write) -> Result<(), CliError> {
    for Repaired { object, on_disk, from } in &repair.repaired {
        let what = match object {
            Some(hash) => format!("object {hash}"),
            None => format!("manifest {}", Shown::path(on_disk)),
        };
        let from = match from {
            Source::File { path } | Source::Store { path } => format!("{}", Shown::path(path)),
            Source::Recaptured => "the tracked paths, captured once more".to_owned(),
            Source::Snapshots => {
                "the session's snapshots; the command and its exit code are lost".to_owned()
            }
        };
        writeln!(out, "  {GREEN}repaired{GREEN:#}: {what}, from {from}")?;
    }
    for path in &repair.quarantined {
        writeln!(out, "  quarantined: {}", Shown::path(path))?;
    }
    for lost in &repair.lost {
        let object = lost.object.map_or(String::new(), |hash| format!(" (object {hash})"));
        let numbers: Vec<String> = lost.snapshots.iter().map(u64::to_string).collect();
        let snapshots = match numbers.as_slice() {
            [] => String::new(),
            [number] => format!(", snapshot {number}"),
            _ => format!(", snapshots {}", numbers.join(", ")),
        };
        writeln!(
            out,
            "  {RED}{}{RED:#}: {}{object}{snapshots}: {}",
            if lost.is_unreadable { "cannot be read" } else { "lost for good" },
            lost.what,
            lost.reason
        )?;
        for path in &lost.paths {
            writeln!(out, "    {}", Shown::path(path))?;
        }
        if lost.has_more_paths {
            writeln!(out, "    … and maybe more")?;
        }
    }
    Ok(())
}
