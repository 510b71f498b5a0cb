//! `nono ui --export`: one session as a page without a server, to attach to a ticket.
//!
//! The page is one file that loads nothing, and has no script. Contents of paths that match a glob
//! of `--hide` are left out, and so are those of pictures and other binary files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use globset::{GlobBuilder, GlobSetBuilder};

use super::app::App;
use super::guard::Guard;
use super::pages::export_session;
use crate::cli::error::CliError;
use nono_engine::diff::relative_to_roots;
use nono_engine::path_text::to_path;
use nono_engine::session::Catalog;
use nono_engine::snapshot::SessionDir;
use nono_engine::sys::{self, Dir};

/// The name of the page in its directory.
const NAME: &str = "index.html";

/// The written page.
#[derive(Debug)]
pub(in crate::cli) struct Exported {
    pub(in crate::cli) path: PathBuf,
    pub(in crate::cli) bytes: u64,
}

/// Writes a session as a page into a directory, which is made where it is missing.
///
/// # Errors
/// A glob that is none, a page that is there already, a directory that cannot be written.
pub(in crate::cli) fn export(
    session: &SessionDir,
    directory: &Path,
    hide: &[String],
    catalog: Catalog,
    home: Option<PathBuf>,
) -> Result<Exported, CliError> {
    let wrong = |error: globset::Error| CliError::usage(format!("--hide is no glob: {error}"));
    let mut globs = GlobSetBuilder::new();
    for text in hide {
        globs.add(GlobBuilder::new(text).literal_separator(true).build().map_err(wrong)?);
    }
    let globs = globs.build().map_err(wrong)?;
    let roots = session.metadata()?.tracked_paths;
    let is_hidden = |path: &Path| {
        let path = path.as_os_str().as_encoded_bytes();
        let inside = relative_to_roots(path, &roots);
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        // A name, a path of the project, a whole path, or a directory above.
        let above = (0..inside.len()).filter(|at| inside[*at] == b'/').map(|at| &inside[..at]);
        let forms: Vec<&[u8]> = [name, inside, path].into_iter().chain(above).collect();
        forms.iter().any(|form| globs.is_match(to_path(form)))
    };
    // The pages are made for a server; this one never listens.
    let guard = Guard::new(0)?;
    let app = App::new(catalog, guard, home, 0, Duration::ZERO);
    let page = export_session(&app, session, &is_hidden)
        .map_err(|failure| CliError::failed(failure.message))?
        .into_text();
    sys::create_private_dir(directory)?;
    let dir = Dir::open(directory)?;
    let mut file = dir.create_file(NAME.as_bytes(), 0o600)?;
    let path = dir.path_of(NAME.as_bytes());
    let written = file.write_all(page.as_bytes());
    written
        .map_err(|error| CliError::failed(format!("cannot write {}: {error}", path.display())))?;
    Ok(Exported { path, bytes: page.len() as u64 })
}
