//! The pages of the documentation, as `docs/SUMMARY.md` lists them. The program holds them, so that
//! `nono help PAGE` needs no files beside it.

/// A page.
#[derive(Debug)]
pub(super) struct BookPage {
    /// Its file below `docs`: `questions/in-ci.md`.
    pub(super) file: &'static str,
    /// Its text, in Markdown.
    pub(super) text: &'static str,
}

macro_rules! pages {
    ($($file:literal),* $(,)?) => {
        &[$(BookPage { file: $file, text: include_str!(concat!("../../docs/", $file)) }),*]
    };
}

/// All pages, in the order of the book. A page that is missing here fails a test.
pub(super) const PAGES: &[BookPage] = pages![
    "README.md",
    "install.md",
    "tutorial.md",
    "questions/agent-deleted-files.md",
    "questions/undo-only.md",
    "questions/in-ci.md",
    "ci.md",
    "questions/what-is-recorded.md",
    "questions/how-much-disk.md",
    "agents.md",
    "watch.md",
    "mcp.md",
    "mount.md",
    "ui.md",
    "looking.md",
    "forks.md",
    "profiles.md",
    "containers.md",
    "remotes.md",
    "reference.md",
    "events.md",
    "libraries.md",
    "archive.md",
    "format.md",
    "sandbox.md",
    "performance.md",
    "releasing.md",
];

impl BookPage {
    /// The word by which a page is called: `in-ci`.
    pub(super) fn name(&self) -> &'static str {
        let file = self.file.rsplit('/').next().unwrap_or(self.file);
        file.strip_suffix(".md").unwrap_or(file)
    }

    /// Its first heading.
    pub(super) fn title(&self) -> &'static str {
        let line = self.text.lines().find_map(|line| line.strip_prefix("# "));
        line.unwrap_or_else(|| self.name())
    }
}

/// The page with this name, or at this path: `in-ci`, `in-ci.md`, `docs/questions/in-ci.md`.
pub(super) fn page(word: &str) -> Option<&'static BookPage> {
    let path = word.strip_prefix("docs/").unwrap_or(word);
    let is_it = |page: &&BookPage| {
        page.file == path || page.name() == path.strip_suffix(".md").unwrap_or(path)
    };
    PAGES.iter().find(is_it)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_pages_are_those_of_the_summary_in_its_order() {
        let summary = include_str!("../../docs/SUMMARY.md");
        let listed = summary.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
        assert_eq!(
            PAGES.iter().map(|page| page.file).collect::<Vec<_>>(),
            listed.collect::<Vec<_>>()
        );
    }

    #[test]
    fn each_page_is_found_by_its_name_and_by_its_path() {
        let names: BTreeSet<_> = PAGES.iter().map(BookPage::name).collect();
        assert_eq!(names.len(), PAGES.len());
        for wanted in PAGES {
            let path = format!("docs/{}", wanted.file);
            for word in [wanted.name(), wanted.file, &path] {
                assert_eq!(page(word).map(|found| found.file), Some(wanted.file), "{word}");
            }
            assert!(!wanted.title().is_empty() && wanted.title() != wanted.name(), "{wanted:?}");
        }
        assert!(page("no-such-page").is_none());
    }
}
