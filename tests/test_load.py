"""Closed and open loops against a real server, and how late the client's stamps are."""

from __future__ import annotations

import asyncio
import gc
import statistics
from typing import TYPE_CHECKING

import pytest

from pytest_rsi.client import SpeechClient
from pytest_rsi.load import arrivals_s, run_block
from pytest_rsi.metrics import ExchangeMetrics, measure, throughput_rps
from pytest_rsi.recording import Recording, SpeechRequest
from pytest_rsi.task import Workload
from tests.wire_server import running

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running() as address:
        yield address


def block(url: str, workload: Workload, texts: list[str], seed: int = 0) -> Recording:
    async def run() -> Recording:
        async with SpeechClient(url) as client:
            requests = [SpeechRequest(f"r{i}", text, response_format="pcm") for i, text in enumerate(texts)]
            return await run_block(client, workload, requests, arm="baseline", launch=2, block=1, seed=seed)

    return asyncio.run(run())


def in_flight(recording: Recording) -> int:
    events = [(exchange.sent_s, 1) for exchange in recording.exchanges]
    events += [(exchange.finished_s, -1) for exchange in recording.exchanges]
    most = now = 0
    for _, step in sorted(events):
        now += step
        most = max(most, now)
    return most


def latencies_s(recording: Recording) -> list[float]:
    seen = [measure(exchange) for exchange in recording.exchanges]
    return [found.e2e_s for found in seen if isinstance(found, ExchangeMetrics)]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_closed_loop_keeps_its_concurrency_and_its_order(url: str, concurrency: int) -> None:
    workload = Workload(name="w", mode="offline", concurrency=concurrency, requests=9)
    recording = block(url, workload, ["wait 0.03", "wait 0.01", "wait 0.05"] * 3)
    assert in_flight(recording) == concurrency
    assert [exchange.request.id for exchange in recording.exchanges] == [f"r{i}" for i in range(9)]
    sent = [exchange.sent_s for exchange in recording.exchanges]
    assert sent == sorted(sent)
    assert all(exchange.scheduled_s == exchange.sent_s for exchange in recording.exchanges)
    assert (recording.arm, recording.workload, recording.launch, recording.block) == ("baseline", "w", 2, 1)
    assert recording.started_s <= min(sent)
    assert max(exchange.finished_s for exchange in recording.exchanges) <= recording.finished_s


def test_a_closed_loop_sends_the_next_as_one_ends(url: str) -> None:
    workload = Workload(name="w", mode="offline", concurrency=2, requests=6)
    recording = block(url, workload, ["wait 1", *["wait 0.05"] * 5])
    ends = [exchange.finished_s for exchange in recording.exchanges]
    starts = [exchange.sent_s for exchange in recording.exchanges]
    # One worker is held by the first; the other sends all the rest, each after the one before.
    assert max(starts) < ends[0]
    assert all(start >= end for start, end in zip(starts[2:], ends[1:], strict=False))
    assert recording.slip_s == pytest.approx(
        max(0.0, *(start - end for start, end in zip(starts[2:], ends[1:], strict=False))), abs=0.05
    )


def test_failures_do_not_end_a_block(url: str) -> None:
    workload = Workload(name="w", mode="offline", concurrency=2, requests=6)
    recording = block(url, workload, ["fine", "reset", "error", "dies", "garbage", "fine"])
    assert [len(latencies_s(recording)), len(recording.exchanges)] == [2, 6]
    assert throughput_rps(recording) > 0


def test_fewer_requests_than_workers_and_none_at_all(url: str) -> None:
    closed = Workload(name="w", mode="offline", concurrency=8, requests=1)
    opened = Workload(name="w", mode="offline", rate_hz=10.0, requests=1)
    assert len(block(url, closed, ["fine"]).exchanges) == 1
    assert block(url, closed, []).exchanges == block(url, opened, []).exchanges == ()
    assert throughput_rps(block(url, opened, [])) == 0.0


