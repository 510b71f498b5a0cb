from datetime import datetime
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Literal, Optional, Sequence, Type, TypeVar, Union, final

_Path = Union[str, PathLike[str]]
_Manager = TypeVar("_Manager", bound="SnapshotManager")
_Kind = Literal["created", "modified", "deleted", "permissions_changed"]
_OnConflict = Literal["refuse", "overwrite", "keep_newer"]
_Tell = Optional[Callable[[Progress], object]]

__version__: str

class NonoError(RuntimeError):
    """The engine could not do what was asked.

    ``operation`` is the method that failed, ``path`` what it is about; both are in the message.
    """

    operation: str
    path: Optional[str]

class IncompleteRestore(NonoError):
    """A restore was done, and some paths are not as they were in the snapshot.

    ``report`` is the :class:`RestoreReport`: what was done, and what was skipped and why.
    """

    report: Optional[RestoreReport]

@final
class Progress:
    """How far a call is, as its ``progress`` function is told."""

    @property
    def stage(self) -> str:
        """What is done at the moment: ``"capture"``, ``"flush"``, ``"compare"``, ``"stage"``,
        ``"commit"``, ``"copy"``, ``"read_lists"``, ``"read_contents"``, ``"list_objects"``,
        ``"upload"``, ``"download"``, ``"remove"``, ``"wait"``, or ``""`` before anything has begun.
        """

    @property
    def entries(self) -> int:
        """Files, directories, links or objects that are done in this stage."""

    @property
    def bytes(self) -> int:
        """Bytes of their contents."""

    @property
    def expected_entries(self) -> Optional[int]:
        """About how many entries the stage has, where that is known."""

    @property
    def expected_bytes(self) -> Optional[int]:
        """About how many bytes the stage has, where that is known."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class ContentHash:
    """The SHA-256 of some bytes, which is also the name under which they are stored."""

    def __new__(cls, hex: str) -> ContentHash: ...
    def hex(self) -> str:
        """64 lower-case hexadecimal digits."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __getnewargs__(self) -> tuple[str]: ...

@final
class FileState:
    """One file of a snapshot."""

    @property
    def hash(self) -> ContentHash:
        """The SHA-256 of the contents."""

    @property
    def size(self) -> int:
        """Length in bytes."""

    @property
    def mtime(self) -> int:
        """When the contents last changed, in seconds since 1970."""

    @property
    def permissions(self) -> int:
        """The permission bits, as in ``stat.S_IMODE``."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Change:
    """One path that changed."""

    @property
    def path(self) -> str:
        """The absolute path."""

    @property
    def change_type(self) -> _Kind:
        """How it changed."""

    @property
    def size_delta(self) -> Optional[int]:
        """By how many bytes a file grew; ``None`` where there are no contents."""

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory or, if it was deleted, was one."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class ExclusionConfig:
    """What is left out of the tracked paths.

    Patterns are names (``node_modules``) or, with a ``/`` in them, any part of a path: ``src/gen``
    also means ``src/generated``. A leading ``/`` ties one to the top of the tracked path, a trailing
    one to directories. With ``*``, ``?`` or ``[…]`` they are about whole names. Globs look at the
    names of everything but directories (``*.pyc``). ``force_include`` has patterns that beat
    every exclusion; directories that ``prune_patterns`` name are not searched for it. ``ignored``
    says what is recorded of the paths that ``.gitignore`` files leave out: ``"none"``,
    ``"small"`` (as on the command line: an ``.env`` is kept, a build directory is not) or
    ``"all"``. The lists are copies: a configuration never changes.
    """

    def __new__(
        cls,
        use_gitignore: bool = True,
        exclude_patterns: Sequence[str] = [],
        exclude_globs: Sequence[str] = [],
        force_include: Sequence[str] = [],
        prune_patterns: Sequence[str] = [],
        ignored: Literal["none", "small", "all"] = "small",
    ) -> ExclusionConfig: ...
    @property
    def use_gitignore(self) -> bool:
        """Whether ``.gitignore`` files below the tracked paths are honoured."""

    @property
    def exclude_patterns(self) -> list[str]:
        """Patterns of what is left out."""

    @property
    def exclude_globs(self) -> list[str]:
        """Globs on the names of what is left out."""

    @property
    def force_include(self) -> list[str]:
        """Patterns of what stays in whatever else says."""

    @property
    def prune_patterns(self) -> list[str]:
        """Patterns of directories that are left out and not searched for what is force-included."""

    @property
    def ignored(self) -> Literal["none", "small", "all"]:
        """The ignored paths that are recorded: ``"none"``, ``"small"`` or ``"all"``."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __getnewargs__(self) -> tuple[bool, list[str], list[str], list[str], list[str], str]: ...

