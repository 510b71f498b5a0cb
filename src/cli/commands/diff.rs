//! `nono diff`: two states compared: snapshots of one session or of two, or what is there
//! now.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::diff_sides::{Sides, State, Words, recorded_paths};
use crate::cli::Outcome;
use crate::cli::args::StoreArgs;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::offer::NONO;
use crate::cli::past::typed_here;
use crate::cli::render::{
    DiffOptions, Palette, quoted_name, write_full, write_patch_counting, write_side_by_side,
    write_stat, write_word_diff,
};
use crate::cli::repositories::Repositories;
use crate::cli::view_args::{ViewArgs, Viewed};
use crate::cli::when::{When, when};
use nono_engine::byte_path;
use nono_engine::counted::counted;
use nono_engine::diff::{self, Change, Comparison, Difference, Lookup};
use nono_engine::git::repositories;
use nono_engine::history::recorded_form;
use nono_engine::object::ContentHash;
use nono_engine::path_text::{Shown, serde_paths, to_path};
use nono_engine::restore::RestoreError;
use nono_engine::session::Catalog;
use nono_engine::snapshot::{NotCapturedSet, SnapshotManifest};
use nono_engine::store::{EitherSource, ObjectSource, read_root_tree};
use nono_engine::sys;

/// Arguments of `nono diff`.
#[derive(Debug, Args)]
pub(in crate::cli) struct DiffArgs {
    /// The older state (ID, ID/N or `now`), the newer one, and paths to which it is limited. A
    /// single session is compared from its baseline to its last snapshot, or with now while it is
    /// at work and after it was killed; ID#N is what that step changed. A file alone is compared
    /// from its earlier version. NAME:ID[/N] is a state of a remote [default: the last session;
    /// with a single snapshot so far, compared with now]
    #[arg(value_name = "A [B] | PATH", allow_negative_numbers = true)]
    words: Vec<OsString>,
    /// Only these paths, also where they look like an id
    #[arg(last = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    #[command(flatten)]
    style: StyleArgs,
    /// The older state is the one at this time: 12:00, yesterday, "2h ago", "2026-11-20 18:30". The
    /// newer one is A, or what is there now
    #[arg(long, value_name = "TIME", value_parser = when)]
    at: Option<When>,
    /// Show how many lines of each file changed
    #[arg(long, group = "style")]
    stat: bool,
    /// Put the contents of binary files into the patch, for `git apply`
    #[arg(long, group = "style")]
    binary: bool,
    /// Show the changed words in their lines: [-old-]{+new+}
    #[arg(long, group = "style")]
    word_diff: bool,
    /// Show a file with another name and much the same contents as renamed, from so many percent on
    #[arg(
        short = 'M',
        long,
        value_name = "PERCENT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "50",
        value_parser = percent,
        conflicts_with_all = ["json", "name_only"]
    )]
    find_renames: Option<u64>,
    /// Print the names of what changed
    #[arg(long, group = "style")]
    name_only: bool,
    /// End each name with a NUL, and quote nothing
    #[arg(short = 'z', requires = "name_only")]
    zero: bool,
    /// Print the changed paths as JSON
    #[arg(long, conflicts_with = "style")]
    json: bool,
    // A heading is that of all that follows.
    #[command(flatten)]
    view: ViewArgs,
}

#[derive(Serialize)]
struct Report {
    old: Side,
    new: Side,
    changes: Vec<Change>,
    /// Paths whose time alone moved.
    #[serde(with = "serde_paths")]
    touched: Vec<PathBuf>,
}

/// A snapshot, or what is there now.
#[derive(Serialize)]
struct Side {
    session_id: Option<String>,
    number: Option<u64>,
    merkle_root: ContentHash,
}

/// The ways to show differences other than a patch; one at a time.
#[derive(Debug, Args)]
#[group(skip)]
pub(in crate::cli) struct StyleArgs {
    /// Show what changed in two columns
    #[arg(long, group = "style")]
    side_by_side: bool,
    /// Show what changed within the whole of each file
    #[arg(long, group = "style")]
    full: bool,
}

