"""What was seen: requests, exchanges and recordings, and nothing that can be computed from them."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  (dataclass fields are inspected when a ledger row is read back)
from dataclasses import dataclass, field
from typing import Any, Literal

Format = Literal["wav", "pcm", "flac"]
StreamFormat = Literal["audio", "sse"]
ArmName = Literal["baseline", "candidate"]


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """One call of ``POST /v1/audio/speech``.

    ``id`` is unique within a run and is what the two arms of a duel are paired by; the server never sees it.
    ``kind`` is the stratum the text comes from (``plain``, ``numbers``, ``names``, ``questions``, ``long``).
    """

    id: str
    input: str
    seed: int | None = None
    voice: str = "default"
    speed: float = 1.0
    response_format: Format = "wav"
    stream: bool = False
    stream_format: StreamFormat = "audio"
    kind: str = "plain"
    extra: Mapping[str, Any] = field(default_factory=dict)

    def body(self) -> dict[str, Any]:
        """Return the JSON body that goes over the wire."""
        body: dict[str, Any] = {
            "input": self.input,
            "voice": self.voice,
            "response_format": self.response_format,
            "speed": self.speed,
            "stream": self.stream,
        }
        if self.stream:
            body["stream_format"] = self.stream_format
        if self.seed is not None:
            body["seed"] = self.seed
        return body | dict(self.extra)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Bytes that arrived together: ``time_s`` on the client's monotonic clock, stamped before any decoding."""

    time_s: float
    data: bytes


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and all that came back. All times are seconds on the client's monotonic clock.

    ``scheduled_s`` is when the load asked for it, ``sent_s`` when it was handed to the socket, ``finished_s`` when the
    answer ended or failed. ``status`` is ``None`` when no answer line came; ``error`` says what broke, in one line.
    """

    request: SpeechRequest
    scheduled_s: float
    sent_s: float
    finished_s: float
    status: int | None
    headers: Mapping[str, str]
    chunks: tuple[Chunk, ...]
    error: str | None = None

    @property
    def body(self) -> bytes:
        """All bytes of the answer."""
        return b"".join(chunk.data for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class Recording:
    """All exchanges of one block of one arm.

    ``launch`` counts launch pairs from 0, ``block`` counts blocks inside one launch and workload from 0. Both arms of
    a block answer the same requests in the same order. ``slip_s`` is how late the load generator itself was at worst.
    """

    arm: ArmName
    workload: str
    launch: int
    block: int
    started_s: float
    finished_s: float
    exchanges: tuple[Exchange, ...]
    slip_s: float = 0.0
