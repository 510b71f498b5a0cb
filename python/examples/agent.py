"""An agent that makes a mess, and the way back. Run it: ``python examples/agent.py``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from nono_py import Change, ExclusionConfig, SnapshotCallback, SnapshotManager, new_session_dir


def agent(project: Path, callback: SnapshotCallback) -> None:
    """Three actions of an agent; the last one is a mistake."""
    callback.run_start("tidy up")

    callback.before_action("write the docs")
    (project / "docs.md").write_text("# Project\n")
    callback.after_action("write the docs")

    callback.before_action("reformat")
    (project / "main.py").write_text("print('hello, world')\n")
    callback.after_action("reformat")

    callback.before_action("clean")
    (project / "main.py").unlink()
    (project / "data.csv").unlink()
    callback.after_action("clean")

    callback.run_end("tidy up")


def show(title: str, changes: list[Change], project: Path) -> None:
    print(title)
    for change in changes:
        path = os.path.relpath(change.path, project)
        delta = "" if change.size_delta is None else f" ({change.size_delta:+} bytes)"
        print(f"  {change.change_type:<9} {path}{delta}")


def main() -> None:
    with tempfile.TemporaryDirectory() as temp:
        project = Path(temp).resolve() / "project"
        project.mkdir()
        (project / "main.py").write_text("print( 'hello, world' )\n")
        (project / "data.csv").write_text("a,b\n1,2\n")

        manager = SnapshotManager(
            new_session_dir(Path(temp) / "snapshots"),
            [project],
            ExclusionConfig(exclude_patterns=["node_modules"], exclude_globs=["*.pyc"]),
        )
        agent(project, SnapshotCallback(manager))

        last = manager.snapshot_count() - 1
        show("What the agent did:", manager.diff(0, last), project)

        for number in range(manager.snapshot_count()):
            print(f"{number}: {manager.load_manifest(number).label}")

        # The state after the second action, without the third.
        good = next(
            number
            for number in range(last + 1)
            if manager.load_manifest(number).label == "after_action: reformat"
        )
        show(f"Back to snapshot {good}:", manager.restore_to(good), project)
        print("main.py is again:", (project / "main.py").read_text().strip())
        print("before the agent:", manager.read(0, project / "main.py").decode().strip())
        print("everything sound:", manager.verify().ok)


if __name__ == "__main__":
    main()
