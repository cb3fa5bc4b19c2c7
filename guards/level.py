"""``level``: louder, softer, clipped, or off centre."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guards.family import Family, JudgesTimedRequests, Number
from guards.heard import heard
from guards.memory import once
from guards.noninferiority import DECIBEL, Comparison, Unit, absolute, nothing_heard, result
from pytest_rsi.guard import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_rsi.audio import Audio
    from pytest_rsi.guard import Better, Evidence, GuardResult

LOUDNESS = Unit("LU", "LUFS", difference="LU")
FULL_SCALE = Unit("full scale", "", digits=4)
SMALL_SHARE = Unit("1", "%", factor=100, digits=3, difference="pp")
BLOCK_S = 0.4
LEAST_LUFS = -70.0
"""The absolute gate of BS.1770: what is softer is silence."""
LEAST_PEAK = 1e-6
STEP = 1 / 32768
CLIPPED_RUN = 3
LEAST_CLIPPED_PEAK = 0.1
SINGLE_LU = 10.0
"""No single answer may be louder or softer by more."""
WORSE = 3.0
"""A single answer over a limit passes if the baseline's worst has at least a third of what it has."""


@dataclass(frozen=True, slots=True)
class Level:
    """How loud an answer is.

    ``loudness_lufs`` is integrated loudness, ``peak_db`` the largest sample re full scale, ``clipped`` the share of
    samples in flat tops, ``dc`` the size of the mean sample, of full scale.
    """

    loudness_lufs: float
    peak_db: float
    clipped: float
    dc: float


@dataclass(frozen=True, slots=True)
class LevelGuard(JudgesTimedRequests):
    """Hears loudness (ITU-R BS.1770-4, by pyloudnorm), peaks, clipping and offset. Unit: LU, dB, shares.

    Loudness and peak may get neither higher nor lower, by ``worse_by`` LU and ``peak`` dB. The share of clipped samples
    and the offset have margins ``clipped`` and ``dc``, and limits ``max_clipped`` and ``max_dc``, which no single
    answer may break either, unless the baseline's do.
    """

    worse_by: float
    peak: float
    clipped: float
    dc: float
    max_clipped: float
    max_dc: float
    name: str = "level"

    def check(self, evidence: Evidence) -> GuardResult:
        """Compare the level of every pair."""
        pairs = heard(evidence)
        if not pairs:
            return nothing_heard(self.name)
        ids = [pair.request.id for pair in pairs]
        before, after = [find_level(pair.baseline) for pair in pairs], [find_level(pair.theirs) for pair in pairs]
        figures: tuple[tuple[str, Unit, str, float, Better, float | None], ...] = (
            ("loudness", LOUDNESS, "loudness_lufs", self.worse_by, "same", None),
            ("peak", DECIBEL, "peak_db", self.peak, "same", None),
            ("clipped", SMALL_SHARE, "clipped", self.clipped, "lower", self.max_clipped),
            ("offset", FULL_SCALE, "dc", self.dc, "lower", self.max_dc),
        )
        alone = all(pair.candidate is None for pair in pairs)
        findings = []
        for label, unit, field, margin, better, limit in figures:
            old, new = (np.array([getattr(level, field) for level in levels]) for levels in (before, after))
            if alone:
                findings.append(absolute(label, unit, float(old.mean()), limit))
                continue
            findings.append(_compare(label, unit, old, new, ids, margin, better, limit, evidence.seed))
            findings.append(_single_over(label, unit, old, new, ids, limit) if limit else _single(label, old, new, ids))
        return result(self.name, findings, len(pairs))


@once
def find_level(audio: Audio) -> Level:
    """Return the level of an answer."""
    samples = audio.samples.astype(np.float64)
    peak = float(np.abs(samples).max())
    return Level(
        loudness_lufs=loudness(audio),
        peak_db=20 * math.log10(max(peak, LEAST_PEAK)),
        clipped=_clipped(audio, peak),
        dc=abs(float(samples.mean())),
    )


