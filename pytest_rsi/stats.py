"""Statistics of paired log-ratios: estimates, intervals, sequential stopping, the noise floor. Pure functions.

``d`` is always float [n]: for each launch pair, ln(throughput of the candidate / throughput of the baseline). Every
function here raises ``ValueError`` for an array of another shape and for values that are not numbers.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

Verdict = Literal["improved", "regressed", "inconclusive"]
Side = Literal["two", "upper", "lower"]

FIRST_LOOK = 3
EFFECT_VARIANCE = 4.0
"""Mixture variance of the sequential test, in units of the variance of one pair: sharpest for three to eight pairs."""
BORROWED_FREEDOM = 4
NOISIER_ALPHA = 0.3
"""With these two, false wins stay under 1 % at 99 % confidence however much noisier today is than the noise floor."""
SIMULATED_PAIRS = 64
FUTILITY = 0.05
FUTILITY_OPTIMISM = 1.0
LIMIT = 700.0
"""The largest log-ratio: just below what a float's exponential can hold."""


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
    ``estimate`` is the Hodges-Lehmann estimate, ``None`` where it was not recorded.
    """

    pairs: int
    mean: float
    sd: float
    half_width: float
    estimate: float | None = None

    @classmethod
    def from_pairs(cls, d: ArrayLike) -> NoiseFloor:
        """Return the floor of A/A pairs.

        Raises:
            ValueError: fewer than two pairs, or values that are not numbers.
        """
        from scipy import special

        values = _checked(d, least=2)
        n, sd = len(values), float(np.std(values, ddof=1))
        half_width = float(special.stdtrit(n - 1, 0.975)) * sd / math.sqrt(n)
        return cls(n, float(np.mean(values)), sd, half_width, hodges_lehmann(values))

    @property
    def freedom(self) -> int:
        """Degrees of freedom of ``sd``."""
        return self.pairs - 1

    @property
    def sum_of_squares(self) -> float:
        """Sum of squared deviations from the mean."""
        return self.sd**2 * self.freedom

    @property
    def biased(self) -> bool:
        """Whether the rig favours one arm: the estimate is further than two standard errors from zero."""
        estimate = self.mean if self.estimate is None else self.estimate
        return abs(estimate) > 2 * self.sd / math.sqrt(self.pairs)


@dataclass(frozen=True, slots=True)
class Decision:
    """What the pairs so far say. ``estimate`` and the intervals are log-ratios; ``reason`` is one line for people.

    ``estimate`` is Hodges and Lehmann's, ``interval`` the one that decided, ``exact`` the signed-rank one.
    """

    verdict: Verdict
    stop: bool
    reason: str
    estimate: float
    interval: Interval
    exact: Interval


def hodges_lehmann(d: ArrayLike) -> float:
    """Return the median of all Walsh averages (Hodges and Lehmann 1963)."""
    return float(np.median(_walsh(_checked(d, least=1))))


def signed_rank_interval(d: ArrayLike, confidence: float) -> Interval:
    """Return the exact two-sided interval that inverts Wilcoxon's signed-rank test (Hollander and Wolfe, 3.3).

    Its ends are Walsh averages. With too few pairs for the confidence (under 6 for 95 %, under 8 for 99 %) it is
    unbounded.
    """
    values = _checked(d, least=1)
    tails, k = _cut(len(values), confidence)
    if k == 0:
        return Interval(-math.inf, math.inf, 1.0)
    walsh = np.sort(_walsh(values))
    return Interval(float(walsh[k - 1]), float(walsh[-k]), 1 - 2 * float(tails[k - 1]))


def log_evidence(
    null: ArrayLike, *, mean: ArrayLike, squares: ArrayLike, pairs: int, borrowed: int = 0
) -> NDArray[np.float64]:
    """Return ln of the e-value of the one-sided anytime-valid t-test against means up to ``null``; broadcasts.

    ``squares``, above 0, is the sum of squared deviations of the pairs from their mean, plus the borrowed one on
    ``borrowed`` degrees of freedom. At a true mean of ``null`` its exponential is a martingale over pairs that starts
    at 1, so by Ville's inequality it ever exceeds 1 / alpha with probability alpha at most. It is the ratio of marginal
    likelihoods under sigma's right Haar prior 1 / sigma, with the effect (mean - null) / sigma half-normal of variance
    g = ``EFFECT_VARIANCE`` against an effect of 0 (Lai 1976; Wang and Ramdas 2025)::

        2 (1 + n g)^(-1/2) (SS0 / SS1)^(N / 2) P(mean > null | data),  SS0 = squares + u,  SS1 = squares + u / (1 + n g)

    where N = n + ``borrowed``, u = n (mean - null)^2, and the posterior of the effect is Student's t on N degrees of
    freedom. By the monotone likelihood ratio of t it falls as ``null`` rises, so it tests all lower means as well.
    """
    from scipy import special

    g, total = EFFECT_VARIANCE, pairs + borrowed
    above = np.asarray(mean, dtype=np.float64) - np.asarray(null, dtype=np.float64)
    u, spread = pairs * above**2, np.asarray(squares, dtype=np.float64)
    shrunk = spread + u / (1 + pairs * g)
    t = np.sqrt(pairs * u * g / (1 + pairs * g) * total / shrunk) * np.sign(above)
    two_sided = total / 2 * np.log((spread + u) / shrunk) - math.log1p(pairs * g) / 2
    evidence: NDArray[np.float64] = two_sided + np.log(2 * special.stdtr(total, t))
    return evidence


def borrowed_variance(floor: NoiseFloor | None, pairs: int, squares: float) -> tuple[float, int]:
    """Return (sum of squares, degrees of freedom) that the noise floor lends to ``pairs`` with these ``squares``.

    Nothing if they are significantly noisier than the floor (F-test), and never more than ``BORROWED_FREEDOM``: stale
    A/A pairs must not make today's noise look like a gain.
    """
    if floor is None or floor.pairs < 2 or floor.sd == 0:
        return 0.0, 0
    if pairs > 1:
        from scipy import special

        ratio = squares / (pairs - 1) / floor.sd**2
        if special.fdtrc(pairs - 1, floor.freedom, ratio) < NOISIER_ALPHA:
            return 0.0, 0
    freedom = min(floor.freedom, BORROWED_FREEDOM)
    return floor.sd**2 * freedom, freedom


def sequence_interval(d: ArrayLike, confidence: float, floor: NoiseFloor | None = None) -> Interval:
    """Return the always-valid interval for the mean: right with the given confidence at every look together.

    It inverts the one-sided tests of ``log_evidence`` in both directions, each at half the error. A/A pairs of the
    noise floor enter as data on sigma alone (``borrowed_variance``). With too few pairs it is unbounded.
    """
    values = _checked(d, least=1)
    n, mean, squares = len(values), float(np.mean(values)), _squares(values)
    lent, freedom = borrowed_variance(floor, n, squares)
    distance = _distance(n, squares + lent, freedom, (1 - confidence) / 2)
    low, high = mean - distance, mean + distance
    return Interval(low if low > -LIMIT else -math.inf, high if high < LIMIT else math.inf, confidence)


def decide(
    d: ArrayLike, *, floor: NoiseFloor | None, min_speedup: float, confidence: float, max_pairs: int
) -> Decision:
    """Decide after any number of pairs whether to stop, and with what verdict; looking early costs no false wins.

    ``improved`` needs the always-valid interval above ``min_speedup`` and above the noise floor. The run stops without
    a win when the interval excludes the gain asked for, when a win within ``max_pairs`` has become unlikely (which can
    only lower the rate of false wins), or at ``max_pairs``.
    """
    values, bar = _checked(d, least=1), _bar(floor, min_speedup)
    n, interval = len(values), sequence_interval(values, confidence, floor)
    shown, gain = _shown(hodges_lehmann(values), interval), f"a gain of {math.exp(bar):.3f}x"
    verdict: Verdict = "inconclusive"
    stop, reason = True, f"{shown}: {n} launch pairs do not show {gain}"
    if n < FIRST_LOOK:
        stop, reason = n >= max_pairs, f"{shown}; {n} of at least {FIRST_LOOK} launch pairs"
    elif interval.low > bar:
        verdict, reason = "improved", f"{shown}, above {math.exp(bar):.3f}x"
    elif interval.high < 0:
        verdict, reason = "regressed", f"{shown}, slower"
    elif interval.high < bar:
        reason = f"{shown}: excludes {gain}"
    elif n < max_pairs and _chance(values, floor, bar, confidence, max_pairs) < FUTILITY:
        reason = f"{shown}: {max_pairs} launch pairs would hardly show {gain}"
    elif n < max_pairs:
        stop, reason = False, f"{shown}, not decided yet"
    return Decision(verdict, stop, reason, hodges_lehmann(values), interval, signed_rank_interval(values, confidence))


def fixed_decide(d: ArrayLike, *, floor: NoiseFloor | None, min_speedup: float, confidence: float) -> Decision:
    """Decide after a number of pairs that was fixed beforehand, by the exact signed-rank interval."""
    values, bar = _checked(d, least=1), _bar(floor, min_speedup)
    interval, estimate = signed_rank_interval(values, confidence), hodges_lehmann(values)
    shown = _shown(estimate, interval)
    verdict: Verdict = "inconclusive"
    reason = f"{shown}: does not show a gain of {math.exp(bar):.3f}x"
    if not math.isfinite(interval.low):
        reason = f"{_ratio(estimate)}x, but {len(values)} launch pairs are too few for {confidence:.0%}"
    elif interval.low > bar:
        verdict, reason = "improved", f"{shown}, above {math.exp(bar):.3f}x"
    elif interval.high < 0:
        verdict, reason = "regressed", f"{shown}, slower"
    return Decision(verdict, True, reason, estimate, interval, interval)


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
    expanded: bool = False,
    resamples: int = 2000,
) -> Interval:
    """Return the bootstrap interval of a statistic (the mean) of paired differences over requests.

    ``statistic`` maps float [resamples, n] to float [resamples]. ``side`` ``upper`` bounds from above only, ``lower``
    from below only. Unbounded for fewer than two differences; degenerate for equal ones.

    The percentile form, because BCa's bias and acceleration cannot be estimated from a handful of requests. Of eight
    normal differences its 95 % interval covers 90 %; ``expanded`` (Hesterberg 2015) makes it as wide as Student's.
    """
    values = _checked(differences, least=0)
    if len(values) < 2:
        return Interval(-math.inf, math.inf, confidence)
    picked = values[_picks(len(values), seed, resamples)]
    drawn = picked.mean(axis=1) if statistic is None else statistic(picked)
    return _percentiles(drawn, confidence, side, n=len(values) if expanded else None)


def percentile_difference_interval(
    baseline: ArrayLike,
    candidate: ArrayLike,
    q: float,
    *,
    seed: int,
    confidence: float = 0.95,
    side: Side = "two",
    relative: bool = False,
    resamples: int = 2000,
) -> Interval:
    """Return the bootstrap interval of candidate - baseline of the ``q``-quantile, requests drawn jointly.

    Both are float [n], in the order of the same requests. With ``relative`` it is the log-ratio of the quantiles.

    Raises:
        ValueError: the lengths differ, or ``relative`` with values that are not positive.
    """
    theirs, ours = _checked(baseline, least=0), _checked(candidate, least=0)
    if len(ours) != len(theirs):
        raise ValueError(f"{len(theirs)} baseline values, {len(ours)} candidate values; expected pairs")
    if relative and not (np.all(ours > 0) and np.all(theirs > 0)):
        raise ValueError("values of 0 or less, expected positive ones for a ratio")
    if len(ours) < 2:
        return Interval(-math.inf, math.inf, confidence)
    picks = _picks(len(ours), seed, resamples)
    after, before = np.quantile(ours[picks], q, axis=1), np.quantile(theirs[picks], q, axis=1)
    return _percentiles(np.log(after / before) if relative else after - before, confidence, side)


def hierarchical_bootstrap(blocks_by_pair: Sequence[ArrayLike], *, confidence: float, seed: int) -> Interval:
    """Return the bootstrap interval of the mean that resamples launch pairs, then blocks inside each: a cross-check.

    ``blocks_by_pair`` has the log-ratios of every block, float [blocks], by launch pair. Unbounded for a single pair;
    expanded as in ``bootstrap_interval``, because launch pairs are few.
    """
    pairs = [_checked(blocks, least=1) for blocks in blocks_by_pair]
    n, resamples, rng = len(pairs), 2000, np.random.default_rng(seed)
    if n < 2:
        return Interval(-math.inf, math.inf, confidence)
    means = np.stack([blocks[rng.integers(len(blocks), size=(resamples, n, len(blocks)))].mean(2) for blocks in pairs])
    drawn = np.take_along_axis(means, rng.integers(n, size=(1, resamples, n)), axis=0)[0]
    return _percentiles(drawn.mean(axis=1), confidence, "two", n=n)


def binomial_interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the exact interval of a share (Clopper and Pearson 1934).

    Raises:
        ValueError: there were no trials, or more successes than trials.
    """
    from scipy.stats import binomtest

    interval = binomtest(successes, trials).proportion_ci(confidence, method="exact")
    return float(interval.low), float(interval.high)


