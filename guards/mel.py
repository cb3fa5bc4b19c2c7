"""Log-mel spectra and their distance after dynamic time warping."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pytest_rsi.audio import Audio

WINDOW_S = 0.025
HOP_S = 0.010
BANDS = 40
TOP_HZ = 11_000.0
FLOOR = 1e-8
"""Energies more than 80 dB below the loudest of an answer count as equal: dither is not a difference."""
LEAST_RADIUS = 100
RADIUS_SHARE = 0.1
"""Warping may stray one second from the straight line, or a tenth of a long answer."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """Two answers aligned in time.

    ``distance`` is the mean absolute difference of log-mel energies (natural logarithm) along the path. ``open_end`` is
    how many of the second's frames the first covers when its end is free to fall anywhere: fewer than it has, if the
    first stops early.
    """

    distance: float
    open_end: int


def log_mel(audio: Audio) -> NDArray[np.float32]:
    """Return natural-log mel energies, float32 [frames, 40]: 25 ms Hann windows every 10 ms, 0 to 11 kHz.

    The bands do not depend on the rate, so answers of different rates compare.
    """
    window, hop = round(WINDOW_S * audio.rate_hz), HOP_S * audio.rate_hz
    samples = np.pad(audio.samples, (window // 2, window))
    starts = np.round(np.arange(max(1, int(len(audio.samples) / hop))) * hop).astype(np.int64)
    frames = np.lib.stride_tricks.sliding_window_view(samples, window)[starts] * np.hanning(window).astype(np.float32)
    size = 1 << (window - 1).bit_length()
    power = np.abs(np.fft.rfft(frames, size, axis=1)).astype(np.float32) ** 2 / window
    energies = power @ _filters(audio.rate_hz, size)
    logs: NDArray[np.float32] = np.log(np.maximum(energies, max(float(energies.max()) * FLOOR, 1e-12)))
    return logs


def align(first: NDArray[np.float32], second: NDArray[np.float32]) -> Alignment:
    """Align two log-mel spectra, float32 [n, bands] and [m, bands] (Sakoe and Chiba 1978, symmetric form P = 0).

    Runs along anti-diagonals: each depends on the two before it only, so a whole one is computed at once.
    """
    n, m = len(first), len(second)
    slope, radius = m / n, max(LEAST_RADIUS, RADIUS_SHARE * max(n, m)) + abs(n - m)
    before = np.full(n + 1, np.inf)
    last = np.full(n + 1, np.inf)
    ends = np.full(m, np.inf)
    for diagonal in range(n + m - 1):
        low = max(0, diagonal - m + 1, int(np.ceil((diagonal - radius) / (1 + slope))))
        high = min(n - 1, diagonal, int((diagonal + radius) / (1 + slope)))
        rows = slice(low, high + 1)
        other = second[diagonal - high : diagonal - low + 1][::-1]
        cost = np.abs(first[rows] - other).mean(axis=1)
        # Entry i + 1 is row i, so that row -1 is there and infinite.
        now = np.full(n + 1, np.inf)
        if diagonal == 0:
            now[1] = 2 * cost[0]
        else:
            straight = np.minimum(last[low : high + 1], last[low + 1 : high + 2]) + cost
            now[low + 1 : high + 2] = np.minimum(straight, before[low : high + 1] + 2 * cost)
        before, last = last, now
        if high == n - 1:
            ends[diagonal - n + 1] = now[n]
    means = ends / (n + np.arange(1, m + 1))
    return Alignment(float(means[-1]), int(np.argmin(means)) + 1)


@functools.lru_cache(maxsize=8)
def _filters(rate_hz: int, size: int) -> NDArray[np.float32]:
    """Return triangular filters on the mel scale of O'Shaughnessy (1987), float32 [size // 2 + 1, bands]."""
    top = 2595 * np.log10(1 + TOP_HZ / 700)
    edges = 700 * (10 ** (np.linspace(0, top, BANDS + 2) / 2595) - 1)
    bins = np.fft.rfftfreq(size, 1 / rate_hz)[:, None]
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    filters: NDArray[np.float32] = np.maximum(0, np.minimum(rising, falling)).astype(np.float32)
    return filters
