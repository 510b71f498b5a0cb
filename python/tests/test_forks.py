"""Forks from Python: commands in them, merges, and what stays at the end of a block."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from conftest import Nono
from not_run import not_run

from nono_py import Fork, NonoError


@pytest.fixture
def forks(request: pytest.FixtureRequest, nono: Nono, work: Path) -> dict[str, Any]:
    """The store and the program, as a fork takes them, on a machine that has forks."""
    findings = json.loads(nono.run("doctor", "--json", check=False))
    found = {finding["what"]: finding for finding in findings}
    if found["forks"].get("mend") is not None:
        not_run(request, f"FORK TESTS DO NOT RUN: {found['forks']['found']}")
    return {"root": nono.root, "program": nono.program}


def names(nono: Nono) -> list[str]:
    return [fork["name"] for fork in nono.json("forks")]


def test_what_was_done_in_a_fork_is_merged_and_the_fork_goes_at_the_end_of_the_block(
    forks: dict[str, Any], nono: Nono, work: Path
) -> None:
    with Fork(work, "idea", **forks) as fork:
        done = fork.run(["sh", "-c", "echo two > one.txt; echo new > n.txt; pwd"], text=True,
                        stdout=subprocess.PIPE, check=True)
        assert Path(done.stdout.strip()) == work
        assert (work / "one.txt").read_text() == "one", "the project is as it was"
        assert {Path(change["path"]).name for change in fork.changes()} == {"one.txt", "n.txt"}
        assert names(nono) == ["idea"]
        planned = fork.merge(dry_run=True)
        assert len(planned.changed) == 2 and not (work / "n.txt").exists()
        merged = fork.merge()
        assert merged.is_complete and merged.conflicts == {}
        assert (work / "one.txt").read_text() == "two\n" and (work / "n.txt").exists()
    assert names(nono) == []
    assert merged.session_id is not None
    nono.run("undo", "--yes", merged.session_id)
    assert (work / "one.txt").read_text() == "one" and not (work / "n.txt").exists()


def test_a_fork_with_work_that_is_nowhere_else_stays(
    forks: dict[str, Any], nono: Nono, work: Path
) -> None:
    with Fork(work, "conflict", **forks) as fork:
        fork.run(["sh", "-c", "echo fork > one.txt"], check=True)
        (work / "one.txt").write_text("project\n")
        merged = fork.merge()
        assert not merged.is_complete and list(merged.conflicts) == [str(work / "one.txt")]
    assert names(nono) == ["conflict"]
    with pytest.raises(ZeroDivisionError):
        with Fork(work, "failed", **forks) as fork:
            fork.run(["sh", "-c", "echo failed > one.txt"], check=True)
            1 / 0
    assert names(nono) == ["conflict", "failed"]
    with Fork.open(work, "failed", **forks) as fork:
        assert fork.run(["cat", "one.txt"], stdout=subprocess.PIPE).stdout == b"failed\n"
    assert fork.merge(on_conflict="theirs").is_complete
    assert (work / "one.txt").read_text() == "failed\n"
    fork.discard()
    assert names(nono) == ["conflict"]
    with Fork(work, **forks) as fork:
        assert fork.name in names(nono)
        fork.keep()
    assert len(names(nono)) == 2


def test_a_check_that_fails_lets_nothing_land(forks: dict[str, Any], work: Path) -> None:
    with Fork(work, "checked", **forks) as fork:
        fork.run(["sh", "-c", "echo two > one.txt"], check=True)
        refused = fork.merge(check="test -e missing")
        assert not refused.is_complete and refused.session_id is None
        assert (work / "one.txt").read_text() == "one"
        assert fork.merge(check="grep -q two one.txt").is_complete
    assert (work / "one.txt").read_text() == "two\n"


def test_agents_work_side_by_side_under_asyncio(
    forks: dict[str, Any], nono: Nono, work: Path
) -> None:
    async def agent(number: int) -> list[str]:
        async with Fork(work, f"agent-{number}", **forks) as fork:
            script = f"echo {number} > by-{number}.txt; ls"
            done = await fork.run_async(["sh", "-c", script], stdout=subprocess.PIPE)
            assert done.returncode == 0
            assert len(await fork.changes_async()) == 1
            await fork.merge_async()
            return done.stdout.decode().split()

    async def day() -> list[list[str]]:
        return await asyncio.gather(*(agent(number) for number in range(2)))

    first, second = asyncio.run(day())
    assert "by-0.txt" in first and "by-1.txt" in second
    assert (work / "by-0.txt").exists() and (work / "by-1.txt").exists()
    assert names(nono) == []


def test_a_cancelled_task_ends_its_command_and_the_fork_stays(
    forks: dict[str, Any], nono: Nono, work: Path
) -> None:
    async def cancelled() -> None:
        async with Fork(work, "cancelled", **forks) as fork:
            script = "echo begun > begun.txt; echo begun; exec sleep 1000"
            task = asyncio.ensure_future(fork.run_async(["sh", "-c", script]))
            while not any("begun" in change["path"] for change in await fork.changes_async()):
                assert not task.done()
            task.cancel()
            await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(asyncio.wait_for(cancelled(), 50))
    (listed,) = nono.json("forks")
    assert (listed["name"], listed["processes"]) == ("cancelled", [])


def test_what_cannot_be_is_an_error_that_says_why(
    forks: dict[str, Any], nono: Nono, work: Path
) -> None:
    with pytest.raises(ValueError, match="no name for a fork"):
        Fork(work, "--help", **forks)
    with pytest.raises(NonoError, match="is a command of `nono fork`"):
        Fork(work, "list", **forks).make()
    with pytest.raises(NonoError, match="there is no fork missing"):
        Fork.open(work, "missing", **forks)
    with pytest.raises(NonoError, match="is not made yet"):
        Fork(work, "later", **forks).changes()
    with pytest.raises(NonoError, match="cannot run"):
        Fork(work, root=nono.root, program="/missing/nono").make()
    with Fork(work, "one", **forks) as fork:
        with pytest.raises(ValueError, match="on_conflict"):
            fork.merge(on_conflict="mine")
        with pytest.raises(ValueError, match="no command"):
            fork.run([])
        with pytest.raises(NonoError, match="there is a fork one already") as taken:
            Fork(work, "one", **forks).make()
        assert taken.value.operation == "make"
