//! Where a remote is: a directory, or a URL of an object store.
//!
//! An address never holds a credential: a URL with a user, a password or an unknown parameter is
//! refused, so an address can be shown and written into settings.

use std::fmt;
use std::path::{Path, PathBuf};

use nono_engine::path_text::Shown;
use nono_engine::sys;

/// Parameters that a URL of S3 may have.
const S3_PARAMETERS: [&str; 3] = ["endpoint", "region", "profile"];

/// Where archives lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A directory, absolute.
    Directory(PathBuf),
    /// A bucket or container of an object store.
    Bucket(Bucket),
}

/// The kind of an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provider {
    /// Amazon S3, and everything that speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Google,
    /// Azure Blob Storage.
    Azure,
}

/// A bucket, and the folder in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// The kind of store.
    pub provider: Provider,
    /// The URL without parameters and folder, as the client of the provider takes it.
    pub url: String,
    /// The folder in the bucket, without a slash at its ends; empty for the bucket itself.
    pub folder: String,
    /// The parameters, in order.
    pub parameters: Vec<(String, String)>,
}

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// It has a user, a password or a key in it. The text is not repeated.
    #[error("the URL holds credentials; they come from the environment or the usual files instead")]
    HoldsCredentials,
    /// Its beginning is not known.
    #[error("{scheme}:// is no known kind of remote (s3://, gs://, az://, file://, or a path)")]
    UnknownScheme {
        /// The part before `://`.
        scheme: String,
    },
    /// A parameter is not known. Its value may be a secret and is not repeated.
    #[error(
        "the URL has the parameter {name:?}; only an s3:// URL has some: endpoint, region, profile"
    )]
    UnknownParameter {
        /// The name of the parameter.
        name: String,
    },
    /// No bucket is named, or a folder has a part that is no name.
    #[error("the URL {reason}")]
    Invalid {
        /// The defect.
        reason: &'static str,
    },
    /// The current directory is unknown.
    #[error("the path is relative, and {reason}")]
    NoCurrentDir {
        /// The reason.
        reason: String,
    },
}

impl Address {
    /// Reads an address: a URL, or a path that is relative to the current directory.
    ///
    /// # Errors
    /// [`AddressError`]. It repeats no part of the text that may be a secret.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        if text.is_empty() {
            // A variable that is not set, and not the current directory.
            return Err(AddressError::Invalid { reason: "is empty" });
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Self::directory(Path::new(text));
        };
        let provider = match scheme {
            "file" => {
                return match rest.strip_prefix('/') {
                    Some(path) => Self::directory(&Path::new("/").join(path)),
                    None => Err(AddressError::Invalid { reason: "names no absolute path" }),
                };
            }
            "s3" | "s3a" => Provider::S3,
            "gs" => Provider::Google,
            "az" | "azure" | "abfs" | "abfss" | "adl" => Provider::Azure,
            "https" => https_provider(rest)?,
            _ => {
                let plain = scheme.chars().all(|c| c.is_ascii_alphanumeric()) && scheme.len() < 20;
                let scheme = if plain { scheme } else { "…" }.to_owned();
                return Err(AddressError::UnknownScheme { scheme });
            }
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        if place.contains('#') || query.contains('#') {
            return Err(AddressError::Invalid { reason: "has a # in it" });
        }
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let is_azure_account = scheme.starts_with("abfs");
        if (authority.contains('@') && !is_azure_account)
            || authority.contains(':')
            || authority.matches('@').count() > 1
        {
            return Err(AddressError::HoldsCredentials);
        }
        if authority.is_empty() {
            return Err(AddressError::Invalid { reason: "names no bucket" });
        }
        let parameters = parameters(query, provider)?;
        let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        if parts.iter().any(|part| [".", ".."].contains(part) || part.starts_with(".incomplete")) {
            return Err(AddressError::Invalid { reason: "has a folder that is no name" });
        }
        let mut url = format!("{scheme}://{authority}");
        // There the account is the host, and the container the first part of the path.
        if scheme == "https" && provider == Provider::Azure {
            if parts.is_empty() {
                return Err(AddressError::Invalid { reason: "names no container" });
            }
            url = format!("{url}/{}", parts.remove(0));
        }
        Ok(Self::Bucket(Bucket { provider, url, folder: parts.join("/"), parameters }))
    }

    fn directory(path: &Path) -> Result<Self, AddressError> {
        if path.is_absolute() {
            return Ok(Self::Directory(sys::plain_absolute(path, Path::new("/"))));
        }
        let current = sys::current_dir()
            .map_err(|error| AddressError::NoCurrentDir { reason: error.to_string() })?;
        Ok(Self::Directory(sys::plain_absolute(path, &current)))
    }

    /// Whether a word can only mean an address: a URL, or a path with its beginning.
    pub fn is_meant_by(word: &str) -> bool {
        word.contains("://")
            || [".", "..", "~"].contains(&word)
            || ["/", "./", "../", "~/"].iter().any(|start| word.starts_with(start))
    }
}

