//! Hard links of a plan: which paths get a new inode so that exactly those share one that did.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::planner::Planner;
use super::{Attribute, Put, RestorePlan, Skipped};
use crate::byte_path;
use crate::diff::Lookup;
use crate::object::{LinkGroups, RootTree};
use crate::path_text::{Shown, to_path};
use crate::restore::RestoreError;
use crate::restore::places::Places;
use crate::store::{ObjectSource, StoreError, read_links};

impl Planner<'_> {
    /// Hard links: a group that is not exactly as it was is made anew, from one inode. Returns what
    /// gets a new inode for that alone.
    pub(super) fn links(
        &mut self,
        store: &dyn ObjectSource,
        current_root: &RootTree,
        target_root: &RootTree,
    ) -> Result<Vec<Put>, StoreError> {
        let current = read_links(store, current_root.links.as_ref())?;
        let target = read_links(store, target_root.links.as_ref())?;
        let current_groups: HashSet<&Vec<Box<[u8]>>> = current.groups().iter().collect();
        let target_groups: HashSet<&Vec<Box<[u8]>>> = target.groups().iter().collect();
        // Names that are linked now and were not, or not so: each gets an inode of its own, and
        // the groups link again what belongs together.
        let loosened = current.groups().iter().filter(|group| !target_groups.contains(group));
        let linked = target.groups().iter().filter(|group| {
            !current_groups.contains(group)
                || group.iter().any(|path| self.plan.actions.has_put(path))
        });
        let paths: BTreeSet<&[u8]> = loosened.chain(linked).flatten().map(|path| &**path).collect();
        let mut renewed = Vec::new();
        if paths.is_empty() {
            return Ok(renewed);
        }
        let of_directories = self.plan.actions.directory_attributes.iter();
        let mut planned: HashSet<Vec<u8>> =
            of_directories.map(|known| known.path.clone()).collect();
        let mut states = (Lookup::new(store, current_root), Lookup::new(store, target_root));
        for path in paths {
            let Some(put) = self.renew(&mut states, path)? else { continue };
            renewed.push(put);
            // Its directory is written to, and so needs its time back, even if nothing else in
            // there is different.
            let (parent, _) = byte_path::split(path);
            if planned.contains(parent) {
                continue;
            }
            let (current, target) = &mut states;
            if let (Some(now), Some(then)) = (current.find(parent)?, target.find(parent)?) {
                planned.insert(parent.to_vec());
                self.directory_attributes(parent.to_vec(), Some(now.into()), then.into());
            }
        }
        Ok(renewed)
    }

    /// A new inode for a path that keeps its contents.
    fn renew(
        &mut self,
        (current, target): &mut (Lookup<'_>, Lookup<'_>),
        path: &[u8],
    ) -> Result<Option<Put>, StoreError> {
        if self.plan.actions.has_put(path) || self.is_kept(path) || self.kept.contains(path) {
            return Ok(None);
        }
        let (Some(now), Some(then)) = (current.find(path)?, target.find(path)?) else {
            return Ok(None);
        };
        if !now.node.same_kind(&then.node) || !self.can_make(path, &then) {
            return Ok(None);
        }
        let (current, target) = (Some(now.into()), then.into());
        Ok(Some(Put { path: path.to_vec(), current, target, link_to: None, is_relinked: true }))
    }
}

impl RestorePlan {
    /// Gives a new inode to each path whose attributes change and whose inode has names that do not
    /// change: outside of what was captured, or outside of the selection. The directory of such a
    /// path is written to for that, and gets its time back.
    pub(in crate::restore) fn detach_foreign_links(
        &mut self,
        groups: &LinkGroups,
        places: &mut Places<'_>,
        current: &mut Lookup<'_>,
    ) -> Result<(), RestoreError> {
        let attributes = std::mem::take(&mut self.actions.attributes);
        let changing: HashSet<&[u8]> = attributes.iter().map(|it| it.path.as_slice()).collect();
        let changing_names = |group: &Vec<Box<[u8]>>| {
            group.iter().filter(|path| changing.contains(&***path)).count()
        };
        let sizes: HashMap<&[u8], usize> = groups
            .groups()
            .iter()
            .map(|group| (group, changing_names(group)))
            .flat_map(|(group, count)| group.iter().map(move |path| (&**path, count)))
            .collect();
        let of_directories = &mut self.actions.directory_attributes;
        let mut planned: HashSet<Vec<u8>> =
            of_directories.iter().map(|known| known.path.clone()).collect();
        let mut kept = Vec::new();
        for attribute in attributes {
            let place = places.find(&attribute.path)?;
            let known = sizes.get(attribute.path.as_slice()).copied().unwrap_or(1);
            if place.dir.stat(&place.name)?.nlink <= known as u64 {
                kept.push(attribute);
                continue;
            }
            let (parent, _) = byte_path::split(&attribute.path);
            if !planned.contains(parent)
                && let Some(now) = current.find(parent)?
            {
                planned.insert(parent.to_vec());
                let now = Arc::new(now);
                of_directories.push(Attribute {
                    path: parent.to_vec(),
                    current: Some(Arc::clone(&now)),
                    target: now,
                });
            }
            let Attribute { path, current, target } = attribute;
            self.actions.puts.push(Put {
                path,
                current,
                target,
                link_to: None,
                is_relinked: false,
            });
        }
        self.actions.attributes = kept;
        self.actions.sort_directories();
        self.actions.sort_puts();
        self.bytes_to_write = self.actions.puts.iter().map(Put::bytes).sum();
        Ok(())
    }

    /// Marks which puts are further names of one inode. Names those that lose a link because its
    /// other name is not restored.
    pub(in crate::restore) fn link(&mut self, groups: &LinkGroups) {
        let puts = &mut self.actions.puts;
        for group in groups.groups() {
            let mut first: Option<usize> = None;
            let mut alone: Option<&[u8]> = None;
            let mut restored: Vec<&[u8]> = Vec::new();
            for path in group {
                let Ok(index) = puts.binary_search_by(|put| put.path.as_slice().cmp(path)) else {
                    alone.get_or_insert(path);
                    continue;
                };
                restored.push(path);
                match first {
                    None => first = Some(index),
                    // A group whose members differ was changed while it was captured; one inode
                    // cannot have two states.
                    Some(first) if puts[first].target == puts[index].target => {
                        puts[index].link_to = Some(first);
                        self.bytes_to_write -= puts[index].bytes();
                    }
                    Some(_) => {}
                }
            }
            let Some(alone) = alone else { continue };
            let other = Shown::bytes(alone);
            self.skipped.extend(restored.into_iter().map(|path| Skipped {
                path: to_path(path).to_owned(),
                reason: format!("it is a file of its own now: {other}, its hard link, stays as is"),
            }));
        }
    }
}
