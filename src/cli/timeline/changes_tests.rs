use super::*;
use crossterm::event::{KeyEvent, KeyEventKind, KeyModifiers};

fn change(path: &str, change_type: ChangeType, size_delta: Option<i64>) -> Change {
    Change { path: path.into(), change_type, size_delta, is_directory: false }
}

/// A new directory with two files, a changed file, a deleted directory with a file.
fn page() -> Changes {
    use ChangeType::{Created, Deleted, Modified, PermissionsChanged};
    let changes = vec![
        change("/p/a", Modified, Some(5)),
        change("/p/gone", Deleted, None),
        change("/p/gone/x", Deleted, Some(-7)),
        change("/p/new", Created, None),
        change("/p/new/one", Created, Some(10)),
        change("/p/new/two", Created, Some(20)),
        change("/p/new-er", PermissionsChanged, None),
    ];
    deciding(changes)
}

fn deciding(changes: Vec<Change>) -> Changes {
    let (title, roots) = ("session".to_owned(), vec!["/p".into()]);
    Changes::new(title, changes, roots, Renames::new(), Purpose::Deciding)
}

fn looking(changes: Vec<Change>, renames: Renames) -> Changes {
    let (title, roots) = ("session".to_owned(), vec!["/p".into()]);
    Changes::new(title, changes, roots, renames, Purpose::Looking)
}

fn press(page: &mut Changes, keys: &str) -> Action {
    let mut action = Action::Nothing;
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '\u{8}' => KeyCode::Backspace,
            c => KeyCode::Char(c),
        };
        let pressed = page.desk.press(KeyEvent::new(code, KeyModifiers::NONE));
        action = page.take(pressed);
    }
    action
}

fn control(page: &mut Changes, c: char) -> Action {
    let code = KeyCode::Char(c);
    let key = KeyEvent::new_with_kind(code, KeyModifiers::CONTROL, KeyEventKind::Press);
    let pressed = page.desk.press(key);
    page.take(pressed)
}

fn marked(page: &Changes) -> Vec<&str> {
    let marked = (0..page.changes.len()).filter(|index| page.marked[*index]);
    marked.map(|index| page.changes[index].path.to_str().unwrap()).collect()
}

const KEEP: Action = Action::Decide(Decision::KeepAll);

#[test]
fn enter_q_and_ctrl_c_keep_everything() {
    assert_eq!(press(&mut page(), "\n"), KEEP);
    assert_eq!(press(&mut page(), "q"), KEEP);
    for keys in ["", " ", "a", "ar", "aR", "/a", "?"] {
        let mut page = page();
        press(&mut page, keys);
        assert_eq!(control(&mut page, 'c'), KEEP, "{keys:?}");
    }
}

#[test]
fn nothing_is_restored_without_a_clear_yes() {
    for question in ["R", "ar", " r"] {
        for answer in ["\n", "n", "\u{1b}", " ", "q", "r", "R"] {
            let mut page = page();
            press(&mut page, question);
            assert_eq!(press(&mut page, answer), Action::Nothing, "{question:?} {answer:?}");
            assert_eq!(page.desk.mode, Mode::Looking);
        }
    }
    assert_eq!(press(&mut page(), "Ry"), Action::Decide(Decision::RestoreAll));
    assert_eq!(press(&mut page(), "ary"), Action::Decide(Decision::RestoreAll));
    let some = Action::Decide(Decision::Restore(vec!["/p/a".into()]));
    assert_eq!(press(&mut page(), " ry"), some);
}

#[test]
fn enter_with_marks_asks_and_keeps() {
    let mut page = page();
    assert_eq!(press(&mut page, " \n"), Action::Nothing);
    assert_eq!(page.question(), Some(&Question::Keep));
    assert_eq!(press(&mut page, "\n"), KEEP);
    press(&mut page, "\nx");
    assert_eq!(page.desk.mode, Mode::Looking);
    press(&mut page, "\nr");
    assert_eq!(page.question(), Some(&Question::Restore(vec![0])));
}

#[test]
fn without_marks_the_path_at_the_cursor_is_restored() {
    let mut page = page();
    assert_eq!(press(&mut page, "r"), Action::Nothing);
    assert_eq!(page.question(), Some(&Question::Restore(vec![0])));
    let some = Action::Decide(Decision::Restore(vec!["/p/a".into()]));
    assert_eq!(press(&mut page, "y"), some);
    // A directory that went comes back with what was in it.
    press(&mut page, "jr");
    assert_eq!(page.question(), Some(&Question::Restore(vec![1, 2])));
    assert_eq!(press(&mut page, "n"), Action::Nothing);
    press(&mut page, "/zzz\nr");
    assert_eq!((page.question(), page.desk.mode), (None, Mode::Looking));
    assert!(page.desk.message().unwrap().contains("nothing is here"));
}

#[test]
fn a_new_directory_goes_only_with_everything_in_it() {
    let mut page = page();
    press(&mut page, "jjj ");
    assert_eq!(marked(&page), ["/p/new", "/p/new/one", "/p/new/two"]);
    assert_eq!(page.marked_count(), 3);
    // The cursor went on to the first file in it.
    press(&mut page, " ");
    assert_eq!(marked(&page), ["/p/new/two"]);
    press(&mut page, "k ");
    assert_eq!(marked(&page), ["/p/new/one", "/p/new/two"]);
}

#[test]
fn a_path_below_a_deleted_directory_is_brought_back_alone() {
    let mut page = page();
    press(&mut page, "jj ");
    assert_eq!(marked(&page), ["/p/gone/x"]);
    press(&mut page, "gj ");
    assert_eq!(marked(&page), ["/p/gone", "/p/gone/x"]);
}

