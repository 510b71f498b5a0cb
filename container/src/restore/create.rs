//! The request that makes a container like the recorded one.

use std::collections::HashMap;

use bollard::models::{
    ContainerCreateBody, EndpointSettings, HostConfig, Mount, MountType, MountVolumeOptions,
    NetworkingConfig,
};

use super::NotStarted;
use super::plan::{ContainerPlan, PlannedVolume};
use super::replace::no_restart;
use crate::describe::clean_path;
use crate::{ContainerRecord, LABEL_RESTORED_FROM, MountKind, NetworkRecord};
use nono_engine::snapshot::RestorationMode;

/// Networks without aliases and addresses of one's own.
const PLAIN_NETWORKS: [&str; 5] = ["default", "bridge", "none", "host", ""];

/// The name of a network, and the part of the container in it.
type Connection = (String, EndpointSettings);

/// The request, and the networks that are connected before the start.
pub(super) struct Request {
    pub(super) body: ContainerCreateBody,
    pub(super) more_networks: Vec<Connection>,
}

/// Makes the request. `read_only` keeps what is read-only so; in a container that is only filled
/// everything is writable.
pub(super) fn request(record: &ContainerRecord, plan: &ContainerPlan, read_only: bool) -> Request {
    let config = record.config.clone();
    let mut host = HostConfig {
        port_bindings: Some(plan.port_bindings.clone()),
        volumes_from: None,
        ..record.host_config.clone()
    };
    if matches!(plan.not_started, Some(NotStarted::Shared { .. })) {
        // The engine itself would start the container one day.
        host.restart_policy = Some(no_restart());
    }
    if !read_only {
        host.readonly_rootfs = Some(false);
    }
    name_limits(&mut host);
    mount(record, plan, &mut host, read_only);
    let mode = host.network_mode.clone().unwrap_or_default();
    let mut labels = config.labels.unwrap_or_default();
    let origin = format!("{}/{}", plan.session_id, plan.snapshot);
    labels.insert(LABEL_RESTORED_FROM.to_owned(), origin);
    let (first, more_networks) = networks(record, plan.mode, &mode);
    // A container in another's network has neither a name nor ports of its own there.
    let is_guest = mode.starts_with("container:") || mode == "host";
    let had_own_name = config.hostname.as_deref() == record.container_id.get(..12);
    let body = ContainerCreateBody {
        hostname: config.hostname.filter(|_| !is_guest && !had_own_name),
        domainname: config.domainname,
        user: config.user,
        attach_stdin: config.attach_stdin,
        attach_stdout: config.attach_stdout,
        attach_stderr: config.attach_stderr,
        exposed_ports: config.exposed_ports.filter(|_| !mode.starts_with("container:")),
        tty: config.tty,
        open_stdin: config.open_stdin,
        stdin_once: config.stdin_once,
        env: config.env,
        cmd: config.cmd,
        healthcheck: config.healthcheck,
        args_escaped: config.args_escaped,
        image: Some(plan.image.clone()),
        // Volumes without a source are all planned: each has its mount.
        volumes: None,
        working_dir: config.working_dir,
        entrypoint: config.entrypoint,
        network_disabled: config.network_disabled,
        on_build: None,
        labels: Some(labels),
        stop_signal: config.stop_signal,
        stop_timeout: config.stop_timeout,
        shell: config.shell,
        host_config: Some(host),
        networking_config: first.map(|(name, endpoint)| NetworkingConfig {
            endpoints_config: Some(HashMap::from([(name, endpoint)])),
        }),
    };
    Request { body, more_networks }
}

/// Podman describes a limit as `RLIMIT_NOFILE`, and takes it as `nofile` alone, as Docker does.
fn name_limits(host: &mut HostConfig) {
    for limit in host.ulimits.iter_mut().flatten() {
        let name = limit.name.as_deref().and_then(|name| name.strip_prefix("RLIMIT_"));
        if let Some(name) = name.map(str::to_lowercase) {
            limit.name = Some(name);
        }
    }
}

