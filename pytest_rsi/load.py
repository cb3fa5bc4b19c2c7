"""Load: a closed loop with a fixed number of requests in flight, or an open loop of Poisson arrivals."""

from __future__ import annotations

import asyncio
import gc
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytest_rsi.client import now_s
from pytest_rsi.recording import Recording

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_rsi.client import SpeechClient
    from pytest_rsi.recording import ArmName, Exchange, SpeechRequest
    from pytest_rsi.task import Workload


async def run_block(
    client: SpeechClient,
    workload: Workload,
    requests: Sequence[SpeechRequest],
    *,
    arm: ArmName,
    launch: int,
    block: int,
    seed: int,
) -> Recording:
    """Send the requests in the workload's load shape and return what came back, in the order of the requests.

    In an open loop ``seed`` draws the arrivals: the same seed gives both arms the same schedule.
    """
    with _no_garbage_collection():
        started_s = now_s()
        if workload.concurrency:
            exchanges, slip_s = await _closed(client, requests, workload.concurrency)
        else:
            exchanges, slip_s = await _open(client, requests, _arrivals(workload.rate_hz, len(requests), seed))
        finished_s = now_s()
    return Recording(arm, workload.name, launch, block, started_s, finished_s, tuple(exchanges), slip_s)


async def _closed(
    client: SpeechClient, requests: Sequence[SpeechRequest], concurrency: int
) -> tuple[list[Exchange], float]:
    exchanges: dict[int, Exchange] = {}
    waiting = iter(enumerate(requests))
    slips = [0.0]

    async def worker() -> None:
        free_s = now_s()
        for index, request in waiting:
            exchanges[index] = await client.speak(request)
            slips.append(exchanges[index].sent_s - free_s)
            free_s = exchanges[index].finished_s

    await asyncio.gather(*(worker() for _ in range(min(concurrency, len(requests)))))
    return [exchanges[index] for index in range(len(requests))], max(slips)


async def _open(
    client: SpeechClient, requests: Sequence[SpeechRequest], arrivals: Sequence[float]
) -> tuple[list[Exchange], float]:
    began_s = now_s()

    async def send(request: SpeechRequest, after_s: float) -> Exchange:
        await asyncio.sleep(max(0.0, began_s + after_s - now_s()))
        # Time counts from the schedule, so that a server which stalls its clients cannot hide their waiting.
        return await client.speak(request, scheduled_s=began_s + after_s)

    exchanges = await asyncio.gather(*map(send, requests, arrivals))
    return exchanges, max(exchange.sent_s - exchange.scheduled_s for exchange in exchanges)


def _arrivals(rate_hz: float, count: int, seed: int) -> list[float]:
    """Return Poisson arrival times in seconds from the start."""
    rng, at_s, times = random.Random(seed), 0.0, []
    for _ in range(count):
        at_s += rng.expovariate(rate_hz)
        times.append(at_s)
    return times


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keep the collector from pausing the clock in the middle of a block."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
