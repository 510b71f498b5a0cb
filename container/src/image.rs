//! Images of ours: made of a container, and removed when nothing uses them.

use std::collections::HashMap;

use bollard::models::{ContainerConfig, ImageSummary};
use bollard::query_parameters::{
    CommitContainerOptions, ListContainersOptions, ListImagesOptions, RemoveImageOptions,
};

use super::docker::{Docker, Patience};
use super::error::ContainerError;
use super::record::CommittedImage;
use super::{LABEL_SESSION, LABEL_SNAPSHOT, LABEL_STORE};
use nono_engine::sys;

/// The words of Docker for an image that would have more layers than it allows.
const TOO_MANY_LAYERS: &str = "max depth exceeded";
/// The repository of the tags.
const REPOSITORY: &str = "nono/container";

/// An image of ours, by its labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnImage {
    /// The engine's id.
    pub id: String,
    /// The id of the session.
    pub session: String,
    /// The number of the snapshot.
    pub snapshot: u64,
    /// The [id](super::SnapshotStorage::id) of the storage of the session.
    pub store: String,
    /// Its tag, which names the session, the snapshot and the store.
    pub reference: String,
    /// Length of all its layers, those of the original image included, in bytes.
    pub size_bytes: u64,
}

/// The outcome for an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ImageRemoval {
    /// It is gone.
    Removed,
    /// It was gone.
    Missing,
    /// A container uses it.
    InUse,
    /// It is not one of ours.
    NotOurs,
}

/// Makes an image of a container's own files, without a pause: the caller has paused it.
pub(super) fn commit(
    docker: &Docker,
    store: &str,
    container_id: &str,
    session: &str,
    number: u64,
    message: Option<&str>,
) -> Result<CommittedImage, ContainerError> {
    let tag = tag(store, session, number);
    // A line for each: Podman takes the rest of a line for one value.
    let labels = format!(
        "LABEL {LABEL_SESSION}={session}\nLABEL {LABEL_SNAPSHOT}={number}\n\
         LABEL {LABEL_STORE}={store}"
    );
    let options = CommitContainerOptions {
        container: Some(container_id.to_owned()),
        repo: Some(REPOSITORY.to_owned()),
        tag: Some(tag.clone()),
        comment: message.map(str::to_owned),
        pause: false,
        changes: Some(labels),
        ..CommitContainerOptions::default()
    };
    // The image of a killed snapshot under this tag would lose its name to the new image.
    remove_own(docker, store, &format!("{REPOSITORY}:{tag}"), session, number)?;
    sys::before_request("commit")?;
    let operation = format!("make an image of container {container_id}");
    let request = docker.client().commit_container(options, ContainerConfig::default());
    let made = docker.call(&operation, Patience::Long, request).map_err(|error| match error {
        ContainerError::Refused { message, .. } if message.contains(TOO_MANY_LAYERS) => {
            ContainerError::TooManyLayers { container: container_id.to_owned() }
        }
        error => error,
    })?;
    let found =
        docker.call(&operation, Patience::Quick, docker.client().inspect_image(&made.id))?;
    let of_original = docker
        .inspect(container_id)?
        .image
        .and_then(|image| {
            let request = docker.client().inspect_image(&image);
            docker.call(&operation, Patience::Quick, request).ok()
        })
        .and_then(|image| image.size)
        .unwrap_or(0);
    let size = found.size.unwrap_or(0).saturating_sub(of_original);
    Ok(CommittedImage {
        reference: format!("{REPOSITORY}:{tag}"),
        id: found.id.unwrap_or(made.id),
        size_bytes: u64::try_from(size).unwrap_or(0),
    })
}

/// Two stores may have sessions of one name.
fn tag(store: &str, session: &str, number: u64) -> String {
    format!("{session}.{number}-{store}")
}

/// The name of the image of a snapshot.
pub(super) fn reference(store: &str, session: &str, number: u64) -> String {
    format!("{REPOSITORY}:{}", tag(store, session, number))
}

