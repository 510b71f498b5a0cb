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

use clap::{Arg, ValueHint};
use clap_complete::CompleteEnv;
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use jiff::Zoned;

use super::args::{StoreArgs, surroundings};
use super::commands::completions::VARIABLE;
use super::commands::list::command;
use super::groups;
use super::render::relative_time;
#[cfg(feature = "archive")]
use crate::config::remotes;
use crate::config::{ContainerLimits, FlagSettings, ProfileLibrary, Setting, Settings};
use nono_engine::byte_path;
use nono_engine::diff::Lookup;
use nono_engine::history::{forms_of, recorded_form};
use nono_engine::object::Node;
use nono_engine::path_text::Shown;
use nono_engine::session::{Catalog, Purpose, SessionSummary, SnapshotId, steps_of};
use nono_engine::snapshot::{Recency, SessionDir, StepEntry};
use nono_engine::store::{read_root_tree, read_tree};
use nono_engine::sys;

/// The shell that asks.
static SHELL: OnceLock<OsString> = OnceLock::new();

/// The words of the line, without the quotes and backslashes of the shell.
static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Answers a shell, if one asks. Whether it was so.
pub(super) fn answer(arguments: &[OsString]) -> bool {
    // The answer takes it out of the environment.
    let Some(shell) = std::env::var_os(VARIABLE) else { return false };
    let mut arguments = arguments.to_vec();
    let line = arguments.iter().position(|word| word == "--").map_or(arguments.len(), |at| at + 1);
    let last = arguments.len().saturating_sub(1);
    // bash and zsh hand over what was typed, fish only the word at the cursor.
    let typed = match shell.as_bytes() {
        b"bash" | b"zsh" => line..arguments.len(),
        b"fish" => last.max(line)..arguments.len(),
        _ => 0..0,
    };
    for word in arguments.get_mut(typed).unwrap_or_default() {
        *word = unquoted(word);
    }
    let _ = WORDS.set(arguments.get(line..).unwrap_or_default().to_vec());
    let _ = SHELL.set(shell);
    let asked = CompleteEnv::with_factory(program).var(VARIABLE);
    let current_dir = sys::current_dir().ok();
    let answered = asked.try_complete(arguments, current_dir.as_deref());
    // An error message would stand in the middle of a line that is being typed.
    answered.unwrap_or(true)
}

/// A word as the shell will read it. A quotation that has no end yet is one all the same.
fn unquoted(word: &OsStr) -> OsString {
    let (mut plain, mut quote) = (Vec::new(), None);
    let mut bytes = word.as_bytes().iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match (byte, quote) {
            (b'\'' | b'"', None) => quote = Some(byte),
            (byte, Some(open)) if byte == open => quote = None,
            (b'\\', None) => plain.extend(bytes.next()),
            (b'\\', Some(b'"')) if bytes.peek().is_some_and(|byte| b"\"\\$`".contains(byte)) => {
                plain.extend(bytes.next());
            }
            (byte, _) => plain.push(byte),
        }
    }
    OsString::from_vec(plain)
}

/// The program with everything that can be offered.
fn program() -> clap::Command {
    with_completers(groups::program(), &[])
}

fn with_completers(command: clap::Command, words: &[&str]) -> clap::Command {
    let command = command.mut_args(|arg| with_completer(arg, words));
    command.mut_subcommands(|inner| {
        let name = inner.get_name().to_owned();
        with_completers(inner, &[words, &[&name]].concat())
    })
}

/// The offer for a value that is being typed.
type Offer = fn(&OsStr) -> Vec<CompletionCandidate>;

