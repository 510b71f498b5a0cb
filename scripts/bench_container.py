"""The part `container` of the bench: volumes of a container of an engine of its own.

The engine, its volumes and the store lie on one file system in memory. An unchanged volume is
measured beside an unchanged `nono snapshot` of the same directory, in turn. A tar of the volume says
what a copy each would take.
"""

import contextlib
import os
import random
import shutil
import subprocess
import time
from pathlib import Path

from bench_ground import cost_of, generate, run, say

IMAGE = "nono-bench/busybox:1"
FILES = 100_000
MIB = 1 << 20
#: The large volume: so many files of a MiB, and one file of as many MiB.
LARGE_MIB = 512
SECONDS = 60


class Engine:
    """A Docker daemon with all its data in a directory. A context manager."""

    def __init__(self, directory):
        self.directory = Path(directory)
        self.host = f"unix://{self.directory}/docker.sock"

    def __enter__(self):
        self.directory.mkdir()
        with open(self.directory / "log", "wb") as log:
            self.daemon = subprocess.Popen(
                ["dockerd", "--data-root", self.directory / "data",
                 "--exec-root", self.directory / "exec", "-H", self.host,
                 "--pidfile", self.directory / "pid", "--iptables=false", "--bridge=none"],
                stdout=log, stderr=log)
        end = time.monotonic() + SECONDS
        while subprocess.run(["docker", "-H", self.host, "version"], stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL).returncode != 0:
            if self.daemon.poll() is not None or time.monotonic() > end:
                self.daemon.kill()
                raise SystemExit(f"no dockerd:\n{(self.directory / 'log').read_text()}")
            time.sleep(0.05)
        self.make_image()
        return self

    def __exit__(self, *_):
        self.daemon.terminate()
        self.daemon.wait(SECONDS)
        with open("/proc/mounts") as mounts:
            below = [line.split()[1] for line in mounts]
        for point in reversed(below):
            if point.startswith(f"{self.directory}/"):
                subprocess.run(["umount", "-l", point], check=False)
        shutil.rmtree(self.directory)

    def docker(self, *words, **options):
        run(["docker", "-H", self.host, *words], **options)

    def make_image(self):
        root = self.directory / "root"
        (root / "bin").mkdir(parents=True)
        shutil.copy(shutil.which("busybox"), root / "bin/busybox")
        for applet in ("sh", "sleep"):
            (root / "bin" / applet).symlink_to("busybox")
        with subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE) as tar:
            self.docker("import", "-", IMAGE, stdin=tar.stdout)
        shutil.rmtree(root)

    @contextlib.contextmanager
    def container(self, name):
        """A running container; its only volume has the same name. Gives the volume's directory."""
        self.docker("run", "-d", "--name", name, "--network", "none", "-v", f"{name}:/data", IMAGE,
                    "sleep", "1000000")
        try:
            yield self.directory / "data/volumes" / name / "_data"
        finally:
            self.docker("rm", "-f", name)
            self.docker("volume", "rm", name)


def measure(bench, nono_class, disk_bytes):
    """Both measurements. `nono_class` and `disk_bytes` are those of the bench."""
    missing = [name for name in ("dockerd", "docker", "busybox") if not shutil.which(name)]
    if missing:
        say(f"{', '.join(missing)} not installed: containers are NOT MEASURED")
        return
    with bench.image("ext4", 16) as image, Engine(image.path / "engine") as engine:
        unchanged(bench, nono_class, image, engine)
        changed(bench, nono_class, image, engine, disk_bytes)


def unchanged(bench, nono_class, image, engine):
    with engine.container("many") as volume:
        generate(volume, FILES)
        home, other = image.path / "home", image.path / "other"
        home.mkdir()
        other.mkdir()
        plain = nono_class(bench.arguments.nono, other, volume)
        contained = nono_class(bench.arguments.nono, home, volume)
        contained.env["DOCKER_HOST"] = engine.host
        # A file as young as a snapshot is read once more.
        plain.first()
        snapshot(contained, "many", "--no-image", "--no-files")
        time.sleep(1)
        plain.again()
        snapshot(contained, "many", "--no-image", "--no-files")
        for _ in range(bench.arguments.rounds):
            add = bench.results.add
            add(f"volume of {FILES} files, unchanged", "snapshot", plain.again().passed)
            volumes = snapshot(contained, "many", "--no-image", "--no-files")
            add(f"volume of {FILES} files, unchanged", "nono", volumes.passed)
            whole = snapshot(contained, "many")
            add(f"volume of {FILES} files, unchanged, with an image", "nono", whole.passed)
    shutil.rmtree(home)
    shutil.rmtree(other)


def changed(bench, nono_class, image, engine, disk_bytes):
    """Contents that do not compress, so that every stored byte counts."""
    source = random.Random(3)
    with engine.container("large") as volume:
        for number in range(LARGE_MIB):
            (volume / f"file{number:04}").write_bytes(source.randbytes(MIB))
        with open(volume / "long", "wb") as long:
            for _ in range(LARGE_MIB):
                long.write(source.randbytes(MIB))
        home = image.path / "home"
        home.mkdir()
        nono = nono_class(bench.arguments.nono, home, volume)
        nono.env["DOCKER_HOST"] = engine.host
        snapshot(nono, "large", "--no-image", "--no-files")
        first = stored(nono, disk_bytes)
        # One percent: of the files every hundredth, of the long one ten runs.
        for number in range(0, LARGE_MIB, 100):
            (volume / f"file{number:04}").write_bytes(source.randbytes(MIB))
        run_bytes = LARGE_MIB * MIB // 100 // 10
        with open(volume / "long", "r+b") as long:
            for number in range(10):
                long.seek(number * (LARGE_MIB * MIB // 10) + 12345)
                long.write(source.randbytes(run_bytes))
        run(["sync"])
        snapshot(nono, "large", "--no-image", "--no-files")
        more = stored(nono, disk_bytes) - first
        archive = image.path / "volume.tar"
        run(["tar", "-cf", archive, "-C", volume, "."])
        work = "second snapshot of a GiB, 1 % changed, MB"
        bench.results.add(work, "nono", more / 1e6)
        bench.results.add(work, "tar", os.path.getsize(archive) / 1e6)
        bench.results.add("second snapshot of a GiB, 1 % changed, share", "nono",
                          more / (2 * LARGE_MIB * MIB))
        archive.unlink()
    shutil.rmtree(home)


def stored(nono, disk_bytes):
    run(["sync"])
    return disk_bytes(nono.root)


def snapshot(nono, name, *more):
    return cost_of([nono.program, "container", "snapshot", name, *more], env=nono.env,
                   cwd=nono.root.parent)


def goals(results):
    """(goal, what was reached, limit)"""
    work = f"volume of {FILES} files, unchanged"
    ours, plain = results.median(work, "nono"), results.median(work, "snapshot")
    yield ("container: unchanged volume, ≤ 1.2 × unchanged nono snapshot",
           ours / plain if ours and plain else None, 1.2)
    yield ("container: 1 % changed of a GiB, ≤ 2 % more",
           results.median("second snapshot of a GiB, 1 % changed, share", "nono"), 0.02)
