"""Splices in speech: clicks, sudden mutes, zero-runs and repeats of one answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from guards.speech import FRAME_S, find_speech, frame_levels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_rsi.audio import Audio

STEP = 1 / 32768
"""One step of 16 bits."""
ORDER = 16
WINDOW_S, HOP_S = 0.040, 0.010
CELL_S, CELLS = 0.005, 4
"""The residual's local median is that of 20 ms before or 20 ms after, the larger: a plosive has noise behind it."""
FLOOR = 4 * STEP
CLICK = 40.0
"""Of 48 honest answers of one voice none went over 28; an impulse goes over 100."""
MUTE_DB, MUTE_MS, LOUD_DB = 40.0, 4, 30.0
REPEAT_S = (0.020, 0.080)
BLOCK_S = 0.010
ALIKE = 0.995
"""Vowels of one voice were never over 0.98 like what was 20 to 80 ms before."""
NEAR_S = 0.002
DILATION = 3
BELOW_TOP_DB = 35.0
TOP_QUANTILE = 0.95


def residual_ratio(audio: Audio) -> NDArray[np.float64]:
    """Return |LPC residual| over its local median, float64 [n]: about 1, in glottal pulses 10, in clicks over 40.

    Linear prediction of order 16 by the autocorrelation method (Makhoul 1975), 40 ms Hann windows every 10 ms; clicks
    are where its residual is large (Godsill and Rayner 1998, chapter 5).
    """
    residual = np.abs(_residual(audio.samples.astype(np.float64), audio.rate_hz))
    cell = max(1, round(CELL_S * audio.rate_hz))
    count = -(-len(residual) // cell)
    padded = np.pad(residual, (0, (count + CELLS) * cell - len(residual)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, CELLS * cell)[::cell]
    medians = np.median(windows, axis=1)
    index = np.arange(count)
    before, after = medians[np.maximum(index - CELLS, 0)], medians[np.minimum(index + 1, len(medians) - 1)]
    local = np.maximum(np.maximum(before, after), FLOOR)
    ratio: NDArray[np.float64] = residual / np.repeat(local, cell)[: len(residual)]
    return ratio


def _residual(samples: NDArray[np.float64], rate_hz: int) -> NDArray[np.float64]:
    hop, window = max(1, round(HOP_S * rate_hz)), max(2 * ORDER, round(WINDOW_S * rate_hz))
    count = -(-len(samples) // hop)
    side = (window - hop) // 2
    padded = np.pad(samples, (side, count * hop + window - len(samples)))
    residual = np.empty(count * hop)
    delayed = np.pad(samples, (ORDER, count * hop - len(samples)))
    for first in range(0, count, 1000):
        last = min(first + 1000, count)
        frames = np.lib.stride_tricks.sliding_window_view(padded, window)[first * hop : last * hop : hop]
        weights = _predictor(frames * np.hanning(window), window)
        start, stop = first * hop, last * hop
        error = delayed[start + ORDER : stop + ORDER].reshape(-1, hop).copy()
        for lag in range(1, ORDER + 1):
            error -= weights[:, lag - 1, None] * delayed[start + ORDER - lag : stop + ORDER - lag].reshape(-1, hop)
        residual[start:stop] = error.ravel()
    return residual[: len(samples)]


def _predictor(frames: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Return the weights of the last ``ORDER`` samples, float64 [frames, ORDER]."""
    power = np.abs(np.fft.rfft(frames, 1 << (window + ORDER - 1).bit_length(), axis=1)) ** 2
    correlation = np.fft.irfft(power, axis=1)[:, : ORDER + 1]
    # White noise of one step: silence, and speech without its high band, are predicted without overshoot.
    correlation[:, 0] = correlation[:, 0] * (1 + 1e-6) + window * STEP**2
    lags = np.abs(np.subtract.outer(np.arange(ORDER), np.arange(ORDER)))
    solved = np.linalg.solve(correlation[:, lags], correlation[:, 1:, None])
    weights: NDArray[np.float64] = solved[..., 0].astype(np.float64)
    return weights


def count_clicks(ratio: NDArray[np.float64], rate_hz: int) -> int:
    """Count clicks; those within 5 ms of each other are one."""
    return _clusters(np.flatnonzero(ratio > CLICK), CELL_S * rate_hz)


def count_mutes(audio: Audio) -> int:
    """Count where speech falls by 40 dB within 2 ms and stays there for 4 ms: a stop consonant is slower."""
    frame = max(1, round(0.001 * audio.rate_hz))
    count = len(audio.samples) // frame
    if count < MUTE_MS + 3:
        return 0
    power = np.mean(audio.samples[: count * frame].astype(np.float64).reshape(count, frame) ** 2, axis=1)
    levels = 10 * np.log10(power + 1e-12)
    before = levels[: -(MUTE_MS + 1)]
    after = np.lib.stride_tricks.sliding_window_view(levels, MUTE_MS)[2:].max(axis=1)
    loud = before >= np.quantile(levels, TOP_QUANTILE) - LOUD_DB
    return _clusters(np.flatnonzero(loud & (after <= before - MUTE_DB)), 5)


def longest_zero_run_s(audio: Audio) -> float:
    """Return the longest run of samples within one 16-bit step of 0, from the first speech to the last, in seconds."""
    speech = find_speech(audio)
    if speech is None:
        return 0.0
    first = round(speech.lead_s * audio.rate_hz)
    inside = audio.samples[first : first + round(speech.span_s * audio.rate_hz)]
    loud = np.flatnonzero(np.abs(inside) > 1.5 * STEP)
    runs = np.diff(np.concatenate([[-1], loud, [len(inside)]])) - 1
    return int(runs.max()) / audio.rate_hz


def count_repeats(audio: Audio) -> int:
    """Count where 15 ms of loud speech are what was heard 20 to 80 ms before, by normalised cross-correlation."""
    from scipy.fft import irfft, next_fast_len, rfft

    shortest, longest = (round(seconds * audio.rate_hz) for seconds in REPEAT_S)
    block = round(BLOCK_S * audio.rate_hz)
    hop = block // 2
    # The first difference, lest everything be alike that has the same offset or hum.
    samples = np.diff(audio.samples.astype(np.float64))
    starts = np.arange(longest, len(samples) - block - hop + 1, hop)
    if not len(starts):
        return 0
    energy = np.concatenate([[0.0], np.cumsum(samples**2)])
    own = energy[starts + block] - energy[starts]
    loud = own > np.quantile(own, TOP_QUANTILE) * 10 ** (-LOUD_DB / 10)
    loud &= own > block * (10 * STEP) ** 2
    size, lags = next_fast_len(longest - shortest + block, real=True), longest - shortest + 1
    found, last, alike = [], -1, np.zeros(lags)
    for start, power in zip(starts[loud], own[loud], strict=True):
        past = samples[start - longest : start - shortest + block]
        spectrum = rfft(past, size) * np.conj(rfft(samples[start : start + block], size))
        theirs = energy[start - longest + block : start - shortest + block + 1]
        theirs = theirs - energy[start - longest : start - shortest + 1]
        now = irfft(spectrum, size)[:lags] / np.sqrt(power * np.maximum(theirs, 0.1 * power))
        if start == last + hop and np.minimum(alike, now).max() > ALIKE:
            found.append(start)
        alike, last = now, start
    return _clusters(np.array(found, dtype=np.int64), REPEAT_S[1] * audio.rate_hz)


def seam_rank(ratio: NDArray[np.float64], audio: Audio, boundaries: Sequence[int]) -> float:
    """Return the mean rank, 0 to 1, of the boundaries inside speech among all of speech; nan without any.

    What is ranked is the largest residual ratio within 2 ms. Of boundaries that nobody hears the ranks are uniform:
    mean 0.5, standard deviation 0.29 (of one).
    """
    from scipy.ndimage import maximum_filter1d

    near = max(1, round(NEAR_S * audio.rate_hz))
    inside = _active(audio, len(ratio))
    seams = [at for at in boundaries if near <= at < len(ratio) - near and inside[at]]
    if not seams:
        return float("nan")
    largest = maximum_filter1d(ratio, 2 * near + 1)
    all_of_it = np.sort(largest[inside][:: max(1, near // 2)])
    here = largest[seams]
    ranks = np.searchsorted(all_of_it, here, "left") + np.searchsorted(all_of_it, here, "right")
    return float(ranks.mean() / 2 / len(all_of_it))


def _active(audio: Audio, count: int) -> NDArray[np.bool_]:
    """Return where speech is, 30 ms before and after included, bool [n]."""
    levels = frame_levels(audio)
    if not len(levels):
        return np.ones(count, dtype=np.bool_)
    active = levels > np.quantile(levels, TOP_QUANTILE) - BELOW_TOP_DB
    wide = np.convolve(active, np.ones(2 * DILATION + 1), mode="same") > 0
    frames = np.minimum((np.arange(count) / (audio.rate_hz * FRAME_S)).astype(np.int64), len(levels) - 1)
    inside: NDArray[np.bool_] = wide[: len(levels)][frames]
    return inside


def _clusters(where: NDArray[np.int64], apart: float) -> int:
    return int(len(where) > 0) + int(np.count_nonzero(np.diff(where) > apart))
