//! `nono grep`: a text in all recorded contents, with its appearing and its going.
//!
//! Flags, records of `--json` and exit codes are those of ripgrep: 0 found, 1 nothing found, 2 an
//! error, also where something else was found.

use std::collections::HashSet;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use jiff::{Timestamp, Zoned};
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::args::{StoreArgs, ThreadArgs};
use crate::cli::context::{BOLD, Context, DIM, GREEN, RED, write_json_line};
use crate::cli::error::CliError;
use crate::cli::maker::{Maker, MakerReport};
use crate::cli::past::{Past, name_damaged, typed_here};
use crate::cli::progress::Bar;
use crate::cli::render::{push_escaped, relative_time};
use crate::cli::when::{When, when};
use nono_engine::history::{
    Depth, Event, InObject, Line, Standing, TextOptions, TextPattern, TextRequest, TextSearch,
    TextVersion, forms_of, search_text,
};
use nono_engine::object::ContentHash;
use nono_engine::path_text::{Shown, serde_path, to_path};
use nono_engine::session::{Purpose, SessionSummary};
use nono_engine::sys;

/// Maximum number of bytes of a line that a terminal is shown.
const SHOWN_LINE_BYTES: usize = 600;

/// Exit code where something could not be searched.
const ERROR: u8 = 2;

/// Arguments of `nono grep`.
#[derive(Debug, Args)]
pub(in crate::cli) struct GrepArgs {
    /// A regular expression, as ripgrep has them
    #[arg(value_name = "PATTERN")]
    pattern: String,
    /// Only these files and directories, which may be gone [default: the current directory]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Search everything in all sessions of the store
    #[arg(long, conflicts_with = "paths")]
    all: bool,
    /// Search this session alone
    #[arg(long, value_name = "ID", conflicts_with = "all")]
    session: Option<String>,
    /// Only what stood in a state that was recorded since: 12:00, yesterday, "2h ago", 2026-11-20
    #[arg(long, value_name = "TIME", value_parser = when)]
    since: Option<When>,
    /// Letters match whatever their case is
    #[arg(long, short)]
    ignore_case: bool,
    /// Match whole words alone
    #[arg(long, short)]
    word_regexp: bool,
    /// The pattern is text, and no regular expression
    #[arg(long, short = 'F')]
    fixed_strings: bool,
    /// Print each path once, and no lines
    #[arg(long, short = 'l')]
    files_with_matches: bool,
    /// Print the number of matching lines of each version
    #[arg(long, short, conflicts_with = "files_with_matches")]
    count: bool,
    /// Print records as JSON, a line each, as `rg --json` does
    #[arg(long, conflicts_with_all = ["files_with_matches", "count"])]
    json: bool,
    #[command(flatten)]
    threads: ThreadArgs,
}

pub(in crate::cli) fn run(args: &GrepArgs, store: &StoreArgs, context: &Context) -> Outcome {
    // 1 says that nothing was found.
    grep(args, store, context).map_err(|error| match error.exit_code() {
        1 => error.with_exit_code(ERROR),
        _ => error,
    })
}

