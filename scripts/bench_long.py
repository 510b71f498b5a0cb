"""Long files of which a little changes: a log that grows, a database of which clusters change, and a
file of SQLite of which single pages do."""

import random
import shutil
import sqlite3

from bench_ground import cost_of, disk_bytes, run

MIB = 1 << 20
SNAPSHOTS = 10


class Log:
    """A gibibyte of lines; a hundredth more each time."""
    name = "log of 1 GiB that grows by 1 %"

    def __init__(self, source):
        self.source = source
        self.lines = [
            b"2026-01-%02d %02d:%02d host%d app[%d]: request %s took %d ms status=%d\n" % (
                source.randrange(1, 30), source.randrange(24), source.randrange(60),
                source.randrange(9), source.randrange(30000), source.randbytes(12).hex().encode(),
                source.randrange(9000), source.choice([200, 404, 500]))
            for _ in range(20000)]

    def text(self, count):
        """About so many bytes of lines, no two parts of which are the same."""
        parts, length = [], 0
        while length < count:
            start = self.source.randrange(len(self.lines) - 800)
            part = b"".join(self.lines[start:start + 800]) + self.source.randbytes(300).hex().encode()
            parts.append(part)
            length += len(part)
        return b"".join(parts)[:count]

    def make(self, path):
        with open(path, "wb") as file:
            for _ in range(64):
                file.write(self.text(16 * MIB))

    def change(self, path):
        with open(path, "ab") as file:
            file.write(self.text(10 * MIB))


class Clusters(Log):
    """A gibibyte, half of it noise; ten times a mebibyte of it becomes another each time."""
    name = "1 GiB of which 1 % changes in clusters"

    def make(self, path):
        with open(path, "wb") as file:
            for _ in range(1024):
                file.write(self.source.randbytes(MIB // 2) + self.text(MIB // 2))

    def change(self, path):
        with open(path, "r+b") as file:
            for _ in range(10):
                file.seek(self.source.randrange(1023 * MIB) // 8192 * 8192)
                file.write(self.source.randbytes(MIB))


class Sqlite(Log):
    """Rows of 380 bytes; one in a hundred pages gets another row each time."""
    name = "SQLite of which 1 % of the pages change"
    rows = 400_000

    def connect(self, path):
        connection = sqlite3.connect(path)
        for pragma in ("page_size=4096", "journal_mode=off", "synchronous=off"):
            connection.execute(f"pragma {pragma}")
        return connection

    def make(self, path):
        connection = self.connect(path)
        connection.execute("create table t(id integer primary key, a text, b blob)")
        connection.executemany("insert into t values(?,?,?)", (
            (row, self.lines[row % len(self.lines)].decode(), self.source.randbytes(300))
            for row in range(self.rows)))
        connection.commit()
        connection.close()

    def change(self, path):
        connection = self.connect(path)
        pages = connection.execute("pragma page_count").fetchone()[0]
        for _ in range(pages // 100):
            connection.execute("update t set b=? where id=?", (
                self.source.randbytes(300), self.source.randrange(self.rows)))
        connection.commit()
        connection.close()


def measure(bench, nono_of, restic_of):
    """Ten snapshots of each. The makers are given a home and a tree; the second may be `None`."""
    with bench.image("ext4", bench.arguments.image_gib) as image:
        for kind in (Log, Clusters, Sqlite):
            tree, home = image.path / "tree", image.path / "home"
            tree.mkdir()
            home.mkdir()
            subject, path = kind(random.Random(3)), tree / "file"
            subject.make(path)
            ten_snapshots(bench, subject, path, nono_of(home, tree),
                          restic_of and restic_of(home, tree))
            shutil.rmtree(tree)
            shutil.rmtree(home)
            image.trim()


def ten_snapshots(bench, subject, path, nono, restic):
    add = bench.results.add
    systems = [(nono, nono.root)] + ([(restic, nono.root.parent / "restic")] if restic else [])
    first = {}
    for number in range(SNAPSHOTS):
        if number:
            subject.change(path)
        for system, root in systems:
            run(["sync"])
            cost = system.first()
            if number == 0:
                first[system.name] = disk_bytes(root)
            else:
                add(f"{subject.name}, seconds", system.name, cost.passed)
        add(f"{subject.name}, seconds", "sha256sum", cost_of(["sha256sum", path]).passed)
        add(f"{subject.name}, seconds", "hash", cost_of([bench.arguments.hash, path.parent]).passed)
    for system, root in systems:
        stored = disk_bytes(root)
        add(f"{subject.name}, ten / the first", system.name, stored / first[system.name])
        add(f"{subject.name}, more MB", system.name, (stored - first[system.name]) / 1e6)


def goals(results):
    def of(kind, what, system="nono"):
        return results.median(f"{kind.name}, {what}", system)

    for kind in (Log, Clusters):
        yield f"{kind.name}, ten ≤ 1.2 × the first", of(kind, "ten / the first"), 1.2
    for kind in (Log, Clusters, Sqlite):
        ours, hashing = of(kind, "seconds"), of(kind, "seconds", "hash")
        yield f"{kind.name}, ≤ 1.3 × hashing", ours / hashing if ours and hashing else None, 1.3
    ours, theirs = of(Sqlite, "more MB"), of(Sqlite, "more MB", "restic")
    yield f"{Sqlite.name}, more ≤ 0.5 × restic", ours / theirs if ours and theirs else None, 0.5
