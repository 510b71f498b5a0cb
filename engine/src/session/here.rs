//! Which session is meant in a directory: of several projects in one store, the one of this place.
//!
//! A session is *here* if it tracks the directory or one above it, or a file in it. A reading
//! command may also stand above a project, as long as it is the only one below. Sessions without
//! changes come last: the newest one that may have changed something is meant. A session without an
//! end (open, running, interrupted) may have, because what is different now belongs to it. One that
//! was killed before its first snapshot holds no state, and is passed over.
//!
//! The session of a watcher grows with each change of the user, and so it comes last: it is meant
//! only where no other session may have changed anything. This holds for `latest` and for commands
//! without an id. The links of a mount pass it over wherever there is another session.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::catalog::{Catalog, CatalogError, SnapshotId};
use super::summary::{SessionStatus, SessionSummary};
use crate::layout::LATEST;
use crate::snapshot::{ManifestError, Recency, SessionDir, SessionOrigin};
use crate::sys;

/// The purpose of a search for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Files will be changed: below the directory nothing is guessed.
    Restoring,
    /// Nothing is changed.
    Looking,
}

/// Why no session is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotHere {
    /// No session tracks the directory, one above it, or a file in it.
    Nowhere,
    /// Sessions of several projects are below: their tracked paths.
    SeveralBelow(Vec<String>),
}

/// Where a session is looked for, and what for.
#[derive(Debug, Clone)]
pub struct Place {
    /// Absolute, with symlinks resolved.
    pub directory: PathBuf,
    /// The purpose.
    pub purpose: Purpose,
}

impl Place {
    /// The current directory. For a removed one: its last place.
    ///
    /// # Errors
    /// When it cannot be found out.
    pub fn current(purpose: Purpose) -> sys::Result<Self> {
        Ok(Self { directory: sys::current_or_former_dir()?, purpose })
    }

    /// Whether a path is this directory or above it.
    pub(super) fn is_below(&self, tracked: &Path) -> bool {
        self.directory.starts_with(tracked)
    }
}

impl SessionSummary {
    /// Whether the session may have changed something, or may be about to. One without a second
    /// snapshot has no last state to tell by. What no snapshot holds was changed, too.
    pub fn may_have_changed(&self) -> bool {
        if self.has_landed.is_some() {
            return self.has_changes();
        }
        self.has_begun
            && (self.status != SessionStatus::Completed
                || self.snapshot_count < 2
                || self.has_changes()
                || self.has_lost_unread)
    }

    /// Whether one of these paths and one of the tracked paths contain one another.
    pub fn overlaps<'a>(&self, mut paths: impl Iterator<Item = &'a Path>) -> bool {
        paths.any(|path| self.concerns(path))
    }

    /// Its place among others.
    pub fn recency(&self, now: Timestamp) -> Recency {
        Recency::new(self.started, self.session_id.as_str(), now)
    }
}

/// The sessions here, newest first.
///
/// # Errors
/// [`NotHere`].
pub fn sessions_here<'a>(
    sessions: &'a [SessionSummary],
    place: &Place,
    now: Timestamp,
) -> Result<Vec<&'a SessionSummary>, NotHere> {
    let of = |is_here: &dyn Fn(&Path) -> bool, files_are_here: bool| {
        let has_file = |session: &SessionSummary| {
            let mut files = session.tracked_files.iter();
            files_are_here && files.any(|file| file.parent() == Some(&*place.directory))
        };
        let tracks = |session: &&SessionSummary| {
            let mut tracked = session.tracked_paths.iter();
            // A command in ~/.claude is not about the identity of the agent. And the writer of an
            // archive chooses its paths and times: `undo` must not bring its contents here.
            !session.origin.is_apart()
                && session.has_begun
                && !session.received
                && (tracked.any(|tracked| is_here(tracked)) || has_file(session))
        };
        let mut found: Vec<_> = sessions.iter().filter(tracks).collect();
        // A watcher writes all the time: its session would hide every other one.
        let is_watch = |session: &SessionSummary| session.origin == SessionOrigin::Watch;
        found.sort_by_cached_key(|session| {
            (is_watch(session), std::cmp::Reverse(session.recency(now)))
        });
        found
    };
    let here = of(&|tracked| place.is_below(tracked), true);
    if !here.is_empty() || place.purpose == Purpose::Restoring {
        return if here.is_empty() { Err(NotHere::Nowhere) } else { Ok(here) };
    }
    let below = of(&|tracked| tracked.starts_with(&place.directory), false);
    let mut projects: Vec<String> = below.iter().map(|session| session.project()).collect();
    projects.sort();
    projects.dedup();
    match projects.len() {
        0 => Err(NotHere::Nowhere),
        1 => Ok(below),
        _ => Err(NotHere::SeveralBelow(projects)),
    }
}

