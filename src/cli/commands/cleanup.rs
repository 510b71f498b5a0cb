//! `nono cleanup`: sessions go, and with them the space that no other session needs.
//!
//! Without a selection, what the limits of the settings let go.

#[cfg(feature = "mount")]
#[path = "cleanup_forks.rs"]
mod forks;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use jiff::{SignedDuration, Timestamp};

use crate::cli::Outcome;
use crate::cli::args::{KeepArgs, LimitArgs, StoreArgs, ThreadArgs, named_project, surroundings};
use crate::cli::context::{Context, DIM, YELLOW};
use crate::cli::error::{CliError, opening_command};
use crate::cli::offer::NONO;
use crate::cli::progress::Bar;
use crate::cli::render::byte_size;
use crate::cli::retention;
use crate::cli::state_at::exact;
use crate::cli::when::{WhenError, when};
use crate::config::{FlagSettings, KeepFlags, Settings};
use nono_engine::counted::counted;
use nono_engine::gc::{CleanupError, CleanupOptions, CleanupPlan, CleanupReport, Unreadable};
use nono_engine::object::ContentHash;
use nono_engine::path_text::Shown;
use nono_engine::session::{
    Catalog, Expired, Purpose, SessionContent, SessionStatus, SessionSummary, aging_until,
    project_of,
};
use nono_engine::snapshot::{Recency, SessionDir, SessionMetadata, SessionOrigin};

/// Arguments of `nono cleanup`.
#[derive(Debug, Args)]
pub(in crate::cli) struct CleanupArgs {
    /// Sessions to remove: ids, prefixes that only one has, or `latest`, the newest one here
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// Keep the newest N sessions of each project, remove the others, whichever directory this is.
    /// One that changed nothing takes no place; histories of containers stay
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// Remove sessions of all projects that began more than so many days ago, or before a time: 30,
    /// 36h, monday, 2026-11-20; histories of containers stay
    #[arg(long, value_name = "DAYS | TIME", value_parser = older_than)]
    older_than: Option<OlderThan>,
    /// Remove all sessions but pinned ones, and what interrupted work left, however young, if
    /// nothing else uses the store
    #[arg(long, conflicts_with_all = ["keep", "older_than", "ids"])]
    all: bool,
    /// Remove these forks of the project here, with all that was changed in them, and nothing else
    #[cfg(feature = "mount")]
    #[arg(long, value_name = "NAME", conflicts_with_all = ["keep", "older_than", "all", "ids"])]
    fork: Vec<String>,
    /// Remove forks of all projects in which no command began for so many days, or since a time, and
    /// nothing else. One that is in use stays
    #[cfg(feature = "mount")]
    #[arg(
        long,
        value_name = "DAYS | TIME",
        value_parser = older_than,
        conflicts_with_all = ["keep", "older_than", "all", "ids", "fork"]
    )]
    forks_older_than: Option<OlderThan>,
    /// Free what little is unneeded in packs with others, too, and compress packs that were stored
    /// plain: takes longer, and leaves nothing behind
    #[arg(long)]
    compact: bool,
    #[command(flatten)]
    threads: ThreadArgs,
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    // A heading is that of all that follows.
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    rules: KeepArgs,
}

/// The latest begin of sessions that go.
#[derive(Debug, Clone, Copy)]
struct OlderThan {
    begin: Timestamp,
    /// Whether it was given as an age, and not as a time.
    is_age: bool,
}

fn older_than(text: &str) -> Result<OlderThan, WhenError> {
    // A number has always been one of days of 24 hours.
    let Ok(days) = text.parse::<u32>() else {
        let when = when(text)?;
        return Ok(OlderThan { begin: when.begin(), is_age: when.is_length() });
    };
    let begin = Timestamp::now()
        .checked_sub(SignedDuration::from_hours(i64::from(days) * 24))
        .map_err(|_| WhenError::TooLongAgo(text.to_owned()))?;
    Ok(OlderThan { begin, is_age: true })
}

