use super::*;
use proptest::prelude::*;

fn excluded(pattern: &str, path: &str, is_dir: bool) -> bool {
    let config = ExclusionConfig {
        exclude_patterns: vec![pattern.to_owned()],
        ..ExclusionConfig::default()
    };
    let filter = Filter::new(&config).unwrap();
    matches!(filter.judge(path.as_bytes(), is_dir, None), Verdict::Excluded(_))
}

#[test]
fn a_name_matches_a_whole_component_anywhere() {
    assert!(excluded("target", "target", true));
    assert!(excluded("target", "a/b/target", false));
    assert!(!excluded("target", "targets", true));
    assert!(!excluded("arge", "target", true));
}

#[test]
fn a_pattern_with_a_slash_matches_a_part_of_the_path() {
    assert!(excluded("src/gen", "src/gen", true));
    assert!(excluded("src/gen", "a/src/gen", true));
    assert!(excluded("src/gen", "src/generated", true));
    assert!(excluded("src/gen", "src/gen.rs", false));
    assert!(excluded("src/gen", "my-src/gen", true));
    assert!(excluded("a/b/c", "xa/b/cx", false));
    assert!(!excluded("a/b/c", "a/bx/c", false));
    assert!(!excluded("a/b/c", "a/xb/c", false));
    assert!(!excluded("src/gen", "src/x/gen", true));
    assert!(!excluded("src/gen", "src/regen", true));
    assert!(!excluded("src/gen", "gen", true));
}

#[test]
fn slashes_at_the_ends_of_a_part_of_the_path_say_where_it_begins_and_ends() {
    assert!(excluded("/src/gen", "src/generated", true));
    assert!(!excluded("/src/gen", "a/src/gen", true));
    assert!(!excluded("/src/gen", "my-src/gen", true));
    assert!(excluded("./src/gen", "src/generated", true));
    assert!(excluded("src/gen/", "my-src/gen", true));
    assert!(!excluded("src/gen/", "src/generated", true));
    assert!(!excluded("src/gen/", "src/gen", false));
    assert!(excluded("/src/gen/", "src/gen", true));
    assert!(!excluded("/src/gen/", "src/generated", true));
}

#[test]
fn a_pattern_with_a_wildcard_is_about_whole_components() {
    assert!(excluded("src/*.rs", "a/src/x.rs", false));
    assert!(!excluded("src/*.rs", "my-src/x.rs", false));
    assert!(!excluded("src/*/gen", "src/a/generated", true));
}

#[test]
fn a_part_of_a_path_that_is_force_included_opens_what_leads_to_it() {
    let config = ExclusionConfig {
        prune_patterns: vec!["node_modules/".into()],
        exclude_patterns: vec!["build".into()],
        force_include: vec!["modules/mine/s".into(), "/build/keep".into()],
        ..ExclusionConfig::default()
    };
    let filter = Filter::new(&config).unwrap();
    for (dir, may) in [
        ("node_modules", true),
        ("node_modules/mine", true),
        ("node_modules/mine2", false),
        ("node_modules/x/mine", false),
        ("build", true),
        ("build/other", true),
    ] {
        assert_eq!(filter.may_force_below(dir.as_bytes(), None), may, "{dir}");
    }
    for (path, is_forced) in [
        ("node_modules/mine/src", true),
        ("node_modules/mine/src/deeper", true),
        ("node_modules/mine/lib", false),
        ("node_modules/x/node_modules/mine/src", false),
        ("build/keeper", true),
        ("x/build/keep", false),
    ] {
        assert_eq!(filter.is_forced(path.as_bytes(), false, None), is_forced, "{path}");
    }
}

/// Whether a path or one above it is left out, as a walk finds out from the top down.
fn is_left_out(filter: &Filter, path: &str) -> bool {
    let dirs = byte_path::ancestors(path.as_bytes()).map(|dir| (dir, true));
    let mut all = dirs.chain([(path.as_bytes(), false)]).filter(|(path, _)| !path.is_empty());
    all.any(|(path, is_dir)| matches!(filter.judge(path, is_dir, None), Verdict::Excluded(_)))
}

proptest! {
    #[test]
    fn a_pattern_with_a_slash_is_a_substring_of_what_it_excludes(
        pattern in "[ab]{1,2}(/[ab]{1,2}){1,2}",
        path in "[ab]{1,3}(/[ab]{1,3}){0,4}",
    ) {
        let filter = |pattern: String| {
            let exclude_patterns = vec![pattern];
            Filter::new(&ExclusionConfig { exclude_patterns, ..Default::default() }).unwrap()
        };
        let from_top = filter(format!("/{pattern}"));
        let directory = filter(format!("{pattern}/"));
        prop_assert_eq!(is_left_out(&from_top, &path), path.starts_with(&pattern));
        prop_assert_eq!(is_left_out(&directory, &path), path.contains(&format!("{pattern}/")));
        prop_assert_eq!(is_left_out(&filter(pattern.clone()), &path), path.contains(&pattern));
    }
}

