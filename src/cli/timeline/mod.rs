//! The timeline: one screen for looking through what was recorded, and taking some of it back.
//!
//! Two pages with the same parts: the [`sessions`] with their prompts and steps, and the
//! [`changes`] of one of them. A list that folds ([`outline`]) stands on the left, the difference
//! of the row at the cursor on the right ([`difference`]). The review after a run is the page of
//! changes, opened at that run; Esc leads from it to the sessions.
//!
//! A page is a value: keys go in, actions come out, and nothing is touched. The [`view`] draws the
//! rows that fit and no others; the [`screen`] owns the terminal; the driver here does the rest.
//! Always true:
//!
//! - Nothing is restored but by a clear yes to a question. Enter, q, Ctrl-C, the end of input, a
//!   signal and a closed terminal all keep everything.
//! - Keys typed before the screen was there are no answer to it.
//! - However it ends, the terminal is as it was before.

mod changes;
mod desk;
mod difference;
mod last_step;
mod outline;
mod pager;
mod screen;
mod sessions;
mod view;

use clap::Parser;
use rustix::process::getpgrp;
use rustix::termios::tcgetpgrp;

use super::args::{StoreArgs, named_project};
use super::command_tree::{Arguments, Command};
use super::commands::{list, redo, undo};
use super::context::Context;
use super::error::CliError;
use super::looking::{self, States, states_around};
use super::offer::NONO;
use super::render::{LineKind, MarkedLine, absolute_time, shown, touched_part};
use super::restoring::restore_picked;
use nono_engine::diff::{self, Comparison, Difference as Different};
use nono_engine::job::{JobKind, RestoreJob};
use nono_engine::restore::{Selection, TextPart};
use nono_engine::session::{Catalog, Place, Purpose as Looked, SessionStatus, SessionSummary};
use nono_engine::snapshot::{NotCapturedSet, SessionDir, SnapshotManager, SnapshotManifest};

pub(super) use super::looking::Subject;
pub(super) use changes::Decision;
use changes::{Action, Changes, Purpose};
use desk::Pressed;
use difference::{Difference, Limit};
use last_step::LastSteps;
use screen::{Input, Screen};
use sessions::{Entry, Scope, Sessions};

/// Differences of a row that are looked at before it is opened.
const PEEKED: usize = 500;

/// Lines of a prompt that are shown.
const MAX_PROMPT_LINES: usize = 20;

/// Whether a person sits in front of a terminal that can show a screen, and is asked nothing else.
pub(super) fn is_possible(context: &Context) -> bool {
    let is_foreground = || tcgetpgrp(std::io::stdin()).is_ok_and(|group| group == getpgrp());
    context.stdin_is_terminal
        && context.stderr_is_terminal
        && std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb")
        && is_foreground()
}

/// Shows the sessions of this place, or else of the store. Whether there were any.
///
/// # Errors
/// When the store cannot be read, or the terminal cannot be used.
pub(super) fn look(store: &StoreArgs, context: &Context) -> Result<bool, CliError> {
    let catalog = store.catalog()?;
    let mut page = Sessions::load(&catalog, &Place::current(Looked::Looking)?, Scope::Here)?;
    if page.is_empty() {
        return Ok(false);
    }
    page.begin_at(None);
    let mut driver = Driver::start(&catalog, store, context)?;
    driver.sessions(page)?;
    Ok(true)
}

/// Shows the changes after a run, and returns what is to become of them; `None` where that was
/// done and said in the timeline.
///
/// # Errors
/// When the terminal cannot be used. Nothing was changed then.
pub(super) fn review(
    subject: &Subject<'_>,
    comparison: Comparison,
    catalog: &Catalog,
    store: &StoreArgs,
    context: &Context,
) -> Result<Option<Decision>, CliError> {
    let opened = Opened::new(subject, comparison, &Part::default(), Purpose::Deciding)?;
    let mut driver = Driver::start(catalog, store, context)?;
    match driver.changes(opened)? {
        After::Decided(decision) => Ok(Some(decision)),
        After::Quit => Ok(Some(Decision::KeepAll)),
        After::Back | After::TakeBack => {
            let place = Place::current(Looked::Looking)?;
            let mut page = Sessions::load(catalog, &place, Scope::Here)?;
            page.begin_at(Some(&subject.session.id()));
            driver.sessions(page)?;
            Ok(None)
        }
    }
}

