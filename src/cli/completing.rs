//! The words that a shell is offered: asked from this program at each Tab, so that sessions,
//! profiles and paths of snapshots are among them.
//!
//! The script that `nono completions` prints starts this program with a variable of the
//! environment. Nothing is said here that goes wrong: a shell in the middle of a line has no place
//! for it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use clap::Arg;
use clap_complete::CompleteEnv;
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use jiff::Zoned;

use super::args::{StoreArgs, surroundings};
use super::commands::list::command;
use super::examples;
use super::render::relative_time;
use crate::config::ProfileLibrary;
use nono_engine::byte_path;
use nono_engine::diff::Lookup;
use nono_engine::history::{forms_of, recorded_form};
use nono_engine::object::Node;
use nono_engine::session::{Catalog, Purpose, SessionSummary, SnapshotId};
use nono_engine::snapshot::{Recency, SessionDir};
use nono_engine::store::{read_root_tree, read_tree};
use nono_engine::sys;

/// Says which shell asks.
pub(super) const VARIABLE: &str = "NONO_COMPLETE";

/// The shell that asks.
static SHELL: OnceLock<OsString> = OnceLock::new();

/// Answers a shell, if one asks. Whether it was so.
pub(super) fn answer(arguments: &[OsString]) -> bool {
    // The answer takes it out of the environment.
    let _ = SHELL.set(std::env::var_os(VARIABLE).unwrap_or_default());
    let asked = CompleteEnv::with_factory(program).var(VARIABLE);
    let current_dir = sys::current_dir().ok();
    let answered = asked.try_complete(arguments, current_dir.as_deref());
    // An error message would stand in the middle of somebody's line.
    answered.unwrap_or(true)
}

/// The program with everything that can be offered.
fn program() -> clap::Command {
    with_completers(examples::program())
}

fn with_completers(command: clap::Command) -> clap::Command {
    let name = command.get_name().to_owned();
    let has_snapshot = matches!(name.as_str(), "restore" | "cat");
    let command = command.mut_args(|arg| with_completer(arg, has_snapshot));
    command.mut_subcommands(with_completers)
}

/// By what the value is called in the help.
fn with_completer(arg: Arg, has_snapshot: bool) -> Arg {
    let named = arg.get_value_names().and_then(<[_]>::first).map(ToString::to_string);
    let named = named.unwrap_or_else(|| arg.get_id().as_str().to_uppercase());
    match named.as_str() {
        "ID" | "ID[/N]" => arg.add(ArgValueCompleter::new(|word: &OsStr| typed(word, sessions))),
        "ID[/N] | PATH" => {
            arg.add(ArgValueCompleter::new(|word: &OsStr| typed(word, sessions_or_paths)))
        }
        "A [B] | PATH" => arg.add(ArgValueCompleter::new(|word: &OsStr| typed(word, states))),
        "NAME|FILE" | "PROFILE" | "P" => arg.add(ArgValueCompleter::new(profiles)),
        "PATH" if has_snapshot && arg.is_positional() => {
            arg.add(ArgValueCompleter::new(|word: &OsStr| typed(word, recorded_paths)))
        }
        _ => arg,
    }
}

/// What is offered for a word as it stands in the line. bash hands over what was typed, with its
/// backslashes, and puts an offer into the line as it is; other shells quote it.
fn typed(
    word: &OsStr,
    offer: impl Fn(&OsStr) -> Vec<CompletionCandidate>,
) -> Vec<CompletionCandidate> {
    if SHELL.get().is_none_or(|shell| shell != "bash") {
        return offer(word);
    }
    let bytes: Vec<u8> = word.as_bytes().iter().copied().filter(|byte| *byte != b'\\').collect();
    let offered = offer(OsStr::from_bytes(&bytes)).into_iter();
    let in_line = |candidate: CompletionCandidate| {
        let help = candidate.get_help().cloned();
        CompletionCandidate::new(escaped(candidate.get_value())).help(help)
    };
    offered.map(in_line).collect()
}

/// With a backslash before each byte that is not plain.
fn escaped(value: &OsStr) -> OsString {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./-+,:=@%~".contains(&byte);
    let mut escaped = Vec::new();
    for byte in value.as_bytes().iter().copied() {
        if !is_plain(byte) && byte.is_ascii() {
            escaped.push(b'\\');
        }
        escaped.push(byte);
    }
    OsString::from_vec(escaped)
}

/// The words of the line, as far as the shell handed them over.
fn words() -> Vec<OsString> {
    std::env::args_os().skip_while(|word| word != "--").skip(1).collect()
}

/// The store that the line means.
fn catalog() -> Option<Catalog> {
    let words = words();
    let mut root = None;
    for (at, word) in words.iter().enumerate() {
        if word == "--root" {
            root = words.get(at + 1).map(PathBuf::from);
        } else if let Some(given) = word.as_bytes().strip_prefix(b"--root=") {
            root = Some(PathBuf::from(OsStr::from_bytes(given)));
        }
    }
    let root = root.or_else(|| std::env::var_os("NONO_ROOT").map(PathBuf::from));
    StoreArgs { root }.catalog().ok()
}

