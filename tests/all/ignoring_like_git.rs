//! Ignore files are read as git reads them: random rules and names, compared with `git
//! check-ignore`.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use nono_engine::sys::Dir;
use nono_engine::walk::{ExclusionConfig, Filter, Ignores, Mode, Repository, list};

use crate::random::Random;

/// Ignore files of one run, and the paths that are asked about under each.
const FILES: u64 = 250;
const PATHS: usize = 48;

/// Names and rules of one seed.
struct Words(Random);

impl Words {
    fn name(&mut self) -> Vec<u8> {
        // No colon: git gives those at the beginning of a path a meaning.
        const BYTES: &[u8] = b"aaaabbbcc.-1 !#[]{},^*?\\A\xc3\xa9\xff\t$";
        let length = 1 + self.0.below(4);
        let name: Vec<u8> = (0..length).map(|_| self.0.of(BYTES)).collect();
        if matches!(&*name, b"." | b"..") { b"a".to_vec() } else { name }
    }

    fn part(&mut self) -> Vec<u8> {
        const PARTS: &[u8] =
            b"*|*|*|?|a|a|b|c|.|-|1| |{a,b}|{|}|,|[ab]|[!a]|[^b]|[a-c]|[]a]|[a|[|]\
            |[!]a]|[a-|[\\]a]|[[:alpha:]]|[[:digit:]b]|[[:none:]]|[[:a]|[:a:]|[b-a]|[a-c-]|[--1]\
            |[\\a-c]|[[a]|[[:space:]]|[[:punct:]]|\\a|\\*|\\?|\\[|\\\\|\\ |\\|\\!|\\#|A|\xc3\xa9\
            |\xff|**|***|\t|$|^|[[:alpha:]|[a-\\c]|[!a-b]";
        let parts: Vec<&[u8]> = PARTS.split(|byte| *byte == b'|').collect();
        let length = self.0.of(&[1, 1, 1, 2, 2, 3]);
        (0..length).map(|_| self.0.of(&parts)).collect::<Vec<_>>().concat()
    }

    /// A pattern that comes near to a path, or to its name.
    fn like(&mut self, path: &[u8]) -> Vec<u8> {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        let path = if self.0.below(2) == 0 { name } else { path };
        let pieces = path.iter().map(|byte| match (self.0.below(12), byte) {
            (0, b'/') => b"/**/".to_vec(),
            (_, b'/') => b"/".to_vec(),
            (0, _) => b"*".to_vec(),
            (1, _) => b"?".to_vec(),
            (2, byte) => vec![b'\\', *byte],
            (3, byte) => vec![b'[', *byte, b']'],
            (4, byte) => vec![b'[', b'!', *byte, b']'],
            (_, byte) => vec![*byte],
        });
        pieces.collect::<Vec<_>>().concat()
    }

    fn rule(&mut self, paths: &[Vec<u8>]) -> Vec<u8> {
        let parts = self.0.of(&[1, 1, 1, 2, 2, 3]);
        let mut parts: Vec<_> = (0..parts).map(|_| self.part()).collect();
        if parts.len() > 1 && self.0.below(3) == 0 {
            let at = self.0.below(parts.len());
            parts[at] = b"**".to_vec();
        }
        if self.0.below(2) == 0 {
            let at = self.0.below(paths.len());
            parts = vec![self.like(&paths[at])];
        }
        let before: &[u8] = self.0.of(&[b"", b"", b"", b"", b"!", b"/", b"!/", b"#", b" ", b"//"]);
        let behind: &[u8] =
            self.0.of(&[b"", b"", b"", b"", b"/", b" ", b"\\ ", b"  ", b"\r", b"//"]);
        [before, &parts.join(&b'/'), behind].concat()
    }
}

/// Versions of git differ about these: the beginning without wildcards is cut off first, and then
/// `**` seems to follow a slash.
fn is_unclear(rule: &[u8]) -> bool {
    let rule = rule.strip_prefix(b"!").unwrap_or(rule);
    let literal = rule.iter().take_while(|byte| !b"*?[\\".contains(byte)).count();
    rule[literal..].starts_with(b"**") && literal > 0 && rule[literal - 1] != b'/'
}