def geometric_mean_ratio(ratios: ArrayLike) -> float:
    """Return the geometric mean of ratios, float [n].

    Raises:
        ValueError: no ratios, or a ratio that is not positive.
    """
    values = np.asarray(ratios, dtype=np.float64)
    if values.ndim != 1 or len(values) == 0 or not np.all(values > 0):
        raise ValueError(f"ratios {values.tolist()}, expected one or more above 0")
    return float(np.exp(np.mean(np.log(values))))


def _checked(values: ArrayLike, *, least: int) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < least:
        raise ValueError(f"array of shape {array.shape}, expected [n] with n of at least {least}")
    if np.isnan(array).any():
        raise ValueError("values that are not numbers")
    # A candidate that answered nothing has a log-ratio of -inf: as bad as can be, but it must stay arithmetic.
    return np.clip(array, -LIMIT, LIMIT)


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


def _cut(n: int, confidence: float) -> tuple[NDArray[np.float64], int]:
    """Return P(W+ <= w) for every w, and how many Walsh averages may be cut off at each end."""
    tails = np.cumsum(_signed_rank_pmf(n))
    return tails, int(np.searchsorted(tails, (1 - confidence) / 2 * (1 + 1e-12), side="right"))


def _squares(values: NDArray[np.float64]) -> float:
    return float(np.sum((values - np.mean(values)) ** 2))


