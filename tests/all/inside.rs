//! The program started by a command of `nono run`: the working commands, and the message of the
//! rest.

use std::fs;

use crate::fixture::{Finished, Fixture};

const PROGRAM: &str = env!("CARGO_BIN_EXE_nono");

/// A project, a session of it, and a command in it that was recorded.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("a", "1");
    fixture.record("echo 2 > a").success();
    fixture
}

/// Starts the program in a recorded run with these arguments, its environment cleaned by `cleaned`.
fn inside(fixture: &Fixture, cleaned: &str, arguments: &str) -> Finished {
    fixture.record(&format!("{cleaned} {PROGRAM} {arguments}; echo ended $?"))
}

/// The same where the command has no `/tmp` of its own.
fn inside_one_wall(fixture: &Fixture, cleaned: &str, arguments: &str) -> Finished {
    let script = format!("{cleaned} {PROGRAM} {arguments}; echo ended $?");
    let run = ["run", "--rollback", "--namespaces", "off", "--", "sh", "-c", &script];
    fixture.nono(&run)
}

fn snapshot_count(fixture: &Fixture) -> usize {
    let show = fixture.nono(&["rollback", "show", &fixture.latest(), "--json"]).success().json();
    show["snapshots"].as_array().unwrap().len()
}

#[test]
fn without_its_variables_a_snapshot_inside_names_them_and_how_to_pass_them_on() {
    let fixture = fixture();
    for cleaned in ["env -u NONO_SOCKET -u TMPDIR", "env -i HOME=$HOME"] {
        let tried = inside_one_wall(&fixture, cleaned, "snapshot");
        assert!(tried.stdout.contains("ended 1"), "{cleaned}: {}", tried.stdout);
        for fact in ["inside `nono run`", "NONO_SOCKET is not set", "NONO_SESSION", "env_vars"] {
            assert!(tried.stderr.contains(fact), "{cleaned}: {fact} is not in {}", tried.stderr);
        }
        assert!(!tried.stderr.contains("cannot open /: "), "{}", tried.stderr);
        // The baseline and the end: nothing was added, and nothing made elsewhere.
        assert_eq!(snapshot_count(&fixture), 2, "{cleaned}");
    }
}

#[test]
fn a_command_with_a_tmp_of_its_own_needs_no_variable_for_a_snapshot() {
    let in_tmp = Fixture::in_tmp();
    in_tmp.write("a", "1");
    for fixture in [fixture(), in_tmp] {
        let taken = inside(&fixture, "env -i HOME=$HOME", "snapshot");
        assert!(taken.stdout.contains("ended 0"), "{}", taken.stderr);
        assert_eq!(snapshot_count(&fixture), 3);
    }
}

#[test]
fn one_variable_is_enough_for_a_snapshot_inside() {
    // Codex passes TMPDIR on, and nothing else that leads to the supervisor.
    let only_temporary = "env -i HOME=$HOME TMPDIR=$TMPDIR";
    let only_socket = "env -i HOME=$HOME NONO_SOCKET=$NONO_SOCKET";
    for cleaned in [only_temporary, only_socket] {
        let fixture = fixture();
        let taken = inside_one_wall(&fixture, cleaned, "snapshot");
        assert!(taken.stdout.contains("ended 0"), "{cleaned}: {}", taken.stderr);
        assert_eq!(snapshot_count(&fixture), 3, "{cleaned}");
    }
}

#[test]
fn a_configuration_out_of_reach_stops_no_run_inside_of_a_run() {
    let fixture = Fixture::ordinary_user();
    fixture.write("a", "1");
    let dir = fixture.path("home/.config/nono");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("config.toml"), "[rollback]\nmax_sessions = 5\n").unwrap();
    for walls in ["--namespaces off", "", "--profile generic"] {
        let words = |inner: &str| {
            let program = fixture.command(&[]).get_program().to_owned();
            let script = format!("{} run {inner} -- sh -c 'echo 2 > a'", program.display());
            let run = [&["run", "--rollback"][..], &walls.split_whitespace().collect::<Vec<_>>()];
            fixture.nono(&[&run.concat()[..], &["--", "sh", "-c", &script]].concat())
        };
        for inner in ["", "--no-rollback", "--no-sandbox"] {
            fixture.write("a", "1");
            let done = words(inner);
            assert_eq!(done.code, 0, "{walls} {inner}: {}{}", done.stdout, done.stderr);
            assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "2\n");
        }
    }
}

#[test]
fn a_snapshot_inside_of_something_else_is_refused_with_the_reason() {
    let fixture = fixture();
    let first = fixture.latest();
    for arguments in [format!("snapshot --session {first}"), "snapshot /etc".to_owned()] {
        let tried = inside(&fixture, "", &arguments);
        assert!(tried.stdout.contains("ended 1"), "{arguments}: {}", tried.stdout);
        assert!(tried.stderr.contains("inside `nono run`"), "{arguments}: {}", tried.stderr);
        assert!(tried.stderr.contains("`nono snapshot` alone"), "{arguments}: {}", tried.stderr);
    }
}