/// Lets a person choose among changes that are to be taken back. To leave the page is no choice.
///
/// # Errors
/// When the terminal cannot be used. Nothing was changed then.
pub(super) fn choose(
    subject: &Subject<'_>,
    comparison: Comparison,
    catalog: &Catalog,
    context: &Context,
) -> Result<Decision, CliError> {
    chosen(subject, comparison, Purpose::Deciding, catalog, context)
}

/// As [`choose`], among changes of a fork that are to come into the project.
///
/// # Errors
/// As there.
#[cfg(feature = "mount")]
pub(super) fn choose_to_keep(
    subject: &Subject<'_>,
    comparison: Comparison,
    catalog: &Catalog,
    context: &Context,
) -> Result<Decision, CliError> {
    chosen(subject, comparison, Purpose::Choosing, catalog, context)
}

fn chosen(
    subject: &Subject<'_>,
    comparison: Comparison,
    purpose: Purpose,
    catalog: &Catalog,
    context: &Context,
) -> Result<Decision, CliError> {
    let opened = Opened::new(subject, comparison, &Part::default(), purpose)?;
    let store = StoreArgs { root: Some(catalog.root().to_owned()) };
    let mut driver = Driver::start(catalog, &store, context)?;
    driver.takes_hunks = false;
    match driver.changes(opened)? {
        After::Decided(decision) => Ok(decision),
        After::Quit | After::Back | After::TakeBack => Ok(Decision::KeepAll),
    }
}

/// How a page of changes was left.
#[derive(Debug, Clone, PartialEq, Eq)]
enum After {
    Back,
    TakeBack,
    Decided(Decision),
    Quit,
}

/// The part of a session that a page of changes is about.
#[derive(Debug, Clone, Default)]
struct Part {
    /// Behind the session's id: ` prompt 2`, `#17`; nothing for all of it.
    name: String,
    /// The text of the prompt.
    prompt: Option<String>,
}

impl Part {
    fn of(page: &Sessions, entry: Entry) -> Self {
        let number = page.steps(entry).first().map(|step| step.number);
        let name = match (entry, number) {
            (Entry::Step(..), Some(number)) => format!("#{number}"),
            (Entry::Prompt(..), _) => format!(" {}", page.title_of(entry)),
            _ => String::new(),
        };
        let prompt = page.prompt(entry).map(sessions::one_line);
        Self { name, prompt }
    }
}

/// A page of changes, with all that its driver needs.
struct Opened<'a> {
    states: States<'a>,
    page: Changes,
    steps: LastSteps,
}

impl<'a> Opened<'a> {
    fn new(
        subject: &Subject<'a>,
        comparison: Comparison,
        part: &Part,
        purpose: Purpose,
    ) -> Result<Self, CliError> {
        let session = subject.session;
        let touched = touched_part(&comparison.summary());
        let looking::Looked { states, comparison, renames, commits } = subject.look(comparison)?;
        let metadata = session.metadata().ok();
        let label = metadata.as_ref().and_then(|metadata| metadata.label.as_deref());
        let label = label.map(super::commands::quoted).unwrap_or_default();
        let name = &part.name;
        let title = format!("session {}{name}{label}{touched}", session.id());
        let mut facts = Vec::new();
        if let Some(summary) = SessionSummary::of(session).ok().filter(|it| !it.command.is_empty())
        {
            facts.push(format!("$ {}", list::command(&summary)));
        }
        facts.extend(part.prompt.iter().map(|prompt| format!("❯ {prompt}")));
        facts.extend(commits.iter().map(|line| shown(line.as_bytes())));
        let roots = states.roots().to_vec();
        let page = Changes::new(title, comparison.changes, roots, renames, purpose);
        let steps = LastSteps::between(&states);
        Ok(Self { states, page: page.with_facts(facts), steps })
    }
}