def _distance(pairs: int, squares: float, borrowed: int, alpha: float) -> float:
    """Return how far below the mean of the pairs the one-sided test of level ``alpha`` rejects; ``inf`` if nowhere."""

    def evidence(distance: float, spread: float) -> float:
        return float(log_evidence(-distance, mean=0.0, squares=spread, pairs=pairs, borrowed=borrowed))

    # The evidence of infinite distance, which is that of no spread at all, is finite.
    if evidence(1.0, 0.0) <= -math.log(alpha):
        return math.inf
    scale = math.sqrt(squares)
    if scale == 0:
        return 0.0
    far = 1.0
    while evidence(far, 1.0) <= -math.log(alpha):
        far *= 2
    from scipy import optimize

    return scale * float(optimize.brentq(lambda distance: evidence(distance, 1.0) + math.log(alpha), 0.0, far))


def _bar(floor: NoiseFloor | None, min_speedup: float) -> float:
    return max(math.log(min_speedup), floor.half_width if floor else 0.0)


def _chance(
    values: NDArray[np.float64], floor: NoiseFloor | None, bar: float, confidence: float, max_pairs: int
) -> float:
    """Return the chance of a win at ``max_pairs`` if the truth is one standard error better than it looks."""
    from scipy import special

    n, left, mean = len(values), max_pairs - len(values), float(np.mean(values))
    lent, freedom = borrowed_variance(floor, n, _squares(values))
    sd = math.sqrt((_squares(values) + lent) / (freedom + n - 1))
    if sd == 0:
        return 1.0 if mean > bar else 0.0
    hopeful = mean + FUTILITY_OPTIMISM * sd / math.sqrt(n)
    typical = np.concatenate([values, np.full(left, hopeful)])
    needed = bar + float(np.mean(typical)) - sequence_interval(typical, confidence, floor).low
    return float(special.ndtr((float(np.mean(typical)) - needed) / (sd * math.sqrt(left) / max_pairs)))


