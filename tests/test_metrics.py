"""Every metric against a timeline worked out by hand."""

from __future__ import annotations

import base64
import io
import json
import math
import struct
from dataclasses import replace

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from pytest_rsi.audio import playout
from pytest_rsi.metrics import (
    ExchangeMetrics,
    Failure,
    measure,
    measure_recordings,
    quantile,
    summarise,
    throughput_rps,
    underruns,
)
from pytest_rsi.recording import Chunk, Exchange, Recording, SpeechRequest

RATE = 8000
SECOND = 2 * RATE


def tone(seconds: float, level: float = 0.1) -> bytes:
    samples = level * np.sin(np.arange(round(seconds * RATE)) * 2 * np.pi * 440 / RATE)
    return np.round(samples * 32767).astype("<i2").tobytes()


def silence(seconds: float) -> bytes:
    return bytes(2 * round(seconds * RATE))


def streamed(*parts: tuple[float, bytes], finished_s: float = 99.0, scheduled_s: float = 10.0) -> Exchange:
    chunks = tuple(Chunk(time_s, data) for time_s, data in parts)
    request = SpeechRequest(id="r1", input="x", stream=True, response_format="pcm")
    headers = {"x-sample-rate": str(RATE)}
    return Exchange(request, scheduled_s, scheduled_s, finished_s, 200, headers, chunks)


def metrics(exchange: Exchange) -> ExchangeMetrics:
    seen = measure(exchange)
    assert isinstance(seen, ExchangeMetrics), seen
    return seen


def test_a_stream_by_hand() -> None:
    seen = metrics(streamed((10.2, tone(0.5)), (10.5, tone(0.5)), (11.0, tone(1.0)), finished_s=11.1))
    assert seen.e2e_s == pytest.approx(1.1)
    assert seen.ttfb_s == seen.ttfa_s == pytest.approx(0.2)
    assert seen.gaps_s == pytest.approx((0.3, 0.5))
    assert seen.audio_s == pytest.approx(2.0)
    assert seen.rtf == pytest.approx(0.55)
    assert (seen.stalls, seen.stalled_s) == (0, 0.0)


def test_silence_headers_and_a_click_are_not_first_audio() -> None:
    seen = metrics(streamed((10.1, silence(0.3)), (10.4, tone(0.02)), (10.7, tone(1.0))))
    assert seen.ttfb_s == pytest.approx(0.1)
    assert seen.ttfa_s == pytest.approx(0.7)  # 20 ms of signal are not 40
    assert metrics(streamed((10.1, silence(0.5)))).ttfa_s == math.inf
    assert metrics(streamed((10.1, tone(0.5, level=0.002)))).ttfa_s == math.inf  # -57 dBFS RMS


def test_underruns_by_hand() -> None:
    # Starts at 10.1 + 0.1; 0.2 s of audio last until 10.4; the next comes at 10.7: one stall of 0.3 s.
    seen = metrics(streamed((10.1, tone(0.2)), (10.7, tone(0.5)), (11.1, tone(0.5))))
    assert (seen.stalls, seen.stalled_s) == (1, pytest.approx(0.3))
    # 0.1 s last until 10.3, resumes at 10.5 until 10.6, resumes at 11.0.
    seen = metrics(streamed((10.1, tone(0.1)), (10.5, tone(0.1)), (11.0, tone(0.1))))
    assert (seen.stalls, seen.stalled_s) == (2, pytest.approx(0.2 + 0.4))


def test_a_split_inside_a_sample_changes_nothing() -> None:
    data = tone(0.5)
    whole, split = metrics(streamed((10.2, data))), metrics(streamed((10.2, data[:401]), (10.2, data[401:])))
    assert whole == split


def test_offline_audio_is_playable_when_its_last_byte_is_there() -> None:
    file = io.BytesIO()
    soundfile.write(file, np.frombuffer(tone(1.0), "<i2"), RATE, format="WAV", subtype="PCM_16")
    data = file.getvalue()
    chunks = (Chunk(10.5, data[:100]), Chunk(10.9, data[100:]))
    exchange = Exchange(SpeechRequest("r", "x"), 10.0, 10.0, 10.9, 200, {"x-engine-time": "0.001"}, chunks)
    seen = metrics(exchange)
    assert (seen.ttfb_s, seen.ttfa_s) == (pytest.approx(0.5), pytest.approx(0.9))
    assert seen.audio_s == pytest.approx(1.0)
    assert seen.gaps_s == ()


def sse(*events: object, newline: str = "\n") -> bytes:
    return "".join(f"data: {json.dumps(event)}{newline}{newline}" for event in events).encode()


