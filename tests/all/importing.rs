//! Sessions of the other nono: one that its version 0.66.0 made, taken over as it is, moved onto a
//! project that exists, with the lists of symlinks that its version 0.70 writes, damaged, and made
//! hostile.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use nono_engine::object::ContentHash;
use serde_json::Value;

use crate::fixture::{Finished, Fixture};

const ID: &str = "852ea2e914272a29";
/// The tracked path of the sample.
const SHOP: &str = "/srv/demo/shop";
const README: &str = "ae/930d477cc586a9cb4f4d18f163d8ec439ed6d30b6f3b4b6d35a54b89eccf7e";

fn sample() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/other-nono-0.66.0")
}

/// A copy of the sample, with its tracked path in place of the recorded one.
fn copy(fixture: &Fixture, tracked: &str) -> PathBuf {
    let place = fixture.path("rollbacks");
    let copied = Command::new("cp").arg("-r").arg(sample()).arg(&place).status().unwrap();
    assert!(copied.success());
    let session = place.join(ID);
    for name in ["session.json", "snapshots/000.json", "snapshots/001.json"] {
        edit(&session.join(name), SHOP, tracked);
    }
    seal(&session);
    session
}

/// Puts the Merkle roots of the lists into the documents, as the other program computes them.
fn seal(session: &Path) {
    for name in ["000.json", "001.json"] {
        let path = session.join("snapshots").join(name);
        let document: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let files = document["files"].as_object().unwrap();
        let hash = |parts: &[&[u8]]| ContentHash::of(&parts.concat());
        let mut sorted: Vec<_> = files.iter().collect();
        sorted.sort_by_key(|(path, _)| Path::new(path.as_str()));
        let mut level: Vec<ContentHash> = sorted
            .into_iter()
            .map(|(path, file)| {
                let content: ContentHash = serde_json::from_value(file["hash"].clone()).unwrap();
                hash(&[&[0], path.as_bytes(), content.as_bytes()])
            })
            .collect();
        while level.len() > 1 {
            let up = |pair: &[ContentHash]| match pair {
                [left, right] => hash(&[&[1], left.as_bytes(), right.as_bytes()]),
                _ => pair[0],
            };
            level = level.chunks(2).map(up).collect();
        }
        let (old, new) = (document["merkle_root"].as_str().unwrap(), level[0].hex());
        edit(&path, old, &new);
        edit(&session.join("session.json"), old, &new);
    }
}

/// Adds the list of symlinks of version 0.70 to a snapshot.
fn list_symlinks(session: &Path, snapshot: &str, symlinks: &[PathBuf]) {
    let list = serde_json::to_string(symlinks).unwrap();
    let path = session.join("snapshots").join(snapshot);
    edit(&path, "\"parent\":", &format!("\"symlinks\": {list}, \"parent\":"));
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{from:?} is not in {}", path.display());
    fs::write(path, text.replace(from, to)).unwrap();
}

fn import(fixture: &Fixture, source: &Path) -> Finished {
    fixture.nono(&["import", "--json", source.to_str().unwrap()])
}

fn project_text(fixture: &Fixture) -> String {
    fixture.project().to_str().unwrap().to_owned()
}

