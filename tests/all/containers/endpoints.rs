//! The place of the engine: Docker's contexts, and engines that speak TLS.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::daemon::{Container, Daemon, daemon};
use super::engine::Ability;
use crate::fixture::{Finished, Fixture, finished};

/// The program with these variables of Docker and no other.
fn nono(fixture: &Fixture, arguments: &[&str], variables: &[(&str, &str)]) -> Finished {
    let mut command = fixture.command(arguments);
    for name in ["HOST", "CONTEXT", "CONFIG", "CERT_PATH", "TLS_VERIFY"] {
        command.env_remove(format!("DOCKER_{name}"));
    }
    finished(command.envs(variables.iter().copied()).output().unwrap())
}

/// Docker's own program with a configuration of its own.
#[track_caller]
fn docker(config: &Path, arguments: &[&str]) {
    let mut command = Command::new("docker");
    command.arg("--config").arg(config).args(arguments).env_remove("DOCKER_HOST");
    finished(command.env_remove("DOCKER_CONTEXT").output().unwrap()).success();
}

#[test]
fn the_engine_of_a_docker_context_is_used_as_docker_uses_it() {
    let Some(daemon) = daemon() else { return };
    let fixture = Fixture::new();
    let container = Container::run(daemon, "context", &[]);
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join(".docker");
    let near = format!("host={}", daemon.host());
    docker(&config, &["context", "create", "near", "--docker", &near]);
    let far = "host=unix:///nowhere/docker.sock";
    docker(&config, &["context", "create", "far", "--docker", far]);
    docker(&config, &["context", "use", "near"]);
    let arguments = ["container", "snapshot", &container.name, "--no-image"];
    let (config, home) = (config.to_str().unwrap(), place.path().to_str().unwrap());
    let with = |more: &[(&str, &str)]| {
        let variables = [&[("DOCKER_CONFIG", config)][..], more].concat();
        nono(&fixture, &arguments, &variables)
    };
    // The current one, by DOCKER_CONFIG or below the home.
    with(&[]).success();
    let root = fixture.store();
    let of_home = [("HOME", home), ("NONO_ROOT", root.to_str().unwrap())];
    nono(&fixture, &arguments, &of_home).success();
    // DOCKER_CONTEXT is stronger, and DOCKER_HOST the strongest.
    let far = [("DOCKER_CONTEXT", "far")];
    with(&far).fails(1, "unix:///nowhere/docker.sock");
    with(&[far[0], ("DOCKER_HOST", &daemon.host())]).success();
    // Never another engine in the place of one that was named.
    let unknown = with(&[("DOCKER_CONTEXT", "unknown")]).fails(1, "there is no such context");
    assert!(unknown.says("unknown"), "{}", unknown.stderr);
    docker(Path::new(config), &["context", "use", "far"]);
    with(&[]).fails(1, "unix:///nowhere/docker.sock");
    with(&[("DOCKER_CONTEXT", "near")]).success();
    // `default` is the usual place, whatever the configuration says.
    with(&[("DOCKER_CONTEXT", "default"), ("DOCKER_HOST", &daemon.host())]).success();
    fs::write(Path::new(config).join("config.json"), "{").unwrap();
    with(&[]).fails(1, "config.json");
}

/// Keys and certificates, made by `openssl`.
struct Authority {
    dir: PathBuf,
}

impl Authority {
    /// In a directory that is there.
    fn new(dir: &Path) -> Self {
        let authority = Self { dir: dir.to_owned() };
        authority.openssl(
            "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca-key.pem \
             -out ca.pem",
        );
        authority
    }

    #[track_caller]
    fn openssl(&self, arguments: &str) {
        let mut command = Command::new("openssl");
        command.args(arguments.split_whitespace()).current_dir(&self.dir);
        finished(command.output().unwrap()).success();
    }

    /// A directory with a key, its certificate and the authority, as `DOCKER_CERT_PATH` has it.
    fn issue(&self, name: &str, extensions: &str, days: i32) -> PathBuf {
        let dir = self.dir.join(name);
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("extensions"), extensions).unwrap();
        self.openssl(&format!(
            "req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}/key.pem -out {name}/csr"
        ));
        self.openssl(&format!(
            "x509 -req -in {name}/csr -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days {days} \
             -extfile {name}/extensions -out {name}/cert.pem"
        ));
        fs::copy(self.dir.join("ca.pem"), dir.join("ca.pem")).unwrap();
        dir
    }
}

