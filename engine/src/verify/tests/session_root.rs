//! The facts of a session, what follows from its snapshots, and the root that proves both.

use super::*;

fn session_problems(report: &VerifyReport) -> Vec<&str> {
    let of_session = manifest_problems(report).into_iter();
    of_session.filter_map(|(number, reason)| number.is_none().then_some(reason)).collect()
}

fn with_root(manager: &SnapshotManager, root: ContentHash) -> VerifyReport {
    let options = VerifyOptions { expected_root: Some(root), ..options() };
    verify_session(manager.session(), manager.store(), &options).unwrap()
}

/// A run that has ended, with its root as it is told at the end.
fn run(lab: &Lab) -> (SnapshotManager, ContentHash) {
    let (manager, _) = lab.session("s");
    let mut metadata = manager.session().metadata().unwrap();
    metadata.command = vec!["make".to_owned(), "all".to_owned()];
    metadata.ended = Some(metadata.started);
    metadata.exit_code = Some(0);
    let root = manager.save_session_metadata(&metadata).unwrap().session_root();
    (manager, root)
}

#[test]
fn a_fact_that_was_edited_is_found_and_stays_found_when_the_session_goes_on() {
    for edited in ["\"make\"", "\"exit_code\": 0", "\"modified\": 1", "\"origin\": \"snapshot\""] {
        let lab = Lab::new();
        let (manager, _) = run(&lab);
        let path = manager.session().path().join("manifest.json");
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches(edited).count(), 1, "{edited}");
        let other = match edited {
            "\"make\"" => "\"true\"",
            "\"origin\": \"snapshot\"" => "\"origin\": \"run\"",
            number => &number.replace(['0', '1'], "7"),
        };
        fs::write(&path, text.replace(edited, other)).unwrap();
        let report = verify(&manager);
        assert!(session_problems(&report).contains(&ALTERED.1), "{edited}: {report:?}");
        assert_eq!(ok_by_snapshot(&report), [(0, true), (1, true), (2, true)]);
        // A restore is possible, and vouches for nothing.
        manager.restore(0).unwrap();
        manager.save_session_metadata(&manager.session().metadata().unwrap()).unwrap();
        assert!(session_problems(&verify(&manager)).contains(&ALTERED.1), "{edited}");
    }
}

#[test]
fn facts_that_were_forged_with_all_hashes_are_told_by_the_root_that_was_noted() {
    let lab = Lab::new();
    let (manager, root) = run(&lab);
    let mut metadata = manager.session().metadata().unwrap();
    assert_eq!(metadata.session_root(), root);
    metadata.command = vec!["true".to_owned()];
    manager.session().save_metadata(&metadata).unwrap();
    assert!(verify(&manager).ok, "who has the store can forge all of it");
    let report = with_root(&manager, root);
    let expected = Problem::MerkleMismatch { snapshot: None, expected: root, found: None };
    assert_eq!((report.problems, report.proved), (vec![expected], None));
}

#[test]
fn a_root_proves_the_session_and_still_does_when_it_goes_on() {
    let lab = Lab::new();
    let (manager, root) = run(&lab);
    let proved = |snapshots: &[u64]| {
        let (by, snapshots) = (ProvedBy::SessionRoot, snapshots.to_vec());
        Some(Proved { by, facts: true, end: true, snapshots })
    };
    let report = with_root(&manager, root);
    assert_eq!((report.ok, report.session_root), (true, Some(root)));
    assert_eq!(report.proved, proved(&[0, 1, 2]));
    manager.restore(0).unwrap();
    let report = with_root(&manager, root);
    assert_eq!((report.ok, &report.proved), (true, &proved(&[0, 1, 2])));
    let now = report.session_root.unwrap();
    assert_ne!(now, root);
    assert_eq!(with_root(&manager, now).proved, proved(&[0, 1, 2, 3]));
    // A damaged session is not proved.
    flip_byte(&object(&manager, "a new file"));
    assert_eq!(with_root(&manager, root).proved, proved(&[0, 1]));
    // Nor is what another manifest than the committed one says.
    edit(&manager.session().manifest_path(0), |manifest| manifest["label"] = json!("x"));
    assert_eq!(with_root(&manager, root).proved, proved(&[1]));
}

#[test]
fn a_root_from_before_the_end_proves_all_but_the_end() {
    let lab = Lab::new();
    let (manager, manifests) = lab.session("s");
    let mut metadata = manager.session().metadata().unwrap();
    let root = metadata.session_root();
    metadata.ended = Some(metadata.started);
    metadata.exit_code = Some(1);
    manager.save_session_metadata(&metadata).unwrap();
    let (by, snapshots) = (ProvedBy::SessionRoot, vec![0, 1, 2]);
    let expected = Proved { by, facts: true, end: false, snapshots };
    assert_eq!(with_root(&manager, root).proved, Some(expected));
    // The root of a snapshot proves that snapshot.
    let (by, snapshots) = (ProvedBy::MerkleRoot, vec![1]);
    let expected = Proved { by, facts: false, end: false, snapshots };
    assert_eq!(with_root(&manager, manifests[1].merkle_root).proved, Some(expected));
}

