"""Forks of a git repository in which everything is committed, beside the project itself, a worktree
and a copy."""

import os
import shutil
import subprocess
import sys

from bench_ground import cost_of, disk_bytes, files_of, generate, run

FILES = 100_000
# With this median, 100,000 files have about 500 MB.
MEDIAN_BYTES = 1880
CHANGED = 1000
FORKS = 10
# Runs a piece of work where it is started, and prints its seconds: the start is no part of it.
WORK = """
import os, subprocess, sys, time
what, files = sys.argv[1], [line.rstrip("\\n") for line in open(sys.argv[2])]
def run(*words):
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
def edit():
    for path in files:
        with open(path, "a") as file:
            file.write("// edited\\n")
def new():
    os.mkdir("new files")
    for number in range(len(files)):
        with open(f"new files/{number}", "w") as file:
            file.write("new\\n")
works = {"git status": lambda: run("git", "status", "--porcelain"),
         "grep -r": lambda: run("grep", "-rc", "no such line", "."), "edit": edit, "new": new}
begun = time.monotonic()
works[what]()
print(time.monotonic() - begun)
"""


def seconds(words, tree, env):
    done = subprocess.run([str(word) for word in words], cwd=tree, env=env, check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return float(done.stdout)


def measure(bench, nono_of):
    with bench.image("ext4", bench.arguments.image_gib) as image:
        tree, home = image.path / "tree", image.path / "home"
        home.mkdir()
        generate(tree, FILES, MEDIAN_BYTES)
        nono = nono_of(home, tree)
        git = ["git", "-c", "user.name=n", "-c", "user.email=n@x", "-C", tree]
        for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "1"], ["status"]):
            run([*git, *words], env=nono.env)
        changed = image.path / "changed"
        old = files_of(tree)[:CHANGED]
        changed.write_text("".join(f"{os.path.relpath(path, tree)}\n" for path in old))
        run([nono.program, "snapshot"], env=nono.env, cwd=tree)
        for number in range(bench.arguments.rounds):
            one_round(bench, nono, image, tree, changed, git, number)


def one_round(bench, nono, image, tree, changed, git, number):
    add = bench.results.add

    def ours(*words):
        return cost_of([nono.program, *words], env=nono.env, cwd=tree).passed

    add("unchanged snapshot", "nono", ours("snapshot"))
    add("try -- true", "nono", ours("try", "--discard", "--", "true"))
    before = image.used()
    for fork in range(FORKS):
        add("make a fork", "nono", ours("fork", f"fork-{fork}"))
    add("ten forks, KB each", "nono", (image.used() - before) / 1000 / FORKS)
    for _ in range(5):
        add("enter a fork", "nono", ours("fork", "enter", "fork-0", "--", "true"))
    work = [sys.executable, "-S", "-c", WORK]
    for what in ("git status", "grep -r"):
        inside = [nono.program, "fork", "enter", "fork-1", "--", *work, what, changed]
        for time in ("first", "second"):
            add(f"{what}, {time}", "native", seconds([*work, what, changed], tree, nono.env))
            # Each command has a holder of its own: the second one finds the caches of the kernel.
            add(f"{what}, {time}", "nono", seconds(inside, tree, nono.env))
    copy = image.path / "copy"
    add("make a fork", "cp -a", cost_of(["cp", "-a", tree, copy]).passed)
    add("ten forks, KB each", "cp -a", disk_bytes(copy) / 1000)
    for what in ("edit", "new"):
        inside = [nono.program, "fork", "enter", "fork-2", "--", *work, what, changed]
        add(f"{CHANGED} files, {what}", "nono", seconds(inside, tree, nono.env))
        add(f"{CHANGED} files, {what}", "native", seconds([*work, what, changed], copy, nono.env))
    shutil.rmtree(copy)
    worktree = image.path / "worktree"
    cost = cost_of([*git, "worktree", "add", "-q", worktree, "-b", f"tree-{number}"], env=nono.env)
    add("make a fork", "worktree", cost.passed)
    add("ten forks, KB each", "worktree", disk_bytes(worktree) / 1000)
    run([*git, "worktree", "remove", "--force", worktree], env=nono.env)
    ten = f"head -10 {changed} | while read -r path; do echo '// {number}' >> \"$path\"; done"
    ours("fork", "enter", "fork-3", "--", "sh", "-c", ten)
    add("merge of ten files", "nono", ours("fork", "merge", "fork-3"))
    ours("undo", "--yes")
    ours("fork", "discard", *(f"fork-{fork}" for fork in range(FORKS)))
    image.trim()


def goals(results):
    def of(work, system="nono"):
        return results.median(work, system)

    def ratio(work, other, system="nono"):
        return of(work) / of(other, system) if of(work) and of(other, system) else None

    yield "enter a fork ≤ 0.15 s", of("enter a fork"), 0.15
    yield "try -- true ≤ 1.3 × unchanged", ratio("try -- true", "unchanged snapshot"), 1.3
    yield "ten forks ≤ 1000 KB each", of("ten forks, KB each"), 1000
    for what in ("git status", "grep -r"):
        second = f"{what}, second"
        yield f"{second} ≤ 1.2 × native", ratio(second, second, "native"), 1.2
    first = "git status, first"
    yield f"{first} ≤ 2 × native", ratio(first, first, "native"), 2
    for what, limit in (("edit", 1.3), ("new", 1.7)):
        work = f"{CHANGED} files, {what}"
        yield f"{work} ≤ {limit} × native", ratio(work, work, "native"), limit
    merge, unchanged = of("merge of ten files"), of("unchanged snapshot")
    yield ("merge of ten ≤ unchanged + 50 ms",
           (merge - unchanged) * 1000 if merge and unchanged else None, 50)
    for system in ("worktree", "cp -a"):
        yield f"make a fork ≤ {system}", ratio("make a fork", "make a fork", system), 1
