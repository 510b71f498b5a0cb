//! Tests that cannot run here: counted, never silent. Shared by the tests of both packages.
//!
//! `scripts/test` names a file in `NONO_NOT_RUN` and prints at its end what the tests wrote there.
//! Under `CI=true` such a test fails.

use std::fmt::Display;
use std::fs::File;
use std::io::Write;

/// Notes that the test that calls it does not run, or not to its end.
pub(crate) fn not_run(why: impl Display) {
    note(&why);
    let is_ci = std::env::var("CI").is_ok_and(|set| set == "true");
    assert!(!is_ci, "every test must run in CI: {why}");
}

/// The same where the caller of the tests chose it, also in CI.
pub(crate) fn note(why: &impl Display) {
    let thread = std::thread::current();
    let line = format!("{}: {why}\n", thread.name().unwrap_or("?"));
    eprint!("NOT RUN: {line}");
    if let Some(path) = std::env::var_os("NONO_NOT_RUN") {
        let file = File::options().append(true).create(true).open(path);
        file.and_then(|mut file| file.write_all(line.as_bytes())).unwrap();
    }
}

/// Notes that the test needs root. It counts unless another run of the same tests has root.
pub(crate) fn needs_root(why: impl Display) {
    if std::env::var_os("NONO_ROOT_RUNS_TOO").is_none() {
        not_run(format_args!("only root {why}"));
    }
}