@functools.cache
def _needed_effect(n: int, confidence: float, power: float) -> float:
    """Return the effect, in standard deviations of a pair, that n pairs detect; ``inf`` if they have no interval."""
    _, k = _cut(n, confidence)
    if k == 0:
        return math.inf
    noise = np.random.default_rng(0).normal(size=(2000, n))
    i, j = np.triu_indices(n)
    lower_ends = np.partition((noise[:, i] + noise[:, j]) / 2, k - 1, axis=1)[:, k - 1]
    return -float(np.quantile(lower_ends, 1 - power))


def _picks(n: int, seed: int, resamples: int) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(n, size=(resamples, n))


def _percentiles(drawn: NDArray[np.float64], confidence: float, side: Side, *, n: int | None = None) -> Interval:
    """Return the percentile interval of a resampled statistic, expanded for ``n`` values if given."""
    tail = (1 - confidence) / (2 if side == "two" else 1)
    if n is not None:
        from scipy import special

        tail = float(special.ndtr(math.sqrt(n / (n - 1)) * special.stdtrit(n - 1, tail)))
    low = -math.inf if side == "upper" else float(np.quantile(drawn, tail))
    high = math.inf if side == "lower" else float(np.quantile(drawn, 1 - tail))
    return Interval(low, high, confidence)


def _shown(estimate: float, interval: Interval) -> str:
    ends = f"{_ratio(interval.low)}..{_ratio(interval.high)}"
    return f"{_ratio(estimate)}x, {interval.confidence:.1%} interval {ends}"


def _ratio(log_ratio: float) -> str:
    ratio = math.exp(log_ratio)
    return f"{ratio:.3f}" if ratio < 1000 else f"{ratio:.0e}"
