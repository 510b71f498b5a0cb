use super::*;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn model() -> Model {
    let change = |path: &str, change_type, size_delta| Change {
        path: path.into(),
        change_type,
        size_delta,
        is_directory: false,
    };
    let changes = vec![
        change("/p/a\u{1b}[2Jb", ChangeType::Created, Some(1500)),
        change("/p/deep/er/and/deeper/below/many/directories/name.rs", ChangeType::Modified, None),
        change("/p/gone", ChangeType::Deleted, Some(-3)),
        change("/p/mode", ChangeType::PermissionsChanged, None),
    ];
    Model::new("session 1".to_owned(), changes, vec!["/p".into()])
}

fn screen(model: &mut Model, width: u16, height: u16, colours: bool) -> Terminal<TestBackend> {
    with_beside(model, &Beside::default(), width, height, colours)
}

fn with_beside(
    model: &mut Model,
    beside: &Beside,
    width: u16,
    height: u16,
    colours: bool,
) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, model, beside, colours)).unwrap();
    terminal
}

fn lines(terminal: &Terminal<TestBackend>) -> Vec<String> {
    let buffer = terminal.backend().buffer();
    let row = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(|y| row(y).trim_end().to_owned()).collect()
}

#[test]
fn a_summary_the_changes_and_the_keys_are_shown() {
    let terminal = screen(&mut model(), 80, 12, false);
    assert_eq!(
        lines(&terminal),
        [
            "session 1",
            "+ 1 created (+1.5 KiB)  ~ 1 modified  - 1 deleted (-3 B)  m 1 permissions",
            "",
            "[ ] + created     a\\u{1b}[2Jb  (+1.5 KiB)",
            "[ ] ~ modified    deep/er/and/deeper/below/many/directories/name.rs",
            "[ ] - deleted     gone  (-3 B)",
            "[ ] m permissions mode",
            "",
            "",
            "",
            "1 of 4",
            KEYS,
        ]
    );
    assert!(KEYS.len() <= 80);
}

#[test]
fn a_small_screen_shows_the_row_at_the_cursor_and_the_end_of_a_long_name() {
    let mut model = model();
    model.press(KeyEvent::new(KeyCode::Char('j'), KeyModifiers::NONE));
    let terminal = screen(&mut model, 40, 4, false);
    let shown = lines(&terminal);
    assert_eq!(shown[1], "[ ] ~ modified    …y/directories/name.rs");
    assert_eq!(shown[2], "2 of 4");
    for (width, height) in [(0, 0), (1, 1), (3, 2), (10, 3), (200, 1)] {
        screen(&mut model, width, height, true);
    }
}

#[test]
fn colours_are_shown_only_when_they_are_wanted() {
    let colours = |wanted| {
        let terminal = screen(&mut model(), 80, 12, wanted);
        let buffer = terminal.backend().buffer();
        buffer.content().iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(colours(true));
    assert!(!colours(false));
}

#[test]
fn a_question_says_how_many_paths_it_is_about() {
    let mut model = model();
    for key in [' ', 'r'] {
        model.press(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE));
    }
    let terminal = screen(&mut model, 80, 12, false);
    let shown = lines(&terminal);
    assert_eq!(shown[0], "session 1  1 marked");
    assert_eq!(shown[10], "restore 1 marked path? [y/N]");
}

#[test]
fn a_wide_screen_has_the_difference_at_the_cursor_beside_the_list() {
    let beside = Beside::of_lines(1, &["@@ -1 +1 @@", "-old", "+new"]);
    let mut model = model();
    let shown = |model: &mut Model, width| lines(&with_beside(model, &beside, width, 12, true));
    // It is about another change.
    assert!(!shown(&mut model, 100).join("").contains('│'));
    model.press(KeyEvent::new(KeyCode::Char('j'), KeyModifiers::NONE));
    let wide = shown(&mut model, 100);
    let column = |line: &str| line.chars().position(|c| c == '│');
    assert_eq!(column(&wide[3]), Some(50));
    assert!(wide[3].ends_with("│ @@ -1 +1 @@") && wide[4].ends_with("│ -old"), "{wide:?}");
    assert!(wide[5].starts_with("[ ] - deleted     gone") && wide[5].ends_with("│ +new"));
    assert!(wide[4].contains("…/below/many"), "{}", wide[4]);
    assert!(!wide[2].contains('│') && !wide[10].contains('│'));
    assert!(!shown(&mut model, 99).join("").contains('│'));
    model.press(KeyEvent::new(KeyCode::Char('?'), KeyModifiers::NONE));
    assert!(!shown(&mut model, 100).join("").contains('│'));
    for (width, height) in [(100, 1), (100, 2), (100, 3), (300, 4)] {
        with_beside(&mut model, &beside, width, height, true);
    }
}

#[test]
fn added_and_removed_lines_beside_the_list_have_their_colours() {
    let beside = Beside::of_lines(0, &["--- a/x", "+++ b/x", "-old", "+new"]);
    let colours = |wanted| {
        let terminal = with_beside(&mut model(), &beside, 100, 12, wanted);
        let buffer = terminal.backend().buffer();
        [3, 4, 5, 6].map(|y| buffer[(52, y)].fg)
    };
    assert_eq!(colours(true), [Color::Reset, Color::Reset, Color::Red, Color::Green]);
    assert_eq!(colours(false), [Color::Reset; 4]);
}

#[test]
fn the_step_that_changed_the_path_at_the_cursor_is_named_and_no_other() {
    let mut model = model();
    model.set_step(Some("step 17 · Bash · rm -rf src".to_owned()));
    let shown = lines(&screen(&mut model, 80, 12, false));
    assert!(shown.contains(&"1 of 4  step 17 · Bash · rm -rf src".to_owned()), "{shown:?}");
    model.press(KeyEvent::new(KeyCode::Down, KeyModifiers::NONE));
    let shown = lines(&screen(&mut model, 80, 12, false));
    assert!(shown.contains(&"2 of 4".to_owned()), "{shown:?}");
}
