//! Every way back is a job, so what no front end may forget holds for each of them.

use std::fs;
use std::path::{Path, PathBuf};

use nono_engine::job::{JobKind, RestoreJob};
use nono_engine::restore::{OnConflict, RestoreError, TextPart};
use nono_engine::snapshot::{SnapshotError, SnapshotManager};

use crate::fixture::Fixture;
use crate::scene::Scene;

fn job(session: &Path, kind: JobKind) -> RestoreJob {
    RestoreJob::new(SnapshotManager::open(session).unwrap(), kind).unwrap()
}

/// A session that changed a file.
fn changed() -> Fixture {
    let fixture = Fixture::new();
    fixture.write("file", "1");
    fixture.record("echo 2 > file").success();
    fixture
}

fn text(fixture: &Fixture) -> String {
    fs::read_to_string(fixture.project().join("file")).unwrap()
}

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_front_end_goes_back_without_a_job() {
    // The way back for programs that embed the engine, with no person to ask.
    let without_job = [".restore_with(", ".restore_to(", ".plan_restore(", "compute_restore_diff("];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for dir in ["src", "python/src"] {
        sources(&root.join(dir), &mut found);
    }
    assert!(found.len() > 200, "only {} files were read", found.len());
    for path in found {
        let text = fs::read_to_string(&path).unwrap();
        for line in text.lines().filter(|line| !line.contains("    fn ")) {
            let call = without_job.iter().find(|call| line.contains(**call));
            assert_eq!(call, None, "{}: {line}", path.display());
        }
    }
}

#[test]
fn a_plan_of_any_kind_is_not_carried_out_after_another_restore() {
    let fixture = changed();
    let session = fixture.session();
    let part =
        TextPart { snapshot: 1, path: fixture.project().join("file"), without: b"0".to_vec() };
    let kinds =
        [JobKind::Restore(0), JobKind::Undo(0), JobKind::GoBack(0), JobKind::Text(part.clone())];
    let planned = kinds.map(|kind| {
        let job = job(&session, kind);
        let plan = job.plan().unwrap();
        assert_eq!(plan.report.restore.changes.len(), 1);
        (job, plan)
    });
    fixture.nono(&["undo", "--yes"]).success();
    let redo = job(&session, JobKind::Redo(2));
    fixture.nono(&["redo", "--yes"]).success();
    for (job, plan) in &planned {
        let refused = job.carry_out(plan).unwrap_err();
        assert!(matches!(refused, RestoreError::RestoredMeanwhile { .. }), "{refused}");
    }
    // Without a plan that a person saw, a state is the same state; all else is not.
    let [state, undo, back, part] = planned.map(|(job, _)| job);
    for job in [&undo, &part, &redo] {
        let refused = job.run().unwrap_err();
        assert!(matches!(refused, RestoreError::RestoredMeanwhile { .. }), "{refused}");
    }
    assert_eq!(text(&fixture), "2\n");
    for job in [state, back] {
        assert_eq!(job.run().unwrap().restore.changes.len(), 1);
        assert_eq!(text(&fixture), "1");
        fixture.nono(&["redo", "--yes"]).success();
    }
}

#[test]
fn a_choice_does_not_change_the_meaning_of_a_job() {
    let fixture = changed();
    let session = fixture.session();
    let mut undo = job(&session, JobKind::Undo(0));
    undo.choose(|options| {
        options.is_undo = false;
        options.takes_back = true;
        options.on_conflict = OnConflict::KeepNewer;
    });
    let options = undo.options();
    assert!(options.is_undo && !options.takes_back);
    assert_eq!(options.on_conflict, OnConflict::KeepNewer);
    let nothing = RestoreJob::new(SnapshotManager::open(&session).unwrap(), JobKind::Redo(0));
    assert!(matches!(nothing, Err(RestoreError::ChangedNothing { snapshot: 0, .. })));
}

#[test]
fn a_job_of_any_session_waits_for_an_interrupted_restore_of_its_paths() {
    let scene = Scene::new();
    scene.fixture.record("true").success();
    let other = scene.fixture.session();
    scene.keep();
    let interrupted = SnapshotManager::open(&scene.fixture.store().join(&scene.session)).unwrap();
    let arguments = scene.restore(0);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    for point in 1.. {
        scene.reset();
        assert!(scene.killed_at(point, &arguments), "no point is within the commit");
        if interrupted.session().has_interrupted_restore().unwrap() {
            break;
        }
    }
    let job = job(&other, JobKind::Undo(0));
    for refused in [job.plan().map(drop), job.run().map(drop)] {
        let refused = refused.unwrap_err();
        let is_it = matches!(
            &refused,
            RestoreError::Snapshot(SnapshotError::RestoreInterrupted { session })
                if session.ends_with(&scene.session)
        );
        assert!(is_it, "{refused}");
    }
}
