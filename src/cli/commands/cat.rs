//! `nono cat`: one file of a snapshot, as it was.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::argument::{Argument, Earlier};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::restoring::resolve;
use crate::cli::state_at::{self, Meant};
use crate::cli::view_args::{ViewArgs, Viewed};
use crate::cli::when::{When, when};
use nono_engine::session::{Purpose, SnapshotId};
use nono_engine::snapshot::{SessionDir, SnapshotManager};
use nono_engine::sys::IoContext;

const CHUNK_BYTES: usize = 256 * 1024;

/// Arguments of `nono cat`.
#[derive(Debug, Args)]
pub(in crate::cli) struct CatArgs {
    /// A snapshot; without /N it is the baseline. NAME:ID[/N] is one of a remote. A file alone
    /// means the version that stood before what is there now, or else what is there now
    #[arg(value_name = "ID[/N] | PATH", allow_negative_numbers = true)]
    word: OsString,
    /// A file in it
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// The file alone is printed as it was at this time: 12:00, yesterday, "2h ago"
    #[arg(long, value_name = "TIME", value_parser = when, conflicts_with = "path")]
    at: Option<When>,
    // A heading is that of all that follows.
    #[command(flatten)]
    view: ViewArgs,
}

pub(in crate::cli) fn run(args: &CatArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let Viewed { catalog, words, .. } =
        args.view.view(std::slice::from_ref(&args.word), store, context)?;
    let word = words.first().unwrap_or(&args.word);
    let mut is_complete = true;
    let roots_of = |session: &SessionDir| -> Result<Vec<PathBuf>, CliError> {
        let roots = SnapshotManager::open(session.path())?.roots().to_vec();
        Ok(roots.into_iter().map(|root| root.path).collect())
    };
    let (session, number, path) = match (&args.at, &args.path) {
        (Some(at), _) => {
            let path = PathBuf::from(&args.word);
            let paths = std::slice::from_ref(&path);
            let Meant { session, number } = state_at::of_paths(paths, at, &catalog, context)?;
            let path = resolve(&path, &roots_of(&session)?)?;
            (session, number, path)
        }
        (None, Some(path)) => {
            let text = word.to_string_lossy();
            let Ok(id) = text.parse::<SnapshotId>();
            let (session, number) = catalog.find_snapshot_from(&id, Purpose::Looking)?;
            let path = resolve(path, &roots_of(&session)?)?;
            (session, number.unwrap_or(0), path)
        }
        (None, None) => {
            let found = Argument::of(&args.word, Purpose::Looking, &catalog)?;
            let Argument::Path { doubt, .. } = found else {
                return Err(CliError::usage("which file is to be printed?")
                    .with_hint(format!("{NONO} cat ID/N PATH, or the PATH alone")));
            };
            let earlier = Earlier::require_any(Path::new(&args.word), doubt, &catalog)?;
            is_complete = earlier.name_damaged(context);
            let (session, number) = (earlier.session()?.clone(), earlier.number());
            (session, number, earlier.path)
        }
    };
    let manager = SnapshotManager::open(session.path())?;
    // Every byte is checked before the first is shown.
    let object = manager.open_file_of(number, &path)?;
    let mut out = context.out_bytes();
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < object.size() {
        let count = object.read_at(&mut buffer, at).at("read", object.path())?;
        if count == 0 {
            break;
        }
        out.write_all(&buffer[..count])?;
        at += count as u64;
    }
    out.flush()?;
    Ok(u8::from(!is_complete))
}
