//! `ExclusionConfig`: the left-out paths.

use nono_engine::walk::{self, Filter, Ignored, UnknownIgnored};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The exclusions from the tracked paths.
///
/// Patterns are names (``node_modules``) or, with a ``/`` in them, any part of a path: ``src/gen``
/// also means ``src/generated``. A leading ``/`` ties one to the top of the tracked path, a
/// trailing one to directories. With ``*``, ``?`` or ``[…]`` they are about whole names. Globs look
/// at the names of everything but directories (``*.pyc``). ``force_include`` has patterns that beat
/// every exclusion; directories that ``prune_patterns`` name are not searched for it. ``ignored``
/// says what is recorded of the paths that ``.gitignore`` files leave out: ``"none"``,
/// ``"small"`` (as on the command line: an ``.env`` is kept, a build directory is not) or
/// ``"all"``. The lists are copies: a configuration never changes.
#[pyclass(frozen, eq, module = "nono_py")]
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct ExclusionConfig(pub(crate) walk::ExclusionConfig);

/// The same as without arguments in Python, and as on the command line.
pub(crate) fn default() -> walk::ExclusionConfig {
    walk::ExclusionConfig { ignored: Ignored::Small, ..walk::ExclusionConfig::default() }
}

#[pymethods]
impl ExclusionConfig {
    #[new]
    #[pyo3(
        signature = (
            use_gitignore = true, exclude_patterns = vec![], exclude_globs = vec![],
            force_include = vec![], prune_patterns = vec![], ignored = "small"
        ),
        text_signature = "(use_gitignore=True, exclude_patterns=[], exclude_globs=[], \
                          force_include=[], prune_patterns=[], ignored='small')"
    )]
    fn new(
        use_gitignore: bool,
        exclude_patterns: Vec<String>,
        exclude_globs: Vec<String>,
        force_include: Vec<String>,
        prune_patterns: Vec<String>,
        ignored: &str,
    ) -> PyResult<Self> {
        let ignored = ignored.parse().map_err(|error: UnknownIgnored| {
            PyValueError::new_err(format!("ignored: {ignored:?}: {error}"))
        })?;
        let config = walk::ExclusionConfig {
            use_gitignore,
            exclude_patterns,
            exclude_globs,
            force_include,
            prune_patterns,
            ignored,
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

    /// The ignored paths that are recorded: ``"none"``, ``"small"`` or ``"all"``.
    #[getter]
    fn ignored(&self) -> &'static str {
        match self.0.ignored {
            Ignored::None => "none",
            Ignored::Small => "small",
            Ignored::All => "all",
        }
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

    fn __getnewargs__(&self) -> NewArgs {
        let ignored = self.ignored();
        let walk::ExclusionConfig {
            use_gitignore,
            exclude_patterns,
            exclude_globs,
            force_include,
            prune_patterns,
            ..
        } = self.0.clone();
        (use_gitignore, exclude_patterns, exclude_globs, force_include, prune_patterns, ignored)
    }
}

/// The arguments of the constructor, for a copy.
type NewArgs = (bool, Vec<String>, Vec<String>, Vec<String>, Vec<String>, &'static str);