pub(in crate::cli) fn run(args: &CleanupArgs, store: &StoreArgs, context: &Context) -> Outcome {
    #[cfg(feature = "mount")]
    if !args.fork.is_empty() || args.forks_older_than.is_some() {
        return forks::run(args, store, context);
    }
    let catalog = store.catalog()?;
    let has_rules = args.rules.flags() != KeepFlags::default();
    if args.selects() && (args.limits.is_given() || has_rules) {
        return Err(CliError::usage("either limits or a selection says which sessions go"));
    }
    let threads = args.threads.count(context)?;
    let (chosen, has_unknown) = if args.selects() {
        choose(args, &catalog, context)?
    } else {
        (over_limits(args, &catalog, threads, context)?, false)
    };
    let described: HashMap<String, String> = chosen.iter().filter_map(described).collect();
    let of_containers: Vec<String> =
        chosen.iter().filter(|session| is_of_container(session)).map(SessionDir::id).collect();
    let is_asked = args.selects() && !args.dry_run && !args.yes && !chosen.is_empty();
    if is_asked {
        refuse_without_terminal(&chosen, context)?;
    }
    let compact = args.compact;
    let options = CleanupOptions {
        orphans_at_once: args.all,
        compact,
        compression: args.threads.compression(),
        // One that is named goes, pinned or not.
        spare_pinned: args.ids.is_empty(),
        threads,
        ..CleanupOptions::default()
    };
    if is_asked {
        // JSON on stdout is the report alone.
        if !args.json {
            let progress = Bar::new(context, "looking at what can go");
            let options = CleanupOptions { progress: &*progress, ..options };
            let (foreseen, failure) = clean(&catalog, &chosen, true, &options);
            progress.finish();
            match failure {
                None => print(&foreseen, &described, args.all, context)?,
                Some(error) if error.is_stopped() => return Err(error),
                // A damaged session can go although another one hides what that frees.
                Some(error) => {
                    context.warn(format_args!("what this frees is not known: {error}"));
                    for session in &chosen {
                        let id = session.id();
                        let what = described.get(&id).map_or("", String::as_str);
                        context.say(format_args!("would remove {id}  {what}"));
                    }
                }
            }
        }
        if !confirm(&chosen, context)? {
            context.say("nothing was removed");
            return Ok(1);
        }
    }
    let bar = Bar::new(context, "cleaning up");
    let options = CleanupOptions { progress: &*bar, ..options };
    let cleaned = clean(&catalog, &chosen, args.dry_run, &options);
    bar.finish();
    let (report, failure) = cleaned;
    if args.json {
        context.json(&report)?;
    } else if failure.is_none() || !report.is_empty() || !report.sessions_skipped.is_empty() {
        print(&report, &described, args.all, context)?;
    }
    if report.sessions_removed.iter().any(|id| of_containers.contains(id)) && !args.dry_run {
        context.say(format_args!(
            "images of their snapshots, and containers that a restore put aside, stay with the \
             engine of containers: {NONO} container cleanup removes the images"
        ));
    }
    if let Some(error) = failure {
        return Err(error);
    }
    // A session that was to go, or may have been, and is still there is only a part of what was
    // asked for.
    Ok(u8::from(has_unknown || !report.sessions_skipped.is_empty()))
}

impl CleanupArgs {
    pub(in crate::cli) fn writes_store(&self) -> bool {
        !self.dry_run
    }

    /// Whether the arguments say which sessions go.
    fn selects(&self) -> bool {
        !self.ids.is_empty() || self.all || self.keep.is_some() || self.older_than.is_some()
    }
}

/// The sessions that the settings let go: the user answered when setting the limits.
fn over_limits(
    args: &CleanupArgs,
    catalog: &Catalog,
    threads: usize,
    context: &Context,
) -> Result<Vec<SessionDir>, CliError> {
    let flags = FlagSettings { keep: args.rules.flags(), ..FlagSettings::default() };
    let settings = Settings::load(&surroundings()?, &args.limits.flags(flags))?;
    if !Catalog::is_store(catalog.root()) {
        return Ok(Vec::new());
    }
    let bar = Bar::new(context, "looking at what sessions take");
    let options = CleanupOptions { threads, progress: &*bar, ..CleanupOptions::default() };
    let expired = retention::expired_sessions(catalog.root(), &settings, &options);
    bar.finish();
    let expired = expired?;
    let (verb, dry_run) = if args.dry_run { ("would go", true) } else { ("went", false) };
    retention::thin(catalog.root(), &settings, dry_run, |session, count| {
        let snapshots = if count == 1 { "snapshot" } else { "snapshots" };
        context.say(format_args!(
            "{count} {snapshots} of session {} {verb}: thinned out",
            session.id()
        ));
    })?;
    let young = retention::young_sessions(catalog.root(), &settings)?;
    if young > 0 {
        let (sessions, they) = match young {
            1 => ("1 session over a limit stays".to_owned(), "it is"),
            count => (format!("{count} sessions over a limit stay"), "they are"),
        };
        context.say(format_args!("{sessions}: {they} younger than a day"));
        let keep = settings.keep_last.value.max(1);
        context.say(format_args!(
            "  remove the young ones too, but the newest of each project: {NONO} cleanup --keep \
             {keep}"
        ));
    }
    let mut sessions = Vec::new();
    for (session, Expired { session_id, reason }) in expired {
        let reason = retention::describe(reason, &settings);
        let names = session.metadata().map(|metadata| names_of(&metadata)).unwrap_or_default();
        context.say(format_args!("session {session_id}{names} goes: {reason}"));
        sessions.push(session);
    }
    Ok(sessions)
}

