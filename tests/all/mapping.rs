//! A file that another process changes through a mapping, and that a mapped change is in the next
//! snapshot.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use super::fixture::{Fixture, finished, settle};
use crate::not_run::not_run;

/// Maps a file and changes its first bytes at each line of its input.
const SCRIPT: &str = "
import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(f, 4096)
for line in sys.stdin:
    m[0:4] = line.strip().encode()
    print('done', flush=True)
";

/// A process with a file mapped; it ends with the value.
pub struct Mapping {
    process: Child,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Mapping {
    /// Makes the file, and maps it.
    pub fn new(file: &Path) -> Self {
        fs::write(file, [0; 4096]).unwrap();
        let mut command = Command::new("python3");
        command.args(["-c", SCRIPT]).arg(file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, answers }
    }

    /// Changes the first four bytes.
    pub fn write(&mut self, text: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{text}").unwrap();
        assert_eq!(self.answers.next().unwrap().unwrap(), "done");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Reads a page through a mapping, and then writes it.
const READ_THEN_WRITE: &str = "
import mmap, os, sys
f = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(f, 0)
first = m[0]
m[0:4] = b'EVIL'
";

#[test]
fn a_write_through_a_mapping_in_memory_is_recorded_and_undone() {
    let fixture = Fixture::new();
    let Ok(place) = tempfile::tempdir_in("/dev/shm") else {
        not_run("there is no tmpfs at /dev/shm");
        return;
    };
    let file = place.path().join("file");
    fs::write(&file, "precious").unwrap();
    let nono = |arguments: &[&str]| {
        let mut command = fixture.command(arguments);
        finished(command.current_dir(place.path()).output().unwrap()).success()
    };
    settle();
    nono(&["snapshot"]);
    let known = fs::metadata(&file).unwrap();
    let changed = Command::new("python3").args(["-c", READ_THEN_WRITE]).arg(&file).status();
    assert!(changed.unwrap().success());
    assert_eq!(fs::read_to_string(&file).unwrap(), "EVILious");
    let now = fs::metadata(&file).unwrap();
    assert_eq!((now.modified().unwrap(), now.len()), (known.modified().unwrap(), known.len()));
    let taken = nono(&["snapshot", "--session", "latest", "--json"]).json();
    assert_eq!(taken["changes"][0]["change_type"], "modified", "{taken:#}");
    nono(&["undo", "--yes", "--force"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
}

/// With the store on the same file system, and on another one.
#[test]
fn a_change_through_a_mapping_is_in_the_next_snapshot() {
    for place in [None, Some("/dev/shm")] {
        let fixture = Fixture::new();
        let root = place.map_or_else(tempfile::tempdir, tempfile::tempdir_in).unwrap();
        let nono = |arguments: &[&str]| {
            let mut command = fixture.command(arguments);
            command.env("NONO_ROOT", root.path().join("store"));
            finished(command.output().unwrap()).success()
        };
        let file = fixture.project().join("db");
        let mut mapping = Mapping::new(&file);
        mapping.write("ONE1");
        let project = fixture.project();
        let taken = nono(&["snapshot", "--json", project.to_str().unwrap()]).json();
        let session = taken["session_id"].as_str().unwrap();
        for (number, text) in ["TWO2", "THR3"].iter().enumerate() {
            mapping.write(text);
            nono(&["snapshot", "--session", session]);
            let id = format!("{session}/{}", number + 1);
            let held = nono(&["rollback", "cat", &id, file.to_str().unwrap()]).stdout;
            assert_eq!(&held[..4], *text, "store in {place:?}");
        }
    }
}
