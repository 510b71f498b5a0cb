//! `nono container restore`: a container with the state of a snapshot.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use crate::cli::Outcome;
use crate::cli::context::{BOLD, Context};
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use nono_container::restore::{
    Extent, HealthCheck, Job, NotStarted, RestoreError, RestoreOptions, RestoreReport, Safety,
    SharedMount, Way, plan, restore,
};
use nono_container::{
    ContainerHistory, ContainerState, Docker, LocalStorage, SnapshotOptions, Trigger, Watcher,
    take_locked,
};
use nono_engine::path_text::Shown;
use nono_engine::snapshot::RestorationMode;

/// Arguments of `nono container restore`.
#[derive(Debug, Args)]
pub(in crate::cli) struct RestoreArgs {
    /// Id of a snapshot, or a container's name, which means its latest one
    #[arg(value_name = "ID[/N]")]
    id: String,
    /// Name of the new container [default: the old one with the time]
    #[arg(long, value_name = "NEW", conflicts_with_all = ["replace", "volumes_only"])]
    name: Option<String>,
    /// Put the new container in the place of the original, which is stopped and kept
    #[arg(long, conflicts_with_all = ["no_start", "volumes_only"])]
    replace: bool,
    /// Do not start the new container
    #[arg(long)]
    no_start: bool,
    /// Start the new container beside others that are at work in its bind mounts
    #[arg(long, conflicts_with_all = ["no_start", "replace", "volumes_only"])]
    share_mounts: bool,
    /// Bring back only these volumes of the stopped original, in their place
    #[arg(long, value_name = "NAME", num_args = 1.., conflicts_with = "no_start")]
    volumes_only: Vec<String>,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Time in which a replacement has to prove that it works, in seconds
    #[arg(long, value_name = "N", default_value_t = 5, requires = "replace")]
    health_seconds: u64,
    /// Shell command in the container that proves it, in the place of its health check
    #[arg(long, value_name = "CMD", requires = "replace")]
    health_cmd: Option<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

impl RestoreArgs {
    fn options(&self) -> RestoreOptions {
        let way = match (self.replace, self.volumes_only.is_empty()) {
            (true, _) => Way::Replace,
            (_, false) => Way::VolumesOnly(self.volumes_only.clone()),
            _ => Way::New,
        };
        let time = Duration::from_secs(self.health_seconds);
        RestoreOptions {
            way,
            name: self.name.clone(),
            start: !self.no_start,
            share_mounts: self.share_mounts,
            health: HealthCheck { time, command: self.health_cmd.clone() },
        }
    }
}

pub(in crate::cli) fn run(
    args: &RestoreArgs,
    storage: &LocalStorage,
    context: &Context,
) -> Outcome {
    let picked = ContainerHistory::find(storage, &args.id)?;
    let docker = Docker::connect()?;
    let options = args.options();
    let bar = Bar::new(context, "restoring");
    let job =
        Job { docker: &docker, history: &picked.history, number: picked.number, progress: &*bar };
    let message = format!("before the restore of {}", args.id);
    let safety = safety_snapshot(&docker, storage, message, bar.clone());
    let report = if args.dry_run {
        plan(job, &options).map(RestoreReport::dry_run)
    } else {
        restore(job, &options, &safety)
    };
    bar.finish();
    let report = report?;
    if args.json {
        context.json(&report)?;
    } else {
        print(&report, context)?;
    }
    Ok(u8::from(!report.is_complete()))
}

/// Takes snapshots of stopped containers before something of them goes.
pub(super) fn safety_snapshot<'a>(
    docker: &'a Docker,
    storage: &'a LocalStorage,
    message: String,
    bar: Arc<Bar>,
) -> impl Fn(&str, Extent) -> Result<Safety, RestoreError> + 'a {
    move |container, extent| {
        let options = SnapshotOptions {
            message: Some(message.clone()),
            trigger: Trigger::BeforeRestore,
            run_id: None,
            pauses: false,
            takes_image: extent == Extent::Whole,
            takes_files: extent == Extent::Whole,
            volume_source: None,
            // Only a paused container is watched.
            watcher: Watcher { program: PathBuf::new(), arguments: Vec::new() },
            threads: 0,
        };
        let taken = take_locked(docker, storage, container, &options, bar.clone())?;
        Ok(Safety { session_id: taken.session_id, number: taken.snapshot })
    }
}

