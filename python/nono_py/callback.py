"""Snapshots at the trigger points of an agent framework, without a dependency on any.

A framework calls its callbacks when a run or an action (a tool call, a step) begins and ends. Give it
the methods of a :class:`SnapshotCallback`; whatever arguments it passes are accepted. Two promises:

- No failure breaks the agent. What goes wrong is logged to the logger ``nono_py`` and kept in
  ``last_error``. (``KeyboardInterrupt`` is not a failure and is raised.)
- It can be switched off without a change of code: ``NONO_SNAPSHOTS=off`` in the environment, or only
  some of the trigger points: ``NONO_SNAPSHOTS=run_start,run_end``.
"""

from __future__ import annotations

import logging
import threading
from datetime import datetime, timezone
from typing import Callable, FrozenSet, Iterable, Optional, Union

from ._nono import SnapshotManager, SnapshotManifest
from .triggers import ENVIRONMENT_VARIABLE, TRIGGERS, active_triggers, checked_triggers

__all__ = ["ENVIRONMENT_VARIABLE", "TRIGGERS", "SnapshotCallback"]

_LABEL_LENGTH = 200

_log = logging.getLogger("nono_py")


class SnapshotCallback:
    """Takes a snapshot, with a label, at each trigger point.

    ``manager`` is a manager, or a function that makes one; the function is called at the first
    trigger point, so that not even a session that cannot be made breaks the agent. ``triggers`` are
    the trigger points at which snapshots are taken; the environment variable ``NONO_SNAPSHOTS``
    beats it.
    """

    #: The last failure, if there was one.
    last_error: Optional[Exception]
    #: The last snapshot that was taken.
    last_snapshot: Optional[SnapshotManifest]

    def __init__(
        self,
        manager: Union[SnapshotManager, Callable[[], SnapshotManager]],
        triggers: Iterable[str] = TRIGGERS,
    ) -> None:
        self._source = manager
        self._manager = manager if isinstance(manager, SnapshotManager) else None
        self._chosen = checked_triggers(triggers)
        # A framework may call from several threads.
        self._lock = threading.Lock()
        self.last_error = None
        self.last_snapshot = None

    @property
    def manager(self) -> Optional[SnapshotManager]:
        """The manager; ``None`` before the first trigger point when it is made there."""
        return self._manager

    @property
    def triggers(self) -> FrozenSet[str]:
        """The trigger points at which snapshots are taken now."""
        return active_triggers(self._chosen)

    def run_start(self, *args: object, **kwargs: object) -> None:
        """The agent's run begins. The first snapshot of a session is its baseline."""
        self._take("run_start", args)

    def before_action(self, *args: object, **kwargs: object) -> None:
        """An action is about to begin."""
        self._take("before_action", args)

    def after_action(self, *args: object, **kwargs: object) -> None:
        """An action has ended."""
        self._take("after_action", args)

    def run_end(self, *args: object, **kwargs: object) -> None:
        """The agent's run has ended, and with it the session."""
        self._take("run_end", args)

    def _take(self, trigger: str, args: tuple[object, ...]) -> None:
        try:
            if trigger not in self.triggers:
                return
            with self._lock:
                manager = self._manager
                if manager is None:
                    source = self._source
                    # Only a function is not a manager yet.
                    manager = self._manager = source() if callable(source) else source
                self.last_snapshot = manager.checkpoint(_label(trigger, args))
                if trigger == "run_end":
                    _note_end(manager)
        except Exception as error:  # noqa: BLE001 - the promise is that nothing breaks the agent
            self.last_error = error
            _log.warning("no snapshot at %s: %s", trigger, error)


def _label(trigger: str, args: tuple[object, ...]) -> str:
    """``after_action: write_file``: the first argument says which run or action it is."""
    if not args or args[0] is None:
        return trigger
    text = " ".join(str(args[0]).split())
    return f"{trigger}: {text[:_LABEL_LENGTH]}"


def _note_end(manager: SnapshotManager) -> None:
    meta = manager.load_session_metadata(manager.session_dir)
    meta.ended = datetime.now(timezone.utc)
    manager.save_session_metadata(meta)
