"""OpenAI-style speech client: sends a request, stamps every chunk as its bytes arrive, and writes an Exchange."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import aiohttp

from pytest_rsi.recording import Chunk, Exchange

if TYPE_CHECKING:
    from types import TracebackType

    from pytest_rsi.recording import SpeechRequest

MAX_BODY_BYTES = 64 * 2**20
_HEADERS = {
    # What any client sends: a server must not be able to tell a measurement by its headers.
    "User-Agent": "python-requests/2.32.3",
    "Accept": "*/*",
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
}


def now_s() -> float:
    """Return the time on the one clock of all stamps: ``CLOCK_MONOTONIC``, in seconds."""
    return time.monotonic()


class SpeechClient:
    """A client of one server, as an async context manager. Every request has a connection of its own, for both arms.

    ``total_s`` bounds a whole exchange, however slowly bytes drip; ``quiet_s`` the silence between two chunks.
    """

    def __init__(self, base_url: str, *, total_s: float = 120.0, quiet_s: float = 60.0) -> None:
        self._url = f"{base_url}/v1/audio/speech"
        self._timeout = aiohttp.ClientTimeout(total=total_s, sock_read=quiet_s, connect=10.0)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> SpeechClient:
        """Open the connection pool."""
        self._session = aiohttp.ClientSession(
            timeout=self._timeout,
            # A frozen server lets kept-alive connections time out: every request of either arm opens its own.
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            headers=_HEADERS,
            skip_auto_headers=("User-Agent",),
            # A compressed answer is not what was asked for, and a bomb must not unpack here.
            auto_decompress=False,
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection pool."""
        if self._session is not None:
            await self._session.close()

    async def speak(self, request: SpeechRequest, *, scheduled_s: float | None = None) -> Exchange:
        """Send a request and return all that came back; never raises on anything that a server can do."""
        if self._session is None:
            raise RuntimeError("use SpeechClient as an async context manager")
        body = json.dumps(request.body()).encode()
        chunks: list[Chunk] = []
        status, headers, error = None, {}, None
        sent_s = now_s()
        try:
            async with self._session.post(self._url, data=body, allow_redirects=False) as answer:
                status, headers = answer.status, {name.lower(): value for name, value in answer.headers.items()}
                error = await _read(answer, chunks)
        except TimeoutError:
            error = "timed out"
        except (aiohttp.ClientError, OSError, ValueError) as caught:
            error = f"{type(caught).__name__}: {str(caught)[:200]}"
        return Exchange(
            request=request,
            scheduled_s=sent_s if scheduled_s is None else scheduled_s,
            sent_s=sent_s,
            finished_s=now_s(),
            status=status,
            headers=headers,
            chunks=tuple(chunks),
            error=error,
        )


async def _read(answer: aiohttp.ClientResponse, chunks: list[Chunk]) -> str | None:
    """Read an answer to its end, each chunk as it comes; return what was wrong with it."""
    size = 0
    while not answer.content.at_eof():
        data = await answer.content.readany()
        stamp_s = now_s()
        if not data:
            await asyncio.sleep(0)
            continue
        size += len(data)
        if size > MAX_BODY_BYTES:
            return f"more than {MAX_BODY_BYTES} bytes"
        chunks.append(Chunk(stamp_s, data))
    encoding = answer.headers.get("Content-Encoding", "identity")
    return None if encoding == "identity" else f"Content-Encoding {encoding[:40]!r} was not asked for"
