//! The pictures of the terminal in the documents, against a run of the present program.

use std::path::Path;
use std::process::Command;

use crate::fixture::finished;
use crate::not_run::not_run;

#[test]
fn the_pictures_show_what_the_program_shows_now() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/pictures");
    let is_there = |program: &str, flag| {
        Command::new(program).arg(flag).output().is_ok_and(|found| found.status.success())
    };
    if !is_there("python3", "--version") || !is_there("tmux", "-V") {
        not_run("the pictures need python3 and tmux");
        return;
    }
    let mut check = Command::new("python3");
    check.arg(script).args(["--check", "--nono", env!("CARGO_BIN_EXE_nono")]);
    let done = finished(check.output().unwrap());
    assert_eq!(done.code, 0, "{}\n{}", done.stdout, done.stderr);
}
