//! `nono fork diff`: what a fork changed, or how two forks differ.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::commands::diff::{DiffStyle, StyleArgs, is_recorded, limit, write_diff_in};
use crate::cli::commands::diff_sides::recorded_paths;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::forking::forks_of;
use nono_engine::diff::{self, Change, Comparison};
use nono_engine::fork::{Fork, NotTaken};
use nono_engine::path_text::{Shown, serde_paths};
use nono_engine::snapshot::{NotCapturedSet, SnapshotManifest};
use nono_engine::store::{EitherSource, ObjectSource};

/// Arguments of `nono fork diff`.
#[derive(Debug, Args)]
pub(super) struct ForkDiffArgs {
    /// The fork
    #[arg(value_name = "NAME")]
    name: String,
    /// Another fork, with which it is compared [default: the state from which the fork began], and
    /// files or directories to which the difference is limited
    #[arg(value_name = "OTHER|PATH", allow_negative_numbers = true)]
    words: Vec<PathBuf>,
    /// Only these paths, also where they look like a fork
    #[arg(value_name = "PATH", last = true)]
    paths: Vec<PathBuf>,
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
    touched: Vec<PathBuf>,
    not_taken: &'a [NotTaken],
}

/// The two states that are compared, the older one first.
struct Sides<'a> {
    old: (&'a SnapshotManifest, &'a dyn ObjectSource),
    new: (&'a SnapshotManifest, &'a dyn ObjectSource),
    not_taken: &'a [NotTaken],
    /// The paths to which the difference is limited.
    paths: Vec<PathBuf>,
}

impl Sides<'_> {
    /// Limits the difference to paths, which one of the states has to have.
    fn limited_to(mut self, typed: &[PathBuf], fork: &Fork) -> Result<Self, CliError> {
        let roots: Vec<PathBuf> = fork.recorded_paths().cloned().collect();
        let ((old, old_store), (new, new_store)) = (self.old, self.new);
        let both = EitherSource { first: old_store, second: new_store };
        for (forms, typed) in recorded_paths(typed, &roots)?.into_iter().zip(typed) {
            let is_above = |form: &PathBuf| roots.iter().any(|root| root.starts_with(form));
            if !forms.iter().any(is_above) && !is_recorded(&forms, &both, [old, new])? {
                let (path, name) = (Shown::path(typed), fork.name());
                return Err(CliError::failed(format!(
                    "{path} is in neither state of fork {name}, and no other fork"
                )));
            }
            self.paths.extend(forms);
        }
        Ok(self)
    }
}

pub(super) fn run(args: &ForkDiffArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let fork = super::found(&args.name, store)?;
    let objects = super::objects(&fork)?;
    let state = super::state(&fork, &objects, context)?;
    let (other, mut paths) = other_fork(args, store)?;
    paths.extend_from_slice(&args.paths);
    match &other {
        None => {
            let sides = Sides {
                old: (state.base(), &state),
                new: (state.manifest(), &state),
                not_taken: state.not_taken(),
                paths: Vec::new(),
            };
            show(args, &fork, None, &sides.limited_to(&paths, &fork)?, context)
        }
        Some(other) => {
            let other_state = super::state(other, &objects, context)?;
            let not_taken = [state.not_taken(), other_state.not_taken()].concat();
            let sides = Sides {
                old: (state.manifest(), &state),
                new: (other_state.manifest(), &other_state),
                not_taken: &not_taken,
                paths: Vec::new(),
            };
            let sides = sides.limited_to(&paths, &fork)?;
            show(args, &fork, Some(other.name()), &sides, context)
        }
    }
}

/// The fork that the first word names, and the words that are paths.
fn other_fork(
    args: &ForkDiffArgs,
    store: &StoreArgs,
) -> Result<(Option<Fork>, Vec<PathBuf>), CliError> {
    let Some((first, rest)) = args.words.split_first() else { return Ok((None, Vec::new())) };
    match first.to_str().map(|name| forks_of(store)?.find(name).map_err(CliError::from)) {
        Some(Ok(other)) => Ok((Some(other), rest.to_vec())),
        _ => Ok((None, args.words.clone())),
    }
}

fn show(
    args: &ForkDiffArgs,
    fork: &Fork,
    other: Option<&str>,
    sides: &Sides<'_>,
    context: &Context,
) -> Outcome {
    let Sides { old: (old, old_store), new: (new, new_store), not_taken, .. } = *sides;
    if args.json {
        let Comparison { changes, touched } = compared(sides)?;
        context.json(&Report { fork: fork.name(), other, changes, touched, not_taken })?;
    } else {
        super::name_not_taken(not_taken, context);
        let style = match (args.stat, args.name_only, args.binary) {
            (true, ..) => DiffStyle::Stat,
            (_, true, _) => DiffStyle::Names { zero: false },
            (.., true) => DiffStyle::BinaryPatch,
            _ => args.style.chosen().unwrap_or(DiffStyle::Patch),
        };
        write_diff_in(old_store, old, new_store, new, &sides.paths, style, context)?;
    }
    Ok(u8::from(!not_taken.is_empty()))
}

fn compared(sides: &Sides<'_>) -> Result<Comparison, CliError> {
    let Sides { old: (old, old_store), new: (new, new_store), .. } = *sides;
    let both = EitherSource { first: old_store, second: new_store };
    let mut differences = diff::compare(&both, &old.merkle_root, &new.merkle_root)?;
    limit(&mut differences, &sides.paths);
    Ok(Comparison::of(&differences, &NotCapturedSet::new(old), &NotCapturedSet::new(new)))
}
