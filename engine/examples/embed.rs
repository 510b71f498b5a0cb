//! The engine in a program of one's own: records a directory, changes it, shows the difference,
//! restores it, and proves the record.
//!
//! `cargo run --package nono-engine --example embed` works in a temporary directory.

#![allow(clippy::disallowed_methods, reason = "a program that embeds the engine has files")]

use std::error::Error;
use std::fs;
use std::io::{Write, stdout};

use nono_engine::snapshot::{Budget, SnapshotManager};
use nono_engine::verify::{VerifyOptions, verify_session};
use nono_engine::walk::ExclusionConfig;

fn main() -> Result<(), Box<dyn Error>> {
    let temp = tempfile::tempdir()?;
    let project = temp.path().join("project");
    fs::create_dir(&project)?;
    fs::write(project.join("kept.txt"), "kept")?;
    fs::write(project.join("changed.txt"), "before")?;

    // A session: the tracked paths, what is left out, and what a first snapshot may cost.
    let session = temp.path().join("session");
    let paths = [project.clone()];
    let (exclusion, budget) = (ExclusionConfig::default(), Budget::default());
    let manager = SnapshotManager::new(&session, &paths, exclusion, budget)?;
    let baseline = manager.create_baseline()?;
    writeln!(stdout(), "recorded {} files", baseline.totals.file_count)?;

    // The work to be undone, of an agent or of any other program.
    fs::write(project.join("changed.txt"), "after")?;
    fs::write(project.join("created.txt"), "new")?;
    fs::remove_file(project.join("kept.txt"))?;

    let (_, changes) = manager.create_incremental()?;
    for change in &changes {
        writeln!(stdout(), "{:?} {}", change.change_type, change.path.display())?;
    }

    // A safety snapshot comes first, so that the restore itself can be taken back.
    manager.restore_to(0)?;
    assert_eq!(fs::read_to_string(project.join("changed.txt"))?, "before");
    assert!(!fs::exists(project.join("created.txt"))?);

    let report = verify_session(manager.session(), manager.store(), &VerifyOptions::default())?;
    assert!(report.ok, "{:?}", report.problems);
    writeln!(stdout(), "restored, and every byte of the record is as it was written")?;
    Ok(())
}