@final
class SnapshotManifest:
    """A snapshot: when it was taken, and the hash that commits to every byte of it."""

    @property
    def number(self) -> int:
        """Number in the session; 0 is the baseline."""

    @property
    def timestamp(self) -> str:
        """When the capture began, in ISO 8601 (UTC)."""

    @property
    def parent(self) -> Optional[int]:
        """Number of the snapshot before; ``None`` for the baseline."""

    @property
    def merkle_root(self) -> ContentHash:
        """The hash that commits to every name, attribute and byte."""

    @property
    def label(self) -> Optional[str]:
        """What :meth:`SnapshotManager.checkpoint` called it."""

    @property
    def file_count(self) -> int:
        """Number of regular files."""

    @property
    def total_bytes(self) -> int:
        """Bytes of the contents of all files."""

    @property
    def not_captured(self) -> dict[str, str]:
        """What is not in the snapshot, by path, with the reason. A restore leaves it alone."""

    @property
    def files(self) -> dict[str, FileState]:
        """Every regular file by its absolute path. Made when it is first read."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class SessionMetadata:
    """A session: what was run, on which paths, and the Merkle roots of its snapshots.

    A new one begins now. :meth:`SnapshotManager.save_session_metadata` writes it; what it says of
    the snapshots (``snapshot_count``, ``merkle_roots``) is then as they are on the disk.
    """

    def __new__(
        cls, session_id: str, command: Sequence[str], tracked_paths: Sequence[_Path]
    ) -> SessionMetadata: ...
    @property
    def session_id(self) -> str:
        """The name of the session's directory, ``YYYYMMDD-HHMMSS-PID``."""

    @property
    def started(self) -> str:
        """When the session began, in ISO 8601 (UTC)."""

    @property
    def command(self) -> list[str]:
        """The program and its arguments."""

    @property
    def tracked_paths(self) -> list[str]:
        """What is captured."""

    @property
    def ended(self) -> Optional[str]:
        """When the session ended, in ISO 8601; ``None`` as long as it has not. Set it to text with an
        offset, which comes back as it was set, or to a ``datetime`` that knows its time zone, which
        comes back in UTC.
        """

    @ended.setter
    def ended(self, value: Union[str, datetime, None]) -> None: ...
    @property
    def snapshot_count(self) -> int:
        """Number of snapshots."""

    @snapshot_count.setter
    def snapshot_count(self, value: int) -> None: ...
    @property
    def exit_code(self) -> Optional[int]:
        """Exit code of the command; 128+n for a signal n; ``None`` before its end."""

    @exit_code.setter
    def exit_code(self, value: Optional[int]) -> None: ...
    @property
    def merkle_roots(self) -> list[ContentHash]:
        """Merkle roots of the snapshots, in order."""

    @property
    def session_root(self) -> ContentHash:
        """Commits to the session as it is described here, and to all its snapshots. Noted elsewhere, it
        proves them: ``nono rollback verify ID --expect-root HEX``."""

    def add_merkle_root(self, root: ContentHash) -> None:
        """Adds the Merkle root of a further snapshot."""

    @property
    def network_events(self) -> list[dict[str, Any]]:
        """What a supervisor noted of network accesses."""

    def set_network_events(self, events: Sequence[dict[str, Any]]) -> None:
        """Replaces the network events. They are kept as JSON."""

    @property
    def executable_identity(self) -> None:
        """Always ``None``: nono records files and no digest of the program. The property is there
        for scripts that were written for the other package of this name."""

    @property
    def audit_event_count(self) -> int:
        """Always 0: nono keeps no log of audit events. The property is there for scripts that were
        written for the other package of this name."""

    @property
    def audit_integrity(self) -> None:
        """Always ``None``: nono keeps no log of audit events whose integrity it could tell.
        :attr:`session_root` proves the snapshots instead."""

    @property
    def audit_attestation(self) -> None:
        """Always ``None``: nono signs nothing. :attr:`session_root`, noted elsewhere, is the
        proof."""

    def to_json(self) -> str:
        """The session as the JSON document that its manifest is."""

    @staticmethod
    def from_json(json: str) -> SessionMetadata:
        """Reads what :meth:`to_json` wrote."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class SnapshotCheck:
    """One snapshot of a :class:`VerifyReport`."""

    @property
    def number(self) -> int:
        """Its number."""

    @property
    def merkle_root(self) -> Optional[ContentHash]:
        """Its Merkle root, if it is known."""

    @property
    def ok(self) -> bool:
        """Whether its manifest and every object below its Merkle root are sound."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Problem:
    """One thing that is wrong with a session; ``str`` says it in a sentence."""

    @property
    def kind(self) -> str:
        """``"missing_object"``, ``"corrupt_object"``, ``"corrupt_tree"``, ``"corrupt_manifest"``,
        ``"corrupt_pack"`` or ``"merkle_mismatch"``.
        """

    @property
    def snapshot(self) -> Optional[int]:
        """The snapshot it is about, if it is about one."""

    @property
    def object(self) -> Optional[ContentHash]:
        """The object that is missing or damaged, if it is one."""

    @property
    def path(self) -> Optional[str]:
        """A path in that snapshot that needs the object."""

    def __eq__(self, other: Any, /) -> bool: ...
    def __ne__(self, other: Any, /) -> bool: ...

