"""Metrics: pure functions of what was seen. Nothing that a server says about itself enters a figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from pytest_rsi.audio import Playout, UndecodableAudioError, playout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pytest_rsi.audio import Audio
    from pytest_rsi.recording import Exchange, Recording

FRAME_S = 0.010
AUDIBLE_DBFS = -50.0
AUDIBLE_FRAMES = 4
"""ttfa waits for 40 ms of signal: four 10 ms frames, wherever they lie, each above -50 dBFS RMS."""
PLAYER_BUFFER_S = 0.100

FailureKind = Literal["no answer", "status", "undecodable"]


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer that is not speech: ``kind`` to count by, ``detail`` in one line."""

    kind: FailureKind
    detail: str


@dataclass(frozen=True, slots=True)
class ExchangeMetrics:
    """The metrics of one answered request. All ``_s`` are seconds, counted from when the load asked for the request.

    ``ttfa_s`` is ``inf`` for an answer with no audible audio. ``gaps_s`` are the differences between successive times
    at which more audio became playable; ``stalls`` and ``stalled_s`` are underruns of a player that starts at ttfa with
    a 100 ms buffer; ``rtf`` is e2e / audio.
    """

    e2e_s: float
    ttfb_s: float
    ttfa_s: float
    gaps_s: tuple[float, ...]
    stalls: int
    stalled_s: float
    audio_s: float
    rtf: float


def measure(exchange: Exchange) -> ExchangeMetrics | Failure:
    """Return the metrics of an exchange, or why it has none."""
    if exchange.status is None or exchange.error is not None:
        return Failure("no answer", exchange.error or "no status")
    if exchange.status != 200:
        return Failure("status", f"status {exchange.status}: {exchange.body[:200]!r}")
    try:
        played = playout(exchange)
    except UndecodableAudioError as error:
        return Failure("undecodable", str(error))
    start_s = exchange.scheduled_s
    audible_s = audible_at_s(played)
    stalls, stalled_s = underruns(played, audible_s)
    e2e_s = exchange.finished_s - start_s
    return ExchangeMetrics(
        e2e_s=e2e_s,
        ttfb_s=exchange.chunks[0].time_s - start_s,
        ttfa_s=audible_s - start_s,
        gaps_s=tuple(float(gap) for gap in np.diff(np.unique(played.times_s))),
        stalls=stalls,
        stalled_s=stalled_s,
        audio_s=played.audio.duration_s,
        rtf=e2e_s / played.audio.duration_s,
    )


def audible_at_s(played: Playout) -> float:
    """Return the time by which 40 ms of audible signal could have been played; ``inf`` if there never is so much."""
    audible = np.flatnonzero(frame_levels_dbfs(played.audio) > AUDIBLE_DBFS)
    if len(audible) < AUDIBLE_FRAMES:
        return float("inf")
    needed = (int(audible[AUDIBLE_FRAMES - 1]) + 1) * _frame(played.audio)
    enough = np.flatnonzero(played.ends >= min(needed, len(played.audio.samples)))
    return float(played.times_s[enough[0]])


def frame_levels_dbfs(audio: Audio) -> NDArray[np.float64]:
    """Return the RMS level of each whole 10 ms frame, float64 [n // frame], in dB re full scale."""
    frame = _frame(audio)
    count = len(audio.samples) // frame
    frames = audio.samples[: count * frame].astype(np.float64).reshape(count, frame)
    levels: NDArray[np.float64] = 10 * np.log10(np.mean(frames**2, axis=1) + 1e-12)
    return levels


def underruns(played: Playout, start_s: float) -> tuple[int, float]:
    """Return (number of stalls, stalled seconds) of a player that starts ``PLAYER_BUFFER_S`` after ``start_s``.

    The player runs dry when all that has arrived is played and more is to come; it waits for the next arrival and goes
    on at once, as browsers and telephony gateways do.
    """
    if not np.isfinite(start_s):
        return 0, 0.0
    stalls, stalled_s, clock_s = 0, 0.0, start_s + PLAYER_BUFFER_S
    playable = 0.0
    for time_s, end in zip(played.times_s, played.ends, strict=True):
        # What arrived before must last until now; the player's clock is when it will have played all of that.
        if playable and time_s > clock_s + playable / played.audio.rate_hz + 1e-9:
            late_s = time_s - (clock_s + playable / played.audio.rate_hz)
            stalls, stalled_s, clock_s = stalls + 1, stalled_s + float(late_s), clock_s + float(late_s)
        playable = float(end)
    return stalls, stalled_s


def throughput_rps(recording: Recording) -> float:
    """Return answered requests per second: decodable answers over first request sent to last answer's end."""
    answered = sum(1 for exchange in recording.exchanges if isinstance(measure(exchange), ExchangeMetrics))
    if not answered:
        return 0.0
    first_s = min(exchange.sent_s for exchange in recording.exchanges)
    return answered / (max(exchange.finished_s for exchange in recording.exchanges) - first_s)


def summarise(recordings: Sequence[Recording]) -> dict[str, float]:
    """Return what a table shows of some recordings: failures, percentiles of e2e, ttfa and rtf, continuity.

    ``continuity`` is the share of answers without an underrun. Values of nothing are ``nan``.
    """
    seen = [measure(exchange) for recording in recordings for exchange in recording.exchanges]
    answered = [metrics for metrics in seen if isinstance(metrics, ExchangeMetrics)]
    table = {"failures": float(len(seen) - len(answered))}
    for name in ("e2e_s", "ttfa_s", "rtf"):
        values = [getattr(metrics, name) for metrics in answered]
        stem, _, unit = name.partition("_")
        for percent in (50, 95, 99):
            table[f"{stem}_p{percent}{'_' + unit if unit else ''}"] = quantile(values, percent / 100)
    table["audio_s"] = sum(metrics.audio_s for metrics in answered)
    table["continuity"] = sum(metrics.stalls == 0 for metrics in answered) / len(answered) if answered else float("nan")
    return table


def quantile(values: Sequence[float], q: float) -> float:
    """Return the ``q`` quantile (linear between order statistics, as numpy's default), ``nan`` of nothing."""
    return float(np.quantile(values, q)) if len(values) else float("nan")


def _frame(audio: Audio) -> int:
    return max(1, round(FRAME_S * audio.rate_hz))
