"""Non-inferiority: what a paired comparison says, and what several of them come to.

A difference passes when the bad end of its confidence interval lies inside the margin, fails when the whole interval
lies outside, and is undecided otherwise. Comparisons are written so that a value which is not a number never passes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pytest_rsi.guard import Finding, GuardResult
from pytest_rsi.stats import Interval, bootstrap_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_rsi.guard import Better, Outcome

CONFIDENCE = 0.95
FEWEST = 8
"""With fewer requests the bootstrap's intervals are too narrow to be believed, whatever they say."""
WORST = 5
MANY_TIMES = 6
_SEVERITY = {"passed": 0, "undecided": 1, "failed": 2}


@dataclass(frozen=True, slots=True)
class Unit:
    """How a figure is shown: ``symbol`` after value times ``factor``, ``difference`` after a difference."""

    name: str
    symbol: str
    factor: float = 1.0
    digits: int = 1
    difference: str = ""

    def value(self, value: float) -> str:
        """Return a value for people."""
        return f"{value * self.factor:.{self.digits}f} {self.symbol}".rstrip()

    def change(self, value: float) -> str:
        """Return a difference for people, without its symbol."""
        return f"{value * self.factor:+.{self.digits}f}"

    @property
    def change_symbol(self) -> str:
        """The symbol of a difference."""
        return self.difference or self.symbol


SECONDS = Unit("s", "s", digits=3)
MILLISECONDS = Unit("s", "ms", factor=1000)
SHARE = Unit("1", "%", factor=100, difference="pp")
NUMBER = Unit("1", "", digits=3)
DECIBEL = Unit("dB", "dB")


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """A figure of both arms and its paired differences, candidate - baseline, float64 [n] with n request ids.

    With ``relative``, differences and margin are log-ratios and share of the baseline's figure; else both are in
    ``unit``. ``limit`` is the most the figure itself may be, or the least where ``better`` is ``higher``. Fewer
    requests than ``fewest`` never pass.
    """

    label: str
    unit: Unit
    baseline: float
    candidate: float
    differences: NDArray[np.float64]
    ids: Sequence[str]
    margin: float
    better: Better = "lower"
    relative: bool = False
    limit: float | None = None
    fewest: int = FEWEST

    def finding(self, seed: int, interval: Interval | None = None) -> Finding:
        """Judge by ``interval`` (of a log-ratio where relative), or by the bootstrap of the mean difference."""
        endless = [name for name, size in zip(self.ids, self.differences, strict=True) if not math.isfinite(size)]
        if endless:
            text = f"{self.label}: {len(endless)} answers differ beyond measure ({', '.join(endless[:3])})"
            worst = tuple((name, math.inf) for name in endless[:WORST])
            return Finding("failed", text, unit=self.unit.name, worst=worst, label=self.label)
        found = interval or bootstrap_interval(self.differences, seed=seed, confidence=CONFIDENCE)
        ends = (found.low, found.high)
        if self.relative:
            ends = (math.expm1(found.low), math.expm1(min(found.high, 700.0)))
        outcome = outcome_of(ends, self.margin, self.better)
        if len(self.differences) < self.fewest and outcome == "passed":
            outcome = "undecided"
        within = within_limit(self.candidate, self.limit, self.better)
        scale = self.baseline if self.relative else 1.0
        return Finding(
            outcome="failed" if not within else outcome,
            text=self._text(ends, outcome, within),
            value=self.candidate,
            baseline=self.baseline,
            interval=(ends[0] * scale, ends[1] * scale),
            margin=self.margin * scale,
            limit=self.limit,
            unit=self.unit.name,
            worst=worst_first(self.ids, self.differences, self.better),
            label=self.label,
            better=self.better,
        )

    def _text(self, ends: tuple[float, float], outcome: Outcome, within: bool) -> str:
        unit = SHARE if self.relative else self.unit
        symbol = "%" if self.relative else unit.change_symbol
        estimate = self.candidate / self.baseline - 1 if self.relative else self.candidate - self.baseline
        sign = {"lower": "+", "higher": "-", "same": "+-"}[self.better]
        text = (
            f"{self.label} {self.unit.value(self.candidate)} vs {self.unit.value(self.baseline)} "
            f"({unit.change(estimate)} {symbol}".rstrip()
            + f", {100 * CONFIDENCE:.0f} % interval {unit.change(ends[0])}..{unit.change(ends[1])}), "
            f"margin {sign}{self.margin * unit.factor:.{unit.digits}f} {symbol}".rstrip()
        )
        if self.limit is not None:
            text += f", {'limit' if within else 'over the limit of'} {self.unit.value(self.limit)}"
        if outcome == "undecided":
            text += f": {self._needed(ends)}"
        if (outcome != "passed" or not within) and len(self.differences):
            name, size = worst_first(self.ids, self.differences, self.better)[0]
            text += f"; worst {name} ({unit.change(math.expm1(min(size, 700.0)) if self.relative else size)} {symbol})"
        return text

    def _needed(self, ends: tuple[float, float]) -> str:
        """Say how many requests would tell: the width of an interval falls with the root of their number."""
        n, centre = len(self.differences), (ends[0] + ends[1]) / 2
        off = {"lower": centre, "higher": -centre, "same": abs(centre)}[self.better]
        half, room = (ends[1] - ends[0]) / 2, self.margin - off
        if n < self.fewest or not math.isfinite(half):
            return f"{n} requests cannot tell, at least {self.fewest} are needed"
        if not room > 0:
            return f"{n} requests cannot tell, and the difference itself is no smaller than the margin"
        if half > MANY_TIMES * room:
            return f"{n} requests cannot tell, nor would many times as many"
        return f"{n} requests cannot tell, about {max(n + 1, math.ceil(n * (half / room) ** 2))} would"