struct Driver<'a> {
    screen: Screen,
    /// Whether single hunks can be restored: not while an undo is being chosen.
    takes_hunks: bool,
    catalog: &'a Catalog,
    store: &'a StoreArgs,
    context: &'a Context,
    colours: bool,
}

impl<'a> Driver<'a> {
    fn start(
        catalog: &'a Catalog,
        store: &'a StoreArgs,
        context: &'a Context,
    ) -> Result<Self, CliError> {
        let colours = context.colours_on_stderr();
        let screen = Screen::open()?;
        Ok(Self { screen, takes_hunks: true, catalog, store, context, colours })
    }

    /// Draws a page, and waits for what it is to do.
    fn next(
        &mut self,
        page: &mut impl view::Page,
        difference: &mut Difference,
    ) -> Result<Pressed, CliError> {
        let colours = self.colours;
        self.screen.draw(|frame| view::draw(frame, page, difference, colours))?;
        // Code can be read before it has its colours.
        if colours && !difference.is_coloured() && self.has_time_for(page) {
            difference.colour();
            self.screen.draw(|frame| view::draw(frame, page, difference, colours))?;
        }
        Ok(match self.screen.next_input()? {
            Input::Key(key) => page.desk_mut().press(key),
            Input::Mouse(event) => page.desk_mut().mouse(event),
            Input::Redraw => Pressed::Done,
            Input::Suspend => Pressed::Suspend,
            Input::End => Pressed::Interrupt,
        })
    }

    /// Whether the difference of this page is to be made: it is on the screen, and no key waits. A
    /// user who holds a key down wants to get on.
    fn has_time_for(&mut self, page: &impl view::Page) -> bool {
        view::shows_difference(page, self.screen.width()) && !self.screen.has_keys()
    }

    /// The page of changes, until it is left.
    fn changes(&mut self, opened: Opened<'_>) -> Result<After, CliError> {
        let Opened { states, mut page, mut steps } = opened;
        let mut difference = Difference::default();
        loop {
            if self.has_time_for(&page) {
                let current = page.desk.outline.current();
                let is_new = !difference.is_of(current);
                let limit = match is_new {
                    true => Some(Limit::FIRST),
                    false => difference.limit_for_more().filter(|_| page.desk.is_near_end()),
                };
                if let (Some(limit), Some(index)) = (limit, current) {
                    let range = page.row(index).extent.clone();
                    let (changes, renames) = (page.changes(), page.renames());
                    difference = Difference::make(
                        index,
                        &states,
                        changes,
                        range,
                        renames,
                        Vec::new(),
                        limit,
                    );
                    show(&mut page.desk, &difference, is_new);
                }
            }
            if !self.screen.has_keys() {
                let step = page.current_path().and_then(|path| steps.of(path, &states));
                page.set_step(step);
            }
            let pressed = self.next(&mut page, &mut difference)?;
            match page.take(pressed) {
                Action::Nothing => {}
                Action::Redraw => self.screen.clear()?,
                Action::Suspend => self.screen.suspend()?,
                Action::Page(range) => {
                    let changes = &page.changes()[range];
                    let shown = pager::show(&mut self.screen, &states, changes, self.colours);
                    if let Err(error) = shown {
                        page.desk.tell(error.to_string());
                    }
                }
                Action::Hunk(index, hunk) => {
                    let header = difference.hunk_header(hunk).unwrap_or_default();
                    let done = self.restore_hunk(&states, &page, index, (hunk, header));
                    page.desk.tell(done.unwrap_or_else(|error| error.to_string()));
                }
                Action::TakeBack => return Ok(After::TakeBack),
                Action::Back => return Ok(After::Back),
                Action::Decide(decision) => return Ok(After::Decided(decision)),
                Action::Quit => return Ok(After::Quit),
            }
        }
    }

