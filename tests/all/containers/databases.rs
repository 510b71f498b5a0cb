//! A database that writes while its container is captured comes back whole, with every transaction
//! that it had acknowledged.
//!
//! The writer acknowledges outside of the volume, in a directory of this machine, after the commit.
//! When the engine is asked for the image, the container stands still: what is acknowledged then is
//! what the snapshot has to hold.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tempfile::TempDir;

use super::daemon::{Container, Daemon, daemon};
use super::proxy::{At, Proxy};
use crate::fixture::{Fixture, finished};
use crate::not_run::not_run;

const IMAGE: &str = "nono-test/sqlite:1";

/// Commits small transactions one by one; after each it writes its number outside of the volume.
const ACKNOWLEDGING: &str = r#"
i=0
{
    echo ".timeout 60000"
    while :; do
        i=$((i + 1))
        echo "BEGIN IMMEDIATE;"
        echo "INSERT INTO entry VALUES ($i, randomblob(2000));"
        echo "UPDATE total SET count = count + 1;"
        echo "COMMIT;"
        echo ".system echo $i >>/acknowledged/log"
    done
} | sqlite3 -bail /data/db
"#;

/// Rewrites a table beside it, so that the log of the database is long and often copied back.
const LOAD: &str = r#"
{
    echo ".timeout 60000"
    while :; do
        echo "INSERT INTO load SELECT randomblob(1000) FROM generate_series(1, 100);"
        echo "DELETE FROM load WHERE rowid < (SELECT max(rowid) - 2000 FROM load);"
    done
} | sqlite3 -bail /data/db
"#;

const TABLES: &str = "PRAGMA journal_mode = WAL; \
    CREATE TABLE entry (id INTEGER PRIMARY KEY, body BLOB); CREATE INDEX by_body ON entry (body); \
    CREATE TABLE total (count INTEGER); INSERT INTO total VALUES (0); \
    CREATE TABLE load (body BLOB);";

/// Makes the image: busybox, and the `sqlite3` of this machine with its libraries. `false`, and
/// said so, where there is none.
fn import(daemon: &Daemon) -> bool {
    let Ok(libraries) = Command::new("sh").args(["-c", "ldd $(command -v sqlite3)"]).output()
    else {
        return false;
    };
    if !libraries.status.success() {
        not_run("there is no sqlite3");
        return false;
    }
    let root = TempDir::new().unwrap();
    let place = |from: &Path, to: &Path| {
        let to = root.path().join(to.strip_prefix("/").unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(from, to).unwrap();
    };
    place(Path::new("/bin/busybox"), Path::new("/bin/busybox"));
    for applet in ["sh", "echo", "sleep", "cat"] {
        let link = root.path().join("bin").join(applet);
        std::os::unix::fs::symlink("busybox", link).unwrap();
    }
    let program = Command::new("sh").args(["-c", "command -v sqlite3"]).output().unwrap();
    let program = String::from_utf8(program.stdout).unwrap();
    place(Path::new(program.trim_end()), Path::new("/bin/sqlite3"));
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    libraries.for_each(|library| place(Path::new(library), Path::new(library)));
    daemon.import(root.path(), IMAGE);
    true
}

/// The number of the last acknowledged transaction.
fn acknowledged(place: &Path) -> u64 {
    let log = fs::read_to_string(place.join("log")).unwrap_or_default();
    log.lines().last().map_or(0, |line| line.parse().unwrap())
}

#[track_caller]
fn ask(database: &Path, question: &str) -> String {
    let done = finished(Command::new("sqlite3").arg(database).arg(question).output().unwrap());
    done.success().stdout.trim_end().to_owned()
}

#[test]
fn a_database_under_load_comes_back_with_every_acknowledged_transaction() {
    let Some(daemon) = daemon() else { return };
    if !import(daemon) {
        return;
    }
    for source in [&[][..], &["--through-engine"][..]] {
        under_load(daemon, source);
    }
}

fn under_load(daemon: &'static Daemon, source: &[&str]) {
    let fixture = Fixture::in_memory();
    let outside = TempDir::new().unwrap();
    let volume = daemon.unique("database");
    let mount = format!("{volume}:/data");
    let bound = format!("{}:/acknowledged", outside.path().display());
    let options = ["-v", &mount, "-v", &bound, "--stop-signal", "KILL"];
    let script = format!("sqlite3 /data/db '{TABLES}'\n({LOAD}) &\n({ACKNOWLEDGING}) &\nwait");
    let container =
        Container::run_image(daemon, IMAGE, "database", &options, &["sh", "-c", &script]);
    for _ in 0..2 {
        let before = acknowledged(outside.path());
        daemon.until("the writer works", || acknowledged(outside.path()) > before + 50);
        let (seen, place) = (Arc::new(Mutex::new(0)), outside.path().to_owned());
        let noted = Arc::clone(&seen);
        let note = At::Do(Box::new(move || *noted.lock().unwrap() = acknowledged(&place)));
        let proxy = Proxy::start(&daemon.socket(), "/commit", note);
        let arguments =
            [&["container", "snapshot", &container.name, "--json"][..], source].concat();
        let taken = finished(proxy.lead(fixture.command(&arguments)).output().unwrap());
        let taken = taken.success().json();
        let acknowledged_before = *seen.lock().unwrap();
        assert!(acknowledged_before > before + 50);
        holds(daemon, &fixture, &taken, acknowledged_before);
    }
}

/// The volume of a snapshot, restored, is a sound database with these transactions.
fn holds(daemon: &Daemon, fixture: &Fixture, taken: &Value, acknowledged: u64) {
    let id = format!("{}/{}", taken["session_id"].as_str().unwrap(), taken["snapshot"]);
    let arguments = ["container", "restore", &id, "--no-start", "--json"];
    let report = daemon.nono(fixture, &arguments).success().json();
    let volumes = report["volumes"].as_array().unwrap();
    let restored = daemon.volume_dir(volumes[0]["name"].as_str().unwrap());
    let log = fs::metadata(restored.join("db-wal")).unwrap();
    assert!(log.len() > 0, "the database had nothing in its log: the test shows nothing");
    let database = restored.join("db");
    assert_eq!(ask(&database, "PRAGMA integrity_check"), "ok");
    let kept = format!("SELECT count(*) FROM entry WHERE id <= {acknowledged}");
    assert_eq!(ask(&database, &kept), acknowledged.to_string());
    // A transaction is there as a whole.
    let differs = "SELECT (SELECT max(id) FROM entry) - (SELECT count FROM total)";
    assert_eq!(ask(&database, differs), "0");
    daemon.run(&["rm", "-v", report["container_id"].as_str().unwrap()]);
}
