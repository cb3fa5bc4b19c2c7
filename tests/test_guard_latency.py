"""The latency guard: equal and faster arms pass, late audio, stalls and lost answers do not."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from guards import pytest_rsi_guards
from pytest_rsi.guard import ExchangePair, GuardResult
from tests import voice

if TYPE_CHECKING:
    from collections.abc import Sequence

FAMILY = next(family for family in pytest_rsi_guards() if family.marker == "latency")


def timed(
    count: int = 24,
    *,
    first_s: float = 0.12,
    stall_s: float = 0.0,
    jitter: float = 0.0,
    fault: voice.Fault | None = None,
    only: Sequence[int] | None = None,
) -> list[ExchangePair]:
    """Return streamed pairs, the arms taking turns by blocks of eight.

    ``first_s``, ``stall_s`` and ``fault`` are the candidate's, in all requests or in some; ``jitter`` is both arms'.
    """
    rng, made = random.Random(3), []
    for index in range(count):
        asked, samples = voice.request(index, stream=True), voice.speak(1)[index % len(voice.TEXTS)]
        start_s = 200.0 * (index // 8) + 2 * (index % 8)
        before = voice.answer(asked, samples, sent_s=start_s, first_s=0.12 * math.exp(rng.gauss(0, jitter)))
        spoilt = only is None or index in only
        after = voice.answer(
            asked,
            fault(samples) if fault and spoilt else samples,
            sent_s=start_s + 100,
            first_s=(first_s if spoilt else 0.12) * math.exp(rng.gauss(0, jitter)),
            stall_s=stall_s if spoilt else 0.0,
        )
        made.append(ExchangePair("streaming", before, after))
    return made


def check(made: Sequence[ExchangePair], *arguments: str, **keywords: float | str | None) -> GuardResult:
    return FAMILY.make(*arguments, **keywords).check(voice.evidence(made))


@pytest.mark.parametrize("metric", ["ttfa", "ttfb", "gap", "underruns", "stalled_s", "continuity"])
def test_equal_arms_pass(metric: str) -> None:
    result = check(timed(), metric)
    assert (result.outcome, result.requests, result.guard) == ("passed", 24, f"latency-{metric}"), result.reason
    assert result.value == pytest.approx(result.baseline)


@pytest.mark.parametrize("metric", ["e2e", "rtf"])
def test_other_workloads_can_be_named(metric: str) -> None:
    result = check(timed(), metric, workload="streaming", p50=10.0)
    assert (result.outcome, result.guard) == ("passed", f"latency-{metric}-streaming"), result.reason
    offline = check(timed(), metric)
    assert offline.outcome == "undecided"
    assert "no answered request of workload 'offline' (workloads: streaming)" in offline.reason


def test_late_first_audio_fails() -> None:
    late = check(timed(first_s=0.2, jitter=0.02), "ttfa", worse_by=0.05)
    assert late.outcome == "failed"
    assert late.reason.startswith("ttfa p95 0.2")
    assert late.interval is not None
    assert late.interval[0] > 0.05
    assert late.interval[1] < 0.12


def test_one_late_answer_in_twelve_is_seen_at_p95() -> None:
    result = check(timed(first_s=0.5, only=(3, 17)), "ttfa", p95=0.3)
    assert result.outcome == "failed"
    assert [name for name, _ in result.worst[:2]] == ["s003", "s017"]
    assert check(timed(first_s=0.5, only=(3, 17)), "ttfa", p50=0.3).outcome == "passed"


def test_limit_fails_even_without_a_difference() -> None:
    result = check(timed(), "ttfa", p95=0.05)
    assert result.outcome == "failed"
    assert "over the limit of 0.050 s" in result.reason
    assert (result.limit, result.unit) == (0.05, "s")


def test_silent_first_audio_is_heard_through() -> None:
    made = timed(fault=voice.delay(0.4))
    assert check(made, "ttfa").outcome == "failed"
    assert check(made, "ttfb").outcome == "passed"


def test_plainly_faster_passes_however_noisy() -> None:
    result = check(timed(jitter=0.2, first_s=0.02), "ttfa", worse_by=0.01)
    assert result.outcome == "passed", result.reason


def test_noise_wider_than_the_margin_is_undecided() -> None:
    result = check(timed(jitter=0.3), "ttfa", p50=None, worse_by=0.02)
    assert result.outcome == "undecided", result.reason
    assert "24 requests cannot tell" in result.reason


def test_a_percentile_needs_requests_beyond_it() -> None:
    few = check(timed(12), "ttfa", p95=None)
    assert few.outcome == "undecided"
    assert "12 requests cannot tell, at least 20 are needed" in few.reason
    assert check(timed(12), "ttfa", p50=None).outcome == "passed"
    assert check(timed(24), "ttfa", p99=None).outcome == "undecided"


def test_one_block_in_a_slow_moment_does_not_fail() -> None:
    # The machine was slow for one arm's turn: eight of 24 requests, all of one block.
    result = check(timed(first_s=0.16, only=range(8)), "ttfa", p50=None, worse_by=0.1)
    assert result.outcome != "failed", result.reason


def test_requests_of_one_block_are_not_taken_for_independent() -> None:
    # Three blocks of eight in which the machine was slow for one arm: 24 of 64 requests, but only three moments.
    made = timed(64, first_s=0.24, only=[*range(8), *range(24, 32), *range(48, 56)])
    result = check(made, "ttfa", mean=None, worse_by=0.2)
    assert result.outcome == "undecided", result.reason
    alternating = timed(64, first_s=0.24, only=range(0, 64, 2))
    assert check(alternating, "ttfa", mean=None, worse_by=0.2).outcome == "failed"


def test_stalls_fail() -> None:
    made = timed(stall_s=0.9)
    for metric, figure in (("gap", 0.95), ("underruns", 1.0), ("continuity", 0.0)):
        result = check(made, metric)
        assert result.outcome == "failed"
        assert result.value == pytest.approx(figure, abs=0.01)
    assert check(made, "stalled_s").outcome == "failed"
    assert check(timed(), "continuity", min=0.95).outcome == "passed"
    assert check(made, "ttfa").outcome == "passed"


def test_one_stall_in_twenty_four_breaks_the_floor_of_continuity() -> None:
    result = check(timed(stall_s=0.9, only=(3,)), "continuity", min=0.99)
    assert result.outcome == "failed"
    assert "95.8 %" in result.reason


def test_silent_answers_fail_and_failed_ones_are_left_to_complete() -> None:
    made = timed(fault=lambda samples: samples * 0, only=(3,))
    result = check(made, "ttfa")
    assert result.outcome == "failed"
    assert "1 answers without audible audio where the baseline has some (s003)" in result.reason
    made[3] = replace(made[3], candidate=voice.failure(made[3].request))
    left = check(made, "ttfa")
    assert (left.outcome, left.requests) == ("passed", 23)


def test_a_time_that_is_not_a_number_never_passes() -> None:
    made = timed()
    candidate = made[3].candidate
    assert candidate is not None
    made[3] = replace(made[3], candidate=replace(candidate, scheduled_s=math.nan))
    assert check(made, "ttfa").outcome == "failed"


def test_baseline_alone_is_held_to_the_limit() -> None:
    alone = [replace(pair, candidate=None) for pair in timed()]
    assert check(alone, "ttfa", p95=0.6).outcome == "passed"
    assert check(alone, "ttfa", p95=0.06).outcome == "failed"
    assert check(alone, "continuity", min=0.9).outcome == "passed"
    assert check([], "ttfa").outcome == "undecided"