def outcome_of(ends: tuple[float, float], margin: float, better: Better) -> Outcome:
    """Return what an interval of a difference says about a margin (Schuirmann 1987 where two-sided)."""
    low, high = ends
    least = -math.inf if better == "lower" else -margin
    most = math.inf if better == "higher" else margin
    if least <= low and high <= most:
        return "passed"
    if low > most or high < least:
        return "failed"
    return "undecided"


def within_limit(value: float, limit: float | None, better: Better) -> bool:
    """Return whether a figure keeps its absolute limit; what is not a number does not."""
    if limit is None:
        return True
    return value >= limit if better == "higher" else value <= limit


def absolute(label: str, unit: Unit, value: float, limit: float | None, better: Better = "lower") -> Finding:
    """Judge the baseline alone, by its absolute limit."""
    within = within_limit(value, limit, better)
    text = f"{label} {unit.value(value)}"
    if limit is not None:
        text += f", {'limit' if within else 'over the limit of'} {unit.value(limit)}"
    outcome: Outcome = "passed" if within and math.isfinite(value) else "failed"
    return Finding(outcome, text, value, value, limit=limit, unit=unit.name, label=label)


def nothing_heard(guard: str, what: str = "no request that both arms answered") -> GuardResult:
    """Return the result of a guard that had nothing to look at."""
    return GuardResult(guard, "undecided", f"{what}: nothing to compare")


def result(guard: str, findings: Sequence[Finding], requests: int) -> GuardResult:
    """Return the guard's result: the gravest finding decides, and the first of several such."""
    gravest = max(findings, key=lambda finding: _SEVERITY[finding.outcome])
    told = [finding.text for finding in findings if finding.outcome == gravest.outcome]
    if gravest.outcome == "passed" and len(told) > 1:
        told = [told[0], f"{len(told) - 1} more figure{'s' if len(told) > 2 else ''} within bounds"]
    return GuardResult(
        guard=guard,
        outcome=gravest.outcome,
        reason=f"{'; '.join(told)}, {requests} request{'' if requests == 1 else 's'}",
        value=gravest.value,
        baseline=gravest.baseline,
        interval=gravest.interval,
        margin=gravest.margin,
        limit=gravest.limit,
        unit=gravest.unit,
        requests=requests,
        worst=gravest.worst,
        findings=tuple(findings),
    )


def worst_first(
    ids: Sequence[str], differences: NDArray[np.float64], better: Better = "lower"
) -> tuple[tuple[str, float], ...]:
    """Return up to five requests that differ most in the bad direction, worst first."""
    badness = {"lower": differences, "higher": -differences, "same": np.abs(differences)}[better]
    return tuple((ids[i], float(differences[i])) for i in np.argsort(-badness, kind="stable")[:WORST])
