//! Which variables of the environment a command sees.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::Command;

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde::Serialize;

use super::ConfigError;
use super::strict::strict_table;

/// Passed whatever a profile says: without these, no program works.
const ALWAYS_PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "COLORTERM",
    "LANG",
    "LC_*",
    "TZ",
    "PWD",
    "TMPDIR",
    "NONO_*",
];

/// Rules for the environment: first `pass`, then `unset`, then `set`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct EnvironmentRules {
    /// Names (or globs of names) that are passed on; none: all are.
    pub pass: Vec<String>,
    /// Names (or globs) that are not.
    pub unset: Vec<String>,
    /// Variables with these values.
    pub set: BTreeMap<String, String>,
}

strict_table! {
    /// The table `env`.
    pub(super) struct EnvironmentTable {
        pass: Vec<String>,
        unset: Vec<String>,
        set: BTreeMap<String, String>,
    }
}

impl EnvironmentRules {
    /// Adds the rules of a profile to those of the one that it extends.
    pub(super) fn extend(&mut self, table: EnvironmentTable) {
        super::profile::append(&mut self.pass, table.pass);
        super::profile::append(&mut self.unset, table.unset);
        self.set.extend(table.set.unwrap_or_default());
    }

    /// Checks names and globs.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        matcher(&self.pass)?;
        matcher(&self.unset)?;
        let is_name = |name: &&String| name.is_empty() || name.contains(['=', '\0']);
        match self.set.keys().find(is_name) {
            Some(name) => Err(ConfigError::invalid("env", format!("{name:?} is no name"))),
            None => Ok(()),
        }
    }
}

/// Sets up the environment of a command. Variables that are set on the command already stay.
///
/// # Errors
/// A glob that is not valid.
pub fn apply_rules(
    rules: &EnvironmentRules,
    environment: impl Iterator<Item = OsString>,
    command: &mut Command,
) -> Result<(), ConfigError> {
    let (passed, unset) = (matcher(&rules.pass)?, matcher(&rules.unset)?);
    let always = matcher(ALWAYS_PASSED)?;
    for name in environment {
        let is_passed = rules.pass.is_empty() || passed.is_match(&name) || always.is_match(&name);
        if !is_passed || unset.is_match(&name) {
            command.env_remove(name);
        }
    }
    command.envs(&rules.set);
    Ok(())
}

fn matcher<S: AsRef<str>>(globs: &[S]) -> Result<GlobSet, ConfigError> {
    let mut set = GlobSetBuilder::new();
    for glob in globs {
        let glob = glob.as_ref();
        set.add(Glob::new(glob).map_err(|error| ConfigError::invalid("env", error.to_string()))?);
    }
    set.build().map_err(|error| ConfigError::invalid("env", error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn pass_comes_first_then_unset_then_set() {
        let rules = EnvironmentRules {
            pass: vec!["AWS_*".into(), "KEY".into()],
            unset: vec!["AWS_SECRET*".into(), "SHELL".into()],
            set: [("KEY".to_owned(), "new".to_owned())].into(),
        };
        rules.check().unwrap();
        let mut command = Command::new("true");
        let names = ["PATH", "AWS_REGION", "AWS_SECRET_KEY", "KEY", "OTHER", "SHELL", "LC_ALL"];
        apply_rules(&rules, names.iter().map(OsString::from), &mut command).unwrap();
        let of = |name: &str| command.get_envs().find(|(key, _)| *key == name).map(|(_, v)| v);
        assert_eq!(of("PATH"), None, "passed on as it is");
        assert_eq!(of("LC_ALL"), None);
        assert_eq!(of("AWS_REGION"), None);
        assert_eq!(of("AWS_SECRET_KEY"), Some(None), "removed");
        assert_eq!(of("SHELL"), Some(None));
        assert_eq!(of("OTHER"), Some(None));
        assert_eq!(of("KEY"), Some(Some(OsStr::new("new"))));
        let bad = EnvironmentRules { set: [("A=B".into(), String::new())].into(), ..rules };
        assert!(bad.check().is_err());
    }
}