/// Sessions, those here first and then the newest; behind a `/`, the snapshots of one.
fn sessions(current: &OsStr) -> Vec<CompletionCandidate> {
    let (Some(current), Some(catalog)) = (current.to_str(), catalog()) else { return Vec::new() };
    if let Some((id, _)) = current.split_once('/') {
        return snapshots(&catalog, id, current);
    }
    let mut known: Vec<SessionSummary> = catalog
        .sessions()
        .unwrap_or_default()
        .iter()
        .filter_map(|session| SessionSummary::of(session).ok())
        .collect();
    let here = sys::current_dir().unwrap_or_default();
    let (time, now) = (jiff::Timestamp::now(), Zoned::now());
    known.sort_by_cached_key(|session| {
        let recency = Recency::new(session.started, session.session_id.as_str(), time);
        std::cmp::Reverse((session.concerns(&here), recency))
    });
    let mut offered = Vec::new();
    for session in &known {
        let help = format!("{}  {}", relative_time(session.started, &now), command(session));
        offered.push((session.session_id.clone(), help));
        // Where a label names a snapshot, it is as good as its id.
        let labels = session.labels.iter().filter(|label| {
            let Ok(id) = label.label.parse::<SnapshotId>();
            label.label.starts_with(current)
                && catalog.find_snapshot_from(&id, Purpose::Looking).is_ok()
        });
        let help = |number| format!("{}/{number}", session.session_id);
        offered.extend(labels.map(|label| (label.label.clone(), help(label.number))));
    }
    if !known.is_empty() {
        offered.push(("latest".to_owned(), "the last one".to_owned()));
    }
    candidates(offered, current)
}

fn snapshots(catalog: &Catalog, id: &str, current: &str) -> Vec<CompletionCandidate> {
    let Ok(session) = catalog.find_from(id, Purpose::Looking) else { return Vec::new() };
    let labels = session.metadata().map(|metadata| metadata.labels).unwrap_or_default();
    let numbers = session.snapshot_numbers().unwrap_or_default();
    let offered = numbers.into_iter().map(|number| {
        let label = labels.iter().find(|label| label.number == number);
        let help = label.map_or(String::new(), |label| label.label.clone());
        (format!("{id}/{number}"), help)
    });
    candidates(offered.collect(), current)
}

fn candidates(offered: Vec<(String, String)>, current: &str) -> Vec<CompletionCandidate> {
    let fits = offered.into_iter().filter(|(value, _)| value.starts_with(current));
    let candidate = |(at, (value, help)): (usize, (String, String))| {
        let help = Some(help).filter(|help| !help.trim().is_empty());
        CompletionCandidate::new(value).help(help.map(Into::into)).display_order(Some(at))
    };
    fits.enumerate().map(candidate).collect()
}

/// Sessions, and paths.
fn sessions_or_paths(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut offered = sessions(current);
    offered.extend(PathCompleter::any().complete(current));
    offered
}

/// The arguments of `diff`: states, and paths.
fn states(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut offered = sessions(current);
    if current.to_str().is_some_and(|current| "now".starts_with(current)) {
        offered.push(CompletionCandidate::new("now").help(Some("what is there now".into())));
    }
    offered.extend(PathCompleter::any().complete(current));
    offered
}

/// Profiles by name, and files.
fn profiles(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut offered = Vec::new();
    if let (Some(current), Ok(surroundings)) = (current.to_str(), surroundings()) {
        let library = ProfileLibrary::new(&surroundings);
        let names = library.list().unwrap_or_default().into_iter();
        let names = names.map(|(name, _)| (name, String::new()));
        offered = candidates(names.collect(), current);
    }
    offered.extend(PathCompleter::file().complete(current));
    offered
}

/// Paths of the snapshot that the line names. One directory is read.
fn recorded_paths(current: &OsStr) -> Vec<CompletionCandidate> {
    match in_snapshot(current) {
        Some(offered) if !offered.is_empty() => offered,
        _ => PathCompleter::any().complete(current),
    }
}

fn in_snapshot(current: &OsStr) -> Option<Vec<CompletionCandidate>> {
    let catalog = catalog()?;
    let (session, number) = words().iter().skip(2).find_map(|word| {
        let id = word.to_str().filter(|word| !word.starts_with('-'))?;
        let Ok(id) = id.parse::<SnapshotId>();
        catalog.find_snapshot_from(&id, Purpose::Looking).ok()
    })?;
    list(&session, number.or_else(|| session.first_number().ok())?, current).map(|names| {
        let candidate = |name: Vec<u8>| CompletionCandidate::new(OsStr::from_bytes(&name));
        names.into_iter().map(candidate).collect()
    })
}

/// The entries of a snapshot in the directory of a half-typed word, in the form in which it would
/// be completed.
fn list(session: &SessionDir, number: u64, current: &OsStr) -> Option<Vec<Vec<u8>>> {
    let manifest = session.manifest(number).ok()?.manifest;
    let store = Catalog::store_of(session).ok()?;
    let roots: Vec<PathBuf> = manifest.roots.iter().map(|root| root.path.clone()).collect();
    let typed = current.as_bytes();
    let end = typed.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let (typed_dir, beginning) = typed.split_at(end);
    let dir =
        sys::plain_absolute(Path::new(OsStr::from_bytes(typed_dir)), &sys::current_dir().ok()?);
    let forms = forms_of(&dir);
    let dir = recorded_form(&forms, &roots)?;
    let root = read_root_tree(&store, &manifest.merkle_root).ok()?;
    let state = Lookup::new(&store, &root).find(dir.as_os_str().as_bytes()).ok()??;
    let Node::Directory { tree } = state.node else { return None };
    let tree = read_tree(&store, &tree).ok()?;
    let fits = tree.entries().iter().filter(|entry| entry.name.starts_with(beginning));
    let typed_on = |entry: &nono_engine::object::TreeEntry| {
        let is_dir = matches!(entry.node, Node::Directory { .. });
        let path = byte_path::join(typed_dir.strip_suffix(b"/").unwrap_or(typed_dir), &entry.name);
        let path = if typed_dir == b"/" { [b"/", &*entry.name].concat() } else { path };
        if is_dir { [&*path, b"/"].concat() } else { path }
    };
    Some(fits.map(typed_on).collect())
}
