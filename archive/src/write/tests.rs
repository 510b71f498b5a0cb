//! Archives of snapshots whose list of hard links is not the captured one.

use std::fs;
use std::os::unix::ffi::OsStrExt;

use nono_engine::fuzzing::forge_links;
use nono_engine::progress::NoProgress;
use nono_engine::snapshot::{Budget, SnapshotManager};
use nono_engine::walk::ExclusionConfig;

use crate::{ArchivePlan, Encryption, FullReason};

#[test]
fn an_archive_gives_names_that_are_called_linked_their_own_contents() {
    let temp = tempfile::tempdir().unwrap();
    let tracked = temp.path().join("tracked");
    fs::create_dir(&tracked).unwrap();
    for (name, content) in [("changed", "old"), ("same", "same"), ("linked", "linked")] {
        fs::write(tracked.join(name), content).unwrap();
    }
    fs::hard_link(tracked.join("linked"), tracked.join("second")).unwrap();
    let (session, exclusion) = (temp.path().join("session"), ExclusionConfig::nothing());
    let paths = [tracked.clone()];
    let manager = SnapshotManager::new(&session, &paths, exclusion, Budget::default()).unwrap();
    manager.create_baseline().unwrap();
    let path = |name: &str| Box::from(tracked.join(name).as_os_str().as_bytes());
    let groups = [["changed", "same"], ["linked", "second"]];
    let groups = groups.iter().map(|names| names.iter().map(|name| path(name)).collect());
    forge_links(&manager, groups.collect());
    let session = manager.session();
    let plan = ArchivePlan::new(session, 0, Err(FullReason::NoParent), &NoProgress).unwrap();
    let mut archive = Vec::new();
    plan.write(&Encryption::None, &mut archive, &NoProgress).unwrap();
    let mut tar = tar::Archive::new(zstd::Decoder::new(&*archive).unwrap());
    let links = tar.entries().unwrap().filter_map(|entry| {
        let entry = entry.unwrap();
        let is_link = entry.header().entry_type() == tar::EntryType::Link;
        is_link.then(|| entry.path().unwrap().file_name().unwrap().to_owned())
    });
    assert_eq!(links.collect::<Vec<_>>(), ["second"]);
}
