//! `nono bisect`: the first recorded state at which a command fails.
//!
//! The states are the snapshots and steps of the sessions here, by time. Each is tried in a
//! throw-away fork of its own, so the project stays as it is, and several can be tried at once. The
//! state of now can be the bad one: it is recorded for that, and removed afterwards.

mod search;

use std::collections::BTreeMap;
use std::io::Write;

use clap::Args;
use jiff::{Timestamp, Zoned};
use serde::Serialize;

use super::fork::trial::{self, Output, Trials};
use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, ThreadArgs};
use crate::cli::context::{BOLD, Context, DIM};
use crate::cli::error::CliError;
use crate::cli::forking::CommandArgs;
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use crate::cli::render::absolute_time;
use crate::cli::repositories::Repositories;
use crate::cli::restoring::{command, write_preview};
use nono_engine::diff::Change;
use nono_engine::path_text::Shown;
use nono_engine::session::{
    Catalog, Place, Purpose, RecordRequest, Recording, SessionSummary, SnapshotId, sessions_here,
    steps_of,
};
use nono_engine::snapshot::{
    Budget, SessionDir, SessionOrigin, SnapshotKind, SnapshotManager, SnapshotManifest, StepEntry,
};
use search::{Found, Search, Verdict};

/// The word for the present state.
const NOW: &str = "now";
/// The exit code of a command that says that it cannot try a state, as in `git bisect`.
const SKIP: u8 = 125;
/// The exit codes of a shell that cannot run a command.
const NOT_RUN: [u8; 2] = [126, 127];

/// Arguments of `nono bisect`.
#[derive(Debug, Args)]
pub(in crate::cli) struct BisectArgs {
    /// A state at which the command succeeds [default: the newest one, which is looked for]
    #[arg(long, value_name = "ID[/N]")]
    good: Option<String>,
    /// A state at which the command fails
    #[arg(long, value_name = "ID[/N]", default_value = NOW)]
    bad: String,
    /// Maximum number of states that are tried at once; with more than one, the output of the
    /// command is not shown
    #[arg(long, short, value_name = "N", default_value_t = 1)]
    jobs: usize,
    #[command(flatten)]
    inside: CommandArgs,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// A recorded state.
struct State {
    /// None: the present state.
    session: Option<SessionDir>,
    manifest: SnapshotManifest,
}

/// A state in a report.
#[derive(Debug, Serialize)]
struct Told {
    /// `ID/N`, or `now`.
    state: String,
    session_id: Option<String>,
    number: Option<u64>,
    timestamp: Timestamp,
    /// The command of its session.
    command: Vec<String>,
    /// The step of an agent that it is the state after.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<StepEntry>,
}

#[derive(Debug, Serialize)]
struct Report {
    /// The newest state at which the command succeeded.
    good: Told,
    /// The oldest state at which it failed.
    bad: Told,
    /// States between the two that could not be tried.
    skipped: Vec<Told>,
    /// Number of tries.
    tries: usize,
    /// The changes from the good state to the bad one.
    changes: Vec<Change>,
}

impl State {
    fn name(&self) -> String {
        match &self.session {
            Some(session) => format!("{}/{}", session.id(), self.manifest.number),
            None => NOW.to_owned(),
        }
    }

    fn told(&self) -> Result<Told, CliError> {
        let metadata = self.session.as_ref().map(SessionDir::metadata).transpose()?;
        let number = self.manifest.number;
        let step = metadata
            .as_ref()
            .and_then(|metadata| steps_of(metadata).into_iter().find(|step| step.number == number));
        Ok(Told {
            state: self.name(),
            session_id: self.session.as_ref().map(SessionDir::id),
            number: self.session.as_ref().map(|_| number),
            timestamp: self.manifest.timestamp,
            command: metadata.map(|metadata| metadata.command).unwrap_or_default(),
            step,
        })
    }

