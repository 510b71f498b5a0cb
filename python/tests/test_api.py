"""The documented API, line by line."""

from __future__ import annotations

import copy
import json
import os
import pickle
import stat
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import nono_py
from nono_py import (
    Change,
    ContentHash,
    ExclusionConfig,
    NonoError,
    SessionMetadata,
    SnapshotManager,
    SnapshotManifest,
)


def by_name(changes: list[Change]) -> dict[str, tuple[str, int | None]]:
    return {Path(c.path).name: (c.change_type, c.size_delta) for c in changes}


# SnapshotManager


def test_a_session_from_baseline_to_restore(manager: SnapshotManager, work: Path) -> None:
    baseline = manager.create_baseline()
    assert isinstance(baseline, SnapshotManifest)
    assert (baseline.number, baseline.parent) == (0, None)

    (work / "new").write_text("12345")
    (work / "one.txt").write_text("longer")
    (work / "sub" / "two.txt").chmod(0o600)
    manifest, changes = manager.create_incremental()
    assert (manifest.number, manifest.parent) == (1, 0)
    assert by_name(changes) == {
        "new": ("created", 5),
        "one.txt": ("modified", 3),
        "two.txt": ("permissions_changed", None),
    }

    planned = manager.compute_restore_diff(0)
    assert (work / "new").exists(), "computing a diff changed something"
    assert manager.snapshot_count() == 2
    done = manager.restore_to(0)
    assert done == planned
    assert by_name(done)["new"] == ("deleted", -5)
    assert not (work / "new").exists() and (work / "one.txt").read_text() == "one"
    assert manager.compute_restore_diff(0) == []


def test_a_session_that_is_there_is_resumed(tmp_path: Path, work: Path) -> None:
    SnapshotManager(tmp_path / "session", [work]).create_baseline()
    (work / "new").write_text("x")
    resumed = SnapshotManager(str(tmp_path / "session"), [str(work)])
    assert resumed.snapshot_count() == 1
    manifest, changes = resumed.create_incremental()
    assert manifest.number == 1 and by_name(changes) == {"new": ("created", 1)}
    assert SnapshotManager.open(tmp_path / "session").snapshot_count() == 2
    assert SnapshotManager(tmp_path / "session", [work]).load_manifest(1) == manifest


