//! Paths that cannot be moved or written: they are found before the first change and named, and the
//! rest is restored where that is asked for.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use crate::fixture::Fixture;
use crate::not_run::needs_root;
use crate::observe::{assert_same, observe};
use crate::trouble::chattr;

/// A project of an ordinary user with a file at the top and one in a directory, both changed.
fn changed() -> Fixture {
    let fixture = Fixture::ordinary_user();
    for name in ["top", "d/file", "d/gone", "e/file"] {
        fixture.write(name, "first");
    }
    fixture.record("echo second > top; echo second > d/file; rm d/gone; echo second > e/file");
    assert_eq!(read(&fixture, "d/file"), "second\n");
    fixture
}

fn read(fixture: &Fixture, name: &str) -> String {
    fs::read_to_string(fixture.project().join(name)).unwrap()
}

/// Makes a path unchangeable for an ordinary user, or changeable again.
type Block = fn(&Path, bool) -> bool;

/// The obstacles: of what, the path that is named with the reason, and the file that stays.
const OBSTACLES: [(&str, &str, &str, &str, Block); 5] = [
    ("a directory of root", "d", "belongs to user 0", "d/file", |path, is_blocked| {
        let owner = if is_blocked { 0 } else { 54321 };
        chown(path, Some(owner), Some(owner)).is_ok()
    }),
    ("an immutable file", "d/file", "immutable", "d/file", |path, is_blocked| {
        chattr(if is_blocked { "+i" } else { "-i" }, path)
    }),
    ("an append-only file", "d/file", "append-only", "d/file", |path, is_blocked| {
        chattr(if is_blocked { "+a" } else { "-a" }, path)
    }),
    ("an immutable directory", "d", "immutable", "d/file", |path, is_blocked| {
        chattr(if is_blocked { "+i" } else { "-i" }, path)
    }),
    ("a file of root in a sticky directory", "d/file", "sticky bit", "d/file", |path, it| {
        let directory = path.parent().unwrap();
        let (owner, mode) = if it { (0, 0o1777) } else { (54321, 0o755) };
        chown(directory, Some(owner), Some(owner)).is_ok()
            && fs::set_permissions(directory, Permissions::from_mode(mode)).is_ok()
            && chown(path, Some(owner), Some(owner)).is_ok()
    }),
];

#[test]
fn what_cannot_be_changed_is_named_first_and_the_rest_is_restored_on_demand() {
    if !rustix::process::geteuid().is_root() {
        needs_root("makes paths that an ordinary user cannot change");
        return;
    }
    for (what, name, reason, stays, block) in OBSTACLES {
        let fixture = changed();
        let path = fixture.project().join(name);
        if !block(&path, true) {
            return;
        }
        let before = observe(&fixture.project());
        let named = fixture.project().join(stays);
        // The owner of a path is a later change.
        let undo = ["undo", "--yes", "--force"];
        let refused = fixture.nono(&undo).fails(1, "nothing was changed");
        let said = format!("{what}: {}", refused.stderr);
        assert!(refused.says(&format!("{}: ", named.display())), "{said}");
        assert!(refused.says(reason) && refused.says("--skip-blocked"), "{said}");
        assert!(!refused.says(".nono-restore-"), "{said}");
        assert_same(&before, &observe(&fixture.project()));
        let planned = fixture.nono(&["undo", "--dry-run", "--force"]);
        assert!(planned.code == 1 && planned.says(reason), "{what}: {}", planned.stderr);
        let rest = fixture.nono(&[&undo[..], &["--skip-blocked"]].concat());
        let said = format!("{what}: {}{}", rest.stdout, rest.stderr);
        assert!(rest.code == 1 && rest.says(reason), "{said}");
        assert_eq!(
            (read(&fixture, "top"), read(&fixture, "e/file")),
            ("first".into(), "first".into())
        );
        assert_eq!(read(&fixture, stays), "second\n", "{said}");
        block(&path, false);
        // Once it can be changed, the same command does it.
        fixture.nono(&undo).success();
        assert_eq!(
            (read(&fixture, stays), read(&fixture, "d/gone")),
            ("first".into(), "first".into())
        );
    }
}

#[test]
fn files_below_a_project_that_cannot_be_written_itself_are_restored() {
    if !rustix::process::geteuid().is_root() {
        needs_root("makes a project that an ordinary user cannot write");
        return;
    }
    let fixture = Fixture::ordinary_user();
    fixture.write("d/file", "first");
    fixture.write("e/file", "first");
    for owned in ["", "e"] {
        chown(fixture.project().join(owned), Some(0), Some(0)).unwrap();
    }
    let before = observe(&fixture.project());
    fixture.record("echo second > d/file; echo new > d/new; echo second > e/file").success();
    fixture.nono(&["undo", "--yes"]).fails(1, "may not be written");
    let rest = fixture.nono(&["undo", "--yes", "--skip-blocked"]);
    let said = format!("{}{}", rest.stdout, rest.stderr);
    assert!(rest.code == 1 && said.contains("may not be written"), "{said}");
    assert_eq!(
        (read(&fixture, "d/file"), read(&fixture, "e/file")),
        ("first".into(), "second\n".into())
    );
    assert!(!fixture.project().join("d/new").exists());
    chown(fixture.project().join("e"), Some(54321), Some(54321)).unwrap();
    // The owner of the directory is root's to change.
    fixture.nono(&["undo", "--yes", "--force"]);
    chown(fixture.project().join("e"), Some(0), Some(0)).unwrap();
    let now = observe(&fixture.project());
    assert_eq!(before[Path::new("d/file")], now[Path::new("d/file")]);
    assert_eq!(before[Path::new("e/file")], now[Path::new("e/file")]);
}
