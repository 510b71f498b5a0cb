//! Snapshots of a real container in a storage that is no store on a disk.

use std::sync::Arc;

use nono_container::restore::{Job, RestoreOptions, restore};
use nono_container::{
    ContainerHistory, Docker, Endpoint, MemoryStorage, SnapshotOptions, SnapshotStorage, Trigger,
    Watcher, take_snapshot, validate,
};
use nono_engine::progress::NoProgress;
use nono_engine::snapshot::VolumeSource;

use super::daemon::{Container, daemon};
use crate::observe::observe;

fn options(volume_source: VolumeSource) -> SnapshotOptions {
    SnapshotOptions {
        message: None,
        trigger: Trigger::Manual,
        run_id: None,
        pauses: true,
        takes_image: true,
        takes_files: true,
        volume_source: Some(volume_source),
        // The container stands still, so no watcher is needed.
        watcher: Watcher { program: "false".into(), arguments: Vec::new() },
        threads: 0,
    }
}

#[test]
fn a_container_is_taken_into_memory_and_comes_back_from_there() {
    let Some(daemon) = daemon() else { return };
    for (source, through_engine) in
        [(VolumeSource::Directory, false), (VolumeSource::Archive, true)]
    {
        let volume = daemon.unique("elsewhere");
        let mount = format!("{volume}:/data");
        let container = Container::run(daemon, "elsewhere", &["-v", &mount]);
        let fill = "echo first >/data/file; dd if=/dev/zero of=/data/long bs=1024 count=3000; \
                    ln /data/file /data/same; echo own >/own";
        container.sh(fill);
        daemon.run(&["kill", &container.name]);
        let endpoint = Endpoint { url: daemon.host(), tls_dir: None };
        let docker = Docker::connect_to(endpoint).unwrap();
        let storage = MemoryStorage::new(&daemon.unique("memory"));
        let options = options(source);
        let take = || {
            let progress = Arc::new(NoProgress);
            take_snapshot(&docker, &storage, &container.name, &options, progress).unwrap()
        };
        let (first, before) = (take(), observe(&daemon.volume_dir(&volume)));
        assert_eq!(first.volume_source, Some(source));
        std::fs::write(daemon.volume_dir(&volume).join("file"), "second\n").unwrap();
        assert_eq!((first.snapshot, take().snapshot), (0, 1));
        let found = validate(&storage, &docker, None).unwrap();
        assert_eq!((found.snapshots_checked, found.images_checked), (2, 2));
        assert!(found.problems.is_empty(), "{:?}", found.problems);
        let picked = ContainerHistory::find(&storage, &format!("{}/0", first.session_id)).unwrap();
        let (history, progress) = (&picked.history, &NoProgress);
        let job = Job { docker: &docker, history, number: 0, progress };
        let report = restore(job, &RestoreOptions::default(), &|_, _| unreachable!("new")).unwrap();
        let name = &report.plan.name;
        // The container was recorded after its end.
        assert!(!report.is_started);
        daemon.run(&["start", name]);
        assert_eq!(daemon.sh(name, "cat /own /data/same"), "own\nfirst");
        let restored = observe(&daemon.volume_dir(&report.plan.volumes[0].name));
        if !through_engine {
            assert_eq!(restored, before);
        }
        assert_eq!(restored.len(), before.len());
        let noted = history.reopened().unwrap();
        assert_eq!(noted.container().restorations[0].name, *name);
        daemon.run(&["rm", "-f", name]);
        daemon.docker(&["volume", "rm", &report.plan.volumes[0].name]);
        for number in storage.numbers(&history.id()).unwrap() {
            let image = history.record(number).unwrap().image.committed.unwrap();
            daemon.docker(&["rmi", &image.reference]);
        }
    }
}
