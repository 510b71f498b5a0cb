//! `list_forks`, `fork`, `merge` and `discard`: the forks of the project.
//!
//! The program itself carries them out, started again in the project: so a fork has the limits of
//! `nono fork`, and a merge its locks, journal, report and undo. No tool runs a command in a fork,
//! because a client has rules for commands: an agent types `nono fork enter NAME -- CMD` in its own
//! shell, and the program makes the namespaces. Always true: a name means a fork of the project and
//! of no other, and the settings that switch restores off switch off merges and discards, too.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::pages::{answer, page};
use super::workspace::cut;
use super::{Answer, ToolError, Workspace};
use crate::cli::itself::{self, shown};
use nono_engine::counted::counted;
use nono_engine::fork::{Fork, Forks};
use nono_engine::path_text::{Shown, decode};
use nono_engine::sys;

/// Maximum number of forks that one call discards.
const MAX_NAMES: usize = 100;
/// Longest message of the program that is passed on, in characters.
const MAX_MESSAGE: usize = 4_000;
/// The state from which a fork begins unless one is named.
const NOW: &str = "now";

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ListArguments {
    cursor: Option<String>,
    limit: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForkArguments {
    name: String,
    #[serde(default)]
    from: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MergeArguments {
    name: String,
    #[serde(default)]
    paths: Vec<String>,
    #[serde(default)]
    on_conflict: Side,
    #[serde(default)]
    commits: Commits,
    #[serde(default)]
    dry_run: bool,
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    limit: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DiscardArguments {
    names: Vec<String>,
}

/// The side that conflicts of a merge take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Side {
    #[default]
    Leave,
    Ours,
    Theirs,
}

/// Whether the commits of a fork come with its files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Commits {
    #[default]
    With,
    Without,
    Only,
}

impl Workspace {
    pub(super) fn list_forks(&self, arguments: &ListArguments) -> Result<Answer, ToolError> {
        let (listed, _) = self.reported(vec!["fork".into(), "list".into(), "--json".into()])?;
        let Value::Array(mut forks) = listed else { return Err(no_report("the list of forks")) };
        forks.retain(|fork| {
            let paths = texts(&fork["tracked_paths"]);
            !paths.is_empty() && paths.iter().all(|path| self.holds(&decode(path)))
        });
        let count = forks.len() as u64;
        let line = |fork: &Value| {
            let name = fork["name"].as_str().unwrap_or_default();
            let from = fork["from"].as_str().unwrap_or_default();
            let collisions = fork["collisions"].as_array().map_or(0, Vec::len);
            let processes = fork["processes"].as_array().map_or(0, Vec::len);
            let processes = counted(processes as u64, "process", "processes");
            format!(
                "{name}  from {from}, {} created, {} modified, {} deleted, {collisions} also \
                 changed elsewhere, {processes} in it\n",
                fork["changes"]["created"], fork["changes"]["modified"], fork["changes"]["deleted"]
            )
        };
        let (forks, next) = page(forks, arguments.cursor.as_deref(), arguments.limit, line)?;
        let recorded: String = forks.iter().map(line).collect();
        let listed: Vec<Value> = forks.iter().map(|fork| self.in_list(fork)).collect();
        let head = format!("The project has {}.", counted(count, "fork", "forks"));
        Ok(answer(&head, &recorded, next, json!({"fork_count": count, "forks": listed})))
    }

    /// A fork as the list has it. A long list is shown from its beginning.
    fn in_list(&self, fork: &Value) -> Value {
        let all = fork["collisions"].as_array().cloned().unwrap_or_default();
        let line = |collision: &Value| collision["path"].to_string();
        let (collisions, rest) = page(all, None, None, line).unwrap_or_default();
        let collisions: Vec<Value> = collisions
            .into_iter()
            .map(|collision| {
                json!({
                    "path": self.named_text(&collision["path"]),
                    "forks": collision["forks"],
                    "project": collision["project"],
                })
            })
            .collect();
        json!({
            "name": fork["name"], "session_id": fork["session_id"], "from": fork["from"],
            "created": fork["created"], "changes": fork["changes"], "bytes": fork["bytes"],
            "processes": fork["processes"], "collisions": collisions,
            "has_more_collisions": rest.is_some(),
        })
    }

    pub(super) fn fork(&self, arguments: &ForkArguments) -> Result<Answer, ToolError> {
        let name = checked_name(&arguments.name)?;
        let from = match arguments.from.as_deref().map(str::trim) {
            None | Some("" | NOW) => NOW.to_owned(),
            Some(from) => {
                let state = self.state(Some(from))?;
                format!("{}/{}", state.manager.session().id(), state.recorded()?)
            }
        };
        // A flag first: a name that follows is never that of a subcommand.
        let words = ["fork", "--json", "--from", &from, name].map(OsString::from);
        let (made, _) = self.reported(words.to_vec())?;
        let missing = made["not_in_fork"].as_array().cloned().unwrap_or_default();
        let count = missing.len() as u64;
        let line = |left: &Value| {
            let path = self.named_text(&left["path"]);
            let reason = left["reason"].as_str().unwrap_or_default();
            format!("not in the fork: {} ({reason})\n", Shown::bytes(path.as_bytes()))
        };
        let (missing, _) = page(missing, None, None, line)?;
        let recorded: String = missing.iter().map(line).collect();
        let missing: Vec<Value> = missing
            .iter()
            .map(|left| json!({"path": self.named_text(&left["path"]), "reason": left["reason"]}))
            .collect();
        let enter = format!("nono fork enter {name} -- CMD");
        let begun = made["from"].as_str().unwrap_or_default();
        let head = format!(
            "Fork {name} begins from {begun}; its session is {}. To run a command in it, type \
             `{enter}` in a shell: files change in the fork alone. `merge` brings its work into \
             the project, `discard` removes it.",
            made["session_id"].as_str().unwrap_or_default()
        );
        let data = json!({
            "name": made["name"], "session_id": made["session_id"], "from": made["from"],
            "created": made["created"], "enter": enter, "not_in_fork": missing,
            "not_in_fork_count": count,
        });
        Ok(answer(&head, &recorded, None, data))
    }

    pub(super) fn merge(&self, arguments: &MergeArguments) -> Result<Answer, ToolError> {
        if !arguments.dry_run {
            self.may_change("merges", "fork merge")?;
            if arguments.cursor.is_some() {
                let reason = "cursor: a merge has one page; one with dry_run has more";
                return Err(ToolError::arguments(reason));
            }
        }
        let fork = self.fork_named(&arguments.name)?;
        let mut words: Vec<OsString> = vec!["fork".into(), "merge".into(), "--json".into()];
        let flags = [
            (arguments.dry_run, "--dry-run"),
            (arguments.on_conflict == Side::Ours, "--ours"),
            (arguments.on_conflict == Side::Theirs, "--theirs"),
            (arguments.commits == Commits::Without, "--no-commits"),
            (arguments.commits == Commits::Only, "--commits-only"),
        ];
        words.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag.into()));
        words.extend(["--".into(), fork.document().session.clone().into()]);
        words.extend(self.paths(&arguments.paths)?.into_iter().map(OsString::from_vec));
        let (report, is_complete) = self.reported(words)?;
        self.merged(arguments, &report, is_complete)
    }

    /// Says what a merge did or would do, as much as a page takes.
    fn merged(
        &self,
        arguments: &MergeArguments,
        report: &Value,
        is_complete: bool,
    ) -> Result<Answer, ToolError> {
        let of = |key: &str, kind: &'static str| {
            let all = report[key].as_array().cloned().unwrap_or_default();
            all.into_iter().map(move |entry| (kind, entry))
        };
        let conflicts = of("merge_conflicts", CONFLICT);
        let left = of("skipped", LEFT).chain(of("not_taken", LEFT)).chain(of("stays", STAYS));
        let all: Vec<_> = conflicts.chain(left).chain(of("changes", CHANGE)).collect();
        let count_of = |kind: &str| all.iter().filter(|(is, _)| *is == kind).count();
        let (changes, open) = (count_of(CHANGE) as u64, count_of(CONFLICT) as u64);
        let line = |(kind, entry): &(&str, Value)| {
            let path = self.named_text(&entry["path"]);
            let path = Shown::bytes(path.as_bytes());
            let word = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            match *kind {
                CHANGE => format!("{} {path}\n", word("change_type")),
                STAYS => format!("! stays in the fork: {} of {path}\n", word("what")),
                kind => format!("! {kind}: {path}: {}\n", word("reason")),
            }
        };
        let (told, next) = page(all, arguments.cursor.as_deref(), arguments.limit, line)?;
        let recorded: String = told.iter().map(line).collect();
        let listed = |kind: &str| -> Vec<Value> {
            let of_kind = told.iter().filter(|(is, _)| *is == kind);
            of_kind.map(|(_, entry)| self.entry(entry)).collect()
        };
        let session = report["merge_session"].as_str();
        let done = if arguments.dry_run { "would be merged" } else { "merged" };
        let mut head = format!(
            "Fork {}: {} {done}, {}.",
            report["fork"].as_str().unwrap_or_default(),
            counted(changes, "change", "changes"),
            counted(open, "conflict is open", "conflicts are open"),
        );
        let branches = report["branches"].as_array().cloned().unwrap_or_default();
        for branch in branches.iter().filter(|branch| branch["left"].is_null()) {
            let word = |key: &str| branch[key].as_str().unwrap_or_default().to_owned();
            let name = word("branch");
            let name = Shown::bytes(name.as_bytes());
            head.push_str(&format!(" Its commit {} is branch {name}.", word("commit")));
        }
        if let Some(session) = session {
            head.push_str(&format!(" The user takes it back with `nono undo {session}`."));
        }
        // A merge is not called again for its second page.
        let next = next.filter(|_| arguments.dry_run);
        let data = json!({
            "fork": report["fork"], "dry_run": arguments.dry_run, "is_complete": is_complete,
            "merge_session": session, "change_count": changes, "conflict_count": open,
            "changes": listed(CHANGE), "conflicts": listed(CONFLICT), "left": listed(LEFT),
            "stays": listed(STAYS), "branches": branches,
        });
        Ok(answer(&head, &recorded, next, data))
    }

    /// An entry of a report, with its path as an answer has it.
    fn entry(&self, entry: &Value) -> Value {
        let mut entry = entry.clone();
        entry["path"] = json!(self.named_text(&entry["path"]));
        entry
    }

    pub(super) fn discard(&self, arguments: &DiscardArguments) -> Result<Answer, ToolError> {
        self.may_change("discards", "fork discard")?;
        if arguments.names.is_empty() || arguments.names.len() > MAX_NAMES {
            return Err(ToolError::Arguments(format!("names: none, or more than {MAX_NAMES}")));
        }
        let forks = arguments.names.iter().map(|name| self.fork_named(name));
        let forks = forks.collect::<Result<Vec<_>, _>>()?;
        let mut words: Vec<OsString> = ["fork", "discard", "--json", "--"].map(Into::into).into();
        words.extend(forks.iter().map(|fork| fork.document().session.clone().into()));
        let (report, is_complete) = self.reported(words)?;
        let (gone, left) = (&report["discarded"], &report["left"]);
        let names = |forks: &Value| -> Vec<String> {
            let all = forks.as_array().into_iter().flatten();
            all.filter_map(|fork| fork["name"].as_str()).map(str::to_owned).collect()
        };
        let head = match is_complete {
            true => format!("Discarded: {}.", names(gone).join(", ")),
            false => format!(
                "Discarded: {}. Not discarded: {}.",
                names(gone).join(", "),
                names(left).join(", ")
            ),
        };
        let line = |fork: &Value| {
            let reason = fork["message"].as_str().unwrap_or_default();
            format!("{}\n", Shown::bytes(reason.as_bytes()))
        };
        let recorded: String = left.as_array().into_iter().flatten().map(line).collect();
        Ok(answer(&head, &recorded, None, json!({"discarded": gone, "left": left})))
    }

    /// Refuses what the settings switch off.
    fn may_change(&self, what: &str, command: &str) -> Result<(), ToolError> {
        if self.policy.may_restore {
            return Ok(());
        }
        Err(ToolError::Refused(format!(
            "{what} by agents are switched off here (mcp_restore); ask the user to run `nono \
             {command} NAME`"
        )))
    }

    /// The fork of the project that a name means.
    fn fork_named(&self, name: &str) -> Result<Fork, ToolError> {
        let name = checked_name(name)?;
        let root = sys::real_or_future_path(self.catalog.root());
        let fork = Forks::new(&root).here(&self.project).find(name)?;
        let is_here = |path: &Path| self.holds(path.as_os_str().as_bytes());
        if fork.recorded_paths().all(|path| is_here(path)) {
            return Ok(fork);
        }
        Err(ToolError::Refused(format!("fork {name} is one of another project")))
    }

    /// The report of the program, and whether all that was asked for is done.
    fn reported(&self, words: Vec<OsString>) -> Result<(Value, bool), ToolError> {
        let finished = itself::run(self.catalog.root(), &words, &self.project)
            .map_err(|error| ToolError::Refused(format!("cannot start nono again: {error}")))?;
        match serde_json::from_slice(&finished.stdout) {
            Ok(report) => Ok((report, finished.code == Some(0))),
            // It failed before it had a report, and said why.
            Err(_) => match shown(&finished.stderr).trim() {
                "" => Err(no_report("nono")),
                said => Err(ToolError::Refused(cut(said, MAX_MESSAGE))),
            },
        }
    }

    /// A path of a report as an answer has it.
    fn named_text(&self, path: &Value) -> String {
        self.named(&decode(path.as_str().unwrap_or_default()))
    }
}

const CHANGE: &str = "change";
const CONFLICT: &str = "conflict";
const LEFT: &str = "left";
const STAYS: &str = "stays";

/// A name that is no flag. The rest is judged where forks are made and found.
fn checked_name(name: &str) -> Result<&str, ToolError> {
    match name.trim() {
        name if name.starts_with(|first: char| first.is_ascii_alphanumeric()) => Ok(name),
        _ => Err(ToolError::arguments("name: letters, digits, `-`, `_` and `.`, no `-` first")),
    }
}

fn no_report(what: &str) -> ToolError {
    ToolError::Refused(format!("{what}: there is no report of it"))
}

/// The texts of a list.
fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}
