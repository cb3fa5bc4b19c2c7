"""Sound: band, noise, coarse samples, level."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.signal import firwin, oaconvolve

from faults.answers import SoundFault

if TYPE_CHECKING:
    from faults.answers import Samples, Sound

TAPS = 255
MU = 255


def _low_pass(sound: Sound, size: float) -> Samples:
    if 2 * size * 1000 >= sound.rate_hz:
        return sound.samples
    filtered = oaconvolve(sound.samples, firwin(TAPS, size * 1000, fs=sound.rate_hz), mode="same")
    return np.asarray(filtered, dtype=np.float32)


def _noise(sound: Sound, size: float) -> Samples:
    level = float(np.sqrt(np.mean(sound.samples.astype(np.float64) ** 2))) * 10 ** (-size / 20)
    return (sound.samples + sound.rng.normal(0, level, len(sound.samples))).astype(np.float32)


def _bits(sound: Sound, size: float) -> Samples:
    steps = 2 ** (size - 1) - 1
    return (np.round(sound.samples * steps) / steps).astype(np.float32)


def _mu_law(sound: Sound, size: float) -> Samples:
    """Compand, quantise to so many bits, expand (ITU-T G.711's curve)."""
    steps = 2 ** (size - 1) - 1
    compressed = np.sign(sound.samples) * np.log1p(MU * np.abs(sound.samples)) / np.log1p(MU)
    coarse = np.round(compressed * steps) / steps
    expanded: Samples = (np.sign(coarse) * np.expm1(np.abs(coarse) * np.log1p(MU)) / MU).astype(np.float32)
    return expanded


def _gain(sound: Sound, size: float) -> Samples:
    louder: Samples = (sound.samples * 10 ** (size / 20)).astype(np.float32)
    return louder


def _clipped(sound: Sound, size: float) -> Samples:
    """Amplify until the loudest sample is ``size`` dB above full scale, and clip."""
    peak = float(np.abs(sound.samples).max(initial=1e-9))
    clipped: Samples = np.clip(sound.samples * 10 ** (size / 20) / peak, -1, 1).astype(np.float32)
    return clipped


def _offset(sound: Sound, size: float) -> Samples:
    return sound.samples + np.float32(size)


FAULTS = (
    SoundFault("low-pass", "kHz", (10, 8, 5.5, 4), "dull: the high band is gone", _low_pass),
    SoundFault("noise", "dB SNR", (50, 40, 30, 20), "hiss", _noise),
    SoundFault("linear-bits", "bits", (12, 10, 8, 6), "grainy", _bits),
    SoundFault("mu-law", "bits", (10, 8, 6), "grainy", _mu_law),
    SoundFault("quieter", "dB", (-0.5, -1, -3, -12), "quieter", _gain),
    SoundFault("clipped", "dB over", (1, 3, 6, 12), "overdriven", _clipped),
    SoundFault("offset", "full scale", (0.001, 0.003, 0.01, 0.05), "thumps at both ends", _offset),
)
