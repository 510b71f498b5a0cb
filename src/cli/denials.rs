//! Things that the walls keep from a command: said before the start about its arguments, and
//! after a failure about the caches of its programs.
//!
//! The kernel reports a denial to the command alone, and programs say "Permission denied", or less.
//! Each sentence here is a fact of the grants, which was looked at. None says that a refusal is the
//! reason of a failure.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use super::agent_grants;
use super::args::real_home;
use super::context::Context;
use super::grants::write_grants_of;
use super::inner_commands::{inner_commands, program_name};
use super::shell_word::shell_word;
use crate::config::{ProfileLibrary, Surroundings, expand};
use crate::sandbox::{Policy, is_readable_by_all};
use nono_engine::path_text::Shown;
use nono_engine::sys;

/// Maximum number of arguments that are named.
const MAX_NAMED: usize = 5;
/// The profile that is offered first.
const GENERIC: &str = "generic";
/// Places of which the command has its own, or that are granted by what lies in them.
const OWN_PLACES: [&str; 4] = ["/tmp", "/dev", "/proc", "/sys"];

/// The use of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Write,
}

/// A place of a program, outside of all projects.
struct Habit {
    programs: &'static [&'static str],
    /// The commands of the program that need the place; all of them, if there are none.
    commands: &'static [&'static str],
    /// The variable that moves the place. The place is then below its directory.
    variable: Option<(&'static str, &'static str)>,
    /// The place, as profiles write it.
    place: &'static str,
    /// The use of the place.
    usage: Use,
    /// The role of the place for the program.
    role: &'static str,
}

const NPM: &[&str] = &[
    "add", "ci", "create", "exec", "i", "init", "install", "pack", "up", "update", "upgrade", "x",
];
const PNPM: &[&str] = &["add", "dlx", "fetch", "i", "install", "up", "update"];
const PIP: &[&str] = &["download", "install", "wheel"];
const UV: &[&str] = &["add", "lock", "pip", "python", "remove", "run", "sync", "tool", "venv"];
const CARGO: &[&str] = &[
    "add", "b", "bench", "build", "c", "check", "clippy", "d", "doc", "fetch", "install", "r",
    "run", "t", "test", "update", "vendor",
];
const GO: &[&str] = &["build", "generate", "get", "install", "mod", "run", "test", "vet"];

/// The places of common tools.
const HABITS: &[Habit] = &[
    Habit::cache(&["npm"], NPM, Some(("npm_config_cache", "_cacache")), "~/.npm/_cacache"),
    Habit::cache(&["npx"], &[], Some(("npm_config_cache", "_npx")), "~/.npm/_npx"),
    Habit::cache(&["pnpm"], PNPM, None, "$XDG_DATA_HOME/pnpm/store"),
    Habit::cache(&["yarn"], &[], Some(("YARN_CACHE_FOLDER", "")), "$XDG_CACHE_HOME/yarn"),
    Habit::cache(&["bun"], &["add", "i", "install", "x"], None, "~/.bun/install/cache"),
    Habit::cache(&["pip", "pip3"], PIP, Some(("PIP_CACHE_DIR", "")), "$XDG_CACHE_HOME/pip"),
    Habit::cache(&["uv"], UV, Some(("UV_CACHE_DIR", "")), "$XDG_CACHE_HOME/uv"),
    Habit::cache(&["uvx"], &[], Some(("UV_CACHE_DIR", "")), "$XDG_CACHE_HOME/uv"),
    Habit::cache(&["cargo"], CARGO, Some(("CARGO_HOME", "registry")), "~/.cargo/registry"),
    Habit::cache(&["go"], GO, Some(("GOMODCACHE", "")), "~/go/pkg"),
    Habit::cache(&["go"], GO, Some(("GOCACHE", "")), "$XDG_CACHE_HOME/go-build"),
    Habit::settings(&["gh"], Some(("GH_CONFIG_DIR", "")), "$XDG_CONFIG_HOME/gh"),
    Habit::settings(&["aws"], None, "~/.aws"),
    Habit::settings(&["docker"], Some(("DOCKER_CONFIG", "")), "~/.docker"),
    Habit::settings(&["helm", "kubectl"], None, "~/.kube"),
];

impl Habit {
    const fn cache(
        programs: &'static [&'static str],
        commands: &'static [&'static str],
        variable: Option<(&'static str, &'static str)>,
        place: &'static str,
    ) -> Self {
        Self { programs, commands, variable, place, usage: Use::Write, role: "cache" }
    }

    const fn settings(
        programs: &'static [&'static str],
        variable: Option<(&'static str, &'static str)>,
        place: &'static str,
    ) -> Self {
        Self { programs, commands: &[], variable, place, usage: Use::Read, role: "settings" }
    }

    fn is_of(&self, command: &[OsString]) -> bool {
        let is_command = |word: &OsString| self.commands.iter().any(|known| word == known);
        program_name(command).is_some_and(|name| self.programs.contains(&name))
            && (self.commands.is_empty() || command.iter().skip(1).any(is_command))
    }

    fn place(&self, surroundings: &Surroundings<'_>) -> Option<PathBuf> {
        let moved = self.variable.and_then(|(name, below)| {
            let dir = (surroundings.variable)(name).map(PathBuf::from)?;
            dir.is_absolute().then(|| dir.join(below))
        });
        moved.or_else(|| expand(self.place, surroundings).ok().flatten())
    }
}

