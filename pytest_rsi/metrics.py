"""Metrics: pure functions of what was seen. Nothing that a server says about itself enters a figure.

The one exception is the sample rate of raw PCM (``X-Sample-Rate``): the bytes do not hold it, so a rate that lies
scales ``audio_s`` and with it rtf, ttfa and underruns. It never touches e2e or requests/s, and guards listen to the
audio at that rate.

Latencies count from ``scheduled_s``, always: in an open loop that is the planned arrival, so that a server which stalls
its clients cannot hide their waiting (coordinated omission); in a closed loop it equals ``sent_s``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from pytest_rsi.audio import Playout, UndecodableAudioError, playout

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from pytest_rsi.audio import Audio
    from pytest_rsi.recording import Exchange, Recording

FRAME_S = 0.010
AUDIBLE_DBFS = -50.0
AUDIBLE_FRAMES = 4
"""ttfa waits for 40 ms of signal: four 10 ms frames, wherever they lie, each above -50 dBFS RMS."""
PLAYER_BUFFER_S = 0.100

FailureKind = Literal["no answer", "status", "undecodable"]
"""``no answer``: the exchange broke, before or inside the answer; ``status``: a whole answer that is not 200;
``undecodable``: a whole 200 that is not the audio asked for, or none at all."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An answer that is not speech: ``kind`` to count by, ``detail`` in one line."""

    kind: FailureKind
    detail: str