    /// The state in a line for a person.
    fn line(&self) -> Result<String, CliError> {
        let Told { state, step, .. } = self.told()?;
        let what = match (&step, &self.session, self.manifest.kind) {
            (Some(step), _, _) => {
                format!("step {}, {}", step.number, Shown::bytes(step.summary().as_bytes()))
            }
            (None, None, _) => "the present state".to_owned(),
            (None, Some(_), SnapshotKind::Safety) => "the state before a restore".to_owned(),
            (None, Some(session), _) => {
                let summary = SessionSummary::of(session)?;
                match (summary.command.is_empty(), self.manifest.number) {
                    (true, _) => "a snapshot".to_owned(),
                    (false, 0) => format!("before {}", command(&summary)),
                    (false, _) => format!("after {}", command(&summary)),
                }
            }
        };
        let time = absolute_time(self.manifest.timestamp, &Zoned::now());
        Ok(format!("{BOLD}{state}{BOLD:#}  {what}  {DIM}{time}{DIM:#}"))
    }
}

pub(in crate::cli) fn run(args: &BisectArgs, store: &StoreArgs, context: &Context) -> Outcome {
    if args.inside.command.is_empty() {
        return Err(CliError::usage("bisect needs a command that tells good states from bad ones")
            .with_hint(format!("{NONO} bisect -- make test")));
    }
    if let Some(outcome) = trial::run_marked(&args.inside, store, context) {
        return outcome;
    }
    let catalog = store.catalog()?;
    let trials = Trials::new(store)?;
    let mut states = states_here(&catalog)?;
    let now = match args.bad == NOW {
        true => {
            let last = states.last().map(|state| &state.manifest);
            let last = last.ok_or_else(|| CliError::failed("no state is recorded here"))?;
            // A kill leaves a trace of the session that this records.
            let trace = trials.trace()?;
            let recording = record_now(&catalog, last, args, context)?;
            states.push(State { session: None, manifest: recording.baseline().clone() });
            Some((recording, trace))
        }
        false => None,
    };
    let found = find(args, &catalog, &mut states, &trials, context);
    if let Some((recording, _trace)) = now {
        recording.withdraw()?;
    }
    let (found, skipped, tries) = found?;
    report(args, &states, found, &skipped, tries, context)
}

/// The recorded states of the newest project here, the oldest first. Equal neighbors are one state:
/// the first of them.
fn states_here(catalog: &Catalog) -> Result<Vec<State>, CliError> {
    let sessions = catalog.sessions()?;
    let mut summaries = Vec::new();
    for session in &sessions {
        match SessionSummary::of(session) {
            Ok(summary) => summaries.push(summary),
            Err(error) => tracing::warn!("a session is passed over: {error}"),
        }
    }
    let place = Place::current(Purpose::Looking)?;
    let now = Timestamp::now();
    let here = sessions_here(&summaries, &place, now).unwrap_or_default();
    let Some(newest) = here.first() else {
        return Err(CliError::failed("no session is here: there is no state to try")
            .with_hint(format!("{NONO} list shows the sessions of all directories")));
    };
    let mut states = Vec::new();
    for summary in here.iter().filter(|it| it.tracked_paths == newest.tracked_paths) {
        let Some(session) = sessions.iter().find(|it| it.id() == summary.session_id) else {
            continue;
        };
        for number in session.recorded_numbers()? {
            match session.manifest(number) {
                Ok(loaded) => {
                    states.push(State { session: Some(session.clone()), manifest: loaded.manifest })
                }
                Err(error) => tracing::warn!("a snapshot is passed over: {error}"),
            }
        }
    }
    states.sort_by(|a, b| {
        let place = |state: &State| {
            let id = state.session.as_ref().map(SessionDir::id);
            (state.manifest.timestamp, id, state.manifest.number)
        };
        place(a).cmp(&place(b))
    });
    states.dedup_by(|later, earlier| later.manifest.merkle_root == earlier.manifest.merkle_root);
    Ok(states)
}

/// Records the present state of what `last` tracks, for as long as the recording lives.
fn record_now(
    catalog: &Catalog,
    last: &SnapshotManifest,
    args: &BisectArgs,
    context: &Context,
) -> Result<Recording, CliError> {
    let exclusion = last.roots.first().map(|root| root.exclusion.clone()).unwrap_or_default();
    let request = RecordRequest {
        root: catalog.root().to_owned(),
        command: Vec::new(),
        tracked_paths: last.roots.iter().map(|root| root.path.clone()).collect(),
        exclusion,
        budget: Budget::UNLIMITED,
        compression: args.threads.compression(),
        threads: args.threads.count(context)?,
        origin: SessionOrigin::Fork,
        label: None,
    };
    let bar = Bar::new(context, "recording the present state");
    let recording = Recording::start(&request, bar.clone());
    bar.finish();
    Ok(recording?)
}

/// The place of a state that a person named.
fn place_of(word: &str, catalog: &Catalog, states: &[State]) -> Result<usize, CliError> {
    if word == NOW {
        return Ok(states.len() - 1);
    }
    let Ok(id) = word.parse::<SnapshotId>();
    let (session, number) = catalog.find_snapshot_from(&id, Purpose::Looking)?;
    let number = match number {
        Some(number) => number,
        None => session
            .recorded_numbers()?
            .pop()
            .ok_or_else(|| CliError::failed(format!("session {} has no snapshot", session.id())))?,
    };
    let manifest = session.manifest(number)?.manifest;
    let is_it = |state: &State| state.manifest.merkle_root == manifest.merkle_root;
    let is_named = |state: &State| {
        state.manifest.number == number
            && state.session.as_ref().is_some_and(|it| it.id() == session.id())
    };
    let named = states.iter().position(is_named);
    // One of several equal states has another name here.
    named.or_else(|| states.iter().rposition(is_it)).ok_or_else(|| {
        CliError::failed(format!(
            "{}/{number} is no state of the newest project here",
            session.id()
        ))
    })
}

/// Tries of states, each once.
struct Tries<'a> {
    trials: &'a Trials,
    states: &'a [State],
    jobs: usize,
    known: BTreeMap<usize, Verdict>,
    context: &'a Context,
}

