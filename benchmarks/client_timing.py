"""How late the client's stamps are: ``python -m benchmarks.client_timing``, from the root of a checkout.

A server process writes into each chunk the time at which it hands the chunk to its socket; both processes read one
CLOCK_MONOTONIC. The difference holds the server's write, loopback, the wake-up of the client and its parsing.
"""

from __future__ import annotations

import asyncio
import os

import numpy as np

from pytest_rsi.client import SpeechClient
from pytest_rsi.load import run_block
from pytest_rsi.recording import SpeechRequest
from pytest_rsi.task import Workload
from tests.wire_server import running

ROUNDS = 10


async def lateness_s(url: str, concurrency: int) -> tuple[list[float], float]:
    """Return how late each stamp was, and the worst slip of the load."""
    count = ROUNDS * concurrency
    workload = Workload(name="stamped", mode="streaming", concurrency=concurrency, requests=count)
    requests = [SpeechRequest(f"r{i}", "stamped", stream=True, response_format="pcm") for i in range(count)]
    async with SpeechClient(url) as client:
        recording = await run_block(client, workload, requests, arm="baseline", launch=0, block=0, seed=0)
    chunks = [chunk for exchange in recording.exchanges for chunk in exchange.chunks]
    return [chunk.time_s - float(chunk.data.split()[0]) for chunk in chunks], recording.slip_s


def main() -> None:
    """Print the figures."""
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")  # noqa: T201
    with running() as url:
        for concurrency in (1, 8):
            late, slip_s = asyncio.run(lateness_s(url, concurrency))
            p50, p99, worst = 1e3 * np.quantile(late, [0.5, 0.99, 1.0])
            print(  # noqa: T201
                f"concurrency {concurrency}: {len(late)} chunks, late by median {p50:.2f} ms, p99 {p99:.2f} ms, "
                f"max {worst:.2f} ms; load slip at worst {slip_s * 1e3:.2f} ms"
            )


if __name__ == "__main__":
    main()
