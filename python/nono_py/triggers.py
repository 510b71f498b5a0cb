"""The trigger points of an agent's run, chosen in code and overruled from outside.

The environment variable ``NONO_SNAPSHOTS`` beats the code: ``off`` takes no snapshots,
``run_start,run_end`` leaves these trigger points, and ``on`` leaves the choice to the code.
"""

from __future__ import annotations

import os
from typing import FrozenSet, Iterable

__all__ = ["ENVIRONMENT_VARIABLE", "TRIGGERS", "active_triggers", "checked_triggers"]

#: The trigger points, in the order in which they come.
TRIGGERS = ("run_start", "before_action", "after_action", "run_end")
#: Switches callbacks off, or to some of the trigger points.
ENVIRONMENT_VARIABLE = "NONO_SNAPSHOTS"

_OFF = frozenset({"0", "off", "false", "no", "none"})
_ON = frozenset({"", "1", "on", "true", "yes", "all"})


def checked_triggers(triggers: Iterable[str]) -> FrozenSet[str]:
    """The trigger points that code names. A name that is none raises ``ValueError``."""
    chosen = frozenset([triggers] if isinstance(triggers, str) else triggers)
    unknown = chosen.difference(TRIGGERS)
    if unknown:
        raise ValueError(f"no trigger points: {', '.join(sorted(unknown))}; there are {TRIGGERS}")
    return chosen


def active_triggers(chosen: FrozenSet[str]) -> FrozenSet[str]:
    """The trigger points that count now: those of the environment, else ``chosen``."""
    named = os.environ.get(ENVIRONMENT_VARIABLE, "").strip().lower()
    if named in _ON:
        return chosen
    if named in _OFF:
        return frozenset()
    # A word that is no trigger point is a mistake that takes no snapshot it was not asked for.
    return frozenset(word.strip() for word in named.split(",")).intersection(TRIGGERS)
