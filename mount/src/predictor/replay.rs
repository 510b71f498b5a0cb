//! Replays what real programs did and compares what the predictor makes of it.
//!
//! A trace is the log of a mount, `NONO_LOG=nono_mount::trace=trace nono mount --foreground DIR`,
//! without the words before each event: `scripts/record-traces` makes them. A line that begins with
//! `->` is the action that followed from the event before it.

use super::*;

/// The facts of a trace about a program.
#[derive(Default, Debug)]
struct Summary {
    reads: usize,
    pushes: usize,
    /// Lists that began a push.
    pushed_lists: usize,
    lists: usize,
}

/// Feeds the events of a trace. Every event must have the action that the trace has.
fn replay(trace: &str) -> Summary {
    let mut predictor = Predictor::default();
    let mut summary = Summary::default();
    let mut lines = trace.lines().filter(|line| !line.starts_with('#')).peekable();
    while let Some(line) = lines.next() {
        let event = parse(line).unwrap_or_else(|| panic!("not an event: {line}"));
        assert_eq!(event.to_string(), line);
        let action = predictor.on(&event);
        let expected = lines.next_if(|line| line.starts_with("-> "));
        let shown = action.map(|action| format!("-> {action}"));
        assert_eq!(shown.as_deref(), expected, "after {line}");
        let is_push = matches!(action, Some(Action::Push(_)));
        summary.pushes += usize::from(is_push);
        match event {
            Event::Listed { .. } => {
                summary.lists += 1;
                summary.pushed_lists += usize::from(is_push);
            }
            Event::Read { .. } => summary.reads += 1,
            Event::PushEnded { .. } | Event::Forgotten { .. } => {}
        }
    }
    summary
}

fn parse(line: &str) -> Option<Event> {
    let words: Vec<&str> = line.split(' ').collect();
    let number = |word: &&str| word.parse::<u64>().ok();
    Some(match &words[..] {
        ["listed", thread, directory, entries] => Event::Listed {
            thread: thread.parse().ok()?,
            directory: number(directory)?,
            entries: entries.parse().ok()?,
        },
        ["read", thread, directory, index, inode, had] => Event::Read {
            thread: thread.parse().ok()?,
            directory: number(directory)?,
            spot: Spot { index: index.parse().ok()?, number: number(inode)? },
            had: *had == "had",
        },
        ["ended", directory, order, start, length, again, before] => {
            let order = match *order {
                "listed" => Order::Listed,
                "numbered" => Order::Numbered,
                _ => return None,
            };
            let length = length.parse().ok()?;
            let stretch = Stretch { order, start: number(start)?, length };
            let push = Push { directory: number(directory)?, stretch, again: *again == "again" };
            Event::PushEnded { push, before: number(before) }
        }
        ["forgotten", directory] => Event::Forgotten { directory: number(directory)? },
        _ => return None,
    })
}

/// A program that walks the eight directories of the tree gets the files of a directory with its
/// list, from the fourth on.
#[track_caller]
fn walks(trace: &str) {
    let summary = replay(trace);
    assert!(summary.pushed_lists >= 5, "{summary:?}");
    // Each list is asked for twice: for its entries, and whether there are more. One push is
    // enough.
    assert!(summary.pushed_lists <= summary.lists / 2, "{summary:?}");
}

#[test]
fn grep_is_a_walker() {
    walks(include_str!("traces/grep"));
}

#[test]
fn cp_is_a_walker_that_reads_by_number() {
    let trace = include_str!("traces/cp");
    walks(trace);
    assert!(trace.lines().any(|line| line.starts_with("-> push") && line.contains("numbered")));
}

#[test]
fn tar_is_a_walker() {
    walks(include_str!("traces/tar"));
}

#[test]
fn the_threads_of_rg_are_predicted_one_by_one() {
    let summary = replay(include_str!("traces/rg"));
    assert!(summary.pushed_lists > 0, "{summary:?}");
}

/// It reads what the index does not vouch for before it lists any directory.
#[test]
fn git_status_has_files_pushed_as_it_reads() {
    let summary = replay(include_str!("traces/git-status"));
    let with_reads = summary.pushes - summary.pushed_lists;
    assert!(with_reads > summary.pushed_lists, "{summary:?}");
    assert!(summary.pushes < summary.reads, "{summary:?}");
}

#[test]
fn an_editor_that_opens_a_file_is_no_walker() {
    let summary = replay(include_str!("traces/vim"));
    assert_eq!((summary.reads, summary.pushes, summary.pushed_lists), (1, 1, 0), "{summary:?}");
}
