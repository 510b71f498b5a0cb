//! The proof that a replacement works: its health check, a command in it, or that it goes on.

use std::time::{Duration, Instant};

use bollard::exec::{StartExecOptions, StartExecResults};
use bollard::models::{ContainerInspectResponse, ExecConfig, HealthStatusEnum};
use futures_util::{StreamExt, stream};
use serde::Serialize;

use super::{LOOK_EVERY, RestoreError};
use crate::{Docker, Patience};
use nono_engine::progress::Progress;

/// The engine's own values where a health check does not say.
const DEFAULT_NS: i64 = 30_000_000_000;
const DEFAULT_RETRIES: i64 = 3;
/// More time than the check needs: a busy engine is no unhealthy container.
const MARGIN: Duration = Duration::from_secs(30);

/// A try of a command may take at least so long: a busy engine needs time to start it.
const LEAST_TRY: Duration = Duration::from_secs(5);

/// The wanted proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    /// The time that a container without a check has to run, and in which a command has to succeed.
    pub time: Duration,
    /// A shell command in the container, in the place of its own health check.
    pub command: Option<String>,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self { time: Duration::from_secs(5), command: None }
    }
}

/// The outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Health {
    /// Whether the container works.
    pub is_healthy: bool,
    /// The proof, in words: `its health check`.
    pub check: String,
    /// The finding, in words.
    pub finding: String,
}

/// Waits until a started container has proved that it works, or that it does not. `restarts`: how
/// often the engine had restarted it before.
pub(super) fn wait(
    docker: &Docker,
    id: &str,
    check: &HealthCheck,
    restarts: i64,
    progress: &dyn Progress,
) -> Result<Health, RestoreError> {
    let started = Instant::now();
    let found = docker.inspect(id)?;
    let own_limit = own_check_limit(&found).filter(|_| check.command.is_none());
    let what = match (&check.command, own_limit) {
        (Some(command), _) => format!("the command {command}"),
        (None, Some(_)) => "its health check".to_owned(),
        (None, None) => format!("running for {} s", check.time.as_secs()),
    };
    let health =
        |is_healthy, finding: String| Ok(Health { is_healthy, check: what.clone(), finding });
    let limit = own_limit.unwrap_or(check.time);
    loop {
        if progress.is_cancelled() {
            return Err(RestoreError::Cancelled);
        }
        let found = docker.inspect(id)?;
        if let Some(finding) = ended(&found, restarts) {
            return health(false, finding);
        }
        let is_over = || started.elapsed() >= limit;
        if let Some(command) = &check.command {
            let left = limit.saturating_sub(started.elapsed());
            match run(docker, id, command, left.max(LEAST_TRY))? {
                Some(0) => return health(true, "the command succeeded".to_owned()),
                code if is_over() => {
                    let code = code.map_or("nothing in time".to_owned(), |code| code.to_string());
                    return health(false, format!("the command ended with {code}"));
                }
                _ => {}
            }
        } else if own_limit.is_some() {
            let state = found.state.as_ref().and_then(|state| state.health.as_ref());
            match state.and_then(|health| health.status) {
                Some(HealthStatusEnum::HEALTHY) => return health(true, "healthy".to_owned()),
                Some(HealthStatusEnum::UNHEALTHY) => {
                    let last = state.and_then(|health| health.log.as_ref()?.last()?.output.clone());
                    let words = last.unwrap_or_default();
                    return health(false, format!("unhealthy: {}", words.trim()));
                }
                _ if is_over() => {
                    return health(false, "no answer of the check in time".to_owned());
                }
                _ => {}
            }
        } else if is_over() {
            return health(true, "it runs".to_owned());
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// How a container ended that should run.
fn ended(found: &ContainerInspectResponse, restarts: i64) -> Option<String> {
    let state = found.state.as_ref()?;
    if found.restart_count.unwrap_or(0) > restarts {
        return Some(format!("it ended with {} and was restarted", state.exit_code.unwrap_or(0)));
    }
    let is_running = state.running.unwrap_or(false) && !state.restarting.unwrap_or(false);
    let error = state.error.as_deref().filter(|error| !error.is_empty());
    (!is_running).then(|| match error {
        Some(error) => format!("it does not run: {error}"),
        None => format!("it ended with {}", state.exit_code.unwrap_or(0)),
    })
}

/// The longest time in which the container's own check comes to a result.
fn own_check_limit(found: &ContainerInspectResponse) -> Option<Duration> {
    // With the test `NONE` the engine knows no health.
    found.state.as_ref()?.health.as_ref()?;
    let check = found.config.as_ref()?.healthcheck.as_ref()?;
    let or = |value: Option<i64>, usual| value.filter(|value| *value > 0).unwrap_or(usual);
    let each = or(check.interval, DEFAULT_NS).saturating_add(or(check.timeout, DEFAULT_NS));
    let all = each.saturating_mul(or(check.retries, DEFAULT_RETRIES).saturating_add(1));
    let all = all.saturating_add(check.start_period.unwrap_or(0).max(0));
    Some(Duration::from_nanos(u64::try_from(all).unwrap_or(0)).saturating_add(MARGIN))
}

/// Runs a shell command in a container; its exit code, if it ended in time.
fn run(
    docker: &Docker,
    id: &str,
    command: &str,
    limit: Duration,
) -> Result<Option<i64>, RestoreError> {
    let started = Instant::now();
    let cmd = ["/bin/sh", "-c", command].map(str::to_owned).to_vec();
    let attached = Some(true);
    let config = ExecConfig {
        cmd: Some(cmd),
        attach_stdout: attached,
        attach_stderr: attached,
        ..Default::default()
    };
    let request = docker.client().create_exec(id, config);
    let operation = format_args!("run the health command in container {id}");
    let made = match docker.call(operation, Patience::Quick, request) {
        // The container ended meanwhile; the next look tells.
        Err(error) if error.is_conflict() || error.is_not_found() => return Ok(None),
        answer => answer?,
    };
    // Podman notes the end of a command minutes later, unless a client is attached to it.
    let request = docker.client().start_exec(&made.id, None::<StartExecOptions>);
    let mut output = match docker.call(operation, Patience::Quick, request) {
        Err(error) if error.is_conflict() || error.is_not_found() => return Ok(None),
        answer => match answer? {
            StartExecResults::Attached { output, .. } => output,
            StartExecResults::Detached => Box::pin(stream::empty()),
        },
    };
    let mut is_open = true;
    loop {
        let request = docker.client().inspect_exec(&made.id);
        let found = docker.call(operation, Patience::Quick, request)?;
        if found.running != Some(true) {
            return Ok(found.exit_code);
        }
        if started.elapsed() >= limit {
            return Ok(None);
        }
        if is_open {
            // A child in the background may keep the output open after the end.
            let drain = async { while output.next().await.is_some() {} };
            let limited = async { tokio::time::timeout(LOOK_EVERY / 4, drain).await };
            is_open = docker.wait(&operation, limited)?.is_err();
        } else {
            std::thread::sleep(LOOK_EVERY / 4);
        }
    }
}
