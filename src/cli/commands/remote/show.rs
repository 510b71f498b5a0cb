//! `nono remote show`: what a remote holds, by the names of its archives.

use std::io::Write;

use clap::Args;
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::context::{BOLD, Context, YELLOW};
use crate::cli::error::CliError;
use crate::cli::progress::Bar;
use crate::cli::render::byte_size;
use crate::cli::sealing::{Target, encryption_words};
use nono_archive::remote::Archives;
use nono_archive::{ArchiveId, ArchiveName};
use nono_engine::counted::counted;
use nono_engine::path_text::Shown;

/// Arguments of `nono remote show`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ShowArgs {
    /// Name of a remote, a URL, or a path
    #[arg(value_name = "NAME")]
    remote: String,
    /// Sessions to show, by their whole ids [default: all]
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    remote: String,
    url: String,
    /// How new archives are encrypted; nothing for a place without a name.
    encryption: Option<crate::config::RemoteEncryption>,
    size_bytes: u64,
    archive_count: u64,
    sessions: Vec<Session>,
    /// Archives that were cut off at their beginning. They count as missing.
    cut_off: Vec<String>,
    /// Names at the place that are no archives.
    foreign: Vec<String>,
    /// Archives that are not encrypted, where those of the remote are. No command reads them.
    unencrypted: Vec<String>,
    /// Folders of sessions that are symlinks. No command follows them.
    linked: Vec<String>,
}

#[derive(Serialize)]
struct Session {
    session_id: String,
    size_bytes: u64,
    snapshots: Vec<Snapshot>,
}

#[derive(Serialize)]
struct Snapshot {
    number: u64,
    /// The archives that give it back, the full one first.
    chain: Vec<String>,
    /// Why it cannot be had.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

pub(in crate::cli) fn run(args: &ShowArgs, context: &Context) -> Outcome {
    let target = Target::find(Some(&args.remote))?;
    let place = target.open(false)?;
    let bar = Bar::new(context, "looking at the remote");
    let inventory = target.inventory(&place, &args.ids, &*bar);
    bar.finish();
    let inventory = inventory?;
    let archives = &inventory.archives;
    let is_asked = |id: &str| args.ids.is_empty() || args.ids.iter().any(|asked| asked == id);
    let ids = archives.sessions().into_iter().filter(|id| is_asked(id));
    let sessions: Vec<Session> = ids.map(|id| session(id, archives)).collect();
    if let Some(id) = args.ids.iter().find(|id| !archives.sessions().contains(id.as_str())) {
        let id = Shown::bytes(id.as_bytes());
        return Err(CliError::failed(format!("the remote has no session {id}")));
    }
    let report = Report {
        remote: target.name.clone(),
        url: place.address().to_string(),
        encryption: target.encryption.clone(),
        size_bytes: sessions.iter().map(|session| session.size_bytes).sum(),
        archive_count: archives.all().filter(|(name, _)| is_asked(name.id.session())).count()
            as u64,
        sessions,
        cut_off: inventory.cut_off.iter().map(ToString::to_string).collect(),
        foreign: inventory.foreign,
        unencrypted: inventory.unencrypted,
        linked: inventory.linked,
    };
    if args.json {
        context.json(&report)?;
        return Ok(0);
    }
    print(&report, context)?;
    Ok(0)
}

fn session(id: &str, archives: &Archives) -> Session {
    let snapshot = |number: u64| {
        let chain = ArchiveId::new(id, number).map_err(|error| error.to_string());
        let chain = chain.and_then(|id| archives.chain(&id).map_err(|error| error.to_string()));
        let names = |chain: &Vec<&ArchiveName>| {
            chain.iter().rev().map(ToString::to_string).collect::<Vec<_>>()
        };
        Snapshot {
            number,
            chain: chain.as_ref().map(names).unwrap_or_default(),
            problem: chain.err(),
        }
    };
    Session {
        session_id: id.to_owned(),
        size_bytes: archives.size_bytes_of(id),
        snapshots: archives.numbers(id).into_iter().map(snapshot).collect(),
    }
}

fn print(report: &Report, context: &Context) -> std::io::Result<()> {
    let mut out = context.out_long();
    let words = report.encryption.as_ref().map(encryption_words);
    writeln!(out, "{BOLD}{}{BOLD:#}", Shown::bytes(report.url.as_bytes()))?;
    if let Some(words) = words {
        writeln!(out, "  {words}")?;
    }
    let (count, size) =
        (counted(report.archive_count, "archive", "archives"), byte_size(report.size_bytes));
    writeln!(
        out,
        "  {}, {count}, {size}",
        counted(report.sessions.len() as u64, "session", "sessions")
    )?;
    for session in &report.sessions {
        let id = Shown::bytes(session.session_id.as_bytes());
        let whole = session.snapshots.iter().filter(|snapshot| snapshot.problem.is_none()).count();
        let whole = counted(whole as u64, "snapshot", "snapshots");
        writeln!(out, "{id}  {whole}, {}", byte_size(session.size_bytes))?;
        for snapshot in &session.snapshots {
            if let Some(problem) = &snapshot.problem {
                let problem = Shown::bytes(problem.as_bytes());
                writeln!(
                    out,
                    "  {YELLOW}snapshot {} cannot be had{YELLOW:#}: {problem}",
                    snapshot.number
                )?;
            }
        }
    }
    for key in &report.cut_off {
        writeln!(out, "{YELLOW}cut off, or no file{YELLOW:#}: {}", Shown::bytes(key.as_bytes()))?;
    }
    for key in &report.unencrypted {
        let key = Shown::bytes(key.as_bytes());
        writeln!(out, "{YELLOW}not encrypted, so none of this remote's{YELLOW:#}: {key}")?;
    }
    for id in &report.linked {
        let id = Shown::bytes(id.as_bytes());
        writeln!(out, "{YELLOW}a symlink, which is not followed{YELLOW:#}: {id}")?;
    }
    for key in &report.foreign {
        writeln!(out, "no archive: {}", Shown::bytes(key.as_bytes()))?;
    }
    out.flush()
}
