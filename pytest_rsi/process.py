"""Judge processes: a hardened interpreter each, told what to do and heard over a socket of its own.

An exit status is never a pass. A judge process says which items it is going to report, reports each, and signs every
line with a nonce that only it and whoever started it know; what is missing has not passed.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from pytest_rsi.task import PACKAGE, tree

BOOTSTRAP = PACKAGE / "bootstrap.py"
STOP_TIMEOUT_S = 30.0
MAX_LINE = 64 * 2**20
_KEPT = (
    *("PATH", "HOME", "LANG", "LC_ALL", "TERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "TMPDIR"),
    *("CI", "OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE", "CUDA_VISIBLE_DEVICES"),
)

Listener = Callable[[str, dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Receipts:
    """What a judge process proved: its items with their outcomes, its verdicts, and its exit status.

    ``missing`` are items that it announced and never reported; ``audit`` is what an audit found, if it was one.
    """

    exit_status: int
    outcomes: dict[str, str]
    missing: tuple[str, ...]
    finished: bool
    verdicts: tuple[dict[str, Any], ...]
    error: str | None = None
    audit: dict[str, Any] | None = None

    @property
    def complete(self) -> bool:
        """Whether the process finished, announced at least one item, and reported every one."""
        return self.finished and not self.missing


class Channel:
    """The judge's end of the socket."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._file = link.makefile("rwb")
        self.job: dict[str, Any] = json.loads(self._file.readline(MAX_LINE))
        self._nonce = self.job.pop("nonce")

    def send(self, kind: str, body: dict[str, Any]) -> None:
        """Send one event."""
        self._file.write(json.dumps([self._nonce, kind, body], allow_nan=False).encode() + b"\n")
        self._file.flush()


def open_channel(number: int) -> Channel:
    """Return the channel on an inherited file descriptor, closed to every process this one starts."""
    os.set_inheritable(number, False)
    return Channel(socket.socket(fileno=number))


def hardened_command(module: str, *args: str) -> list[str]:
    """Return the command that runs a module of ours in an interpreter that imports from nowhere else."""
    folders = [str(PACKAGE.parent), str(tree())]
    folders += map(str, site_packages())
    return [sys.executable, "-I", "-S", str(BOOTSTRAP), module, json.dumps(folders), *args]


def site_packages() -> list[Path]:
    """Return the folders of installed packages that this interpreter imports from."""
    return [Path(path) for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]


def clean_environment() -> dict[str, str]:
    """Return the part of the environment that a process of ours may see: terminal, locale, folders; no ``PYTHON*``."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return kept | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(slots=True)
class JudgeProcess:
    """One judge process to run. ``prefix`` is the sandbox's command, ``output`` where its terminal output goes."""

    args: list[str]
    job: dict[str, Any]
    listen: Listener
    prefix: list[str] = field(default_factory=list)
    environment: dict[str, str] | None = None
    output: IO[bytes] | None = None

    def run(self) -> Receipts:
        """Run it to its end and return what it proved; ends it and all it started if this process is interrupted."""
        ours, theirs = socket.socketpair()
        nonce = secrets.token_hex(16)
        with ours, theirs:
            command = [*self.prefix, *hardened_command("pytest_rsi.judge_main", str(theirs.fileno()), *self.args)]
            child = subprocess.Popen(
                command,
                env=self.environment if self.environment is not None else clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=subprocess.STDOUT if self.output else None,
                pass_fds=[theirs.fileno()],
            )
            theirs.close()
            try:
                with suppress(ConnectionError):
                    ours.sendall(json.dumps({"nonce": nonce, **self.job}).encode() + b"\n")
                return self._hear(ours, nonce, child)
            except BaseException:
                _end(child)
                raise

    def _hear(self, link: socket.socket, nonce: str, child: subprocess.Popen[bytes]) -> Receipts:
        announced: list[str] = []
        outcomes: dict[str, str] = {}
        verdicts: list[dict[str, Any]] = []
        finished, error, audit = False, None, None
        with link.makefile("rb") as lines:
            while line := _next(lines):
                try:
                    signed, kind, body = json.loads(line)
                except ValueError:
                    break
                if not secrets.compare_digest(str(signed), nonce):
                    error = "a line without the run's nonce came over the judge's channel"
                    break
                match kind:
                    case "collected":
                        announced += body["items"]
                    case "report":
                        outcomes[body["item"]] = body["outcome"]
                    case "finished":
                        finished = True
                    case "verdict":
                        verdicts.append(body)
                    case "audit":
                        audit = body
                    case "error":
                        error = body["text"]
                self.listen(kind, body)
        status = child.wait()
        missing = tuple(item for item in announced if item not in outcomes)
        return Receipts(status, outcomes, missing, finished, tuple(verdicts), error, audit)


def _next(lines: IO[bytes]) -> bytes:
    """Return the next line, empty when the judge is gone, however it went."""
    try:
        return lines.readline(MAX_LINE)
    except ConnectionError:
        return b""


def _end(child: subprocess.Popen[bytes]) -> None:
    """Interrupt a judge so that it stops its servers, and kill it if that takes too long."""
    with suppress(subprocess.TimeoutExpired):
        # Ctrl-C in a terminal has reached it already; a second one would cut its clean-up short.
        child.wait(2.0)
    with suppress(subprocess.TimeoutExpired):
        child.send_signal(signal.SIGINT)
        child.wait(STOP_TIMEOUT_S)
    child.kill()
    child.wait()