/// The sessions that the arguments name, and whether there are some of which that cannot be told.
/// With `--keep` and `--older-than`, both must agree.
fn choose(
    args: &CleanupArgs,
    catalog: &Catalog,
    context: &Context,
) -> Result<(Vec<SessionDir>, bool), CliError> {
    if !args.ids.is_empty() {
        let find = |id| catalog.find_from(id, Purpose::Restoring);
        let found = args.ids.iter().map(|id| Ok::<_, CliError>(find(id)?));
        return Ok((found.collect::<Result<_, _>>()?, false));
    }
    if args.all {
        let (pinned, chosen): (Vec<_>, Vec<_>) = catalog
            .sessions()?
            .into_iter()
            .partition(|session| session.metadata().is_ok_and(|metadata| metadata.pinned));
        say_pinned(pinned.len(), context);
        return Ok((chosen, false));
    }
    let (mut pinned, mut containers) = (0, 0);
    let (mut dated, mut has_unknown) = (Vec::new(), false);
    for session in catalog.sessions()? {
        let dating = session
            .metadata()
            .and_then(|metadata| Ok((SessionStatus::of(&session, &metadata)?, metadata)));
        match dating {
            Ok((_, SessionMetadata { pinned: true, .. })) => pinned += 1,
            // It lives as long as its container: its beginning says nothing of its snapshots.
            Ok((_, metadata)) if metadata.origin == SessionOrigin::Container => containers += 1,
            Ok((status, metadata)) => dated.push((metadata, status, session)),
            // Another process removed it.
            Err(_) if session.is_gone() => {}
            Err(error) => {
                has_unknown = true;
                context.warn(format_args!(
                    "{error}; it is kept ({NONO} cleanup {} removes it)",
                    session.id()
                ));
            }
        }
    }
    say_pinned(pinned, context);
    if containers > 0 {
        context.say(format_args!(
            "{containers} histories of containers stay ({NONO} container cleanup has their limits)"
        ));
    }
    let now = Timestamp::now();
    dated.sort_by_cached_key(|(metadata, _, session)| {
        Reverse(Recency::new(metadata.started, session.id(), now))
    });
    let aged = aging_until(dated.iter().map(|(metadata, ..)| metadata.started), now);
    let oldest = args.older_than.map(|OlderThan { begin, is_age }| {
        if !is_age {
            return begin;
        }
        say_aged(aged, now, context);
        begin - now.duration_since(aged)
    });
    if let Some(oldest) = oldest {
        context.say(format_args!("sessions that began before {} are meant", exact(oldest)));
    }
    let keep = args.keep.unwrap_or(0);
    let mut kept: HashMap<(bool, String), Kept> = HashMap::new();
    let mut named = 0_usize;
    let chosen = dated.into_iter().filter(|(metadata, status, _)| {
        let group = (metadata.received, project_of(&metadata.tracked_paths));
        // A name is as good as a pin, except where age alone was asked for.
        let is_named = args.keep.is_some() && metadata.is_named();
        named += usize::from(is_named);
        let stays = is_named || kept.entry(group).or_default().stays(keep, metadata, *status);
        !stays
            && oldest.is_none_or(|oldest| metadata.started < oldest)
            && *status != SessionStatus::Running
    });
    let chosen = chosen.map(|(_, _, session)| session).collect();
    match named {
        0 => {}
        1 => {
            context.say(format_args!("1 session with a name stays ({NONO} cleanup ID removes it)"))
        }
        _ => context
            .say(format_args!("{named} sessions with a name stay ({NONO} cleanup ID removes one)")),
    }
    Ok((chosen, has_unknown))
}

/// The sessions of one project that `--keep` has kept, newest first.
#[derive(Debug, Default)]
struct Kept {
    count: usize,
    states: HashSet<ContentHash>,
    has_changes: bool,
}