/// By the command, and by what the value is called in its help.
fn with_completer(arg: Arg, words: &[&str]) -> Arg {
    let named = arg.get_value_names().and_then(<[_]>::first).map(ToString::to_string);
    let named = named.unwrap_or_else(|| arg.get_id().as_str().to_uppercase());
    let first = words.first().copied().unwrap_or_default();
    let last = words.last().copied().unwrap_or_default();
    let offer: Offer = match (first, last, named.as_str()) {
        #[cfg(feature = "archive")]
        ("remote", "show" | "remove" | "verify" | "cleanup", "NAME") => remote_names,
        #[cfg(feature = "archive")]
        ("push" | "pull", _, "REMOTE|ID") => remotes_or_sessions,
        #[cfg(feature = "mount")]
        ("umount", _, "DIR") => mounts,
        #[cfg(feature = "mount")]
        ("fork", _, "NAME") if words.len() == 2 => forks,
        #[cfg(feature = "container")]
        ("container", _, "CONTAINER" | "ID" | "ID[/N]" | "OLDER" | "NEWER")
            if arg.get_id() != "run_id" =>
        {
            containers
        }
        ("config", "get" | "set" | "unset", "KEY") => keys,
        ("config", "set", "VALUE") => values,
        (_, "undo", "N") if matches!(arg.get_id().as_str(), "step" | "to_step") => steps,
        (_, "undo", "N") if arg.get_id() == "prompt" => prompts,
        (_, "undo", "PATH") if arg.is_positional() => sessions_or_paths,
        (_, "restore" | "cat", "PATH") if arg.is_positional() => recorded_paths,
        (_, _, "ID" | "ID[/N]") => sessions,
        (_, _, "ID[/N] | PATH") => sessions_or_paths,
        (_, _, "A [B] | PATH") => states,
        (_, _, "NAME|FILE" | "PROFILE" | "P") => profiles,
        _ => match arg.get_value_hint() {
            ValueHint::AnyPath => paths,
            ValueHint::FilePath => files,
            ValueHint::DirPath => directories,
            _ => return arg,
        },
    };
    arg.add(ArgValueCompleter::new(move |word: &OsStr| in_line(offer(word))))
}

fn paths(current: &OsStr) -> Vec<CompletionCandidate> {
    PathCompleter::any().complete(current)
}

fn files(current: &OsStr) -> Vec<CompletionCandidate> {
    PathCompleter::file().complete(current)
}

fn directories(current: &OsStr) -> Vec<CompletionCandidate> {
    PathCompleter::dir().complete(current)
}

/// Offers as they stand in a line. bash puts an offer into the line as it is; other shells quote
/// it.
fn in_line(offered: Vec<CompletionCandidate>) -> Vec<CompletionCandidate> {
    if SHELL.get().is_none_or(|shell| shell != "bash") {
        return offered;
    }
    let escape = |candidate: CompletionCandidate| {
        let help = candidate.get_help().cloned();
        CompletionCandidate::new(escaped(candidate.get_value())).help(help)
    };
    offered.into_iter().map(escape).collect()
}