#[test]
fn what_needs_the_store_says_inside_that_it_is_inside() {
    let fixture = fixture();
    let id = fixture.latest();
    let commands = [
        "rollback restore ID",
        "rollback restore ID --dry-run",
        "rollback restore latest",
        "rollback resume ID",
        "rollback resume",
        "rollback cleanup --all --yes",
        "rollback cleanup",
        "rollback verify --all --repair",
        "rollback verify ID",
        "rollback review ID",
        "rollback list",
        "rollback show ID",
        "rollback cat ID a",
        "run --rollback -- touch ran",
        "undo restore latest",
    ];
    // A clean environment is no way around it.
    for cleaned in ["", "env -i HOME=$HOME"] {
        let command = |arguments: &str| {
            format!("{cleaned} {PROGRAM} {} 2>&1; echo ended $?;", arguments.replace("ID", &id))
        };
        let script: String = commands.iter().map(|arguments| command(arguments)).collect();
        let said = fixture.record(&script).success().stdout;
        let answers: Vec<&str> = said.split_inclusive("ended 1\n").collect();
        assert_eq!(answers.len(), commands.len(), "{said}");
        for (arguments, answer) in commands.iter().zip(answers) {
            assert!(answer.contains("inside `nono run`"), "{arguments}: {answer}");
            let store = fixture.store();
            assert!(answer.contains(store.to_str().unwrap()), "{arguments}: {answer}");
        }
    }
    assert!(!fixture.project().join("ran").exists());
    assert_eq!(fs::read_to_string(fixture.project().join("a")).unwrap(), "2\n");
    fixture.nono(&["rollback", "show", &id]).success();
}

#[test]
fn a_store_within_the_grants_is_used_inside_as_anywhere() {
    let fixture = fixture();
    fs::create_dir(fixture.project().join("work")).unwrap();
    fs::write(fixture.project().join("work/b"), "1").unwrap();
    let own = "export NONO_ROOT=$PWD/own; unset NONO_SOCKET NONO_SESSION";
    let script = format!(
        "{own}; {PROGRAM} snapshot work && cd work && rm b && {PROGRAM} rollback restore latest -y \
         && cat b"
    );
    let run = fixture.record(&script).success();
    assert!(run.stdout.ends_with('1'), "{}", run.stdout);
}

#[test]
fn outside_and_without_walls_nothing_is_said_to_be_inside() {
    let fixture = fixture();
    let arguments = ["run", "--no-sandbox", "--", PROGRAM, "rollback", "list"];
    assert!(!fixture.nono(&arguments).success().says("inside"));
    // A variable of a run that is over names no supervisor.
    let mut command = fixture.command(&["snapshot"]);
    command.env("NONO_SOCKET", "/nowhere/nono.sock").env("NONO_SESSION", "20260101-000000-1");
    let lost = crate::fixture::finished(command.output().unwrap());
    lost.fails(1, "unset NONO_SOCKET");
}

#[test]
fn an_archive_is_shown_and_verified_inside_where_only_its_file_can_be_read() {
    let fixture = fixture();
    let (apart, passphrase) = (fixture.path("apart"), fixture.path("apart/passphrase"));
    fs::create_dir(&apart).unwrap();
    fs::write(&passphrase, "correct horse\n").unwrap();
    let (sealed, link) = (fixture.path("apart/a.age"), fixture.project().join("link"));
    let [sealed, passphrase] = [&sealed, &passphrase].map(|path| path.to_str().unwrap());
    let id = format!("{}/0", fixture.latest());
    let create = ["archive", "create", &id, "-o", sealed, "--passphrase-file", passphrase];
    fixture.nono(&create).success();
    std::os::unix::fs::symlink(sealed, &link).unwrap();
    let reading = ["run", "--read", sealed, "--read", passphrase, "--", "sh", "-c"];
    for (command, file) in [("show", sealed), ("verify", sealed), ("verify", "link")] {
        let script = format!(
            "{PROGRAM} archive {command} {file} --passphrase-file {passphrase} --json; echo ended \
             $?; ls {}",
            apart.to_str().unwrap()
        );
        let done = fixture.nono(&[&reading[..], &[&script]].concat());
        assert!(done.stdout.contains("ended 0"), "{command}: {}{}", done.stdout, done.stderr);
        assert!(done.stdout.contains(&id), "{}", done.stdout);
        // The directory itself stayed closed.
        assert!(done.stderr.contains("ls: "), "{}", done.stderr);
    }
    let script = format!("{PROGRAM} archive import {sealed}; echo ended $?");
    let refused = fixture.nono(&[&reading[..], &[&script]].concat());
    assert!(refused.stdout.contains("ended 1"), "{}", refused.stdout);
    assert!(refused.stderr.contains("use `nono archive import` outside"), "{}", refused.stderr);
}
