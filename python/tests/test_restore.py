"""Restores of parts, conflicts, copies, repairs, and how far a call is."""

from __future__ import annotations

import json
import os
import pickle
import socket
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Callable

import pytest

from nono_py import IncompleteRestore, NonoError, Progress, RestoreReport, SnapshotManager


def texts(work: Path) -> dict[str, str]:
    files = (path for path in work.rglob("*") if path.is_file())
    return {str(path.relative_to(work)): path.read_text() for path in files}


@pytest.fixture
def changed(manager: SnapshotManager, work: Path) -> SnapshotManager:
    """A session in which files were changed, made and removed."""
    manager.create_baseline()
    (work / "one.txt").write_text("changed")
    (work / "new.txt").write_text("new")
    (work / "sub" / "two.txt").unlink()
    return manager


def test_a_restore_says_what_it_did(changed: SnapshotManager, work: Path) -> None:
    planned = changed.plan_restore(0)
    assert planned.dry_run and planned.ok and planned.safety_snapshot is None
    assert changed.restore(0, dry_run=True) == planned
    assert changed.snapshot_count() == 1, "a plan writes nothing"
    report = changed.restore(0)
    assert report and report.ok and not report.refused and not report.dry_run
    assert report.changes == planned.changes and len(report.changes) == 3
    assert (report.session_id, report.snapshot, report.safety_snapshot) == ("session", 0, 1)
    assert (report.skipped, report.conflicts, report.touched, report.to) == ({}, [], [], None)
    assert texts(work) == {"one.txt": "one", "sub/two.txt": "two"}
    assert "ok=True, snapshot=0, dry_run=False, changes=3" in repr(report)
    assert json.loads(report.to_json())["safety_snapshot"] == 1
    assert pickle.loads(pickle.dumps(report)) == report
    # What it replaced is kept.
    assert changed.restore(1).ok and (work / "new.txt").read_text() == "new"


def test_a_part_is_restored(changed: SnapshotManager, work: Path) -> None:
    assert changed.restore(0, paths=["sub"]).ok
    assert texts(work) == {"one.txt": "changed", "new.txt": "new", "sub/two.txt": "two"}
    assert changed.restore(0, paths=["*.txt"], exclude=[work / "new.txt"]).ok
    assert texts(work) == {"one.txt": "one", "new.txt": "new", "sub/two.txt": "two"}
    with pytest.raises(NonoError, match="nowhere"):
        changed.restore(0, paths=["nowhere"])


@pytest.mark.parametrize(
    ("only", "left"),
    [
        (["created"], {"one.txt": "changed"}),
        (["modified"], {"one.txt": "one", "new.txt": "new"}),
        (["deleted"], {"one.txt": "changed", "new.txt": "new", "sub/two.txt": "two"}),
        (["created", "deleted"], {"one.txt": "changed", "sub/two.txt": "two"}),
    ],
)
def test_one_kind_of_change_is_restored(
    only: list[str], left: dict[str, str], changed: SnapshotManager, work: Path
) -> None:
    assert changed.restore(0, only=only).ok  # type: ignore[arg-type]
    assert texts(work) == left


def test_later_changes_are_conflicts(changed: SnapshotManager, work: Path) -> None:
    changed.create_incremental()
    meta = changed.load_session_metadata(changed.session_dir)
    meta.ended = datetime.now(timezone.utc)
    changed.save_session_metadata(meta)
    (work / "one.txt").write_text("mine")

    refused = changed.restore(0)
    assert not refused and refused.refused and refused.on_conflict == "refuse"
    ((conflict),) = refused.conflicts
    assert (conflict.path, conflict.change_type) == (str(work / "one.txt"), "modified")
    assert repr(conflict) == f"Conflict(path={str(work / 'one.txt')!r}, change_type='modified')"
    assert conflict.user_step is None
    assert refused.changes == [] and (work / "new.txt").exists()
    assert pickle.loads(pickle.dumps(refused)) == refused
    with pytest.raises(NonoError, match="changed after the session") as caught:
        changed.restore_to(0)
    assert not isinstance(caught.value, IncompleteRestore)

    kept = changed.restore(0, on_conflict="keep_newer")
    assert kept and len(kept.conflicts) == 1
    assert texts(work) == {"one.txt": "mine", "sub/two.txt": "two"}
    assert changed.restore(0, on_conflict="overwrite")
    assert texts(work) == {"one.txt": "one", "sub/two.txt": "two"}


