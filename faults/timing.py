"""Timing: the same bytes, later."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from faults.answers import SoundFault
from pytest_rsi.recording import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from faults.answers import Samples, Sound
    from pytest_rsi.recording import Exchange

    Delay = Callable[[Exchange, float], list[float]]


@dataclass(frozen=True, slots=True)
class TimingFault:
    """Chunks that come later by ``delays(exchange, size)`` seconds each, in every answer or in a share of them."""

    name: str
    unit: str
    sizes: tuple[float, ...]
    hears: str
    delays: Delay
    share: float = 1.0

    def inject(self, exchanges: Sequence[Exchange], size: float, seed: int) -> list[Exchange]:
        """Return the answers delayed."""
        ranks = [zlib.crc32(f"{seed}/{exchange.request.id}".encode()) for exchange in exchanges]
        chosen = set(np.argsort(ranks)[: max(1, round(self.share * len(exchanges)))].tolist())
        return [self._late(exchange, size) if at in chosen else exchange for at, exchange in enumerate(exchanges)]

    def _late(self, exchange: Exchange, size: float) -> Exchange:
        delays = self.delays(exchange, size)
        if not delays:
            return exchange
        chunks = tuple(
            Chunk(chunk.time_s + delay_s, chunk.data) for chunk, delay_s in zip(exchange.chunks, delays, strict=True)
        )
        return replace(exchange, chunks=chunks, finished_s=exchange.finished_s + delays[-1])


def _all(exchange: Exchange, size: float) -> list[float]:
    return [size / 1000] * len(exchange.chunks)


def _stall(exchange: Exchange, size: float) -> list[float]:
    """Delay everything after the first third of the chunks of a streamed answer."""
    count = len(exchange.chunks)
    if not exchange.request.stream:
        return []
    return [0.0 if index <= count // 3 else size / 1000 for index in range(count)]


def _burst(exchange: Exchange, size: float) -> list[float]:
    """Let chunks of a streamed answer wait until ``size`` ms later, then come at once."""
    if not exchange.request.stream or len(exchange.chunks) < 2:
        return []
    first_s, last_s = exchange.chunks[0].time_s, exchange.chunks[-1].time_s
    until_s = min(last_s, first_s + size / 1000)
    return [max(0.0, until_s - chunk.time_s) if index else 0.0 for index, chunk in enumerate(exchange.chunks)]


def _times(exchange: Exchange, size: float) -> list[float]:
    """Let every chunk take ``size`` times as long."""
    return [(size - 1) * (chunk.time_s - exchange.sent_s) for chunk in exchange.chunks]


def _silent_chunk(sound: Sound, size: float) -> Samples:
    return np.concatenate([np.zeros(sound.count(size / 1000), np.float32), sound.samples])


FAULTS = (
    TimingFault("late", "ms", (50, 100, 300, 1000), "everything comes later", _all),
    TimingFault("stall", "ms", (100, 300, 1000, 3000), "the voice stops and goes on", _stall),
    TimingFault("burst", "ms", (100, 300, 1000), "nothing for a while, then all at once", _burst),
    TimingFault("one-in-twenty-slow", "times", (2, 4, 8, 16), "now and then a long wait", _times, share=0.05),
    SoundFault("silent-first-chunk", "ms", (20, 40, 80, 200), "a first chunk of nothing", _silent_chunk, streamed=True),
)
