"""The embedded server: its model against onnxruntime, its wire, its seeds."""

from __future__ import annotations

import http.client
import json
import socket
import sys
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from pytest_rsi.audio import decode
from pytest_rsi.recording import SpeechRequest
from tests.engine import ENGINE, serving, speak

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

TEXT = "The old boat left the harbor before sunrise."
TWO = "Nobody answered the door. She waited for ten minutes."


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving() as url:
        yield url


def request(text: str = TEXT, **fields: Any) -> SpeechRequest:
    return SpeechRequest(**{"id": "r", "input": text, "seed": 7, **fields})


def samples(url: str, **fields: Any) -> NDArray[np.float32]:
    return decode(speak(url, request(**fields))[0]).samples


def streamed(**fields: Any) -> dict[str, Any]:
    return {"stream": True, "response_format": "pcm", **fields}


@pytest.mark.parametrize("text", [TEXT, "Is it raining?", "Seventeen people bought 42 tickets."])
def test_the_model_agrees_with_onnxruntime(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime
    import torch

    monkeypatch.syspath_prepend(str(ENGINE))
    from tinytts.frontend import Frontend  # type: ignore[import-not-found]
    from tinytts.vits import Vits  # type: ignore[import-not-found]
    from tinytts.weights import load_weights, voice_folder  # type: ignore[import-not-found]

    ids = Frontend().run(text)[0]
    session = onnxruntime.InferenceSession(str(voice_folder() / "en_US-joe-medium.onnx"))
    feeds = {
        "input": np.array([ids], dtype=np.int64),
        "input_lengths": np.array([len(ids)], dtype=np.int64),
        "scales": np.array([0, 1, 0], dtype=np.float32),
    }
    theirs = session.run(None, feeds)[0].squeeze()
    model = Vits(load_weights("cpu"))
    with torch.inference_mode():
        hidden, mean, _ = model.encode(torch.tensor([ids]))
        frames = torch.ceil(torch.exp(model.log_durations(hidden, torch.zeros(1, 2, len(ids)))))[0, 0].long()
        ours = model.decode(model.flow(mean.repeat_interleave(frames, dim=2)))[0, 0].numpy()
    assert ours.shape == theirs.shape
    assert np.max(np.abs(ours - theirs)) <= 1e-4
    for name in [name for name in sys.modules if name.startswith("tinytts")]:
        del sys.modules[name]


@pytest.mark.parametrize("text", [TEXT, TWO])
@pytest.mark.parametrize("stream_format", ["audio", "sse"])
def test_streamed_audio_is_the_offline_audio(url: str, text: str, stream_format: str) -> None:
    offline = samples(url, text=text)
    live = samples(url, text=text, **streamed(stream_format=stream_format))
    assert live.shape == offline.shape
    assert np.max(np.abs(live - offline)) <= 1e-4
    assert len(offline) > 22_050


def test_a_stream_starts_before_it_is_done(url: str) -> None:
    answer = speak(url, request(TWO + " " + TWO, **streamed()))[0]
    assert answer.chunks[0].time_s - answer.sent_s < 0.8 * (answer.finished_s - answer.sent_s)


def test_formats_carry_the_same_samples(url: str) -> None:
    wav, pcm, flac = (samples(url, response_format=name) for name in ("wav", "pcm", "flac"))
    assert np.array_equal(wav, pcm)
    assert np.array_equal(wav, flac)


def test_seeds_speed_and_voice_are_honoured(url: str) -> None:
    first = samples(url)
    assert np.array_equal(first, samples(url))
    assert not np.array_equal(first[:10_000], samples(url, seed=8)[:10_000])
    assert not np.array_equal(first[:10_000], samples(url, seed=None)[:10_000])
    assert 1.3 < len(first) / len(samples(url, speed=2.0)) < 2.4
    assert not np.array_equal(first[:10_000], samples(url, voice="joe-calm")[:10_000])


def test_requests_side_by_side_are_answered_as_if_alone(url: str) -> None:
    requests = [
        request(f"Number {n} of the trains is late.", seed=n, **(streamed() if n % 2 else {})) for n in range(8)
    ]
    together = [decode(answer).samples for answer in speak(url, *requests, concurrency=8)]
    for one, audio in zip(requests, together, strict=True):
        assert np.array_equal(audio, decode(speak(url, one)[0]).samples)


def post(url: str, body: bytes | str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    connection.request("POST", "/v1/audio/speech", body)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": "  \n"}, "input"),
        ({"input": 7}, "input"),
        ({"input": "x" * 2001}, "input"),
        ({"input": "..."}, "input"),
        ({"input": "Hi.", "voice": "mary"}, "voice"),
        ({"input": "Hi.", "voice": ["joe"]}, "voice"),
        ({"input": "Hi.", "response_format": "mp3"}, "response_format"),
        ({"input": "Hi.", "speed": 9}, "speed"),
        ({"input": "Hi.", "speed": "fast"}, "speed"),
        ({"input": "Hi.", "speed": True}, "speed"),
        ({"input": "Hi.", "speed": float("nan")}, "speed"),
        ({"input": "Hi.", "seed": 1.5}, "seed"),
        ({"input": "Hi.", "seed": -1}, "seed"),
        ({"input": "Hi.", "seed": 2**64}, "seed"),
        ({"input": "Hi.", "stream": "yes"}, "stream"),
        ({"input": "Hi.", "stream": True}, "response_format"),
        ({"input": "Hi.", "stream": True, "response_format": "pcm", "stream_format": "ws"}, "stream_format"),
        ({"input": "Hi.", "language": "xx"}, "language"),
    ],
)
def test_a_bad_request_names_its_field(url: str, fields: dict[str, Any], param: str) -> None:
    status, body = post(url, json.dumps(fields))
    assert status == 400
    assert body["error"]["param"] == param
    assert body["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'"text"', b"null"])
def test_a_body_that_is_no_request_is_400(url: str, body: bytes) -> None:
    status, answer = post(url, body)
    assert status == 400
    assert answer["error"]["message"]


def test_health_models_and_unknown_paths(url: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=5)

    def get(path: str) -> tuple[int, bytes]:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()

    assert json.loads(get("/health")[1])["status"] == "healthy"
    assert json.loads(get("/v1/models")[1])["data"][0]["id"] == "tinytts-joe-medium"
    assert get("/v2/audio")[0] == 404
    connection.close()


def test_a_client_that_leaves_does_not_wedge_the_pipeline(url: str) -> None:
    host, port = urlsplit(url).netloc.split(":")
    body = json.dumps({"input": " ".join([TWO] * 8), "stream": True, "response_format": "pcm"}).encode()
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    for _ in range(3):
        with socket.create_connection((host, int(port))) as link:
            link.sendall(head + body)
            link.recv(1000)
    began = time.monotonic()
    assert len(samples(url)) > 22_050
    assert time.monotonic() - began < 20


def test_cuda_without_cuda_is_one_line(tmp_path: Path) -> None:
    import subprocess

    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    command = [sys.executable, "-m", "tinytts", "--device", "cuda"]
    done = subprocess.run(command, cwd=ENGINE, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "torch sees no CUDA device here; use --device cpu" in done.stderr
