"""Start a target's server on a loopback port, wait until it is ready, freeze, thaw and stop it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_rsi.client import SpeechClient

if TYPE_CHECKING:
    from types import TracebackType

    from pytest_rsi.task import Task

HOST = "127.0.0.1"
LOG_LINES = 40
KEEPER = Path(__file__).with_name("keeper.py")
_PASSED_ON = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
"""Environment a server gets from ours: what the numeric libraries need to run on this machine at all."""


class ServerError(RuntimeError):
    """A server did not start, or died; the message carries the last lines of its log and the path of the whole."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a server is started from: the tree it runs in, a private scratch folder, and its log."""

    tree: Path
    scratch: Path
    log: Path


class Server:
    """One running server of one tree, as an async context manager.

    It runs in a session of its own with a scrubbed environment, a private home and temporary folder, below a keeper
    process that ends everything it started, also when this process is killed.
    """

    def __init__(self, task: Task, launch: Launch) -> None:
        self.task = task
        self.launch = launch
        self.port = free_port()
        self.start_s = float("nan")
        self._keeper: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Base URL of the server."""
        return f"http://{HOST}:{self.port}"

    @property
    def keeper_pid(self) -> int:
        """Process whose descendants are the server."""
        if self._keeper is None:
            raise ServerError("server is not running")
        return self._keeper.pid

    async def __aenter__(self) -> Server:
        """Start it and wait until it is ready.

        Raises:
            ServerError: it exited or was not ready in time.
        """
        began = time.monotonic()
        home = self.launch.scratch
        for folder in (home, home / "tmp"):
            folder.mkdir(parents=True, exist_ok=True)
        with self.launch.log.open("wb") as log:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", str(KEEPER), *self._command()],
                cwd=self.launch.tree,
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        try:
            await self._ready(began + self.task.server.start_timeout_s)
        except BaseException:
            self.stop()
            raise
        self.start_s = time.monotonic() - began
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it and everything it started."""
        self.stop()

    def freeze(self) -> None:
        """Stop every process of the server from running, until ``thaw``."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let every process of the server run again."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the server and every process that it started; safe to call twice."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        for pipe in (keeper.stdin, keeper.stdout):
            if pipe is not None:
                pipe.close()
        try:
            keeper.wait(timeout=10)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()
        shutil.rmtree(self.launch.scratch, ignore_errors=True)

    def log_tail(self) -> str:
        """Return the last lines of the server's log, as text that cannot steer a terminal."""
        text = self.launch.log.read_bytes()[-20_000:].decode(errors="replace")
        lines = ["".join(char if char.isprintable() else "?" for char in line) for line in text.splitlines()]
        return "\n".join(f"  | {line}" for line in lines[-LOG_LINES:])

    def _command(self) -> list[str]:
        values = {"python": sys.executable, "host": HOST, "port": str(self.port), "device": self.task.hardware.device}
        return [part.format_map(values) for part in self.task.server.command]

    def _environment(self) -> dict[str, str]:
        home = str(self.launch.scratch)
        # A plain service's environment: nothing here may tell a server that it is being measured.
        clean = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "HOME": home,
            "TMPDIR": home + os.sep + "tmp",
        }
        passed_on = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        return clean | passed_on | self.task.server.environment

    def _signal(self, number: int) -> None:
        keeper = self._keeper
        if keeper is None or keeper.stdin is None or keeper.stdout is None or keeper.poll() is not None:
            raise ServerError(self._death("server died"))
        try:
            os.write(keeper.stdin.fileno(), bytes([number]))
            answered = os.read(keeper.stdout.fileno(), 1)
        except BrokenPipeError:
            answered = b""
        if not answered:
            raise ServerError(self._death("server died"))

    async def _ready(self, deadline: float) -> None:
        async with SpeechClient(self.url) as client:
            while time.monotonic() < deadline:
                if self._keeper is None or self._keeper.poll() is not None:
                    raise ServerError(self._death("server exited before it was ready"))
                if await client.is_ready():
                    return
                await asyncio.sleep(0.05)
        raise ServerError(self._death(f"server was not ready within {self.task.server.start_timeout_s:g} s"))

    def _death(self, what: str) -> str:
        return f"{what}; the end of its log ({self.launch.log}):\n{self.log_tail()}"


def new_launch(folder: Path) -> Launch:
    """Return a launch with a neutral, unpredictable name below a folder; its tree is still to be laid out."""
    root = Path(tempfile.mkdtemp(prefix="srv-", dir=folder))
    tree = root / "app"
    tree.mkdir()
    return Launch(tree=tree, scratch=root / "home", log=root / "server.log")


def free_port() -> int:
    """Return a loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
