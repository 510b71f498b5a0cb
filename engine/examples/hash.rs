//! Hashes all files below some directories with every core: the bound of what `verify` and a first
//! snapshot can reach. Run by `scripts/bench`.

#![allow(clippy::disallowed_methods, reason = "it measures, and keeps nothing")]

use std::fs::File;
use std::io::{Read, Write};
use std::path::PathBuf;

use nono_engine::object::Hasher;
use rayon::prelude::*;

fn main() -> std::io::Result<()> {
    let mut pending: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let mut files = Vec::new();
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            match entry.file_type()? {
                kind if kind.is_dir() => pending.push(entry.path()),
                kind if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    let bytes = files
        .par_iter()
        .map_init(
            || vec![0; 1 << 20],
            |buffer, path| {
                let mut file = File::open(path)?;
                let mut hasher = Hasher::new();
                let mut bytes = 0;
                loop {
                    match file.read(buffer)? {
                        0 => break,
                        count => {
                            hasher.update(&buffer[..count]);
                            bytes += count as u64;
                        }
                    }
                }
                std::hint::black_box(hasher.finish());
                Ok::<u64, std::io::Error>(bytes)
            },
        )
        .try_reduce(|| 0, |a, b| Ok(a + b))?;
    writeln!(std::io::stdout(), "{} files, {bytes} bytes", files.len())
}
