//! `nono remote`: the places where archives lie.

mod add;
mod cleanup;
mod damage;
mod list;
mod remove;
mod show;
mod verify;

use clap::Subcommand;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;

/// Commands of `nono remote`.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum RemoteCommand {
    /// Give a place a name, and say how its archives are encrypted
    Add(add::AddArgs),
    /// List the remotes that have a name
    List(list::ListArgs),
    /// Show what a remote holds
    Show(show::ShowArgs),
    /// Forget the name of a remote; its archives stay
    Remove(remove::RemoveArgs),
    /// Check every archive: it decrypts, its hashes are right, its chain is whole
    Verify(verify::VerifyArgs),
    /// Remove old archives; what a kept snapshot needs stays
    Cleanup(cleanup::CleanupArgs),
}

pub(in crate::cli) fn run(
    command: &RemoteCommand,
    store: &StoreArgs,
    context: &Context,
) -> Outcome {
    match command {
        RemoteCommand::Add(args) => add::run(args, context),
        RemoteCommand::List(args) => list::run(args, context),
        RemoteCommand::Show(args) => show::run(args, context),
        RemoteCommand::Remove(args) => remove::run(args, context),
        RemoteCommand::Verify(args) => verify::run(args, store, context),
        RemoteCommand::Cleanup(args) => cleanup::run(args, context),
    }
}
