//! The engine of the tests: Docker, or Podman where `NONO_TEST_ENGINE=podman` asks for it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::not_run::note;

/// A capability that a test needs, and Podman may lack. `docs/containers.md` says why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ability {
    /// It runs the health checks of containers. Podman leaves them to timers of systemd.
    HealthChecks,
    /// It changes the restart policy of a container.
    PolicyChanges,
    /// It has a state `restarting`.
    RestartingState,
    /// It describes the static address that a container was made with.
    ToldAddresses,
    /// Its tar streams have the owners of files, and the times as they are, cut to seconds.
    WholeStreams,
    /// Its service can be reached over TLS.
    Tls,
    /// It shows volumes with options of their own while their containers are stopped.
    MountsToLook,
}

/// The engine behind the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    Docker,
    Podman,
}

impl Engine {
    /// The engine that the caller of the tests chose.
    pub fn chosen() -> Self {
        match std::env::var("NONO_TEST_ENGINE").as_deref() {
            Err(_) | Ok("" | "docker") => Self::Docker,
            Ok("podman") => Self::Podman,
            Ok(other) => panic!("NONO_TEST_ENGINE={other}: there are docker and podman"),
        }
    }

    /// The program that serves the socket.
    pub fn program(self) -> &'static str {
        match self {
            Self::Docker => "dockerd",
            Self::Podman => "podman",
        }
    }

    /// The command that serves the socket `docker.sock` in a directory; its data lie in `data`.
    pub fn command(self, dir: &Path) -> Vec<String> {
        let dir = dir.display();
        let words = match self {
            Self::Docker => format!(
                "dockerd --data-root {dir}/data --exec-root {dir}/exec \
                 -H unix://{dir}/docker.sock --pidfile {dir}/pid --iptables=false --bridge=none"
            ),
            Self::Podman => format!(
                "podman --root {dir}/data --runroot {dir}/exec/run --tmpdir {dir}/exec/tmp \
                 system service --time=0 unix://{dir}/docker.sock"
            ),
        };
        words.split(' ').map(str::to_owned).collect()
    }

    /// Options with which containers live on without the engine.
    pub fn live_restore(self) -> &'static [&'static str] {
        match self {
            Self::Docker => &["--live-restore"],
            // They always do.
            Self::Podman => &[],
        }
    }

    /// Seconds in which it answers any quick request, also on a busy machine. Podman starts other
    /// programs to tell its version.
    pub fn answers_within_seconds(self) -> u64 {
        match self {
            Self::Docker => 2,
            Self::Podman => 8,
        }
    }

    /// Whether it has the ability. Docker has them all.
    pub fn has(self, ability: Ability) -> bool {
        match ability {
            _ if self == Self::Docker => true,
            Ability::HealthChecks => Path::new("/run/systemd/system").exists(),
            _ => false,
        }
    }

    /// Options of a container that is going to be replaced: with a restart policy, where the engine
    /// can take that from the original.
    pub fn policy(self, name: &'static str) -> Vec<&'static str> {
        if self.has(Ability::PolicyChanges) { vec!["--restart", name] } else { Vec::new() }
    }

    /// The same as [`has`](Self::has). A test that stops at a `false` is noted, by its name, as one
    /// that did not run.
    pub fn has_or_notes(self, ability: Ability) -> bool {
        let has = self.has(ability);
        if !has {
            note(&format_args!("{self:?} has no {ability:?} here"));
        }
        has
    }

    /// Variables of the command. Podman reads files that they name; they are written here.
    pub fn settings(self, dir: &Path) -> Vec<(&'static str, PathBuf)> {
        if self == Self::Docker {
            return Vec::new();
        }
        let shown = dir.display();
        // Limits that every test machine grants.
        let containers = format!(
            "[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\n\
             [containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=4096:4096\"]\n\
             [network]\nnetwork_config_dir = \"{shown}/exec/networks\"\n"
        );
        let storage = format!(
            "[storage]\ndriver = \"overlay\"\ngraphroot = \"{shown}/data\"\n\
             runroot = \"{shown}/exec/run\"\n"
        );
        let write = |name: &str, text: String| {
            let path = dir.join(name);
            fs::write(&path, text).unwrap();
            path
        };
        vec![
            ("CONTAINERS_CONF", write("containers.conf", containers)),
            ("CONTAINERS_STORAGE_CONF", write("storage.conf", storage)),
        ]
    }
}
