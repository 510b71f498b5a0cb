"""Snapshots at the trigger points of an agent framework."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from nono_py import SnapshotCallback, SnapshotManager
from nono_py.callback import ENVIRONMENT_VARIABLE


def labels(manager: SnapshotManager) -> list[str | None]:
    return [manager.load_manifest(n).label for n in range(manager.snapshot_count())]


def a_run(callback: SnapshotCallback) -> None:
    callback.run_start("run", tags=["x"])
    callback.before_action("write")
    callback.after_action("write", {"result": 1})
    callback.run_end()


def test_every_trigger_point_takes_a_snapshot(manager: SnapshotManager) -> None:
    callback = SnapshotCallback(manager)
    a_run(callback)
    assert labels(manager) == [
        "run_start: run",
        "before_action: write",
        "after_action: write",
        "run_end",
    ]
    assert callback.last_error is None
    assert callback.last_snapshot is not None and callback.last_snapshot.number == 3
    assert manager.load_session_metadata(manager.session_dir).ended is not None


def test_only_some_trigger_points(manager: SnapshotManager) -> None:
    a_run(SnapshotCallback(manager, triggers=["run_start", "after_action"]))
    assert labels(manager) == ["run_start: run", "after_action: write"]


@pytest.mark.parametrize("off", ["0", "off", "OFF", " false ", "no", "nonsense"])
def test_it_is_switched_off_from_outside(
    manager: SnapshotManager, monkeypatch: pytest.MonkeyPatch, off: str
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, off)
    a_run(SnapshotCallback(manager))
    assert manager.snapshot_count() == 0


def test_trigger_points_are_chosen_from_outside(
    manager: SnapshotManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "run_start, run_end")
    callback = SnapshotCallback(manager, triggers=["before_action"])
    a_run(callback)
    assert labels(manager) == ["run_start: run", "run_end"]
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "on")
    assert callback.triggers == {"before_action"}


def test_no_failure_breaks_the_agent(
    manager: SnapshotManager, work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (Path(manager.session_dir) / "snapshots").rmdir()
    (Path(manager.session_dir) / "snapshots").write_text("in the way")
    callback = SnapshotCallback(manager)
    with caplog.at_level(logging.WARNING, "nono_py"):
        a_run(callback)
    assert isinstance(callback.last_error, RuntimeError)
    assert "no snapshot at run_start" in caplog.text


def test_not_even_a_session_that_cannot_be_made_breaks_the_agent(tmp_path: Path) -> None:
    callback = SnapshotCallback(lambda: SnapshotManager(tmp_path / "s", [tmp_path / "gone"]))
    a_run(callback)
    assert callback.manager is None and "gone" in str(callback.last_error)


def test_not_even_an_action_that_cannot_be_shown_breaks_the_agent(
    manager: SnapshotManager,
) -> None:
    class Strange:
        def __str__(self) -> str:
            raise ValueError("strange")

    callback = SnapshotCallback(manager)
    callback.run_start(Strange())
    assert str(callback.last_error) == "strange"


def test_a_manager_that_is_made_late_is_made_once(tmp_path: Path, work: Path) -> None:
    made: list[SnapshotManager] = []

    def make() -> SnapshotManager:
        made.append(SnapshotManager(tmp_path / "session", [work]))
        return made[0]

    callback = SnapshotCallback(make)
    assert made == [] and callback.manager is None
    a_run(callback)
    assert len(made) == 1 and callback.manager is made[0]
    assert made[0].snapshot_count() == 4


def test_ctrl_c_is_no_failure(manager: SnapshotManager) -> None:
    class Interrupting:
        def __str__(self) -> str:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SnapshotCallback(manager).after_action(Interrupting())