impl Tries<'_> {
    fn at(&mut self, at: usize) -> Result<Verdict, CliError> {
        self.all(&[at])?;
        Ok(self.known.get(&at).copied().unwrap_or(Verdict::Skipped))
    }

    /// Tries states side by side.
    fn all(&mut self, places: &[usize]) -> Result<(), CliError> {
        let places: Vec<usize> =
            places.iter().filter(|at| !self.known.contains_key(at)).copied().collect();
        let output = if self.jobs > 1 { Output::Dropped } else { Output::Shown };
        let (trials, states) = (self.trials, self.states);
        let tried = std::thread::scope(|scope| {
            let begin = |&at: &usize| {
                let thread = std::thread::Builder::new().name("trial".to_owned());
                let work = move || trials.run(&states[at].manifest, output);
                thread.spawn_scoped(scope, work).map(|thread| (at, thread))
            };
            let begun = places.iter().map(begin).collect::<std::io::Result<Vec<_>>>()?;
            // A panic there goes on here.
            let end = |(at, thread): (usize, std::thread::ScopedJoinHandle<'_, _>)| {
                (at, thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            };
            Ok::<Vec<_>, std::io::Error>(begun.into_iter().map(end).collect())
        });
        let tried = tried
            .map_err(|error| CliError::failed(format!("cannot start more threads: {error}")))?;
        for (at, code) in tried {
            let code: u8 = code?;
            let (verdict, word) = match code {
                0 => (Verdict::Good, "succeeds".to_owned()),
                SKIP => (Verdict::Skipped, "is skipped (exit code 125)".to_owned()),
                code if NOT_RUN.contains(&code) => {
                    (Verdict::Skipped, format!("is skipped: the command cannot be run ({code})"))
                }
                code => (Verdict::Bad, format!("fails (exit code {code})")),
            };
            self.known.insert(at, verdict);
            self.context.say(format_args!("{}: {word}", self.states[at].line()?));
        }
        Ok(())
    }
}

