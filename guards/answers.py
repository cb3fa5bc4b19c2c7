"""The decoded answers that most guards compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_rsi.audio import UndecodableAudioError, decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rsi.audio import Audio
    from pytest_rsi.guard import ExchangePair


@dataclass(frozen=True, slots=True)
class Answers:
    """Both arms' audio for one request; ``candidate`` is ``None`` when only a baseline is measured."""

    pair: ExchangePair
    baseline: Audio
    candidate: Audio | None

    @property
    def id(self) -> str:
        """The request's id, with its workload."""
        return f"{self.pair.workload}/{self.pair.request.id}"


def decoded(pairs: Sequence[ExchangePair]) -> list[Answers]:
    """Return the pairs of which every answer is audio; the others are what ``complete`` is for."""
    found = []
    for pair in pairs:
        try:
            candidate = None if pair.candidate is None else decode(pair.candidate)
            found.append(Answers(pair, decode(pair.baseline), candidate))
        except UndecodableAudioError:
            continue
    return found