    /// The page of sessions, until the end.
    fn sessions(&mut self, mut page: Sessions) -> Result<(), CliError> {
        let mut difference = Difference::default();
        loop {
            if self.has_time_for(&page) {
                let current = page.desk.outline.current();
                let is_new = !difference.is_of(current);
                let limit = match is_new {
                    true => Some(Limit::FIRST),
                    false => difference.limit_for_more().filter(|_| page.desk.is_near_end()),
                };
                if let (Some(limit), Some(index)) = (limit, current) {
                    difference = self.peek(&page, index, limit);
                    show(&mut page.desk, &difference, is_new);
                }
            }
            let pressed = self.next(&mut page, &mut difference)?;
            match page.take(pressed) {
                sessions::Action::Nothing => {}
                sessions::Action::Redraw => self.screen.clear()?,
                sessions::Action::Suspend => self.screen.suspend()?,
                sessions::Action::Unfold(at) => page.unfold(at),
                sessions::Action::LoadAll => {
                    page.load_all();
                    difference = Difference::default();
                }
                sessions::Action::Reload(scope) => {
                    page = self.reload(&page, scope)?;
                    difference = Difference::default();
                }
                sessions::Action::Open(entry) => {
                    match self.open(&page, entry) {
                        Ok(After::Back) => {}
                        Ok(After::Quit) => return Ok(()),
                        Ok(After::TakeBack) => self.take_back(&page, entry)?,
                        Ok(After::Decided(decision)) => self.restore(&page, entry, decision)?,
                        Err(error) => {
                            page.desk.tell(error.to_string());
                            continue;
                        }
                    }
                    page = self.reload(&page, page.scope())?;
                    difference = Difference::default();
                }
                sessions::Action::TakeBack(entry) => {
                    self.take_back(&page, entry)?;
                    page = self.reload(&page, page.scope())?;
                    difference = Difference::default();
                }
                sessions::Action::Redo(entry) => {
                    self.redo(&page, entry)?;
                    page = self.reload(&page, page.scope())?;
                    difference = Difference::default();
                }
                sessions::Action::Quit => return Ok(()),
            }
        }
    }

    /// Takes one hunk of a file back, and says so.
    fn restore_hunk(
        &self,
        states: &States<'_>,
        page: &Changes,
        index: usize,
        hunk: (usize, &str),
    ) -> Result<String, CliError> {
        if !self.takes_hunks {
            return Err(CliError::failed("an undo is being chosen: mark whole files here"));
        }
        if !states.is_recorded() {
            let message = "the newer state is not recorded, so no part of it is taken back";
            return Err(CliError::failed(message));
        }
        let change = &page.changes()[index];
        let Some(without) = states.without_hunks(change, &[hunk], &Difference::options(states))?
        else {
            return Err(CliError::failed("this hunk cannot be restored by itself: r in the list"));
        };
        let session = states.session();
        let manager = SnapshotManager::open(session.path())?;
        let path = change.path.clone();
        let part = TextPart { snapshot: states.numbers()[1], path, without };
        let job = RestoreJob::new(manager, JobKind::Text(part))?.in_catalog(self.catalog);
        let report = job.run()?;
        let name = page.shown(&change.path);
        Ok(match report.step_conflicts.first() {
            Some(conflict) => format!("{name} stays as it is: {}", conflict.reason),
            None if report.restore.changes.is_empty() => {
                format!("{name} has this hunk no more: nothing was changed")
            }
            None => {
                let number = hunk.0 + 1;
                format!("hunk {number} of {name} is restored ({NONO} redo takes that back)")
            }
        })
    }

    /// Offers to take the last undo back.
    fn redo(&mut self, page: &Sessions, entry: Entry) -> Result<(), CliError> {
        let Some((_, summary)) = page.session(entry) else { return Ok(()) };
        let parsed = Arguments::try_parse_from(["nono", "redo"])
            .map_err(|error| CliError::failed(error.to_string()))?;
        let Command::Redo(args) = parsed.command else { return Ok(()) };
        let (store, context) = (self.store, self.context);
        let id = summary.session_id.clone();
        self.beside_the_screen(|| {
            context.say(format_args!("session {id} is undone already"));
            if context.confirm("take the last undo here back, as nono redo does?")? {
                redo::run(&args, &[], store, context)?;
            }
            Ok(())
        })
    }

