"""Snapshots of a container at the trigger points of a CUA agent (PyPI: ``cua-agent``).

    from cua_agent import ComputerAgent
    from nono_py.cua import SnapshotCallback

    agent = ComputerAgent(model, tools=[computer], callbacks=[SnapshotCallback("my-container")])

:class:`SnapshotCallback` is an ``AsyncCallbackHandler`` of CUA. ``cua_agent`` is imported when the
first one is made, never with this module. Three promises:

- No failure breaks the agent. It is logged to the logger ``nono_py`` and kept in ``last_error``.
- The event loop goes on while a snapshot is taken: the work is done in another thread.
- The environment switches it off and on and chooses its trigger points and its container, without a
  change of code: ``NONO_SNAPSHOTS=off``, ``NONO_SNAPSHOTS=run_start,run_end``, ``NONO_CONTAINER``.
"""

from __future__ import annotations

import importlib
import logging
import os
import uuid
from typing import Any, Dict, FrozenSet, Iterable, List, Optional, Protocol, Union

from .containers import ContainerSnapshots, TakenSnapshot
from .triggers import ENVIRONMENT_VARIABLE, TRIGGERS, active_triggers, checked_triggers

__all__ = [
    "CONTAINER_VARIABLE",
    "ENVIRONMENT_VARIABLE",
    "TRIGGERS",
    "SnapshotCallback",
    "SnapshotTaker",
]

#: Names the container where the code names none.
CONTAINER_VARIABLE = "NONO_CONTAINER"

_MESSAGE_LENGTH = 200

_log = logging.getLogger("nono_py")


class SnapshotTaker(Protocol):
    """What takes the snapshots: :class:`nono_py.containers.ContainerSnapshots`, or another one."""

    async def snapshot_async(
        self, container: str, *, message: Optional[str], trigger: str, run_id: Optional[str]
    ) -> TakenSnapshot:
        """Takes a snapshot without blocking the event loop."""


