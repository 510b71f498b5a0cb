//! When a text stood at a path: from the event in which it appeared to the event in which it went.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;

use super::Matches;
use crate::history::{Origin, Place};
use crate::object::ContentHash;
use crate::path_text::to_path;

/// A snapshot or a restore with which something changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The snapshot; of a restore, the one that was restored, with the time of the restore.
    pub place: Place,
    /// How it came about.
    pub origin: Origin,
}

/// A time in which a text stood at a path, in one contents after the other.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The path.
    pub path: Vec<u8>,
    /// The contents that have the text, newest first; never empty.
    pub versions: Vec<TextVersion>,
    /// The event in which the text appeared.
    pub appeared: Event,
    /// The event in which it went; `None`: it is in the last state that is recorded.
    pub gone: Option<Event>,
}

/// Contents that have the text, and stood for a while.
#[derive(Debug, Clone)]
pub struct TextVersion {
    /// The object.
    pub hash: ContentHash,
    /// Its length in bytes.
    pub size: u64,
    /// The event in which these contents appeared.
    pub event: Event,
    /// The snapshots that have it, oldest first, as numbers in
    /// [`TextSearch::places`](super::TextSearch::places). Contents that a restore brought back may
    /// have none.
    pub places: Vec<usize>,
}

impl Standing {
    /// The newest snapshot that has the text, as a number.
    pub fn newest(&self) -> Option<usize> {
        self.versions.iter().find_map(|version| version.places.last().copied())
    }
}

/// The paths in a snapshot, or after a restore, by their numbers.
pub(super) struct Sighting {
    /// Paths that have the text, sorted, each with the number of its contents.
    contents: Arc<[(u32, u32)]>,
    /// Paths of which nothing is said, sorted.
    unknown: Vec<u32>,
}

impl Sighting {
    pub(super) fn new(contents: Arc<[(u32, u32)]>, unknown: Vec<u32>) -> Self {
        Self { contents, unknown }
    }

    /// The same of a restore of these paths; none are all of them.
    pub(super) fn of_restore(self, only: &[PathBuf], matches: &Matches) -> Self {
        if only.is_empty() {
            return self;
        }
        let is_spared = |path: &[u8]| only.iter().all(|only| to_path(path) != only.as_path());
        let known = |number: &u32| self.unknown.binary_search(number).is_err();
        let spared = (0..matches.paths.len() as u32)
            .filter(|number| !known(number) || is_spared(&matches.paths[*number as usize]));
        Self { unknown: spared.collect(), contents: Arc::clone(&self.contents) }
    }

    /// Whether it says something of a path.
    fn tells_of(&self, path: u32) -> bool {
        self.unknown.binary_search(&path).is_err()
    }

    /// The number of the contents that a path has, if they have the text.
    fn contents_of(&self, path: u32) -> Option<u32> {
        let at = self.contents.binary_search_by_key(&path, |(path, _)| *path).ok()?;
        Some(self.contents[at].1)
    }
}

/// The snapshots and restores in which the text is looked for, each with its number if it is a
/// snapshot.
pub(super) type Sightings = Vec<(Place, Option<usize>, Sighting)>;

/// A line of states: those that were here, or those of a received session.
#[derive(Default)]
struct Track {
    /// Whether a state of it told of the path.
    is_known: bool,
    open: Option<Standing>,
}

impl Track {
    /// Goes on to the next state: these contents have the text, or none have it. Returns what ended
    /// there.
    fn follow(
        &mut self,
        path: &[u8],
        contents: Option<(ContentHash, u64)>,
        snapshot: Option<usize>,
        event: Event,
    ) -> Option<Standing> {
        let Some((hash, size)) = contents else {
            let mut ended = self.open.take()?;
            ended.gone = Some(event);
            return Some(ended);
        };
        let places = Vec::from_iter(snapshot);
        match &mut self.open {
            Some(open) if open.versions[0].hash == hash => open.versions[0].places.extend(places),
            Some(open) => open.versions.insert(0, TextVersion { hash, size, event, places }),
            open @ None => {
                let (path, appeared) = (path.to_vec(), event.clone());
                let versions = vec![TextVersion { hash, size, event, places }];
                *open = Some(Standing { path, versions, appeared, gone: None });
            }
        }
        None
    }
}

pub(super) fn of(mut sightings: Sightings, matches: &Matches) -> Vec<Standing> {
    let now = Timestamp::now();
    sightings.sort_by_cached_key(|(place, ..)| place.order(now));
    let mut found: Vec<(usize, Standing)> = Vec::new();
    for (number, path) in (0..).zip(&matches.paths) {
        let mut here = Track::default();
        let mut received: HashMap<&str, Track> = HashMap::new();
        for (at, (place, snapshot, sighting)) in sightings.iter().enumerate() {
            if !sighting.tells_of(number) {
                continue;
            }
            let track = if place.received && place.restored.is_none() {
                received.entry(&place.session_id).or_default()
            } else {
                &mut here
            };
            let contents = sighting.contents_of(number);
            let contents = contents.map(|contents| matches.contents[contents as usize]);
            if contents.is_some() || track.open.is_some() {
                let origin = Origin::of(place, track.is_known);
                let event = Event { place: place.clone(), origin };
                let ended = track.follow(path, contents, *snapshot, event);
                found.extend(ended.map(|ended| (at, ended)));
            }
            track.is_known = true;
        }
        let last = sightings.len();
        found.extend(here.open.map(|open| (last, open)));
        found.extend(received.into_values().filter_map(|track| Some((last, track.open?))));
    }
    // The texts of the last state come first, then those that went last.
    found.sort_by(|(a, x), (b, y)| {
        (b, y.newest()).cmp(&(a, x.newest())).then_with(|| x.path.cmp(&y.path))
    });
    found.into_iter().map(|(_, standing)| standing).collect()
}