/// Searches. Returns the end, the states that could not be tried there, and the number of tries.
fn find(
    args: &BisectArgs,
    catalog: &Catalog,
    states: &mut Vec<State>,
    trials: &Trials,
    context: &Context,
) -> Result<(Found, Vec<usize>, usize), CliError> {
    let bad = place_of(&args.bad, catalog, states)?;
    let good = args.good.as_deref().map(|word| place_of(word, catalog, states)).transpose()?;
    if good.is_some_and(|good| good >= bad) {
        return Err(CliError::usage("the good state is not older than the bad one"));
    }
    let jobs = args.jobs.max(1);
    let mut tries = Tries { trials, states, jobs, known: BTreeMap::new(), context };
    let first: Vec<usize> = good.into_iter().chain([bad]).collect();
    for pair in first.chunks(jobs) {
        tries.all(pair)?;
    }
    let name = |at: usize| tries.states[at].name();
    match tries.known.get(&bad) {
        Some(Verdict::Bad) => {}
        Some(Verdict::Skipped) => {
            return Err(CliError::failed(format!("{} cannot be tried", name(bad))));
        }
        _ => {
            let message = format!("the command succeeds at {}: it is no bad state", name(bad));
            return Err(
                CliError::failed(message).with_hint("name a state at which it fails: --bad ID/N")
            );
        }
    }
    let (good, bad) = match good {
        Some(good) if tries.known.get(&good) == Some(&Verdict::Good) => (good, bad),
        Some(good) => {
            let message = format!("the command does not succeed at {}", name(good));
            return Err(CliError::failed(message)
                .with_hint("name an older state, or none: then one is looked for"));
        }
        None => good_before(&mut tries, bad)?,
    };
    let mut search = Search::new(good, bad);
    for (&at, &verdict) in tries.known.range(good + 1..bad) {
        search.note(at, verdict);
    }
    loop {
        let next = search.next(jobs);
        if next.is_empty() {
            break;
        }
        tracing::info!("at most {} tries are left", search.remaining());
        tries.all(&next)?;
        for at in next {
            search.note(at, tries.known[&at]);
        }
    }
    let found = search.found();
    let skipped = (found.good + 1..found.bad).collect();
    Ok((found, skipped, tries.known.len()))
}

/// Goes back from a bad state, in longer and longer steps, to one at which the command succeeds.
fn good_before(tries: &mut Tries<'_>, bad: usize) -> Result<(usize, usize), CliError> {
    let (mut oldest_bad, mut at, mut step) = (bad, bad, 1);
    while at > 0 {
        at = at.saturating_sub(step);
        step *= 2;
        match tries.at(at)? {
            Verdict::Good => return Ok((at, oldest_bad)),
            Verdict::Bad => oldest_bad = at,
            Verdict::Skipped => {}
        }
    }
    Err(CliError::failed("the command succeeds at no state that is recorded here")
        .with_hint(format!("the oldest state is {}", tries.states[0].name())))
}

fn report(
    args: &BisectArgs,
    states: &[State],
    found: Found,
    skipped: &[usize],
    tries: usize,
    context: &Context,
) -> Outcome {
    let (good, bad) = (&states[found.good], &states[found.bad]);
    let of = bad.session.as_ref().or(good.session.as_ref());
    let (changes, repositories) = match of {
        Some(session) => {
            let manager = SnapshotManager::open(session.path())?;
            let changes = manager.changes_between(&good.manifest, &bad.manifest)?;
            let store = Catalog::store_of(session)?;
            let found = Repositories::of(&store, &good.manifest, &bad.manifest, &changes)?;
            (changes, found)
        }
        None => Default::default(),
    };
    let told = bad.told()?;
    if args.json {
        let skipped = skipped.iter().map(|&at| states[at].told());
        let skipped = skipped.collect::<Result<_, _>>()?;
        context.json(&Report { good: good.told()?, bad: told, skipped, tries, changes })?;
        return Ok(0);
    }
    let mut out = context.out();
    writeln!(out, "{}", bad.line()?)?;
    if let Some(prompt) = told.step.as_ref().and_then(|step| step.prompt.as_ref()) {
        let text = Shown::bytes(prompt.text.as_bytes());
        writeln!(out, "prompt {}  {DIM}{text}{DIM:#}", prompt.number)?;
    }
    let roots: Vec<_> = bad.manifest.roots.iter().map(|root| root.path.clone()).collect();
    // Objects and logs of git say nothing to a person.
    let outside: Vec<Change> = repositories.outside(&changes).into_iter().cloned().collect();
    write_preview(&mut out, &outside, None, &roots)?;
    for line in repositories.lines_of_work() {
        writeln!(out, "{line}")?;
    }
    let name = told.state;
    context.say(format_args!(
        "{name} is the first state at which the command fails; at {} it succeeds",
        good.name()
    ));
    if !skipped.is_empty() {
        let states_are = if skipped.len() == 1 { "state is" } else { "states are" };
        context.say(format_args!(
            "{} {states_are} between the two, and could not be tried: the change may be in there",
            skipped.len()
        ));
        for &at in skipped {
            context.say(format_args!("  {}", states[at].line()?));
        }
    }
    context.say(format_args!("see the change: {NONO} diff {} {name}", good.name()));
    Ok(0)
}
