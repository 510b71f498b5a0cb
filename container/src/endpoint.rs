//! The place of the container engine: found as the `docker` command finds it.
//!
//! In this order: `DOCKER_HOST`; the Docker context of `DOCKER_CONTEXT` or of `config.json`; the
//! usual sockets of Docker, rootless Docker and Podman. A context with an unusable description is
//! an error, never a reason to talk to another engine.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::error::ContainerError;
use nono_engine::object::ContentHash;
use nono_engine::sys::{self, Dir, FileKind};

/// Longer documents of Docker's configuration are refused.
const MAX_DOCUMENT_BYTES: u64 = 1 << 20;

/// The place of a container engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// As in `DOCKER_HOST`: `unix:///var/run/docker.sock`, `tcp://HOST:PORT`.
    pub url: String,
    /// Keys and certificates of a remote engine: `ca.pem`, `cert.pem`, `key.pem`.
    pub tls_dir: Option<PathBuf>,
}

/// The variables that say where the engine is.
#[derive(Debug, Clone, Default)]
pub(super) struct Variables {
    pub(super) docker_host: Option<OsString>,
    pub(super) docker_context: Option<OsString>,
    pub(super) docker_config: Option<OsString>,
    pub(super) docker_cert_path: Option<OsString>,
    pub(super) docker_tls_verify: Option<OsString>,
    pub(super) home: Option<OsString>,
    pub(super) runtime_dir: Option<OsString>,
}

impl Variables {
    fn of_process() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            docker_host: set("DOCKER_HOST"),
            docker_context: set("DOCKER_CONTEXT"),
            docker_config: set("DOCKER_CONFIG"),
            docker_cert_path: set("DOCKER_CERT_PATH"),
            docker_tls_verify: set("DOCKER_TLS_VERIFY"),
            home: set("HOME"),
            runtime_dir: set("XDG_RUNTIME_DIR"),
        }
    }
}

impl Endpoint {
    /// Finds the engine of this process.
    ///
    /// # Errors
    /// [`ContainerError::NoDaemon`], or a context that cannot be used.
    pub fn find() -> Result<Self, ContainerError> {
        Self::find_with(&Variables::of_process())
    }

    pub(super) fn find_with(variables: &Variables) -> Result<Self, ContainerError> {
        let config = variables
            .docker_config
            .clone()
            .map(PathBuf::from)
            .or_else(|| variables.home.clone().map(|home| PathBuf::from(home).join(".docker")));
        if let Some(host) = &variables.docker_host {
            let url = text(host, "DOCKER_HOST")?;
            let verifies = variables.docker_tls_verify.is_some();
            let certificates = variables.docker_cert_path.clone().map(PathBuf::from).or(config);
            let tls_dir = certificates.filter(|_| verifies);
            return Ok(Self { url, tls_dir });
        }
        let context = match (&variables.docker_context, &config) {
            (Some(context), _) => Some(text(context, "DOCKER_CONTEXT")?),
            (None, Some(config)) => current_context(config)?,
            (None, None) => None,
        };
        if let (Some(context), Some(config)) = (context, &config)
            && context != "default"
        {
            return of_context(config, &context);
        }
        let runtime = variables.runtime_dir.clone().map(PathBuf::from);
        let usual = [
            Some(PathBuf::from("/var/run/docker.sock")),
            runtime.as_ref().map(|dir| dir.join("docker.sock")),
            runtime.as_ref().map(|dir| dir.join("podman/podman.sock")),
            Some(PathBuf::from("/run/podman/podman.sock")),
        ];
        let mut tried = Vec::new();
        for path in usual.into_iter().flatten() {
            if is_socket(&path) {
                return Ok(Self::of_socket(&path));
            }
            tried.push(path.display().to_string());
        }
        Err(ContainerError::NoDaemon { tried })
    }

    /// The engine behind a socket.
    pub fn of_socket(path: &Path) -> Self {
        Self { url: format!("unix://{}", path.display()), tls_dir: None }
    }

    /// Whether the engine is on this machine, so that its paths may be paths here.
    pub fn is_local(&self) -> bool {
        self.url.starts_with("unix://")
    }
}

fn text(value: &OsString, name: &str) -> Result<String, ContainerError> {
    value.to_str().map(str::to_owned).ok_or_else(|| ContainerError::BadEndpoint {
        endpoint: name.to_owned(),
        reason: "it is not UTF-8".to_owned(),
    })
}

fn is_socket(path: &Path) -> bool {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return false };
    let Ok(parent) = sys::real_path(parent) else { return false };
    let stat = Dir::open(&parent).and_then(|dir| dir.try_stat(name.as_bytes()));
    matches!(stat, Ok(Some(stat)) if matches!(stat.kind, FileKind::Socket | FileKind::Symlink))
}

