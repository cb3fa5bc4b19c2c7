"""The band and level guards: bandwidth, noise, resolution, loudness, clipping and offset of graded size."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guards import band, level
from guards.band import find_spectrum
from guards.level import find_level, loudness
from pytest_rsi.audio import Audio
from tests import voice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_rsi.guard import Guard, GuardResult

BAND, LEVEL = band.FAMILY.make(), level.FAMILY.make()
BOTH = pytest.mark.parametrize("guard", [BAND, LEVEL], ids=["band", "level"])


def check(guard: Guard, fault: voice.Fault, *, seed: int = 1, only: Sequence[int] | None = None) -> GuardResult:
    after = voice.spoilt(voice.speak(seed), fault, only)
    return guard.check(voice.evidence(voice.pairs(voice.speak(1), after)))


def failed(found: GuardResult) -> set[str]:
    return {finding.label for finding in found.findings if finding.outcome == "failed"}


def below(hz: float) -> voice.Fault:
    """Limit the band: what a detour over another sample rate leaves."""

    def fault(samples: voice.Samples) -> voice.Samples:
        spectrum = np.fft.rfft(samples)
        spectrum[np.fft.rfftfreq(len(samples), 1 / voice.RATE_HZ) > hz] = 0
        return np.fft.irfft(spectrum, len(samples)).astype(np.float32)

    return fault


def shelf(db: float) -> voice.Fault:
    """Change everything from 4 kHz by some dB."""

    def fault(samples: voice.Samples) -> voice.Samples:
        spectrum = np.fft.rfft(samples)
        spectrum[np.fft.rfftfreq(len(samples), 1 / voice.RATE_HZ) > 4000] *= 10 ** (db / 20)
        return np.fft.irfft(spectrum, len(samples)).astype(np.float32)

    return fault


def mu_law(samples: voice.Samples) -> voice.Samples:
    code = np.round(127 * np.sign(samples) * np.log1p(255 * np.abs(samples)) / np.log(256)) / 127
    return (np.sign(code) * (256 ** np.abs(code) - 1) / 255).astype(np.float32)


def bits(count: int) -> voice.Fault:
    return lambda samples: (np.round(samples * 2 ** (count - 1)) / 2 ** (count - 1)).astype(np.float32)


def noise(snr_db: float) -> voice.Fault:
    def fault(samples: voice.Samples) -> voice.Samples:
        size = np.sqrt(np.mean(samples**2)) * 10 ** (-snr_db / 20)
        return samples + np.random.default_rng(8).normal(0, size, len(samples)).astype(np.float32)

    return fault


def gain(db: float) -> voice.Fault:
    return lambda samples: np.clip(samples * np.float32(10 ** (db / 20)), -1, 1)


def offset(size: float) -> voice.Fault:
    return lambda samples: np.clip(samples + np.float32(size), -1, 1)


def dithered(samples: voice.Samples) -> voice.Samples:
    return samples + (np.random.default_rng(4).integers(-1, 2, len(samples)) / 32768).astype(np.float32)


# Honest


@BOTH
@pytest.mark.parametrize(
    "change", [lambda samples: samples, lambda samples: -samples, dithered], ids=["same", "polarity", "dither"]
)
def test_the_same_take_passes(guard: Guard, change: voice.Fault) -> None:
    found = check(guard, change)
    assert (found.outcome, found.requests) == ("passed", 12), found.reason


def test_an_honest_rerun_passes() -> None:
    # Loudness of this voice varies by 1 LU from run to run: the default margin is for a hundred requests.
    guards = BAND, level.FAMILY.make(worse_by=1.5)
    for guard in guards:
        found = check(guard, lambda samples: samples, seed=2)
        assert found.outcome == "passed", found.reason


# band


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("fault", "figure"),
    [
        (below(8000), "8-11 kHz"),
        (below(4000), "4-7.5 kHz"),
        (below(9500), "8-11 kHz"),
        (shelf(-2), "4-7.5 kHz"),
        (shelf(3), "8-11 kHz"),
        (mu_law, "sample values"),
        (bits(8), "sample values"),
        (bits(15), "sample values"),
        (noise(55), "8-11 kHz"),
        (noise(50), "noise floor"),
        (noise(45), "flatness"),
        (noise(10), "flatness"),
    ],
)
def test_band_hears_faults(fault: voice.Fault, figure: str, seed: int) -> None:
    found = check(BAND, fault, seed=seed)
    assert found.outcome == "failed"
    assert figure in failed(found), found.reason


def test_band_hears_one_narrow_answer_among_twelve() -> None:
    found = check(BAND, below(8000), only=[4])
    assert "8-11 kHz of one" in failed(found)
    assert "o004" in found.reason


def test_band_hears_another_sample_rate() -> None:
    made = voice.pairs(voice.speak(1), voice.speak(1), stream=True)
    made[3] = replace(made[3], candidate=replace(made[3].candidate, headers={"X-Sample-Rate": "24000"}))
    found = BAND.check(voice.evidence(made))
    assert found.outcome == "failed"
    assert "1 answers of another sample rate, s003 has 24000 Hz, the baseline's 22050 Hz" in found.reason


# level


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("fault", "figure"),
    [
        (gain(-2), "loudness"),
        (gain(-12), "loudness"),
        (gain(-3), "peak"),
        (gain(3), "clipped"),
        (lambda samples: 0.5 * gain(6)(samples), "clipped"),
        (offset(0.05), "offset"),
        (offset(0.0015), "offset"),
    ],
)
def test_level_hears_faults(fault: voice.Fault, figure: str, seed: int) -> None:
    found = check(LEVEL, fault, seed=seed)
    assert found.outcome == "failed"
    assert figure in failed(found), found.reason


@pytest.mark.parametrize(("fault", "figure"), [(gain(-12), "loudness"), (offset(0.05), "offset"), (gain(6), "clipped")])
def test_level_hears_one_answer_among_twelve(fault: voice.Fault, figure: str) -> None:
    found = check(LEVEL, fault, only=[5])
    assert f"{figure} of one" in failed(found)
    assert "o005" in found.reason


def test_level_hears_the_smallest_change_of_gain_it_claims() -> None:
    assert "loudness" in failed(check(LEVEL, gain(-0.6)))
    assert "loudness" not in failed(check(LEVEL, gain(-0.4)))


@settings(max_examples=25, deadline=None)
@given(db=st.floats(-20, 0), which=st.integers(0, 11))
def test_loudness_changes_by_the_gain(db: float, which: int) -> None:
    samples = voice.speak(1)[which]
    before, after = (find_level(Audio(each, voice.RATE_HZ)) for each in (samples, gain(db)(samples)))
    assert after.loudness_lufs - before.loudness_lufs == pytest.approx(db, abs=0.01)
    assert after.peak_db - before.peak_db == pytest.approx(db, abs=0.01)


def test_loudness_of_the_standards_sine() -> None:
    """A full-scale sine of 997 Hz on one channel reads -3.01 LKFS (BS.1770-4, annex 1)."""
    sine = np.sin(2 * np.pi * 997 * np.arange(48_000) / 48_000).astype(np.float32)
    assert loudness(Audio(sine, 48_000)) == pytest.approx(-3.01, abs=0.05)
    assert loudness(Audio(sine[:9600], 48_000)) == pytest.approx(-3.01, abs=0.1)


def test_loudness_of_silence_is_the_gate() -> None:
    assert loudness(Audio(np.zeros(22_050, np.float32), 22_050)) == -70.0


# Properties


@settings(max_examples=25, deadline=None)
@given(db=st.floats(-20, 6), which=st.integers(0, 11))
def test_spectrum_does_not_depend_on_gain(db: float, which: int) -> None:
    samples = voice.speak(1)[which]
    before = find_spectrum(Audio(samples, voice.RATE_HZ))
    after = find_spectrum(Audio(samples * np.float32(10 ** (db / 20)), voice.RATE_HZ))
    assert before is not None
    assert after is not None
    for name, level_db in before.bands_db.items():
        assert after.bands_db[name] == pytest.approx(level_db, abs=0.01)
    assert after.flatness_db == pytest.approx(before.flatness_db, abs=0.01)
    assert after.noise_db == pytest.approx(before.noise_db, abs=0.1)


@settings(max_examples=25, deadline=None)
@given(shift=st.integers(0, 4000), which=st.integers(0, 11))
def test_a_shift_in_time_changes_little(shift: int, which: int) -> None:
    samples = voice.speak(1)[which]
    later = np.concatenate([np.zeros(shift, np.float32), samples])
    before, after = (find_spectrum(Audio(each, voice.RATE_HZ)) for each in (samples, later))
    assert before is not None
    assert after is not None
    assert after.bands_db == pytest.approx(before.bands_db, abs=0.6)
    assert after.flatness_db == pytest.approx(before.flatness_db, abs=0.3)
    assert after.values == pytest.approx(before.values, rel=0.1)
    assert loudness(Audio(later, voice.RATE_HZ)) == pytest.approx(loudness(Audio(samples, voice.RATE_HZ)), abs=0.3)


@settings(max_examples=40, deadline=None)
@given(
    samples=st.lists(st.integers(-32768, 32767), min_size=1, max_size=3000),
    rate_hz=st.sampled_from([4000, 8000, 16_000, 22_050, 24_000, 48_000, 192_000]),
)
def test_nothing_raises(samples: list[int], rate_hz: int) -> None:
    audio = Audio((np.array(samples) / 32768).astype(np.float32), rate_hz)
    found, spectrum = find_level(audio), find_spectrum(audio)
    assert math.isfinite(found.loudness_lufs + found.peak_db + found.dc)
    assert 0 <= found.clipped <= 1
    if spectrum is not None:
        assert all(math.isfinite(each) for each in spectrum.bands_db.values())
        assert math.isfinite(spectrum.flatness_db + spectrum.noise_db)
        assert 0 <= spectrum.values <= 1


@pytest.mark.parametrize(
    ("rate_hz", "names"),
    [
        (8000, []),
        (16_000, ["4-7.5 kHz"]),
        (22_050, ["4-7.5 kHz", "8-11 kHz"]),
        (24_000, ["4-7.5 kHz", "8-11 kHz"]),
        (48_000, ["4-7.5 kHz", "8-11 kHz", "above 11 kHz"]),
    ],
)
def test_bands_are_those_that_the_rate_has(rate_hz: int, names: list[str]) -> None:
    samples = np.random.default_rng(0).normal(0, 0.1, rate_hz).astype(np.float32)
    found = find_spectrum(Audio(samples, rate_hz))
    assert found is not None
    assert list(found.bands_db) == names
    # White noise is as strong in every band, and flat.
    assert list(found.bands_db.values()) == pytest.approx([0.0] * len(names), abs=0.3)
    assert found.flatness_db > -0.3


@BOTH
def test_clips_shorter_than_a_gating_block_are_judged(guard: Guard) -> None:
    short = [samples[8000 : 8000 + round(0.3 * voice.RATE_HZ)] for samples in voice.speak(1)]
    assert guard.check(voice.evidence(voice.pairs(short, short))).outcome == "passed"
    soft = [gain(-3)(samples) for samples in short]
    assert LEVEL.check(voice.evidence(voice.pairs(short, soft))).outcome == "failed"


@BOTH
def test_the_baseline_alone_passes(guard: Guard) -> None:
    found = guard.check(voice.evidence(voice.pairs(voice.speak(1), None)))
    assert (found.outcome, found.requests) == ("passed", 12), found.reason


@BOTH
def test_nothing_to_hear_is_undecided(guard: Guard) -> None:
    assert guard.check(voice.evidence([])).outcome == "undecided"


def test_a_baseline_over_the_limit_fails() -> None:
    loud = [gain(6)(samples) for samples in voice.speak(1)]
    assert LEVEL.check(voice.evidence(voice.pairs(loud, None))).outcome == "failed"