fn grep(args: &GrepArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let begun = Instant::now();
    let options = TextOptions {
        ignore_case: args.ignore_case,
        words: args.word_regexp,
        fixed: args.fixed_strings,
    };
    let pattern = TextPattern::new(&args.pattern, options)?;
    let catalog = store.catalog()?;
    let current_dir = sys::current_or_former_dir()?;
    let only = match &args.session {
        Some(id) => Some(catalog.find_from(id, Purpose::Looking)?.id()),
        None => None,
    };
    let paths: Vec<Vec<PathBuf>> = match (&args.paths[..], &only) {
        _ if args.all => Vec::new(),
        ([], Some(_)) => Vec::new(),
        ([], None) => vec![forms_of(&current_dir)],
        (paths, _) => {
            paths.iter().map(|path| forms_of(&sys::plain_absolute(path, &current_dir))).collect()
        }
    };
    let past = Past::of(&catalog, |summary: &SessionSummary| match &only {
        Some(only) => summary.session_id == *only,
        None => paths.is_empty() || paths.iter().flatten().any(|path| summary.is_past_of(path)),
    })?;
    let depth = match (args.files_with_matches, args.count) {
        (true, _) => Depth::Presence,
        (_, true) => Depth::Count,
        _ => Depth::Lines,
    };
    let threads = args.threads.count(context)?;
    let bar = Bar::new(context, "searching");
    let request = TextRequest { pattern: &pattern, paths: &paths, depth, threads };
    let found = search_text(&request, &past.sessions, &past.objects, &*bar);
    bar.finish();
    let mut found = found?;
    if let Some(since) = &args.since {
        let is_since = |time: Timestamp| time >= since.begin();
        let stood = |version: &TextVersion| {
            let mut places = version.places.iter().map(|number| found.places[*number].timestamp);
            // Contents that a restore brought back may be in no snapshot since.
            is_since(version.event.place.timestamp) || places.any(is_since)
        };
        found.standing.retain_mut(|standing| {
            standing.versions.retain(stood);
            !standing.versions.is_empty()
        });
    }
    let report = Report { pattern: &pattern, past: &past, found: &found, context };
    match depth {
        Depth::Presence => report.print_paths(&current_dir)?,
        Depth::Count => report.print_counts(&current_dir)?,
        Depth::Lines if args.json => report.print_json(begun)?,
        Depth::Lines => report.print(&current_dir)?,
    }
    if found.standing.is_empty() && !args.json {
        let count = past.sessions.len();
        let sessions = if count == 1 { "session" } else { "sessions" };
        let where_to = if args.all || only.is_some() { "" } else { " (--all searches all)" };
        context.say(format_args!("no recorded text matches in {count} {sessions}{where_to}"));
    }
    let mut is_complete =
        name_damaged(&past.damaged, context) & name_damaged(&found.damaged, context);
    for (path, error) in &found.unsearched {
        is_complete = false;
        context.warn(format_args!("{}: {error}", Shown::path(path)));
    }
    Ok(match (is_complete, found.standing.is_empty()) {
        (false, _) => ERROR,
        (true, is_nothing) => u8::from(is_nothing),
    })
}

/// A result on its way out.
struct Report<'a> {
    pattern: &'a TextPattern,
    past: &'a Past,
    found: &'a TextSearch,
    context: &'a Context,
}

