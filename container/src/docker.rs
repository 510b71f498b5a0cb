//! The connection to a container engine.
//!
//! Every call blocks, has a limit of time, and fails with an error that names its operation. A call
//! that may take long has a pulse beside it: an engine that is silent to a ping has failed. The
//! engine is asked for its version first, so that an old daemon or Podman gets requests that it
//! knows. No call is repeated: most change something.

use std::fmt::Display;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use bollard::ClientVersion;
use bollard::errors::Error as BollardError;
use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::InspectContainerOptions;
use tokio::runtime::{Builder, Runtime};

use super::archive::ArchiveReader;
use super::endpoint::Endpoint;
use super::error::ContainerError;

/// The limit of a call that only asks, or changes little, unless [`TIMEOUT_VARIABLE`] says another.
const QUICK: Duration = Duration::from_secs(30);
/// The limit of a call that writes much: an image, a large archive.
const LONG: Duration = Duration::from_secs(3600);
/// Seconds that the engine may take for an answer.
const TIMEOUT_VARIABLE: &str = "NONO_ENGINE_TIMEOUT";

/// The limit of time of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// 30 seconds, or what `NONO_ENGINE_TIMEOUT` says.
    Quick,
    /// An hour, while the engine answers pings in the time of [`Quick`](Self::Quick).
    Long,
}

/// A container engine that has answered.
#[derive(Debug)]
pub struct Docker {
    client: bollard::Docker,
    runtime: Runtime,
    endpoint: Endpoint,
    is_podman: bool,
    version: String,
    quick: Duration,
}

impl Docker {
    /// Connects to the engine of this process, and asks for its version.
    ///
    /// # Errors
    /// When there is none, or it does not answer.
    pub fn connect() -> Result<Self, ContainerError> {
        Self::connect_to(Endpoint::find()?)
    }