def test_nothing_is_kept_where_nothing_is_to_be_kept(changed: SnapshotManager, work: Path) -> None:
    report = changed.restore(0, safety_snapshot=False)
    assert report and report.safety_snapshot is None and changed.snapshot_count() == 1
    assert texts(work) == {"one.txt": "one", "sub/two.txt": "two"}


def test_what_is_skipped_is_an_error_or_in_the_report(manager: SnapshotManager, work: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        # The path of a socket is short.
        here = os.getcwd()
        os.chdir(work)
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
    manager.create_baseline()
    (work / "socket").unlink()
    (work / "one.txt").write_text("changed")
    with pytest.raises(IncompleteRestore, match="1 path is not as it was in snapshot 0") as caught:
        manager.restore_to(0)
    error = caught.value
    assert isinstance(error, NonoError) and error.operation == "restore_to"
    assert isinstance(error.report, RestoreReport) and not error.report
    assert list(error.report.skipped) == [str(work / "socket")]
    assert [change.path for change in error.report.changes] == [str(work / "one.txt")]
    assert (work / "one.txt").read_text() == "one", "the rest is restored"
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, IncompleteRestore) and again.report == error.report
    assert IncompleteRestore("x").report is None
    assert list(manager.restore(0).skipped) == [str(work / "socket")]


def test_a_copy_is_made_elsewhere(changed: SnapshotManager, work: Path, tmp_path: Path) -> None:
    before = texts(work)
    copy = tmp_path / "copy"
    report = changed.restore(0, to=copy)
    assert report and (report.to, report.written_count, report.written_bytes) == (str(copy), 2, 6)
    assert texts(copy) == {"one.txt": "one", "sub/two.txt": "two"} and texts(work) == before
    assert json.loads(report.to_json())["written_count"] == 2
    assert pickle.loads(pickle.dumps(report)) == report

    (copy / "one.txt").write_text("mine")
    again = changed.restore(0, ["one.txt"], to=copy)
    assert not again and list(again.skipped) == [str(copy / "one.txt")]
    assert (copy / "one.txt").read_text() == "mine"
    assert changed.restore(0, ["one.txt"], to=copy, on_conflict="overwrite")
    assert (copy / "one.txt").read_text() == "one"
    wrong: list[dict[str, Any]] = [
        {"dry_run": True},
        {"only": ["created"]},
        {"on_conflict": "keep_newer"},
    ]
    for keywords in wrong:
        with pytest.raises(ValueError, match="a copy"):
            changed.restore(0, to=copy, **keywords)


def test_what_cannot_be_meant_is_refused(changed: SnapshotManager, work: Path) -> None:
    before = texts(work)
    values: list[dict[str, Any]] = [
        {"only": ["touched"]},
        {"only": []},
        {"paths": []},
        {"on_conflict": "ask"},
        {"paths": [""]},
        {"paths": ["a[[:alpha:]]"]},
    ]
    types: list[dict[str, Any]] = [
        {"paths": "sub"},
        {"only": "created"},
        {"progress": 7},
        {"on_conflict": None},
    ]
    for keywords in values:
        with pytest.raises(ValueError):
            changed.restore(0, **keywords)
    for keywords in types:
        with pytest.raises(TypeError):
            changed.restore(0, **keywords)
    assert texts(work) == before and changed.snapshot_count() == 1


# How far a call is


def test_a_function_is_told_how_far_every_long_call_is(tmp_path: Path, work: Path) -> None:
    manager = SnapshotManager(tmp_path / "session", [work], threads=1)
    told: list[Progress] = []
    threads = set()

    def tell(progress: Progress) -> None:
        told.append(progress)
        threads.add(threading.get_ident())

    calls: list[Callable[[], object]] = [
        lambda: manager.create_baseline(progress=tell),
        lambda: manager.create_incremental(progress=tell),
        lambda: manager.checkpoint("x", progress=tell),
        lambda: manager.plan_restore(0, progress=tell),
        lambda: manager.restore(0, progress=tell),
        lambda: manager.restore(0, to=tmp_path / "copy", progress=tell),
        lambda: manager.verify(progress=tell),
        lambda: manager.repair(progress=tell),
    ]
    for number, make in enumerate(calls):
        told.clear()
        make()
        assert told, number
        last = told[-1]
        assert last.stage and last.entries >= 0 and last.bytes >= 0
        assert last.stage in repr(last)
    assert threads == {threading.get_ident()}


