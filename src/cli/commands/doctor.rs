//! `nono doctor`: what this machine offers, what is wrong, and the command that mends it.

use std::io::Write;

use clap::Args;
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::{Context, GREEN, YELLOW};
use crate::cli::error::CliError;
use crate::cli::render::byte_size;
use crate::path_text::Shown;
use crate::sandbox::Support;
use crate::session::{Catalog, SessionStatus};
use crate::sys::Dir;

/// Less free space than this is a problem, in bytes.
const LITTLE_SPACE: u64 = 1 << 30;

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
    /// What to do about it.
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
    let mut findings = vec![sandbox()];
    #[cfg(feature = "mount")]
    findings.extend([mounting::fuse(), mounting::fusermount()]);
    findings.extend(space(&catalog));
    findings.extend(sessions(&catalog)?);
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
        support => Finding::wrong(
            WHAT,
            support.to_string(),
            "boot a kernel with Landlock, or run with --no-sandbox",
        ),
    }
}

/// What mounting needs.
#[cfg(feature = "mount")]
mod mounting {
    use std::ffi::OsStr;
    use std::path::Path;

    use super::Finding;
    use crate::path_text::Shown;
    use crate::sys;

    pub(super) fn fuse() -> Finding {
        const WHAT: &str = "FUSE";
        let device = Path::new("/dev/fuse");
        match sys::try_open_device(device) {
            Ok(()) => Finding::fine(WHAT, "/dev/fuse can be opened"),
            Err(error) if error.is_gone() => {
                Finding::wrong(WHAT, error.to_string(), "sudo modprobe fuse")
            }
            Err(error) => Finding::wrong(WHAT, error.to_string(), "sudo chmod 666 /dev/fuse"),
        }
    }

    pub(super) fn fusermount() -> Finding {
        const WHAT: &str = "fusermount3";
        let search = std::env::var_os("PATH").unwrap_or_default();
        match sys::find_program(OsStr::new(WHAT), &search) {
            Some(path) => Finding::fine(WHAT, Shown::path(&path).to_string()),
            None => Finding::wrong(WHAT, "not installed", "sudo apt-get install fuse3"),
        }
    }
}

fn space(catalog: &Catalog) -> Option<Finding> {
    const WHAT: &str = "store";
    let root = catalog.root();
    let shown = Shown::path(root);
    let free = match Dir::open(root).and_then(|dir| dir.free_bytes()) {
        Ok(free) => free,
        Err(error) if error.is_gone() => {
            return Some(Finding::fine(WHAT, format!("{shown} will be made by the first session")));
        }
        Err(error) => {
            return Some(Finding::wrong(WHAT, error.to_string(), "choose another with --root DIR"));
        }
    };
    let found = format!("{shown}, {} free", byte_size(free));
    Some(if free < LITTLE_SPACE {
        Finding::wrong(WHAT, found, "nono rollback cleanup --keep 5")
    } else {
        Finding::fine(WHAT, found)
    })
}

fn sessions(catalog: &Catalog) -> Result<Vec<Finding>, CliError> {
    const WHAT: &str = "sessions";
    let mut findings = Vec::new();
    let sessions = catalog.sessions()?;
    for session in &sessions {
        let id = session.id();
        let status = session.metadata().and_then(|metadata| SessionStatus::of(session, &metadata));
        match status {
            Ok(SessionStatus::Interrupted) => findings.push(Finding::wrong(
                WHAT,
                format!("{id} was interrupted: its last state is not recorded"),
                format!("nono rollback show {id}; nono rollback restore {id}"),
            )),
            Ok(_) => {}
            Err(error) => findings.push(Finding::wrong(
                WHAT,
                error.to_string(),
                format!("nono rollback verify {id}"),
            )),
        }
    }
    if findings.is_empty() {
        findings.push(Finding::fine(WHAT, format!("{}, none interrupted", sessions.len())));
    }
    Ok(findings)
}