    /// Connects to an engine, and asks for its version.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn connect_to(endpoint: Endpoint) -> Result<Self, ContainerError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| bad_endpoint(&endpoint, &error))?;
        let client = client_of(&endpoint, bollard::API_DEFAULT_VERSION)?;
        let asked = client.clone();
        let version = asked.version();
        let quick = timeout(&endpoint)?;
        let (is_podman, empty) = (false, String::new());
        let mut docker = Self { client, runtime, endpoint, is_podman, version: empty, quick };
        let found = docker.call("ask for its version", Patience::Quick, version)?;
        docker.is_podman = found
            .components
            .iter()
            .flatten()
            .any(|part| part.name.to_ascii_lowercase().contains("podman"));
        docker.version = found.version.unwrap_or_default();
        // The client could ask by itself, once more: an engine takes milliseconds for that answer.
        let spoken = found.api_version.unwrap_or_default();
        let spoken = version_of(&spoken).ok_or_else(|| ContainerError::InvalidAnswer {
            operation: "agree on a version".to_owned(),
            reason: format!("{spoken:?} is no version of the API"),
        })?;
        if spoken < *bollard::API_DEFAULT_VERSION {
            docker.client = client_of(&docker.endpoint, &spoken)?;
        }
        Ok(docker)
    }

    /// The client, for [`call`](Self::call).
    pub fn client(&self) -> &bollard::Docker {
        &self.client
    }

    /// The place of the engine.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Whether the engine is Podman behind its compatible API.
    pub fn is_podman(&self) -> bool {
        self.is_podman
    }

    /// Name and version of the engine: `Docker 20.10.24`.
    pub fn engine(&self) -> String {
        format!("{} {}", if self.is_podman { "Podman" } else { "Docker" }, self.version)
    }

    /// Waits for an answer. `operation` completes "cannot …".
    ///
    /// # Errors
    /// [`ContainerError::Unreachable`], [`ContainerError::TimedOut`], [`ContainerError::Refused`],
    /// [`ContainerError::InvalidAnswer`].
    pub fn call<T>(
        &self,
        operation: impl Display,
        patience: Patience,
        request: impl Future<Output = Result<T, BollardError>>,
    ) -> Result<T, ContainerError> {
        match patience {
            Patience::Quick => {
                let limited = async { tokio::time::timeout(self.quick, request).await };
                let answer = self.runtime.block_on(limited);
                answer.map_err(|_| self.silent(&operation))?
            }
            Patience::Long => self.wait(&operation, request)?,
        }
        .map_err(|error| self.failed(&operation, error))
    }

    /// Waits for a future of the runtime, as long as the engine lives.
    pub(super) fn wait<T>(
        &self,
        operation: &dyn Display,
        future: impl Future<Output = T>,
    ) -> Result<T, ContainerError> {
        self.runtime.block_on(async {
            tokio::select! {
                // An answer that has come is taken, even from an engine that is gone by now.
                biased;
                answer = future => Ok(answer),
                error = self.no_pulse(operation) => Err(error),
            }
        })
    }

    /// Ends when the engine is silent to a ping.
    async fn no_pulse(&self, operation: &dyn Display) -> ContainerError {
        loop {
            tokio::time::sleep(self.quick).await;
            match tokio::time::timeout(self.quick, self.client.ping()).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return self.failed(operation, error),
                Err(_) => return self.silent(operation),
            }
        }
    }

    fn silent(&self, operation: &dyn Display) -> ContainerError {
        ContainerError::TimedOut {
            operation: operation.to_string(),
            endpoint: self.endpoint.url.clone(),
            limit: self.quick,
        }
    }

    /// The error of an operation.
    pub(super) fn failed(&self, operation: &dyn Display, error: BollardError) -> ContainerError {
        let operation = operation.to_string();
        let endpoint = self.endpoint.url.clone();
        match error {
            BollardError::DockerResponseServerError { status_code, message } => {
                ContainerError::Refused { operation, status: status_code, message }
            }
            BollardError::RequestTimeoutError => {
                ContainerError::TimedOut { operation, endpoint, limit: LONG }
            }
            BollardError::JsonDataError { .. }
            | BollardError::JsonSerdeError { .. }
            | BollardError::StrParseError { .. }
            | BollardError::HttpHeaderNotFoundError(_)
            | BollardError::HttpHeaderToStrError { .. }
            | BollardError::Base64DecodeError { .. }
            | BollardError::APIVersionParseError {} => {
                ContainerError::InvalidAnswer { operation, reason: error.to_string() }
            }
            error => {
                let reason = of_certificates(&self.endpoint, with_causes(&error));
                ContainerError::Unreachable { operation, endpoint, reason }
            }
        }
    }

    /// The engine's description of a container, by name or id.
    ///
    /// # Errors
    /// [`ContainerError::NoSuchContainer`], [`ContainerError::BadName`], and as
    /// [`call`](Self::call).
    pub fn inspect(&self, name: &str) -> Result<ContainerInspectResponse, ContainerError> {
        // As `docker` itself shows it. Anything else would be another part of the request.
        let name = name.strip_prefix('/').unwrap_or(name);
        if !is_name(name) {
            return Err(ContainerError::BadName { name: name.to_owned() });
        }
        let request = self.client.inspect_container(name, None::<InspectContainerOptions>);
        match self.call(format_args!("look at container {name}"), Patience::Quick, request) {
            Err(error) if error.is_not_found() => {
                Err(ContainerError::NoSuchContainer { name: name.to_owned() })
            }
            answer => answer,
        }
    }

    /// Pauses a container, unless it is paused.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn pause(&self, id: &str) -> Result<(), ContainerError> {
        let request = self.client.pause_container(id);
        self.call(format_args!("pause container {id}"), Patience::Quick, request)
    }

    /// Lets a paused container go on. One that is not paused, or not there, is as wanted.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub fn unpause(&self, id: &str) -> Result<(), ContainerError> {
        let request = self.client.unpause_container(id);
        match self.call(format_args!("unpause container {id}"), Patience::Quick, request) {
            Err(error @ ContainerError::Refused { .. }) => {
                let is_paused = match self.inspect(id) {
                    Ok(found) => found.state.and_then(|state| state.paused).unwrap_or(false),
                    Err(ContainerError::NoSuchContainer { .. }) => false,
                    Err(_) => true,
                };
                if is_paused { Err(error) } else { Ok(()) }
            }
            answer => answer,
        }
    }

    /// A path of a container as a tar stream. The container may be running, paused, stopped or
    /// merely created.
    pub fn archive(&self, container: &str, path: &str) -> ArchiveReader<'_> {
        ArchiveReader::new(self, container, path)
    }
}

