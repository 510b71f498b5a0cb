//! A container of Azure as a remote: `azurite`, in a process of its own, with everything in memory.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::provider::Provider;
use crate::not_run::not_run;

/// The account of every `azurite`.
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

/// Starts one with one container. `None`, and said so, where azurite is missing.
fn start() -> Option<Provider> {
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
    let (secret, scheme, bucket) = (KEY, "az", "container");
    // From here on, it ends with the test.
    let mut server = Provider { process, environment: Vec::new(), secret, scheme, bucket };
    let url = loop {
        let mut line = String::new();
        assert_ne!(log.read_line(&mut line).unwrap(), 0, "the server ended");
        if let Some((_, url)) = line.split_once("successfully listens on ") {
            break url.trim().to_owned();
        }
    };
    let host = url.strip_prefix("http://").unwrap();
    let made = Command::new("python3")
        .args(["-c", MAKE_CONTAINER, host, ACCOUNT, KEY, bucket])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    server.environment = vec![
        ("AZURE_STORAGE_USE_EMULATOR", "true".into()),
        ("AZURITE_BLOB_STORAGE_URL", url.into()),
    ];
    Some(server)
}

fn program() -> Option<PathBuf> {
    let named = std::env::var_os("NONO_TEST_AZURE").map(PathBuf::from);
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-tools");
    let usual = tools.join("azurite/node_modules/.bin/azurite-blob");
    named.or(Some(usual)).filter(|program| program.exists())
}

#[test]
fn a_container_of_azure_takes_archives_and_gives_them_back() {
    let Some(server) = start() else { return };
    server.gives_archives_back();
}

#[test]
fn two_pushers_to_azure_leave_one_archive_of_each_snapshot() {
    let Some(server) = start() else { return };
    server.keeps_one_archive_of_two_pushers();
}
