"""How every guard decides, what its marker takes, and what importing it costs."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from guards import pytest_rsi_guards
from guards.noninferiority import MILLISECONDS, NUMBER, SHARE, Comparison, absolute, outcome_of, result
from pytest_rsi.guard import Better, Finding
from pytest_rsi.stats import Interval

FAMILIES = {family.marker: family for family in pytest_rsi_guards()}


def compare(
    differences: list[float],
    margin: float,
    *,
    baseline: float = 1.0,
    limit: float | None = None,
    better: Better = "lower",
) -> Finding:
    made = np.array(differences, dtype=np.float64)
    ids = [f"r{index}" for index in range(len(made))]
    after = baseline + float(made.mean())
    return Comparison("figure", NUMBER, baseline, after, made, ids, margin, better=better, limit=limit).finding(0)


@pytest.mark.parametrize(
    ("ends", "better", "outcome"),
    [
        ((-0.1, 0.5), "lower", "passed"),
        ((-9.0, -8.0), "lower", "passed"),
        ((-0.1, 1.5), "lower", "undecided"),
        ((1.1, 1.5), "lower", "failed"),
        ((-0.5, 9.0), "higher", "passed"),
        ((-1.5, 9.0), "higher", "undecided"),
        ((-1.5, -1.1), "higher", "failed"),
        ((-0.9, 0.9), "same", "passed"),
        ((-1.1, 0.9), "same", "undecided"),
        ((-3.0, -2.0), "same", "failed"),
        ((2.0, 3.0), "same", "failed"),
        ((-math.inf, math.inf), "same", "undecided"),
        ((math.nan, math.nan), "same", "undecided"),
        ((math.nan, 0.0), "same", "undecided"),
        ((0.0, math.nan), "lower", "undecided"),
    ],
)
def test_outcome_of_an_interval_for_a_margin_of_one(ends: tuple[float, float], better: Better, outcome: str) -> None:
    assert outcome_of(ends, 1.0, better) == outcome


@given(st.floats(), st.floats(), st.floats(), st.sampled_from(["lower", "higher", "same"]))
def test_nothing_passes_whose_bad_end_is_outside(low: float, high: float, margin: float, better: Better) -> None:
    passed = outcome_of((low, high), margin, better) == "passed"
    inside = (better == "lower" or low >= -margin) and (better == "higher" or high <= margin)
    assert passed <= inside


def test_a_value_that_is_not_a_number_never_passes() -> None:
    assert compare([0.0] * 20 + [math.nan], 1.0).outcome == "failed"
    assert compare([0.0] * 20 + [math.inf], 1.0).outcome == "failed"
    assert compare([0.0] * 20, 1.0, baseline=math.nan, limit=2.0).outcome == "failed"
    assert absolute("figure", NUMBER, math.nan, None).outcome == "failed"
    assert absolute("figure", NUMBER, math.nan, 1.0).outcome == "failed"


def test_a_limit_is_kept_as_well_as_a_margin() -> None:
    assert compare([0.0] * 20, 1.0, limit=1.0).outcome == "passed"
    assert compare([0.0] * 20, 1.0, limit=0.9).outcome == "failed"
    assert compare([0.0] * 20, 1.0, limit=0.9, better="higher").outcome == "passed"
    assert compare([0.0] * 20, 1.0, limit=1.1, better="higher").outcome == "failed"


def test_too_few_requests_never_pass() -> None:
    assert compare([0.0] * 7, 1.0).outcome == "undecided"
    assert "7 requests cannot tell, at least 8 are needed" in compare([0.0] * 7, 1.0).text
    assert compare([0.0] * 8, 1.0).outcome == "passed"
    assert compare([5.0] * 7, 1.0).outcome == "failed"


def test_how_many_requests_would_tell_grows_with_the_square_of_the_noise() -> None:
    noise = np.random.default_rng(0).normal(0, 1, 40)
    noise -= noise.mean()
    finding = compare(list(noise), 0.2)
    assert finding.outcome == "undecided"
    needed = int(finding.text.partition("about ")[2].partition(" ")[0])
    # 1.96 sigma / sqrt(n) = 0.2
    assert needed == pytest.approx((1.96 * noise.std() / 0.2) ** 2, rel=0.15)
    assert compare(list(np.tile(noise, 1 + needed * 2 // 40)), 0.2).outcome == "passed"


def test_a_line_that_a_person_understands() -> None:
    finding = Comparison(
        "wer", SHARE, 0.039, 0.041, np.full(24, 0.002), [f"r{n}" for n in range(24)], 0.02, limit=0.2
    ).finding(0, Interval(-0.004, 0.009, 0.95))
    assert finding.text == "wer 4.1 % vs 3.9 % (+0.2 pp, 95 % interval -0.4..+0.9), margin +2.0 pp, limit 20.0 %"
    relative = Comparison(
        "lead", MILLISECONDS, 0.1, 0.11, np.full(24, math.log(1.1)), [f"r{n}" for n in range(24)], 0.05, relative=True
    ).finding(0, Interval(math.log(1.08), math.log(1.12), 0.95))
    assert relative.text == (
        "lead 110.0 ms vs 100.0 ms (+10.0 %, 95 % interval +8.0..+12.0), margin +5.0 %; worst r0 (+10.0 %)"
    )
    assert relative.interval == pytest.approx((0.008, 0.012))
    assert relative.margin == pytest.approx(0.005)


def test_the_gravest_finding_decides() -> None:
    findings = [
        Finding("passed", "a", value=1.0),
        Finding("undecided", "b", value=2.0),
        Finding("failed", "c", value=3.0),
    ]
    assert (result("g", findings, 4).outcome, result("g", findings, 4).reason) == ("failed", "c, 4 requests")
    assert result("g", findings[:2], 1).reason == "b, 1 request"
    assert result("g", findings[:1], 1).value == 1.0


@pytest.mark.parametrize(
    ("marker", "args", "kwargs", "message"),
    [
        ("complete", (), {"max": 2}, "complete: max=2, expected a number from 0 to 1"),
        ("complete", (1,), {}, "complete: argument 1, expected keywords only: complete(max=0.0)"),
        ("wer", (), {"maximum": 0.2}, "wer: unknown argument maximum=0.2, expected max, worse_by, requests, runaways"),
        ("wer", (), {"max": "0.2"}, "wer: max='0.2', expected a number from 0 to 1"),
        ("wer", (), {"worse_by": None}, "wer: worse_by=None, expected a number from 0 to 1"),
        ("wer", (), {"worse_by": math.nan}, "wer: worse_by=nan, expected a number from 0 to 1"),
        ("wer", (), {"requests": 0}, "wer: requests=0, expected a whole number from 1 to 10000"),
        ("wer", (), {"requests": 2.5}, "wer: requests=2.5, expected a whole number from 1 to 10000"),
        ("wer", (), {"max": True}, "wer: max=True, expected a number from 0 to 1"),
        ("duration", (), {"lead": -1}, "duration: lead=-1, expected a number from 0 to 10"),
        ("tail", (), {"end": "x"}, "tail: end='x', expected a number from 0 to 10"),
        ("parity", (), {"samples": 2}, "parity: samples=2, expected a number from 0 to 1"),
        ("latency", (), {}, "latency: metric nothing, expected one of ttfa, ttfb, gap"),
        ("latency", ("tttfa",), {}, "latency: metric 'tttfa', expected one of ttfa"),
        ("latency", ("ttfa",), {"p95": -1}, "latency: p95=-1, expected a number from 0"),
        ("latency", ("ttfa",), {"p95": 1, "p50": 1}, "latency: ttfa with p95, p50, expected at most one of mean, p50"),
        ("latency", ("ttfa",), {"min": 1}, "latency: ttfa with min, expected at most one of mean, p50, p95, p99, max"),
        ("latency", ("continuity",), {"p95": 1}, "latency: continuity with p95, expected at most one of min"),
        ("latency", ("ttfa",), {"p90": 1}, "latency: unknown argument p90=1, expected worse_by, mean, p50"),
        ("latency", ("ttfa",), {"workload": 3}, "latency: workload=3, expected the name of a workload"),
        ("contract", ("seed",), {"texts": 0}, "contract: texts=0, expected a whole number from 1 to 20"),
    ],
)
def test_a_wrong_argument_is_named(marker: str, args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  (the message is compared whole)
        FAMILIES[marker].make(*args, **kwargs)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_every_family_names_its_marker_and_makes_a_guard() -> None:
    positional = {"latency": ("ttfa",), "contract": ("seed",)}
    # The multilingual recogniser is a package of its own, which a test environment has no need for.
    named = {"cer": {"model": "whisper-tiny.en"}}
    for marker, family in FAMILIES.items():
        assert family.signature.startswith(f"{marker}(")
        guard = family.make(*positional.get(marker, ()), **named.get(marker, {}))
        assert guard.name.startswith(marker)


def test_importing_the_folder_imports_nothing_heavy() -> None:
    code = (
        "import pytest, sys; import guards; "
        "print([m for m in ('numpy', 'scipy', 'soundfile', 'jiwer', 'faster_whisper') if m in sys.modules]); "
        "guards.pytest_rsi_guards(); "
        "print([m for m in ('scipy', 'jiwer', 'faster_whisper', 'whisper_normalizer') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]