/// The paths that git ignores, of those on the disk.
fn git_ignores(top: &Path, paths: &[Vec<u8>]) -> HashMap<Vec<u8>, bool> {
    let mut git = Command::new("git")
        .current_dir(top)
        .args(["check-ignore", "--stdin", "-z", "-v", "-n", "--no-index"])
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = git.stdin.take().unwrap();
    let mut asked = paths.join(&0);
    asked.push(0);
    let writer = std::thread::spawn(move || input.write_all(&asked).unwrap());
    let output = git.wait_with_output().unwrap();
    writer.join().unwrap();
    let mut answers = HashMap::new();
    let fields: Vec<&[u8]> = output.stdout.split(|byte| *byte == 0).collect();
    // Source, line number, pattern, path.
    for answer in fields.chunks_exact(4) {
        let is_ignored = !answer[2].is_empty() && !answer[2].starts_with(b"!");
        answers.insert(answer[3].to_vec(), is_ignored);
    }
    assert_eq!(answers.len(), paths.len(), "{output:?}");
    answers
}

/// The paths that a walk finds not to be ignored.
fn walked(top: &Path) -> Vec<Vec<u8>> {
    let filter = Filter::new(&ExclusionConfig::default()).unwrap();
    let repository = Repository::above(top);
    let top = Dir::open(top).unwrap();
    let mut found = Vec::new();
    let mut pending = vec![(Vec::new(), Ignores::ON_DISK)];
    while let Some((relative, above)) = pending.pop() {
        let dir = top.open_beneath(&relative).unwrap();
        let listing = list(&dir, &relative, Mode::Filtered, &filter, &above, &repository).unwrap();
        for entry in listing.entries {
            let path = match relative.is_empty() {
                true => entry.name.to_vec(),
                false => [&relative, &b"/"[..], &entry.name].concat(),
            };
            found.push(path.clone());
            if entry.stat.kind == nono_engine::sys::FileKind::Directory {
                pending.push((path, listing.ignores.clone()));
            }
        }
    }
    found
}

#[test]
fn random_rules_ignore_what_git_ignores() {
    use std::os::unix::ffi::OsStrExt;
    let seed = std::env::var("NONO_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or(1);
    let (mut compared, mut ignored) = (0, 0);
    for file in 1..=FILES {
        let mut words = Words(Random::new(seed << 32 | file));
        let temp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let top = temp.path();
        let made = Command::new("git").current_dir(top).args(["init", "-q"]).status().unwrap();
        assert!(made.success());
        let mut paths: Vec<Vec<u8>> = Vec::new();
        let mut directories: Vec<Vec<u8>> = vec![Vec::new()];
        while paths.len() < PATHS {
            let at = words.0.below(directories.len());
            let (above, name) = (directories[at].clone(), words.name());
            let path = if above.is_empty() { name } else { [&above, &b"/"[..], &name].concat() };
            let on_disk = top.join(std::ffi::OsStr::from_bytes(&path));
            if on_disk.symlink_metadata().is_ok() {
                continue;
            }
            if words.0.below(3) == 0 {
                fs::create_dir(&on_disk).unwrap();
                directories.push(path.clone());
            } else {
                fs::write(&on_disk, "").unwrap();
            }
            paths.push(path);
        }
        let nested = words.0.below(directories.len());
        let places = if nested == 0 { vec![0] } else { vec![0, nested] };
        let mut all_rules = Vec::new();
        for at in places {
            let rules = (0..2 + words.0.below(10)).map(|_| words.rule(&paths));
            let rules: Vec<_> = rules.filter(|rule| !is_unclear(rule)).collect();
            let place = top.join(std::ffi::OsStr::from_bytes(&directories[at]));
            fs::write(place.join(".gitignore"), rules.join(&b'\n')).unwrap();
            all_rules.push((directories[at].escape_ascii().to_string(), rules));
        }
        let by_git = git_ignores(top, &paths);
        let walked = walked(top);
        for path in &paths {
            let is_in = walked.contains(path);
            let rules: Vec<_> = all_rules
                .iter()
                .flat_map(|(at, rules)| {
                    rules.iter().map(move |it| (at, it.escape_ascii().to_string()))
                })
                .collect();
            assert_eq!(
                !is_in,
                by_git[path],
                "NONO_TEST_SEED={seed}, file {file}: is \"{}\" ignored by {rules:?}?",
                path.escape_ascii()
            );
            compared += 1;
            ignored += usize::from(!is_in);
        }
    }
    assert!(compared >= 10_000, "{compared}");
    assert!((compared / 10..compared).contains(&ignored), "{ignored} of {compared}");
}