impl Report<'_> {
    /// The matches in the contents of a version.
    fn object(&self, hash: &ContentHash) -> Result<&InObject, CliError> {
        let found = self.found.objects.get(hash);
        found.ok_or_else(|| CliError::failed(format!("object {hash} was not searched")))
    }

    fn lines(&self, version: &TextVersion) -> Result<Vec<Line>, CliError> {
        let object = self.object(&version.hash)?;
        if object.is_binary() {
            return Ok(Vec::new());
        }
        Ok(object.lines(&version.hash, self.pattern, &self.past.objects)?)
    }

    /// A path as bytes that can be printed: escaped where a terminal shows it.
    fn path(&self, path: &[u8], current_dir: &Path) -> Vec<u8> {
        let path = typed_here(to_path(path), current_dir);
        if self.context.stdout_is_terminal {
            Shown::path(path).to_string().into_bytes()
        } else {
            path.as_os_str().as_bytes().to_vec()
        }
    }

    /// A snapshot that has a version. One that only a restore brought back has no other.
    fn state(&self, version: &TextVersion) -> String {
        match version.places.last() {
            Some(newest) => self.found.places[*newest].to_string(),
            None => version.event.place.to_string(),
        }
    }

    fn print_paths(&self, current_dir: &Path) -> Result<(), CliError> {
        self.context.page();
        let mut out = self.context.out_bytes();
        let mut told = HashSet::new();
        for standing in &self.found.standing {
            if told.insert(&standing.path) {
                out.write_all(&self.path(&standing.path, current_dir))?;
                out.write_all(b"\n")?;
            }
        }
        Ok(out.flush()?)
    }

    fn print_counts(&self, current_dir: &Path) -> Result<(), CliError> {
        self.context.page();
        let mut out = self.context.out_bytes();
        for standing in &self.found.standing {
            for version in &standing.versions {
                write!(out, "{}:", self.state(version))?;
                out.write_all(&self.path(&standing.path, current_dir))?;
                writeln!(out, ":{}", self.object(&version.hash)?.line_count)?;
            }
        }
        Ok(out.flush()?)
    }

    fn print(&self, current_dir: &Path) -> Result<(), CliError> {
        self.context.page();
        let now = Zoned::now();
        let mut out = self.context.out_bytes();
        let mut text = Vec::new();
        for (index, standing) in self.found.standing.iter().enumerate() {
            text.clear();
            if index > 0 {
                text.push(b'\n');
            }
            self.standing(standing, current_dir, &now, &mut text)?;
            out.write_all(&text)?;
        }
        Ok(out.flush()?)
    }

    /// One time in which the text stood at a path.
    fn standing(
        &self,
        standing: &Standing,
        current_dir: &Path,
        now: &Zoned,
        out: &mut Vec<u8>,
    ) -> Result<(), CliError> {
        let path = self.path(&standing.path, current_dir);
        self.styled(out, BOLD, &path)?;
        out.push(b'\n');
        // A version with the same lines as the newer one says nothing new.
        let mut shown: Option<(bool, Vec<Line>)> = None;
        let is_same = |a: &[Line], b: &[Line]| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.bytes == b.bytes)
        };
        self.event(out, "appeared", &standing.appeared, now)?;
        if let Some(gone) = &standing.gone {
            self.event(out, "gone", gone, now)?;
        }
        for version in &standing.versions {
            let is_binary = self.object(&version.hash)?.is_binary();
            let lines = self.lines(version)?;
            if let Some((was_binary, newer)) = &shown
                && *was_binary == is_binary
                && is_same(newer, &lines)
            {
                continue;
            }
            self.styled(out, DIM, format!("  in {}", self.state(version)).as_bytes())?;
            out.push(b'\n');
            if let Some(offset) = self.object(&version.hash)?.binary_offset {
                writeln!(out, "  binary file matches (found \"\\0\" byte around offset {offset})")?;
            }
            for line in &lines {
                self.styled(out, GREEN, line.number.to_string().as_bytes())?;
                out.push(b':');
                self.line(out, &line.bytes)?;
            }
            shown = Some((is_binary, lines));
        }
        Ok(())
    }

    fn event(
        &self,
        out: &mut Vec<u8>,
        what: &str,
        event: &Event,
        now: &Zoned,
    ) -> Result<(), CliError> {
        let Event { place, origin } = event;
        let time = relative_time(place.timestamp, now);
        let maker = Maker::new(place, *origin, self.past).words();
        let line = format!("  {what:<8}  {place}  {time:<14}  {maker}");
        if self.context.colours() {
            return Ok(writeln!(out, "{line}")?);
        }
        Ok(writeln!(out, "{}", anstream::adapter::strip_str(&line))?)
    }

    /// A line of contents, with its matches marked.
    fn line(&self, out: &mut Vec<u8>, line: &[u8]) -> Result<(), CliError> {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        if !self.context.stdout_is_terminal {
            out.extend_from_slice(text);
            out.push(b'\n');
            return Ok(());
        }
        let shown = &text[..text.len().min(SHOWN_LINE_BYTES)];
        let mut at = 0;
        for found in self.pattern.matches_in(text) {
            let (start, end) = (found.start.min(shown.len()), found.end.min(shown.len()));
            push_escaped(out, &shown[at..start]);
            let mut marked = Vec::new();
            push_escaped(&mut marked, &shown[start..end]);
            self.styled(out, RED, &marked)?;
            at = end;
        }
        push_escaped(out, &shown[at..]);
        if let Some(more @ 1..) = text.len().checked_sub(shown.len()) {
            self.styled(out, DIM, format!("… {more} more bytes").as_bytes())?;
        }
        out.push(b'\n');
        Ok(())
    }

    /// Text in a style, where colours are wanted.
    fn styled(
        &self,
        out: &mut Vec<u8>,
        style: anstyle::Style,
        text: &[u8],
    ) -> Result<(), CliError> {
        if text.is_empty() || !self.context.colours() {
            out.extend_from_slice(text);
            return Ok(());
        }
        write!(out, "{style}")?;
        out.extend_from_slice(text);
        Ok(write!(out, "{style:#}")?)
    }

    fn print_json(&self, begun: Instant) -> Result<(), CliError> {
        let mut out = self.context.out_bytes();
        let mut total = Stats {
            searches: self.found.searched_count,
            bytes_searched: self.found.searched_bytes,
            ..Stats::default()
        };
        let mut counted: HashSet<ContentHash> = HashSet::new();
        for standing in &self.found.standing {
            for version in &standing.versions {
                let object = self.object(&version.hash)?;
                let stats = Stats {
                    searches: 1,
                    searches_with_match: 1,
                    bytes_searched: object.size,
                    matched_lines: object.line_count,
                    matches: object.match_count,
                };
                if counted.insert(version.hash) {
                    total.searches_with_match += 1;
                    total.matched_lines += stats.matched_lines;
                    total.matches += stats.matches;
                }
                let path = Data::of(&standing.path);
                let nono = Version {
                    path: to_path(&standing.path).to_owned(),
                    sha256: version.hash,
                    snapshots: version
                        .places
                        .iter()
                        .map(|number| self.found.places[*number].to_string())
                        .collect(),
                    maker: self.maker(&version.event),
                    appeared: self.maker(&standing.appeared),
                    gone: standing.gone.as_ref().map(|gone| self.maker(gone)),
                };
                let begin = Begin { path: path.clone(), nono };
                write_json_line(&mut out, &Record { kind: "begin", data: begin })?;
                for line in self.lines(version)? {
                    let submatches = self.pattern.matches_in(&line.bytes).into_iter();
                    let submatches = submatches.map(|found| Submatch {
                        matched: Data::of(&line.bytes[found.clone()]),
                        start: found.start,
                        end: found.end,
                    });
                    let matched = Match {
                        path: path.clone(),
                        lines: Data::of(&line.bytes),
                        line_number: line.number,
                        absolute_offset: line.offset,
                        submatches: submatches.collect(),
                    };
                    write_json_line(&mut out, &Record { kind: "match", data: matched })?;
                }
                let end = End { path, binary_offset: object.binary_offset, stats };
                write_json_line(&mut out, &Record { kind: "end", data: end })?;
            }
        }
        let elapsed = begun.elapsed();
        let elapsed_total = Elapsed {
            secs: elapsed.as_secs(),
            nanos: elapsed.subsec_nanos(),
            human: format!("{:.6}s", elapsed.as_secs_f64()),
        };
        let summary = Summary { elapsed_total, stats: total };
        write_json_line(&mut out, &Record { kind: "summary", data: summary })?;
        Ok(out.flush()?)
    }

    fn maker<'b>(&'b self, event: &'b Event) -> MakerReport<'b> {
        Maker::new(&event.place, event.origin, self.past).report()
    }
}