/// The session that is meant of those [here](sessions_here).
pub fn newest<'a>(here: &[&'a SessionSummary]) -> Option<&'a SessionSummary> {
    let changed = here.iter().find(|session| session.may_have_changed());
    changed.or(here.first()).copied()
}

/// The newest session of a watcher with changes among those [here](sessions_here).
pub fn last_watched<'a>(here: &[&'a SessionSummary]) -> Option<&'a SessionSummary> {
    let is_it = |session: &&&SessionSummary| {
        session.origin == SessionOrigin::Watch && session.step_count > 0
    };
    here.iter().find(is_it).copied()
}

/// A session whose manifest cannot be used.
#[derive(Debug)]
pub struct Unreadable {
    session: SessionDir,
    source: ManifestError,
}

impl Unreadable {
    /// Its id.
    pub fn id(&self) -> String {
        self.session.id()
    }

    /// Why it cannot be used.
    pub fn error(&self) -> &ManifestError {
        &self.source
    }

    /// Whether it may be of this place: its first snapshot says what it tracks, if that can be
    /// read.
    fn may_be_here(&self, place: &Place) -> bool {
        self.session.manifest(0).map_or(true, |baseline| {
            let mut tracked = baseline.manifest.roots.iter().map(|root| &root.path);
            tracked.any(|tracked| {
                place.is_below(tracked)
                    || place.purpose == Purpose::Looking && tracked.starts_with(&place.directory)
            })
        })
    }

    /// Whether it may have begun after a session.
    fn may_be_newer(&self, known: Option<&Recency>) -> bool {
        match (known, self.session.latest_begin()) {
            (Some(known), Ok(begin)) => known.may_be_before(begin),
            _ => true,
        }
    }
}

/// All sessions of a store, as far as they can be read.
#[derive(Debug, Default)]
pub struct Listed {
    /// The sessions with a manifest.
    pub sessions: Vec<SessionSummary>,
    /// The others.
    pub unreadable: Vec<Unreadable>,
    /// Sessions, with a manifest or without, that hold no snapshot and do not run: killed before
    /// their first one, or about to take it ([`SessionDir::is_being_made`]).
    pub unbegun: Vec<SessionDir>,
}

impl Catalog {
    /// Reads the manifests of all sessions.
    ///
    /// # Errors
    /// When a directory cannot be read.
    pub fn listed(&self) -> Result<Listed, CatalogError> {
        let mut listed = Listed::default();
        for session in self.sessions()? {
            match SessionSummary::of(&session) {
                Ok(summary) => {
                    if !summary.has_begun {
                        listed.unbegun.push(session);
                    }
                    listed.sessions.push(summary);
                }
                // It was removed meanwhile.
                Err(_) if session.is_gone() => {}
                Err(ManifestError::Missing { .. })
                    if session.snapshot_numbers().is_ok_and(|numbers| numbers.is_empty()) =>
                {
                    listed.unbegun.push(session);
                }
                Err(source) => listed.unreadable.push(Unreadable { session, source }),
            }
        }
        Ok(listed)
    }

