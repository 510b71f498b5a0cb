"""Ctrl-C, threads, and other processes."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from calls import Call
from nono_py import SnapshotManager

#: The greatest length of contents that are hashed as one, holes included.
HUGE_BYTES = 16 << 30


def make_huge(path: Path) -> None:
    """Gives a file some data and a hole, which takes long to hash."""
    with open(path, "r+b" if path.exists() else "w+b") as file:
        file.write(b"data" * (1 << 20))
        file.truncate(HUGE_BYTES)


#: Generous, because the machine may be busy; how many bytes go by before it stops is counted in the
#: engine's own tests.
SOON_S = 20


def test_ctrl_c_stops_a_snapshot_in_the_middle_of_a_file(tmp_path: Path, work: Path) -> None:
    huge = work / "huge"
    make_huge(huge)
    call = Call(tmp_path / "session", work, "create_baseline")
    call.wait_until_it_reads(huge)
    how, seconds = call.interrupt()
    assert how == "interrupted" and seconds < SOON_S
    # The stopped work is in no other's way.
    huge.unlink()
    manager = SnapshotManager(tmp_path / "session", [work])
    assert manager.snapshot_count() == 0
    assert manager.create_baseline().number == 0


def test_ctrl_c_stops_a_restore_before_it_changes_anything(
    manager: SnapshotManager, tmp_path: Path, work: Path
) -> None:
    manager.create_baseline()
    (work / "new").write_text("x")
    make_huge(work / "one.txt")
    call = Call(tmp_path / "session", work, "restore_to", 0)
    call.wait_until_it_reads(work / "one.txt")
    how, seconds = call.interrupt()
    assert how == "interrupted" and seconds < SOON_S
    assert sorted(os.listdir(work)) == ["new", "one.txt", "sub"]
    assert (work / "one.txt").stat().st_size == HUGE_BYTES
    assert manager.snapshot_count() == 1 and not manager.has_interrupted_restore()
    os.truncate(work / "one.txt", 4)
    assert len(manager.restore_to(0)) == 2


def test_ctrl_c_stops_a_verification_in_the_middle_of_an_object(
    manager: SnapshotManager, tmp_path: Path, work: Path
) -> None:
    # Nothing is read of an object of another length, so it takes one of this length.
    with open(work / "big", "wb") as file:
        file.truncate(256 << 20)
    digest = manager.create_baseline().files[str(work / "big")].hash.hex()
    # Where blocks are not shared it is stored in chunks; a file of its own is read before those.
    stored = tmp_path / "session" / "objects" / digest[:2] / digest[2:]
    if not stored.exists():
        stored.parent.mkdir(exist_ok=True)
        with open(stored, "wb") as file:
            file.truncate(256 << 20)
    call = Call(tmp_path / "session", work, "verify")
    call.wait_until_it_reads(stored)
    how, _ = call.interrupt()
    assert how == "interrupted"
    assert manager.verify().ok


def test_ctrl_c_stops_the_wait_for_another_process(tmp_path: Path, work: Path) -> None:
    SnapshotManager(tmp_path / "session", [work])
    with open(tmp_path / "session" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        call = Call(tmp_path / "session", work, "create_baseline")
        call.wait_until_it_works()
        how, seconds = call.interrupt()
    assert how == "interrupted" and seconds < SOON_S


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