def delta(data: bytes) -> dict[str, str]:
    return {"type": "speech.audio.delta", "audio": base64.b64encode(data).decode()}


DONE = {"type": "speech.audio.done", "usage": {"seconds": 1000}}


def events(*parts: tuple[float, bytes]) -> Exchange:
    request = SpeechRequest("r", "x", stream=True, response_format="pcm", stream_format="sse")
    chunks = tuple(Chunk(time_s, data) for time_s, data in parts)
    return Exchange(request, 10.0, 10.0, 12.0, 200, {"x-sample-rate": str(RATE)}, chunks)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_an_event_is_there_when_its_end_is(newline: str) -> None:
    body = sse(delta(tone(0.5)), delta(tone(0.5)), DONE, newline=newline)
    cut = body.index(newline.encode() * 2) + 1
    seen = metrics(events((10.2, b": keep-alive\n\n"), (10.3, body[:cut]), (10.8, body[cut:])))
    assert seen.ttfa_s == pytest.approx(0.8)
    assert seen.audio_s == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("exchange", "kind", "detail"),
    [
        (events((10.2, sse(delta(tone(0.5))))), "undecodable", "ended without speech.audio.done"),
        (events((10.2, sse(delta(tone(0.5)), {"type": "error", "error": {"message": "oom"}}))), "undecodable", "oom"),
        (events((10.2, b"data: {not json\n\n")), "undecodable", "bad event"),
        (events((10.2, sse({"type": "speech.audio.delta", "audio": "!!"}))), "undecodable", "bad event"),
        (events((10.2, sse(["type"]))), "undecodable", "bad event"),
        (streamed((10.2, b"\0\0\0")), "undecodable", "expected an even number"),
        (streamed((10.2, b"")), "undecodable", "no samples"),
        (streamed(), "undecodable", "no samples"),
    ],
)
def test_an_answer_that_is_no_speech_is_a_failure(exchange: Exchange, kind: str, detail: str) -> None:
    seen = measure(exchange)
    assert isinstance(seen, Failure)
    assert seen.kind == kind
    assert detail in seen.detail


TIMES = st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.05, 1.0)), min_size=1, max_size=6)


@given(TIMES, st.floats(-50, 50))
def test_metrics_do_not_depend_on_when_the_clock_started(parts: list[tuple[float, float]], shift: float) -> None:
    def at(offset: float) -> ExchangeMetrics:
        now, chunks = offset, []
        for gap, seconds in parts:
            now += gap
            chunks.append((now, tone(seconds)))
        return metrics(streamed(*chunks, scheduled_s=offset, finished_s=now))

    here, there = at(100.0), at(100.0 + shift)
    assert here.ttfa_s == pytest.approx(there.ttfa_s, abs=1e-6)
    assert here.stalled_s == pytest.approx(there.stalled_s, abs=1e-6)
    assert here.ttfa_s >= here.ttfb_s > 0


@given(TIMES, st.integers(0, 5), st.floats(0, 2))
def test_a_later_chunk_never_makes_a_stream_smoother(
    parts: list[tuple[float, float]], which: int, delay: float
) -> None:
    def stalled(extra: float) -> float:
        now, chunks = 10.0, []
        for index, (gap, seconds) in enumerate(parts):
            now += gap + (extra if index == which else 0.0)
            chunks.append((now, tone(seconds)))
        # The player starts with the first chunk in both, so that only the delay counts.
        return underruns(playout(streamed(*chunks)), 10.0)[1]

    assert stalled(delay) >= stalled(0.0) - 1e-9


@given(TIMES, st.integers(0, 5), st.floats(0, 2))
def test_a_delay_never_makes_anything_earlier(parts: list[tuple[float, float]], which: int, delay: float) -> None:
    def seen(extra: float) -> ExchangeMetrics:
        now, chunks = 10.0, []
        for index, (gap, seconds) in enumerate(parts):
            now += gap + (extra if index == which else 0.0)
            chunks.append((now, tone(seconds)))
        return metrics(streamed(*chunks, finished_s=now))

    before, after = seen(0.0), seen(delay)
    assert after.ttfb_s >= before.ttfb_s
    assert after.ttfa_s >= before.ttfa_s
    assert after.e2e_s >= before.e2e_s
    # A later start may spare a stall, but the last sample is never played earlier.
    assert after.ttfa_s + after.stalled_s >= before.ttfa_s + before.stalled_s - 1e-9


@given(TIMES, st.integers(0, 5), st.floats(0, 1))
def test_a_chunk_split_at_any_byte_changes_nothing(parts: list[tuple[float, float]], which: int, where: float) -> None:
    now, whole, split = 10.0, [], []
    for index, (gap, seconds) in enumerate(parts):
        now += gap
        data = tone(seconds)
        at = round(where * len(data)) if index == which else len(data)
        whole.append((now, data))
        split += [(now, data[:at]), (now, data[at:])]
    assert metrics(streamed(*whole)) == metrics(streamed(*split))


