"""Ctrl-C, threads, and other processes."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from nono_py import SnapshotManager

#: Runs until it is interrupted, then says what is there.
CALL = """
import signal, sys, time
from nono_py import SnapshotManager
# What a background job of a shell inherits is that Ctrl-C is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
manager = SnapshotManager(sys.argv[1], [sys.argv[2]], max_bytes=0)
print("begins", flush=True)
begin = time.monotonic()
try:
    manager.create_baseline()
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - begin, manager.snapshot_count(), flush=True)
else:
    print("complete", time.monotonic() - begin, manager.snapshot_count(), flush=True)
"""


def interrupt(session: Path, work: Path, after_s: float) -> list[str]:
    """Sends a real SIGINT to a process in the middle of a baseline."""
    process = subprocess.Popen(
        [sys.executable, "-c", CALL, session, work], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begins\n"
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return out.split()


def test_ctrl_c_stops_a_snapshot_and_nothing_is_recorded(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    # Holes take no space, and minutes to hash.
    for number in range(500):
        with open(work / f"{number:03}", "wb") as file:
            file.truncate(256 << 20)
            file.write(b"%d" % number)
    outcome, seconds, snapshots = interrupt(tmp_path / "session", work, 0.3)
    assert (outcome, snapshots) == ("interrupted", "0")
    assert float(seconds) < 20
    # What was stopped is in nobody's way.
    for path in work.iterdir():
        path.unlink()
    assert SnapshotManager(tmp_path / "session", [work]).create_baseline().number == 0


def test_ctrl_c_stops_the_wait_for_another_process(tmp_path: Path, work: Path) -> None:
    SnapshotManager(tmp_path / "session", [work])
    with open(tmp_path / "session" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome, seconds, snapshots = interrupt(tmp_path / "session", work, 0.3)
    assert (outcome, snapshots) == ("interrupted", "0")
    assert float(seconds) < 5


def test_a_handler_that_does_not_raise_interrupts_nothing(tmp_path: Path, work: Path) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: seen.append(number))
    manager = SnapshotManager(tmp_path / "session", [work])
    try:
        with open(tmp_path / "session" / ".lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            # Another thread of this process gets to run: it ends the wait.
            release = threading.Timer(0.3, fcntl.flock, (lock, fcntl.LOCK_UN))
            release.start()
            assert manager.create_baseline().number == 0
            release.join()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert seen == [signal.SIGALRM], "the handler did not run during the call"


def test_threads_on_one_session_take_turns(tmp_path: Path, work: Path) -> None:
    manager = SnapshotManager(tmp_path / "session", [work])
    manager.create_baseline()
    numbers: list[int] = []

    def snapshots() -> None:
        for _ in range(10):
            numbers.append(manager.create_incremental()[0].number)

    threads = [threading.Thread(target=snapshots) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 21))
    assert manager.verify().ok


def test_processes_on_one_session_take_turns(tmp_path: Path, work: Path) -> None:
    SnapshotManager(tmp_path / "session", [work]).create_baseline()
    program = (
        "import sys; from nono_py import SnapshotManager\n"
        "manager = SnapshotManager(sys.argv[1], [sys.argv[2]])\n"
        "print(*(manager.create_incremental()[0].number for _ in range(10)))\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "session"), str(work)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    numbers = [int(word) for process in processes for word in process.communicate()[0].split()]
    assert sorted(numbers) == list(range(1, 21))
    manager = SnapshotManager.open(tmp_path / "session")
    assert manager.snapshot_count() == 21 and manager.verify().ok


def test_a_child_that_was_forked_can_go_on(tmp_path: Path, work: Path) -> None:
    manager = SnapshotManager(tmp_path / "session", [work])
    manager.create_baseline()
    child = os.fork()
    if child == 0:
        try:
            os._exit(manager.create_incremental()[0].number)
        except BaseException:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert manager.create_incremental()[0].number == 2
