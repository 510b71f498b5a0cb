//! Requests of the crate to the kernel beside its answers: mounts, the mount table, notifications.

pub(crate) mod attach;
pub(crate) mod guard;
pub(crate) mod mount_table;
pub(crate) mod notify;
