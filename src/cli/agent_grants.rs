//! The needs of a coding agent in a run beside its profile: its own package, and our program.
//!
//! A package of npm lies in the home directory of its user as often as not, which no profile can
//! name. Hooks call our program by its path. Both are only read. The agent may stand behind other
//! programs (`env X=1 claude`).

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use super::context::Context;
use super::inner_commands::{inner_commands, program_name};
use crate::agent::Client;
use crate::config::FoundProfile;
use nono_engine::sys::{self, Dir};

/// Turns off the walls of Codex, which cannot stand inside of ours.
const CODEX_FLAGS: [&str; 3] = ["--dangerously-bypass-approvals-and-sandbox", "--yolo", CODEX_OPEN];
/// Its sandbox mode without walls, as an argument and as a setting.
const CODEX_OPEN: &str = "danger-full-access";
/// A longer configuration is not looked at.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// The client that a profile is for.
pub(super) fn client_of(profile: &FoundProfile) -> Option<Client> {
    let names = [&profile.name].into_iter().chain(&profile.extends);
    names.into_iter().find_map(|name| Client::named(name))
}

/// Places that an agent reads, as far as they are there; all symlinks resolved.
pub(super) fn reads(command: &[OsString]) -> Vec<PathBuf> {
    let program = std::env::current_exe().ok().and_then(|path| sys::real_path(&path).ok());
    let packages = programs(command).into_iter();
    program.into_iter().chain(packages.map(|it| package_of(&it).unwrap_or(it))).collect()
}

/// The files of the programs that the words of a command name, all symlinks resolved. A command
/// that starts another one may have any words: only those that can be executed count.
pub(super) fn programs(command: &[OsString]) -> Vec<PathBuf> {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let commands = inner_commands(command).into_iter().enumerate();
    let found = commands.filter_map(|(depth, words)| {
        let path = sys::find_program(words.first()?, &search)?;
        (depth == 0 || sys::is_executable(&path)).then(|| sys::real_path(&path).ok()).flatten()
    });
    found.collect()
}

/// The folder of packages that a program of npm lies in: its parts lie beside it.
fn package_of(program: &Path) -> Option<PathBuf> {
    let mut folder = PathBuf::new();
    for component in program.components() {
        folder.push(component);
        if component == Component::Normal("node_modules".as_ref()) {
            return Some(folder);
        }
    }
    None
}

/// Says what is known not to work inside.
pub(super) fn warn(client: Client, command: &[OsString], context: &Context) {
    let is_given = |flag: &str| {
        let has = |word: &OsString| word.to_str().is_some_and(|word| word.contains(flag));
        command.iter().any(has)
    };
    let is_program = |words: &Vec<OsString>| program_name(words) == Some(client.program());
    let is_codex = client == Client::Codex && inner_commands(command).iter().any(is_program);
    if is_codex && !CODEX_FLAGS.into_iter().any(is_given) && !is_open_by_default() {
        context.warn(format_args!(
            "the sandbox of codex cannot work inside of this one, so its commands will fail: run \
             codex {}",
            CODEX_FLAGS[0]
        ));
    }
}

/// Whether the configuration of Codex turns its walls off.
fn is_open_by_default() -> bool {
    let home = std::env::var_os("CODEX_HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".codex")));
    let read = |home: PathBuf| Dir::open(&home).ok()?.read(b"config.toml", MAX_CONFIG_BYTES).ok();
    let text = home.and_then(read).and_then(|bytes| String::from_utf8(bytes).ok());
    text.is_some_and(|text| is_open(&text))
}

fn is_open(config: &str) -> bool {
    let config = config.parse::<toml_edit::DocumentMut>();
    config.is_ok_and(|config| {
        config.get("sandbox_mode").and_then(toml_edit::Item::as_str) == Some(CODEX_OPEN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_npm_is_read_with_what_lies_beside_it() {
        let of = |path: &str| package_of(Path::new(path));
        let expected = Some(PathBuf::from("/home/ada/.npm/lib/node_modules"));
        assert_eq!(of("/home/ada/.npm/lib/node_modules/@openai/codex/bin/codex.js"), expected);
        assert_eq!(of("/home/ada/.npm/lib/node_modules/a/node_modules/b/x"), expected);
        assert_eq!(of("/usr/bin/claude"), None);
    }

    #[test]
    fn a_configuration_that_turns_the_walls_of_codex_off_is_known() {
        assert!(is_open("model = \"x\"\nsandbox_mode = \"danger-full-access\"\n"));
        assert!(!is_open("sandbox_mode = \"workspace-write\"\n"));
        assert!(!is_open("[other]\nsandbox_mode = \"danger-full-access\"\n"));
        assert!(!is_open("["));
    }
}