@given(TIMES)
def test_what_comes_at_once_never_stalls(parts: list[tuple[float, float]]) -> None:
    seen = metrics(streamed(*((10.2, tone(seconds)) for _, seconds in parts)))
    assert (seen.stalls, seen.stalled_s, seen.gaps_s) == (0, 0.0, ())


@given(TIMES, st.floats(0.0, 2.0), st.integers(0, 43))
def test_first_audio_does_not_hear_silence_or_a_header(
    parts: list[tuple[float, float]], quiet_s: float, cut: int
) -> None:
    header = (
        b"RIFF\xff\xff\xff\xffWAVEfmt "
        + struct.pack("<IHHIIHH", 16, 1, 1, RATE, SECOND, 2, 16)
        + b"data\xff\xff\xff\xff"
    )
    # Whole frames of silence, so that the frames of the tone stay what they are.
    before = silence(round(quiet_s * 100) / 100)
    now, chunks = 10.0, []
    for gap, seconds in parts:
        now += gap
        chunks.append((now, tone(seconds)))
    plain = streamed(*chunks)
    led = streamed((10.0, header[:cut]), (10.0, header[cut:] + before), *chunks)
    led = replace(led, request=replace(led.request, response_format="wav"))
    assert metrics(led).ttfa_s == metrics(plain).ttfa_s
    assert metrics(led).ttfb_s == 0.0


def test_what_cannot_be_heard_is_no_first_audio() -> None:
    offset = np.full(RATE, 3000, "<i2").tobytes()  # -21 dBFS of nothing but direct current
    click = np.zeros(RATE, "<i2")
    click[100] = 32767  # one frame of -19 dBFS
    for cheap in (silence(1.0), tone(1.0, level=0.004), tone(0.03), offset, click.tobytes(), b"\1"):
        rest = tone(0.5) if len(cheap) % 2 == 0 else tone(0.5)[1:]
        assert metrics(streamed((10.1, cheap), (10.9, rest))).ttfa_s == pytest.approx(0.9), len(cheap)
    # Signal need not be in one piece: 20 ms, a pause, and 20 ms more are 40.
    assert metrics(streamed((10.1, tone(0.02) + silence(0.1) + tone(0.02)), (10.9, tone(0.5)))).ttfa_s == pytest.approx(
        0.1
    )


def test_40_ms_are_heard_when_their_last_sample_is_there() -> None:
    data = tone(0.5)
    assert metrics(streamed((10.1, data[:638]), (10.9, data[638:]))).ttfa_s == pytest.approx(0.9)
    assert metrics(streamed((10.1, data[:639]), (10.9, data[639:]))).ttfa_s == pytest.approx(0.9)
    assert metrics(streamed((10.1, data[:640]), (10.9, data[640:]))).ttfa_s == pytest.approx(0.1)


def test_latency_counts_from_the_schedule() -> None:
    late = replace(streamed((12.5, tone(0.5)), finished_s=13.0), sent_s=12.0)
    seen = metrics(late)
    assert (seen.e2e_s, seen.ttfb_s, seen.ttfa_s) == (3.0, 2.5, 2.5)


def test_half_a_sample_is_neither_a_gap_nor_a_stall() -> None:
    data = tone(0.2)
    seen = metrics(streamed((10.1, data), (10.9, b"\1"), (11.2, b"\1" + data)))
    assert seen.gaps_s == pytest.approx((1.1,))
    # Dry at 10.1 + 0.1 + 0.2 = 10.4; the sample whose halves came at 10.9 and 11.2 ends one stall, not two.
    assert (seen.stalls, seen.stalled_s) == (1, pytest.approx(0.8))


def test_a_lying_rate_scales_audio_and_nothing_that_is_timed_from_outside() -> None:
    honest = streamed((10.2, tone(0.5)), (10.6, tone(0.5)), finished_s=11.0)
    lying = replace(honest, headers={"x-sample-rate": str(2 * RATE), "x-audio-duration": "99", "x-engine-time": "0"})
    assert metrics(lying).audio_s == pytest.approx(metrics(honest).audio_s / 2)
    assert metrics(lying).rtf == pytest.approx(metrics(honest).rtf * 2)
    assert (metrics(lying).e2e_s, metrics(lying).ttfb_s) == (metrics(honest).e2e_s, metrics(honest).ttfb_s)


