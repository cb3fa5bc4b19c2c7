"""``parity``: audio unlike the baseline's answer to the same request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guards.family import Family, JudgesTimedRequests, Number
from guards.heard import draw, heard
from guards.mel import align, log_mel
from guards.memory import once
from guards.noninferiority import NUMBER, Comparison, nothing_heard, result
from pytest_rsi.guard import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from guards.heard import HeardPair
    from pytest_rsi.audio import Audio
    from pytest_rsi.guard import Evidence, GuardResult


@dataclass(frozen=True, slots=True)
class ParityGuard(JudgesTimedRequests):
    """Hears anything at all. Unit: full scale of samples, or natural-log mel energy.

    Where the task declares equal samples for an equal seed, both arms' answers have the same rate and length, and no
    sample differs by more than ``samples`` (0.0001 is three steps of 16 bits). Elsewhere the log-mel distance after
    warping, mean over requests, stays at most ``worse_by`` above ``max``, the distance of two honest runs of the
    baseline, as measured; at most ``requests`` of each workload are aligned.
    """

    samples: float
    max: float | None
    worse_by: float
    requests: int
    name: str = "parity"

    def check(self, evidence: Evidence) -> GuardResult:
        """Compare every pair, sample by sample or by spectrum."""
        pairs = heard(evidence)
        if not pairs:
            return nothing_heard(self.name)
        compared = [pair for pair in pairs if pair.candidate is not None]
        if not compared:
            return result(self.name, [Finding("passed", "no candidate: nothing to compare with")], len(pairs))
        if not evidence.deterministic:
            return self._spectra(draw(compared, self.requests, evidence.seed), evidence)
        seeded = [pair for pair in compared if pair.request.seed is not None]
        if not seeded:
            return nothing_heard(self.name, "no request has a seed")
        workloads = sorted({pair.workload for pair in seeded})
        return result(self.name, [self._samples(name, seeded) for name in workloads], len(seeded))

    def _samples(self, workload: str, pairs: Sequence[HeardPair]) -> Finding:
        errors = {pair.request.id: max_error(pair.baseline, pair.theirs) for pair in pairs if pair.workload == workload}
        ranked = sorted(errors.items(), key=lambda item: -item[1])
        unequal = [name for name, error in ranked if not error <= self.samples]
        name, most = ranked[0]
        if not unequal:
            text = f"{workload}: samples differ by at most {most:.2g}, {self.samples:.2g} allowed"
        else:
            how = "length or rate" if np.isinf(most) else f"{most:.2g} of full scale"
            text = (
                f"{workload}: {len(unequal)} of {len(errors)} answers differ from the baseline's of the same seed, "
                f"{name} by {how}, {self.samples:.2g} allowed"
            )
        return Finding(
            outcome="failed" if unequal else "passed",
            text=text,
            value=most,
            baseline=0.0,
            limit=self.samples,
            unit="full scale",
            worst=tuple(ranked[:5]),
        )

    def _spectra(self, pairs: Sequence[HeardPair], evidence: Evidence) -> GuardResult:
        distances = np.array([mel_distance(pair.baseline, pair.theirs) for pair in pairs])
        ids = [pair.request.id for pair in pairs]
        if self.max is None:
            text = f"mel distance {distances.mean():.3f}: state max=, the distance of two runs of the baseline"
            finding = Finding("undecided", text, value=float(distances.mean()), unit=NUMBER.name)
            return result(self.name, [finding], len(pairs))
        # The distance is never negative and its level never 0, so the level stands in for the baseline's figure.
        comparison = Comparison(
            label="mel distance",
            unit=NUMBER,
            baseline=self.max,
            candidate=float(distances.mean()),
            differences=distances - self.max,
            ids=ids,
            margin=self.worse_by,
        )
        return result(self.name, [comparison.finding(evidence.seed)], len(pairs))


def max_error(before: Audio, after: Audio) -> float:
    """Return the largest difference of two samples; ``inf`` where rate or length differ."""
    if before.rate_hz != after.rate_hz or len(before.samples) != len(after.samples):
        return float("inf")
    return float(np.abs(before.samples - after.samples).max(initial=0.0))


@once
def mel_distance(before: Audio, after: Audio) -> float:
    """Return the log-mel distance after dynamic time warping; ``inf`` where one is twice as long as the other."""
    if not 0.5 <= before.duration_s / after.duration_s <= 2:
        return float("inf")
    return align(log_mel(before), log_mel(after)).distance


FAMILY = Family(
    marker="parity",
    signature=(
        "parity(samples=0.0001, max=None, worse_by=0.012, requests=48): samples equal to the baseline's where the task "
        "is deterministic, else log-mel distance at most worse_by above max, the level of two runs of the baseline"
    ),
    build=ParityGuard,
    arguments={
        "samples": Number(1e-4, 0, 1),
        "max": Number(None, 0, 10),
        "worse_by": Number(0.012, 0, 10),
        "requests": Number(48, 1, 10_000, whole=True),
    },
)