#[test]
fn what_follows_from_the_snapshots_is_compared_even_when_all_hashes_agree() {
    type Edit = fn(&mut SessionMetadata);
    let edits: [(Edit, &str); 9] = [
        (|s| s.changes.as_mut().unwrap().created += 1, "it counts as changed"),
        (|s| s.changes = Some(crate::diff::ChangeSummary::default()), "it counts as changed"),
        (|s| s.bytes_written += 1, "bytes were written"),
        (|s| s.labels.clear(), "labels"),
        (|s| s.labels[0].label.push('x'), "labels"),
        (|s| s.safety_snapshots.push(1), "safety snapshots"),
        (|s| s.steps.clear(), "steps"),
        (|s| s.steps[0].title.push('x'), "steps"),
        (|s| s.steps[0].prompt.as_mut().unwrap().text.push('x'), "steps"),
    ];
    for (edit, expected) in edits {
        let lab = Lab::new();
        let (manager, _) = lab.session("s");
        manager.checkpoint("called something").unwrap();
        let prompt = Some(StepPrompt { number: 1, text: "do it".to_owned() });
        let step = Some(Step { prompt, ..Step::default() });
        manager.record_state(SnapshotRequest { step, ..SnapshotRequest::default() }).unwrap();
        assert!(verify(&manager).ok);
        let mut metadata = manager.session().metadata().unwrap();
        edit(&mut metadata);
        manager.session().save_metadata(&metadata).unwrap();
        let report = verify(&manager);
        assert!(
            matches!(session_problems(&report)[..], [reason] if reason.contains(expected)),
            "{expected}: {report:?}"
        );
    }
}

#[test]
fn changes_that_nobody_could_count_are_no_problem_and_are_counted_by_a_repair() {
    let lab = Lab::new();
    let (manager, _) = run(&lab);
    let mut metadata = manager.session().metadata().unwrap();
    let counted = metadata.changes.take();
    assert!(counted.is_some_and(|counted| counted.created == 1 && counted.modified == 1));
    manager.session().save_metadata(&metadata).unwrap();
    assert!(verify(&manager).ok);
    fs::write(manager.session().path().join("manifest.json"), b"{").unwrap();
    let (_, report) =
        repair_session(manager.session(), manager.store(), &RepairOptions::default()).unwrap();
    assert!(report.ok, "{report:?}");
    assert_eq!(manager.session().metadata().unwrap().changes, counted);
    assert!(verify(&manager).ok);
}

#[test]
fn a_snapshot_that_a_crash_kept_from_being_listed_is_counted_when_it_is_listed() {
    let lab = Lab::new();
    let manager = lab.manager("s");
    let path = manager.session().path().join("manifest.json");
    manager.create_baseline().unwrap();
    let before = fs::read(&path).unwrap();
    fs::write(lab.work().join("b"), "changed").unwrap();
    manager.create_incremental().unwrap();
    fs::write(&path, before).unwrap();
    // It takes a safety snapshot, and lists both.
    manager.restore(0).unwrap();
    let report = verify(&manager);
    assert!(report.ok, "{report:?}");
    let metadata = manager.session().metadata().unwrap();
    assert_eq!((metadata.snapshot_count, metadata.changes.unwrap().modified), (3, 1));
}

#[test]
fn an_edited_manifest_of_a_session_is_replaced_by_a_copy_and_else_stays() {
    let lab = Lab::new();
    let (manager, root) = run(&lab);
    let path = manager.session().path().join("manifest.json");
    let good = fs::read(&path).unwrap();
    let other = lab.temp.path().join("other");
    fs::create_dir_all(other.join("s")).unwrap();
    fs::write(other.join("s/manifest.json"), &good).unwrap();
    let edited = String::from_utf8(good.clone()).unwrap().replace("\"make\"", "\"true\"");
    fs::write(&path, &edited).unwrap();
    let repair = |other_stores: &[PathBuf]| {
        let options = RepairOptions { other_stores, verify: options() };
        repair_session(manager.session(), manager.store(), &options).unwrap()
    };
    let (repaired, report) = repair(&[]);
    assert!(repaired.lost[0].what.contains("exit code") && !report.ok, "{repaired:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), edited);
    let (repaired, report) = repair(&[other]);
    assert_eq!((repaired.lost.len(), repaired.quarantined.len(), report.ok), (0, 1, true));
    assert_eq!(report.session_root, Some(root));
    assert_eq!(fs::read(&path).unwrap(), good);
}
