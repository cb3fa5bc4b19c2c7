"""``duration``: speech that became shorter or longer, silence that was trimmed or padded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guards.family import Family, JudgesTimedRequests, Number
from guards.heard import heard
from guards.noninferiority import MILLISECONDS, NUMBER, SECONDS, Comparison, absolute, nothing_heard, result
from guards.speech import find_speech
from pytest_rsi.guard import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from guards.noninferiority import Unit
    from guards.speech import Speech
    from pytest_rsi.guard import Evidence, GuardResult

SHORTEST, LONGEST = 0.8, 1.25
"""No single answer may be outside these ratios to the baseline's: honest reruns stayed within 0.93 to 1.07."""


@dataclass(frozen=True, slots=True)
class DurationGuard(JudgesTimedRequests):
    """Hears time: length of answer and of speech, silence at both ends, longest pause, rate. Unit: seconds.

    Every figure is an equivalence test (two one-sided tests on paired differences): it may get neither longer nor
    shorter. ``worse_by`` is the margin of total and speech length as a share, ``rate`` that of energy peaks per second
    of speech, ``lead``, ``trail`` and ``pause`` are seconds.
    """

    worse_by: float
    lead: float
    trail: float
    pause: float
    rate: float
    name: str = "duration"

    def check(self, evidence: Evidence) -> GuardResult:
        """Compare where speech lies in every pair."""
        pairs = heard(evidence)
        before = [find_speech(pair.baseline) for pair in pairs]
        after = [find_speech(pair.theirs) for pair in pairs]
        both = [
            (pair.request.id, old, new)
            for pair, old, new in zip(pairs, before, after, strict=True)
            if old is not None and new is not None
        ]
        if not both:
            return nothing_heard(self.name, "no request with speech from both arms")
        if all(pair.candidate is None for pair in pairs):
            mean_s = sum(old.total_s for _, old, _ in both) / len(both)
            return result(self.name, [absolute("length", SECONDS, mean_s, None)], len(both))
        ids = [name for name, _, _ in both]
        old, new = [old for _, old, _ in both], [new for _, _, new in both]
        findings = [
            _compare(*figure, ids, old, new, evidence.seed)
            for figure in (
                ("length", SECONDS, lambda speech: speech.total_s, self.worse_by, True),
                ("speech", SECONDS, lambda speech: speech.span_s, self.worse_by, True),
                ("lead", MILLISECONDS, lambda speech: speech.lead_s, self.lead, False),
                ("trail", MILLISECONDS, lambda speech: speech.trail_s, self.trail, False),
                ("pause", MILLISECONDS, lambda speech: speech.pause_s, self.pause, False),
                ("peaks/s", NUMBER, lambda speech: speech.rate_hz, self.rate, True),
            )
        ]
        return result(self.name, [*findings, _single(ids, old, new)], len(both))


def _compare(
    label: str,
    unit: Unit,
    figure: Callable[[Speech], float],
    margin: float,
    relative: bool,
    ids: Sequence[str],
    before: Sequence[Speech],
    after: Sequence[Speech],
    seed: int,
) -> Finding:
    old, new = np.array([figure(speech) for speech in before]), np.array([figure(speech) for speech in after])
    differences = new - old
    if relative:
        least = 1e-3
        differences = np.log(np.maximum(new, least) / np.maximum(old, least))
    return Comparison(
        label=label,
        unit=unit,
        baseline=float(old.mean()),
        candidate=float(new.mean()),
        differences=differences,
        ids=ids,
        margin=margin,
        better="same",
        relative=relative,
    ).finding(seed)


def _single(ids: Sequence[str], before: Sequence[Speech], after: Sequence[Speech]) -> Finding:
    """Judge every answer by itself."""
    ratios = [(name, new.total_s / old.total_s) for name, old, new in zip(ids, before, after, strict=True)]
    outside = [(name, ratio) for name, ratio in ratios if not SHORTEST <= ratio <= LONGEST]
    outside.sort(key=lambda item: -abs(math.log(item[1])))
    text = f"{len(outside)} answers outside {SHORTEST} to {LONGEST} of the baseline's length"
    if outside:
        text += f": {', '.join(f'{name} {ratio:.2f}' for name, ratio in outside[:3])}"
    return Finding("failed" if outside else "passed", text, unit="1", worst=tuple(outside[:5]))


FAMILY = Family(
    marker="duration",
    signature=(
        "duration(worse_by=0.015, lead=0.010, trail=0.020, pause=0.015, rate=0.08): length, silence at the ends, "
        "longest pause and rate stay as they are, in both directions; shares and seconds"
    ),
    build=DurationGuard,
    arguments={
        "worse_by": Number(0.015, 0, 1),
        "lead": Number(0.010, 0, 10),
        "trail": Number(0.020, 0, 10),
        "pause": Number(0.015, 0, 10),
        "rate": Number(0.08, 0, 1),
    },
)
