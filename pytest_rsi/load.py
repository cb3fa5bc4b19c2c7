"""Load: a closed loop with a fixed number of requests in flight, or an open loop of Poisson arrivals."""

from __future__ import annotations

import asyncio
import gc
import math
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytest_rsi.client import encode, now_s
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

    In an open loop ``seed`` draws the arrivals: the same seed gives both arms the same schedule. ``slip_s`` of the
    recording is how much later than the load shape demands the worst request was handed to the client: in a closed loop
    after the block began or the answer before it ended, in an open loop after its scheduled arrival. A server cannot
    cause it, except by taking the client's processor.
    """
    # Serialised beforehand: a reference clip in a body is megabytes, and its encoding would delay others' stamps.
    jobs = [(request, encode(request)) for request in requests]
    with _no_garbage_collection():
        started_s = now_s()
        if workload.concurrency:
            exchanges, slip_s = await _closed(client, jobs, workload.concurrency)
        else:
            exchanges, slip_s = await _open(client, jobs, arrivals_s(workload.rate_hz, len(jobs), seed))
        finished_s = now_s()
    return Recording(arm, workload.name, launch, block, started_s, finished_s, tuple(exchanges), slip_s)


def arrivals_s(rate_hz: float, count: int, seed: int) -> list[float]:
    """Return the arrival times of a Poisson process, in seconds from its start.

    Raises:
        ValueError: the rate is not a positive number.
    """
    if not 0 < rate_hz < math.inf:
        raise ValueError(f"rate_hz {rate_hz:g}, expected a finite number above 0")
    rng, at_s, times = random.Random(seed), 0.0, []
    for _ in range(count):
        at_s += rng.expovariate(rate_hz)
        times.append(at_s)
    return times


async def _closed(
    client: SpeechClient, jobs: Sequence[tuple[SpeechRequest, bytes]], concurrency: int
) -> tuple[list[Exchange], float]:
    exchanges: dict[int, Exchange] = {}
    waiting = iter(enumerate(jobs))
    slips = [0.0]
    began_s = now_s()

    async def worker() -> None:
        free_s = began_s
        for index, (request, body) in waiting:
            exchange = exchanges[index] = await client.speak(request, body=body)
            slips.append(exchange.sent_s - free_s)
            free_s = exchange.finished_s

    async with asyncio.TaskGroup() as workers:
        for _ in range(min(concurrency, len(jobs))):
            workers.create_task(worker())
    return [exchanges[index] for index in range(len(jobs))], max(slips)


async def _open(
    client: SpeechClient, jobs: Sequence[tuple[SpeechRequest, bytes]], arrivals: Sequence[float]
) -> tuple[list[Exchange], float]:
    began_s = now_s()

    async def send(request: SpeechRequest, body: bytes, at_s: float) -> Exchange:
        await asyncio.sleep(max(0.0, at_s - now_s()))
        # Time counts from the schedule, so that a server which stalls its clients cannot hide their waiting.
        return await client.speak(request, scheduled_s=at_s, body=body)

    async with asyncio.TaskGroup() as senders:
        tasks = [
            senders.create_task(send(request, body, began_s + after_s))
            for (request, body), after_s in zip(jobs, arrivals, strict=True)
        ]
    exchanges = [task.result() for task in tasks]
    return exchanges, max((exchange.sent_s - exchange.scheduled_s for exchange in exchanges), default=0.0)


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