#[test]
fn what_took_the_place_of_a_directory_goes_when_its_contents_come_back() {
    let changes = vec![
        change("/p/d", ChangeType::Modified, None),
        change("/p/d/x", ChangeType::Deleted, Some(-1)),
        change("/p/d/y", ChangeType::Deleted, Some(-1)),
    ];
    let mut page = deciding(changes);
    press(&mut page, "j ");
    assert_eq!(marked(&page), ["/p/d", "/p/d/x"]);
    press(&mut page, "g ");
    assert_eq!(marked(&page), Vec::<&str>::new());
}

#[test]
fn a_filter_shows_and_marks_only_what_it_lets_through() {
    let mut page = page();
    press(&mut page, "/NEW/");
    // With the directory that holds them.
    assert_eq!((page.desk.outline.shown_count(), page.desk.mode), (3, Mode::Searching));
    assert_eq!(page.desk.outline.match_count(), Some(2));
    press(&mut page, "\na");
    assert_eq!(marked(&page), ["/p/new/one", "/p/new/two"]);
    press(&mut page, "a");
    assert_eq!(page.marked_count(), 0);
    assert_eq!(press(&mut page, "jd"), Action::Page(5..6));
    press(&mut page, "\u{1b}");
    assert_eq!((page.desk.outline.shown_count(), page.desk.outline.cursor()), (7, 5));
    // The tracked path itself is not part of what is searched.
    press(&mut page, "/p/");
    assert_eq!(page.desk.outline.shown_count(), 0);
    assert_eq!(press(&mut page, "\n d"), Action::Nothing);
    assert!(page.desk.outline.window(10).is_empty());
    press(&mut page, "/\u{8}\u{8}");
    assert_eq!(page.desk.outline.shown_count(), 7);
}

#[test]
fn a_directory_is_shown_with_what_is_in_it() {
    assert_eq!(press(&mut page(), "jd"), Action::Page(1..3));
    assert_eq!(press(&mut page(), "Gd"), Action::Page(6..7));
}

#[test]
fn kinds_are_counted_with_their_sizes() {
    let page = page();
    let kinds: Vec<_> = page.kinds().iter().map(|k| (&*k.words, k.size_delta)).collect();
    assert_eq!(
        kinds,
        [("+3 files", 30), ("~1 modified", 5), ("-2 deleted", -7), ("±1 permission", 0),]
    );
}

#[test]
fn a_hundred_thousand_changes_are_marked_and_searched() {
    let changes = (0..100_000)
        .map(|n| change(&format!("/p/d{:03}/f{n:06}", n / 1000), ChangeType::Created, Some(1)))
        .collect();
    let mut page = deciding(changes);
    press(&mut page, "a");
    assert_eq!(page.marked_count(), 100_000);
    press(&mut page, "/f0999\n");
    assert_eq!(page.desk.outline.match_count(), Some(100));
    press(&mut page, "a");
    assert_eq!(page.marked_count(), 99_900);
    let Action::Decide(Decision::Restore(paths)) = press(&mut page, "ry") else { panic!() };
    assert_eq!(paths.len(), 99_900);
}

/// `a.rs` became `b.rs` in a directory that was made; `c` is of its own.
fn renamed() -> Changes {
    use ChangeType::{Created, Deleted, Modified};
    let changes = vec![
        change("/p/a.rs", Deleted, Some(-5)),
        change("/p/c", Modified, Some(1)),
        change("/p/d", Created, None),
        change("/p/d/b.rs", Created, Some(5)),
    ];
    looking(changes, Renames::from([(3, 0)]))
}

#[test]
fn a_rename_is_one_row_and_both_of_its_paths() {
    let mut page = renamed();
    let window = page.desk.outline.window(10);
    let names: Vec<_> =
        window.iter().map(|(_, row)| page.row(*row).name(page.changes()).to_vec()).collect();
    assert_eq!(names, [&b"c"[..], b"d", b"b.rs"]);
    press(&mut page, "G ");
    assert_eq!(marked(&page), ["/p/a.rs", "/p/d/b.rs"]);
    press(&mut page, " ");
    assert_eq!(marked(&page), Vec::<&str>::new());
    // The directory goes with the file that comes back to its old place.
    press(&mut page, "k ");
    assert_eq!(marked(&page), ["/p/a.rs", "/p/d", "/p/d/b.rs"]);
    press(&mut page, " ");
    press(&mut page, "Gr");
    assert_eq!(page.question(), Some(&Question::Restore(vec![0, 3])));
    press(&mut page, "n");
    press(&mut page, "/a.rs\n");
    assert_eq!(page.desk.outline.match_count(), Some(1));
}

#[test]
fn in_the_timeline_enter_opens_and_u_takes_all_back() {
    let mut page = renamed();
    assert_eq!(press(&mut page, "\n"), Action::Nothing);
    assert_eq!(page.desk.focus, Focus::Difference);
    press(&mut page, "\u{1b}j\n");
    assert_eq!(page.desk.outline.shown_count(), 2, "the directory is folded");
    assert_eq!(press(&mut page, "u"), Action::TakeBack);
    assert_eq!(press(&mut page, "q"), Action::Quit);
    assert_eq!(press(&mut page, "\u{1b}"), Action::Back);
    // Marks are not lost by a key.
    press(&mut page, " ");
    assert_eq!(press(&mut page, "\u{1b}"), Action::Nothing);
    assert!(page.desk.message().unwrap().contains("3 marked"));
    // In a review, Enter keeps, also with the difference in front.
    assert_eq!(press(&mut self::page(), "l\u{1b}\n"), KEEP);
}
