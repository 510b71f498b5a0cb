"""Restores and snapshots that end before they are done. The package under test has the feature
`fail-points`.
"""

from __future__ import annotations

import itertools
import shutil
import sys
from pathlib import Path

import pytest

from calls import Call
from nono_py import NonoError, SnapshotManager

State = dict[str, str]


def state(work: Path) -> State:
    files = (path for path in work.rglob("*") if path.is_file())
    return {str(path.relative_to(work)): path.read_text() for path in files}


def without_staging(state: State) -> State:
    return {path: text for path, text in state.items() if ".nono-restore-" not in path}


def change(work: Path) -> State:
    """Makes the state that a restore replaces, whatever there is."""
    shutil.rmtree(work / "sub", ignore_errors=True)
    (work / "one.txt").write_text("changed")
    (work / "new").mkdir(exist_ok=True)
    (work / "new" / "file").write_text("new")
    return state(work)


@pytest.mark.parametrize("abort", [False, True])
def test_a_restore_that_was_killed_is_finished_or_taken_back(
    abort: bool, manager: SnapshotManager, tmp_path: Path, work: Path
) -> None:
    manager.create_baseline()
    target = state(work)
    assert not manager.has_interrupted_restore()
    assert manager.recover_restore(abort) is None
    outcomes = set()
    for point in itertools.count(1, 5):
        before = change(work)
        if not Call(tmp_path / "session", work, "restore_to", 0, fail_point=f"{point}").is_killed():
            assert state(work) == target
            break
        if not manager.has_interrupted_restore():
            assert state(work) in (before, target)
            continue
        with pytest.raises(NonoError, match="interrupted"):
            manager.create_incremental()
        report = manager.recover_restore(abort=abort)
        assert report is not None and (report.session_id, report.snapshot) == ("session", 0)
        assert report.safety_snapshot == manager.snapshot_count() - 1 and report.skipped == {}
        # Before the first change and after the last, that state stays, whatever is asked for.
        assert state(work) == (target if report.outcome == "finished" else before)
        if abort or report.outcome != "finished":
            assert report.changes == []
        assert report.is_complete == (abort == (report.outcome != "finished"))
        assert report.lost == {}
        assert f"outcome='{report.outcome}'" in repr(report)
        outcomes.add(report.outcome)
        # Once more is nothing.
        assert not manager.has_interrupted_restore()
        assert manager.recover_restore(abort=abort) is None
    assert outcomes == ({"taken_back"} if abort else set()) | {"finished", "not_begun"}
    assert manager.verify().ok


@pytest.mark.parametrize("abort", [False, True])
def test_a_recovery_that_was_killed_is_done_again(
    abort: bool, manager: SnapshotManager, tmp_path: Path, work: Path
) -> None:
    session = tmp_path / "session"
    manager.create_baseline()
    target = state(work)
    for point in itertools.count(1):
        before = change(work)
        assert Call(session, work, "restore_to", 0, fail_point=f"{point}").is_killed()
        if without_staging(state(work)) not in (before, target):
            break
        manager.recover_restore(abort=True)
    killed = 0
    for point in itertools.count(1, 3):
        call = Call(session, work, "recover_restore", abort, fail_point=f"{point}")
        if not call.is_killed():
            break
        killed += 1
    assert killed > 1, "the recovery could not be killed in the middle"
    assert not manager.has_interrupted_restore()
    assert state(work) == (before if abort else target)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have notes from 3.11 on")
@pytest.mark.parametrize("method", ["restore_to", "create_incremental"])
def test_what_was_interrupted_is_complete_and_says_so_or_did_not_happen(
    method: str, manager: SnapshotManager, tmp_path: Path, work: Path
) -> None:
    manager.create_baseline()
    target = state(work)
    complete = f"interrupted nono_py: {method} was complete before it could stop"
    stops_when_begun = 0
    for point in itertools.count(1, 3):
        before, snapshots = change(work), manager.snapshot_count()
        args = [0] if method == "restore_to" else []
        call = Call(tmp_path / "session", work, method, *args, fail_point=f"{point}:stop")
        if not call.stops():
            break
        if method == "restore_to":
            has_begun = without_staging(state(work)) != before
        else:
            has_begun = manager.snapshot_count() != snapshots
        how, _ = call.interrupt()
        # Whether an earlier point is early enough depends on which thread runs first.
        assert how == complete if has_begun else how in (complete, "interrupted"), point
        assert not manager.has_interrupted_restore()
        if method == "restore_to":
            assert state(work) == (target if how == complete else before), point
        else:
            assert manager.snapshot_count() == snapshots + (how == complete), point
        stops_when_begun += has_begun
    assert stops_when_begun > 1
