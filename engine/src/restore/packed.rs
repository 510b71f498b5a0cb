//! Many sorted paths in little memory, for as long as they are not looked at.
//!
//! Each path is kept as the length that it shares with the one before, and the rest: for the paths
//! in one directory, their names. A million of them take a tenth of the memory of single paths.

use std::collections::HashMap;

/// Paths, each with a value, in the order in which they came.
#[derive(Debug, Clone)]
pub(super) struct PackedPaths<T> {
    entries: Vec<Entry<T>>,
    /// The rests of the paths, one after the other.
    ends: Vec<u8>,
    last: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Entry<T> {
    shared_bytes: u32,
    end_bytes: u32,
    value: T,
}

impl<T> Default for PackedPaths<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), ends: Vec::new(), last: Vec::new() }
    }
}

impl<T> PackedPaths<T> {
    pub(super) fn push(&mut self, path: &[u8], value: T) {
        let shared = path.iter().zip(&self.last).take_while(|(a, b)| a == b).count();
        let end = &path[shared..];
        // Paths are shorter than 4 GiB: a kernel takes 4 KiB, and an object that names one fits in
        // memory.
        self.entries.push(Entry {
            shared_bytes: shared as u32,
            end_bytes: end.len() as u32,
            value,
        });
        self.ends.extend_from_slice(end);
        self.last.truncate(shared);
        self.last.extend_from_slice(end);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The paths one by one, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Vec<u8>, &T)> {
        let (mut path, mut at) = (Vec::new(), 0);
        self.entries.iter().map(move |entry| {
            let end = at + entry.end_bytes as usize;
            path.truncate(entry.shared_bytes as usize);
            path.extend_from_slice(&self.ends[at..end]);
            at = end;
            (path.clone(), &entry.value)
        })
    }
}

impl<T: Copy> PackedPaths<T> {
    /// Gives paths another value.
    pub(super) fn replace(&mut self, values: &HashMap<&[u8], T>) {
        let mut replaced = Self::default();
        for (path, old) in self.iter() {
            replaced.push(&path, values.get(&*path).copied().unwrap_or(*old));
        }
        *self = replaced;
    }

    /// Keeps only some of them.
    pub(super) fn retain(&mut self, keep: impl Fn(&[u8]) -> bool) {
        let mut kept = Self::default();
        for (path, value) in self.iter().filter(|(path, _)| keep(path)) {
            kept.push(&path, *value);
        }
        *self = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_packed_comes_back(paths in proptest::collection::vec("[ab/]{0,9}", 0..20)) {
            let mut packed = PackedPaths::default();
            for (index, path) in paths.iter().enumerate() {
                packed.push(path.as_bytes(), index);
            }
            prop_assert_eq!(packed.is_empty(), paths.is_empty());
            let back: Vec<_> = packed.iter().map(|(path, index)| (path, *index)).collect();
            let given: Vec<_> =
                paths
                    .iter()
                    .enumerate()
                    .map(|(index, path)| (path.clone().into_bytes(), index))
                    .collect();
            prop_assert_eq!(&back, &given);
            packed.retain(|path| path.contains(&b'a'));
            let kept = given.into_iter().filter(|(path, _)| path.contains(&b'a'));
            let back = packed.iter().map(|(path, index)| (path, *index));
            prop_assert_eq!(back.collect::<Vec<_>>(), kept.collect::<Vec<_>>());
        }
    }
}
