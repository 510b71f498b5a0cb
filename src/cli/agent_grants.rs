//! What a coding agent needs inside of a run beside its profile: its own package, and our program.
//!
//! A package of npm lies in the home directory of its user as often as not, which no profile can name.
//! Hooks call our program by its path. Both are only read.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use super::context::Context;
use crate::agent::Client;
use crate::config::FoundProfile;
use crate::sys;

/// Turns off the walls of Codex, which cannot stand inside of ours.
const CODEX_FLAGS: [&str; 2] = ["--dangerously-bypass-approvals-and-sandbox", "--yolo"];

/// The client that a profile is for.
pub(super) fn client_of(profile: &FoundProfile) -> Option<Client> {
    let names = [&profile.name].into_iter().chain(&profile.extends);
    names.into_iter().find_map(|name| Client::named(name))
}

/// Places that an agent reads, as far as they are there; all symlinks resolved.
pub(super) fn reads(command: &[OsString]) -> Vec<PathBuf> {
    let program = std::env::current_exe().ok().and_then(|path| sys::real_path(&path).ok());
    let search = std::env::var_os("PATH").unwrap_or_default();
    let agent = command.first().and_then(|name| sys::find_program(name, &search));
    let agent = agent.and_then(|path| sys::real_path(&path).ok());
    let package = agent.map(|agent| package_of(&agent).unwrap_or(agent));
    program.into_iter().chain(package).collect()
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
    let is_given = |flag: &&str| command.iter().any(|word| word == *flag);
    if client == Client::Codex && !CODEX_FLAGS.iter().any(|flag| is_given(&flag)) {
        context.warn(format_args!(
            "the sandbox of codex cannot work inside of this one, so its commands will fail: run codex {}",
            CODEX_FLAGS[0]
        ));
    }
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
}
