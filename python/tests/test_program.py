"""Sessions made here and by the program `nono` are the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import nono_py
from conftest import Nono
from nono_py import RestoreReport, SnapshotManager, new_session_dir


@pytest.fixture(params=["in the store", "objects of its own"])
def made_here(request: pytest.FixtureRequest, nono: Nono, work: Path) -> SnapshotManager:
    """A session with two snapshots in the program's store."""
    if request.param == "in the store":
        place = new_session_dir(nono.root)
    else:
        place = str(nono.root / "20260214-143022-12345")
    manager = SnapshotManager(place, [work])
    assert os.path.islink(Path(place) / "objects") == (request.param == "in the store")
    manager.create_baseline()
    (work / "one.txt").write_text("changed")
    manager.checkpoint("second")
    return manager


def test_the_program_lists_restores_and_verifies_what_is_made_here(
    made_here: SnapshotManager, nono: Nono, work: Path
) -> None:
    (listed,) = nono.json("rollback", "list", "--all")
    assert listed["session_id"] == made_here.session_id
    assert (listed["snapshot_count"], listed["status"]) == (2, "open")
    assert listed["tracked_paths"] == [str(work)] and listed["changes"]["modified"] == 1

    shown = nono.json("rollback", "show", made_here.session_id)
    roots = [snapshot["merkle_root"] for snapshot in shown["snapshots"]]
    assert roots == [made_here.load_manifest(number).merkle_root.hex() for number in (0, 1)]

    assert [snapshot["label"] for snapshot in shown["snapshots"]] == [None, "second"]
    assert "snapshot 1 “second”" in nono.run("rollback", "show", made_here.session_id)

    assert nono.json("rollback", "verify", made_here.session_id)["ok"] is True
    assert made_here.verify().ok

    restored = nono.json("rollback", "restore", "--yes", made_here.session_id)
    assert [change["path"] for change in restored["changes"]] == [str(work / "one.txt")]
    assert (work / "one.txt").read_text() == "one"
    assert made_here.snapshot_count() == 3, "the safety snapshot of the program"
    assert made_here.compute_restore_diff(0) == []


def test_files_of_an_archive_get_privileges_only_where_somebody_asks(
    nono: Nono, work: Path, tmp_path: Path
) -> None:
    def mode(path: Path) -> int:
        return path.stat().st_mode & 0o7777

    tool = work / "one.txt"
    tool.chmod(0o4751)
    here = SnapshotManager(new_session_dir(nono.root), [work])
    here.create_baseline()
    archive = tmp_path / "state.tar.zst"
    nono.run("archive", "create", here.session_id, "-o", archive)
    there = Nono(nono.program, tmp_path / "there")
    there.run("archive", "import", archive)
    received = SnapshotManager.open(there.root / here.session_id)

    less, all_of_it, own = (tmp_path / name for name in ("less", "all", "own"))
    report = received.restore(0, to=less)
    assert not report and list(report.skipped) == [str(less / "one.txt")]
    assert mode(less / "one.txt") == 0o751
    assert received.restore(0, to=all_of_it, with_privileges=True)
    assert mode(all_of_it / "one.txt") == 0o4751
    # A session that was recorded here gives what it has.
    assert here.restore(0, to=own) and mode(own / "one.txt") == 0o4751

    # In place, and the plan says the same.
    tool.write_text("changed")
    tool.chmod(0o644)
    assert list(received.plan_restore(0).skipped) == [str(tool)]
    assert received.plan_restore(0, with_privileges=True).skipped == {}
    report = received.restore(0, on_conflict="overwrite")
    assert not report and list(report.skipped) == [str(tool)]
    assert (tool.read_text(), mode(tool)) == ("one", 0o751)
    assert received.restore(0, on_conflict="overwrite", with_privileges=True)
    assert mode(tool) == 0o4751


def test_the_program_mounts_what_is_made_here(
    fuse: None, made_here: SnapshotManager, nono: Nono, work: Path, tmp_path: Path
) -> None:
    place = tmp_path / "mounted"
    nono.run("mount", place)
    try:
        session = place / made_here.session_id
        assert Path(f"{session}/0{work}/one.txt").read_text() == "one"
        assert Path(f"{session}/latest{work}/one.txt").read_text() == "changed"
    finally:
        nono.run("umount", place)


