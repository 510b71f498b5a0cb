//! The directory of a run's temporary files: gone after the run or a day later, however that ends.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{Finished, Fixture, finished};
use crate::terminal::eventually;

fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("a", "0");
    fs::create_dir(fixture.path("tmp")).unwrap();
    fixture
}

/// In one namespace with the test: it looks at the same `/tmp`.
fn run(fixture: &Fixture, script: &str) -> Finished {
    let run = ["run", "--rollback", "--namespaces", "off", "--", "sh", "-c", script];
    let mut command = fixture.command(&run);
    finished(command.env("TMPDIR", fixture.path("tmp")).output().unwrap()).success()
}

/// The directory that all runs of this user share.
fn shared(fixture: &Fixture) -> PathBuf {
    fixture.path("tmp").join(format!("nono-{}", rustix::process::geteuid().as_raw()))
}

fn scratches(fixture: &Fixture) -> Vec<PathBuf> {
    let names = fs::read_dir(shared(fixture)).unwrap();
    names.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn a_directory_of_temporary_files_that_cannot_be_used_is_named_with_its_variable() {
    let fixture = fixture();
    let closed = fixture.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
    fixture.give_away(&closed);
    let fixture = fixture.by_ordinary_user();
    fixture.give_away(&closed);
    let run = ["run", "--rollback", "--", "true"];
    let told = |value: &Path, arguments: &[&str]| {
        finished(fixture.command(arguments).env("TMPDIR", value).output().unwrap())
    };
    for (value, reason) in [
        (fixture.path("missing/deep"), "No such file or directory"),
        (fixture.project().join("a"), "Not a directory"),
        (closed, "Permission denied"),
    ] {
        let failed = told(&value, &run).fails(1, reason);
        assert!(failed.says("TMPDIR") && failed.says(value.to_str().unwrap()), "{}", failed.stderr);
    }
    // An empty value is none.
    told(Path::new(""), &run).success();
}

#[test]
fn what_a_killed_run_leaves_goes_when_it_is_old_and_nobody_lives_in_it() {
    let fixture = fixture();
    let script = "mkdir -p $TMPDIR/deep/er; echo $$ > pid.new; mv pid.new pid; exec sleep 600";
    let start = ["run", "--rollback", "--namespaces", "off", "--keep-running"];
    let mut command = fixture.command(&[&start[..], &["--", "sh", "-c", script]].concat());
    command.env("TMPDIR", fixture.path("tmp")).stderr(Stdio::null());
    let mut supervisor = command.spawn().unwrap();
    let pid = fixture.project().join("pid");
    eventually("the command does not start", || pid.exists());
    let orphan: i32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    let [left] = &scratches(&fixture)[..] else { panic!("{:?}", scratches(&fixture)) };
    // The command that it was made for lives.
    make_old(left);
    run(&fixture, "true");
    assert!(left.join("room/deep/er").exists());
    assert_eq!(scratches(&fixture).len(), 1);
    kill_process(Pid::from_raw(orphan).unwrap(), Signal::KILL).unwrap();
    eventually("the command does not end", || {
        let stat = fs::read_to_string(format!("/proc/{orphan}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    });
    // Young, it stays. Its keeper may need a moment to see that the last process has ended.
    touch(left, "now");
    run(&fixture, "true");
    assert!(left.join("room/deep/er").exists());
    make_old(left);
    eventually("its keeper does not end", || {
        let locked = Command::new("flock").args(["-n", "-x"]).arg(left).arg("true").status();
        locked.unwrap().success()
    });
    run(&fixture, &format!("while [ -e {} ]; do sleep 0.05; done", left.display()));
    assert_eq!(scratches(&fixture), [] as [PathBuf; 0]);
}

fn touch(path: &Path, date: &str) {
    assert!(Command::new("touch").args(["-d", date]).arg(path).status().unwrap().success());
}

/// Makes the directory of a run two days old.
pub fn make_old(scratch: &Path) {
    touch(&scratch.join("room"), "2 days ago");
    touch(scratch, "2 days ago");
}

#[test]
fn only_what_a_run_made_is_removed() {
    let fixture = fixture();
    run(&fixture, "true");
    let kept = ["0123456789ag", "0123456789", "precious"].map(|name| shared(&fixture).join(name));
    for path in &kept {
        fs::create_dir(path).unwrap();
    }
    let (file, link) =
        (shared(&fixture).join("00000000000f"), shared(&fixture).join("0123456789ab"));
    fs::write(&file, "").unwrap();
    symlink(fixture.project(), &link).unwrap();
    let dead = shared(&fixture).join("0123456789ac");
    fs::create_dir(&dead).unwrap();
    symlink(fixture.project(), dead.join("link")).unwrap();
    // Even if it cannot be listed.
    fs::set_permissions(&dead, fs::Permissions::from_mode(0o000)).unwrap();
    run(&fixture, &format!("while [ -e {} ]; do sleep 0.05; done", dead.display()));
    for path in kept.iter().chain([&file]) {
        assert!(path.exists(), "{}", path.display());
    }
    assert!(link.is_symlink() && fixture.project().join("a").exists());
}

#[test]
fn a_shared_directory_that_others_can_write_is_not_used() {
    let fixture = fixture();
    let shared = shared(&fixture);
    let dead = shared.join("0123456789ab");
    fs::create_dir_all(&dead).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    let ran = run(&fixture, "echo $TMPDIR; echo 1 > $TMPDIR/made");
    assert!(ran.stderr.contains("not a directory of yours alone"), "{}", ran.stderr);
    let scratch = PathBuf::from(ran.stdout.trim());
    assert_eq!(scratch.parent().unwrap().parent(), Some(fixture.path("tmp").as_path()));
    assert!(scratch.join("made").exists() && dead.exists());
}