/// A record of `rg --json`.
#[derive(Serialize)]
struct Record<T> {
    #[serde(rename = "type")]
    kind: &'static str,
    data: T,
}

/// Bytes as ripgrep writes them: text, or base64 of what is no UTF-8.
#[derive(Clone, Serialize)]
#[serde(rename_all = "lowercase")]
enum Data {
    Text(String),
    Bytes(String),
}

impl Data {
    fn of(bytes: &[u8]) -> Self {
        use base64::Engine as _;
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Bytes(base64::engine::general_purpose::STANDARD.encode(bytes)),
        }
    }
}

#[derive(Serialize)]
struct Begin<'a> {
    path: Data,
    /// The part that ripgrep does not have.
    nono: Version<'a>,
}

/// The version of a path that the records up to the next `end` are about.
#[derive(Serialize)]
struct Version<'a> {
    #[serde(with = "serde_path")]
    path: PathBuf,
    sha256: ContentHash,
    /// All snapshots that have it, oldest first.
    snapshots: Vec<String>,
    /// The maker of these contents.
    maker: MakerReport<'a>,
    /// The maker of the first contents that have the text, with no others between.
    appeared: MakerReport<'a>,
    /// The maker of the first state without it.
    gone: Option<MakerReport<'a>>,
}

#[derive(Serialize)]
struct Match {
    path: Data,
    lines: Data,
    line_number: u64,
    absolute_offset: u64,
    submatches: Vec<Submatch>,
}

#[derive(Serialize)]
struct Submatch {
    #[serde(rename = "match")]
    matched: Data,
    start: usize,
    end: usize,
}

#[derive(Serialize)]
struct End {
    path: Data,
    binary_offset: Option<u64>,
    stats: Stats,
}

#[derive(Default, Serialize)]
struct Stats {
    searches: u64,
    searches_with_match: u64,
    bytes_searched: u64,
    matched_lines: u64,
    matches: u64,
}

#[derive(Serialize)]
struct Summary {
    elapsed_total: Elapsed,
    stats: Stats,
}

#[derive(Serialize)]
struct Elapsed {
    secs: u64,
    nanos: u32,
    human: String,
}
