"""``contract("seed")``: seeds that are ignored, answers that are cached by text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from guards.contract.trial import (
    audio_of,
    broken,
    draw_probes,
    kept,
    not_demanded,
    other_seed,
    same_audio,
    trials,
    unanswered,
)
from guards.family import Family, Number
from guards.noninferiority import nothing_heard, result

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guards.contract.trial import Trial
    from pytest_rsi.duel import RequestSource
    from pytest_rsi.guard import Evidence, Finding, GuardResult
    from pytest_rsi.recording import Exchange, SpeechRequest
    from pytest_rsi.task import Workload

KEPT = ("the same seed gives the same audio", "another seed gives other audio")
BROKEN = ("the same seed gives other audio", "another seed gives the same audio")


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
            for number, asked in enumerate(draw_probes(source, workloads, self.texts), start=1)
            for letter, seed in zip("abc", (asked.seed, asked.seed, other_seed(asked.seed or 0)), strict=True)
        ]

    def check(self, evidence: Evidence) -> GuardResult:
        """Compare the answers to the probes, in each arm by itself."""
        asked = trials(evidence, [f"{self.name}-{number}" for number in range(1, self.texts + 1)], "abc")
        if not asked:
            return nothing_heard(self.name, "no probe was sent")
        baseline = [_behaviour(trial.baseline) for trial in asked]
        if any(found is None for found in baseline):
            return nothing_heard(self.name, "the baseline did not answer every probe")
        findings = [
            _finding(asked, all(found is not None and found[promise] for found in baseline), promise)
            for promise in (0, 1)
        ]
        return result(self.name, findings, 3 * len(asked))


def _finding(asked: Sequence[Trial], demanded: bool, promise: int) -> Finding:
    label = KEPT[promise]
    if not demanded:
        return not_demanded(label, label)
    for trial in asked:
        if not trial.candidate:
            continue
        found = _behaviour(trial.candidate)
        if found is None:
            return unanswered(label, trial.name)
        if not found[promise]:
            return broken(label, trial.name, f"{BROKEN[promise]}; the baseline keeps that {label}")
    return kept(label, label)


def _behaviour(exchanges: Sequence[Exchange]) -> tuple[bool, bool] | None:
    """Return (same seed gives the same audio, another gives other audio), or ``None`` if one is not audio."""
    heard = audio_of(exchanges)
    if heard is None:
        return None
    first, again, other = heard
    return same_audio(first, again), not same_audio(first, other)


PROMISE = Family(
    marker="contract",
    signature='contract("seed", texts=2)',
    build=SeedContract,
    arguments={"texts": Number(2, 1, 20, whole=True)},
)