def test_an_open_loop_draws_the_same_arrivals_for_both_arms_and_never_waits(url: str) -> None:
    workload = Workload(name="w", mode="offline", rate_hz=40.0, requests=12)
    slow = block(url, workload, ["wait 0.6", *["wait 0.01"] * 11], seed=3)
    smooth = block(url, workload, ["wait 0.01"] * 12, seed=3)

    def schedule(recording: Recording) -> list[float]:
        return [exchange.scheduled_s - recording.exchanges[0].scheduled_s for exchange in recording.exchanges]

    assert schedule(slow) == pytest.approx(schedule(smooth), abs=1e-6)
    assert in_flight(slow) >= 2
    assert all(exchange.sent_s >= exchange.scheduled_s for exchange in smooth.exchanges)
    assert slow.slip_s == max(exchange.sent_s - exchange.scheduled_s for exchange in slow.exchanges) < 0.5


def test_a_stall_shows_in_what_was_scheduled_behind_it(url: str) -> None:
    # The server stands still for 0.5 s at the third of thirty requests, of which 0.5 s hold about twenty. A closed loop
    # of one sends nothing meanwhile: only one of its latencies shows the stall (coordinated omission).
    texts = ["wait 0.001"] * 30
    texts[2] = "stall"
    closed = latencies_s(block(url, Workload(name="w", mode="offline", concurrency=1, requests=30), texts))
    opened = latencies_s(block(url, Workload(name="w", mode="offline", rate_hz=40.0, requests=30), texts, seed=1))
    assert sum(latency > 0.1 for latency in closed) < 4
    assert sum(latency > 0.1 for latency in opened) >= 8
    assert statistics.quantiles(opened, n=10)[-1] > 0.3


def test_arrivals_are_poisson_and_repeatable() -> None:
    times = arrivals_s(50.0, 20_000, seed=7)
    gaps = [after - before for before, after in zip([0.0, *times], times, strict=False)]
    assert times == arrivals_s(50.0, 20_000, seed=7) != arrivals_s(50.0, 20_000, seed=8)
    # Mean and standard deviation of exponential gaps are both 1 / rate; their errors here are 0.7 and 1.4 %.
    assert statistics.fmean(gaps) == pytest.approx(0.02, rel=0.04)
    assert statistics.stdev(gaps) == pytest.approx(0.02, rel=0.07)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match="rate_hz"):
        arrivals_s(rate, 3, 0)


def test_the_collector_rests_within_a_block_and_works_after_it(url: str) -> None:
    seen = []

    class Watching(SpeechClient):
        async def speak(self, *args: object, **kwargs: object) -> object:  # type: ignore[override]
            seen.append(gc.isenabled())
            raise KeyError("broken client")

    async def run() -> None:
        async with Watching(url) as client:
            workload = Workload(name="w", mode="offline", concurrency=1, requests=1)
            await run_block(client, workload, [SpeechRequest("r", "x")], arm="baseline", launch=0, block=0, seed=0)

    assert gc.isenabled()
    with pytest.raises(ExceptionGroup):
        asyncio.run(run())
    assert seen == [False]
    assert gc.isenabled()


def test_a_cancelled_block_leaves_nothing_running(url: str) -> None:
    async def run() -> set[asyncio.Task[object]]:
        async with SpeechClient(url) as client:
            workload = Workload(name="w", mode="offline", rate_hz=20.0, requests=5)
            requests = [SpeechRequest(f"r{i}", "drip") for i in range(5)]
            task = asyncio.create_task(run_block(client, workload, requests, arm="baseline", launch=0, block=0, seed=0))
            await asyncio.sleep(0.2)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]

    assert asyncio.run(run()) == set()
    assert gc.isenabled()


@pytest.mark.parametrize("concurrency", [1, 8])
def test_stamps_are_close_to_when_the_server_sent(url: str, concurrency: int) -> None:
    workload = Workload(name="w", mode="streaming", concurrency=concurrency, requests=concurrency)
    recording = block(url, workload, ["stamped"] * concurrency)
    # One machine, one CLOCK_MONOTONIC: what the server wrote into a chunk is when it handed it to its socket.
    late = [
        chunk.time_s - float(chunk.data.split()[0]) for exchange in recording.exchanges for chunk in exchange.chunks
    ]
    assert len(late) > 20 * concurrency
    assert min(late) >= 0
    assert statistics.median(late) < 0.005
