"""The coding agents: how each is configured for a scripted model, started, and told what to do.

What a script does is the same for all of them; which tool each has for that stands here.
"""

import json

SERVER = "nono"
# What every client gets: nothing leaves the machine, and nothing updates itself.
QUIET = {
    "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1",
    # OpenCode asks npm for the types of plugins, and tries for a minute.
    "npm_config_fetch_retries": "0",
}


def write(path, text):
    """Writes a file, and the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class Client:
    """One client in one home. `packages` is where npm has put it."""

    # Its name for nono, and that of its program.
    name = ""
    program_name = ""
    # Whether it tells hooks that a command failed, and which subagent made a call.
    tells_failures = False
    has_subagents = False
    # Whether it has a command that goes on from before a prompt.
    goes_back = False
    # The files of its configuration that it does not write itself.
    files = ()

    def __init__(self, packages, home, project, url):
        self.packages, self.home, self.project, self.url = packages, home, project, url
        self.program = packages / "node_modules" / ".bin" / self.program_name
        self.configure()

    def environment(self):
        return {}

    def path(self, name):
        return str(self.project / name)


class Claude(Client):
    name = "claude-code"
    program_name = "claude"
    tells_failures = True
    has_subagents = True
    goes_back = True
    files = (".claude/settings.json",)

    def configure(self):
        write(self.home / ".claude.json", json.dumps({"hasCompletedOnboarding": True}))
        write(self.home / ".claude/settings.json", json.dumps({"model": "sonnet"}, indent=4) + "\n")

    def environment(self):
        return {"ANTHROPIC_BASE_URL": self.url, "ANTHROPIC_API_KEY": "scripted"}

    def command(self, prompt):
        return [self.program, "-p", prompt, "--dangerously-skip-permissions"]

    def resume(self, prompt):
        return [*self.command(prompt), "--continue"]

    def edit(self, name, old, new):
        path = self.path(name)
        return [
            [("Read", {"file_path": path})],
            [("Edit", {"file_path": path, "old_string": old, "new_string": new})],
        ]

    def create(self, name, text):
        return [[("Write", {"file_path": self.path(name), "content": text})]]

    def shell(self, command):
        return [[("Bash", {"command": command, "description": "a command"})]]

    def background(self, command):
        return [[("Bash", {
            "command": command, "description": "in the background", "run_in_background": True,
        })]]

    def subagent(self, prompt):
        return [[("Agent", {
            "description": "a part", "prompt": prompt, "subagent_type": "general-purpose",
        })]]

    def tool(self, name, **arguments):
        return [[(f"mcp__{SERVER}__{name}", arguments)]]


class Codex(Client):
    name = "codex"
    program_name = "codex"
    files = (".codex/config.toml", ".codex/hooks.json")

    def configure(self):
        write(self.home / ".codex/config.toml", f"""\
# mine
model = "gpt-5.5"
model_provider = "scripted"

[model_providers.scripted]
name = "scripted"
base_url = "{self.url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
""")

    def environment(self):
        return {"SCRIPTED_KEY": "scripted"}

    def command(self, prompt):
        return [
            self.program, "exec", "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust", prompt,
        ]

    def resume(self, prompt):
        return [
            self.program, "exec", "resume", "--last", "--skip-git-repo-check",
            "--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust", prompt,
        ]

    def patch(self, body):
        return [[("apply_patch", f"*** Begin Patch\n{body}*** End Patch\n")]]

    def edit(self, name, old, new):
        return self.patch(f"*** Update File: {name}\n@@\n-{old}\n+{new}\n")

    def create(self, name, text):
        return self.patch(f"*** Add File: {name}\n+{text}")

    def shell(self, command):
        return [[("exec_command", {"cmd": command})]]

    def background(self, command):
        # What is left of the call's own session is killed with it.
        return self.shell(f"setsid sh -c '{command}' >/dev/null 2>&1 &")

    def tool(self, name, **arguments):
        return [[(f"mcp__{SERVER}/{name}", arguments)]]


class OpenCode(Client):
    name = "opencode"
    program_name = "opencode"
    has_subagents = True
    files = (".config/opencode/opencode.json",)

    def configure(self):
        write(self.home / ".config/opencode/opencode.json", json.dumps({
            # It adds this line by itself where it is missing.
            "$schema": "https://opencode.ai/config.json",
            "model": "scripted/scripted",
            "provider": {"scripted": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{self.url}/v1", "apiKey": "scripted"},
                "models": {"scripted": {"name": "scripted"}},
            }},
            "permission": {"*": "allow"},
        }, indent=2) + "\n")

    def command(self, prompt):
        return [self.program, "run", prompt]

    def resume(self, prompt):
        return [self.program, "run", "--continue", prompt]

    def edit(self, name, old, new):
        path = self.path(name)
        return [
            [("read", {"filePath": path})],
            [("edit", {"filePath": path, "oldString": old, "newString": new})],
        ]

    def create(self, name, text):
        return [[("write", {"filePath": self.path(name), "content": text})]]

    def shell(self, command):
        return [[("bash", {"command": command, "description": "a command"})]]

    def background(self, command):
        return self.shell(f"({command}) >/dev/null 2>&1 &")

    def subagent(self, prompt):
        return [[("task", {
            "description": "a part", "prompt": prompt, "subagent_type": "general",
        })]]

    def tool(self, name, **arguments):
        return [[(f"{SERVER}_{name}", arguments)]]


class Gemini(Client):
    name = "gemini"
    program_name = "gemini"
    files = (".gemini/settings.json",)

    def configure(self):
        write(self.home / ".gemini/settings.json", json.dumps({
            "security": {
                "auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False},
            },
        }, indent=2) + "\n")

    def environment(self):
        # With a model of its own choice it would ask one first which to take.
        return {
            "GOOGLE_GEMINI_BASE_URL": self.url, "GEMINI_API_KEY": "scripted",
            "GEMINI_MODEL": "gemini-2.5-flash",
        }

    def command(self, prompt):
        return [self.program, "--yolo", "-p", prompt]

    def resume(self, prompt):
        return [self.program, "--yolo", "--resume", "latest", "-p", prompt]

    def edit(self, name, old, new):
        return [[("replace", {
            "file_path": self.path(name), "instruction": f"say {new} instead of {old}",
            "old_string": old, "new_string": new,
        })]]

    def create(self, name, text):
        return [[("write_file", {"file_path": self.path(name), "content": text})]]

    def shell(self, command):
        return [[("run_shell_command", {"command": command, "description": "a command"})]]

    def background(self, command):
        return self.shell(f"({command}) >/dev/null 2>&1 &")

    def tool(self, name, **arguments):
        return [[(f"mcp_{SERVER}_{name}", arguments)]]


CLIENTS = {client.program_name: client for client in (Claude, Codex, OpenCode, Gemini)}
