//! `nono blame`: who wrote each line of a file.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use jiff::{Timestamp, Zoned};
use serde::Serialize;

use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::argument::{is_there, not_held};
use crate::cli::commit_lines::{Commit, checked_out, commits_of};
use crate::cli::context::{Context, DIM, GREEN};
use crate::cli::error::CliError;
use crate::cli::maker::{Maker, MakerReport};
use crate::cli::offer::NONO;
use crate::cli::past::{Past, name_damaged, typed_here};
use crate::cli::render::{columns, push_escaped, relative_time};
use crate::cli::state_at::exact;
use crate::cli::when::When;
use nono_engine::history::{
    Blame, BlameAt, MAX_BLAME_BYTES, Origin, Writer, blame, forms_of, text_now,
};
use nono_engine::path_text::{Shown, encode, serde_path};
use nono_engine::session::{Catalog, Purpose, SnapshotId};
use nono_engine::snapshot::SnapshotKind;
use nono_engine::sys;

/// Maximum number of cells for the kind of a writer.
const WRITER_CELLS: usize = 34;

/// Maximum number of cells of a prompt.
const PROMPT_CELLS: usize = 24;

/// Maximum number of cells of an old path.
const PATH_CELLS: usize = 24;

/// Arguments of `nono blame`.
#[derive(Debug, Args)]
pub(in crate::cli) struct BlameArgs {
    /// A file, with a line or with two where one part of it is meant. It may be gone
    #[arg(value_name = "FILE[:LINE[,LINE]]")]
    file: OsString,
    /// The file in this state [default: what is there now]
    #[arg(long, value_name = "ID[/N] | TIME")]
    at: Option<String>,
    /// Only these lines: a,b or a,+count; without a or b, from the first or to the last
    #[arg(short = 'L', long, value_name = "A,B")]
    lines: Option<LineRange>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Lines of a file, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LineRange {
    first: usize,
    last: Option<usize>,
}

impl std::str::FromStr for LineRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{:?} names no lines: give 10,20 or 10,+5",
                Shown::bytes(text.as_bytes()).to_string()
            )
        };
        let number = |text: &str| text.parse::<usize>().ok().filter(|number| *number > 0);
        let (first, last) = text.split_once(',').unwrap_or((text, text));
        if first.is_empty() && last.is_empty() {
            return Err(wrong());
        }
        let first = if first.is_empty() { 1 } else { number(first).ok_or_else(wrong)? };
        let last = match (last, last.strip_prefix('+')) {
            ("", _) => None,
            (_, Some(count)) => Some(first.saturating_add(number(count).ok_or_else(wrong)?) - 1),
            (last, None) => Some(number(last).ok_or_else(wrong)?),
        };
        match last {
            Some(last) if last < first => Err(wrong()),
            _ => Ok(Self { first, last }),
        }
    }
}

impl LineRange {
    /// The indices of these lines in a file of so many.
    fn within(self, count: usize, path: &Path) -> Result<RangeInclusive<usize>, CliError> {
        if self.first > count {
            let lines = if count == 1 { "line" } else { "lines" };
            let path = Shown::path(path);
            return Err(CliError::failed(format!("{path} has {count} {lines} in this state")));
        }
        Ok(self.first - 1..=self.last.unwrap_or(count).min(count) - 1)
    }
}

/// The file and the lines that a word means. A file that is there has its own name.
fn file_and_lines(word: &OsStr) -> (PathBuf, Option<LineRange>) {
    let whole = || (PathBuf::from(word), None);
    if is_there(Path::new(word)) {
        return whole();
    }
    let bytes = word.as_bytes();
    let Some(at) = bytes.iter().rposition(|byte| *byte == b':') else { return whole() };
    let lines = std::str::from_utf8(&bytes[at + 1..]).ok().and_then(|text| text.parse().ok());
    match lines {
        Some(lines) => (PathBuf::from(OsStr::from_bytes(&bytes[..at])), Some(lines)),
        None => whole(),
    }
}

