"""Starts the embedded server, or a patched copy of it, as a process, for tests that speak to it."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_rsi.client import SpeechClient
from pytest_rsi.server import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_rsi.recording import Exchange, SpeechRequest

SUITE = Path(__file__).resolve().parent.parent / "suites/tiny_tts"
ENGINE = SUITE / "engine"


@contextmanager
def serving(tree: Path = ENGINE) -> Iterator[str]:
    """Serve a tree and yield the server's URL."""
    port = free_port()
    command = [sys.executable, "-m", "tinytts", "--port", str(port)]
    with subprocess.Popen(command, cwd=tree, stderr=subprocess.DEVNULL) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + 60
            while not _healthy(url):
                assert server.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            yield url
        finally:
            server.kill()


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:  # noqa: S310
            return bool(answer.status == 200)
    except OSError:
        return False


def speak(url: str, *requests: SpeechRequest, concurrency: int = 4) -> list[Exchange]:
    """Send requests, some at a time, and return the answers in order."""

    async def run() -> list[Exchange]:
        gate = asyncio.Semaphore(concurrency)
        async with SpeechClient(url) as client:

            async def one(request: SpeechRequest) -> Exchange:
                async with gate:
                    return await client.speak(request)

            return await asyncio.gather(*map(one, requests))

    return asyncio.run(run())


def patched(folder: Path, *patches: Path) -> Path:
    """Return a copy of the engine with patches applied, in order, by git."""
    tree = folder / "tree"
    shutil.copytree(ENGINE, tree, ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    for patch in patches:
        subprocess.run(["git", "apply", str(patch)], cwd=tree, check=True)
    return tree
