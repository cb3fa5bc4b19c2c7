"""Answers with other samples in them, encoded and stamped as the server would have sent them."""

from __future__ import annotations

import base64
import io
import json
import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import soundfile

from pytest_rsi.audio import UndecodableAudioError, playout
from pytest_rsi.recording import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pytest_rsi.audio import Playout
    from pytest_rsi.recording import Exchange

    Samples = NDArray[np.float32]
    Harm = Callable[["Sound", float], Samples]


@dataclass(frozen=True, slots=True, eq=False)
class Sound:
    """One answer to be harmed.

    ``samples`` is float32 [n] in -1..1, ``seams`` (int64 [k]) the samples at which a new chunk begins, none where the
    answer is not streamed; ``rng`` is its own.
    """

    samples: NDArray[np.float32]
    rate_hz: int
    seams: NDArray[np.int64]
    rng: np.random.Generator

    def count(self, seconds: float) -> int:
        """Return a time in samples."""
        return round(seconds * self.rate_hz)


@dataclass(frozen=True, slots=True)
class SoundFault:
    """Harm done to the samples of every answer, or of every streamed one where ``streamed`` is set."""

    name: str
    unit: str
    sizes: tuple[float, ...]
    hears: str
    harm: Harm
    streamed: bool = False

    def inject(self, exchanges: Sequence[Exchange], size: float, seed: int) -> list[Exchange]:
        """Return the answers harmed; what is not audio stays as it is."""
        return [self._harmed(exchange, size, seed) for exchange in exchanges]

    def _harmed(self, exchange: Exchange, size: float, seed: int) -> Exchange:
        if self.streamed and not exchange.request.stream:
            return exchange
        try:
            played = playout(exchange)
        except UndecodableAudioError:
            return exchange
        rng = np.random.default_rng([seed, zlib.crc32(exchange.request.id.encode())])
        seams = played.ends[:-1] if exchange.request.stream else played.ends[:0]
        inside = seams[(seams > 0) & (seams < len(played.audio.samples))]
        sound = Sound(played.audio.samples, played.audio.rate_hz, inside, rng)
        return with_samples(exchange, self.harm(sound, size), played)


def with_samples(exchange: Exchange, samples: Samples, played: Playout) -> Exchange:
    """Return an answer that carries other samples (float32 [m], clipped to -1..1) in the same format and at its times.

    What arrived until a moment is still there by then: an answer that got shorter ends earlier, one that got longer
    has all that is new in its last chunk.
    """
    data = np.clip(np.round(samples * 32768), -32768, 32767).astype("<i2")
    request = exchange.request
    if not request.stream:
        body = data.tobytes() if request.response_format == "pcm" else _file(data, played, request.response_format)
        return replace(exchange, chunks=(Chunk(float(played.times_s[-1]), body),))
    ends = np.minimum(played.ends, len(data))
    ends[-1] = len(data)
    parts = np.split(data, ends[:-1])
    stamped = [(float(time_s), part.tobytes()) for time_s, part in zip(played.times_s, parts, strict=True) if len(part)]
    if request.stream_format == "sse":
        stamped = [(time_s, _event({"type": "speech.audio.delta", "audio": _text(part)})) for time_s, part in stamped]
        stamped.append((exchange.finished_s, _event({"type": "speech.audio.done"})))
    elif request.response_format == "wav":
        stamped.insert(0, (stamped[0][0] if stamped else exchange.finished_s, _header(played.audio.rate_hz)))
    return replace(exchange, chunks=tuple(Chunk(time_s, part) for time_s, part in stamped))


def _file(data: NDArray[np.int16], played: Playout, kind: str) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, data, played.audio.rate_hz, format=kind.upper(), subtype="PCM_16")
    return file.getvalue()


def _header(rate_hz: int) -> bytes:
    """Return the header of a streamed WAV, whose length is not known yet."""
    file = io.BytesIO()
    soundfile.write(file, np.zeros(0, np.int16), rate_hz, format="WAV", subtype="PCM_16")
    return file.getvalue()[:-4] + b"\xff\xff\xff\xff"


def _event(body: dict[str, str]) -> bytes:
    return f"data: {json.dumps(body)}\n\n".encode()


def _text(part: bytes) -> str:
    return base64.b64encode(part).decode()
