"""Tests that cannot run on a machine."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

#: What was said already.
_SAID: set[str] = set()


def not_run(request: pytest.FixtureRequest, text: str) -> NoReturn:
    """Nothing is known about the subject of the test: a failure where a machine decides (`CI` is
    set), said loudly, once, where a person looks.
    """
    if os.environ.get("CI"):
        pytest.fail(text)
    terminal = request.config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and text not in _SAID:
        _SAID.add(text)
        terminal.write_line(f"\n{text}", red=True, bold=True)
    pytest.skip(text)