pub(in crate::cli) fn run(args: &BlameArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let (file, of_word) = file_and_lines(&args.file);
    let range = match (args.lines, of_word) {
        (Some(_), Some(_)) => {
            return Err(CliError::usage("the lines stand behind the file, or behind -L"));
        }
        (range, of_word) => range.or(of_word),
    };
    let catalog = store.catalog()?;
    let forms = forms_of(&sys::plain_absolute(&file, &sys::current_or_former_dir()?));
    let at = state(args.at.as_deref(), &forms, &catalog)?;
    let past = Past::of_path(&forms, &catalog)?;
    let Some(found) = blame(&forms, &at, &past.sessions, &past.objects)? else {
        name_damaged(&past.damaged, context);
        return Err(match &args.at {
            Some(named) => {
                let (file, named) = (Shown::path(&file), Shown::bytes(named.as_bytes()));
                CliError::failed(format!("no state of {file} is recorded at {named}"))
                    .with_hint(format!("{NONO} log {file} lists its versions"))
            }
            None => not_held(&file),
        });
    };
    let lines = match range {
        Some(range) => range.within(found.lines.len(), &file)?,
        None => 0..=found.lines.len().wrapping_sub(1),
    };
    let lines = if found.lines.is_empty() { Vec::new() } else { lines.collect() };
    if let (Some(place), false) = (&found.at, args.json) {
        context.say(format_args!("the state of {place}, recorded {}", exact(place.timestamp)));
    }
    let commits = commits_before(&found, &lines, &past);
    if args.json {
        context.json(&Report::of(&found, &lines, &commits, &past))?;
    } else {
        context.page();
        print(&found, &lines, &commits, &past, context)?;
    }
    let is_complete = name_damaged(&past.damaged, context) & name_damaged(&found.damaged, context);
    Ok(u8::from(!is_complete))
}

/// The state that is meant: a snapshot, or a time, or else what is there now.
fn state(named: Option<&str>, forms: &[PathBuf], catalog: &Catalog) -> Result<BlameAt, CliError> {
    let Some(named) = named else {
        let real = forms.last().map_or(Path::new("."), PathBuf::as_path);
        return Ok(match text_now(real, MAX_BLAME_BYTES)? {
            Some(bytes) => BlameAt::Now(bytes),
            None => BlameAt::Newest,
        });
    };
    let Ok(id) = named.parse::<SnapshotId>();
    let unknown = match catalog.find_snapshot_from(&id, Purpose::Looking) {
        Ok((session, number)) => {
            let number = match number {
                Some(number) => number,
                None => last_number(&session)?,
            };
            return Ok(BlameAt::Snapshot { session_id: session.id(), number });
        }
        Err(error) => error,
    };
    match When::parse(named, &Zoned::now()) {
        Ok(when) => Ok(BlameAt::Time(when.end())),
        Err(crate::cli::when::WhenError::Unknown(_)) => {
            Err(CliError::from(unknown).or_hint(&format!("a time is {}", crate::cli::when::FORMS)))
        }
        Err(error) => Err(error.into()),
    }
}

/// The commit of each line of the file that is older than the record, where git has one. Only these
/// lines matter.
fn commits_before(found: &Blame, lines: &[usize], past: &Past) -> Vec<Option<Commit>> {
    let mut commits = vec![None; found.lines.len()];
    let mut text = Vec::new();
    for (number, writer) in found.writers.iter().enumerate() {
        let is_of_writer = |index: usize| found.lines[index].writer == number;
        let event = writer.event.as_ref().filter(|event| event.origin == Origin::First);
        let Some(event) = event.filter(|_| lines.iter().any(|index| is_of_writer(*index))) else {
            continue;
        };
        let root = &event.place.merkle_root;
        let at = match checked_out(&writer.path, &past.objects, root) {
            Ok(Some(at)) => at,
            Ok(None) => continue,
            Err(error) => {
                tracing::debug!("no commits of lines: {error}");
                continue;
            }
        };
        if text.is_empty() {
            text = found.lines.iter().map(|line| line.bytes.clone()).collect();
        }
        for (index, commit) in commits_of(&at, &text).into_iter().enumerate() {
            if is_of_writer(index) {
                commits[index] = commit;
            }
        }
    }
    commits
}

