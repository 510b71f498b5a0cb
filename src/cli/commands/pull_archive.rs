//! `nono pull` of single archives: a file, an address of a web server, or the address of an archive
//! at a remote.
//!
//! A file and an address of the web stand for that one archive: it is verified and imported. An
//! archive at a remote stands for its snapshot, which is pulled with all that its chain needs.

use std::path::{Path, PathBuf};

use super::archive::import_files;
use crate::cli::context::Context;
use crate::cli::error::CliError;
use crate::cli::progress::Bar;
use crate::cli::scratch::Scratch;
use nono_archive::remote::{Address, fetch};
use nono_archive::{ArchiveName, Identities, ReceiveReport};
use nono_engine::sys::{self, Dir, FileKind};

/// The meaning of words that name archives.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// Files, and addresses of the web.
    Archives(Vec<String>),
    /// A snapshot at a remote.
    Snapshot {
        /// The address of the remote.
        address: String,
        /// `SESSION/NUMBER`.
        id: String,
    },
}

impl Named {
    /// The archives that words name; `None` if they name something else.
    pub(super) fn by(words: &[String]) -> Option<Self> {
        if let [word] = words
            && let Some(snapshot) = at_remote(word)
        {
            return Some(snapshot);
        }
        let is_archive = |word: &String| is_web(word) || is_file(word);
        let are_archives = !words.is_empty() && words.iter().all(is_archive);
        are_archives.then(|| Self::Archives(words.to_vec()))
    }
}

/// The snapshot of an archive that lies at a remote, by the whole address of the archive.
fn at_remote(word: &str) -> Option<Named> {
    let (path, parameters) = match word.split_once('?') {
        Some((path, parameters)) => (path, format!("?{parameters}")),
        None => (word, String::new()),
    };
    let (folder, file) = path.rsplit_once('/')?;
    let (place, session) = folder.rsplit_once('/')?;
    let name: ArchiveName = format!("{session}/{file}").parse().ok()?;
    let address = format!("{place}{parameters}");
    let is_place = Address::is_meant_by(&address) && Address::parse(&address).is_ok();
    is_place.then(|| Named::Snapshot { address, id: name.id.to_string() })
}

fn is_web(word: &str) -> bool {
    ["https://", "http://"].iter().any(|scheme| word.starts_with(scheme))
        && Address::parse(word).is_err()
}

fn is_file(word: &str) -> bool {
    matches!(sys::kind_of(Path::new(word)), Ok(Some(FileKind::File)))
}

/// Imports archives. Files of the web are downloaded first, and go afterwards.
///
/// # Errors
/// An archive that cannot be read, or is none.
pub(super) fn import(
    archives: &[String],
    keys: &Identities,
    root: &Path,
    context: &Context,
) -> Result<Vec<ReceiveReport>, CliError> {
    let mut scratch = None;
    let mut files: Vec<PathBuf> = Vec::new();
    for (at, archive) in archives.iter().enumerate() {
        if !is_web(archive) {
            files.push(archive.into());
            continue;
        }
        let place: &Scratch = match &mut scratch {
            Some(place) => place,
            none => none.insert(Scratch::temporary()?),
        };
        let name = format!("archive-{at}");
        let mut file = Dir::open(place.path())?.create_file(name.as_bytes(), 0o600)?;
        let bar = Bar::new(context, "pulling");
        let fetched = fetch(archive, &mut file, &*bar);
        bar.finish();
        fetched?;
        files.push(place.path().join(name));
    }
    import_files(&files, keys, root, context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_at_a_remote_stands_for_its_snapshot_and_one_of_the_web_for_itself() {
        let by = |word: &str| Named::by(&[word.to_owned()]);
        let snapshot = |address: &str, id: &str| {
            Some(Named::Snapshot { address: address.to_owned(), id: id.to_owned() })
        };
        let session = "20260214-143022-12345";
        for (word, address) in [
            (format!("s3://bucket/nono/{session}/3-delta-2.tar.zst.age"), "s3://bucket/nono"),
            (
                format!("s3://b/n/{session}/3-full.tar.zst?endpoint=https://h&region=r"),
                "s3://b/n?endpoint=https://h&region=r",
            ),
            (format!("/mnt/usb/{session}/3-delta-1-of-other.tar.zst"), "/mnt/usb"),
        ] {
            assert_eq!(by(&word), snapshot(address, &format!("{session}/3")), "{word}");
        }
        let web = format!("https://files.example.org/{session}/0-full.tar.zst.age?sig=x");
        assert_eq!(by(&web), Some(Named::Archives(vec![web.clone()])));
        for word in ["backup", session, "/mnt/usb/nono", "s3://bucket/nono"] {
            assert_eq!(by(word), None, "{word}");
        }
        assert_eq!(Named::by(&[]), None);
    }
}
