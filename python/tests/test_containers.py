"""Snapshots of containers of a real Docker daemon."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Iterator

import pytest
from conftest import Nono
from dockerd import Dockerd

from nono_py import NonoError, Progress
from nono_py.containers import ContainerSnapshots


@pytest.fixture
def snapshots(tmp_path: Path, docker: Dockerd) -> ContainerSnapshots:
    return ContainerSnapshots(tmp_path / "store", docker.host)


@pytest.fixture
def container(docker: Dockerd, request: pytest.FixtureRequest) -> Iterator[str]:
    """A running container with a file of its own and a volume with a file."""
    name = request.node.name.replace("[", "-").replace("]", "")[:60]
    docker.container(name, "-v", f"{name}-data:/data", "-e", "COLOR=blue")
    docker.sh(name, "echo first > /data/file; echo mine > /own")
    yield name
    docker.run("rm", "-f", "-v", name)


def volume_of(docker: Dockerd, container: str) -> Path:
    """The directory of the only volume of a container."""
    return Path(docker.inspect(container)["Mounts"][0]["Source"])


def test_a_snapshot_is_listed_and_restored(
    snapshots: ContainerSnapshots, docker: Dockerd, container: str
) -> None:
    before = datetime.now(timezone.utc)
    taken = snapshots.snapshot(container, message="the start", trigger="run_start", run_id="r1")
    assert taken.number == 0 and taken.container == container and taken.is_consistent
    assert taken.details["volume_count"] == 1
    assert docker.state(container) == "running"

    docker.sh(container, "echo second > /data/file")
    second = snapshots.snapshot(container)
    assert second.id == f"{taken.session_id}/1"
    listed = snapshots.list(container)
    assert [one.id for one in listed] == [taken.id, second.id] == [o.id for o in snapshots.list()]
    first = listed[0]
    assert (first.message, first.trigger, first.run_id) == ("the start", "run_start", "r1")
    assert before <= first.captured_at <= datetime.now(timezone.utc)
    assert "COLOR=blue" in first.record["config"]["Env"]
    assert snapshots.show(container) == listed[1]

    plan = snapshots.restore(taken.id, dry_run=True)
    assert plan.ok and plan.dry_run and plan.container_id is None
    restored = snapshots.restore(taken.id, name=f"{container}-back")
    try:
        assert restored.ok and restored.is_started and restored.number == 0
        assert docker.sh(restored.container, "cat /data/file /own") == "first\nmine"
        assert docker.sh(container, "cat /data/file") == "second"
    finally:
        docker.run("rm", "-f", "-v", f"{container}-back")


def test_the_program_knows_the_snapshots(nono: Nono, docker: Dockerd, container: str) -> None:
    taken = ContainerSnapshots(nono.root, docker.host).snapshot(container)
    nono.run("rollback", "verify", taken.session_id)
    listed = nono.json("container", "list", container)
    assert [session["session_id"] for session in listed] == [taken.session_id]


def test_volumes_of_a_stopped_container_come_back_in_place(
    snapshots: ContainerSnapshots, docker: Dockerd, container: str
) -> None:
    taken = snapshots.snapshot(container)
    docker.sh(container, "echo second > /data/file; echo new > /data/new")
    docker.run("stop", "-t", "0", container)
    restored = snapshots.restore(taken.id, volumes_only=f"{container}-data")
    volume = volume_of(docker, container)
    assert (volume / "file").read_text() == "first\n" and not (volume / "new").exists()
    safety = snapshots.show(f"{taken.session_id}/{restored.details['safety_snapshot']}")
    assert safety.trigger == "before_restore"


def test_a_replacement_takes_the_place_if_it_is_healthy(
    snapshots: ContainerSnapshots, docker: Dockerd, container: str
) -> None:
    taken = snapshots.snapshot(container)
    docker.sh(container, "echo second > /data/file")
    bad = snapshots.restore(taken.id, replace=True, health_seconds=1, health_command="false")
    assert not bad.ok and bad.container_id is None
    assert docker.sh(container, "cat /data/file") == "second"
    good = asyncio.run(
        snapshots.restore_async(taken.id, replace=True, health_command="test -e /data/file")
    )
    try:
        assert good.ok and good.container == container
        assert docker.inspect(container)["Id"] == good.container_id
        assert docker.sh(container, "cat /data/file") == "first"
        kept = good.details["kept_as"]
        assert docker.state(kept) == "exited"
        assert snapshots.cleanup()["kept_containers"][0]["outcome"] == "young"
        cleaned = snapshots.cleanup(max_age=timedelta(0))
        assert cleaned["kept_containers_removed"] == [kept]
        saved = snapshots.show(cleaned["kept_containers"][0]["snapshot"])
        assert saved.trigger == "before_restore" and saved.container == kept
    finally:
        subprocess.run(["docker", "-H", docker.host, "rm", "-f", "-v", good.details["kept_as"]])


def test_two_snapshots_are_compared(
    snapshots: ContainerSnapshots, docker: Dockerd, container: str
) -> None:
    first = snapshots.snapshot(container)
    docker.sh(container, "echo second > /data/file; echo new > /more")
    second = snapshots.snapshot(container)
    report = snapshots.diff(first.id)
    assert (report["older"], report["newer"]) == (first.id, second.id)
    kinds = {change["path"]: change["change_type"] for change in report["changes"]}
    assert kinds[f"/volumes/{container}-data/file"] == "modified"
    assert kinds["/changes/more"] == "created"
    assert report["configuration"] == []
    assert asyncio.run(snapshots.diff_async(first.id, second.id)) == report
    assert snapshots.diff(first.id, first.id)["changes"] == []
    with pytest.raises(NonoError, match="no container snapshot nobody"):
        snapshots.diff(first.id, "nobody")


@pytest.mark.parametrize("abort", [False, True])
def test_a_killed_replacement_is_finished_or_taken_back(
    snapshots: ContainerSnapshots, docker: Dockerd, container: str, abort: bool
) -> None:
    taken = snapshots.snapshot(container)
    docker.sh(container, "echo second > /data/file")
    old = docker.inspect(container)["Id"]
    assert snapshots.resume() == []
    script = (
        "import sys; from nono_py.containers import ContainerSnapshots;"
        "ContainerSnapshots(sys.argv[1], sys.argv[2]).restore(sys.argv[3], replace=True)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", script, snapshots.root, docker.host, taken.id],
        env={**os.environ, "NONO_FAIL_POINT": "name=container-replace-name"},
    )
    assert killed.returncode == -signal.SIGKILL
    with pytest.raises(NonoError, match="was interrupted"):
        snapshots.restore(taken.id)
    if abort:
        [report] = asyncio.run(snapshots.resume_async(container, abort=True))
    else:
        [report] = snapshots.resume(health_seconds=0)
    assert report["is_finished"] is not abort
    assert report["mode"] == "replace" and report["name"] == container
    assert docker.state(container) == "running"
    assert (docker.inspect(container)["Id"] == old) is abort
    assert docker.sh(container, "cat /data/file") == ("second" if abort else "first")
    assert asyncio.run(snapshots.resume_async()) == []
    if not abort:
        docker.run("rm", "-f", "-v", old)


def test_a_restore_can_be_given_up(
    snapshots: ContainerSnapshots, docker: Dockerd, container: str
) -> None:
    taken = snapshots.snapshot(container)
    journal = Path(snapshots.root) / taken.session_id / "container-restore.journal"
    journal.write_text("{")
    with pytest.raises(NonoError, match="--give-up"):
        snapshots.resume(container)
    with pytest.raises(ValueError, match="exclude each other"):
        snapshots.resume(container, abort=True, give_up=True)
    with pytest.raises(ValueError, match="give_up needs"):
        snapshots.resume(give_up=True)
    [report] = asyncio.run(snapshots.resume_async(container, give_up=True))
    assert report["is_given_up"] and Path(report["set_aside"][0]).read_text() == "{"
    assert docker.state(container) == "running"
    assert snapshots.resume(container, give_up=True) == []
    with pytest.raises(NonoError, match="no container snapshot"):
        snapshots.delete(taken.session_id[:4], all=True)


def test_snapshots_are_counted_checked_and_removed(
    snapshots: ContainerSnapshots, container: str
) -> None:
    taken = [snapshots.snapshot(container) for _ in range(4)]
    session = taken[0].session_id
    stats = snapshots.stats()
    assert (stats["container_count"], stats["snapshot_count"]) == (1, 4)
    assert snapshots.validate()["problems"] == []
    with pytest.raises(ValueError, match="SESSION/N"):
        snapshots.delete(session)
    assert [gone["snapshot"] for gone in snapshots.delete(taken[1].id)["removed"]] == [1]
    planned = snapshots.cleanup(max_per_container=2, dry_run=True)
    assert [gone["snapshot"] for gone in planned["removed"]] == [0]
    assert snapshots.cleanup(max_per_container=2)["problems"] == []
    assert [one.number for one in snapshots.list()] == [2, 3]
    assert snapshots.cleanup(max_age=timedelta(days=1))["removed"] == []
    assert snapshots.validate(session)["problems"] == []
    snapshots.delete(session, all=True)
    assert snapshots.list() == []


def test_the_event_loop_goes_on_during_a_snapshot(
    snapshots: ContainerSnapshots, container: str
) -> None:
    async def work() -> int:
        turns = 0
        taking = asyncio.ensure_future(snapshots.snapshot_async(container))
        while not taking.done():
            turns += 1
            await asyncio.sleep(0)
        assert (await snapshots.list_async())[0].id == taking.result().id
        assert (await snapshots.show_async(container)).number == 0
        assert (await snapshots.stats_async())["snapshot_count"] == 1
        assert (await snapshots.validate_async())["problems"] == []
        assert (await snapshots.cleanup_async())["removed"] == []
        assert (await snapshots.restore_async(container, dry_run=True)).dry_run
        await snapshots.delete_async(container, all=True)
        return turns

    # A call in the loop's own thread would leave it one turn.
    assert asyncio.run(work()) > 10


def test_two_snapshots_at_once_take_turns(snapshots: ContainerSnapshots, container: str) -> None:
    async def work() -> list[int]:
        both = (snapshots.snapshot_async(container), snapshots.snapshot_async(container))
        return sorted(taken.number for taken in await asyncio.gather(*both))

    assert asyncio.run(work()) == [0, 1]


def test_a_cancelled_snapshot_leaves_the_container_running(
    snapshots: ContainerSnapshots, docker: Dockerd, container: str
) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        begun = asyncio.Event()

        def tell(progress: Progress) -> None:
            loop.call_soon_threadsafe(begun.set)

        taking = asyncio.ensure_future(snapshots.snapshot_async(container, progress=tell))
        await asyncio.wait_for(begun.wait(), 60)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        # Whether it was complete or did not happen, nothing works on.
        assert docker.state(container) == "running"

    asyncio.run(work())
    assert snapshots.validate()["problems"] == []


def test_a_killed_process_leaves_the_container_running(
    snapshots: ContainerSnapshots, docker: Dockerd, container: str
) -> None:
    # The image of a larger container takes longer than the kill.
    docker.sh(container, "i=0; while test $i -lt 6; do cat /bin/busybox; i=$((i+1)); done > /big")
    script = (
        "import sys; from nono_py.containers import ContainerSnapshots;"
        "ContainerSnapshots(sys.argv[1], sys.argv[2]).snapshot(sys.argv[3])"
    )
    command = [sys.executable, "-c", script, snapshots.root, docker.host, container]
    # From a time on, so that no event is missed before the program listens.
    since = f"{time.time():.6f}"
    with subprocess.Popen(
        ["docker", "-H", docker.host, "events", "--since", since,
         "--filter", f"container={container}",
         "--filter", "event=pause", "--filter", "event=unpause", "--format", "{{.Action}}"],
        stdout=subprocess.PIPE, text=True,
    ) as events:  # fmt: skip
        assert events.stdout is not None
        try:
            docker.run("pause", container)
            docker.run("unpause", container)
            assert [events.stdout.readline().strip() for _ in range(2)] == ["pause", "unpause"]
            taking = subprocess.Popen(command)
            # Volumes are read before that, which mounts them.
            while events.stdout.readline().strip() != "pause":
                pass
            os.kill(taking.pid, signal.SIGKILL)
            taking.wait(60)
            while events.stdout.readline().strip() != "unpause":
                pass
        finally:
            events.terminate()
    assert docker.state(container) == "running"
    assert snapshots.snapshot(container).is_consistent


def test_failures_name_what_failed(snapshots: ContainerSnapshots, tmp_path: Path) -> None:
    with pytest.raises(NonoError, match="no container nobody") as failure:
        snapshots.snapshot("nobody")
    assert failure.value.operation == "snapshot" and failure.value.path == snapshots.root
    with pytest.raises(NonoError, match="no container snapshot nobody"):
        snapshots.show("nobody")
    with pytest.raises(ValueError, match="no trigger: often"):
        snapshots.snapshot("nobody", trigger="often")
    with pytest.raises(ValueError, match="exclude each other"):
        snapshots.restore("nobody", replace=True, volumes_only=["data"])
    absent = ContainerSnapshots(tmp_path / "store", f"unix://{tmp_path}/no.sock")
    with pytest.raises(NonoError, match="no.sock"):
        absent.snapshot("nobody")
