//! Git directories, as a walk sees them: recognised by what is in them, like git does it.
//!
//! A git directory is one thing: without a ref or a hook that some rule names, it is broken. So no
//! rule leaves out anything in it. Its object store alone may be left out, as a whole, because it
//! may be larger than all the work.

use serde::{Deserialize, Serialize};

use super::exclusion::Filter;
use super::listing::{Mode, Names};
use crate::byte_path;
use crate::sys::{Dir, FileKind, ListedName};

/// The treatment of git directories.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GitDirectories {
    /// Nothing.
    #[default]
    AsAnyOther,
    /// No rule applies to what is in one, and a restore treats each as one thing.
    Whole,
    /// The same, but of one with more than [`MAX_GIT_BYTES`] the objects are left out.
    WithinLimit,
}

impl GitDirectories {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The objects of a git directory are left out if they have more bytes.
pub const MAX_GIT_BYTES: u64 = 1 << 30;

/// The rule that leaves out the objects of a large repository.
pub const BEYOND_GIT_LIMIT: &str = "objects of a repository beyond 1 GiB";

/// Name of a git directory, or of the file that leads to one.
pub const DOT_GIT: &[u8] = b".git";

/// Where a git directory has what may be left out.
pub(super) const OBJECT_DIRS: [&[u8]; 2] = [b"objects", b"lfs"];

/// The entries of a git directory; and those of a linked worktree's.
const MARKS: [&[&[u8]]; 2] = [&[b"HEAD", b"objects", b"refs"], &[b"HEAD", b"commondir"]];

/// The number of directories of loose objects that are measured; the others are taken to be alike.
const SAMPLED: usize = 8;
/// Packs, and files of git-lfs, beyond this count are as good as too many bytes.
const MAX_LOOKED_AT: usize = 20_000;

/// How what is in a directory is judged once its names are known.
pub(crate) fn mode_inside(
    dir: &Dir,
    relative: &[u8],
    names: &Names,
    mode: Mode,
    filter: &Filter,
) -> Mode {
    let is_candidate =
        matches!(mode, Mode::Filtered | Mode::Ignored | Mode::Git | Mode::GitBeyondLimit);
    // One that is half made, or broken, is told by its name.
    let is_git_dir = || byte_path::split(relative).1 == DOT_GIT || has_marks(&names.names);
    match filter.git_directories() {
        GitDirectories::AsAnyOther => mode,
        _ if !is_candidate || !is_git_dir() => match mode {
            // The limit is of the directory above.
            Mode::GitBeyondLimit => Mode::Git,
            mode => mode,
        },
        GitDirectories::WithinLimit if is_beyond(dir, MAX_GIT_BYTES) => Mode::GitBeyondLimit,
        _ => Mode::Git,
    }
}

/// Names are sorted.
fn has_marks(names: &[ListedName]) -> bool {
    let has = |mark: &[u8]| names.binary_search_by(|listed| (*listed.name).cmp(mark)).is_ok();
    MARKS.iter().any(|marks| marks.iter().all(|mark| has(mark)))
}

/// Whether the objects of a git directory have more bytes. Packs are counted; loose objects are
/// sampled, since a look at all would cost as much as the capture. Unreadable directories count as
/// nothing.
fn is_beyond(dir: &Dir, limit: u64) -> bool {
    let packs = packs(dir);
    packs > limit || packs.saturating_add(loose(dir)) > limit || is_lfs_beyond(dir, limit)
}

fn packs(dir: &Dir) -> u64 {
    let Ok(dir) = dir.open_beneath(b"objects/pack") else { return 0 };
    let Ok(names) = dir.names() else { return 0 };
    if names.len() > MAX_LOOKED_AT { u64::MAX } else { bytes_of(&dir, &names) }
}

fn bytes_of(dir: &Dir, names: &[ListedName]) -> u64 {
    let stats = names.iter().filter_map(|listed| dir.stat(&listed.name).ok());
    let files = stats.filter(|stat| stat.kind == FileKind::File);
    files.fold(0, |sum: u64, stat| sum.saturating_add(stat.size))
}

fn loose(dir: &Dir) -> u64 {
    let Ok(objects) = dir.open_beneath(b"objects") else { return 0 };
    let Ok(mut names) = objects.names() else { return 0 };
    names.retain(|listed| listed.name.len() == 2 && listed.name.iter().all(u8::is_ascii_hexdigit));
    names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let step = names.len().div_ceil(SAMPLED).max(1);
    let sample = names.iter().step_by(step);
    let sampled = sample.len().max(1) as u64;
    let below = sample.fold(0, |sum: u64, listed| {
        let Ok(dir) = objects.open_dir(&listed.name) else { return sum };
        sum.saturating_add(dir.names().map_or(0, |names| bytes_of(&dir, &names)))
    });
    below.saturating_mul(names.len() as u64) / sampled
}

fn is_lfs_beyond(dir: &Dir, limit: u64) -> bool {
    let (mut sum, mut count) = (0_u64, 0);
    let mut pending = vec![b"lfs".to_vec()];
    while let Some(relative) = pending.pop() {
        let Ok(below) = dir.open_beneath(&relative) else { continue };
        let Ok(names) = below.names() else { continue };
        count += names.len();
        if count > MAX_LOOKED_AT {
            return true;
        }
        for listed in names {
            match below.stat(&listed.name) {
                Ok(stat) if stat.kind == FileKind::Directory => {
                    pending.push(byte_path::join(&relative, &listed.name));
                }
                Ok(stat) if stat.kind == FileKind::File => sum = sum.saturating_add(stat.size),
                _ => {}
            }
        }
        if sum > limit {
            return true;
        }
    }
    false
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests make files")]
mod tests {
    use std::fs;

    use super::*;
    use crate::walk::{ExclusionConfig, names};

    fn repository() -> tempfile::TempDir {
        let temp = tempfile::tempdir().unwrap();
        for name in ["objects/pack", "objects/aa", "objects/ab", "refs/heads"] {
            fs::create_dir_all(temp.path().join(name)).unwrap();
        }
        fs::write(temp.path().join("HEAD"), "ref: refs/heads/main\n").unwrap();
        temp
    }

    fn mode_of(temp: &tempfile::TempDir, git_directories: GitDirectories) -> Mode {
        let config = ExclusionConfig { git_directories, ..ExclusionConfig::default() };
        let dir = Dir::open(temp.path()).unwrap();
        let filter = Filter::new(&config).unwrap();
        let names = names(&dir, Mode::Filtered, &filter, false).unwrap();
        mode_inside(&dir, b"repository", &names, Mode::Filtered, &filter)
    }

    #[test]
    fn a_git_directory_is_known_by_what_is_in_it() {
        let temp = repository();
        assert_eq!(mode_of(&temp, GitDirectories::AsAnyOther), Mode::Filtered);
        assert_eq!(mode_of(&temp, GitDirectories::WithinLimit), Mode::Git);
        fs::remove_dir_all(temp.path().join("refs")).unwrap();
        assert_eq!(mode_of(&temp, GitDirectories::Whole), Mode::Filtered);
    }

    #[test]
    fn packs_loose_objects_and_large_files_count_for_the_limit() {
        let cases =
            ["objects/pack/pack-1.pack", "objects/aa/1", "lfs/objects/ab/cd/large", "nothing"];
        for case in cases {
            let temp = repository();
            let path = temp.path().join(case);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::File::create(&path).unwrap().set_len(3 << 30).unwrap();
            let expected = if case == "nothing" { Mode::Git } else { Mode::GitBeyondLimit };
            assert_eq!(mode_of(&temp, GitDirectories::WithinLimit), expected, "{case}");
            assert_eq!(mode_of(&temp, GitDirectories::Whole), Mode::Git, "{case}");
        }
    }
}
