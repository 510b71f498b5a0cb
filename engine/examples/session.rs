//! A session from the library: a baseline, an unchanged snapshot, and how long each took.
//!
//! `cargo run --release --package nono-engine --example session -- SESSION_DIR PATH...` prints, for
//! `create_baseline`, for `create_incremental` and for a list of all files, the seconds that passed
//! and those that all threads together worked. `scripts/bench-python` compares them with the Python
//! package's.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nono_engine::snapshot::{Budget, SnapshotManager};
use nono_engine::walk::ExclusionConfig;
use rustix::time::{ClockId, clock_gettime};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let session = args.next().ok_or("usage: session SESSION_DIR PATH...")?;
    let paths: Vec<PathBuf> = args.collect();
    let exclusion = ExclusionConfig::nothing();
    let manager = SnapshotManager::new(Path::new(&session), &paths, exclusion, Budget::UNLIMITED)?;

    let mut out = std::io::stdout();
    let begin = Clocks::now();
    manager.create_baseline()?;
    write!(out, "{}", begin.elapsed())?;
    let begin = Clocks::now();
    let (manifest, changes) = manager.create_incremental()?;
    write!(out, "{}", begin.elapsed())?;
    assert!(changes.is_empty());
    let begin = Clocks::now();
    let files = manifest.files(manager.store())?.len();
    writeln!(out, "{}{files}", begin.elapsed())?;
    Ok(())
}

struct Clocks {
    begin: Instant,
    worked: f64,
}

impl Clocks {
    fn now() -> Self {
        Self { begin: Instant::now(), worked: worked() }
    }

    fn elapsed(&self) -> String {
        format!("{:.4} {:.4} ", self.begin.elapsed().as_secs_f64(), worked() - self.worked)
    }
}

/// Processor seconds of all threads of this process so far.
fn worked() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
