"""What `examples/session.rs` does, from Python. Run by `scripts/bench-python`."""

from __future__ import annotations

import sys
import time

from nono_py import ExclusionConfig, SnapshotManager


class Clocks:
    """Seconds that passed, and those that all threads together worked."""

    def __init__(self) -> None:
        self.begin = time.perf_counter()
        self.worked = time.process_time()

    def __str__(self) -> str:
        passed = time.perf_counter() - self.begin
        return f"{passed:.4f} {time.process_time() - self.worked:.4f}"


def main() -> None:
    session, *paths = sys.argv[1:]
    manager = SnapshotManager(session, paths, ExclusionConfig(use_gitignore=False), 0, 0)
    begin = Clocks()
    manager.create_baseline()
    print(begin, end=" ")
    begin = Clocks()
    manifest, changes = manager.create_incremental()
    print(begin, end=" ")
    assert not changes
    begin = Clocks()
    files = manifest.files
    print(begin, len(files))


if __name__ == "__main__":
    main()
