//! Facts about paths in few lines: each path by itself, and many paths with the same fact as their
//! directory with their number.

use std::path::{Component, Path};

use nono_engine::counted::counted;
use nono_engine::path_text::Shown;

/// The lines for facts, and the number of the paths that no line names. `facts`: paths inside of
/// the project, sorted, each with the rest of its line. `most`: the maximum number of lines.
pub(in crate::cli) fn summed(facts: &[(&Path, String)], most: usize) -> (Vec<String>, usize) {
    let by_itself = |(path, fact): &(&Path, String)| format!("{}{fact}", Shown::path(path));
    if facts.len() <= most {
        return (facts.iter().map(by_itself).collect(), 0);
    }
    // The first path of each group, with the number of its paths.
    let mut groups: Vec<(usize, usize)> = Vec::new();
    for (at, (path, fact)) in facts.iter().enumerate() {
        let is_beside = |first: usize| top(path).is_some() && top(path) == top(facts[first].0);
        let beside = groups.iter_mut().rev().take_while(|(first, _)| is_beside(*first));
        match beside.into_iter().find(|(first, _)| facts[*first].1 == *fact) {
            Some((_, count)) => *count += 1,
            None => groups.push((at, 1)),
        }
    }
    let line = |(first, count): &(usize, usize)| {
        let (path, fact) = &facts[*first];
        match (count, top(path)) {
            (2.., Some(top)) => {
                let paths = counted(*count, "path", "paths");
                format!("{}/ ({paths}){fact}", Shown::path(top))
            }
            _ => by_itself(&facts[*first]),
        }
    };
    let (told, rest) = groups.split_at(groups.len().min(most));
    (told.iter().map(line).collect(), rest.iter().map(|(_, count)| count).sum())
}

/// The directory of the project in which a path lies; none for what lies in the project itself.
fn top(path: &Path) -> Option<&Path> {
    let mut names = path.components();
    match (names.next(), names.next()) {
        (Some(Component::Normal(first)), Some(_)) => Some(Path::new(first)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(paths: &[(&str, &str)], most: usize) -> (Vec<String>, usize) {
        let facts: Vec<_> =
            paths.iter().map(|(path, fact)| (Path::new(*path), (*fact).to_owned())).collect();
        summed(&facts, most)
    }

    #[test]
    fn few_paths_are_named_and_many_are_summed_up_by_directory() {
        let few = [("a", " went"), ("src/b", " went")];
        assert_eq!(lines(&few, 2), (vec!["a went".to_owned(), "src/b went".to_owned()], 0));
        let many = [
            ("a", " went"),
            ("src/b", " went"),
            ("src/c", " came"),
            ("src/deep/d", " went"),
            ("z", " went"),
        ];
        let (told, left) = lines(&many, 3);
        assert_eq!(told, ["a went", "src/ (2 paths) went", "src/c came"]);
        assert_eq!(left, 1);
    }
}