    /// The session of the store that began last, wherever.
    pub(super) fn newest_of_store(&self) -> Result<SessionDir, CatalogError> {
        let mut listed = self.listed()?;
        let now = Timestamp::now();
        let recorded = listed.sessions.iter().filter(|it| !it.received && it.has_begun);
        let newest = recorded
            .max_by_key(|session| (session.origin != SessionOrigin::Watch, session.recency(now)));
        let newest = newest.map(|session| (session.recency(now), session.session_id.clone()));
        // Another one in its place may be that of another project.
        let known = newest.as_ref().map(|(recency, _)| recency);
        match (listed.refusal(known, None), newest) {
            (Some(refusal), _) => Err(refusal),
            (None, Some((_, id))) => self.open(&id),
            (None, None) => Err(self.nothing_recorded(!listed.sessions.is_empty())),
        }
    }

    fn nothing_recorded(&self, has_received: bool) -> CatalogError {
        let root = self.root().to_owned();
        match has_received {
            true => CatalogError::OnlyReceived { root },
            false => CatalogError::Empty { root },
        }
    }

    /// The session that is meant at a place. An unreadable one that may be it is never passed over.
    ///
    /// # Errors
    /// [`CatalogError::NoneHere`], [`CatalogError::SeveralBelow`], [`CatalogError::LatestUnknown`],
    /// [`CatalogError::Empty`], [`CatalogError::OnlyReceived`].
    pub fn find_here(&self, place: &Place) -> Result<SessionDir, CatalogError> {
        let mut listed = self.listed()?;
        let now = Timestamp::now();
        let known = sessions_here(&listed.sessions, place, now).ok();
        let known = known.as_deref().and_then(newest).map(|session| session.recency(now));
        if let Some(refusal) = listed.refusal(known.as_ref(), Some(place)) {
            return Err(refusal);
        }
        let here = sessions_here(&listed.sessions, place, now);
        let found = here.as_deref().ok().and_then(newest);
        match (&here, found) {
            (Ok(_), Some(session)) => self.open(&session.session_id),
            (Err(NotHere::SeveralBelow(projects)), _) => {
                let (directory, projects) = (place.directory.clone(), projects.clone());
                Err(CatalogError::SeveralBelow { directory, projects })
            }
            _ => Err(self.none_here(place, &listed.sessions, now)),
        }
    }

    /// The session so many places before the one that is meant at a place. Those that changed
    /// nothing do not count.
    fn find_before(&self, id: &SnapshotId, place: &Place) -> Result<SessionDir, CatalogError> {
        let meant = self.find_here(place)?.id();
        let listed = self.listed()?;
        let here = sessions_here(&listed.sessions, place, Timestamp::now()).unwrap_or_default();
        let before = here.iter().skip_while(|session| session.session_id != meant);
        let before = before.filter(|it| it.session_id == meant || it.may_have_changed());
        let found = id.places_back().and_then(|places| before.clone().nth(places));
        match found {
            Some(session) => self.open(&session.session_id),
            None => Err(self.not_found(&id.session)),
        }
    }

    /// The error where no session is here.
    pub fn none_here(
        &self,
        place: &Place,
        sessions: &[SessionSummary],
        now: Timestamp,
    ) -> CatalogError {
        let is_project = |session: &&SessionSummary| !session.origin.is_apart();
        let (received, recorded): (Vec<_>, Vec<_>) = sessions
            .iter()
            .filter(|it| is_project(it) && it.has_begun)
            .partition(|session| session.received);
        let tracks_here = |session: &&&SessionSummary| {
            session.tracked_paths.iter().any(|path| place.is_below(path))
        };
        let received_here = received.iter().filter(tracks_here);
        if let Some(received) = received_here.max_by_key(|session| session.recency(now)) {
            let (directory, elsewhere) = (place.directory.clone(), Box::new((*received).clone()));
            return CatalogError::NoneHere { directory, elsewhere, moved: None };
        }
        let changed = recorded.iter().filter(|session| session.may_have_changed());
        let newest = changed.max_by_key(|session| session.recency(now));
        let newest = newest.or(recorded.iter().max_by_key(|session| session.recency(now)));
        let Some(newest) = newest else {
            return self.nothing_recorded(!received.is_empty());
        };
        let (elsewhere, moved) = match self.moved_here(&place.directory, sessions, now) {
            Some((session, moved)) => (session, Some(moved)),
            None => (*newest, None),
        };
        let (directory, elsewhere) = (place.directory.clone(), Box::new(elsewhere.clone()));
        CatalogError::NoneHere { directory, elsewhere, moved }
    }