    /// Reads the list again; the cursor stays at its row.
    fn reload(&self, before: &Sessions, scope: Scope) -> Result<Sessions, CliError> {
        let mut page = Sessions::load(self.catalog, &Place::current(Looked::Looking)?, scope)?;
        page.go_on_at(before);
        Ok(page)
    }

    /// The known facts of a row, and the beginning of its difference.
    fn peek(&self, page: &Sessions, index: usize, limit: Limit) -> Difference {
        let entry = page.entry(index);
        let mut heading = heading(page, entry);
        self.peeked(page, index, limit, &mut heading).unwrap_or_else(|error| {
            heading.push(MarkedLine::remark(LineKind::Remark, error.to_string()));
            Difference::of_lines(index, heading)
        })
    }

    fn peeked(
        &self,
        page: &Sessions,
        index: usize,
        limit: Limit,
        heading: &mut Vec<MarkedLine>,
    ) -> Result<Difference, CliError> {
        let entry = page.entry(index);
        let Some((session, summary)) = page.session(entry) else {
            return Ok(Difference::of_lines(index, std::mem::take(heading)));
        };
        if needs_now(entry, summary) {
            let text = "the end is not recorded: Enter compares with the files of now";
            heading.push(MarkedLine::remark(LineKind::Remark, text.to_owned()));
            return Ok(Difference::of_lines(index, std::mem::take(heading)));
        }
        let (old, new) = states_of(page, entry, session)?;
        let store = Catalog::store_of(session)?;
        let found = diff::differences(&store, &old.merkle_root, &new.merkle_root)?;
        let some: Vec<Different> = found.take(PEEKED).collect::<Result<_, _>>()?;
        let (then, now) = (NotCapturedSet::new(&old), NotCapturedSet::new(&new));
        let comparison = Comparison::of(&some, &then, &now);
        let subject = Subject { session, store: &store, old: &old, new: &new };
        let looking::Looked { states, comparison, commits, .. } = subject.look(comparison)?;
        for line in commits {
            heading.push(MarkedLine::remark(LineKind::Fact, shown(line.as_bytes())));
        }
        let mut changes = comparison.changes;
        // The heading says this of each repository already.
        changes.retain(|change| !(change.is_directory && change.path.ends_with(".git")));
        let renames = looking::renames(&changes, &states);
        heading.push(MarkedLine::remark(LineKind::Fact, String::new()));
        let (range, heading) = (0..changes.len(), std::mem::take(heading));
        Ok(Difference::make(index, &states, &changes, range, &renames, heading, limit))
    }

    /// The page of changes of a row, until it is left.
    fn open(&mut self, page: &Sessions, entry: Entry) -> Result<After, CliError> {
        let Some((session, summary)) = page.session(entry) else { return Ok(After::Back) };
        let part = &Part::of(page, entry);
        if needs_now(entry, summary) {
            let manager = SnapshotManager::open(session.path())?;
            let old = manager.load_manifest(session.first_number()?)?;
            let now = manager.live_state(&old)?;
            let new = now.manifest();
            return self.open_subject(&Subject { session, store: &now, old: &old, new }, part);
        }
        let (old, new) = states_of(page, entry, session)?;
        let store = Catalog::store_of(session)?;
        self.open_subject(&Subject { session, store: &store, old: &old, new: &new }, part)
    }

    fn open_subject(&mut self, subject: &Subject<'_>, part: &Part) -> Result<After, CliError> {
        let comparison = subject.compare()?;
        if comparison.changes.is_empty() {
            let touched = touched_part(&comparison.summary());
            return Err(CliError::failed(format!("nothing changed{touched}")));
        }
        self.changes(Opened::new(subject, comparison, part, Purpose::Looking)?)
    }

