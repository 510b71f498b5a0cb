//! Chains, parents and removal, by names alone.

use proptest::prelude::*;

use super::*;

/// Archives by their names; one without a session is of `s`.
fn archives<T: AsRef<str>>(names: &[T]) -> Archives {
    let mut archives = Archives::default();
    for name in names.iter().map(AsRef::as_ref) {
        let name = if name.contains('/') { name.to_owned() } else { format!("s/{name}") };
        archives.insert(name.parse().unwrap(), 64);
    }
    archives
}

fn id(text: &str) -> ArchiveId {
    text.parse().unwrap()
}

fn ids<'a>(names: impl IntoIterator<Item = &'a ArchiveName>) -> Vec<String> {
    names.into_iter().map(|name| name.id.to_string()).collect()
}

fn kept(numbers: &[u64]) -> BTreeSet<ArchiveId> {
    numbers.iter().map(|number| ArchiveId::new("s", *number).unwrap()).collect()
}

fn removable(held: &Archives, wanted: &[u64]) -> Vec<u64> {
    held.removable(&kept(wanted), |_| true).iter().map(|name| name.id.number()).collect()
}

fn parent(number: u64, base: u64, depth: u32) -> Result<Parent, FullReason> {
    let id = |number| ArchiveId::new("s", number).unwrap();
    Ok(Parent { id: id(number), base: id(base), depth })
}

#[test]
fn a_chain_ends_at_a_full_archive_or_says_what_is_missing() {
    let held = archives(&[
        "0-full.tar.zst",
        "1-delta-0.tar.zst",
        "2-delta-1.tar.zst",
        "4-delta-3.tar.zst",
        "t/3-full.tar.zst",
    ]);
    assert_eq!(ids(held.chain(&id("s/2")).unwrap()), ["s/2", "s/1", "s/0"]);
    let (wanted, missing) = (id("s/4"), id("s/3"));
    assert_eq!(held.chain(&wanted), Err(ChainError::MissingParent { wanted, missing }));
    let missing = id("s/9");
    assert_eq!(held.chain(&missing), Err(ChainError::Missing { id: missing.clone() }));
}

#[test]
fn a_chain_goes_over_sessions_and_a_circle_of_them_gives_nothing() {
    let held = archives(&[
        "a/0-full.tar.zst",
        "a/1-delta-0.tar.zst",
        "b/0-delta-1-of-a.tar.zst",
        "c/0-delta-0-of-b.tar.zst",
        "c/1-delta-0.tar.zst",
        "d/0-delta-0-of-e.tar.zst",
        "e/0-delta-0-of-d.tar.zst",
    ]);
    let chain = held.chain(&id("c/1")).unwrap();
    assert_eq!(ids(chain), ["c/1", "c/0", "b/0", "a/1", "a/0"]);
    let found = held.as_parent(&id("c/1")).unwrap();
    assert_eq!(found, Parent { id: id("c/1"), base: id("a/0"), depth: 4 });
    assert_eq!(held.parents_of("c"), BTreeSet::from(["b"]));
    let wanted = id("d/0");
    assert_eq!(held.chain(&wanted), Err(ChainError::TooDeep { wanted }));
}

#[test]
fn a_chain_of_more_than_ten_deltas_is_refused() {
    let deltas = (1..=11).map(|n| format!("{n}-delta-{}.tar.zst", n - 1));
    let held = archives(&deltas.chain(["0-full.tar.zst".to_owned()]).collect::<Vec<_>>());
    assert_eq!(held.chain(&id("s/10")).unwrap().len(), 11);
    let wanted = id("s/11");
    assert_eq!(held.chain(&wanted), Err(ChainError::TooDeep { wanted }));
}

#[test]
fn a_full_archive_is_better_than_a_delta_and_the_own_session_than_another_one() {
    let of_other = "1-delta-7-of-t.tar.zst";
    let of_own = "1-delta-0.tar.zst";
    let full = "1-full.tar.zst.age";
    let best =
        |names: &[&str]| archives(names).best(&id("s/1")).map(ArchiveName::file_name).unwrap();
    assert_eq!(best(&[of_other, of_own]), of_own);
    assert_eq!(best(&[of_other, of_own, full]), full);
    assert_eq!(best(&["1-full.tar.zst", full]), "1-full.tar.zst");
}

#[test]
fn a_delta_depends_on_the_newest_older_snapshot_that_can_be_had() {
    let held = archives(&[
        "0-full.tar.zst",
        "1-delta-0.tar.zst",
        "3-delta-1.tar.zst.age",
        "4-full.tar.zst",
        "6-delta-5.tar.zst",
    ]);
    assert_eq!(held.available("s").unwrap(), [(0, 1), (1, 2), (3, 3), (4, 1)]);
    let all: Vec<u64> = (0..10).collect();
    assert_eq!(held.parent_for(&id("s/7"), &all), parent(4, 4, 0), "6 cannot be had");
    assert_eq!(held.parent_for(&id("s/3"), &all), parent(1, 0, 1));
    assert_eq!(held.parent_for(&id("s/0"), &all), Err(FullReason::NoParent));
    // The hashes of the others are unknown here.
    assert_eq!(held.parent_for(&id("s/7"), &[1, 5, 6]), parent(1, 0, 1));
    assert_eq!(held.parent_for(&id("s/7"), &[2, 7]), Err(FullReason::ParentNotHere));
}

#[test]
fn a_parent_is_as_deep_as_its_chain() {
    let mut names = vec!["0-full.tar.zst".to_owned()];
    for number in 1..=10 {
        let wanted = ArchiveId::new("s", number).unwrap();
        let found = archives(&names).parent_for(&wanted, &[number - 1]);
        assert_eq!(found, parent(number - 1, 0, number as u32 - 1));
        names.push(format!("{number}-delta-{}.tar.zst", number - 1));
    }
    assert_eq!(archives(&names).available("s").unwrap().last(), Some(&(10, 11)));
}

