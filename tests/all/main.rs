//! Integration tests: one binary, so that it links once.
#![allow(missing_docs, clippy::disallowed_methods, clippy::print_stderr)]

mod mount;
mod observe;
mod roundtrip;
