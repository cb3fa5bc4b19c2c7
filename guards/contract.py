"""``contract``: what the interface promises, asked of both arms by probes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from guards.family import Number, read_arguments
from guards.heard import hear
from guards.noninferiority import nothing_heard, result
from pytest_rsi.audio import UndecodableAudioError
from pytest_rsi.guard import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rsi.audio import Audio
    from pytest_rsi.duel import RequestSource
    from pytest_rsi.guard import Evidence, ExchangePair, GuardResult
    from pytest_rsi.recording import Exchange, SpeechRequest
    from pytest_rsi.task import Workload

SAME_DB = -30.0
"""Two answers are the same if as long, and their difference is 30 dB below them: rounding may differ with the batch."""
PROMISES = ("seed",)


@dataclass(frozen=True, slots=True)
class SeedContract:
    """Hears whether ``seed`` is honoured: same text and seed twice, and the same text with another seed.

    The candidate must keep what the baseline does: the same audio for the same seed, other audio for another. The
    latter exposes answers cached by text.
    """

    texts: int
    name: str = "contract-seed"

    def probes(self, source: RequestSource, workloads: Sequence[Workload]) -> Sequence[SpeechRequest]:
        """Return three requests for each text: ``1a`` and ``1b`` alike, ``1c`` with another seed."""
        return [
            replace(asked, id=f"{self.name}-{number}{letter}", seed=seed)
            for number, asked in enumerate(source.draw(workloads[0], self.texts), start=1)
            for letter, seed in zip("abc", (asked.seed or number,) * 2 + (_other(asked.seed or number),), strict=True)
        ]

    def check(self, evidence: Evidence) -> GuardResult:
        """Compare the answers to the probes, in each arm by itself."""
        trials = [
            [evidence.probes.get(f"{self.name}-{number}{letter}") for letter in "abc"]
            for number in range(1, self.texts + 1)
        ]
        asked = [[pair for pair in trial if pair is not None] for trial in trials]
        full = [trial for trial in asked if len(trial) == 3]
        if not full:
            return nothing_heard(self.name, "no probe was sent")
        baseline = [_behaviour([pair.baseline for pair in trial]) for trial in full]
        if any(found is None for found in baseline):
            return nothing_heard(self.name, "the baseline did not answer every probe")
        findings = [self._finding(full, baseline, promise) for promise in (0, 1)]
        return result(self.name, findings, 3 * len(full))

    def _finding(
        self, trials: Sequence[Sequence[ExchangePair]], baseline: Sequence[tuple[bool, bool] | None], promise: int
    ) -> Finding:
        kept = ("the same seed gives the same audio", "another seed gives other audio")[promise]
        broken = ("the same seed gives other audio", "another seed gives the same audio")[promise]
        if not all(found is not None and found[promise] for found in baseline):
            return Finding("passed", f"not demanded, since the baseline does not keep it either: {kept}")
        for trial in trials:
            theirs = [pair.candidate for pair in trial if pair.candidate is not None]
            if not theirs:
                continue
            found = _behaviour(theirs)
            name = trial[0].request.id[:-1]
            if found is None:
                return Finding("failed", f"{name}: the candidate did not answer every probe that the baseline answers")
            if not found[promise]:
                return Finding("failed", f"{name}: {broken}; the baseline keeps that {kept}", worst=((name, 1.0),))
        return Finding("passed", kept)


def _behaviour(exchanges: Sequence[Exchange]) -> tuple[bool, bool] | None:
    """Return (same seed gives the same audio, another gives other audio), or ``None`` if one is not audio."""
    try:
        first, again, other = (hear(exchange) for exchange in exchanges)
    except (UndecodableAudioError, ValueError):
        return None
    return same_audio(first, again), not same_audio(first, other)


def same_audio(first: Audio, second: Audio) -> bool:
    """Return whether two answers are the same but for rounding."""
    if first.rate_hz != second.rate_hz or len(first.samples) != len(second.samples):
        return False
    error = float(np.mean((first.samples - second.samples).astype(np.float64) ** 2))
    return error <= 10 ** (SAME_DB / 10) * float(np.mean(first.samples.astype(np.float64) ** 2))


def _other(seed: int) -> int:
    """Return another seed, the same for the same one."""
    return int.from_bytes(hashlib.sha256(f"other than {seed}".encode()).digest()[:4]) >> 1


@dataclass(frozen=True, slots=True)
class ContractFamily:
    """The marker ``contract``: which promise by position."""

    marker: str = "contract"
    signature: str = (
        'contract("seed", texts=2): the same seed gives the same audio, another seed other audio, as the baseline does'
    )

    def make(self, *args: Any, **kwargs: Any) -> SeedContract:  # noqa: ANN401  (what a marker was given)
        """Return the guard.

        Raises:
            ValueError: an argument is unknown or not what is expected.
        """
        if len(args) != 1 or args[0] not in PROMISES:
            shown = ", ".join(map(repr, args)) or "nothing"
            raise ValueError(f"contract: promise {shown}, expected {', '.join(map(repr, PROMISES))}")
        values = read_arguments(self.marker, {"texts": Number(2, 1, 20, whole=True)}, kwargs)
        return SeedContract(**values)  # type: ignore[arg-type]  # it is whole


FAMILY = ContractFamily()