/// Whether an engine takes the text for a name or an id.
fn is_name(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
        && text.bytes().all(is_inner)
}

fn timeout(endpoint: &Endpoint) -> Result<Duration, ContainerError> {
    let Some(set) = std::env::var_os(TIMEOUT_VARIABLE).filter(|set| !set.is_empty()) else {
        return Ok(QUICK);
    };
    let seconds = set.to_str().and_then(|set| set.parse::<u64>().ok());
    let seconds = seconds.filter(|seconds| (1..=LONG.as_secs()).contains(seconds));
    let reason = format!("{TIMEOUT_VARIABLE} is no number of seconds from 1 to {}", LONG.as_secs());
    seconds.map(Duration::from_secs).ok_or_else(|| bad_endpoint(endpoint, &reason))
}

/// Requests have their limits in [`Docker::call`]; the client's own is the longest of them.
fn version_of(text: &str) -> Option<ClientVersion> {
    let (major, minor) = text.split_once('.')?;
    let (major_version, minor_version) = (major.parse().ok()?, minor.parse().ok()?);
    Some(ClientVersion { major_version, minor_version })
}

fn client_of(
    endpoint: &Endpoint,
    version: &ClientVersion,
) -> Result<bollard::Docker, ContainerError> {
    let seconds = LONG.as_secs();
    let url = endpoint.url.as_str();
    let connected = match (url.split_once("://").map(|(scheme, _)| scheme), &endpoint.tls_dir) {
        (Some("unix"), _) => bollard::Docker::connect_with_unix(url, seconds, version),
        (Some("tcp" | "http"), None) => bollard::Docker::connect_with_http(url, seconds, version),
        (Some("tcp" | "https"), Some(dir)) => with_tls(url, dir, seconds, version),
        (Some("ssh"), _) => {
            let reason = "connections over ssh are not supported: forward the socket with \
                          `ssh -L` and name it in DOCKER_HOST";
            return Err(bad_endpoint(endpoint, &reason));
        }
        _ => return Err(bad_endpoint(endpoint, &"the address has no known scheme")),
    };
    connected.map_err(|error| match error {
        BollardError::SocketNotFoundError(_) => bad_endpoint(endpoint, &"there is no such socket"),
        error => bad_endpoint(endpoint, &with_causes(&error)),
    })
}

fn with_tls(
    url: &str,
    dir: &Path,
    seconds: u64,
    version: &ClientVersion,
) -> Result<bollard::Docker, BollardError> {
    let [ca, cert, key] = ["ca.pem", "cert.pem", "key.pem"].map(|name| dir.join(name));
    bollard::Docker::connect_with_ssl(url, &key, &cert, &ca, seconds, version)
}

/// TLS itself says that a certificate is refused, and not which.
fn of_certificates(endpoint: &Endpoint, reason: String) -> String {
    let Some(dir) = endpoint.tls_dir.as_deref() else { return reason };
    let file = |name: &str| nono_engine::path_text::Shown::path(&dir.join(name)).to_string();
    let is = |words: &str| reason.contains(words);
    if is("received fatal alert") && (is("Certificate") || is("UnknownCA")) {
        let cert = file("cert.pem");
        return format!(
            "it refuses the certificate {cert}, which is expired or of another authority ({reason})"
        );
    }
    if is("invalid peer certificate") {
        return format!(
            "its certificate is not one of the authority {} ({reason})",
            file("ca.pem")
        );
    }
    reason
}

fn bad_endpoint(endpoint: &Endpoint, reason: &dyn Display) -> ContainerError {
    ContainerError::BadEndpoint { endpoint: endpoint.url.clone(), reason: reason.to_string() }
}

/// The client's own words hide the cause: "connection refused" is two levels down.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
