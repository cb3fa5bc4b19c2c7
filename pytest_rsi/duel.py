"""Launch pairs: both arms started afresh, warmed alike, and measured in interleaved blocks, one arm at a time."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from pytest_rsi.client import SpeechClient
from pytest_rsi.load import run_block
from pytest_rsi.machine import cpu_use, foreign_cores
from pytest_rsi.metrics import throughput_rps
from pytest_rsi.server import Server, ServerError, new_launch

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pytest_rsi.recording import ArmName, Recording, SpeechRequest
    from pytest_rsi.target import Target
    from pytest_rsi.task import Task, Workload

ARMS: tuple[ArmName, ArmName] = ("baseline", "candidate")
MAX_SLIP_S = 0.05
"""A block in which the load generator itself was later than this says nothing about a server."""
REMEASURE = 2
"""How often a contaminated launch pair is measured again before the run goes on with what it has."""


class ArmError(RuntimeError):
    """An arm did not start, died or answered nothing; ``arm`` says which."""

    def __init__(self, arm: ArmName, message: str) -> None:
        super().__init__(message)
        self.arm = arm


class RequestSource(Protocol):
    """Where requests come from: each is drawn once, so that no prompt reaches an arm twice within a run."""

    def draw(self, workload: Workload, count: int) -> list[SpeechRequest]:
        """Return requests that were never drawn before, in the shape of a workload."""


class Progress(Protocol):
    """Who is told what goes on while a duel runs."""

    def __call__(self, text: str) -> None:
        """Take one short line."""


@dataclass(frozen=True)
class BlockPair:
    """The same requests answered by both arms, one after the other.

    Throughputs decode every answer, and are asked for after every launch pair: they are kept.
    """

    baseline: Recording
    candidate: Recording
    foreign_cores: float

    @property
    def workload(self) -> str:
        """The workload that timed it."""
        return self.baseline.workload

    @cached_property
    def rps(self) -> dict[ArmName, float]:
        """Throughput of each arm in requests/s."""
        return {"baseline": throughput_rps(self.baseline), "candidate": throughput_rps(self.candidate)}

    @property
    def log_ratio(self) -> float:
        """ln(throughput of the candidate / throughput of the baseline), -inf if the candidate answered nothing."""
        ours, theirs = self.rps["candidate"], self.rps["baseline"]
        return math.log(ours / theirs) if ours > 0 and theirs > 0 else -math.inf


@dataclass(frozen=True, slots=True)
class LaunchPair:
    """What one start of both arms gave: the unit of repetition.

    ``probes`` are untimed recordings of the guards' own requests. Seconds say where the wall time went: ``starting_s``,
    ``warming_s`` and ``timed_s`` (blocks of both arms) of this measurement; ``discarded_s`` is the wall time of
    contaminated measurements before it. The rest of ``wall_s`` is overhead of the harness.
    """

    index: int
    blocks: tuple[BlockPair, ...]
    probes: tuple[BlockPair, ...]
    contaminated: str | None
    warmup_blocks: int
    starting_s: float
    warming_s: float
    timed_s: float
    wall_s: float
    discarded_s: float = 0.0

    def log_ratio(self, workload: str | None = None) -> float:
        """Mean log-ratio over the blocks of a workload, or over all workloads with equal weight."""
        names = [workload] if workload else sorted({block.workload for block in self.blocks})
        means = []
        for name in names:
            ratios = [block.log_ratio for block in self.blocks if block.workload == name]
            means.append(sum(ratios) / len(ratios))
        return sum(means) / len(means)


@dataclass(frozen=True, slots=True)
class Duel:
    """What two arms are compared with.

    ``commits`` are the arms' trees, ``blocks`` is how many blocks a workload has in each launch pair; ``folder`` is
    private scratch space.
    """

    task: Task
    target: Target
    commits: Mapping[ArmName, str]
    workloads: Sequence[Workload]
    blocks: int
    source: RequestSource
    rng: random.Random
    folder: Path
    progress: Progress

    async def clean_pair(self, index: int, probes: Sequence[SpeechRequest] = ()) -> LaunchPair:
        """Measure one launch pair, again if somebody else used the machine meanwhile.

        Raises:
            ArmError: an arm did not start, died, or answered none of its warm-up requests.
        """
        discarded_s = 0.0
        for attempt in range(REMEASURE + 1):
            pair = await self.pair(index, probes)
            if pair.contaminated is None or attempt == REMEASURE:
                break
            discarded_s += pair.wall_s
            self.progress(f"launch pair {index + 1} contaminated: {pair.contaminated}; measuring it again")
        return replace(pair, discarded_s=discarded_s)

    async def pair(self, index: int, probes: Sequence[SpeechRequest] = ()) -> LaunchPair:
        """Measure one launch pair as it comes.

        Raises:
            ArmError: as for ``clean_pair``.
        """
        began = time.monotonic()
        async with AsyncExitStack() as stack:
            servers = await self._start(stack)
            starting_s = time.monotonic() - began
            bench = _Bench(self, index, servers, await self._clients(stack, servers))
            warming_from = time.monotonic()
            warmup_blocks = await bench.warm_up()
            warming_s = time.monotonic() - warming_from
            probed = await bench.probe(probes) if probes else ()
            blocks = await bench.blocks()
            timed_s = sum(_span_s(block.baseline) + _span_s(block.candidate) for block in blocks)
            return LaunchPair(
                index=index,
                blocks=tuple(blocks),
                probes=probed,
                contaminated=self._contamination(blocks),
                warmup_blocks=warmup_blocks,
                starting_s=starting_s,
                warming_s=warming_s,
                timed_s=timed_s,
                wall_s=time.monotonic() - began,
            )

    async def _start(self, stack: AsyncExitStack) -> dict[ArmName, Server]:
        """Start both arms side by side, in random order, from freshly laid out trees, and freeze both."""
        servers: dict[ArmName, Server] = {}
        for arm in self.rng.sample(ARMS, k=2):
            launch = new_launch(self.folder)
            self.target.lay_out(self.commits[arm], launch.tree)
            servers[arm] = Server(self.task, launch)

        async def start(arm: ArmName) -> None:
            try:
                await stack.enter_async_context(servers[arm])
            except ServerError as error:
                raise ArmError(arm, str(error)) from None

        try:
            # Both are waited for, so that neither is left half started when the other fails.
            failures = await asyncio.gather(*(start(arm) for arm in servers), return_exceptions=True)
        except BaseException:
            for server in servers.values():
                server.stop()
            raise
        broken = [failure for failure in failures if failure is not None]
        # If both fail it is not the candidate's fault.
        broken.sort(key=lambda failure: getattr(failure, "arm", "") != "baseline")
        if broken:
            raise broken[0]
        for arm, server in servers.items():
            _signal(arm, server, run=False)
        return servers

    async def _clients(self, stack: AsyncExitStack, servers: Mapping[ArmName, Server]) -> dict[ArmName, SpeechClient]:
        return {arm: await stack.enter_async_context(SpeechClient(server.url)) for arm, server in servers.items()}

    def _contamination(self, blocks: Sequence[BlockPair]) -> str | None:
        limit = self.task.duel.foreign_cpu_max
        busiest = max(block.foreign_cores for block in blocks)
        if busiest > limit:
            return f"others used {busiest:.2f} cores during a block, at most {limit:g} allowed"
        slip_s = max(max(block.baseline.slip_s, block.candidate.slip_s) for block in blocks)
        if slip_s > MAX_SLIP_S:
            return f"the load generator was {slip_s * 1000:.0f} ms late, at most {MAX_SLIP_S * 1000:.0f} ms allowed"
        return None


@dataclass(frozen=True, slots=True)
class _Bench:
    """Both arms of one launch pair, running: one thawed at a time."""

    duel: Duel
    launch: int
    servers: Mapping[ArmName, Server]
    clients: Mapping[ArmName, SpeechClient]

    async def warm_up(self) -> int:
        """Warm both arms alike until the throughput of each has settled; return how many blocks that took."""
        least, most = self.duel.task.duel.warmup_blocks
        seen: dict[ArmName, list[float]] = {arm: [] for arm in ARMS}
        for count in range(1, most + 1):
            workload = self.duel.workloads[count % len(self.duel.workloads)]
            requests = self.duel.source.draw(workload, self.duel.task.duel.warmup_requests)
            for arm in self.duel.rng.sample(ARMS, k=2):
                recording = await self._run(arm, workload, requests, -count)
                rate = throughput_rps(recording)
                if rate <= 0:
                    first = recording.exchanges[0]
                    raise ArmError(arm, f"no warm-up request was answered: {first.error or f'status {first.status}'}")
                seen[arm].append(rate)
            if count >= least and all(self._settled(rates) for rates in seen.values()):
                break
        return count

    async def probe(self, probes: Sequence[SpeechRequest]) -> tuple[BlockPair, ...]:
        """Send the guards' own requests to both arms, mixed with fresh ones in the shape of a timed block."""
        workload = self.duel.workloads[0]
        requests = [*probes, *self.duel.source.draw(workload, 2)]
        self.duel.rng.shuffle(requests)
        recordings = {arm: await self._run(arm, workload, requests, 0) for arm in self.duel.rng.sample(ARMS, k=2)}
        return (BlockPair(recordings["baseline"], recordings["candidate"], 0.0),)

    async def blocks(self) -> list[BlockPair]:
        """Measure all workloads' blocks, each on both arms: ABBA or BAAB at random, so that drift cancels."""
        plan = [(load, index) for load in self.duel.workloads for index in range(self.duel.blocks)]
        firsts = [arm for _ in range(0, len(plan), 2) for arm in self.duel.rng.sample(ARMS, k=2)]
        return [await self._block(load, index, first) for (load, index), first in zip(plan, firsts, strict=False)]

    async def _block(self, workload: Workload, index: int, first: ArmName) -> BlockPair:
        requests = self.duel.source.draw(workload, workload.requests)
        second: ArmName = "candidate" if first == "baseline" else "baseline"
        keepers = tuple(server.keeper_pid for server in self.servers.values())
        before, began = cpu_use(keepers), time.monotonic()
        seed = self.duel.rng.getrandbits(32)
        recordings = {arm: await self._run(arm, workload, requests, index, seed) for arm in (first, second)}
        foreign = foreign_cores(before, cpu_use(keepers), time.monotonic() - began)
        return BlockPair(recordings["baseline"], recordings["candidate"], foreign)

    async def _run(
        self, arm: ArmName, workload: Workload, requests: Sequence[SpeechRequest], block: int, seed: int = 0
    ) -> Recording:
        server = self.servers[arm]
        _signal(arm, server, run=True)
        try:
            recording = await run_block(
                self.clients[arm], workload, requests, arm=arm, launch=self.launch, block=block, seed=seed
            )
        finally:
            _signal(arm, server, run=False)
        return recording

    def _settled(self, rates: Sequence[float]) -> bool:
        """Return whether up to the last three blocks differ by less than the task allows."""
        last = rates[-3:]
        return max(last) / min(last) - 1 <= self.duel.task.duel.warmup_within


def _signal(arm: ArmName, server: Server, *, run: bool) -> None:
    try:
        (server.thaw if run else server.freeze)()
    except ServerError as error:
        raise ArmError(arm, str(error)) from None


def _span_s(recording: Recording) -> float:
    return recording.finished_s - recording.started_s
