"""The callback in a real ``ComputerAgent``. Its model is a script behind a server on loopback."""

from __future__ import annotations

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Iterator

import pytest
from cua_agent import ComputerAgent
from cua_agent.callbacks.base import AsyncCallbackHandler
from dockerd import Dockerd

from nono_py.containers import ContainerSnapshots
from nono_py.cua import SnapshotCallback

#: The answers of the model, one for each request.
STEPS: list[dict[str, Any]] = [
    {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": "call_1",
        "action": {"type": "click", "x": 1, "y": 2, "button": "left"},
        "pending_safety_checks": [],
        "status": "completed",
    },
    {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_2",
        "name": "overwrite",
        "arguments": '{"text": "worse"}',
        "status": "completed",
    },
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "done", "annotations": []}],
    },
]

#: One transparent pixel.
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)


class Model(BaseHTTPRequestHandler):
    """Answers as the Responses API does."""

    asked = 0

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        step = STEPS[Model.asked]
        Model.asked += 1
        answer = {
            "id": f"resp_{Model.asked}",
            "object": "response",
            "created_at": 0,
            "status": "completed",
            "model": "computer-use-preview",
            "output": [step],
            "parallel_tool_calls": False,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 1,
                "output_tokens": 1,
                "total_tokens": 2,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        }
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def model() -> Iterator[str]:
    Model.asked = 0
    server = HTTPServer(("127.0.0.1", 0), Model)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join(60)
    server.server_close()


def agent(url: str, callback: Any, overwrite: Any, clicks: list[tuple[int, int]]) -> ComputerAgent:
    async def click(x: int, y: int, button: str = "left") -> None:
        clicks.append((x, y))

    computer = {
        "screenshot": lambda: PIXEL,
        "click": click,
        "dimensions": (1, 1),
        "environment": "linux",
    }
    return ComputerAgent(
        "openai/computer-use-preview",
        tools=[computer, overwrite],
        callbacks=[callback],
        telemetry_enabled=False,
        screenshot_delay=0,
        max_retries=0,
        api_base=url,
        api_key="none",
    )


async def run(computer_agent: ComputerAgent) -> list[Any]:
    return [part async for part in computer_agent.run("make it better")]


def test_a_run_of_an_agent_is_taken_back(model: str, tmp_path: Path, docker: Dockerd) -> None:
    snapshots = ContainerSnapshots(tmp_path / "store", docker.host)
    docker.container("agent", "-v", "agent-data:/data")
    try:
        docker.sh("agent", "echo good > /data/file")

        def overwrite(text: str) -> str:
            """Overwrites the file.

            Parameters
            ----------
            text : str
                The new contents.
            """
            return docker.sh("agent", f"echo {text} > /data/file")

        callback = SnapshotCallback(
            "agent", snapshots, ["run_start", "before_action", "after_action", "run_end"]
        )
        assert isinstance(callback, AsyncCallbackHandler)
        clicks: list[tuple[int, int]] = []
        asyncio.run(run(agent(model, callback, overwrite, clicks)))
        assert clicks == [(1, 2)] and callback.last_error is None
        listed = snapshots.list("agent")
        assert [(one.trigger, one.message) for one in listed] == [
            ("run_start", "make it better"),
            ("before_action", "click button=left x=1 y=2"),
            ("after_action", "click button=left x=1 y=2"),
            ("before_action", 'overwrite {"text": "worse"}'),
            ("after_action", 'overwrite {"text": "worse"}'),
            ("run_end", "make it better"),
        ]
        assert {one.run_id for one in listed} == {callback.run_id}
        assert docker.sh("agent", "cat /data/file") == "worse"
        restored = snapshots.restore("agent/3", name="agent-back")
        assert docker.sh(restored.container, "cat /data/file") == "good"
        docker.run("rm", "-f", "-v", "agent-back")
    finally:
        docker.run("rm", "-f", "-v", "agent")


def test_a_failing_snapshot_does_not_break_an_agent(model: str, tmp_path: Path) -> None:
    absent = ContainerSnapshots(tmp_path / "store", f"unix://{tmp_path}/no.sock")
    callback = SnapshotCallback("agent", absent)
    texts: list[str] = []

    def overwrite(text: str) -> None:
        """Notes the text.

        Parameters
        ----------
        text : str
            The new contents.
        """
        texts.append(text)

    parts = asyncio.run(run(agent(model, callback, overwrite, [])))
    assert parts[-1]["output"][-1]["content"][0]["text"] == "done"
    assert texts == ["worse"] and "no.sock" in str(callback.last_error)
