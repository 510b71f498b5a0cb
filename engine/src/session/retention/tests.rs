//! Retention as a pure function: facts in, removed sessions out.

use super::*;

/// A session that changed something, and began so many days before now.
fn session(id: &str, project: &str, days_ago: i64) -> SessionFacts {
    hours(id, project, 24 * days_ago)
}

fn hours(id: &str, project: &str, hours_ago: i64) -> SessionFacts {
    let started = now() - SignedDuration::from_hours(hours_ago);
    SessionFacts {
        is_received: false,
        is_named: false,
        session_id: id.into(),
        started,
        last_used: started,
        is_running: false,
        is_pinned: false,
        content: SessionContent::Changes,
        project: project.into(),
    }
}

fn idle(id: &str, project: &str, days_ago: i64) -> SessionFacts {
    SessionFacts { content: SessionContent::Nothing, ..session(id, project, days_ago) }
}

fn state(id: &str, days_ago: i64, state: &str) -> SessionFacts {
    let content = SessionContent::State(ContentHash::of(state.as_bytes()));
    SessionFacts { content, ..session(id, "p", days_ago) }
}

fn pinned(facts: SessionFacts) -> SessionFacts {
    SessionFacts { is_pinned: true, ..facts }
}

fn running(facts: SessionFacts) -> SessionFacts {
    SessionFacts { is_running: true, ..facts }
}

fn now() -> Timestamp {
    Timestamp::from_second(2_000_000_000).unwrap()
}

fn policy(days: Option<i64>, count: Option<u64>, bytes: Option<u64>) -> RetentionPolicy {
    RetentionPolicy {
        max_age: days.map(|days| SignedDuration::from_hours(24 * days)),
        max_sessions: count,
        max_storage_bytes: bytes,
        keep: KeepRules::default(),
    }
}

fn expired(
    policy: RetentionPolicy,
    sessions: &[SessionFacts],
    usage: Option<&StorageUsage>,
) -> Vec<(String, Expiry)> {
    let expired = policy.expired(sessions, now(), usage);
    expired.into_iter().map(|expired| (expired.session_id, expired.reason)).collect()
}

fn ids(expired: Vec<(String, Expiry)>) -> Vec<String> {
    expired.into_iter().map(|(id, _)| id).collect()
}

/// The sessions that are too many if a project may have so many.
fn beyond(count: u64, sessions: &[SessionFacts]) -> Vec<String> {
    ids(expired(policy(None, Some(count), None), sessions, None))
}

fn usage(total_bytes: u64, freed: &[(&str, u64)]) -> StorageUsage {
    let freed = freed.iter().map(|(id, bytes)| ((*id).to_owned(), *bytes));
    StorageUsage { total_bytes, freed_bytes: freed.collect() }
}

#[test]
fn no_limit_removes_nothing() {
    let sessions = [session("a", "p", 1000), idle("b", "p", 900), session("c", "p", 1)];
    let much = usage(u64::MAX, &[("a", 1)]);
    assert_eq!(expired(policy(None, None, None), &sessions, Some(&much)), []);
}

#[test]
fn the_number_counts_for_each_project() {
    let p = (1..=4).map(|age| session(&format!("p{age}"), "p", 10 * age));
    let q = (1..=3).map(|age| session(&format!("q{age}"), "q", 100 * age));
    let sessions: Vec<_> = p.chain(q).collect();
    assert_eq!(beyond(4, &sessions), Vec::<String>::new());
    assert_eq!(beyond(3, &sessions), ["p4"]);
    assert_eq!(beyond(1, &sessions), ["q3", "q2", "p4", "p3", "p2"]);
    assert_eq!(beyond(0, &sessions), ["q3", "q2", "p4", "p3", "p2"], "the newest stay");
}

#[test]
fn sessions_without_changes_push_no_other_out_and_go_first() {
    let mut sessions = vec![session("old", "p", 90), session("older", "p", 100)];
    sessions.extend((0..10).map(|age| idle(&format!("i{age}"), "p", 10 + age)));
    assert_eq!(
        beyond(10, &sessions),
        ["i9", "i8"],
        "ten are kept, and both that changed something are among them"
    );
    assert_eq!(beyond(2, &sessions).len(), 9, "the newest of the project stays");
    assert_eq!(beyond(1, &sessions).last().unwrap(), "older");
    assert!(!beyond(0, &sessions).contains(&"old".to_owned()));
}

