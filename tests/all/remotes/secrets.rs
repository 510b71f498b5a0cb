//! Encryption, and credentials that stay where they are.

use std::fs;
use std::path::Path;

use super::{Travel, archives};
use crate::fixture::finished;
use crate::object_server::SECRET;

#[test]
fn a_place_is_refused_as_long_as_nothing_is_said_about_encryption() {
    let travel = Travel::with(1, 3, 0);
    let place = travel.fixture.path("place");
    let place = place.to_str().unwrap();
    travel.nono(&["remote", "add", "a", place]).fails(2, "--plaintext");
    travel.nono(&["push", place, &travel.session]).fails(2, "--plaintext");
    assert!(!Path::new(place).exists());
    travel.nono(&["remote", "add", "a", place, "--recipient", "nobody"]).fails(2, "nobody");
    travel.nono(&["remote", "add", "a", place, "--plaintext"]).success();
    travel.nono(&["remote", "add", "a", place, "--plaintext"]).fails(2, "already");
    // Said once, also for the path.
    travel.nono(&["push", place, &travel.session]).success();
    assert_eq!(archives(Path::new(place), &travel.session), ["0-full.tar.zst"]);
    let list = travel.nono(&["remote", "list", "--json"]).success().json();
    assert_eq!(list[0]["name"], "a");
    travel.nono(&["remote", "remove", "a"]).success();
    travel.nono(&["push", "a"]).fails(2, "there is no remote");
    travel.nono(&["push", place]).fails(2, "--plaintext");
}

#[test]
fn a_push_does_not_encrypt_otherwise_than_the_remote_says() {
    let travel = Travel::with(1, 3, 0);
    let place = travel.directory("sealed");
    let path = place.to_str().unwrap();
    let phrase = travel.fixture.path("phrase");
    fs::write(&phrase, "a phrase\n").unwrap();
    let phrase = phrase.to_str().unwrap();
    let others = [&["--plaintext"][..], &["--passphrase-file", phrase]];
    for (remote, other) in ["sealed", path].into_iter().flat_map(|it| others.map(|o| (it, o))) {
        let push = [&["push", remote, &travel.session], other].concat();
        travel.nono(&push).fails(2, "encrypted for age1");
        assert!(!place.join(&travel.session).exists(), "{push:?}");
    }
    let same = ["push", "sealed", &travel.session, "--recipient", &travel.recipient];
    travel.nono(&same).success();
    travel.verify("sealed").success();
    travel.plain_directory("open");
    let push = ["push", "open", &travel.session, "--recipient", &travel.recipient];
    travel.nono(&push).fails(2, "not encrypted");
}

#[test]
fn credentials_in_a_url_are_refused_and_never_repeated() {
    let travel = Travel::with(1, 3, 0);
    for url in [
        format!("s3://AKIA:{SECRET}@bucket/x"),
        format!("s3://bucket/x?secret={SECRET}"),
        format!("s3://bucket?endpoint=http://u:{SECRET}@host"),
        format!("https://a.blob.core.windows.net/c?sig={SECRET}"),
    ] {
        let added = travel.nono(&["remote", "add", "a", &url, "--plaintext"]);
        assert_eq!(added.code, 2, "{}", added.stderr);
        assert_eq!(travel.nono(&["push", &url, &travel.session]).code, 2);
    }
    // A server that does not run: the reason has the place in it, and no credential.
    let mut push = travel.fixture.command(&[
        "push",
        "s3://bucket/x?endpoint=http://127.0.0.1:9&region=r",
        &travel.session,
        "--plaintext",
    ]);
    push.env("AWS_ACCESS_KEY_ID", "AKIA").env("AWS_SECRET_ACCESS_KEY", SECRET);
    let failed = finished(push.output().unwrap());
    assert!(!failed.says(SECRET), "{}", failed.stderr);
    failed.fails(1, "s3://bucket/x");
}

