"""The hooks that suites, fixtures, guards and users implement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_rsi.duel import RequestSource
    from pytest_rsi.fault import Fault
    from pytest_rsi.guard import GuardFamily
    from pytest_rsi.task import Task
    from pytest_rsi.verdict import Verdict


@pytest.hookspec
def pytest_rsi_guards() -> Sequence[GuardFamily]:  # type: ignore[empty-body]
    """Return guard families; each registers its marker."""


@pytest.hookspec
def pytest_rsi_faults() -> Sequence[Fault]:  # type: ignore[empty-body]
    """Return faults that ``--rsi-audit`` does to answers, to see which guard notices."""


@pytest.hookspec(firstresult=True)
def pytest_rsi_judge_model(kind: str, name: str) -> Callable[..., Any] | None:
    """Return a model that a guard's marker names, or ``None`` if it is not yours; called once a process.

    By ``kind``: ``speaker`` takes an ``Audio`` and returns an embedding of unit length, float32 [d]; ``mos`` takes an
    ``Audio`` and returns predicted opinion scores by name, such as ``{"ovrl": 3.1}``; ``recogniser`` takes an ``Audio``
    and a BCP 47 language and returns the transcript.
    """


@pytest.hookspec(firstresult=True)
def pytest_rsi_requests(task: Task, seed: int, held_out: bool) -> RequestSource | None:
    """Return the source of a task's requests, or ``None`` to leave it to another plugin.

    The same seed draws the same requests. With ``held_out`` none may be one that development requests could be.
    """


@pytest.hookspec
def pytest_rsi_candidate_judged(verdict: Verdict) -> None:
    """Take a verdict, when a candidate or the baseline has been judged."""