@dataclass(frozen=True, slots=True)
class ExchangeMetrics:
    """The metrics of one answered request. All ``_s`` are seconds, latencies counted from when the load asked for it.

    ``e2e_s`` lasts to the end of the answer (last byte, terminating marker or close, whichever ends it), ``ttfb_s`` to
    its first body byte, ``ttfa_s`` until 40 ms of audible signal could have been played, ``inf`` if there never is so
    much. ``gaps_s`` are the differences between successive times at which more samples became playable; ``stalls``
    and ``stalled_s`` are underruns of a player that starts at ttfa with a 100 ms buffer; ``rtf`` is e2e / audio.
    """

    e2e_s: float
    ttfb_s: float
    ttfa_s: float
    gaps_s: tuple[float, ...]
    stalls: int
    stalled_s: float
    audio_s: float
    rtf: float


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of a metric over what was answered, ``nan`` of nothing."""

    p50: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class RecordingMetrics:
    """The metrics of one or more recordings of an arm.

    ``failures`` counts by kind. ``span_s`` is from the first request sent to the end of the last answer, summed over
    recordings; ``requests_per_s`` and ``audio_per_s`` (seconds of audio a second) count answers that are speech.
    ``gap`` is over all gaps of all answers. ``continuity`` is the share of answers without an underrun.
    """

    requests: int
    answered: int
    failures: Mapping[FailureKind, int]
    span_s: float
    requests_per_s: float
    audio_per_s: float
    audio_s: float
    e2e_s: Percentiles
    ttfb_s: Percentiles
    ttfa_s: Percentiles
    rtf: Percentiles
    gap_s: Percentiles
    stalls: int
    stalled_s: float
    continuity: float


def measure(exchange: Exchange) -> ExchangeMetrics | Failure:
    """Return the metrics of an exchange, or why it has none."""
    if exchange.status is None or exchange.error is not None:
        return Failure("no answer", exchange.error or "no status")
    if exchange.status != 200:
        return Failure("status", f"status {exchange.status}: {exchange.body[:200]!r}")
    try:
        played = playout(exchange)
    except UndecodableAudioError as error:
        return Failure("undecodable", " ".join(str(error).split()))
    asked_s = exchange.scheduled_s
    audible_s = audible_at_s(played)
    stalls, stalled_s = underruns(played, audible_s)
    e2e_s = exchange.finished_s - asked_s
    times_s, _ = _growth(played)
    return ExchangeMetrics(
        e2e_s=e2e_s,
        ttfb_s=next(chunk.time_s for chunk in exchange.chunks if chunk.data) - asked_s,
        ttfa_s=audible_s - asked_s,
        gaps_s=tuple(map(float, np.diff(times_s))),
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
    return float(played.times_s[np.searchsorted(played.ends, needed)])


def frame_levels_dbfs(audio: Audio) -> NDArray[np.float64]:
    """Return the RMS level of each whole 10 ms frame about its mean, float64 [n // frame], in dB re full scale.

    About the mean, since a constant offset cannot be heard: it would be the cheapest first audio of all.
    """
    frame = _frame(audio)
    count = len(audio.samples) // frame
    frames = audio.samples[: count * frame].astype(np.float64).reshape(count, frame)
    levels: NDArray[np.float64] = 10 * np.log10(np.var(frames, axis=1) + 1e-12)
    return levels


def underruns(played: Playout, start_s: float) -> tuple[int, float]:
    """Return (number of stalls, stalled seconds) of a player that starts ``PLAYER_BUFFER_S`` after ``start_s``.

    It plays from the first sample on. It runs dry when all that has arrived is played and more samples are to come; it
    waits for the next ones and goes on at once, as browsers and telephony gateways do.
    """
    if not np.isfinite(start_s):
        return 0, 0.0
    stalls, stalled_s, dry_s = 0, 0.0, start_s + PLAYER_BUFFER_S
    times_s, ends = _growth(played)
    previous = 0
    for time_s, end in zip(times_s, ends, strict=True):
        # What comes before the player starts is in its buffer; a nanosecond is rounding, not waiting.
        if previous and time_s > dry_s + 1e-9:
            stalls, stalled_s, dry_s = stalls + 1, stalled_s + float(time_s - dry_s), float(time_s)
        dry_s += (int(end) - previous) / played.audio.rate_hz
        previous = int(end)
    return stalls, stalled_s


def throughput_rps(recording: Recording) -> float:
    """Return answered requests per second: answers that are speech, over the span of all exchanges.

    The span goes from the first request sent to the end of the last exchange, failed ones included: both ends are the
    client's own stamps of requests, so that the load generator's set-up and clearing away count for nobody, and time
    spent on failing is time spent.
    """
    answered = sum(isinstance(measure(exchange), ExchangeMetrics) for exchange in recording.exchanges)
    return _per_second(answered, _span_s(recording))


def measure_recordings(recordings: Sequence[Recording]) -> RecordingMetrics:
    """Return the metrics of some recordings of one arm and workload, taken together."""
    seen = [measure(exchange) for recording in recordings for exchange in recording.exchanges]
    answered = [found for found in seen if isinstance(found, ExchangeMetrics)]
    span_s = sum(map(_span_s, recordings))
    audio_s = sum(found.audio_s for found in answered)
    return RecordingMetrics(
        requests=len(seen),
        answered=len(answered),
        failures=Counter(found.kind for found in seen if isinstance(found, Failure)),
        span_s=span_s,
        requests_per_s=_per_second(len(answered), span_s),
        audio_per_s=_per_second(audio_s, span_s),
        audio_s=audio_s,
        e2e_s=percentiles(found.e2e_s for found in answered),
        ttfb_s=percentiles(found.ttfb_s for found in answered),
        ttfa_s=percentiles(found.ttfa_s for found in answered),
        rtf=percentiles(found.rtf for found in answered),
        gap_s=percentiles(gap_s for found in answered for gap_s in found.gaps_s),
        stalls=sum(found.stalls for found in answered),
        stalled_s=sum(found.stalled_s for found in answered),
        continuity=sum(found.stalls == 0 for found in answered) / len(answered) if answered else float("nan"),
    )


def summarise(recordings: Sequence[Recording]) -> dict[str, float]:
    """Return what a table shows of some recordings, by names such as ``ttfa_p95_s``. Values of nothing are ``nan``."""
    found = measure_recordings(recordings)
    table = {"failures": float(found.requests - found.answered)}
    for stem, unit, of in (("e2e", "_s", found.e2e_s), ("ttfa", "_s", found.ttfa_s), ("rtf", "", found.rtf)):
        table |= {f"{stem}_p50{unit}": of.p50, f"{stem}_p95{unit}": of.p95, f"{stem}_p99{unit}": of.p99}
    return table | {"audio_s": found.audio_s, "continuity": found.continuity}


def percentiles(values: Iterable[float]) -> Percentiles:
    """Return the percentiles of some values."""
    seen = list(values)
    return Percentiles(*(quantile(seen, q) for q in (0.50, 0.95, 0.99, 1.00)))


def quantile(values: Sequence[float], q: float) -> float:
    """Return the ``q`` quantile (linear between order statistics, as numpy's default), ``nan`` of nothing.

    Between a finite value and ``inf`` it is ``inf``.
    """
    if not len(values):
        return float("nan")
    lower, upper = (float(np.quantile(values, q, method=method)) for method in ("lower", "higher"))
    # numpy makes nan of infinite neighbours.
    return upper if lower == upper or not np.isfinite(upper) else float(np.quantile(values, q))


def _growth(played: Playout) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the times at which more samples became playable, each once, and how many there were then.

    A header, half a sample or an empty event makes nothing playable; what comes at one time comes together.
    """
    grew = np.diff(played.ends, prepend=0) > 0
    times_s, ends = played.times_s[grew], played.ends[grew]
    last = np.diff(times_s, append=np.inf) > 0
    return times_s[last], ends[last]


def _span_s(recording: Recording) -> float:
    if not recording.exchanges:
        return 0.0
    first_s = min(exchange.sent_s for exchange in recording.exchanges)
    return max(exchange.finished_s for exchange in recording.exchanges) - first_s


def _per_second(amount: float, span_s: float) -> float:
    return amount / span_s if span_s > 0 else 0.0


def _frame(audio: Audio) -> int:
    return max(1, round(FRAME_S * audio.rate_hz))
