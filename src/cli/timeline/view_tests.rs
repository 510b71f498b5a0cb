use super::*;
use crate::cli::looking::Renames;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use nono_engine::diff::Change;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn change(path: &str, change_type: ChangeType, size_delta: Option<i64>) -> Change {
    Change { path: path.into(), change_type, size_delta, is_directory: false }
}

fn page_of(changes: Vec<Change>, renames: Renames) -> Changes {
    let (title, roots) = ("session 1".to_owned(), vec!["/p".into()]);
    let page = Changes::new(title, changes, roots, renames, Purpose::Deciding);
    page.with_facts(vec!["$ make".to_owned()])
}

fn page() -> Changes {
    let deep = "/p/deep/er/and/deeper/below/many/directories/name.rs";
    let changes = vec![
        change("/p/a\u{1b}[2Jb", ChangeType::Created, Some(1500)),
        change(deep, ChangeType::Modified, None),
        change("/p/gone", ChangeType::Deleted, Some(-3)),
        change("/p/mode", ChangeType::PermissionsChanged, None),
    ];
    page_of(changes, Renames::new())
}

fn press(page: &mut Changes, code: KeyCode) {
    let pressed = page.desk.press(KeyEvent::new(code, KeyModifiers::NONE));
    page.take(pressed);
}

fn screen(page: &mut Changes, width: u16, height: u16, colours: bool) -> Terminal<TestBackend> {
    with_difference(page, &Difference::default(), width, height, colours)
}

fn with_difference(
    page: &mut Changes,
    difference: &Difference,
    width: u16,
    height: u16,
    colours: bool,
) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, page, difference, colours)).unwrap();
    terminal
}

fn lines(terminal: &Terminal<TestBackend>) -> Vec<String> {
    let buffer = terminal.backend().buffer();
    let row = |y| (0..buffer.area.width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..buffer.area.height).map(|y| row(y).trim_end().to_owned()).collect()
}

fn marked(kind: LineKind, text: &str) -> MarkedLine {
    MarkedLine { number: Some(7), ..MarkedLine::remark(kind, text.to_owned()) }
}

#[test]
fn a_summary_the_changes_and_the_keys_are_shown() {
    let terminal = screen(&mut page(), 80, 16, false);
    assert_eq!(
        lines(&terminal),
        [
            "session 1",
            "$ make",
            "+1 file (+1.5 KiB)  ~1 modified  -1 deleted (-3 B)  ±1 permission",
            "",
            "[ ] + created     a\\u{1b}[2Jb  (+1.5 KiB)",
            "[ ] ~ modified    deep/er/and/deeper/below/many/directories/name.rs",
            "[ ] - deleted     gone  (-3 B)",
            "[ ] m permissions mode",
            "",
            "",
            "",
            "",
            "",
            "",
            "1 of 4",
            KEYS_DECIDING,
        ]
    );
    assert!(KEYS_DECIDING.len() <= 80);
}

#[test]
fn directories_are_a_tree_and_a_rename_says_where_from() {
    let changes = vec![
        change("/p/old.rs", ChangeType::Deleted, Some(-9)),
        change("/p/src/a", ChangeType::Modified, Some(4)),
        change("/p/src/sub", ChangeType::Created, None),
        change("/p/src/sub/b", ChangeType::Created, Some(9)),
    ];
    let mut page = page_of(changes, Renames::from([(3, 0)]));
    let shown = lines(&screen(&mut page, 60, 12, false));
    let rows = &shown[shown.iter().position(|row| row.starts_with("[ ]")).unwrap()..];
    assert_eq!(
        rows[..4],
        [
            "[ ]               ▾ src/  (3)",
            "[ ] ~ modified      a  (+4 B)",
            "[ ] + created       ▾ sub/",
            "[ ] r renamed         b ← old.rs",
        ]
    );
    press(&mut page, KeyCode::Left);
    let shown = lines(&screen(&mut page, 30, 8, false));
    assert_eq!(shown[1], "[ ]   ▸ src/  (3)");
    assert_eq!(shown[6], "1 of 1");
}

#[test]
fn a_small_screen_shows_the_row_at_the_cursor_and_the_end_of_a_long_name() {
    let mut page = page();
    press(&mut page, KeyCode::Char('j'));
    let terminal = screen(&mut page, 40, 4, false);
    let shown = lines(&terminal);
    assert_eq!(shown[1], "[ ] ~ …er/below/many/directories/name.rs");
    assert_eq!(shown[2], "2 of 4");
    for (width, height) in [(0, 0), (1, 1), (3, 2), (10, 3), (200, 1), (100, 3), (300, 4)] {
        let difference = Difference::of_lines(1, vec![marked(LineKind::Added, "x"); 9]);
        with_difference(&mut page, &difference, width, height, true);
        press(&mut page, KeyCode::Tab);
        with_difference(&mut page, &difference, width, height, true);
        press(&mut page, KeyCode::Tab);
    }
}