fn shown(text: &str) -> Shown<'_> {
    Shown::bytes(text.as_bytes())
}

/// Says why a new container is not started, and the commands that go on.
pub(super) fn tell_not_started(
    not_started: &NotStarted,
    name: &str,
    is_dry_run: bool,
    context: &Context,
) {
    let verb = if is_dry_run { "would not be started" } else { "is not started" };
    let name = shown(name);
    match not_started {
        NotStarted::Unwanted => {}
        NotStarted::Idle { state } => {
            let state = if *state == ContainerState::Created { "created" } else { "stopped" };
            context.say(format_args!(
                "{name} {verb}: the recorded container was {state} (`docker start {name}` starts \
                 it)"
            ));
        }
        NotStarted::Shared { mounts } => {
            for SharedMount { destination, source, containers } in mounts {
                let (destination, source) = (shown(destination), shown(source));
                let containers = containers.join(", ");
                context.warn(format_args!(
                    "{name} {verb}: {destination} is {source}, where {} is at work",
                    shown(&containers)
                ));
            }
            context.say(
                "to go on, restore with --share-mounts, which starts it all the same, or with \
                 --replace",
            );
            if !is_dry_run {
                context.say(format_args!("the restart policy of {name} is `no`"));
            }
        }
    }
}

fn print(report: &RestoreReport, context: &Context) -> std::io::Result<()> {
    let plan = &report.plan;
    let mut out = context.out_done(report.dry_run);
    let (name, snapshot) = (shown(&plan.name), format!("{}/{}", plan.session_id, plan.snapshot));
    let would = if report.dry_run { "would be " } else { "" };
    for volume in &plan.volumes {
        let (new, place) = (shown(&volume.name), shown(&volume.destination));
        match (&volume.tree, volume.is_new) {
            (Some(_), true) => writeln!(out, "volume {new} at {place}: {would}filled and checked")?,
            (Some(_), false) => writeln!(out, "volume {new}: {would}brought back and checked")?,
            (None, true) => writeln!(out, "volume {new} at {place}: {would}empty")?,
            (None, false) => writeln!(out, "volume {new} at {place}: as it is")?,
        }
    }
    for port in plan.ports.iter().filter(|port| port.is_random) {
        context.say(format_args!(
            "port {} of the machine is taken, so {} is published at a random one",
            port.wanted, port.port
        ));
    }
    for (port, place) in &report.published {
        writeln!(out, "port {port} at {place}")?;
    }
    for warning in &plan.warnings {
        context.warn(shown(warning));
    }
    for entry in &report.not_made {
        context.warn(format_args!("{}: this user cannot make sockets and devices", shown(entry)));
    }
    if let Some(number) = report.safety_snapshot {
        context.say(format_args!("the volumes before are in {}/{number}", plan.session_id));
    }
    if let Some(health) = &report.health {
        let (check, finding) = (shown(&health.check), shown(&health.finding));
        if !health.is_healthy {
            context.fall_short(format_args!(
                "the new container is not healthy ({check}): {finding}; {name} is again what it \
                 was"
            ));
            return out.flush();
        }
        context.say(format_args!("healthy ({check}): {finding}"));
    }
    if let Some(kept) = &report.kept_as {
        context.say(format_args!(
            "the original is stopped, and kept as {}; `{NONO} container cleanup` records and \
             removes it when it is older than max_age_days",
            shown(kept)
        ));
    }
    if let Some(not_started) = &plan.not_started {
        tell_not_started(not_started, &plan.name, report.dry_run, context);
    }
    let done = match (report.dry_run, plan.mode) {
        (true, RestorationMode::New) => "would be made from",
        (true, RestorationMode::Replace) => "would be replaced by",
        (true, RestorationMode::VolumesOnly) => "would get volumes of",
        (false, RestorationMode::New) if report.is_started => "made and started from",
        (false, RestorationMode::New) => "made from",
        (false, RestorationMode::Replace) => "replaced by",
        (false, RestorationMode::VolumesOnly) => "has volumes of",
    };
    writeln!(out, "{BOLD}{name}{BOLD:#} {done} {snapshot}")?;
    out.flush()
}