impl StyleArgs {
    /// The style that was asked for, if one was.
    pub(in crate::cli) fn chosen(&self) -> Option<DiffStyle> {
        match (self.side_by_side, self.full) {
            (true, _) => Some(DiffStyle::SideBySide),
            (_, true) => Some(DiffStyle::Full),
            _ => None,
        }
    }
}

/// How differences are shown, and the similarity from which a file is a renamed one.
#[derive(Debug, Clone, Copy)]
struct View {
    style: DiffStyle,
    renames: Option<u64>,
}

/// The similarity of `-M`, in percent: `50`, `50%`.
fn percent(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse::<u64>().ok();
    number
        .filter(|number| (1..=100).contains(number))
        .ok_or_else(|| "give a number of percent from 1 to 100".to_owned())
}

/// How differences are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum DiffStyle {
    /// With the changed words in their lines.
    Words,
    Patch,
    /// With the contents of binary files.
    BinaryPatch,
    SideBySide,
    Full,
    Stat,
    Names {
        zero: bool,
    },
}

pub(in crate::cli) fn run(args: &DiffArgs, store: &StoreArgs, context: &Context) -> Outcome {
    let Viewed { catalog, words, .. } = args.view.view(&args.words, store, context)?;
    let words = Words::of(&words, &args.paths, &catalog)?;
    let asked = Asked { words, at: args.at.as_ref(), is_for_program: args.json };
    compared(asked, &catalog, context, |compared, is_complete| {
        if args.json {
            let Compared { differences, sides, old, new, .. } = &compared;
            let side = |state: &State, manifest: &SnapshotManifest| match state {
                State::Now { .. } => {
                    Side { session_id: None, number: None, merkle_root: manifest.merkle_root }
                }
                State::Snapshot { session_id, .. } => Side {
                    session_id: Some(session_id.clone()),
                    number: Some(manifest.number),
                    merkle_root: manifest.merkle_root,
                },
            };
            let unknown = (NotCapturedSet::new(old), NotCapturedSet::new(new));
            let Comparison { changes, touched } =
                Comparison::of(differences, &unknown.0, &unknown.1);
            let (old, new) = (side(&sides.old, old), side(&sides.new, new));
            context.json(&Report { old, new, changes, touched })?;
            return Ok(u8::from(!is_complete));
        }
        let style = match (args.stat, args.name_only, args.binary, args.word_diff) {
            (true, ..) => DiffStyle::Stat,
            (_, true, ..) => DiffStyle::Names { zero: args.zero },
            (.., true, _) => DiffStyle::BinaryPatch,
            (.., true) => DiffStyle::Words,
            _ => args.style.chosen().unwrap_or(DiffStyle::Patch),
        };
        let differences = compared.outside_git(context)?;
        let shown = View { style, renames: args.find_renames };
        write(compared.source, &differences, &compared.roots, shown, context)?;
        Ok(u8::from(!is_complete))
    })
}

/// The states and paths that a command line names.
pub(super) struct Asked<'a> {
    pub(super) words: Words,
    /// The time of the older state.
    pub(super) at: Option<&'a When>,
    /// Whether a program reads the output, so that nothing is said beside it.
    pub(super) is_for_program: bool,
}

/// Two states that were compared.
pub(super) struct Compared<'a> {
    /// The objects of both.
    pub(super) source: &'a dyn ObjectSource,
    sides: &'a Sides,
    old: &'a SnapshotManifest,
    new: &'a SnapshotManifest,
    differences: Vec<Difference>,
    /// The tracked paths of both.
    pub(super) roots: Vec<PathBuf>,
}

impl Compared<'_> {
    /// The differences outside git directories.
    pub(super) fn outside_git(&self, context: &Context) -> Result<Vec<Difference>, CliError> {
        outside_git(self.differences.clone(), self.source, self.old, self.new, context)
    }
}