#[test]
fn colours_are_shown_only_when_they_are_wanted() {
    let words = vec![0..1; 1];
    let line = MarkedLine { words, ..marked(LineKind::Added, "x = 1") };
    let difference = Difference::of_lines(0, vec![line, marked(LineKind::Removed, "y")]);
    let colours = |wanted| {
        let terminal = with_difference(&mut page(), &difference, 120, 12, wanted);
        let buffer = terminal.backend().buffer();
        buffer.content().iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(colours(true));
    assert!(!colours(false));
}

#[test]
fn a_question_says_how_many_paths_it_is_about() {
    let mut page = page();
    for key in [' ', 'r'] {
        press(&mut page, KeyCode::Char(key));
    }
    let shown = lines(&screen(&mut page, 80, 12, false));
    assert_eq!(shown[0], "session 1  1 marked");
    assert_eq!(shown[10], "restore 1 marked path? [y/N/?]");
    press(&mut page, KeyCode::Char('?'));
    let shown = lines(&screen(&mut page, 80, 12, false));
    assert_eq!(shown[10], "y: restore; another key: do nothing");
    assert_eq!(page.marked_count(), 1);
    for key in ['n', 'k', ' ', 'r'] {
        press(&mut page, KeyCode::Char(key));
    }
    let shown = lines(&screen(&mut page, 80, 12, false));
    assert_eq!(shown[10], "restore deep/er/and/deeper/below/many/directories/name.rs? [y/N/?]");
}

#[test]
fn a_wide_screen_has_the_difference_at_the_cursor_beside_the_list() {
    let lines_of = [
        marked(LineKind::Hunk, "@@ -1 +1 @@"),
        marked(LineKind::Removed, "old"),
        marked(LineKind::Added, "new"),
    ];
    let difference = Difference::of_lines(1, lines_of.to_vec());
    let mut page = page();
    let shown =
        |page: &mut Changes, width| lines(&with_difference(page, &difference, width, 12, true));
    // It is about another row.
    assert!(!shown(&mut page, 100).join("").contains('│'));
    press(&mut page, KeyCode::Char('j'));
    let wide = shown(&mut page, 100);
    let column = |line: &str| line.chars().position(|c| c == '│');
    assert_eq!(column(&wide[3]), Some(50));
    assert!(wide[3].ends_with("│ @@ -1 +1 @@") && wide[4].ends_with("│ -old"), "{wide:?}");
    assert!(wide[5].starts_with("[ ] - deleted     gone") && wide[5].ends_with("│ +new"));
    assert!(!wide[2].contains('│') && !wide[10].contains('│'));
    // On a very wide one, with the numbers of the lines.
    assert!(shown(&mut page, 200)[4].ends_with("│    7 -old"));
    assert!(!shown(&mut page, 99).join("").contains('│'));
    // On a narrow one it has all columns when it is looked at.
    press(&mut page, KeyCode::Right);
    assert!(shown(&mut page, 30).contains(&"-old".to_owned()));
    press(&mut page, KeyCode::Esc);
    press(&mut page, KeyCode::Char('?'));
    assert!(!shown(&mut page, 100).join("").contains('│'));
}

#[test]
fn lines_have_their_colours_and_changed_words_are_marked() {
    let words = vec![1..3; 1];
    let lines_of = vec![
        marked(LineKind::Same, "s"),
        marked(LineKind::Removed, "-- old"),
        MarkedLine { words, ..marked(LineKind::Added, "abcd") },
    ];
    let difference = Difference::of_lines(0, lines_of);
    let cells = |wanted: bool| {
        let terminal = with_difference(&mut page(), &difference, 100, 12, wanted);
        let buffer = terminal.backend().buffer();
        let colours = [3, 4, 5].map(|y| buffer[(52, y)].fg);
        let marked = [53, 54, 55, 56].map(|x| !(buffer[(x, 5)].modifier).is_empty());
        (colours, marked)
    };
    let marks = [false, true, true, false];
    assert_eq!(cells(true), ([Color::Reset, Color::Red, Color::Green], marks));
    assert_eq!(cells(false), ([Color::Reset; 3], marks));
}

#[test]
fn the_step_that_changed_the_path_at_the_cursor_is_named_and_no_other() {
    let mut page = page();
    page.set_step(Some("step 17 · Bash · rm -rf src".to_owned()));
    let shown = lines(&screen(&mut page, 80, 12, false));
    assert!(shown.contains(&"1 of 4  step 17 · Bash · rm -rf src".to_owned()), "{shown:?}");
    press(&mut page, KeyCode::Down);
    let shown = lines(&screen(&mut page, 80, 12, false));
    assert!(shown.contains(&"2 of 4".to_owned()), "{shown:?}");
}

#[test]
fn the_mouse_selects_opens_folds_marks_and_scrolls() {
    let changes = (0..50).map(|n| change(&format!("/p/d/{n:02}"), ChangeType::Created, Some(1)));
    let mut page = page_of(changes.collect(), Renames::new());
    let difference = Difference::of_lines(3, vec![marked(LineKind::Added, "x"); 90]);
    let draw = |page: &mut Changes| with_difference(page, &difference, 120, 20, false);
    draw(&mut page);
    let mouse = |page: &mut Changes, kind, column, row| {
        let pressed =
            page.desk.mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE });
        page.take(pressed);
        draw(page);
    };
    let click = MouseEventKind::Down(MouseButton::Left);
    // The list begins below four lines of the head.
    mouse(&mut page, click, 30, 7);
    assert_eq!((page.desk.outline.cursor(), page.desk.focus), (3, Focus::List));
    mouse(&mut page, click, 30, 7);
    assert_eq!(page.desk.focus, Focus::Difference);
    page.desk.show(90, vec![0, 40]);
    mouse(&mut page, MouseEventKind::ScrollDown, 90, 7);
    assert_eq!((page.desk.top(), page.desk.outline.cursor()), (3, 3));
    mouse(&mut page, MouseEventKind::ScrollDown, 10, 7);
    assert_eq!(page.desk.outline.cursor(), 6);
    mouse(&mut page, click, 1, 8);
    assert_eq!((page.marked_count(), page.desk.outline.cursor()), (1, 5));
    // The mark of folding of the directory.
    mouse(&mut page, click, 18, 4);
    assert_eq!(page.desk.outline.shown_count(), 1);
    // Nowhere.
    mouse(&mut page, click, 30, 0);
    mouse(&mut page, click, 30, 19);
    assert_eq!(page.desk.outline.shown_count(), 1);
}

