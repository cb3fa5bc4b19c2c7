"""The seams guard: splices of graded size, at boundaries that the client saw and at others, in real speech."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

from guards.seams import FAMILY, find_seams
from guards.splices import (
    count_clicks,
    count_mutes,
    count_repeats,
    longest_zero_run_s,
    residual_ratio,
    seam_rank,
)
from pytest_rsi.audio import Audio
from pytest_rsi.guard import Evidence, ExchangePair, GuardResult
from pytest_rsi.recording import Chunk, Exchange
from tests import voice

SEAM_S = 0.48
GUARD = FAMILY.make()
Pieces = list[voice.Samples]
Fault = Callable[[Pieces], Pieces]


def pieces(samples: voice.Samples) -> Pieces:
    size = round(SEAM_S * voice.RATE_HZ)
    return [samples[at : at + size].copy() for at in range(0, len(samples), size)]


def answer(index: int, parts: Pieces, *, coalesced: bool = False) -> Exchange:
    """Return a streamed answer of one chunk a piece, or of two that end where no piece does."""
    asked = voice.request(index, stream=True)
    whole = voice.answer(asked, np.concatenate(parts))
    if coalesced:
        data, middle = whole.body, len(whole.body) // 4 * 2
        return _chunked(whole, [data[:middle], data[middle:]])
    ends = np.cumsum([2 * len(part) for part in parts])
    return _chunked(whole, [whole.body[end - 2 * len(part) : end] for end, part in zip(ends, parts, strict=True)])


def _chunked(whole: Exchange, parts: Sequence[bytes]) -> Exchange:
    chunks = tuple(Chunk(0.1 * (number + 1), part) for number, part in enumerate(parts))
    return Exchange(whole.request, 0.0, 0.0, chunks[-1].time_s, 200, whole.headers, chunks)


def check(fault: Fault, *, seed: int = 1, only: Sequence[int] = range(12), coalesced: bool = False) -> GuardResult:
    made = []
    for index, (before, after) in enumerate(zip(voice.speak(1), voice.speak(seed), strict=True)):
        theirs = fault(pieces(after)) if index in only else pieces(after)
        made.append(
            ExchangePair("streaming", answer(index, pieces(before)), answer(index, theirs, coalesced=coalesced))
        )
    return GUARD.check(Evidence(pairs=made, probes={}, seed=5))


def failed(found: GuardResult) -> set[str]:
    return {finding.label.removeprefix("streamed ") for finding in found.findings if finding.outcome == "failed"}


def honest(parts: Pieces) -> Pieces:
    return parts


def dropped(ms: float) -> Fault:
    return lambda parts: [parts[0], *(part[_samples(ms) :] for part in parts[1:] if len(part) > _samples(ms))]


def zeroed(ms: float) -> Fault:
    def fault(parts: Pieces) -> Pieces:
        for part in parts[1:]:
            part[: _samples(ms)] = 0
        return parts

    return fault


def noisy(ms: float, level: float = 0.05) -> Fault:
    def fault(parts: Pieces) -> Pieces:
        random = np.random.default_rng(3)
        for part in parts[1:]:
            part[: _samples(ms)] = random.normal(0, level, len(part[: _samples(ms)]))
        return parts

    return fault


def stepped(size: float) -> Fault:
    """Every other piece is off by a constant."""

    def fault(parts: Pieces) -> Pieces:
        return [part + np.float32(size * (number % 2)) for number, part in enumerate(parts)]

    return fault


def gap(ms: float) -> Fault:
    quiet = np.zeros(_samples(ms), np.float32)
    return lambda parts: [parts[0], *(np.concatenate([quiet, part]) for part in parts[1:])]


def repeated(ms: float) -> Fault:
    def fault(parts: Pieces) -> Pieces:
        again = [np.concatenate([old[-_samples(ms) :], new]) for old, new in pairwise(parts)]
        return [parts[0], *again]

    return fault


def dithered(parts: Pieces) -> Pieces:
    random = np.random.default_rng(4)
    return [part + (random.integers(-1, 2, len(part)) / 32768).astype(np.float32) for part in parts]


def _samples(ms: float) -> int:
    return round(ms / 1000 * voice.RATE_HZ)


# Honest


@pytest.mark.parametrize("change", [honest, dithered, lambda parts: [-part for part in parts]])
def test_the_same_take_passes(change: Fault) -> None:
    found = check(change)
    assert (found.outcome, found.requests) == ("passed", 12), found.reason


def test_an_honest_rerun_passes() -> None:
    found = check(honest, seed=2)
    assert found.outcome == "passed", found.reason


def test_other_chunks_of_the_same_answer_pass() -> None:
    assert not failed(check(honest, coalesced=True))


# Faults


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("fault", "figure"),
    [
        (dropped(1), "boundary rank"),
        (dropped(5), "clicks"),
        (zeroed(1), "clicks"),
        (stepped(0.005), "boundary rank"),
        (gap(5), "mutes"),
        (zeroed(5), "mutes"),
        (noisy(5), "clicks"),
        (gap(20), "zero-run"),
        (gap(80), "gap"),
        (repeated(20), "repeats"),
        (repeated(80), "repeats"),
    ],
)
def test_faults_at_every_seam_fail(fault: Fault, figure: str, seed: int) -> None:
    found = check(fault, seed=seed)
    assert found.outcome == "failed"
    assert figure in failed(found), found.reason


@pytest.mark.parametrize(
    ("fault", "figure"),
    [
        (dropped(5), "clicks"),
        (zeroed(5), "mutes"),
        (noisy(5, 0.005), "clicks"),
        (gap(20), "zero-run"),
        (repeated(20), "repeats"),
    ],
)
def test_faults_are_heard_where_the_client_saw_no_boundary(fault: Fault, figure: str) -> None:
    assert figure in failed(check(fault, coalesced=True))


def test_one_gap_among_twelve_answers_fails() -> None:
    found = check(gap(80), only=[7])
    assert found.outcome == "failed"
    assert "1 answers mute for over 25 ms inside speech: s007 8" in found.reason


def test_offline_answers_are_judged_too() -> None:
    spoilt = [np.concatenate(repeated(40)(pieces(samples))) for samples in voice.speak(1)]
    made = voice.pairs(voice.speak(1), voice.speak(1), stream=True) + voice.pairs(voice.speak(1), spoilt)
    found = GUARD.check(voice.evidence(made))
    assert found.outcome == "failed"
    assert found.reason.startswith("offline")


# Whatever a server answers


def test_the_baseline_alone_passes() -> None:
    found = GUARD.check(voice.evidence(voice.pairs(voice.speak(1), None, stream=True)))
    assert (found.outcome, found.requests) == ("passed", 12)


def test_what_is_no_audio_is_left_out() -> None:
    made = voice.pairs(voice.speak(1), voice.speak(1), stream=True)
    made[2] = ExchangePair("streaming", made[2].baseline, voice.failure(made[2].request))
    assert GUARD.check(voice.evidence(made)).requests == 11
    assert GUARD.check(voice.evidence([])).outcome == "undecided"


@settings(max_examples=40, deadline=None)
@given(
    samples=st.lists(st.integers(-32768, 32767), min_size=1, max_size=3000),
    rate_hz=st.sampled_from([4000, 8000, 22_050, 192_000]),
    boundary=st.integers(0, 3000),
)
def test_nothing_raises(samples: list[int], rate_hz: int, boundary: int) -> None:
    audio = Audio((np.array(samples) / 32768).astype(np.float32), rate_hz)
    ratio = residual_ratio(audio)
    assert ratio.shape == (len(samples),)
    assert np.isfinite(ratio).all()
    assert count_clicks(ratio, rate_hz) >= 0
    assert 0 <= longest_zero_run_s(audio) <= audio.duration_s
    assert count_mutes(audio) >= 0
    assert count_repeats(audio) >= 0
    rank = seam_rank(ratio, audio, [boundary])
    assert np.isnan(rank) or 0 <= rank <= 1


# The figures themselves


def test_the_residual_of_an_autoregressive_process_is_what_drove_it() -> None:
    drive = np.random.default_rng(0).normal(0, 0.01, 22_050)
    audio = Audio(lfilter([1], [1, -1.6, 0.8], drive).astype(np.float32), 22_050)
    ratio = residual_ratio(audio)
    # The median of |x| of a normal distribution is 0.674 standard deviations.
    assert np.mean(ratio**2) ** 0.5 == pytest.approx(1 / 0.674, rel=0.1)
    assert np.corrcoef(ratio, np.abs(drive))[0, 1] > 0.95


@settings(max_examples=20, deadline=None)
@given(gain=st.floats(0.3, 1.0), at=st.integers(4000, 16_000))
def test_a_click_is_counted_once_at_any_level(gain: float, at: int) -> None:
    samples = voice.speak(1)[0].copy()
    clean = count_clicks(residual_ratio(Audio(samples, voice.RATE_HZ)), voice.RATE_HZ)
    samples[at] += 0.5 * (-1 if samples[at] > 0 else 1)
    found = count_clicks(residual_ratio(Audio(samples * np.float32(gain), voice.RATE_HZ)), voice.RATE_HZ)
    assert found == clean + 1


@pytest.mark.parametrize("ms", [5, 20, 80])
def test_a_zero_run_is_as_long_as_it_is(ms: int) -> None:
    samples = voice.speak(1)[0].copy()
    at = int(np.argmax(np.abs(samples)))
    samples[at : at + _samples(ms)] = 0
    assert longest_zero_run_s(Audio(samples, voice.RATE_HZ)) == pytest.approx(ms / 1000, abs=0.002)


def test_ranks_of_places_that_are_no_seams_are_uniform() -> None:
    random = np.random.default_rng(1)
    ranks = []
    for samples in voice.speak(1):
        audio = Audio(samples, voice.RATE_HZ)
        places = [int(at) for at in random.integers(0, len(samples), 40)]
        ranks.append(seam_rank(residual_ratio(audio), audio, places))
    assert np.mean(ranks) == pytest.approx(0.5, abs=0.05)


def test_pairs_are_heard_with_their_boundaries() -> None:
    made = [ExchangePair("streaming", answer(0, pieces(voice.speak(1)[0])), None)]
    (pair,) = find_seams(Evidence(pairs=made, probes={}))
    assert 0 <= pair.baseline.rank <= 1
    assert pair.candidate is None
