"""Snapshots from asyncio: the event loop goes on while one is taken.

The calls of nono_py let other threads run, so ``asyncio.to_thread`` is all that is needed.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from nono_py import Change, SnapshotManager, new_session_dir


async def heartbeat(beats: list[int]) -> None:
    """Something else that the program does."""
    while True:
        beats.append(len(beats))
        await asyncio.sleep(0.001)


async def action(project: Path, name: str) -> None:
    await asyncio.sleep(0.01)
    (project / name).write_text(f"made by {name}\n")


async def run(project: Path, store: Path) -> list[Change]:
    manager = SnapshotManager(new_session_dir(store), [project])
    await asyncio.to_thread(manager.create_baseline)
    await asyncio.gather(*(action(project, f"action-{number}") for number in range(3)))
    _, changes = await asyncio.to_thread(manager.create_incremental)
    undone = await asyncio.to_thread(manager.restore_to, 0)
    assert len(undone) == len(changes)
    return changes


async def main() -> None:
    with tempfile.TemporaryDirectory() as temp:
        project = Path(temp) / "project"
        project.mkdir()
        beats: list[int] = []
        other = asyncio.create_task(heartbeat(beats))
        changes = await run(project, Path(temp) / "snapshots")
        other.cancel()
        for change in changes:
            print(change.change_type, Path(change.path).name)
        print("left in the project:", len(list(project.iterdir())))
        print("the event loop went on:", len(beats) > 1)


if __name__ == "__main__":
    asyncio.run(main())