#[cfg(feature = "syntax")]
#[test]
fn code_has_its_colours_and_changed_words_keep_their_marks() {
    let file = Some("a.rs".into());
    let line = MarkedLine { file, words: vec![4..5; 1], ..marked(LineKind::Added, "let x = 1;") };
    let mut difference = Difference::of_lines(0, vec![line]);
    assert!(!difference.is_coloured());
    difference.colour();
    assert!(difference.is_coloured());
    let colours = |wanted| {
        let terminal = with_difference(&mut page(), &difference, 100, 12, wanted);
        let buffer = terminal.backend().buffer();
        [52, 53, 57].map(|x| buffer[(x, 3)].fg)
    };
    assert_eq!(colours(true), [Color::Green, Color::Magenta, Color::Green]);
    assert_eq!(colours(false), [Color::Reset; 3]);
}

/// A page that counts the rows that are made.
struct Counting<'a>(&'a mut Changes, std::cell::Cell<usize>);

impl Page for Counting<'_> {
    fn desk(&self) -> &Desk {
        &self.0.desk
    }
    fn desk_mut(&mut self) -> &mut Desk {
        &mut self.0.desk
    }
    fn split_from(&self) -> u16 {
        self.0.split_from()
    }
    fn head(&self, area: Rect, colours: bool) -> Vec<Line<'static>> {
        self.0.head(area, colours)
    }
    fn prefix(&self, width: usize) -> u16 {
        self.0.prefix(width)
    }
    fn row(&self, index: usize, width: usize, colours: bool) -> Line<'static> {
        self.1.set(self.1.get() + 1);
        Page::row(&*self.0, index, width, colours)
    }
    fn question(&self, width: usize) -> Option<String> {
        Page::question(&*self.0, width)
    }
    fn remark(&self) -> Option<String> {
        self.0.remark()
    }
    fn keys(&self) -> &'static str {
        self.0.keys()
    }
    fn help(&self) -> Vec<&'static str> {
        self.0.help()
    }
}

#[test]
fn of_a_hundred_thousand_changes_only_the_rows_that_fit_are_made() {
    let path = |n| format!("/p/d{:03}/f{n:06}", n / 1000);
    let changes = (0..100_000).map(|n| change(&path(n), ChangeType::Created, Some(1)));
    let mut page = page_of(changes.collect(), Renames::new());
    let drawn = |page: &mut Changes| {
        let mut counting = Counting(page, 0.into());
        let mut terminal = Terminal::new(TestBackend::new(200, 50)).unwrap();
        let difference = Difference::default();
        terminal.draw(|frame| draw(frame, &mut counting, &difference, true)).unwrap();
        counting.1.get()
    };
    // The directories are folded at first.
    assert_eq!(page.desk.outline.shown_count(), 100);
    assert_eq!(drawn(&mut page), 44);
    for key in [KeyCode::Right, KeyCode::End, KeyCode::Char('a'), KeyCode::PageUp] {
        press(&mut page, key);
        assert_eq!(drawn(&mut page), 44, "{key:?}");
    }
    assert_eq!(page.marked_count(), 100_000);
    for key in "/f0999".chars() {
        press(&mut page, KeyCode::Char(key));
        assert!(drawn(&mut page) <= 44);
    }
    assert_eq!(page.desk.outline.match_count(), Some(100));
}
