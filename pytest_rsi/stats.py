"""Statistics of paired log-ratios: estimates, intervals, sequential stopping, the noise floor. Pure functions.

``d`` is always float [n]: for each launch pair, ln(throughput of the candidate / throughput of the baseline).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

Verdict = Literal["improved", "regressed", "inconclusive"]
Side = Literal["two", "upper", "lower"]

FIRST_LOOK = 3
EFFECT_VARIANCE = 4.0
"""Mixture variance of the sequential test, in units of the variance of one pair: sharpest for three to eight pairs."""
NOISIER_ALPHA = 0.05
SIMULATED_PAIRS = 64
FUTILITY = 0.05
FUTILITY_OPTIMISM = 1.0


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval and its attained confidence; an end without a bound is infinite."""

    low: float
    high: float
    confidence: float


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """What a baseline differs by from itself: ``pairs`` launch pairs, their mean and standard deviation (log-ratios).

    ``half_width`` is half the 95 % Student interval of the mean: the smallest effect that is worth claiming.
    """

    pairs: int
    mean: float
    sd: float
    half_width: float

    @classmethod
    def from_pairs(cls, d: ArrayLike) -> NoiseFloor:
        """Return the floor of A/A pairs.

        Raises:
            ValueError: fewer than two pairs, or values that are not finite.
        """
        values = _checked(d, least=2)
        sd = float(np.std(values, ddof=1))
        half = float(_distributions().t.ppf(0.975, len(values) - 1)) * sd / math.sqrt(len(values))
        return cls(pairs=len(values), mean=float(np.mean(values)), sd=sd, half_width=half)

    @property
    def sum_of_squares(self) -> float:
        """Sum of squared deviations from the mean, on ``pairs`` - 1 degrees of freedom."""
        return self.sd**2 * (self.pairs - 1)

    @property
    def biased(self) -> bool:
        """Whether the rig favours one arm: the mean is further than two standard errors from zero."""
        return abs(self.mean) > 2 * self.sd / math.sqrt(self.pairs)


@dataclass(frozen=True, slots=True)
class Decision:
    """What the pairs so far say. ``estimate`` and ``interval`` are log-ratios; ``reason`` is one line for people."""

    verdict: Verdict
    stop: bool
    reason: str
    estimate: float
    interval: Interval


def hodges_lehmann(d: ArrayLike) -> float:
    """Return the median of all Walsh averages (Hodges and Lehmann 1963)."""
    return float(np.median(_walsh(_checked(d, least=1))))


def signed_rank_interval(d: ArrayLike, confidence: float) -> Interval:
    """Return the exact two-sided interval that inverts Wilcoxon's signed-rank test (Hollander and Wolfe, 3.3).

    Its ends are Walsh averages. With too few pairs for the confidence (under 6 for 95 %, under 8 for 99 %) it is
    unbounded.
    """
    values = _checked(d, least=1)
    n = len(values)
    tails = np.cumsum(_signed_rank_pmf(n))
    # k: how many Walsh averages may be cut off at each end.
    k = int(np.searchsorted(tails, (1 - confidence) / 2 * (1 + 1e-12), side="right"))
    if k == 0:
        return Interval(-math.inf, math.inf, 1.0)
    walsh = np.sort(_walsh(values))
    return Interval(float(walsh[k - 1]), float(walsh[-k]), 1 - 2 * float(tails[k - 1]))


def sequence_interval(d: ArrayLike, confidence: float, floor: NoiseFloor | None = None) -> Interval:
    """Return the always-valid interval for the mean: right with the given confidence at every look together.

    It inverts one-sided anytime-valid t-tests (Lai 1976; Wang and Ramdas 2025): the effect in units of sigma has a
    half-normal mixture of variance ``EFFECT_VARIANCE``, sigma the right Haar prior. A/A pairs of the noise floor enter
    as data on sigma alone, unless these pairs are significantly noisier than they are (F-test).
    """
    values = _checked(d, least=1)
    alpha = (1 - confidence) / 2
    squares, freedom = _borrowed(values, floor)
    if freedom + len(values) < 2:
        return Interval(-math.inf, math.inf, confidence)
    low = _lower_end(values, alpha, squares, freedom)
    return Interval(low, -_lower_end(-values, alpha, squares, freedom), confidence)


