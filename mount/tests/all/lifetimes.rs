//! Nodes live exactly as long as the kernel knows them, also under many hands at once.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use nono_mount::MountOptions;

use crate::fixture::{Mounted, drop_caches, eventually, keep_caches, many, mount, mount_with};
use crate::memory::{Memory, dir};
use crate::not_run::{needs_root, not_run};

/// Makes the kernel forget what no process uses, as often as needed: it tells the mount at its own
/// time. False where that is not allowed.
fn drop_caches_until(mounted: &Mounted, done: impl Fn(&Mounted) -> bool) -> bool {
    let mut allowed = true;
    eventually("the kernel forgets all that no process uses", || {
        allowed = drop_caches("2").is_ok();
        !allowed || done(mounted)
    });
    if !allowed {
        needs_root("makes the kernel forget (/proc/sys/vm/drop_caches)");
    }
    allowed
}

#[test]
fn what_the_kernel_forgot_is_gone_and_comes_back_with_the_same_numbers() {
    let tree = many(20, 20);
    let memory = Memory::with([("0", tree.clone()), ("1", tree)]);
    let Some(mounted) = mount(&memory) else { return };
    let walk = "cd $M; ls -laR 0 1 > /dev/null; find 0 1 -printf '%p %i\\n' | sort > $OLDPWD/";
    {
        let _kept = keep_caches();
        mounted.shell(&format!("{walk}first"));
        assert!(mounted.mount().live_nodes() > 400);
    }
    if !drop_caches_until(&mounted, |mounted| mounted.mount().live_nodes() == 1) {
        return;
    }
    mounted.shell(&format!("{walk}second"));
    mounted.shell("sed -E 's/^[01] .*//' first > a; sed -E 's/^[01] .*//' second > b; cmp a b");
}

#[test]
fn a_directory_in_use_stays_while_all_around_it_is_forgotten() {
    let tree = dir([("deep", dir([("er", many(5, 5))]))]);
    let memory = Memory::with([("0", tree.clone()), ("1", tree)]);
    let Some(mounted) = mount(&memory) else { return };
    if !drop_caches_until(&mounted, |_| true) {
        return;
    }
    let inside: Vec<_> = ["0", "1"].map(|snapshot| Shell::inside(&mounted, snapshot)).into();
    mounted.shell("find $M -ls > /dev/null");
    if !drop_caches_until(&mounted, |mounted| mounted.mount().live_nodes() <= 10) {
        return;
    }
    mounted.shell("find $M -ls > /dev/null");
    for (shell, snapshot) in inside.into_iter().zip(["0", "1"]) {
        let place = mounted.path(snapshot).join("deep/er/d1");
        assert_eq!(shell.finish(), format!("{}\nf0\nf1\nf2\nf3\nf4\n", place.display()));
    }
}

/// A shell that sits in a directory until it is told to look around.
struct Shell(std::process::Child);

impl Shell {
    fn inside(mounted: &Mounted, snapshot: &str) -> Self {
        Self::at(&mounted.path(snapshot).join("deep/er/d1"))
    }

    fn at(directory: &Path) -> Self {
        let mut command = Command::new("sh");
        command
            .args(["-c", "read line; /bin/pwd; ls"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        Self(command.current_dir(directory).spawn().unwrap())
    }

    fn finish(mut self) -> String {
        drop(self.0.stdin.take());
        let output = self.0.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn many_walkers_at_once_see_the_same_and_no_error() {
    let tree = many(30, 20);
    let memory = Memory::with([("0", tree.clone()), ("1", tree)]);
    let Some(mounted) = mount(&memory) else { return };
    let walk = |below: &Path| {
        let mut lines = Vec::new();
        for directory in fs::read_dir(below).unwrap() {
            let directory = directory.unwrap();
            assert!(directory.metadata().unwrap().is_dir());
            for file in fs::read_dir(directory.path()).unwrap() {
                let file = file.unwrap();
                let text = fs::read_to_string(file.path()).unwrap();
                lines.push((directory.file_name(), file.file_name(), text));
            }
        }
        lines.sort();
        lines
    };
    let expected = walk(&mounted.path("0"));
    assert_eq!(expected.len(), 600);
    std::thread::scope(|scope| {
        for walker in 0..8 {
            let below = mounted.path((walker % 2).to_string());
            let (expected, walk) = (&expected, &walk);
            scope.spawn(move || {
                for _ in 0..3 {
                    assert_eq!(walk(&below), *expected);
                }
            });
        }
        for _ in 0..3 {
            // While the kernel forgets, where it may be asked to.
            let _ = drop_caches("2");
            for command in ["find $M -ls", "diff -r $M/0 $M/1", "grep -rc contents $M", "ls -lR $M"]
            {
                mounted.shell(&format!("{command} > /dev/null"));
            }
        }
    });
}

#[test]
fn nodes_stay_bounded_however_much_is_visited() {
    // Names of which each is visited once, twenty times as many as may stay.
    const MAX: usize = 1000;
    let memory = Memory::with([("0", many(400, 50))]);
    let options = MountOptions { max_nodes: MAX, ..MountOptions::default() };
    let Some(mounted) = mount_with(&memory, options) else { return };
    let inside = Shell::at(&mounted.path("0/d1"));
    let held = fs::File::open(mounted.path("0/d2/f3")).unwrap();
    for directory in 0..400 {
        let path = mounted.path(format!("0/d{directory}"));
        for file in fs::read_dir(&path).unwrap() {
            assert!(file.unwrap().metadata().unwrap().is_file());
        }
    }
    if mounted.mount().counts().pruned == 0 {
        return not_run("the kernel is asked to forget by Linux 6.18 and later");
    }
    // Forgetting takes a moment, in which the walk went on.
    eventually("the kernel forgets", || {
        // Every look wakes whoever asks it to.
        assert!(mounted.path("0/d3").is_dir());
        mounted.mount().live_nodes() < 2 * MAX
    });
    assert!(mounted.mount().counts().forgotten > 10_000);
    let place = mounted.path("0/d1");
    assert!(inside.finish().starts_with(&format!("{}\nf0\n", place.display())));
    assert_eq!(std::io::read_to_string(held).unwrap(), "contents 2 3\n");
    assert_eq!(mounted.shell("cat $M/0/d*/f* | wc -l"), "20000");
}
