//! A container of Azure as a remote: `azurite`, in a process of its own, with everything in memory.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::Travel;
use crate::fixture::{Finished, finished};
use crate::not_run::not_run;

/// What every `azurite` takes.
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Makes a container. The request has to be signed.
const MAKE_CONTAINER: &str = r#"
import base64, email.utils, hashlib, hmac, http.client, sys
host, account, key, name = sys.argv[1:]
date = email.utils.formatdate(usegmt=True)
signed = ["PUT", *[""] * 11, f"x-ms-date:{date}", "x-ms-version:2021-08-06",
          f"/{account}/{account}/{name}", "restype:container"]
digest = hmac.new(base64.b64decode(key), "\n".join(signed).encode(), hashlib.sha256).digest()
server = http.client.HTTPConnection(host)
server.request("PUT", f"/{account}/{name}?restype=container", headers={
    "x-ms-date": date, "x-ms-version": "2021-08-06", "Content-Length": "0",
    "Authorization": f"SharedKey {account}:{base64.b64encode(digest).decode()}"})
answer = server.getresponse()
sys.exit(None if answer.status == 201 else f"{answer.status}: {answer.read()}")
"#;

struct AzureServer {
    process: Child,
    url: String,
}

impl AzureServer {
    /// Starts one with one container. `None`, and said so, where azurite is missing.
    fn start() -> Option<Self> {
        let Some(program) = program() else {
            not_run("azurite is missing (scripts/test installs it)");
            return None;
        };
        let mut process = Command::new(program)
            .args(["--blobPort", "0", "--inMemoryPersistence", "--silent", "--disableTelemetry"])
            .arg("--skipApiVersionCheck")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stdout.take().unwrap());
        let mut server = Self { process, url: String::new() };
        while server.url.is_empty() {
            let mut line = String::new();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "the server ended");
            if let Some((_, url)) = line.split_once("successfully listens on ") {
                server.url = url.trim().to_owned();
            }
        }
        let host = server.url.strip_prefix("http://").unwrap();
        let made = Command::new("python3")
            .args(["-c", MAKE_CONTAINER, host, ACCOUNT, KEY, "container"])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Some(server)
    }

    fn nono(&self, travel: &Travel, arguments: &[&str]) -> Finished {
        let mut command = travel.fixture.command(arguments);
        command
            .env("AZURE_STORAGE_USE_EMULATOR", "true")
            .env("AZURITE_BLOB_STORAGE_URL", &self.url);
        let done = finished(command.output().unwrap());
        assert!(!done.says(KEY), "{}{}", done.stdout, done.stderr);
        done
    }
}

impl Drop for AzureServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn program() -> Option<PathBuf> {
    let named = std::env::var_os("NONO_TEST_AZURE").map(PathBuf::from);
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-tools");
    let usual = tools.join("azurite/node_modules/.bin/azurite-blob");
    named.or(Some(usual)).filter(|program| program.exists())
}

#[test]
fn a_container_of_azure_takes_archives_and_gives_them_back() {
    let travel = Travel::with(3, 20, 1);
    let Some(server) = AzureServer::start() else { return };
    // An archive of several parts is copied to its name.
    travel.large();
    let nono = |arguments: &[&str]| server.nono(&travel, arguments);
    let add = ["remote", "add", "blue", "az://container/deep/x", "--recipient", &travel.recipient];
    nono(&add).success();
    let outcomes = || {
        let report = nono(&["push", "blue", &travel.session, "--json"]).success().json();
        let pushed = report["snapshots"].as_array().unwrap().iter();
        pushed.map(|one| one["outcome"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(outcomes(), ["stored"; 4]);
    assert_eq!(outcomes(), ["already_there"; 4]);
    assert_eq!(travel.notes_of_uploads(), 0);
    let identity = ["--identity", travel.identity()];
    nono(&[&["remote", "verify", "blue"], &identity[..]].concat()).success();
    let root = travel.fixture.path("store");
    let pull = ["--root", root.to_str().unwrap(), "pull", "blue", &travel.session];
    nono(&[&pull[..], &identity].concat()).success();
    assert_eq!(travel.roots(&root), travel.roots(&travel.fixture.store()));
    nono(&["remote", "cleanup", "blue", "--keep-sessions", "0", "--yes"]).success();
    assert_eq!(outcomes(), ["stored"; 4]);
    nono(&["push", "az://nowhere/x", &travel.session, "--plaintext"]).fails(1, "az://nowhere/x");
}

#[test]
fn two_pushers_to_azure_leave_one_archive_of_each_snapshot() {
    let travel = Travel::with(2, 20, 1);
    let Some(server) = AzureServer::start() else { return };
    travel.large();
    let push = ["push", "az://container/x", &travel.session, "--plaintext"];
    let pushers: Vec<_> = (0..2)
        .map(|_| {
            let mut command = travel.fixture.command(&push);
            command.env("AZURE_STORAGE_USE_EMULATOR", "true");
            command.env("AZURITE_BLOB_STORAGE_URL", &server.url);
            command.stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for pusher in pushers {
        finished(pusher.wait_with_output().unwrap()).success();
    }
    let show = ["remote", "show", "az://container/x", "--json"];
    let shown = server.nono(&travel, &show).success().json();
    assert_eq!(shown["archive_count"], 3, "{shown:#}");
    server.nono(&travel, &["remote", "verify", "az://container/x"]).success();
}
