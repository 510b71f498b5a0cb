//! What the crate asks of the kernel beside answering it: mounts, the mount table, notifications.

pub(crate) mod attach;
pub(crate) mod guard;
pub(crate) mod mount_table;
pub(crate) mod notify;