/// The last state of a session. A safety snapshot is none of it.
fn last_number(session: &nono_engine::snapshot::SessionDir) -> Result<u64, CliError> {
    for number in session.recorded_numbers()?.into_iter().rev() {
        if session.manifest(number)?.manifest.kind == SnapshotKind::Ordinary {
            return Ok(number);
        }
    }
    Err(CliError::failed(format!("session {} has no snapshot", session.id())))
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(with = "serde_path")]
    path: PathBuf,
    /// The snapshot whose state it is; `null` for what is there now.
    snapshot: Option<String>,
    lines: Vec<LineReport<'a>>,
}

#[derive(Serialize)]
struct LineReport<'a> {
    line: usize,
    /// Without its end. Bytes that are no UTF-8 are `\xNN`.
    text: String,
    /// `agent`, `command`, `you` (or another program), `nono`, `archive`, `commit`, `before` the
    /// record, or `unrecorded`.
    by: &'static str,
    /// The path that the file had when the line was written.
    #[serde(with = "serde_path")]
    path: PathBuf,
    /// The first state that has the line; `null` where no snapshot has it.
    maker: Option<MakerReport<'a>>,
    /// The commit of a line that is older than the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<CommitReport<'a>>,
}

#[derive(Serialize)]
struct CommitReport<'a> {
    id: &'a str,
    author: String,
    /// When its author made it.
    timestamp: Timestamp,
    subject: String,
}

impl<'a> CommitReport<'a> {
    fn of(commit: &'a Commit) -> Self {
        Self {
            id: commit.id.hex(),
            author: encode(&commit.author).into_owned(),
            timestamp: commit.timestamp,
            subject: encode(&commit.subject).into_owned(),
        }
    }
}

impl<'a> Report<'a> {
    fn of(
        found: &'a Blame,
        lines: &[usize],
        commits: &'a [Option<Commit>],
        past: &'a Past,
    ) -> Self {
        let lines = lines.iter().map(|index| {
            let line = &found.lines[*index];
            let writer = &found.writers[line.writer];
            let maker = maker(writer, past);
            let commit = commits[*index].as_ref();
            let by = maker.map_or("unrecorded", |maker| maker.by());
            LineReport {
                line: index + 1,
                text: encode(without_end(&line.bytes)).into_owned(),
                by: if commit.is_some() { "commit" } else { by },
                path: writer.path.clone(),
                maker: maker.map(|maker| maker.report()),
                commit: commit.map(CommitReport::of),
            }
        });
        Self {
            path: found.path.clone(),
            snapshot: found.at.as_ref().map(ToString::to_string),
            lines: lines.collect(),
        }
    }
}

fn maker<'a>(writer: &'a Writer, past: &'a Past) -> Option<Maker<'a>> {
    writer.event.as_ref().map(|event| Maker::new(&event.place, event.origin, past))
}

