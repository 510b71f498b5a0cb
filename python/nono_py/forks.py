"""Forks: an agent works in a writable layer over a recorded state, and the project stays as it is.

>>> from nono_py import Fork
>>> with Fork("~/project", "idea") as fork:                       # doctest: +SKIP
...     fork.run(["pytest", "-q"], check=True)
...     fork.merge()

The kernel shows a fork in namespaces of its own, and a process with threads cannot enter these. So
the commands in a fork are other processes, which the program ``nono`` starts. This module starts
the program, and reads its reports. ``program`` names it where it is not on the ``PATH``.

At the end of the block the fork is discarded. It stays with its work if the block ends with an
exception, if a merge left something in it, or after :meth:`Fork.keep`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import threading
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, Mapping, Optional, Sequence, Type, Union

from ._nono import NonoError

__all__ = ["Fork", "ForkMerge"]

_StrPath = Union[str, "os.PathLike[str]"]

#: Exit code of a report that is not complete.
_PARTIAL = 1

_log = logging.getLogger("nono_py")
_TURNS: Dict[Path, threading.Lock] = {}
_TURNS_LOCK = threading.Lock()


@dataclass(frozen=True)
class ForkMerge:
    """The result of a merge, or of a plan of one."""

    #: Whether all that was done in the fork is in the project.
    is_complete: bool
    #: The session of the merge, which ``nono undo`` takes back; ``None`` where nothing was merged.
    session_id: Optional[str]
    #: The changed paths of the project.
    changed: Sequence[str]
    #: The paths that stay as they are in the project, and why.
    conflicts: Mapping[str, str]
    #: The branches that commits of the fork became.
    branches: Sequence[str]
    #: All that ``nono fork merge --json`` reports.
    report: Mapping[str, Any] = field(repr=False)


class Fork:
    """A fork of a project. It is made by :meth:`make`, or at the begin of a ``with`` block.

    ``project`` is a directory. Without a ``name``, the fork gets one. ``start`` is the state from
    which it begins: ``"now"``, or a recorded one (``"ID/N"``, ``"ID#STEP"``). A fork that is there
    is used by :meth:`open`. ``root`` is the root directory of the store.
    """

    #: The directory of the project, where commands in the fork begin.
    project: Path
    name: str
    #: The facts that the program reports; empty before the fork is made.
    facts: Mapping[str, Any]

    def __init__(
        self,
        project: _StrPath = ".",
        name: Optional[str] = None,
        *,
        start: str = "now",
        root: Optional[_StrPath] = None,
        program: _StrPath = "nono",
    ) -> None:
        self.project = Path(project).expanduser().absolute()
        self.name = f"py-{uuid.uuid4().hex[:12]}" if name is None else name
        if not self.name[:1].isalnum():
            raise ValueError(f"{self.name!r} is no name for a fork")
        self.facts = {}
        self._start = start
        words = [os.fspath(program)]
        if root is not None:
            words += ["--root", os.fspath(Path(root).expanduser().absolute())]
        self._program = words
        self._is_kept = False
        self._is_discarded = False

    @classmethod
    def open(
        cls,
        project: _StrPath,
        name: str,
        *,
        root: Optional[_StrPath] = None,
        program: _StrPath = "nono",
    ) -> Fork:
        """A fork that is there. At the end of a ``with`` block it stays."""
        fork = cls(project, name, root=root, program=program)
        fork.facts = fork._reported("show", "show", "--json", "--", name)
        fork._is_kept = True
        return fork

    @property
    def session_id(self) -> Optional[str]:
        """The session of the fork: its snapshot 0 is the state from which the fork began."""
        return self.facts.get("session_id")

    def make(self) -> Fork:
        """Makes the fork."""
        if not self.facts:
            # A flag first: a name that follows is never that of a subcommand.
            self.facts = self._reported("make", "--json", "--from", self._start, self.name)
        return self

    def command(self, command: Sequence[_StrPath], *flags: str) -> list[str]:
        """The words that run a command in the fork. ``flags`` are those of ``nono fork enter``."""
        inside = [os.fspath(word) for word in command]
        if not inside:
            raise ValueError("there is no command")
        return [*self._program, "fork", "enter", *flags, self._id, "--", *inside]

    def run(
        self,
        command: Sequence[_StrPath],
        *,
        flags: Sequence[str] = (),
        check: bool = False,
        **options: Any,
    ) -> subprocess.CompletedProcess[Any]:
        """Runs a command in the fork, to its end. ``options`` are those of :func:`subprocess.run`.

        The walls of ``nono run`` stand around it, and ``flags`` (``--allow``, ``--profile``) open
        them. The program says on the standard error what the fork has changed so far.
        """
        options.setdefault("cwd", self.project)
        return subprocess.run(self.command(command, *flags), check=check, **options)

    async def run_async(
        self, command: Sequence[_StrPath], *, flags: Sequence[str] = (), **options: Any
    ) -> subprocess.CompletedProcess[bytes]:
        """As :meth:`run`, with the options of :func:`asyncio.create_subprocess_exec`.

        A cancelled task ends the command, and waits for its end.
        """
        words = self.command(command, *flags)
        options.setdefault("cwd", self.project)
        process = await asyncio.create_subprocess_exec(*words, **options)
        try:
            stdout, stderr = await process.communicate()
        except asyncio.CancelledError:
            try:
                # The program passes it on to the command.
                process.terminate()
            except ProcessLookupError:
                pass
            await process.wait()
            raise
        code = process.returncode
        assert code is not None, "communicate() waits for the end"
        return subprocess.CompletedProcess(words, code, stdout, stderr)

    def changes(self) -> list[Mapping[str, Any]]:
        """The changes of the fork: ``path``, ``change_type`` and ``size_delta`` of each."""
        report = self._reported("changes", "diff", "--json", self._id)
        changes: list[Mapping[str, Any]] = report["changes"]
        return changes

    def merge(
        self,
        paths: Sequence[_StrPath] = (),
        *,
        on_conflict: str = "leave",
        check: Optional[str] = None,
        commits: bool = True,
        dry_run: bool = False,
    ) -> ForkMerge:
        """Merges what was done in the fork into the project: files three ways, commits as a branch.

        ``on_conflict`` is ``"leave"``, ``"ours"`` (the project) or ``"theirs"`` (the fork). With
        ``check``, a command line runs in a copy of the merged state first, and nothing is merged
        unless it succeeds. ``nono undo`` takes a merge back. Merges of this process take turns.
        """
        sides = {"leave": [], "ours": ["--ours"], "theirs": ["--theirs"]}
        if on_conflict not in sides:
            raise ValueError(f"on_conflict is one of {', '.join(sides)}, not {on_conflict!r}")
        words = ["merge", "--json", *sides[on_conflict]]
        if check is not None:
            words.append(f"--check={check}")
        if not commits:
            words.append("--no-commits")
        if dry_run:
            words.append("--dry-run")
        # A merge is refused while another one is at work in the project.
        chosen = [os.fspath(path) for path in paths]
        with _turn(self.project):
            done, report = self._asked("merge", *words, "--", self._id, *chosen)
        merge = _merge_of(report, is_complete=done == 0)
        if not dry_run:
            self._is_kept |= not merge.is_complete or bool(report.get("stays"))
        return merge

    def keep(self) -> None:
        """Lets the fork stay at the end of the block."""
        self._is_kept = True

    def discard(self) -> None:
        """Removes the fork with its changes. One with a process in it is refused."""
        done, report = self._asked("discard", "discard", "--json", "--", self._id)
        if done != 0:
            raise _failed("discard", "; ".join(left["message"] for left in report["left"]))
        self._is_discarded = True

    async def make_async(self) -> Fork:
        """As :meth:`make`, in another thread."""
        return await asyncio.to_thread(self.make)

    async def changes_async(self) -> list[Mapping[str, Any]]:
        """As :meth:`changes`, in another thread."""
        return await asyncio.to_thread(self.changes)

    async def merge_async(
        self,
        paths: Sequence[_StrPath] = (),
        *,
        on_conflict: str = "leave",
        check: Optional[str] = None,
        commits: bool = True,
        dry_run: bool = False,
    ) -> ForkMerge:
        """As :meth:`merge`, in another thread. A merge goes on when its task is cancelled."""

        def work() -> ForkMerge:
            return self.merge(
                paths, on_conflict=on_conflict, check=check, commits=commits, dry_run=dry_run
            )

        return await asyncio.to_thread(work)

    async def discard_async(self) -> None:
        """As :meth:`discard`, in another thread."""
        await asyncio.to_thread(self.discard)

    def __enter__(self) -> Fork:
        return self.make()

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if self._stays(error):
            return
        self.discard()

    async def __aenter__(self) -> Fork:
        return await self.make_async()

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if self._stays(error):
            return
        await self.discard_async()

    def __repr__(self) -> str:
        return f"Fork({str(self.project)!r}, {self.name!r})"

    @property
    def _id(self) -> str:
        """The fork as an argument: its session, which means it alone."""
        if self.session_id is None:
            raise NonoError(f"the fork {self.name} is not made yet: use it in a `with` block")
        return self.session_id

    def _stays(self, error: Optional[BaseException]) -> bool:
        if error is not None and not self._is_discarded:
            _log.warning("fork %s of %s stays: %s", self.name, self.project, error)
            return True
        return self._is_kept or self._is_discarded

    def _asked(self, operation: str, *words: str) -> tuple[int, dict[str, Any]]:
        """The exit code and the report of a command of ``nono fork``."""
        try:
            done = subprocess.run(
                [*self._program, "fork", *words],
                cwd=self.project,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
        except OSError as error:
            raise _failed(operation, f"cannot run {self._program[0]}: {error}") from error
        if done.returncode in (0, _PARTIAL) and done.stdout:
            report: dict[str, Any] = json.loads(done.stdout)
            return done.returncode, report
        said = done.stderr.decode(errors="backslashreplace").strip()
        said = said.removeprefix("nono: ").removeprefix("error: ")
        raise _failed(operation, said or f"exit code {done.returncode}")

    def _reported(self, operation: str, *words: str) -> dict[str, Any]:
        return self._asked(operation, *words)[1]


def _turn(project: Path) -> threading.Lock:
    """The lock of the merges that this process makes in a project."""
    with _TURNS_LOCK:
        return _TURNS.setdefault(project, threading.Lock())


def _merge_of(report: Mapping[str, Any], *, is_complete: bool) -> ForkMerge:
    branches = [branch for branch in report.get("branches", []) if "left" not in branch]
    return ForkMerge(
        is_complete=is_complete,
        session_id=report.get("merge_session"),
        changed=[change["path"] for change in report.get("changes", [])],
        conflicts={left["path"]: left["reason"] for left in report.get("merge_conflicts", [])},
        branches=[branch["branch"] for branch in branches],
        report=report,
    )


def _failed(operation: str, message: str) -> NonoError:
    error = NonoError(message)
    error.operation = operation
    error.path = None
    return error
