"""The callback for CUA agents, called as the loop of a ``ComputerAgent`` calls it.

``scripts/test-cua`` runs it in a real ``ComputerAgent``.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any, Optional

import pytest
from dockerd import Dockerd

from nono_py.containers import ContainerSnapshots, TakenSnapshot
from nono_py.cua import CONTAINER_VARIABLE, ENVIRONMENT_VARIABLE, SnapshotCallback

Item = dict[str, Any]

CLICK: Item = {"type": "computer_call", "call_id": "1", "action": {"type": "click", "x": 1, "y": 2}}
LOOK: Item = {"type": "function_call", "call_id": "2", "name": "look", "arguments": '{"at": "a"}'}
ANSWER: Item = {"type": "message", "role": "assistant", "content": [{"text": "done"}]}


class Loop:
    """Calls a callback in the order of cua-agent 0.9.1. ``failing`` actions have no end."""

    def __init__(self, callback: SnapshotCallback, failing: tuple[Item, ...] = ()) -> None:
        self.callback = callback
        self.failing = failing

    def run(self, *actions: Item) -> None:
        asyncio.run(self._run([[action] for action in actions] + [[ANSWER]]))

    async def _run(self, steps: list[list[Item]]) -> None:
        callback = self.callback
        kwargs: Item = {"model": "scripted"}
        old: list[Item] = [{"role": "user", "content": "tidy  up"}]
        new: list[Item] = []
        await callback.on_run_start(kwargs, old)
        for output in steps:
            assert await callback.on_run_continue(kwargs, old, new)
            assert await callback.on_llm_start(old + new) == old + new
            await callback.on_api_start(kwargs)
            await callback.on_api_end(kwargs, output)
            await callback.on_usage({})
            assert await callback.on_llm_end(output) == output
            await callback.on_responses(kwargs, {"output": output})
            new += output
            for item in output:
                await self._handle(item)
        await callback.on_run_end(kwargs, old, new)

    async def _handle(self, item: Item) -> None:
        callback = self.callback
        if item["type"] == "message":
            await callback.on_text(item)
        elif item["type"] == "computer_call":
            await callback.on_computer_call_start(item)
            if item not in self.failing:
                await callback.on_screenshot("", "screenshot_after")
                await callback.on_computer_call_end(item, [])
        else:
            await callback.on_function_call_start(item)
            if item not in self.failing:
                await callback.on_function_call_end(item, [])


class Recorder:
    """Takes no snapshots, and notes which were wanted."""

    def __init__(self, failure: Optional[Exception] = None) -> None:
        self.wanted: list[tuple[str, Optional[str]]] = []
        self.containers: set[str] = set()
        self.run_ids: list[Optional[str]] = []
        self.failure = failure

    async def snapshot_async(
        self, container: str, *, message: Optional[str], trigger: str, run_id: Optional[str]
    ) -> TakenSnapshot:
        if self.failure is not None:
            raise self.failure
        self.wanted.append((trigger, message))
        self.containers.add(container)
        self.run_ids.append(run_id)
        return TakenSnapshot("s", len(self.wanted), container, "id", True, (), (), {})


ALL = ("run_start", "before_action", "after_action", "run_end")


def test_every_trigger_point_takes_a_snapshot() -> None:
    recorder = Recorder()
    callback = SnapshotCallback("box", recorder, ALL)
    Loop(callback).run(CLICK, LOOK)
    assert recorder.wanted == [
        ("run_start", "tidy up"),
        ("before_action", "click x=1 y=2"),
        ("after_action", "click x=1 y=2"),
        ("before_action", 'look {"at": "a"}'),
        ("after_action", 'look {"at": "a"}'),
        ("run_end", "tidy up"),
    ]
    assert recorder.containers == {"box"} and callback.last_error is None
    assert callback.last_snapshot is not None and callback.last_snapshot.number == 6


def test_a_run_has_an_id_of_its_own() -> None:
    recorder = Recorder()
    callback = SnapshotCallback("box", recorder)
    Loop(callback).run(CLICK)
    first = callback.run_id
    Loop(callback).run(CLICK)
    assert first is not None and recorder.run_ids == [first] * 3 + [callback.run_id] * 3
    assert callback.run_id != first
    named = SnapshotCallback("box", recorder, run_id="mine")
    Loop(named).run()
    assert recorder.run_ids[-1] == "mine"


def test_an_action_that_failed_has_an_end_too() -> None:
    recorder = Recorder()
    Loop(SnapshotCallback("box", recorder), failing=(LOOK,)).run(LOOK, CLICK)
    assert recorder.wanted[1:3] == [
        ("after_action", 'look {"at": "a"} (failed)'),
        ("after_action", "click x=1 y=2"),
    ]


def test_trigger_points_and_container_are_chosen_from_outside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorder = Recorder()
    callback = SnapshotCallback(None, recorder)
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "before_action")
    monkeypatch.setenv(CONTAINER_VARIABLE, "other")
    Loop(callback).run(CLICK)
    assert [trigger for trigger, _ in recorder.wanted] == ["before_action"]
    assert recorder.containers == {"other"}
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "off")
    Loop(callback).run(CLICK)
    assert len(recorder.wanted) == 1
    with pytest.raises(ValueError, match="sometimes"):
        SnapshotCallback("box", triggers=["sometimes"])


@pytest.mark.parametrize("strange", [{}, {"action": 3}, {"type": "function_call"}])
def test_no_action_is_too_strange(strange: Item) -> None:
    recorder = Recorder()
    callback = SnapshotCallback("box", recorder, ALL)
    asyncio.run(callback.on_computer_call_start(strange))
    assert callback.last_error is None and len(recorder.wanted) == 1


def test_no_failure_breaks_the_agent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CONTAINER_VARIABLE, raising=False)
    absent = ContainerSnapshots(tmp_path / "store", f"unix://{tmp_path}/no.sock")
    for callback in (
        SnapshotCallback("box", Recorder(OSError("broken"))),
        SnapshotCallback("box", absent),
        SnapshotCallback(None, absent),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "nono_py"):
            Loop(callback).run(CLICK, LOOK)
        assert caplog.text.count("no snapshot at") == 4
        assert callback.last_error is not None and callback.last_snapshot is None


def test_a_cancellation_is_no_failure() -> None:
    class Cancelled(Recorder):
        async def snapshot_async(self, *args: Any, **kwargs: Any) -> TakenSnapshot:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        Loop(SnapshotCallback("box", Cancelled())).run(CLICK)


def test_cua_is_imported_by_the_first_callback_alone() -> None:
    script = (
        "import sys; from nono_py.cua import SnapshotCallback;"
        "assert 'cua_agent' not in sys.modules; SnapshotCallback('box');"
        "print('cua_agent' in sys.modules)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    is_installed = importlib.util.find_spec("cua_agent") is not None
    assert (done.stdout.strip(), done.returncode) == (str(is_installed), 0), done.stderr


def test_a_run_on_a_real_container_can_be_taken_back(tmp_path: Path, docker: Dockerd) -> None:
    snapshots = ContainerSnapshots(tmp_path / "store", docker.host)
    docker.container("cua", "-v", "cua-data:/data")
    try:
        docker.sh("cua", "echo before > /data/file")
        callback = SnapshotCallback("cua", snapshots, ["run_start"])
        Loop(callback).run(CLICK)
        assert callback.last_error is None
        docker.sh("cua", "echo after > /data/file")
        restored = snapshots.restore("cua", name="cua-back")
        assert docker.sh(restored.container, "cat /data/file") == "before"
        listed = snapshots.list("cua")
        assert [(one.trigger, one.run_id) for one in listed] == [("run_start", callback.run_id)]
        docker.run("rm", "-f", "-v", "cua-back")
    finally:
        docker.run("rm", "-f", "-v", "cua")