const CLIENT: &str = "extendedKeyUsage=clientAuth";
const SERVER: &str = "extendedKeyUsage=serverAuth\nsubjectAltName=IP:127.0.0.1";

#[test]
fn an_engine_behind_tls_is_used_and_each_wrong_certificate_is_named() {
    if daemon().is_none_or(|daemon| !daemon.engine().has_or_notes(Ability::Tls)) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let [ours, theirs] = ["ours", "theirs"].map(|name| {
        let dir = place.path().join(name);
        fs::create_dir(&dir).unwrap();
        Authority::new(&dir)
    });
    let server = ours.issue("server", SERVER, 2);
    let client = ours.issue("client", CLIENT, 2);
    let expired = ours.issue("expired", CLIENT, -1);
    let foreign = theirs.issue("client", CLIENT, 2);
    // Their certificate with our authority: the engine refuses, and not nono.
    fs::copy(ours.dir.join("ca.pem"), foreign.join("ca.pem")).unwrap();
    let misled = ours.issue("misled", CLIENT, 2);
    fs::copy(theirs.dir.join("ca.pem"), misled.join("ca.pem")).unwrap();
    let incomplete = ours.issue("incomplete", CLIENT, 2);
    fs::remove_file(incomplete.join("cert.pem")).unwrap();

    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let host = format!("tcp://127.0.0.1:{port}");
    let file = |dir: &Path, name: &str| dir.join(name).to_str().unwrap().to_owned();
    let (ca, cert, key) =
        (file(&server, "ca.pem"), file(&server, "cert.pem"), file(&server, "key.pem"));
    let options =
        ["-H", &host, "--tlsverify", "--tlscacert", &ca, "--tlscert", &cert, "--tlskey", &key];
    let Some(own) = Daemon::start_with(&options) else { return };
    let own: &'static Daemon = Box::leak(Box::new(own));
    let container = Container::run(own, "tls", &["-v", "/data"]);
    container.sh("echo far >/data/file");
    let fixture = Fixture::new();
    let snapshot = ["container", "snapshot", &container.name, "--json"];
    let with = |dir: &Path| {
        let path = dir.to_str().unwrap();
        let tls = [("DOCKER_TLS_VERIFY", "1"), ("DOCKER_CERT_PATH", path), ("DOCKER_HOST", &*host)];
        nono(&fixture, &snapshot, &tls)
    };
    let taken = with(&client).success().json();
    assert_eq!(taken["volume_source"], "archive", "no directory of another machine is read");
    assert_eq!(own.state(&container.name).as_deref(), Some("running"));
    // The same by a context of Docker, which keeps a copy of the certificates.
    let config = place.path().join("config");
    let endpoint = format!(
        "host={host},ca={},cert={},key={}",
        file(&client, "ca.pem"),
        file(&client, "cert.pem"),
        file(&client, "key.pem")
    );
    docker(&config, &["context", "create", "far", "--docker", &endpoint]);
    let by_context = [("DOCKER_CONFIG", config.to_str().unwrap()), ("DOCKER_CONTEXT", "far")];
    nono(&fixture, &snapshot, &by_context).success();
    for (dir, words) in [
        (&expired, "expired/cert.pem, which is expired or of another authority"),
        (&foreign, "theirs/client/cert.pem, which is expired or of another authority"),
        (&misled, "its certificate is not one of the authority"),
        (&incomplete, "cert.pem"),
        (&place.path().join("missing"), "missing/ca.pem"),
    ] {
        let failed = with(dir).fails(1, words);
        assert!(failed.says(&host), "{}: {}", dir.display(), failed.stderr);
    }
    // Without TLS the engine says what is wrong.
    let plain = nono(&fixture, &snapshot, &[("DOCKER_HOST", &*host)]);
    plain.fails(1, "HTTPS");
    assert_eq!(own.state(&container.name).as_deref(), Some("running"));
    drop(container);
    own.end();
}
