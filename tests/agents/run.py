"""Real coding agents at work for a scripted model, recorded by hooks and under `nono run`.

For each client: its configuration is written, `nono agent install` adds the hooks and the server of
tools, and the client does a day's work. Then the steps have to be what happened, each state has to
come back byte for byte, one step has to be undone without those after it, and `uninstall` has to give
the configuration back. Prints a line for each check, and at the end how many passed, failed and were
skipped. Started by scripts/test-agents where nothing but loopback can be reached.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import traceback
from pathlib import Path

from clients import CLIENTS, QUIET
from model import Later, Model

# Most seconds of one session of a client.
TIMEOUT = 90
MAIN, PART, MORE, LAST = "SCRIPT-main", "SCRIPT-part", "SCRIPT-more", "SCRIPT-last"
AGAIN = "SCRIPT-again"
NEWS = "[nono] Since your last turn"
WAY = "the conversation from before that prompt: "
LABEL = "before the last file"


class Results:
    """Counts checks, and says what each came to."""

    def __init__(self):
        self.passed, self.failed, self.skipped = 0, 0, 0

    def check(self, what, is_so, otherwise=""):
        if is_so:
            self.passed += 1
            print(f"ok      {what}", flush=True)
        else:
            self.failed += 1
            print(f"FAILED  {what}: {otherwise}", flush=True)

    def same(self, what, got, wanted):
        self.check(what, got == wanted, f"\n  got    {got}\n  wanted {wanted}")

    def skip(self, what, why):
        self.skipped += 1
        print(f"SKIPPED {what}: {why}", flush=True)


class Day:
    """One client in a home of its own."""

    def __init__(self, arguments, client, model, name, results):
        self.results = results
        self.place = arguments.place / f"{client.program_name}-{name}"
        self.home = self.place / "home"
        self.project = self.home / "shop"
        self.nono_program = arguments.nono
        for directory in (self.project / "src/deep", self.place / "tmp", self.place / "signals"):
            directory.mkdir(parents=True)
        for path, text in BEFORE.items():
            (self.project / path).write_text(text)
        self.model = model
        self.client = client(arguments.packages, self.home, self.project, model.url)
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8",
            "TERM": "xterm", "TMPDIR": str(self.place / "tmp"), **QUIET,
            **self.client.environment(),
        }

    def check(self, what, *rest):
        self.results.check(f"{self.client.name}: {what}", *rest)

    def same(self, what, *rest):
        self.results.same(f"{self.client.name}: {what}", *rest)

    def run(self, command, patience=TIMEOUT):
        """Runs a program in the project; its exit code and output."""
        try:
            done = subprocess.run(
                [str(word) for word in command], cwd=self.project, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=patience,
            )
            return done.returncode, done.stdout.decode(errors="replace")
        except subprocess.TimeoutExpired as error:
            return 124, (error.stdout or b"").decode(errors="replace")

    def nono(self, *arguments):
        code, text = self.run([self.nono_program, *arguments])
        if code != 0:
            raise AssertionError(f"nono {' '.join(map(str, arguments))}: exit code {code}\n{text}")
        return text

    def json(self, *arguments):
        done = subprocess.run(
            [self.nono_program, *arguments, "--json"], cwd=self.project, env=self.environment,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT, check=False,
        )
        if not done.stdout:
            raise AssertionError(f"nono {' '.join(arguments)}: {done.stderr.decode()}")
        return json.loads(done.stdout)

    def work(self, command, word):
        """A session of the client for one script; every call has to be answered."""
        began = time.monotonic()
        code, text = self.run(command)
        seconds = time.monotonic() - began
        script = self.model.scripts[word]
        calls = sum(len(message) for message in script)
        answered = [self.model.results.get((word, number)) for number in range(calls)]
        self.check(
            f"it did what {word} says ({seconds:.1f} s)", code == 0 and None not in answered,
            f"exit code {code}, {sum(answer is not None for answer in answered)} of {calls} calls "
            f"answered, {self.model.complaints}\n{text[-3000:]}",
        )
        return answered

    def state(self):
        """Paths and bytes of the project's files."""
        return files_of(self.project)

    def configuration(self):
        found = {}
        for name in self.client.files:
            path = self.home / name
            found[name] = path.read_bytes() if path.exists() else None
        return found


# The project before a day, and what each part of the work makes of it.
BEFORE = {"README.md": "hello\n", "src/a.rs": "fn a() {}\n", "src/deep/b.rs": "fn b() {}\n"}


def files_of(directory):
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_text() for path in files}


