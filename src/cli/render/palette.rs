//! Styles, so that one renderer serves plain and coloured output.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use nono_engine::diff::ChangeType;

/// The style of each kind of text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Palette {
    /// Names of files above their differences.
    pub header: Style,
    /// Positions of hunks.
    pub hunk: Style,
    /// Lines and paths that are new.
    pub added: Style,
    /// Lines and paths that are gone.
    pub removed: Style,
    /// Lines and paths that are different.
    pub modified: Style,
    /// Paths with other permissions.
    pub permissions: Style,
    /// Line numbers, and remarks on what is not shown.
    pub dim: Style,
}

impl Palette {
    /// No styles: not one escape sequence is written.
    pub const fn plain() -> Self {
        let none = Style::new();
        Self {
            header: none,
            hunk: none,
            added: none,
            removed: none,
            modified: none,
            permissions: none,
            dim: none,
        }
    }

    /// The colours that diff tools use.
    pub const fn coloured() -> Self {
        Self {
            header: Style::new().bold(),
            hunk: AnsiColor::Cyan.on_default(),
            added: AnsiColor::Green.on_default(),
            removed: AnsiColor::Red.on_default(),
            modified: AnsiColor::Yellow.on_default(),
            permissions: AnsiColor::Magenta.on_default(),
            dim: Style::new().dimmed(),
        }
    }

    /// The style of a kind of change.
    pub const fn change(&self, change_type: ChangeType) -> Style {
        match change_type {
            ChangeType::Created => self.added,
            ChangeType::Modified => self.modified,
            ChangeType::Deleted => self.removed,
            ChangeType::PermissionsChanged => self.permissions,
        }
    }
}

/// Writes text in a style; the reset comes before the end of the line, so that no pager and no cut
/// line lets a colour run on.
pub(super) fn write_styled(out: &mut dyn Write, style: Style, text: &[u8]) -> io::Result<()> {
    style.write_to(out)?;
    out.write_all(text)?;
    style.write_reset_to(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_has_no_escape_sequence() {
        let mut out = Vec::new();
        write_styled(&mut out, Palette::plain().added, b"x").unwrap();
        assert_eq!(out, b"x");
    }

    #[test]
    fn a_style_ends_where_its_text_ends() {
        let mut out = Vec::new();
        write_styled(&mut out, Palette::coloured().added, b"x").unwrap();
        assert_eq!(out, b"\x1b[32mx\x1b[0m");
    }
}