fn without_end(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// A writer in the columns of a list.
struct Columns {
    id: String,
    time: String,
    who: String,
    path: String,
}

impl Columns {
    fn of_commit(commit: &Commit, path: String, now: &Zoned) -> Self {
        let shown = |bytes: &[u8]| Shown::bytes(bytes).to_string();
        let who = format!("{} · {}", shown(&commit.author), shown(&commit.subject));
        Self {
            id: commit.id.short().to_owned(),
            time: relative_time(commit.timestamp, now),
            who: columns::cut(&who, WRITER_CELLS),
            path,
        }
    }
}

fn print(
    found: &Blame,
    lines: &[usize],
    commits: &[Option<Commit>],
    past: &Past,
    context: &Context,
) -> Result<(), CliError> {
    let now = Zoned::now();
    let current_dir = sys::current_or_former_dir()?;
    let of_writer = |writer: &Writer| {
        let path = Shown::path(typed_here(&writer.path, &current_dir)).to_string();
        let path = Some(path).filter(|_| writer.path != found.path);
        let path = path.map_or(String::new(), |path| columns::cut(&path, PATH_CELLS));
        let Some(maker) = maker(writer, past) else {
            let who = "not recorded yet".to_owned();
            return Columns { id: "now".to_owned(), time: String::new(), who, path };
        };
        let time = relative_time(maker.timestamp(), &now);
        let who = maker.in_cells(WRITER_CELLS, PROMPT_CELLS);
        Columns { id: maker.id(), time, who, path }
    };
    let writers: Vec<Columns> = found.writers.iter().map(of_writer).collect();
    let of_commits: HashMap<&str, Columns> = commits
        .iter()
        .zip(&found.lines)
        .filter_map(|(commit, line)| Some((commit.as_ref()?, writers[line.writer].path.clone())))
        .map(|(commit, path)| (commit.id.hex(), Columns::of_commit(commit, path, &now)))
        .collect();
    let columns_of = |index: usize| match &commits[index] {
        Some(commit) => &of_commits[commit.id.hex()],
        None => &writers[found.lines[index].writer],
    };
    let used = || lines.iter().map(|index| columns_of(*index));
    let widest = |of: fn(&Columns) -> &str| {
        used().map(|columns| columns::width(of(columns))).max().unwrap_or(0)
    };
    let (id, time) = (widest(|it| &it.id), widest(|it| &it.time));
    let (who, path) = (widest(|it| &it.who), widest(|it| &it.path));
    let digits = lines.last().map_or(1, |last| (last + 1).to_string().len());
    let mut out = context.out_bytes();
    let mut text = Vec::new();
    for index in lines {
        let line = &found.lines[*index];
        let columns = columns_of(*index);
        text.clear();
        let mut head = format!(
            "{}  {}  {}",
            columns::pad(&columns.id, id),
            columns::pad(&columns.time, time),
            columns::pad(&columns.who, who)
        );
        if path > 0 {
            head = format!("{head}  {}", columns::pad(&columns.path, path));
        }
        let number = format!("{:>digits$}", index + 1);
        if context.colours() {
            write!(text, "{DIM}{head}{DIM:#}  {GREEN}{number}{GREEN:#}: ")?;
        } else {
            write!(text, "{head}  {number}: ")?;
        }
        if context.stdout_is_terminal {
            push_escaped(&mut text, without_end(&line.bytes));
        } else {
            text.extend_from_slice(without_end(&line.bytes));
        }
        text.push(b'\n');
        out.write_all(&text)?;
    }
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_named_as_git_names_them() {
        let range = |text: &str| text.parse::<LineRange>();
        assert_eq!(range("3,5"), Ok(LineRange { first: 3, last: Some(5) }));
        assert_eq!(range("3,+2"), Ok(LineRange { first: 3, last: Some(4) }));
        assert_eq!(range("3"), Ok(LineRange { first: 3, last: Some(3) }));
        assert_eq!(range("3,"), Ok(LineRange { first: 3, last: None }));
        assert_eq!(range(",3"), Ok(LineRange { first: 1, last: Some(3) }));
        for text in ["", ",", "0", "5,3", "a", "1,b", "-1", "1,+0", "1,2,3"] {
            assert!(range(text).is_err(), "{text}");
        }
        let of = |text: &str, count| range(text).unwrap().within(count, Path::new("a")).ok();
        assert_eq!(of("2,9", 4), Some(1..=3));
        assert_eq!(of("5", 4), None);
    }
}
