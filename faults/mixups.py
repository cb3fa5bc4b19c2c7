"""Mix-ups: somebody else's answer, an old one, none."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from faults.answers import with_samples
from pytest_rsi.audio import UndecodableAudioError, playout
from pytest_rsi.recording import Chunk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_rsi.recording import Exchange

    Choose = Callable[[int, int], int]


@dataclass(frozen=True, slots=True)
class OtherAnswer:
    """A share of answers carry the audio of another request: ``choose(i, n)`` says whose the i-th gets."""

    name: str
    hears: str
    choose: Choose
    unit: str = "% of answers"
    sizes: tuple[float, ...] = (2, 5, 20, 100)

    def inject(self, exchanges: Sequence[Exchange], size: float, seed: int) -> list[Exchange]:
        """Return the answers with the share of them replaced, at least one."""
        chosen = _chosen(exchanges, size, seed)
        return [
            _speaking(exchange, exchanges[self.choose(index, len(exchanges))]) if index in chosen else exchange
            for index, exchange in enumerate(exchanges)
        ]


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """A share of answers fail, or carry no sound."""

    name: str
    hears: str
    silent: bool
    unit: str = "% of answers"
    sizes: tuple[float, ...] = (2, 5, 20, 100)

    def inject(self, exchanges: Sequence[Exchange], size: float, seed: int) -> list[Exchange]:
        """Return the answers with the share of them spoilt, at least one."""
        chosen = _chosen(exchanges, size, seed)
        return [self._spoilt(exchange) if index in chosen else exchange for index, exchange in enumerate(exchanges)]

    def _spoilt(self, exchange: Exchange) -> Exchange:
        if not self.silent:
            body = b'{"error": {"message": "out of memory", "type": "server_error"}}'
            return replace(exchange, status=500, chunks=(Chunk(exchange.finished_s, body),))
        try:
            played = playout(exchange)
        except UndecodableAudioError:
            return exchange
        return with_samples(exchange, np.zeros_like(played.audio.samples), played)


def _chosen(exchanges: Sequence[Exchange], size: float, seed: int) -> set[int]:
    """Return which answers are harmed: the same ones for the same seed, more of them for a larger share."""
    ranks = [zlib.crc32(f"{seed}/{exchange.request.id}".encode()) for exchange in exchanges]
    count = max(1, round(size / 100 * len(exchanges)))
    return set(np.argsort(ranks)[:count].tolist())


def _speaking(exchange: Exchange, other: Exchange) -> Exchange:
    try:
        theirs, ours = playout(other), playout(exchange)
    except UndecodableAudioError:
        return exchange
    return with_samples(exchange, theirs.audio.samples, ours)


FAULTS = (
    OtherAnswer("other-text", "another text's audio", lambda index, count: (index + count // 2) % count),
    OtherAnswer("stale-answer", "the answer before, once more", lambda index, _: index - 1),
    OtherAnswer("one-answer", "the same clip for everybody, as if a reference clip were played", lambda _, __: 0),
    NoAnswer("failed-answer", "an error", silent=False),
    NoAnswer("silent-answer", "silence", silent=True),
)