class SnapshotCallback:
    """Takes a snapshot of a container at each trigger point of a ``ComputerAgent``.

    ``container`` is the name or id of the container; without one it is ``$NONO_CONTAINER``.
    ``snapshots`` takes the snapshots: a :class:`~nono_py.containers.ContainerSnapshots` by default.
    ``triggers`` are the trigger points at which snapshots are taken; ``$NONO_SNAPSHOTS`` beats it.
    By default the state before an action is that after the action before, so ``before_action`` is
    left out. ``run_id`` groups the snapshots of a run; without one each run gets a random one.

    An action is a computer call or a function call. CUA reports no end of a call that failed; its
    ``after_action`` is taken at the next response or at the end of the run.
    """

    #: The last failure, if there was one.
    last_error: Optional[Exception]
    #: The last snapshot that was taken.
    last_snapshot: Optional[TakenSnapshot]

    def __init__(
        self,
        container: Optional[str] = None,
        snapshots: Optional[SnapshotTaker] = None,
        triggers: Iterable[str] = ("run_start", "after_action", "run_end"),
        run_id: Optional[str] = None,
    ) -> None:
        self._container = container
        self._snapshots = snapshots
        self._chosen = checked_triggers(triggers)
        self._given_run_id = run_id
        self._run_id = run_id
        self._open_action: Optional[str] = None
        self.last_error = None
        self.last_snapshot = None
        _register()

    @property
    def container(self) -> Optional[str]:
        """The container of which snapshots are taken now."""
        return self._container or os.environ.get(CONTAINER_VARIABLE) or None

    @property
    def triggers(self) -> FrozenSet[str]:
        """The trigger points at which snapshots are taken now."""
        return active_triggers(self._chosen)

    @property
    def run_id(self) -> Optional[str]:
        """The id of the present run, or of the last one."""
        return self._run_id

    async def on_run_start(self, kwargs: Dict[str, Any], old_items: List[Dict[str, Any]]) -> None:
        """A run begins."""
        self._run_id = self._given_run_id or uuid.uuid4().hex
        self._open_action = None
        await self._take("run_start", _Task(old_items))

    async def on_run_end(
        self,
        kwargs: Dict[str, Any],
        old_items: List[Dict[str, Any]],
        new_items: List[Dict[str, Any]],
    ) -> None:
        """A run has ended."""
        await self._end_open_action()
        await self._take("run_end", _Task(old_items))

    async def on_computer_call_start(self, item: Dict[str, Any]) -> None:
        """An action of the computer is about to begin."""
        await self._begin(_Action(item))

    async def on_computer_call_end(
        self, item: Dict[str, Any], result: List[Dict[str, Any]]
    ) -> None:
        """An action of the computer has ended."""
        await self._end(_Action(item))

    async def on_function_call_start(self, item: Dict[str, Any]) -> None:
        """A function call is about to begin."""
        await self._begin(_Action(item))

    async def on_function_call_end(
        self, item: Dict[str, Any], result: List[Dict[str, Any]]
    ) -> None:
        """A function call has ended."""
        await self._end(_Action(item))

    async def on_responses(self, kwargs: Dict[str, Any], responses: Dict[str, Any]) -> None:
        """The model has answered, so every action before has ended."""
        await self._end_open_action()

    async def on_run_continue(
        self,
        kwargs: Dict[str, Any],
        old_items: List[Dict[str, Any]],
        new_items: List[Dict[str, Any]],
    ) -> bool:
        """The run goes on."""
        return True

    async def on_llm_start(self, messages: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        """The messages stay as they are."""
        return messages

    async def on_llm_end(self, output: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
        """The output stays as it is."""
        return output

    async def on_text(self, item: Dict[str, Any]) -> None:
        """Nothing is done."""

    async def on_api_start(self, kwargs: Dict[str, Any]) -> None:
        """Nothing is done."""

    async def on_api_end(self, kwargs: Dict[str, Any], result: Any) -> None:
        """Nothing is done."""

    async def on_usage(self, usage: Dict[str, Any]) -> None:
        """Nothing is done."""

    async def on_screenshot(self, screenshot: Union[str, bytes], name: str = "screenshot") -> None:
        """Nothing is done."""

    async def _begin(self, action: _Action) -> None:
        await self._end_open_action()
        self._open_action = _words(action)
        await self._take("before_action", action)

    async def _end(self, action: _Action) -> None:
        self._open_action = None
        await self._take("after_action", action)

    async def _end_open_action(self) -> None:
        action, self._open_action = self._open_action, None
        if action is not None:
            await self._take("after_action", f"{action} (failed)")

    async def _take(self, trigger: str, about: object) -> None:
        try:
            if trigger not in self.triggers:
                return
            container = self.container
            if container is None:
                raise LookupError(f"no container is named, here or in {CONTAINER_VARIABLE}")
            if self._snapshots is None:
                self._snapshots = ContainerSnapshots()
            self.last_snapshot = await self._snapshots.snapshot_async(
                container,
                message=str(about) or None,
                trigger=trigger,
                run_id=self._run_id,
            )
        except Exception as error:  # noqa: BLE001 - the promise is that nothing breaks the agent
            self.last_error = error
            _log.warning("no snapshot at %s: %s", trigger, error)


class _Task:
    """The words of a run: the last words of its user."""

    def __init__(self, items: List[Dict[str, Any]]) -> None:
        self._items = items

    def __str__(self) -> str:
        for item in reversed(self._items):
            if item.get("role") == "user":
                return _shortened(_text(item.get("content")))
        return ""


class _Action:
    """The words of an action: ``click x=10 y=20``, ``read_file {"path": "a"}``."""

    def __init__(self, item: Dict[str, Any]) -> None:
        self._item = item

    def __str__(self) -> str:
        item = self._item
        if item.get("type") == "function_call":
            return _shortened(f"{item.get('name')} {item.get('arguments') or ''}")
        action = item.get("action")
        if not isinstance(action, dict):
            return _shortened(str(item.get("type") or ""))
        rest = " ".join(f"{key}={value}" for key, value in action.items() if key != "type")
        return _shortened(f"{action.get('type')} {rest}")


def _words(action: _Action) -> str:
    # An item that cannot be shown is no reason to break the agent.
    try:
        return str(action)
    except Exception:  # noqa: BLE001
        return "action"


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return " ".join(part for part in parts if isinstance(part, str))
    return ""


def _shortened(text: str) -> str:
    return " ".join(text.split())[:_MESSAGE_LENGTH]


def _register() -> None:
    """Tells CUA's base class that a callback is one of its kind, where CUA is installed.

    CUA calls whatever methods a callback has. So a callback works without its base class, and gets
    nothing from it.
    """
    try:
        base = importlib.import_module("cua_agent.callbacks.base")
    except ImportError:
        return
    base.AsyncCallbackHandler.register(SnapshotCallback)
