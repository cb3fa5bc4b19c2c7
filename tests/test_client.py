"""The client and the load against a real server that misbehaves."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_rsi.client import SpeechClient
from pytest_rsi.load import run_block
from pytest_rsi.metrics import Failure, measure
from pytest_rsi.recording import Exchange, Recording, SpeechRequest
from pytest_rsi.task import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Start the server as a process of its own, so that its work does not disturb the client's clock."""
    command = [sys.executable, str(Path(__file__).with_name("wire_server.py"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.terminate()


def ask(url: str, what: str, *, total_s: float = 5.0, quiet_s: float = 2.0) -> Exchange:
    async def once() -> Exchange:
        async with SpeechClient(url, total_s=total_s, quiet_s=quiet_s) as client:
            return await client.speak(SpeechRequest("r", what, stream=True, response_format="pcm"))

    return asyncio.run(once())


def test_a_fine_answer_is_kept_byte_by_byte(url: str) -> None:
    exchange = ask(url, "fine")
    assert (exchange.status, exchange.error) == (200, None)
    assert exchange.body == b"\1\2" * 400
    assert exchange.sent_s <= exchange.chunks[0].time_s <= exchange.finished_s


def test_chunks_are_stamped_as_they_come_even_inside_a_sample(url: str) -> None:
    exchange = ask(url, "odd splits")
    assert [chunk.data for chunk in exchange.chunks] == [b"\1", b"\2\1\2", b"\1\2\1", b"\2"]
    assert min(np.diff([chunk.time_s for chunk in exchange.chunks])) > 0.005
    assert not isinstance(measure(exchange), Failure)


def test_nothing_in_a_request_tells_that_it_is_measured(url: str) -> None:
    head = ask(url, "headers").body.decode().lower()
    assert not [word for word in ("rsi", "pytest", "bench", "aiohttp", "judge") if word in head]
    assert "accept-encoding: identity" in head


@pytest.mark.parametrize(
    ("what", "status", "complaint"),
    [
        ("dies", 200, "Payload"),
        ("reset", None, ""),
        ("short", 200, "Payload"),
        ("garbage", None, ""),
        ("drip", 200, "timed out"),
        ("endless", 200, "more than"),
        ("silent", None, "timed out"),
        ("zipped", 200, "'gzip' was not asked for"),
    ],
)
def test_whatever_a_server_does_is_an_exchange_with_an_error(
    url: str, what: str, status: int | None, complaint: str
) -> None:
    began = time.monotonic()
    exchange = ask(url, what, total_s=1.0, quiet_s=0.5)
    assert exchange.status == status
    assert exchange.error is not None
    assert complaint in exchange.error
    assert "\n" not in exchange.error
    assert isinstance(measure(exchange), Failure)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(("what", "status"), [("error", 500), ("busy", 503), ("redirect", 302), ("empty", 200)])
def test_an_answer_that_is_no_audio_is_no_client_error(url: str, what: str, status: int) -> None:
    exchange = ask(url, what)
    assert (exchange.status, exchange.error) == (status, None)
    assert isinstance(measure(exchange), Failure)


def test_a_server_that_is_not_there() -> None:
    exchange = ask("http://127.0.0.1:9", "fine")
    assert exchange.status is None
    assert exchange.error is not None


def block(url: str, workload: Workload, texts: list[str], seed: int = 0) -> Recording:
    async def run() -> Recording:
        async with SpeechClient(url) as client:
            requests = [SpeechRequest(f"r{i}", text, response_format="pcm") for i, text in enumerate(texts)]
            return await run_block(client, workload, requests, arm="baseline", launch=0, block=0, seed=seed)

    return asyncio.run(run())


def in_flight(recording: Recording) -> int:
    events = [(exchange.sent_s, 1) for exchange in recording.exchanges]
    events += [(exchange.finished_s, -1) for exchange in recording.exchanges]
    most = now = 0
    for _, step in sorted(events):
        now += step
        most = max(most, now)
    return most


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_closed_loop_keeps_its_concurrency_and_its_order(url: str, concurrency: int) -> None:
    workload = Workload(name="w", mode="offline", concurrency=concurrency, requests=9)
    recording = block(url, workload, ["wait 0.03", "wait 0.01", "wait 0.05"] * 3)
    assert in_flight(recording) == concurrency
    assert [exchange.request.id for exchange in recording.exchanges] == [f"r{i}" for i in range(9)]
    sent = [exchange.sent_s for exchange in recording.exchanges]
    assert sent == sorted(sent)


def test_an_open_loop_draws_the_same_arrivals_for_both_arms_and_never_waits(url: str) -> None:
    workload = Workload(name="w", mode="offline", rate_hz=40.0, requests=12)
    stalled = block(url, workload, ["wait 0.6", *["wait 0.01"] * 11], seed=3)
    smooth = block(url, workload, ["wait 0.01"] * 12, seed=3)

    def schedule(recording: Recording) -> list[float]:
        return [exchange.scheduled_s - recording.exchanges[0].scheduled_s for exchange in recording.exchanges]

    assert schedule(stalled) == pytest.approx(schedule(smooth), abs=1e-6)
    assert in_flight(stalled) >= 2
    assert max(stalled.slip_s, smooth.slip_s) < 0.5
    assert all(exchange.sent_s >= exchange.scheduled_s for exchange in smooth.exchanges)


@pytest.mark.parametrize("concurrency", [1, 8])
def test_stamps_are_close_to_when_the_server_sent(url: str, concurrency: int) -> None:
    workload = Workload(name="w", mode="streaming", concurrency=concurrency, requests=concurrency)
    recording = block(url, workload, ["stamped"] * concurrency)
    late = [
        chunk.time_s - float(chunk.data.split()[0]) for exchange in recording.exchanges for chunk in exchange.chunks
    ]
    assert len(late) > 20 * concurrency
    assert min(late) >= 0
    assert float(np.median(late)) < 0.005
