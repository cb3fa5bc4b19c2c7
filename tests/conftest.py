"""What several test modules share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_rsi.target import open_target
from pytest_rsi.task import Task, read_task

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_rsi.target import Target

pytest_plugins = ["pytester"]

STUB_TOML = """
[task]
name = "stub"
kind = "speech"
title = "A server that answers /health"
[target]
source = "engine"
patchable = ["app/**/*.py"]
frozen = ["app/config.py"]
[server]
command = ["{python}", "-m", "app", "{port}"]
start_timeout_s = 10.0
[[workload]]
name = "offline"
mode = "offline"
concurrency = 2
requests = 4
"""

STUB_MAIN = """
import http.server, json, os, subprocess, sys

subprocess.Popen(["sleep", "1000"], start_new_session=True)
subprocess.Popen(["sh", "-c", "sleep 1001 & exit"])


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"status": "healthy", "environment": dict(os.environ), "pid": os.getpid()}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


print("listening on", sys.argv[1], flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


@pytest.fixture
def stub(tmp_path: Path) -> Task:
    """Return a task whose server is a real process that answers /health and leaves two sleepers behind."""
    folder = tmp_path / "stub"
    (folder / "engine" / "app").mkdir(parents=True)
    (folder / "task.toml").write_text(STUB_TOML)
    (folder / "engine" / "app" / "__main__.py").write_text(STUB_MAIN)
    (folder / "engine" / "app" / "config.py").write_text("STEPS = 10\n")
    (folder / "engine" / "app" / "stage.py").write_text("def run(x):\n    y = x + 1\n    return y\n")
    (folder / "engine" / "README.md").write_text("stub\n")
    return read_task(folder / "task.toml")


@pytest.fixture
def target(stub: Task, tmp_path: Path) -> Target:
    """Return the stub's target, materialised."""
    return open_target(stub, tmp_path / "state")
