"""A Docker daemon for tests: its own socket, all its data in memory, gone with the test process."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path
from typing import IO, Any, Iterator, Optional

import pytest
from not_run import not_run

#: The image of the tests: busybox and nothing else.
IMAGE = "nono-test/busybox:1"

#: How long a step of the daemon may take, in seconds.
_LIMIT = 60

_APPLETS = ("cat", "echo", "rm", "sh", "sleep", "sync", "test", "true")

# Its standard input closes with the test process, however that ends.
_WARDEN = """
set -e
mkdir "$1/data" "$1/exec"
mount -o loop,discard "$2" "$1/data"
# From now on the loop device alone keeps the image.
rm -f "$2"
# With version 1 of control groups, what stands still does not die: paused containers go on first.
thaw='for id in $(ls "$1/data/containers" 2>/dev/null); do
    find /sys/fs/cgroup -path "*$id*" -name freezer.state | while read -r state; do
        echo THAWED >"$state"
    done
done'
serve='dockerd --data-root "$1/data" --exec-root "$1/exec" -H "unix://$1/docker.sock" \
    --pidfile "$1/pid" --iptables=false --bridge=none >>"$1/log" 2>&1 &
    cat >/dev/null; kill -KILL -1; sh -c "$2" sh "$1"; exit 0'
unshare --mount --pid --fork --kill-child=KILL --mount-proc sh -c "$serve" sh "$1" "$thaw" || :
sh -c "$thaw" sh "$1" || :
umount "$1/data" || umount -l "$1/data"
rm -rf "$1"
"""


class Dockerd:
    """A running daemon. It needs root."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="nono-docker-", dir="/var/tmp"))
        descriptor, disk = tempfile.mkstemp(prefix="nono-docker-", dir="/dev/shm")
        with os.fdopen(descriptor, "wb") as file:
            file.truncate(4 << 30)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", disk], check=True)
        self._warden = subprocess.Popen(
            ["sh", "-c", _WARDEN, "sh", str(self.directory), disk],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            # A Ctrl-C for the tests is none for the warden.
            start_new_session=True,
        )
        try:
            self._wait()
            self._import_image()
        except BaseException:
            self.close()
            raise

    @property
    def host(self) -> str:
        """The value of ``DOCKER_HOST``."""
        return f"unix://{self.directory}/docker.sock"

    def close(self) -> None:
        """Ends the daemon and its containers, and removes its data."""
        stdin: Optional[IO[bytes]] = self._warden.stdin
        if stdin is not None:
            stdin.close()
        self._warden.wait(_LIMIT)

    def run(self, *args: str, input: Optional[bytes] = None) -> str:
        """Runs the ``docker`` program; its output without the end of the last line."""
        done = subprocess.run(
            ["docker", "-H", self.host, *args], capture_output=True, input=input, timeout=_LIMIT
        )
        if done.returncode != 0:
            raise AssertionError(f"docker {args} failed: {done.stderr.decode()}")
        return done.stdout.decode().rstrip("\n")

    def inspect(self, name: str) -> Any:
        """The daemon's description of a container."""
        return json.loads(self.run("inspect", name))[0]

    def state(self, container: str) -> str:
        """``running``, ``paused``, ``exited``, …"""
        return str(self.inspect(container)["State"]["Status"])

    def sh(self, container: str, script: str) -> str:
        """Runs a shell script in a running container."""
        return self.run("exec", container, "sh", "-c", script)

    def container(self, name: str, *options: str) -> str:
        """Makes a running container that sleeps."""
        options = ("--network", "none", "--stop-timeout", "0", *options)
        return self.run("run", "-d", "--name", name, *options, IMAGE, "sleep", "1000000")

    def _wait(self) -> None:
        end = time.monotonic() + _LIMIT
        while self._warden.poll() is None and time.monotonic() < end:
            done = subprocess.run(["docker", "-H", self.host, "version"], capture_output=True)
            if done.returncode == 0:
                return
            time.sleep(0.05)
        log = self.directory / "log"
        raise AssertionError(f"no dockerd: {log.read_text() if log.exists() else 'no log'}")

    def _import_image(self) -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            tar.add("/bin/busybox", "bin/busybox")
            for applet in _APPLETS:
                link = tarfile.TarInfo(f"bin/{applet}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
        self.run("import", "-", IMAGE, input=archive.getvalue())


@pytest.fixture(scope="session")
def docker(request: pytest.FixtureRequest) -> Iterator[Dockerd]:
    """A Docker daemon of the tests' own."""
    if os.geteuid() != 0:
        not_run(request, "CONTAINER TESTS DO NOT RUN: they start a Docker daemon, which needs root")
    daemon = Dockerd()
    yield daemon
    daemon.close()