def main_script(client, place):
    """The work of a day: the script, and what each step of it has to hold, in order."""
    go, late = place / "signals/go", client.project / "late.txt"

    def let_it_write():
        # What comes after the call's own hook and before the next one is late for sure.
        go.touch()
        deadline = time.monotonic() + 20
        while not (late.exists() and late.read_text() == "late\n"):
            if time.monotonic() > deadline:
                raise AssertionError("the command in the background wrote nothing")
            time.sleep(0.01)

    remove = "find src -delete" if client.name == "codex" else "rm -rf src"
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done; echo late > late.txt"
    last = client.create("made.txt", "made\n")
    after_late = client.subagent(f"do the part that {PART} says") if client.has_subagents else []
    after_late += client.tool("checkpoint", label=LABEL) + last
    after_late[0] = Later(let_it_write, after_late[0])
    script = (
        client.edit("README.md", "hello", "goodbye")
        + client.shell(remove)
        + client.shell("echo half > half.txt; exit 3")
        + client.background(wait)
        + after_late
    )
    steps = [
        ("tool", {"README.md": "goodbye\n"}),
        ("tool", {"src/a.rs": None, "src/deep/b.rs": None}),
        ("tool", {"half.txt": "half\n"}),
        ("late", {"late.txt": "late\n"}),
        *([("tool", {"sub.txt": "sub\n"})] if client.has_subagents else []),
        ("checkpoint", {}),
        ("tool", {"made.txt": "made\n"}),
    ]
    return script, steps


def after(state, effects):
    """A state with some effects on it; `None` removes."""
    state = {**state, **effects}
    return {path: text for path, text in state.items() if text is not None}


def changed_files(day, snapshot):
    """What a snapshot says that it changed, without directories."""
    changes = (c for c in snapshot["changes"] if not c.get("is_directory"))
    return {
        str(Path(change["path"]).relative_to(day.project)): change["change_type"]
        for change in changes
    }


def with_hooks(arguments, client_class, results):
    with Model({}) as model:
        day = Day(arguments, client_class, model, "alone", results)
        client = day.client
        script, wanted = main_script(client, day.place)
        model.scripts[MAIN] = script
        model.scripts[PART] = client.create("sub.txt", "sub\n")
        model.scripts[MORE] = client.create("more.txt", "more\n")
        before = day.configuration()
        day.nono("agent", "install", client.name, "--user", "--mcp")
        installed = day.configuration()
        day.check("install writes its configuration", installed != before)
        day.nono("agent", "install", client.name, "--user", "--mcp")
        day.same("installing twice changes nothing", day.configuration(), installed)
        day.nono("agent", "uninstall", client.name, "--user")
        day.same("uninstall gives the configuration back", day.configuration(), before)
        day.nono("agent", "install", client.name, "--user", "--mcp")
        answers = day.work(client.command(f"do what {MAIN} says"), MAIN)
        seen = " ".join(str(answer) for answer in answers)
        day.check("the model sees nothing of hooks", "hook" not in seen.lower(), seen[:4000])
        (day.project / "user.txt").write_text("user\n")
        day.work(client.resume(f"now do what {MORE} says"), MORE)
        wanted += [("user_edits", {"user.txt": "user\n"}), ("tool", {"more.txt": "more\n"})]
        judge(day, wanted)
        learns(day, client, model)
        goes_back(day, client, model)
        day.nono("agent", "uninstall", client.name, "--user")
        day.same("uninstall after the work gives it back too", day.configuration(), before)


def learns(day, client, model):
    """The undo of a step reaches the model with the next prompt, and no earlier."""
    day.check("no request before the undo told of one", not any(NEWS in it for it in model.requests))
    model.scripts[LAST] = client.create("last.txt", "last\n")
    before = len(model.requests)
    day.work(client.resume(f"at last do what {LAST} says"), LAST)
    told = [it for it in model.requests[before:] if NEWS in it]
    day.check("the model learns of the undo", bool(told), model.requests[before:][-1:])
    if told:
        text = told[-1][told[-1].index(NEWS):][:1200]
        day.check("it learns which files came back", "src/a.rs" in text, text)
        day.same("it learns of it once", told[-1].count(NEWS), 1)


def goes_back(day, client, model):
    """The undo of a prompt ends with the client's way to before it, where the client has one."""
    code, text = day.run([day.nono_program, "undo", "--prompt", "last", "--yes"])
    day.check("the last prompt is taken back", code == 0, f"exit code {code}\n{text}")
    ways = [line.split(WAY)[1] for line in text.splitlines() if WAY in line]
    day.same("a way back is named if the client has one", len(ways), int(client.goes_back))
    if not ways:
        return
    program, *words, prompt = shlex.split(ways[0])
    day.same("it is a command of the client", (program, prompt), (client.program_name, "PROMPT"))
    model.scripts[AGAIN] = client.create("again.txt", "again\n")
    before = len(model.requests)
    following = client.command(f"now do what {AGAIN} says")[2:]
    day.work([client.program, *words, *following], AGAIN)
    said = "".join(model.requests[before:])
    day.check("the model knows the prompt before", MORE in said, said[-2000:])
    day.check("the model does not know the prompt that was taken back", LAST not in said)


