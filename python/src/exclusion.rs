//! `ExclusionConfig`: the left-out paths.

use nono_engine::walk::{self, Filter};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The exclusions from the tracked paths.
///
/// Patterns are names (``node_modules``) or, with a ``/`` in them, any part of a path: ``src/gen``
/// also means ``src/generated``. A leading ``/`` ties one to the top of the tracked path, a
/// trailing one to directories. With ``*``, ``?`` or ``[…]`` they are about whole names. Globs look
/// at the names of everything but directories (``*.pyc``). ``force_include`` has patterns that beat
/// every exclusion; directories that ``prune_patterns`` name are not searched for it. The lists are
/// copies: a configuration never changes.
#[pyclass(frozen, eq, module = "nono_py")]
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ExclusionConfig(pub(crate) walk::ExclusionConfig);

#[pymethods]
impl ExclusionConfig {
    #[new]
    #[pyo3(
        signature = (use_gitignore = true, exclude_patterns = vec![], exclude_globs = vec![], force_include = vec![], prune_patterns = vec![]),
        text_signature = "(use_gitignore=True, exclude_patterns=[], exclude_globs=[], force_include=[], prune_patterns=[])"
    )]
    fn new(
        use_gitignore: bool,
        exclude_patterns: Vec<String>,
        exclude_globs: Vec<String>,
        force_include: Vec<String>,
        prune_patterns: Vec<String>,
    ) -> PyResult<Self> {
        let config = walk::ExclusionConfig {
            use_gitignore,
            exclude_patterns,
            exclude_globs,
            force_include,
            prune_patterns,
            ..walk::ExclusionConfig::default()
        };
        // A bad pattern is told where it was written, not where it is used.
        Filter::new(&config).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Self(config))
    }

    /// Whether ``.gitignore`` files below the tracked paths are honoured.
    #[getter]
    fn use_gitignore(&self) -> bool {
        self.0.use_gitignore
    }

    /// Patterns of what is left out.
    #[getter]
    fn exclude_patterns(&self) -> Vec<String> {
        self.0.exclude_patterns.clone()
    }

    /// Globs on the names of what is left out.
    #[getter]
    fn exclude_globs(&self) -> Vec<String> {
        self.0.exclude_globs.clone()
    }

    /// Patterns of what stays in whatever else says.
    #[getter]
    fn force_include(&self) -> Vec<String> {
        self.0.force_include.clone()
    }

    /// Patterns of directories that are left out and not searched for what is force-included.
    #[getter]
    fn prune_patterns(&self) -> Vec<String> {
        self.0.prune_patterns.clone()
    }

    fn __repr__(&self) -> String {
        format!(
            "ExclusionConfig(use_gitignore={}, patterns={}, globs={}, force_include={}, prune={})",
            if self.0.use_gitignore { "True" } else { "False" },
            self.0.exclude_patterns.len(),
            self.0.exclude_globs.len(),
            self.0.force_include.len(),
            self.0.prune_patterns.len()
        )
    }

    fn __getnewargs__(&self) -> (bool, Vec<String>, Vec<String>, Vec<String>, Vec<String>) {
        let walk::ExclusionConfig {
            use_gitignore,
            exclude_patterns,
            exclude_globs,
            force_include,
            prune_patterns,
            ..
        } = self.0.clone();
        (use_gitignore, exclude_patterns, exclude_globs, force_include, prune_patterns)
    }
}
