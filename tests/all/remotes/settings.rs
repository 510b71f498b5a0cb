//! `nono remote add` tries a place, and says in one sentence what is wrong with its settings.

use std::fs;
use std::process::Command;

use super::Travel;
use super::faulty_server::{Fault, FaultyServer};
use crate::fixture::{Finished, finished};
use crate::object_server::{KEY_ID, SECRET};

/// Nothing listens there.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Variables and their values.
type Settings<'a> = &'a [(&'a str, &'a str)];

fn add(travel: &Travel, url: &str, settings: Settings<'_>) -> Finished {
    let mut command: Command =
        travel.fixture.command(&["remote", "add", "far", url, "--plaintext"]);
    command.env("NONO_REMOTE_TIMEOUT", "1").env("AWS_METADATA_ENDPOINT", NOWHERE);
    command.envs(settings.iter().copied());
    let done = finished(command.output().unwrap());
    assert!(!done.says(SECRET), "{}", done.stderr);
    done
}

fn remotes(travel: &Travel) -> usize {
    let listed = travel.nono(&["remote", "list", "--json"]).success().json();
    listed.as_array().unwrap().len()
}

/// The error is one line without the words of a library.
#[track_caller]
fn is_plain(done: &Finished) {
    let said = done.stderr.lines().filter(|line| line.contains("error:")).count();
    assert_eq!(said, 1, "{}", done.stderr);
    for word in ["Error performing", "Generic", "error sending", "retries", "<Code>"] {
        assert!(!done.stderr.contains(word), "{word}: {}", done.stderr);
    }
}

#[test]
fn missing_credentials_are_one_sentence_with_their_settings() {
    let travel = Travel::with(1, 3, 0);
    let s3 = format!("s3://bucket/x?endpoint={NOWHERE}");
    let missing = travel.fixture.path("missing.json");
    let missing = missing.to_str().unwrap();
    let key = [("AWS_ACCESS_KEY_ID", KEY_ID)];
    let secret = [("AWS_SECRET_ACCESS_KEY", SECRET)];
    let google = [("GOOGLE_SERVICE_ACCOUNT", missing)];
    let application = [("GOOGLE_APPLICATION_CREDENTIALS", missing)];
    let account = [("AZURE_STORAGE_ACCOUNT_NAME", "account")];
    let cases: [(&str, Settings<'_>, &[&str]); 8] = [
        (&s3, &[], &["no credentials were found; set AWS_ACCESS_KEY_ID", "AWS_PROFILE"]),
        (&s3, &key, &["AWS_ACCESS_KEY_ID is set, and AWS_SECRET_ACCESS_KEY is not"]),
        (&s3, &secret, &["AWS_SECRET_ACCESS_KEY is set, and AWS_ACCESS_KEY_ID is not"]),
        ("gs://bucket/x", &google, &["missing.json of GOOGLE_SERVICE_ACCOUNT does not exist"]),
        ("gs://bucket/x", &application, &["of GOOGLE_APPLICATION_CREDENTIALS does not exist"]),
        ("gs://bucket/x", &[], &["no credentials were found; set GOOGLE_APPLICATION_CREDENTIALS"]),
        ("az://container/x", &[], &["no storage account is named; set AZURE_STORAGE_ACCOUNT_NAME"]),
        ("az://container/x", &account, &["no credentials were found", "AZURE_STORAGE_ACCOUNT_KEY"]),
    ];
    for (url, settings, words) in cases {
        let refused = add(&travel, url, settings);
        is_plain(&refused);
        for word in words {
            assert!(refused.says(word), "{url} {settings:?}: {}", refused.stderr);
        }
        refused.fails(1, "no remote was added");
        assert_eq!(remotes(&travel), 0, "{url}");
    }
    // A profile that no file has is missing, too.
    let profile = format!("{s3}&profile=work");
    let refused = add(&travel, &profile, &[]);
    is_plain(&refused);
    refused.fails(1, "have no profile \"work\"");
}

#[test]
fn a_bucket_or_a_region_that_is_not_there_and_what_is_denied_are_one_sentence_each() {
    let Some(travel) = Travel::with(1, 3, 0).with_server() else { return };
    let server = FaultyServer::before(travel.server().address());
    let known = [("AWS_ACCESS_KEY_ID", KEY_ID), ("AWS_SECRET_ACCESS_KEY", SECRET)];
    let tries = |url: &str, words: &str| {
        let refused = add(&travel, url, &known);
        is_plain(&refused);
        refused.fails(1, words);
        assert_eq!(remotes(&travel), 0, "{url}");
    };
    let nowhere = server.url("x").replace("s3://bucket/", "s3://no-such-bucket/");
    tries(&nowhere, "there is no bucket of this name");
    let unreachable = format!("s3://bucket/x?endpoint={NOWHERE}&region=r");
    tries(&unreachable, "nothing answers at its address");
    for (status, code, more, words) in [
        (403, "AccessDenied", "", "these credentials have no permission"),
        (403, "InvalidAccessKeyId", "", "does not know the key of AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", "", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
        (400, "ExpiredToken", "", "AWS_SESSION_TOKEN"),
        (
            400,
            "AuthorizationHeaderMalformed",
            "<Region>eu-north-1</Region>",
            "in the region eu-north-1, and not in us-east-1; set region=… in its URL, or \
             AWS_REGION",
        ),
        (301, "PermanentRedirect", "", "not in the region us-east-1"),
        (400, "InvalidRequest", "", "its server answers InvalidRequest: no"),
    ] {
        let text = format!("<Error><Code>{code}</Code><Message>no</Message>{more}</Error>");
        server.decide(move |_| Fault::Answer(status, text.clone()));
        tries(&server.url("x"), words);
    }
}

#[test]
fn a_place_that_answers_is_added_and_one_that_does_not_with_no_check_alone() {
    let Some(travel) = Travel::with(1, 3, 0).with_server() else { return };
    let known = [("AWS_ACCESS_KEY_ID", KEY_ID), ("AWS_SECRET_ACCESS_KEY", SECRET)];
    add(&travel, &travel.server().url("x"), &known).success();
    assert_eq!(remotes(&travel), 1);
    let unreachable = format!("s3://bucket/x?endpoint={NOWHERE}&region=r");
    let args = ["remote", "add", "away", &unreachable, "--plaintext"];
    travel.nono(&[&args[..], &["--no-check"]].concat()).success();
    assert_eq!(remotes(&travel), 2);
    // A directory that can be made is made; one below nothing cannot.
    let place = travel.fixture.path("place");
    let args = ["remote", "add", "disk", place.to_str().unwrap(), "--plaintext"];
    travel.nono(&args).success();
    assert!(place.is_dir());
    let deep = travel.fixture.path("away/disk");
    let args = ["remote", "add", "deep", deep.to_str().unwrap(), "--plaintext"];
    travel.nono(&args).fails(1, "does not exist; no remote was added");
    travel.nono(&[&args[..], &["--no-check"]].concat()).success();
    assert!(!deep.exists(), "nothing is made unasked");
    let file = travel.fixture.path("file");
    fs::write(&file, "x").unwrap();
    let args = ["remote", "add", "file", file.to_str().unwrap(), "--plaintext"];
    travel.nono(&args).fails(1, "no remote was added");
    assert_eq!(remotes(&travel), 4);
}
