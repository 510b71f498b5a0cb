"""A project to record, and the program `nono` to compare with."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dockerd import docker as docker
from not_run import not_run

from nono_py import SnapshotManager


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A tracked directory with two files."""
    work = tmp_path / "work"
    (work / "sub").mkdir(parents=True)
    (work / "one.txt").write_text("one")
    (work / "sub" / "two.txt").write_text("two")
    return work


@pytest.fixture
def manager(tmp_path: Path, work: Path) -> SnapshotManager:
    return SnapshotManager(tmp_path / "session", [work])


class Nono:
    """The program, with a store of its own."""

    def __init__(self, program: str, root: Path) -> None:
        self.program = program
        self.root = root

    def run(self, *args: object, check: bool = True) -> str:
        command = [self.program, "--root", str(self.root), *map(str, args)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        if check and done.returncode != 0:
            raise AssertionError(f"{command} failed: {done.stderr}")
        return done.stdout

    def json(self, *args: object) -> Any:
        return json.loads(self.run(*args, "--json"))


@pytest.fixture
def nono(tmp_path: Path) -> Nono:
    program = os.environ.get("NONO_BIN") or shutil.which("nono")
    if program is None:
        pytest.fail("NONO_BIN does not name the program; scripts/test sets it")
    return Nono(program, tmp_path / "store")


@pytest.fixture
def fuse(request: pytest.FixtureRequest) -> None:
    """Asks for a machine that can mount."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        not_run(request, "MOUNT TESTS DO NOT RUN: /dev/fuse cannot be opened")
