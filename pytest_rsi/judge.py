"""The judge: takes one candidate through policy, build, smoke, guards and duel, and returns a verdict."""

from __future__ import annotations

import asyncio
import math
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pytest_rsi.duel import ArmError, Duel, LaunchPair
from pytest_rsi.guard import Evidence, ExchangePair
from pytest_rsi.machine import read_machine
from pytest_rsi.metrics import Failure, measure, summarise
from pytest_rsi.scratch import scratch_folder
from pytest_rsi.stats import NoiseFloor, decide, detectable_effect, fixed_decide, hierarchical_bootstrap
from pytest_rsi.target import PolicyError
from pytest_rsi.verdict import Reason, Scope, Speed, Stage, Timing, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pytest_rsi.candidate import Candidate
    from pytest_rsi.duel import BlockPair, Progress, RequestSource
    from pytest_rsi.guard import Guard, GuardResult
    from pytest_rsi.recording import ArmName, Exchange, Recording
    from pytest_rsi.stats import Decision
    from pytest_rsi.target import Target
    from pytest_rsi.task import Task

BUILD_TIMEOUT_S = 120.0
SLOWER_THAN_HISTORY = 0.15
"""A baseline this much slower than this machine's record of it is worth a word beside every figure."""


class BaselineError(RuntimeError):
    """The baseline itself cannot be measured: no verdict on any candidate; the message says what happened."""


class Observer(Protocol):
    """Who is told every step, as data: the ledger's side."""

    def __call__(self, kind: str, body: dict[str, Any]) -> None:
        """Take one event."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How one judgement is run.

    ``fixed_pairs`` measures that many launch pairs and decides by the exact interval (the clean room); without it the
    always-valid interval stops the run. ``scope`` ``gate`` measures no speed-up. ``held_out`` and ``isolation`` are
    recorded in the result. ``history_rps`` is the ledger's throughput of this baseline on this machine, by workload;
    ``caveats`` are added to those of the run.
    """

    scope: Scope = "full"
    confidence: float = 0.99
    fixed_pairs: int | None = None
    max_pairs: int | None = None
    blocks: int | None = None
    min_speedup: float | None = None
    seed: int = 0
    held_out: bool = False
    isolation: str = "process"
    floor: NoiseFloor | None = None
    history_rps: dict[str, float] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Judge:
    """Everything that stays the same from candidate to candidate."""

    task: Task
    target: Target
    base: str
    guards: Sequence[Guard]
    requests: Callable[[int], RequestSource]
    settings: Settings
    observe: Observer
    progress: Progress

    def judge(self, candidate: Candidate | None) -> Verdict:
        """Judge a candidate, or measure the baseline against itself if there is none.

        Raises:
            BaselineError: the baseline did not start or answer, so nothing can be said about the candidate.
        """
        case = _Case(self, candidate)
        self.observe("judging", {"candidate": case.name, "base": self.base, "scope": self.settings.scope})
        try:
            with scratch_folder() as folder:
                case.run(folder)
        except ArmError as error:
            if error.arm == "baseline":
                raise BaselineError(f"the baseline of task {self.task.name!r} cannot be measured: {error}") from None
            case.refuse("smoke", Reason("smoke", str(error)))
        verdict = case.verdict()
        self.observe("verdict", verdict.as_json())
        return verdict


