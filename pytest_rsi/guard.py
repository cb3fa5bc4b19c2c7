"""What a guard is: a check on paired exchanges that can veto and never adds reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_rsi.duel import RequestSource
    from pytest_rsi.recording import Exchange, SpeechRequest
    from pytest_rsi.task import Workload

Better = Literal["lower", "higher", "same"]
"""Which change is harmless: ``same`` makes a margin two-sided, for what must get neither longer nor shorter."""
Outcome = Literal["passed", "failed", "undecided"]
"""``undecided``: the requests at hand cannot tell a fault of the size the guard exists for. Never counts as passed."""


@dataclass(frozen=True, slots=True)
class ExchangePair:
    """The same request answered by both arms; ``candidate`` is ``None`` when only a baseline is measured.

    ``workload`` names the workload that timed it (``offline``, ``streaming``), or is ``probe`` for a guard's own.
    """

    workload: str
    baseline: Exchange
    candidate: Exchange | None

    @property
    def request(self) -> SpeechRequest:
        """The request both answered."""
        return self.baseline.request


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a guard may look at.

    ``pairs`` are timed requests; ``probes`` are the guard's own requests, by id; ``language`` is a BCP 47 tag;
    ``deterministic`` says that the task declares equal samples for an equal seed; ``seed`` makes every draw repeatable.
    """

    pairs: Sequence[ExchangePair]
    probes: Mapping[str, ExchangePair]
    language: str = "en"
    deterministic: bool = False
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a guard looked at, and what it says about it in one line.

    ``label`` names the figure, ``better`` says which change of it is harmless. ``value`` is the candidate's (the
    baseline's when there is no candidate), ``baseline`` the baseline's; ``interval`` is the confidence interval of the
    paired difference candidate - baseline and ``margin`` the most that may be, in ``unit``; ``worst`` lists the
    requests that differ most as (request id, difference), worst first.
    """

    outcome: Outcome
    text: str
    value: float | None = None
    baseline: float | None = None
    interval: tuple[float, float] | None = None
    margin: float | None = None
    limit: float | None = None
    unit: str = ""
    worst: tuple[tuple[str, float], ...] = ()
    label: str = ""
    better: Better = "lower"


@dataclass(frozen=True, slots=True)
class GuardResult:
    """What a guard found. ``reason`` is one line that names the figure, the limit, the margin and the worst request.

    The figures are those of the gravest of its ``findings``, as there; ``requests`` is how many pairs were seen.
    """

    guard: str
    outcome: Outcome
    reason: str
    value: float | None = None
    baseline: float | None = None
    interval: tuple[float, float] | None = None
    margin: float | None = None
    limit: float | None = None
    unit: str = ""
    requests: int = 0
    worst: tuple[tuple[str, float], ...] = ()
    findings: tuple[Finding, ...] = ()


class Guard(Protocol):
    """One configured guard of a suite."""

    @property
    def name(self) -> str:
        """The name of its test item: ``wer``, ``latency-ttfa``."""

    def probes(self, source: RequestSource, workloads: Sequence[Workload]) -> Sequence[SpeechRequest]:
        """Requests of its own, sent untimed to both arms among others; empty for most guards.

        Drawn from where the timed ones come from, so that no server can tell them by their words; each with an id that
        begins with the guard's name, by which ``check`` finds its answer.
        """

    def check(self, evidence: Evidence) -> GuardResult:
        """Judge the evidence; must not raise on anything that a server can answer."""


class GuardFamily(Protocol):
    """A guard's marker and how to make a guard from its arguments."""

    @property
    def marker(self) -> str:
        """The marker's name."""

    @property
    def signature(self) -> str:
        """The marker's arguments and one sentence, as ``pytest --markers`` shows them."""

    def make(self, *args: Any, **kwargs: Any) -> Guard:  # noqa: ANN401  (markers take what their family says)
        """Return the guard; raises ``ValueError`` in one line that names the argument and what was expected."""