def loudness(audio: Audio) -> float:
    """Return the integrated loudness in LUFS, at least -70.

    What is shorter than a gating block of 0.4 s is one block by itself.
    """
    import pyloudnorm

    block_s = min(BLOCK_S, (len(audio.samples) - 1) / audio.rate_hz)
    if not block_s > 0:
        return LEAST_LUFS
    meter = pyloudnorm.Meter(audio.rate_hz, block_size=block_s)
    found = float(meter.integrated_loudness(audio.samples.astype(np.float64)))
    return max(found, LEAST_LUFS) if math.isfinite(found) else LEAST_LUFS


def _clipped(audio: Audio, peak: float) -> float:
    """Return the share of samples in runs of three or more within 1.5 steps of the answer's own peak, on one side.

    Its own, since what was clipped and made softer is clipped.
    """
    if peak < LEAST_CLIPPED_PEAK:
        return 0.0
    count = 0
    for side in (audio.samples, -audio.samples):
        flat = np.concatenate([[0], side >= peak - 1.5 * STEP, [0]]).astype(np.int8)
        starts, ends = np.flatnonzero(np.diff(flat) == 1), np.flatnonzero(np.diff(flat) == -1)
        lengths = ends - starts
        count += int(lengths[lengths >= CLIPPED_RUN].sum())
    return count / len(audio.samples)


def _compare(
    label: str,
    unit: Unit,
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    ids: Sequence[str],
    margin: float,
    better: Better,
    limit: float | None,
    seed: int,
) -> Finding:
    return Comparison(
        label=label,
        unit=unit,
        baseline=float(before.mean()),
        candidate=float(after.mean()),
        differences=after - before,
        ids=ids,
        margin=margin,
        better=better,
        limit=limit,
    ).finding(seed)


def _single(label: str, before: NDArray[np.float64], after: NDArray[np.float64], ids: Sequence[str]) -> Finding:
    """Judge the loudness or peak of every answer by itself."""
    changes = sorted(zip(ids, (after - before).tolist(), strict=True), key=lambda item: -abs(item[1]))
    over = [(name, change) for name, change in changes if abs(change) > SINGLE_LU]
    text = f"{label}: {len(over)} answers over {SINGLE_LU:.0f} dB from the baseline's"
    if over:
        text += f": {', '.join(f'{name} {change:+.1f} dB' for name, change in over[:3])}"
    worst = tuple(over[:5])
    return Finding("failed" if over else "passed", text, unit="dB", worst=worst, label=f"{label} of one")


def _single_over(
    label: str, unit: Unit, before: NDArray[np.float64], after: NDArray[np.float64], ids: Sequence[str], limit: float
) -> Finding:
    """Judge the clipping or offset of every answer by itself."""
    allowed = max(limit, WORSE * float(before.max()))
    ranked = sorted(zip(ids, after.tolist(), strict=True), key=lambda item: -item[1])
    over = [(name, value) for name, value in ranked if value > allowed]
    text = f"{label}: {len(over)} answers over {unit.value(allowed)}"
    if over:
        text += f": {', '.join(f'{name} {unit.value(value)}' for name, value in over[:3])}"
    return Finding(
        outcome="failed" if over else "passed",
        text=text,
        value=ranked[0][1],
        limit=allowed,
        unit=unit.name,
        worst=tuple(over[:5]),
        label=f"{label} of one",
    )


FAMILY = Family(
    marker="level",
    signature=(
        "level(worse_by=0.5, peak=1.0, clipped=0.0005, dc=0.001, max_clipped=0.001, max_dc=0.003): loudness (LU) and "
        "peak (dB) stay as they are, no more clipped samples or offset"
    ),
    build=LevelGuard,
    arguments={
        "worse_by": Number(0.5, 0, 100),
        "peak": Number(1.0, 0, 100),
        "clipped": Number(0.0005, 0, 1),
        "dc": Number(0.001, 0, 1),
        "max_clipped": Number(0.001, 0, 1),
        "max_dc": Number(0.003, 0, 1),
    },
)