/// Compares two states, and gives the comparison to `then`, with whether all sessions could be
/// asked for it.
pub(super) fn compared(
    asked: Asked<'_>,
    catalog: &Catalog,
    context: &Context,
    then: impl FnOnce(Compared<'_>, bool) -> Outcome,
) -> Outcome {
    let Asked { mut words, at, is_for_program } = asked;
    let mut is_complete = true;
    if let Some(at) = at {
        words.begin_at(at, catalog, context)?;
    }
    let sides = match words.earlier(catalog)? {
        Some(earlier) => {
            is_complete = earlier.name_damaged(context);
            Sides::of_file(&earlier)?
        }
        None => Sides::of(std::mem::take(&mut words.states), catalog)?,
    };
    if let Some(note) = sides.note.as_ref().filter(|_| !is_for_program) {
        context.say(note);
    }
    let live = sides.old.capture()?.map_or_else(|| sides.new.capture(), |live| Ok(Some(live)))?;
    let (old, old_store) = sides.old.seen(live.as_ref())?;
    let (new, new_store) = sides.new.seen(live.as_ref())?;
    let both = EitherSource { first: old_store, second: new_store };
    let mut differences = differences(&both, old, new)?;
    let roots = roots(old, new);
    if !words.paths.is_empty() {
        let paths = recorded_paths(&words.paths, &roots)?;
        if let Some(doubt) = words.doubt
            && !is_recorded(&paths[0], &both, [old, new])?
        {
            return Err(CliError::from(doubt).with_hint(format!(
                "a path that is no longer there stands behind `--`: {NONO} diff ID -- PATH"
            )));
        }
        for forms in &paths {
            let is_above = |form: &PathBuf| roots.iter().any(|root| root.starts_with(form));
            if !forms.iter().any(is_above) && !is_recorded(forms, &both, [old, new])? {
                return Err(in_neither(forms, [(&sides.old, old), (&sides.new, new)], &roots));
            }
        }
        limit(&mut differences, &paths.concat());
    }
    let compared = Compared { source: &both, sides: &sides, old, new, differences, roots };
    then(compared, is_complete)
}

/// Keeps the differences in these paths; without a path, all.
pub(super) fn limit(differences: &mut Vec<Difference>, paths: &[PathBuf]) {
    let wanted: Vec<&[u8]> = paths.iter().map(|path| path.as_os_str().as_bytes()).collect();
    let is_meant = |path: &[u8]| wanted.iter().any(|wanted| byte_path::is_in(path, wanted));
    differences.retain(|found| wanted.is_empty() || is_meant(&found.path));
}

/// Whether one of the states holds a path in one of its forms.
pub(super) fn is_recorded(
    forms: &[PathBuf],
    source: &dyn ObjectSource,
    states: [&SnapshotManifest; 2],
) -> Result<bool, CliError> {
    for manifest in states {
        let root = read_root_tree(source, &manifest.merkle_root)?;
        let mut lookup = Lookup::new(source, &root);
        for form in forms {
            if lookup.find(form.as_os_str().as_bytes())?.is_some() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Why nothing can be compared at a path that none of the states has.
fn in_neither(
    forms: &[PathBuf],
    states: [(&State, &SnapshotManifest); 2],
    roots: &[PathBuf],
) -> CliError {
    let tracked = recorded_form(forms, roots);
    let path = tracked.or(forms.first().map(PathBuf::as_path)).unwrap_or(Path::new("."));
    if let (None, Some(first)) = (tracked, roots.first()) {
        let (path, tracked) = (path.to_owned(), first.clone());
        return RestoreError::NotTracked { path, tracked }.into();
    }
    for (_, manifest) in states {
        let left_out = NotCapturedSet::new(manifest);
        if let Some(reason) = left_out.reason(path.as_os_str().as_bytes()).cloned() {
            let (path, snapshot) = (path.to_owned(), manifest.number);
            return RestoreError::PathLeftOut { path, snapshot, reason }.into();
        }
    }
    let [old, new] = states.map(|(state, manifest)| match state {
        State::Now { .. } => "now".to_owned(),
        State::Snapshot { session_id, .. } => {
            format!("in snapshot {session_id}/{}", manifest.number)
        }
    });
    let path = Shown::path(path);
    CliError::failed(format!("there is nothing at {path}, neither {old} nor {new}"))
}

/// The tracked paths of both states.
fn roots(old: &SnapshotManifest, new: &SnapshotManifest) -> Vec<PathBuf> {
    let roots = old.roots.iter().chain(&new.roots).map(|root| root.path.clone());
    roots.collect::<BTreeSet<_>>().into_iter().collect()
}

/// The differences, without paths that one of the states does not know.
fn differences(
    source: &dyn ObjectSource,
    old: &SnapshotManifest,
    new: &SnapshotManifest,
) -> Result<Vec<Difference>, CliError> {
    let mut differences = diff::compare(source, &old.merkle_root, &new.merkle_root)?;
    let unknown = (NotCapturedSet::new(old), NotCapturedSet::new(new));
    differences.retain(|difference| diff::is_known(difference, &unknown.0, &unknown.1));
    Ok(differences)
}

/// The differences outside git directories: `git apply` and `patch` refuse paths in them.
fn outside_git(
    mut differences: Vec<Difference>,
    source: &dyn ObjectSource,
    old: &SnapshotManifest,
    new: &SnapshotManifest,
    context: &Context,
) -> Result<Vec<Difference>, CliError> {
    let paths = differences.iter().map(|difference| &difference.path);
    let git = repositories(source, &old.merkle_root, &new.merkle_root, paths)?;
    let is_in_git = |path: &[u8]| git.iter().any(|git| to_path(path).starts_with(&git.git_dir));
    differences.retain(|difference| !is_in_git(&difference.path));
    for line in Repositories::restored(&git, &roots(old, new)).lines_of_work() {
        context.say(format_args!("not shown: {line} (--json names its files)"));
    }
    Ok(differences)
}

/// Writes the differences of two snapshots to stdout.
pub(in crate::cli) fn write_diff(
    old_store: &dyn ObjectSource,
    old: &SnapshotManifest,
    new_store: &dyn ObjectSource,
    new: &SnapshotManifest,
    style: DiffStyle,
    context: &Context,
) -> Result<(), CliError> {
    write_diff_in(old_store, old, new_store, new, &[], style, context)
}

/// As [`write_diff`], of a patch, by a pager of its own: a question goes on after it.
#[cfg(feature = "mount")]
pub(in crate::cli) fn show_diff(
    old_store: &dyn ObjectSource,
    old: &SnapshotManifest,
    new_store: &dyn ObjectSource,
    new: &SnapshotManifest,
    context: &Context,
) -> Result<(), CliError> {
    let both = EitherSource { first: old_store, second: new_store };
    let differences = outside_git(differences(&both, old, new)?, &both, old, new, context)?;
    let (view, roots) = (View { style: DiffStyle::Patch, renames: None }, roots(old, new));
    context.show(|out| write_to(out, &both, &differences, &roots, view, context))
}

/// As [`write_diff`], limited to these paths; without one, all.
pub(super) fn write_diff_in(
    old_store: &dyn ObjectSource,
    old: &SnapshotManifest,
    new_store: &dyn ObjectSource,
    new: &SnapshotManifest,
    paths: &[PathBuf],
    style: DiffStyle,
    context: &Context,
) -> Result<(), CliError> {
    let both = EitherSource { first: old_store, second: new_store };
    let mut differences = differences(&both, old, new)?;
    limit(&mut differences, paths);
    let differences = outside_git(differences, &both, old, new, context)?;
    let view = View { style, renames: None };
    write(&both, &differences, &roots(old, new), view, context)
}

fn write(
    source: &dyn ObjectSource,
    differences: &[Difference],
    roots: &[PathBuf],
    view: View,
    context: &Context,
) -> Result<(), CliError> {
    context.page();
    write_to(&mut context.out_bytes(), source, differences, roots, view, context)
}

fn write_to(
    out: &mut dyn Write,
    source: &dyn ObjectSource,
    differences: &[Difference],
    roots: &[PathBuf],
    View { style, renames }: View,
    context: &Context,
) -> Result<(), CliError> {
    let mut options = DiffOptions::new(source, roots);
    options.escape = context.stdout_is_terminal;
    options.renames = renames;
    if context.colours() {
        options.palette = Palette::coloured();
    }
    match style {
        DiffStyle::Patch | DiffStyle::BinaryPatch => {
            options.binary = style == DiffStyle::BinaryPatch;
            let left_out = write_patch_counting(out, differences, &options)?;
            // Git refuses such a patch, and `patch` skips them without a word.
            if left_out > 0 && !context.stdout_is_terminal {
                context.warn(not_in_patch(left_out, options.binary));
            }
        }
        DiffStyle::Words => write_word_diff(out, differences, &options)?,
        DiffStyle::Full => write_full(out, differences, &options)?,
        DiffStyle::SideBySide => {
            let width = context.width().unwrap_or(160);
            write_side_by_side(out, differences, &options, width.into())?;
        }
        DiffStyle::Stat => {
            let width = context.width().unwrap_or(80);
            // A touched file is no change.
            let is_named = |found: &&Difference| context.is_verbose || !found.is_touched();
            let named: Vec<_> = differences.iter().filter(is_named).cloned().collect();
            write_stat(out, &named, &options, width.into())?;
            match differences.len() - named.len() {
                0 => {}
                1 => context.say("1 file touched (-v names it)"),
                count => context.say(format_args!("{count} files touched (-v names them)")),
            }
        }
        DiffStyle::Names { zero } => write_names(out, differences, roots, zero)?,
    }
    Ok(out.flush()?)
}

/// Says that a patch does not bring all files back.
fn not_in_patch(count: usize, has_binary: bool) -> String {
    let files = counted(count, "file", "files");
    let remedy = if has_binary {
        format!("too large; {NONO} restore brings them back")
    } else {
        "binary or too large; --binary puts binary files in, for `git apply`".to_owned()
    };
    format!("the contents of {files} are not in this patch, and git refuses it: {remedy}")
}

/// The way to a path from a directory of the same project.
fn relative(path: &Path, from: &Path) -> PathBuf {
    let above = from.ancestors().position(|above| path.starts_with(above)).unwrap_or(0);
    let shared = from.ancestors().nth(above).unwrap_or(Path::new("/"));
    let inside = path.strip_prefix(shared).unwrap_or(path);
    let way: PathBuf = std::iter::repeat_n("..", above).collect();
    let way = way.join(inside);
    if way.as_os_str().is_empty() { PathBuf::from(".") } else { way }
}

/// The paths that changed, as another command takes them from here.
fn write_names(
    out: &mut dyn Write,
    differences: &[Difference],
    roots: &[PathBuf],
    zero: bool,
) -> Result<(), CliError> {
    let current_dir = sys::current_dir()?;
    for difference in differences.iter().filter(|found| found.change_type().is_some()) {
        let path = to_path(&difference.path);
        let root =
            roots.iter().find(|root| current_dir.starts_with(root) && path.starts_with(root));
        let path = match root {
            Some(_) => relative(path, &current_dir),
            None => typed_here(path, &current_dir).to_owned(),
        };
        let path = path.as_os_str().as_bytes();
        if zero {
            out.write_all(path)?;
            out.write_all(b"\0")?;
        } else {
            out.write_all(&quoted_name(path))?;
            out.write_all(b"\n")?;
        }
    }
    Ok(())
}
