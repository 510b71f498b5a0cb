//! Filling a volume through the engine: a tar stream into a container that was never started.
//!
//! It goes to the directory above the volume, because the engine gives the directory to which it
//! unpacks no attributes. The stream carries nanoseconds and extended attributes as PAX records,
//! which the engine sets, although its own streams do not have them.

use std::io::{self, Read, Write};

use bollard::query_parameters::UploadToContainerOptions;
use futures_util::stream;
use tokio::sync::mpsc;

use super::RestoreError;
use super::contents::{Contents, Entry, is_special};
use super::fill_directory::shown;
use crate::docker::{Docker, Patience};
use nono_engine::diff::EntryState;
use nono_engine::object::Node;
use nono_engine::path_text::to_path;
use nono_engine::progress::Progress;
use nono_engine::store::Transfer;
use nono_engine::sys::{self, FileTime};

/// The bytes that one message of the channel carries.
const CHUNK_BYTES: usize = 64 << 10;
/// Messages between the maker of the stream and the connection.
const CHUNKS: usize = 8;

/// Fills the empty volume at a path of a container that was created and never started. Returns the
/// entries that are not made.
pub(super) fn fill(
    contents: &Contents<'_>,
    docker: &Docker,
    container: &str,
    path: &str,
    progress: &dyn Progress,
) -> Result<Vec<String>, RestoreError> {
    let (above, name) = place_of(path);
    let (sender, receiver) = mpsc::channel::<io::Result<Vec<u8>>>(CHUNKS);
    std::thread::scope(|scope| {
        let maker = sys::spawn_scoped(scope, "tar stream of a volume", move || {
            let channel = Channel { sender: sender.clone(), chunk: Vec::new() };
            let made = write(contents, name, channel, progress);
            if made.is_err() {
                // The engine must not take the part for the whole.
                let _ = sender.blocking_send(Err(io::Error::other("the stream was given up")));
            }
            made
        });
        let maker = maker.map_err(|source| sys::Error {
            operation: "start a thread for",
            path: path.into(),
            source,
        })?;
        let chunks = stream::unfold(receiver, async |mut receiver| {
            receiver.recv().await.map(|chunk| (chunk.map(Into::into), receiver))
        });
        let options = UploadToContainerOptions { path: above.to_owned(), ..Default::default() };
        let body = bollard::body_try_stream(chunks);
        let upload = docker.client().upload_to_container(container, Some(options), body);
        let operation = format_args!("fill {path} of container {container}");
        let sent = docker.call(operation, Patience::Long, upload);
        let made = maker.join().unwrap_or_else(|_| Err(super::error::stream_broke(path)));
        match (sent, made) {
            (Ok(()), made) => made,
            // The engine ended the stream; its words say why.
            (Err(error), Err(RestoreError::Container(_)) | Ok(_)) => Err(error.into()),
            (Err(_), Err(cause)) => Err(cause),
        }
    })
}