    /// Takes a row back as `nono undo` does, with its question.
    fn take_back(&mut self, page: &Sessions, entry: Entry) -> Result<(), CliError> {
        let Some(arguments) = page.undo_arguments(entry) else { return Ok(()) };
        let words = ["nono", "undo"].map(str::to_owned).into_iter().chain(arguments);
        let parsed = Arguments::try_parse_from(words)
            .map_err(|error| CliError::failed(error.to_string()))?;
        let Command::Undo(args) = parsed.command else { return Ok(()) };
        let (store, context) = (self.store, self.context);
        self.beside_the_screen(|| undo::run(&args.undo, &[], store, context).map(drop))
    }

    /// Restores what was decided on a page of changes.
    fn restore(
        &mut self,
        page: &Sessions,
        entry: Entry,
        decision: Decision,
    ) -> Result<(), CliError> {
        let Some((session, summary)) = page.session(entry) else { return Ok(()) };
        let number = match needs_now(entry, summary) {
            true => session.first_number()?,
            false => states_of(page, entry, session)?.0.number,
        };
        let selection = match decision {
            Decision::KeepAll => return Ok(()),
            Decision::RestoreAll => Selection::default(),
            Decision::Restore(exactly) => Selection { exactly, ..Selection::default() },
        };
        let (catalog, context) = (self.catalog, self.context);
        self.beside_the_screen(|| {
            restore_picked(catalog, session, number, selection, context).map(drop)
        })
    }

    /// Does something on the terminal as it was before, and waits until it is read.
    fn beside_the_screen(
        &mut self,
        work: impl FnOnce() -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let context = self.context;
        self.screen.aside(|| {
            if let Err(error) = work() {
                context.error(&error);
            }
            context.answer("Enter goes back to the timeline ").map(drop)
        })?
    }
}

/// Tells the shared part of a page what is beside the list.
fn show(desk: &mut desk::Desk, difference: &Difference, is_new: bool) {
    let (count, hunks) = (difference.lines().len(), difference.hunks());
    match is_new {
        true => desk.show(count, hunks),
        false => desk.grow(count, hunks),
    }
}

/// Whether the last state of a session's command is not recorded.
fn needs_now(entry: Entry, summary: &SessionSummary) -> bool {
    matches!(entry, Entry::Session(_)) && summary.status == SessionStatus::Interrupted
}

/// The states before and after what a row is.
fn states_of(
    page: &Sessions,
    entry: Entry,
    session: &SessionDir,
) -> Result<(SnapshotManifest, SnapshotManifest), CliError> {
    let steps = page.steps(entry);
    let ends = steps.first().zip(steps.last());
    states_around(session, ends.map(|(first, last)| (first.number, last.number)))
}

/// The facts that are known of a row without looking at contents.
fn heading(page: &Sessions, entry: Entry) -> Vec<MarkedLine> {
    let line = |kind, text: &str| MarkedLine::remark(kind, shown(text.as_bytes()));
    let Some((_, summary)) = page.session(entry) else {
        return vec![line(LineKind::File, page.failure(entry).unwrap_or_default())];
    };
    let title = page.title_of(entry);
    let (_, _, notes) = page.words(entry);
    let command = list::command(summary);
    let has_command = !summary.command.is_empty() && !title.contains(&command);
    let mut lines = vec![MarkedLine::remark(LineKind::File, title)];
    let zoned = jiff::Zoned::now();
    let when = match page.steps(entry).first() {
        Some(step) => step.timestamp,
        None => summary.started,
    };
    let project = named_project(&summary.tracked_paths);
    let place = format!("{}  {project}", absolute_time(when, &zoned));
    lines.push(line(LineKind::Remark, &place));
    if has_command {
        lines.push(MarkedLine::remark(LineKind::Fact, format!("$ {command}")));
    }
    if let Some(prompt) = page.prompt(entry) {
        let texts = prompt.lines().take(MAX_PROMPT_LINES);
        lines.extend(texts.map(|text| line(LineKind::Fact, &format!("❯ {text}"))));
    }
    if !notes.is_empty() {
        lines.push(MarkedLine::remark(LineKind::Remark, notes));
    }
    lines
}
