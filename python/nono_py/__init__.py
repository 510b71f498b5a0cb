"""Undo for AI agents: content-addressed, tamper-evident snapshots of directories.

>>> from nono_py import SnapshotManager, new_session_dir
>>> manager = SnapshotManager(new_session_dir(), ["~/project"])   # doctest: +SKIP
>>> manager.create_baseline()                                     # doctest: +SKIP
>>> # ... an agent works ...
>>> manifest, changes = manager.create_incremental()              # doctest: +SKIP
>>> manager.restore_to(0)                                         # doctest: +SKIP

Sessions made here are those of the program ``nono``: it lists, mounts, restores and verifies them,
and a :class:`SnapshotManager` resumes those that it made.
"""

import atexit as _atexit

from ._nono import (
    Change,
    Conflict,
    ContentHash,
    ExclusionConfig,
    FileState,
    IncompleteRestore,
    Lost,
    Mount,
    NonoError,
    Problem,
    Progress,
    RecoveryReport,
    Repaired,
    RepairReport,
    RestoreReport,
    SessionMetadata,
    SnapshotCheck,
    SnapshotManager,
    SnapshotManifest,
    VerifyReport,
    __version__,
    _unmount_all,
    mount,
    new_session_dir,
)
from .callback import SnapshotCallback
from .forks import Fork, ForkMerge

__all__ = [
    "Change",
    "Conflict",
    "ContentHash",
    "ExclusionConfig",
    "FileState",
    "Fork",
    "ForkMerge",
    "IncompleteRestore",
    "Lost",
    "Mount",
    "NonoError",
    "Problem",
    "Progress",
    "RecoveryReport",
    "RepairReport",
    "Repaired",
    "RestoreReport",
    "SessionMetadata",
    "SnapshotCallback",
    "SnapshotCheck",
    "SnapshotManager",
    "SnapshotManifest",
    "VerifyReport",
    "__version__",
    "mount",
    "new_session_dir",
]

_atexit.register(_unmount_all)
