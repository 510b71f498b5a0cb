//! Arguments: Python's values, checked before the engine sees them.

use std::path::PathBuf;

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A path: `str` or `os.PathLike`, with `~` expanded.
#[derive(Debug, Clone)]
pub(crate) struct PathArg(pub(crate) PathBuf);

impl<'py> FromPyObject<'_, 'py> for PathArg {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        use std::os::unix::ffi::OsStringExt;
        let os = object.py().import("os")?;
        let text = os.call_method1("fspath", (object,))?;
        let text = os.getattr("path")?.call_method1("expanduser", (text,))?;
        let bytes = os.call_method1("fsencode", (text,))?;
        let bytes = bytes.cast::<PyBytes>()?.as_bytes();
        if bytes.is_empty() {
            return Err(PyValueError::new_err("a path is empty"));
        }
        if bytes.contains(&0) {
            return Err(PyValueError::new_err("a path has a NUL byte in it"));
        }
        Ok(Self(std::ffi::OsString::from_vec(bytes.to_vec()).into()))
    }
}

/// A number that is not negative: of a snapshot, of entries, of bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Count(pub(crate) u64);

impl<'py> FromPyObject<'_, 'py> for Count {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.extract::<u64>() {
            Ok(number) => Ok(Self(number)),
            Err(error) if error.is_instance_of::<PyOverflowError>(object.py()) => {
                let number = object.str()?;
                let text = format!("a number from 0 to {} is needed, not {number}", u64::MAX);
                Err(PyValueError::new_err(text))
            }
            Err(error) => Err(error),
        }
    }
}

/// How many threads: more than there are processors by far is a mistake.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Threads(pub(crate) usize);

/// As the program allows, too.
const MAX_THREADS: u64 = 1024;

impl<'py> FromPyObject<'_, 'py> for Threads {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let Count(number) = object.extract()?;
        let usual = usize::try_from(number).ok().filter(|_| number <= MAX_THREADS);
        usual.map(Self).ok_or_else(|| {
            let text = format!("threads is a number from 0 to {MAX_THREADS}, not {number}");
            PyValueError::new_err(text)
        })
    }
}