impl Kept {
    /// Whether the next session is one of those that stay. As under the limits, one that is of no
    /// use takes no place, and the newest with changes stays.
    fn stays(&mut self, keep: usize, metadata: &SessionMetadata, status: SessionStatus) -> bool {
        let content = SessionContent::of(metadata, status);
        let is_last = keep > 0 && content == SessionContent::Changes && !self.has_changes;
        self.has_changes |= content == SessionContent::Changes;
        let stays = self.count < keep || is_last;
        self.count += usize::from(content.is_of_use(&mut self.states));
        stays
    }
}

/// Says why ages do not count up to now, where they do not.
fn say_aged(aged: Timestamp, now: Timestamp, context: &Context) {
    if aged < now {
        let days = counted(now.duration_since(aged).as_hours() / 24, "day", "days");
        context.say(format_args!(
            "ages count up to {}: no session began in the {days} after it, so the clock may \
             have jumped ({NONO} cleanup ID removes a session)",
            aged.strftime("%Y-%m-%d")
        ));
    }
}

/// Pinned sessions stay unless they are named.
fn say_pinned(count: usize, context: &Context) {
    match count {
        0 => {}
        1 => context.say(format_args!("1 pinned session stays ({NONO} cleanup ID removes it)")),
        _ => context
            .say(format_args!("{count} pinned sessions stay ({NONO} cleanup ID removes one)")),
    }
}

/// The sessions of a question as a number, and which of them are pinned.
fn asked_about(chosen: &[SessionDir]) -> (String, String) {
    let sessions = counted(chosen.len(), "session", "sessions");
    let is_pinned = |session: &&SessionDir| session.metadata().is_ok_and(|it| it.pinned);
    let pinned: Vec<_> = chosen.iter().filter(is_pinned).map(SessionDir::id).collect();
    let pinned = match pinned.len() {
        0 => String::new(),
        1 => format!(" {} is pinned.", pinned[0]),
        _ => format!(" {} are pinned.", pinned.join(", ")),
    };
    (sessions, pinned)
}

fn refuse_without_terminal(chosen: &[SessionDir], context: &Context) -> Result<(), CliError> {
    if context.stdin_is_terminal {
        return Ok(());
    }
    let (sessions, pinned) = asked_about(chosen);
    let message = format!(
        "nothing was removed: cleanup asks first whether {sessions} may go, and this is no \
         terminal.{pinned}"
    );
    Err(CliError::usage(message).with_hint("--yes removes, --dry-run only looks"))
}

/// Asks whether these sessions may go, and says which of them are pinned.
fn confirm(chosen: &[SessionDir], context: &Context) -> Result<bool, CliError> {
    let (sessions, pinned) = asked_about(chosen);
    let they = if chosen.len() == 1 { "It" } else { "They" };
    context.confirm(&format!(
        "remove {sessions}? {they} cannot be undone or looked at any more.{pinned}"
    ))
}

/// Each store root is cleaned on its own: it has its own objects and its own lock. Finished work is
/// reported even if something failed after it.
fn clean(
    catalog: &Catalog,
    chosen: &[SessionDir],
    dry_run: bool,
    options: &CleanupOptions<'_>,
) -> (CleanupReport, Option<CliError>) {
    let mut total = CleanupReport { dry_run, ..CleanupReport::default() };
    let failure = clean_roots(catalog, chosen, &mut total, options).err();
    (total, failure)
}

fn clean_roots(
    catalog: &Catalog,
    chosen: &[SessionDir],
    total: &mut CleanupReport,
    options: &CleanupOptions<'_>,
) -> Result<(), CliError> {
    let mut by_root: BTreeMap<PathBuf, Vec<SessionDir>> = BTreeMap::new();
    for root in catalog.roots().iter().filter(|root| Catalog::is_store(root)) {
        by_root.insert(root.clone(), Vec::new());
    }
    for session in chosen {
        let root = session.path().parent().unwrap_or(catalog.root()).to_owned();
        by_root.entry(root).or_default().push(session.clone());
    }
    for (root, remove) in by_root {
        let all = || Catalog::new(root.clone(), []).sessions();
        let plan = CleanupPlan::new(&root, &remove)?;
        let report =
            if total.dry_run { plan.foresee(&all()?, options)? } else { plan.apply(all, options)? };
        total.sessions_removed.extend(report.sessions_removed);
        total.sessions_skipped.extend(report.sessions_skipped);
        total.objects_removed += report.objects_removed;
        total.bytes_freed += report.bytes_freed;
        total.bytes_shrunk += report.bytes_shrunk;
        total.objects_kept_young += report.objects_kept_young;
        total.bytes_kept_young += report.bytes_kept_young;
        total.objects_kept_packed += report.objects_kept_packed;
        total.bytes_kept_packed += report.bytes_kept_packed;
    }
    Ok(())
}

