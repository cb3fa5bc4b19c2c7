"""A judge process's pytest session: parametrises a suite, judges each candidate once, and sends receipts."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_rsi.audit import Audit
from pytest_rsi.candidate import Candidate
from pytest_rsi.judge import BaselineError, Judge, Settings
from pytest_rsi.report.audit import print_audit
from pytest_rsi.report.terminal import console, plain, print_verdict
from pytest_rsi.scratch import scratch_folder
from pytest_rsi.stats import NoiseFloor
from pytest_rsi.target import Target
from pytest_rsi.task import load_task

if TYPE_CHECKING:
    from pytest_rsi.fault import Fault
    from pytest_rsi.guard import Guard, GuardFamily
    from pytest_rsi.process import Channel
    from pytest_rsi.verdict import Scope, Verdict

SESSION = pytest.StashKey["JudgeSession"]()
SPEED_TESTS = ("test_throughput", "test_speedup", "test_known_answer")
NEED_CANDIDATE = ("test_patch", "test_speedup")
AUDIT_TESTS = {"": (), "honest": ("test_false_alarms",), "all": ("test_audit", "test_false_alarms")}


@dataclass(eq=False)
class JudgeSession:
    """The plugin object of a judge process. Everything it decides on comes from the job, nothing from the terminal."""

    channel: Channel
    families: dict[str, GuardFamily] = field(default_factory=dict)
    guards: dict[str, Guard] = field(default_factory=dict)
    gate_only: bool = False
    _verdicts: dict[str, Verdict] = field(default_factory=dict)
    _broken: str | None = None
    _outcomes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        job = self.channel.job
        self.task = load_task(job["task"])
        self.candidates = {entry["name"]: Candidate.from_json(entry) for entry in _named(job["candidates"])}
        self.audit_tests = AUDIT_TESTS[job["audit"]]
        self._stack = ExitStack()
        self._folder = self._stack.enter_context(scratch_folder())

    # What fixtures ask for

    def verdict(self, name: str | None) -> Verdict:
        """Return the verdict on a candidate, or on the baseline alone; judged at the first call."""
        key = name or ""
        if self._broken is not None:
            pytest.fail(f"not measured: {self._broken}", pytrace=False)
        if key not in self._verdicts:
            try:
                self._verdicts[key] = self._judge().judge(self.candidates[key] if key else None)
            except BaselineError as error:
                self._broken = str(error)
                self.channel.send("error", {"text": self._broken})
                pytest.fail(self._broken, pytrace=False)
            self._config.hook.pytest_rsi_candidate_judged(verdict=self._verdicts[key])
        return self._verdicts[key]

    @cached_property
    def audit(self) -> Audit:
        """The audit of this session's guards."""
        return Audit(self._judge(), self._faults())

    def _faults(self) -> dict[str, Fault]:
        return {fault.name: fault for faults in self._config.hook.pytest_rsi_faults() for fault in faults}

    def _judge(self) -> Judge:
        settings = self.settings()
        hook = self._config.hook

        def requests(seed: int) -> Any:  # noqa: ANN401  (a hook's result; checked here)
            source = hook.pytest_rsi_requests(task=self.task, seed=seed, held_out=settings.held_out)
            if source is None:
                raise pytest.UsageError(f"no plugin makes requests for task {self.task.name!r} ({self.task.task.kind})")
            return source

        return Judge(
            task=self.task,
            target=self._target(),
            base=self.channel.job["base"],
            guards=tuple(self.guards.values()),
            requests=requests,
            settings=settings,
            observe=self.channel.send,
            progress=self._progress,
        )

    def settings(self) -> Settings:
        """Return how this session judges, from the job and from what was selected."""
        given = dict(self.channel.job["settings"])
        floor, caveats = given.pop("floor"), tuple(given.pop("caveats"))
        scope: Scope = "gate" if self.gate_only else "full" if self.candidates else "baseline"
        if given.get("held_out"):
            import secrets

            # Drawn here and kept in memory: whoever started this process does not know the requests either.
            given["seed"] = secrets.randbits(256)
        return Settings(**given, caveats=caveats, scope=scope, floor=NoiseFloor(**floor) if floor else None)

    def _target(self) -> Target:
        """Return a private clone: nothing that is built here reaches the repository that was given."""
        job, clone = self.channel.job, self._folder / "target.git"
        origin = Target(Path(job["repository"]), job["root"])
        return Target(clone, job["root"]) if clone.exists() else origin.clone(clone)

    def _progress(self, text: str) -> None:
        self.channel.send("progress", {"text": text})
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(f"    {plain(text)}")

    # pytest's hooks

    def pytest_configure(self, config: pytest.Config) -> None:
        """Make this session known to fixtures."""
        self._config = config
        config.stash[SESSION] = self

    def pytest_sessionstart(self) -> None:
        """Collect guard families once conftest and its plugins are there."""
        for families in self._config.hook.pytest_rsi_guards():
            for family in families:
                self.families[family.marker] = family

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Spread a suite over workloads, guards and candidates."""
        if metafunc.cls is None or not any(mark.name == "rsi_task" for mark in _marks(metafunc.cls)):
            return
        if "workload" in metafunc.fixturenames:
            metafunc.parametrize("workload", [workload.name for workload in self.task.workload])
        if "guard" in metafunc.fixturenames:
            self.guards = self._make_guards(metafunc.cls)
            metafunc.parametrize("guard", list(self.guards))
        if "fault" in metafunc.fixturenames:
            metafunc.parametrize("fault", self._audited_faults() if self.audit_tests else [])
        if "honest_guard" in metafunc.fixturenames:
            self.guards = self._make_guards(metafunc.cls)
            metafunc.parametrize(
                "honest_guard", [guard.name for guard in self.audit.guards] if self.audit_tests else []
            )
        if "judgement" in metafunc.fixturenames and self.candidates:
            names = list(self.candidates)
            metafunc.parametrize("judgement", names, ids=names, indirect=True, scope="session")

    def _audited_faults(self) -> list[str]:
        faults, wanted = self._faults(), self.task.audit.must_catch
        for name, size in wanted.items():
            sizes = faults[name].sizes if name in faults else None
            if sizes is None or size not in sizes:
                known = ", ".join(faults) if sizes is None else ", ".join(f"{size:g}" for size in sizes)
                what = f"{name}" if sizes is None else f"{name} = {size:g}"
                raise pytest.Collector.CollectError(f"task.toml [audit.must_catch] {what}, expected one of {known}")
        return list(faults)

    def _make_guards(self, suite: type) -> dict[str, Guard]:
        guards: dict[str, Guard] = {}
        for mark in _marks(suite):
            family = self.families.get(mark.name)
            if family is None:
                continue
            try:
                guard = family.make(*mark.args, **mark.kwargs)
            except (ValueError, TypeError) as error:
                raise pytest.Collector.CollectError(f"{suite.__name__}: @pytest.mark.{mark.name}: {error}") from None
            if guard.name in guards:
                raise pytest.Collector.CollectError(f"{suite.__name__}: guard {guard.name!r} is configured twice")
            guards[guard.name] = guard
        return guards

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out items that say nothing about what is judged: a speed-up without a candidate, for one."""
        items[:] = [item for item in items if self._applies(item)]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Announce what will be reported, and measure no speed if nobody asks for it."""
        names = [getattr(item, "originalname", item.name) for item in session.items]
        self.gate_only = bool(names) and not any(name in SPEED_TESTS for name in names)
        if not self._config.option.collectonly:
            self.channel.send("collected", {"items": [item.nodeid for item in session.items]})

    def _applies(self, item: pytest.Item) -> bool:
        name = getattr(item, "originalname", item.name)
        if self.audit_tests or name in AUDIT_TESTS["all"]:
            return name in self.audit_tests
        if name in NEED_CANDIDATE:
            return bool(self.candidates)
        if name == "test_known_answer":
            callspec = getattr(item, "callspec", None)
            chosen = callspec.params.get("judgement") if callspec else None
            return chosen is not None and self.candidates[chosen].expect is not None
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send what became of an item, once its last phase is over."""
        before = self._outcomes.get(report.nodeid, "passed")
        if report.outcome == "skipped":
            # An item that was not measured has not passed.
            before = "skipped"
        self._outcomes[report.nodeid] = "failed" if "failed" in (before, report.outcome) else before
        if report.when == "teardown":
            self.channel.send("report", {"item": report.nodeid, "outcome": self._outcomes[report.nodeid]})

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print every verdict."""
        if self._verdicts:
            terminalreporter.section("pytest-rsi")
        writer = terminalreporter._tw
        out = console(writer._file)
        for verdict in self._verdicts.values():
            print_verdict(out, verdict)
        if "audit" in self.__dict__ and (self.audit.catches or self.audit.alarms):
            report = self.audit.report()
            self.channel.send("audit", report)
            terminalreporter.section("pytest-rsi audit")
            print_audit(out, report)

    def pytest_unconfigure(self) -> None:
        """Remove the private folder."""
        self._stack.close()


def _marks(suite: type) -> list[pytest.Mark]:
    marks = getattr(suite, "pytestmark", [])
    # Decorators apply from the bottom up; a reader expects the order on the page.
    return list(reversed([mark.mark if isinstance(mark, pytest.MarkDecorator) else mark for mark in marks]))


def _named(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return candidates with names made unique."""
    seen: dict[str, int] = {}
    for entry in entries:
        name = entry["name"]
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            entry["name"] = f"{name}-{seen[name]}"
    return entries
