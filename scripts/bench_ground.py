"""What the benches share: loop-mounted images in memory, trees to work on, times and medians."""

import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

GIB = 1 << 30
NPM_PACKAGES = ["next", "typescript", "@mui/icons-material", "antd", "@aws-sdk/client-s3", "three"]
TOUCH = """
import ctypes, mmap, sys
size = int(sys.argv[1])
memory = mmap.mmap(-1, size)
ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 1, size)
"""
MAKE = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-i", "4096", "-m", "0"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-m", "reflink=1"],
    "btrfs": ["mkfs.btrfs", "-q", "-f"],
}


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def run(command, **options):
    """Runs a command that must succeed."""
    options.setdefault("stdout", subprocess.DEVNULL)
    subprocess.run([str(word) for word in command], check=True, **options)


class Cost:
    """What a command took: seconds that passed, seconds of processor time, peak memory in MiB."""

    def __init__(self, passed, worked, memory):
        self.passed = passed
        self.worked = worked
        self.memory = memory


def cost_of(command, **options):
    """Runs a command that must succeed. Its output goes nowhere. The kernel's peak of memory begins with
    that of this process."""
    options.setdefault("stdout", subprocess.DEVNULL)
    options.setdefault("stderr", subprocess.PIPE)
    begun = time.monotonic()
    process = subprocess.Popen([str(word) for word in command], **options)
    stderr = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    passed = time.monotonic() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{command}: {process.returncode}\n{stderr.decode(errors='replace')}")
    return Cost(passed, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def touch_memory(gib=2):
    """Has memory at hand for what is measured next. A virtual machine may get memory from its host only when it is first
    touched, and give back what was free for some seconds; to get a GiB then takes up to two seconds, which whoever
    is measured would pay for."""
    with open("/proc/meminfo") as lines:
        free = next(int(line.split()[1]) for line in lines if line.startswith("MemFree:")) << 10
    subprocess.run([sys.executable, "-S", "-c", TOUCH, str(min(int(gib * GIB), free // 2))], check=True)


class Image:
    """A file system in a file in memory, mounted. A context manager."""

    def __init__(self, kind, gib, base):
        self.file = Path(base) / f"{kind}.img"
        self.path = Path(base) / kind
        self.kind = kind
        self.gib = gib

    def __enter__(self):
        with open(self.file, "wb") as image:
            image.truncate(self.gib * GIB)
        try:
            run([*MAKE[self.kind], self.file])
            self.path.mkdir()
            run(["mount", "-o", "loop", self.file, self.path])
        except BaseException:
            self.file.unlink()
            raise
        return self

    def __exit__(self, *_):
        for _ in range(20):
            if subprocess.run(["umount", self.path], stderr=subprocess.DEVNULL).returncode == 0:
                break
            time.sleep(0.5)
        else:
            run(["umount", "-l", self.path])
        self.path.rmdir()
        self.file.unlink()

    def forget(self):
        """Leaves nothing of it in memory but the image itself: whoever reads next reads from the device."""
        run(["umount", self.path])
        run(["mount", "-o", "loop", self.file, self.path])

    def trim(self):
        """Gives the memory of what was removed back."""
        run(["fstrim", self.path])

    def used(self):
        """Bytes in use, everything written."""
        run(["sync", "-f", self.path])
        stat = os.statvfs(self.path)
        return (stat.f_blocks - stat.f_bfree) * stat.f_frsize


def real_tree(target, given, files):
    """Copies the tree `given`, or installs well-known npm packages, or generates `files` files."""
    if given:
        run(["cp", "-a", given, target])
    elif shutil.which("npm"):
        say("npm install; this takes a minute")
        target.mkdir()
        run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", *NPM_PACKAGES],
            cwd=target)
    else:
        generate(target, files)


def generate(tree, count, median_bytes=1340):
    """About `count` files in directories of twenty, sizes spread as in source trees."""
    source = random.Random(2)
    text = b"".join(b"%x line of a file;\n" % source.getrandbits(40) for _ in range(8192))
    for index in range(count):
        directory = tree / f"p{index // 400:04}" / f"d{index // 20 % 20}"
        if index % 20 == 0:
            directory.mkdir(parents=True)
        size = min(int(source.lognormvariate(math.log(median_bytes), 1.4)), len(text))
        start = source.randrange(len(text) - size + 1)
        (directory / f"file{index % 20}.js").write_bytes(text[start : start + size])


def files_of(tree):
    """All regular files below a directory, in a fixed order."""
    found = []
    for directory, names, leaves in os.walk(tree):
        names.sort()
        paths = (os.path.join(directory, name) for name in sorted(leaves))
        found += [path for path in paths if os.path.isfile(path) and not os.path.islink(path)]
    return found


def count_of(tree):
    """How many files are below a directory. A list of a million would count as memory of what is run."""
    return sum(len(leaves) for _, _, leaves in os.walk(tree))


def change(files, text):
    """Appends a line to each of some files."""
    for path in files:
        with open(path, "a") as file:
            file.write(f"// {text}\n")


class Results:
    """Numbers by work and system, one for each round."""

    def __init__(self):
        self.values = {}

    def add(self, work, system, value):
        self.values.setdefault(work, {}).setdefault(system, []).append(value)
        say(f"  {work:34} {system:12} {value:10.3f}")

    def median(self, work, system):
        values = self.values.get(work, {}).get(system)
        return statistics.median(values) if values else None


def disk_bytes(directory):
    """Bytes that a directory takes on the disk."""
    done = subprocess.run(["du", "-s", "--block-size=1", str(directory)], check=True,
                          stdout=subprocess.PIPE)
    return int(done.stdout.split()[0])
