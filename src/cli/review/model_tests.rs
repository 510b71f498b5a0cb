use super::*;
use crossterm::event::KeyEventKind;

fn change(path: &str, change_type: ChangeType, size_delta: Option<i64>) -> Change {
    Change { path: path.into(), change_type, size_delta, is_directory: false }
}

/// A new directory with two files, a changed file, a deleted directory with a file.
fn model() -> Model {
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
    Model::new("session".to_owned(), changes, vec!["/p".into()])
}

fn press(model: &mut Model, keys: &str) -> Action {
    let mut action = Action::Nothing;
    for c in keys.chars() {
        let code = match c {
            '\n' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            '\u{8}' => KeyCode::Backspace,
            c => KeyCode::Char(c),
        };
        action = model.press(KeyEvent::new(code, KeyModifiers::NONE));
    }
    action
}

fn control(model: &mut Model, c: char) -> Action {
    model.press(KeyEvent::new_with_kind(
        KeyCode::Char(c),
        KeyModifiers::CONTROL,
        KeyEventKind::Press,
    ))
}

fn marked(model: &Model) -> Vec<&str> {
    let marked = (0..model.changes.len()).filter(|index| model.is_marked(*index));
    marked.map(|index| model.changes[index].path.to_str().unwrap()).collect()
}

const KEEP: Action = Action::End(Decision::KeepAll);

#[test]
fn enter_q_and_ctrl_c_keep_everything() {
    assert_eq!(press(&mut model(), "\n"), KEEP);
    assert_eq!(press(&mut model(), "q"), KEEP);
    for keys in ["", " ", "a", "ar", "aR", "/a", "?"] {
        let mut model = model();
        press(&mut model, keys);
        assert_eq!(control(&mut model, 'c'), KEEP, "{keys:?}");
    }
}

#[test]
fn nothing_is_restored_without_a_clear_yes() {
    for question in ["R", "ar", " r"] {
        for answer in ["\n", "n", "\u{1b}", " ", "q", "r", "R"] {
            let mut model = model();
            press(&mut model, question);
            assert_eq!(press(&mut model, answer), Action::Nothing, "{question:?} {answer:?}");
            assert_eq!(model.mode(), Mode::List);
        }
    }
    assert_eq!(press(&mut model(), "Ry"), Action::End(Decision::RestoreAll));
    assert_eq!(press(&mut model(), "ary"), Action::End(Decision::RestoreAll));
    let some = Action::End(Decision::Restore(vec!["/p/a".into()]));
    assert_eq!(press(&mut model(), " ry"), some);
}

#[test]
fn enter_with_marks_asks_and_keeps() {
    let mut model = model();
    assert_eq!(press(&mut model, " \n"), Action::Nothing);
    assert_eq!(model.mode(), Mode::ConfirmKeep);
    assert_eq!(press(&mut model, "\n"), KEEP);
    press(&mut model, "\nx");
    assert_eq!(model.mode(), Mode::List);
    press(&mut model, "\nr");
    assert_eq!(model.mode(), Mode::ConfirmRestore { all: false });
}

#[test]
fn restoring_nothing_is_explained() {
    let mut model = model();
    assert_eq!(press(&mut model, "r"), Action::Nothing);
    assert_eq!(model.mode(), Mode::List);
    assert!(model.message().unwrap().contains("nothing is marked"));
    press(&mut model, "j");
    assert_eq!(model.message(), None);
}

#[test]
fn a_new_directory_goes_only_with_everything_in_it() {
    let mut model = model();
    press(&mut model, "jjj ");
    assert_eq!(marked(&model), ["/p/new", "/p/new/one", "/p/new/two"]);
    assert_eq!(model.marked_count(), 3);
    // The cursor went on to the first file in it.
    press(&mut model, " ");
    assert_eq!(marked(&model), ["/p/new/two"]);
    press(&mut model, "k ");
    assert_eq!(marked(&model), ["/p/new/one", "/p/new/two"]);
}

#[test]
fn a_path_below_a_deleted_directory_is_brought_back_alone() {
    let mut model = model();
    press(&mut model, "jj ");
    assert_eq!(marked(&model), ["/p/gone/x"]);
    press(&mut model, "gj ");
    assert_eq!(marked(&model), ["/p/gone", "/p/gone/x"]);
}