@pytest.mark.parametrize(
    ("change", "kind", "detail"),
    [
        ({"status": None, "error": "ConnectionRefusedError: x"}, "no answer", "ConnectionRefusedError: x"),
        ({"error": "timed out: nothing more for 60 s"}, "no answer", "timed out"),
        ({"status": 503}, "status", "status 503"),
        ({"chunks": ()}, "undecodable", "no samples"),
    ],
)
def test_failures_have_a_kind(change: dict[str, object], kind: str, detail: str) -> None:
    seen = measure(replace(streamed((10.2, tone(0.5))), **change))  # type: ignore[arg-type]
    assert isinstance(seen, Failure)
    assert seen.kind == kind
    assert detail in seen.detail
    assert "\n" not in seen.detail


def recording(*exchanges: Exchange) -> Recording:
    return Recording("baseline", "w", 0, 0, 0.0, 100.0, exchanges)


def timed(sent_s: float, first_s: float, end_s: float, seconds: float = 0.5) -> Exchange:
    return streamed((first_s, tone(seconds)), scheduled_s=sent_s, finished_s=end_s)


def test_a_recording_by_hand() -> None:
    stalled = streamed((3.0, tone(0.2)), (4.0, tone(0.3)), scheduled_s=2.0, finished_s=4.5)
    broken = replace(timed(2.0, 3.0, 6.0), error="ClientPayloadError: x")
    first = recording(timed(1.0, 1.5, 2.0), stalled, broken)
    second = recording(timed(50.0, 50.5, 53.0, seconds=1.0), replace(timed(50.0, 51.0, 52.0), status=500))
    seen = measure_recordings([first, second])
    assert (seen.requests, seen.answered, seen.failures) == (5, 3, {"no answer": 1, "status": 1})
    # From the first sent to the end of the last, failed or not: 1.0 to 6.0, and 50.0 to 53.0.
    assert seen.span_s == pytest.approx(5.0 + 3.0)
    assert seen.requests_per_s == pytest.approx(3 / 8)
    assert seen.audio_per_s == pytest.approx((0.5 + 0.5 + 1.0) / 8)
    assert throughput_rps(first) == pytest.approx(2 / 5)
    assert (seen.e2e_s.p50, seen.e2e_s.max) == (pytest.approx(2.5), pytest.approx(3.0))
    assert (seen.ttfa_s.p50, seen.ttfa_s.max) == (pytest.approx(0.5), pytest.approx(1.0))
    assert seen.rtf.p50 == pytest.approx(3.0)
    assert (seen.gap_s.p50, seen.gap_s.max) == (pytest.approx(1.0), pytest.approx(1.0))
    # 3.0 + 0.1 + 0.2 is 0.7 s before the rest comes.
    assert (seen.stalls, seen.stalled_s, seen.continuity) == (1, pytest.approx(0.7), pytest.approx(2 / 3))
    assert summarise([first, second])["ttfa_p50_s"] == seen.ttfa_s.p50


def test_a_recording_of_nothing_has_no_figures() -> None:
    seen = measure_recordings([recording()])
    assert (seen.requests, seen.requests_per_s, seen.audio_per_s, throughput_rps(recording())) == (0, 0.0, 0.0, 0.0)
    assert math.isnan(seen.e2e_s.p50)
    assert math.isnan(seen.continuity)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=9), st.integers(0, 3), st.floats(0, 1))
def test_a_quantile_with_silent_answers_is_never_too_good(values: list[float], silent: int, q: float) -> None:
    assert quantile(values, q) == pytest.approx(np.quantile(values, q))
    mixed = quantile([*values, *[math.inf] * silent], q)
    assert mixed >= quantile(values, q) - 1e-9
    assert not math.isnan(mixed)


def test_throughput_counts_answers_over_first_sent_to_last_finished() -> None:
    good = [
        Exchange(
            SpeechRequest(f"r{i}", "x", stream=True, response_format="pcm"),
            0,
            sent,
            end,
            200,
            {"x-sample-rate": "8000"},
            (Chunk(end, tone(0.5)),),
        )
        for i, (sent, end) in enumerate([(1.0, 2.0), (1.5, 4.0), (2.0, 5.0)])
    ]
    bad = Exchange(SpeechRequest("r9", "x"), 0, 2.0, 3.0, 500, {}, ())
    recording = Recording("baseline", "w", 0, 0, 0.0, 10.0, (*good, bad))
    assert throughput_rps(recording) == pytest.approx(3 / 4)
    assert throughput_rps(Recording("baseline", "w", 0, 0, 0.0, 1.0, (bad,))) == 0.0
    table = summarise([recording])
    assert table["failures"] == 1
    assert table["e2e_p50_s"] == pytest.approx(4.0)
    assert table["continuity"] == 1.0
