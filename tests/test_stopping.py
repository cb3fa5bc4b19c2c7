"""The acceptance rule, by simulation: false wins, power, and what stopping early saves."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_rsi.stats import NoiseFloor, decide, fixed_decide, pairs_needed

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]

MIN_SPEEDUP = 1.03
CONFIDENCE = 0.99
RECORDED = np.array(json.loads((Path(__file__).parent / "data" / "aa_tiny_tts.json").read_text())["log_ratios"])
FLOOR_PAIRS = 6


def gaussian(sd: float) -> Draw:
    return lambda rng, n: rng.normal(0.0, sd, n)


def contaminated(sd: float) -> Draw:
    return lambda rng, n: rng.normal(0.0, np.where(rng.random(n) < 0.1, 5 * sd, sd), n)


def recorded(rng: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Resample the recorded A/A pairs, smoothed by a little noise so that ties do not matter, signs at random."""
    spread = float(np.std(RECORDED))
    picked: NDArray[np.float64] = rng.choice(RECORDED - RECORDED.mean(), n) * rng.choice([-1, 1], n)
    return picked + rng.normal(0.0, 0.2 * spread, n)


def simulate(draw: Draw, effect: float, max_pairs: int, runs: int, seed: int) -> tuple[float, float]:
    """Return (share of runs that accept, mean number of pairs)."""
    rng = np.random.default_rng(seed)
    accepted, used = 0, 0
    for _ in range(runs):
        floor = NoiseFloor.from_pairs(draw(rng, FLOOR_PAIRS))
        d = draw(rng, max_pairs) + effect
        for n in range(1, max_pairs + 1):
            decision = decide(d[:n], floor=floor, min_speedup=MIN_SPEEDUP, confidence=CONFIDENCE, max_pairs=max_pairs)
            if decision.stop:
                break
        accepted += decision.verdict == "improved"
        used += n
    return accepted / runs, used / runs


@pytest.mark.parametrize(
    "draw", [gaussian(0.02), contaminated(0.02), recorded], ids=["gaussian", "contaminated", "recorded"]
)
@pytest.mark.parametrize("effect", [0.0, math.log(MIN_SPEEDUP)], ids=["no difference", "just the minimum"])
def test_false_acceptance_is_at_most_one_percent(draw: Draw, effect: float) -> None:
    accepted, _ = simulate(draw, effect, max_pairs=12, runs=500, seed=1)
    # One percent plus three standard errors of 500 runs.
    assert accepted <= 0.01 + 3 * math.sqrt(0.01 * 0.99 / 500)


@pytest.mark.parametrize("draw", [gaussian(0.015), gaussian(0.02), recorded], ids=["sd 1.5 %", "sd 2 %", "recorded"])
def test_ten_percent_is_found_with_power_and_with_few_pairs(draw: Draw) -> None:
    sd = float(np.std(draw(np.random.default_rng(0), 20_000)))
    fixed = pairs_needed(sd, math.log(1.10 / MIN_SPEEDUP), confidence=CONFIDENCE, power=0.9)
    accepted, pairs = simulate(draw, math.log(1.10), max_pairs=2 * fixed, runs=200, seed=2)
    assert accepted >= 0.9
    assert pairs <= 0.6 * fixed


def test_a_null_patch_costs_few_pairs() -> None:
    accepted, pairs = simulate(gaussian(0.02), 0.0, max_pairs=12, runs=200, seed=3)
    assert accepted <= 0.02
    assert pairs < 5


def test_a_slower_candidate_is_called_slower() -> None:
    floor = NoiseFloor.from_pairs([0.01, -0.01, 0.012, -0.008])
    decision = decide([-0.2, -0.21, -0.19], floor=floor, min_speedup=1.03, confidence=0.95, max_pairs=12)
    assert (decision.verdict, decision.stop) == ("regressed", True)


def test_an_answerless_candidate_never_wins() -> None:
    assert decide([-math.inf] * 3, floor=None, min_speedup=1.0, confidence=0.95, max_pairs=3).verdict != "improved"


def test_the_bar_is_the_noise_floor_where_that_is_higher() -> None:
    floor = NoiseFloor.from_pairs([0.2, -0.2, 0.2, -0.2])
    d = [0.1, 0.101, 0.099, 0.1, 0.1, 0.101, 0.099, 0.1]
    assert fixed_decide(d, floor=None, min_speedup=1.03, confidence=0.99).verdict == "improved"
    assert fixed_decide(d, floor=floor, min_speedup=1.03, confidence=0.99).verdict == "inconclusive"


def test_two_pairs_decide_nothing() -> None:
    assert not decide([0.5, 0.5], floor=None, min_speedup=1.03, confidence=0.95, max_pairs=12).stop
