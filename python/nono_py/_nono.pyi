from datetime import datetime
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Optional, Sequence, Type, TypeVar, Union, final

_Path = Union[str, PathLike[str]]
_Manager = TypeVar("_Manager", bound="SnapshotManager")

__version__: str

class NonoError(RuntimeError):
    """The engine could not do what was asked.

    ``operation`` is the method that failed, ``path`` what it is about; both are in the message.
    """

    operation: str
    path: Optional[str]

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
    def change_type(self) -> Literal["created", "modified", "deleted", "permissions_changed"]:
        """How it changed."""

    @property
    def size_delta(self) -> Optional[int]:
        """By how many bytes a file grew; ``None`` where there are no contents."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class ExclusionConfig:
    """What is left out of the tracked paths.

    Patterns are names (``node_modules``) or, with a ``/``, consecutive components of a path; a
    leading ``/`` ties one to the top of the tracked path, a trailing one to directories. Globs look
    at the names of everything but directories (``*.pyc``). ``force_include`` has patterns that beat
    every exclusion; directories that ``prune_patterns`` name are not searched for it. The lists are
    copies: a configuration never changes.
    """

    def __new__(
        cls,
        use_gitignore: bool = True,
        exclude_patterns: Sequence[str] = [],
        exclude_globs: Sequence[str] = [],
        force_include: Sequence[str] = [],
        prune_patterns: Sequence[str] = [],
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

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __getnewargs__(self) -> tuple[bool, list[str], list[str], list[str], list[str]]: ...

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
        """When the session ended, in ISO 8601 (UTC); ``None`` as long as it has not.

        Set it to text with an offset, or to a ``datetime`` that knows its time zone.
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
    def outcome(self) -> Literal["finished", "taken_back", "cleared"]:
        """``"finished"``, ``"taken_back"``, or ``"cleared"`` when no path was half-way."""

    @property
    def changes(self) -> list[Change]:
        """What the whole restore changed; empty unless it was finished."""

    @property
    def skipped(self) -> dict[str, str]:
        """What is not as it was in the snapshot, by path, with the reason."""

    @property
    def safety_snapshot(self) -> Optional[int]:
        """The snapshot that holds the state before the restore, unless none was taken."""

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
        """Takes the mount away, lazily when somebody uses it. Nothing is done the second time."""

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
    ) -> _Manager: ...
    @staticmethod
    def open(session_dir: _Path) -> SnapshotManager:
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

    def create_baseline(self) -> SnapshotManifest:
        """Captures the first state. When it returns, the snapshot is on the disk to stay."""

    def create_incremental(self) -> tuple[SnapshotManifest, list[Change]]:
        """Captures the current state; gives the snapshot and what changed since the one before."""

    def checkpoint(self, label: str) -> SnapshotManifest:
        """Captures the current state under a name: the baseline of a session that has none yet, else
        a further snapshot.
        """

    def restore_to(self, snapshot_number: int) -> list[Change]:
        """Brings the tracked paths back to a snapshot; gives what changed on the disk. The state
        before is kept as a further snapshot.
        """

    def has_interrupted_restore(self) -> bool:
        """Whether a restore of this session was interrupted: its process was killed, or the machine
        stopped. Then nothing else is done with the session before :meth:`recover_restore`.
        """

    def recover_restore(self, abort: bool = False) -> Optional[RecoveryReport]:
        """Finishes an interrupted restore, or with ``abort`` brings back the state before it. ``None``:
        there is none. When it fails or is interrupted itself, it can be called again, either way.
        """

    def compute_restore_diff(self, snapshot_number: int) -> list[Change]:
        """What :meth:`restore_to` would change. Changes nothing."""

    def diff(self, a: int, b: int) -> list[Change]:
        """What changed from snapshot ``a`` to snapshot ``b``."""

    def read(self, snapshot: int, path: _Path) -> bytes:
        """The contents of a file as it was in a snapshot, checked against their hash.

        The path is absolute, or meant from the current directory; it need not exist any more.
        """

    def verify(self, expected_root: Optional[ContentHash] = None) -> VerifyReport:
        """Reads every manifest and every byte of the session, and says what is wrong.

        ``expected_root`` is a Merkle root that was noted elsewhere: that no snapshot has it is a
        problem too.
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
