//! The holdings of a store and their reasons: `usage`, and the sizes of `list`.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::fixture::{Fixture, noise};
use crate::retention::record;

fn usage(fixture: &Fixture) -> Value {
    fixture.nono(&["rollback", "usage", "--json"]).success().json()
}

fn number(value: &Value, field: &str) -> u64 {
    value[field].as_u64().unwrap_or_else(|| panic!("no {field} in {value}"))
}

/// The report on a path, if it is among the largest.
fn of_path<'a>(usage: &'a Value, path: &Path) -> Option<&'a Value> {
    let paths = usage["largest_paths"].as_array().unwrap();
    paths.iter().find(|it| it["path"] == path.to_str().unwrap())
}

#[test]
fn the_largest_files_are_named_with_all_that_their_versions_take() {
    const KIB: usize = 1 << 10;
    let fixture = Fixture::new();
    let project = fixture.project();
    for (turn, seed) in [1, 2, 1, 3].into_iter().enumerate() {
        fixture.write("deep/below/often", noise(100 * KIB, seed));
        fixture.write("constant", noise(150 * KIB, 9));
        fs::copy(project.join("constant"), project.join("copy")).unwrap();
        fixture.write("empty", "");
        for small in 0..12 {
            fixture
                .write(&format!("small/{small}"), noise(KIB * (1 + small as usize), 100 + small));
        }
        record(&fixture, &[], &format!("{turn}"));
    }
    // A session of a directory within counts for the same path.
    fixture.write("deep/below/often", noise(100 * KIB, 4));
    fixture.nono(&["snapshot", project.join("deep").to_str().unwrap()]).success();
    let usage = usage(&fixture);
    let paths = usage["largest_paths"].as_array().unwrap();
    assert_eq!(paths.len(), 10, "{usage}");
    let often = of_path(&usage, &project.join("deep/below/often")).unwrap();
    assert_eq!(*often, paths[0]);
    assert_eq!((number(often, "versions"), number(often, "plain_bytes")), (4, 400 << 10));
    assert!(number(often, "bytes") >= 400 << 10);
    // A file that lies at two paths counts for each of them.
    for name in ["constant", "copy"] {
        let one = of_path(&usage, &project.join(name)).unwrap();
        assert_eq!(number(one, "versions"), 1);
        // The midstates of a long file belong to it.
        assert!((150 << 10..151 << 10).contains(&number(one, "plain_bytes")), "{one}");
    }
    assert_eq!(of_path(&usage, &project.join("empty")), None);
    assert!(of_path(&usage, &project.join("small/11")).is_some());
    assert_eq!(of_path(&usage, &project.join("small/0")), None);
    let shown = fixture.nono(&["rollback", "usage"]).success().stdout;
    assert!(shown.contains("largest files") && shown.contains("deep/below/often"), "{shown}");
    assert!(shown.contains(", 4 versions"), "{shown}");
}

#[test]
fn sessions_and_projects_have_their_own_bytes_and_all_that_they_need() {
    let fixture = Fixture::new();
    fixture.write("shared", "the same words again\n".repeat(20_000));
    let ids: Vec<String> = (0..2)
        .map(|turn| {
            fixture.write("own", noise(300_000, turn));
            record(&fixture, &[], &format!("{turn}")).0
        })
        .collect();
    let usage = usage(&fixture);
    let project = &usage["projects"][0];
    let sessions = project["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), 2);
    for session in sessions {
        let [own, plain, needed, needed_plain] =
            ["bytes", "plain_bytes", "needed_bytes", "needed_plain_bytes"]
                .map(|field| number(session, field));
        assert!((300_000..600_000).contains(&plain), "{usage}");
        assert!(own < needed && plain + 400_000 < needed_plain, "{usage}");
        assert!(needed <= number(&usage, "total_bytes"));
    }
    assert!(number(project, "plain_bytes") >= number(project, "bytes"), "{usage}");
    assert_eq!(project["plain_bytes"], usage["plain_bytes"]);
    let ratio = number(&usage, "plain_bytes") as f64 / number(&usage, "total_bytes") as f64;
    assert_eq!(usage["ratio"].as_f64(), Some(ratio));

    // The list says the same, where it is asked to.
    let list = fixture.nono(&["rollback", "list", "--sizes", "--json"]).success().json();
    for listed in list.as_array().unwrap() {
        let same = sessions.iter().find(|it| it["session_id"] == listed["session_id"]).unwrap();
        assert_eq!(
            (&listed["own_bytes"], &listed["needed_bytes"]),
            (&same["bytes"], &same["needed_bytes"])
        );
        assert!(ids.iter().any(|id| listed["session_id"] == **id));
    }
    let shown = fixture.nono(&["rollback", "list", "--sizes"]).success().stdout;
    assert_eq!(shown.matches(" of its own").count(), 2, "{shown}");
    let plain = fixture.nono(&["rollback", "list", "--json"]).success().json();
    assert_eq!(plain[0].get("own_bytes"), None);
}

#[test]
fn the_first_line_is_what_the_store_takes_on_the_disk() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let on_disk = || -> u64 {
        // Space that is only reserved has no final size.
        assert!(Command::new("sync").arg("-f").arg(&store).status().unwrap().success());
        let du = Command::new("du").args(["-s", "--block-size=1"]).arg(&store).output().unwrap();
        let text = String::from_utf8(du.stdout).unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    };
    fixture.write("long", noise(3 << 20, 1));
    fixture.record("for i in $(seq 300); do echo $i > f$i; done").success();
    // A file with two names, one with holes, an unknown directory, and a journal.
    let session = fixture.session();
    fs::write(session.join("restore.journal.discarded"), noise(100_000, 2)).unwrap();
    fs::create_dir_all(store.join("unknown/deep")).unwrap();
    fs::write(store.join("unknown/deep/file"), noise(50_000, 3)).unwrap();
    fs::hard_link(store.join("unknown/deep/file"), store.join("unknown/again")).unwrap();
    fs::File::create(store.join("unknown/holes")).unwrap().set_len(1 << 30).unwrap();
    usage(&fixture);
    let taken = on_disk();
    let usage = usage(&fixture);
    assert_eq!(number(&usage, "disk_bytes"), taken);
    assert_eq!(on_disk(), taken, "usage leaves the store as it was");
    assert!(number(&usage, "total_bytes") < taken, "{usage}");
    let shown = fixture.nono(&["rollback", "usage"]).success().stdout;
    assert!(shown.lines().next().unwrap().contains("MiB on the disk"), "{shown}");
}

#[test]
fn an_empty_store_has_no_ratio_and_no_paths() {
    let fixture = Fixture::new();
    let usage = usage(&fixture);
    assert_eq!((&usage["ratio"], &usage["total_bytes"]), (&Value::Null, &0.into()));
    assert_eq!(usage["largest_paths"].as_array().unwrap().len(), 0);
    fixture.nono(&["rollback", "list", "--sizes"]).success();
}