/// With a backslash before each byte that is not plain.
fn escaped(value: &OsStr) -> OsString {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./-+,:=@%~#".contains(&byte);
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
fn words() -> &'static [OsString] {
    WORDS.get().map_or(&[], Vec::as_slice)
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

/// Sessions, those here first and then the newest; behind a `/`, the snapshots of one; behind a
/// `#`, its steps.
fn sessions(current: &OsStr) -> Vec<CompletionCandidate> {
    let (Some(current), Some(catalog)) = (current.to_str(), catalog()) else { return Vec::new() };
    if let Some((id, _)) = current.split_once('/') {
        return snapshots(&catalog, id, current);
    }
    if let Some((id, _)) = current.split_once('#') {
        let steps = steps_in(&catalog, id).into_iter().rev();
        let offered = steps.map(|step| (format!("{id}#{}", step.number), in_words(&step)));
        return candidates(offered.collect(), current);
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
        if let Some(name) = session.label.as_ref().filter(|name| is_certain(&catalog, name)) {
            offered.push((name.clone(), session.session_id.clone()));
        }
        // Where a label names a snapshot, it is as good as its id.
        let labels = session
            .labels
            .iter()
            .filter(|label| label.label.starts_with(current) && is_certain(&catalog, &label.label));
        let help = |number| format!("{}/{number}", session.session_id);
        offered.extend(labels.map(|label| (label.label.clone(), help(label.number))));
    }
    if !known.is_empty() {
        offered.push(("latest".to_owned(), "the last one".to_owned()));
    }
    candidates(offered, current)
}

/// Whether a name means one session or snapshot.
fn is_certain(catalog: &Catalog, name: &str) -> bool {
    let Ok(id) = name.parse::<SnapshotId>();
    catalog.find_snapshot_from(&id, Purpose::Looking).is_ok()
}

/// Forks by name, with the state that each began with.
#[cfg(feature = "mount")]
fn forks(current: &OsStr) -> Vec<CompletionCandidate> {
    let Some(catalog) = catalog() else { return Vec::new() };
    let known = nono_engine::fork::Forks::new(catalog.root()).list().unwrap_or_default();
    let known = known.into_iter().flatten();
    let offered = known.map(|fork| (fork.name().to_owned(), fork.document().from.clone()));
    candidates(offered.collect(), &current.to_string_lossy())
}

/// Containers with a history, by name; behind a `/`, the snapshots of one. No engine is asked: it
/// may not answer.
#[cfg(feature = "container")]
fn containers(current: &OsStr) -> Vec<CompletionCandidate> {
    let (Some(current), Some(catalog)) = (current.to_str(), catalog()) else { return Vec::new() };
    let storage = nono_container::LocalStorage::new(catalog.root().to_owned());
    let histories = nono_container::ContainerHistory::all(&storage).unwrap_or_default();
    let mut offered = Vec::new();
    for history in histories {
        let name = history.container().name.clone();
        for id in [name.clone(), history.id()] {
            match current.strip_prefix(&id).is_some_and(|rest| rest.starts_with('/')) {
                true => {
                    let numbers = history.numbers().unwrap_or_default();
                    offered.extend(numbers.iter().map(|n| (format!("{id}/{n}"), String::new())));
                }
                false if id == name => offered.push((id, history.id())),
                false => offered.push((id, name.clone())),
            }
        }
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

/// The steps of a session, the oldest first; none where there is no such session.
fn steps_in(catalog: &Catalog, id: &str) -> Vec<StepEntry> {
    let session = catalog.find_from(id, Purpose::Looking).ok();
    let metadata = session.and_then(|session| session.metadata().ok());
    metadata.map(|metadata| steps_of(&metadata)).unwrap_or_default()
}

/// A step in a line that does nothing to a terminal.
fn in_words(step: &StepEntry) -> String {
    Shown::bytes(step.summary().as_bytes()).to_string()
}

/// Steps of the last session here, the newest first, or of one with `ID#`.
fn steps(current: &OsStr) -> Vec<CompletionCandidate> {
    numbered(current, |steps| steps.iter().map(|step| (step.number, in_words(step))).collect())
}

/// Prompts in the same way.
fn prompts(current: &OsStr) -> Vec<CompletionCandidate> {
    numbered(current, |steps| {
        let prompts = steps.iter().filter_map(|step| step.prompt.as_ref());
        let words = |text: &str| Shown::bytes(text.as_bytes()).to_string();
        let mut prompts: Vec<_> = prompts.map(|it| (it.number, words(&it.text))).collect();
        prompts.dedup_by_key(|(number, _)| *number);
        prompts
    })
}

/// Numbers of a session that a half-typed word names, or of the last one here.
fn numbered(
    current: &OsStr,
    numbers_of: impl Fn(&[StepEntry]) -> Vec<(u64, String)>,
) -> Vec<CompletionCandidate> {
    let (Some(current), Some(catalog)) = (current.to_str(), catalog()) else { return Vec::new() };
    let (id, before) = match current.split_once('#') {
        Some((id, _)) => (id, format!("{id}#")),
        None => ("latest", String::new()),
    };
    let steps: Vec<_> = steps_in(&catalog, id).into_iter().filter(StepEntry::is_agents).collect();
    let numbers = numbers_of(&steps).into_iter().rev();
    let mut offered: Vec<_> =
        numbers.map(|(number, words)| (format!("{before}{number}"), words)).collect();
    if !offered.is_empty() {
        offered.push((format!("{before}last"), "the newest that is left to undo".to_owned()));
    }
    candidates(offered, current)
}

/// The settings that a configuration file has or may have.
fn settings() -> Vec<Setting> {
    let Ok(surroundings) = surroundings() else { return Vec::new() };
    let settings = Settings::load(&surroundings, &FlagSettings::default());
    let mut settings = settings.map(|settings| settings.list()).unwrap_or_default();
    settings.extend(ContainerLimits::list(&surroundings).unwrap_or_default());
    settings
}

/// Keys of settings with their values.
fn keys(current: &OsStr) -> Vec<CompletionCandidate> {
    let named = settings().into_iter();
    let offered = named.map(|setting| (setting.key.to_owned(), setting.value.to_string()));
    candidates(offered.collect(), &current.to_string_lossy())
}

/// Values of the setting whose key stands before.
fn values(current: &OsStr) -> Vec<CompletionCandidate> {
    let key = words().iter().skip_while(|word| *word != "set").nth(1);
    let Some(key) = key.and_then(|key| key.to_str()) else { return Vec::new() };
    let possible: Vec<String> = match key {
        "ignored" => ["small", "none", "all"].map(str::to_owned).to_vec(),
        "compression" => ["fast", "small", "off"].map(str::to_owned).to_vec(),
        #[cfg(feature = "archive")]
        "push_after_run" => names_of_remotes().into_iter().map(|(name, _)| name).collect(),
        key => match settings().into_iter().find(|setting| setting.key == key) {
            Some(setting) if setting.value.is_boolean() => {
                ["true", "false"].map(str::to_owned).to_vec()
            }
            Some(setting) if setting.value.is_number() => vec![setting.value.to_string()],
            _ => Vec::new(),
        },
    };
    let offered = possible.into_iter().map(|value| (value, String::new())).collect();
    candidates(offered, &current.to_string_lossy())
}

/// Names of remotes, with their places.
#[cfg(feature = "archive")]
fn names_of_remotes() -> Vec<(String, String)> {
    let known = surroundings().ok().and_then(|surroundings| remotes(&surroundings).ok());
    known.unwrap_or_default().into_iter().map(|remote| (remote.name, remote.url)).collect()
}

#[cfg(feature = "archive")]
fn remote_names(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(names_of_remotes(), &current.to_string_lossy())
}

/// The words of a push or a pull: a remote first, then sessions.
#[cfg(feature = "archive")]
fn remotes_or_sessions(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut offered = remote_names(current);
    offered.extend(sessions(current));
    offered
}

/// Where stores are mounted, and other directories.
#[cfg(feature = "mount")]
fn mounts(current: &OsStr) -> Vec<CompletionCandidate> {
    let mounts = nono_mount::mounts().unwrap_or_default().into_iter();
    let fits = mounts
        .filter(|mount| mount.directory.as_os_str().as_bytes().starts_with(current.as_bytes()));
    let help = |fs_name: &str| Some(Shown::bytes(fs_name.as_bytes()).to_string().into());
    let candidate = |mount: nono_mount::MountedAt| {
        CompletionCandidate::new(mount.directory.into_os_string()).help(help(&mount.fs_name))
    };
    let offered: Vec<_> = fits.map(candidate).collect();
    if offered.is_empty() { directories(current) } else { offered }
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
    offered.extend(paths(current));
    offered
}

/// The arguments of `diff`: states, and paths.
fn states(current: &OsStr) -> Vec<CompletionCandidate> {
    let mut offered = sessions(current);
    if current.to_str().is_some_and(|current| "now".starts_with(current)) {
        offered.push(CompletionCandidate::new("now").help(Some("what is there now".into())));
    }
    offered.extend(paths(current));
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
    offered.extend(files(current));
    offered
}

/// Paths of the snapshot that the line names. One directory is read.
fn recorded_paths(current: &OsStr) -> Vec<CompletionCandidate> {
    match in_snapshot(current) {
        Some(offered) if !offered.is_empty() => offered,
        _ => paths(current),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_read_as_a_shell_reads_it_also_where_a_quotation_has_no_end() {
        for (typed, read) in [
            ("plain", "plain"),
            (r"before\ lunch", "before lunch"),
            ("'before l", "before l"),
            (r#""a \" b\c"#, r#"a " b\c"#),
            (r#"'it'\''s'"#, "it's"),
            (r"ends\", "ends"),
        ] {
            assert_eq!(unquoted(OsStr::new(typed)), OsStr::new(read), "{typed}");
        }
    }
}
