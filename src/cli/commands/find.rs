//! `nono find`: paths in snapshots, by a glob.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Zoned;
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::{BOLD, Context, DIM};
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::past::{Past, name_damaged, typed_here};
use crate::cli::render::{byte_size, relative_time};
use crate::cli::shell_word::shell_word;
use crate::cli::view_args::{ViewArgs, Viewed};
use nono_engine::history::{Found, PathGlob, Place, find};
use nono_engine::object::{ContentHash, Node};
use nono_engine::path_text::{Shown, serde_path, to_path};
use nono_engine::session::{Purpose, SessionSummary};
use nono_engine::sys;

/// Arguments of `nono find`.
#[derive(Debug, Args)]
pub(in crate::cli) struct FindArgs {
    /// A name (*.rs), or a path with a / in it (src/**/*.rs)
    #[arg(value_name = "GLOB")]
    glob: String,
    /// Look into this session alone; NAME:ID is one of a remote
    #[arg(long, value_name = "ID", conflicts_with = "all")]
    session: Option<OsString>,
    /// Look into all sessions of the store [default: the sessions here]
    #[arg(long)]
    all: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    // A heading is that of all that follows.
    #[command(flatten)]
    view: ViewArgs,
}

#[derive(Serialize)]
struct Report {
    #[serde(with = "serde_path")]
    path: PathBuf,
    kind: &'static str,
    size: Option<u64>,
    sha256: Option<ContentHash>,
    /// The argument for a restore: the newest snapshot that has the newest version.
    snapshot: String,
    timestamp: jiff::Timestamp,
    /// The oldest snapshot that has the same version.
    first: String,
    /// How many snapshots have it.
    snapshot_count: usize,
    /// Whether an archive brought `snapshot`.
    received: bool,
    /// Whether nothing is at the path now.
    gone: bool,
}

pub(in crate::cli) fn run(args: &FindArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let session = args.session.as_slice();
    let Viewed { catalog, words, .. } = args.view.view(session, store, context)?;
    let current_dir = sys::current_dir()?;
    let glob = PathGlob::new(&args.glob, &current_dir)?;
    let only = words
        .first()
        .map(|id| catalog.find_from(&id.to_string_lossy(), Purpose::Looking))
        .transpose()?
        .map(|one| one.id());
    let past = Past::of(&catalog, |summary: &SessionSummary| match &only {
        Some(only) => summary.session_id == *only,
        None => args.all || summary.is_past_of(&current_dir),
    })?;
    let (found, damaged) = find(&glob, &past.sessions, &past.objects);
    if args.json {
        context.json(&found.iter().map(Report::of).collect::<Vec<_>>())?;
    } else if found.is_empty() {
        let count = past.sessions.len();
        let where_to = if args.all || only.is_some() { "" } else { " (--all looks into all)" };
        let what = if count == 1 { "session" } else { "sessions" };
        let glob = Shown::bytes(args.glob.as_bytes());
        context.say(format_args!("nothing matches {glob} in {count} {what}{where_to}"));
        let is_name = !args.glob.contains(['*', '?', '[', '{', '/']);
        if let Some(word) = shell_word(Path::new(&format!("*{}*", args.glob))).filter(|_| is_name) {
            context.say(format_args!("names that hold it: {NONO} find {word}"));
        }
    } else {
        context.page();
        print(&found, &current_dir, context)?;
    }
    let is_complete = name_damaged(&past.damaged, context) & name_damaged(&damaged, context);
    Ok(u8::from(!is_complete || found.is_empty()))
}

impl Report {
    fn of(found: &Found) -> Self {
        let (size, sha256) = match &found.state.node {
            Node::File { size, hash, .. } => (Some(*size), Some(*hash)),
            _ => (None, None),
        };
        Self {
            path: to_path(&found.path).to_owned(),
            kind: found.state.node.kind_name(),
            size,
            sha256,
            snapshot: found.newest.to_string(),
            timestamp: found.newest.timestamp,
            first: found.oldest.to_string(),
            snapshot_count: found.count,
            received: found.newest.received,
            gone: is_gone(to_path(&found.path)),
        }
    }
}

fn print(
    found: &[Found],
    current_dir: &std::path::Path,
    context: &Context,
) -> Result<(), CliError> {
    let now = Zoned::now();
    let mut out = context.out_long();
    let widest = found.iter().map(|found| found.newest.to_string().len()).max().unwrap_or(0);
    for Found { path, state, newest, oldest, count, .. } in found {
        let id = format!("{:<widest$}", newest.to_string());
        let time = relative_time(newest.timestamp, &now);
        let size = match &state.node {
            Node::File { size, .. } => byte_size(*size),
            node => node.kind_name().to_owned(),
        };
        let path = to_path(path);
        let gone = if is_gone(path) { "  (gone now)" } else { "" };
        let path = Shown::path(typed_here(path, current_dir));
        let range = held(newest, oldest, *count);
        let origin = if newest.received { "  (received in an archive)" } else { "" };
        let note = format!("{DIM}{range}{gone}{origin}{DIM:#}");
        writeln!(out, "{BOLD}{id}{BOLD:#}  {time:<14}  {size:>10}  {path}{note}")?;
    }
    Ok(out.flush()?)
}

/// Whether nothing is at a path. What cannot be looked at is not called gone.
fn is_gone(path: &Path) -> bool {
    matches!(sys::kind_of(path), Ok(None))
}

/// Which snapshots hold a version, if there is more than one.
fn held(newest: &Place, oldest: &Place, count: usize) -> String {
    match count {
        0 | 1 => String::new(),
        _ if newest.session_id == oldest.session_id => {
            format!("  (since /{}, {count} snapshots)", oldest.number)
        }
        _ => format!("  (since {oldest}, {count} snapshots)"),
    }
}