def decide(
    d: ArrayLike, *, floor: NoiseFloor | None, min_speedup: float, confidence: float, max_pairs: int
) -> Decision:
    """Decide after any number of pairs whether to stop, and with what verdict; looking early costs no false wins.

    ``improved`` needs the always-valid interval above ``min_speedup`` and above the noise floor. The run stops without
    a win when the interval excludes the gain asked for, when a win within ``max_pairs`` has become unlikely (which can
    only lower the rate of false wins), or at ``max_pairs``.
    """
    values = _checked(d, least=1)
    interval, bar = sequence_interval(values, confidence, floor), _bar(floor, min_speedup)
    n, estimate = len(values), hodges_lehmann(values)
    shown = _shown(estimate, interval, confidence)
    if n < FIRST_LOOK and n < max_pairs:
        return Decision(
            "inconclusive", False, f"{shown}; {n} of at least {FIRST_LOOK} launch pairs", estimate, interval
        )
    if n >= FIRST_LOOK and interval.low > bar:
        return Decision("improved", True, f"{shown}, above {math.exp(bar):.3f}x", estimate, interval)
    if interval.high < 0:
        return Decision("regressed", True, f"{shown}, slower", estimate, interval)
    if interval.high < bar:
        return Decision("inconclusive", True, f"{shown}: excludes a gain of {math.exp(bar):.3f}x", estimate, interval)
    if n >= max_pairs:
        reason = f"{shown}: {n} launch pairs do not show a gain of {math.exp(bar):.3f}x"
        return Decision("inconclusive", True, reason, estimate, interval)
    if _chance(values, floor, bar, confidence, max_pairs) < FUTILITY:
        reason = f"{shown}: {max_pairs} launch pairs would hardly show a gain of {math.exp(bar):.3f}x"
        return Decision("inconclusive", True, reason, estimate, interval)
    return Decision("inconclusive", False, f"{shown}, not decided yet", estimate, interval)


def fixed_decide(d: ArrayLike, *, floor: NoiseFloor | None, min_speedup: float, confidence: float) -> Decision:
    """Decide after a number of pairs that was fixed beforehand, by the exact signed-rank interval."""
    values = _checked(d, least=1)
    interval, bar = signed_rank_interval(values, confidence), _bar(floor, min_speedup)
    estimate = hodges_lehmann(values)
    shown = _shown(estimate, interval, interval.confidence)
    if not math.isfinite(interval.low):
        reason = f"{math.exp(estimate):.3f}x, but {len(values)} launch pairs are too few for {confidence:.0%}"
        return Decision("inconclusive", True, reason, estimate, interval)
    if interval.low > bar:
        return Decision("improved", True, f"{shown}, above {math.exp(bar):.3f}x", estimate, interval)
    if interval.high < 0:
        return Decision("regressed", True, f"{shown}, slower", estimate, interval)
    return Decision("inconclusive", True, f"{shown}: does not show a gain of {math.exp(bar):.3f}x", estimate, interval)


def pairs_needed(sd: float, effect: float, *, confidence: float, power: float) -> int:
    """Return how many pairs the exact signed-rank interval needs to exclude zero when the truth is ``effect``.

    ``sd`` and ``effect`` are log-ratios. Power is by simulation of normal pairs up to 64, by the root of n beyond.

    Raises:
        ValueError: ``effect`` is not positive.
    """
    if effect <= 0:
        raise ValueError(f"effect {effect!r}, expected a positive log-ratio")
    for n in range(1, SIMULATED_PAIRS + 1):
        if sd * _needed_effect(n, confidence, power) <= effect:
            return n
    return math.ceil(SIMULATED_PAIRS * (sd * _needed_effect(SIMULATED_PAIRS, confidence, power) / effect) ** 2)


def detectable_effect(sd: float, pairs: int, *, confidence: float, power: float) -> float:
    """Return the smallest ratio above 1 that a fixed-size design detects; ``inf`` if it has too few pairs."""
    return math.exp(sd * _needed_effect(min(pairs, SIMULATED_PAIRS), confidence, power))


