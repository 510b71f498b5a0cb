//! A program that waits at a point of its work until it is let go.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};

use crate::fixture::Fixture;
use crate::terminal::eventually;

/// A named pipe on which it waits.
pub struct Held(PathBuf);

/// It waits, until this is dropped.
pub struct Waiting(#[allow(dead_code, reason = "closing it is what it is for")] OwnedFd);

impl Held {
    /// Lets a command wait at a point; see `engine/src/sys/fail_point.rs`. `action` is its effect
    /// then, `:hold` for nothing.
    pub fn at(place: &str, action: &str, fixture: &Fixture, command: &mut Command) -> Self {
        let held = Self::on_pipe(fixture);
        command.env("NONO_FAIL_POINT", held.point(place, action));
        held
    }

    /// A pipe for a command that another process starts, with [`point`](Self::point) in its
    /// environment.
    pub fn on_pipe(fixture: &Fixture) -> Self {
        let pipe = fixture.path("held");
        let _ = fs::remove_file(&pipe);
        mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
        Self(pipe)
    }

    pub fn point(&self, place: &str, action: &str) -> String {
        format!("{place}{action}@{}", self.0.display())
    }

    /// Waits until it is there.
    #[track_caller]
    pub fn wait(self) -> Waiting {
        let mut waiting = None;
        eventually("it does not come to the point", || {
            let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            waiting = rustix::fs::open(&self.0, flags, Mode::empty()).ok();
            waiting.is_some()
        });
        Waiting(waiting.unwrap())
    }

    /// Lets it go, once it is there.
    #[track_caller]
    pub fn release(self) {
        drop(self.wait());
    }
}
