"""A verdict: accepted or rejected, why, and the speed-up with its interval."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pytest_rsi.guard import GuardResult
    from pytest_rsi.machine import Machine
    from pytest_rsi.stats import NoiseFloor

SCHEMA = "pytest-rsi-verdict/1"

Scope = Literal["full", "gate", "baseline"]
Status = Literal["accepted", "rejected"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a candidate is refused.

    ``code`` is ``policy``, ``build``, ``smoke``, ``guard:NAME``, ``speedup`` (not shown to be faster by enough) or
    ``slower:WORKLOAD``.
    """

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the judge, what came of it, and how long it took."""

    name: Literal["policy", "build", "smoke", "guards", "duel"]
    outcome: Literal["passed", "failed"]
    text: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed-up in one workload, or over all (``workload`` is ``all``): geometric mean of throughput ratios.

    ``ratio`` is the Hodges-Lehmann estimate over launch pairs, ``low`` and ``high`` its interval at ``confidence``
    (infinite if there are too few pairs for one), ``pairs`` the ratio of every launch pair; ``baseline_rps`` and
    ``candidate_rps`` are median throughputs in requests/s, ``nan`` for ``all``; ``block_s`` is seconds a request of
    every block of the candidate (of the baseline's, if it was measured against itself).
    """

    workload: str
    ratio: float
    low: float
    high: float
    confidence: float
    pairs: tuple[float, ...]
    baseline_rps: float
    candidate_rps: float
    block_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the wall time of a judgement went, in seconds.

    ``discarded_s`` went into contaminated launch pairs that were measured again; ``overhead_s`` is time in which no
    server worked and no guard listened.
    """

    wall_s: float
    starting_s: float
    warming_s: float
    timed_s: float
    guards_s: float
    discarded_s: float

    @property
    def overhead_s(self) -> float:
        """Wall time that went into nothing else."""
        spent_s = self.starting_s + self.warming_s + self.timed_s + self.guards_s + self.discarded_s
        return self.wall_s - spent_s


@dataclass(frozen=True, slots=True)
class Verdict:
    """Everything the judge found about one candidate (or about the baseline alone, then ``candidate`` is empty).

    ``scope`` says what was measured: ``full``, the ``gate`` without a speed-up, or the ``baseline`` against itself.
    ``base`` and ``commit`` are the commits of the two arms. ``metrics`` are percentiles by workload, such as
    ``metrics["streaming"]["candidate_ttfa_p95_s"]``. ``detectable`` is the smallest speed-up that this run could
    have told from ``min_speedup`` with 90 % power. ``held_out`` says that the requests were drawn fresh, in memory.
    """

    task: str
    candidate: str
    title: str
    overhead_class: str
    sha256: str
    base: str
    commit: str
    scope: Scope
    status: Status
    reasons: tuple[Reason, ...]
    stages: tuple[Stage, ...]
    speeds: tuple[Speed, ...]
    metrics: dict[str, dict[str, float]]
    decision: str
    min_speedup: float
    detectable: float
    guards: tuple[GuardResult, ...]
    floor: NoiseFloor | None
    caveats: tuple[str, ...]
    machine: Machine
    isolation: str
    held_out: bool
    seed: int
    timing: Timing

    @property
    def overall(self) -> Speed | None:
        """The speed-up over all workloads, if it was measured."""
        return next((speed for speed in self.speeds if speed.workload == "all"), None)

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as JSON-ready data; infinite and undefined numbers become ``None``."""
        body = dataclasses.asdict(self)
        body["machine"]["fingerprint"] = self.machine.fingerprint
        body["timing"]["overhead_s"] = self.timing.overhead_s
        cleaned: dict[str, Any] = _finite({"schema": SCHEMA} | body)
        return cleaned


def _finite(value: Any) -> Any:  # noqa: ANN401  (JSON is any shape)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
