//! Objects: immutable bytes named by their hash, and the kinds that nono itself writes.
//!
//! Pure values and codecs; nothing here touches a disk. A file's contents are an object as they
//! are. A [`Tree`] lists one directory, a [`RootTree`] the tracked paths of a snapshot,
//! [`LinkGroups`] its hard links, and with [`Midstates`] a long file is verified piece by piece.
//! All encodings are canonical and versioned, and the decoders are total: any bytes give a value or
//! an error.

mod codec;
mod hash;
mod midstates;
mod piece_list;
mod root;
mod sha256;
mod tree;

#[cfg(test)]
pub(crate) mod arbitrary;
#[cfg(test)]
mod tests;

pub use codec::DecodeError;
pub(crate) use codec::{Reader, Writer};
pub use hash::{ContentHash, Hasher, ParseHashError};
pub use midstates::{Midstates, MidstatesLink, PieceHasher};
pub use piece_list::LONGEST_CHAIN_BYTES;
pub use root::{LinkGroups, RootEntry, RootTree, is_tracked_path};
pub use sha256::hash_each;
pub use tree::{
    Attributes, Device, FORMAT_VERSION, FileTime, MAX_NAME_BYTES, MAX_PATH_BYTES, MODE_MASK, Node,
    Tree, TreeEntry, XattrPair, Xattrs, encode_entry, is_name,
};
pub(crate) use tree::{is_tree, read_entry, write_entry};