#[test]
fn what_took_the_place_of_a_directory_goes_when_its_contents_come_back() {
    let changes = vec![
        change("/p/d", ChangeType::Modified, None),
        change("/p/d/x", ChangeType::Deleted, Some(-1)),
        change("/p/d/y", ChangeType::Deleted, Some(-1)),
    ];
    let mut model = Model::new("session".to_owned(), changes, vec!["/p".into()]);
    press(&mut model, "j ");
    assert_eq!(marked(&model), ["/p/d", "/p/d/x"]);
    press(&mut model, "g ");
    assert_eq!(marked(&model), Vec::<&str>::new());
}

#[test]
fn a_filter_shows_and_marks_only_what_it_lets_through() {
    let mut model = model();
    press(&mut model, "/NEW/");
    assert_eq!((model.visible_count(), model.mode()), (2, Mode::Filter));
    press(&mut model, "\na");
    assert_eq!(marked(&model), ["/p/new/one", "/p/new/two"]);
    press(&mut model, "a");
    assert_eq!(model.marked_count(), 0);
    assert_eq!(press(&mut model, "jd"), Action::ShowDifferences(5..6));
    press(&mut model, "\u{1b}");
    assert_eq!((model.visible_count(), model.cursor()), (7, 5));
    // The tracked path itself is not part of what is searched.
    press(&mut model, "/p/");
    assert_eq!(model.visible_count(), 0);
    assert_eq!(press(&mut model, "\n d"), Action::Nothing);
    assert!(model.window(10).is_empty());
    press(&mut model, "/\u{8}\u{8}");
    assert_eq!(model.visible_count(), 7);
}

#[test]
fn a_directory_is_shown_with_what_is_in_it() {
    assert_eq!(press(&mut model(), "jd"), Action::ShowDifferences(1..3));
    assert_eq!(press(&mut model(), "Gd"), Action::ShowDifferences(6..7));
}

#[test]
fn the_window_follows_the_cursor() {
    let mut model = model();
    let positions = |model: &mut Model, rows| -> Vec<usize> {
        model.window(rows).into_iter().map(|(position, _)| position).collect()
    };
    assert_eq!(positions(&mut model, 3), [0, 1, 2]);
    press(&mut model, "jjj");
    assert_eq!(positions(&mut model, 3), [1, 2, 3]);
    press(&mut model, "k");
    assert_eq!(positions(&mut model, 3), [1, 2, 3]);
    press(&mut model, "G");
    assert_eq!(positions(&mut model, 3), [4, 5, 6]);
    // A larger screen shows more, a tiny one less, and the cursor is on both.
    assert_eq!(positions(&mut model, 100), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(positions(&mut model, 1), [6]);
    assert_eq!(positions(&mut model, 0), Vec::<usize>::new());
    press(&mut model, "jjjj");
    assert_eq!(model.cursor(), 6);
    press(&mut model, "gk");
    assert_eq!(model.cursor(), 0);
    model.press(KeyEvent::new(KeyCode::PageDown, KeyModifiers::NONE));
    assert_eq!(model.cursor(), 1);
}

#[test]
fn kinds_are_counted_with_their_sizes() {
    let model = model();
    let kinds: Vec<_> = model.kinds().iter().map(|k| (k.count, k.size_delta)).collect();
    assert_eq!(kinds, [(3, 30), (1, 5), (2, -7), (1, 0)]);
}

#[test]
fn a_hundred_thousand_changes_are_marked_and_searched() {
    let changes = (0..100_000)
        .map(|n| change(&format!("/p/d{:03}/f{n:06}", n / 1000), ChangeType::Created, Some(1)))
        .collect();
    let mut model = Model::new("session".to_owned(), changes, vec!["/p".into()]);
    press(&mut model, "a");
    assert_eq!(model.marked_count(), 100_000);
    press(&mut model, "/f0999\n");
    assert_eq!(model.visible_count(), 100);
    press(&mut model, "a");
    assert_eq!(model.marked_count(), 99_900);
    let Action::End(Decision::Restore(paths)) = press(&mut model, "ry") else { panic!() };
    assert_eq!(paths.len(), 99_900);
}
