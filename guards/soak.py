"""``soak``: a server that slows down, or fails more, the longer it runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guards.family import Family, JudgesTimedRequests, Number
from guards.noninferiority import CONFIDENCE, NUMBER, SHARE, Comparison, nothing_heard, result, within_limit
from pytest_rsi.guard import Finding
from pytest_rsi.metrics import ExchangeMetrics, measure
from pytest_rsi.stats import Interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from pytest_rsi.guard import Evidence, ExchangePair, GuardResult
    from pytest_rsi.recording import Exchange

IDLE_S = 1.0
"""No request of either arm for so long means that both were started anew: inside a launch only arms take turns."""
FEWEST_REQUESTS = 6
"""A trend of fewer is no trend."""


@dataclass(frozen=True, slots=True)
class SoakGuard(JudgesTimedRequests):
    """Hears wear, for the clean room: trends within a launch, candidate against baseline. Unit: share.

    For each launch and workload, the Theil-Sen slope (Sen 1968) over time of the log-ratio of e2e, request by request,
    times the time from its first request to its last; their mean (Student's interval) may be ``slower_by``. And how
    much larger the share of failures is in the later halves than in the earlier ones, net of the baseline: at most
    ``errors``. With less than ``seconds`` of timed load on the candidate nothing can be told.
    """

    errors: float
    slower_by: float
    seconds: float
    name: str = "soak"

    def check(self, evidence: Evidence) -> GuardResult:
        """Look for trends in order of time."""
        spells = find_spells(evidence.pairs)
        if not spells:
            return nothing_heard(self.name, f"no workload with {FEWEST_REQUESTS} requests in a launch")
        requests = sum(len(spell) for spell in spells.values())
        failures = self._failures(list(spells.values()))
        if all(pair.candidate is None for pair in evidence.pairs):
            return result(self.name, [failures], requests)
        findings = [failures, self._trend(spells, evidence.seed)]
        loaded_s = sum(span_s(spell) for spell in spells.values())
        if loaded_s < self.seconds:
            text = f"{loaded_s:.0f} s of load cannot tell, at least {self.seconds:.0f} s are needed"
            findings.append(Finding("undecided", text, value=loaded_s, limit=self.seconds, unit="s", label="load"))
        return result(self.name, findings, requests)

    def _trend(self, spells: dict[str, list[ExchangePair]], seed: int) -> Finding:
        growths = {name: growth(spell) for name, spell in spells.items()}
        told = {name: found for name, found in growths.items() if found is not None}
        if not told:
            return Finding("undecided", "e2e: no launch with enough answered requests", label="e2e growth")
        differences = np.array(list(told.values()))
        return Comparison(
            label="e2e growth",
            unit=NUMBER,
            baseline=1.0,
            candidate=math.exp(min(float(differences.mean()), 700.0)),
            differences=differences,
            ids=list(told),
            margin=self.slower_by,
            relative=True,
        ).finding(seed, student_interval(differences))

    def _failures(self, spells: Sequence[Sequence[ExchangePair]]) -> Finding:
        arms = [[[arm_of(pair, arm) for pair in spell] for spell in spells] for arm in ("baseline", "candidate")]
        ours, theirs = (later_failures(halves) for halves in arms)
        alone = all(pair.candidate is None for spell in spells for pair in spell)
        more, label = ours if alone else theirs - ours, "failures gained over a launch"
        kept = within_limit(more, self.errors, "lower")
        text = f"{label} {SHARE.value(ours if alone else theirs)}"
        text += "" if alone else f" vs {SHARE.value(ours)}"
        return Finding(
            outcome="passed" if kept else "failed",
            text=f"{text}, at most {SHARE.value(self.errors)} {'' if alone else 'more '}allowed",
            value=ours if alone else theirs,
            baseline=ours,
            margin=self.errors,
            unit=SHARE.name,
            label=label,
        )


def student_interval(values: NDArray[np.float64]) -> Interval:
    """Return Student's interval of the mean: of two launches, say, the bootstrap's would be far too narrow."""
    from scipy import special

    n = len(values)
    if n < 2:
        return Interval(-math.inf, math.inf, CONFIDENCE)
    half = float(special.stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * float(values.std(ddof=1)) / math.sqrt(n)
    return Interval(float(values.mean()) - half, float(values.mean()) + half, CONFIDENCE)


def find_spells(pairs: Sequence[ExchangePair]) -> dict[str, list[ExchangePair]]:
    """Return the requests of each launch and workload by name (``1-offline``), in order of time.

    Of a baseline alone, only each workload: where the other arm's turns are not seen, launches cannot be told.
    """
    idle_s = math.inf if all(pair.candidate is None for pair in pairs) else IDLE_S
    spells: dict[str, list[ExchangePair]] = {}
    launch, busy_until_s = 1, math.inf
    for began_s, until_s, pair in sorted(_uses(pairs), key=lambda use: use[0]):
        launch += began_s - busy_until_s > idle_s
        busy_until_s = until_s if math.isinf(busy_until_s) else max(busy_until_s, until_s)
        if pair is not None:
            spells.setdefault(f"{launch}-{pair.workload}", []).append(pair)
    return {name: spell for name, spell in spells.items() if len(spell) >= FEWEST_REQUESTS}


def _uses(pairs: Iterable[ExchangePair]) -> list[tuple[float, float, ExchangePair | None]]:
    """Return (sent, finished, pair) of every exchange; the pair goes with that of the arm that is judged."""
    uses: list[tuple[float, float, ExchangePair | None]] = []
    for pair in pairs:
        judged = pair.baseline if pair.candidate is None else pair.candidate
        uses.append((judged.sent_s, judged.finished_s, pair))
        if pair.candidate is not None:
            uses.append((pair.baseline.sent_s, pair.baseline.finished_s, None))
    return uses


def span_s(spell: Sequence[ExchangePair]) -> float:
    """Return the seconds in which the judged arm had any of these requests."""
    exchanges = sorted((arm_of(pair, "candidate") or pair.baseline for pair in spell), key=lambda each: each.sent_s)
    total, until_s = 0.0, -math.inf
    for each in exchanges:
        total += max(0.0, each.finished_s - max(each.sent_s, until_s))
        until_s = max(until_s, each.finished_s)
    return total


def arm_of(pair: ExchangePair, arm: str) -> Exchange | None:
    """Return one arm's exchange."""
    return pair.baseline if arm == "baseline" else pair.candidate


def growth(spell: Sequence[ExchangePair]) -> float | None:
    """Return by how much ln(e2e of the candidate / e2e of the baseline) grows from the first request to the last.

    ``None`` where too few requests were answered by both arms.
    """
    times_s, ratios = [], []
    for pair in spell:
        ours, theirs = measure(pair.baseline), None if pair.candidate is None else measure(pair.candidate)
        if isinstance(ours, ExchangeMetrics) and isinstance(theirs, ExchangeMetrics) and pair.candidate is not None:
            times_s.append(pair.candidate.scheduled_s)
            ratios.append(math.log(max(theirs.e2e_s, 1e-6) / max(ours.e2e_s, 1e-6)))
    if len(times_s) < FEWEST_REQUESTS or max(times_s) <= min(times_s):
        return None
    return slope(np.array(times_s), np.array(ratios)) * (max(times_s) - min(times_s))


def slope(times_s: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    """Return the median slope of all pairs of points at different times, per second (Theil 1950, Sen 1968)."""
    first, second = np.triu_indices(len(times_s), k=1)
    apart_s = times_s[second] - times_s[first]
    distinct = apart_s != 0
    return float(np.median((values[second] - values[first])[distinct] / apart_s[distinct]))


def later_failures(spells: Sequence[Sequence[Exchange | None]]) -> float:
    """Return the share of failures in the later halves of spells less that in their earlier halves."""
    shares = []
    for late in (False, True):
        half = [
            exchange
            for spell in spells
            for exchange in (spell[(len(spell) + 1) // 2 :] if late else spell[: len(spell) // 2])
            if exchange is not None
        ]
        failed = sum(not isinstance(measure(exchange), ExchangeMetrics) for exchange in half)
        shares.append(failed / len(half) if half else 0.0)
    return shares[1] - shares[0]


FAMILY = Family(
    marker="soak",
    signature=(
        "soak(errors=0.0, slower_by=0.1, seconds=0): for the clean room: within a launch e2e does not grow and "
        "failures are not more at its end, beyond the baseline's; shares, and the least seconds of timed load"
    ),
    build=SoakGuard,
    arguments={
        "errors": Number(0.0, 0, 1),
        "slower_by": Number(0.10, 0, 10),
        "seconds": Number(0.0, 0),
    },
)