def bootstrap_interval(
    differences: ArrayLike,
    *,
    seed: int,
    confidence: float = 0.95,
    side: Side = "two",
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
    resamples: int = 2000,
) -> Interval:
    """Return the percentile bootstrap interval of a statistic (the mean) of paired differences over requests.

    ``statistic`` maps float [resamples, n] to float [resamples]. ``side`` ``upper`` bounds from above only, ``lower``
    from below only. Unbounded for fewer than two differences; degenerate for equal ones. The percentile form, because
    it has no bias or acceleration to estimate from a handful of requests, where BCa breaks down.
    """
    values = _checked(differences, least=0)
    if len(values) < 2:
        return Interval(-math.inf, math.inf, confidence)
    rng = np.random.default_rng(seed)
    picked = values[rng.integers(len(values), size=(resamples, len(values)))]
    return _percentiles(picked.mean(axis=1) if statistic is None else statistic(picked), confidence, side)


def quantile_difference_interval(
    baseline: ArrayLike, candidate: ArrayLike, q: float, *, seed: int, confidence: float = 0.95, resamples: int = 2000
) -> Interval:
    """Return the bootstrap interval of the difference candidate - baseline of a quantile, requests drawn jointly."""
    ours, theirs = _checked(candidate, least=0), _checked(baseline, least=0)
    if len(ours) != len(theirs):
        raise ValueError(f"{len(theirs)} baseline values, {len(ours)} candidate values; expected pairs")
    if len(ours) < 2:
        return Interval(-math.inf, math.inf, confidence)
    picks = np.random.default_rng(seed).integers(len(ours), size=(resamples, len(ours)))
    differences = np.quantile(ours[picks], q, axis=1) - np.quantile(theirs[picks], q, axis=1)
    return _percentiles(differences, confidence, "two")


def hierarchical_interval(blocks: Sequence[ArrayLike], *, confidence: float, seed: int) -> Interval:
    """Return the bootstrap interval of the mean that resamples launch pairs, then blocks inside each: a cross-check.

    ``blocks`` has the log-ratios of every block, by launch pair.
    """
    pairs = [_checked(pair, least=1) for pair in blocks]
    rng = np.random.default_rng(seed)
    means = np.array(
        [
            np.mean(
                [rng.choice(pairs[i], size=len(pairs[i])).mean() for i in rng.integers(len(pairs), size=len(pairs))]
            )
            for _ in range(1000)
        ]
    )
    return _percentiles(means, confidence, "two")


def _distributions() -> Any:  # noqa: ANN401  (scipy is untyped)
    # Imported at the first figure: a usage error need not wait a second for it.
    from scipy import stats

    return stats


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    from scipy import optimize

    return float(optimize.brentq(function, low, high))


def _checked(values: ArrayLike, *, least: int) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < least:
        raise ValueError(f"array of shape {array.shape}, expected [n] with n of at least {least}")
    if np.isnan(array).any():
        raise ValueError("values that are not numbers")
    # A candidate that answered nothing has a log-ratio of -inf: as bad as can be, but it must stay arithmetic.
    return np.clip(array, -1e3, 1e3)


def _walsh(values: NDArray[np.float64]) -> NDArray[np.float64]:
    i, j = np.triu_indices(len(values))
    walsh: NDArray[np.float64] = (values[i] + values[j]) / 2
    return walsh


@functools.cache
def _signed_rank_pmf(n: int) -> NDArray[np.float64]:
    """Return P(W+ = w) for w = 0 .. n (n + 1) / 2 under the null, by convolution over ranks."""
    counts = np.ones(1)
    for rank in range(1, n + 1):
        grown = np.zeros(len(counts) + rank)
        grown[: len(counts)] += counts
        grown[rank:] += counts
        counts = grown / 2
    return counts


