"""What was heard: the decoded audio of every request that both arms answered."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_rsi.audio import UndecodableAudioError, decode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rsi.audio import Audio
    from pytest_rsi.guard import Evidence
    from pytest_rsi.recording import Exchange, SpeechRequest

LOWEST_RATE_HZ, HIGHEST_RATE_HZ = 4000, 192_000


@dataclass(frozen=True, slots=True, eq=False)
class HeardPair:
    """The same request as both arms speak it; ``candidate`` is ``None`` when only a baseline is measured."""

    workload: str
    request: SpeechRequest
    baseline: Audio
    candidate: Audio | None

    @property
    def theirs(self) -> Audio:
        """The audio that is judged: the candidate's, or the baseline's if there is none."""
        return self.baseline if self.candidate is None else self.candidate


def hear(exchange: Exchange) -> Audio:
    """Return the audio of an answer.

    Raises:
        UndecodableAudioError: it is none, or has a sample rate that speech does not have.
    """
    audio = decode(exchange)
    if not LOWEST_RATE_HZ <= audio.rate_hz <= HIGHEST_RATE_HZ:
        raise UndecodableAudioError(f"{audio.rate_hz} Hz, expected {LOWEST_RATE_HZ} to {HIGHEST_RATE_HZ}")
    return audio


def heard(evidence: Evidence) -> list[HeardPair]:
    """Return the timed pairs that are audio in both arms. What is left out here fails ``complete``."""
    pairs = []
    for pair in evidence.pairs:
        try:
            candidate = None if pair.candidate is None else hear(pair.candidate)
            pairs.append(HeardPair(pair.workload, pair.request, hear(pair.baseline), candidate))
        except UndecodableAudioError:
            continue
    return pairs


def draw(pairs: Sequence[HeardPair], count: int, seed: int) -> list[HeardPair]:
    """Return at most ``count`` pairs of each workload, drawn by seed and request id.

    A pair that is drawn stays drawn until many more have come: what was judged once need not be judged again.
    """
    ranked = sorted(pairs, key=lambda pair: hashlib.sha256(f"{seed}/{pair.request.id}".encode()).digest())
    kept: dict[str, list[HeardPair]] = {}
    for pair in ranked:
        chosen = kept.setdefault(pair.workload, [])
        if len(chosen) < count:
            chosen.append(pair)
    return [pair for chosen in kept.values() for pair in chosen]
