use super::*;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

fn store() -> (tempfile::TempDir, LocalStore) {
    let temp = tempfile::tempdir().unwrap();
    let store = LocalStore::create(&temp.path().join("objects")).unwrap();
    (temp, store)
}

fn file_with(temp: &tempfile::TempDir, len: u64, writes: &[(u64, &[u8])]) -> File {
    let file = File::create_new(temp.path().join("source")).unwrap();
    file.set_len(len).unwrap();
    for (at, bytes) in writes {
        file.write_all_at(bytes, *at).unwrap();
    }
    File::open(temp.path().join("source")).unwrap()
}

/// Stops when it was asked so often.
struct StopsWhenAsked {
    left: std::sync::atomic::AtomicU32,
}

impl StopsWhenAsked {
    fn after(times: u32) -> Self {
        Self { left: times.into() }
    }
}

impl crate::progress::Progress for StopsWhenAsked {
    fn advance(&self, _: u64, _: u64) {}

    fn is_cancelled(&self) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err()
    }
}

#[test]
fn a_cancel_while_a_damaged_object_is_looked_at_again_is_no_damage() {
    let (_temp, store) = store();
    let hash = store.write(&[7; 3 << 20]).unwrap().hash;
    let path = store.object_path(&hash);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    File::options().write(true).open(&path).unwrap().write_all_at(b"x", 5).unwrap();
    let watched = |times, look: &dyn Fn(&mut Transfer<'_>) -> Result<(), StoreError>| {
        look(&mut Transfer::new(&mut Vec::new(), &StopsWhenAsked::after(times)))
    };
    let look = |transfer: &mut Transfer<'_>| store.open_object(&hash)?.verify(transfer);
    let open =
        |transfer: &mut Transfer<'_>| store.open_intact(&hash, 3 << 20, transfer).map(|_| ());
    let is_damage = |result| matches!(result, Err(StoreError::Corrupt { .. }));
    let once = (0..).find(|times| is_damage(watched(*times, &look))).unwrap();
    assert!(once > 0);
    for times in 0..2 * once {
        assert!(matches!(watched(times, &open), Err(StoreError::Cancelled)), "{times}");
    }
    assert!(is_damage(watched(2 * once, &open)));
}

#[test]
fn an_object_is_stored_once_under_the_hash_of_its_bytes() {
    let (_temp, store) = store();
    let first = store.write(b"hello").unwrap();
    assert!(first.is_new);
    assert!(!store.write(b"hello").unwrap().is_new);
    let path = store.object_path(&first.hash);
    assert!(path.ends_with("2c/f24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o400);
    assert_eq!(store.read(&first.hash, 5).unwrap(), b"hello");
}

#[test]
fn a_changed_object_is_never_read() {
    let (_temp, store) = store();
    let hash = store.write(b"hello").unwrap().hash;
    let path = store.object_path(&hash);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, b"hellO").unwrap();
    assert!(matches!(store.read(&hash, 100), Err(StoreError::Corrupt { .. })));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(store.read(&hash, 100), Err(StoreError::Missing { .. })));
}

#[test]
fn an_object_that_a_power_failure_cut_short_is_replaced() {
    let (_temp, store) = store();
    let hash = store.write(b"hello").unwrap().hash;
    let path = store.object_path(&hash);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, b"").unwrap();
    assert!(!store.contains(&hash, 5).unwrap());
    store.write(b"hello").unwrap();
    assert_eq!(store.read(&hash, 5).unwrap(), b"hello");
}

#[test]
fn large_files_are_stored_with_their_holes() {
    let (temp, store) = store();
    let len = 64 << 20;
    let source = file_with(&temp, len, &[(5 << 20, b"middle"), (len - 3, b"end")]);
    let mut scratch = Vec::new();
    let imported =
        store.import(&source, len, true, &mut Transfer::unwatched(&mut scratch)).unwrap();
    assert_eq!(imported.size, len);
    let object = store.open_object(&imported.hash).unwrap();
    object.verify(&mut Transfer::unwatched(&mut scratch)).unwrap();
    let blocks = std::fs::metadata(object.path()).unwrap().blocks();
    assert!(blocks * 512 < 1 << 20, "{blocks} blocks are not sparse");
}

#[test]
fn a_hole_at_the_end_counts() {
    let (temp, store) = store();
    let source = file_with(&temp, 3 << 20, &[(0, b"start")]);
    let imported =
        store.import(&source, 3 << 20, true, &mut Transfer::unwatched(&mut Vec::new())).unwrap();
    assert_eq!(imported.size, 3 << 20);
    store
        .open_object(&imported.hash)
        .unwrap()
        .verify(&mut Transfer::unwatched(&mut Vec::new()))
        .unwrap();
}

#[test]
fn a_file_that_shrank_is_stored_as_it_was_read() {
    let (temp, store) = store();
    let source = file_with(&temp, 1 << 20, &[(0, b"start")]);
    let imported =
        store.import(&source, 4 << 20, false, &mut Transfer::unwatched(&mut Vec::new())).unwrap();
    assert_eq!(imported.size, 1 << 20);
    store
        .open_object(&imported.hash)
        .unwrap()
        .verify(&mut Transfer::unwatched(&mut Vec::new()))
        .unwrap();
}

#[test]
fn a_sparse_file_that_shrank_is_stored_under_the_hash_of_what_is_stored() {
    let (temp, store) = store();
    let source = file_with(&temp, 1 << 20, &[(0, b"start")]);
    let imported =
        store.import(&source, 4 << 20, true, &mut Transfer::unwatched(&mut Vec::new())).unwrap();
    let object = store.open_object(&imported.hash).unwrap();
    assert_eq!(object.size(), imported.size);
    object.verify(&mut Transfer::unwatched(&mut Vec::new())).unwrap();
}