/// The writing end: full chunks go to the connection.
struct Channel {
    sender: mpsc::Sender<io::Result<Vec<u8>>>,
    chunk: Vec<u8>,
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let chunk = std::mem::take(&mut self.chunk);
        if chunk.is_empty() {
            return Ok(());
        }
        self.sender.blocking_send(Ok(chunk)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// The directory above a volume, and the name of the volume's directory in it.
fn place_of(destination: &str) -> (&str, &str) {
    let destination = destination.trim_end_matches('/');
    match destination.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some(split) => split,
        None => ("/", destination),
    }
}

fn write(
    contents: &Contents<'_>,
    name: &str,
    channel: Channel,
    progress: &dyn Progress,
) -> Result<Vec<String>, RestoreError> {
    let mut builder = tar::Builder::new(channel);
    let mut not_made = Vec::new();
    let mut buffer = Vec::new();
    let failed = |source: io::Error| -> RestoreError {
        let path = contents.tree.clone().into();
        sys::Error { operation: "send the contents of", path, source }.into()
    };
    contents.walk(progress, |entry| {
        if is_special(&entry.state.node) {
            not_made.push(shown(contents, &entry.path));
            return Ok(());
        }
        let object = match (&entry.state.node, &entry.link_to) {
            (Node::File { hash, size, .. }, None) => {
                let mut transfer = Transfer::new(&mut buffer, progress);
                Some(contents.store.open_checked(hash, *size, &mut transfer)?)
            }
            _ => None,
        };
        append(&mut builder, name, &entry, object).map_err(failed)
    })?;
    builder.into_inner().and_then(|mut channel| channel.flush()).map_err(failed)?;
    Ok(not_made)
}

fn append(
    builder: &mut tar::Builder<Channel>,
    name: &str,
    entry: &Entry,
    object: Option<Box<dyn Read>>,
) -> io::Result<()> {
    let EntryState { attributes, node } = &entry.state;
    let mut records = Vec::new();
    push_record(&mut records, b"mtime", pax_time(attributes.mtime).as_bytes());
    // An engine sets attributes, and knows no flags among them.
    for (name, value) in attributes.xattrs.iter().filter(|(name, _)| *name != sys::INODE_FLAGS) {
        push_record(&mut records, &[b"SCHILY.xattr.", name].concat(), value);
    }
    let mut pax = tar::Header::new_ustar();
    pax.set_entry_type(tar::EntryType::XHeader);
    pax.set_size(records.len() as u64);
    pax.set_mode(0o644);
    builder.append_data(&mut pax, "pax", &*records)?;

    let mut header = tar::Header::new_gnu();
    header.set_mode(u32::from(attributes.mode));
    header.set_uid(u64::from(attributes.uid));
    header.set_gid(u64::from(attributes.gid));
    header.set_mtime(u64::try_from(attributes.mtime.seconds).unwrap_or(0));
    header.set_size(0);
    let below = |path: &[u8]| match path {
        b"" => [name.as_bytes(), b"/"].concat(),
        path => [name.as_bytes(), b"/", path].concat(),
    };
    let path = below(&entry.path);
    let path = to_path(&path);
    if let Some(first) = &entry.link_to {
        header.set_entry_type(tar::EntryType::Link);
        return builder.append_link(&mut header, path, to_path(&below(first)));
    }
    match (node, object) {
        (Node::Symlink { target }, _) => {
            header.set_entry_type(tar::EntryType::Symlink);
            builder.append_link(&mut header, path, to_path(target))
        }
        (Node::File { size, .. }, Some(object)) => {
            header.set_entry_type(tar::EntryType::Regular);
            header.set_size(*size);
            builder.append_data(&mut header, path, object)
        }
        (Node::Fifo, _) => {
            header.set_entry_type(tar::EntryType::Fifo);
            builder.append_data(&mut header, path, io::empty())
        }
        _ => {
            header.set_entry_type(tar::EntryType::Directory);
            builder.append_data(&mut header, path, io::empty())
        }
    }
}

/// One PAX record: its length counts the digits of the length, too.
fn push_record(records: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    // A space, an equals sign and the end of the line.
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    records.extend_from_slice(format!("{length} ").as_bytes());
    records.extend_from_slice(key);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

fn pax_time(time: FileTime) -> String {
    if time.seconds < 0 && time.nanoseconds > 0 {
        let (whole, part) = (-(time.seconds + 1), 1_000_000_000 - time.nanoseconds);
        return format!("-{whole}.{part:09}");
    }
    format!("{}.{:09}", time.seconds, time.nanoseconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_goes_to_the_directory_above() {
        assert_eq!(place_of("/data"), ("/", "data"));
        assert_eq!(place_of("/var/lib/data/"), ("/var/lib", "data"));
    }

    #[test]
    fn a_record_counts_its_own_length() {
        for value in [1, 3, 5, 85, 86, 87, 88, 89, 90, 980, 990] {
            let mut record = Vec::new();
            push_record(&mut record, b"mtime", &vec![b'1'; value]);
            let text = String::from_utf8(record).unwrap();
            let length: usize = text.split(' ').next().unwrap().parse().unwrap();
            assert_eq!(length, text.len());
        }
    }

    #[test]
    fn a_time_before_1970_has_its_fraction() {
        let time = |seconds, nanoseconds| pax_time(FileTime { seconds, nanoseconds });
        assert_eq!(time(12, 5), "12.000000005");
        assert_eq!(time(-1, 500_000_000), "-0.500000000");
        assert_eq!(time(-2, 250_000_000), "-1.750000000");
        assert_eq!(time(-2, 0), "-2.000000000");
    }
}
