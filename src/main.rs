//! The `nono` program.
fn main() {}