#[test]
fn a_leading_slash_ties_to_the_top_and_a_trailing_one_to_directories() {
    assert!(excluded("/build", "build", true));
    assert!(!excluded("/build", "a/build", true));
    assert!(excluded("build/", "a/build", true));
    assert!(!excluded("build/", "a/build", false));
}

#[test]
fn wildcards_stay_within_a_component() {
    assert!(excluded("*.log", "a/x.log", false));
    assert!(excluded("logs/*.log", "logs/x.log", false));
    assert!(!excluded("logs/*.log", "logs/a/x.log", false));
}

#[test]
fn globs_match_names_of_files_but_not_of_directories() {
    let config =
        ExclusionConfig { exclude_globs: vec!["*.d".into()], ..ExclusionConfig::default() };
    let filter = Filter::new(&config).unwrap();
    assert_eq!(filter.judge(b"a/x.d", false, None), Verdict::Excluded("glob *.d".into()));
    assert_eq!(filter.judge(b"conf.d", true, None), Verdict::Included);
}

#[test]
fn force_include_beats_patterns_and_globs() {
    let config = ExclusionConfig {
        exclude_patterns: vec![".env".into()],
        exclude_globs: vec![".env*".into()],
        force_include: vec![".env".into(), ".env.*".into()],
        ..ExclusionConfig::default()
    };
    let filter = Filter::new(&config).unwrap();
    assert_eq!(filter.judge(b"a/.env", false, None), Verdict::Forced);
    assert_eq!(filter.judge(b"a/.env.local", false, None), Verdict::Forced);
    assert!(matches!(filter.judge(b".envrc", false, None), Verdict::Excluded(_)));
    assert!(filter.is_forced(b"a/.env/below", false, None));
    assert!(!filter.is_forced(b"a/other", false, None));
}

#[test]
fn a_pruned_directory_is_opened_only_by_a_pattern_that_goes_through_it() {
    let config = ExclusionConfig {
        prune_patterns: vec!["node_modules/".into()],
        exclude_patterns: vec!["old".into()],
        force_include: vec![".env".into(), "node_modules/mine/src".into(), "/a/b/c".into()],
        ..ExclusionConfig::default()
    };
    let filter = Filter::new(&config).unwrap();
    let pruned = Verdict::Excluded("pattern node_modules/".into());
    assert_eq!(filter.judge(b"x/node_modules", true, None), pruned);
    assert_eq!(filter.judge(b"x/node_modules", false, None), Verdict::Included);
    // Directories that may hold an included path.
    for (dir, may) in [
        ("node_modules", true),
        ("node_modules/mine", true),
        ("x/node_modules/mine", true),
        ("node_modules/other", false),
        ("node_modules/x/node_modules/mine", false),
        ("old", true),
        ("old/deeper", true),
    ] {
        assert_eq!(filter.may_force_below(dir.as_bytes(), None), may, "{dir}");
    }
    for (path, is_forced) in [
        (".env", true),
        ("old/x/.env", true),
        ("node_modules/.env", false),
        ("node_modules/x/.env", false),
        ("node_modules/mine/src", true),
        ("x/node_modules/mine/src/.env", true),
        ("node_modules/mine/other", false),
        ("node_modules/x/node_modules/mine/src", false),
        ("a/b/c", true),
        (".env/node_modules/x", true),
    ] {
        assert_eq!(filter.is_forced(path.as_bytes(), false, None), is_forced, "{path}");
    }
}

#[test]
fn a_directory_that_is_pruned_for_what_it_holds_is_opened_in_the_same_way() {
    let config = ExclusionConfig {
        force_include: vec![".env".into(), "a/out/mine".into()],
        ..ExclusionConfig::default()
    };
    let filter = Filter::new(&config).unwrap();
    assert!(filter.may_force_below(b"a/out", None) && filter.may_force_below(b"b/out", None));
    assert!(filter.may_force_below(b"a/out", Some(1)));
    assert!(!filter.may_force_below(b"b/out", Some(1)));
    assert!(filter.is_forced(b"a/out/mine/x", false, Some(1)));
    assert!(!filter.is_forced(b"a/out/.env", false, Some(1)));
    assert!(filter.is_forced(b"a/out/.env", false, None));
}

#[test]
fn a_pattern_that_is_tied_to_the_top_opens_only_its_own_way() {
    let config = ExclusionConfig {
        exclude_patterns: vec!["build".into()],
        force_include: vec!["/build/keep".into()],
        ..ExclusionConfig::default()
    };
    let filter = Filter::new(&config).unwrap();
    assert!(filter.may_force_below(b"build", None));
    assert!(!filter.may_force_below(b"x/build", None));
    assert!(!filter.may_force_below(b"build/other", None));
}

#[test]
fn patterns_that_name_nothing_or_leave_are_refused() {
    for text in ["", "/", "a//b", "../a", "a/../b", "[", "."] {
        let config =
            ExclusionConfig { exclude_patterns: vec![text.into()], ..ExclusionConfig::default() };
        assert!(Filter::new(&config).is_err(), "{text:?} was accepted");
    }
}
