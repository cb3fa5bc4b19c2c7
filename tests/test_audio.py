"""Decoding: what is audio, when it could be played, and that nothing a server sends breaks the decoder."""

from __future__ import annotations

import base64
import io
import itertools
import json
import struct
import time

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from pytest_rsi.audio import UndecodableAudioError, decode, playout
from pytest_rsi.recording import Chunk, Exchange, SpeechRequest

RATE = 8000
SAMPLES = (np.sin(np.arange(800) * 0.3) * 8000).astype("<i2")
UNKNOWN = 0xFFFFFFFF


def answer(
    *parts: tuple[float, bytes], stream: str | None = None, response_format: str = "pcm", rate: str | None = str(RATE)
) -> Exchange:
    request = SpeechRequest(
        "r",
        "x",
        response_format=response_format,  # type: ignore[arg-type]
        stream=stream is not None,
        stream_format=stream or "audio",  # type: ignore[arg-type]
    )
    chunks = tuple(Chunk(time_s, data) for time_s, data in parts)
    return Exchange(request, 0.0, 0.0, 9.0, 200, {} if rate is None else {"X-Sample-Rate": rate}, chunks)


def file(file_format: str = "WAV", *, samples: object = SAMPLES, rate_hz: int = RATE, subtype: str = "PCM_16") -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, samples, rate_hz, format=file_format, subtype=subtype)
    return buffer.getvalue()


def wav_header(size: int = UNKNOWN, *, channels: int = 1, bits: int = 16, rate_hz: int = RATE) -> bytes:
    width = channels * bits // 8
    layout = struct.pack("<HHIIHH", 1, channels, rate_hz, rate_hz * width, width, bits)
    extra = b"LIST" + struct.pack("<I", 3) + b"abc\0"
    return (
        b"RIFF"
        + struct.pack("<I", UNKNOWN)
        + b"WAVEfmt "
        + struct.pack("<I", 16)
        + layout
        + extra
        + b"data"
        + (struct.pack("<I", size))
    )


@pytest.mark.parametrize("file_format", ["wav", "flac"])
def test_files_decode_to_their_samples(file_format: str) -> None:
    audio = decode(answer((1.0, file(file_format.upper())), response_format=file_format, rate=None))
    assert (audio.rate_hz, audio.duration_s) == (RATE, pytest.approx(0.1))
    assert np.array_equal(np.round(audio.samples * 32768), SAMPLES)


@pytest.mark.parametrize("size", [UNKNOWN, 0x7FFFFFFF, UNKNOWN - 36])
def test_a_wav_that_does_not_know_its_length_is_taken(size: int) -> None:
    body = wav_header(size) + SAMPLES.tobytes()
    assert len(decode(answer((1.0, body), response_format="wav")).samples) == 800


@pytest.mark.parametrize(
    ("asked", "body", "complaint"),
    [
        ("wav", file("FLAC"), "a FLAC file, expected wav"),
        ("flac", file("WAV"), "a WAV file, expected flac"),
        ("wav", file("OGG", subtype="VORBIS"), "a OGG file, expected wav"),
        ("wav", file(samples=np.stack([SAMPLES, SAMPLES], axis=1)), "2 channels, expected 1"),
        ("wav", file(rate_hz=3999), "3999 Hz, expected 4000 to 192000"),
        ("wav", file(samples=np.zeros(600 * 4000 + 1, "<i2"), rate_hz=4000), "over 600 s"),
        ("wav", file(samples=np.array([0.1, np.nan]), subtype="FLOAT"), "not finite"),
        ("wav", file(samples=np.zeros(0, "<i2")), "no samples"),
        ("wav", b'{"error": {"message": "out of memory"}}', "not an audio file"),
        ("wav", b"", "not an audio file"),
        ("pcm", b"\0", "expected an even number"),
        ("pcm", bytes(2 * 600 * RATE + 2), "over 600 s"),
    ],
)
def test_what_is_not_the_audio_asked_for_is_refused(asked: str, body: bytes, complaint: str) -> None:
    with pytest.raises(UndecodableAudioError, match=complaint):
        decode(answer((1.0, body), response_format=asked))


def test_the_rate_of_raw_pcm_is_named_by_the_server_and_24_khz_by_default() -> None:
    data = SAMPLES.tobytes()
    assert decode(answer((1.0, data))).rate_hz == RATE
    assert decode(answer((1.0, data), rate=None)).rate_hz == 24_000


@pytest.mark.parametrize("rate", ["", "0", "3999", "192001", "1e5", "²²²²", "१६०००", "9" * 5000, " 8000"])
def test_an_absurd_rate_is_refused(rate: str) -> None:
    with pytest.raises(UndecodableAudioError, match="expected 4000 to 192000"):
        decode(answer((1.0, SAMPLES.tobytes()), rate=rate))


def test_samples_are_playable_when_their_second_byte_is_there() -> None:
    data = SAMPLES.tobytes()
    played = playout(answer((1.0, data[:1]), (2.0, data[1:4]), (3.0, data[4:7]), (4.0, data[7:]), stream="audio"))
    assert list(played.times_s) == [1.0, 2.0, 3.0, 4.0]
    assert list(played.ends) == [0, 2, 3, 800]


