"""Which failure is which exception, and what it says."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any, Callable

import pytest

import nono_py
from nono_py import (
    ContentHash,
    ExclusionConfig,
    NonoError,
    SessionMetadata,
    SnapshotCallback,
    SnapshotManager,
)


def test_an_incremental_snapshot_needs_a_baseline(manager: SnapshotManager) -> None:
    with pytest.raises(RuntimeError, match=r"call create_baseline\(\) first"):
        manager.create_incremental()


def test_a_failure_of_the_engine_names_operation_and_path(
    manager: SnapshotManager, tmp_path: Path, work: Path
) -> None:
    with pytest.raises(NonoError) as no_snapshot:
        manager.load_manifest(3)
    assert issubclass(NonoError, RuntimeError)
    assert no_snapshot.value.operation == "load_manifest"
    assert no_snapshot.value.path == str(tmp_path / "session")
    assert "load_manifest" in str(no_snapshot.value)
    assert str(tmp_path / "session") in str(no_snapshot.value)

    gone = tmp_path / "gone"
    with pytest.raises(NonoError) as no_path:
        SnapshotManager(tmp_path / "other", [gone])
    assert (no_path.value.operation, no_path.value.path) == ("SnapshotManager", str(gone))
    assert str(gone) in str(no_path.value) and "No such file" in str(no_path.value)
    assert not (tmp_path / "other").exists(), "a refusal leaves nothing behind"

    manager.create_baseline()
    with pytest.raises(NonoError, match="already has a baseline"):
        manager.create_baseline()
    with pytest.raises(NonoError, match="restore_to.*has no snapshot 9"):
        manager.restore_to(9)
    (tmp_path / "session" / "manifest.json").write_text("{")
    with pytest.raises(NonoError) as damaged:
        manager.load_session_metadata(tmp_path / "session")
    assert damaged.value.path == str(tmp_path / "session" / "manifest.json")


def test_an_error_can_be_pickled_and_made() -> None:
    with pytest.raises(NonoError) as caught:
        SnapshotManager.open("/nowhere/at all")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.operation, again.path) == (
        str(caught.value),
        "open",
        "/nowhere/at all",
    )
    assert (NonoError("x").operation, NonoError("x").path) == ("", None)


def wrong_values(manager: SnapshotManager, tmp_path: Path) -> dict[str, Callable[[], Any]]:
    work = tmp_path / "work"
    meta = SessionMetadata("id", [], [])
    return {
        "bad glob": lambda: ExclusionConfig(exclude_globs=["["]),
        "bad pattern": lambda: ExclusionConfig(exclude_patterns=["../x"]),
        "bad force_include": lambda: ExclusionConfig(force_include=[""]),
        "bad json": lambda: SessionMetadata.from_json("{"),
        "json of something else": lambda: SessionMetadata.from_json("[]"),
        "json of a newer program": lambda: SessionMetadata.from_json(
            meta.to_json().replace('"format_version": 1', '"format_version": 9')
        ),
        "negative snapshot": lambda: manager.restore_to(-1),
        "negative number": lambda: manager.load_manifest(-1),
        "negative diff": lambda: manager.diff(0, -1),
        "negative read": lambda: manager.read(-1, work),
        "negative plan": lambda: manager.compute_restore_diff(-1),
        "huge number": lambda: manager.load_manifest(2**64),
        "negative limit": lambda: SnapshotManager(tmp_path / "s", [work], max_entries=-1),
        "negative bytes": lambda: SnapshotManager(tmp_path / "s", [work], max_bytes=-1),
        "negative count": lambda: setattr(meta, "snapshot_count", -1),
        "huge exit code": lambda: setattr(meta, "exit_code", 2**40),
        "no paths": lambda: SnapshotManager(tmp_path / "s", []),
        "empty path": lambda: SnapshotManager("", [work]),
        "NUL in a path": lambda: SnapshotManager("a\0b", [work]),
        "no hash": lambda: ContentHash("abc"),
        "no time": lambda: setattr(meta, "ended", "yesterday"),
        "a time without an offset": lambda: setattr(meta, "ended", "2026-01-01T00:00:00"),
        "not a number in JSON": lambda: meta.set_network_events([{"x": float("nan")}]),
        "no trigger": lambda: SnapshotCallback(manager, ["sometimes"]),
    }


def wrong_types(manager: SnapshotManager, tmp_path: Path) -> dict[str, Callable[[], Any]]:
    work: Any = tmp_path / "work"
    meta = SessionMetadata("id", [], [])
    anything: Any = manager
    untyped: Any = SnapshotManager
    return {
        "a path for a list": lambda: untyped(tmp_path / "s", str(work)),
        "a number for a path": lambda: untyped(7, [work]),
        "numbers for paths": lambda: untyped(tmp_path / "s", [7]),
        "a dict for an exclusion": lambda: untyped(tmp_path / "s", [work], {}),
        "text for a limit": lambda: untyped(tmp_path / "s", [work], None, "many"),
        "text for a snapshot": lambda: anything.restore_to("0"),
        "a float for a snapshot": lambda: anything.load_manifest(0.5),
        "None for a snapshot": lambda: anything.diff(None, 0),
        "a number for a label": lambda: anything.checkpoint(1),
        "text for metadata": lambda: anything.save_session_metadata("{}"),
        "text for a root": lambda: anything.verify("ab" * 32),
        "text for patterns": lambda: ExclusionConfig(exclude_patterns="x"),
        "text for a switch": lambda: ExclusionConfig("yes"),  # type: ignore[arg-type]
        "bytes for JSON": lambda: SessionMetadata.from_json(b"{}"),  # type: ignore[arg-type]
        "a number for a time": lambda: setattr(meta, "ended", 7),
        "text for an exit code": lambda: setattr(meta, "exit_code", "0"),
        "text for a count": lambda: setattr(meta, "snapshot_count", "0"),
        "text for a hash": lambda: meta.add_merkle_root("ab" * 32),  # type: ignore[arg-type]
        "text for events": lambda: meta.set_network_events("x"),  # type: ignore[arg-type]
        "a list of text for events": lambda: meta.set_network_events(["x"]),  # type: ignore
        "what JSON does not know": lambda: meta.set_network_events([{"x": object()}]),
        "text for a command": lambda: SessionMetadata("id", "ls -l", []),
        "too few arguments": lambda: untyped(tmp_path / "s"),
    }


def test_a_wrong_argument_is_a_value_error(manager: SnapshotManager, tmp_path: Path) -> None:
    manager.create_baseline()
    for what, wrong in wrong_values(manager, tmp_path).items():
        with pytest.raises(ValueError) as caught:
            wrong()
        assert str(caught.value), what


def test_a_wrong_type_is_a_type_error(manager: SnapshotManager, tmp_path: Path) -> None:
    manager.create_baseline()
    for what, wrong in wrong_types(manager, tmp_path).items():
        try:
            wrong()
        except TypeError:
            continue
        except Exception as error:
            pytest.fail(f"{what}: {error!r}")
        pytest.fail(f"{what} was accepted")


def test_a_panic_is_an_error_like_others(capfd: pytest.CaptureFixture[str]) -> None:
    panic = getattr(nono_py._nono, "_panic_for_tests", None)
    if panic is None:
        pytest.skip("a release build has nothing that panics on purpose")
    with pytest.raises(NonoError, match="a bug in nono.*on purpose") as caught:
        panic()
    assert caught.value.operation == "panic_for_tests"
    if "RUST_BACKTRACE" not in os.environ:
        assert capfd.readouterr().err == "", "it was printed as well"
