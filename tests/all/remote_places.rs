//! Places where archives lie: objects appear complete under names that are free, in a directory and
//! at an S3 server.

use std::fs;
use std::io::{Read, Write};
use std::process::Command;

use nono_archive::remote::{Address, Place, RemoteError};
use nono_engine::progress::NoProgress;

use crate::object_server::{KEY_ID, ObjectServer, SECRET};

/// The address for the test that the process with credentials runs.
const ADDRESS: &str = "NONO_TEST_ADDRESS";

fn put(place: &Place, key: &str, bytes: &[u8]) -> Option<u64> {
    // In pieces, as an archive is written.
    let mut write = |out: &mut dyn Write| {
        bytes.chunks(100_000).try_for_each(|piece| out.write_all(piece))?;
        out.flush()
    };
    place.put_new(key, &mut write, &NoProgress).unwrap()
}

fn get(place: &Place, key: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    place.open_object(key, &NoProgress).unwrap().read_to_end(&mut bytes).unwrap();
    bytes
}

fn keys(place: &Place, folder: &str) -> Vec<String> {
    place.list(folder, &NoProgress).unwrap().into_iter().map(|stored| stored.key).collect()
}

/// The contract of every place.
fn holds_objects(place: &Place) {
    assert_eq!(keys(place, ""), [] as [String; 0]);
    assert_eq!(put(place, "s/0-full", b"one"), Some(3));
    assert_eq!(put(place, "s/0-full", b"another"), None, "the name is taken");
    assert_eq!(get(place, "s/0-full"), b"one");
    // Several parts, the last one not full; and parts that are full to the end.
    let noise: Vec<u8> =
        (0..(20u32 << 20) + 7).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    for (key, len) in [("s/1", noise.len()), ("s2/1", 16 << 20), ("s2/2", 8 << 20)] {
        assert_eq!(put(place, key, &noise[..len]), Some(len as u64));
        assert_eq!(put(place, key, &noise[..len - 1]), None, "the name is taken");
        assert!(get(place, key) == noise[..len], "{key} came back changed");
    }
    assert_eq!(put(place, "s2/empty", b""), Some(0));
    assert_eq!(keys(place, ""), ["s/0-full", "s/1", "s2/1", "s2/2", "s2/empty"]);
    assert_eq!(keys(place, "s"), ["s/0-full", "s/1"]);
    let sizes: Vec<_> =
        place.list("s", &NoProgress).unwrap().iter().map(|stored| stored.size_bytes).collect();
    assert_eq!(sizes, [3, noise.len() as u64]);
    for len in [5, 20 << 20] {
        let mut fails = |out: &mut dyn Write| {
            out.write_all(&noise[..len])?;
            Err(std::io::Error::other("no more"))
        };
        let failed = place.put_new("s/broken", &mut fails, &NoProgress).unwrap_err();
        assert!(matches!(failed, RemoteError::Source(_)), "{failed}");
    }
    assert_eq!(keys(place, "s"), ["s/0-full", "s/1"]);
    let missing = place.open_object("s/9", &NoProgress).err().unwrap();
    assert!(matches!(missing, RemoteError::Missing { .. }), "{missing}");
    for key in ["s/0-full", "s/1", "s2/1", "s2/2", "s2/empty", "s2/empty", "t/1"] {
        place.remove(key, &NoProgress).unwrap();
    }
    place.clear_leftovers(&NoProgress).unwrap();
    assert_eq!(keys(place, ""), [] as [String; 0]);
}

#[test]
fn a_directory_holds_objects_and_nothing_else() {
    let temp = tempfile::tempdir_in("/var/tmp").unwrap();
    let root = temp.path().join("remote");
    let address = Address::parse(root.to_str().unwrap()).unwrap();
    let missing = Place::open(&address, false).unwrap_err();
    assert!(matches!(missing, RemoteError::NoDirectory { .. }), "{missing}");
    holds_objects(&Place::open(&address, true).unwrap());
    assert_eq!(fs::read_dir(&root).unwrap().count(), 0, "something is left");
    // A parent that is missing may be a disk that is not attached.
    let deep = temp.path().join("a/b").to_str().unwrap().to_owned();
    assert!(Place::open(&Address::parse(&deep).unwrap(), true).is_err());
}

#[test]
fn a_key_leads_nowhere_else() {
    let temp = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::write(temp.path().join("secret"), "x").unwrap();
    let root = temp.path().join("remote");
    fs::create_dir(&root).unwrap();
    std::os::unix::fs::symlink(temp.path(), root.join("out")).unwrap();
    let place = Place::open(&Address::parse(root.to_str().unwrap()).unwrap(), false).unwrap();
    for key in ["../secret", "out/secret", "a/../../secret", "/secret", "a/b/c", "secret"] {
        assert!(place.open_object(key, &NoProgress).is_err(), "{key}");
        let put = place.put_new(key, &mut |out| out.write_all(b"y"), &NoProgress);
        assert!(put.is_err(), "{key}");
    }
    assert_eq!(fs::read_to_string(temp.path().join("secret")).unwrap(), "x");
    assert_eq!(keys(&place, ""), [] as [String; 0]);
}

#[test]
fn a_bucket_holds_objects_and_nothing_else() {
    let Some(server) = ObjectServer::start() else { return };
    let home = tempfile::tempdir().unwrap();
    for (at, folder) in ["", "deep/folder"].into_iter().enumerate() {
        let name = "remote_places::in_a_process_with_credentials";
        let ran = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--ignored", "--nocapture"])
            .env("AWS_ACCESS_KEY_ID", KEY_ID)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("XDG_STATE_HOME", home.path())
            .env(ADDRESS, server.url(folder))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        let errors = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{at}: {said}{errors}");
        assert!(said.contains("1 passed"), "{said}");
        let notes = fs::read_dir(home.path().join("nono/uploads")).unwrap();
        assert_eq!(notes.count(), 0, "a note of an upload is left");
    }
}

#[test]
#[ignore = "another test runs it in a process of its own"]
fn in_a_process_with_credentials() {
    let address = std::env::var(ADDRESS).unwrap();
    holds_objects(&Place::open(&Address::parse(&address).unwrap(), false).unwrap());
}
