//! Archives of stores with damaged copies, and the files that an archive is written to.

use std::fs;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::process::{Command, Stdio};

use nono_engine::object::ContentHash;

use crate::fixture::{Fixture, noise};

#[test]
fn an_archive_has_the_intact_copy_of_what_the_store_has_twice() {
    let fixture = Fixture::new();
    // Enough files that they go into packs.
    for at in 0..1500 {
        fixture.write(&format!("many/{at}"), format!("{at} of many\n"));
    }
    let (middle, long) = (vec![b'm'; 70_000], noise(5 << 20, 1));
    fixture.write("middle", &middle);
    fixture.write("long", &long);
    fixture.nono(&["snapshot"]).success();
    let session = fixture.latest();
    let archive = fixture.path("a.tar.zst");
    let archive = archive.to_str().unwrap();
    let create = ["archive", "create", &session, "-o", archive, "--force"];
    // Each packed object gets a damaged copy in front of it: cut off, or changed at its end.
    let objects = fixture.store().join("objects");
    let mut doubled = 0;
    for contents in [&b"7 of many\n"[..], &middle, &long] {
        let name = ContentHash::of(contents).to_string();
        let own = objects.join(&name[..2]).join(&name[2..]);
        if own.exists() {
            // Long files have their own where blocks are shared.
            continue;
        }
        doubled += 1;
        fs::create_dir_all(own.parent().unwrap()).unwrap();
        let (mut changed, last) = (contents.to_vec(), contents.len() - 1);
        changed[last] ^= 1;
        for damaged in [&changed[..], &contents[..last]] {
            fs::write(&own, damaged).unwrap();
            fixture.nono(&create).success();
            fixture.nono(&["archive", "verify", archive]).success();
        }
    }
    assert!(doubled >= 2, "{doubled}");
    let root = fixture.path("there");
    let root = root.to_str().unwrap();
    fixture.nono(&["--root", root, "archive", "import", archive]).success();
    fixture.nono(&["--root", root, "rollback", "verify", &session]).success();
}

#[test]
fn an_archive_replaces_only_what_it_may() {
    let fixture = Fixture::new();
    fixture.write("a", "1\n");
    fixture.nono(&["snapshot"]).success();
    let session = fixture.latest();
    let ids: Vec<_> = (0..2).map(|number| format!("{session}/{number}")).collect();
    let path = |name: &str| fixture.path(name).to_str().unwrap().to_owned();
    let (base, there) = (path("base"), path("there"));
    let create = |id: &str, out: &str, more: &[&str]| {
        fixture.nono(&[&["archive", "create", id, "-o", out], more].concat())
    };
    create(&ids[0], &base, &[]).success();
    // Its own snapshot is no parent.
    create(&ids[0], &path("x"), &["--parent", &base]).fails(1, "needs an older snapshot");
    fixture.write("b", "2\n");
    fixture.nono(&["snapshot", "--session", &session]).success();
    fs::write(&there, "existing").unwrap();
    create(&ids[1], &there, &[]).fails(1, "--force");
    assert_eq!(fs::read(&there).unwrap(), b"existing");
    create(&ids[1], &there, &["--force"]).success();
    fixture.nono(&["archive", "verify", &there]).success();
    let before = fs::read(&base).unwrap();
    create(&ids[1], &base, &["--parent", &base, "--force"]).fails(2, "is the parent");
    assert_eq!(fs::read(&base).unwrap(), before);
    symlink("nowhere", fixture.path("link")).unwrap();
    create(&ids[1], &path("link"), &["--force"]).fails(1, "is no file");
    // The reader of a pipe gets the archive, and the pipe stays one.
    let pipe = fixture.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut script = Command::new("sh");
    script.args(["-c", "zstd -dcq < \"$1\" | tar -t", "sh"]).arg(&pipe).stdout(Stdio::piped());
    let reader = script.spawn().unwrap();
    create(&ids[1], pipe.to_str().unwrap(), &[]).success();
    let listed = String::from_utf8(reader.wait_with_output().unwrap().stdout).unwrap();
    assert!(listed.contains("meta/session.json"), "{listed}");
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
}
