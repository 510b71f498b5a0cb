//! Containers of a real Docker daemon: its fixture, and the tests by subject.

mod daemon;
mod daemon_test;
mod proxy;
mod restore;
mod snapshots;
mod trouble;
