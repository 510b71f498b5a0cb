"""Calls in a process of their own, to be interrupted, stopped and killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Optional, Union

#: Makes one call, and says how it ended and what notes are on the exception.
CALL = """
import json, signal, sys
from nono_py import SnapshotManager
# What a background job of a shell inherits is that Ctrl-C is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    manager = SnapshotManager(sys.argv[1], [sys.argv[2]], max_bytes=0)
    getattr(manager, sys.argv[3])(*json.loads(sys.argv[4]))
except KeyboardInterrupt as raised:
    print("interrupted", *getattr(raised, "__notes__", []), flush=True)
else:
    print("complete", flush=True)
"""


class Call:
    """A call of a method of a manager. `fail_point` is where the engine stops or dies, if it was built
    with such points; see `engine/src/sys/fail_point.rs`.
    """

    def __init__(
        self,
        session: Path,
        work: Path,
        method: str,
        *args: object,
        fail_point: Optional[str] = None,
    ) -> None:
        command: list[Union[str, Path]] = [sys.executable, "-c", CALL, session, work, method]
        command.append(json.dumps(args))
        environ = {**os.environ, **({"NONO_FAIL_POINT": fail_point} if fail_point else {})}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)

    def wait_until_it_works(self) -> None:
        """Returns when the engine's thread is there, whatever it does or waits for."""
        threads = Path(f"/proc/{self.process.pid}/task")
        while not any(is_engine(thread) for thread in threads.iterdir()):
            assert self.process.poll() is None, "it ended before it began"
            time.sleep(0.005)

    def wait_until_it_reads(self, path: Path) -> None:
        """Returns when the call has the file open: it is hashed from its first byte on."""
        files = Path(f"/proc/{self.process.pid}/fd")
        while not any(is_same(file, path) for file in files.iterdir()):
            assert self.process.poll() is None, "it ended before it read the file"
            time.sleep(0.005)

    def stops(self) -> bool:
        """Returns when it has stopped at its fail point, or has ended without."""
        pid, status = os.waitpid(self.process.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return True
        self.process.returncode = os.waitstatus_to_exitcode(status)
        return False

    def is_killed(self) -> bool:
        """Waits for its end: whether that was at its fail point. Nothing else may have gone wrong."""
        self.process.communicate(timeout=60)
        assert self.process.returncode in (0, -signal.SIGKILL)
        return self.process.returncode != 0

    def interrupt(self) -> tuple[str, float]:
        """Sends a real SIGINT; how the call ended, and so many seconds later."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        self.process.send_signal(signal.SIGCONT)
        out, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return out.strip(), time.monotonic() - begin


def is_engine(thread: Path) -> bool:
    try:
        return (thread / "comm").read_text() == "nono\n"
    except (FileNotFoundError, ProcessLookupError):
        # Ended meanwhile.
        return False


def is_same(file: Path, path: Path) -> bool:
    try:
        return os.path.samestat(file.stat(), path.stat())
    except FileNotFoundError:
        # Closed meanwhile.
        return False