/// The project as it was after the command of the sample.
fn state_after(fixture: &Fixture) {
    fixture.write("src/cart.py", "def total(p):\n    return max(p)\n");
    fixture.write("src/test_cart.py", "def t(): pass\n");
    let script = fixture.write("src/run.sh", "x\n");
    fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_session_of_the_other_nono_comes_with_its_id_its_command_and_its_times() {
    let fixture = Fixture::new();
    let report = import(&fixture, &sample()).success().json();
    let session = &report["sessions"][0];
    assert_eq!(session["session_id"], ID);
    assert_eq!(session["outcome"], "imported");
    assert_eq!(session["snapshot_count"], 2);
    assert_eq!(session["objects_checked"], 5);
    assert_eq!(session["problems"], Value::Array(vec![]));
    assert!(session["not_known"].as_array().unwrap().len() > 4);

    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    let listed = &list[0];
    assert_eq!(listed["session_id"], ID);
    assert_eq!(listed["started"], "2026-11-23T14:00:52.569613137Z");
    assert_eq!(listed["ended"], "2026-11-23T14:00:52.588183662Z");
    assert_eq!(listed["command"][0], "sh");
    assert_eq!(listed["exit_code"], 0);
    assert_eq!(listed["status"], "completed");
    assert_eq!(listed["tracked_paths"][0], SHOP);
    let changes = &listed["changes"];
    let counted: Vec<_> = ["created", "modified", "deleted", "permissions_changed"]
        .iter()
        .map(|kind| changes[kind].as_u64().unwrap())
        .collect();
    assert_eq!(counted, [1, 1, 1, 1], "{changes}");

    let shown = fixture.nono(&["rollback", "show", ID, "--json"]).success().json();
    let told: Vec<_> = shown["snapshots"][1]["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| (change["path"].as_str().unwrap(), change["change_type"].as_str().unwrap()))
        .collect();
    let in_shop = |name: &str| format!("{SHOP}/{name}");
    let expected = [
        (in_shop("README.md"), "deleted"),
        (in_shop("src/cart.py"), "modified"),
        (in_shop("src/run.sh"), "permissions_changed"),
        (in_shop("src/test_cart.py"), "created"),
    ];
    assert_eq!(told, expected.each_ref().map(|(path, kind)| (path.as_str(), *kind)));
    let left_out = shown["snapshots"][0]["not_captured"].to_string();
    assert!(left_out.contains("the program that recorded it"), "{left_out}");
}

#[test]
fn an_imported_session_is_read_verified_and_copied_out_like_any_other() {
    let fixture = Fixture::new();
    import(&fixture, &sample()).success();
    let verified = fixture.nono(&["rollback", "verify", ID, "--json"]).success().json();
    assert_eq!(verified["ok"], true, "{verified}");
    let cat = fixture.nono(&["rollback", "cat", &format!("{ID}/0"), &format!("{SHOP}/README.md")]);
    assert_eq!(cat.success().stdout, "# Shop\n");
    let diff = fixture.nono(&["rollback", "diff", ID]).success();
    assert!(diff.says("-    return sum(p)") && diff.says("+    return max(p)"), "{}", diff.stdout);
    let copy = fixture.path("copy");
    fixture.nono(&["rollback", "restore", ID, "--to", copy.to_str().unwrap()]).success();
    assert_eq!(fs::read_to_string(copy.join("README.md")).unwrap(), "# Shop\n");
    assert!(!copy.join("src/test_cart.py").exists());
    let mode = fs::metadata(copy.join("src/run.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o644);
}

#[test]
fn a_second_import_changes_nothing() {
    let fixture = Fixture::new();
    import(&fixture, &sample()).success();
    let manifest = fixture.store().join(ID).join("manifest.json");
    let before = fs::read(&manifest).unwrap();
    let again = import(&fixture, &sample().join(ID)).success().json();
    assert_eq!(again["sessions"][0]["outcome"], "already_here");
    assert_eq!(fs::read(&manifest).unwrap(), before);
}

#[test]
fn a_restore_undoes_the_recorded_command_and_leaves_what_the_record_does_not_name() {
    let fixture = Fixture::new();
    state_after(&fixture);
    // The other program left these out, or they came later: it is unknown.
    fixture.write(".env", "SECRET=1\n");
    fixture.write("node_modules/a/index.js", "x\n");
    fixture.write("src/later.py", "later\n");
    symlink("src", fixture.project().join("link")).unwrap();
    let session = copy(&fixture, &project_text(&fixture));
    import(&fixture, &session).success();

    let done = fixture.nono(&["rollback", "restore", ID, "--force", "--json"]).success().json();
    assert_eq!(done["skipped"].to_string(), "[]", "{done}");
    let read = |name: &str| fs::read_to_string(fixture.project().join(name)).unwrap();
    assert_eq!(read("README.md"), "# Shop\n");
    assert_eq!(read("src/cart.py"), "def total(p):\n    return sum(p)\n");
    assert!(!fixture.project().join("src/test_cart.py").exists(), "the command created it");
    assert_eq!(read(".env"), "SECRET=1\n");
    assert_eq!(read("node_modules/a/index.js"), "x\n");
    assert_eq!(read("src/later.py"), "later\n");
    assert!(fixture.project().join("link").is_symlink());

    // And forward again.
    fixture.nono(&["rollback", "restore", ID, "--snapshot", "1", "--force"]).success();
    assert!(!fixture.project().join("README.md").exists());
    assert_eq!(read("src/test_cart.py"), "def t(): pass\n");
    assert_eq!(read(".env"), "SECRET=1\n");
    fixture.nono(&["rollback", "verify", ID]).success();
}

#[test]
fn attributes_that_the_record_lacks_stay_as_they_are_on_the_disk() {
    let fixture = Fixture::new();
    state_after(&fixture);
    fs::set_permissions(fixture.project().join("src"), fs::Permissions::from_mode(0o750)).unwrap();
    let session = copy(&fixture, &project_text(&fixture));
    import(&fixture, &session).success();
    fixture.nono(&["rollback", "restore", ID, "--snapshot", "1", "--force"]).success();
    let src = fs::metadata(fixture.project().join("src")).unwrap();
    assert_eq!(src.permissions().mode() & 0o7777, 0o750);
}

#[test]
fn a_session_without_its_document_is_imported_as_interrupted() {
    let fixture = Fixture::new();
    let session = copy(&fixture, SHOP);
    fs::remove_file(session.join("session.json")).unwrap();
    let report = import(&fixture, &session).success().json();
    assert_eq!(report["sessions"][0]["lacks_session_document"], true);
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["session_id"], ID);
    assert_eq!(list[0]["status"], "interrupted");
    assert_eq!(list[0]["command"], Value::Array(vec![]));
    // The deepest directory of all files.
    assert_eq!(list[0]["tracked_paths"][0], SHOP);
}

#[test]
fn the_usual_place_is_found_and_sessions_are_pinned_unless_told_otherwise() {
    let fixture = Fixture::new();
    let state = fixture.path("home/.local/state/nono");
    fs::create_dir_all(&state).unwrap();
    let copied = Command::new("cp").arg("-r").arg(sample()).arg(state.join("rollbacks")).status();
    assert!(copied.unwrap().success());
    fixture.nono(&["import"]).success();
    let list = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["pinned"], true);

    let other = Fixture::new();
    other.nono(&["import", "--no-pin", sample().to_str().unwrap()]).success();
    let list = other.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(list[0]["pinned"], false);
    other.nono(&["import"]).fails(1, "there are no sessions of the other nono at");
}

#[test]
fn a_damaged_object_and_a_symlink_in_place_of_one_are_named_and_left_out() {
    for damage in ["bytes", "symlink", "missing", "fifo"] {
        let fixture = Fixture::new();
        let session = copy(&fixture, SHOP);
        let object = session.join("objects").join(README);
        fs::remove_file(&object).unwrap();
        match damage {
            "bytes" => fs::write(&object, "# Shoq\n").unwrap(),
            "symlink" => {
                let secret = fixture.path("secret");
                fs::write(&secret, "# Shop\n").unwrap();
                symlink(&secret, &object).unwrap();
            }
            "fifo" => {
                assert!(Command::new("mkfifo").arg(&object).status().unwrap().success());
            }
            _ => {}
        }
        let done = import(&fixture, &session);
        assert_eq!(done.code, 1, "{damage}: {}", done.stderr);
        let report = done.json();
        let problems = report["sessions"][0]["problems"].as_array().unwrap().clone();
        assert_eq!(problems.len(), 1, "{damage}: {problems:?}");
        assert_eq!(problems[0]["path"], format!("{SHOP}/README.md"));
        fixture.nono(&["rollback", "verify", ID]).success();
        let shown = fixture.nono(&["rollback", "show", ID, "--json"]).success().json();
        let left_out = shown["snapshots"][0]["not_captured"].to_string();
        assert!(left_out.contains("README.md") && left_out.contains("its object"), "{left_out}");
    }
}

#[test]
fn hostile_documents_give_a_clear_error_and_no_session() {
    let shop = format!("{SHOP}/README.md");
    let attacks: &[(&str, &str, &str, &str)] = &[
        (
            "snapshots/000.json",
            &shop,
            "/srv/demo/shop/../../../etc/passwd",
            "not absolute and plain",
        ),
        ("snapshots/000.json", &shop, "relative/README.md", "not absolute and plain"),
        ("snapshots/000.json", "\"number\": 0", "\"number\": 7", "says that it is snapshot 7"),
        (
            "snapshots/000.json",
            "\"timestamp\": \"1795442452\"",
            "\"timestamp\": \"never\"",
            "000.json",
        ),
        ("snapshots/000.json", "ae930d", "zz930d", "000.json"),
        ("session.json", "\"852ea2e914272a29\"", "\"../../escape\"", "cannot be the id"),
        ("session.json", "\"852ea2e914272a29\"", "\"objects\"", "cannot be the id"),
        ("session.json", "\"852ea2e914272a29\"", "\"latest\"", "cannot be the id"),
        ("session.json", "\"/srv/demo/shop\"", "\"/\"", "not absolute and plain"),
        ("session.json", "c589c5ef", "d589c5ef", "Merkle root"),
    ];
    for (document, from, to, message) in attacks {
        let fixture = Fixture::new();
        let session = copy(&fixture, SHOP);
        edit(&session.join(document), from, to);
        import(&fixture, &session).fails(1, message);
        let list = fixture.nono(&["rollback", "list", "--all", "--json"]).success().json();
        assert_eq!(list, Value::Array(vec![]), "{to}");
    }
}

#[test]
fn a_list_of_files_that_does_not_have_its_merkle_root_is_refused() {
    const CART: &str = "22827bebf8f1101f456f825e845bbcc48893a95a1da138006c1ddce127b6c3ee";
    const RUN: &str = "73cb3858a687a8494ca3323053016282f3dad39d42cf62ca4e79dda2aac7d9ac";
    let cart = format!("{SHOP}/src/cart.py");
    let elsewhere = format!("{SHOP}/src/crat.py");
    // All objects of these lists are there and whole.
    for (from, to) in [(CART, RUN), (&*cart, &*elsewhere), ("572ab8f4", "672ab8f4")] {
        let fixture = Fixture::new();
        let session = copy(&fixture, SHOP);
        edit(&session.join("snapshots/000.json"), from, to);
        if from.len() == 8 {
            edit(&session.join("session.json"), from, to);
        }
        let refused = import(&fixture, &session);
        assert!(refused.says("000.json"), "{}", refused.stderr);
        refused.fails(1, "do not have its Merkle root");
        assert!(!fixture.store().join(ID).exists(), "{to}");
    }
    // A snapshot at the end that is gone.
    let fixture = Fixture::new();
    let session = copy(&fixture, SHOP);
    fs::remove_file(session.join("snapshots/001.json")).unwrap();
    import(&fixture, &session).fails(1, "it lists 2 snapshots, and 1 are there");
}

#[test]
fn symlinks_that_a_version_lists_are_left_out_and_those_of_the_command_are_undone() {
    let fixture = Fixture::new();
    state_after(&fixture);
    let project = fixture.project();
    let place = |name: &str| project.join(name);
    // Made by the command, made later, and in the place of a file that the command removed.
    symlink("src", place("made")).unwrap();
    symlink("src", place("later")).unwrap();
    symlink("src/cart.py", place("README.md")).unwrap();
    let session = copy(&fixture, &project_text(&fixture));
    list_symlinks(&session, "000.json", &[place("gone"), place("kept")]);
    list_symlinks(&session, "001.json", &[place("kept"), place("made")]);
    symlink("src", place("kept")).unwrap();

    let report = import(&fixture, &session).success().json();
    let imported = &report["sessions"][0];
    assert_eq!(imported["symlink_count"], 3);
    let not_known = imported["not_known"].to_string();
    assert!(not_known.contains("targets of symlinks"), "{not_known}");
    assert!(!not_known.contains("the file behind a link"), "{not_known}");
    let shown = fixture.nono(&["rollback", "show", ID, "--json"]).success().json();
    let left_out = shown["snapshots"][0]["not_captured"].to_string();
    assert!(left_out.contains("gone") && left_out.contains("not where it leads"), "{left_out}");

    fixture.nono(&["rollback", "restore", ID, "--force"]).success();
    assert!(!place("made").is_symlink(), "the command made it");
    assert!(place("later").is_symlink() && place("kept").is_symlink());
    assert!(!place("gone").is_symlink(), "its target is unknown");
    assert!(!place("README.md").is_symlink());
    assert_eq!(fs::read_to_string(place("README.md")).unwrap(), "# Shop\n");
    fixture.nono(&["rollback", "verify", ID]).success();
}

#[test]
fn a_snapshot_without_a_list_of_symlinks_says_nothing_of_them() {
    let fixture = Fixture::new();
    state_after(&fixture);
    let link = fixture.project().join("link");
    symlink("src", &link).unwrap();
    let session = copy(&fixture, &project_text(&fixture));
    // The program was updated between the snapshots: the symlink may have been there all the time.
    list_symlinks(&session, "001.json", std::slice::from_ref(&link));
    let report = import(&fixture, &session).success().json();
    let not_known = report["sessions"][0]["not_known"].to_string();
    for words in ["the file behind a link", "targets of symlinks"] {
        assert!(not_known.contains(words), "{not_known}");
    }
    fixture.nono(&["rollback", "restore", ID, "--force"]).success();
    assert!(link.is_symlink());
    assert!(!fixture.project().join("src/test_cart.py").exists());
}

#[test]
fn a_hostile_list_of_symlinks_gives_a_clear_error_and_no_session() {
    for (path, message) in [
        (format!("{SHOP}/../../etc/passwd"), "not absolute and plain"),
        ("link".to_owned(), "not absolute and plain"),
        (format!("{SHOP}/README.md"), "is a file and a symlink"),
        (format!("{SHOP}/src"), "is a directory and a symlink"),
    ] {
        let fixture = Fixture::new();
        let session = copy(&fixture, SHOP);
        list_symlinks(&session, "000.json", &[PathBuf::from(&path)]);
        import(&fixture, &session).fails(1, message);
        assert!(!fixture.store().join(ID).exists(), "{path}");
    }
}

#[test]
fn a_session_whose_manifests_are_gone_is_named() {
    let fixture = Fixture::new();
    let session = copy(&fixture, SHOP);
    let place = session.parent().unwrap();
    let lost = place.join("lost");
    fs::create_dir_all(lost.join("objects/ab")).unwrap();
    // Nothing of the other program.
    fs::create_dir(place.join("notes")).unwrap();
    let told = import(&fixture, place);
    assert_eq!(told.code, 1, "{}", told.stderr);
    assert!(told.says("lost is not imported: it has no manifest"), "{}", told.stderr);
    let report = told.json();
    assert_eq!(report["without_manifest"], serde_json::json!([lost]));
    assert_eq!(report["sessions"][0]["outcome"], "imported");
    // Alone, too.
    import(&fixture, &lost).fails(1, "it has no manifest");
    import(&fixture, &place.join("notes")).fails(1, "holds no sessions of another nono");
}

#[test]
fn a_document_that_is_a_symlink_a_gap_and_a_huge_file_are_refused() {
    let fixture = Fixture::new();
    let session = copy(&fixture, SHOP);
    fs::rename(session.join("snapshots/000.json"), fixture.path("elsewhere")).unwrap();
    import(&fixture, &session).fails(1, "the snapshot is missing");
    symlink(fixture.path("elsewhere"), session.join("snapshots/000.json")).unwrap();
    import(&fixture, &session).fails(1, "000.json");
    fs::remove_file(session.join("snapshots/000.json")).unwrap();
    // A hole of a gibibyte takes no space.
    fs::File::create(session.join("snapshots/000.json")).unwrap().set_len(1 << 30).unwrap();
    import(&fixture, &session).fails(1, "000.json");
    assert!(!fixture.store().join(ID).exists());
}

#[test]
fn an_id_that_a_session_of_ours_has_is_not_overwritten() {
    let fixture = Fixture::new();
    fixture.write("a", "1\n");
    fixture.record("echo 2 > a").success();
    let ours = fixture.latest();
    let session = copy(&fixture, SHOP);
    edit(&session.join("session.json"), ID, &ours);
    import(&fixture, &session).fails(1, "is here already");
    assert_eq!(fixture.nono(&["rollback", "cat", &ours, "a"]).code, 0);
}

#[test]
fn a_path_that_is_a_symlink_now_is_left_alone_by_a_restore() {
    let fixture = Fixture::new();
    state_after(&fixture);
    symlink("src/cart.py", fixture.project().join("README.md")).unwrap();
    let session = copy(&fixture, &project_text(&fixture));
    let done = import(&fixture, &session);
    assert_eq!(done.code, 1, "{}", done.stderr);
    assert!(done.says("symlink now"), "{}", done.stderr);
    fixture.nono(&["rollback", "restore", ID, "--force"]);
    assert!(fixture.project().join("README.md").is_symlink());
}

#[test]
fn a_directory_without_sessions_says_so() {
    let fixture = Fixture::new();
    fixture.nono(&["import", "."]).fails(1, "holds no sessions of another nono");
    fixture.nono(&["import"]).fails(1, "there are no sessions of the other nono at");
}

#[test]
fn an_imported_session_is_mounted_like_any_other() {
    let fixture = Fixture::new();
    import(&fixture, &sample()).success();
    let place = fixture.path("mount");
    let mounted = fixture.nono(&["mount", place.to_str().unwrap()]);
    if ["/dev/fuse", "fuse3", "no permission"].iter().any(|word| mounted.stderr.contains(word)) {
        eprintln!("TEST DID NOT RUN: nothing can be mounted here: {}", mounted.stderr);
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "mounts must work here");
        return;
    }
    mounted.success();
    let read = |snapshot: &str, name: &str| {
        fs::read_to_string(place.join(ID).join(snapshot).join(&SHOP[1..]).join(name))
    };
    let (before, after) = (read("0", "README.md"), read("1", "src/test_cart.py"));
    let gone = read("1", "README.md");
    fixture.nono(&["umount", place.to_str().unwrap()]).success();
    assert_eq!(before.unwrap(), "# Shop\n");
    assert_eq!(after.unwrap(), "def t(): pass\n");
    assert_eq!(gone.unwrap_err().kind(), std::io::ErrorKind::NotFound);
}