def test_what_the_program_made_is_used_here(nono: Nono, work: Path) -> None:
    made = nono.json("snapshot", work)
    place = nono.root / made["session_id"]
    manager = SnapshotManager(place, [work])
    assert manager.snapshot_count() == 1
    baseline = manager.load_manifest(0)
    assert baseline.merkle_root.hex() == made["merkle_root"]
    assert manager.read(0, work / "one.txt") == b"one"
    assert manager.load_session_metadata(place).session_id == made["session_id"]

    (work / "new").write_text("x")
    manifest, changes = manager.create_incremental()
    assert manifest.number == 1 and len(changes) == 1
    assert manager.verify(expected_root=baseline.merkle_root).ok
    manager.restore_to(0)
    assert not (work / "new").exists()
    assert nono.json("rollback", "verify", made["session_id"])["ok"] is True


def test_a_run_of_the_program_is_read_here(nono: Nono, work: Path) -> None:
    script = f"echo more >> {work}/one.txt; exit 3"
    allowed = ["--rollback", "--allow", work, "--no-rollback-prompt"]
    nono.run("run", *allowed, "--", "sh", "-c", script, check=False)
    (listed,) = nono.json("rollback", "list", "--all")
    manager = SnapshotManager.open(nono.root / listed["session_id"])
    meta = manager.load_session_metadata(manager.session_dir)
    assert (meta.exit_code, meta.command[0], meta.snapshot_count) == (3, "sh", 2)
    assert meta.ended is not None and len(meta.merkle_roots) == 2
    assert [change.path for change in manager.diff(0, 1)] == [str(work / "one.txt")]
    assert [change.size_delta for change in manager.restore_to(0)] == [-5]


def test_a_snapshot_is_mounted_as_long_as_the_block_lasts(
    fuse: None, made_here: SnapshotManager, work: Path, tmp_path: Path, nono: Nono
) -> None:
    place = tmp_path / "mounted"
    with made_here.mount(place) as mounted:
        assert mounted.directory == place and os.fspath(mounted) == str(place)
        assert Path(f"{place}/0{work}/one.txt").read_text() == "one"
        assert sorted(os.listdir(place)) == ["0", "1", "latest"]
        (status,) = [m for m in nono.json("mount", "--status") if m["directory"] == str(place)]
        assert (status["session"], status["alive"]) == (made_here.session_id, True)
        with pytest.raises(nono_py.NonoError, match="mounted there already"):
            made_here.mount(place)
    assert not os.path.ismount(place) and os.listdir(place) == []
    mounted.unmount()
    assert "ended" in repr(mounted)


def test_a_whole_store_is_mounted(
    fuse: None, made_here: SnapshotManager, work: Path, tmp_path: Path, nono: Nono
) -> None:
    with nono_py.mount(tmp_path / "mounted", root=nono.root) as mounted:
        assert sorted(os.listdir(mounted)) == [made_here.session_id, "by-project", "latest"]
        one = f"{mounted.directory}/latest/1{work}/one.txt"
        assert Path(one).read_text() == "changed"


def test_a_mount_ends_with_its_last_reference_and_with_the_program(
    fuse: None, made_here: SnapshotManager, tmp_path: Path
) -> None:
    import subprocess
    import sys

    place = tmp_path / "mounted"
    mounted = made_here.mount(place)
    assert os.path.ismount(place)
    del mounted
    assert not os.path.ismount(place)
    program = (
        "import os, sys, nono_py\n"
        "keep = nono_py.SnapshotManager.open(sys.argv[1]).mount(sys.argv[2])\n"
        "assert os.path.ismount(sys.argv[2])\n"
        # Nothing frees it before the interpreter ends.
        "sys.keep = keep\n"
    )
    subprocess.run([sys.executable, "-c", program, made_here.session_dir, place], check=True)
    assert not os.path.ismount(place) and os.listdir(place) == []


def test_a_place_that_cannot_be_mounted_at_is_refused(
    fuse: None, made_here: SnapshotManager, nono: Nono, work: Path, tmp_path: Path
) -> None:
    for place, reason in [
        (work, "not empty"),
        (work / "one.txt", "not a directory"),
        (tmp_path / "a" / "b", "No such file|does not exist"),
        (nono.root / "inside", "inside the store"),
        (nono.root.parent, "contains the store"),
    ]:
        with pytest.raises(nono_py.NonoError, match=reason) as caught:
            made_here.mount(place)
        assert caught.value.operation == "mount"
    assert not (nono.root / "inside").exists()