#[test]
fn a_passphrase_opens_a_remote_here_and_elsewhere_and_no_other_one_does() {
    let travel = Travel::with(2, 10, 1);
    let (right, wrong) = (travel.fixture.path("right"), travel.fixture.path("wrong"));
    fs::write(&right, "correct horse\n").unwrap();
    fs::write(&wrong, "wrong horse\n").unwrap();
    let [right, wrong] = [&right, &wrong].map(|path| path.to_str().unwrap());
    let place = travel.fixture.path("place");
    let url = place.to_str().unwrap();
    travel.nono(&["remote", "add", "disk", url, "--passphrase-file", right]).success();
    travel.push("disk");
    assert_eq!(archives(&place, &travel.session), ["0-full.tar.zst.age", "1-delta-0.tar.zst.age"]);
    // The file of the remote is used unasked, and another one instead of it.
    travel.nono(&["remote", "verify", "disk"]).success();
    let verify = travel.nono(&["remote", "verify", "disk", "--passphrase-file", wrong, "--json"]);
    assert_eq!(verify.code, 1, "{}", verify.stderr);
    let report = verify.json();
    let problems = report["problems"].as_array().unwrap();
    let unopened = problems.iter().filter(|problem| problem["kind"] == "not_opened");
    assert_eq!(unopened.count(), 2, "{report:#}");
    // Another machine knows the place and not the name.
    let elsewhere = |store: &str, file: &[&str]| {
        let root = travel.fixture.path(store);
        let pull = ["--root", root.to_str().unwrap(), "pull", url, &travel.session];
        let mut command = travel.command(&[&pull[..], file].concat());
        command.env("HOME", travel.fixture.path("other-home"));
        finished(command.output().unwrap())
    };
    elsewhere("a", &["--passphrase-file", wrong]).fails(1, "none of the given");
    elsewhere("a", &[]).fails(1, "encrypted");
    let not_made = travel.fixture.path("a").join(&travel.session);
    assert!(!not_made.exists());
    elsewhere("a", &["--passphrase-file", right]).success();
    assert_eq!(travel.roots(&travel.fixture.path("a")), travel.roots(&travel.fixture.store()));
    // Without its file, the remote is neither written nor read.
    fs::remove_file(right).unwrap();
    for command in [&["push", "disk"][..], &["remote", "verify", "disk"]] {
        travel.nono(command).fails(1, "right: No such file");
    }
}

#[test]
fn no_log_and_no_message_repeats_a_credential() {
    let Some(travel) = Travel::with(2, 10, 1).with_server() else { return };
    travel.cloud("cloud");
    const TOKEN: &str = "tOkEnOfTheSession0123456789";
    const SEALED: &str = "correct horse battery";
    let quiet = |command: &mut std::process::Command| {
        command.env("NONO_LOG", "trace").env("AWS_SESSION_TOKEN", TOKEN);
        let done = finished(command.output().unwrap());
        for secret in [SECRET, TOKEN, SEALED] {
            assert!(!done.says(secret), "{secret}: {}{}", done.stdout, done.stderr);
        }
        done
    };
    for command in [
        &["push", "cloud", &travel.session, "-v"][..],
        &["remote", "show", "cloud", "-v"],
        &["remote", "verify", "cloud", "-v", "--identity", travel.identity()],
        &["remote", "list", "-v", "--json"],
        &["config", "show"],
        &["doctor", "-v"],
    ] {
        quiet(&mut travel.command(command));
    }
    // A credential that is none: the reason is told, and it is not.
    for (url, variable) in [
        ("gs://bucket/x".to_owned(), "GOOGLE_SERVICE_ACCOUNT_KEY"),
        ("az://container/x".to_owned(), "AZURE_STORAGE_ACCOUNT_KEY"),
    ] {
        let mut push = travel.command(&["push", &url, &travel.session, "--plaintext", "-v"]);
        push.env(variable, SECRET).env("AZURE_STORAGE_ACCOUNT_NAME", "account");
        assert_ne!(quiet(&mut push).code, 0, "{url}");
    }
    let file = travel.fixture.path("passphrase");
    fs::write(&file, SEALED).unwrap();
    let file = file.to_str().unwrap();
    travel.nono(&["remote", "add", "sealed", "./sealed", "--passphrase-file", file]).success();
    for command in [&["push", "sealed", "-v"][..], &["remote", "verify", "sealed", "-v"]] {
        assert_eq!(quiet(&mut travel.command(command)).code, 0);
    }
}