/// The grants of a command, for questions about paths.
struct Walls<'a> {
    policy: &'a Policy,
    home: PathBuf,
}

impl Walls<'_> {
    fn may_write(&self, path: &Path) -> bool {
        self.policy.write.iter().any(|granted| path.starts_with(granted))
    }

    fn may_read(&self, path: &Path) -> bool {
        let is_withheld = || self.policy.withheld.iter().any(|place| path.starts_with(place));
        self.may_write(path)
            || self.policy.read.iter().any(|granted| path.starts_with(granted))
            || (is_readable_by_all(path) && !is_withheld())
    }

    /// Whether a flag can grant it: nothing grants the record or the configuration.
    fn can_be_granted(&self, path: &Path) -> bool {
        let mut withheld = self.policy.withheld.iter().filter(|place| **place != self.home);
        path.parent().is_some()
            && !withheld.any(|place| place.starts_with(path) || path.starts_with(place))
    }

    /// A path that an argument names, with the sentence about it.
    fn outside(&self, argument: &OsStr, here: &Path) -> Option<(PathBuf, &'static str, Use)> {
        let named = sys::plain_absolute(Path::new(argument), here);
        if let Ok(real) = sys::real_path(&named) {
            let is_own = OWN_PLACES.iter().any(|place| real == Path::new(place))
                || OWN_PLACES[1..].iter().any(|place| real.starts_with(place));
            let is_outside = !is_own && !self.may_read(&real);
            return is_outside.then_some((
                real,
                "is outside of what the command may read",
                Use::Read,
            ));
        }
        // A file that the command would make. A word without a directory is most likely none.
        let parent = named.parent().filter(|_| argument.as_bytes().contains(&b'/'))?;
        let parent = sys::real_path(parent).ok().filter(|real| real.starts_with(&self.home))?;
        let is_outside = sys::leads_to_dir(&parent) && !self.may_write(&parent);
        is_outside.then_some((parent, "is outside of what the command may write", Use::Write))
    }
}

/// Names the current directory and the arguments that are paths, where they are outside of a
/// command's grants, before it starts.
pub(super) fn name_what_is_outside(policy: &Policy, command: &[OsString], context: &Context) {
    let (Some(home), Ok(here)) = (real_home(), sys::current_or_former_dir()) else { return };
    let walls = Walls { policy, home };
    if !walls.may_read(&here) {
        context.say(format_args!(
            "{}, the current directory, is outside of what the command may read: --allow-cwd adds \
             it",
            Shown::path(&here)
        ));
    }
    // The file of a program is granted by itself.
    let programs = agent_grants::programs(command);
    let mut outside = Vec::new();
    for argument in command.iter().skip(1) {
        let value = value_of_flag(argument);
        for word in [Some(argument.as_os_str()), value.as_deref()].into_iter().flatten() {
            let found = walls.outside(word, &here);
            outside.extend(found.filter(|found| !programs.contains(&found.0)));
        }
    }
    let mut named = BTreeSet::new();
    outside.retain(|(path, ..)| named.insert(path.clone()));
    let most = context.at_most(MAX_NAMED);
    for (path, what, usage) in outside.iter().take(most) {
        let shown = Shown::path(path);
        let Some(word) = shell_word(path).filter(|_| walls.can_be_granted(path)) else {
            context.say(format_args!("{shown} {what}"));
            continue;
        };
        match usage {
            Use::Read => {
                context.say(format_args!("{shown} {what}: --read {word}, or --write {word}"));
            }
            Use::Write => context.say(format_args!("{shown} {what}: --write {word}")),
        }
    }
    if let more @ 1.. = outside.len().saturating_sub(most) {
        context.say(format_args!("and {more} more arguments are outside of it"));
    }
}

/// The path in `--prefix=PATH` and `NAME=PATH`.
fn value_of_flag(argument: &OsStr) -> Option<OsString> {
    let bytes = argument.as_bytes();
    let value = &bytes[bytes.iter().position(|byte| *byte == b'=')? + 1..];
    value.contains(&b'/').then(|| OsString::from_vec(value.to_vec()))
}

