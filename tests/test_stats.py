"""Formulas against hand-worked values and second implementations."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate
from scipy import stats as scipy_stats
from statsmodels.stats.power import TTestPower
from statsmodels.stats.weightstats import DescrStatsW

from pytest_rsi.stats import (
    BORROWED_FREEDOM,
    EFFECT_VARIANCE,
    NoiseFloor,
    bootstrap_interval,
    borrowed_variance,
    detectable_effect,
    fixed_decide,
    geometric_mean_ratio,
    hierarchical_bootstrap,
    hodges_lehmann,
    log_evidence,
    pairs_needed,
    percentile_difference_interval,
    sequence_interval,
    signed_rank_interval,
)

FLOAT = st.floats(-1, 1, allow_nan=False).map(lambda x: round(x, 4))
SERIES = st.lists(FLOAT, min_size=3, max_size=12)
SCALE = st.floats(0.1, 10)
FLOOR = [0.01, -0.02, 0.015, -0.005, 0.0]


def test_hodges_lehmann_by_hand() -> None:
    assert hodges_lehmann([1.0, 2.0, 9.0]) == pytest.approx(3.5)  # Walsh averages 1, 1.5, 5, 2, 5.5, 9
    assert hodges_lehmann([0.4]) == 0.4


@given(SERIES, FLOAT, SCALE)
def test_hodges_lehmann_follows_shift_scale_and_sign(d: list[float], shift: float, scale: float) -> None:
    here = hodges_lehmann(d)
    assert hodges_lehmann(scale * np.array(d) + shift) == pytest.approx(scale * here + shift, abs=1e-9)
    assert hodges_lehmann(-np.array(d)) == pytest.approx(-here, abs=1e-9)


def test_the_signed_rank_interval_by_hand() -> None:
    # Six pairs: P(W+ = 0) = 1 / 64, so one Walsh average may go at each end for 95 %, and the interval has 96.9 %.
    interval = signed_rank_interval([6.0, 1.0, 4.0, 2.0, 5.0, 3.0], 0.95)
    assert (interval.low, interval.high, interval.confidence) == (1.0, 6.0, 1 - 2 / 64)


@given(st.lists(FLOAT, min_size=8, max_size=14), FLOAT, SCALE)
def test_the_signed_rank_interval_follows_shift_scale_and_sign(d: list[float], shift: float, scale: float) -> None:
    here, turned = signed_rank_interval(d, 0.95), signed_rank_interval(-np.array(d), 0.95)
    there = signed_rank_interval(scale * np.array(d) + shift, 0.95)
    assert (there.low, there.high) == pytest.approx((scale * here.low + shift, scale * here.high + shift), abs=1e-9)
    assert (turned.low, turned.high) == (-here.high, -here.low)
    assert here.low <= hodges_lehmann(d) <= here.high
    wider = signed_rank_interval(d, 0.99)
    assert wider.low <= here.low <= here.high <= wider.high


@pytest.mark.parametrize(("n", "confidence"), [(6, 0.95), (8, 0.99), (9, 0.99), (12, 0.95), (12, 0.99), (20, 0.9)])
def test_the_signed_rank_interval_is_what_scipys_exact_test_does_not_reject(n: int, confidence: float) -> None:
    d = np.random.default_rng(n).normal(0.03, 0.05, n)
    interval = signed_rank_interval(d, confidence)
    step = 1e-9
    for end, inside in ((interval.low, 1), (interval.high, -1)):
        kept = scipy_stats.wilcoxon(d - (end + inside * step), mode="exact").pvalue
        lost = scipy_stats.wilcoxon(d - (end - inside * step), mode="exact").pvalue
        assert kept > 1 - confidence >= lost
    assert interval.confidence >= confidence


def test_the_signed_rank_interval_covers_what_it_says() -> None:
    rng = np.random.default_rng(7)
    trials = [signed_rank_interval(rng.normal(0.1, 1, 8), 0.99) for _ in range(4000)]
    covered = np.mean([trial.low <= 0.1 <= trial.high for trial in trials])
    assert abs(covered - trials[0].confidence) < 4 * math.sqrt(0.01 * 0.99 / 4000)


@pytest.mark.parametrize(("n", "confidence"), [(5, 0.95), (7, 0.99), (1, 0.5)])
def test_too_few_pairs_give_no_interval(n: int, confidence: float) -> None:
    interval = signed_rank_interval([0.1] * n, confidence)
    assert (interval.low, interval.high) == (-math.inf, math.inf)
    assert fixed_decide([0.5] * n, floor=None, min_speedup=1.01, confidence=confidence).verdict == "inconclusive"


@pytest.mark.parametrize("borrowed", [0, 4])
@pytest.mark.parametrize("null", [-0.05, 0.03, 0.2])
def test_the_evidence_is_a_mixture_of_noncentral_t_over_t(null: float, borrowed: int) -> None:
    # Sigma's right Haar prior makes it the likelihood ratio of the t statistic, on all degrees of freedom together.
    d, lent = np.array([0.12, 0.05, 0.09]), 0.002 if borrowed else 0.0
    n, freedom = len(d), len(d) - 1 + borrowed
    squares = float(np.sum((d - d.mean()) ** 2)) + lent
    t = math.sqrt(n) * (d.mean() - null) / math.sqrt(squares / freedom)
    prior = scipy_stats.halfnorm(scale=math.sqrt(EFFECT_VARIANCE))
    central = scipy_stats.t.pdf(t, freedom)

    def integrand(effect: float) -> float:
        return float(prior.pdf(effect) * scipy_stats.nct.pdf(t, freedom, effect * math.sqrt(n)) / central)

    mixed, _ = integrate.quad(integrand, 0, 16, limit=200)
    evidence = log_evidence(null, mean=d.mean(), squares=squares, pairs=n, borrowed=borrowed)
    assert float(evidence) == pytest.approx(math.log(mixed), abs=1e-5)


@pytest.mark.parametrize("borrowed", [0, 4])
def test_the_evidence_rarely_ever_passes_its_bound(borrowed: int) -> None:
    # Ville: over all looks together, 1 / alpha is passed with probability alpha at most; and not far more rarely.
    runs, looks, alpha = 20_000, 60, 0.05
    rng = np.random.default_rng(11)
    d, lent = rng.normal(0.03, 0.02, (runs, looks)), 0.02**2 * rng.chisquare(borrowed, runs) if borrowed else 0.0
    passed = np.zeros(runs, dtype=bool)
    for n in range(2, looks + 1):
        mean, squares = d[:, :n].mean(axis=1), d[:, :n].var(axis=1) * n
        evidence = log_evidence(0.03, mean=mean, squares=squares + lent, pairs=n, borrowed=borrowed)
        passed |= evidence >= -math.log(alpha)
    assert alpha / 4 < passed.mean() <= alpha


@given(SERIES, FLOAT, FLOAT)
def test_the_evidence_falls_as_the_null_rises(d: list[float], one: float, other: float) -> None:
    squares = float(np.sum((np.array(d) - np.mean(d)) ** 2)) + 1e-3
    low, high = log_evidence([min(one, other), max(one, other)], mean=np.mean(d), squares=squares, pairs=len(d))
    assert high <= low + 1e-9


@given(SERIES, FLOAT, SCALE, st.booleans())
def test_the_sequence_follows_shift_scale_and_sign(d: list[float], shift: float, scale: float, lend: bool) -> None:
    floor = NoiseFloor.from_pairs(FLOOR) if lend else None
    scaled = NoiseFloor.from_pairs(scale * np.array(FLOOR)) if lend else None
    here, turned = sequence_interval(d, 0.95, floor), sequence_interval(-np.array(d), 0.95, floor)
    there = sequence_interval(scale * np.array(d) + shift, 0.95, scaled)
    assert (there.low, there.high) == pytest.approx((scale * here.low + shift, scale * here.high + shift), abs=1e-6)
    assert (turned.low, turned.high) == pytest.approx((-here.high, -here.low), abs=1e-6)
    assert here.low <= np.mean(d) <= here.high
    wider = sequence_interval(d, 0.99, floor)
    assert wider.low <= here.low
    assert wider.high >= here.high


def test_the_ends_of_the_sequence_are_where_the_evidence_is_enough() -> None:
    d = np.array([0.11, 0.08, 0.12, 0.09, 0.1, 0.13])
    low = sequence_interval(d, 0.99).low
    evidence = log_evidence(low, mean=d.mean(), squares=float(np.sum((d - d.mean()) ** 2)), pairs=6)
    assert math.exp(evidence) == pytest.approx(200)


@pytest.mark.parametrize(("n", "bounded"), [(1, False), (3, False), (4, False), (5, True)])
def test_equal_pairs_are_no_proof_before_there_are_enough(n: int, bounded: bool) -> None:
    # Without spread the evidence is 2 (1 + 4 n)^((n - 1) / 2): 26 for three pairs, 140 for four, 882 for five.
    low = sequence_interval([0.1] * n, 0.99).low
    assert low == (pytest.approx(0.1) if bounded else -math.inf)


def test_a_noise_floor_sharpens_a_quiet_day_and_not_a_noisy_one() -> None:
    floor = NoiseFloor.from_pairs([0.01, -0.01, 0.012, -0.012, 0.0, 0.004])
    quiet, noisy = [0.11, 0.10, 0.09], [0.4, -0.3, 0.2]
    assert sequence_interval(quiet, 0.99, floor).low > sequence_interval(quiet, 0.99).low
    assert sequence_interval(noisy, 0.99, floor) == sequence_interval(noisy, 0.99)


def test_a_noise_floor_lends_few_degrees_of_freedom() -> None:
    short, long = NoiseFloor.from_pairs([0.01, -0.01, 0.02]), NoiseFloor.from_pairs([0.01, -0.01] * 10)
    assert borrowed_variance(short, 3, 0.0) == (pytest.approx(2 * short.sd**2), 2)
    assert borrowed_variance(long, 3, 0.0) == (pytest.approx(BORROWED_FREEDOM * long.sd**2), BORROWED_FREEDOM)
    assert borrowed_variance(long, 3, 2 * (3 * long.sd) ** 2) == (0.0, 0)
    assert borrowed_variance(None, 3, 0.1) == (0.0, 0)
    assert borrowed_variance(NoiseFloor.from_pairs([0.01] * 4), 3, 0.1) == (0.0, 0)


def test_the_noise_floor_by_hand() -> None:
    d = [0.02, -0.02, 0.04, -0.04]
    floor = NoiseFloor.from_pairs(d)
    assert floor.sd == pytest.approx(math.sqrt(0.004 / 3))
    assert (floor.sum_of_squares, floor.freedom, floor.estimate) == (pytest.approx(0.004), 3, pytest.approx(0.0))
    low, high = DescrStatsW(d).tconfint_mean(alpha=0.05)
    assert floor.half_width == pytest.approx((high - low) / 2)
    assert not floor.biased
    assert NoiseFloor.from_pairs([0.1, 0.11, 0.09]).biased
    with pytest.raises(ValueError, match="at least 2"):
        NoiseFloor.from_pairs([0.1])


def test_the_noise_floor_survives_being_written_down() -> None:
    floor = NoiseFloor.from_pairs(FLOOR)
    assert NoiseFloor(**json.loads(json.dumps(asdict(floor)))) == floor
    # Floors written before the estimate was kept go by the mean.
    assert NoiseFloor(pairs=9, mean=0.1, sd=0.03, half_width=0.02).biased


def test_planning_agrees_with_simulation() -> None:
    sd, effect = 0.03, 0.06
    n = pairs_needed(sd, effect, confidence=0.99, power=0.9)
    rng = np.random.default_rng(3)
    won = np.mean([signed_rank_interval(rng.normal(effect, sd, n), 0.99).low > 0 for _ in range(1500)])
    assert won > 0.86
    assert detectable_effect(sd, n, confidence=0.99, power=0.9) <= math.exp(effect)
    assert detectable_effect(sd, 7, confidence=0.99, power=0.9) == math.inf
    assert pairs_needed(sd, 1.0, confidence=0.99, power=0.9) == 8
    with pytest.raises(ValueError, match="expected a positive"):
        pairs_needed(sd, 0.0, confidence=0.99, power=0.9)


@pytest.mark.parametrize("ratio", [0.2, 0.5, 0.7, 1.0])
def test_planning_agrees_with_students_test(ratio: float) -> None:
    # Of normal data the signed-rank test uses 3 / pi = 95.5 %, so it needs a little more than Student's.
    student = TTestPower().solve_power(effect_size=ratio, alpha=0.01, power=0.9)
    needed = pairs_needed(0.03, 0.03 * ratio, confidence=0.99, power=0.9)
    assert 0.97 * student <= needed <= 1.1 * student + 2


def test_bootstrap_of_nothing_of_equals_and_of_real_differences() -> None:
    assert bootstrap_interval([], seed=1).high == math.inf
    assert bootstrap_interval([0.1], seed=1).low == -math.inf
    assert bootstrap_interval([0.0] * 10, seed=1) == bootstrap_interval([0.0] * 50, seed=2)
    d = np.random.default_rng(5).normal(1.0, 2.0, 200)
    interval = bootstrap_interval(d, seed=1)
    student = scipy_stats.t.interval(0.95, 199, d.mean(), d.std(ddof=1) / math.sqrt(200))
    assert (interval.low, interval.high) == pytest.approx(student, abs=0.05)
    assert bootstrap_interval(d, seed=1, side="upper").low == -math.inf
    assert bootstrap_interval(d, seed=1, side="upper").high < interval.high


def test_the_bootstrap_agrees_with_scipys() -> None:
    d = np.random.default_rng(6).exponential(1.0, 40)
    for statistic in (None, lambda drawn: np.median(drawn, axis=-1)):
        ours = bootstrap_interval(d, seed=1, statistic=statistic, resamples=10_000)
        rng = np.random.default_rng(2)
        theirs = scipy_stats.bootstrap((d,), statistic or np.mean, method="percentile", random_state=rng, batch=1000)
        ends = theirs.confidence_interval
        assert (ours.low, ours.high) == pytest.approx((ends.low, ends.high), abs=0.03)


@given(st.lists(FLOAT, min_size=2, max_size=12), FLOAT)
def test_the_bootstrap_moves_with_its_data_and_grows_with_confidence(d: list[float], shift: float) -> None:
    here, there = (bootstrap_interval(np.array(d) + by, seed=3, resamples=200) for by in (0.0, shift))
    assert (there.low, there.high) == pytest.approx((here.low + shift, here.high + shift), abs=1e-9)
    wider = bootstrap_interval(d, seed=3, resamples=200, confidence=0.99)
    assert wider.low <= here.low <= here.high <= wider.high


def test_the_expanded_bootstrap_covers_what_it_says_of_eight_values() -> None:
    rng = np.random.default_rng(8)
    covered = {True: 0, False: 0}
    for seed in range(1000):
        d = rng.normal(1.0, 1.0, 8)
        for expanded in covered:
            interval = bootstrap_interval(d, seed=seed, expanded=expanded, resamples=1000)
            covered[expanded] += interval.low <= 1.0 <= interval.high
    assert covered[True] >= 930
    assert covered[False] < covered[True]


def test_percentile_differences_are_paired() -> None:
    base = np.random.default_rng(2).exponential(1.0, 60)
    same = percentile_difference_interval(base, base, 0.95, seed=1)
    assert (same.low, same.high) == (0.0, 0.0)
    later = percentile_difference_interval(base, base + 0.3, 0.95, seed=1)
    assert (later.low, later.high) == pytest.approx((0.3, 0.3))
    slower = percentile_difference_interval(base, 1.2 * base, 0.95, seed=1, relative=True)
    assert (slower.low, slower.high) == pytest.approx((math.log(1.2), math.log(1.2)))
    assert percentile_difference_interval(base, base + 0.3, 0.5, seed=1, side="upper").low == -math.inf
    assert percentile_difference_interval([1.0], [2.0], 0.5, seed=1).high == math.inf
    with pytest.raises(ValueError, match="expected pairs"):
        percentile_difference_interval(base, base[:5], 0.5, seed=1)
    with pytest.raises(ValueError, match="expected positive"):
        percentile_difference_interval(base, -base, 0.5, seed=1, relative=True)


def test_percentile_differences_cover_the_true_one() -> None:
    rng = np.random.default_rng(4)
    truth = float(scipy_stats.lognorm.ppf(0.9, 0.5)) * 0.1
    covered = 0
    for seed in range(300):
        base = rng.lognormal(0.0, 0.5, 100)
        interval = percentile_difference_interval(base, 1.1 * base, 0.9, seed=seed, resamples=400)
        covered += interval.low <= truth <= interval.high
    assert covered / 300 > 0.95 - 3 * math.sqrt(0.95 * 0.05 / 300)


def test_the_hierarchical_bootstrap_sees_launches_not_blocks() -> None:
    levels = [0.1, 0.2, 0.15, 0.12, 0.18, 0.14]
    launches = [[level + noise for noise in (-0.001, 0.001)] for level in levels]
    interval = hierarchical_bootstrap(launches, confidence=0.95, seed=1)
    student = DescrStatsW(levels).tconfint_mean(alpha=0.05)
    assert (interval.low, interval.high) == pytest.approx(student, abs=0.006)
    assert hierarchical_bootstrap([[0.1, 0.2, 0.3]], confidence=0.95, seed=1).low == -math.inf


def test_the_geometric_mean_of_ratios() -> None:
    assert geometric_mean_ratio([2.0, 0.5]) == pytest.approx(1.0)
    ratios = [1.1, 1.3, 0.97]
    assert geometric_mean_ratio(ratios) == pytest.approx(scipy_stats.gmean(ratios))
    for wrong in ([], [1.1, 0.0], [1.1, math.nan], [[1.1]]):
        with pytest.raises(ValueError, match="expected one or more above 0"):
            geometric_mean_ratio(wrong)


def test_values_that_are_no_numbers_are_refused() -> None:
    for values, function in itertools.product(
        ([math.nan, 0.1], [[0.1], [0.2]]), (hodges_lehmann, NoiseFloor.from_pairs)
    ):
        with pytest.raises(ValueError, match=r"not numbers|expected \[n\]"):
            function(values)
