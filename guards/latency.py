"""``latency``: time to first audio, gaps, real-time factor and underruns, at a quantile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from guards.family import JudgesTimedRequests, Number, read_arguments
from guards.noninferiority import (
    CONFIDENCE,
    FEWEST,
    NUMBER,
    SECONDS,
    SHARE,
    Comparison,
    absolute,
    nothing_heard,
    result,
)
from pytest_rsi.guard import Finding
from pytest_rsi.metrics import ExchangeMetrics, measure
from pytest_rsi.stats import Interval

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from guards.noninferiority import Unit
    from pytest_rsi.guard import Better, Evidence, ExchangePair, GuardResult
    from pytest_rsi.recording import Exchange

RESAMPLES = 1000
STATISTICS = ("mean", "p50", "p95", "p99", "max", "min")


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure of a request; ``relative`` says that its margin is a share of the baseline's figure."""

    of: Callable[[ExchangeMetrics], float]
    unit: Unit
    workload: str
    statistic: str = "p95"
    relative: bool = True
    better: Better = "lower"


METRICS = {
    "ttfa": Metric(lambda seen: seen.ttfa_s, SECONDS, "streaming"),
    "ttfb": Metric(lambda seen: seen.ttfb_s, SECONDS, "streaming"),
    "gap": Metric(lambda seen: max(seen.gaps_s, default=0.0), SECONDS, "streaming"),
    "e2e": Metric(lambda seen: seen.e2e_s, SECONDS, "offline"),
    "rtf": Metric(lambda seen: seen.rtf, NUMBER, "offline"),
    "underruns": Metric(lambda seen: float(seen.stalls), NUMBER, "streaming", "mean", relative=False),
    "stalled_s": Metric(lambda seen: seen.stalled_s, SECONDS, "streaming", "mean", relative=False),
    "continuity": Metric(lambda seen: float(seen.stalls == 0), SHARE, "streaming", "mean", False, "higher"),
}


@dataclass(frozen=True, slots=True)
class LatencyGuard(JudgesTimedRequests):
    """Hears waiting: one metric of ``pytest_rsi.metrics`` at one statistic over requests. Unit: the metric's.

    ``gap`` is the longest of each request; ``continuity`` the share of requests without an underrun. The interval
    resamples blocks, then requests inside each, both arms jointly: requests of one block share the machine's moods.
    """

    metric: str
    statistic: str
    limit: float | None
    worse_by: float
    workload: str

    @property
    def name(self) -> str:
        """The name of its test item."""
        standard = METRICS[self.metric].workload
        return f"latency-{self.metric}" + ("" if self.workload == standard else f"-{self.workload}")

    def check(self, evidence: Evidence) -> GuardResult:
        """Compare the statistic of both arms."""
        metric = METRICS[self.metric]
        pairs = [pair for pair in evidence.pairs if pair.workload == self.workload]
        alone = all(pair.candidate is None for pair in pairs)
        rows = [
            (pair.request.id, block, before, before if alone else _figure(metric, pair.candidate))
            for pair, block in zip(pairs, _blocks(pairs), strict=True)
            if (before := _figure(metric, pair.baseline)) is not None and math.isfinite(before)
        ]
        kept = [(name, block, before, after) for name, block, before, after in rows if after is not None]
        if not kept:
            there = ", ".join(sorted({pair.workload for pair in evidence.pairs})) or "none"
            return nothing_heard(self.name, f"no answered request of workload {self.workload!r} (workloads: {there})")
        ids = [name for name, _, _, _ in kept]
        old, new = np.array([row[2] for row in kept]), np.array([row[3] for row in kept])
        label = f"{self.metric}" + ("" if self.metric == "continuity" else f" {self.statistic}")
        if alone:
            value = statistic(old, self.statistic)
            return result(self.name, [absolute(label, metric.unit, value, self.limit, metric.better)], len(kept))
        mute = [name for name, value in zip(ids, new, strict=True) if not math.isfinite(value)]
        if mute:
            text = f"{self.metric}: {len(mute)} answers without audible audio where the baseline has some ({mute[0]})"
            return result(self.name, [Finding("failed", text, limit=self.limit)], len(kept))
        finding = self._compare(label, ids, old, new, np.array([row[1] for row in kept]), evidence.seed)
        return result(self.name, [finding], len(kept))

    def _compare(
        self,
        label: str,
        ids: Sequence[str],
        old: NDArray[np.float64],
        new: NDArray[np.float64],
        blocks: NDArray[np.int64],
        seed: int,
    ) -> Finding:
        metric = METRICS[self.metric]
        drawn = [
            _difference(statistic(old[picked], self.statistic), statistic(new[picked], self.statistic), metric.relative)
            for picked in _resamples(blocks, seed)
        ]
        tail = (1 - CONFIDENCE) / 2
        interval = Interval(float(np.quantile(drawn, tail)), float(np.quantile(drawn, 1 - tail)), CONFIDENCE)
        pairwise = [_difference(float(a), float(b), metric.relative) for a, b in zip(old, new, strict=True)]
        return Comparison(
            label=label,
            unit=metric.unit,
            baseline=statistic(old, self.statistic),
            candidate=statistic(new, self.statistic),
            differences=np.array(pairwise),
            ids=ids,
            margin=self.worse_by,
            better=metric.better,
            relative=metric.relative,
            limit=self.limit,
            fewest=_fewest(self.statistic),
        ).finding(seed, interval)