class _Case:
    """One judgement in progress."""

    def __init__(self, judge: Judge, candidate: Candidate | None) -> None:
        self.judge = judge
        self.candidate = candidate
        self.name = candidate.name if candidate else ""
        self.commit = judge.base
        self.began = self.stage_began = time.monotonic()
        self.stages: list[Stage] = []
        self.reasons: list[Reason] = []
        self.pairs: list[LaunchPair] = []
        self.guards: list[GuardResult] = []
        self.decision: Decision | None = None
        self.guards_s = 0.0
        self.max_pairs = self._budget()

    def run(self, folder: Path) -> None:
        """Go through the stages until one refuses."""
        if self.candidate is not None and not (self._policy(self.candidate) and self._build(folder)):
            return
        source = self.judge.requests(self.judge.settings.seed)
        duel = self._duel(folder, source)
        workloads = self.judge.task.workload
        probes = [probe for guard in self.judge.guards for probe in guard.probes(source, workloads)]
        self._measure(duel, 0, probes)
        self.passed("smoke", f"both arms answer; started in {self.pairs[0].starting_s:.1f} s")
        self._listen()
        failed = [result for result in self.guards if result.outcome == "failed"]
        if failed and self.candidate is not None:
            # A guard that has failed already will not recover with more requests: the rest would be wasted time.
            self._veto(failed)
            return
        while not self._enough():
            self._measure(duel, len(self.pairs), [])
        if self.decision is not None and self.decision.verdict != "improved":
            # Refused already: whatever the guards could not yet tell need not be found out.
            self._decide_speed()
            return
        if len(self.pairs) > 1:
            self._listen()
        while self._cannot_tell() and len(self.pairs) < self.max_pairs:
            self._measure(duel, len(self.pairs), [])
            self._listen()
        self._veto([result for result in self.guards if result.outcome != "passed"])
        self._decide_speed()

    def passed(self, stage: str, text: str) -> None:
        """Note that a stage let the candidate through."""
        self._stage(stage, "passed", text)

    def refuse(self, stage: str, *reasons: Reason) -> None:
        """Note that a stage refused the candidate."""
        self.reasons += reasons
        self._stage(stage, "failed", "; ".join(reason.text for reason in reasons))

    def verdict(self) -> Verdict:
        """Return what was found."""
        judge, settings, candidate = self.judge, self.judge.settings, self.candidate
        speeds = tuple(self._speeds())
        timing = Timing(
            wall_s=time.monotonic() - self.began,
            starting_s=sum(pair.starting_s for pair in self.pairs),
            warming_s=sum(pair.warming_s for pair in self.pairs),
            timed_s=sum(pair.timed_s for pair in self.pairs),
            guards_s=self.guards_s,
            discarded_s=sum(pair.discarded_s for pair in self.pairs),
        )
        return Verdict(
            task=judge.task.name,
            candidate=self.name,
            title=candidate.title if candidate else "",
            overhead_class=candidate.overhead_class if candidate else "",
            sha256=candidate.sha256 if candidate else "",
            base=judge.base,
            commit=self.commit,
            scope=settings.scope,
            status="rejected" if self.reasons else "accepted",
            reasons=tuple(self.reasons),
            stages=tuple(self.stages),
            speeds=speeds,
            metrics=self._metrics(),
            decision=self.decision.reason if self.decision else "",
            min_speedup=self._min_speedup,
            detectable=self._detectable(),
            guards=tuple(self.guards),
            floor=self._floor(),
            caveats=tuple(self._caveats({speed.workload: speed for speed in speeds})),
            machine=read_machine(),
            isolation=settings.isolation,
            held_out=settings.held_out,
            seed=0 if settings.held_out else settings.seed,
            timing=timing,
        )

    # The stages

    def _policy(self, candidate: Candidate) -> bool:
        try:
            self.commit = self.judge.target.apply(candidate, self.judge.base, self.judge.task)
        except PolicyError as error:
            self.refuse("policy", Reason("policy", str(error)))
            return False
        self.passed("policy", "applies exactly, inside the paths the task lets a patch touch")
        return True

    def _build(self, folder: Path) -> bool:
        tree = folder / "build"
        tree.mkdir()
        self.judge.target.lay_out(self.commit, tree)
        # In a child: a source file may be made to crash or hang the compiler.
        command = [sys.executable, "-I", "-S", "-m", "compileall", "-q", "."]
        try:
            done = subprocess.run(command, cwd=tree, env={}, capture_output=True, timeout=BUILD_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            self.refuse("build", Reason("build", f"did not compile within {BUILD_TIMEOUT_S:g} s"))
            return False
        if done.returncode:
            lines = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines() or ["crashed"]
            self.refuse("build", Reason("build", f"does not compile: {lines[-1].strip()}"))
            return False
        self.passed("build", "compiles")
        return True

    def _duel(self, folder: Path, source: RequestSource) -> Duel:
        judge = self.judge
        return Duel(
            task=judge.task,
            target=judge.target,
            commits={"baseline": judge.base, "candidate": self.commit},
            workloads=judge.task.workload,
            blocks=judge.settings.blocks or judge.task.duel.blocks,
            source=source,
            rng=random.Random(judge.settings.seed),
            folder=folder,
            progress=judge.progress,
        )

    def _measure(self, duel: Duel, index: int, probes: Sequence[Any]) -> None:
        pair = asyncio.run(duel.clean_pair(index, probes))
        self.pairs.append(pair)
        ratios = "  ".join(f"{work.name} {math.exp(pair.log_ratio(work.name)):.3f}x" for work in duel.workloads)
        most = "" if self.judge.settings.scope == "gate" else f" of at most {self.max_pairs}"
        left_s = (self.max_pairs - len(self.pairs)) * pair.wall_s
        self.judge.progress(
            f"launch pair {index + 1}{most}: {ratios}  ({pair.wall_s:.0f} s; at most {left_s:.0f} s left)"
        )
        self.judge.observe("pair", _pair_event(self.name, pair))

    def _listen(self) -> None:
        """Run every guard on all that was recorded so far."""
        began = time.monotonic()
        evidence = self._evidence()
        self.judge.progress(f"{len(self.judge.guards)} guards listen to {len(evidence.pairs)} answers of each arm")
        self.guards = [guard.check(evidence) for guard in self.judge.guards]
        self.guards_s += time.monotonic() - began

    def _cannot_tell(self) -> bool:
        """Return whether more requests could still let every guard pass."""
        outcomes = {result.outcome for result in self.guards}
        return self.candidate is not None and "undecided" in outcomes and "failed" not in outcomes

    def _veto(self, results: Sequence[GuardResult]) -> None:
        if results:
            self.refuse("guards", *(Reason(f"guard:{result.guard}", result.reason) for result in results))
        else:
            self.passed("guards", f"{len(self.guards)} guards passed")

    def _enough(self) -> bool:
        settings, count = self.judge.settings, len(self.pairs)
        if settings.scope == "gate" or self.candidate is None or settings.fixed_pairs:
            return count >= self.max_pairs
        self.decision = self._decide()
        return self.decision.stop

    def _decide_speed(self) -> None:
        if self.candidate is None or self.judge.settings.scope == "gate":
            return
        self.decision = self._decide()
        reasons = [] if self.decision.verdict == "improved" else [Reason("speedup", self.decision.reason)]
        reasons += [
            Reason(f"slower:{speed.workload}", f"{speed.ratio:.3f}x in {speed.workload}, interval {_interval(speed)}")
            for speed in self._speeds()
            if speed.workload != "all" and speed.high < 1 - self.judge.task.duel.tolerance
        ]
        if reasons:
            self.refuse("duel", *reasons)
        else:
            self.passed("duel", self.decision.reason)

    # What it all comes to

    @property
    def _min_speedup(self) -> float:
        given = self.judge.settings.min_speedup
        return self.judge.task.duel.min_speedup if given is None else given

    def _budget(self) -> int:
        settings, table = self.judge.settings, self.judge.task.duel
        if settings.scope == "gate":
            return table.gate_pairs
        if settings.fixed_pairs:
            return settings.fixed_pairs
        if self.candidate is None:
            return settings.max_pairs or table.floor_pairs
        return settings.max_pairs or table.max_pairs

    def _floor(self) -> NoiseFloor | None:
        if self.candidate is None and len(self.pairs) > 1:
            return NoiseFloor.from_pairs([pair.log_ratio() for pair in self.pairs])
        return self.judge.settings.floor

    def _detectable(self) -> float:
        floor = self._floor()
        if floor is None or self.judge.settings.scope == "gate":
            return math.nan
        effect = detectable_effect(floor.sd, self.max_pairs, confidence=self.judge.settings.confidence, power=0.9)
        return effect * self._min_speedup

    def _speeds(self) -> Iterator[Speed]:
        if len(self.pairs) < 1 or self.judge.settings.scope == "gate":
            return
        names = [workload.name for workload in self.judge.task.workload]
        shown: ArmName = "baseline" if self.candidate is None else "candidate"
        for name in [*names, "all"]:
            d = [pair.log_ratio(None if name == "all" else name) for pair in self.pairs]
            decision = self._decide(d)
            blocks = [block for pair in self.pairs for block in pair.blocks if block.workload == name]
            yield Speed(
                workload=name,
                ratio=math.exp(decision.estimate),
                low=math.exp(decision.interval.low),
                high=math.exp(decision.interval.high),
                confidence=decision.interval.confidence,
                pairs=tuple(math.exp(value) for value in d),
                baseline_rps=_median([block.rps["baseline"] for block in blocks]),
                candidate_rps=_median([block.rps["candidate"] for block in blocks]),
                block_s=tuple(1 / block.rps[shown] for block in blocks if block.rps[shown] > 0),
            )

    def _metrics(self) -> dict[str, dict[str, float]]:
        if self.judge.settings.scope == "gate":
            return {}
        blocks = [block for pair in self.pairs for block in pair.blocks]
        arms: tuple[ArmName, ...] = ("baseline",) if self.candidate is None else ("baseline", "candidate")
        table: dict[str, dict[str, float]] = {block.workload: {} for block in blocks}
        for name, row in table.items():
            for arm in arms:
                recordings = [getattr(block, arm) for block in blocks if block.workload == name]
                row |= {f"{arm}_{key}": value for key, value in summarise(recordings).items()}
        return table

    def _decide(self, d: list[float] | None = None) -> Decision:
        """Return what the log-ratios (over all workloads by default) say, by the rule this run was started with."""
        settings, d = self.judge.settings, d or [pair.log_ratio() for pair in self.pairs]
        fixed = settings.fixed_pairs or self.candidate is None
        rule = fixed_decide if fixed else partial(decide, max_pairs=self.max_pairs)
        return rule(d, floor=settings.floor, min_speedup=self._min_speedup, confidence=settings.confidence)

    def _evidence(self) -> Evidence:
        task, alone = self.judge.task.task, self.candidate is None
        timed = [pair for launch in self.pairs for block in launch.blocks for pair in _exchange_pairs(block, alone)]
        probed = [pair for launch in self.pairs for block in launch.probes for pair in _exchange_pairs(block, alone)]
        probes = {pair.request.id: ExchangePair("probe", pair.baseline, pair.candidate) for pair in probed}
        return Evidence(
            pairs=timed,
            probes=probes,
            language=task.language,
            deterministic=task.deterministic,
            seed=self.judge.settings.seed,
        )

    def _caveats(self, speeds: dict[str, Speed]) -> Iterator[str]:
        settings = self.judge.settings
        yield from settings.caveats
        if settings.isolation == "process":
            yield "unsandboxed: the servers ran as plain processes of this user"
        if self.candidate is not None and settings.scope == "full" and settings.floor is None:
            yield "no noise floor of this machine: nothing says how small an effect can be told from noise"
        contaminated = [pair for pair in self.pairs if pair.contaminated]
        if contaminated:
            yield f"{len(contaminated)} of {len(self.pairs)} launch pairs contaminated: {contaminated[0].contaminated}"
        slower = [name for name, speed in speeds.items() if name != "all" and speed.low <= 1]
        faster = [name for name, speed in speeds.items() if name != "all" and speed.low > 1]
        if self.candidate is not None and slower and faster:
            yield f"gain shown in {', '.join(faster)} only, not in {', '.join(slower)}"
        for name, before in settings.history_rps.items():
            if name in speeds and speeds[name].baseline_rps < before * (1 - SLOWER_THAN_HISTORY):
                now = speeds[name].baseline_rps
                yield f"baseline at {now:.2f} requests/s in {name}, {1 - now / before:.0%} below this machine's record"
        if self.decision is not None and self.decision.verdict == "improved":
            blocks = [[block.log_ratio for block in pair.blocks] for pair in self.pairs]
            checked = hierarchical_bootstrap(blocks, confidence=settings.confidence, seed=settings.seed % 2**32)
            if checked.low <= 0:
                yield f"the hierarchical bootstrap disagrees: its interval begins at {math.exp(checked.low):.3f}x"
        floor = self._floor()
        if floor is not None and floor.half_width > math.log(self._min_speedup):
            yield (
                f"noise floor of +-{math.expm1(floor.half_width):.1%} exceeds the {self._min_speedup - 1:.1%} "
                "asked for: only larger effects are claimed"
            )

    def _stage(self, name: Any, outcome: Any, text: str) -> None:  # noqa: ANN401  (literals of Stage)
        now = time.monotonic()
        stage = Stage(name=name, outcome=outcome, text=text, seconds=now - self.stage_began)
        self.stage_began = now
        self.stages.append(stage)
        body = {"candidate": self.name, "stage": name, "outcome": outcome, "text": text, "seconds": stage.seconds}
        self.judge.observe("stage", body)


def _exchange_pairs(block: BlockPair, alone: bool) -> list[ExchangePair]:
    theirs = {exchange.request.id: exchange for exchange in block.candidate.exchanges}
    return [
        ExchangePair(block.workload, exchange, None if alone else theirs[exchange.request.id])
        for exchange in block.baseline.exchanges
    ]


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan


def _interval(speed: Speed) -> str:
    return f"{speed.low:.3f}..{speed.high:.3f}"


def _pair_event(candidate: str, pair: LaunchPair) -> dict[str, Any]:
    """Return what the ledger keeps of a launch pair: every figure of every request, no text."""
    return {
        "candidate": candidate,
        "launch": pair.index,
        "contaminated": pair.contaminated,
        "warmup_blocks": pair.warmup_blocks,
        "seconds": {"starting": pair.starting_s, "warming": pair.warming_s, "timed": pair.timed_s, "wall": pair.wall_s},
        "blocks": [
            {
                "workload": block.workload,
                "log_ratio": block.log_ratio if math.isfinite(block.log_ratio) else None,
                "foreign_cores": round(block.foreign_cores, 3),
                "baseline": _recording_event(block.baseline, block.rps["baseline"]),
                "candidate": _recording_event(block.candidate, block.rps["candidate"]),
            }
            for block in pair.blocks
        ],
    }


def _recording_event(recording: Recording, rps: float) -> dict[str, Any]:
    return {
        "requests_per_s": rps,
        "slip_s": recording.slip_s,
        "exchanges": [_exchange_event(exchange) for exchange in recording.exchanges],
    }


def _exchange_event(exchange: Exchange) -> dict[str, Any]:
    seen = measure(exchange)
    if isinstance(seen, Failure):
        return {"id": exchange.request.id, "failure": seen.kind}
    # An answer without any audible audio has an infinite time to first audio.
    ttfa_s = seen.ttfa_s if math.isfinite(seen.ttfa_s) else None
    return {"id": exchange.request.id, "e2e_s": seen.e2e_s, "ttfa_s": ttfa_s, "audio_s": seen.audio_s}