/// The tag with this name among those of an image. Podman puts a registry before it: the machine,
/// or the one that Docker means by no registry.
fn own_tag(tags: &[String], reference: &str) -> Option<String> {
    let is_it = |tag: &&String| {
        let plain = ["localhost/", "docker.io/"].iter().find_map(|place| tag.strip_prefix(place));
        plain.unwrap_or(tag) == reference
    };
    tags.iter().find(is_it).cloned()
}

/// All images of ours that the engine has.
///
/// # Errors
/// As [`Docker::call`].
pub fn own_images(docker: &Docker) -> Result<Vec<OwnImage>, ContainerError> {
    let labels = HashMap::from([("label".to_owned(), vec![LABEL_SESSION.to_owned()])]);
    let options = ListImagesOptions { filters: Some(labels), ..ListImagesOptions::default() };
    let request = docker.client().list_images(Some(options));
    let images = docker.call("list the images", Patience::Quick, request)?;
    let of = |image: ImageSummary| {
        let session = image.labels.get(LABEL_SESSION)?.clone();
        let snapshot = image.labels.get(LABEL_SNAPSHOT)?.parse().ok()?;
        let store = image.labels.get(LABEL_STORE).cloned().unwrap_or_default();
        // Images that a user made of one of ours bear its labels, and another tag.
        let reference = own_tag(&image.repo_tags, &reference(&store, &session, snapshot))?;
        let size_bytes = u64::try_from(image.size).unwrap_or(0);
        Some(OwnImage { id: image.id, session, snapshot, store, reference, size_bytes })
    };
    Ok(images.into_iter().filter_map(of).collect())
}

/// Removes an image, if the [store](super::SnapshotStorage::id) made it and no container uses it. A
/// history that was pulled from a remote names images of another store.
///
/// # Errors
/// As [`Docker::call`].
pub fn remove_own(
    docker: &Docker,
    store: &str,
    id: &str,
    session: &str,
    number: u64,
) -> Result<ImageRemoval, ContainerError> {
    let request = docker.client().inspect_image(id);
    let image = match docker.call(format_args!("look at image {id}"), Patience::Quick, request) {
        Ok(image) => image,
        Err(error) if error.is_not_found() => return Ok(ImageRemoval::Missing),
        Err(error) => return Err(error),
    };
    let labels = image.config.and_then(|config| config.labels).unwrap_or_default();
    let is = |label: &str, value: &str| labels.get(label).is_some_and(|found| found == value);
    let is_of_snapshot = is(LABEL_SESSION, session) && is(LABEL_SNAPSHOT, &number.to_string());
    // By its tag alone: another one keeps the image for another program.
    let tags = image.repo_tags.unwrap_or_default();
    let name = own_tag(&tags, &reference(store, session, number));
    let Some(name) = name.filter(|_| is_of_snapshot && is(LABEL_STORE, store)) else {
        return Ok(ImageRemoval::NotOurs);
    };
    let using = HashMap::from([("ancestor".to_owned(), vec![id.to_owned()])]);
    let options = ListContainersOptions {
        all: true,
        filters: Some(using),
        ..ListContainersOptions::default()
    };
    let request = docker.client().list_containers(Some(options));
    match docker.call("list the containers", Patience::Quick, request) {
        Ok(using) if using.is_empty() => {}
        Ok(_) => return Ok(ImageRemoval::InUse),
        // One of them has a state that Podman alone knows; it refuses by itself what is used.
        Err(ContainerError::InvalidAnswer { .. }) => {}
        Err(error) => return Err(error),
    }
    sys::before_request("remove image")?;
    let options = None::<RemoveImageOptions>;
    let request = docker.client().remove_image(&name, options, None);
    match docker.call(format_args!("remove image {name}"), Patience::Quick, request) {
        Ok(_) => Ok(ImageRemoval::Removed),
        Err(error) if error.is_not_found() => Ok(ImageRemoval::Missing),
        Err(error) if error.is_conflict() => Ok(ImageRemoval::InUse),
        Err(error) => Err(error),
    }
}