fn read(dir: &Path, name: &str) -> Result<Option<Vec<u8>>, ContainerError> {
    let read = Dir::open(dir).and_then(|dir| dir.read(name.as_bytes(), MAX_DOCUMENT_BYTES));
    match read {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.is_gone() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn current_context(config: &Path) -> Result<Option<String>, ContainerError> {
    #[derive(Deserialize)]
    struct Config {
        #[serde(rename = "currentContext", default)]
        current_context: Option<String>,
    }
    let Some(bytes) = read(config, "config.json")? else { return Ok(None) };
    let parsed: Config =
        serde_json::from_slice(&bytes).map_err(|error| bad(&config.join("config.json"), &error))?;
    Ok(parsed.current_context.filter(|context| !context.is_empty()))
}

fn bad(path: &Path, reason: &dyn std::fmt::Display) -> ContainerError {
    ContainerError::BadEndpoint {
        endpoint: format!("the engine that {} names", path.display()),
        reason: reason.to_string(),
    }
}

/// Docker keeps the description of a context below the SHA-256 of its name.
fn of_context(config: &Path, context: &str) -> Result<Endpoint, ContainerError> {
    #[derive(Deserialize)]
    struct Meta {
        #[serde(rename = "Endpoints", default)]
        endpoints: Endpoints,
    }
    #[derive(Deserialize, Default)]
    struct Endpoints {
        docker: Option<DockerEndpoint>,
    }
    #[derive(Deserialize)]
    struct DockerEndpoint {
        #[serde(rename = "Host", default)]
        host: String,
    }
    let id = ContentHash::of(context.as_bytes()).hex();
    let dir = config.join("contexts/meta").join(&id);
    let unusable = |reason: &dyn std::fmt::Display| ContainerError::BadEndpoint {
        endpoint: format!("the engine of the Docker context {context}"),
        reason: reason.to_string(),
    };
    let bytes = read(&dir, "meta.json")?.ok_or_else(|| unusable(&"there is no such context"))?;
    let meta: Meta = serde_json::from_slice(&bytes).map_err(|error| unusable(&error))?;
    let host = meta.endpoints.docker.map(|docker| docker.host).unwrap_or_default();
    if host.is_empty() {
        return Err(unusable(&"it names no engine"));
    }
    let tls = config.join("contexts/tls").join(&id).join("docker");
    let tls_dir = read(&tls, "ca.pem")?.map(|_| tls);
    Ok(Endpoint { url: host, tls_dir })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests plant what they look at")]
mod tests {
    use super::*;

    fn with_context(meta: &str) -> (tempfile::TempDir, Variables) {
        let home = tempfile::tempdir().unwrap();
        let config = home.path().join(".docker");
        let dir = config.join("contexts/meta").join(ContentHash::of(b"far").hex());
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(config.join("config.json"), r#"{"currentContext":"far"}"#).unwrap();
        std::fs::write(dir.join("meta.json"), meta).unwrap();
        let variables =
            Variables { home: Some(home.path().as_os_str().to_owned()), ..Variables::default() };
        (home, variables)
    }

    #[test]
    fn the_variable_comes_before_the_context_and_the_context_before_the_usual_sockets() {
        let meta = r#"{"Name":"far","Endpoints":{"docker":{"Host":"unix:///far.sock"}}}"#;
        let (_home, mut variables) = with_context(meta);
        assert_eq!(Endpoint::find_with(&variables).unwrap().url, "unix:///far.sock");
        variables.docker_host = Some("unix:///near.sock".into());
        assert_eq!(Endpoint::find_with(&variables).unwrap().url, "unix:///near.sock");
    }

    #[test]
    fn an_unusable_context_is_an_error_and_no_reason_to_ask_another_engine() {
        for meta in ["{", "{}", r#"{"Endpoints":{"docker":{"Host":""}}}"#] {
            let (_home, variables) = with_context(meta);
            let found = Endpoint::find_with(&variables);
            assert!(matches!(found, Err(ContainerError::BadEndpoint { .. })), "{found:?}");
        }
        let (_home, mut variables) = with_context("{}");
        variables.docker_context = Some("nowhere".into());
        let error = Endpoint::find_with(&variables).unwrap_err().to_string();
        assert!(error.contains("nowhere") && error.contains("no such context"), "{error}");
    }

    #[test]
    fn rootless_docker_is_found_in_the_runtime_directory() {
        let runtime = tempfile::tempdir().unwrap();
        let socket = runtime.path().join("docker.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        if is_socket(Path::new("/var/run/docker.sock")) {
            return;
        }
        let runtime_dir = Some(runtime.path().as_os_str().to_owned());
        let variables = Variables { runtime_dir, ..Variables::default() };
        assert_eq!(Endpoint::find_with(&variables).unwrap(), Endpoint::of_socket(&socket));
    }
}