fn is_of_container(session: &SessionDir) -> bool {
    session.metadata().is_ok_and(|metadata| metadata.origin == SessionOrigin::Container)
}

/// A session's id, and its project and command, as long as it is there.
fn described(session: &SessionDir) -> Option<(String, String)> {
    let metadata = session.metadata().ok()?;
    let project = match &metadata.container {
        Some(container) => format!("container {}", Shown::bytes(container.name.as_bytes())),
        None => named_project(&metadata.tracked_paths),
    };
    let command = super::list::command(&SessionSummary::of(session).ok()?);
    let names = names_of(&metadata);
    Some((session.id(), format!("{project}: {command}{names}")))
}

/// The names of a session and of its snapshots, each behind a space.
fn names_of(metadata: &SessionMetadata) -> String {
    let names = metadata.label.iter().chain(metadata.labels.iter().map(|label| &label.label));
    names.map(|name| super::quoted(name)).collect()
}

/// `described`: the sessions by their ids. `all`: objects that no session names had to go at once.
fn print(
    report: &CleanupReport,
    described: &HashMap<String, String>,
    all: bool,
    context: &Context,
) -> Result<(), CliError> {
    let mut out = context.out_done(report.dry_run);
    let verb = if report.dry_run { "would remove" } else { "removed" };
    for session in &report.sessions_removed {
        let what = described.get(session).map(|what| format!("  {DIM}{what}{DIM:#}"));
        writeln!(out, "{verb} {session}{}", what.unwrap_or_default())?;
    }
    for skipped in &report.sessions_skipped {
        if context.is_quiet() {
            context.fall_short(format_args!("kept {}: {}", skipped.session_id, skipped.reason));
        }
        writeln!(out, "{YELLOW}kept{YELLOW:#} {}: {}", skipped.session_id, skipped.reason)?;
    }
    let verb = if report.dry_run { "would free" } else { "freed" };
    let size = byte_size(report.bytes_freed);
    let objects = counted(report.objects_removed, "object", "objects");
    writeln!(out, "{verb} {size} in {objects}")?;
    if report.bytes_shrunk > report.bytes_freed {
        let size = byte_size(report.bytes_shrunk);
        writeln!(out, "the store became {size} smaller: what stays takes less space")?;
    }
    if report.objects_kept_young > 0 {
        let size = byte_size(report.bytes_kept_young);
        let why = match all {
            true => "something else uses the store; a later cleanup frees them",
            false => "a later cleanup frees them",
        };
        writeln!(
            out,
            "{DIM}{size} that no session needs are less than an hour old and stay for now: \
             {why}{DIM:#}"
        )?;
    }
    if report.objects_kept_packed > 0 {
        let size = byte_size(report.bytes_kept_packed);
        writeln!(
            out,
            "{DIM}{size} that no session needs stay in packs with what is needed; \
             --compact frees them{DIM:#}"
        )?;
    }
    Ok(out.flush()?)
}

impl From<CleanupError> for CliError {
    fn from(error: CleanupError) -> Self {
        let failed = Self::failed(error.to_string());
        match error {
            CleanupError::Cancelled => Self::stopped(error.to_string()),
            CleanupError::Store(error)
            | CleanupError::DamagedSession { source: Unreadable::Tree(error), .. }
                if error.is_bad_disk() =>
            {
                failed.with_hint(format!(
                    "the disk does not give a part of the store, so nothing is removed; \
                     `{NONO} verify --all --repair` saves what can be read"
                ))
            }
            CleanupError::DamagedSession { source: Unreadable::Manifest(error), .. }
                if opening_command(&error).is_some() =>
            {
                let opening = opening_command(&error).unwrap_or_default();
                failed.with_hint(format!("{opening} gives the session back"))
            }
            CleanupError::DamagedSession { session_id, .. } => failed.with_hint(format!(
                "`{NONO} verify {session_id}` says what is damaged; \
                 `{NONO} cleanup {session_id}` removes it"
            )),
            _ => failed,
        }
    }
}
