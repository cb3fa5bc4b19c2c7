"""Decoded audio of an exchange, and when each part of it could be played."""

from __future__ import annotations

import base64
import binascii
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import soundfile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_rsi.recording import Exchange

MAX_AUDIO_S = 600.0
"""An answer longer than this is refused before it is decoded: no request of ours asks for ten minutes."""


class UndecodableAudioError(ValueError):
    """The bytes of an answer are not the audio they should be; the message says what is wrong."""


@dataclass(frozen=True, slots=True, eq=False)
class Audio:
    """Mono audio: ``samples`` is float32 [n] in -1..1, ``rate_hz`` the sample rate."""

    samples: NDArray[np.float32]
    rate_hz: int

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return len(self.samples) / self.rate_hz


@dataclass(frozen=True, slots=True, eq=False)
class Playout:
    """Audio and its arrival: by ``times_s[i]`` (float64 [k]) the first ``ends[i]`` samples (int64 [k]) could be played.

    An answer that is not streamed has one entry: it is playable when its last byte is there.
    """

    audio: Audio
    times_s: NDArray[np.float64]
    ends: NDArray[np.int64]


def decode(exchange: Exchange) -> Audio:
    """Return the audio of an answer.

    Raises:
        UndecodableAudioError: the answer failed, is empty, or is not audio in the format asked for.
    """
    return playout(exchange).audio


def playout(exchange: Exchange) -> Playout:
    """Return the audio of an answer with the times at which its samples could be played.

    Raises:
        UndecodableAudioError: as for ``decode``.
    """
    if exchange.error is not None:
        raise UndecodableAudioError(exchange.error)
    if exchange.status != 200:
        raise UndecodableAudioError(f"status {exchange.status}, expected 200")
    request = exchange.request
    if not request.stream:
        audio = _file(exchange.body) if request.response_format != "pcm" else _pcm(exchange.body, _rate(exchange))
        end = exchange.chunks[-1].time_s if exchange.chunks else exchange.finished_s
        return Playout(audio, np.array([end]), np.array([len(audio.samples)]))
    parts = _sse_parts(exchange) if request.stream_format == "sse" else _raw_parts(exchange)
    audio = _pcm(b"".join(data for _, data in parts), _rate(exchange))
    ends = np.cumsum([len(data) for _, data in parts], dtype=np.int64) // 2
    return Playout(audio, np.array([time_s for time_s, _ in parts]), ends)


def _file(body: bytes) -> Audio:
    try:
        with soundfile.SoundFile(io.BytesIO(body)) as file:
            rate_hz, channels, frames = file.samplerate, file.channels, file.frames
            if not 0 <= frames <= MAX_AUDIO_S * rate_hz:
                raise UndecodableAudioError(f"file claims {frames} frames at {rate_hz} Hz, over {MAX_AUDIO_S:.0f} s")
            samples = file.read(dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, RuntimeError, TypeError) as error:
        raise UndecodableAudioError(f"not an audio file: {error}") from None
    if channels != 1:
        raise UndecodableAudioError(f"{channels} channels, expected 1")
    return _checked(samples[:, 0], rate_hz)


def _pcm(body: bytes, rate_hz: int) -> Audio:
    if len(body) > 2 * MAX_AUDIO_S * rate_hz:
        raise UndecodableAudioError(f"{len(body)} bytes of PCM, over {MAX_AUDIO_S:.0f} s")
    if len(body) % 2:
        raise UndecodableAudioError(f"{len(body)} bytes of 16-bit PCM, expected an even number")
    return _checked(np.frombuffer(body, "<i2").astype(np.float32) / np.float32(32768), rate_hz)


def _checked(samples: NDArray[np.float32], rate_hz: int) -> Audio:
    if not len(samples):
        raise UndecodableAudioError("no samples")
    if not np.isfinite(samples).all():
        raise UndecodableAudioError("samples that are not finite")
    return Audio(samples, rate_hz)


def _rate(exchange: Exchange) -> int:
    """Return the rate of raw PCM: named by the server, since nothing in the bytes says it; ``band`` checks it."""
    text = {name.lower(): value for name, value in exchange.headers.items()}.get("x-sample-rate", "24000")
    if not (text.isascii() and text.isdigit()) or not 4000 <= int(text) <= 192000:
        raise UndecodableAudioError(f"X-Sample-Rate {text!r}, expected 4000 to 192000")
    return int(text)


def _raw_parts(exchange: Exchange) -> list[tuple[float, bytes]]:
    return [(chunk.time_s, chunk.data) for chunk in exchange.chunks]


def _sse_parts(exchange: Exchange) -> list[tuple[float, bytes]]:
    """Return (time the event was complete, PCM bytes) of every audio event; raises on an error event or no end."""
    parts: list[tuple[float, bytes]] = []
    rest, done = b"", False
    for chunk in exchange.chunks:
        rest += chunk.data.replace(b"\r\n", b"\n")
        *events, rest = rest.split(b"\n\n")
        for event in events:
            data = b"\n".join(line[5:].strip() for line in event.split(b"\n") if line.startswith(b"data:"))
            if not data or data == b"[DONE]":
                continue
            kind, audio = _sse_event(data)
            done = done or kind == "speech.audio.done"
            if audio:
                parts.append((chunk.time_s, audio))
    if not done:
        raise UndecodableAudioError("event stream ended without speech.audio.done")
    return parts


def _sse_event(data: bytes) -> tuple[str, bytes]:
    try:
        event = json.loads(data)
        kind = str(event["type"])
        if kind == "error":
            raise UndecodableAudioError(f"error event: {str(event)[:200]}")
        audio = base64.b64decode(event["audio"], validate=True) if kind == "speech.audio.delta" else b""
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        if isinstance(error, UndecodableAudioError):
            raise
        raise UndecodableAudioError(f"bad event: {error}") from None
    return kind, audio
