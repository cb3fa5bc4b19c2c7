"""Decoded audio of an exchange, and when each part of it could be played."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import json
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import soundfile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_rsi.recording import Exchange

MAX_AUDIO_S = 600.0
"""An answer longer than this is refused before it is decoded: no request of ours asks for ten minutes."""
LOWEST_RATE_HZ, HIGHEST_RATE_HZ = 4_000, 192_000
_FORMATS = {"wav": ("WAV", "WAVEX"), "flac": ("FLAC",)}
_BLANK_LINE = re.compile(rb"(?>\r\n|\n|\r){2}")
"""What ends an event (HTML standard, 9.2.6); the group is atomic, lest one CRLF count as two line ends."""


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

    def digest(self) -> bytes:
        """Return the SHA-256 of rate and samples: equal for equal audio."""
        found = hashlib.sha256(f"{self.rate_hz} ".encode())
        found.update(np.ascontiguousarray(self.samples).data)
        return found.digest()


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
        body = exchange.body
        audio = (
            _pcm(body, _rate(exchange)) if request.response_format == "pcm" else _file(body, request.response_format)
        )
        end_s = exchange.chunks[-1].time_s if exchange.chunks else exchange.finished_s
        return Playout(audio, np.array([end_s]), np.array([len(audio.samples)]))
    parts = _sse_parts(exchange) if request.stream_format == "sse" else _raw_parts(exchange)
    data = b"".join(part for _, part in parts)
    # Until the header of a streamed WAV is complete nothing of it can be played.
    start, stop, rate_hz = _wav_samples(data) if request.response_format == "wav" else (0, len(data), _rate(exchange))
    audio = _pcm(data[start:stop], rate_hz)
    arrived = np.cumsum([len(part) for _, part in parts], dtype=np.int64)
    return Playout(audio, np.array([time_s for time_s, _ in parts]), (np.clip(arrived, start, stop) - start) // 2)


def _file(body: bytes, asked: str) -> Audio:
    try:
        with soundfile.SoundFile(io.BytesIO(body)) as file:
            rate_hz, channels, frames = file.samplerate, file.channels, file.frames
            # All of this is looked at before a sample is decoded: a small file can claim hours.
            if file.format not in _FORMATS[asked]:
                raise UndecodableAudioError(f"a {file.format} file, expected {asked}")
            if channels != 1:
                raise UndecodableAudioError(f"{channels} channels, expected 1")
            _check_rate(rate_hz)
            if not 0 <= frames <= MAX_AUDIO_S * rate_hz:
                raise UndecodableAudioError(f"file claims {frames} frames at {rate_hz} Hz, over {MAX_AUDIO_S:.0f} s")
            samples = file.read(dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, RuntimeError, TypeError) as error:
        raise UndecodableAudioError(f"not an audio file: {error}") from None
    return _checked(samples[:, 0], rate_hz)


def _wav_samples(data: bytes) -> tuple[int, int, int]:
    """Return (first byte, end, rate) of the samples of a streamed WAV, whose header may not know its own length."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise UndecodableAudioError(f"streamed WAV begins with {data[:12]!r}, expected a RIFF header")
    rate_hz, at = None, 12
    while at + 8 <= len(data):
        name, size = data[at : at + 4], struct.unpack_from("<I", data, at + 4)[0]
        at += 8
        if name == b"fmt " and at + 16 <= len(data):
            _, channels, rate_hz, _, _, bits = struct.unpack_from("<HHIIHH", data, at)
            _check_rate(rate_hz)
            if (channels, bits) != (1, 16):
                raise UndecodableAudioError(f"streamed WAV with {channels} channels of {bits} bits, expected 1 of 16")
        if name == b"data" and rate_hz is not None:
            return at, at + size if 0 < size <= len(data) - at else len(data), rate_hz
        at += size + size % 2
    raise UndecodableAudioError("streamed WAV without samples")


def _check_rate(rate_hz: int) -> None:
    if not LOWEST_RATE_HZ <= rate_hz <= HIGHEST_RATE_HZ:
        raise UndecodableAudioError(f"{rate_hz} Hz, expected {LOWEST_RATE_HZ} to {HIGHEST_RATE_HZ}")


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
    """Return the rate of raw PCM, 24 kHz if none is named.

    The server names it, since nothing in the bytes says it: this is the one header that enters a figure. A rate that
    lies scales ``audio_s``, ``rtf`` and what a player hears, never ``e2e`` or requests/s; ``band`` and ``duration``
    check what is heard at it.
    """
    text = {name.lower(): value for name, value in exchange.headers.items()}.get("x-sample-rate", "24000")
    if not re.fullmatch("[0-9]{4,6}", text):
        raise UndecodableAudioError(f"X-Sample-Rate {text[:20]!r}, expected {LOWEST_RATE_HZ} to {HIGHEST_RATE_HZ}")
    _check_rate(int(text))
    return int(text)


def _raw_parts(exchange: Exchange) -> list[tuple[float, bytes]]:
    return [(chunk.time_s, chunk.data) for chunk in exchange.chunks]


def _sse_parts(exchange: Exchange) -> list[tuple[float, bytes]]:
    """Return (time the event was complete, PCM bytes) of every audio event; raises on an error event or no end."""
    parts: list[tuple[float, bytes]] = []
    body, start = exchange.body, 0
    arrived = np.cumsum([len(chunk.data) for chunk in exchange.chunks], dtype=np.int64)
    for end in _BLANK_LINE.finditer(body):
        lines, start = body[start : end.start()].splitlines(), end.end()
        data = b"\n".join(line[5:].strip() for line in lines if line.startswith(b"data:"))
        if not data or data == b"[DONE]":
            continue
        kind, audio = _sse_event(data)
        if kind == "speech.audio.done":
            return parts
        if audio:
            parts.append((exchange.chunks[int(np.searchsorted(arrived, end.end()))].time_s, audio))
    raise UndecodableAudioError("event stream ended without speech.audio.done")


def _sse_event(data: bytes) -> tuple[str, bytes]:
    try:
        event = json.loads(data)
        kind = str(event["type"])
        if kind == "error":
            raise UndecodableAudioError(f"error event: {str(event)[:200]}")
        audio = base64.b64decode(event["audio"], validate=True) if kind == "speech.audio.delta" else b""
    except (ValueError, KeyError, TypeError, RecursionError, binascii.Error) as error:
        if isinstance(error, UndecodableAudioError):
            raise
        raise UndecodableAudioError(f"bad event: {error}") from None
    return kind, audio
