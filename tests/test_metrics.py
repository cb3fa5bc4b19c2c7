"""Every metric against a timeline worked out by hand."""

from __future__ import annotations

import base64
import io
import json
import math

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from pytest_rsi.audio import UndecodableAudioError, decode, playout
from pytest_rsi.metrics import ExchangeMetrics, Failure, measure, summarise, throughput_rps, underruns
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


@given(st.binary(max_size=400), st.sampled_from(["wav", "flac", "pcm"]))
def test_no_bytes_crash_the_decoder(data: bytes, file_format: str) -> None:
    request = SpeechRequest("r", "x", response_format=file_format)  # type: ignore[arg-type]
    exchange = Exchange(request, 0.0, 0.0, 1.0, 200, {}, (Chunk(0.5, data),))
    try:
        assert np.isfinite(decode(exchange).samples).all()
    except UndecodableAudioError as error:
        assert str(error)  # noqa: PT017


@pytest.mark.parametrize("rate", ["0", "-1", "1e9", "many", "١٦٠٠٠", ""])
def test_an_absurd_sample_rate_is_refused(rate: str) -> None:
    exchange = streamed((10.2, tone(0.5)))
    lying = Exchange(exchange.request, 10.0, 10.0, 11.0, 200, {"X-Sample-Rate": rate}, exchange.chunks)
    with pytest.raises(UndecodableAudioError):
        decode(lying)


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
