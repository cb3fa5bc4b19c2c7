"""``band``: a lost high band, another sample rate, noise, coarse quantisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guards.family import Family, JudgesTimedRequests, Number
from guards.heard import heard
from guards.memory import once
from guards.noninferiority import DECIBEL, NUMBER, Comparison, absolute, nothing_heard, result
from guards.speech import SILENCE_DB, frame_levels
from pytest_rsi.guard import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from guards.heard import HeardPair
    from guards.noninferiority import Unit
    from pytest_rsi.audio import Audio
    from pytest_rsi.guard import Evidence, GuardResult

REFERENCE_HZ = (100.0, 4000.0)
BANDS_HZ = {"4-7.5 kHz": (4000.0, 7500.0), "8-11 kHz": (8200.0, 10_800.0), "above 11 kHz": (11_500.0, 20_000.0)}
ROOM = 1.02
"""A band is looked at where the spectrum goes on for 2 % above it; the last ends below the edge, if that is lower."""
LEAST_ABOVE_HZ = 13_000.0
WINDOW_S = 0.032
BELOW_TOP_DB = 35.0
TOP_QUANTILE = 0.95
BAND_FLOOR, FLATNESS_FLOOR, NOISE_FLOOR = 10**-6.5, 1e-7, 10**-5.5
"""Added to ratios of powers: what is so far below speech is as quiet as makes no difference, and dither is none."""
QUIETEST, LEAST_QUIET = 0.05, 5
STEPS = 32768
REACH, LEAST_REACH = 0.25, 32
SINGLE_DB = 8.0
"""No single answer may lose more of a band."""


@dataclass(frozen=True, slots=True)
class Spectrum:
    """The long-term spectrum of speech.

    ``bands_db`` are power densities relative to that from 0.1 to 4 kHz by name of the band, those that the rate allows:
    means of dB, so that a band half of which is gone is not carried by the other half. ``flatness_db`` is
    geometric over arithmetic mean of power, ``noise_db`` the level of the quietest 50 ms or 5 % relative to speech.
    ``values`` is the share of 16-bit values around 0 (within a quarter of the root mean square) that occur: about 1,
    1/256 after 8 bits.
    """

    bands_db: dict[str, float]
    flatness_db: float
    noise_db: float
    values: float


@dataclass(frozen=True, slots=True)
class BandGuard(JudgesTimedRequests):
    """Hears bandwidth, noise and resolution. Unit: dB, and share of sample values.

    The sample rate must be the baseline's. Levels of bands, spectral flatness (Gray and Markel 1974) and the level of
    the quietest part may get neither higher nor lower, by ``worse_by``, ``flatness`` and ``noise`` dB; the share of
    16-bit values that occur may fall by ``values`` of itself. All but the rate are blind to gain.
    """

    worse_by: float
    flatness: float
    noise: float
    values: float
    name: str = "band"

    def check(self, evidence: Evidence) -> GuardResult:
        """Compare rate and spectrum of every pair."""
        pairs = heard(evidence)
        if not pairs:
            return nothing_heard(self.name)
        rate = _rate(pairs)
        same = [pair for pair in pairs if pair.baseline.rate_hz == pair.theirs.rate_hz]
        found = [(pair.request.id, find_spectrum(pair.baseline), find_spectrum(pair.theirs)) for pair in same]
        both = [(name, old, new) for name, old, new in found if old is not None and new is not None]
        if not both:
            if rate.outcome == "failed":
                return result(self.name, [rate], len(pairs))
            return nothing_heard(self.name, "no request with speech from both arms")
        alone = all(pair.candidate is None for pair in pairs)
        findings = [rate]
        for band in BANDS_HZ:
            chosen = [item for item in both if band in item[1].bands_db and band in item[2].bands_db]
            if chosen:
                findings.append(_compare(band, DECIBEL, _band(band), chosen, self.worse_by, evidence.seed, alone))
                findings += [] if alone else [_single(band, chosen)]
        findings += [
            _compare("flatness", DECIBEL, lambda it: it.flatness_db, both, self.flatness, evidence.seed, alone),
            _compare("noise floor", DECIBEL, lambda it: it.noise_db, both, self.noise, evidence.seed, alone),
            _compare("sample values", NUMBER, lambda it: it.values, both, self.values, evidence.seed, alone),
        ]
        return result(self.name, findings, len(both))


@once
def find_spectrum(audio: Audio) -> Spectrum | None:
    """Return the spectrum of speech, or ``None`` where there is none."""
    power = _speech_power(audio)
    if power is None:
        return None
    hz = np.linspace(0, audio.rate_hz / 2, len(power))
    low = power[(hz >= REFERENCE_HZ[0]) & (hz < REFERENCE_HZ[1])].mean()
    if not low > 0:
        return None
    bands = {}
    for name, (start, stop) in BANDS_HZ.items():
        edge = audio.rate_hz / 2 / ROOM
        end = min(stop, edge) if name == "above 11 kHz" else stop
        if end <= edge and (end == stop or end >= LEAST_ABOVE_HZ):
            bands[name] = float(10 * np.log10(power[(hz >= start) & (hz < end)] / low + BAND_FLOOR).mean())
    shape = power[(hz >= REFERENCE_HZ[0]) & (hz < audio.rate_hz / 2 / ROOM)]
    shape = shape / shape.max() + FLATNESS_FLOOR
    return Spectrum(
        bands_db=bands,
        flatness_db=float(10 * (np.log10(shape).mean() - np.log10(shape.mean()))),
        noise_db=_noise_db(audio),
        values=_values(audio),
    )


def _speech_power(audio: Audio) -> NDArray[np.float64] | None:
    """Return the mean power spectrum of the frames that are speech (Welch 1967: 32 ms Hann windows, half over)."""
    window = max(16, round(WINDOW_S * audio.rate_hz))
    samples = np.pad(audio.samples, (0, max(0, window - len(audio.samples))))
    frames = np.lib.stride_tricks.sliding_window_view(samples, window)[:: window // 2]
    energy = np.einsum("ij,ij->i", frames, frames, dtype=np.float64) / window
    top = float(np.quantile(energy, TOP_QUANTILE))
    if not top > 10 ** (SILENCE_DB / 10):
        return None
    active = np.flatnonzero(energy > top * 10 ** (-BELOW_TOP_DB / 10))
    power = np.zeros(window // 2 + 1)
    for at in range(0, len(active), 1000):
        spectra = np.fft.rfft(frames[active[at : at + 1000]] * np.hanning(window), axis=1)
        power += (np.abs(spectra) ** 2).sum(axis=0)
    return power / len(active)


def _noise_db(audio: Audio) -> float:
    power = np.sort(10 ** (frame_levels(audio) / 10))
    if not len(power):
        return 0.0
    speech = power[power > np.quantile(power, TOP_QUANTILE) * 10 ** (-BELOW_TOP_DB / 10)].mean()
    quiet = power[: max(LEAST_QUIET, round(QUIETEST * len(power)))].mean()
    return float(10 * np.log10(quiet / speech + NOISE_FLOOR))


def _values(audio: Audio) -> float:
    steps = np.round(audio.samples.astype(np.float64) * STEPS).astype(np.int64)
    reach = max(LEAST_REACH, round(REACH * float(np.sqrt(np.mean(steps.astype(np.float64) ** 2)))))
    return len(np.unique(steps[np.abs(steps) <= reach])) / (2 * reach + 1)


def _rate(pairs: Sequence[HeardPair]) -> Finding:
    other = [pair for pair in pairs if pair.baseline.rate_hz != pair.theirs.rate_hz]
    baseline = pairs[0].baseline.rate_hz
    if not other:
        return Finding("passed", f"{baseline} Hz", float(baseline), float(baseline), unit="Hz", label="rate")
    pair = other[0]
    text = (
        f"{len(other)} answers of another sample rate, {pair.request.id} has {pair.theirs.rate_hz} Hz, "
        f"the baseline's {pair.baseline.rate_hz} Hz"
    )
    worst = tuple((pair.request.id, float(pair.theirs.rate_hz - pair.baseline.rate_hz)) for pair in other[:5])
    theirs, ours = float(pair.theirs.rate_hz), float(pair.baseline.rate_hz)
    return Finding("failed", text, theirs, ours, unit="Hz", worst=worst, label="rate")


def _band(name: str) -> Callable[[Spectrum], float]:
    return lambda spectrum: spectrum.bands_db[name]


def _compare(
    label: str,
    unit: Unit,
    figure: Callable[[Spectrum], float],
    both: Sequence[tuple[str, Spectrum, Spectrum]],
    margin: float,
    seed: int,
    alone: bool,
) -> Finding:
    before = np.array([figure(old) for _, old, _ in both])
    if alone:
        return absolute(label, unit, float(before.mean()), None)
    after = np.array([figure(new) for _, _, new in both])
    relative = unit is NUMBER
    least = 1e-6
    return Comparison(
        label=label,
        unit=unit,
        baseline=float(before.mean()),
        candidate=float(after.mean()),
        differences=np.log(np.maximum(after, least) / np.maximum(before, least)) if relative else after - before,
        ids=[name for name, _, _ in both],
        margin=margin,
        better="higher" if relative else "same",
        relative=relative,
    ).finding(seed)


def _single(band: str, both: Sequence[tuple[str, Spectrum, Spectrum]]) -> Finding:
    """Judge the band of every answer by itself."""
    lost = [(name, new.bands_db[band] - old.bands_db[band]) for name, old, new in both]
    lost = sorted((item for item in lost if item[1] < -SINGLE_DB), key=lambda item: item[1])
    text = f"{band}: {len(lost)} answers lost over {SINGLE_DB:.0f} dB"
    if lost:
        text += f": {', '.join(f'{name} {change:.1f} dB' for name, change in lost[:3])}"
    return Finding("failed" if lost else "passed", text, unit="dB", worst=tuple(lost[:5]), label=f"{band} of one")


FAMILY = Family(
    marker="band",
    signature=(
        "band(worse_by=1.0, flatness=0.6, noise=3.0, values=0.1): the baseline's sample rate; high bands, spectral "
        "flatness and noise floor stay as they are, in dB; no coarser sample values"
    ),
    build=BandGuard,
    arguments={
        "worse_by": Number(1.0, 0, 100),
        "flatness": Number(0.6, 0, 100),
        "noise": Number(3.0, 0, 100),
        "values": Number(0.1, 0, 1),
    },
)
