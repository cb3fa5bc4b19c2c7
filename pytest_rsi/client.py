"""OpenAI-style speech client: sends a request, stamps every chunk as its bytes arrive, and writes an Exchange."""

from __future__ import annotations

import asyncio
import io
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp

from pytest_rsi.recording import Chunk, Exchange

if TYPE_CHECKING:
    from types import TracebackType

    from pytest_rsi.recording import SpeechRequest

MAX_BODY_BYTES = 64 * 2**20
SPEECH_PATH = "/v1/audio/speech"
_HEADERS = {
    # What Python's urllib sends, whose habits are those a measurement needs: no compression, and a connection for each
    # request. A server must not be able to tell a measurement by its headers, nor readiness checks from requests.
    "Accept-Encoding": "identity",
    "User-Agent": "Python-urllib/3.11",
}
_JSON = {"Content-Type": "application/json"}
_LARGE_BYTES = 2**20
"""aiohttp wants a body larger than this as a file."""


def now_s() -> float:
    """Return the time on the one clock of all stamps: ``CLOCK_MONOTONIC``, in seconds."""
    return time.monotonic()


def encode(request: SpeechRequest) -> bytes:
    """Return the body of a request as it goes over the wire."""
    return json.dumps(request.body()).encode()


class SpeechClient:
    """A client of one server, as an async context manager.

    Connections are never reused: a frozen server lets kept-alive ones time out, and then one arm would connect where
    the other need not. ``sent_s`` is stamped before the connection is opened, so that a server which is slow to accept
    cannot hide it. Cookies are dropped, redirects and proxies are not followed.

    ``total_s`` bounds a whole exchange, however steadily bytes drip; ``quiet_s`` the wait for the headers of an answer
    and from then on for more of its body; ``connect_s`` the opening of the connection; ``max_body_bytes`` the answer.
    """

    def __init__(
        self,
        base_url: str,
        *,
        total_s: float = 120.0,
        quiet_s: float = 60.0,
        connect_s: float = 10.0,
        max_body_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._total_s = total_s
        self._quiet_s = quiet_s
        self._connect_s = connect_s
        self._max_body_bytes = max_body_bytes
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> SpeechClient:
        """Open the session."""
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._connect_s),
            connector=aiohttp.TCPConnector(limit=0, force_close=True, ttl_dns_cache=None),
            # A cookie would let a server count the requests of one client.
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=_HEADERS,
            skip_auto_headers=("Accept", "Content-Type"),
            # A compressed answer is not what was asked for, and a bomb must not unpack here.
            auto_decompress=False,
            trust_env=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session and its connections."""
        if self._session is not None:
            await self._session.close()

    async def speak(
        self, request: SpeechRequest, *, scheduled_s: float | None = None, body: bytes | None = None
    ) -> Exchange:
        """Send a request and return all that came back; never raises on anything that a server can do.

        ``scheduled_s`` is when the load asked for it, by default when it is sent. ``body`` is ``encode(request)`` for
        who has it already: in a block nothing is serialised while other answers come in.
        """
        answer = await self._exchange("POST", SPEECH_PATH, self._total_s, encode(request) if body is None else body)
        return Exchange(
            request=request,
            scheduled_s=answer.sent_s if scheduled_s is None else scheduled_s,
            sent_s=answer.sent_s,
            finished_s=answer.finished_s,
            status=answer.status,
            headers=answer.headers,
            chunks=tuple(answer.chunks),
            error=answer.error,
        )

    async def get_json(self, path: str, *, timeout_s: float = 2.0) -> object:
        """Return the JSON of a 200 answer to ``GET path``; ``None`` if something else comes, or nothing."""
        answer = await self._exchange("GET", path, timeout_s)
        if answer.error is not None or answer.status != 200:
            return None
        try:
            decoded: object = json.loads(b"".join(chunk.data for chunk in answer.chunks))
        except (ValueError, RecursionError):
            return None
        return decoded

    async def is_ready(self, *, timeout_s: float = 2.0) -> bool:
        """Return whether ``GET /health`` answers with status 200, whatever its body."""
        answer = await self._exchange("GET", "/health", timeout_s)
        return answer.error is None and answer.status == 200

    async def _exchange(self, method: str, path: str, total_s: float, body: bytes | None = None) -> _Answer:
        """Send one request and stamp what comes back; whatever a server does ends up in the answer."""
        if self._session is None or self._session.closed:
            raise RuntimeError("use SpeechClient as an async context manager")
        data = io.BytesIO(body) if body is not None and len(body) > _LARGE_BYTES else body
        answer = _Answer(sent_s=now_s())
        # Not aiohttp's own: its read timeout sleeps once its parser has refused part of a body.
        limit = _Limit(total_s, self._quiet_s)
        try:
            async with (
                limit.timeout,
                self._session.request(
                    method, self._base_url + path, data=data, headers=_JSON if data else None, allow_redirects=False
                ) as response,
            ):
                answer.status = response.status
                answer.headers = {name.lower(): value for name, value in response.headers.items()}
                limit.heard()
                answer.error = await self._read(response, answer, limit)
        except Exception as caught:  # The list of what a hostile answer makes an HTTP library raise is never complete.
            answer.finished_s = answer.finished_s or now_s()
            answer.error = answer.error or limit.complaint() or self._complaint(caught)
        return answer

    async def _read(self, response: aiohttp.ClientResponse, answer: _Answer, limit: _Limit) -> str | None:
        """Read an answer to its end, each chunk as it comes; return what is wrong with it."""
        size = 0
        async for data in response.content.iter_any():
            stamp_s = now_s()
            limit.heard()
            size += len(data)
            if size > self._max_body_bytes:
                answer.finished_s = stamp_s
                return f"more than {self._max_body_bytes} bytes"
            answer.chunks.append(Chunk(stamp_s, data))
        answer.finished_s = now_s()
        encoding = answer.headers.get("content-encoding", "identity")
        return None if encoding.lower() == "identity" else f"Content-Encoding {encoding[:40]!r} was not asked for"

    def _complaint(self, error: Exception) -> str:
        """Return what broke in one printable line; part of the text may come from the server."""
        if isinstance(error, aiohttp.ConnectionTimeoutError):
            return f"timed out: no connection within {self._connect_s:g} s"
        text = "".join(char if char.isprintable() else "?" for char in " ".join(str(error).split())[:200])
        return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _Limit:
    """How long an exchange may go on: ``total_s`` from now, ``quiet_s`` from when it was last heard of."""

    def __init__(self, total_s: float, quiet_s: float) -> None:
        self._total_s, self._quiet_s = total_s, quiet_s
        self._clock = asyncio.get_running_loop().time
        self._end_s = self._clock() + total_s
        self.timeout = asyncio.timeout(min(total_s, quiet_s))

    def heard(self) -> None:
        """Let another silence begin."""
        self.timeout.reschedule(min(self._end_s, self._clock() + self._quiet_s))

    def complaint(self) -> str | None:
        """Return which of the two was reached, if any."""
        if not self.timeout.expired():
            return None
        if self._clock() >= self._end_s:
            return f"timed out: not complete after {self._total_s:g} s"
        return f"timed out: nothing more for {self._quiet_s:g} s"


@dataclass(slots=True)
class _Answer:
    """What has come back so far."""

    sent_s: float
    finished_s: float = 0.0
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[Chunk] = field(default_factory=list)
    error: str | None = None
