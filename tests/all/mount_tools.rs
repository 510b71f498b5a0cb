//! Programs that others wrote, on a store that is mounted: each is a judge that knows nothing of
//! us.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::mount::World;
use crate::not_run::{needs_root, not_run};

fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        not_run(format_args!("{program} is not installed"));
    }
    found
}

fn shell_in(directory: &Path, script: &str) {
    let mut command = Command::new("sh");
    command.args(["-euc", script]).current_dir(directory).env("HOME", directory);
    let output = command.env("GIT_CONFIG_NOSYSTEM", "1").output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
}

#[test]
fn git_finds_a_repository_of_the_past_whole_and_unchanged() {
    if !is_installed("git") {
        return;
    }
    let build = |project: &Path| {
        shell_in(
            project,
            "git init -q -b main; git config user.name t; git config user.email t@example.org
             mkdir -p src/deep; for i in 1 2 3; do
               seq $i 500 > src/deep/file$i; ln -sf file$i src/deep/link; git add -A
               git commit -qm \"commit $i\"
             done; git gc -q; echo more > src/new; git add -A; git commit -qm last",
        );
    };
    let Some(world) = World::new(build) else { return };
    let git = |words: &str| {
        world.shell(&format!(
            r#"export HOME="$PWD" GIT_CONFIG_NOSYSTEM=1 GIT_OPTIONAL_LOCKS=0
               git config --global safe.directory '*'; git -C "$A" {words}"#
        ))
    };
    git("fsck --full --strict --no-progress");
    assert_eq!(git("log --format=%s"), "last\ncommit 3\ncommit 2\ncommit 1");
    assert_eq!(git("status --porcelain"), "");
    assert_eq!(
        git("diff HEAD~1 --stat --format= -- src/new | tail -1"),
        " 1 file changed, 1 insertion(+)"
    );
    world.shell(r#"git clone -q "$A" clone && diff -r "$A/src" clone/src"#);
}

#[test]
fn rsync_finds_nothing_to_copy_with_all_attributes_compared() {
    if !is_installed("rsync") {
        return;
    }
    let Some(world) = World::new(|project| {
        crate::mount::varied(project);
        attributes(project);
    }) else {
        return;
    };
    let changes = world.shell(r#"rsync -aHAXni --checksum --delete "$P/" "$A/""#);
    assert_eq!(changes, "");
    let back =
        world.shell(r#"rsync -aHAX "$A/" back/; rsync -aHAXni --checksum --delete "$P/" back/"#);
    assert_eq!(back, "");
}

/// Xattrs and ACLs, where the file system of the tests has them.
fn attributes(project: &Path) {
    let set = "setfattr -n user.colour -v blue src/main.c && setfattr -n user.empty src
               setfacl -m u:54321:rw,g:54322:r src/main.c && setfacl -d -m u:54321:rwx src/deep";
    let mut command = Command::new("sh");
    let done = command.args(["-c", set]).current_dir(project).output().unwrap();
    if !done.status.success() {
        not_run(format_args!("no xattrs or ACLs: {done:?}"));
    }
}

#[test]
fn xattrs_and_acls_are_shown_as_captured() {
    if !is_installed("getfattr") || !is_installed("getfacl") {
        return;
    }
    let Some(world) = World::new(|project| {
        crate::mount::varied(project);
        attributes(project);
    }) else {
        return;
    };
    for list in ["getfattr -hRd -m - .", "getfacl -nR ."] {
        let of =
            |place: &str| world.shell(&format!("cd \"${place}\"; {list} 2>&1 | LC_ALL=C sort"));
        assert_eq!(of("A"), of("P"), "{list}");
    }
    // The hash is answered, and not listed, so that no copy carries it along.
    let sums = r#"getfattr --only-values -n user.nono.sha256 "$A/src/large"; echo; sha256sum < "$P/src/large" | cut -c-64"#;
    let sums = world.shell(sums);
    let (shown, counted) = sums.split_once('\n').unwrap();
    assert_eq!(shown, counted);
    let missing = world.output(r#"getfattr -n user.nothing "$A/src/main.c""#);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("No such attribute"), "{missing:?}");
}

#[test]
fn an_overlay_makes_a_writable_copy_of_the_past() {
    if !rustix::process::geteuid().is_root() {
        needs_root("mounts an overlay");
        return;
    }
    let Some(world) = World::new(crate::mount::varied) else { return };
    let said = world.output(
        r#"unshare -m sh -euc '
             mkdir over; mount -t tmpfs tmpfs over; cd over; mkdir upper work merged
             mount -t overlay overlay -o lowerdir="$A",upperdir=upper,workdir=work merged
             cd merged; diff -r --no-dereference -x fifo . "$P"
             echo more >> src/main.c; rm src/run; mv src/deep src/moved; mkdir new; echo x > new/file
             tail -1 src/main.c; cat new/file; ls src/moved; test ! -e src/run'
           grep -c more "$A/src/main.c" || true; ls "$A/src/run" > /dev/null"#,
    );
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.status.success(), "{said:?}");
    assert_eq!(text, "more\nx\ndeeper\n0\n");
}

#[test]
fn python_sees_equal_trees() {
    if !is_installed("python3") {
        return;
    }
    const COMPARE: &str = r#"
import os, stat, sys
def tree(top):
    found = {}
    for directory, names, leaves in os.walk(os.fsencode(top), onerror=lambda error: sys.exit(error)):
        for name in names + leaves:
            path = os.path.join(directory, name)
            s = os.lstat(path)
            data = os.readlink(path) if stat.S_ISLNK(s.st_mode) else b""
            if stat.S_ISREG(s.st_mode):
                with open(path, "rb") as file: data = file.read()
                assert s.st_blocks * 512 >= min(s.st_size, 1), path
            size = None if stat.S_ISDIR(s.st_mode) else (s.st_size, s.st_nlink)
            xattrs = sorted(os.listxattr(path, follow_symlinks=False))
            found[os.path.relpath(path, os.fsencode(top))] = (
                s.st_mode, s.st_uid, s.st_gid, s.st_mtime_ns, size, data, xattrs)
    return found
live, past = tree(os.environ["P"]), tree(os.environ["A"])
assert live.keys() == past.keys(), live.keys() ^ past.keys()
for path in live: assert live[path] == past[path], (path, live[path], past[path])
print(len(past))
"#;
    let Some(world) = World::new(crate::mount::varied) else { return };
    fs::write(world.base.join("compare.py"), COMPARE).unwrap();
    let count = world.shell(r#"find "$P" -mindepth 1 -printf . | wc -c"#);
    assert_eq!(world.shell("python3 ../compare.py"), count);
}

#[test]
fn fio_verifies_what_it_wrote_before() {
    if !is_installed("fio") {
        return;
    }
    const WRITE: &str =
        "fio --name=past --filename=file --size=6m --bs=64k --verify=crc32c --thread --minimal";
    let build = |project: &Path| {
        shell_in(project, &format!("{WRITE} --rw=write --do_verify=0 > /dev/null; rm -f *.state"));
    };
    let Some(world) = World::new(build) else { return };
    for order in ["read", "randread"] {
        world.shell(&format!(
            "cd \"$A\"; {WRITE} --rw={order} --readonly --aux-path=\"$OLDPWD\" > \"$OLDPWD/said\""
        ));
    }
}

#[test]
fn a_mount_inside_its_own_source_is_not_captured() {
    let Some(mut world) = World::new(|project| {
        fs::create_dir(project.join("past")).unwrap();
        fs::write(project.join("file"), "text").unwrap();
    }) else {
        return;
    };
    world.mount.take();
    let Some(_inside) = crate::mount::mount(&world.base.join("store"), &world.project.join("past"))
    else {
        return;
    };
    assert_eq!(world.shell(r#"ls "$P/past" | wc -l"#), "3");
    world.snapshot();
    let listed = world.shell(r#"cd "$P/past/latest/latest/$P"; find . | sort | tr '\n' ' '"#);
    assert_eq!(listed, ". ./file ./past");
}