#: The greatest length of contents that are hashed as one, holes included.
HUGE_BYTES = 16 << 30


def huge(work: Path) -> None:
    with open(work / "huge", "wb") as file:
        file.truncate(HUGE_BYTES)


def test_a_function_that_raises_ends_the_call_with_what_it_raises(
    tmp_path: Path, work: Path
) -> None:
    manager = SnapshotManager(tmp_path / "session", [work], max_bytes=0)
    manager.create_baseline()
    huge(work)

    class Enough(Exception):
        pass

    def tell(progress: Progress) -> None:
        if progress.bytes:
            assert progress.stage == "capture"
            raise Enough

    for call in (manager.create_incremental, lambda progress: manager.restore(0, progress=progress)):
        with pytest.raises(Enough):
            call(progress=tell)
    assert manager.snapshot_count() == 1 and (work / "huge").stat().st_size == HUGE_BYTES


def test_a_function_that_returns_false_stops_the_work(tmp_path: Path, work: Path) -> None:
    manager = SnapshotManager(tmp_path / "session", [work], max_bytes=0)
    manager.create_baseline()
    huge(work)
    with pytest.raises(NonoError, match="stopped|interrupted|cancelled"):
        manager.create_incremental(progress=lambda progress: False)
    assert manager.snapshot_count() == 1
    (work / "huge").unlink()
    # Only `False` is a wish to stop, and only while there is something to stop.
    assert manager.create_incremental(progress=lambda progress: None)[0].number == 1
    assert manager.create_incremental(progress=lambda progress: 0)[0].number == 2


def test_a_function_may_use_the_manager(manager: SnapshotManager, work: Path) -> None:
    manager.create_baseline()
    counts: list[int] = []

    def tell(progress: Progress) -> None:
        counts.append(manager.snapshot_count())
        if len(counts) == 1:
            # It waits for the call that it is told of, which does not wait for it.
            manager.create_incremental()

    manager.create_incremental(progress=tell)
    assert counts and manager.snapshot_count() == 3


def test_a_number_of_threads_is_checked(tmp_path: Path, work: Path) -> None:
    assert SnapshotManager(tmp_path / "a", [work], threads=2).create_baseline().file_count == 2
    assert SnapshotManager.open(tmp_path / "a", threads=3).verify().ok
    for wrong in (-1, 5000):
        with pytest.raises(ValueError):
            SnapshotManager(tmp_path / "b", [work], threads=wrong)


# Repairs


def damage(manager: SnapshotManager, tmp_path: Path, work: Path) -> Path:
    digest = manager.load_manifest(0).files[str(work / "one.txt")].hash.hex()
    stored = tmp_path / "session" / "objects" / digest[:2] / digest[2:]
    stored.chmod(0o600)
    stored.write_text("eno")
    return stored


def test_a_damaged_object_is_mended_from_its_file(
    manager: SnapshotManager, tmp_path: Path, work: Path
) -> None:
    manager.create_baseline()
    stored = damage(manager, tmp_path, work)
    assert not manager.verify()
    report = manager.repair()
    assert report and report.ok and report.verified.ok and report.lost == []
    (repaired,) = report.repaired
    assert (repaired.on_disk, repaired.source) == (str(stored), "file")
    assert repaired.source_path == str(work / "one.txt")
    assert len(report.quarantined) == 1 and os.path.exists(report.quarantined[0])
    assert manager.read(0, work / "one.txt") == b"one"
    assert "ok=True, repaired=1, quarantined=1, lost=0" in repr(report)
    assert "source='file'" in repr(repaired)


def test_what_has_no_good_copy_is_lost_unless_another_store_has_it(
    manager: SnapshotManager, tmp_path: Path, work: Path
) -> None:
    manager.create_baseline()
    other = SnapshotManager(tmp_path / "other", [work])
    other.create_baseline()
    damage(manager, tmp_path, work)
    (work / "one.txt").write_text("changed")
    report = manager.repair()
    assert not report and not report.verified.ok
    (lost,) = report.lost
    assert (lost.snapshots, lost.paths) == ([0], [str(work / "one.txt")])
    assert not lost.has_more_paths and not lost.is_unreadable and lost.reason
    assert lost.what in str(lost) and "Lost(" in repr(lost)
    report = manager.repair(other_stores=[tmp_path / "other"])
    assert report and [repaired.source for repaired in report.repaired] == ["store"]
    assert manager.restore_to(0) and (work / "one.txt").read_text() == "one"
