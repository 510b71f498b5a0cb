//! `nono profile`: which profiles there are, what they say, and whether that is sound.

use std::io::Write;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, surroundings};
use crate::cli::context::{BOLD, Context, DIM, GREEN, RED};
use crate::cli::error::CliError;
use crate::cli::grants::check_profile;
use crate::config::{
    FoundProfile, NetworkGrant, Profile, ProfileLibrary, ProfileSource, Surroundings, expand,
};
use nono_engine::path_text::Shown;
use nono_engine::session::Catalog;
use nono_engine::sys;

/// Commands of `nono profile`.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ProfileCommand {
    /// List the profiles: those that are built in, and your own
    List(ListArgs),
    /// Show what a profile says, with all that it inherits
    Show(ShowArgs),
    /// Check profiles: all of them, or those that are named
    Check(CheckArgs),
}

/// Arguments of `nono profile list`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ListArgs {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `nono profile show`.
#[derive(Debug, Args)]
pub(in crate::cli) struct ShowArgs {
    /// Name of a profile, or a file
    #[arg(value_name = "NAME|FILE")]
    profile: String,
    /// Print the profile as JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `nono profile check`.
#[derive(Debug, Args)]
pub(in crate::cli) struct CheckArgs {
    /// Names of profiles, or files [default: all profiles]
    #[arg(value_name = "NAME|FILE")]
    profiles: Vec<String>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    source: ProfileSource,
    /// Missing when the profile is not valid.
    description: Option<String>,
}

#[derive(Debug, Serialize)]
struct Checked {
    name: String,
    ok: bool,
    problems: Vec<String>,
}

pub(in crate::cli) fn run(
    command: &ProfileCommand,
    store: &StoreArgs,
    context: &Context,
) -> Outcome {
    let surroundings = surroundings()?;
    let library = ProfileLibrary::new(&surroundings);
    match command {
        ProfileCommand::List(args) => list(args, &library, context),
        ProfileCommand::Show(args) => show(args, &library, &surroundings, context),
        ProfileCommand::Check(args) => check(args, &library, &store.catalog()?, context),
    }
}

fn list(args: &ListArgs, library: &ProfileLibrary, context: &Context) -> Outcome {
    let describe = |(name, source): (String, ProfileSource)| {
        let found = library.find(&name);
        let description = found.map(|found| found.profile.description).ok();
        Listed { name, source, description }
    };
    let listed: Vec<Listed> = library.list()?.into_iter().map(describe).collect();
    if args.json {
        context.json(&listed)?;
        return Ok(0);
    }
    let mut out = context.out();
    for Listed { name, source, description } in listed {
        write!(out, "{BOLD}{name:<14}{BOLD:#}")?;
        match description {
            Some(description) => write!(out, "  {}", Shown::bytes(description.as_bytes()))?,
            None => write!(out, "  {RED}not valid{RED:#} (nono profile check {name})")?,
        }
        match source {
            ProfileSource::BuiltIn => writeln!(out)?,
            ProfileSource::User(path) | ProfileSource::File(path) => {
                writeln!(out, "  {DIM}{}{DIM:#}", Shown::path(&path))?;
            }
        }
    }
    Ok(0)
}

fn show(
    args: &ShowArgs,
    library: &ProfileLibrary,
    surroundings: &Surroundings<'_>,
    context: &Context,
) -> Outcome {
    let found = library.find(&args.profile)?;
    if args.json {
        context.json(&found)?;
        return Ok(0);
    }
    let mut out = context.out();
    let FoundProfile { name, source, extends, profile, .. } = &found;
    write!(out, "{BOLD}{name}{BOLD:#}")?;
    match source {
        ProfileSource::BuiltIn => writeln!(out, " (built in)")?,
        ProfileSource::User(path) | ProfileSource::File(path) => {
            writeln!(out, " ({})", Shown::path(path))?;
        }
    }
    if !profile.description.is_empty() {
        writeln!(out, "{}", Shown::bytes(profile.description.as_bytes()))?;
    }
    if !extends.is_empty() {
        writeln!(out, "extends {}", extends.join(", "))?;
    }
    let Profile { allow, read, write, create, network, env, rollback, .. } = profile;
    let files: Vec<String> = profile.create_files.keys().cloned().collect();
    for (what, places) in [
        ("allow (written, recorded)", allow),
        ("write (written, not recorded)", write),
        ("create (as write, made if missing)", create),
        ("create_files (as write, made if missing)", &files),
        ("read", read),
        ("state (recorded by `nono snapshot --agent`)", &profile.state_paths),
    ] {
        print_places(&mut out, what, places, surroundings)?;
    }
    match network {
        NetworkGrant::Open => writeln!(out, "network: open")?,
        NetworkGrant::Closed => writeln!(out, "network: closed")?,
        NetworkGrant::Connect(ports) => writeln!(out, "network: TCP to ports {ports:?}")?,
    }
    let set: Vec<String> = env.set.keys().cloned().collect();
    for (what, list) in [
        ("environment, passed", &env.pass),
        ("environment, unset", &env.unset),
        ("environment, set", &set),
        ("not recorded", &rollback.exclude_patterns),
        ("not recorded (names of files)", &rollback.exclude_globs),
        ("recorded in any case", &rollback.force_include),
        ("not in the state", &profile.state_exclude),
    ] {
        if !list.is_empty() {
            writeln!(out, "{what}: {}", Shown::bytes(list.join(", ").as_bytes()))?;
        }
    }
    if rollback.use_gitignore == Some(false) {
        writeln!(out, ".gitignore files do not count")?;
    }
    Ok(0)
}

fn print_places(
    out: &mut impl Write,
    what: &str,
    places: &[String],
    surroundings: &Surroundings<'_>,
) -> Result<(), CliError> {
    if places.is_empty() {
        return Ok(());
    }
    writeln!(out, "{what}:")?;
    for place in places {
        let shown = Shown::bytes(place.as_bytes());
        let is_there =
            expand(place, surroundings)?.is_some_and(|path| sys::real_path(&path).is_ok());
        match is_there {
            true => writeln!(out, "  {shown}")?,
            false => writeln!(out, "  {DIM}{shown} (not there){DIM:#}")?,
        }
    }
    Ok(())
}

fn check(
    args: &CheckArgs,
    library: &ProfileLibrary,
    catalog: &Catalog,
    context: &Context,
) -> Outcome {
    let names = match args.profiles.as_slice() {
        [] => library.list()?.into_iter().map(|(name, _)| name).collect(),
        names => names.to_vec(),
    };
    let checked: Vec<Checked> = names
        .into_iter()
        .map(|name| {
            let problems = match problems_of(&name, library, catalog) {
                Ok(problems) => problems,
                Err(error) => vec![error],
            };
            let problems: Vec<String> = problems.iter().map(CliError::to_string).collect();
            Checked { ok: problems.is_empty(), name, problems }
        })
        .collect();
    if args.json {
        context.json(&checked)?;
    } else {
        let mut out = context.out();
        for Checked { name, problems, .. } in &checked {
            if problems.is_empty() {
                writeln!(out, "{GREEN}ok{GREEN:#}     {name}")?;
            }
            for problem in problems {
                writeln!(out, "{RED}wrong{RED:#}  {name}: {problem}")?;
            }
        }
    }
    Ok(u8::from(checked.iter().any(|checked| !checked.ok)))
}

fn problems_of(
    name: &str,
    library: &ProfileLibrary,
    catalog: &Catalog,
) -> Result<Vec<CliError>, CliError> {
    check_profile(&library.find(name)?, catalog)
}
