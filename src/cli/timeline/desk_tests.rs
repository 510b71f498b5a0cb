use super::*;
use crate::cli::looking::Node;

fn desk() -> Desk {
    let node = |depth, next, has_more| Node { depth, next, is_folded: has_more, has_more };
    let nodes = vec![node(0, 2, false), node(1, 2, false), node(0, 3, true)];
    let mut desk = Desk::new(Outline::new(nodes));
    let area = Rect { x: 0, y: 0, width: 80, height: 10 };
    desk.places = Places { list: area, difference: area, prefix: 0 };
    desk
}

fn press(desk: &mut Desk, code: KeyCode) -> Pressed {
    desk.press(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn arrows_fold_unfold_and_open() {
    let mut desk = desk();
    assert_eq!(press(&mut desk, KeyCode::Down), Pressed::Done);
    assert_eq!(press(&mut desk, KeyCode::Right), Pressed::Open);
    // To the row above, which then folds, and then the list is left.
    press(&mut desk, KeyCode::Left);
    assert_eq!(desk.outline.cursor(), 0);
    press(&mut desk, KeyCode::Left);
    assert_eq!(desk.outline.shown_count(), 2);
    assert_eq!(press(&mut desk, KeyCode::Left), Pressed::Back);
    assert_eq!(press(&mut desk, KeyCode::Right), Pressed::Done);
    assert_eq!(desk.outline.shown_count(), 3);
    press(&mut desk, KeyCode::End);
    assert_eq!(press(&mut desk, KeyCode::Right), Pressed::Unfolded(2));
}

#[test]
fn hunks_are_gone_through_one_by_one() {
    let mut desk = desk();
    desk.show(100, vec![2, 30, 95]);
    let mut tops = Vec::new();
    for key in ['n', 'n', 'n', 'n', 'p', 'p', 'p'] {
        press(&mut desk, KeyCode::Char(key));
        tops.push((desk.top(), desk.hunk().unwrap().0));
    }
    assert_eq!(tops, [(2, 1), (30, 2), (95, 3), (95, 3), (30, 2), (2, 1), (2, 1)]);
    assert_eq!(desk.message(), Some("no hunk before this one"));
    // Another difference begins at its top.
    desk.show(5, Vec::new());
    assert_eq!((desk.top(), desk.hunk()), (0, None));
}

#[test]
fn a_difference_scrolls_within_its_lines() {
    let mut desk = desk();
    desk.show(25, Vec::new());
    press(&mut desk, KeyCode::Tab);
    for (key, top) in [
        (KeyCode::Down, 1),
        (KeyCode::PageDown, 11),
        (KeyCode::PageDown, 15),
        (KeyCode::Up, 14),
        (KeyCode::Home, 0),
        (KeyCode::End, 15),
        (KeyCode::PageUp, 5),
    ] {
        press(&mut desk, key);
        assert_eq!(desk.top(), top, "{key:?}");
    }
    assert!(desk.is_near_end());
    press(&mut desk, KeyCode::Esc);
    assert_eq!(desk.focus, Focus::List);
}

#[test]
fn the_help_and_a_search_take_their_keys() {
    let mut desk = desk();
    press(&mut desk, KeyCode::Char('?'));
    assert_eq!((desk.mode, press(&mut desk, KeyCode::Char('q'))), (Mode::Help, Pressed::Done));
    press(&mut desk, KeyCode::Char('/'));
    assert_eq!(press(&mut desk, KeyCode::Char('q')), Pressed::Searched);
    assert_eq!(press(&mut desk, KeyCode::Char('u')), Pressed::Searched);
    assert_eq!(press(&mut desk, KeyCode::Backspace), Pressed::Searched);
    assert_eq!(desk.search(), "q");
    press(&mut desk, KeyCode::Enter);
    assert_eq!(desk.mode, Mode::Looking);
    assert_eq!(press(&mut desk, KeyCode::Esc), Pressed::Searched);
    assert_eq!(press(&mut desk, KeyCode::Esc), Pressed::Back);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    for key in ['?', '/'] {
        press(&mut desk, KeyCode::Char(key));
        assert_eq!(desk.press(interrupt), Pressed::Interrupt);
        press(&mut desk, KeyCode::Esc);
    }
}
