"""Probes of one text, and their answers: what every promise is judged by."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from guards.heard import hear
from pytest_rsi.audio import UndecodableAudioError
from pytest_rsi.guard import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_rsi.audio import Audio
    from pytest_rsi.duel import RequestSource
    from pytest_rsi.guard import Evidence, ExchangePair
    from pytest_rsi.recording import Exchange, SpeechRequest
    from pytest_rsi.task import Workload

SAME_DB = -30.0
"""Two answers are the same if as long, and their difference is 30 dB below them: rounding may differ with the batch."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The probes of one text, in the order they were asked; ``candidate`` is empty when only a baseline is measured."""

    name: str
    baseline: tuple[Exchange, ...]
    candidate: tuple[Exchange, ...]


def draw_probes(source: RequestSource, workloads: Sequence[Workload], count: int) -> list[SpeechRequest]:
    """Return fresh requests with seeds, taken from the workloads in turn."""
    drawn = [source.draw(workloads[number % len(workloads)], 1)[0] for number in range(count)]
    return [
        replace(asked, seed=number if asked.seed is None else asked.seed) for number, asked in enumerate(drawn, start=1)
    ]


def trials(evidence: Evidence, names: Iterable[str], parts: str) -> list[Trial]:
    """Return the trials of which every part (a letter after the name) was asked of the same arms."""
    found = []
    for name in names:
        asked = [evidence.probes.get(name + part) for part in parts]
        pairs: list[ExchangePair] = [pair for pair in asked if pair is not None]
        theirs = tuple(pair.candidate for pair in pairs if pair.candidate is not None)
        if len(pairs) == len(parts) and len(theirs) in (0, len(parts)):
            found.append(Trial(name, tuple(pair.baseline for pair in pairs), theirs))
    return found


def audio_of(exchanges: Iterable[Exchange]) -> list[Audio] | None:
    """Return the audio of all answers, or ``None`` if one is not audio."""
    try:
        return [hear(exchange) for exchange in exchanges]
    except (UndecodableAudioError, ValueError):
        return None


def is_refused(exchange: Exchange) -> bool:
    """Return whether a server said that a request is wrong."""
    return exchange.error is None and exchange.status is not None and 400 <= exchange.status < 500


def same_audio(first: Audio, second: Audio) -> bool:
    """Return whether two answers are the same but for rounding."""
    if first.rate_hz != second.rate_hz or len(first.samples) != len(second.samples):
        return False
    error = float(np.mean((first.samples - second.samples).astype(np.float64) ** 2))
    return error <= 10 ** (SAME_DB / 10) * float(np.mean(first.samples.astype(np.float64) ** 2))


def other_seed(seed: int) -> int:
    """Return another seed, the same for the same one."""
    return int.from_bytes(hashlib.sha256(f"other than {seed}".encode()).digest()[:4]) >> 1


def kept(label: str, text: str) -> Finding:
    """Return the finding of a promise that was kept."""
    return Finding("passed", text, label=label)


def not_demanded(label: str, text: str) -> Finding:
    """Return the finding of a promise that the baseline does not keep."""
    return Finding("passed", f"not demanded, since the baseline does not keep it either: {text}", label=label)


def broken(label: str, name: str, text: str) -> Finding:
    """Return the finding of a promise that only the baseline keeps; ``name`` says in which trial."""
    return Finding("failed", f"{name}: {text}", worst=((name, 1.0),), label=label)


def unanswered(label: str, name: str) -> Finding:
    """Return the finding of a candidate that answers less than the baseline."""
    return broken(label, name, "the candidate did not answer every probe that the baseline answers")