def judge(day, wanted):
    """Compares what is recorded with what happened."""
    sessions = [s for s in day.json("rollback", "list") if s["snapshot_count"]]
    day.same("there is one session", len(sessions), 1)
    session = sessions[0]["session_id"]
    prompts = day.json("steps", session)["prompts"]
    steps = [step for prompt in prompts for step in prompt["steps"]]
    show = day.json("rollback", "show", session)["snapshots"]
    by_number = {snapshot["number"]: snapshot for snapshot in show}
    kinds = [
        (step.get("kind", "tool"), sorted(changed_files(day, by_number[step["number"]])))
        for step in steps
    ]
    day.same(
        "the steps are what happened", kinds, [(kind, sorted(effects)) for kind, effects in wanted]
    )
    if len(kinds) != len(wanted):
        return
    day.same(
        "each step has its prompt",
        [len(prompt["steps"]) for prompt in prompts if prompt.get("number")],
        [len(wanted) - 2, 2] if prompts[-1]["steps"][0].get("kind") == "user_edits"
        else [len(wanted) - 1, 1],
    )
    if day.client.has_subagents:
        part = steps[4]
        day.check("the subagent's step names it", bool(part.get("subagent")), part)
    if day.client.tells_failures:
        day.check("the failed command is marked", steps[2].get("failed") is True, steps[2])
    state = dict(BEFORE)
    states = [(0, state)]
    for step, (_, effects) in zip(steps, wanted):
        state = after(state, effects)
        states.append((step["number"], state))
    for number, state in states:
        to = day.place / f"state-{number}"
        day.nono("rollback", "restore", f"{session}/{number}", "--to", to)
        found = to / day.project.relative_to("/")
        found = files_of(found if found.exists() else to)
        if found != state:
            day.same(f"state {number} comes back byte for byte", found, state)
            break
    else:
        day.check(f"each of {len(states)} states comes back byte for byte", True)
    middle = steps[1]["number"]
    code, text = day.run([day.nono_program, "undo", "--step", middle, "--yes"])
    undone = after(day.state(), {})
    day.check("undoing a step in the middle works", code == 0, f"exit code {code}\n{text}")
    lost = {path: BEFORE[path] for path in ("src/a.rs", "src/deep/b.rs")}
    day.same("it keeps what came later", undone, {**states[-1][1], **lost})
    day.nono("rollback", "verify", session)
    day.check("the session verifies", True)


def under_run(arguments, client_class, results):
    """The same work under `nono run`, where the supervisor takes the steps."""
    with Model({}) as model:
        day = Day(arguments, client_class, model, "run", results)
        client = day.client
        script, wanted = main_script(client, day.place)
        # The program of the hooks and the client's own package are readable without a flag; the
        # sign for the writer is this test's own.
        model.scripts[MAIN] = script
        model.scripts[PART] = client.create("sub.txt", "sub\n")
        day.nono("agent", "install", client.name, "--user", "--mcp")
        walls = [
            day.nono_program, "run", "--rollback", "--no-rollback-prompt", "--profile", client.name,
            "--read", day.place / "signals", "--",
        ]
        day.work([*walls, *client.command(f"do what {MAIN} says")], MAIN)
        sessions = [s for s in day.json("rollback", "list") if s["snapshot_count"]]
        day.same("under run: there is one session", len(sessions), 1)
        prompts = day.json("steps", sessions[0]["session_id"])["prompts"]
        steps = [step for prompt in prompts for step in prompt["steps"]]
        show = day.json("rollback", "show", sessions[0]["session_id"])["snapshots"]
        by_number = {snapshot["number"]: snapshot for snapshot in show}
        kinds = [
            (step.get("kind", "tool"), sorted(changed_files(day, by_number[step["number"]])))
            for step in steps
        ]
        wanted = [(kind, sorted(effects)) for kind, effects in wanted]
        day.same("under run: the steps are what happened", kinds, wanted)
        code, text = day.run([day.nono_program, "undo", "--yes"])
        day.check("under run: undo takes it all back", code == 0 and day.state() == BEFORE,
                  f"exit code {code}, {sorted(day.state())}\n{text}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--nono", type=Path, required=True)
    parser.add_argument("--place", type=Path, required=True)
    parser.add_argument("--only", choices=("hooks", "run"))
    parser.add_argument("clients", nargs="*", choices=[*CLIENTS, []], default=[])
    arguments = parser.parse_args()
    results = Results()
    began = time.monotonic()
    for name in arguments.clients or CLIENTS:
        for part, test in (("hooks", with_hooks), ("run", under_run)):
            if arguments.only in (None, part):
                try:
                    test(arguments, CLIENTS[name], results)
                except Exception:
                    results.check(f"{name}: {part}", False, traceback.format_exc(limit=4))
    if os.environ.get("KEEP"):
        shutil.copytree(arguments.place, os.environ["KEEP"], symlinks=True, dirs_exist_ok=True)
    print(
        f"{results.passed} passed, {results.failed} failed, {results.skipped} skipped "
        f"in {time.monotonic() - began:.0f} s"
    )
    sys.exit(results.failed > 0 or bool(results.skipped and os.environ.get("CI")))


if __name__ == "__main__":
    main()
