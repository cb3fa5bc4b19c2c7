"""The audit of a task's guards: harm of known size is done to real answers, and each must say whether it notices.

Two servers of the baseline answer the same requests, each text with two seeds. That gives honest pairs, on which no
guard may fail, and answers to harm. ``same-seed`` pairs are what a candidate of a deterministic server is judged on;
``other-seed`` pairs differ as two honest runs of a sampling server do, and are the harder case.
"""

from __future__ import annotations

import asyncio
import math
import random
import statistics
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pytest_rsi.duel import Duel
from pytest_rsi.evaluator import CAUGHT, evaluator_digest
from pytest_rsi.guard import Evidence, ExchangePair
from pytest_rsi.scratch import scratch_folder
from pytest_rsi.stats import binomial_interval

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_rsi.duel import LaunchPair, RequestSource
    from pytest_rsi.fault import Fault
    from pytest_rsi.guard import Guard, GuardResult
    from pytest_rsi.judge import Judge
    from pytest_rsi.recording import SpeechRequest
    from pytest_rsi.task import Workload

Regime = Literal["same-seed", "other-seed"]
REGIMES: tuple[Regime, Regime] = ("same-seed", "other-seed")
FALSE_ALARMS = 0.01
HONEST_PASS = 0.99
LAUNCHES = 2
SCHEMA = "pytest-rsi-audit/1"


@dataclass(frozen=True, slots=True)
class Trial:
    """What a guard said about one fault of one size: in how many draws it failed, or could not tell."""

    fault: str
    size: float
    regime: Regime
    guard: str
    failed: int
    undecided: int
    draws: int


@dataclass(frozen=True, slots=True)
class Catch:
    """What all guards together did with one size: in how many draws at least one failed, and in how many all passed."""

    fault: str
    size: float
    regime: Regime
    failed: int
    escaped: int
    draws: int


@dataclass(frozen=True, slots=True)
class Alarms:
    """What a guard said on honest draws. ``interval`` is the exact one of the share of false alarms, at 95 %."""

    guard: str
    regime: Regime
    failed: int
    undecided: int
    draws: int

    @property
    def interval(self) -> tuple[float, float]:
        """Clopper and Pearson's (1934) interval of the share of failures."""
        return binomial_interval(self.failed, self.draws)


@dataclass(frozen=True, slots=True)
class Margin:
    """What a figure of a guard needs: with ``needed`` as its margin 99 % of honest draws would have passed.

    ``margin`` is what the suite gives it; both are in ``unit``. ``median`` is what half of the draws would need.
    """

    guard: str
    figure: str
    regime: Regime
    unit: str
    margin: float
    median: float
    needed: float
    draws: int


@dataclass(frozen=True, slots=True)
class Pool:
    """Pairs of answers by regime, in the same order: the candidates' side is the same exchanges in both."""

    pairs: dict[Regime, tuple[ExchangePair, ...]]


