//! The forms that a path may have in a snapshot: with more or fewer of its symlinks resolved.
//!
//! Tracked paths are recorded with the symlinks above them resolved, and what is in them is not. A
//! directory on the way may have been a directory then, and be a symlink only now. So the form with
//! the fewest symlinks resolved that lies in a tracked path comes first, and the others are tried
//! as well.

use std::path::{Path, PathBuf};

use crate::sys;

/// The forms of an absolute path, the one with nothing resolved first. The last component is never
/// resolved, and nothing has to exist.
pub fn forms_of(path: &Path) -> Vec<PathBuf> {
    let mut forms = vec![path.to_owned()];
    let mut above: Vec<_> = path.ancestors().skip(1).collect();
    above.reverse();
    for above in above {
        let rest = path.strip_prefix(above).unwrap_or(path);
        // A missing path leads nowhere any more, and neither does anything below.
        let Ok(real) = sys::real_path(above) else { break };
        let form = real.join(rest);
        if !forms.contains(&form) {
            forms.push(form);
        }
    }
    forms
}

/// The first form that lies in one of the tracked paths.
pub fn recorded_form<'a>(forms: &'a [PathBuf], roots: &[PathBuf]) -> Option<&'a Path> {
    let is_inside = |form: &&PathBuf| roots.iter().any(|root| form.starts_with(root));
    forms.iter().find(is_inside).map(PathBuf::as_path)
}