/// The host of a web URL tells the provider.
fn https_provider(rest: &str) -> Result<Provider, AddressError> {
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit('@').next().unwrap_or_default();
    match host {
        _ if host.ends_with(".amazonaws.com") || host.ends_with(".r2.cloudflarestorage.com") => {
            Err(AddressError::Invalid {
                reason: "is of the web; write s3://BUCKET/FOLDER?endpoint=URL",
            })
        }
        _ if [".blob.core.windows.net", ".dfs.core.windows.net"]
            .iter()
            .any(|end| host.ends_with(end)) =>
        {
            Ok(Provider::Azure)
        }
        _ => Err(AddressError::Invalid {
            reason: "is of the web; an S3-compatible server is s3://BUCKET/FOLDER?endpoint=URL",
        }),
    }
}

fn parameters(query: &str, provider: Provider) -> Result<Vec<(String, String)>, AddressError> {
    let mut parameters = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if provider != Provider::S3 || !S3_PARAMETERS.contains(&name) {
            let is_word = name.len() < 40 && name.bytes().all(|byte| byte.is_ascii_graphic());
            let name = if is_word { name } else { "…" }.to_owned();
            return Err(AddressError::UnknownParameter { name });
        }
        if name == "endpoint" {
            let Some((scheme, host)) = value.split_once("://") else {
                return Err(AddressError::Invalid { reason: "has an endpoint that is no URL" });
            };
            if !["http", "https"].contains(&scheme) {
                return Err(AddressError::Invalid { reason: "has an endpoint that is no URL" });
            }
            if host.contains('@') {
                return Err(AddressError::HoldsCredentials);
            }
        }
        parameters.push((name.to_owned(), value.to_owned()));
    }
    Ok(parameters)
}

impl Bucket {
    /// The value of a parameter.
    pub(super) fn parameter(&self, wanted: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(name, _)| name == wanted);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "{}", Shown::path(path)),
            Self::Bucket(bucket) => {
                let mut text = bucket.url.clone();
                if !bucket.folder.is_empty() {
                    text = format!("{text}/{}", bucket.folder);
                }
                for (at, (name, value)) in bucket.parameters.iter().enumerate() {
                    text.push(if at == 0 { '?' } else { '&' });
                    text.push_str(&format!("{name}={value}"));
                }
                write!(f, "{}", Shown::bytes(text.as_bytes()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written_back() {
        for (text, shown) in [
            ("/a//b/../c", "/a/c"),
            ("file:///mnt/usb", "/mnt/usb"),
            ("s3://bucket", "s3://bucket"),
            ("s3://bucket/a//b/", "s3://bucket/a/b"),
            (
                "s3://b/x?endpoint=http://127.0.0.1:9000&region=r",
                "s3://b/x?endpoint=http://127.0.0.1:9000&region=r",
            ),
            ("gs://b/x", "gs://b/x"),
            ("az://c/x", "az://c/x"),
            (
                "abfss://c@account.dfs.core.windows.net/x",
                "abfss://c@account.dfs.core.windows.net/x",
            ),
            ("https://a.blob.core.windows.net/c/x/y", "https://a.blob.core.windows.net/c/x/y"),
        ] {
            assert_eq!(Address::parse(text).unwrap().to_string(), shown, "{text}");
        }
        assert!(Address::parse("").is_err());
    }

    #[test]
    fn credentials_in_a_url_are_refused_and_not_repeated() {
        for text in [
            "s3://AKIAKEY:topsecret@bucket/x",
            "s3://topsecret@bucket",
            "gs://u:topsecret@b",
            "s3://b?endpoint=http://u:topsecret@host",
            "az://c/x?sig=topsecret",
            "s3://b?secret_access_key=topsecret",
            "https://a.blob.core.windows.net/c?sv=1&sig=topsecret",
            "ftp://u:topsecret@host/x",
            "top/secret://topsecret",
        ] {
            let error = Address::parse(text).unwrap_err();
            assert!(!error.to_string().contains("topsecret"), "{text}: {error}");
        }
    }

    #[test]
    fn words_without_a_place_are_no_addresses() {
        for (word, is) in [
            ("backup", false),
            ("20260214-143022-12345/1", false),
            ("./backup", true),
            ("/mnt", true),
            ("s3://b", true),
            (".", true),
        ] {
            assert_eq!(Address::is_meant_by(word), is, "{word}");
        }
    }
}