    /// Finds a session as [`find`](Self::find) does, but `latest` is the one that is meant here,
    /// and `latest~N` the one N places before it.
    ///
    /// # Errors
    /// As [`find`](Self::find) and [`find_here`](Self::find_here).
    pub fn find_from(&self, id: &str, purpose: Purpose) -> Result<SessionDir, CatalogError> {
        let place = Place::current(purpose);
        let session = id.to_owned();
        let whole = SnapshotId { session, snapshot: None, is_step: false };
        if id == LATEST {
            return self.find_here(&place?);
        }
        if whole.places_back().is_some() {
            return self.find_before(&whole, &place?);
        }
        self.find_near(id, place.ok().as_ref().map(|place| &*place.directory))
    }

    /// Finds a session, and one of its snapshots if one is named, as
    /// [`find_from`](Self::find_from) does.
    ///
    /// # Errors
    /// As there, or [`CatalogError::NoSnapshot`].
    pub fn find_snapshot_from(
        &self,
        id: &SnapshotId,
        purpose: Purpose,
    ) -> Result<(SessionDir, Option<u64>), CatalogError> {
        let place = Place::current(purpose);
        if id.session == LATEST {
            return self.snapshot_of(self.find_here(&place?)?, id);
        }
        if id.places_back().is_some() {
            return self.snapshot_of(self.find_before(id, &place?)?, id);
        }
        self.find_snapshot_near(id, place.ok().as_ref().map(|place| &*place.directory))
    }
}