def statistic(values: NDArray[np.float64], name: str) -> float:
    """Return the mean, a percentile (linear between order statistics) or the maximum of some values."""
    if name == "mean":
        return float(values.mean())
    return float(np.quantile(values, {"p50": 0.50, "p95": 0.95, "p99": 0.99, "max": 1.0}[name]))


def _fewest(name: str) -> int:
    """Return how many requests it takes for one of them to lie beyond a percentile."""
    return max(FEWEST, {"p95": 20, "p99": 100}.get(name, 0))


def _figure(metric: Metric, exchange: Exchange | None) -> float | None:
    seen = None if exchange is None else measure(exchange)
    return metric.of(seen) if isinstance(seen, ExchangeMetrics) else None


def _difference(before: float, after: float, relative: bool) -> float:
    if not relative:
        return after - before
    least = 1e-6
    return math.log(max(after, least) / max(before, least))


def _blocks(pairs: Sequence[ExchangePair]) -> list[int]:
    """Return the number of each pair's block: as long as no turn of the other arm lies between, it is one block."""
    turns = sorted(
        (exchange.sent_s, arm, i)
        for i, pair in enumerate(pairs)
        for arm, exchange in enumerate((pair.baseline, pair.candidate))
        if exchange is not None
    )
    run, previous = -1, -1
    runs: list[list[int]] = [[-1, -1] for _ in pairs]
    for _, arm, i in turns:
        run, previous = run + (arm != previous), arm
        runs[i][arm] = run
    names: dict[tuple[int, ...], int] = {}
    return [names.setdefault(tuple(found), len(names)) for found in runs]


def _resamples(blocks: NDArray[np.int64], seed: int) -> list[NDArray[np.int64]]:
    """Return draws of requests with replacement: blocks first, then requests inside each (Davison and Hinkley 3.8)."""
    rng = np.random.default_rng(seed)
    members = [np.flatnonzero(blocks == block) for block in np.unique(blocks)]
    drawn = []
    for _ in range(RESAMPLES):
        chosen = [members[i] for i in rng.integers(len(members), size=len(members))]
        drawn.append(np.concatenate([block[rng.integers(len(block), size=len(block))] for block in chosen]))
    return drawn


@dataclass(frozen=True, slots=True)
class LatencyFamily:
    """The marker ``latency``: a metric by position, and at most one statistic by keyword, with its absolute limit."""

    marker: str = "latency"
    signature: str = (
        "latency(metric, p95=None, worse_by=0.05, workload=...): ttfa, ttfb, gap, e2e, rtf, underruns, stalled_s or "
        "continuity; mean=, p50=, p95=, p99= or max= (continuity: min=) names the statistic and its absolute limit; "
        "worse_by is a share for times and rtf, else absolute"
    )

    def make(self, *args: Any, **kwargs: Any) -> LatencyGuard:  # noqa: ANN401  (what a marker was given)
        """Return the guard.

        Raises:
            ValueError: an argument is unknown or not what is expected.
        """
        if len(args) != 1 or args[0] not in METRICS:
            shown = ", ".join(map(repr, args)) or "nothing"
            raise ValueError(f"latency: metric {shown}, expected one of {', '.join(METRICS)}")
        metric = METRICS[args[0]]
        workload = kwargs.pop("workload", metric.workload)
        if not isinstance(workload, str) or not workload:
            raise ValueError(f"latency: workload={workload!r}, expected the name of a workload")
        allowed = ("min",) if metric.better == "higher" else STATISTICS[:-1]
        chosen = [name for name in kwargs if name in STATISTICS]
        if len(chosen) > 1 or any(name not in allowed for name in chosen):
            raise ValueError(
                f"latency: {args[0]} with {', '.join(chosen)}, expected at most one of {', '.join(allowed)}"
            )
        numbers = {"worse_by": Number(0.05)} | {name: Number(None) for name in allowed}
        values = read_arguments(self.marker, numbers, kwargs)
        name = chosen[0] if chosen else metric.statistic
        return LatencyGuard(
            metric=args[0],
            statistic="mean" if name == "min" else name,
            limit=values.get(name),  # type: ignore[arg-type]  # all are numbers
            worse_by=values["worse_by"],  # type: ignore[arg-type]
            workload=workload,
        )


FAMILY = LatencyFamily()
