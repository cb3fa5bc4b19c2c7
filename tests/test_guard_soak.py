"""The soak guard: servers that wear out while they run, on made-up times."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from guards import soak
from pytest_rsi.guard import Evidence, ExchangePair
from tests import voice

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_rsi.guard import GuardResult
    from pytest_rsi.recording import Exchange, SpeechRequest

GUARD = soak.FAMILY.make()
TONE = (0.2 * np.sin(np.arange(8000) / 5)).astype(np.float32)
REQUESTS = 12


def speak(asked: SpeechRequest, sent_s: float, e2e_s: float) -> Exchange:
    return voice.answer(asked, TONE, sent_s=sent_s, first_s=e2e_s, step_s=0.0)


def fail(asked: SpeechRequest, sent_s: float, e2e_s: float) -> Exchange:
    return voice.failure(asked, sent_s=sent_s)


def served(
    launches: int,
    slower: Callable[[float], float] = lambda _: 1.0,
    both: Callable[[float], float] = lambda _: 1.0,
    noise: float = 0.1,
) -> list[ExchangePair]:
    """Two workloads in each launch, the arms in turns by blocks of four; ``slower`` of the share of the launch over."""
    rng, pairs, clock_s = np.random.default_rng(3), [], 0.0
    for launch in range(launches):
        clock_s += 20.0
        for workload, first in itertools.product(("offline", "streaming"), range(0, REQUESTS, 4)):
            block = [
                (number, voice.request(number, name=f"{launch}-{workload}-{number}"))
                for number in range(first, first + 4)
            ]
            arms: list[list[Exchange]] = [[], []]
            for arm in (0, 1):
                for number, asked in block:
                    over = number / (REQUESTS - 1)
                    length = (1 + number % 3) * both(over) * (slower(over) if arm else 1.0) * rng.lognormal(0, noise)
                    arms[arm].append(speak(asked, clock_s, 0.4 * length))
                    clock_s = arms[arm][-1].finished_s + 0.01
            pairs += [ExchangePair(workload, old, new) for old, new in zip(*arms, strict=True)]
    return pairs


def check(pairs: list[ExchangePair], **arguments: float) -> GuardResult:
    return soak.FAMILY.make(**arguments).check(Evidence(pairs=pairs, probes={}, seed=5))


def test_equal_arms_pass() -> None:
    result = check(served(8))
    assert (result.outcome, result.requests) == ("passed", 8 * 2 * REQUESTS), result.reason


def test_a_faster_candidate_passes() -> None:
    assert check(served(8, lambda _: 0.6)).outcome == "passed"


def test_what_slows_both_arms_is_not_the_candidates_fault() -> None:
    assert check(served(8, both=lambda over: 1 + 2 * over)).outcome == "passed"


@pytest.mark.parametrize("growth", [0.3, 0.5, 2.0])
def test_a_candidate_that_slows_down_fails(growth: float) -> None:
    result = check(served(8, lambda over: 0.7 * (1 + growth * over)))
    assert result.outcome == "failed"
    assert "e2e growth" in result.reason
    assert result.value == pytest.approx(1 + growth, rel=0.15)


def test_growth_within_the_margin_passes() -> None:
    assert check(served(8, lambda over: 1 + 0.3 * over), slower_by=0.6).outcome == "passed"


def test_one_launch_cannot_tell() -> None:
    result = check(served(1))
    assert result.outcome == "undecided"
    assert "2 requests cannot tell, at least 8 are needed" in result.reason


def test_little_load_cannot_tell() -> None:
    result = check(served(8), seconds=3600)
    assert result.outcome == "undecided"
    assert "at least 3600 s are needed" in result.reason
    assert check(served(8), seconds=60).outcome == "passed"


def test_nothing_and_few_requests_are_undecided() -> None:
    assert check([]).outcome == "undecided"
    assert check(served(1)[:5]).outcome == "undecided"


def test_failures_that_come_late_fail() -> None:
    pairs = served(8)
    late = [at for at, pair in enumerate(pairs) if int(pair.request.id.rsplit("-", 1)[1]) == REQUESTS - 1]
    for at in late[:3]:
        pairs[at] = replace(pairs[at], candidate=voice.failure(pairs[at].request, sent_s=pairs[at].candidate.sent_s))
    result = check(pairs)
    assert result.outcome == "failed"
    assert "failures gained over a launch 3.1 %" in result.reason
    assert check(pairs, errors=0.05).outcome == "passed"


def test_failures_that_come_early_or_in_both_arms_are_left_to_others() -> None:
    pairs = served(8)
    first, last = pairs[0], pairs[REQUESTS - 1]
    pairs[0] = replace(first, candidate=voice.failure(first.request, sent_s=first.candidate.sent_s))
    pairs[REQUESTS - 1] = ExchangePair(
        last.workload,
        voice.failure(last.request, sent_s=last.baseline.sent_s),
        voice.failure(last.request, sent_s=last.candidate.sent_s),
    )
    assert check(pairs).outcome == "passed"


def test_baseline_alone_is_held_to_failures_only() -> None:
    alone = [replace(pair, candidate=None) for pair in served(8)]
    assert check(alone).outcome == "passed"
    for at in (len(alone) - 1, len(alone) - REQUESTS - 1):
        alone[at] = replace(alone[at], baseline=voice.failure(alone[at].request, sent_s=alone[at].baseline.sent_s))
    assert check(alone).outcome == "failed"


def test_a_candidate_that_answers_nothing_does_not_pass() -> None:
    dead = [replace(pair, candidate=voice.failure(pair.request, sent_s=pair.candidate.sent_s)) for pair in served(8)]
    assert check(dead).outcome != "passed"


def test_spells_are_launches_and_workloads_in_order_of_time() -> None:
    pairs = served(2)
    spells = soak.find_spells(pairs[::-1])
    assert list(spells) == ["1-offline", "1-streaming", "2-offline", "2-streaming"]
    assert [pair.request.id for pair in spells["2-offline"]] == [f"1-offline-{number}" for number in range(REQUESTS)]


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(-5, 5)), min_size=3, max_size=20))
def test_slopes_are_those_of_scipy(points: list[tuple[int, float]]) -> None:
    times, values = (np.array(each, dtype=np.float64) for each in zip(*points, strict=True))
    if len(set(times)) < 2:
        return
    # Its interval, which is not asked for here, is not defined for some ties.
    with np.errstate(invalid="ignore"):
        expected = float(stats.theilslopes(values, times).slope)
    assert soak.slope(times, values) == pytest.approx(expected, abs=1e-9)


@given(st.floats(-3, 3), st.floats(0.1, 100))
def test_growth_does_not_depend_on_how_long_a_spell_is(growth: float, stretch: float) -> None:
    asked = [voice.request(number) for number in range(8)]
    pairs = [
        ExchangePair(
            "offline",
            speak(each, stretch * number, 0.5),
            speak(each, stretch * number, 0.5 * math.exp(growth * number / 7)),
        )
        for number, each in enumerate(asked)
    ]
    assert soak.growth(pairs) == pytest.approx(growth, abs=1e-6)
