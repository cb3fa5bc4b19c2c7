"""Where speech begins, pauses and ends: energy-based voice activity."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from guards.memory import once

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_rsi.audio import Audio

FRAME_S = 0.010
TOP_QUANTILE = 0.95
FLOOR_QUANTILE = 0.05
BELOW_TOP_DB = 35.0
ABOVE_FLOOR_DB = 6.0
LEAST_BELOW_TOP_DB = 20.0
"""A frame is speech above top - 35 dB, or above floor + 6 dB if noise is higher, but never above top - 20 dB."""
LEAST_RUN = 3
"""Speech begins and ends with 30 ms of it: a click is not speech."""
TAIL_S = 0.020
SILENCE_DB = -120.0
SYLLABLE_PROMINENCE_DB = 3.0
SYLLABLE_SMOOTHING = 7


@dataclass(frozen=True, slots=True)
class Speech:
    """What voice activity says of an answer. Times are seconds, levels dB.

    ``total_s`` is all of it, ``span_s`` from the first to the last speech, ``lead_s`` and ``trail_s`` the silence
    before and after, ``pause_s`` the longest silence inside, ``rate_hz`` the energy peaks (a proxy of syllables) per
    second of the span, ``tail_db`` the level of the last 20 ms relative to the loudest speech: near 0 where sound was
    cut off.
    """

    total_s: float
    span_s: float
    lead_s: float
    trail_s: float
    pause_s: float
    rate_hz: float
    tail_db: float


@once
def find_speech(audio: Audio) -> Speech | None:
    """Return where speech lies, or ``None`` where there is none."""
    levels = frame_levels(audio)
    if not len(levels) or levels.max() <= SILENCE_DB + 1:
        return None
    top = float(np.quantile(levels, TOP_QUANTILE))
    active = _long_runs(levels > _threshold(levels, top))
    where = np.flatnonzero(active)
    if not len(where):
        return None
    first, last = int(where[0]), int(where[-1])
    tail = audio.samples[-max(1, round(TAIL_S * audio.rate_hz)) :].astype(np.float64)
    span_s = (last + 1 - first) * FRAME_S
    return Speech(
        total_s=audio.duration_s,
        span_s=span_s,
        lead_s=first * FRAME_S,
        trail_s=max(0.0, audio.duration_s - (last + 1) * FRAME_S),
        pause_s=int(np.diff(where).max(initial=1) - 1) * FRAME_S,
        rate_hz=_syllables(levels[first : last + 1]) / span_s,
        tail_db=float(10 * np.log10(np.mean(tail**2) + 1e-12)) - top,
    )


def frame_levels(audio: Audio) -> NDArray[np.float64]:
    """Return the RMS level of each whole 10 ms frame in dB re full scale, float64 [n // frame], at least -120."""
    edges = np.round(np.arange(int(audio.duration_s / FRAME_S) + 1) * FRAME_S * audio.rate_hz).astype(np.int64)
    # Frames of 10 ms whatever the rate: 22.05 kHz has 220.5 samples in one, and rounding must not add up.
    energy = np.concatenate([[0.0], np.cumsum(audio.samples.astype(np.float64) ** 2)])
    power = np.diff(energy[np.minimum(edges, len(audio.samples))]) / np.maximum(1, np.diff(edges))
    levels: NDArray[np.float64] = 10 * np.log10(np.maximum(power, 10 ** (SILENCE_DB / 10)))
    return levels


def _threshold(levels: NDArray[np.float64], top: float) -> float:
    floor = float(np.quantile(levels, FLOOR_QUANTILE))
    return max(top - BELOW_TOP_DB, min(floor + ABOVE_FLOOR_DB, top - LEAST_BELOW_TOP_DB))


def _long_runs(active: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Drop runs shorter than ``LEAST_RUN`` frames."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], active.astype(np.int8), [0]])))
    kept = np.zeros_like(active)
    for start, stop in edges.reshape(-1, 2):
        if stop - start >= LEAST_RUN:
            kept[start:stop] = True
    return kept


def _syllables(levels: NDArray[np.float64]) -> int:
    """Count peaks of the smoothed level: vowels, mostly (after Mermelstein 1975)."""
    from scipy.signal import find_peaks

    window = np.hanning(SYLLABLE_SMOOTHING + 2)[1:-1]
    padded = np.pad(levels, SYLLABLE_SMOOTHING // 2, mode="edge")
    smooth = np.convolve(padded, window / window.sum(), mode="valid")
    peaks, _ = find_peaks(np.concatenate([[SILENCE_DB], smooth, [SILENCE_DB]]), prominence=SYLLABLE_PROMINENCE_DB)
    return len(peaks)
