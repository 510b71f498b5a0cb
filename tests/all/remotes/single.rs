//! A state in a directory with one command, and single archives: files, those at a remote, and
//! those of a web server.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;

use super::Travel;

/// A session of three snapshots at a remote, and an empty store.
fn pushed() -> (Travel, String) {
    let travel = Travel::with(3, 20, 1);
    travel.directory("disk");
    travel.push("disk");
    let root = travel.fixture.path("store").to_str().unwrap().to_owned();
    (travel, root)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_pull_puts_the_newest_state_or_a_named_one_into_a_directory() {
    let (travel, root) = pushed();
    let to = travel.fixture.path("here");
    let pull = |what: &str, to: &Path, more: &[&str]| {
        let to = to.to_str().unwrap();
        let pull = ["--root", &root, "pull", "disk", what, "--identity", travel.identity()];
        travel.nono(&[&pull[..], &["--to", to], more].concat())
    };
    let said = pull(&travel.session, &to, &[]).success();
    assert!(said.says(&format!("of {}/2 to ", travel.session)), "{}", said.stderr);
    let project = travel.fixture.project();
    for file in 0..20 {
        let name = super::name(file);
        assert_eq!(read(&to.join(&name)), read(&project.join(&name)), "{name}");
    }
    // One snapshot, also where it is here already.
    let first = travel.fixture.path("first");
    let report = pull(&format!("{}/0", travel.session), &first, &["--json"]).success().json();
    assert_eq!(report["copy"]["snapshot"], 0, "{report:#}");
    assert_eq!(read(&first.join(super::name(1))), super::text(1, 0));
    assert_ne!(read(&first.join(super::name(1))), read(&project.join(super::name(1))));
    // Nothing is overwritten unasked.
    let kept = read(&to.join(super::name(1)));
    assert_eq!(pull(&format!("{}/0", travel.session), &to, &[]).code, 1);
    assert_eq!(read(&to.join(super::name(1))), kept);
}

#[test]
fn the_state_that_the_session_left_is_put_into_a_directory_after_an_undo() {
    let travel = Travel::with(1, 5, 0);
    travel.directory("disk");
    travel.fixture.record("echo work > made").success();
    let session = travel.fixture.latest();
    travel.fixture.write("made", "later\n");
    travel.nono(&["restore", &session, "--force", "--yes"]).success();
    travel.nono(&["push", "disk", &session]).success();
    let root = travel.fixture.path("store").to_str().unwrap().to_owned();
    let pull = |what: &str, to: &str| {
        let to = travel.fixture.path(to);
        let pull = ["--root", &root, "pull", "disk", what, "--identity", travel.identity()];
        let said = travel.nono(&[&pull[..], &["--to", to.to_str().unwrap()]].concat()).success();
        (read(&to.join("made")), said)
    };
    let (made, said) = pull(&session, "newest");
    assert_eq!(made, "work\n");
    assert!(said.says(&format!("of {session}/1 to ")), "{}", said.stderr);
    // The one that the undo took is there by its number.
    assert_eq!(pull(&format!("{session}/2"), "undone").0, "later\n");
}

#[test]
fn a_file_is_pulled_and_an_archive_at_a_remote_comes_with_its_chain() {
    let (travel, root) = pushed();
    let out = travel.fixture.path("one.age");
    let create = ["archive", "create", &travel.session, "-o", out.to_str().unwrap()];
    travel.nono(&[&create[..], &["--recipient", &travel.recipient]].concat()).success();
    let pull = |root: &str, what: &str, to: &str| {
        let to = travel.fixture.path(to);
        let pull = ["--root", root, "pull", what, "--identity", travel.identity()];
        let done = travel.nono(&[&pull[..], &["--to", to.to_str().unwrap()]].concat());
        done.success();
        read(&to.join(super::name(1)))
    };
    let now = read(&travel.fixture.project().join(super::name(1)));
    assert_eq!(pull(&root, out.to_str().unwrap(), "file"), now);
    assert_eq!(travel.roots(Path::new(&root)).keys().copied().collect::<Vec<_>>(), [2]);
    // A delta in the folder of its session: its parents lie beside it.
    let place = travel.fixture.path("remote-disk").join(&travel.session);
    let other = travel.fixture.path("other").to_str().unwrap().to_owned();
    let delta = place.join("2-delta-1.tar.zst.age");
    assert_eq!(pull(&other, delta.to_str().unwrap(), "delta"), now);
    // The same file elsewhere lacks them.
    let alone = travel.fixture.path("alone.age");
    fs::copy(&delta, &alone).unwrap();
    let empty = travel.fixture.path("empty");
    let pull = ["--root", empty.to_str().unwrap(), "pull", alone.to_str().unwrap()];
    let pulled = travel.nono(&[&pull[..], &["--identity", travel.identity()]].concat());
    pulled.fails(1, "is needed, too");
}

/// Answers requests for a file with these answers, one after the other.
fn serve(answers: Vec<Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let serve = move || {
        for (client, answer) in listener.incoming().zip(answers) {
            let mut client = client.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).is_ok_and(|read| read > 0)
            {
                head.push(byte[0]);
            }
            let _ = client.write_all(&answer);
        }
    };
    std::thread::Builder::new().spawn(serve).unwrap();
    format!("http://{address}/shared/archive.age?signature=s3cr3t")
}

fn answer(status: &str, body: &[u8], declared: usize) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Length: {declared}\r\nConnection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

#[test]
fn an_archive_of_a_web_server_is_pulled_also_after_a_break_and_no_message_has_its_signature() {
    let (travel, root) = pushed();
    let full = travel.fixture.path("remote-disk").join(&travel.session).join("0-full.tar.zst.age");
    let bytes = fs::read(full).unwrap();
    let url = serve(vec![
        answer("200 OK", &bytes[..bytes.len() / 2], bytes.len()),
        answer("503 Slow Down", b"", 0),
        answer("200 OK", &bytes, bytes.len()),
    ]);
    let pull = |url: &str| {
        let pull = ["--root", &root, "pull", url, "--identity", travel.identity()];
        let mut command = travel.command(&pull);
        let done =
            crate::fixture::finished(command.env("NONO_REMOTE_TIMEOUT", "1").output().unwrap());
        assert!(!done.says("s3cr3t"), "{}{}", done.stdout, done.stderr);
        done
    };
    pull(&url).success();
    assert_eq!(travel.roots(Path::new(&root)).keys().copied().collect::<Vec<_>>(), [0]);
    pull(&serve(vec![answer("403 Forbidden", b"", 0)])).fails(1, "403");
    pull(&serve(vec![answer("200 OK", b"no archive at all", 17)])).fails(1, "damaged, or is none");
}

#[test]
fn the_page_of_a_session_is_written_beside_its_archive() {
    let (travel, _) = pushed();
    let (out, page) = (travel.fixture.path("one.age"), travel.fixture.path("page"));
    let create = ["archive", "create", &travel.session, "-o", out.to_str().unwrap()];
    let sealed = ["--recipient", &travel.recipient, "--page", page.to_str().unwrap()];
    let said = travel.nono(&[&create[..], &sealed].concat()).success();
    assert!(said.says("the page is not encrypted, as the archive is"), "{}", said.stderr);
    assert!(out.exists());
    assert!(read(&page.join("index.html")).contains(&travel.session));
}