/// Volumes become mounts of the planned ones; everything else stays as it was.
fn mount(record: &ContainerRecord, plan: &ContainerPlan, host: &mut HostConfig, read_only: bool) {
    let planned =
        |destination: &str| plan.volumes.iter().find(|volume| volume.destination == destination);
    let binds = host.binds.take().unwrap_or_default();
    let mut covered: Vec<String> = Vec::new();
    let mut kept = Vec::new();
    for bind in binds {
        let destination = clean_path(destination_of(&bind));
        if planned(&destination).is_none() {
            kept.push(bind);
            covered.push(destination);
        }
    }
    let mut mounts = Vec::new();
    for mount in host.mounts.take().unwrap_or_default() {
        let destination = clean_path(mount.target.as_deref().unwrap_or_default());
        if planned(&destination).is_none() {
            mounts.push(mount);
            covered.push(destination);
        }
    }
    mounts.extend(plan.volumes.iter().map(|volume| volume_mount(volume, read_only)));
    for mount in &record.mounts {
        let is_covered = covered.contains(&mount.destination);
        // Bind mounts of other containers (`--volumes-from`) stand in the record alone.
        if mount.kind == MountKind::Bind && !is_covered {
            let source = mount.source.as_deref().unwrap_or_default();
            let mode = if mount.read_only { ":ro" } else { "" };
            kept.push(format!("{source}:{}{mode}", mount.destination));
        }
    }
    host.binds = (!kept.is_empty()).then_some(kept);
    host.mounts = (!mounts.is_empty()).then_some(mounts);
}

fn volume_mount(volume: &PlannedVolume, read_only: bool) -> Mount {
    // The engine must not fill an empty volume with files of the image.
    let options = MountVolumeOptions { no_copy: Some(true), ..Default::default() };
    Mount {
        typ: Some(MountType::VOLUME),
        source: Some(volume.name.clone()),
        target: Some(volume.destination.clone()),
        read_only: Some(volume.is_read_only && read_only),
        volume_options: Some(options),
        ..Default::default()
    }
}

/// The destination of `SOURCE:DESTINATION[:MODE]`.
fn destination_of(bind: &str) -> &str {
    let mut parts = bind.split(':');
    let first = parts.next().unwrap_or_default();
    parts.next().unwrap_or(first)
}

/// The network at the creation, and the others.
fn networks(
    record: &ContainerRecord,
    mode: RestorationMode,
    main: &str,
) -> (Option<Connection>, Vec<Connection>) {
    let is_plain = |name: &str| PLAIN_NETWORKS.contains(&name) || name.starts_with("container:");
    let endpoint = |network: &NetworkRecord| {
        let is_replaced = mode == RestorationMode::Replace && !is_plain(&network.name);
        (network.name.clone(), endpoint(network, record, is_replaced))
    };
    let (first, more): (Vec<_>, Vec<_>) =
        record.networks.iter().partition(|network| network.name == main);
    let first = first.first().filter(|network| !is_plain(&network.name)).map(|n| endpoint(n));
    let more = more.into_iter().filter(|network| !is_plain(&network.name)).map(endpoint);
    (first, more.collect())
}

/// Aliases and static addresses lead traffic to a container, so only a replacement has them.
fn endpoint(
    network: &NetworkRecord,
    record: &ContainerRecord,
    is_replaced: bool,
) -> EndpointSettings {
    let old = &network.endpoint;
    let mut new = EndpointSettings {
        links: old.links.clone(),
        driver_opts: old.driver_opts.clone(),
        ..Default::default()
    };
    if is_replaced {
        new.ipam_config = old.ipam_config.clone();
        // The engine itself adds the beginning of the id.
        let short_id = record.container_id.get(..12);
        let given = |alias: &&String| Some(alias.as_str()) != short_id;
        let aliases = old.aliases.iter().flatten().filter(given);
        new.aliases = Some(aliases.cloned().collect());
    }
    new
}
