//! Whether snapshots of containers can be restored: their records, their images, their volumes.
//!
//! The bytes of files are `verify`'s to prove; this looks at what only containers have, and makes
//! the plan of a restore. Anything that a plan refuses is a defect.

use serde::Serialize;

use super::docker::{Docker, Patience};
use super::error::ContainerError;
use super::history::ContainerHistory;
use super::removal::stray_images;
use super::restore::{Job, RestoreOptions, plan};
use super::storage::SnapshotStorage;
use nono_engine::progress::NoProgress;

/// A defect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ContainerProblem {
    /// The snapshot `SESSION/N`, or the id of an image.
    pub subject: String,
    /// The defect, and what mends it.
    pub problem: String,
}

/// The findings.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ValidationReport {
    /// Snapshots that were looked at.
    pub snapshots_checked: u64,
    /// Images that were looked for.
    pub images_checked: u64,
    /// Snapshots `SESSION/N` during which the container did not stand still. They are no defects.
    pub inconsistent: Vec<String>,
    /// The defects.
    pub problems: Vec<ContainerProblem>,
}

/// Looks at all snapshots, or at those of one session, or at one.
///
/// # Errors
/// When the sessions cannot be listed, or the engine does not answer. Defects are in the report.
pub fn validate(
    storage: &dyn SnapshotStorage,
    docker: &Docker,
    only: Option<(&str, Option<u64>)>,
) -> Result<ValidationReport, ContainerError> {
    let mut report = ValidationReport::default();
    for history in ContainerHistory::all(storage)? {
        if only.is_some_and(|(id, _)| id != history.id()) {
            continue;
        }
        for number in history.numbers()? {
            if only.is_some_and(|(_, only)| only.is_some_and(|only| only != number)) {
                continue;
            }
            report.snapshots_checked += 1;
            let subject = format!("{}/{number}", history.id());
            let defect = |problem: String| ContainerProblem { subject: subject.clone(), problem };
            let record = match history.record(number) {
                Ok(record) => record,
                Err(error) => {
                    report.problems.push(defect(error.to_string()));
                    continue;
                }
            };
            if !record.is_consistent {
                report.inconsistent.push(subject.clone());
            }
            for mount in record.volumes() {
                let Some(name) = &mount.tree else { continue };
                if let Err(error) = history.volume(number, name) {
                    report.problems.push(defect(error.to_string()));
                }
            }
            if let Some(image) = &record.image.committed {
                report.images_checked += 1;
                let request = docker.client().inspect_image(&image.id);
                let found = docker.call("look at the image", Patience::Quick, request);
                match found {
                    Ok(_) => {}
                    Err(error) if error.is_not_found() => {
                        report.problems.push(defect(format!(
                            "its image {} is gone from the engine; volumes can be restored",
                            image.reference
                        )));
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            // A restore refuses more: a missing image or network, a restore that is not at its end.
            let job = Job { docker, history: &history, number, progress: &NoProgress };
            if let Err(error) = plan(job, &RestoreOptions::default()) {
                report.problems.push(defect(error.to_string()));
            }
        }
    }
    if only.is_none() {
        report.problems.extend(
            storage.damaged()?.into_iter().map(|damaged| ContainerProblem {
                problem: damaged.to_string(),
                subject: damaged.id,
            }),
        );
        report.problems.extend(stray_images(storage, docker)?.into_iter().map(|image| {
            ContainerProblem {
                subject: image.id,
                problem: format!(
                    "an image of snapshot {}/{}, which is not there: `nono container cleanup` \
                     removes it",
                    image.session, image.snapshot
                ),
            }
        }));
    }
    Ok(report)
}
