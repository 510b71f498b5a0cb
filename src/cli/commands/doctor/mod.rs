//! `nono doctor`: the offers of this machine, its defects, and the command that mends each.

mod agents;
#[cfg(feature = "mount")]
mod mounting;
mod store;

use std::io::Write;

use clap::Args;
use serde::Serialize;

use crate::cli::Outcome;
#[cfg(feature = "archive")]
use crate::cli::after_run;
use crate::cli::args::{StoreArgs, surroundings};
use crate::cli::context::{Context, GREEN, YELLOW};
use crate::cli::error::CliError;
use crate::cli::launch::{self, Offered};
use crate::config::{ConfigError, FlagSettings, ProfileLibrary, Settings, Surroundings};
use crate::sandbox::Support;
use nono_engine::sys;

/// Arguments of `nono doctor`.
#[derive(Debug, Args)]
pub(in crate::cli) struct DoctorArgs {
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    ok: bool,
    found: String,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
}

impl Finding {
    fn fine(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, ok: true, found: found.into(), mend: None }
    }

    fn wrong(what: &'static str, found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { what, ok: false, found: found.into(), mend: Some(mend.into()) }
    }
}

pub(in crate::cli) fn run(args: &DoctorArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    let mut findings = vec![sandbox(), second_wall(), configuration(&surroundings()?)];
    #[cfg(feature = "mount")]
    findings.extend([mounting::fuse(), mounting::fusermount(), mounting::mounts()]);
    #[cfg(feature = "mount")]
    findings.push(mounting::forks(&catalog));
    findings.push(agents::hooks(store)?);
    findings.extend(store::space(&catalog));
    findings.extend(store::symlinks(&catalog));
    findings.push(store::reflink(&catalog));
    findings.extend(store::sessions(&catalog)?);
    #[cfg(feature = "container")]
    findings.extend(store::container_restores(&catalog)?);
    #[cfg(feature = "archive")]
    findings.extend(pushes());
    if args.json {
        context.json(&findings)?;
    } else {
        print(&findings, context)?;
    }
    Ok(u8::from(findings.iter().any(|finding| !finding.ok)))
}

fn print(findings: &[Finding], context: &Context) -> Result<(), CliError> {
    let mut out = context.out();
    for Finding { what, ok, found, mend } in findings {
        match ok {
            true => writeln!(out, "{GREEN}ok{GREEN:#}     {what}: {found}")?,
            false => writeln!(out, "{YELLOW}wrong{YELLOW:#}  {what}: {found}")?,
        }
        if let Some(mend) = mend {
            writeln!(out, "       -> {mend}")?;
        }
    }
    Ok(())
}

fn sandbox() -> Finding {
    const WHAT: &str = "sandbox";
    match Support::of_kernel() {
        support @ Support::Full(_) => Finding::fine(WHAT, support.to_string()),
        Support::NotBuilt => {
            Finding::wrong(WHAT, Support::NotBuilt.to_string(), "run with --no-sandbox")
        }
        support @ Support::NotAsked(_) => {
            Finding::wrong(WHAT, support.to_string(), "end what uses up the processes (ulimit -u)")
        }
        support => Finding::wrong(
            WHAT,
            support.to_string(),
            "boot a kernel with Landlock, or run with --no-sandbox",
        ),
    }
}

/// The gaps without namespaces are named, and are no fault: the first wall stands.
fn second_wall() -> Finding {
    const WHAT: &str = "second wall";
    match launch::probe() {
        Ok(Offered::All) => Finding::fine(WHAT, "namespaces of mounts and processes"),
        Ok(Offered::MountsAlone(reason)) => Finding::fine(
            WHAT,
            format!("a namespace of mounts; commands see all processes ({reason})"),
        ),
        Ok(Offered::None(reason)) => Finding {
            mend: Some(match sys::effective_uid() {
                0 => "give root CAP_SYS_ADMIN here, or run commands as an ordinary user".to_owned(),
                _ => "let users make user namespaces (sysctl user.max_user_namespaces, \
                      kernel.unprivileged_userns_clone, \
                      kernel.apparmor_restrict_unprivileged_userns)"
                    .to_owned(),
            }),
            ..Finding::fine(
                WHAT,
                format!(
                    "none ({reason}): commands can change modes, owners and times of your files \
                     outside their grants, write all of /dev/shm and reach your other terminals"
                ),
            )
        },
        Err(error) => Finding::wrong(WHAT, error.to_string(), "see what the message names"),
    }
}

/// Pushes after a run have no terminal to tell what failed.
#[cfg(feature = "archive")]
fn pushes() -> Vec<Finding> {
    const WHAT: &str = "push after run";
    let told = after_run::told(&after_run::failures()).into_iter();
    told.map(|(found, advice)| Finding::wrong(WHAT, found, advice)).collect()
}

fn configuration(surroundings: &Surroundings<'_>) -> Finding {
    const WHAT: &str = "configuration";
    let read = || -> Result<usize, ConfigError> {
        Settings::load(surroundings, &FlagSettings::default())?;
        let library = ProfileLibrary::new(surroundings);
        let profiles = library.list()?;
        profiles.iter().try_for_each(|(name, _)| library.find(name).map(drop))?;
        Ok(profiles.len())
    };
    match read() {
        Ok(count) => Finding::fine(WHAT, format!("settings and {count} profiles are sound")),
        Err(error) => {
            Finding::wrong(WHAT, error.to_string(), "correct it; nono profile check says more")
        }
    }
}