def test_a_home_directory_is_expanded_and_any_path_like_works(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Place:
        def __fspath__(self) -> str:
            return "~/work"

    monkeypatch.setenv("HOME", str(tmp_path))
    manager = SnapshotManager("~/session", [Place()])
    manager.create_baseline()
    assert manager.tracked_paths == [str(work)]
    assert manager.session_dir == str(tmp_path / "session")
    assert SnapshotManager.load_session_metadata("~/session").tracked_paths == [str(work)]
    assert manager.read(0, "~/work/one.txt") == b"one"


def test_names_that_are_not_utf8_come_back(tmp_path: Path, work: Path) -> None:
    name = os.fsdecode(b"caf\xe9")
    (work / name).write_text("x")
    manager = SnapshotManager(tmp_path / "session", [work])
    assert str(work / name) in manager.create_baseline().files
    (work / name).unlink()
    _, changes = manager.create_incremental()
    assert [change.path for change in changes] == [str(work / name)]
    assert manager.read(0, work / name) == b"x"


def test_limits_are_kept_and_named(tmp_path: Path, work: Path) -> None:
    with pytest.raises(NonoError, match="max_entries"):
        SnapshotManager(tmp_path / "a", [work], max_entries=2).create_baseline()
    with pytest.raises(NonoError, match="max_bytes"):
        SnapshotManager(tmp_path / "b", [work], None, 0, 5).create_baseline()
    assert SnapshotManager(tmp_path / "c", [work], None, 0, 0).create_baseline().file_count == 2


def test_a_manager_is_a_context_that_notes_the_end(tmp_path: Path, work: Path) -> None:
    with SnapshotManager(tmp_path / "session", [work]) as manager:
        manager.create_baseline()
        assert manager.load_session_metadata(manager.session_dir).ended is None
    ended = manager.load_session_metadata(manager.session_dir).ended
    assert ended is not None
    assert manager.restore_to(0) == [], "it can be used afterwards"
    # One that took no snapshot leaves no session, and an error of the block is what is raised.
    with pytest.raises(KeyError):
        with SnapshotManager(tmp_path / "none", [work]):
            raise KeyError
    assert not (tmp_path / "none" / "manifest.json").exists()


def test_an_end_that_the_block_noted_stays(tmp_path: Path, work: Path) -> None:
    with SnapshotManager(tmp_path / "session", [work]) as manager:
        manager.create_baseline()
        meta = manager.load_session_metadata(manager.session_dir)
        meta.ended, meta.exit_code = datetime(2100, 1, 1, tzinfo=timezone.utc), 7
        manager.save_session_metadata(meta)
    meta = manager.load_session_metadata(manager.session_dir)
    assert (meta.ended, meta.exit_code) == ("2100-01-01T00:00:00.000000+00:00", 7)


def test_checkpoints_have_labels(manager: SnapshotManager, work: Path) -> None:
    first = manager.checkpoint("before")
    (work / "new").write_text("x")
    second = manager.checkpoint("after é")
    assert (first.number, first.label) == (0, "before")
    assert (second.number, second.label) == (1, "after é")
    assert manager.load_manifest(1).label == "after é"
    assert manager.create_incremental()[0].label is None


def test_two_snapshots_are_compared(manager: SnapshotManager, work: Path) -> None:
    manager.create_baseline()
    (work / "new").write_text("x")
    manager.create_incremental()
    assert by_name(manager.diff(0, 1)) == {"new": ("created", 1)}
    assert by_name(manager.diff(1, 0)) == {"new": ("deleted", -1)}
    assert manager.diff(1, 1) == []


def test_a_moved_time_is_no_change(manager: SnapshotManager, work: Path) -> None:
    one = work / "one.txt"
    before = one.stat().st_mtime_ns
    first = manager.create_baseline()
    os.utime(one, (1, 1))
    (work / "dir").mkdir()
    second, changes = manager.create_incremental()
    assert by_name(changes) == {"dir": ("created", None)} and changes[0].is_directory
    assert second.merkle_root != first.merkle_root
    assert manager.touched(0, 1) == manager.touched(1, 0) == [str(one)]
    assert by_name(manager.compute_restore_diff(0)) == {"dir": ("deleted", None)}
    planned = manager.plan_restore(0)
    assert planned.touched == [str(one)] and planned.directory_times == 1, "that it is in"
    assert len(manager.restore_to(0)) == 1
    assert one.stat().st_mtime_ns == before and manager.touched(0, 1) == [str(one)]


def test_a_file_of_a_snapshot_is_read(manager: SnapshotManager, work: Path) -> None:
    (work / "bytes").write_bytes(bytes(range(256)) * 1000)
    manager.create_baseline()
    (work / "bytes").unlink()
    assert manager.read(0, work / "bytes") == bytes(range(256)) * 1000
    assert manager.read(snapshot=0, path=os.fspath(work / "sub" / "two.txt")) == b"two"
    with pytest.raises(NonoError, match="it was a directory"):
        manager.read(0, work / "sub")


def test_verify_says_what_is_wrong(manager: SnapshotManager, tmp_path: Path, work: Path) -> None:
    baseline = manager.create_baseline()
    report = manager.verify()
    assert report and report.ok and report.problems == []
    assert [check.merkle_root for check in report.snapshots] == [baseline.merkle_root]
    assert report.objects_checked == 5 and report.session_id == "session"
    assert manager.verify(expected_root=baseline.merkle_root).ok
    assert [p.kind for p in manager.verify(ContentHash("0" * 64)).problems] == ["merkle_mismatch"]

    digest = baseline.files[str(work / "one.txt")].hash.hex()
    stored = tmp_path / "session" / "objects" / digest[:2] / digest[2:]
    stored.chmod(0o600)
    stored.write_text("eno")
    report = manager.verify()
    assert not report and not report.ok
    (problem,) = report.problems
    assert (problem.kind, problem.path) == ("corrupt_object", str(work / "one.txt"))
    assert problem.object == ContentHash(digest) and problem.snapshot == 0
    assert "damaged" in str(problem)
    with pytest.raises(NonoError, match="does not have|do not have"):
        manager.read(0, work / "one.txt")


# ExclusionConfig


def test_an_exclusion_is_readable_and_has_a_useful_repr(tmp_path: Path, work: Path) -> None:
    default = ExclusionConfig()
    assert default.use_gitignore is True
    assert (default.exclude_patterns, default.exclude_globs, default.force_include) == ([], [], [])
    config = ExclusionConfig(False, ["it's", "a/b"], ["*.pyc"], force_include=[".env"])
    assert repr(config) == (
        "ExclusionConfig(use_gitignore=False, patterns=2, globs=1, force_include=1, prune=0)"
    )
    assert repr(default).startswith("ExclusionConfig(use_gitignore=True, patterns=0, ")
    assert config != default
    assert pickle.loads(pickle.dumps(config)) == config

    (work / "a.pyc").write_text("x")
    (work / "build").mkdir()
    (work / "build" / "keep").write_text("x")
    config = ExclusionConfig(
        exclude_patterns=["build", "sub"], exclude_globs=["*.pyc"], force_include=["keep"]
    )
    manifest = SnapshotManager(tmp_path / "session", [work], config).create_baseline()
    names = {Path(path).name for path in manifest.files}
    assert names == {"one.txt", "keep"}
    assert manifest.not_captured[str(work / "a.pyc")] == "excluded by glob *.pyc"


def test_a_pattern_with_a_slash_is_a_part_of_a_path(tmp_path: Path, work: Path) -> None:
    for name in ("generated", "regen"):
        (work / "sub" / name).mkdir()
        (work / "sub" / name / "x").write_text("x")
    config = ExclusionConfig(exclude_patterns=["sub/gen"])
    manifest = SnapshotManager(tmp_path / "session", [work], config).create_baseline()
    assert str(work / "sub" / "regen" / "x") in manifest.files
    assert manifest.not_captured == {str(work / "sub" / "generated"): "excluded by pattern sub/gen"}


def test_a_gitignore_is_honoured_unless_it_is_not_wanted(tmp_path: Path, work: Path) -> None:
    (work / ".gitignore").write_text("sub/\n")
    (work / ".env").write_text("SECRET=1\n")
    (work / ".gitignore").write_text("sub/\n.env\n")
    default = SnapshotManager(tmp_path / "default", [work]).create_baseline()
    assert str(work / ".env") in default.files, "as the command line records it"
    assert ExclusionConfig().ignored == "small"
    nothing = ExclusionConfig(ignored="none")
    assert pickle.loads(pickle.dumps(nothing)).ignored == "none"
    asked = SnapshotManager(tmp_path / "a", [work], nothing).create_baseline()
    not_asked = SnapshotManager(
        tmp_path / "b", [work], exclusion=ExclusionConfig(use_gitignore=False)
    ).create_baseline()
    assert (asked.file_count, not_asked.file_count) == (2, 4)
    with pytest.raises(ValueError, match='ignored: "some"'):
        ExclusionConfig(ignored="some")  # type: ignore[arg-type]


# SnapshotManifest, FileState, ContentHash, Change


def test_a_manifest_says_what_a_snapshot_is(manager: SnapshotManager, work: Path) -> None:
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    manifest = manager.create_baseline()
    when = datetime.fromisoformat(manifest.timestamp)
    assert before < when < datetime.now(timezone.utc) + timedelta(seconds=1)
    assert isinstance(manifest.merkle_root, ContentHash)
    assert (manifest.file_count, manifest.total_bytes) == (2, 6)
    assert "number=0" in repr(manifest) and "file_count=2" in repr(manifest)

    path = work / "sub" / "two.txt"
    state = manifest.files[str(path)]
    assert state.size == 3
    assert state.mtime == int(path.stat().st_mtime)
    assert state.permissions == stat.S_IMODE(path.stat().st_mode)
    assert state.hash.hex() == "3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3"
    assert set(manifest.files) == {str(work / "one.txt"), str(path)}
    assert manifest.files is manifest.files, "it is made once"


def test_files_are_not_looked_at_before_they_are_asked_for(
    manager: SnapshotManager, tmp_path: Path
) -> None:
    root = manager.create_baseline().merkle_root.hex()
    # Without its root tree nothing of the snapshot can be listed.
    (tmp_path / "session" / "objects" / root[:2] / root[2:]).unlink()
    manifest = manager.load_manifest(0)
    assert manifest.merkle_root.hex() == root and manifest.file_count == 2
    with pytest.raises(NonoError, match="files: object .* is missing"):
        manifest.files


def test_a_hash_is_a_value() -> None:
    digest = "ab" * 32
    one, same = ContentHash(digest), ContentHash(digest.upper())
    assert one == same and hash(one) == hash(same) and len({one, same}) == 1
    assert one != ContentHash("cd" * 32) and one != digest
    assert one.hex() == str(one) == f"{one}" == digest
    assert repr(one) == f"ContentHash('{digest}')"
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one
    with pytest.raises(AttributeError):
        one.other = 1  # type: ignore[attr-defined]
    for wrong in ("", "ab", "zz" * 32):
        with pytest.raises(ValueError):
            ContentHash(wrong)


def test_changes_are_values(manager: SnapshotManager, work: Path) -> None:
    manager.create_baseline()
    (work / "new").write_text("12")
    _, changes = manager.create_incremental()
    assert len({*changes, *manager.diff(0, 1)}) == 1
    path = str(work / "new")
    assert repr(changes[0]) == f"Change(path={path!r}, change_type='created', size_delta=2)"
    with pytest.raises(AttributeError):
        changes[0].path = "x"  # type: ignore[misc]


# SessionMetadata


def test_metadata_of_a_new_session() -> None:
    before = datetime.now(timezone.utc) - timedelta(seconds=1)
    meta = SessionMetadata("20260214-143022-1", ["agent", "--fix"], ["/work", Path("/other")])
    assert meta.session_id == "20260214-143022-1"
    assert meta.command == ["agent", "--fix"]
    assert meta.tracked_paths == ["/work", "/other"]
    assert before < datetime.fromisoformat(meta.started) < before + timedelta(seconds=9)
    assert (meta.ended, meta.exit_code, meta.snapshot_count) == (None, None, 0)
    for name in ("session_id", "started", "command", "tracked_paths", "merkle_roots"):
        with pytest.raises(AttributeError):
            setattr(meta, name, None)

    meta.snapshot_count, meta.exit_code = 3, -1
    meta.ended = "2026-02-14T14:30:22.5+01:00"
    assert meta.ended == "2026-02-14T14:30:22.5+01:00", "it comes back as it was set"
    assert SessionMetadata.from_json(meta.to_json()).ended == "2026-02-14T14:30:22.5+01:00"
    meta.ended = datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert meta.ended == "2026-01-01T00:00:00.000000+00:00"
    root = ContentHash("ab" * 32)
    meta.add_merkle_root(root)
    assert meta.merkle_roots == [root]
    events = [{"host": "example.com", "port": 443, "nested": {"é": [1, 2.5, None, True]}}]
    meta.set_network_events(events)
    assert meta.network_events == events

    again = SessionMetadata.from_json(meta.to_json())
    assert again == meta and again.to_json() == meta.to_json()
    assert (again.network_events, again.exit_code, again.started) == (events, -1, meta.started)
    meta.ended, meta.exit_code = None, None
    meta.set_network_events([])
    assert (meta.ended, meta.exit_code, meta.network_events) == (None, None, [])


def test_metadata_has_the_audit_fields_of_the_other_package_and_they_are_constant() -> None:
    constants = {
        "executable_identity": None,
        "audit_event_count": 0,
        "audit_integrity": None,
        "audit_attestation": None,
    }
    meta = SessionMetadata("session", ["agent"], ["/work"])
    # A document that has such fields proves nothing: nono did not make them.
    claimed = json.dumps({**json.loads(meta.to_json()), "audit_event_count": 9})
    for session in (meta, SessionMetadata.from_json(claimed)):
        for name, value in constants.items():
            found = getattr(session, name)
            assert found == value and type(found) is type(value), name
            assert isinstance(getattr(SessionMetadata, name).__doc__, str), name
            with pytest.raises(AttributeError):
                setattr(session, name, value)
    assert not constants.keys() & json.loads(meta.to_json()).keys()


def test_metadata_is_saved_and_loaded(manager: SnapshotManager, tmp_path: Path, work: Path) -> None:
    baseline = manager.create_baseline()
    meta = SessionMetadata("session", ["agent", os.fsdecode(b"\xff")], [work])
    meta.exit_code, meta.snapshot_count = 3, 99
    meta.ended = "2026-02-14 14:30:22+01"
    meta.set_network_events([{"host": "example.com"}])
    manager.save_session_metadata(meta)
    loaded = SnapshotManager.load_session_metadata(tmp_path / "session")
    assert loaded.ended == "2026-02-14 14:30:22+01" and manager.verify().ok
    # It is the moment that counts for everybody else.
    assert json.loads((tmp_path / "session" / "manifest.json").read_text())["ended"] == (
        "2026-02-14T13:30:22Z"
    )
    assert loaded.command == ["agent", os.fsdecode(b"\xff")]
    assert (loaded.exit_code, loaded.network_events) == (3, [{"host": "example.com"}])
    # The disk counts, not what a caller says.
    assert (loaded.snapshot_count, loaded.merkle_roots) == (1, [baseline.merkle_root])


# The package


def test_everything_has_a_docstring_and_a_module() -> None:
    for name in nono_py.__all__:
        item = getattr(nono_py, name)
        if isinstance(item, str):
            continue
        assert item.__doc__, name
        assert item.__module__.startswith("nono_py"), name
        for member, value in vars(item).items() if isinstance(item, type) else ():
            if not member.startswith("_") and callable(value):
                assert value.__doc__, f"{name}.{member}"


def test_a_fresh_session_directory_has_an_id_and_a_store(tmp_path: Path, work: Path) -> None:
    import re

    first, second = (nono_py.new_session_dir(tmp_path / "store") for _ in range(2))
    assert first != second
    for place in (first, second):
        assert re.fullmatch(r"\d{8}-\d{6}-\d+", Path(place).name)
        SnapshotManager(place, [work]).create_baseline()
        assert os.readlink(Path(place) / "objects") == "../objects"
    assert stat.S_IMODE((tmp_path / "store").stat().st_mode) == 0o700
