//! Finding profiles: built in, the user's, or a file that the user names.
//!
//! A user's profile hides a built-in one of the same name, and may extend it under that name.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::document::{self, Document};
use super::nearest::nearest;
use super::profile::{Profile, ProfileTable};
use super::{ConfigError, Surroundings, config_dir};
use crate::agent::Client;
use nono_engine::path_text::serde_paths;
use nono_engine::sys::{self, Dir};

/// Name and text of the profiles that are built in.
const BUILT_IN: &[(&str, &str)] = &[
    ("claude-code", include_str!("builtin/claude-code.json")),
    ("codex", include_str!("builtin/codex.json")),
    ("gemini", include_str!("builtin/gemini.json")),
    ("generic", include_str!("builtin/generic.json")),
    ("opencode", include_str!("builtin/opencode.json")),
];
/// Tools that the profile `generic` is for: people look for a profile of their name.
const GENERIC_TOOLS: &[&str] = &[
    "bun", "cargo", "deno", "go", "java", "mise", "node", "nodejs", "npm", "npx", "nvm", "pip",
    "pnpm", "pyenv", "python", "python3", "ruby", "rust", "rustup", "uv", "volta", "yarn",
];
/// Directory of the user's profiles in that of the configuration.
const PROFILES_NAME: &str = "profiles";
/// Endings of files that are profiles, the first one first.
const ENDINGS: [&str; 2] = ["json", "toml"];

/// Where a profile is from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProfileSource {
    /// Part of the program.
    BuiltIn,
    /// The user's, in the directory of the configuration.
    User(#[serde(with = "nono_engine::path_text::serde_path")] PathBuf),
    /// A file that was named.
    File(#[serde(with = "nono_engine::path_text::serde_path")] PathBuf),
}

/// A profile with everything that it inherits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FoundProfile {
    /// Its name, or the path that was named.
    pub name: String,
    /// Where it is from.
    pub source: ProfileSource,
    /// The profiles that it extends, the nearest one first.
    pub extends: Vec<String>,
    /// The contents.
    pub profile: Profile,
    /// The files that say so, all symlinks resolved: a command must not write them.
    #[serde(with = "serde_paths")]
    pub files: Vec<PathBuf>,
}

/// The profiles that there are.
#[derive(Debug, Clone)]
pub struct ProfileLibrary {
    dir: Option<PathBuf>,
}

impl ProfileLibrary {
    /// The built-in profiles, and those of the user whose surroundings these are.
    pub fn new(surroundings: &Surroundings<'_>) -> Self {
        Self { dir: config_dir(surroundings).map(|dir| dir.join(PROFILES_NAME)) }
    }

    /// Names and sources of all profiles, by name. One that is hidden is not among them.
    ///
    /// # Errors
    /// When the directory of the user's profiles cannot be read.
    pub fn list(&self) -> Result<Vec<(String, ProfileSource)>, ConfigError> {
        let mut found = Vec::new();
        for name in self.user_names()? {
            found.extend(self.user_file(&name)?.map(|path| (name, ProfileSource::User(path))));
        }
        for (name, _) in BUILT_IN {
            if !found.iter().any(|(known, _)| known == name) {
                found.push(((*name).to_owned(), ProfileSource::BuiltIn));
            }
        }
        found.sort();
        Ok(found)
    }

    /// Finds a profile by its name, or reads the file of a path: a word with a `/` or the
    /// ending of a profile's file. Other names of an agent (`claude`) mean its profile.
    ///
    /// # Errors
    /// [`ConfigError`]: a file that is not valid, an unknown name, a circle.
    pub fn find(&self, name_or_path: &str) -> Result<FoundProfile, ConfigError> {
        let name_or_path = self.meant(name_or_path)?;
        let path = Path::new(name_or_path);
        let ends_like_one = path.extension().is_some_and(|end| ENDINGS.iter().any(|e| end == *e));
        let source = if name_or_path.contains('/') || ends_like_one {
            ProfileSource::File(path.to_owned())
        } else {
            self.source_of(name_or_path, None)?
        };
        let (mut tables, mut files) = (Vec::new(), Vec::new());
        let mut chain = vec![name_or_path.to_owned()];
        let mut next = Some(source.clone());
        while let Some(source) = next.take() {
            let name = chain.last().map_or("", String::as_str);
            let table = load(name, &source, &mut files)?;
            if let Some(parent) = &table.extends {
                let is_hidden_one = *parent == name && source != ProfileSource::BuiltIn;
                if !is_hidden_one && chain.contains(parent) {
                    chain.push(parent.clone());
                    return Err(ConfigError::Circle { chain });
                }
                next = Some(if is_hidden_one && built_in(parent).is_some() {
                    ProfileSource::BuiltIn
                } else if is_hidden_one {
                    chain.push(parent.clone());
                    return Err(ConfigError::Circle { chain });
                } else {
                    self.source_of(parent, Some(name))?
                });
                chain.push(parent.clone());
            }
            tables.push(table);
        }
        let mut profile = Profile::default();
        for table in tables.into_iter().rev() {
            profile.extend(table);
        }
        profile.check().map_err(|error| match error {
            ConfigError::Invalid { origin, reason } => {
                ConfigError::invalid(format!("profile {name_or_path}: {origin}"), reason)
            }
            other => other,
        })?;
        let extends = chain.split_off(1);
        Ok(FoundProfile { name: name_or_path.to_owned(), source, extends, profile, files })
    }

