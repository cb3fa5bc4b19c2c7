"""Formulas against hand-worked values and second implementations."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from pytest_rsi.stats import (
    NoiseFloor,
    bootstrap_interval,
    detectable_effect,
    fixed_decide,
    hierarchical_interval,
    hodges_lehmann,
    pairs_needed,
    quantile_difference_interval,
    sequence_interval,
    signed_rank_interval,
)

FLOAT = st.floats(-1, 1, allow_nan=False).map(lambda x: round(x, 4))
SERIES = st.lists(FLOAT, min_size=3, max_size=12)


def test_hodges_lehmann_by_hand() -> None:
    assert hodges_lehmann([1.0, 2.0, 9.0]) == pytest.approx(3.5)  # Walsh averages 1, 1.5, 5, 2, 5.5, 9
    assert hodges_lehmann([0.4]) == 0.4


@given(SERIES, FLOAT)
def test_hodges_lehmann_moves_with_its_data_and_turns_with_its_sign(d: list[float], shift: float) -> None:
    assert hodges_lehmann(np.array(d) + shift) == pytest.approx(hodges_lehmann(d) + shift, abs=1e-9)
    assert hodges_lehmann(-np.array(d)) == pytest.approx(-hodges_lehmann(d), abs=1e-9)


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


@given(SERIES, FLOAT)
def test_the_sequence_moves_with_its_data_and_turns_with_its_sign(d: list[float], shift: float) -> None:
    floor = NoiseFloor.from_pairs([0.01, -0.02, 0.015, -0.005, 0.0])
    here = sequence_interval(d, 0.95, floor)
    there, turned = sequence_interval(np.array(d) + shift, 0.95, floor), sequence_interval(-np.array(d), 0.95, floor)
    assert there.low == pytest.approx(here.low + shift, abs=1e-6)
    assert (turned.low, turned.high) == pytest.approx((-here.high, -here.low), abs=1e-6)
    assert here.low <= np.mean(d) <= here.high
    wider = sequence_interval(d, 0.99, floor)
    assert wider.low <= here.low
    assert wider.high >= here.high


def test_a_noise_floor_sharpens_a_quiet_day_and_not_a_noisy_one() -> None:
    floor = NoiseFloor.from_pairs([0.01, -0.01, 0.012, -0.012, 0.0, 0.004])
    quiet, noisy = [0.11, 0.10, 0.09], [0.4, -0.3, 0.2]
    assert sequence_interval(quiet, 0.99, floor).low > sequence_interval(quiet, 0.99).low
    assert sequence_interval(noisy, 0.99, floor) == sequence_interval(noisy, 0.99)


def test_the_noise_floor_by_hand() -> None:
    floor = NoiseFloor.from_pairs([0.02, -0.02, 0.04, -0.04])
    assert floor.sd == pytest.approx(math.sqrt(0.004 / 3))
    assert floor.half_width == pytest.approx(3.182446 * floor.sd / 2, rel=1e-5)
    assert not floor.biased
    assert NoiseFloor.from_pairs([0.1, 0.11, 0.09]).biased
    with pytest.raises(ValueError, match="at least 2"):
        NoiseFloor.from_pairs([0.1])


def test_planning_agrees_with_simulation() -> None:
    sd, effect = 0.03, 0.06
    n = pairs_needed(sd, effect, confidence=0.99, power=0.9)
    rng = np.random.default_rng(3)
    won = np.mean([signed_rank_interval(rng.normal(effect, sd, n), 0.99).low > 0 for _ in range(1500)])
    assert won > 0.86
    assert detectable_effect(sd, n, confidence=0.99, power=0.9) <= math.exp(effect)
    assert detectable_effect(sd, 7, confidence=0.99, power=0.9) == math.inf


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


def test_quantile_differences_are_paired() -> None:
    base = np.random.default_rng(2).exponential(1.0, 60)
    same = quantile_difference_interval(base, base, 0.95, seed=1)
    assert (same.low, same.high) == (0.0, 0.0)
    later = quantile_difference_interval(base, base + 0.3, 0.95, seed=1)
    assert (later.low, later.high) == pytest.approx((0.3, 0.3))
    with pytest.raises(ValueError, match="expected pairs"):
        quantile_difference_interval(base, base[:5], 0.5, seed=1)


def test_the_hierarchical_bootstrap_sees_launches_not_blocks() -> None:
    launches = [[level + noise for noise in (-0.001, 0.001)] for level in (0.1, 0.2, 0.15, 0.12, 0.18, 0.14)]
    interval = hierarchical_interval(launches, confidence=0.95, seed=1)
    assert 0.11 < interval.low < 0.15 < interval.high < 0.19


def test_values_that_are_no_numbers_are_refused() -> None:
    for values, function in itertools.product(
        ([math.nan, 0.1], [[0.1], [0.2]]), (hodges_lehmann, NoiseFloor.from_pairs)
    ):
        with pytest.raises(ValueError, match=r"not numbers|expected \[n\]"):
            function(values)
