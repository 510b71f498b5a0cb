//! States that a tool is asked about: snapshots, and what is there now.

use super::workspace::cut;
use super::{ToolError, Workspace};
use nono_engine::session::CatalogError;
use nono_engine::snapshot::{LiveState, RemovedSnapshot, SnapshotManager, SnapshotManifest};
use nono_engine::store::ObjectSource;

/// Words that name a state.
const NOW: &str = "now";
const BASELINE: &str = "baseline";
pub(super) use nono_engine::layout::LATEST;

/// A session's state that an argument names.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) manager: SnapshotManager,
    /// Number of the snapshot; `None` is now.
    pub(super) number: Option<u64>,
}

/// The older one of two states that are compared.
#[derive(Debug)]
pub(super) struct Older {
    /// The nearest one that the session still holds; `None`: it holds none before.
    pub(super) state: Option<Named>,
    /// The state directly before, where it was removed.
    pub(super) removed: Option<RemovedSnapshot>,
}

/// A state at hand.
pub(super) enum State<'a> {
    Snapshot(Box<SnapshotManifest>, &'a SnapshotManager),
    Now(Box<LiveState<'a>>),
}

impl State<'_> {
    pub(super) fn manifest(&self) -> &SnapshotManifest {
        match self {
            Self::Snapshot(manifest, _) => manifest,
            Self::Now(live) => live.manifest(),
        }
    }

    pub(super) fn source(&self) -> &dyn ObjectSource {
        match self {
            Self::Snapshot(_, manager) => manager.store(),
            Self::Now(live) => &**live,
        }
    }
}

impl Workspace {
    /// The state that a text names: `17` or `#17` of the session that is meant, `latest`,
    /// `baseline`, `now`, or the same behind an id: `ID/17`, `ID#17`, `ID`.
    pub(super) fn state(&self, given: Option<&str>) -> Result<Named, ToolError> {
        let given = given.unwrap_or(LATEST).trim();
        let is_word = |text: &str| {
            [NOW, BASELINE, LATEST].contains(&text)
                || text.bytes().all(|byte| byte.is_ascii_digit())
        };
        let (session, snapshot) = match given.split_once(['/', '#']) {
            Some((session, snapshot)) => (session, snapshot),
            None if is_word(given) => ("", given),
            None => (given, LATEST),
        };
        let session = self.session(Some(session))?;
        let manager = SnapshotManager::open(session.path())?
            .with_threads(self.policy.threads)
            .with_compression(self.policy.compression);
        let numbers = session.snapshot_numbers()?;
        let number = match snapshot {
            NOW => None,
            BASELINE => numbers.first().copied(),
            "" | LATEST => numbers.last().copied(),
            text => text.parse().ok().filter(|number| numbers.contains(number)),
        };
        let asked: Option<u64> = snapshot.parse().ok();
        let removed = asked.and_then(|asked| session.metadata().ok()?.removal(asked).cloned());
        match (number, removed) {
            (None, Some(removed)) => {
                let session = session.id();
                Err(CatalogError::SnapshotRemoved { session, removed }.into())
            }
            (None, None) if snapshot != NOW => Err(ToolError::Arguments(format!(
                "session {} has no snapshot {:?}; list_steps names them",
                session.id(),
                cut(snapshot, 100)
            ))),
            (number, _) => Ok(Named { manager, number }),
        }
    }
}

impl Named {
    /// Its name in answers, which is also one in arguments.
    pub(super) fn name(&self) -> String {
        match self.number {
            Some(number) => format!("{}/{number}", self.manager.session().id()),
            None => NOW.to_owned(),
        }
    }

    /// The number, of a state that must be recorded.
    pub(super) fn recorded(&self) -> Result<u64, ToolError> {
        self.number.ok_or_else(|| ToolError::arguments("at: a snapshot is needed, not `now`"))
    }

    /// Reads it; what is there now is captured, and nothing is written.
    pub(super) fn load(&self) -> Result<State<'_>, ToolError> {
        match self.number {
            Some(number) => {
                let manifest = self.manager.load_manifest(number)?;
                Ok(State::Snapshot(Box::new(manifest), &self.manager))
            }
            None => {
                let last = self.last()?;
                Ok(State::Now(Box::new(self.manager.live_state(&last)?)))
            }
        }
    }

    /// The state before: the snapshot before this one, or the nearest one before that where it was
    /// removed.
    pub(super) fn before(&self) -> Result<Older, ToolError> {
        let parent = match self.number {
            Some(number) => self.manager.load_manifest(number)?.parent,
            None => Some(self.last()?.number),
        };
        let session = self.manager.session();
        let metadata = session.metadata()?;
        let removed = parent.and_then(|parent| metadata.removal(parent).cloned());
        let number = match &removed {
            Some(removed) => session.held_before(removed.number)?,
            None => parent,
        };
        let named = |number| Self { manager: self.manager.clone(), number: Some(number) };
        Ok(Older { state: number.map(named), removed })
    }

    fn last(&self) -> Result<SnapshotManifest, ToolError> {
        let session = self.manager.session();
        let last = session.snapshot_numbers()?.last().copied();
        let last = last.ok_or_else(|| ToolError::arguments("the session has no snapshot yet"))?;
        Ok(self.manager.load_manifest(last)?)
    }
}

impl Older {
    /// The state that an argument names.
    pub(super) fn named(state: Named) -> Self {
        Self { state: Some(state), removed: None }
    }

    /// The note of an answer on a state that was removed.
    pub(super) fn note(&self) -> Option<String> {
        let removed = self.removed.as_ref()?;
        let number = removed.number;
        let instead = match &self.state {
            Some(state) => format!(
                "{} is the nearest state before it, so changes of removed steps are in this, too",
                state.name()
            ),
            None => "nothing before it is there either".to_owned(),
        };
        Some(format!("State {number} was {removed}; {instead}."))
    }
}
