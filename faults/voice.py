"""Voice: pitch, rate, vocal tract, drift, resynthesis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.signal import istft, stft

from faults.answers import SoundFault

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from faults.answers import Samples, Sound

FRAME_S, HOP_S, SEARCH_S = 0.040, 0.010, 0.008
ENVELOPE_S = 0.0015
"""Cepstral coefficients up to this quefrency are the vocal tract, those above the voice's harmonics."""
FLOOR = 1e-6


def stretched(samples: Samples, rate_hz: int, factor: float) -> Samples:
    """Return speech ``factor`` times as long at its pitch (WSOLA; Verhelst and Roelands 1993)."""
    frame, hop, search = (round(seconds * rate_hz) for seconds in (FRAME_S, HOP_S, SEARCH_S))
    length = round(len(samples) * factor)
    window = np.hanning(frame).astype(np.float32)
    padded = np.pad(samples, (frame, 2 * frame + search))
    out, weight = np.zeros(length + 2 * frame, np.float32), np.zeros(length + 2 * frame, np.float32)
    at = frame
    for start in range(0, length, hop):
        wanted = frame + round(start / factor)
        low, high = max(0, wanted - search), min(len(padded) - frame, wanted + search)
        if start:
            # Of all frames near by, the one most like what would have followed the last.
            following = padded[at + hop : at + hop + frame]
            near = np.lib.stride_tricks.sliding_window_view(padded[low : high + frame], frame)
            likeness = near @ following / np.sqrt(np.sum(near**2, axis=1) + FLOOR)
            at = low + int(np.argmax(likeness))
        else:
            at = wanted
        at = min(at, len(padded) - frame - hop)
        out[start : start + frame] += padded[at : at + frame] * window
        weight[start : start + frame] += window
    spoken: Samples = (out / np.maximum(weight, 1e-3))[:length].astype(np.float32)
    return spoken


def read_at(samples: Samples, positions: NDArray[np.float64]) -> Samples:
    """Return samples at fractional positions (float64 [m]), by cubic interpolation."""
    from scipy.interpolate import CubicSpline

    curve = CubicSpline(np.arange(len(samples)), samples.astype(np.float64))
    return np.asarray(curve(np.clip(positions, 0, len(samples) - 1)), dtype=np.float32)


def _pitch(sound: Sound, size: float) -> Samples:
    factor = 2 ** (size / 1200)
    longer = stretched(sound.samples, sound.rate_hz, factor)
    return read_at(longer, np.arange(len(sound.samples), dtype=np.float64) * factor)


def _rate(sound: Sound, size: float) -> Samples:
    return stretched(sound.samples, sound.rate_hz, 1 / (1 + size / 100))


def _resampled(sound: Sound, size: float) -> Samples:
    factor = 1 + size / 100
    return read_at(sound.samples, np.arange(int(len(sound.samples) / factor), dtype=np.float64) * factor)


def _drift(sound: Sound, size: float) -> Samples:
    """Raise the pitch from nothing at the start to ``size`` cents at the end."""
    count = len(sound.samples)
    factor = 2 ** (size / 1200 * np.arange(count) / max(1, count))
    positions = np.concatenate([[0.0], np.cumsum(factor)])[:-1]
    longer = stretched(sound.samples, sound.rate_hz, float(positions[-1] / max(1, count)))
    return read_at(longer, positions)


def _fade(sound: Sound, size: float) -> Samples:
    """Lower the level from nothing at the start to ``size`` dB at the end."""
    ramp = 10 ** (-size / 20 * np.linspace(0, 1, len(sound.samples)))
    return (sound.samples * ramp).astype(np.float32)


def _tract(sound: Sound, size: float) -> Samples:
    """Move the spectral envelope up by ``size`` %, pitch and time as they are: a shorter vocal tract."""
    spectra = _spectra(sound.samples, sound)
    cepstra = np.fft.irfft(np.log(np.maximum(np.abs(spectra), FLOOR)), axis=0)
    lifter = max(1, round(ENVELOPE_S * sound.rate_hz))
    cepstra[lifter : len(cepstra) - lifter + 1] = 0
    envelope = np.fft.rfft(cepstra, axis=0).real
    bins = np.arange(len(envelope))
    moved = np.stack([np.interp(bins / (1 + size / 100), bins, column) for column in envelope.T], axis=1)
    return _samples(spectra * np.exp(moved - envelope), sound)


def _griffin_lim(sound: Sound, size: float) -> Samples:
    """Forget the phases and estimate them from the magnitudes in ``size`` rounds (Griffin and Lim 1984)."""
    magnitude = np.abs(_spectra(sound.samples, sound))
    phases = np.exp(2j * np.pi * sound.rng.random(magnitude.shape))
    for _ in range(round(size)):
        phases = np.exp(1j * np.angle(_spectra(_samples(magnitude * phases, sound), sound)))
    return _samples(magnitude * phases, sound)


def _spectra(samples: Samples, sound: Sound) -> NDArray[np.complex128]:
    """Return the short-time spectra of samples as long as the sound's, complex [bins, frames]."""
    return np.asarray(stft(samples, sound.rate_hz, nperseg=_frame(sound), noverlap=_frame(sound) * 3 // 4)[2])


def _samples(spectra: NDArray[np.complex128], sound: Sound) -> Samples:
    """Return the samples of short-time spectra, as many as the sound has."""
    samples = istft(spectra, sound.rate_hz, nperseg=_frame(sound), noverlap=_frame(sound) * 3 // 4)[1]
    count = len(sound.samples)
    return np.pad(samples, (0, max(0, count - len(samples))))[:count].astype(np.float32)


def _frame(sound: Sound) -> int:
    return 1 << (sound.count(0.025) - 1).bit_length()


FAULTS = (
    SoundFault("pitch", "cents", (25, 50, 100, 200), "a higher voice", _pitch),
    SoundFault("rate", "%", (1, 2, 5, 10), "faster speech", _rate),
    SoundFault("resampled", "%", (1, 2, 4, 8), "faster and higher: played at the wrong rate", _resampled),
    SoundFault("vocal-tract", "%", (4, 8, 12, 20), "another speaker at the same pitch", _tract),
    SoundFault("pitch-drift", "cents", (25, 50, 100, 200), "the voice rises to the end", _drift),
    SoundFault("level-drift", "dB", (1, 3, 6, 12), "the voice fades to the end", _fade),
    SoundFault("griffin-lim", "rounds", (64, 32, 8, 0), "phases guessed: hollow, robotic", _griffin_lim),
)