    /// The profile of the agent that a name means, unless a profile has the name itself.
    fn meant<'a>(&self, name: &'a str) -> Result<&'a str, ConfigError> {
        if built_in(name).is_some() || self.user_file(name)?.is_some() {
            return Ok(name);
        }
        Ok(Client::meant(name).map_or(name, |client| client.name()))
    }

    fn source_of(&self, name: &str, wanted_by: Option<&str>) -> Result<ProfileSource, ConfigError> {
        if let Some(path) = self.user_file(name)? {
            return Ok(ProfileSource::User(path));
        }
        if built_in(name).is_some() {
            return Ok(ProfileSource::BuiltIn);
        }
        let known = self.list()?;
        let names = known.iter().map(|(name, _)| name.as_str());
        Err(ConfigError::NoProfile {
            name: name.to_owned(),
            wanted_by: wanted_by.map(str::to_owned),
            serving: GENERIC_TOOLS.contains(&name).then_some("generic"),
            nearest: nearest(name, names).map(str::to_owned),
        })
    }

    /// The file of a user's profile, if there is one. A name is not a path.
    fn user_file(&self, name: &str) -> Result<Option<PathBuf>, ConfigError> {
        let Some(dir) = self.dir.as_ref().filter(|_| is_name(name)) else { return Ok(None) };
        let dir = match Dir::open(dir) {
            Ok(dir) => dir,
            Err(error) if error.is_gone() => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        for ending in ENDINGS {
            let file = format!("{name}.{ending}");
            if dir.try_stat(file.as_bytes())?.is_some() {
                return Ok(Some(dir.path_of(file.as_bytes())));
            }
        }
        Ok(None)
    }

    fn user_names(&self) -> Result<Vec<String>, ConfigError> {
        let Some(dir) = &self.dir else { return Ok(Vec::new()) };
        let listed = match Dir::open(dir).and_then(|dir| dir.names()) {
            Ok(listed) => listed,
            Err(error) if error.is_gone() => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut names = Vec::new();
        for entry in listed {
            let Ok(file) = str::from_utf8(&entry.name) else { continue };
            let Some((name, ending)) = file.rsplit_once('.') else { continue };
            if ENDINGS.contains(&ending) && is_name(name) && !names.iter().any(|n| n == name) {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }
}

fn built_in(name: &str) -> Option<&'static str> {
    BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(is_plain)
}

fn load(
    name: &str,
    source: &ProfileSource,
    files: &mut Vec<PathBuf>,
) -> Result<ProfileTable, ConfigError> {
    match source {
        ProfileSource::BuiltIn => document::parse_json(
            &format!("built-in profile {name}"),
            built_in(name).unwrap_or("{}"),
        ),
        ProfileSource::User(path) | ProfileSource::File(path) => {
            let path = sys::plain_absolute(path, &sys::current_dir()?);
            let Document { content, real_path } = document::read(&path)?;
            files.push(real_path);
            Ok(content)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::expand;

    fn built_in_profiles(surroundings: &Surroundings<'_>) -> Vec<FoundProfile> {
        let library = ProfileLibrary { dir: None };
        let found = library.list().unwrap();
        assert_eq!(found.len(), BUILT_IN.len());
        let places = |texts: &Vec<String>| {
            texts.iter().all(|text| expand(text, surroundings).is_ok() && !text.contains(".."))
        };
        let profiles: Vec<_> = found.iter().map(|(name, _)| library.find(name).unwrap()).collect();
        assert!(profiles.iter().all(|found| places(&found.profile.read)));
        profiles
    }

    /// A command that writes the parent of a grant could make it a symlink to any other place, and
    /// the next run would follow it.
    #[test]
    fn no_built_in_grant_lies_where_a_built_in_profile_lets_commands_write() {
        let surroundings = Surroundings {
            home: Some("/home/me".into()),
            current_dir: "/work".into(),
            variable: &|_| None,
            is_inside: false,
        };
        let place = |text: &String| expand(text, &surroundings).unwrap();
        let profiles = built_in_profiles(&surroundings);
        let of = |lists: fn(&Profile) -> Vec<&Vec<String>>| -> Vec<PathBuf> {
            let texts = profiles.iter().flat_map(|found| lists(&found.profile)).flatten();
            let mut places: Vec<_> = texts.filter_map(place).collect();
            places.sort();
            places.dedup();
            places
        };
        let mut written = of(|profile| vec![&profile.allow, &profile.write, &profile.create]);
        let files = profiles.iter().flat_map(|found| found.profile.create_files.keys());
        let files: Vec<_> = files.filter_map(place).collect();
        assert_eq!(files, [PathBuf::from("/home/me/.claude.json")]);
        assert!(written.contains(&"/home/me/.claude".into()));
        let granted =
            of(|profile| vec![&profile.allow, &profile.write, &profile.create, &profile.read]);
        written.extend(files.clone());
        for place in granted.iter().chain(&files) {
            let above = written.iter().find(|dir| place != *dir && place.starts_with(dir));
            assert_eq!(above, None, "{}", place.display());
        }
    }

    #[test]
    fn every_built_in_profile_keeps_secrets_and_says_what_it_is_for() {
        let surroundings = Surroundings {
            home: None,
            current_dir: "/".into(),
            variable: &|_| None,
            is_inside: false,
        };
        for found in built_in_profiles(&surroundings) {
            assert_eq!(found.profile.rollback.force_include, [".env", ".env.*", "*.local"]);
            assert!(!found.profile.description.is_empty());
            assert!(found.profile.allow.is_empty(), "the current directory is the default");
        }
    }
}