@pytest.mark.parametrize("cut", [4, 30, 44, 55, 56, 57, 58, 500])
def test_the_header_of_a_streamed_wav_is_no_audio(cut: int) -> None:
    header, data = wav_header(), SAMPLES.tobytes()
    assert len(header) == 56
    body = header + data
    played = playout(answer((1.0, body[:cut]), (2.0, body[cut:]), stream="audio", response_format="wav", rate="48000"))
    assert played.audio.rate_hz == RATE
    assert len(played.audio.samples) == 800
    assert list(played.ends) == [max(0, cut - 56) // 2, 800]


def test_a_streamed_wav_that_knows_its_length_ends_there() -> None:
    body = wav_header(400) + SAMPLES.tobytes()[:400] + b"LIST" + bytes(20)
    played = playout(answer((1.0, body), stream="audio", response_format="wav"))
    assert len(played.audio.samples) == 200
    assert list(played.ends) == [200]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (SAMPLES.tobytes(), "expected a RIFF header"),
        (wav_header(channels=2) + bytes(8), "2 channels of 16 bits"),
        (wav_header(bits=8) + bytes(8), "1 channels of 8 bits"),
        (wav_header(rate_hz=10**9) + bytes(8), "1000000000 Hz"),
        (wav_header()[:50], "without samples"),
        (wav_header(), "no samples"),
        (b"RIFF\0\0\0\0WAVE" + b"data\4\0\0\0abcd", "without samples"),
    ],
)
def test_a_streamed_wav_that_is_none_is_refused(body: bytes, complaint: str) -> None:
    with pytest.raises(UndecodableAudioError, match=complaint):
        decode(answer((1.0, body), stream="audio", response_format="wav"))


def event(data: bytes) -> str:
    return f"data: {json.dumps({'type': 'speech.audio.delta', 'audio': base64.b64encode(data).decode()})}"


DONE = 'data: {"type": "speech.audio.done"}'


@given(
    st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=8, max_size=8),
    st.lists(st.integers(0, 2000), max_size=8),
)
def test_events_do_not_depend_on_line_ends_or_on_where_the_bytes_are_cut(ends: list[str], cuts: list[int]) -> None:
    data = SAMPLES.tobytes()
    blocks = [": ping", event(data[:801]), f": ping{ends[0]}{event(data[801:])}", DONE]
    body = "".join(block + end + end for block, end in zip(blocks, ends[1:], strict=False)).encode()
    places = sorted({0, len(body), *(cut for cut in cuts if cut < len(body))})
    pieces = [body[start:end] for start, end in itertools.pairwise(places)]
    played = playout(answer(*enumerate(pieces), stream="sse"))
    assert np.array_equal(np.round(played.audio.samples * 32768), SAMPLES)
    # Each event counts from the piece that holds the last byte of its blank line.
    lengths = [len((block + 2 * end).encode()) for block, end in zip(blocks, ends[1:], strict=False)]
    complete = [sum(lengths[: i + 1]) for i in (1, 2)]
    arrived = np.cumsum([len(piece) for piece in pieces])
    assert list(played.times_s) == [int(np.searchsorted(arrived, end)) for end in complete]
    assert list(played.ends) == [400, 800]


def test_nothing_after_the_end_of_events_is_heard() -> None:
    data = SAMPLES.tobytes()
    body = f"{event(data)}\n\n{DONE}\n\n{event(data)}\n\ndata: [DONE]\n\n".encode()
    assert len(decode(answer((1.0, body), stream="sse")).samples) == 800


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (event(b"\0\0") + "\n\n", "without speech.audio.done"),
        (event(b"\0\0") + "\n\n" + DONE, "without speech.audio.done"),
        ('data: {"type": "error", "error": {"message": "oom"}}\n\n' + DONE + "\n\n", "oom"),
        ("data: [[[\n\n", "bad event"),
        ("data: " + "[" * 100_000 + "\n\n", "bad event"),
        ("data: 1\n\n", "bad event"),
        ("data: " + "9" * 5000 + "\n\n", "bad event"),
        ('data: {"type": "speech.audio.delta"}\n\n', "bad event"),
        ('data: {"type": "speech.audio.delta", "audio": 7}\n\n', "bad event"),
        ('data: {"type": "speech.audio.delta", "audio": "é"}\n\n', "bad event"),
        ("data: \xff\n\n", "bad event"),
        (DONE + "\n\n", "no samples"),
    ],
)
def test_events_that_are_none_are_refused(body: str, complaint: str) -> None:
    with pytest.raises(UndecodableAudioError, match=complaint):
        decode(answer((1.0, body.encode("latin-1")), stream="sse"))


def test_a_long_event_in_many_pieces_costs_no_more_than_its_bytes() -> None:
    piece = b"data: " + b"A" * 2000
    began = time.perf_counter()
    with pytest.raises(UndecodableAudioError):
        decode(answer(*((float(i), piece) for i in range(16_000)), stream="sse"))
    assert time.perf_counter() - began < 5


@given(
    st.lists(st.binary(max_size=200), max_size=4),
    st.sampled_from(["wav", "flac", "pcm"]),
    st.sampled_from([None, "audio", "sse"]),
    st.sampled_from([b"", b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0", b"fLaC", b'data: {"type": "speech.audio.delta", ']),
    st.text(max_size=6),
)
def test_no_bytes_break_the_decoder(
    pieces: list[bytes], response_format: str, stream: str | None, start: bytes, rate: str
) -> None:
    parts = enumerate([start, *pieces])
    try:
        audio = decode(answer(*parts, stream=stream, response_format=response_format, rate=rate))
    except UndecodableAudioError as error:
        assert str(error)  # noqa: PT017
    else:
        assert np.isfinite(audio.samples).all()
        assert audio.duration_s > 0