impl Listed {
    /// The refusal to go on where an unreadable session may be the one that is meant, and not the
    /// `known` one. `place`: sessions that are elsewhere for sure do not count.
    pub fn refusal(
        &mut self,
        known: Option<&Recency>,
        place: Option<&Place>,
    ) -> Option<CatalogError> {
        let may_be_meant = |lost: &Unreadable| {
            lost.may_be_newer(known) && place.is_none_or(|place| lost.may_be_here(place))
        };
        // By id, so that of several it is mostly the newest that is named.
        let at = self.unreadable.iter().rposition(may_be_meant)?;
        let Unreadable { session, source } = self.unreadable.swap_remove(at);
        Some(CatalogError::LatestUnknown { session: session.id(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::ChangeSummary;
    use crate::object::ContentHash;

    fn session(id: &str, second: i64, tracked: &str, created: u64) -> SessionSummary {
        SessionSummary {
            label: None,
            pinned: false,
            received: false,
            session_id: id.to_owned(),
            started: Timestamp::from_second(second).unwrap(),
            ended: None,
            command: Vec::new(),
            tracked_paths: vec![tracked.into()],
            tracked_files: Vec::new(),
            snapshot_count: 2,
            labels: Vec::new(),
            agent: None,
            step_count: 0,
            agent_step_count: 0,
            unrecorded: Vec::new(),
            user_changes: 0,
            has_user_edits: false,
            has_begun: true,
            removed: Vec::new(),
            exit_code: None,
            fork: None,
            origin: SessionOrigin::Run,
            has_landed: None,
            status: SessionStatus::Completed,
            changes: Some(ChangeSummary { created, ..ChangeSummary::default() }),
            has_lost_unread: false,
            undone: false,
            partly_undone: false,
            has_kept_some: false,
            restore_count: 0,
            disk_size: 0,
            session_root: ContentHash::of(b""),
        }
    }

    /// The session that a directory means, seen from the second 100.
    fn meant(sessions: &[SessionSummary], dir: &str, purpose: Purpose) -> Result<String, NotHere> {
        let place = Place { directory: dir.into(), purpose };
        let here = sessions_here(sessions, &place, Timestamp::from_second(100).unwrap())?;
        Ok(newest(&here).unwrap().session_id.clone())
    }

    #[test]
    fn the_newest_session_that_changed_something_at_or_above_the_directory_is_meant() {
        let sessions = [
            session("old", 1, "/dev/a", 1),
            session("new", 3, "/dev/a", 1),
            session("idle", 4, "/dev/a", 0),
            session("other", 5, "/dev/ab", 1),
            session("future", 200, "/dev/a", 1),
        ];
        for purpose in [Purpose::Restoring, Purpose::Looking] {
            assert_eq!(meant(&sessions, "/dev/a", purpose).unwrap(), "new");
            assert_eq!(meant(&sessions, "/dev/a/b/c", purpose).unwrap(), "new");
            assert_eq!(meant(&sessions, "/dev/ab/x", purpose).unwrap(), "other");
            assert_eq!(meant(&sessions, "/etc", purpose), Err(NotHere::Nowhere));
        }
        assert_eq!(meant(&sessions[2..3], "/dev/a", Purpose::Restoring).unwrap(), "idle");
        let open = SessionSummary { status: SessionStatus::Interrupted, ..sessions[2].clone() };
        let sessions = [sessions[1].clone(), open];
        assert_eq!(meant(&sessions, "/dev/a", Purpose::Restoring).unwrap(), "idle");
    }

    #[test]
    fn the_session_of_a_watcher_is_meant_where_no_other_one_changed_anything() {
        let watched = SessionSummary {
            origin: SessionOrigin::Watch,
            step_count: 2,
            ..session("watched", 5, "/dev/a", 2)
        };
        let mut sessions = vec![session("idle", 1, "/dev/a", 0), watched];
        assert_eq!(meant(&sessions, "/dev/a", Purpose::Restoring).unwrap(), "watched");
        sessions.push(session("run", 3, "/dev/a", 1));
        assert_eq!(meant(&sessions, "/dev/a", Purpose::Restoring).unwrap(), "run");
        let here: Vec<_> = sessions.iter().collect();
        assert_eq!(last_watched(&here).unwrap().session_id, "watched");
        assert!(last_watched(&here[..1]).is_none());
    }

    #[test]
    fn a_file_is_of_the_directory_that_it_lies_in() {
        let of_file = |id: &str, second, tracked: &str| SessionSummary {
            tracked_files: vec![tracked.into()],
            ..session(id, second, tracked, 1)
        };
        let sessions = [session("dir", 1, "/dev/a", 1), of_file("file", 2, "/dev/a/f")];
        for purpose in [Purpose::Restoring, Purpose::Looking] {
            assert_eq!(meant(&sessions, "/dev/a", purpose).unwrap(), "file");
            assert_eq!(meant(&sessions, "/dev/a/b", purpose).unwrap(), "dir");
        }
        assert_eq!(meant(&sessions, "/dev", Purpose::Restoring), Err(NotHere::Nowhere));
    }

    #[test]
    fn one_project_below_is_found_by_who_looks() {
        let sessions = [session("a", 1, "/dev/a", 1), session("b", 2, "/dev/b", 1)];
        assert_eq!(meant(&sessions[..1], "/dev", Purpose::Looking).unwrap(), "a");
        assert_eq!(meant(&sessions[..1], "/dev", Purpose::Restoring), Err(NotHere::Nowhere));
        let several = NotHere::SeveralBelow(vec!["/dev/a".to_owned(), "/dev/b".to_owned()]);
        assert_eq!(meant(&sessions, "/dev", Purpose::Looking), Err(several));
        let above = [&sessions[..], &[session("dev", 1, "/dev", 1)]].concat();
        assert_eq!(meant(&above, "/dev", Purpose::Looking).unwrap(), "dev");
    }
}