class Twins:
    """A source that draws every text twice, the second time with another seed: honest reruns of each other."""

    def __init__(self, source: RequestSource, seed: int) -> None:
        self._source = source
        self._random = random.Random(seed)
        self.twin: dict[str, str] = {}

    def draw(self, workload: Workload, count: int) -> list[SpeechRequest]:
        """Return half as many texts as ``count``, each twice, in random order."""
        requests = []
        for asked in self._source.draw(workload, count // 2):
            other = replace(asked, id=f"{asked.id}b", seed=None if asked.seed is None else self._random.getrandbits(31))
            self.twin |= {asked.id: other.id, other.id: asked.id}
            requests += [asked, other]
        self._random.shuffle(requests)
        return requests


@dataclass
class Audit:
    """The audit of one task in one judge process. What is not asked for is not measured."""

    judge: Judge
    faults: Mapping[str, Fault]
    alarms: list[Alarms] = field(default_factory=list)
    margins: list[Margin] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    catches: list[Catch] = field(default_factory=list)

    @cached_property
    def guards(self) -> list[Guard]:
        """The guards that judge timed answers; those that send probes are proved by patches instead."""
        source, workloads = self.judge.requests(0), self.judge.task.workload
        return [guard for guard in self.judge.guards if not guard.probes(source, workloads)]

    @cached_property
    def pool(self) -> Pool:
        """The recorded answers.

        Raises:
            ArmError: the baseline did not start or answer.
        """
        judge, table = self.judge, self.judge.task.audit
        source = Twins(judge.requests(judge.settings.seed), judge.settings.seed)
        each = min(workload.requests for workload in judge.task.workload) // 2 * len(judge.task.workload)
        with scratch_folder() as folder:
            duel = Duel(
                task=judge.task,
                target=judge.target,
                commits={"baseline": judge.base, "candidate": judge.base},
                workloads=judge.task.workload,
                blocks=-(-table.honest // (each * LAUNCHES)),
                source=source,
                rng=random.Random(judge.settings.seed),
                folder=folder,
                progress=judge.progress,
            )
            judge.progress(f"two servers of the baseline answer {table.honest} texts, each with two seeds")
            launches = [asyncio.run(duel.pair(index)) for index in range(LAUNCHES)]
        return _pool(launches, source.twin)

    def escapes(self, name: str) -> list[str]:
        """Audit a fault; return in one line each what the task says must be caught and was not.

        Raises:
            ArmError: as for ``pool``.
        """
        fault = self.faults[name]
        catches = self.fault(fault)
        wanted = self.judge.task.audit.must_catch.get(name)
        return [
            f"{name} of {catch.size:g} {fault.unit} on {catch.regime} pairs: {catch.failed} of {catch.draws} draws "
            f"caught, {catch.escaped} accepted; [audit] must_catch names it"
            for catch in catches
            if wanted is not None and catch.size == wanted and catch.failed < CAUGHT * catch.draws
        ]

    def too_many_alarms(self, name: str) -> list[str]:
        """Audit a guard on honest pairs; return in one line each where it fails too often.

        Raises:
            ArmError: as for ``pool``.
        """
        guard = next(guard for guard in self.guards if guard.name == name)
        return [
            f"{name} on {alarms.regime} pairs: {alarms.failed} of {alarms.draws} honest draws failed, "
            f"at most {FALSE_ALARMS:.0%} allowed"
            for alarms in self.false_alarms(guard)
            if alarms.failed > FALSE_ALARMS * alarms.draws
        ]

    def false_alarms(self, guard: Guard) -> list[Alarms]:
        """Let a guard judge honest draws; return what it said by regime, and note what margins it would need."""
        table, found = self.judge.task.audit, []
        for regime in REGIMES:
            pairs = self.pool.pairs[regime]
            results = [guard.check(self._evidence(regime, self._draw(pairs, n))) for n in range(table.honest_draws)]
            outcomes = Counter(result.outcome for result in results)
            found.append(Alarms(guard.name, regime, outcomes["failed"], outcomes["undecided"], table.honest_draws))
            self.margins += _margins(guard.name, regime, results)
        self.alarms += found
        return found

    def fault(self, fault: Fault) -> list[Catch]:
        """Do harm of every size, the largest first, and let every guard judge it.

        A guard that heard nothing of a size in any draw is not asked about smaller ones.
        """
        asked = {regime: list(self.guards) for regime in REGIMES}
        found = []
        for size in reversed(fault.sizes):
            harmed = self._harmed(fault, size)
            for regime in REGIMES:
                trials, catch = self._size(fault, size, regime, harmed[regime], asked[regime])
                heard = {trial.guard for trial in trials if trial.failed}
                asked[regime] = [guard for guard in asked[regime] if guard.name in heard]
                self.trials += trials
                self.catches.append(catch)
                found.append(catch)
        return found

    def _size(
        self, fault: Fault, size: float, regime: Regime, pairs: Sequence[ExchangePair], guards: Sequence[Guard]
    ) -> tuple[list[Trial], Catch]:
        draws = self.judge.task.audit.draws
        outcomes: dict[str, list[str]] = {guard.name: [] for guard in guards}
        for draw in range(draws):
            evidence = self._evidence(regime, self._draw(pairs, draw))
            for guard in guards:
                outcomes[guard.name].append(guard.check(evidence).outcome)
        trials = [
            Trial(fault.name, size, regime, name, said.count("failed"), said.count("undecided"), draws)
            for name, said in outcomes.items()
        ]
        # A guard that is not asked any more has let larger harm pass.
        together = [{said[draw] for said in outcomes.values()} for draw in range(draws)]
        failed = sum("failed" in said for said in together)
        escaped = sum(said <= {"passed"} for said in together)
        return trials, Catch(fault.name, size, regime, failed, escaped, draws)

    def _harmed(self, fault: Fault, size: float) -> dict[Regime, list[ExchangePair]]:
        """Return pairs whose candidates' answers carry the fault; those of both regimes are the same."""
        count = self.judge.task.audit.pool
        originals = _some(self.pool.pairs["same-seed"], count)
        answers = [pair.candidate for pair in originals if pair.candidate is not None]
        injected = fault.inject(answers, size, self.judge.settings.seed % 2**32)
        harmed = {exchange.request.id: exchange for exchange in injected}
        return {
            regime: [
                replace(pair, candidate=harmed[pair.candidate.request.id])
                for pair in self.pool.pairs[regime]
                if pair.candidate is not None and pair.candidate.request.id in harmed
            ]
            for regime in REGIMES
        }

    def _draw(self, pairs: Sequence[ExchangePair], draw: int) -> list[ExchangePair]:
        """Return as many pairs as a judgement has, the same number of each workload, drawn without replacement."""
        rng = random.Random(f"{self.judge.settings.seed}/{draw}")
        workloads = {pair.workload: [other for other in pairs if other.workload == pair.workload] for pair in pairs}
        each = self.judge.task.audit.requests // len(workloads)
        drawn = [pair for those in workloads.values() for pair in rng.sample(those, k=min(each, len(those)))]
        order = {id(pair): at for at, pair in enumerate(pairs)}
        return sorted(drawn, key=lambda pair: order[id(pair)])

    def _evidence(self, regime: Regime, pairs: Sequence[ExchangePair]) -> Evidence:
        task = self.judge.task.task
        # The guards' own draws are the same each time: what was listened to once need not be again.
        return Evidence(
            pairs=pairs,
            probes={},
            language=task.language,
            deterministic=task.deterministic and regime == "same-seed",
            seed=self.judge.settings.seed,
        )

    def report(self) -> dict[str, Any]:
        """Return everything found as JSON-ready data (``docs/json.md``)."""
        return {
            "schema": SCHEMA,
            "task": self.judge.task.name,
            "evaluator": evaluator_digest(self.judge.task),
            "requests": self.judge.task.audit.requests,
            "regimes": list(REGIMES),
            "faults": [
                {"name": fault.name, "unit": fault.unit, "sizes": list(fault.sizes), "hears": fault.hears}
                for fault in self.faults.values()
            ],
            "must_catch": dict(self.judge.task.audit.must_catch),
            "alarms": [asdict(alarms) | {"interval": alarms.interval} for alarms in self.alarms],
            "margins": [asdict(margin) for margin in self.margins],
            "trials": [asdict(trial) for trial in self.trials],
            "catches": [asdict(catch) for catch in self.catches],
        }


def _margins(guard: str, regime: Regime, results: Sequence[GuardResult]) -> Iterator[Margin]:
    ends: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for finding in (finding for result in results for finding in result.findings):
        if finding.interval is not None and finding.margin:
            low, high = finding.interval
            bad = {"lower": high, "higher": -low, "same": max(-low, high)}[finding.better]
            ends.setdefault((finding.label, finding.unit), []).append((bad, finding.margin))
    for (figure, unit), pairs in ends.items():
        bads = sorted(max(0.0, bad) for bad, _ in pairs)
        yield Margin(
            guard=guard,
            figure=figure,
            regime=regime,
            unit=unit,
            margin=statistics.median(margin for _, margin in pairs),
            median=statistics.median(bads),
            needed=bads[min(len(bads) - 1, math.ceil(HONEST_PASS * len(bads)) - 1)],
            draws=len(bads),
        )


def _pool(launches: Sequence[LaunchPair], twin: dict[str, str]) -> Pool:
    ours = {
        exchange.request.id: (block.workload, exchange)
        for launch in launches
        for block in launch.blocks
        for exchange in block.baseline.exchanges
    }
    theirs = {
        exchange.request.id: exchange
        for launch in launches
        for block in launch.blocks
        for exchange in block.candidate.exchanges
    }
    same = [ExchangePair(workload, exchange, theirs[name]) for name, (workload, exchange) in ours.items()]
    other = [ExchangePair(workload, ours[twin[name]][1], theirs[name]) for name, (workload, _) in ours.items()]
    return Pool({"same-seed": tuple(same), "other-seed": tuple(other)})


def _some(pairs: Sequence[ExchangePair], count: int) -> list[ExchangePair]:
    """Return the first ``count`` pairs, the same number of each workload."""
    workloads = sorted({pair.workload for pair in pairs})
    return [
        pair
        for name in workloads
        for pair in [pair for pair in pairs if pair.workload == name][: count // len(workloads)]
    ]
