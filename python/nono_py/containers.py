"""Snapshots of Docker and Podman containers.

    from nono_py.containers import ContainerSnapshots

    snapshots = ContainerSnapshots()
    taken = snapshots.snapshot("my-container", message="before the migration")
    restored = snapshots.restore(taken.id)               # a new container beside the original
    taken = await snapshots.snapshot_async("my-container")

Each method has two forms. The plain form blocks, and lets other threads run. The form with
``_async`` works in another thread, so the event loop goes on. A cancelled task stops the work,
waits for its end, and raises ``CancelledError``; a snapshot is then complete or did not happen.

The snapshots are those of ``nono container``: the program lists, mounts and restores them, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from ._nono import Progress, _ContainerEngine, _Stop

__all__ = ["ContainerSnapshot", "ContainerSnapshots", "RestoredContainer", "TakenSnapshot"]

_T = TypeVar("_T")
_Tell = Optional[Callable[[Progress], object]]

#: Run by another interpreter: lets a paused container go on if this process dies.
_WATCH = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from nono_py._nono import _watch_paused; _watch_paused(*sys.argv[2:])"
)


@dataclass(frozen=True)
class TakenSnapshot:
    """A snapshot of a container that was taken, and is durable."""

    #: The id of the session: the history of one container.
    session_id: str
    #: The number in the session.
    number: int
    #: The name of the container.
    container: str
    #: The engine's id of the container.
    container_id: str
    #: Whether the container stood still meanwhile.
    is_consistent: bool
    #: What the snapshot does not hold, in sentences.
    not_captured: Tuple[str, ...]
    #: What a user should know before a restore, in sentences.
    warnings: Tuple[str, ...]
    #: The whole report, as ``nono container snapshot --json`` prints it.
    details: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def id(self) -> str:
        """``SESSION/N``, as every method and the program take it."""
        return f"{self.session_id}/{self.number}"


@dataclass(frozen=True)
class ContainerSnapshot:
    """A snapshot of a container in the store."""

    #: The id of the session: the history of one container.
    session_id: str
    #: The number in the session.
    number: int
    #: The name of the container when the snapshot was taken.
    container: str
    #: The engine's id of the container.
    container_id: str
    #: When the snapshot began.
    captured_at: datetime
    #: ``"manual"``, ``"run_start"``, ``"run_end"``, ``"before_action"``, ``"after_action"``, or
    #: ``"before_restore"``.
    trigger: str
    #: The words of the caller.
    message: Optional[str]
    #: The run of the agent.
    run_id: Optional[str]
    #: Whether the container stood still meanwhile.
    is_consistent: bool
    #: Configuration, image, mounts, networks: ``container.json`` of the snapshot.
    record: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def id(self) -> str:
        """``SESSION/N``, as every method and the program take it."""
        return f"{self.session_id}/{self.number}"


@dataclass(frozen=True)
class RestoredContainer:
    """The result of a restore, or of its plan."""

    #: Whether the state of the snapshot is there now; false if a replacement was not healthy, and
    #: the original came back.
    ok: bool
    #: The id of the session.
    session_id: str
    #: The number of the snapshot.
    number: int
    #: Whether nothing was done on purpose.
    dry_run: bool
    #: The name of the container with the restored state.
    container: str
    #: Its id; ``None`` for a dry run, and if the original came back.
    container_id: Optional[str]
    #: Whether it runs.
    is_started: bool
    #: What a user should know, in sentences.
    warnings: Tuple[str, ...]
    #: The whole report, as ``nono container restore --json`` prints it.
    details: Mapping[str, Any] = field(repr=False, compare=False)


class ContainerSnapshots:
    """Takes snapshots of containers, and brings them back.

    ``root`` is the store's root directory: by default ``$NONO_ROOT``, or ``~/.nono/rollbacks``.
    ``docker_host`` is the place of the engine (``unix:///var/run/docker.sock``); by default it is
    found as the ``docker`` command finds it. ``threads`` limits the threads; 0 is one for each core.
    Every call makes its own connection, so a restarted engine is no problem.

    A snapshot is named ``SESSION/N``, by the name or id of its container, or ``NAME/N``; without a
    number the latest is meant. A failure is a :class:`nono_py.NonoError`.
    """

    def __init__(
        self,
        root: Union[str, PathLike[str], None] = None,
        docker_host: Optional[str] = None,
        threads: int = 0,
    ) -> None:
        package = str(Path(__file__).resolve().parent.parent)
        watcher = [sys.executable, "-c", _WATCH, package]
        self._engine = _ContainerEngine(root, docker_host, threads, watcher)

    def __repr__(self) -> str:
        return f"ContainerSnapshots(root={self.root!r})"

    @property
    def root(self) -> str:
        """The store's root directory."""
        return os.fspath(self._engine.root)

    def snapshot(
        self,
        container: str,
        *,
        message: Optional[str] = None,
        trigger: str = "manual",
        run_id: Optional[str] = None,
        pause: bool = True,
        image: bool = True,
        files: bool = True,
        progress: _Tell = None,
    ) -> TakenSnapshot:
        """Takes a snapshot of a container: its image, its volumes, its changed files.

        A running container is paused meanwhile, and goes on whatever happens, also if this process
        is killed; ``pause=False`` leaves it running, and the snapshot is then not consistent.
        ``image=False`` makes no image, ``files=False`` leaves out the changed files.
        """
        return self._snapshot(
            container, message, trigger, run_id, pause, image, files, progress, None
        )

    async def snapshot_async(
        self,
        container: str,
        *,
        message: Optional[str] = None,
        trigger: str = "manual",
        run_id: Optional[str] = None,
        pause: bool = True,
        image: bool = True,
        files: bool = True,
        progress: _Tell = None,
    ) -> TakenSnapshot:
        """As :meth:`snapshot`. ``progress`` is called in another thread."""
        return await _in_thread(
            partial(
                self._snapshot, container, message, trigger, run_id, pause, image, files, progress
            )
        )

    def list(self, container: Optional[str] = None) -> List[ContainerSnapshot]:
        """The snapshots of all containers or of one, by session and number."""
        return [_listed(document) for document in json.loads(self._engine.list(container))]

    async def list_async(self, container: Optional[str] = None) -> List[ContainerSnapshot]:
        """As :meth:`list`."""
        return await asyncio.to_thread(self.list, container)

    def show(self, snapshot: str) -> ContainerSnapshot:
        """One snapshot."""
        return _listed(json.loads(self._engine.show(snapshot)))

    async def show_async(self, snapshot: str) -> ContainerSnapshot:
        """As :meth:`show`."""
        return await asyncio.to_thread(self.show, snapshot)

    def restore(
        self,
        snapshot: str,
        *,
        name: Optional[str] = None,
        replace: bool = False,
        volumes_only: Union[str, Sequence[str], None] = None,
        start: bool = True,
        dry_run: bool = False,
        health_seconds: float = 5,
        health_command: Optional[str] = None,
        share_mounts: bool = False,
        progress: _Tell = None,
    ) -> RestoredContainer:
        """Restores a snapshot into a new container; the original stays untouched.

        ``replace=True`` puts the new container in the place of the original, which stays, stopped.
        The new one has to be healthy: by ``health_command`` in it, by its own health check, or by
        running for ``health_seconds``; else the original comes back, and the result is not ``ok``.
        ``volumes_only`` names volumes of the stopped original that get the state of the snapshot,
        after a safety snapshot. ``dry_run=True`` only plans.

        A new container is made and not started where it would write among the files of a container
        that is at work, in a bind mount for example; ``share_mounts=True`` starts it all the same.
        Neither is the copy of a stopped container. ``not_started`` of the report has the reason.
        """
        return self._restore(
            snapshot, name, replace, volumes_only, start, dry_run, health_seconds, health_command,
            share_mounts, progress, None,
        )  # fmt: skip

    async def restore_async(
        self,
        snapshot: str,
        *,
        name: Optional[str] = None,
        replace: bool = False,
        volumes_only: Union[str, Sequence[str], None] = None,
        start: bool = True,
        dry_run: bool = False,
        health_seconds: float = 5,
        health_command: Optional[str] = None,
        share_mounts: bool = False,
        progress: _Tell = None,
    ) -> RestoredContainer:
        """As :meth:`restore`. ``progress`` is called in another thread."""
        return await _in_thread(
            partial(
                self._restore, snapshot, name, replace, volumes_only, start, dry_run,
                health_seconds, health_command, share_mounts, progress,
            )  # fmt: skip
        )

    def diff(self, older: str, newer: Optional[str] = None) -> Mapping[str, Any]:
        """What differs between two snapshots: configuration, volumes, changed files.

        Without ``newer`` it is the latest snapshot of the same history. The result is the report of
        ``nono container diff --json``: ``configuration`` and ``changes`` are lists.
        """
        return _document(self._engine.diff(older, newer))

    async def diff_async(self, older: str, newer: Optional[str] = None) -> Mapping[str, Any]:
        """As :meth:`diff`."""
        return await asyncio.to_thread(self.diff, older, newer)

    def resume(
        self,
        container: Optional[str] = None,
        *,
        abort: bool = False,
        give_up: bool = False,
        health_seconds: float = 5,
        progress: _Tell = None,
    ) -> List[Mapping[str, Any]]:
        """Finishes restores that were interrupted, or with ``abort=True`` takes them back.

        ``container`` names one history; without it, every interrupted restore is ended. A restore
        that had not made everything is taken back. ``give_up=True`` forgets the restore of one
        history, and leaves containers and volumes as they are; it also sets a damaged journal, or a
        damaged list of kept containers, aside. The result is the list of reports of ``nono
        container resume --json``, empty where nothing was interrupted.
        """
        return self._resume(container, abort, give_up, health_seconds, progress, None)

    async def resume_async(
        self,
        container: Optional[str] = None,
        *,
        abort: bool = False,
        give_up: bool = False,
        health_seconds: float = 5,
        progress: _Tell = None,
    ) -> List[Mapping[str, Any]]:
        """As :meth:`resume`. ``progress`` is called in another thread."""
        return await _in_thread(
            partial(self._resume, container, abort, give_up, health_seconds, progress)
        )

    def delete(self, snapshot: str, *, all: bool = False) -> Mapping[str, Any]:
        """Removes the snapshot ``SESSION/N``, or with ``all=True`` a whole history.

        The image of a snapshot goes with it unless something uses it. The result is the report of
        ``nono container delete --json``.
        """
        return _document(self._engine.delete(snapshot, all))

    async def delete_async(self, snapshot: str, *, all: bool = False) -> Mapping[str, Any]:
        """As :meth:`delete`."""
        return await asyncio.to_thread(partial(self.delete, snapshot, all=all))

    def cleanup(
        self,
        *,
        max_age: Optional[timedelta] = timedelta(days=7),
        max_per_container: Optional[int] = 10,
        max_snapshots: Optional[int] = 100,
        max_bytes: Optional[int] = 10 << 30,
        dry_run: bool = False,
    ) -> Mapping[str, Any]:
        """Removes snapshots over a limit: by age first, then by count, then by bytes.

        Safety snapshots of restores go first, then those of runs and actions, then others without a
        message; of equals the oldest. Of each container at most 3 safety snapshots stay.
        ``None`` is no limit. Images of removed snapshots go, too. So do containers that a restore put
        aside longer than ``max_age`` ago, each after a snapshot of it. ``dry_run=True`` only lists. The
        result is the report of ``nono container cleanup --json``.
        """
        seconds = None if max_age is None else max_age.total_seconds()
        return _document(
            self._engine.cleanup(seconds, max_per_container, max_snapshots, max_bytes, dry_run)
        )

    async def cleanup_async(
        self,
        *,
        max_age: Optional[timedelta] = timedelta(days=7),
        max_per_container: Optional[int] = 10,
        max_snapshots: Optional[int] = 100,
        max_bytes: Optional[int] = 10 << 30,
        dry_run: bool = False,
    ) -> Mapping[str, Any]:
        """As :meth:`cleanup`."""
        return await asyncio.to_thread(
            partial(
                self.cleanup,
                max_age=max_age,
                max_per_container=max_per_container,
                max_snapshots=max_snapshots,
                max_bytes=max_bytes,
                dry_run=dry_run,
            )
        )

    def stats(self) -> Mapping[str, Any]:
        """Counts and bytes of all histories: the report of ``nono container stats --json``."""
        return _document(self._engine.stats())

    async def stats_async(self) -> Mapping[str, Any]:
        """As :meth:`stats`."""
        return await asyncio.to_thread(self.stats)

    def validate(self, snapshot: Optional[str] = None) -> Mapping[str, Any]:
        """Looks for snapshots without their image and images without their snapshot.

        ``problems`` of the result is empty if all is well. The result is the report of
        ``nono container validate --json``.
        """
        return _document(self._engine.validate(snapshot))

    async def validate_async(self, snapshot: Optional[str] = None) -> Mapping[str, Any]:
        """As :meth:`validate`."""
        return await asyncio.to_thread(self.validate, snapshot)

    def _snapshot(
        self,
        container: str,
        message: Optional[str],
        trigger: str,
        run_id: Optional[str],
        pause: bool,
        image: bool,
        files: bool,
        progress: _Tell,
        stop: Optional[_Stop],
    ) -> TakenSnapshot:
        document = json.loads(
            self._engine.snapshot(
                container, message, trigger, run_id, pause, image, files, progress, stop
            )
        )
        return TakenSnapshot(
            session_id=document["session_id"],
            number=document["snapshot"],
            container=document["container"],
            container_id=document["container_id"],
            is_consistent=document["is_consistent"],
            not_captured=tuple(document["not_captured"]),
            warnings=tuple(document["warnings"]),
            details=document,
        )

    def _restore(
        self,
        snapshot: str,
        name: Optional[str],
        replace: bool,
        volumes_only: Union[str, Sequence[str], None],
        start: bool,
        dry_run: bool,
        health_seconds: float,
        health_command: Optional[str],
        share_mounts: bool,
        progress: _Tell,
        stop: Optional[_Stop],
    ) -> RestoredContainer:
        if isinstance(volumes_only, str):
            volumes_only = [volumes_only]
        volumes = None if volumes_only is None else [*volumes_only]
        document = json.loads(
            self._engine.restore(
                snapshot, name, replace, volumes, start, dry_run, health_seconds, health_command,
                share_mounts, progress, stop,
            )  # fmt: skip
        )
        health = document["health"]
        return RestoredContainer(
            ok=document["dry_run"] or health is None or health["is_healthy"],
            session_id=document["session_id"],
            number=document["snapshot"],
            dry_run=document["dry_run"],
            container=document["name"],
            container_id=document["container_id"],
            is_started=document["is_started"],
            warnings=tuple(document["warnings"]),
            details=document,
        )


    def _resume(
        self,
        container: Optional[str],
        abort: bool,
        give_up: bool,
        health_seconds: float,
        progress: _Tell,
        stop: Optional[_Stop],
    ) -> List[Mapping[str, Any]]:
        text = self._engine.resume(container, abort, give_up, health_seconds, progress, stop)
        reports: List[Mapping[str, Any]] = json.loads(text)
        return reports


def _document(text: str) -> Mapping[str, Any]:
    document: Dict[str, Any] = json.loads(text)
    return document


def _listed(document: Dict[str, Any]) -> ContainerSnapshot:
    record = document["record"]
    return ContainerSnapshot(
        session_id=document["session_id"],
        number=document["snapshot"],
        container=record["name"],
        container_id=record["container_id"],
        captured_at=_time(record["captured_at"]),
        trigger=record["trigger"],
        message=record.get("message"),
        run_id=record.get("run_id"),
        is_consistent=record["is_consistent"],
        record=record,
    )


def _time(text: str) -> datetime:
    # Before Python 3.11 neither "Z" nor nanoseconds are understood.
    whole, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}.{fraction[:6]:0<6}+00:00")


async def _in_thread(work: Callable[[_Stop], _T]) -> _T:
    """Works in another thread; stops the work, and waits for its end, if this task is cancelled."""
    stop = _Stop()
    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running])
        if not running.cancelled():
            # The cancellation is what is told; a failure after it would be logged as forgotten.
            running.exception()
        raise