@final
class VerifyReport:
    """The result of :meth:`SnapshotManager.verify`; true when everything is sound."""

    @property
    def session_id(self) -> str:
        """The session."""

    @property
    def ok(self) -> bool:
        """Whether there is no problem at all."""

    @property
    def session_root(self) -> Optional[ContentHash]:
        """Commits to what the session's manifest says and to all its snapshots; ``None`` where the
        manifest cannot be read.
        """

    @property
    def snapshots(self) -> list[SnapshotCheck]:
        """Its snapshots, by number."""

    @property
    def objects_checked(self) -> int:
        """Different objects that were read."""

    @property
    def bytes_checked(self) -> int:
        """Bytes of those objects."""

    @property
    def problems(self) -> list[Problem]:
        """Everything that is wrong."""

    def __bool__(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class RecoveryReport:
    """What :meth:`SnapshotManager.recover_restore` did."""

    @property
    def session_id(self) -> str:
        """The session."""

    @property
    def snapshot(self) -> int:
        """The snapshot that was being restored."""

    @property
    def outcome(self) -> Literal["finished", "taken_back", "not_begun"]:
        """``"finished"``, ``"taken_back"``, or ``"not_begun"``: no path had changed yet."""

    @property
    def changes(self) -> list[Change]:
        """What the whole restore changed; empty unless it was finished."""

    @property
    def touched(self) -> list[str]:
        """Paths that the whole restore gave their time back, and nothing else."""

    @property
    def skipped(self) -> dict[str, str]:
        """What is not as it was in the snapshot, by path, with the reason."""

    @property
    def lost(self) -> dict[str, str]:
        """Left-out paths of the snapshot that cannot come back: ``"gone"`` or ``"changed"``; empty
        unless it is finished."""

    @property
    def is_complete(self) -> bool:
        """Whether every path is in the state that was asked for."""

    @property
    def safety_snapshot(self) -> Optional[int]:
        """The snapshot that holds the state before the restore, unless none was taken."""

@final
class Conflict:
    """A path that was changed after a completed session: a restore would undo that as well."""

    @property
    def path(self) -> str:
        """The absolute path."""

    @property
    def change_type(self) -> _Kind:
        """What happened to it since: ``"created"``, ``"modified"``, ``"deleted"`` or
        ``"permissions_changed"``.
        """

    @property
    def user_step(self) -> int | None:
        """For an undo of an agent's session: number of the last step in which the user edited the
        path, or may have.
        """

    @property
    def beside(self) -> list[str]:
        """For an undo: ids of the sessions that were at work on the path at the same time, and
        may have changed it.
        """

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class RestoreReport:
    """What a restore did, or would do; true when the state asked for is the state on disk, or would be."""

    @property
    def session_id(self) -> str:
        """The session."""

    @property
    def snapshot(self) -> int:
        """The snapshot whose state was asked for."""

    @property
    def dry_run(self) -> bool:
        """Whether nothing was done on purpose."""

    @property
    def ok(self) -> bool:
        """Whether nothing was skipped and nothing was refused."""

    @property
    def refused(self) -> bool:
        """Whether nothing was done because of conflicts."""

    @property
    def changes(self) -> list[Change]:
        """What changed on the disk, sorted by path. Empty for a copy."""

    @property
    def touched(self) -> list[str]:
        """Paths that got their time back and were otherwise as they were."""

    @property
    def directory_times(self) -> int:
        """How many directories got their time back and were otherwise as they were."""

    @property
    def conflicts(self) -> list[Conflict]:
        """Paths with later changes that the restore would undo, too."""

    @property
    def on_conflict(self) -> _OnConflict:
        """What was done about them: ``"refuse"``, ``"overwrite"`` or ``"keep_newer"``."""

    @property
    def skipped(self) -> dict[str, str]:
        """What is not as it was in the snapshot, by path, with the reason."""

    @property
    def lost(self) -> dict[str, str]:
        """What the snapshot did not record and cannot come back, by path: ``"gone"`` or ``"changed"``.
        What a program makes again is not in it.
        """

    @property
    def rebuildable(self) -> list[str]:
        """What is new, was not recorded, and stays: directories that bear the mark of a program that
        makes them again.
        """

    @property
    def unstable(self) -> list[str]:
        """Files that kept changing while the snapshot read them: each has the state that was read, which
        may be one that it never had.
        """

    @property
    def safety_snapshot(self) -> Optional[int]:
        """The snapshot that holds the state before; ``None`` when nothing was to be done, the disk of
        the store was full, or none was wanted.
        """

    @property
    def not_kept(self) -> list[str]:
        """Paths that were skipped because the disk of the store was too full to keep what is there."""

    @property
    def to(self) -> Optional[str]:
        """Where the copy is; ``None`` for a restore in place."""

    @property
    def written_count(self) -> int:
        """Files, links and pipes that were copied."""

    @property
    def written_bytes(self) -> int:
        """Bytes of their contents."""

    def to_json(self) -> str:
        """The report as JSON, as ``nono rollback restore --json`` prints it."""

    @staticmethod
    def _from_pickled(report: str, copied: Optional[str]) -> RestoreReport: ...
    def __bool__(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]: ...

@final
class Repaired:
    """Something that was damaged and is whole again."""

    @property
    def object(self) -> Optional[ContentHash]:
        """The object; ``None`` for a manifest."""

    @property
    def on_disk(self) -> str:
        """Where it is."""

    @property
    def source(self) -> Literal["file", "store", "recaptured", "snapshots"]:
        """Where the good copy was: ``"file"`` (one that still has the contents), ``"store"`` (another
        store), ``"recaptured"`` (the tracked paths, captured once more) or ``"snapshots"`` (a session's
        manifest that was made again from them).
        """

    @property
    def source_path(self) -> Optional[str]:
        """The file or object that was copied, if it was one."""

    def __eq__(self, other: Any, /) -> bool: ...
    def __ne__(self, other: Any, /) -> bool: ...

@final
class Lost:
    """Something that cannot be had back, or not now."""

    @property
    def what(self) -> str:
        """What it is, in words."""

    @property
    def object(self) -> Optional[ContentHash]:
        """The object; ``None`` for a manifest."""

    @property
    def reason(self) -> str:
        """Why it is lost."""

    @property
    def is_unreadable(self) -> bool:
        """Whether it may be there and merely cannot be read now."""

    @property
    def snapshots(self) -> list[int]:
        """Numbers of the snapshots that need it."""

    @property
    def paths(self) -> list[str]:
        """The paths that it stands for in them."""

    @property
    def has_more_paths(self) -> bool:
        """Whether there are more paths than these."""

    def __eq__(self, other: Any, /) -> bool: ...
    def __ne__(self, other: Any, /) -> bool: ...

@final
class RepairReport:
    """The result of :meth:`SnapshotManager.repair`; true when the session is sound now."""

    @property
    def ok(self) -> bool:
        """Whether the session is sound now."""

    @property
    def repaired(self) -> list[Repaired]:
        """What is whole again."""

    @property
    def quarantined(self) -> list[str]:
        """Where damaged files were moved."""

    @property
    def lost(self) -> list[Lost]:
        """What is not whole, because there is no good copy."""

    @property
    def verified(self) -> VerifyReport:
        """What a verification found after the repair."""

    def __bool__(self) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...

@final
class Mount:
    """A live mount; leaving its ``with`` block unmounts it.

    It is served by this process and ends with it. It is an ``os.PathLike``: ``Path(mount)`` is the
    directory.
    """

    @property
    def directory(self) -> Path:
        """The directory it is mounted at."""

    def unmount(self) -> None:
        """Takes the mount away, lazily when a process uses it. Nothing is done the second time."""

    def __fspath__(self) -> str: ...
    def __enter__(self) -> Mount: ...
    def __exit__(
        self,
        exc_type: Optional[Type[BaseException]],
        exc_value: Optional[BaseException],
        traceback: Optional[TracebackType],
        /,
    ) -> None: ...

class SnapshotManager:
    """Records states of directories and files in a session, and brings them back.

    ``session_dir`` is made when it is missing; a session that is there is resumed. In the root
    directory of a store (``~/.nono/rollbacks``) the session is one of those that ``nono rollback
    list`` shows; :func:`new_session_dir` makes a fresh directory there. A limit of 0 is none.

    Managers, threads and processes may share a session: each call holds the session's lock. Long
    calls let other threads run and end with ``KeyboardInterrupt`` at Ctrl-C; a snapshot or restore
    that was stopped is either complete or did not happen. From its first change on, a restore runs
    to its end; a note on the exception says so (from Python 3.11 on).

    ``threads`` is how many threads work; 0 is one for each core. ``progress`` of a call is a function
    that is told how far the call is, as a :class:`Progress`: at most twenty times a second, and at the
    end, always in the thread that made the call. If it returns ``False``, the work stops, and the call
    raises a :class:`NonoError`; if it raises, the work stops, and the call raises the same.

    As a context manager it notes the end of the session when the block is left. It can be used
    after that as well.
    """

    def __new__(
        cls: Type[_Manager],
        session_dir: _Path,
        tracked_paths: Sequence[_Path],
        exclusion: Optional[ExclusionConfig] = None,
        max_entries: int = 300000,
        max_bytes: int = 2147483648,
        threads: int = 0,
    ) -> _Manager: ...
    @staticmethod
    def open(session_dir: _Path, threads: int = 0) -> SnapshotManager:
        """Resumes a session with the tracked paths and filters of its last snapshot."""

    @property
    def session_dir(self) -> str:
        """The session's directory."""

    @property
    def session_id(self) -> str:
        """The session's id: the name of its directory."""

    @property
    def tracked_paths(self) -> list[str]:
        """What is captured: absolute, with symlinks in parents resolved."""

    def create_baseline(self, progress: _Tell = None) -> SnapshotManifest:
        """Captures the first state. When it returns, the snapshot is on the disk to stay."""

    def create_incremental(
        self, progress: _Tell = None
    ) -> tuple[SnapshotManifest, list[Change]]:
        """Captures the current state; gives the snapshot and what changed since the one before.
        A file whose time alone moved is no change: see :meth:`touched`.
        """

    def checkpoint(self, label: str, progress: _Tell = None) -> SnapshotManifest:
        """Captures the current state under a name: the baseline of a session that has none yet, else
        a further snapshot.
        """

    def restore_to(self, snapshot_number: int) -> list[Change]:
        """Brings the tracked paths back to a snapshot; gives what changed on the disk. The state
        before is kept as a further snapshot.

        Later changes of a completed session are a :class:`NonoError`, and nothing is changed. What is
        skipped is an :class:`IncompleteRestore`; all else is restored. :meth:`restore` reports both
        instead.
        """

    def restore(
        self,
        snapshot: int,
        paths: Optional[Sequence[_Path]] = None,
        exclude: Optional[Sequence[_Path]] = None,
        only: Optional[Sequence[Literal["created", "modified", "deleted"]]] = None,
        on_conflict: _OnConflict = "refuse",
        to: Optional[_Path] = None,
        progress: _Tell = None,
        dry_run: bool = False,
        safety_snapshot: bool = True,
        with_privileges: bool = False,
    ) -> RestoreReport:
        """Brings a snapshot back, or a part of it, and reports what was done and what was not: look at
        the report, which is true when all that was asked for is done. The state before is kept as a
        further snapshot, unless ``safety_snapshot`` is false; what is overwritten then is kept nowhere.

        ``paths`` are the files and directories that are meant, ``exclude`` what is not: absolute,
        below each of the tracked paths, or globs (``*.py``, ``src/**/*.c``). In ``paths``, a glob
        matches a name with a leading dot only where the glob has that dot. ``only`` restores what
        was ``"created"``, ``"modified"`` or ``"deleted"`` since the snapshot. ``on_conflict`` says what
        becomes of paths that were changed after a completed session: ``"refuse"`` does nothing at all
        if there is one, ``"overwrite"`` undoes that as well, ``"keep_newer"`` leaves them. With
        ``dry_run`` nothing is written.

        ``to`` is a directory that gets a copy, instead of the tracked paths; it is made if it is
        missing. What exists there stays and is in ``skipped``, unless ``on_conflict`` is
        ``"overwrite"``. A copy of a part is made by ``paths`` and ``exclude``.

        The writer of an archive chooses the modes and attributes of its files. So the files of a
        snapshot that an archive or a remote brought get setuid, setgid and file capabilities only
        with ``with_privileges``; otherwise these files are in ``skipped``.
        """

    def plan_restore(
        self,
        snapshot: int,
        paths: Optional[Sequence[_Path]] = None,
        exclude: Optional[Sequence[_Path]] = None,
        only: Optional[Sequence[Literal["created", "modified", "deleted"]]] = None,
        on_conflict: _OnConflict = "refuse",
        progress: _Tell = None,
        with_privileges: bool = False,
    ) -> RestoreReport:
        """What :meth:`restore` would do. Writes nothing. With conflicts that are refused, the changes are
        those that would be made without them.
        """

    def has_interrupted_restore(self) -> bool:
        """Whether a restore of this session was interrupted: its process was killed, or the machine
        stopped. Then nothing else is done with the session before :meth:`recover_restore`.
        """

    def recover_restore(
        self, abort: bool = False, progress: _Tell = None
    ) -> Optional[RecoveryReport]:
        """Finishes an interrupted restore, or with ``abort`` brings back the state before it. ``None``:
        there is none. When it fails or is interrupted itself, it can be called again, either way.
        """

    def compute_restore_diff(self, snapshot_number: int) -> list[Change]:
        """What :meth:`restore_to` would change. Changes nothing."""

    def diff(self, a: int, b: int) -> list[Change]:
        """What changed from snapshot ``a`` to snapshot ``b``."""

    def touched(self, a: int, b: int) -> list[str]:
        """Paths whose time alone is another in snapshot ``b`` than in snapshot ``a``. They are no changes;
        a restore gives them their time back all the same. Directories are not told.
        """

    def read(self, snapshot: int, path: _Path) -> bytes:
        """The contents of a file as it was in a snapshot, checked against their hash.

        The path is absolute, or meant from the current directory; it need not exist any more.
        """

    def verify(
        self, expected_root: Optional[ContentHash] = None, progress: _Tell = None
    ) -> VerifyReport:
        """Reads every manifest and every byte of the session, and says what is wrong.

        ``expected_root`` is a Merkle root that was noted elsewhere: that no snapshot has it is a
        problem too. It may also be a session root.
        """

    def repair(self, other_stores: Sequence[_Path] = [], progress: _Tell = None) -> RepairReport:
        """Mends what can be mended of a damaged session, and says what is lost for good. Damaged objects
        are moved into quarantine, and never deleted.

        Good copies are looked for in the session's own files, and in ``other_stores``: root directories
        of stores, sessions, or directories of objects.
        """

    def mount(self, directory: _Path) -> Mount:
        """Shows the session's snapshots as read-only folders: ``<number>/<absolute path>``.

        Use it in a ``with`` block: the mount ends with the block, with the last reference to what is
        returned, or with the process.
        """

    def load_manifest(self, number: int) -> SnapshotManifest:
        """The manifest of one snapshot."""

    def snapshot_count(self) -> int:
        """Number of snapshots on the disk."""

    def save_session_metadata(self, meta: SessionMetadata) -> None:
        """Writes the session's manifest. What it says of the snapshots is as they are on the disk,
        whatever ``meta`` says.
        """

    @staticmethod
    def load_session_metadata(session_dir: _Path) -> SessionMetadata:
        """Reads the manifest of a session."""

    def __enter__(self: _Manager) -> _Manager: ...
    def __exit__(
        self,
        exc_type: Optional[Type[BaseException]],
        exc_value: Optional[BaseException],
        traceback: Optional[TracebackType],
        /,
    ) -> None: ...

def mount(directory: _Path, root: Optional[_Path] = None) -> Mount:
    """Shows every session of a store as read-only folders: ``<session>/<number>/<absolute path>``.

    ``root`` is the store's root directory; by default ``$NONO_ROOT``, or ``~/.nono/rollbacks``.
    """

def new_session_dir(root: Optional[_Path] = None) -> str:
    """Makes a fresh directory for a session in a store, named ``YYYYMMDD-HHMMSS-PID``, and the store
    when it is missing; gives the directory.

    ``root`` is the store's root directory; by default ``$NONO_ROOT``, or ``~/.nono/rollbacks``.
    """

def _unmount_all() -> None: ...

@final
class _Stop:
    def __new__(cls) -> _Stop: ...
    def set(self) -> None: ...

@final
class _ContainerEngine:
    def __new__(
        cls,
        root: Optional[_Path],
        docker_host: Optional[str],
        threads: int,
        watcher: Sequence[str],
    ) -> _ContainerEngine: ...
    @property
    def root(self) -> Path: ...
    def snapshot(
        self,
        container: str,
        message: Optional[str],
        trigger: str,
        run_id: Optional[str],
        pauses: bool,
        takes_image: bool,
        takes_files: bool,
        progress: _Tell,
        stop: Optional[_Stop],
    ) -> str: ...
    def list(self, container: Optional[str]) -> str: ...
    def show(self, snapshot: str) -> str: ...
    def restore(
        self,
        snapshot: str,
        name: Optional[str],
        replace: bool,
        volumes_only: Optional[Sequence[str]],
        start: bool,
        dry_run: bool,
        health_seconds: float,
        health_command: Optional[str],
        share_mounts: bool,
        progress: _Tell,
        stop: Optional[_Stop],
    ) -> str: ...
    def diff(self, older: str, newer: Optional[str]) -> str: ...
    def resume(
        self,
        container: Optional[str],
        abort: bool,
        gives_up: bool,
        health_seconds: float,
        progress: _Tell,
        stop: Optional[_Stop],
    ) -> str: ...
    def delete(self, snapshot: str, all: bool) -> str: ...
    def cleanup(
        self,
        max_age_seconds: Optional[float],
        max_per_container: Optional[int],
        max_snapshots: Optional[int],
        max_bytes: Optional[int],
        dry_run: bool,
    ) -> str: ...
    def stats(self) -> str: ...
    def validate(self, snapshot: Optional[str]) -> str: ...

def _watch_paused(root: _Path, container_id: str, token: str) -> None: ...