#[test]
fn what_a_wanted_snapshot_needs_stays_and_deltas_go_first() {
    let held = archives(&[
        "0-full.tar.zst",
        "1-delta-0.tar.zst",
        "2-delta-1.tar.zst",
        "3-full.tar.zst",
        "4-delta-3.tar.zst",
        "5-delta-4.tar.zst",
    ]);
    assert_eq!(removable(&held, &[4]), [5, 2, 1, 0]);
    assert_eq!(removable(&held, &[2]), [5, 4, 3]);
    assert_eq!(removable(&held, &[]), [5, 4, 3, 2, 1, 0]);
    let broken = archives(&["0-full.tar.zst", "1-delta-0.tar.zst", "3-delta-2.tar.zst"]);
    assert_eq!(removable(&broken, &[]), [1, 0], "3 may be mended");
}

#[test]
fn what_another_session_needs_stays() {
    let held = archives(&[
        "a/0-full.tar.zst",
        "a/1-delta-0.tar.zst",
        "a/2-delta-1.tar.zst",
        "b/0-delta-1-of-a.tar.zst",
        "b/1-delta-0.tar.zst",
    ]);
    let going = |wanted: &[&str], may_go: &[&str]| {
        let wanted = wanted.iter().map(|text| id(text)).collect();
        ids(held.removable(&wanted, |session| may_go.contains(&session)))
    };
    assert_eq!(going(&[], &["a"]), ["a/2"]);
    assert_eq!(going(&[], &["b"]), ["b/1", "b/0"]);
    assert_eq!(going(&["b/0"], &["a", "b"]), ["b/1", "a/2"]);
    assert_eq!(going(&[], &["a", "b"]), ["b/1", "b/0", "a/2", "a/1", "a/0"]);
    // The younger session goes first only if nothing depends on it.
    let turned = archives(&["b/0-full.tar.zst", "a/0-delta-0-of-b.tar.zst"]);
    assert_eq!(ids(turned.removable(&BTreeSet::new(), |_| true)), ["a/0", "b/0"]);
}

/// Archives of two sessions, whatever their chains: each is full, or a delta to a lower number
/// of its session, or to any number of the other one.
fn any_archives() -> impl Strategy<Value = BTreeSet<String>> {
    let archive = (0u64..10, 0u64..14, any::<bool>(), any::<bool>(), 0u8..4);
    let archive = archive.prop_map(|(number, parent, sealed, is_first, other)| {
        let end = if sealed { ".tar.zst.age" } else { ".tar.zst" };
        let (own, others) = if is_first { ("s", "t") } else { ("t", "s") };
        match (other, parent < number) {
            (0, _) => format!("{own}/{number}-delta-{parent}-of-{others}{end}"),
            (_, true) => format!("{own}/{number}-delta-{parent}{end}"),
            (_, false) => format!("{own}/{number}-full{end}"),
        }
    });
    prop::collection::btree_set(archive, 1..28)
}

proptest! {
    #[test]
    fn a_cleanup_takes_nothing_that_a_kept_snapshot_needs_and_all_else(
        names in any_archives(),
        keep in 0usize..6,
        only_first in any::<bool>(),
    ) {
        let list = names.iter().collect::<Vec<_>>();
        let held = archives(&list);
        let all: BTreeSet<ArchiveId> = held.all().map(|(name, _)| name.id.clone()).collect();
        let is_had = |id: &&ArchiveId| held.chain(id).is_ok();
        let may_go = |session: &str| session == "s" || !only_first;
        let had: BTreeSet<ArchiveId> = all.iter().filter(is_had).cloned().collect();
        let stays = had.iter().filter(|id| !may_go(id.session())).cloned();
        let wanted: BTreeSet<ArchiveId> =
            had.iter().filter(|id| may_go(id.session())).rev().take(keep).cloned().collect();
        let kept: BTreeSet<ArchiveId> = wanted.iter().cloned().chain(stays).collect();
        let removable = held.removable(&wanted, may_go);
        // A cleanup that is cut off anywhere.
        let mut left = held.clone();
        let mut gone: BTreeSet<ArchiveId> = BTreeSet::new();
        for name in &removable {
            prop_assert!(may_go(name.id.session()), "{name}");
            prop_assert!(left.of_snapshot(&name.id).any(|it| it == *name), "{name} twice");
            left.forget(name);
            gone.insert(name.id.clone());
            for id in had.iter().filter(|id| kept.contains(id) || !gone.contains(id)) {
                prop_assert!(left.chain(id).is_ok(), "{id} is lost with {name}: {left:?}");
            }
        }
        // An archive that cannot be had may be mended.
        for (name, _) in held.all().filter(|(name, _)| held.chain(&name.id).is_err()) {
            prop_assert!(left.of_snapshot(&name.id).any(|it| it == name), "{name} is gone");
        }
        // Nothing else stays.
        if had == all {
            let mut needed: BTreeSet<ArchiveId> = kept.clone();
            for (name, _) in held.all().filter(|(name, _)| kept.contains(&name.id)) {
                needed.extend(held.chain(&name.id).unwrap().iter().map(|it| it.id.clone()));
                let below = name.kind.parent().and_then(|below| held.chain(below).ok());
                needed.extend(below.unwrap_or_default().iter().map(|it| it.id.clone()));
            }
            let left: BTreeSet<ArchiveId> =
                left.all().map(|(name, _)| name.id.clone()).collect();
            prop_assert_eq!(left, needed);
        }
    }
}
