//! Integration tests: one binary, so that it links once.
#![allow(missing_docs, unreachable_pub, clippy::disallowed_methods, clippy::print_stderr)]

mod attacks;
mod comfort;
mod conflict_question;
mod crash;
mod extremes;
mod faults;
mod fixture;
mod growth;
mod hostile;
mod manners;
mod meddling;
mod mount;
mod mount_command;
mod mount_tools;
mod observe;
mod packs;
mod patch;
mod power;
mod preflight;
mod profiles;
mod readme;
mod repair;
mod restore;
mod retention;
mod review;
mod roundtrip;
mod run_and_undo;
mod sandbox;
mod scene;
mod supervision;
mod terminal;
mod trouble;
mod views;
mod wrong_use;