#[test]
fn nothing_of_the_last_day_goes_unless_space_demands_it() {
    let mut sessions: Vec<_> = (0..30).map(|age| hours(&format!("{age:02}"), "p", age)).collect();
    sessions[29].last_used = now();
    assert_eq!(beyond(1, &sessions), ["28", "27", "26", "25", "24"]);
    let much = usage(100, &[("28", 10), ("23", 80)]);
    let gone = expired(policy(None, None, Some(50)), &sessions, Some(&much));
    assert_eq!(gone.iter().map(|(id, _)| id.as_str()).next_back(), Some("23"));
    assert!(gone.iter().all(|(id, _)| id != "00"));
    // It was used a moment ago, so it is younger than those of a day.
    let order = policy(None, None, None);
    let order = order.removable(&sessions, now());
    assert_eq!((&*order[0].session_id, &*order[5].session_id), ("28", "29"));
}

#[test]
fn pinned_and_running_sessions_stay_and_take_nobodys_place() {
    let sessions = [
        running(session("r", "p", 900)),
        pinned(session("pin", "p", 800)),
        session("a", "p", 700),
        session("b", "p", 600),
    ];
    assert_eq!(beyond(2, &sessions), Vec::<String>::new());
    let all = policy(Some(1), Some(0), Some(0));
    let much = usage(100, &[("r", 1), ("pin", 1), ("a", 1), ("b", 1)]);
    assert_eq!(expired(all, &sessions, Some(&much)), [("a".to_owned(), Expiry::TooOld)]);
}

#[test]
fn a_state_that_a_younger_snapshot_holds_is_of_no_use() {
    let sessions = [
        state("a", 50, "one"),
        state("b", 40, "two"),
        state("c", 30, "one"),
        session("d", "p", 20),
    ];
    assert_eq!(beyond(3, &sessions), ["a"]);
    assert_eq!(beyond(2, &sessions), ["a", "b"]);
    // The state of another project is not the state of this one.
    let mut other = sessions.clone();
    other[2].project = "q".into();
    assert_eq!(beyond(3, &other), Vec::<String>::new());
}

#[test]
fn the_too_old_go_first_then_the_too_many_then_the_too_large() {
    // Not in the order of their age.
    let sessions = [
        session("d", "p", 4),
        session("a", "p", 50),
        session("e", "p", 1),
        session("b", "p", 40),
        session("c", "p", 10),
    ];
    let held = usage(100, &[("a", 30), ("b", 0), ("c", 5), ("d", 10)]);
    assert_eq!(
        expired(policy(Some(45), Some(4), Some(60)), &sessions, Some(&held)),
        [
            ("a".to_owned(), Expiry::TooOld),
            // 4 are left, and 70 bytes.
            ("b".to_owned(), Expiry::TooLarge),
            ("c".to_owned(), Expiry::TooLarge),
            ("d".to_owned(), Expiry::TooLarge),
        ]
    );
    assert_eq!(
        expired(policy(Some(45), Some(2), Some(70)), &sessions, Some(&held)),
        [
            ("a".to_owned(), Expiry::TooOld),
            ("b".to_owned(), Expiry::TooMany),
            ("c".to_owned(), Expiry::TooMany),
        ]
    );
}

#[test]
fn what_goes_for_its_number_is_measured_before_what_goes_for_space() {
    let sessions =
        [session("q", "q", 90), session("q2", "q", 1), session("a", "p", 5), idle("i", "p", 3)];
    let policy = policy(None, Some(1), Some(10));
    let order = |policy: RetentionPolicy| -> Vec<String> {
        let order = policy.removable(&sessions, now());
        order.into_iter().map(|facts| facts.session_id.clone()).collect()
    };
    assert_eq!(order(policy), ["q"]);
    let sessions = [session("x", "q", 99), sessions[3].clone(), session("b", "p", 1)];
    let sessions = [&sessions[..], &[session("c", "q", 50)], &[session("d", "q", 40)]].concat();
    let of = |max| RetentionPolicy { max_sessions: max, ..policy };
    let order = |policy: RetentionPolicy| -> Vec<String> {
        let order = policy.removable(&sessions, now());
        order.into_iter().map(|facts| facts.session_id.clone()).collect()
    };
    assert_eq!(order(of(None)), ["i", "x", "c"]);
    assert_eq!(order(of(Some(2))), ["x", "i", "c"]);
}

