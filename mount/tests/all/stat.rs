//! The entries as programs see them: kinds, attributes, xattrs.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nono_mount::{Device, MountOptions, Owner};
use rustix::mount::{MountFlags, mount_remount};

use crate::fixture::{mount, mount_with};
use crate::memory::{Memory, Spec, What, dir, file, symlink};
use crate::not_run::needs_root;

fn every_kind() -> Spec {
    let device = Device { major: 10, minor: 300 };
    let mut odd = file("odd");
    odd.mode = 0o4751;
    odd.uid = 1234;
    odd.gid = 4321;
    odd.mtime = (-5, 250_000_000);
    let mut hard = file("linked");
    hard.links = 2;
    hard.group = Some("pair");
    dir([
        (&b"empty"[..], dir::<&str>([])),
        (b"file", file("hello\n")),
        (b"odd", odd),
        (b"hard1", hard.clone()),
        (b"hard2", hard),
        (b"link", symlink("file")),
        (b"fifo", Spec::new(What::Fifo)),
        (b"socket", Spec::new(What::Socket)),
        (b"char", Spec::new(What::CharDevice(device))),
        (b"block", Spec::new(What::BlockDevice(device))),
        (b"sub", dir([("deep", file("deep\n"))])),
        (b"not \xff utf8\n", file("bytes")),
    ])
}

#[test]
fn every_kind_of_entry_is_shown_as_it_was_captured() {
    let Some(mounted) = mount(&Memory::with([("0", every_kind())])) else { return };
    let stat = |name: &str| fs::symlink_metadata(mounted.path("0").join(name)).unwrap();

    assert_eq!(fs::read(mounted.path("0/file")).unwrap(), b"hello\n");
    assert_eq!(stat("file").len(), 6);
    assert_eq!(stat("file").blocks(), 1);
    assert_eq!((stat("file").mtime(), stat("file").mtime_nsec()), (1_700_000_000, 123_456_789));
    assert_eq!(stat("file").ctime_nsec(), 123_456_789);
    assert_eq!(stat("odd").mode() & 0o7777, 0o4751);
    assert_eq!((stat("odd").uid(), stat("odd").gid()), (1234, 4321));
    assert_eq!((stat("odd").mtime(), stat("odd").mtime_nsec()), (-5, 250_000_000));
    assert_eq!(stat("hard1").nlink(), 2);
    assert_eq!(stat("hard1").ino(), stat("hard2").ino());
    assert_eq!(stat("empty").nlink(), 1);
    assert_eq!(fs::read_link(mounted.path("0/link")).unwrap().to_str(), Some("file"));
    assert!(stat("fifo").file_type().is_fifo());
    assert!(stat("socket").file_type().is_socket());
    assert!(stat("char").file_type().is_char_device());
    assert!(stat("block").file_type().is_block_device());
    assert_eq!(stat("char").rdev(), rustix::fs::makedev(10, 300));
    let listed = fs::read_dir(mounted.path("0")).unwrap().map(|entry| {
        let entry = entry.unwrap();
        assert_eq!(entry.file_type().unwrap(), entry.metadata().unwrap().file_type());
        entry.file_name().into_encoded_bytes()
    });
    let mut listed: Vec<_> = listed.collect();
    listed.sort();
    let What::Directory(entries) = every_kind().kind else { unreachable!() };
    assert_eq!(listed, entries.into_keys().collect::<Vec<_>>());
}

#[test]
fn the_mount_is_read_only_and_honours_neither_setuid_nor_devices() {
    let Some(mounted) = mount(&Memory::with([("0", every_kind())])) else { return };
    let line = mounted.shell("grep \" $M \" /proc/self/mountinfo");
    for option in ["ro", "nosuid", "nodev", "noatime"] {
        let options = line.split(' ').nth(5).unwrap();
        assert!(options.split(',').any(|found| found == option), "{option}: {line}");
    }
    assert!(line.contains("default_permissions"), "{line}");
    assert_eq!(mounted.shell("stat -fc '%T %b %c' $M"), "fuseblk 256 1000");
}

#[test]
fn everything_that_would_change_the_past_fails_with_erofs() {
    let Some(mounted) = mount(&Memory::with([("0", every_kind())])) else { return };
    let script = r#"
        cd "$M/0"
        for change in 'echo x | dd conv=notrunc oflag=append of=file' 'echo x > new' 'touch file' \
            'chmod 600 file' 'chown 1 file' \
            'rm file' 'rmdir empty' 'mkdir new' 'mv file other' 'ln file other' 'ln -s a other' \
            'mknod other p' 'truncate -s 0 file' 'setfattr -n user.a -v b file' \
            'setfattr -x user.a file'
        do
            if sh -c "$change" 2> "$OLDPWD/said"; then echo "$change worked"; fi
            grep -q 'Read-only file system' "$OLDPWD/said" ||
                { echo "$change:"; cat "$OLDPWD/said"; }
        done"#;
    assert_eq!(mounted.shell(script), "");
    // The kernel refused all that, because the mount is read-only. Without that, the mount does.
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    if let Err(error) = mount_remount(&mounted.point, flags, c"") {
        return needs_root(format_args!("mounts it writable: {error}"));
    }
    let before = mounted.mount().counts();
    assert_eq!(mounted.shell(script), "");
    assert!((mounted.mount().counts() - before).refused > 10);
}