/// Names the caches and settings of a failed command's programs that its grants leave out.
/// `has_profile`: a profile is given already.
pub(super) fn explain_failure(
    policy: &Policy,
    command: &[OsString],
    has_profile: bool,
    surroundings: &Surroundings<'_>,
    context: &Context,
) {
    let Some(home) = real_home() else { return };
    let walls = Walls { policy, home };
    let mut said = BTreeSet::new();
    for inner in inner_commands(command) {
        for habit in HABITS.iter().filter(|habit| habit.is_of(&inner)) {
            let Some(place) = habit.place(surroundings) else { continue };
            let real = sys::real_or_future_path(&place);
            let is_kept = match habit.usage {
                Use::Write => !walls.may_write(&real),
                Use::Read => sys::identity(&real).is_some() && !walls.may_read(&real),
            };
            if !is_kept || !said.insert(real.clone()) {
                continue;
            }
            let offered = match has_profile {
                true => None,
                false => profile_that_grants(&real, habit.usage, surroundings),
            };
            let verb = if habit.usage == Use::Write { "write" } else { "read" };
            let place = in_home(&real, &walls.home);
            let flag = offered.map(|name| format!("--profile {name}")).or_else(|| {
                let can_be_granted = sys::identity(&real).is_some() && walls.can_be_granted(&real);
                can_be_granted.then(|| format!("--{verb} {}", place.as_deref().unwrap_or("")))
            });
            let flag = flag.filter(|_| place.is_some());
            let offer = flag.map(|flag| format!("; `{flag}` grants it")).unwrap_or_default();
            let shown = place.unwrap_or_else(|| Shown::path(&real).to_string());
            let (role, program) = (habit.role, program_name(&inner).unwrap_or_default());
            context
                .say(format_args!("not granted: {verb} {shown}, the {role} of {program}{offer}"));
        }
    }
}

/// A profile with which the place is granted, `generic` before others.
fn profile_that_grants(
    place: &Path,
    usage: Use,
    surroundings: &Surroundings<'_>,
) -> Option<String> {
    if usage == Use::Read {
        // Settings hold tokens: the one place is offered, not a profile.
        return None;
    }
    let library = ProfileLibrary::new(surroundings);
    let mut names: Vec<String> = library.list().ok()?.into_iter().map(|(name, _)| name).collect();
    names.sort_by_key(|name| name != GENERIC);
    names.into_iter().find(|name| {
        let found = library.find(name).ok();
        let granted = found.and_then(|found| write_grants_of(&found.profile, surroundings).ok());
        granted.is_some_and(|granted| {
            granted.iter().any(|dir| place.starts_with(sys::real_or_future_path(dir)))
        })
    })
}

/// The path as one word for a shell, with `~` for the home directory.
fn in_home(path: &Path, home: &Path) -> Option<String> {
    let word = shell_word(path)?;
    let below = path.strip_prefix(home).ok().and_then(shell_word);
    // A quoted `~` is no home directory.
    Some(below.filter(|below| !below.starts_with('\'')).map_or(word, |below| format!("~/{below}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walls(policy: &Policy) -> Walls<'_> {
        Walls { policy, home: "/home/ada".into() }
    }

    #[test]
    fn nothing_offers_a_grant_of_the_record() {
        let withheld =
            ["/home/ada/.nono/rollbacks", "/home/ada/.config/nono", "/home/ada"].map(PathBuf::from);
        let policy = Policy { withheld: withheld.to_vec(), ..Policy::default() };
        let walls = walls(&policy);
        for refused in ["/", "/home", "/home/ada", "/home/ada/.nono", "/home/ada/.nono/rollbacks/x"]
        {
            assert!(!walls.can_be_granted(Path::new(refused)), "{refused}");
        }
        assert!(walls.can_be_granted(Path::new("/home/ada/shop")));
        assert!(walls.can_be_granted(Path::new("/srv/data")));
    }

    #[test]
    fn a_program_has_its_habits_by_its_command() {
        let has = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            HABITS.iter().any(|habit| habit.is_of(&words))
        };
        assert!(has(&["npm", "ci"]) && has(&["/usr/bin/npm", "--silent", "install", "x"]));
        assert!(!has(&["npm", "test"]) && !has(&["npm"]) && has(&["npx", "tsc"]));
        assert!(has(&["gh", "pr", "list"]) && !has(&["ghc"]));
    }

    #[test]
    fn a_place_in_the_home_directory_is_written_as_people_do() {
        let home = Path::new("/home/ada");
        assert_eq!(in_home(Path::new("/home/ada/.npm"), home).unwrap(), "~/.npm");
        assert_eq!(in_home(Path::new("/srv/x"), home).unwrap(), "/srv/x");
        assert_eq!(in_home(Path::new("/home/ada/a b"), home).unwrap(), "'/home/ada/a b'");
        assert_eq!(in_home(Path::new("/home/ada/a\nb"), home), None);
    }
}