#[test]
fn what_older_ones_free_counts_before_another_one_goes() {
    let sessions = [session("a", "p", 3), session("b", "p", 2), session("c", "p", 1)];
    let held = usage(100, &[("a", 50), ("b", 20)]);
    let of = |bytes| expired(policy(None, None, Some(bytes)), &sessions, Some(&held)).len();
    assert_eq!((of(100), of(99), of(50), of(49), of(0)), (0, 1, 1, 2, 2));
}

#[test]
fn nothing_goes_for_space_that_does_not_become_free() {
    let sessions: Vec<_> = (0..5).map(|age| session(&age.to_string(), "p", 9 - age)).collect();
    let of = |freed: &[(&str, u64)]| {
        expired(policy(None, None, Some(1)), &sessions, Some(&usage(100, freed))).len()
    };
    assert_eq!(of(&[]), 0);
    // The sessions before the one that frees something have to go for it.
    assert_eq!(of(&[("2", 1)]), 3);
    assert_eq!(of(&[("0", 1)]), 1);
}

#[test]
fn of_two_that_began_at_once_the_greater_id_is_the_newer() {
    assert_eq!(beyond(1, &[session("b", "p", 1), session("a", "p", 1)]), ["a"]);
}

#[test]
fn what_was_recorded_under_a_wrong_clock_is_not_the_newest_and_is_young() {
    let sessions = [session("a", "p", -5), session("b", "p", 0), session("c", "p", -6)];
    assert_eq!(beyond(1, &sessions), Vec::<String>::new());
    let order = policy(None, None, None);
    let order: Vec<_> = order.removable(&sessions, now());
    assert_eq!(order.iter().map(|it| it.session_id.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    assert_eq!(expired(policy(Some(1), None, None), &sessions, None), []);
}

#[test]
fn what_a_session_holds_follows_from_its_manifest() {
    let roots = |names: &[&str]| -> Vec<ContentHash> {
        names.iter().map(|name| ContentHash::of(name.as_bytes())).collect()
    };
    let mut session = SessionMetadata::new("s".into(), Vec::new(), Vec::new());
    let of = |session: &SessionMetadata, status| SessionContent::of(session, status);
    let completed = SessionStatus::Completed;
    assert_eq!(of(&session, completed), SessionContent::Nothing);
    session.merkle_roots = roots(&["a"]);
    let state = SessionContent::State(session.merkle_roots[0]);
    assert_eq!(of(&session, SessionStatus::Open), state);
    session.merkle_roots = roots(&["a", "a"]);
    assert_eq!(of(&session, SessionStatus::Open), state);
    session.origin = SessionOrigin::Run;
    assert_eq!(of(&session, completed), SessionContent::Nothing);
    assert_eq!(of(&session, SessionStatus::Interrupted), SessionContent::Changes);
    // Times alone are no change.
    session.merkle_roots = roots(&["a", "b"]);
    assert_eq!(of(&session, completed), SessionContent::Nothing);
    // The state that a restore replaced.
    session.merkle_roots = roots(&["a", "a", "b"]);
    assert_eq!(of(&session, completed), SessionContent::Changes);
    session.merkle_roots = roots(&["a", "b"]);
    session.changes = None;
    assert_eq!(of(&session, completed), SessionContent::Changes, "they could not be counted");
}

#[test]
fn a_received_session_takes_no_place_of_those_that_were_recorded_here() {
    let received = |facts| SessionFacts { is_received: true, ..facts };
    let sessions =
        [session("own", "p", 10), session("older", "p", 20), received(session("in", "p", 2))];
    assert_eq!(beyond(1, &sessions), ["older"]);
    // Neither does its state make one that is recorded here idle.
    let sessions =
        [state("own", 10, "a"), received(state("in", 2, "a")), session("newest", "p", 5)];
    assert_eq!(beyond(2, &sessions), Vec::<String>::new());
}

#[test]
fn sessions_of_the_last_day_that_a_limit_would_let_go_are_counted() {
    let sessions: Vec<_> = (1..=4).map(|at| hours(&format!("s{at}"), "p", at)).collect();
    assert_eq!(policy(None, Some(1), None).young(&sessions, now()), 3);
    assert_eq!(policy(None, Some(4), None).young(&sessions, now()), 0);
    assert_eq!(beyond(1, &sessions), Vec::<String>::new());
}

#[test]
fn a_snapshot_by_hand_does_not_expose_the_newest_session_with_changes() {
    let sessions = [session("run", "p", 50), session("last", "p", 40), state("s", 30, "one")];
    assert_eq!(beyond(1, &sessions), ["run"]);
    let much = usage(100, &[("run", 1), ("last", 90), ("s", 1)]);
    let gone = expired(policy(None, None, Some(0)), &sessions, Some(&much));
    assert_eq!(ids(gone), ["run"]);
}

#[test]
fn a_session_with_a_name_goes_after_those_without() {
    let named = |facts| SessionFacts { is_named: true, ..facts };
    let at_most = |max| RetentionPolicy { max_sessions: Some(max), ..RetentionPolicy::default() };
    let sessions = [
        named(session("good", "p", 40)),
        session("a", "p", 30),
        session("b", "p", 20),
        session("c", "p", 10),
    ];
    let gone = |max| expired(at_most(max), &sessions, None).into_iter().map(|(id, _)| id);
    assert_eq!(gone(3).collect::<Vec<_>>(), ["a"]);
    assert_eq!(gone(2).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(gone(1).collect::<Vec<_>>(), ["a", "b", "good"]);
    // A name is a reason to keep a state that a younger session holds as well.
    let twice = [named(state("good", 40, "s")), state("a", 30, "s"), session("b", "p", 5)];
    let gone = expired(at_most(2), &twice, None).into_iter().map(|(id, _)| id);
    assert_eq!(gone.collect::<Vec<_>>(), ["a"]);
}

#[test]
fn a_clock_that_jumped_ahead_removes_nothing_for_its_age_and_spares_the_last_day() {
    const YEARS: i64 = 12 * 365;
    // Four sessions of one day, under the clock as it was; then one under the clock that jumped.
    let before = |id, hours_ago| hours(id, "p", 24 * YEARS + hours_ago);
    let sessions = [
        before("a", 40 * 24),
        before("b", 5),
        before("c", 4),
        before("d", 3),
        session("e", "p", 0),
    ];
    let strict = policy(Some(30), Some(1), None);
    assert_eq!(expired(strict, &sessions, None), [("a".to_owned(), Expiry::TooOld)]);
    // Sessions that come under the new clock are counted as ever.
    let more =
        [&sessions[..4], &[session("e", "p", 2), session("f", "p", 2), session("g", "p", 0)]];
    let gone = expired(policy(None, Some(1), None), &more.concat(), None);
    assert_eq!(ids(gone), ["a", "e", "f"]);
    // The clock goes on so for a week: ages count again.
    let later = [&sessions[..4], &[session("e", "p", 8), session("f", "p", 0)]].concat();
    let gone = expired(policy(Some(30), None, None), &later, None);
    assert_eq!(ids(gone), ["a", "b", "c", "d"]);
}

#[test]
fn a_clock_that_was_put_back_removes_nothing_for_its_age() {
    let ahead = SessionFacts {
        started: now() + SignedDuration::from_hours(24 * 4000),
        last_used: now() + SignedDuration::from_hours(24 * 4000),
        ..session("ahead", "p", 0)
    };
    let sessions = [session("a", "p", 3), ahead, session("b", "p", 0)];
    assert_eq!(expired(policy(Some(30), None, None), &sessions, None), []);
}
