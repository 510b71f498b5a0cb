//! x
use pyo3::prelude::*;
/// x
#[pymodule]
mod _nono {}
