"""The examples run, and print what the README says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent


def run(example: str) -> str:
    command = [sys.executable, str(HERE / "examples" / example)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_agent_is_undone() -> None:
    out = run("agent.py")
    assert "deleted   data.csv (-8 bytes)" in out
    assert "main.py is again: print('hello, world')" in out
    assert "everything sound: True" in out
    readme = (HERE / "README.md").read_text()
    assert out in readme, "README.md does not show what the example prints"


def test_the_event_loop_goes_on() -> None:
    out = run("async_agent.py")
    assert out.endswith("left in the project: 0\nthe event loop went on: True\n")