#[test]
fn files_can_belong_to_whoever_mounts() {
    let owner = Owner::Me { uid: 77, gid: 88 };
    let options = MountOptions { owner, ..MountOptions::default() };
    let Some(mounted) = mount_with(&Memory::with([("0", every_kind())]), options) else { return };
    assert_eq!(mounted.shell("stat -c '%u %g' $M $M/0 $M/0/odd | sort -u"), "77 88");
}

/// `user::rw-,user:1000:r--,group::---,mask::r--,other::---`
fn access_acl() -> Vec<u8> {
    let mut acl = 2_u32.to_le_bytes().to_vec();
    let none = u32::MAX;
    for (tag, permissions, id) in
        [(1_u16, 6_u16, none), (2, 4, 1000), (4, 0, none), (0x10, 4, none), (0x20, 0, none)]
    {
        acl.extend_from_slice(&tag.to_le_bytes());
        acl.extend_from_slice(&permissions.to_le_bytes());
        acl.extend_from_slice(&id.to_le_bytes());
    }
    acl
}

#[test]
fn xattrs_and_acls_are_shown_as_captured_and_missing_ones_are_missing() {
    let mut with_xattrs = file("x");
    with_xattrs.mode = 0o640;
    with_xattrs.xattrs = vec![
        ("system.posix_acl_access", access_acl()),
        ("user.colour", b"blue".to_vec()),
        ("user.empty", Vec::new()),
    ];
    let memory = Memory::with([("0", dir([("with", with_xattrs), ("without", file("y"))]))]);
    let Some(mounted) = mount(&memory) else { return };

    assert_eq!(mounted.shell("getfattr -n user.colour --only-values $M/0/with"), "blue");
    assert_eq!(
        mounted.shell("getfattr --absolute-names -m - -d $M/0/with | grep -v '^#' | cut -d= -f1"),
        "system.posix_acl_access\nuser.colour\nuser.empty"
    );
    assert_eq!(
        mounted.shell("getfacl -cpn $M/0/with"),
        "user::rw-\nuser:1000:r--\ngroup::---\nmask::r--\nother::---"
    );
    assert_eq!(mounted.shell("getfattr -m - -d $M/0/without"), "");
    let missing = mounted.output("getfattr", &[&"-n", &"user.no", &mounted.path("0/without")]);
    assert!(String::from_utf8_lossy(&missing.stderr).contains("No such attribute"));
    // A missing name turned nothing off.
    assert_eq!(mounted.shell("getfattr -n user.colour --only-values $M/0/with"), "blue");

    let hash = "getfattr -n user.nono.sha256 --only-values";
    assert_eq!(mounted.shell(&format!("{hash} $M/0/with")).len(), 64);
    let directory = mounted.output("getfattr", &[&"-n", &"user.nono.sha256", &mounted.path("0")]);
    assert!(String::from_utf8_lossy(&directory.stderr).contains("No such attribute"));
}

/// Everything a copy must keep of what is below `directory`, a line for each path.
fn describe(directory: &Path, sockets: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(path) = pending.pop() {
        let stat = fs::symlink_metadata(&path).unwrap();
        let kind = stat.file_type();
        if kind.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if kind.is_socket() && !sockets {
            continue;
        }
        let links = if kind.is_dir() { 1 } else { stat.nlink() };
        let target = kind.is_symlink().then(|| fs::read_link(&path).unwrap());
        let bytes = kind.is_file().then(|| fs::read(&path).unwrap());
        lines.push(format!(
            "{:?} {kind:?} {:o} {} {} {}.{} {links} {} {target:?} {bytes:?}",
            path.strip_prefix(directory).unwrap(),
            stat.mode(),
            stat.uid(),
            stat.gid(),
            stat.mtime(),
            stat.mtime_nsec(),
            stat.rdev(),
        ));
    }
    lines.sort();
    lines
}

#[test]
fn copies_by_cp_and_tar_are_equal_to_what_is_mounted() {
    let mut spec = every_kind();
    let What::Directory(entries) = &mut spec.kind else { unreachable!() };
    entries.get_mut(&b"file"[..]).unwrap().xattrs = vec![("user.colour", b"blue".to_vec())];
    if !rustix::process::geteuid().is_root() {
        // Only root can make these again.
        entries.retain(|name, _| !matches!(&**name, b"odd" | b"char" | b"block"));
    }
    let Some(mounted) = mount(&Memory::with([("0", spec)])) else { return };
    let copied = mounted.scratch.path().join("copied");
    let unpacked = mounted.scratch.path().join("unpacked");
    mounted.shell(
        "cp -a $M/0 copied; mkdir unpacked
         tar cf archive --format=posix --xattrs -C $M/0 .; tar xpf archive --xattrs -C unpacked",
    );
    let original = mounted.path("0");
    assert_eq!(describe(&copied, true), describe(&original, true));
    assert_eq!(describe(&unpacked, false), describe(&original, false));
    for copy in ["copied", "unpacked"] {
        let colour = format!("getfattr -d {copy}/file | grep -v '^#'");
        assert_eq!(mounted.shell(&colour), "user.colour=\"blue\"");
    }
}

#[test]
fn programs_that_trust_nlink_of_directories_see_all_of_them() {
    let tree = dir([("a", dir([("b", dir([("c", dir([("deep", file("x"))]))]))]))]);
    let Some(mounted) = mount(&Memory::with([("0", tree)])) else { return };
    let script = "perl -MFile::Find -e 'find(sub { print \"$_ \" }, @ARGV)' $M/0";
    assert_eq!(mounted.shell(script), ". a b c deep");
}
