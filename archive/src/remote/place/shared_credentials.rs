//! The files of the AWS tools: `~/.aws/credentials` and `~/.aws/config`, or what
//! `AWS_SHARED_CREDENTIALS_FILE` and `AWS_CONFIG_FILE` name.
//!
//! The client of S3 reads the environment alone. Most people have their keys in these files, in the
//! profile `default` or in the one that `AWS_PROFILE` names.

use std::path::{Path, PathBuf};

use nono_engine::sys::{self, Dir};

/// A larger file is not read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Keys of these files that the client of S3 knows.
const KNOWN: [&str; 5] =
    ["aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region", "endpoint_url"];

/// The settings of a profile, by the keys of the client; none if no file names the profile.
///
/// # Errors
/// When a file exists and cannot be read, or lacks a profile that was asked for by name.
pub(super) fn profile(wanted: Option<&str>) -> Result<Vec<(String, String)>, String> {
    let named = wanted.map(str::to_owned).or_else(|| std::env::var("AWS_PROFILE").ok());
    let name = named.as_deref().filter(|name| !name.is_empty()).unwrap_or("default");
    let mut found = Vec::new();
    let mut is_there = false;
    for (variable, file, section) in [
        ("AWS_CONFIG_FILE", "config", format!("profile {name}")),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name.to_owned()),
    ] {
        let Some(path) = place(variable, file) else { continue };
        let Some(text) = read(&path)? else { continue };
        let sections = [section.as_str(), name];
        if let Some(pairs) = section_of(&text, &sections) {
            is_there = true;
            found.extend(pairs);
        }
    }
    match (is_there, wanted) {
        (false, Some(name)) => Err(format!("the files of the AWS tools have no profile {name:?}")),
        _ => Ok(found),
    }
}

fn place(variable: &str, file: &str) -> Option<PathBuf> {
    match std::env::var_os(variable).filter(|path| !path.is_empty()) {
        Some(path) => Some(path.into()),
        None => Some(std::env::home_dir()?.join(".aws").join(file)),
    }
}

fn read(path: &Path) -> Result<Option<String>, String> {
    let real = match sys::real_path(path) {
        Ok(real) => real,
        Err(error) if error.is_gone() => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let (Some(parent), Some(name)) = (real.parent(), real.file_name()) else { return Ok(None) };
    let read = Dir::open(parent).and_then(|dir| dir.read(name.as_encoded_bytes(), MAX_FILE_BYTES));
    let bytes = read.map_err(|error| error.to_string())?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// The known pairs of a section that has one of these names; `None` if there is none.
fn section_of(text: &str, names: &[&str]) -> Option<Vec<(String, String)>> {
    let mut found = None;
    let mut is_in = false;
    for line in text.lines() {
        let is_nested = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            is_in = names.contains(&name.trim());
            if is_in {
                found.get_or_insert_with(Vec::new);
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=').filter(|_| is_in && !is_nested) else {
            continue;
        };
        let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
        if KNOWN.contains(&key.as_str())
            && let Some(found) = &mut found
        {
            found.push((key, value.to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_has_its_own_keys_alone() {
        let text = "# mine\n[default]\naws_access_key_id = A\n\n[profile work]\nregion=eu\n\
                    s3 =\n  endpoint_url = nested\nendpoint_url = http://h\nother = x\n[x]\nregion = y\n";
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            section_of(text, &["profile work", "work"]),
            Some(vec![pair("region", "eu"), pair("endpoint_url", "http://h")])
        );
        assert_eq!(
            section_of(text, &["profile default", "default"]),
            Some(vec![pair("aws_access_key_id", "A")])
        );
        assert_eq!(section_of(text, &["none"]), None);
    }
}
