//! `nono fork diff`: what a fork changed, or how two forks differ.

use clap::Args;
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::commands::diff::{DiffStyle, StyleArgs, write_diff};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use nono_engine::diff::{self, Change, Comparison};
use nono_engine::fork::{Fork, NotTaken};
use nono_engine::path_text::serde_paths;
use nono_engine::snapshot::{NotCapturedSet, SnapshotManifest};
use nono_engine::store::{EitherSource, ObjectSource};

/// Arguments of `nono fork diff`.
#[derive(Debug, Args)]
pub(super) struct ForkDiffArgs {
    /// The fork
    #[arg(value_name = "NAME")]
    name: String,
    /// Another fork, with which it is compared [default: the state from which the fork began]
    #[arg(value_name = "OTHER")]
    other: Option<String>,
    #[command(flatten)]
    style: StyleArgs,
    /// Show how many lines of each file changed
    #[arg(long, group = "style")]
    stat: bool,
    /// Put the contents of binary files into the patch, for `git apply`
    #[arg(long, group = "style")]
    binary: bool,
    /// Print the names of what changed
    #[arg(long, group = "style")]
    name_only: bool,
    /// Print the changed paths as JSON
    #[arg(long, conflicts_with = "style")]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    fork: &'a str,
    other: Option<&'a str>,
    changes: Vec<Change>,
    /// Paths whose time alone moved.
    #[serde(with = "serde_paths")]
    touched: Vec<std::path::PathBuf>,
    not_taken: &'a [NotTaken],
}

/// The two states that are compared, the older one first.
struct Sides<'a> {
    old: (&'a SnapshotManifest, &'a dyn ObjectSource),
    new: (&'a SnapshotManifest, &'a dyn ObjectSource),
    not_taken: &'a [NotTaken],
}

pub(super) fn run(args: &ForkDiffArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let fork = super::found(&args.name, store)?;
    let objects = super::objects(&fork)?;
    let state = super::state(&fork, &objects, context)?;
    let other = args.other.as_deref().map(|name| super::found(name, store)).transpose()?;
    match &other {
        None => {
            let sides = Sides {
                old: (state.base(), &state),
                new: (state.manifest(), &state),
                not_taken: state.not_taken(),
            };
            show(args, &fork, &sides, context)
        }
        Some(other) => {
            let other_state = super::state(other, &objects, context)?;
            let not_taken = [state.not_taken(), other_state.not_taken()].concat();
            let sides = Sides {
                old: (state.manifest(), &state),
                new: (other_state.manifest(), &other_state),
                not_taken: &not_taken,
            };
            show(args, &fork, &sides, context)
        }
    }
}

fn show(args: &ForkDiffArgs, fork: &Fork, sides: &Sides<'_>, context: &Context) -> Outcome {
    let Sides { old: (old, old_store), new: (new, new_store), not_taken } = *sides;
    if args.json {
        let Comparison { changes, touched } = compared(sides)?;
        let other = args.other.as_deref();
        context.json(&Report { fork: fork.name(), other, changes, touched, not_taken })?;
    } else {
        super::name_not_taken(not_taken, context);
        let style = match (args.stat, args.name_only, args.binary) {
            (true, ..) => DiffStyle::Stat,
            (_, true, _) => DiffStyle::Names { zero: false },
            (.., true) => DiffStyle::BinaryPatch,
            _ => args.style.chosen().unwrap_or(DiffStyle::Patch),
        };
        write_diff(old_store, old, new_store, new, style, context)?;
    }
    Ok(u8::from(!not_taken.is_empty()))
}

fn compared(sides: &Sides<'_>) -> Result<Comparison, CliError> {
    let Sides { old: (old, old_store), new: (new, new_store), .. } = *sides;
    let both = EitherSource { first: old_store, second: new_store };
    let differences = diff::compare(&both, &old.merkle_root, &new.merkle_root)?;
    Ok(Comparison::of(&differences, &NotCapturedSet::new(old), &NotCapturedSet::new(new)))
}