def _borrowed(values: NDArray[np.float64], floor: NoiseFloor | None) -> tuple[float, int]:
    """Return (sum of squares, degrees of freedom) that the noise floor lends, none if today is noisier."""
    if floor is None or floor.pairs < 2 or floor.sd == 0:
        return 0.0, 0
    n = len(values)
    if n > 1:
        ratio = float(np.var(values, ddof=1)) / floor.sd**2
        if float(_distributions().f.sf(ratio, n - 1, floor.pairs - 1)) < NOISIER_ALPHA:
            return 0.0, 0
    return floor.sum_of_squares, floor.pairs - 1


def _lower_end(values: NDArray[np.float64], alpha: float, squares: float, freedom: int) -> float:
    """Return the largest mean below all those that the one-sided test does not reject at ``alpha``."""
    n, mean = len(values), float(np.mean(values))
    spread = squares + float(np.sum((values - mean) ** 2))
    if spread <= 0:
        # Equal pairs and no noise floor: nothing says how wide the interval should be.
        return -math.inf if freedom + n < 3 else mean
    g, total = EFFECT_VARIANCE, freedom + n

    def log_evidence(null: float) -> float:
        u = n * (mean - null) ** 2
        shrunk = spread + u / (1 + n * g)
        t = math.sqrt(n * u * g / (1 + n * g) * total / shrunk) * math.copysign(1, mean - null)
        two_sided = -0.5 * math.log1p(n * g) + total / 2 * math.log((spread + u) / shrunk)
        return two_sided + math.log(2) + float(_distributions().t.logcdf(t, total))

    wanted, scale = -math.log(alpha), math.sqrt(spread / total)
    far = mean - scale
    while log_evidence(far) < wanted:
        far -= 2 * (mean - far)
        if mean - far > 1e6 * scale:
            return -math.inf
    return _root(lambda null: log_evidence(null) - wanted, far, mean)


def _bar(floor: NoiseFloor | None, min_speedup: float) -> float:
    return max(math.log(min_speedup), floor.half_width if floor else 0.0)


def _chance(
    values: NDArray[np.float64], floor: NoiseFloor | None, bar: float, confidence: float, max_pairs: int
) -> float:
    """Return the chance of a win at ``max_pairs`` if the truth is one standard error better than it looks."""
    n, left = len(values), max_pairs - len(values)
    squares, freedom = _borrowed(values, floor)
    spread = squares + float(np.sum((values - np.mean(values)) ** 2))
    sd = math.sqrt(spread / max(1, freedom + n - 1))
    if sd == 0:
        return 1.0 if float(np.mean(values)) > bar else 0.0
    hopeful = float(np.mean(values)) + FUTILITY_OPTIMISM * sd / math.sqrt(n)
    typical = np.concatenate([values, np.full(left, hopeful)])
    width = float(np.mean(typical)) - sequence_interval(typical, confidence, floor).low
    needed = bar + width
    final = (n * float(np.mean(values)) + left * hopeful) / max_pairs
    return float(_distributions().norm.cdf((final - needed) / (sd * math.sqrt(left) / max_pairs)))


@functools.cache
def _needed_effect(n: int, confidence: float, power: float) -> float:
    """Return the effect, in standard deviations of a pair, that n pairs detect; ``inf`` if they have no interval."""
    tails = np.cumsum(_signed_rank_pmf(n))
    k = int(np.searchsorted(tails, (1 - confidence) / 2 * (1 + 1e-12), side="right"))
    if k == 0:
        return math.inf
    noise = np.random.default_rng(0).normal(size=(2000, n))
    i, j = np.triu_indices(n)
    lower_ends = np.partition((noise[:, i] + noise[:, j]) / 2, k - 1, axis=1)[:, k - 1]
    return -float(np.quantile(lower_ends, 1 - power))


def _percentiles(values: NDArray[np.float64], confidence: float, side: Side) -> Interval:
    tail = (1 - confidence) / (2 if side == "two" else 1)
    low = -math.inf if side == "upper" else float(np.quantile(values, tail))
    high = math.inf if side == "lower" else float(np.quantile(values, 1 - tail))
    return Interval(low, high, confidence)


def _shown(estimate: float, interval: Interval, confidence: float) -> str:
    ends = f"{math.exp(interval.low):.3f}..{math.exp(interval.high):.3f}"
    return f"{math.exp(estimate):.3f}x, {confidence:.1%} interval {ends}"
