//! Integration tests: one binary, so that it links once.
#![allow(missing_docs, unreachable_pub, clippy::disallowed_methods, clippy::print_stderr)]

mod mount;
mod mount_command;
mod observe;
mod patch;
mod roundtrip;
