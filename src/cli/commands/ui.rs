//! `nono ui`: a local page that shows what the agents did.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;

use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, ThreadArgs, real_home};
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::render::byte_size;
use crate::cli::ui::{Exported, Server, export};
use nono_engine::path_text::Shown;
use nono_engine::session::Purpose;
use nono_engine::sys;

/// Without a page for so long, the server ends.
const IDLE_SECONDS: u64 = 60 * 60;

/// Arguments of `nono ui`.
#[derive(Debug, Args)]
pub(in crate::cli) struct UiArgs {
    /// With --export: the session, by its id, a prefix of it, or `latest`
    #[arg(
        value_name = "ID",
        requires = "export",
        default_value = "latest",
        allow_negative_numbers = true
    )]
    id: String,
    /// Port on 127.0.0.1 [default: a free one]
    #[arg(long, value_name = "P", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Only print the address, and open no browser
    #[arg(long)]
    no_open: bool,
    /// Write one session as a page without a server into this directory
    #[arg(long, value_name = "DIR", conflicts_with_all = ["port", "no_open"])]
    export: Option<PathBuf>,
    /// With --export: leave out the contents of paths that match (repeatable)
    #[arg(long, value_name = "GLOB", requires = "export")]
    hide: Vec<String>,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Seconds without a page after which the server ends
    #[arg(long, value_name = "N", default_value_t = IDLE_SECONDS, hide = true)]
    idle_seconds: u64,
}

pub(in crate::cli) fn run(args: &UiArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let catalog = store.catalog()?;
    if let Some(directory) = &args.export {
        let directory = sys::plain_absolute(directory, &sys::current_dir()?);
        let session = catalog.find_from(&args.id, Purpose::Looking)?;
        let Exported { path, bytes } =
            export(&session, &directory, &args.hide, catalog, real_home())?;
        let (id, path, size) = (session.id(), Shown::path(&path).to_string(), byte_size(bytes));
        context.say(format_args!("session {id} is written to {path} ({size})"));
        return Ok(0);
    }
    let idle_time = Duration::from_secs(args.idle_seconds);
    let threads = args.threads.count(context)?;
    let server = Server::listen(args.port, catalog, real_home(), threads, idle_time)?;
    let address = server.address();
    let mut out = context.out();
    writeln!(out, "{address}")?;
    out.flush()?;
    drop(out);
    if !args.no_open && !open(&address) {
        context.say("no browser could be started here: open the address above");
    }
    context.say(format_args!("the address works once; Ctrl-C ends {NONO} ui"));
    server.serve()?;
    Ok(0)
}

/// Lets the system open an address. Whether a program for that was found.
fn open(address: &str) -> bool {
    let has_screen =
        ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some());
    let program = match (cfg!(target_os = "macos"), has_screen) {
        (true, _) => "open",
        (false, true) => "xdg-open",
        (false, false) => return false,
    };
    let streams = (Stdio::null(), Stdio::null(), Stdio::null());
    let mut command = Command::new(program);
    command.arg(address).stdin(streams.0).stdout(streams.1).stderr(streams.2);
    let Ok(mut child) = command.spawn() else { return false };
    // The program may live as long as the browser.
    sys::spawn("browser", move || child.wait().map(drop)).map_err(CliError::from).is_ok()
}
